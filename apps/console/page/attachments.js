// Files that go along with a message: chosen, pasted or dropped.

import { pictureOf } from "./conversation.js";
import { h, toast } from "./dom.js";
import { many, size } from "./format.js";

const MOST = 100;

const read = (file) =>
  new Promise((done, failed) => {
    const reader = new FileReader();
    reader.onload = () => done(reader.result.slice(reader.result.indexOf(",") + 1));
    reader.onerror = () => failed(reader.error);
    reader.readAsDataURL(file);
  });

// Files that are dropped anywhere are attached in `view`, which gives the one that is shown.
export function takeDropped(view) {
  const withFiles = (event) => event.dataTransfer?.types.includes("Files");
  // Else the browser leaves the page for the file.
  document.addEventListener("dragover", (event) => withFiles(event) && event.preventDefault());
  document.addEventListener("drop", (event) => {
    if (!withFiles(event)) return;
    event.preventDefault();
    const attached = view()?.attached;
    if (attached) attached.add(event.dataTransfer.files);
    else toast("No message is here to attach a file to.", true);
  });
}

export class Attachments {
  // `limit` are the bytes that the server takes with a message.
  constructor(limit) {
    this.limit = limit;
    this.items = [];
    this.input = h("input", { type: "file", multiple: true, hidden: true, "aria-label": "Files to attach", onchange: () => this.chosen() });
    this.button = h("button", { type: "button", title: "Attach files; you can paste or drop them, too (+)", onclick: () => this.input.click() }, "Attach");
    this.list = h("ul", { class: "attached", "aria-label": "Attached files", hidden: true });
  }

  // What is pasted into `box` is attached.
  listen(box) {
    box.addEventListener("paste", (event) => {
      if (!event.clipboardData?.files.length) return;
      event.preventDefault();
      this.add(event.clipboardData.files);
    });
  }

  chosen() {
    this.add([...this.input.files]);
    // The same file can be chosen again.
    this.input.value = "";
  }

  async add(files) {
    for (const file of [...files]) {
      const held = this.items.reduce((sum, each) => sum + each.size, 0);
      if (this.items.length >= MOST) return toast(`${file.name} is not attached: a message has at most ${many(MOST, "file")}.`, true);
      if (held + file.size > this.limit) {
        toast(`${file.name} is not attached: it has ${size(file.size)}, and the files of a message have at most ${size(this.limit)} together.`, true);
        continue;
      }
      // In its place before it is read: the next one is measured beside it.
      const item = { name: file.name, media_type: file.type || "application/octet-stream", size: file.size, data: "" };
      this.items.push(item);
      item.reading = read(file).then((data) => (item.data = data));
      try {
        await item.reading;
      } catch {
        this.items.splice(this.items.indexOf(item), 1);
        toast(`${file.name} cannot be read.`, true);
      }
      this.show();
    }
  }

  show() {
    this.list.hidden = !this.items.length;
    this.list.replaceChildren(...this.items.map((item) =>
      h("li", null, pictureOf(item), h("span", null, item.name), h("span", { class: "quiet" }, size(item.size)),
        h("button", { class: "link", type: "button", "aria-label": `Remove ${item.name}`, onclick: () => this.remove(item) }, "×"))));
  }

  remove(item) {
    this.items.splice(this.items.indexOf(item), 1);
    this.show();
    this.button.focus();
  }

  // As the server takes them.
  async files() {
    await Promise.all(this.items.map((item) => item.reading));
    return this.items.map(({ name, media_type, data }) => ({ name, media_type, data }));
  }

  clear() {
    this.items = [];
    this.show();
  }
}
