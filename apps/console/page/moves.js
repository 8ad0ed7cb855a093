// Every event that is legal now. Each is tried without consequences first, and done by a second press.

import { at, get, post, remove } from "./api.js";
import { attempt, h, toast } from "./dom.js";
import { jsonView } from "./highlight.js";

// A yes is given at the question, which shows the arguments.
const isYes = (event) => event.type === "ApprovalGiven" && event.decision.type !== "Deny";

// How a move is done; what the world answers is not for a person to press.
function doing(session, event, text) {
  switch (event.type) {
    case "ApprovalGiven":
      return () => post(at(session, `/questions/${encodeURIComponent(event.request)}`), { decision: "deny" });
    case "UserSteered":
      return () => post(at(session, "/messages"), { text: text(), mode: event.how === "now" ? "now" : "steer" });
    case "UserSent":
      return () => post(at(session, "/messages"), { text: text(), mode: "queue" });
    case "InputWithdrawn":
      return () => remove(at(session, `/queue/${encodeURIComponent(event.input)}`));
    case "Interrupted":
      return () => post(at(session, "/interrupt"));
    case "CallCancelled":
      return () => post(at(session, `/calls/${encodeURIComponent(event.call)}/cancel`));
    case "ControlReceived": {
      const { type, ...change } = event.change;
      const body = type === "SetThinking" ? { thinking: change.tokens ?? null } : change;
      return () => post(at(session, "/control"), body);
    }
    default:
      return null;
  }
}

// In the place of the moves, at a step of the past. `back` leads to the present.
export function pastMoves(back) {
  return h("div", { class: "empty" },
    h("p", null, "No moves are shown in the past: a move acts on the session as it is now."),
    h("p", null, h("button", { onclick: back }, "Show the moves of now")));
}

// `toQuestion` shows the open questions.
export async function movesView(session, done, toQuestion) {
  const { items } = await get(at(session, "/moves"));
  if (!items.length) return h("p", { class: "empty" }, "Nothing is legal now.");
  const list = h("div", { class: "moves" });
  for (const move of items) {
    const texted = "text" in move.event;
    const text = texted ? h("input", { type: "text", placeholder: "Text", "aria-label": `Text of ${move.title}` }) : null;
    const event = () => (texted ? { ...move.event, text: text.value || "..." } : move.event);
    const outcome = h("div", { class: "outcome", "aria-live": "polite" });
    const act = doing(session, move.event, () => text.value);
    const run = async (control) => {
      if (texted && !text.value) return text.focus();
      if (await attempt(act, control)) {
        toast(`Done: ${move.title}`);
        done();
      }
    };
    const tried = async (pressed) => {
      const seen = await attempt(() => post(at(session, "/preview"), { event: event() }), pressed.currentTarget);
      if (!seen) return;
      outcome.replaceChildren(
        h("p", null, "would lead to ", h("code", null, seen.state), ` with ${seen.effects.length} effects`),
        ...seen.effects.map(({ type, ...more }) => h("details", { class: "effect" },
          h("summary", null, h("code", null, type)), h("pre", { tabindex: 0, "aria-label": type }, jsonView(more)))),
      );
    };
    list.append(
      h("article", { class: "move" },
        h("div", { class: "head" }, h("b", null, move.title), h("code", { class: "quiet" }, move.event.type), h("span", { class: "spacer" }),
          h("button", { onclick: tried, "aria-label": `Try ${move.title}` }, "Try"),
          isYes(move.event) ? h("button", { onclick: toQuestion, "aria-label": `To the question: ${move.title}` }, "To the question") : act ? h("button", { onclick: (pressed) => run(pressed.currentTarget), "aria-label": `Do it: ${move.title}` }, "Do it") : h("span", { class: "quiet" }, "the world's answer")),
        text, outcome));
  }
  return list;
}
