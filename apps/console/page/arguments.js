// The arguments of a call: all of them to read, and a field for each to change.

import { diffView } from "./diff.js";
import { h } from "./dom.js";
import { folded } from "./fold.js";
import { many, size } from "./format.js";
import { highlight, jsonView, languageOf, unseenIn, visible } from "./highlight.js";
import { isText, problems } from "./schema.js";

// A longer value is folded in a question: to the lines and characters that are shown first.
const LINES = 12, CHARACTERS = 1200, SHOWN_LINES = 8, SHOWN_CHARACTERS = 600;

const pre = (label, ...body) => h("pre", { tabindex: 0, "aria-label": label }, body);

// `text` as an element of `render`. With `fold`, a long one has its beginning first, and a button with the count of the rest.
function foldable(text, label, render, fold) {
  const lines = text.split("\n");
  if (!fold || (lines.length <= LINES && text.length <= CHARACTERS)) return render(text);
  const shown = lines.slice(0, SHOWN_LINES).join("\n").slice(0, SHOWN_CHARACTERS);
  const left = lines.length - shown.split("\n").length;
  const rest = left ? many(left, "more line") : many(text.length - shown.length, "more character");
  return folded(label, rest, render(shown), () => render(text));
}

function valueView(name, value, fold) {
  if (typeof value === "string" && !value.includes("\n") && value.length <= 200)
    return h("code", { class: "token-string one-line" }, languageOf(name, value) ? highlight(value, languageOf(name, value)) : visible(value));
  if (typeof value === "string") return foldable(value, name, (text) => pre(name, highlight(text, languageOf(name, value))), fold);
  if (value === null || typeof value !== "object") {
    const words = typeof value === "boolean" ? (value ? "yes" : "no") : String(value);
    return [h("code", { class: "tech token-literal" }, String(value)), h("span", { class: "plain-only" }, words)];
  }
  const long = JSON.stringify(value, null, 2);
  if (long.length < 80 && Object.values(value).every((each) => each === null || typeof each !== "object"))
    return h("code", null, highlight(JSON.stringify(value), "json"));
  // A part of JSON has no value of its own, so its strings stay as they are written.
  return foldable(long, name, (text) => pre(name, text === long ? jsonView(value) : highlight(text, "json")), fold);
}

const countOf = (text) => text.split("\n").length - (text === "" || text.endsWith("\n") ? 1 : 0);

const replacedLines = (count) => (count === 1 ? "Replaces the only line of the file." : count ? `Replaces the ${many(count, "line")} of the file.` : "The file is empty.");

// What happens to the `file` that `after` is written to.
function replaced({ size: bytes, before, problem }, after) {
  if (problem) return h("p", { class: "replaces" }, `What is at this path could not be read: ${problem}.`);
  if (bytes === null) return h("p", { class: "quiet" }, `A new file of ${many(countOf(after), "line")}.`);
  if (before === null) return h("p", { class: "replaces" }, `Replaces a file of ${size(bytes)}, which is not shown: it is no text, or too large.`);
  return h("p", { class: "replaces" }, before === after ? "The file has this content already." : replacedLines(countOf(before)));
}

// What replaces what, in the place of both.
function changeOf(tool, args, file) {
  if (typeof args.old === "string" && typeof args.new === "string") return { names: ["old", "new"], label: "old → new", before: args.old, after: args.new };
  if (tool === "write" && typeof args.content === "string")
    return { names: ["content"], label: "content", before: file?.before ?? "", after: args.content, words: file && replaced(file, args.content) };
  return null;
}

// All of `args`, which are text where they are not JSON. With `fold`, long values are folded. `file` is the one that the
// call writes, as the server knows it.
export function argumentsView(tool, args, fold = false, file = null) {
  if (typeof args === "string") return foldable(args, "arguments", (text) => pre("arguments", visible(text)), fold);
  const changed = changeOf(tool, args, file);
  const rows = Object.entries(args).filter(([name]) => !changed?.names.includes(name)).map(([name, value]) => [name, valueView(name, value, fold)]);
  if (file) rows.push(["file", h("code", null, visible(file.path))]);
  if (changed) rows.push([changed.label, [changed.words, diffView(changed.before, changed.after, `change of ${args.path ?? "a file"}`, fold)]]);
  if (!rows.length) return h("p", { class: "quiet" }, "Without arguments.");
  return h("dl", { class: "arguments-read" }, rows.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))));
}

// A field for each argument that the schema knows, and for those that are there.
export class ArgumentsForm {
  static count = 0;

  constructor(schema, args) {
    this.schema = schema ?? {};
    this.fields = new Map();
    this.problem = h("p", { class: "problem", role: "status" });
    const names = [...new Set([...Object.keys(this.schema.properties ?? {}), ...Object.keys(args)])];
    const rows = names.map((name) => this.row(name, this.schema.properties?.[name], args[name]));
    this.box = h("div", { class: "arguments" }, rows, this.problem);
    this.check();
  }

  row(name, schema, value) {
    const given = value !== undefined;
    const choices = schema?.enum ?? (schema?.type === "boolean" ? [true, false] : null);
    const text = !choices && isText(schema) && (!given || typeof value === "string");
    const shown = !given ? "" : text ? value : JSON.stringify(value, null, 2);
    const field = choices
      ? h("select", { onchange: () => this.check(), value: shown }, [
        given && choices.includes(value) ? null : h("option", { value: shown }, given ? shown : "left out"),
        choices.map((each) => h("option", { value: JSON.stringify(each) }, String(each))),
        given && !this.schema.required?.includes(name) ? h("option", { value: "" }, "left out") : null])
      : h("textarea", {
        rows: Math.min(40, shown.split("\n").length), value: shown, spellcheck: "false",
        placeholder: given ? "" : "left out", oninput: () => this.check(),
      });
    const fault = h("p", { class: "problem", role: "status", id: `fault-${(ArgumentsForm.count += 1)}` });
    field.setAttribute("aria-describedby", fault.id);
    // A field shows text as it is.
    const unseen = h("p", { class: "unseen", role: "status" });
    this.fields.set(name, { field, text, given, fault, unseen });
    return h("div", { class: "argument" },
      h("label", null, h("span", { class: "name" }, name), h("span", { class: "quiet" }, schema?.description ?? ""), field), unseen, fault);
  }

  get value() {
    const found = {};
    for (const [name, { field, text, given }] of this.fields) {
      if (field.value === "" && !(given && text)) continue;
      found[name] = text ? field.value : JSON.parse(field.value);
    }
    return found;
  }

  // What is wrong with one field, in words.
  faultsOf(name) {
    const { field, text, given } = this.fields.get(name);
    // A file has a name; that an argument called so may be empty, no schema of a file tool says.
    if (name === "path" && given && text && field.value === "") return ["path is empty"];
    if (field.value === "" && !(given && text)) return this.schema.required?.includes(name) ? [`${name} is missing`] : [];
    let value = field.value;
    try {
      if (!text) value = JSON.parse(field.value);
    } catch {
      return [`${name} is no text, and must be JSON`];
    }
    return problems(this.schema.properties?.[name], value, name);
  }

  check() {
    let right = true;
    for (const { field, unseen } of this.fields.values()) {
      const codes = unseenIn(field.value);
      unseen.textContent = codes.length ? `Has characters that cannot be seen: ${codes.join(", ")}` : "";
    }
    for (const name of this.fields.keys()) right = this.blame(name, this.faultsOf(name)) && right;
    const rest = right ? problems(this.schema, this.value) : [];
    this.problem.textContent = rest.join("; ");
    return right && !rest.length;
  }

  // Say the `faults` beside their field.
  blame(name, faults) {
    const { field, fault } = this.fields.get(name);
    fault.textContent = faults.join("; ");
    if (faults.length) field.setAttribute("aria-invalid", "true");
    else field.removeAttribute("aria-invalid");
    return !faults.length;
  }

  // The server's words about the arguments, each at the field that they name.
  refuse(detail) {
    for (const part of detail.slice(detail.indexOf(": ") + 1).split(";")) {
      const name = [...this.fields.keys()].find((each) => part.trim().startsWith(`${each} `));
      if (name !== undefined) this.blame(name, [part.trim()]);
    }
  }

  focus() {
    (this.box.querySelector("[aria-invalid]") ?? this.box.querySelector("textarea, select"))?.focus();
  }
}
