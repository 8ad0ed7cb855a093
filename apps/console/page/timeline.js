// The steps as rows. Only those in sight are elements, so that many thousands scroll as ten do.

import { h } from "./dom.js";
import { kindOf, span, whole } from "./format.js";
import { Tail } from "./tail.js";
import { eventWords, titleWords } from "./words.js";

const ROW = 30, SPARE = 8;

export class Timeline {
  constructor(choose) {
    this.choose = choose;
    this.steps = [];
    this.at = -1;
    this.marked = new Map();
    this.space = h("div", { class: "space" });
    this.box = h("div", { class: "timeline", role: "listbox", tabindex: 0, "aria-label": "Steps" }, this.space);
    this.tail = new Tail(this.box);
    this.box.addEventListener("scroll", () => this.draw(), { passive: true });
    this.box.addEventListener("keydown", (event) => this.press(event));
    new ResizeObserver(() => this.draw()).observe(this.box);
  }

  // `marked` has words for steps that stand out.
  show(model, at, follow, marked = new Map()) {
    const { steps, known } = model;
    const moved = at !== this.at;
    const drawn = `${steps.length} ${known}`;
    if (!moved && drawn === this.drawn && marked.size === this.marked.size) return;
    this.drawn = drawn;
    Object.assign(this, { model, steps, at, marked });
    this.space.style.height = `${steps.length * ROW}px`;
    this.tail.pause(!follow);
    if (moved && at < 0) this.tail.following = true;
    if (moved && at >= 0) {
      this.reveal(at);
      this.tail.following = this.tail.atEnd;
    } else this.tail.keep();
    this.draw();
  }

  reveal(at) {
    const top = at * ROW;
    const { scrollTop, clientHeight } = this.box;
    if (top < scrollTop || top + ROW > scrollTop + clientHeight) this.box.scrollTop = top - clientHeight / 2;
  }

  press(event) {
    const page = Math.max(1, Math.floor(this.box.clientHeight / ROW) - 1);
    const by = { ArrowUp: -1, ArrowDown: 1, PageUp: -page, PageDown: page, Home: -Infinity, End: Infinity }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    const from = this.at < 0 ? this.steps.length - 1 : this.at;
    this.choose(Math.min(this.steps.length - 1, Math.max(0, from + by)));
  }

  draw() {
    const first = Math.max(0, Math.floor(this.box.scrollTop / ROW) - SPARE);
    const last = Math.min(this.steps.length, Math.ceil((this.box.scrollTop + this.box.clientHeight) / ROW) + SPARE);
    const rows = [];
    for (let n = first; n < last; n += 1) rows.push(this.steps[n] ? this.row(n) : this.unknown(n));
    this.model?.needs(first, last);
    this.space.replaceChildren(...rows);
    if (this.at >= first && this.at < last) this.box.setAttribute("aria-activedescendant", `${this.id}-${this.at}`);
    else this.box.removeAttribute("aria-activedescendant");
  }

  id = `row-${Math.random().toString(36).slice(2, 7)}`;

  unknown(n) {
    const row = h("div", { class: "row", role: "option", id: `${this.id}-${n}`, onclick: () => this.choose(n) }, h("span", { class: "number" }, n));
    row.style.top = `${n * ROW}px`;
    return row;
  }

  row(n) {
    const step = this.steps[n], before = this.steps[n - 1];
    const mark = this.marked.get(n);
    const row = h("div",
      {
        class: `row${mark ? " marked" : ""}`, role: "option", id: `${this.id}-${n}`, "aria-selected": n === this.at ? "true" : "false",
        "aria-posinset": n + 1, "aria-setsize": this.steps.length, title: `${step.event}${step.posted ? ", received" : ""} ${step.title}\n${whole(step.at)}`, onclick: () => this.choose(n),
      },
      h("span", { class: "number" }, step.number),
      h("span", { class: `dot kind-${kindOf(step.state)}` }),
      h("span", { class: "event" }, eventWords(step)),
      h("span", { class: "words" }, mark ?? titleWords(step)),
      h("span", { class: "state" }, before && before.state === step.state ? "" : step.state),
      h("span", { class: "took" }, span(step.seconds)));
    row.style.top = `${n * ROW}px`;
    return row;
  }
}
