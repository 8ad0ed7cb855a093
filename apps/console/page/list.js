// All sessions, and an inbox of the questions that wait in any of them.

import { at, get, postOnce, remove, unique } from "./api.js";
import { Attachments } from "./attachments.js";
import { summary } from "./conversation.js";
import { attempt, h, reconcile } from "./dom.js";
import { keepDraft } from "./drafts.js";
import { Events } from "./events.js";
import { cost, count, kindOf, many, since, stateWords, tokens, whole } from "./format.js";
import { spelled } from "./highlight.js";
import { bind } from "./keys.js";
import { questionKeys, showQuestions } from "./questions.js";

// The stream tells what changes. This is for what it could not tell.
const AGAIN = 30_000;

export class ListView {
  constructor(agents) {
    this.agents = agents;
    this.items = [];
    this.waiting = [];
    this.late = [];
    this.next = null;
    this.filter = h("input", { type: "search", placeholder: "Search titles", "aria-label": "Search sessions", oninput: () => this.refresh() });
    this.state = h("select", { "aria-label": "State", onchange: () => this.refresh() },
      [["", "Any state"], ["confirming", "Waits for you"], ["executing", "Running tools"], ["streaming", "Answering"], ["done", "Done"]].map(([value, label]) => h("option", { value }, label)));
    this.prompt = h("textarea", { rows: 2, placeholder: "What should the agent do?", "aria-label": "Prompt of a new session" });
    this.forgetDraft = keepDraft(this.prompt, "begin");
    this.agent = h("select", { "aria-label": "Agent", hidden: agents.length < 2 }, agents.map((each) => h("option", null, each.name)));
    this.start = h("button", { class: "primary", onclick: () => this.begin() }, "Start");
    this.prompt.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        this.begin();
      }
    });
    this.attached = new Attachments(agents[0].attached);
    const begin = h("div", { class: "begin" }, this.prompt, this.attached.list, this.attached.input,
      h("div", { class: "row-of-buttons" }, h("span", { class: "quiet" }, agents.length === 1 ? `${agents[0].name} · ${agents[0].model}` : ""), this.agent, h("span", { class: "spacer" }), this.attached.button, this.start));
    this.attached.listen(begin);
    this.rows = h("div", { class: "sessions", role: "list" });
    this.more = h("button", { class: "link", hidden: true, onclick: () => this.load() }, "Show more");
    this.inbox = h("div", { class: "inbox-items" });
    this.inboxTitle = h("h2", { tabindex: -1 }, "Inbox");
    this.empty = h("p", { class: "empty" }, "Nothing waits for you.");
    this.notice = h("p", { class: "empty" }, "Loading…");
    this.box = h("div", { class: "list" },
      h("section", { class: "main", "aria-label": "Sessions" },
        begin,
        h("div", { class: "head" }, h("h1", { tabindex: -1 }, "Sessions"), h("span", { class: "spacer" }), this.filter, this.state),
        this.notice, this.rows, this.more),
      h("aside", { class: "inbox", "aria-label": "Inbox" }, this.inboxTitle, this.inbox, this.empty));
    this.unbind = bind([
      ["/", "Search", () => this.filter.focus()],
      ["n", "New session", () => this.prompt.focus()],
      ["+", "Attach a file", () => this.attached.button.click()],
      ["j", "Next session", () => this.step(1)],
      ["k", "Session before", () => this.step(-1)],
      ...questionKeys(this.inbox),
    ]);
    this.beat = setInterval(() => document.hidden || this.refresh(), AGAIN);
    this.key = unique();
    // The whole list comes at each beginning of the stream, and where there is none.
    this.events = new Events("api/events", (event) => this.take(event), () => this.refresh(), false);
  }

  close() {
    this.events.close();
    cancelAnimationFrame(this.frame);
    clearInterval(this.beat);
    this.unbind();
    this.closed = true;
  }

  step(by) {
    const links = [...this.rows.querySelectorAll("a")];
    const next = links.indexOf(document.activeElement) + by;
    links[Math.max(0, Math.min(links.length - 1, next))]?.focus();
  }

  async begin() {
    const prompt = this.prompt.value.trim();
    if (!prompt) return this.prompt.focus();
    const work = async () => postOnce("api/sessions", { agent: this.agent.value, prompt, files: await this.attached.files() }, this.key);
    const made = await attempt(work, this.start);
    if (!made) return;
    this.forgetDraft();
    location.hash = `#/s/${encodeURIComponent(made.id)}`;
  }

  query(more = "") {
    // Hundreds of children would hide what people began; they stand at their parent.
    const wanted = new URLSearchParams({ limit: "50", children: "no" });
    if (this.filter.value) wanted.set("q", this.filter.value);
    if (this.state.value) wanted.set("state", this.state.value);
    return `api/sessions?${wanted}${more}`;
  }

  // As the server filters the list.
  fits({ id, title, state, kind }) {
    const text = this.filter.value.toLowerCase(), group = this.state.value;
    return kind !== "child" && `${state}.`.startsWith(group && `${group}.`) && `${id}\n${title}`.toLowerCase().includes(text);
  }

  // A list that is on its way may be older: what comes meanwhile is for that one, too.
  take(event) {
    if (this.asked) this.late.push(event);
    this.apply(event);
    // One drawing for all that came within a frame.
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.show();
    });
  }

  apply({ name, data }) {
    const without = (infos) => infos.filter(({ id }) => id !== data.id);
    const known = this.items.find(({ id }) => id === data.id);
    if (name === "session" && known?.updated > data.updated) return;
    this.items = without(this.items);
    this.waiting = without(this.waiting);
    if (name !== "session") return;
    if (this.fits(data)) this.items.unshift(data);
    if (data.questions.length) this.waiting.push(data);
  }

  async refresh() {
    const asked = (this.asked = { query: this.query() });
    this.late = [];
    try {
      const [{ items, next }, waiting] = await Promise.all([get(asked.query), get("api/sessions?state=confirming&limit=200")]);
      if (this.closed || asked !== this.asked) return;
      const first = new Set(items.map((each) => each.id));
      // Parts that were loaded behind the first one stay.
      const behind = this.pages && this.shown === asked.query ? this.items.filter((each) => !first.has(each.id)).slice(0, this.pages * 50) : [];
      this.items = [...items, ...behind];
      if (!behind.length) Object.assign(this, { next, pages: 0 });
      this.shown = asked.query;
      this.waiting = waiting.items;
      this.late.forEach((event) => this.apply(event));
      this.show();
    } catch (error) {
      this.notice.hidden = false;
      this.notice.textContent = error.message;
    } finally {
      if (asked === this.asked) this.asked = null;
    }
  }

  async load() {
    const part = await attempt(() => get(this.query(`&cursor=${this.next}`)), this.more);
    if (!part) return;
    this.pages = (this.pages ?? 0) + 1;
    const known = new Set(this.items.map((each) => each.id));
    this.items.push(...part.items.filter((each) => !known.has(each.id)));
    this.next = part.next;
    this.show();
  }

  show() {
    const filtered = this.filter.value || this.state.value;
    this.notice.hidden = this.items.length > 0;
    this.notice.textContent = filtered ? "No session is like that." : "No session yet. Say above what the agent should do.";
    reconcile(this.rows, this.items.map((info) => ({ key: info.id, rev: JSON.stringify(info), info })), ({ info }) => this.row(info));
    this.more.hidden = this.next === null;
    const open = this.waiting.flatMap((info) => info.questions.map((question) => ({ info, question })));
    // What is withdrawn first stands first.
    open.sort((one, other) => (one.question.due ?? Infinity) - (other.question.due ?? Infinity) || one.info.updated - other.info.updated);
    this.inboxTitle.textContent = open.length ? `Inbox, ${open.length} open` : "Inbox";
    document.title = open.length ? `(${open.length}) turnwheel` : "turnwheel";
    this.empty.hidden = open.length > 0;
    showQuestions(this.inbox, open.map((each) => this.inboxItem(each)), () => this.refresh(), this.inboxTitle);
  }

  row(info) {
    const { spend, limits } = info;
    const share = limits.usd ? Number(spend.usd) / Number(limits.usd) : limits.tokens ? tokens(spend) / limits.tokens : limits.turns ? spend.turns / limits.turns : null;
    const bar = share === null ? null : h("meter", { min: 0, max: 1, value: Math.min(1, share), high: 0.8, "aria-label": "spend of the limit", title: `${Math.round(share * 100)} % of the limit` });
    const waits = info.questions.length ? info.questions.map((each) => `${each.tool} ${spelled(summary(each.tool, each.arguments))}`).join(", ") : "";
    return h("div", { class: "session-row", role: "listitem" },
      h("span", { class: `dot kind-${kindOf(info.state, info.reason)}${info.running && info.state !== "confirming" ? " busy" : ""}` }),
      h("div", { class: "what" },
        h("a", { href: `#/s/${encodeURIComponent(info.id)}`, dir: "auto" }, info.title || info.id),
        h("div", { class: "quiet" }, [info.kind === "main" ? null : info.kind, this.agents.length > 1 ? info.agent : null, waits && `asks: ${waits}`, info.queue.length ? `${info.queue.length} in the queue` : null].filter(Boolean).join(" · "))),
      h("span", { class: `pill kind-${kindOf(info.state, info.reason)}` }, stateWords(info.state, info.reason)),
      h("div", { class: "spend-cell" }, h("span", null, `${count(tokens(spend))} tokens`), h("span", { class: "quiet" }, `${many(spend.turns, "turn")} · ${cost(spend)}`), bar),
      h("time", { title: whole(info.updated), data: { since: info.updated } }, since(info.updated)),
      h("button", { class: "link remove", "aria-label": `Delete ${info.title || info.id}`, title: "Delete", onclick: (event) => this.forget(info, event.currentTarget) }, "×"));
  }

  async forget(info, control) {
    const ends = info.running && info.state !== "confirming" ? " Its run is at work, and ends." : "";
    if (!confirm(`Delete ${info.title || info.id} with all its children for good?${ends}`)) return;
    await attempt(() => remove(at(info.id, ends && "?unfinished=yes")), control);
    this.refresh();
  }

  inboxItem({ info, question }) {
    const agent = this.agents.find((each) => each.name === info.agent) ?? this.agents[0];
    const about = h("p", { class: "quiet" }, "in ", h("a", { href: `#/s/${encodeURIComponent(info.id)}` }, info.title || info.id), " · ", h("span", { data: { since: info.updated } }, since(info.updated)));
    return { question, spec: agent.specs.find((spec) => spec.name === question.tool), about };
  }
}
