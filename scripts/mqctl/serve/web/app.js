// app.js - makes the pages live; each is complete without it

import { $, el, ask, say, setText, apiUrl, queueUrl, count, rate, duration } from "./dom.js";
import { live } from "./live.js";
import { charts, spark } from "./charts.js";

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
    await ask("/api/v1/session", "POST", { token: token[1] });
    if (page === "login") location.reload();
  } catch (error) {
    say(error.message);
  }
}

// ---- queues ----

const LEVELS = { running: "fine", killed: "bad", "breaker open": "bad", "breaker probing": "bad" };

function stateShow(cell, state) {
  const mark = $(".state", cell);
  if (!mark || mark.textContent === state) return;
  mark.textContent = state;
  mark.className = "state " + (LEVELS[state] || "still");
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
  stateShow(cell("state"), q.state);
  ofShow(cell("depth"), q.depth, q.queue_depth);
  ofShow(cell("in_flight"), q.in_flight, q.capacity);
  setText(cell("done"), rate(q.rate));
  setText(cell("p50_ms"), duration(q.p50_ns));
  setText(cell("p99_ms"), duration(q.p99_ns));
  setText(cell("waiting"), count(q.waiting));
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
    td("state", "", el("span", { class: "state still" })),
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
  for (const row of $("#queues tbody").rows) {
    try {
      const data = await ask(`${apiUrl(row.dataset.queue)}/history?step=1s`);
      $('[data-f="spark"]', row).replaceChildren(spark(data.done || []));
    } catch {
      // the row stays as it is
    }
  }
  setTimeout(sparksShow, document.hidden ? 60000 : 10000);
}

function queuesListen(name, data) {
  if (name === "lost" || name === "job") return;
  for (const q of data)
    if (q.gone) $(`#queues tr[data-queue="${CSS.escape(q.queue)}"]`)?.remove();
    else rowUpdate(rowOf(q), q);
}

// ---- one queue ----

function queueListen(name, data) {
  if (name === "lost" || name === "job") return;
  const q = data.find((one) => one.queue === queue);
  if (!q) return;
  if (q.gone) {
    say(`${queue} is gone: it was removed while you looked.`);
    return;
  }
  stateShow(heading, q.state);
  for (const field of ["depth", "in_flight", "waiting", "parked", "spooled", "dead", "done", "retried", "groups_held", "capacity", "breaker", "pid"])
    setText($(`dd[data-f="${field}"]`), count(q[field]));
  setText($('dd[data-f="last_error"]'), q.last_error || "-");
}

// ---- changing something ----

const commandOf = (text) => el("p", {}, el("small", {}, "As a command: "), el("code", { class: "command" }, text));

// act - a button's request; the live region says what came of it
async function act(button, what, request) {
  button.disabled = true;
  try {
    await request();
    say(what);
  } catch (error) {
    say(error.message);
  }
  button.disabled = false;
}

function queueActions(place) {
  const pause = el("input", { type: "text", value: "10m", "aria-label": "Pause for" });
  const name = el("input", { type: "text", placeholder: "timeout", "aria-label": "Setting" });
  const value = el("input", { type: "text", placeholder: "30s", "aria-label": "Value" });
  const post = (word, body) => ask(`${apiUrl(queue)}/${word}`, "POST", body);
  const shown = commandOf("");
  const tell = (text) => setText($("code", shown), text);
  tell(`mqctl pause ${queue} 10m`);
  pause.addEventListener("input", () => tell(`mqctl pause ${queue} ${pause.value}`.trim()));
  for (const input of [name, value])
    input.addEventListener("input", () => tell(`mqctl set ${queue} ${name.value}=${value.value}`));
  place.append(
    el("h2", {}, "Actions"),
    el(
      "div",
      { class: "actions" },
      el("button", { onclick: (e) => act(e.target, `${queue} is paused.`, () => post("pause", pause.value ? { for: pause.value } : {})) }, "Pause"),
      el("label", {}, "for ", pause),
      el("button", { onclick: (e) => act(e.target, `${queue} goes on.`, () => post("resume", {})) }, "Resume"),
      el("button", { class: "act", onclick: (e) => confirm(`End the worker of ${queue} when what runs is done?`) && act(e.target, `${queue} drains.`, () => post("drain", {})) }, "Drain"),
    ),
    el(
      "form",
      {
        class: "actions",
        onsubmit: (event) => {
          event.preventDefault();
          const button = $("button", event.target);
          act(button, "", async () => {
            const answer = await ask(`${apiUrl(queue)}/settings`, "PATCH", { [name.value]: value.value });
            const one = answer.settings[0];
            setTimeout(() => say(`${one.name}: ${one.old} -> ${one.new}`));
          });
        },
      },
      el("label", {}, "Set ", name),
      el("label", {}, "to ", value),
      el("button", {}, "Set"),
    ),
    shown,
  );
}

// jobShow - how far a replay or discard is
function jobShow(place, job) {
  let line = $(`[data-job="${job.id}"]`, place);
  if (!line) {
    line = el("p", { "data-job": job.id }, el("span", {}), " ", el("button", { onclick: () => ask(`/api/v1/jobs/${job.id}`, "DELETE").catch((e) => say(e.message)) }, "Stop"));
    place.append(line);
  }
  const verb = job.what === "discard" ? "removed" : "sent";
  const text = `${job.changed} of ${job.count} ${verb}` + (job.refused ? `, ${job.refused} not` : "") + (job.error ? `: ${job.error}` : "");
  setText(line.firstElementChild, text);
  if (job.state === "running") return;
  $("button", line)?.remove();
  say(`${job.what} ${job.state}: ${text}`);
}

// filterNow - of the address of the page
function filterNow() {
  const filter = {};
  for (const [name, value] of new URLSearchParams(location.search))
    if (value && ["error", "reason", "group", "match", "since", "until"].includes(name)) filter[name] = value;
  return filter;
}

const quoted = (text) => (/^[\w./:@%+=-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

function commandLine(verb, filter, canary, perSecond, rows) {
  const flags = Object.entries(filter).map(([name, value]) => ` --${name} ${quoted(value)}`);
  const chosen = rows.length ? " " + rows.join(" ") : flags.join("") || " --all";
  const extra = verb === "replay" ? (canary ? " --canary" : "") + (perSecond ? ` --rate ${perSecond}` : "") : "";
  return `mqdlq ${verb}${extra} ${quoted(queue)}${chosen}`;
}

// letterActions - replay and discard: of the letters that are chosen, else of
// all that the filter matches, and never of one that died after the page was
// made
function letterActions(place, rows, total) {
  const filter = filterNow();
  const canary = el("input", { type: "checkbox" });
  const perSecond = el("input", { type: "text", inputmode: "numeric", "aria-label": "Letters a second" });
  const newest = $("#letters tbody tr");
  const shown = commandOf("");
  const words = el("span", {}, "");
  const jobs = el("div", {});
  const chosen = () => rows();
  const number = () => chosen().length || total;
  const body = () => ({
    ...(chosen().length
      ? { rows: chosen() }
      : { filter, up_to: newest.dataset.cursor, expect_count: total }),
    canary: canary.checked,
    ...(perSecond.value ? { rate: Number(perSecond.value) } : {}),
  });
  const show = () => {
    setText(words, chosen().length ? `${chosen().length} chosen` : total ? `all ${total} that match` : "none chosen");
    for (const button of place.querySelectorAll(".actions button")) button.disabled = number() === 0;
    setText($("code", shown), commandLine("replay", filter, canary.checked, perSecond.value, chosen()));
  };
  const start = (what) => (event) => {
    const sentence = what === "discard" ? `Remove ${number()} letters for good?` : `Send ${number()} letters into ${queue} again?`;
    if (!confirm(sentence)) return;
    act(event.target, "", async () => {
      const { job } = await ask(`${apiUrl(queue)}/letters/${what}`, "POST", body());
      follow(jobs, job);
    });
  };
  place.append(
    el(
      "div",
      { class: "actions" },
      words,
      el("button", { onclick: start("replay") }, "Replay"),
      el("label", {}, canary, " one first"),
      el("label", {}, "a second ", perSecond),
      el("button", { class: "act", onclick: start("discard") }, "Discard"),
    ),
    shown,
    jobs,
  );
  for (const input of [canary, perSecond]) input.addEventListener("input", show);
  show();
  return show;
}

// follow - a job to its end
async function follow(place, id) {
  try {
    const job = await ask(`/api/v1/jobs/${id}`);
    jobShow(place, job);
    if (job.state === "running") setTimeout(() => follow(place, id), 500);
  } catch (error) {
    say(error.message);
  }
}

function lettersPage() {
  const table = $("#letters");
  if (!write || !$("tbody tr", table)) return;
  const boxes = [];
  $("thead tr", table).append(el("th", { scope: "col" }, "Choose"));
  for (const row of $("tbody", table).rows) {
    const box = el("input", { type: "checkbox", value: row.dataset.row, "aria-label": `Choose letter ${row.dataset.row}` });
    boxes.push(box);
    row.append(el("td", {}, box));
  }
  // On an older page only what is chosen is meant: all that match are more.
  const older = new URLSearchParams(location.search).has("after");
  const total = older ? 0 : Number($("#bulk").dataset.total);
  const show = letterActions($("#bulk"), () => boxes.filter((b) => b.checked).map((b) => b.value), total);
  table.addEventListener("change", show);
}

function letterPage() {
  const row = heading.dataset.row;
  if (!write) return;
  const jobs = el("div", {});
  const start = (what) => (event) => {
    if (what === "discard" && !confirm("Remove this letter for good?")) return;
    act(event.target, "", async () => {
      const { job } = await ask(`${apiUrl(queue)}/letters/${what}`, "POST", { rows: [row] });
      follow(jobs, job);
    });
  };
  $("#actions").append(
    el("div", { class: "actions" }, el("button", { onclick: start("replay") }, "Replay"), el("button", { class: "act", onclick: start("discard") }, "Discard")),
    jobs,
  );
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
timesShow();
if (page === "queues") {
  live(queuesListen);
  sparksShow();
} else if (page === "queue") {
  live(queueListen);
  if (write) queueActions($("#actions"));
  charts($("#charts"), queue);
} else if (page === "letters") {
  lettersPage();
} else if (page === "letter") {
  letterPage();
}
