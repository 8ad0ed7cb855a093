// What a person says to the session: a prompt in the queue, a steer after the running tools, or one now.

import { at, post, postOnce, remove, unique } from "./api.js";
import { Attachments } from "./attachments.js";
import { attempt, h, toast } from "./dom.js";
import { keepDraft } from "./drafts.js";

const MODES = [
  ["steer", "After the running tool", "The model reads it before it goes on"],
  ["now", "At once", "What runs is cut short"],
  ["queue", "After this run", "A prompt of its own, once this run is over"],
];

export class Composer {
  constructor(session, limit, done) {
    this.session = session;
    this.done = done;
    this.text = h("textarea", { rows: 2, "aria-label": "Message", placeholder: "Say what is next" });
    this.forgetDraft = keepDraft(this.text, `session-${session}`);
    this.mode = h("select", { "aria-label": "When it is read" }, MODES.map(([value, label, title]) => h("option", { value, title }, label)));
    this.button = h("button", { class: "primary", onclick: () => this.send() }, "Send");
    this.stop = h("button", { onclick: () => this.interrupt(), title: "Stop the run (i)" }, "Interrupt");
    this.go = h("button", { onclick: () => this.resume(), title: "Go on with what was left" }, "Resume");
    this.attached = new Attachments(limit);
    this.queue = h("ul", { class: "queue", "aria-label": "Waiting prompts" });
    this.box = h("section", { class: "composer", "aria-label": "Say something" }, this.queue, this.text, this.attached.list, this.attached.input,
      h("div", { class: "row-of-buttons" }, this.stop, this.go, this.attached.button, h("span", { class: "spacer" }), this.mode, this.button));
    this.attached.listen(this.box);
    this.text.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        this.send();
      }
    });
    // The same message, sent again because no answer came, is the same one.
    this.key = unique();
  }

  show(info) {
    this.info = info;
    const over = info.state === "done" || info.state === "new";
    this.over = over;
    this.mode.hidden = over;
    this.stop.hidden = over;
    this.go.hidden = info.running || info.questions.length > 0 || (over && !info.queue.length);
    const asked = info.questions.length > 0;
    this.text.placeholder = over ? "Say what is next" : asked ? "Tell the agent something; this answers no question" : "Tell the agent something";
    this.queue.replaceChildren(...info.queue.map((mail) => this.waiting(mail)));
    this.queue.hidden = !info.queue.length;
  }

  waiting(mail) {
    const button = h("button", { class: "small", title: "It is not sent; its text comes back into the field" }, "Take back");
    button.addEventListener("click", () => this.takeBack(mail, button));
    return h("li", null, h("span", { class: "quiet" }, "next: "), mail.text, " ", button);
  }

  async takeBack(mail, button) {
    const work = () => remove(at(this.session, `/queue/${encodeURIComponent(mail.id)}`));
    if (await attempt(work, button)) {
      // What is typed already stays.
      if (!this.text.value.trim()) this.text.value = mail.text;
      this.text.focus();
    }
    this.done();
  }

  async send() {
    const text = this.text.value.trim();
    if (!text && !this.attached.items.length) return;
    const mode = this.over ? "queue" : this.mode.value;
    const work = async () => postOnce(at(this.session, "/messages"), { text, mode, files: await this.attached.files() }, this.key);
    const sent = await attempt(work, this.button);
    if (!sent) return;
    this.key = unique();
    this.text.value = "";
    this.forgetDraft();
    this.attached.clear();
    this.done(true);
  }

  async interrupt() {
    if (await attempt(() => post(at(this.session, "/interrupt")), this.stop)) toast("The run is stopping");
    this.done();
  }

  async resume() {
    await attempt(() => post(at(this.session, "/resume")), this.go);
    this.done();
  }
}
