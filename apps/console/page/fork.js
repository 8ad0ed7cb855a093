// Another way from a step on, and two ways side by side.

import { at, get, post } from "./api.js";
import { ArgumentsForm, argumentsView } from "./arguments.js";
import { show } from "./conversation.js";
import { formDialog } from "./dialog.js";
import { attempt, h } from "./dom.js";
import { kindOf, parsed, stateWords } from "./format.js";
import { SessionModel } from "./model.js";
import { fullStep } from "./step.js";
import { Timeline } from "./timeline.js";
import { eventWords } from "./words.js";

const MODES = ["default", "accept_edits", "plan", "dont_ask", "bypass"];

const labelled = (label, field) => h("label", null, label, field);

// The call that waited for the answer to a question, in the state before that answer.
function askedCall(before, request) {
  return before?.values?.batch?.calls?.find(({ phase }) => phase?.request === request)?.call;
}

// The three answers to a question about `tool` with `args`. The fork is before step `at`.
function answers(tool, args, spec, at) {
  const reason = h("input", { type: "text", placeholder: "Reason, for the model to read" });
  const form = new ArgumentsForm(spec?.parameters, args);
  return [
    { label: `Approve ${tool}`, at, field: argumentsView(tool, args), value: () => ({ type: "Approve" }) },
    { label: `Approve ${tool} with other arguments`, at, field: form.box, fits: () => form.check(), value: () => ({ type: "Approve", arguments: JSON.stringify(form.value) }) },
    { label: `Deny ${tool}`, at, field: labelled("Reason", reason), value: () => ({ type: "Deny", message: reason.value || "no" }) },
  ];
}

const TEXTS = { UserSent: "Another prompt", UserSteered: "Another message", ModelFinished: "Another answer", ToolFinished: "Another result" };

// What may happen instead of a step, by the kind of its event: {label, at, field, fits, value}. The first one is chosen.
function ways(step, before, number, { models, questions, specOf }) {
  const { event } = step;
  const found = [];
  const call = event.type === "ApprovalGiven" ? askedCall(before, event.request) : null;
  if (call) {
    const other = answers(call.name, parsed(call.arguments), specOf(call.name), number);
    // Where it was a yes, a no is most likely wanted.
    found.push(...(event.decision.type === "Deny" ? other : other.reverse()));
  }
  for (const { tool, arguments: args } of questions) found.push(...answers(tool, args, specOf(tool), number + 1));
  if (TEXTS[event.type]) {
    const text = h("textarea", { rows: 4, value: event.text ?? event.content ?? "" });
    found.push({ label: TEXTS[event.type], at: number, field: labelled("Text", text), fits: () => text.value.trim() !== "" || (text.focus(), false), value: () => text.value });
  }
  const model = h("select", null, models.map((name) => h("option", null, name)));
  const mode = h("select", null, MODES.map((name) => h("option", null, name)));
  const raw = h("textarea", { rows: 8, spellcheck: "false", value: JSON.stringify(event, null, 2) });
  found.push(
    { label: "Another model", at: number, field: labelled("Model", model), value: () => ({ type: "SetModel", model: model.value }) },
    { label: "Another mode", at: number, field: labelled("Mode", mode), value: () => ({ type: "SetMode", mode: mode.value }) });
  const same = { label: "As it was, to go on in another way", at: number, field: null, value: () => undefined };
  if (event.at !== undefined && event.type !== "RunOpened") found.push({ label: "Another event, as JSON", at: number, field: labelled("Event", raw), value: () => JSON.parse(raw.value) });
  return call || questions.length ? [...found, same] : [same, ...found];
}

// `known` has the models, the open questions where the step is the present one, and what describes a tool.
export async function forkDialog(session, number, known) {
  const [step, before] = (await attempt(() => Promise.all([fullStep(session, number), number > 0 ? fullStep(session, number - 1) : null]))) ?? [];
  if (!step) return;
  const found = ways(step, before, number, known);
  const body = h("div", { class: "fields" }, found[0].field);
  const choice = h("select", null, found.map(({ label }, n) => h("option", { value: n }, label)));
  choice.addEventListener("change", () => body.replaceChildren(found[choice.value].field ?? ""));
  const what = eventWords({ event: step.event.type, posted: step.entry === "Posted" });
  const fields = [
    h("p", null, `The copy keeps all before it. Step ${number}, “${what}”, led from `, h("code", null, step.before), " to ", h("code", null, step.state), ". This session stays as it is."),
    labelled("What happens instead", choice), body,
  ];
  formDialog(`Fork before step ${number}`, "fork", fields, "Fork", async () => {
    const { at: place, fits, value } = found[choice.value];
    if (fits && !fits()) return false;
    const instead = value();
    const copy = await post(at(session, "/fork"), { at: place, ...(instead === undefined ? {} : { instead }) });
    await post(at(copy.id, "/resume")).catch(() => null);
    location.hash = `#/compare/${encodeURIComponent(session)}/${encodeURIComponent(copy.id)}`;
    return true;
  });
}

export class CompareView {
  constructor(one, other) {
    this.sides = [[one, "one"], [other, "other"]].map(([id, part]) => this.side(id, part));
    this.verdict = h("span", { class: "verdict", "aria-live": "polite" }, "Looking for the first difference…");
    this.ids = [one, other];
    this.whole = h("button", { "aria-pressed": "false", onclick: () => this.showWhole() }, "Show what both share");
    this.box = h("div", { class: "compare" }, h("div", { class: "verdict-bar" }, h("h1", { tabindex: -1 }, this.verdict), this.whole),
      h("div", { class: "columns" }, this.sides.map((side) => side.box)));
  }

  side(id, part) {
    const model = new SessionModel(id);
    const conversation = h("div", { class: "conversation", tabindex: 0, role: "log", "aria-label": `Conversation of ${id}` });
    const timeline = new Timeline((n) => (location.hash = `#/s/${encodeURIComponent(id)}?step=${n}`));
    const head = h("header");
    const side = { id, part, model, box: h("section", { class: "side", "aria-label": id }, head, conversation, timeline.box, timeline.tail.holder), timeline, conversation, head };
    model.subscribe(() => this.show(side));
    return side;
  }

  show(side) {
    const { model } = side;
    if (model.info)
      side.head.replaceChildren(
        h("h2", null, h("a", { href: `#/s/${encodeURIComponent(side.id)}` }, model.info.kind === "fork" ? "Fork" : "Original")),
        h("span", { class: `pill kind-${kindOf(model.info.state, model.info.reason)}` }, stateWords(model.info.state, model.info.reason)),
        h("span", { class: "quiet" }, model.info.id));
    const parted = this.found?.[side.part]?.number ?? -1;
    show(side.conversation, model.conversation, null, model.from > 0 && this.whole.ariaPressed === "true" ? () => model.reach(model.from - 1) : null);
    side.timeline.show(model, parted, true, parted < 0 ? new Map() : new Map([[parted, "first difference"]]));
    for (const item of model.conversation.items)
      side.conversation.shown.get(item.key).element.classList.toggle("shared", item.last < parted);
    const total = this.sides.reduce((sum, each) => sum + each.model.steps.length, 0);
    if (total !== this.compared) {
      this.compared = total;
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.compare(), 200);
    }
  }

  showWhole() {
    this.whole.setAttribute("aria-pressed", String(this.box.classList.toggle("whole")));
    this.sides.forEach((side) => this.show(side));
  }

  async compare() {
    const [one, other] = this.ids;
    const found = await attempt(() => get(at(one, `/compare?other=${encodeURIComponent(other)}`)));
    if (!found) return;
    this.found = found;
    const kind = (step) => (step ? [`step ${step.number}, `, h("span", { title: step.event }, eventWords({ event: step.event }))] : ["nothing more"]);
    this.verdict.replaceChildren(
      ...(!found.one && !found.other
        ? ["No difference: both did the same, but for times and names."]
        : [h("b", null, "They part here. "), "Left: ", ...kind(found.one), ", right: ", ...kind(found.other), ".",
           found.where.length ? h("span", { class: "quiet" }, ` Different: ${found.where.slice(0, 4).join(", ")}.`) : ""]));
    this.sides.forEach((side) => {
      side.model.reach(found[side.part]?.number ?? Infinity);
      this.show(side);
    });
  }

  close() {
    clearTimeout(this.timer);
    this.sides.forEach((side) => side.model.close());
  }
}
