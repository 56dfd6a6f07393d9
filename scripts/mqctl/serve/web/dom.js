// dom.js - elements, lists and times in the document
//
// Text enters the page as text nodes only, so nothing that a message or a
// handler wrote is ever read as HTML.

import { age, exact, relative, visible } from "./format.js";

export const $ = (selector, root = document) => root.querySelector(selector);
export const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

// Make an element: make("p.note.bad", {attributes}, ...children). The attributes
// may be missing; those named on... are event listeners. Children that are null
// or false are left out.
const maker = (create) => (selector, ...rest) => {
  const [tag, ...classes] = selector.split(".");
  const node = create(tag);
  if (classes.length) node.setAttribute("class", classes.join(" "));
  const attributes = rest[0]?.constructor === Object ? rest.shift() : {};
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false)
      node.setAttribute(name, value === true ? "" : value);
  }
  for (const child of rest.flat(Infinity))
    if (child !== null && child !== undefined && child !== false)
      node.append(child instanceof Node ? child : visible(child));
  return node;
};
export const el = maker((tag) => document.createElement(tag));
export const svg = maker((tag) => document.createElementNS("http://www.w3.org/2000/svg", tag));

export const button = (text, onclick, attributes = {}) => el("button", { type: "button", onclick, ...attributes }, text);

// Give an element a function that shows newer values in it.
export const updated = (node, update) => Object.assign(node, { update });

// Set an attribute; null removes it.
export function setAttribute(node, name, value) {
  if (value === null) node.removeAttribute(name);
  else node.setAttribute(name, value);
}

// Change a text only if it differs, so that a selection and a screen reader stay undisturbed.
export function setText(node, text) {
  if (node && node.textContent !== visible(text)) node.textContent = visible(text);
}

// Announce a sentence to screen readers. Numbers that change all the time are not announced.
export function say(text) {
  setText($("#live"), text);
}

// Show items as children of parent, one per key. A child that exists is updated
// in place and keeps the focus; make(item) returns a new one, and its update()
// property, if there is one, is called with each item.
export function keyed(parent, items, keyOf, make) {
  const left = new Map([...parent.children].map((node) => [node.dataset.key, node]));
  const nodes = items.map((item) => {
    const key = String(keyOf(item));
    let node = left.get(key);
    left.delete(key);
    if (!node) {
      node = make(item);
      node.dataset.key = key;
    }
    node.update?.(item);
    return node;
  });
  for (const node of left.values()) node.remove();
  let at = parent.firstElementChild;
  for (const node of nodes) {
    if (node === at) at = at.nextElementSibling;
    else if (parent.moveBefore && node.parentNode === parent) parent.moveBefore(node, at);
    else parent.insertBefore(node, at);
  }
}

// ---- times ----

const WRITE = { ago: relative, age };

// Make a time that is rewritten as it gets older. how: "ago" or "age".
export function time(iso, how = "ago") {
  const node = el("time", { "data-how": how });
  setTime(node, iso);
  return node;
}

export function setTime(node, iso) {
  if (node.dateTime !== (iso || "")) {
    node.dateTime = iso || "";
    node.title = iso ? exact(iso) : "";
  }
  setText(node, iso ? WRITE[node.dataset.how](iso) : "–");
  node.classList.toggle("zero", !iso);
}

setInterval(() => {
  for (const node of $$("time[data-how]")) if (node.dateTime) setText(node, WRITE[node.dataset.how](node.dateTime));
}, 1000);

// ---- small parts that several pages use ----

// A severity as a dot with a word; colour is never the only sign.
export function stateMark(word, severity) {
  const node = updated(el("span"), (text, level) => {
    node.className = `state ${level || "idle"}`;
    setText(node, text);
  });
  node.update(word || "unknown", severity);
  return node;
}

// A name that does not wrap: if there is too little room, its middle is left out.
export function elided(name) {
  const tail = name.length > 16 ? 8 : 0;
  return el("span.elided", { title: name }, el("span", name.slice(0, name.length - tail)), tail ? name.slice(-tail) : null);
}

export const empty = (...children) => el("p.empty", ...children);
