// What an edit would change, line by line.

import { h } from "./dom.js";
import { folded } from "./fold.js";
import { many } from "./format.js";
import { visible } from "./highlight.js";

// Beyond so many lines the comparison is by the common beginning and end alone: it is quadratic.
const MOST = 400;

const LINES = 12, SHOWN_LINES = 8;

// Unchanged lines that are shown before and after a change.
const AROUND = 3;

// The lines of both. Behind a last line end that both have, or the only text has, there is no line.
function linesOf(before, after) {
  const texts = [before, after];
  const ended = texts.every((text) => text === "" || text.endsWith("\n"));
  return texts.map((text) => (text === "" ? [] : (ended ? text.slice(0, -1) : text).split("\n")));
}

export function diffLines(before, after) {
  const [a, b] = linesOf(before, after);
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head += 1;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a.at(-1 - tail) === b.at(-1 - tail)) tail += 1;
  const same = (lines) => lines.map((text) => [" ", text]);
  return [
    ...same(a.slice(0, head)),
    ...middle(a.slice(head, a.length - tail), b.slice(head, b.length - tail)),
    ...same(a.slice(a.length - tail)),
  ];
}

function middle(a, b) {
  if (!a.length || !b.length || a.length > MOST || b.length > MOST)
    return [...a.map((text) => ["-", text]), ...b.map((text) => ["+", text])];
  // The longest common subsequence, from the ends.
  const longest = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i -= 1)
    for (let j = b.length - 1; j >= 0; j -= 1)
      longest[i][j] = a[i] === b[j] ? longest[i + 1][j + 1] + 1 : Math.max(longest[i + 1][j], longest[i][j + 1]);
  const found = [];
  let i = 0, j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) found.push([" ", a[i++], j++]);
    else if (j >= b.length || (i < a.length && longest[i + 1][j] >= longest[i][j + 1])) found.push(["-", a[i++]]);
    else found.push(["+", b[j++]]);
  }
  return found;
}

const KINDS = { "+": "added", "-": "removed", " ": "same", "…": "left-out" };

// Without the unchanged lines that are far from a change.
function aroundChanges(lines) {
  const near = new Set();
  lines.forEach(([mark], n) => {
    if (mark !== " ") for (let m = n - AROUND; m <= n + AROUND; m += 1) near.add(m);
  });
  const kept = [];
  let left = 0;
  for (const [n, line] of [...lines, null].entries()) {
    if (line && !near.has(n)) {
      left += 1;
      continue;
    }
    if (left) kept.push(["…", many(left, "unchanged line")]);
    left = 0;
    if (line) kept.push(line);
  }
  return kept;
}

// With `fold`, a long one has its first lines, and a button with the count of the others.
export function diffView(before, after, label, fold = false) {
  const lines = aroundChanges(diffLines(before, after));
  const view = (some) => h("div", { class: "diff", role: "group", "aria-label": label, tabindex: 0 }, some.map(([mark, text]) =>
    h("div", { class: `line ${KINDS[mark]}` }, h("span", { class: "mark" }, mark), h("span", { class: "text" }, visible(text) || " "))));
  if (!fold || lines.length <= LINES) return view(lines);
  return folded(label, many(lines.length - SHOWN_LINES, "more line"), view(lines.slice(0, SHOWN_LINES)), () => view(lines));
}
