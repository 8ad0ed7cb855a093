// Open questions: approve, with other arguments too, or deny with a reason.

import { at, post } from "./api.js";
import { argumentsView, change, summary } from "./conversation.js";
import { attempt, h, reconcile, toast } from "./dom.js";
import { until } from "./format.js";
import { isText, problems } from "./schema.js";

// A field for each argument that the schema knows, and for those that are there.
class ArgumentsForm {
  constructor(schema, args) {
    this.schema = schema ?? {};
    this.fields = new Map();
    this.problem = h("p", { class: "problem", role: "status" });
    const names = [...new Set([...Object.keys(this.schema.properties ?? {}), ...Object.keys(args)])];
    const rows = names.map((name) => this.row(name, this.schema.properties?.[name], args[name]));
    this.box = h("div", { class: "arguments" }, rows, this.problem);
    this.check();
  }

  row(name, schema, value) {
    const text = isText(schema) && (value === undefined || typeof value === "string");
    const shown = value === undefined ? "" : text ? value : JSON.stringify(value);
    const field = h("textarea", {
      rows: Math.min(10, Math.max(1, shown.split("\n").length)), value: shown, spellcheck: "false",
      placeholder: value === undefined ? "left out" : "", oninput: () => this.check(),
    });
    this.fields.set(name, { field, text, given: value !== undefined });
    return h("label", null, h("span", { class: "name" }, name), h("span", { class: "quiet" }, schema?.description ?? ""), field);
  }

  get value() {
    const found = {};
    for (const [name, { field, text, given }] of this.fields) {
      if (field.value === "" && !(given && text)) continue;
      found[name] = text ? field.value : JSON.parse(field.value);
    }
    return found;
  }

  check() {
    let said = [];
    try {
      said = problems(this.schema, this.value);
    } catch {
      said = ["a field that is no text must be JSON"];
    }
    this.problem.textContent = said.join("; ");
    return !said.length;
  }
}

export async function answer(question, body, control) {
  const id = question.session;
  const done = await attempt(() => post(at(id, `/questions/${encodeURIComponent(question.id)}`), body), control);
  if (done) toast(`${question.tool}: ${{ approve: "approved", always: "approved from now on", deny: "denied" }[body.decision]}`);
  return done;
}

export function questionCard(question, schema, done) {
  const card = h("article", { class: "question", data: { question: question.id }, "aria-label": `Question about ${question.tool}` });
  const shown = h("div", { class: "shown" }, change(question.tool, question.arguments)
    ?? argumentsView(question.arguments));
  const reason = h("input", { type: "text", placeholder: "Reason, for the model to read", "aria-label": "Reason" });
  const denying = h("div", { class: "denying", hidden: true }, reason,
    h("button", { class: "danger", onclick: (event) => send({ decision: "deny", ...(reason.value ? { reason: reason.value } : {}) }, event.target) }, "Deny"));
  reason.addEventListener("keydown", (event) => {
    if (event.key === "Enter") denying.querySelector("button").click();
  });
  let form = null;
  const send = async (body, control) => {
    card.dataset.answered = "yes";
    // Refused, it is another person's by now, or wrong: what the session says is true.
    if (!(await answer(question, body, control))) delete card.dataset.answered;
    done();
  };
  const approve = (decision) => (event) => {
    if (form && !form.check()) return;
    send({ decision, ...(form && decision === "approve" ? { arguments: form.value } : {}) }, event.currentTarget);
  };
  const always = h("button", { data: { act: "always" }, onclick: approve("always") }, "Always");
  const edit = h("button", {
    data: { act: "edit" },
    onclick: () => {
      form = form ? null : new ArgumentsForm(schema, question.arguments);
      edit.textContent = form ? "Keep arguments" : "Edit arguments";
      yes.textContent = form ? "Approve as edited" : "Approve";
      always.hidden = Boolean(form);
      const view = form ? form.box : shown;
      card.querySelector(".shown, .arguments").replaceWith(view);
      if (form) view.querySelector("textarea")?.focus();
    },
  }, "Edit arguments");
  const yes = h("button", { class: "primary", data: { act: "approve" }, onclick: approve("approve") }, "Approve");
  const deny = h("button", {
    data: { act: "deny" },
    onclick: () => {
      denying.hidden = !denying.hidden;
      if (!denying.hidden) reason.focus();
    },
  }, "Deny…");
  // Behind the nature of the tool stands what is special about the call, such as whether it runs in the sandbox.
  const [nature, ...more] = question.why.split("; ");
  card.append(
    h("header", null,
      h("span", { class: "dot kind-person" }),
      h("b", null, "May it "), h("code", { class: "tool" }, question.tool), " ",
      h("span", { class: "brief" }, summary(question.tool, question.arguments)),
      question.due ? h("span", { class: "timer" }, "withdrawn ", h("span", { data: { due: question.due } }, until(question.due))) : null),
    question.agent ? h("p", { class: "quiet" }, `asked by the child ${question.agent}`) : "",
    shown,
    h("p", { class: "quiet tech" }, nature),
    more.length ? h("p", { class: "quiet" }, more.join("; ")) : "",
    h("div", { class: "row-of-buttons" }, yes, always, edit, deny),
    denying);
  return card;
}

// Whether the focus was in a question that is open no more, and went with it.
export function showQuestions(box, questions, schemaOf, done) {
  const open = new Set(questions.map((question) => question.id));
  const closed = [...box.querySelectorAll(".question")].filter((card) => !open.has(card.dataset.question));
  const lost = closed.some((card) => card.contains(document.activeElement));
  // A person who is at work on an answer should know that it goes nowhere.
  for (const card of closed) {
    const begun = card.querySelector(".arguments, .denying:not([hidden])");
    if (begun && !card.dataset.answered) toast(`${card.getAttribute("aria-label")} is closed: it was answered elsewhere, or withdrawn. Yours was not sent.`, true);
  }
  reconcile(box, questions.map((question) => ({ key: question.id, rev: 0, question })),
    ({ question }) => questionCard(question, schemaOf(question.tool), done));
  return lost;
}
