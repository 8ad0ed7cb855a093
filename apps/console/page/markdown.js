// Markdown as elements. It knows no HTML: what is no Markdown is text, and links lead to the web alone.

import { h } from "./dom.js";
import { highlight, languageOfFence } from "./highlight.js";

// No span has its own mark inside, and each has a greatest length: looking for an end that never comes would
// take the square of a long text.
const SPANS = [
  String.raw`\\([!-/:-@[-\`{-~])`,
  String.raw`\`\`(?!\`)((?:(?!\`\`)[\s\S]){1,2000})\`\`|\`([^\`]{1,2000})\``,
  String.raw`\*{3}(?=[^\s*])([^*]{0,600}?[^\s*])\*{3}`,
  String.raw`\*\*(?=[^\s*])((?:(?!\*\*)[\s\S]){0,600}?\S)\*\*`,
  String.raw`\*(?=[^\s*])([^*]{0,600}?[^\s*])\*|(?<!\w)_(?=[^\s_])([^_]{0,600}?[^\s_])_(?!\w)`,
  String.raw`~~(?=[^\s~])((?:(?!~~)[\s\S]){0,600}?\S)~~`,
  String.raw`!?\[([^\][]{1,300})\]\(([^()\s]{1,2000})(?:\s+"[^"]{0,300}")?\)`,
  String.raw`<(https?://[^\s<>]{1,2000})>|(https?://[^\s<>()\`"']{0,2000}[^\s<>()\`"'.,;:!?])`,
  String.raw`(?: {2,}|\\)(\n)`,
];
const INLINE = new RegExp(SPANS.join("|"));

// Of one text; behind so many elements it is shown as it is. A browser with a hundred thousand of them stands still.
const MOST = 5_000;
let left = MOST;

function link(target, children) {
  if (!/^https?:\/\//i.test(target)) return h("span", null, children);
  return h("a", { href: target, target: "_blank", rel: "noopener noreferrer nofollow" }, children);
}

export function inline(text, depth = 0) {
  const found = [];
  // Deeper than people write, and than a model should make a browser go.
  for (let rest = text; rest; ) {
    const match = depth < 6 && left > 0 ? INLINE.exec(rest) : null;
    if (!match) {
      found.push(rest);
      break;
    }
    left -= 1;
    if (match.index) found.push(rest.slice(0, match.index));
    const [all, escaped, code2, code, both, strong, em, em2, struck, words, target, auto, bare, line] = match;
    if (escaped !== undefined) found.push(escaped);
    else if (code2 !== undefined || code !== undefined) found.push(h("code", null, (code2 ?? code).trim() || (code2 ?? code)));
    else if (both !== undefined) found.push(h("strong", null, h("em", null, inline(both, depth + 1))));
    else if (strong !== undefined) found.push(h("strong", null, inline(strong, depth + 1)));
    else if (em !== undefined || em2 !== undefined) found.push(h("em", null, inline(em ?? em2, depth + 1)));
    else if (struck !== undefined) found.push(h("del", null, inline(struck, depth + 1)));
    // Of a picture elsewhere this is a link to it: the page loads nothing from there.
    else if (words !== undefined) found.push(link(target, inline(words, depth + 1)));
    else if (line !== undefined) found.push(h("br"));
    else found.push(link(auto ?? bare, auto ?? bare));
    rest = rest.slice(match.index + all.length);
  }
  return found;
}

const ITEM = /^(\s*)(?:[-*+]|(\d{1,9})[.)])\s+(.*)$/;
const FENCE = /^\s*(`{3,}|~{3,})\s*([\w+#.-]*)/;
const HEADING = /^(#{1,6})\s+(.*?)\s*#*$/;
const RULE = /^\s*([-*_])(?:\s*\1){2,}\s*$/;
const TABLE = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)+\|?\s*$/;
const starts = (line) =>
  !line.trim() || ITEM.test(line) || FENCE.test(line) || HEADING.test(line) || RULE.test(line) || line.startsWith(">");
const UNDERLINE = /^ {0,3}(?:(=+)|-{2,})\s*$/;
const CODE = /^(?: {4}|\t)/;
const TASK = /^\[([ xX])\]\s+/;
const cells = (line) => line.trim().replace(/^\||(?<!\\)\|$/g, "").split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
const side = (rule) => (/^:-+:$/.test(rule) ? "middle" : /^-+:$/.test(rule) ? "right" : null);
// A text goes from right to left where its first letter does.
const AUTO = { dir: "auto" };

// Each token is an element, and counts as one.
function codeBlock(text, word) {
  const language = languageOfFence(word);
  const parts = language ? highlight(text, language) : [text];
  left -= parts.length;
  return h("code", null, left < 0 ? text : parts);
}

export function markdown(text, depth = 0) {
  const lines = text.replace(/\r\n?/g, "\n").split("\n");
  const found = [];
  if (depth === 0) left = MOST;
  for (let n = 0; n < lines.length; ) {
    const line = lines[n];
    let match;
    if ((left -= 1) < 0) {
      found.push(h("pre", { tabindex: 0 }, lines.slice(n).join("\n")));
      break;
    }
    if (!line.trim()) n += 1;
    else if ((match = FENCE.exec(line))) {
      const body = [];
      for (n += 1; n < lines.length && !lines[n].trim().startsWith(match[1]); n += 1) body.push(lines[n]);
      n += 1;
      found.push(h("pre", { tabindex: 0, data: { language: match[2] } }, codeBlock(body.join("\n"), match[2])));
    } else if ((match = HEADING.exec(line))) {
      // Below the one heading of the page.
      found.push(h(`h${Math.min(6, match[1].length + 1)}`, AUTO, inline(match[2])));
      n += 1;
    } else if (RULE.test(line)) {
      found.push(h("hr"));
      n += 1;
    } else if (line.startsWith(">") && depth < 6) {
      const body = [];
      for (; n < lines.length && lines[n].startsWith(">"); n += 1) body.push(lines[n].replace(/^> ?/, ""));
      found.push(h("blockquote", null, markdown(body.join("\n"), depth + 1)));
    } else if (ITEM.test(line) && depth < 6) {
      const [list, next] = listAt(lines, n, depth);
      found.push(list);
      n = next;
    } else if (line.includes("|") && TABLE.test(lines[n + 1] ?? "") && cells(line).length <= left) {
      const head = cells(line), sides = cells(lines[n + 1]).map(side);
      const rows = [];
      left -= head.length;
      for (n += 2; n < lines.length && lines[n].includes("|"); n += 1) {
        const texts = cells(lines[n]);
        if ((left -= texts.length) < 0) break;
        rows.push(texts);
      }
      const row = (tag) => (texts) => h("tr", null, texts.map((cell, column) => h(tag, { ...AUTO, class: sides[column] }, inline(cell))));
      found.push(
        h("div", { class: "table", tabindex: 0 },
          h("table", null, h("thead", null, row("th")(head)), h("tbody", null, rows.map(row("td"))))),
      );
    } else if (CODE.test(line)) {
      const body = [];
      for (; n < lines.length && (CODE.test(lines[n]) || !lines[n].trim()); n += 1) body.push(lines[n].replace(CODE, ""));
      found.push(h("pre", { tabindex: 0 }, h("code", null, body.join("\n").trimEnd())));
    } else {
      const body = [line];
      for (n += 1; n < lines.length && !starts(lines[n]) && !UNDERLINE.test(lines[n]); n += 1) body.push(lines[n]);
      match = UNDERLINE.exec(lines[n] ?? "");
      if (match) n += 1;
      found.push(h(match ? (match[1] ? "h2" : "h3") : "p", AUTO, inline(body.join("\n").trim())));
    }
  }
  return found;
}

function listAt(lines, start, depth) {
  const [, indent, number] = ITEM.exec(lines[start]);
  const list = h(number === undefined ? "ul" : "ol", { ...AUTO, start: number > 1 ? number : null });
  const isDeeper = (line = "") => line.trim() && /^\s*/.exec(line)[0].length > indent.length;
  let n = start;
  while (n < lines.length && (n === start || left > 0)) {
    const match = ITEM.exec(lines[n]);
    if (!match || match[1].length !== indent.length || (match[2] === undefined) !== (number === undefined)) break;
    const begins = lines[n].length - match[3].length;
    const task = TASK.exec(match[3]);
    const body = [task ? match[3].slice(task[0].length) : match[3]];
    for (n += 1; n < lines.length; n += 1) {
      if (!isDeeper(lines[n]) && (lines[n].trim() || !isDeeper(lines[n + 1]))) break;
      body.push(lines[n].slice(Math.min(begins, /^\s*/.exec(lines[n])[0].length)));
    }
    const parts = markdown(body.join("\n"), depth + 1);
    // A plain item needs no paragraph around it.
    const mark = task && h("input", { type: "checkbox", disabled: true, checked: task[1] !== " ", "aria-label": task[1] === " " ? "to do" : "done" });
    list.append(h("li", task && { class: "task" }, mark, parts[0]?.tagName === "P" ? [[...parts[0].childNodes], parts.slice(1)] : parts));
    if (n < lines.length && !lines[n].trim() && ITEM.test(lines[n + 1] ?? "")) n += 1;
  }
  return [list, n];
}
