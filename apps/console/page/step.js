// One step in full: what happened, what the machine decided, and what changed in its state and memory.

import { at, get } from "./api.js";
import { h } from "./dom.js";
import { span, spent, whole } from "./format.js";
import { jsonView } from "./highlight.js";
import { eventWords } from "./words.js";

const LONG = 160;

// What differs between two values, by path.
export function changes(before, after, path = "", found = []) {
  if (JSON.stringify(before) === JSON.stringify(after)) return found;
  const plain = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
  if (plain(before) && plain(after)) {
    for (const key of new Set([...Object.keys(before), ...Object.keys(after)]))
      changes(before[key], after[key], path ? `${path}.${key}` : key, found);
  } else found.push([path || "all", before, after]);
  return found;
}

const brief = (value) => {
  const text = value === undefined ? "nothing" : JSON.stringify(value);
  return text.length > LONG ? `${text.slice(0, LONG)}…` : text;
};

function table(rows) {
  return h("div", { class: "table", tabindex: 0 }, h("table", { class: "changes" },
    h("thead", null, h("tr", null, ["field", "before", "after"].map((word) => h("th", null, word)))),
    h("tbody", null, rows.map(([path, was, is]) =>
      h("tr", null, h("th", { scope: "row" }, path), h("td", { class: "was" }, brief(was)), h("td", { class: "is" }, brief(is)))))));
}

function part(title, number, open, body) {
  return h("details", { open }, h("summary", null, title, number === null ? null : h("span", { class: "quiet" }, ` ${number}`)), body);
}

const json = (value, label) => h("pre", { tabindex: 0, "aria-label": label }, jsonView(value));

// The stored steps never change, so each is asked for once.
const known = new Map();
export async function fullStep(session, number) {
  const key = `${session} ${number}`;
  if (!known.has(key)) {
    const found = get(at(session, `/steps/${number}`));
    known.set(key, found);
    found.catch(() => known.delete(key));
    if (known.size > 300) known.delete(known.keys().next().value);
  }
  return known.get(key);
}

export async function stepView(session, number) {
  const [step, before] = await Promise.all([fullStep(session, number), number > 0 ? fullStep(session, number - 1) : null]);
  const memory = changes(before?.memory ?? {}, step.memory ?? {});
  const state = changes(before?.values ?? {}, step.values ?? {});
  const { type, at: _, ...fields } = step.event;
  return h("div", { class: "step" },
    h("header", null,
      h("h2", null, `Step ${number}`), h("span", null, eventWords({ event: type, posted: step.entry === "Posted" })), h("code", { class: "quiet", title: "the journal's word" }, type),
      h("span", { class: "quiet" }, whole(step.at))),
    h("p", { class: "moved" }, h("code", null, step.before), h("span", { "aria-label": "to" }, " → "), h("code", null, step.state),
      h("span", { class: "quiet" }, `  ${spent(step.spend)}${before ? `, ${span(step.at - before.at)} after the one before` : ""}`)),
    part("What happened", null, true, json(fields, "event")),
    part("State", state.length ? `${state.length} changed` : "as before", state.length > 0,
      [state.length ? table(state) : null, h("details", null, h("summary", null, "whole"), json(step.values, "state"))]),
    part("Memory", memory.length ? `${memory.length} changed` : "as before", memory.length > 0,
      [memory.length ? table(memory) : null, h("details", null, h("summary", null, "whole"), json(step.memory, "memory"))]),
    part("Effects", step.effects.length, true, step.effects.map((effect) => {
      const { type: kind, ...more } = effect;
      return h("details", { class: "effect" }, h("summary", null, h("code", null, kind), h("span", { class: "quiet" }, ` ${brief(more)}`)), json(more, kind));
    })),
    part("History", `${step.history.length} messages`, false, step.history.map((message) =>
      h("details", { class: "effect" }, h("summary", null, h("b", null, message.role), h("span", { class: "quiet" }, ` ${brief(message.parts.map((each) => each.text ?? each.name ?? each.content ?? ""))}`)), json(message.parts, message.role)))));
}
