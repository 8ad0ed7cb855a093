// The frame: which view the address names, the theme, the plain view, and the token of a guarded server.

import { get, token } from "./api.js";
import { takeDropped } from "./attachments.js";
import { closeOverlays } from "./dialog.js";
import { $, h } from "./dom.js";
import { CompareView } from "./fork.js";
import { since, until } from "./format.js";
import { bind, help } from "./keys.js";
import { ListView } from "./list.js";
import { SessionView } from "./session.js";

let view = null;
let agents = [];

function viewOf(hash) {
  const [path, query] = hash.replace(/^#\/?/, "").split("?");
  const [kind, ...ids] = path.split("/").map(decodeURIComponent);
  if (kind === "s" && ids[0]) {
    const step = new URLSearchParams(query).get("step");
    return new SessionView(ids[0], agents, step === null ? -1 : Number(step));
  }
  if (kind === "compare" && ids[1]) return new CompareView(ids[0], ids[1]);
  return new ListView(agents);
}

async function open() {
  const main = $("main");
  try {
    if (!agents.length) agents = (await get("api/agents")).items;
  } catch (error) {
    if (error.status !== 401) {
      main.replaceChildren(h("div", { class: "failed" }, h("p", null, error.message), h("button", { class: "primary", onclick: open }, "Try again")));
    }
    return;
  }
  view?.close();
  view = viewOf(location.hash);
  main.replaceChildren(view.box);
  $("#crumb").textContent = location.hash.startsWith("#/compare") ? "Compare" : location.hash.startsWith("#/s/") ? "Session" : "";
}

// Theme and plain view stay for the next visit.
function setting(name, values, apply) {
  const read = () => localStorage.getItem(`turnwheel-${name}`) ?? values[0];
  apply(read());
  return () => {
    const next = values[(values.indexOf(read()) + 1) % values.length];
    localStorage.setItem(`turnwheel-${name}`, next);
    apply(next);
  };
}

const theme = setting("theme", ["auto", "light", "dark"], (value) => {
  if (value === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = value;
  $("#theme").textContent = `Theme: ${value}`;
  dispatchEvent(new Event("theme"));
});
const plain = setting("plain", ["no", "yes"], (value) => {
  document.documentElement.dataset.plain = value;
  $("#plain").setAttribute("aria-pressed", String(value === "yes"));
});

$("#theme").addEventListener("click", theme);
$("#plain").addEventListener("click", plain);
$("#help").addEventListener("click", help);
bind([
  ["?", "This help", help],
  ["t", "Light, dark, or as the system", theme],
  ["p", "Plain view", plain],
]);

takeDropped(() => view);

document.addEventListener("token-wanted", () => {
  // The one that was given, now or in this tab before, is not known.
  const wrong = token.get() ? "This server does not know that token. Check it, and enter it again." : "";
  token.set("");
  if ($("#token-form")) {
    $("#token-form .problem").textContent = wrong;
    return;
  }
  const problem = h("p", { class: "problem", role: "alert" }, wrong);
  const field = h("input", { type: "password", "aria-label": "Token", autocomplete: "off", placeholder: "Token" });
  const form = h("form", { id: "token-form", class: "failed" }, h("h1", null, "This server asks for a token"), field, problem, h("button", { class: "primary" }, "Enter"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    token.set(field.value.trim());
    problem.textContent = "";
    agents = [];
    open();
  });
  view?.close();
  view = null;
  $("main").replaceChildren(form);
  field.focus();
});

setInterval(() => {
  for (const each of document.querySelectorAll("[data-due]")) each.textContent = until(Number(each.dataset.due));
  for (const each of document.querySelectorAll("[data-since]")) each.textContent = since(Number(each.dataset.since));
}, 1000);

addEventListener("hashchange", async () => {
  closeOverlays();
  await open();
  // A person who hears the page begins at the beginning of the new view.
  view?.box.querySelector("h1")?.focus({ preventScroll: true });
});
open();
