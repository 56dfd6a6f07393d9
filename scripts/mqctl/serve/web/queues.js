// queues.js - the page of all queues: findings, then a table, worst first
//
// Rows change in place. They are put in order again only when a state changes
// and neither the pointer nor the focus is in the table, so that nothing moves
// away under a click.

import { pageOf } from "./api.js";
import { spark, sparks } from "./charts.js";
import { commandIcon, menuButton } from "./dialog.js";
import { $, button, el, elided, empty, setAttribute, setText, stateMark, updated } from "./dom.js";
import { findings } from "./findings.js";
import { count, durations, percent, quoted, rate } from "./format.js";
import { listTable, text, ticks, when } from "./lists.js";
import { state, watch } from "./live.js";
import { steerAll, workerMenu } from "./worker.js";

const RECENT_MS = 600000; // an error that is older is shown on the queue's page only

// How much a queue needs a person: broken, in trouble, running, idle.
const rankOf = (row) =>
  (row.severity === "bad" ? 3 : row.severity === "warn" || row.dead || row.blocked || row.failed_pct >= 50 ? 2 : row.severity === "fine" ? 1 : 0);
const worstFirst = (a, b) =>
  rankOf(b) - rankOf(a) || (b.dead || 0) - (a.dead || 0) || (b.waiting || 0) - (a.waiting || 0) || (a.queue < b.queue ? -1 : 1);

const numberOf = (name) => (row) => row[name] ?? -1;

// A number over a thin bar: write(row) returns the text and the part that is full. A
// zero is grey.
const gauge = (write) => () => {
  const words = el("span");
  const fill = el("i");
  return updated(el("span.gauge", words, el("span.bar-of", { "aria-hidden": "true" }, fill)), (row) => {
    const [number, part] = write(row);
    setText(words, number);
    words.className = number.startsWith("0") ? "zero" : "";
    fill.style.width = `${Math.min(part || 0, 1) * 100}%`;
    fill.className = part >= 1 ? "full" : "";
  });
};

const zeroGrey = (name) => (row) => (row[name] ? "" : "zero");

// The state as a dot and a word; on a phone it stands below the name.
function stateCell() {
  const mark = stateMark();
  return updated(el("span", mark), (row) => mark.update(row.state, row.severity));
}

// The name, and below it the answer to what was done to the row, or a recent error.
function nameCell(first) {
  const mark = stateCell();
  const note = el("small.note");
  const link = el("a", { href: pageOf(first.queue) }, elided(first.queue));
  return updated(el("span.name", link, el("span.narrow-only", mark), note), (row) => {
    mark.update(row);
    const error = row.last_error && Date.now() - Date.parse(row.last_error_at) < RECENT_MS ? row.last_error : "";
    if (!note.dataset.answer) setText(note, error);
    note.title = error;
  });
}

function deadCell(first) {
  const node = el("a", { href: pageOf(first.queue, "dead") });
  return updated(node, (row) => {
    setText(node, count(row.dead));
    node.className = row.dead ? "bad" : "zero";
  });
}

function menuCell(first) {
  const menu = menuButton(`Actions on ${first.queue}`, () => workerMenu(state.rows.get(first.queue), menu, $(".note", menu.closest("tr"))));
  return menu;
}

const sparkCell = (first) => el("span", { "data-spark": first.queue }, spark());

// id, head, class, cell, explanation, value by which it sorts.
const COLUMNS = [
  ["state", "State", "state-cell wide-only", stateCell, "what the worker is doing", rankOf],
  ["queue", "Queue", "key", nameCell],
  ["waiting", "Waiting", "n", gauge((r) => [count(r.waiting), r.depth / r.depth_max]),
    "in the kernel queue, spooled, scheduled, for a retry or blocked; the bar shows how full the kernel queue is", numberOf("waiting")],
  ["oldest", "Oldest", "n wide-only", when((r) => r.oldest_at, "age"), "how long the oldest message that could run has waited", (r) => (r.oldest_at ? -Date.parse(r.oldest_at) : -Infinity)],
  ["running", "Running", "n", gauge((r) => [`${count(r.running)} / ${count(r.capacity)}`, (r.running / r.capacity) * 0.999]), "handlers busy, of how many may be", numberOf("running")],
  ["done", "Done/s", "n wide-only", text((r) => rate(r.done_s), zeroGrey("done_s")), "mean of 5 s", numberOf("done_s")],
  ["failed", "Failed %", "n wide-only", text((r) => percent(r.failed_pct), (r) => (r.failed_pct >= 5 ? "bad" : zeroGrey("failed_pct")(r))), "of the deliveries of 5 min", numberOf("failed_pct")],
  ["time", "p50 / p99", "n times wide-only", text((r) => (Number.isFinite(r.p50_ms) ? durations(r.p50_ms, r.p99_ms) : "–"), (r) => (Number.isFinite(r.p50_ms) ? "" : "zero")), "how long handlers took", numberOf("p99_ms")],
  ["dead", "Dead", "n dead-cell", deadCell, "dead letters", numberOf("dead")],
  ["spark", "Last 10 min", "wide-only spark-cell", sparkCell, "done, with failures in red"],
  ["menu", el("span.sr", "Actions"), "menu-cell", menuCell],
];

export async function queuesView(main, { params }) {
  let sort = params.get("sort") || localStorage.getItem("mqctl-sort") || "worst";
  const found = findings();
  const place = el("span.answer");
  const steer = (verb) => (queues, event) => steerAll(verb, queues, event.target, place);
  const boxes = state.about.write ? ticks((row) => row.queue, "queue", [["Pause", steer("pause")], ["Resume", steer("resume")]], false) : null;
  if (boxes) boxes.column[1] += " wide-only";
  const columns = COLUMNS.map(([, head, cls, make, title]) => [head, cls, make, title]);
  const list = listTable("Queues", boxes ? [boxes.column, ...columns] : columns, (row) => row.queue, { id: "queues", class: "fixed" });
  const heads = list.heads.slice(-COLUMNS.length);
  const bulk = boxes && el("div.buttons.bulk.wide-only", boxes.buttons,
    commandIcon(() => `mqctl pause|resume ${boxes.chosen().map(quoted).join(" ") || "QUEUE..."}`, "Pause or resume"), place);
  const none = el("div");

  // Each sortable head is a button; a second click returns to worst first.
  COLUMNS.forEach(([id, word, , , , value], i) => {
    if (!value) return;
    heads[i].replaceChildren(button(word, () => {
      sort = sort === id || id === "state" ? "worst" : id;
      localStorage.setItem("mqctl-sort", sort);
      history.replaceState(history.state, "", sort === "worst" ? "/" : `/?sort=${sort}`);
      order();
    }, { class: "head" }));
  });

  let late = false; // put in order when pointer and focus have left the table
  function order() {
    late = false;
    const value = COLUMNS.find(([id]) => id === sort)?.[5];
    const rows = [...state.rows.values()].sort(value && sort !== "state" ? (a, b) => value(b) - value(a) || worstFirst(a, b) : worstFirst);
    list.show(rows);
    COLUMNS.forEach(([id], i) => {
      setAttribute(heads[i], "aria-sort", sort === id || (sort === "worst" && id === "state") ? "descending" : null);
    });
    boxes?.show();
    if (bulk) bulk.hidden = !state.rows.size;
    none.replaceChildren(state.rows.size || !state.looked ? "" : empty("No queue yet. Start one: ", el("code", "mqworker /orders -- ./handle-order")));
  }
  const busy = () => list.node.matches(":hover") || list.node.contains(document.activeElement) && document.activeElement !== list.node;
  const orderSoon = () => {
    if (busy()) late = true;
    else order();
  };
  list.node.addEventListener("pointerleave", () => late && orderSoon());
  list.node.addEventListener("focusout", () => setTimeout(() => late && orderSoon()));

  let ranks = "";
  const unwatch = watch((changed) => {
    const now = [...state.rows.values()].map((row) => row.queue + rankOf(row)).join();
    const gone = [...list.body.rows].some((tr) => !state.rows.has(tr.dataset.key));
    if (changed === null || list.body.rows.length < state.rows.size || gone) order();
    else for (const tr of list.body.rows) if (changed.has(tr.dataset.key)) tr.update(state.rows.get(tr.dataset.key));
    if (now !== ranks && changed !== null) orderSoon();
    ranks = now;
  });
  await found.ready;
  order();
  const endSparks = sparks((queue, values) => $(`[data-spark="${CSS.escape(queue)}"] svg`, list.body)?.update(values));
  main.append(el("h1.sr", "Queues"), found.node, list.node, bulk || "", none);
  return { name: "Queues", leave: () => [unwatch, found.leave, endSparks].forEach((end) => end()) };
}
