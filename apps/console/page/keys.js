// The keyboard: one table, of which the help is made.

import { openDialog } from "./dialog.js";
import { h } from "./dom.js";

const bound = new Map();

// `key` does `act` while `where` is on the page; a view binds its keys and takes them away again.
export function bind(keys) {
  for (const [key, label, act] of keys) bound.set(key, { label, act });
  return () => keys.forEach(([key, , act]) => bound.get(key)?.act === act && bound.delete(key));
}

let heldUntil = 0;

// What a person is still typing goes nowhere for a moment: the field that it was for is gone, and an "a" approves.
export function hold(milliseconds = 2000) {
  heldUntil = performance.now() + milliseconds;
}

const isTyping = (target) => target.closest?.("input:not([type=range]), textarea, select, [contenteditable]");

// A letter or an arrow would choose in `select` while it is closed, and what is chosen is in force at once. So both
// open it, and Enter chooses.
export function opensByKeys(select) {
  select.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !(event.key.length === 1 || event.key.startsWith("Arrow"))) return;
    event.preventDefault();
    select.showPicker?.();
  });
}

// Out of a field, to the question that it belongs to; out of a menu, to its name.
function leave(target) {
  const menu = target.closest(".menu[open]");
  if (menu) {
    menu.open = false;
    menu.querySelector("summary").focus({ preventScroll: true });
  } else if (isTyping(target)) {
    const question = target.closest(".question");
    if (question) question.focus();
    else target.blur();
  }
}

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !document.querySelector("dialog[open]")) {
    leave(event.target);
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
  if (document.querySelector("dialog[open], .menu[open]") || performance.now() < heldUntil) return;
  // A key that is held down is one press, but for steps.
  if (event.repeat && !event.key.startsWith("Arrow")) return;
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
  openDialog("Keyboard", "help", h("table", null, h("tbody", null, rows)));
}
