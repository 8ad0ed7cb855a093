// A box that follows its end while the reader is at the end, and stays where it is once the reader has scrolled up.

import { h } from "./dom.js";

// Pixels from the end within which the reader counts as being there.
const NEAR = 40;

export class Tail {
  constructor(box) {
    this.box = box;
    this.following = true;
    this.top = this.height = 0;
    this.button = h("button", { type: "button", hidden: true, onclick: () => this.go() }, "Newest ↓");
    this.holder = h("div", { class: "newest" }, this.button);
    box.addEventListener("scroll", () => this.scrolled(), { passive: true });
    new ResizeObserver(() => this.keep()).observe(box);
  }

  get atEnd() {
    const { scrollTop, clientHeight, scrollHeight } = this.box;
    return scrollTop + clientHeight >= scrollHeight - NEAR;
  }

  scrolled() {
    const { scrollTop, scrollHeight } = this.box;
    // A box that became shorter is scrolled by the browser, and not by the reader.
    const shorter = scrollHeight < this.height, up = scrollTop < this.top;
    Object.assign(this, { top: scrollTop, height: scrollHeight });
    if (!shorter && this.atEnd) this.following = true;
    else if (!shorter && up) this.following = false;
    this.draw();
  }

  // After the content has changed.
  keep() {
    if (this.following && !this.paused) {
      this.box.scrollTop = this.box.scrollHeight;
      this.top = this.box.scrollTop;
    }
    this.height = this.box.scrollHeight;
    this.draw();
  }

  go() {
    this.following = true;
    this.keep();
    // Heights of items that come into sight for the first time are known at the end of a frame.
    requestAnimationFrame(() => requestAnimationFrame(() => this.keep()));
  }

  // A paused box stays where it is: it shows the past.
  pause(paused) {
    this.paused = paused;
    this.draw();
  }

  draw() {
    this.button.hidden = this.following || Boolean(this.paused) || this.atEnd;
  }
}
