// Child agents as a tree, at all depths. What is folded is not drawn, so hundreds of children cost little.

import { at, get } from "./api.js";
import { h } from "./dom.js";
import { cost, count, kindOf, many, stateWords, tokens } from "./format.js";

const FIRST = 50;

// Where a child is. One in the middle of its run is at work as long as its parent is.
function where({ state, reason }, running) {
  return state === "unfinished" && running ? "at work" : stateWords(state, reason);
}

// `asked` knows what each child was asked, which tells those of one name apart.
function branch(member, depth, asked, running) {
  const { spend, children, state, reason } = member;
  const line = [
    h("a", { href: `#/s/${encodeURIComponent(member.id)}`, dir: "auto" }, member.title || asked(member.call) || member.agent || member.id),
    " ", h("span", { class: `pill kind-${kindOf(state, reason)}` }, where(member, running)),
    h("span", { class: "quiet" }, `${member.agent && ` ${member.agent}`} · ${many(spend.turns, "turn")} · ${count(tokens(spend))} tokens · ${cost(spend)}`),
  ];
  if (!children.length) return h("li", null, line);
  const body = h("ul");
  const fill = (from) => {
    body.append(...children.slice(from, from + FIRST).map((child) => branch(child, depth + 1, asked, running)));
    if (children.length > from + FIRST) {
      const more = h("button", { class: "link", onclick: () => (more.parentElement.remove(), fill(from + FIRST)) }, `${children.length - from - FIRST} more`);
      body.append(h("li", null, more));
    }
  };
  const details = h("details", { open: depth < 2 }, h("summary", null, line, h("span", { class: "quiet" }, ` · ${many(children.length, "child")}`.replace("childs", "children"))), body);
  if (depth < 2) fill(0);
  else details.addEventListener("toggle", () => body.children.length || fill(0));
  return h("li", null, details);
}

export async function familyView(session, asked, running) {
  const family = await get(at(session, "/family"));
  if (!family.children.length) return h("p", { class: "empty" }, "This session has no children. Where the model starts another agent, it stands here with its state and what it spent.");
  return h("ul", { class: "tree" }, branch(family, 0, asked, running));
}
