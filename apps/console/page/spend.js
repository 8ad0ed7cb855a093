// What was spent, step by step, by model and by child.

import { h, s } from "./dom.js";
import { count, money, span, tokens } from "./format.js";

const WIDTH = 640, HEIGHT = 220, LEFT = 56, BOTTOM = 24, TOP = 12;
const MEASURES = { tokens: ["Tokens", tokens, count], usd: ["US dollars", (spend) => Number(spend.usd), money], seconds: ["Active seconds", (spend) => spend.seconds, span] };

// So many parts are told apart; the smallest of more are one.
const MOST = 6, PARTS = 8;

function spenderOf(step) {
  if (step.event === "ModelFinished" || step.event === "ModelFailed") return step.model;
  // Its call tells two children apart that were asked the same.
  if (step.event.startsWith("Agent")) return `child\n${step.call}\n${step.about}`;
  return "tools and others";
}

const sumOf = (added) => added.reduce((sum, [, value]) => sum + value, 0);

// What each model and each child added at each step; tools and people add to neither.
function bySpender(steps, measure) {
  const spenders = new Map();
  let before = 0;
  for (const [n, step] of steps.entries()) {
    const added = measure(step.spend) - before;
    before += added;
    if (added <= 0) continue;
    const name = spenderOf(step);
    if (!spenders.has(name)) spenders.set(name, []);
    spenders.get(name).push([n, added]);
  }
  const children = [...spenders].filter(([name]) => name.startsWith("child\n")).sort(([, one], [, other]) => sumOf(other) - sumOf(one));
  const small = children.slice(MOST);
  const kept = [...spenders].filter(([name]) => !small.some(([each]) => each === name)).map(([name, added]) => [name.split("\n").at(-1) || "a child", added]);
  const rest = small.flatMap(([, added]) => added).sort(([one], [other]) => one - other);
  return small.length ? [...kept, [`${small.length} other children`, rest]] : kept;
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
  // Stacked: what all of them spent until a step, the first below.
  const spenders = bySpender(steps, measure);
  let floor = steps.map(() => 0);
  spenders.forEach(([name, added], number) => {
    const roof = new Array(steps.length).fill(0);
    for (const [n, value] of added) roof[n] = value;
    for (let n = 1; n <= last; n += 1) roof[n] += roof[n - 1];
    const over = roof.map((value, n) => value + floor[n]);
    const stairs = (values) => values.flatMap((value, n) => [[x(n), y(value)], [x(n + 1), y(value)]]);
    const points = stairs(over), down = stairs(floor).reverse();
    plot.append(s("path", { class: `area part-${number % PARTS}`, d: `M${[...points, ...down].map((each) => each.map((value) => value.toFixed(1)).join(",")).join("L")}Z` }, s("title", null, name)));
    floor = over;
  });
  const legend = spenders.map(([name, added], number) =>
    h("li", null, h("span", { class: `key part-${number % PARTS}` }), name, h("span", { class: "quiet" }, ` ${words(sumOf(added))}`)));
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
