// The statechart: the server draws it once, and classes light it. Nothing is drawn anew.

import { openDialog } from "./dialog.js";
import { h } from "./dom.js";
import { stateOf } from "./format.js";

let drawing = null;

// As an XML document, which is data to the browser: nothing in it runs.
function drawn() {
  drawing ??= new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("GET", "console/chart.svg");
    request.responseType = "document";
    request.overrideMimeType("image/svg+xml");
    request.onload = () => resolve(request.responseXML.documentElement);
    request.onerror = () => reject(new Error("the chart cannot be loaded"));
    request.send();
  });
  return drawing;
}

// How often each edge and place was passed until a step. It goes on from where it was last, there and back.
class Path {
  constructor() {
    this.length = 0;
    this.edges = new Map();
    this.passed = new Map();
  }

  go(steps, length) {
    for (; this.length < length; this.length += 1) this.count(steps[this.length].way, 1);
    for (; this.length > length; this.length -= 1) this.count(steps[this.length - 1].way, -1);
  }

  count(way, by) {
    const add = (counts, key) => counts.set(key, (counts.get(key) ?? 0) + by);
    for (const [n, label] of way.entries()) {
      const state = stateOf(label), before = n ? stateOf(way[n - 1]) : state;
      add(this.passed, label);
      if (state !== label) add(this.passed, state);
      if (before !== state) add(this.edges, `${before} ${state}`);
    }
  }
}

export class Chart {
  constructor(box) {
    this.box = box;
    this.wanted = null;
    this.path = new Path();
    drawn().then(
      (svg) => {
        this.svg = document.importNode(svg, true);
        this.svg.removeAttribute("width");
        this.svg.removeAttribute("height");
        this.svg.classList.add("traced");
        this.box.replaceChildren(this.svg);
        this.svg.addEventListener("click", () => this.enlarge());
        if (this.wanted) this.show(this.wanted);
      },
      (error) => this.box.replaceChildren(error.message),
    );
  }

  show(model) {
    this.wanted = model;
    const { label, steps, here, complete } = model;
    // Stored steps never change, so as many of them are the same ones.
    const shown = `${label} ${here} ${complete}`;
    if (!this.svg || shown === this.shown) return;
    this.shown = shown;
    // A part of the counts would be wrong ones.
    if (complete) this.path.go(steps, here + 1);
    const { edges, passed } = complete ? this.path : new Path();
    const state = stateOf(label);
    for (const group of this.svg.querySelectorAll("[data-state], [data-label]")) {
      const name = group.dataset.state ?? group.dataset.label;
      group.classList.toggle("lit", name === state || name === label);
      group.classList.toggle("passed", passed.get(name) > 0);
    }
    const last = steps[here]?.way ?? [];
    for (const group of this.svg.querySelectorAll("[data-edge]")) {
      const times = edges.get(group.dataset.edge) ?? 0;
      group.classList.toggle("taken", times > 0);
      const [from, to] = group.dataset.edge.split(" ");
      const now = last.some((each, n) => n && stateOf(last[n - 1]) === from && stateOf(each) === to && from !== to);
      group.classList.toggle("now", now);
      group.querySelector("text.count").textContent = times || "";
    }
    this.reveal();
    this.svg.querySelector("title").textContent = `The machine, at ${label}`;
  }

  // All of it at once, in a dialog. It stays the same drawing, and is lit as the session goes on.
  enlarge() {
    if (!this.svg || this.svg.closest("dialog")) return;
    // The page behind stays as it is.
    this.box.style.minHeight = `${this.box.offsetHeight}px`;
    const dialog = openDialog("Statechart", "large-chart", h("div", { class: "chart-large", tabindex: 0, "aria-label": "Statechart" }, this.svg));
    dialog.addEventListener("close", () => {
      this.box.replaceChildren(this.svg);
      this.box.style.minHeight = "";
      this.reveal();
    });
  }

  // Where there is no room for all of it, the state that is lit is in sight.
  reveal() {
    const { box, svg } = this;
    const lit = svg?.querySelector("[data-state].lit");
    box.tabIndex = box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight ? 0 : -1;
    if (!lit || box.tabIndex) return;
    const { left, top, width, height } = lit.getBoundingClientRect(), around = box.getBoundingClientRect();
    box.scrollLeft += left + width / 2 - around.left - around.width / 2;
    box.scrollTop += top + height / 2 - around.top - around.height / 2;
  }
}
