// One session: what was said beside the machine that said it, now or at any step before.

import { at, get, post, postOnce } from "./api.js";
import { Chart } from "./chart.js";
import { Composer } from "./composer.js";
import { modelWords, show, summary, waiting } from "./conversation.js";
import { branchDialog, markBranches } from "./branch.js";
import { openDialog } from "./dialog.js";
import { attempt, download, h, inPlace, toast } from "./dom.js";
import { familyView } from "./family.js";
import { forkDialog } from "./fork.js";
import { kindOf, span, spent, stateOf, stateWords } from "./format.js";
import { spelled } from "./highlight.js";
import { bind, opensByKeys } from "./keys.js";
import { SessionModel } from "./model.js";
import { movesView, pastMoves } from "./moves.js";
import { exportPage } from "./offline.js";
import { nextQuestion, questionKeys, showQuestions } from "./questions.js";
import { Slider } from "./slider.js";
import { spendView } from "./spend.js";
import { stepView } from "./step.js";
import { Tail } from "./tail.js";
import { Timeline } from "./timeline.js";

const MODES = ["default", "accept_edits", "plan", "dont_ask", "bypass"];
const MODE_WORDS = { accept_edits: "accept edits", dont_ask: "don't ask" };
const TABS = [["timeline", "Timeline"], ["step", "Step"], ["moves", "Next moves"], ["spend", "Spend"], ["family", "Children"]];

export class SessionView {
  constructor(id, agents, step) {
    this.id = id;
    this.agents = agents;
    this.wanted = step;
    this.tab = step >= 0 ? "step" : "timeline";
    this.model = new SessionModel(id);
    this.talk = h("div", { class: "conversation", tabindex: 0, role: "log", "aria-label": "Conversation", "aria-live": "off" });
    this.tail = new Tail(this.talk);
    this.questions = h("div", { class: "questions", role: "region", "aria-label": "Open questions", tabindex: 0 });
    this.timers = h("div", { class: "timers" });
    this.status = h("p", { class: "empty" }, "Loading…");
    this.composer = new Composer(id, agents[0].attached, (sent) => this.said(sent));
    this.attached = this.composer.attached;
    this.pastWords = h("span");
    this.pastBar = h("div", { class: "past-bar", hidden: true }, this.pastWords, h("span", { class: "spacer" }), h("button", { class: "primary", onclick: () => this.look(-1) }, "Back to live"));
    this.chartBox = h("div", { class: "chart", role: "group", "aria-label": "Statechart" });
    this.chart = new Chart(this.chartBox);
    this.slider = new Slider((n) => this.look(n), { fork: (n) => this.fork(n), branch: () => this.branch() });
    this.timeline = new Timeline((n) => this.look(n));
    this.head = this.makeHead();
    this.tabs = h("div", { class: "tabs", role: "tablist", "aria-label": "Machine" }, TABS.map(([name, label]) =>
      h("button", { role: "tab", id: `tab-${name}`, "aria-controls": "panel", data: { tab: name }, onclick: () => this.open(name) }, label)));
    this.tabs.addEventListener("keydown", (event) => this.turn(event));
    this.panel = h("div", { class: "panel", role: "tabpanel", id: "panel", tabindex: 0 });
    this.panes = h("div", { class: "panes", role: "group", "aria-label": "What is shown" },
      [["talk", "Conversation"], ["machine", "Machine"]].map(([name, label]) => h("button", { data: { pane: name }, onclick: () => this.pane(name) }, label)));
    this.told = h("p", { class: "unseen", role: "status" });
    this.box = h("div", { class: "session", data: { pane: "talk" } }, this.told, this.head.box, this.panes,
      h("section", { class: "talk", "aria-label": "Conversation and answers" }, this.status, this.talk, this.tail.holder, this.timers, this.questions, this.pastBar, this.composer.box),
      h("section", { class: "machine", "aria-label": "Machine" },
        h("div", { class: "chart-frame" }, this.chartBox, h("button", { class: "whole-chart", onclick: () => this.chart.enlarge() }, "Whole chart")), this.slider.box, this.tabs, this.panel));
    this.pane("talk");
    this.model.subscribe(() => this.show());
    this.open(this.tab);
    this.unbind = bind([
      ...questionKeys(this.questions),
      ["m", "Write a message", () => this.composer.text.focus()],
      ["+", "Attach a file", () => this.attached.button.click()],
      ["i", "Interrupt", () => this.composer.interrupt()],
      ["x", "Cancel the call that runs", () => this.cancelRunning()],
      ["ArrowLeft", "Step back", () => this.slider.move(-1)],
      ["ArrowRight", "Step forward", () => this.slider.move(1)],
      ["l", "Back to live", () => this.look(-1)],
      ["f", "Fork here", () => this.fork(this.model.here)],
      ["b", "Branch: go on from an earlier run", () => this.branch()],
      ["w", "Why the last call", () => this.whyLast()],
      ...TABS.map(([name, label], n) => [String(n + 1), label, () => this.open(name)]),
      ["c", "The whole statechart", () => this.chart.enlarge()],
      ["u", "Back to the list", () => (location.hash = "#/")],
    ]);
  }

  makeHead() {
    const title = h("h1", { tabindex: -1 }), pill = h("span", { class: "pill" }), spend = h("span", { class: "quiet spend-line" }), line = h("span", { class: "line" });
    const model = h("select", { "aria-label": "Model", class: "tech", onchange: () => this.control({ model: model.value }, model) });
    const mode = h("select", { "aria-label": "Mode", class: "tech", onchange: () => this.control({ mode: mode.value }, mode) }, MODES.map((name) => h("option", { value: name }, MODE_WORDS[name] ?? name)));
    [model, mode].forEach(opensByKeys);
    const parent = h("a", { class: "quiet", hidden: true }, "parent");
    const menu = h("details", { class: "menu" }, h("summary", null, "Export"),
      h("div", { class: "menu-items" },
        h("button", { onclick: (event) => attempt(() => exportPage(this.model, this.chart.svg), event.currentTarget) }, "Offline page"),
        h("button", { onclick: (event) => this.save("/test.py", `test_${this.id.replace(/\W/g, "_")}.py`, "text/x-python", event.currentTarget) }, "Test for pytest"),
        h("button", { onclick: (event) => this.save("/export", `${this.id}.json`, "application/json", event.currentTarget) }, "JSON")));
    return { title, pill, spend, line, model, mode, parent,
      box: h("header", { class: "session-head" }, title, pill, line, h("span", { class: "spacer" }), parent, spend, model, mode, menu) };
  }

  async save(path, name, type, control) {
    const given = await attempt(() => get(at(this.id, path)), control);
    if (given) download(name, typeof given === "string" ? given : JSON.stringify(given), type);
  }

  async control(change, control) {
    if (await attempt(() => post(at(this.id, "/control"), change), control)) toast(`From now on: ${Object.values(change)}`);
    this.model.refresh();
  }

  pane(name) {
    this.box.dataset.pane = name;
    for (const button of this.panes.children) button.setAttribute("aria-pressed", String(button.dataset.pane === name));
    this.chart.reveal();
    this.slider.draw();
  }

  turn(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by) return;
    const n = TABS.findIndex(([name]) => name === this.tab);
    this.open(TABS[(n + by + TABS.length) % TABS.length][0]);
    this.tabs.querySelector("[aria-selected=true]").focus();
  }

  earlier() {
    this.above = this.model.conversation;
    this.model.reach(this.model.from - 1);
  }

  // What was sent, and the answer to it, come at the end.
  said(sent) {
    if (sent) this.tail.go();
    this.model.refresh();
  }

  look(step) {
    this.above = null;
    this.model.look(step);
    if (this.model.at < 0) this.tail.following = true;
    const query = this.model.at < 0 ? "" : `?step=${this.model.at}`;
    // The address is of this step, so that it can be given to others; no entry for each step of the way.
    history.replaceState(null, "", `#/s/${encodeURIComponent(this.id)}${query}`);
  }

  open(name) {
    this.tab = name;
    this.drawn = "";
    for (const button of this.tabs.children) {
      const on = button.dataset.tab === name;
      button.setAttribute("aria-selected", String(on));
      button.tabIndex = on ? 0 : -1;
    }
    this.panel.setAttribute("aria-labelledby", `tab-${name}`);
    this.panel.replaceChildren();
    this.showPanel();
  }

  show() {
    const { model } = this;
    if (this.wanted >= 0 && model.steps.length > this.wanted) {
      const step = this.wanted;
      this.wanted = -1;
      this.look(step);
    }
    const gone = model.error?.status === 404;
    this.box.classList.toggle("gone", gone);
    this.status.hidden = Boolean(model.info) && !model.error && (model.conversation.items.length > 0);
    if (gone) this.status.replaceChildren(`There is no session ${this.id}: it was deleted, or its address is wrong. `, h("a", { href: "#/" }, "Show all sessions"));
    else this.status.textContent = model.error ? model.error.message : model.info ? "Nothing was said yet." : "Loading…";
    this.status.classList.toggle("bad", Boolean(model.error));
    if (!model.info) return;
    this.showHead();
    this.tell();
    const { talk } = this;
    const past = model.at >= 0, added = this.above && model.conversation !== this.above;
    const stay = added ? inPlace(talk, ":not(.earlier)") : null;
    show(talk, model.conversation, this.actions, model.from > 0 ? () => this.earlier() : null);
    markBranches(talk, model.conversation, model);
    this.box.classList.toggle("past", past);
    this.pastBar.hidden = !past;
    this.pastWords.textContent = past ? `You look at step ${model.at} of ${model.steps.length - 1}` : "";
    waiting(this.timers, past ? null : model.present.wait);
    // Hidden in the past, and not closed: what a person began to write is there again.
    const items = model.info.questions.map((question) => ({ question, spec: this.specOf(question.tool) }));
    showQuestions(this.questions, items, () => model.refresh(), talk);
    this.questions.hidden = past || !model.info.questions.length;
    this.composer.show(model.info);
    // After what takes its room below.
    const seen = `${model.at} ${model.conversation.items.length}`;
    if (added) {
      this.above = null;
      stay();
    } else if (past && seen !== this.seen) talk.scrollTop = talk.scrollHeight;
    this.tail.pause(past);
    if (!added) this.tail.keep();
    this.seen = seen;
    this.slider.show(model);
    this.slider.branch.disabled = !this.canBranch;
    this.chart.show(model);
    this.showPanel();
  }

  // For those who do not see it: where the session is, and what it asks.
  tell() {
    const { state, reason, questions } = this.model.info;
    const asks = questions.map(({ tool, arguments: args }) => `May it ${tool} ${spelled(summary(tool, args))}?`);
    const words = asks.join(" ") || `The agent: ${stateWords(state, reason)}`;
    if (this.told.textContent !== words) this.told.textContent = words;
  }

  showHead() {
    const { model: { info, line, at: step, label }, head } = this;
    head.title.textContent = info.title || info.id;
    document.title = `${info.questions.length ? `(${info.questions.length}) ` : ""}${info.title || info.id}`;
    const { state: shown, reason, words } = step < 0 ? this.now : { state: label, reason: null };
    head.pill.textContent = words ?? stateWords(shown, reason);
    head.pill.className = `pill kind-${kindOf(shown, reason)}`;
    head.pill.title = shown;
    head.line.textContent = line === "live" ? "" : line === "lost" ? "reconnecting…" : line === "closed" ? "not live" : "";
    head.spend.textContent = spent(step < 0 ? info.spend : (this.model.steps[step]?.spend ?? info.spend));
    head.parent.hidden = !info.parent;
    if (info.parent) head.parent.href = `#/s/${encodeURIComponent(info.parent)}`;
    const models = [...new Set([info.model, ...(this.agent?.models ?? [])])];
    if (head.model.childElementCount !== models.length) head.model.replaceChildren(...models.map((name) => h("option", { value: name }, name.split(":").pop())));
    // Not while a person chooses.
    const { model: name, mode } = this.model.settings;
    if (document.activeElement !== head.model) head.model.value = name;
    if (document.activeElement !== head.mode) head.mode.value = mode;
  }

  // The state of the session. Its notices may tell more than the server's last answer about it did.
  get now() {
    const { info, present: { ended, live, wait } } = this.model;
    if (ended && info.steps <= ended.step) return { state: "done", reason: ended.reason };
    const words = stateOf(info.state) !== "streaming" ? undefined : wait ? "waits to ask the model" : live ? modelWords(live) : undefined;
    return { state: info.state, reason: info.reason, words };
  }

  // A child's runs are its parent's, and an open run has no end to go on from.
  get canBranch() {
    const { info } = this.model;
    return info !== null && info.state === "done" && info.kind !== "child";
  }

  get agent() {
    return this.agents.find((each) => each.name === this.model.info?.agent) ?? this.agents[0];
  }

  specOf(tool) {
    return this.agent?.specs.find((spec) => spec.name === tool);
  }

  get actions() {
    return {
      why: (call) => this.why(call),
      step: (step) => (this.look(step), this.open("step")),
      cancel: (call) => this.cancel(call),
      again: (control) => this.again(control),
      otherwise: (answer) => this.answerOtherwise(answer),
      child: (call) => (location.hash = `#/s/${encodeURIComponent(`${this.id}.${call}`)}`),
    };
  }

  // A tab is drawn anew only where what it shows is other than before.
  async showPanel() {
    const { model, tab, panel } = this;
    if (!model.info) return;
    if (tab === "timeline") {
      if (panel.firstChild !== this.timeline.box) panel.replaceChildren(this.timeline.box, this.timeline.tail.holder);
      this.timeline.show(model, model.at, model.at < 0);
      return;
    }
    const last = model.steps.length;
    const past = model.at >= 0;
    const shown = `${tab} ${tab === "step" ? model.here : `${last} ${model.info.state} ${tab === "moves" && past}`}`;
    if (shown === this.drawn || !last) return;
    this.drawn = shown;
    const views = {
      step: () => stepView(this.id, model.here),
      moves: () => past ? pastMoves(() => this.look(-1)) : movesView(this.id, () => model.refresh(), () => this.toQuestion()),
      spend: () => model.all().then(() => spendView(model.steps, model.info.limits)),
      family: () => model.all().then(() => familyView(this.id, (call) => this.askedOf(call), model.info.running)),
    };
    // A person who types into a move keeps the words.
    if (tab === "moves" && panel.contains(document.activeElement) && document.activeElement.tagName === "INPUT") return;
    if (!panel.firstChild) panel.replaceChildren(h("p", { class: "empty" }, "Loading…"));
    try {
      const view = await views[tab]();
      if (shown === this.drawn) panel.replaceChildren(view);
    } catch (error) {
      if (shown === this.drawn) panel.replaceChildren(h("p", { class: "empty bad" }, error.message));
    }
  }

  fork(step) {
    const { info, at: looked, steps } = this.model;
    const now = looked < 0 && step === steps.length - 1;
    forkDialog(this.id, step, { models: this.agent?.models ?? [], questions: now ? info.questions.filter(({ session }) => session === this.id) : [], specOf: (tool) => this.specOf(tool) });
  }

  // The question of a call, answered in another way in a fork: before the answer came in.
  async answerOtherwise({ answered, step }) {
    await attempt(() => this.model.all());
    const { steps } = this.model;
    this.fork(steps.findIndex((each) => each?.event === "ApprovalGiven" && each.request === answered && each.number <= step));
  }

  async branch() {
    const known = await attempt(async () => {
      await this.model.latest();
      await this.model.all();
      return this.model.complete;
    });
    if (!known) return;
    if (!this.canBranch) return toast("Branch once the run is over");
    branchDialog(this.model, () => (this.look(-1), this.model.refresh()));
  }

  toQuestion() {
    this.look(-1);
    this.pane("talk");
    nextQuestion(this.questions);
  }

  // What the child of a call was asked, as the steps tell it or, before it told anything, the conversation.
  askedOf(call) {
    const { steps, present } = this.model;
    const about = steps.find((step) => step.call === call && step.about)?.about;
    return present.calls.get(call)?.prompt?.slice(0, 100) ?? about?.slice(about.indexOf(": ") + 2);
  }

  async cancel(call) {
    if (await attempt(() => post(at(this.id, `/calls/${encodeURIComponent(call)}/cancel`)))) toast("The call is cancelled");
    this.model.refresh();
  }

  // The last prompt once more, after a run that failed.
  async again(control) {
    const last = this.model.present.items.findLast(({ kind }) => kind === "person");
    if (!last) return;
    const files = last.files.map(({ name, media_type, data }) => ({ name, media_type, data }));
    if (await attempt(() => postOnce(at(this.id, "/messages"), { text: last.text, mode: "queue", files }, `again-${last.key}`), control)) this.said(true);
  }

  cancelRunning() {
    const open = [...this.model.present.calls.values()].find((call) => call.content === undefined);
    if (open) this.cancel(open.id);
    else toast("No call is open");
  }

  whyLast() {
    const last = [...this.model.conversation.calls.values()].at(-1);
    if (last) this.why(last.id);
  }

  async why(call) {
    const told = await attempt(() => get(at(this.id, `/calls/${encodeURIComponent(call)}/why`)));
    if (!told) return;
    const begun = told.moments[0]?.at ?? 0;
    const rows = told.moments.map((moment) => h("li", null, h("span", { class: "took" }, `+${span(moment.at - begun)}`), h("b", null, moment.what), h("span", null, moment.text)));
    openDialog(["Why ", h("code", null, told.tool)], "why", h("ol", { class: "story" }, rows));
  }

  close() {
    this.unbind();
    this.model.close();
  }
}
