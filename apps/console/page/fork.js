// Another way from a step on, and two ways side by side.

import { at, get, post } from "./api.js";
import { show } from "./conversation.js";
import { attempt, h } from "./dom.js";
import { kindOf, stateWords } from "./format.js";
import { SessionModel } from "./model.js";
import { fullStep } from "./step.js";
import { Timeline } from "./timeline.js";

const MODES = ["default", "accept_edits", "plan", "dont_ask", "bypass"];

// What may happen instead of the step, by the kind of its event: [label, the fields to ask for, the value].
function ways(event, models) {
  const text = h("textarea", { rows: 2, "aria-label": "Text", value: event.text ?? "" });
  const reason = h("input", { type: "text", "aria-label": "Reason", placeholder: "Reason, for the model to read" });
  const model = h("select", { "aria-label": "Model" }, models.map((name) => h("option", null, name)));
  const mode = h("select", { "aria-label": "Mode" }, MODES.map((name) => h("option", null, name)));
  const raw = h("textarea", { rows: 8, "aria-label": "Event", spellcheck: "false", value: JSON.stringify(event, null, 2) });
  const found = [["As it was, to go on in another way", null, () => undefined]];
  if (event.type === "ApprovalGiven") {
    found.push(["Approve", null, () => ({ type: "Approve" })], ["Deny", reason, () => ({ type: "Deny", message: reason.value || "no" })]);
  }
  if (event.type === "UserSent" || event.type === "UserSteered") found.push(["Another text", text, () => text.value]);
  found.push(["Another model", model, () => ({ type: "SetModel", model: model.value })]);
  found.push(["Another mode", mode, () => ({ type: "SetMode", mode: mode.value })]);
  if (event.at !== undefined && event.type !== "RunOpened") found.push(["Another event, as JSON", raw, () => JSON.parse(raw.value)]);
  return found;
}

export async function forkDialog(session, number, models) {
  const step = await attempt(() => fullStep(session, number));
  if (!step) return;
  const body = h("div", { class: "fields" });
  const found = ways(step.event, models);
  const choice = h("select", { "aria-label": "What happens instead" }, found.map(([label], n) => h("option", { value: n }, label)));
  choice.addEventListener("change", () => body.replaceChildren(found[choice.value][1] ?? ""));
  const make = h("button", { class: "primary", type: "submit" }, "Fork");
  const dialog = h("dialog", { class: "fork", "aria-labelledby": "fork-title" },
    h("form", { method: "dialog" },
      h("h2", { id: "fork-title" }, `Fork before step ${number}`),
      h("p", null, h("code", null, step.event.type), " led from ", h("code", null, step.before), " to ", h("code", null, step.state), ". The copy keeps all before it. This session stays as it is."),
      h("label", null, "What happens instead", choice), body,
      h("div", { class: "row-of-buttons" }, h("button", { type: "button", onclick: () => dialog.close() }, "Close"), h("span", { class: "spacer" }), make)));
  dialog.querySelector("form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const copy = await attempt(async () => {
      const instead = found[choice.value][2]();
      const made = await post(at(session, "/fork"), { at: number, ...(instead === undefined ? {} : { instead }) });
      await post(at(made.id, "/resume")).catch(() => null);
      return made;
    }, make);
    if (!copy) return;
    dialog.close();
    location.hash = `#/compare/${encodeURIComponent(session)}/${encodeURIComponent(copy.id)}`;
  });
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
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
    const side = { id, part, model, box: h("section", { class: "side", "aria-label": id }, head, conversation, timeline.box), timeline, conversation, head };
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
    const kind = (step) => (step ? [`step ${step.number}, `, h("code", null, step.event)] : ["nothing more"]);
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
