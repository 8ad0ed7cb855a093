// All that the page knows of one session: its notices and steps, live, and the place in time that is looked at.

import { at, get } from "./api.js";
import { Conversation } from "./conversation.js";
import { Events } from "./events.js";

const SOON = 120, NOW_AND_THEN = 5000;

// Whether a notice comes behind another one, by their ids; all come behind none.
function isBehind(id, other) {
  const [entry, place] = id.split(".").map(Number), [before, at] = other ? other.split(".").map(Number) : [-1, -1];
  return entry > before || (entry === before && place > at);
}

export class SessionModel {
  constructor(id) {
    this.id = id;
    this.info = null;
    this.error = null;
    this.line = "opening";
    this.notices = [];
    this.whole = "";
    this.steps = [];
    this.present = new Conversation();
    this.conversation = this.present;
    this.at = -1;
    this.readers = [];
    this.events = new Events(at(id, "/events"), (event) => this.take(event), (line, error) => this.tell(line, error));
    this.beat = setInterval(() => document.hidden || this.refresh(), NOW_AND_THEN);
    this.refresh();
  }

  subscribe(reader) {
    this.readers.push(reader);
  }

  changed() {
    // One drawing for all that came within a frame.
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      if (this.stale) this.look(this.at);
      this.readers.forEach((reader) => reader());
    });
  }

  // Ask no more. What is known is shown still.
  stop() {
    this.events.close();
    clearInterval(this.beat);
    clearTimeout(this.timer);
  }

  close() {
    this.closed = true;
    this.stop();
    cancelAnimationFrame(this.frame);
    this.readers = [];
  }

  tell(line, error) {
    this.line = line;
    if (error) this.error = error;
    this.changed();
  }

  take({ id, name, data }) {
    const step = id ? Number(id.split(".")[0]) : (this.notices.at(-1)?.step ?? 0);
    const notice = { id, name, data, step };
    // The bits of an answer have no ids. So the line comes back behind what was before the answer that is under
    // way, and is told it from its beginning; of what is told twice only that beginning counts.
    const twice = id !== "" && isBehind(id, this.whole) && !isBehind(id, this.notices.at(-1)?.id ?? "");
    if (twice && name !== "ModelCalled") return;
    // What streams is live only: the whole message follows it.
    if (id && !twice) this.notices.push(notice);
    this.present.take(notice);
    if (id && !this.present.live) this.whole = id;
    this.events.last = this.whole;
    // The past is still being told: the page was opened at a step of it.
    if (id && this.at >= 0 && step <= this.at) this.stale = true;
    if (id) this.soon();
    this.changed();
  }

  soon() {
    // A long session takes longer to tell, and is asked less often.
    this.timer ??= setTimeout(() => this.refresh(), Math.max(SOON, 4 * (this.took ?? 0)));
  }

  async refresh() {
    clearTimeout(this.timer);
    this.timer = undefined;
    if (this.asking) {
      this.again = true;
      return;
    }
    this.asking = true;
    const begun = performance.now();
    try {
      const [info] = await Promise.all([get(at(this.id)), this.outline()]);
      this.info = info;
      this.error = null;
    } catch (error) {
      this.error = error;
      if (error.status === 404) this.stop();
    } finally {
      this.asking = false;
      this.took = performance.now() - begun;
    }
    if (this.closed) return;
    this.changed();
    if (this.again) {
      this.again = false;
      this.soon();
    }
  }

  // The steps behind those that are known; stored ones never change.
  async outline() {
    for (let next = this.steps.length; next !== null; ) {
      const part = await get(at(this.id, `/outline?from=${next}`));
      for (const step of part.items.filter(({ number }) => number >= this.steps.length)) {
        this.steps.push(step);
        this.present.branch(step);
      }
      next = part.next;
      this.changed();
    }
  }

  look(step) {
    this.at = step >= 0 && step < this.steps.length ? step : -1;
    this.conversation = this.at < 0 ? this.present : Conversation.upTo(this.notices, this.at, this.steps);
    this.stale = false;
    this.changed();
  }

  get here() {
    return this.at < 0 ? this.steps.length - 1 : this.at;
  }

  // As a person left them: what was chosen between two runs is in force from the next one on.
  get settings() {
    const { model, mode } = this.info;
    const applied = this.steps.findLastIndex((step) => !step.posted);
    return Object.assign({ model, mode }, ...this.steps.slice(applied + 1).map((step) => step.setting));
  }

  get label() {
    return this.steps[this.here]?.state ?? "new";
  }

  get path() {
    return this.steps.slice(0, this.here + 1);
  }
}
