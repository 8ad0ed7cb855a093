// All that the page knows of one session: its notices and steps, live, and the place in time that is looked at.

import { at, get } from "./api.js";
import { Conversation } from "./conversation.js";
import { Events } from "./events.js";

const SOON = 120, NOW_AND_THEN = 5000;

// Steps are asked for in parts: the number of the first one of a part is a multiple of PART. Of a conversation at
// least SHOWN are shown, from the beginning of a part on.
const PART = 100, SHOWN = 30, OUTLINED = 1000;

const partOf = (step) => Math.floor(step / PART);

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
    // The line tells what came from step `begins` on; notices of steps before it come in parts.
    this.notices = [];
    this.begins = 0;
    this.parts = new Map();
    this.whole = "";
    // With holes: most of a long session is not known at first.
    this.steps = [];
    this.known = 0;
    this.present = new Conversation();
    this.conversation = this.present;
    this.at = -1;
    // The step with which the conversation that is shown begins: of the present, and of now or then.
    this.first = 0;
    this.from = 0;
    this.readers = [];
    this.asked = new Map();
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
      if (this.stale) this.fold();
      this.readers.forEach((reader) => reader());
    });
  }

  // Ask no more. What is known is shown still.
  stop() {
    this.events?.close();
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
    const step = id ? Number(id.split(".")[0]) : (this.notices.at(-1)?.step ?? this.begins);
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
      await this.latest();
      if (this.closed) return;
      this.error = null;
      // Behind what is seen first.
      setTimeout(() => this.all().catch((error) => this.tell(this.line, error)), SOON);
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

  // The session as it is now, and its steps up to there: what is told as it happens is ahead of what was asked for.
  async latest() {
    const info = await get(at(this.id));
    if (this.closed) return;
    if (!this.events) this.begin(info.steps);
    await this.outline();
    this.info = info;
  }

  // With the last of the steps there are: what was before them is asked for where it is looked at.
  begin(count) {
    this.begins = this.first = this.from = Math.max(0, partOf(count - SHOWN) * PART);
    this.steps.length = this.begins;
    if (this.begins) this.whole = `${this.begins - 1}.${Number.MAX_SAFE_INTEGER}`;
    this.events = new Events(at(this.id, "/events"), (event) => this.take(event), (line, error) => this.tell(line, error), true, this.whole);
  }

  // The steps behind those that are known; stored ones never change.
  async outline() {
    for (let next = this.steps.length; next !== null; ) next = await this.ask(next, OUTLINED);
  }

  // So many steps from one on; where more follow, the number of the next one.
  async ask(from, limit) {
    const part = await get(at(this.id, `/outline?from=${from}&limit=${limit}`));
    for (const step of part.items) {
      if (this.steps[step.number]) continue;
      this.steps[step.number] = step;
      this.known += 1;
      if (step.number >= this.first) this.present.branch(step);
    }
    this.changed();
    return part.next;
  }

  once(key, ask) {
    if (!this.asked.has(key)) {
      const asking = ask();
      this.asked.set(key, asking);
      asking.catch(() => this.asked.delete(key));
    }
    return this.asked.get(key);
  }

  stepsOf(part) {
    return this.once(`steps ${part}`, async () => {
      const from = part * PART, to = Math.min(from + PART, this.begins);
      for (let n = from; n < to; n += 1) if (!this.steps[n]) return this.ask(n, to - n);
    });
  }

  // The steps that are in sight, and may not be known.
  needs(from, to) {
    for (let part = partOf(from); part * PART < Math.min(to, this.begins); part += 1)
      if (!this.complete) this.stepsOf(part).catch((error) => this.tell(this.line, error));
  }

  async noticesOf(parts) {
    const missing = parts.filter((part) => !this.asked.has(`notices ${part}`));
    while (missing.length) {
      // Two neighbours at once: for each answer the server folds what is behind a checkpoint.
      const [part] = missing, some = missing.splice(0, missing[1] === part + 1 ? 2 : 1);
      const asking = this.askNotices(part, some.length);
      for (const each of some) this.once(`notices ${each}`, () => asking);
    }
    await Promise.all(parts.map((part) => this.asked.get(`notices ${part}`)));
  }

  async askNotices(first, count) {
    const { items } = await get(at(this.id, `/notices?from=${first * PART}&limit=${count * PART}`));
    for (let part = first; part < first + count; part += 1) this.parts.set(part, []);
    for (const notice of items) {
      const step = Number(notice.id.split(".")[0]);
      this.parts.get(partOf(step)).push({ ...notice, step });
    }
  }

  // All steps, the latest first: the ribbon, the counts of the chart and the branches are about all of them.
  all() {
    return this.once("all", async () => {
      for (let to = this.begins; to > 0 && !this.closed; to -= OUTLINED) {
        const from = Math.max(0, to - OUTLINED);
        await this.ask(from, to - from);
      }
    });
  }

  get complete() {
    return this.known === this.steps.length;
  }

  // What was said in the steps `from` to `to`.
  async told(from, to) {
    const parts = [];
    for (let part = partOf(from); part * PART < Math.min(to + 1, this.begins); part += 1) parts.push(part);
    await Promise.all([this.noticesOf(parts), ...parts.map((part) => this.stepsOf(part))]);
    return Conversation.upTo([...parts.flatMap((part) => this.parts.get(part)), ...this.notices], from, to, this.steps);
  }

  async fold() {
    const { at: looked, from } = this;
    this.stale = false;
    let conversation;
    try {
      conversation = looked < 0 && from === this.first ? this.present : await this.told(from, looked < 0 ? Infinity : looked);
    } catch (error) {
      this.tell(this.line, error);
      return;
    }
    if (this.closed || looked !== this.at || from !== this.from) return;
    if (looked < 0 && from !== this.first) {
      conversation.goOn(this.present);
      this.present = conversation;
      this.first = from;
    }
    this.conversation = conversation;
    this.changed();
  }

  look(step) {
    this.at = step >= 0 && step < this.steps.length ? step : -1;
    this.from = this.at < 0 ? this.first : Math.max(0, partOf(this.at - SHOWN) * PART);
    this.changed();
    return this.fold();
  }

  // Show what was before what is shown, back to that step.
  reach(step) {
    if (step >= this.from) return;
    this.from = Math.max(0, partOf(step) * PART);
    return this.fold();
  }

  get here() {
    return this.at < 0 ? this.steps.length - 1 : this.at;
  }

  // As a person left them: what was chosen between two runs is in force from the next one on.
  get settings() {
    const { model, mode } = this.info;
    const applied = this.steps.findLastIndex((step) => step && !step.posted);
    return Object.assign({ model, mode }, ...this.steps.slice(applied + 1).map((step) => step.setting));
  }

  get label() {
    return this.steps[this.here]?.state ?? this.info?.state ?? "new";
  }
}
