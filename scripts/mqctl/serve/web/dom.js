// dom.js - elements, numbers, and requests to the server
//
// Text goes in by textContent alone: nothing that somebody else wrote is ever
// read as HTML.

const SVG = "http://www.w3.org/2000/svg";

export const $ = (selector, root = document) => root.querySelector(selector);

// shown - what hides something, or moves the text around it, as an escape; the
// server does so in the pages that it writes
const HIDES = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e0fff}]/gu;
const shown = (text) => String(text).replace(HIDES, (c) => `\\u{${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}}`);

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false)
      node.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat())
    if (child !== null && child !== undefined)
      node.append(child instanceof Node ? child : shown(child));
  return node;
}

export const el = (tag, attributes, ...children) =>
  fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);

// setText - only if it differs: a selection and a screen reader stay undisturbed
export function setText(node, text) {
  if (node && node.textContent !== shown(text)) node.textContent = shown(text);
}

// say - for the live region, which is at the foot of the window wherever the page
// is scrolled to: findings, ends, refusals; never numbers
export function say(text) {
  setText($("#live"), text);
}
$("#live")?.addEventListener("click", () => say(""));

export const count = (n) =>
  n === null || n === undefined ? "-" : String(n);
export const rate = (n) =>
  n === null || n === undefined ? "-" : n < 10 ? n.toFixed(1) : n.toFixed(0);

export function duration(ns) {
  if (ns === null || ns === undefined || ns <= 0) return "-";
  for (const [from, name] of [
    [3600e9, "h"],
    [60e9, "min"],
    [1e9, "s"],
    [1e6, "ms"],
    [1e3, "\u00b5s"],
  ])
    if (ns >= from || from === 1e3)
      return `${(ns / from).toFixed(ns / from < 10 ? 1 : 0)} ${name}`;
  return "-";
}

// One on a broker has slashes, which would be others of the path.
const segment = (queue) => queue.startsWith("/") ?
  encodeURIComponent(queue.slice(1)) :
  encodeURIComponent(encodeURIComponent(queue));
export const queueUrl = (queue) => "/q/" + segment(queue);
export const apiUrl = (queue) => "/api/v1/queues/" + segment(queue);

// A browser sends the cookie to every port of the host. So each change needs the
// key, too, that this origin got when it signed in, and keeps.
const KEY = "mqctl-key";

// signIn - the cookie and the key for a token
export async function signIn(token) {
  const answer = await fetch("/api/v1/session", {
    method: "POST",
    headers: { Accept: "application/json", "Content-Type": "application/json" },
    body: JSON.stringify({ token }),
  });
  if (!answer.ok) throw new Error((await answer.json()).detail);
  localStorage.setItem(KEY, answer.headers.get("X-MQ-Key"));
}

// ask - JSON from the server; a refusal is an Error with its sentence
export async function ask(url, method = "GET", body = undefined) {
  const answer = await fetch(url, {
    method,
    headers: {
      Accept: "application/json",
      ...(method === "GET" ? {} : { "X-MQ-Request": "1", "X-MQ-Key": localStorage.getItem(KEY) || "" }),
      ...(body === undefined ? {} : { "Content-Type": "application/json" }),
    },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const text = await answer.text();
  const data = text ? JSON.parse(text) : {};
  if (!answer.ok) throw Object.assign(new Error(data.detail || answer.statusText), { status: answer.status });
  return data;
}
