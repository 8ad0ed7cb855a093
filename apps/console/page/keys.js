// The keyboard: one table, of which the help is made.

import { h } from "./dom.js";

const bound = new Map();

// `key` does `act` while `where` is on the page; a view binds its keys and takes them away again.
export function bind(keys) {
  for (const [key, label, act] of keys) bound.set(key, { label, act });
  return () => keys.forEach(([key, , act]) => bound.get(key)?.act === act && bound.delete(key));
}

let heldUntil = 0;

// What a person is still typing goes nowhere for a moment: the field that it was for is gone, and an "a" approves.
export function hold() {
  heldUntil = performance.now() + 2000;
}

const isTyping = (target) => target.closest?.("input:not([type=range]), textarea, select, [contenteditable]");

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && isTyping(event.target)) {
    event.target.blur();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
  if (document.querySelector("dialog[open]") || performance.now() < heldUntil) return;
  // Arrows belong to the slider and the rows while these have the focus.
  if (event.key.startsWith("Arrow") && event.target.closest?.("input, [role=listbox], [role=tablist]")) return;
  const found = bound.get(event.key);
  if (!found) return;
  event.preventDefault();
  found.act();
});

const NAMES = { ArrowLeft: "←", ArrowRight: "→", Escape: "esc" };

export function help() {
  const rows = [...bound].map(([key, { label }]) => h("tr", null, h("th", { scope: "row" }, h("kbd", null, NAMES[key] ?? key)), h("td", null, label)));
  const dialog = h("dialog", { class: "help", "aria-label": "Keyboard" },
    h("h2", null, "Keyboard"), h("table", null, h("tbody", null, rows)),
    h("form", { method: "dialog" }, h("button", { class: "primary" }, "Close")));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}
