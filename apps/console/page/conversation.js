// What was said and done: a fold over notices, so that the same code shows it live and at any step before.

import { argumentsView } from "./arguments.js";
import { h, patch, reconcile } from "./dom.js";
import { clock, kindOf, many, parsed, reasonWords, span, until, whole } from "./format.js";
import { visible } from "./highlight.js";
import { markdown } from "./markdown.js";

// Longer results are folded; all of one is shown on demand.
const FOLDED = 12;

export class Conversation {
  constructor() {
    this.items = [];
    this.byKey = new Map();
    this.live = null;
    this.calls = new Map();
    this.wait = null;
    // How the last run ended, and at which step.
    this.ended = null;
  }

  static upTo(notices, from, to, steps) {
    const made = new Conversation();
    for (const notice of notices) {
      if (notice.step > to) break;
      made.take(notice);
    }
    for (const each of steps.slice(from, to + 1)) made.branch(each);
    // Nothing is under way in the past.
    made.drop();
    return made;
  }

  // With what is under way in another one, which no journal has.
  goOn({ live, wait, calls }) {
    this.wait = wait;
    this.live = live;
    if (live) this.items.push(live);
    for (const [id, { output }] of calls) {
      const call = this.calls.get(id);
      if (call && call.content === undefined) call.output = output;
    }
  }

  add(kind, key, step, fields) {
    const item = { kind, key, step, last: step, rev: 0, ...fields };
    this.byKey.set(key, item);
    // What streams stays last.
    let at = this.live ? this.items.indexOf(this.live) : this.items.length;
    // Steps may be known before the notices of those before them.
    while (at && this.items[at - 1].step > step) at -= 1;
    this.items.splice(at, 0, item);
    return item;
  }

  // A branch has no notice; its step tells of it.
  branch({ event, number, run }) {
    const key = `branch-${number}`;
    if (event !== "Branched" || this.byKey.has(key)) return;
    const text = `Back to ${run ? "the end of an earlier run" : "the beginning"}. The model no longer reads what is marked as another branch.`;
    this.add("note", key, number, { text, tone: "quiet" });
  }

  note(notice, text, tone = "") {
    this.add("note", `note-${notice.id || `${notice.step}-${this.items.length}`}`, notice.step, { text, tone });
  }

  call(id, step, fields) {
    let item = this.calls.get(id);
    if (!item) {
      item = this.add("call", `call-${id}`, step, { id, tool: "", args: "", phase: "wished", output: "" });
      this.calls.set(id, item);
    }
    Object.assign(item, fields, { last: step });
    item.rev += 1;
    return item;
  }

  stream(step) {
    this.wait = null;
    if (!this.live) {
      this.live = { kind: "live", key: `live-${step}`, step, rev: 0, text: "", thought: "", tools: [] };
      this.items.push(this.live);
    }
    this.live.rev += 1;
    return this.live;
  }

  drop() {
    if (this.live) this.items.splice(this.items.indexOf(this.live), 1);
    this.live = null;
  }

  take(notice) {
    const fold = FOLDS[notice.name];
    if (fold) fold.call(this, notice.data, notice);
  }
}

function said(conversation, message, { step, id }) {
  const text = message.parts.filter((part) => part.type === "Text").map((part) => part.text).join("\n\n");
  const thought = message.parts.filter((part) => part.type === "Reasoning").map((part) => part.text).join("\n\n");
  if (text || thought) {
    conversation.add("answer", `answer-${id}`, step, { text, thought, model: message.model, at: message.at });
  }
}

function decided(decision, by) {
  const word = { Approve: "approved", ApproveAlways: "approved from now on", Deny: "denied" }[decision.type];
  const changed = decision.arguments ? " with other arguments" : "";
  return `${word}${changed}${by ? ` by ${by}` : ""}${decision.message ? `: ${decision.message}` : ""}`;
}

// By the name of the notice. `this` is the conversation.
const FOLDS = {
  InputTaken({ messages }, { step, id }) {
    messages.forEach((message, n) => {
      const files = message.parts.filter((part) => part.type === "Binary");
      const text = message.parts.filter((part) => part.type === "Text").map((part) => part.text).join("\n\n");
      this.add("person", `person-${id}-${n}`, step, { text, files, at: message.at });
    });
  },
  InputBlocked({ reason }, notice) {
    this.note(notice, `A hook did not let this in: ${reason}`, "bad");
  },
  InputDropped(_, notice) {
    this.note(notice, "A message was taken back before it was read");
  },
  ModelCalled({ model, attempt }, { step }) {
    Object.assign(this.stream(step), { model, attempt, text: "", thought: "", tools: [] });
  },
  TextDelta({ text }, { step }) {
    this.stream(step).text += text;
  },
  ReasoningDelta({ text }, { step }) {
    this.stream(step).thought += text;
  },
  CallDelta({ tool, index }, { step }) {
    const live = this.stream(step);
    if (tool) live.tools[index] = tool;
  },
  AnswerDropped(_, notice) {
    const had = this.live?.text;
    this.drop();
    if (had) this.note(notice, "The answer broke off and was dropped.", "quiet");
  },
  AnswerKept({ message }, notice) {
    this.drop();
    said(this, message, notice);
    this.note(notice, "The answer was cut short.", "quiet");
  },
  TurnEnded({ message, calls = [] }, notice) {
    this.drop();
    said(this, message, notice);
    for (const wish of calls) this.call(wish.id, notice.step, { tool: wish.name, args: wish.arguments });
  },
  CallJudged({ call, tool, verdict, ground, detail }, { step }) {
    const known = this.calls.get(call);
    const phase = known?.phase === "wished" && verdict === "deny" ? "denied" : (known?.phase ?? "wished");
    this.call(call, step, { tool, phase, verdict, basis: [ground, detail].filter(Boolean).join(": ") });
  },
  ToolStarted({ call, tool, arguments: args }, { step }) {
    this.call(call, step, { tool, args, phase: "running", question: null });
  },
  ToolOutput({ call, text }, { step }) {
    const item = this.call(call, step, {});
    item.output = (item.output + text).slice(-20_000);
  },
  CallSettled({ call, tool, outcome, content, seconds }, { step }) {
    this.call(call, step, { tool, phase: outcome, content, seconds, question: null });
  },
  ApprovalRequested({ request, call, tool, arguments: args, why }, { step }) {
    this.call(call, step, { tool, args, phase: "asked", question: request, why });
  },
  ApprovalResolved({ request, decision, by }, { step }) {
    const item = [...this.calls.values()].find((each) => each.question === request);
    if (item) this.call(item.id, step, { question: null, phase: "decided", decided: decided(decision, by), answer: { answered: request, step } });
  },
  ApprovalWithdrawn({ request, late }, { step }) {
    const item = [...this.calls.values()].find((each) => each.question === request);
    if (item) this.call(item.id, step, { question: null, phase: "decided", decided: late ? "not answered in time" : "withdrawn" });
  },
  AgentStarted({ call, agent, prompt }, { step }) {
    this.call(call, step, { agent, prompt, phase: "running" });
  },
  AgentNoticed({ call, notice }, { step }) {
    const known = this.call(call, step, {});
    if (notice?.type === "TextDelta") known.output = (known.output + notice.text).slice(-2000);
  },
  RetryScheduled({ attempt, due, message }, notice) {
    this.drop();
    this.wait = { due, text: `The model is asked again (try ${attempt})` };
    this.note(notice, `The model failed: ${message}`, "warn");
  },
  RequestDelayed({ due, reason }, notice) {
    this.wait = { due, text: "The model is asked" };
    this.note(notice, `The model is asked later: ${reason}`, "warn");
  },
  FallbackUsed({ model, instead_of }, notice) {
    this.note(notice, `${model} answers for ${instead_of} for the rest of this run.`, "warn");
  },
  LoopDetected({ text }, notice) {
    this.note(notice, text, "warn");
  },
  ResultsCleared({ count }, notice) {
    this.note(notice, `The model is no longer shown ${many(count, "old result")}.`, "quiet");
  },
  CompactionStarted(_, notice) {
    this.note(notice, "The conversation is being summarised.", "quiet");
  },
  Compacted({ before, after }, notice) {
    this.drop();
    this.note(notice, `Summarised: about ${before} tokens became ${after}.`, "quiet");
  },
  CompactionFailed({ reason }, notice) {
    this.note(notice, `The conversation stays as it is: ${reason}`, "warn");
  },
  SettingChanged({ change }, notice) {
    const { type, ...fields } = change;
    this.note(notice, `Changed: ${Object.entries(fields).map(([name, value]) => `${name} is now ${value}`).join(", ")}`, "quiet");
  },
  SettingRefused({ reason }, notice) {
    this.note(notice, `Not changed: ${reason}`, "warn");
  },
  InterruptRequested(_, notice) {
    this.note(notice, "Interrupted. The run is stopping.", "warn");
  },
  NoticesMissed({ count }, notice) {
    this.note(notice, `This page was too slow for ${many(count, "notice")}; reload it to see them.`, "warn");
  },
  Warned({ text }, notice) {
    this.note(notice, text, "warn");
  },
  RunLeft({ run, why, detail }, notice) {
    const what = run ? `Nothing more is done for this run in that process (${why.replace("_", " ")}).` : "No run could begin there.";
    this.note(notice, `${what} ${detail}`.trim(), "warn");
  },
  RunEnded({ reason, spent, detail, at }, { step, id }) {
    this.drop();
    this.wait = null;
    this.ended = { reason, step };
    this.add("end", `end-${id}`, step, { reason, detail, at, spent });
  },
};

// As elements

const PHASES = {
  wished: "waits",
  asked: "asks you",
  decided: "decided",
  running: "running",
  ok: "done",
  error: "failed",
  crashed: "broke off",
  timed_out: "out of time",
  denied: "denied",
  skipped: "left out",
  cancelled: "cancelled",
  unknown: "may have run",
};

// What a model that was asked does, by what came from it until now.
export function modelWords({ text, tools }) {
  return text ? "answering" : tools.length ? "preparing a call" : "thinking";
}

// Pictures that a browser draws and that run nothing. Of other files the name is shown.
const PICTURES = ["image/png", "image/jpeg", "image/gif", "image/webp"];

const VERBS = {
  read: "Reads", write: "Writes", edit: "Edits", ls: "Looks at the files in", glob: "Looks for files named",
  grep: "Searches for", bash: "Runs", read_result: "Reads on in a result",
};

export function summary(tool, args) {
  const first = Object.values(args).find((each) => typeof each !== "object");
  const text = args.pattern ?? args.path ?? args.command ?? args.prompt ?? first ?? "";
  return String(text).split("\n")[0].slice(0, 140);
}

// Without `actions` it is all there: a page that is saved has no button to press.
function folded(text, label, actions) {
  const lines = text.split("\n");
  const pre = (body) => h("pre", { class: "result", tabindex: 0, "aria-label": label }, body);
  if (!actions || (lines.length <= FOLDED && text.length < 3000)) return pre(text);
  const box = h("div", null, pre(`${lines.slice(0, FOLDED - 4).join("\n").slice(0, 2000)}\n…`));
  const more = h("button", { class: "link", onclick: () => box.replaceChildren(pre(text)) }, `Show all ${many(lines.length, "line")}`);
  box.append(more);
  return box;
}

export function pictureOf({ media_type: kind, data, name }) {
  const words = name || kind;
  return PICTURES.includes(kind) ? h("img", { class: "picture", src: `data:${kind};base64,${data}`, alt: words, title: words }) : null;
}

function fileView(file) {
  return pictureOf(file) ?? h("p", { class: "quiet" }, `with ${file.name || file.media_type}`);
}

const VIEWS = {
  person: (item) =>
    h("article", { class: "item person" },
      h("header", null, h("b", null, "Prompt"), h("time", { title: whole(item.at) }, clock(item.at))),
      h("div", { class: "prose", dir: "auto" }, item.text),
      item.files.map(fileView)),
  answer: (item) =>
    h("article", { class: "item answer" },
      h("header", null, h("b", null, "Agent"), h("span", { class: "tech" }, item.model), h("time", { title: whole(item.at) }, clock(item.at))),
      item.thought ? h("details", { class: "thought" }, h("summary", null, "Thinking"), h("div", { class: "prose" }, markdown(item.thought))) : null,
      h("div", { class: "prose" }, markdown(item.text))),
  live: (item) =>
    h("article", { class: "item answer live", "aria-busy": "true" },
      h("header", null, h("b", null, "Agent"), h("span", { class: "tech" }, item.model ?? ""), h("span", { class: "pulse" }, modelWords(item))),
      item.thought ? h("div", { class: "prose thought" }, item.thought.slice(-600)) : null,
      h("div", { class: "prose" }, markdown(item.text)),
      item.tools.map((tool) => h("p", { class: "quiet" }, `prepares ${tool}`))),
  earlier: ({ earlier }) => h("p", { class: "item earlier" }, h("button", { onclick: earlier }, "Show what was before")),
  note: (item) => h("p", { class: `item note ${item.tone}` }, item.text),
  end: (item, actions) =>
    h("p", { class: `item end kind-${kindOf("done", item.reason)}` },
      h("span", { class: `dot kind-${kindOf("done", item.reason)}` }),
      h("span", { class: "reason" }, `Run ${reasonWords(item.reason)}${item.detail ? `: ${item.detail}` : ""}`),
      actions?.again && item.reason === "error" ? h("button", { class: "again", onclick: (event) => actions.again(event.currentTarget) }, "Try again") : null, h("time", { title: whole(item.at) }, clock(item.at))),
};

export function callView(item, actions, before) {
  const args = parsed(item.args);
  const settled = item.content !== undefined;
  const open = before ? before.querySelector("details").open : item.phase === "error";
  const button = (text, act, label) => h("button", { class: "link", onclick: act, "aria-label": label }, text);
  const body = [
    item.args && item.args !== "{}" ? argumentsView(item.tool, Object.keys(args).length ? args : item.args) : null,
    item.basis ? h("p", { class: "quiet tech" }, `${item.verdict ?? ""} by ${item.basis}`) : null,
    item.decided ? h("p", { class: "quiet" }, item.decided) : null,
    !settled && item.output ? folded(item.output, "output so far", actions) : null,
    settled && item.content ? folded(item.content, "result", actions) : null,
  ];
  const links = actions && [
    item.agent && button("Open the child", () => actions.child(item.id), `open the child of ${item.tool}`),
    item.answer && button("Answer otherwise", () => actions.otherwise(item.answer), `answer the question about ${item.tool} otherwise, in a fork`),
    button("Why", () => actions.why(item.id), `why ${item.tool}`),
    button("Step", () => actions.step(item.step), `step ${item.step} of the call of ${item.tool}`),
  ];
  // A question is denied, or answered; beside that, cancel would be one button too many.
  const cancel = actions && !settled && item.phase !== "asked" && h("button", { class: "link", onclick: () => actions.cancel(item.id), "aria-label": `Cancel ${item.tool}` }, "Cancel");
  return h("article", { class: `item call phase-${item.phase}`, data: { call: item.id } },
    h("details", { open },
      h("summary", null,
        h("code", { class: "tool" }, item.agent || item.tool),
        h("span", { class: "plain-only" }, VERBS[item.tool] ?? (item.agent || item.tool).replaceAll("_", " ")),
        h("span", { class: "brief" }, visible(summary(item.tool, args) || item.prompt || "")),
        h("span", { class: "phase" }, item.phase === "ok" && item.seconds ? span(item.seconds) : (PHASES[item.phase] ?? item.phase))),
      body, links ? h("div", { class: "links tech" }, links) : null),
    cancel);
}

// The answer that streams changes with each frame. Its element stays: a new one would have no height until it is laid
// out, and the box around it would lose its place.
function liveView(item, before) {
  const wanted = VIEWS.live(item);
  if (!before) return wanted;
  patch(before, wanted);
  return before;
}

function view(item, actions, before) {
  if (item.kind === "call") return callView(item, actions, before);
  return item.kind === "live" ? liveView(item, before) : VIEWS[item.kind](item, actions);
}

// With `earlier`, what was before it is shown by a button.
export function show(box, conversation, actions, earlier = null) {
  const first = earlier ? [{ kind: "earlier", key: "earlier", rev: 0, earlier }] : [];
  const opening = !box.childElementCount, fresh = [];
  reconcile(box, [...first, ...conversation.items], (item, before) => {
    const element = view(item, actions, before);
    if (!opening) fresh.push(element);
    return element;
  });
  // With their true heights at once, and not when they come into sight: the place of the reader depends on them.
  fresh.forEach((element) => element.classList.add("fresh"));
  if (fresh.length) requestAnimationFrame(() => requestAnimationFrame(() => fresh.forEach((element) => element.classList.remove("fresh"))));
}

// What the run waits for by itself. The deadline of a question stands at the question.
export function waiting(box, wait) {
  box.replaceChildren(wait ? h("p", { class: "timer" }, `${wait.text} `, h("span", { data: { due: wait.due } }, until(wait.due))) : "");
}
