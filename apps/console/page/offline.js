// A session as one HTML file that needs no server: what was said, each step, the chart, the spend.

import { get, at } from "./api.js";
import { markBranches } from "./branch.js";
import { show } from "./conversation.js";
import { download, h } from "./dom.js";
import { spent, stateWords, whole } from "./format.js";
import { jsonView } from "./highlight.js";
import { spendPlot } from "./spend.js";

async function styles() {
  const found = await Promise.all(["console/console.css", "console/chart.css"].map((path) => get(path)));
  return found.join("\n");
}

async function everyStep(id) {
  const found = [];
  for (let next = 0; next !== null; ) {
    const part = await get(at(id, `/steps?from=${next}&limit=500`));
    found.push(...part.items);
    next = part.next;
  }
  return found;
}

export async function exportPage(model, chart) {
  const [css, steps, conversation] = await Promise.all([styles(), everyStep(model.id), model.told(0, Infinity), model.all()]);
  const said = h("div", { class: "conversation" });
  show(said, conversation, null);
  markBranches(said, conversation, { steps: model.steps, here: model.steps.length - 1, complete: true });
  const rows = steps.map((step) =>
    h("details", { class: "effect" },
      h("summary", null, `${step.number}  `, h("code", null, step.event.type), h("span", { class: "quiet" }, `  ${step.before} → ${step.state}  ${whole(step.at)}`)),
      h("pre", null, jsonView({ event: step.event, effects: step.effects }))));
  const body = h("body", { class: "offline" },
    h("main", null,
      h("h1", null, model.info.title || model.id),
      h("p", { class: "quiet" }, `${model.info.agent} · ${stateWords(model.info.state, model.info.reason)} · ${spent(model.info.spend)} · written ${new Date().toLocaleString()}`),
      chart ? chart.cloneNode(true) : null,
      h("h2", null, "Conversation"), said,
      h("h2", null, "Spend"), spendPlot(model.steps, "tokens"),
      h("h2", null, "Steps"), rows));
  const page = h("html", { lang: "en" },
    h("head", null,
      h("meta", { charset: "utf-8" }), h("meta", { name: "viewport", content: "width=device-width" }),
      h("meta", { "http-equiv": "Content-Security-Policy", content: "default-src 'none'; style-src 'unsafe-inline'" }),
      h("title", null, model.info.title || model.id), h("style", null, css)),
    body);
  download(`${model.id}.html`, `<!doctype html>\n${page.outerHTML}`, "text/html");
}
