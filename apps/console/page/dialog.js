// Dialogs of the page: each opens at its top, and closes when the address changes.

import { h } from "./dom.js";

// A dialog with `title`, which has the focus first, so that a screen reader begins there and nothing is scrolled.
export function openDialog(title, kind, ...content) {
  const heading = h("h2", { id: "dialog-title", tabindex: -1, autofocus: true }, title);
  const dialog = h("dialog", { class: kind, "aria-labelledby": "dialog-title" },
    h("div", { class: "dialog-head" }, heading, h("button", { type: "button", class: "link close", "aria-label": "Close", onclick: () => dialog.close() }, "×")), content);
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  dialog.scrollTop = 0;
  return dialog;
}

// A dialog with a form of `fields`. It closes where `send` gives true, and says why where that is refused.
export function formDialog(title, kind, fields, label, send) {
  const make = h("button", { class: "primary", type: "submit" }, label);
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const form = h("form", null, fields, problem,
    h("div", { class: "row-of-buttons" }, h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), h("span", { class: "spacer" }), make));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    make.disabled = problem.hidden = true;
    try {
      if (await send()) dialog.close();
    } catch (error) {
      problem.hidden = false;
      problem.textContent = error.message;
    } finally {
      make.disabled = false;
    }
  });
  const dialog = openDialog(title, kind, form);
  return dialog;
}

// What stands over a view goes with it.
export function closeOverlays() {
  for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
  for (const menu of document.querySelectorAll("details.menu[open]")) menu.open = false;
}
