// Colours for JSON and shell, as elements made of text; and a mark for each character that cannot be seen.

import { h } from "./dom.js";

// A longer text is shown without colours: each piece of it would be an element.
const MOST = 20_000;

// Characters that show nothing, or turn a text around, so that it reads in another way than it runs.
const UNSEEN = /[\0-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ufeff\uffa0\ufff9-\ufffb]|[\u{e0000}-\u{e0fff}]/gu;

// Each has an end for any text, so that no text is searched twice: a string may also end with the text.
const JSON_TOKENS = /(?<string>"(?:[^"\\]|\\[^])*(?:"|(?![^])))|(?<number>-?\b\d[\d.eE+-]*)|(?<literal>\b(?:true|false|null)\b)/g;
const SHELL_TOKENS = new RegExp([
  "(?<comment>(?<=^|\\s)#[^\\n]*)",
  "(?<string>'[^']*(?:'|(?![^]))|\"(?:[^\"\\\\]|\\\\[^])*(?:\"|(?![^])))",
  "(?<variable>\\$\\{[^}\\n]*\\}?|\\$[\\w@*#?$!-]\\w*)",
  "(?<literal>(?<=^|[\\s;&|(])(?:if|then|else|elif|fi|for|in|do|done|while|until|case|esac|function|return|exit|sudo)(?=$|[\\s;&|)]))",
  "(?<operator>&&|\\|\\|?|;;?|&|>>?|<<?-?)",
  "(?<flag>(?<=\\s)--?[A-Za-z][\\w-]*)",
].join("|"), "gm");

const SHELL_NAMES = ["command", "cmd", "script", "shell"];

// `text` with a mark in the place of each character that cannot be seen.
export function visible(text) {
  const found = [];
  let from = 0;
  for (const { 0: unseen, index } of text.matchAll(UNSEEN)) {
    if (index > from) found.push(text.slice(from, index));
    const code = unseen.codePointAt(0).toString(16);
    found.push(h("mark", { class: "hidden-character", title: "a character that cannot be seen" }, unseen === "\r" ? "\\r" : `\\u${code.length > 4 ? `{${code}}` : code.padStart(4, "0")}`));
    from = index + unseen.length;
  }
  if (from < text.length) found.push(text.slice(from));
  return found;
}

function coloured(text, tokens, render) {
  if (text.length > MOST) return visible(text);
  const found = [];
  let from = 0;
  for (const match of text.matchAll(tokens)) {
    if (match.index > from) found.push(...visible(text.slice(from, match.index)));
    const [kind] = Object.entries(match.groups).find(([, part]) => part !== undefined);
    found.push(render(kind, match[0], match.index + match[0].length));
    from = match.index + match[0].length;
  }
  return [...found, ...visible(text.slice(from))];
}

const token = (kind, text) => h("span", { class: `token-${kind}` }, visible(text));

// The language of an argument called `name`: that of commands and scripts, or none.
export function languageOf(name, text) {
  return SHELL_NAMES.includes(name) || /^#!.*sh\b/.test(text) ? "shell" : /^\s*[[{]/.test(text) ? "json" : "";
}

export function highlight(text, language) {
  if (!language) return visible(text);
  return coloured(text, language === "shell" ? SHELL_TOKENS : JSON_TOKENS, token);
}

// `value` as JSON to read: a line break in a string is one on the screen.
export function jsonView(value) {
  const text = typeof value === "string" ? value : (JSON.stringify(value, null, 2) ?? "");
  if (typeof value === "string") return visible(text);
  return coloured(text, JSON_TOKENS, (kind, part, end) => {
    if (kind !== "string") return token(kind, part);
    if (text[end] === ":") return token("key", part);
    const plain = JSON.parse(part);
    return plain.includes("\n") ? h("span", { class: "token-string lines" }, visible(`"${plain}"`)) : token(kind, part);
  });
}
