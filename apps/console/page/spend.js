// What was spent, step by step and by model.

import { h, s } from "./dom.js";
import { count, money, span, tokens } from "./format.js";

const WIDTH = 640, HEIGHT = 220, LEFT = 56, BOTTOM = 24, TOP = 12;
const MEASURES = { tokens: ["Tokens", tokens, count], usd: ["US dollars", (spend) => Number(spend.usd), money], seconds: ["Active seconds", (spend) => spend.seconds, span] };

// What each model added at each step; tools and people add to none.
function byModel(steps, measure) {
  const models = new Map();
  let before = 0;
  for (const [n, step] of steps.entries()) {
    const added = measure(step.spend) - before;
    before += added;
    if (added <= 0) continue;
    const name = step.event === "ModelFinished" || step.event === "ModelFailed" ? step.model : "tools and others";
    if (!models.has(name)) models.set(name, []);
    models.get(name).push([n, added]);
  }
  return models;
}

function nice(most) {
  const size = 10 ** Math.floor(Math.log10(most || 1));
  return [1, 2, 5, 10].map((times) => times * size).find((each) => each >= most) ?? most;
}

export function spendPlot(steps, name) {
  const [title, measure, words] = MEASURES[name];
  const last = steps.length - 1, total = steps.length ? measure(steps[last].spend) : 0;
  const top = nice(total);
  const x = (n) => LEFT + ((WIDTH - LEFT - 8) * n) / steps.length;
  const y = (value) => HEIGHT - BOTTOM - ((HEIGHT - BOTTOM - TOP) * value) / (top || 1);
  const plot = s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "plot", role: "img", "aria-label": `${title} over ${steps.length} steps, ${words(total)} in all` });
  for (const part of [0, 0.5, 1]) {
    const at = y(top * part);
    plot.append(s("line", { x1: LEFT, x2: WIDTH - 8, y1: at, y2: at, class: "grid" }),
      s("text", { x: LEFT - 8, y: at + 4, "text-anchor": "end" }, words(top * part)));
  }
  plot.append(s("text", { x: LEFT, y: HEIGHT - 6 }, "step 0"), s("text", { x: WIDTH - 8, y: HEIGHT - 6, "text-anchor": "end" }, `step ${Math.max(0, last)}`));
  // Stacked: what all models spent until a step, the first below.
  const models = [...byModel(steps, measure)];
  let floor = steps.map(() => 0);
  models.forEach(([model, added], number) => {
    const roof = new Array(steps.length).fill(0);
    for (const [n, value] of added) roof[n] = value;
    for (let n = 1; n <= last; n += 1) roof[n] += roof[n - 1];
    const over = roof.map((value, n) => value + floor[n]);
    const stairs = (values) => values.flatMap((value, n) => [[x(n), y(value)], [x(n + 1), y(value)]]);
    const points = stairs(over), down = stairs(floor).reverse();
    plot.append(s("path", { class: `area part-${number % 4}`, d: `M${[...points, ...down].map((each) => each.map((value) => value.toFixed(1)).join(",")).join("L")}Z` }, s("title", null, model)));
    floor = over;
  });
  const legend = models.map(([model, added], number) =>
    h("li", null, h("span", { class: `key part-${number % 4}` }), model, h("span", { class: "quiet" }, ` ${words(added.reduce((sum, [, value]) => sum + value, 0))}`)));
  return h("figure", { class: "spend" }, plot, h("figcaption", null, h("ul", { class: "legend" }, legend)));
}

export function spendView(steps, limits) {
  const box = h("div");
  const choice = h("select", { "aria-label": "What is plotted", onchange: () => draw() }, Object.entries(MEASURES).map(([value, [label]]) => h("option", { value }, label)));
  const plot = h("div");
  const draw = () => plot.replaceChildren(spendPlot(steps, choice.value));
  if (!steps.length) return h("p", { class: "empty" }, "Nothing is spent yet.");
  draw();
  const known = Object.entries(limits).filter(([, value]) => value !== null);
  box.append(h("div", { class: "head" }, choice, h("span", { class: "quiet" }, known.length ? `limits of a run: ${known.map(([name, value]) => (name === "usd" ? money(value) : name === "seconds" ? span(value) : `${count(value)} ${name}`)).join(", ")}` : "without limits")), plot);
  return box;
}
