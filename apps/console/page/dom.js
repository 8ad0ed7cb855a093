// Elements, made of text. Nothing here parses HTML, so no text of a model or a tool can become any.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, props, children) {
  // Before the properties: `dir` is worked out anew for each child that comes after it.
  // One by one: a call has room for some ten thousand arguments, and a text may have more parts.
  for (const child of children.flat(2)) if (child !== null && child !== undefined && child !== false) element.append(child);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "data") Object.assign(element.dataset, value);
    else if (name === "value" || name === "checked" || name === "open") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  return element;
}

export function h(tag, props, ...children) {
  return fill(document.createElement(tag), props, children);
}

export function s(tag, props, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

export const $ = (selector, root = document) => root.querySelector(selector);

// Make `element` equal to `wanted`, and leave alone what is equal already: the selection and the heights stay.
export function patch(element, wanted) {
  if (element.isEqualNode(wanted)) return;
  if (element.nodeName !== wanted.nodeName) return element.replaceWith(wanted);
  if (element.nodeType !== Node.ELEMENT_NODE) {
    element.data = wanted.data;
    return;
  }
  for (const name of new Set([...element.getAttributeNames(), ...wanted.getAttributeNames()])) {
    const value = wanted.getAttribute(name);
    if (value === null) element.removeAttribute(name);
    else if (value !== element.getAttribute(name)) element.setAttribute(name, value);
  }
  const before = [...element.childNodes], after = [...wanted.childNodes];
  after.forEach((child, n) => (before[n] ? patch(before[n], child) : element.append(child)));
  before.slice(after.length).forEach((child) => child.remove());
}

// Bring the children of `parent` to `items`, each {key, rev}: those that are as before are left alone, so
// that nothing jumps, no selection is lost, and a folded part stays folded.
export function reconcile(parent, items, render) {
  const known = parent.shown ?? (parent.shown = new Map());
  const wanted = new Set();
  let next = parent.firstChild;
  for (const item of items) {
    wanted.add(item.key);
    const old = known.get(item.key);
    let element = old?.element;
    if (!old || old.rev !== item.rev) {
      element = render(item, old?.element);
      if (old && old.element !== element) {
        if (next === old.element) next = element;
        old.element.replaceWith(element);
      }
      known.set(item.key, { element, rev: item.rev });
    }
    if (element === next) next = next.nextSibling;
    else parent.insertBefore(element, next);
  }
  for (const [key, { element }] of known) {
    if (!wanted.has(key)) {
      element.remove();
      known.delete(key);
    }
  }
}

// What scrolls the box so that its children in sight are where they are now, by the first of them that is still there.
// The heights of what is out of sight are guesses until it was laid out once.
export function inPlace(box, children) {
  const { top, bottom } = box.getBoundingClientRect();
  const read = [...box.children].filter((child) => child.matches(children)).map((child) => [child, child.getBoundingClientRect()])
    .filter(([, place]) => place.bottom > top && place.top < bottom);
  return () => {
    box.classList.add("laid-out");
    const [child, place] = read.find(([child]) => child.isConnected) ?? [];
    if (child) box.scrollTop += child.getBoundingClientRect().top - place.top;
    // The browser remembers heights at the end of a frame.
    requestAnimationFrame(() => requestAnimationFrame(() => box.classList.remove("laid-out")));
  };
}

export function download(name, text, type) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

// One line at the edge of the page about what was done or refused; screen readers say it.
export function toast(text, bad = false) {
  const box = $("#toasts");
  const line = h("div", { class: bad ? "toast bad" : "toast", role: bad ? "alert" : null }, text);
  box.append(line);
  setTimeout(() => line.remove(), bad ? 8000 : 3500);
}

// Do what a control asks for, with the control held back meanwhile, and say why where it is refused.
export async function attempt(work, control) {
  if (control) control.disabled = true;
  try {
    return await work();
  } catch (error) {
    toast(error.message, true);
    return undefined;
  } finally {
    if (control) control.disabled = false;
  }
}
