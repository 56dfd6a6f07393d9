// app.js - makes the pages live; each is complete without it

import { $, el, ask, signIn, say, setText, apiUrl, queueUrl, count, rate, duration } from "./dom.js";
import { live } from "./live.js";
import { charts, spark } from "./charts.js";
import { queueActions, messageActions, groupActions, lettersActions, letterActions } from "./act.js";

const page = document.body.dataset.page;
const write = document.body.dataset.write === "true";
const heading = $("h1[data-queue]");
const queue = heading ? heading.dataset.queue : null;

// ---- logging in ----

// The token comes behind #, which no browser sends and no log has.
async function logIn() {
  const token = /^#t=([0-9a-f]{64})$/.exec(location.hash);
  if (!token) return;
  history.replaceState(null, "", location.pathname + location.search);
  try {
    await signIn(token[1]);
    if (page === "login") location.reload();
  } catch (error) {
    say(error.message);
  }
}

// formSignIn - as the form does, but the key stays here; then this address again
function formSignIn(event) {
  event.preventDefault();
  const form = event.target;
  signIn(form.elements.token.value.trim())
    .then(() => (page === "login" && location.pathname !== "/session" ? location.reload() : location.assign(form.elements.next.value)))
    .catch((error) => say(error.message));
}

// ---- queues ----

// stateShow - the server says how badly a state needs a person
function stateShow(cell, q) {
  const mark = $(".state", cell);
  if (!mark) return;
  setText(mark, q.state);
  mark.className = `state ${q.severity}`;
}

function ofShow(cell, value, most) {
  if (!cell) return;
  if (!cell.firstChild) cell.append("");
  if (cell.firstChild.nodeType === Node.TEXT_NODE) {
    if (cell.firstChild.data !== count(value)) cell.firstChild.data = count(value);
  }
  if (most !== null && most !== undefined) {
    const small = $("small", cell) || cell.appendChild(el("small"));
    setText(small, ` / ${most}`);
  }
}

function rowUpdate(row, q) {
  const cell = (name) => $(`[data-f="${name}"]`, row);
  stateShow(cell("state"), q);
  ofShow(cell("depth"), q.depth, q.queue_depth);
  ofShow(cell("in_flight"), q.in_flight, q.capacity);
  // Without a stream the server tells the last look.
  const recent = q.recent || { done: q.rate, p50_ms: q.p50_ns / 1e6, p99_ms: q.p99_ns / 1e6 };
  setText(cell("done"), rate(recent.done));
  setText(cell("p50_ms"), duration(recent.p50_ms * 1e6));
  setText(cell("p99_ms"), duration(recent.p99_ms * 1e6));
  setText(cell("waiting"), count(q.waiting === null ? null : q.waiting + (q.spooled || 0)));
  setText(cell("parked"), count(q.parked));
  const dead = cell("dead");
  setText(dead.firstElementChild, count(q.dead));
  dead.classList.toggle("act", q.dead > 0);
  setText(cell("last_error"), q.last_error || "");
}

function rowMake(q) {
  const td = (name, cls, ...children) => el("td", { "data-f": name, class: cls }, ...children);
  return el(
    "tr",
    { "data-queue": q.queue },
    el("th", { scope: "row" }, el("a", { href: queueUrl(q.queue) }, q.queue)),
    td("state", "", el("span", { class: "state" })),
    td("depth", "n"),
    td("in_flight", "n"),
    td("done", "n wide"),
    td("p50_ms", "n wide"),
    td("p99_ms", "n wide"),
    td("waiting", "n wide"),
    td("parked", "n wide"),
    td("dead", "n", el("a", { href: queueUrl(q.queue) + "/dead" })),
    td("last_error", "wide text"),
    td("spark", "wide spark"),
  );
}

// rowOf - the row of a queue; a new one goes to its place in the alphabet
function rowOf(q) {
  const body = $("#queues tbody");
  let before = null;
  for (const row of body.rows) {
    if (row.dataset.queue === q.queue) return row;
    if (!before && row.dataset.queue > q.queue) before = row;
  }
  return body.insertBefore(rowMake(q), before);
}

async function sparksShow() {
  try {
    const { queues } = await ask("/api/v1/sparks");
    for (const q of queues)
      $(`#queues tr[data-queue="${CSS.escape(q.queue)}"] [data-f="spark"]`)?.replaceChildren(spark(q.done));
  } catch {
    // the rows stay as they are
  }
  setTimeout(sparksShow, document.hidden ? 60000 : 10000);
}

function queuesListen(name, data) {
  for (const q of data)
    if (q.gone) $(`#queues tr[data-queue="${CSS.escape(q.queue)}"]`)?.remove();
    else rowUpdate(rowOf(q), q);
  if (name === "queues" || data.length === 0) return;
  const there = new Set(data.map((q) => q.queue));
  for (const row of [...$("#queues tbody").rows]) if (!there.has(row.dataset.queue)) row.remove();
}

// findingMake - as the server writes it. What it is about is the queue and the
// check: its text has numbers that change.
const findingMake = (f) =>
  el(
    "div",
    { class: `finding ${f.level}`, "data-key": `${f.queue || ""} ${f.check}` },
    el("strong", {}, f.level),
    ` ${f.queue || ""} ${f.check}: ${f.text}`,
    f.fix ? el("div", {}, el("code", { class: "command" }, f.fix)) : null,
  );

// findingsUpdate - what doctor warns of: what is over goes, what is new comes last
// and is said, and a text that differs changes in its place
function findingsUpdate(place, now) {
  const left = [...place.children];
  const news = [];
  for (const node of now) {
    const i = left.findIndex((had) => had.dataset.key === node.dataset.key);
    if (i < 0) {
      place.append(node);
      news.push(node);
      continue;
    }
    const [had] = left.splice(i, 1);
    if (had.textContent !== node.textContent) {
      had.className = node.className;
      had.replaceChildren(...node.childNodes);
    }
  }
  for (const node of left) node.remove();
  if (news.length) say(`New: ${$("strong", news[0]).nextSibling.data.trim()}`);
}

async function findingsShow() {
  try {
    const { findings } = await ask("/api/v1/doctor" + (queue ? `?queue=${encodeURIComponent(queue)}` : ""));
    findingsUpdate($("#findings"), findings
      .filter((f) => (f.level === "warn" || f.level === "bad") && (!queue || f.queue === queue))
      .map(findingMake));
  } catch {
    // the next look will tell
  }
  findingsLater();
}

const findingsLater = () => setTimeout(findingsShow, document.hidden ? 300000 : 30000);

// ---- one queue ----

let there = null; // whether the queue is; null: nobody has told yet

function queueListen(name, data) {
  const q = data.find((one) => one.queue === queue);
  if (!q) return;
  const now = !q.gone && q.depth !== null;
  if (there && !now) say(`${queue} is gone: it was removed while you looked` + (q.gone ? "." : "; what waits and its dead letters are kept."));
  if (there === false && now) say(`${queue} is there again.`);
  there = now;
  if (q.gone) return;
  stateShow(heading, q);
  for (const field of ["depth", "in_flight", "waiting", "parked", "spooled", "dead", "done", "retried", "groups_held", "capacity", "breaker", "pid"])
    setText($(`dd[data-f="${field}"]`), count(q[field]));
  setText($('dd[data-f="last_error"]'), q.last_error || "-");
  setText($('dd[data-f="paused_until"]'), q.paused_until ? new Date(q.paused_until).toLocaleString() : q.paused ? "resumed by hand" : "-");
}

// lettersListen - how many there are; the list stays, as a person reads it
function lettersListen(name, data) {
  const q = data.find((one) => one.queue === queue);
  if (q && !q.gone) setText($('[data-f="dead"]'), count(q.dead));
}

// ---- which page ----

function timesShow() {
  for (const cell of document.querySelectorAll(".time")) {
    const at = Date.parse(cell.textContent);
    if (Number.isNaN(at)) continue;
    cell.title = cell.textContent;
    cell.textContent = new Date(at).toLocaleString();
  }
}

logIn();
$("#login")?.addEventListener("submit", formSignIn);
addEventListener("hashchange", logIn); // the address with the token, typed over this one
timesShow();
if (page === "queues") {
  live(queuesListen);
  sparksShow();
  findingsLater();
} else if (page === "queue") {
  live(queueListen);
  findingsLater();
  if (write) {
    queueActions($("#actions"), queue);
    messageActions($("#messages"), queue);
  }
  charts($("#charts"), queue);
} else if (page === "groups") {
  if (write && $("#groups")) groupActions($("#groups"), queue);
} else if (page === "letters") {
  live(lettersListen);
  if (write) lettersActions($("#bulk"), $("#letters"), queue);
} else if (page === "letter") {
  if (write) letterActions($("#actions"), queue, heading.dataset.row);
}
