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

// A comment begins with `mark`.
const codeTokens = (mark) => new RegExp([
  `(?<comment>(?<=^|\\s)${mark}[^\\n]*)`,
  "(?<string>\"\"\"[^]*?(?:\"\"\"|(?![^]))|'(?:[^'\\\\\\n]|\\\\[^])*(?:'|(?=\\n)|(?![^]))|\"(?:[^\"\\\\\\n]|\\\\[^])*(?:\"|(?=\\n)|(?![^])))",
  "(?<literal>\\b(?:and|as|async|await|break|case|catch|class|const|continue|def|del|elif|else|enum|except|export|extends|finally|fn|for|from|func|function|if|impl|import|in|interface|is|lambda|let|match|mod|new|not|or|pass|pub|raise|return|struct|switch|throw|try|type|use|var|while|with|yield|true|false|null|None|True|False)\\b)",
  "(?<number>\\b\\d[\\w.]*)",
].join("|"), "gm");
const HASH_TOKENS = codeTokens("#"), SLASH_TOKENS = codeTokens("//");
const DIFF_TOKENS = /(?<number>^@@.*)|(?<string>^\+.*)|(?<operator>^-.*)/gm;

const TOKENS = { shell: SHELL_TOKENS, json: JSON_TOKENS, hash: HASH_TOKENS, slash: SLASH_TOKENS, diff: DIFF_TOKENS };

// By the word behind the fence of a block of code.
const FENCED = {
  shell: ["sh", "bash", "zsh", "shell", "console"],
  json: ["json", "jsonl", "json5"],
  hash: ["py", "python", "rb", "ruby", "yaml", "yml", "toml", "ini", "r", "perl", "elixir"],
  slash: ["js", "javascript", "jsx", "ts", "typescript", "tsx", "go", "rust", "rs", "java", "kotlin", "swift", "c", "cpp", "c++", "cs", "csharp", "php", "scala", "dart"],
  diff: ["diff", "patch"],
};

export function languageOfFence(word) {
  return Object.keys(FENCED).find((language) => FENCED[language].includes(word.toLowerCase())) ?? "";
}

const SHELL_NAMES = ["command", "cmd", "script", "shell"];

function escaped(unseen) {
  const code = unseen.codePointAt(0).toString(16);
  return unseen === "\r" ? "\\r" : `\\u${code.length > 4 ? `{${code}}` : code.padStart(4, "0")}`;
}

// `text` with an escape in the place of each character that cannot be seen, where no mark can stand.
export const spelled = (text) => text.replace(UNSEEN, escaped);

// The escapes of the characters of `text` that cannot be seen, each once.
export const unseenIn = (text) => [...new Set(text.match(UNSEEN))].map(escaped);

// `text` with a mark in the place of each character that cannot be seen.
export function visible(text) {
  const found = [];
  let from = 0;
  for (const { 0: unseen, index } of text.matchAll(UNSEEN)) {
    if (index > from) found.push(text.slice(from, index));
    found.push(h("mark", { class: "hidden-character", title: "a character that cannot be seen" }, escaped(unseen)));
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
  return coloured(text, TOKENS[language], token);
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
