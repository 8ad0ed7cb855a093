// What happens, as it happens. By fetch and not by EventSource, which can send no token.

import { headers, refusalOf } from "./api.js";

const AGAIN = [300, 1000, 2000, 5000];

export class Events {
  // `take` gets {id, name, data} of each event of `path`, `tell` the state of the line: live, lost or closed.
  // With `resumes` it begins again behind the last event, else with what is new.
  constructor(path, take, tell, resumes = true, last = "") {
    Object.assign(this, { path, take, tell, resumes, last, failures: 0, controller: null });
    // A browser opens six lines to a server, and a tab that is not looked at needs none.
    this.onVisible = () => (document.hidden ? this.pause() : this.open());
    document.addEventListener("visibilitychange", this.onVisible);
    this.open();
  }

  close() {
    document.removeEventListener("visibilitychange", this.onVisible);
    this.pause();
  }

  pause() {
    this.controller?.abort();
    this.controller = null;
    clearTimeout(this.timer);
  }

  async open() {
    this.pause();
    const controller = (this.controller = new AbortController());
    try {
      const more = this.resumes && this.last ? { "Last-Event-ID": this.last } : {};
      const answer = await fetch(this.path, {
        headers: headers(more),
        signal: controller.signal,
      });
      if (!answer.ok) throw await refusalOf(answer);
      this.failures = 0;
      this.tell("live");
      await this.read(answer.body.pipeThrough(new TextDecoderStream()).getReader());
    } catch (error) {
      if (controller.signal.aborted) return;
      if (error.status >= 400 && error.status < 500 && error.status !== 429) {
        this.tell("closed", error);
        return;
      }
    }
    if (controller.signal.aborted) return;
    this.tell("lost");
    const wait = AGAIN[Math.min(this.failures, AGAIN.length - 1)];
    this.failures += 1;
    this.timer = setTimeout(() => this.open(), wait);
  }

  async read(reader) {
    for (let rest = ""; ; ) {
      const { value, done } = await reader.read();
      if (done) return;
      const frames = (rest + value).split("\n\n");
      rest = frames.pop();
      for (const frame of frames) this.frame(frame);
    }
  }

  frame(text) {
    let id = "", name = "", data = "";
    for (const line of text.split("\n")) {
      if (line.startsWith("id: ")) id = line.slice(4);
      else if (line.startsWith("event: ")) name = line.slice(7);
      else if (line.startsWith("data: ")) data += line.slice(6);
    }
    if (id) this.last = id;
    if (data) this.take({ id, name, data: JSON.parse(data) });
  }
}
