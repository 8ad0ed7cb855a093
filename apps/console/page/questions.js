// Open questions: approve, with other arguments too, or deny with a reason.
//
// A person approves what was shown. So all arguments stand before the buttons; where a long one is folded, the first
// press unfolds it. A tool that may change anything is approved by a second press.

import { at, get, post } from "./api.js";
import { ArgumentsForm, argumentsView } from "./arguments.js";
import { summary } from "./conversation.js";
import { h, reconcile, toast } from "./dom.js";
import { isFolded, unfoldAll } from "./fold.js";
import { until } from "./format.js";
import { visible } from "./highlight.js";
import { hold } from "./keys.js";

// Milliseconds for which no key acts after an answer from this page: the next question has the focus by then.
const NEXT = 500;

// The question is open no more, or its session is gone.
const OVER = [404, 409];

const DONE = { approve: "approved", always: "approved from now on", deny: "denied" };

// Tools that write a file, which a person sees before it is written.
const WRITING = ["write", "edit"];

class QuestionCard {
  // `spec` describes the tool, if the agent has it; `about` stands below the head. `done` is called after an answer.
  constructor(question, spec, about, done) {
    Object.assign(this, { question, spec, done, form: null, sure: null, sending: false, looking: WRITING.includes(question.tool) });
    const button = (act, label, onclick, more) => h("button", { type: "button", data: { act }, onclick, ...more }, label);
    this.yes = button("approve", "Approve", (event) => this.approve("approve", event));
    this.always = button("always", "Always", (event) => this.approve("always", event));
    this.edit = button("edit", "Edit arguments", () => this.toggleForm());
    this.no = button("deny", "Deny…", () => this.toggleReason(), { "aria-expanded": "false" });
    this.shown = h("div", { class: "shown" }, argumentsView(question.tool, question.arguments, true));
    this.reason = h("input", { type: "text", placeholder: "Reason, for the model to read", "aria-label": "Reason" });
    this.denying = h("div", { class: "denying", hidden: true }, this.reason,
      button("denied", "Deny", () => this.deny(), { class: "danger" }));
    this.warning = h("p", { class: "warning", role: "alert", hidden: true });
    this.problem = h("p", { class: "problem", role: "alert", hidden: true });
    this.box = this.makeBox(about);
    this.reason.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.isComposing) return;
      event.preventDefault();
      event.stopPropagation();
      this.deny();
    });
    this.box.addEventListener("unfold", () => {
      this.box.classList.add("unfolded");
      this.draw();
      showPart(this.box);
    });
    this.box.addEventListener("input", () => this.doubt());
    this.box.addEventListener("focusout", ({ relatedTarget }) => this.box.contains(relatedTarget) || this.doubt());
    this.box.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.doubt();
      // Enter that is held down presses a button again and again.
      if (event.key === "Enter" && event.repeat) event.preventDefault();
    });
    this.draw();
    if (this.looking) this.look();
  }

  // At the file that is written: what a yes would take away is shown, too.
  async look() {
    const { question, shown } = this;
    try {
      const file = await get(at(question.session, `/questions/${encodeURIComponent(question.id)}/file`));
      if (file.path !== null) shown.replaceChildren(argumentsView(question.tool, question.arguments, true, file));
    } catch (error) {
      shown.append(h("p", { class: "replaces" }, `What is in the file now is not known: ${error.message}`));
    }
    this.looking = false;
    this.draw();
  }

  makeBox(about) {
    const { question } = this;
    // Behind the nature of the tool stands what is special about the call, such as whether it runs in the sandbox.
    const [nature, ...more] = question.why.split("; ");
    return h("article", { class: "question", tabindex: 0, data: { question: question.id }, "aria-label": `Question about ${question.tool}` },
      h("header", null,
        h("span", { class: "dot kind-person" }),
        h("b", null, "May it "), h("code", { class: "tool" }, question.tool), " ",
        h("span", { class: "brief" }, visible(summary(question.tool, question.arguments))),
        h("span", { class: "place quiet", hidden: true }),
        question.due ? h("span", { class: "timer" }, "withdrawn ", h("span", { data: { due: question.due } }, until(question.due))) : null),
      about,
      question.agent ? h("p", { class: "quiet" }, `asked by the child ${question.agent}`) : null,
      this.shown,
      h("p", { class: "quiet tech" }, nature),
      more.length ? h("p", { class: "quiet" }, more.join("; ")) : null,
      h("div", { class: "row-of-buttons" }, this.yes, this.always, this.edit, this.no),
      this.warning, this.problem, this.denying, partsBar());
  }

  // A tool that this agent does not know may do anything, too.
  get unsafe() {
    return !["read_only", "idempotent"].includes(this.spec?.side_effect);
  }

  get folded() {
    return !this.form && isFolded(this.shown);
  }

  draw() {
    const { yes, always, folded, sure, question: { tool } } = this;
    const approve = this.form ? "Approve as edited" : "Approve";
    yes.textContent = folded ? "Show all to approve" : sure === "approve" ? `Yes, run ${tool}` : approve;
    yes.disabled = always.disabled = this.looking;
    yes.className = folded ? "" : sure === "approve" ? "primary sure" : "primary";
    always.className = sure === "always" ? "primary sure" : "";
    always.textContent = sure === "always" ? `Yes, run each ${tool}` : "Always";
    always.hidden = Boolean(this.form) || folded;
    this.edit.textContent = this.form ? "Keep arguments" : "Edit arguments";
    this.warning.hidden = !sure;
    this.warning.textContent = sure ? `${tool} may change anything${sure === "always" ? ", each time" : ""}. Press again to run it.` : "";
  }

  doubt() {
    if (!this.sure) return;
    this.sure = null;
    this.draw();
  }

  approve(decision, { detail }) {
    // The second half of a double click is no second look.
    if (detail > 1) return;
    if (this.folded) {
      unfoldAll(this.shown);
      this.box.focus({ preventScroll: true });
      return;
    }
    if (this.form && !this.form.check()) return this.form.focus();
    if (this.unsafe && this.sure !== decision) {
      this.sure = decision;
      this.draw();
      this.warning.scrollIntoView({ block: "nearest" });
      return;
    }
    this.send({ decision, ...(this.form ? { arguments: this.form.value } : {}) });
  }

  deny() {
    this.send({ decision: "deny", ...(this.reason.value ? { reason: this.reason.value } : {}) });
  }

  toggleForm() {
    this.sure = null;
    const before = this.form?.box ?? this.shown;
    this.form = this.form ? null : new ArgumentsForm(this.spec?.parameters, this.question.arguments);
    before.replaceWith(this.form?.box ?? this.shown);
    this.draw();
    this.form?.focus();
  }

  toggleReason() {
    this.denying.hidden = !this.denying.hidden;
    this.no.setAttribute("aria-expanded", String(!this.denying.hidden));
    if (!this.denying.hidden) this.reason.focus();
  }

  // One answer at a time. Refused, the question stays open with all that was typed, and says why.
  async send(body) {
    if (this.sending) return;
    const { question, problem } = this;
    this.sending = true;
    problem.hidden = true;
    this.box.dataset.answered = "yes";
    try {
      await post(at(question.session, `/questions/${encodeURIComponent(question.id)}`), body);
      toast(`${question.tool}: ${DONE[body.decision]}`);
    } catch (error) {
      this.sending = false;
      delete this.box.dataset.answered;
      problem.hidden = false;
      problem.textContent = error.message;
      if (error.status === 422) this.form?.refuse(error.message);
      problem.scrollIntoView({ block: "nearest" });
      if (OVER.includes(error.status)) toast(error.message, true);
    }
    this.doubt();
    this.done();
  }
}

// Bring the cards of `box` to `items`, each {question, spec, about}. A focus that goes with its question goes to the
// next one, or to `rest`.
export function showQuestions(box, items, done, rest) {
  const open = new Set(items.map(({ question }) => question.id));
  const closed = [...box.querySelectorAll(".question")].filter((card) => !open.has(card.dataset.question));
  const lost = closed.find((card) => card.contains(document.activeElement));
  const own = lost?.dataset.answered;
  // A person who is at work on an answer should know that it goes nowhere.
  for (const card of closed) {
    const begun = card.querySelector(".arguments, .denying:not([hidden])");
    if (begun && !card.dataset.answered) toast(`${card.getAttribute("aria-label")} is closed: it was answered elsewhere, or withdrawn. Yours was not sent.`, true);
  }
  reconcile(box, items.map((item) => ({ key: item.question.id, rev: 0, ...item })),
    ({ question, spec, about }) => new QuestionCard(question, spec, about, done).box);
  const cards = [...box.querySelectorAll(".question")];
  for (const [n, card] of cards.entries()) {
    const place = card.querySelector(".place");
    place.hidden = cards.length < 2;
    place.textContent = `question ${n + 1} of ${cards.length}`;
    showPart(card);
  }
  if (!lost) return;
  // What is typed for the question that is gone is no answer to the next one.
  hold(own ? NEXT : undefined);
  (box.querySelector(".question") ?? rest).focus();
}

function focusedCard(box) {
  const card = document.activeElement?.closest(".question");
  return box.contains(card) ? card : null;
}

export function nextQuestion(box) {
  const cards = [...box.querySelectorAll(".question")];
  const card = cards[(cards.indexOf(focusedCard(box)) + 1) % cards.length];
  card?.focus();
  card?.scrollIntoView({ block: "start" });
}

function scrollerOf(card) {
  let scrolls = card.parentElement;
  while (scrolls !== document.body && !/auto|scroll/.test(getComputedStyle(scrolls).overflowY)) scrolls = scrolls.parentElement;
  return scrolls;
}

// Of the height of a pane, how much a key goes on.
const PAGE = 0.8;

function partsBar() {
  const bar = h("div", { class: "parts", hidden: true }, h("span", { class: "part" }), h("span", { class: "spacer" }),
    h("button", { type: "button", onclick: () => bar.closest(".question").querySelector("[data-act=approve]").scrollIntoView({ block: "end" }) }, "To the end"));
  return bar;
}

// How much of a question that is longer than its pane is in sight.
function showPart(card) {
  if (!card.isConnected) return;
  const bar = card.querySelector(".parts"), button = card.querySelector("[data-act=approve]");
  const scrolls = scrollerOf(card), { top, bottom } = scrolls.getBoundingClientRect();
  const from = card.getBoundingClientRect().top, to = button.getBoundingClientRect().bottom;
  const page = scrolls.clientHeight * PAGE;
  const count = 1 + Math.ceil(Math.max(0, to - from - scrolls.clientHeight) / page);
  bar.hidden = to <= bottom + 1 || count < 2;
  const part = Math.min(count, 1 + Math.round(Math.max(0, top - from) / page));
  bar.querySelector(".part").textContent = `Part ${part} of ${count}. The key a goes on.`;
}

const showParts = () => document.querySelectorAll(".question").forEach(showPart);
document.addEventListener("scroll", showParts, { capture: true, passive: true });
addEventListener("resize", showParts);

// Press a button of the question that has the focus; where none has it, the first one gets it. Where the button is
// out of sight the question goes on by a page, since what stands between was not read.
export function pressQuestion(box, act) {
  if (box.hidden) return;
  const card = focusedCard(box);
  if (!card) return nextQuestion(box);
  const button = card.querySelector(`[data-act=${act}]`);
  const scrolls = scrollerOf(card);
  const { bottom } = scrolls.getBoundingClientRect();
  if (["approve", "always"].includes(act) && button.getBoundingClientRect().bottom > bottom + 1) scrolls.scrollBy({ top: scrolls.clientHeight * PAGE });
  else if (!button.hidden) button.click();
}

export const questionKeys = (box) => [
  ["q", "Go to the next question", () => nextQuestion(box)],
  ["a", "Approve the question with the focus", () => pressQuestion(box, "approve")],
  ["A", "Approve it from now on", () => pressQuestion(box, "always")],
  ["e", "Edit its arguments", () => pressQuestion(box, "edit")],
  ["d", "Deny it with a reason", () => pressQuestion(box, "deny")],
];
