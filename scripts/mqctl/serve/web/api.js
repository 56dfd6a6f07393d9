// api.js - requests to the server, and the addresses of pages
//
// Used by every page. A refusal is an Error with the server's sentence and its
// status; status 0 means that the server does not answer.

// A browser sends the cookie to every port of the host, so each change needs the
// key too, which only this origin got when it signed in.
const KEY = "mqctl-key";

// In an address, a queue of the kernel has no slash. A queue on a broker has
// several, and is encoded twice.
const segment = (queue) =>
  (queue.startsWith("/") ? encodeURIComponent(queue.slice(1)) : encodeURIComponent(encodeURIComponent(queue)));

export const pageOf = (queue, ...more) => ["/queues", segment(queue), ...more.map(encodeURIComponent)].join("/");
export const apiOf = (queue, ...more) => ["/api/v1/queues", segment(queue), ...more.map(encodeURIComponent)].join("/");

// The name of a queue from its part of an address.
export function queueOf(part) {
  const name = decodeURIComponent(part);
  return name.includes("%") || name.includes(":") ? decodeURIComponent(name) : `/${name}`;
}

// A query of those values that are not empty.
export function query(values) {
  const set = Object.entries(values).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return set.length ? `?${new URLSearchParams(set)}` : "";
}

export async function ask(url, method = "GET", body = undefined) {
  const headers = { Accept: "application/json" };
  if (method !== "GET") {
    headers["X-MQ-Request"] = "1";
    headers["X-MQ-Key"] = localStorage.getItem(KEY) || "";
  }
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(url, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch {
    throw Object.assign(new Error("The server does not answer. It is not known whether it did what you asked; try again."), { status: 0 });
  }
  const text = await answer.text();
  let data = {};
  try {
    if (text) data = JSON.parse(text);
  } catch {
    data = { detail: text.slice(0, 200) };
  }
  if (!answer.ok) throw Object.assign(new Error(data.detail || answer.statusText), { status: answer.status });
  return data;
}

// Ask for the first pages of a list, each from the cursor of the page before.
export async function pagesAsk(most, url, values) {
  const pages = [];
  do pages.push(await ask(url + query({ ...values, after: pages.at(-1)?.next })));
  while (pages.length < most && pages.at(-1).next);
  return pages;
}

// Fetch a body as text. Rejects a body that a text field would change.
export async function bodyAsk(url) {
  const answer = await fetch(url);
  if (!answer.ok) throw new Error((await answer.json()).detail);
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(await answer.arrayBuffer());
    if (!text.includes("\r")) return text;
  } catch {
    // The bytes are not UTF-8.
  }
  throw new Error("This body cannot be edited here, because it is not plain text; use the command.");
}

export const post = (url, body = {}) => ask(url, "POST", body);

// Exchange a token for the cookie and the key.
export async function signIn(token) {
  const answer = await fetch("/api/v1/session", {
    method: "POST",
    headers: { Accept: "application/json", "Content-Type": "application/json" },
    body: JSON.stringify({ token }),
  });
  if (!answer.ok) throw Object.assign(new Error((await answer.json()).detail), { status: answer.status });
  localStorage.setItem(KEY, answer.headers.get("X-MQ-Key"));
}

export async function signOut() {
  localStorage.removeItem(KEY);
  await ask("/api/v1/session", "DELETE");
}
