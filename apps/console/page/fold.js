// What is long, folded to its beginning; a question says how much is left, and is approved after it was shown.

import { h } from "./dom.js";

// `shown` with a button that puts what `whole` makes in its place; `rest` says how much of `label` is left.
export function folded(label, rest, shown, whole) {
  const box = h("div", { class: "folded" }, shown);
  const unfold = () => {
    const all = whole();
    const focused = box.contains(document.activeElement);
    const around = box.parentElement;
    box.replaceWith(all);
    if (focused) all.focus({ preventScroll: true });
    around?.dispatchEvent(new CustomEvent("unfold", { bubbles: true }));
  };
  box.append(h("button", { type: "button", class: "unfold", "aria-label": `Show ${rest} of ${label}`, onclick: unfold }, `… ${rest}. Show all`));
  return box;
}

export const isFolded = (box) => box.querySelector(".folded") !== null;

export function unfoldAll(box) {
  for (const button of box.querySelectorAll(".unfold")) button.click();
}
