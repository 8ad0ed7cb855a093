// The statechart: the server draws it once, and classes light it. Nothing is drawn anew.

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

// How often each edge and place was passed on `ways`, each the labels that one step went through.
export function pathOf(steps) {
  const edges = new Map(), passed = new Set();
  for (const { way } of steps) {
    for (const [n, label] of way.entries()) {
      passed.add(label).add(stateOf(label));
      const ends = n ? `${stateOf(way[n - 1])} ${stateOf(label)}` : "";
      if (n && stateOf(way[n - 1]) !== stateOf(label)) edges.set(ends, (edges.get(ends) ?? 0) + 1);
    }
  }
  return { edges, passed };
}

export class Chart {
  constructor(box) {
    this.box = box;
    this.wanted = null;
    drawn().then(
      (svg) => {
        this.svg = document.importNode(svg, true);
        this.svg.removeAttribute("width");
        this.svg.removeAttribute("height");
        this.svg.classList.add("traced");
        this.box.replaceChildren(this.svg);
        if (this.wanted) this.show(...this.wanted);
      },
      (error) => this.box.replaceChildren(error.message),
    );
  }

  show(label, steps) {
    this.wanted = [label, steps];
    // Stored steps never change, so as many of them are the same ones.
    const shown = `${label} ${steps.length}`;
    if (!this.svg || shown === this.shown) return;
    this.shown = shown;
    const { edges, passed } = pathOf(steps);
    const state = stateOf(label);
    for (const group of this.svg.querySelectorAll("[data-state], [data-label]")) {
      const name = group.dataset.state ?? group.dataset.label;
      group.classList.toggle("lit", name === state || name === label);
      group.classList.toggle("passed", passed.has(name));
    }
    const last = steps.at(-1)?.way ?? [];
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

  // Where there is no room for all of it, the state that is lit is in sight.
  reveal() {
    const { box, svg } = this;
    const lit = svg?.querySelector("[data-state].lit");
    box.tabIndex = box.scrollWidth > box.clientWidth ? 0 : -1;
    if (!lit || box.tabIndex) return;
    const { left, width } = lit.getBoundingClientRect(), around = box.getBoundingClientRect();
    box.scrollLeft += left + width / 2 - around.left - around.width / 2;
  }
}
