// Markdown as elements. It knows no HTML: what is no Markdown is text, and links lead to the web alone.

import { h } from "./dom.js";

const INLINE = /(`+)([\s\S]*?[^`])\1(?!`)|\*\*(?=\S)([\s\S]*?\S)\*\*|\*(?=\S)([^*]*?\S)\*|(?<![\w])_(?=\S)([^_]*?\S)_(?!\w)|\[([^\]]+)\]\(([^()\s]+)\)|(https?:\/\/[^\s<>()`"']+[^\s<>()`"'.,;:!?])/;

function link(target, children) {
  if (!/^https?:\/\//i.test(target)) return h("span", null, children);
  return h("a", { href: target, target: "_blank", rel: "noopener noreferrer nofollow" }, children);
}

export function inline(text, depth = 0) {
  const found = [];
  // Deeper than people write, and than a model should make a browser go.
  for (let rest = text; rest; ) {
    const match = depth < 6 ? INLINE.exec(rest) : null;
    if (!match) {
      found.push(rest);
      break;
    }
    if (match.index) found.push(rest.slice(0, match.index));
    const [all, , code, strong, em, em2, words, target, url] = match;
    if (code !== undefined) found.push(h("code", null, code.trim() || code));
    else if (strong !== undefined) found.push(h("strong", null, inline(strong, depth + 1)));
    else if (em !== undefined || em2 !== undefined) found.push(h("em", null, inline(em ?? em2, depth + 1)));
    else if (words !== undefined) found.push(link(target, inline(words, depth + 1)));
    else found.push(link(url, url));
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
const cells = (line) => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());

export function markdown(text, depth = 0) {
  const lines = text.replace(/\r\n?/g, "\n").split("\n");
  const found = [];
  for (let n = 0; n < lines.length; ) {
    const line = lines[n];
    let match;
    if (!line.trim()) n += 1;
    else if ((match = FENCE.exec(line))) {
      const body = [];
      for (n += 1; n < lines.length && !lines[n].trim().startsWith(match[1]); n += 1) body.push(lines[n]);
      n += 1;
      found.push(h("pre", { tabindex: 0, data: { language: match[2] } }, h("code", null, body.join("\n"))));
    } else if ((match = HEADING.exec(line))) {
      // Below the one heading of the page.
      found.push(h(`h${Math.min(6, match[1].length + 1)}`, null, inline(match[2])));
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
    } else if (line.includes("|") && TABLE.test(lines[n + 1] ?? "")) {
      const head = cells(line);
      const rows = [];
      for (n += 2; n < lines.length && lines[n].includes("|"); n += 1) rows.push(cells(lines[n]));
      const row = (tag) => (texts) => h("tr", null, texts.map((cell) => h(tag, null, inline(cell))));
      found.push(
        h("div", { class: "table", tabindex: 0 },
          h("table", null, h("thead", null, row("th")(head)), h("tbody", null, rows.map(row("td"))))),
      );
    } else {
      const body = [line];
      for (n += 1; n < lines.length && !starts(lines[n]); n += 1) body.push(lines[n]);
      found.push(h("p", null, inline(body.join("\n"))));
    }
  }
  return found;
}

function listAt(lines, start, depth) {
  const [, indent, number] = ITEM.exec(lines[start]);
  const list = h(number === undefined ? "ul" : "ol", number > 1 ? { start: number } : null);
  let n = start;
  while (n < lines.length) {
    const match = ITEM.exec(lines[n]);
    if (!match || match[1].length !== indent.length) break;
    const body = [match[3]];
    for (n += 1; n < lines.length; n += 1) {
      const deeper = /^\s+/.exec(lines[n])?.[0].length > indent.length;
      if (!deeper || (!lines[n].trim() && !/^\s/.test(lines[n + 1] ?? ""))) break;
      body.push(lines[n].slice(Math.min(indent.length + 2, /^\s*/.exec(lines[n])[0].length)));
    }
    const parts = markdown(body.join("\n"), depth + 1);
    // A plain item needs no paragraph around it.
    list.append(h("li", null, parts[0]?.tagName === "P" ? [[...parts[0].childNodes], parts.slice(1)] : parts));
    if (n < lines.length && !lines[n].trim() && ITEM.test(lines[n + 1] ?? "")) n += 1;
  }
  return [list, n];
}
