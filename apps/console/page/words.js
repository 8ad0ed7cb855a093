// The steps of a session in the words of people. The journal's own word is shown where one points at a step.

// By event or entry: the words for one that is applied, and for one that was received and is applied by a later step.
const WORDS = {
  UserSent: ["prompt read", "prompt received"],
  UserSteered: ["message read", "message received"],
  InputWithdrawn: ["message taken back", "withdrawal received"],
  ApprovalGiven: ["answer applied", "answer received"],
  Interrupted: ["interrupted", "interrupt received"],
  ControlReceived: ["setting changed", "setting received"],
  CallCancelled: ["call cancelled", "cancel received"],
  Entered: ["went on"],
  ModelStreamed: ["model answers"],
  ModelFinished: ["model answered"],
  ModelFailed: ["model failed"],
  ToolProgressed: ["tool reports"],
  ToolFinished: ["tool finished"],
  ToolLost: ["tool lost"],
  HookAnswered: ["hook answered"],
  CallInspected: ["call inspected"],
  InstructionsRead: ["instructions read"],
  OutputDecoded: ["output checked"],
  AgentProgressed: ["child at work"],
  AgentFinished: ["child finished"],
  TimerFired: ["time came"],
  RunOpened: ["run begun"],
  TakenOver: ["taken over"],
  HandedOver: ["handed over"],
  Branched: ["branched"],
  Forked: ["forked"],
  Titled: ["title set"],
};

export function eventWords({ event, posted }) {
  const [applied, received = applied] = WORDS[event] ?? [event];
  return posted ? received : applied;
}

// The ids and times in a title are for the step in full, as are the names of its fields.
const OWN_IDS = /^(at=\S+ ?)?(request=)?([0-9a-f]{12}-\d+ ?)?/;

export function titleWords({ event, about, title }) {
  if (event === "InstructionsRead" && /(^|\s)text=""/.test(title)) return "there are none";
  const words = title.replace(OWN_IDS, "").replace(/^spent=\((.*)\)$/, "$1").replace(/^tool_use, /, "asks for tools, ").replace(/^end_turn, /, "");
  return [about, words].filter(Boolean).join(" · ");
}
