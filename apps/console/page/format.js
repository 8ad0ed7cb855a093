// Times, numbers and JSON as people read them.

export function clock(at) {
  return new Date(at * 1000).toLocaleTimeString([], { hour12: false });
}

export function whole(at) {
  return new Date(at * 1000).toLocaleString();
}

export function span(seconds) {
  if (seconds === null || seconds === undefined) return "";
  const value = Math.abs(seconds);
  if (value < 0.0005) return "0 ms";
  if (value < 1) return `${Math.max(1, Math.round(value * 1000))} ms`;
  if (value < 10) return `${value.toFixed(1)} s`;
  if (value < 60) return `${Math.round(value)} s`;
  if (value < 3600) return `${Math.floor(value / 60)} min ${Math.round(value % 60)} s`;
  if (value < 86400) return `${Math.floor(value / 3600)} h ${Math.round((value % 3600) / 60)} min`;
  return `${Math.floor(value / 86400)} d`;
}

export function since(at) {
  const seconds = Date.now() / 1000 - at;
  return seconds < 5 ? "now" : `${short(seconds)} ago`;
}

function short(seconds) {
  if (seconds < 60) return `${Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.round(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

export function until(due) {
  const seconds = due - Date.now() / 1000;
  return seconds <= 0 ? "now" : `in ${short(seconds)}`;
}

export function count(number) {
  if (number < 10_000) return number.toLocaleString("en");
  return number < 1_000_000 ? `${(number / 1000).toFixed(1)}k` : `${(number / 1_000_000).toFixed(2)}M`;
}

export function many(number, word) {
  return `${count(number)} ${word}${number === 1 ? "" : "s"}`;
}

export function size(bytes) {
  const [unit, by] = bytes < 1000 ? ["bytes", 1] : bytes < 1e6 ? ["kB", 1e3] : ["MB", 1e6];
  return `${Number((bytes / by).toFixed(1))} ${unit}`;
}

export function money(usd) {
  const value = Number(usd);
  if (!value) return "$0";
  return value < 0.01 ? `$${value.toPrecision(2)}` : `$${value.toFixed(2)}`;
}

export const tokens = (spend) => spend.input + spend.output;

// Tokens without a price cost more than nothing, and how much is not known.
export function cost({ usd, unpriced }) {
  if (!unpriced) return money(usd);
  return Number(usd) ? `${money(usd)} and more` : "no price";
}

export function spent(spend) {
  return `${many(spend.turns, "turn")} · ${count(tokens(spend))} tokens · ${cost(spend)}`;
}

export function parsed(text) {
  try {
    const value = JSON.parse(text);
    return value && typeof value === "object" && !Array.isArray(value) ? value : {};
  } catch {
    return {};
  }
}

export const stateOf = (label) => label.split(".")[0];

// What a state waits for, in the four kinds of the chart; and a fifth for an end that went wrong.
const KINDS = { confirming: "person", done: "end", thinking: "passes", new: "passes" };
const WELL = ["end_turn", "stop_sequence"];
export const kindOf = (label, reason) => {
  const kind = KINDS[stateOf(label)] ?? "world";
  return kind === "end" && reason && !WELL.includes(reason) ? "wrong" : kind;
};

const WORDS = {
  new: "not begun",
  thinking: "thinking",
  streaming: "answering",
  executing: "running tools",
  confirming: "waits for you",
  dispatching: "waits for children",
  compacting: "summarising",
  done: "done",
  unreadable: "unreadable",
  unfinished: "left in the middle",
};

const REASONS = {
  end_turn: "finished",
  stop_sequence: "finished",
  refusal: "the model refused",
  max_tokens: "answer too long",
  max_turns: "out of turns",
  token_budget: "out of tokens",
  max_budget: "out of money",
  time_budget: "out of time",
  interrupted: "interrupted",
  aborted: "aborted",
  blocked: "blocked by a hook",
  loop_detected: "went in circles",
  output_invalid: "gave no right output",
  error: "failed",
};

export const reasonWords = (reason) => REASONS[reason] ?? reason ?? "";
export function stateWords(label, reason) {
  const state = stateOf(label);
  return state === "done" && reason ? reasonWords(reason) : (WORDS[state] ?? label);
}
