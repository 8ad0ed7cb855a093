// The time slider: a ribbon of what the session waited for, step by step, and a handle to go back and forth.

import { h } from "./dom.js";
import { kindOf, many } from "./format.js";

export class Slider {
  constructor(choose, actions) {
    this.choose = choose;
    this.canvas = h("canvas", { class: "ribbon", "aria-hidden": "true" });
    this.range = h("input", {
      type: "range", min: 0, max: 0, value: 0, "aria-label": "Step",
      oninput: () => choose(Number(this.range.value)),
    });
    this.words = h("span", { class: "where", "aria-live": "polite" });
    const button = (text, label, act, more) => h("button", { title: label, onclick: act, ...more }, text);
    this.back = button("‹", "Step back", () => this.move(-1), { "aria-label": "Step back" });
    this.forth = button("›", "Step forward", () => this.move(1), { "aria-label": "Step forward" });
    this.now = button("Live", "Back to now", () => choose(-1), { class: "now" });
    this.fork = button("Fork here", "Fork before this step", () => actions.fork(this.at < 0 ? this.steps.length - 1 : this.at));
    this.branch = button("Branch…", "Go on from an earlier run (b)", () => actions.branch());
    this.box = h("section", { class: "slider", "aria-label": "Time" },
      h("div", { class: "track" }, this.canvas, this.range),
      h("div", { class: "row-of-buttons" }, this.back, this.forth, this.words, this.branch, this.fork, this.now));
    this.steps = [];
    this.at = -1;
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    addEventListener("theme", () => this.draw());
  }

  move(by) {
    const from = this.at < 0 ? this.steps.length - 1 : this.at;
    const to = Math.min(this.steps.length - 1, Math.max(0, from + by));
    this.choose(to === this.steps.length - 1 ? -1 : to);
  }

  show({ steps, at, known, label }) {
    const grown = known !== this.drawn;
    Object.assign(this, { steps, at, known });
    const last = steps.length - 1, here = at < 0 ? last : at;
    this.range.max = Math.max(0, last);
    this.range.value = Math.max(0, here);
    this.range.setAttribute("aria-valuetext", steps.length ? `step ${here}, ${label}` : "no steps");
    this.back.disabled = here <= 0;
    this.forth.disabled = here >= last;
    this.now.disabled = at < 0;
    this.fork.disabled = !steps.length;
    this.words.textContent = at < 0 ? `Now, after ${many(steps.length, "step")}` : `Step ${at} of ${last}`;
    this.box.classList.toggle("past", at >= 0);
    if (grown) this.draw();
  }

  draw() {
    const { canvas, steps } = this;
    this.drawn = this.known;
    const width = canvas.clientWidth, height = canvas.clientHeight, scale = devicePixelRatio || 1;
    if (!width || !steps.length) return;
    canvas.width = width * scale;
    canvas.height = height * scale;
    const pen = canvas.getContext("2d"), style = getComputedStyle(canvas);
    pen.scale(scale, scale);
    // Between the middles of the first and last place of the handle, which is 14 wide.
    const room = width - 14, each = steps.length > 1 ? room / (steps.length - 1) : room;
    // As many as can be told apart; of those between two, none is drawn.
    const apart = Math.max(1, 0.5 / each), colours = new Map();
    const colour = (kind) => colours.get(kind) ?? colours.set(kind, style.getPropertyValue(`--kind-${kind}`)).get(kind);
    for (let place = 0; place < steps.length; place += apart) {
      const n = Math.floor(place), step = steps[n];
      if (!step) continue;
      pen.fillStyle = colour(kindOf(step.state));
      pen.fillRect(7 + (n - 0.5) * each, 0, each * apart + 0.6, height);
    }
    pen.fillStyle = style.color;
    // Where runs are closer than two points, their bounds would be all there is to see.
    const runs = steps.filter((step) => step.event === "RunOpened");
    if (runs.length < room / 2) for (const { number } of runs) pen.fillRect(7 + (number - 0.5) * each, 0, 1, height);
  }
}
