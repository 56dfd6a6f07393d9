// act.js - what changes something: a button, what it does, and the command that
// does the same

import { $, el, ask, say, setText, apiUrl, queueUrl } from "./dom.js";

const quoted = (text) => (/^[\w./:@%+=-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

// act - a button's request. What came of it stands beside the button, and is said.
// The button keeps the focus: it is not disabled, but ignored until the answer.
async function act({ button, answer }, request) {
  if (button.getAttribute("aria-disabled") === "true") return;
  button.setAttribute("aria-disabled", "true");
  const show = (text, bad) => {
    setText(answer, text);
    answer.classList.toggle("act", bad);
    say(text);
  };
  try {
    const what = await request();
    if (what) show(what, false);
  } catch (error) {
    show(error.message, true);
  }
  button.setAttribute("aria-disabled", "false");
  button.dispatchEvent(new Event("change", { bubbles: true }));
}

// row - a button with its fields, and beside it the command and the answer; show()
// writes the command again
function row(word, { cls, fields = [], command, sure, request }) {
  const code = el("code", { class: "command" });
  const answer = el("span", { class: "answer" });
  const show = () => setText(code, command());
  const button = el("button", { class: cls, type: "submit" }, word);
  const form = el("form", { class: "action" }, el("span", { class: "actions" }, button, fields), el("span", {}, el("small", {}, "as a command "), code), answer);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (button.getAttribute("aria-disabled") !== "true" && (!sure || confirm(sure()))) act({ button, answer }, request);
  });
  form.addEventListener("input", show);
  show();
  return { form, show, button, answer };
}

const field = (word, attributes) => {
  const input = el("input", { type: "text", autocomplete: "off", ...attributes });
  return [el("label", {}, word, " ", input), input];
};

// ---- a queue ----

export function queueActions(place, queue) {
  const post = (word, body) => ask(`${apiUrl(queue)}/${word}`, "POST", body);
  const names = [...document.querySelectorAll("#settings tbody th")];
  const [forField, pause] = field("for", { value: "10m" });
  const [untilField, until] = field("or until", { type: "datetime-local" });
  const [handField, hand] = field("or until resumed", { type: "checkbox" });
  // How long, or till when; nothing at all is refused by the server.
  const pauseBody = () => (hand.checked ? {} : until.value ? { until: new Date(until.value).toISOString() } : { for: pause.value });
  const pauseWord = () => (hand.checked ? "" : until.value ? `${Math.max(Math.ceil((new Date(until.value) - Date.now()) / 60000), 0)}m` : pause.value || "DUR");
  const [nameField, name] = field("", { placeholder: "timeout", list: "names", "aria-label": "Setting" });
  const [valueField, value] = field("to", { placeholder: "30s" });
  const rows = [
    row("Pause", {
      fields: [forField, untilField, handField],
      command: () => `mqctl pause ${quoted(queue)} ${pauseWord()}`.trim(),
      request: async () => (await post("pause", pauseBody()), `${queue} is paused.`),
    }),
    row("Resume", {
      command: () => `mqctl resume ${quoted(queue)}`,
      request: async () => (await post("resume", {}), `${queue} goes on.`),
    }),
    row("Set", {
      fields: [nameField, valueField, el("datalist", { id: "names" }, names.map((th) => el("option", { value: th.textContent })))],
      command: () => `mqctl set ${quoted(queue)} ${quoted(`${name.value || "NAME"}=${value.value || "VALUE"}`)}`,
      request: async () => {
        const answer = await ask(`${apiUrl(queue)}/settings`, "PATCH", { [name.value]: value.value });
        const cell = names.find((th) => th.textContent === name.value);
        const one = answer.settings[0];
        if (cell) setText(cell.nextElementSibling, one.new);
        return `${one.name}: ${one.old} -> ${one.new}`;
      },
    }),
    row("Drain", {
      cls: "act",
      command: () => `mqctl drain ${quoted(queue)}`,
      sure: () => `End the worker of ${queue} when what runs is done?`,
      request: async () => (await post("drain", {}), `${queue} drains.`),
    }),
  ];
  place.append(el("h2", {}, "Actions"), ...rows.map((r) => r.form));
}

// boxes - one to choose each row of a table. chosen() has what is checked; done()
// takes the ticks away, and greys the rows that something was done to: so the next
// button does not mean them as well.
function boxes(table, value, label, may = () => true) {
  const all = [];
  table.tHead.rows[0].prepend(el("td", {}, el("span", { class: "sr" }, "Choose")));
  for (const tr of table.tBodies[0].rows) {
    const box = may(tr) ? el("input", { type: "checkbox", autocomplete: "off", value: value(tr), "aria-label": `${label} ${value(tr)}` }) : null;
    if (box) all.push(box);
    tr.prepend(el("td", { class: "box" }, box));
  }
  const chosen = () => all.filter((b) => b.checked).map((b) => b.value);
  const done = (values) => {
    for (const box of all.filter((b) => values.includes(b.value))) {
      box.checked = false;
      box.closest("tr").classList.add("past");
    }
    table.dispatchEvent(new Event("change"));
  };
  return { chosen, done, values: () => all.map((b) => b.value) };
}

// chosenShow - of buttons that need something chosen: whether that is so, and their
// commands
function chosenShow(rows, words, text, any) {
  setText(words, text);
  for (const r of rows) {
    r.button.setAttribute("aria-disabled", String(!any));
    r.show();
  }
}

// rowsFor - rows before a table, for what is chosen of it
function rowsFor(table, rows, chosen) {
  const words = el("p", {});
  const show = () => chosenShow(rows, words, `${chosen().length} chosen`, chosen().length > 0);
  table.before(...rows.map((r) => r.form), words);
  for (const r of rows) r.button.addEventListener("change", show);
  table.addEventListener("change", show);
  show();
}

// messageActions - run-now and cancel, of the messages that are chosen
export function messageActions(place, queue) {
  const table = $("table", place);
  if (!table) return;
  const { chosen, done } = boxes(table, (tr) => tr.dataset.id, "Choose message", (tr) => tr.dataset.state !== "running" && tr.dataset.id !== "-");
  const order = (word, what, verb, cls) =>
    row(word, {
      cls,
      command: () => `mqctl ${verb} ${quoted(queue)} ${chosen().join(" ") || "ID..."}`,
      sure: cls && (() => `Cancel ${chosen().length} messages? They end unprocessed.`),
      request: async () => {
        const ids = chosen();
        const n = await ask(`${apiUrl(queue)}/messages/${verb}`, "POST", { ids });
        done(ids);
        const rest = [
          [n.already, "so before, or behind its group's head"],
          [n.in_flight, "in flight, left alone"],
          [n.spooled, "in the spool, left alone"],
          [n.gone, "not there any more"],
        ].filter(([k]) => k);
        return [`${n.done} of ${n.chosen} ${what}`, ...rest.map(([k, why]) => `${k} ${why}`)].join("; ") + ".";
      },
    });
  const rows = [order("Run now", "due now", "run-now"), order("Cancel", "cancelled", "cancel", "act")];
  rowsFor(table, rows, chosen);
}

// ---- groups ----

// groupShow - what a group does, as the server writes it
function groupShow(cell, queue, g) {
  const letter = g.letter ? [" by ", el("a", { href: `${queueUrl(queue)}/dead/${g.letter}` }, `letter ${g.letter}`)] : [];
  cell.replaceChildren(el("span", {}, g.state, letter, g.closing ? ", closing" : ""));
}

// groupActions - close, open, release, of the groups that are chosen
export function groupActions(place, queue) {
  const table = $("table", place);
  if (!table) return;
  const { chosen, done } = boxes(table, (tr) => tr.dataset.group, "Choose group");
  const again = async () => {
    const { groups } = await ask(`${apiUrl(queue)}/groups${location.search}`);
    for (const tr of table.tBodies[0].rows) {
      const now = groups.find((g) => g.group === tr.dataset.group);
      groupShow($('[data-f="state"]', tr), queue, now || { state: "no message any more" });
    }
  };
  const order = (word, verb, became, cls, sure) =>
    row(word, {
      cls,
      sure,
      command: () => (chosen().length ? chosen() : ["KEY"]).map((key) => `mqctl group ${key.startsWith("-") ? "-- " : ""}${quoted(queue)} ${quoted(key)} ${verb}`).join("; "),
      request: async () => {
        const keys = chosen();
        for (const group of keys) await ask(`${apiUrl(queue)}/groups/${verb}`, "POST", { group });
        await again();
        done(keys);
        return `${keys.join(", ")}: ${became}`;
      },
    });
  const rows = [
    order("Release", "release", "goes on; its dead letter is kept"),
    order("Close", "close", "refuses new messages (they become dead letters, group-closed) until its messages are done", "act", () => `Until ${chosen().join(", ")} has no message left, its new messages become dead letters. Close?`),
    order("Open", "open", "takes messages"),
  ];
  rowsFor(table, rows, chosen);
}

// ---- letters ----

// jobShow - how far a replay or discard is
function jobShow(place, job) {
  let line = $(`[data-job="${job.id}"]`, place);
  if (!line) {
    line = el(
      "p",
      { "data-job": job.id },
      el("progress", { max: job.count, "aria-label": job.what }),
      " ",
      el("span", {}),
      " ",
      el("button", { type: "button", onclick: () => ask(`/api/v1/jobs/${job.id}`, "DELETE").catch((e) => say(e.message)) }, "Stop"),
    );
    place.append(line);
  }
  const verb = job.what === "discard" ? "removed" : "sent";
  const text = `${job.changed} of ${job.count} ${verb}` + (job.refused ? `, ${job.refused} not` : "") + (job.error ? `: ${job.error}` : "");
  $("progress", line).value = job.taken;
  setText($("span", line), text);
  if (job.state === "running") return;
  $("button", line)?.remove();
  say(`${job.what} ${job.state}: ${text}`);
  if (job.what === "replay" && job.changed) outcomeShow(line, job, text, Date.now());
}

// outcomeShow - what became of the letters that were sent, until none is on its way
async function outcomeShow(line, job, text, began) {
  const o = await ask(`/api/v1/jobs/${job.id}/outcome`).catch(() => null);
  if (!o || !line.isConnected) return;
  const parts = [
    [Math.max(job.changed - o.died_again - o.on_way, 0), "done"],
    [o.died_again, "died again"],
    [o.on_way, "on their way"],
  ].filter(([n]) => n);
  const became = parts.map(([n, word]) => `${n} ${word}`).join(", ");
  setText($("span", line), `${text}; ${became}`);
  if (o.on_way === 0) say(`${job.what} ${job.state}: ${text}; ${became}`);
  else setTimeout(() => outcomeShow(line, job, text, began), document.hidden || Date.now() - began > 60000 ? 10000 : 1000);
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

// followRunning - jobs that somebody began before this page was loaded
async function followRunning(place, queue) {
  const { jobs } = await ask("/api/v1/jobs").catch(() => ({ jobs: [] }));
  for (const job of jobs) if (job.queue === queue && job.state === "running") follow(place, job.id);
}

// filterNow - of the address of the page
function filterNow() {
  const filter = {};
  for (const [name, value] of new URLSearchParams(location.search))
    if (value && ["error", "reason", "group", "match", "since", "until"].includes(name)) filter[name] = value;
  return filter;
}

// letterRows - replay and discard; `chosen` rows, else all that `all` says
function letterRows(place, queue, { number, chosen, all, flags, done, ask: question }) {
  const jobs = el("div", { class: "jobs" });
  const canary = el("input", { type: "checkbox" });
  const [rateField, perSecond] = field("a second", { inputmode: "numeric", class: "short" });
  const which = () => (chosen().length ? " " + chosen().join(" ") : number() ? flags() : " ID...");
  const begin = (what, more) => async () => {
    const rows = chosen();
    const body = { ...(rows.length ? { rows } : all()), ...more() };
    const { job } = await ask(`${apiUrl(queue)}/letters/${what}`, "POST", body);
    done(rows);
    follow(jobs, job);
  };
  const many = number() !== 1 || question;
  const rows = [
    row("Replay", {
      fields: many ? [el("label", {}, canary, " one first"), rateField] : [],
      command: () => `mqdlq replay${canary.checked ? " --canary" : ""}${perSecond.value ? ` --rate ${quoted(perSecond.value)}` : ""} ${quoted(queue)}${which()}`,
      sure: question && (() => `Send ${number()} letters into ${queue} again?`),
      request: begin("replay", () => ({ canary: canary.checked, ...(perSecond.value ? { rate: Number(perSecond.value) } : {}) })),
    }),
    row("Discard", {
      cls: "act",
      command: () => `mqdlq discard ${quoted(queue)}${which()}`,
      sure: () => `Permanently remove ${number() === 1 ? "this letter" : `${number()} letters`}?`,
      request: begin("discard", () => ({})),
    }),
  ];
  place.append(...rows.map((r) => r.form), jobs);
  followRunning(jobs, queue);
  return rows;
}

// lettersActions - of the letters that are chosen, else of all that the filter
// matches, and never of one that died after the page was made
export function lettersActions(place, table, queue) {
  const newest = $("tbody tr", table);
  if (!newest) return;
  const filter = filterNow();
  // Where not all were looked at, all that match are those down to that time.
  const cut = $("#cut");
  if (cut) filter.since = cut.dataset.since;
  // On an older page only what is chosen is meant: all that match are more.
  const older = new URLSearchParams(location.search).has("after");
  const total = older ? 0 : Number(place.dataset.total);
  const { chosen, done, values } = boxes(table, (tr) => tr.dataset.row, "Choose letter");
  // After an action the page is old, and without ticks: only what is chosen then is
  // meant, and never all that matched before.
  let acted = false;
  const words = el("p", {});
  const number = () => chosen().length || (acted ? 0 : total);
  const rows = letterRows(place, queue, {
    number,
    chosen,
    done: (rows) => {
      acted = true;
      done(rows.length ? rows : values());
    },
    ask: true,
    all: () => ({ filter, up_to: newest.dataset.cursor, expect_count: total }),
    flags: () => Object.entries(filter).map(([name, value]) => ` --${name} ${quoted(value)}`).join("") || " --all",
  });
  place.prepend(words);
  const all = () => (total && !acted ? `All ${total} that match${cut ? ", of the newest" : ""}` : "None chosen");
  const show = () => chosenShow(rows, words, chosen().length ? `${chosen().length} chosen` : all(), number() > 0);
  for (const r of rows) r.button.addEventListener("change", show);
  table.addEventListener("change", show);
  show();
}

export function letterActions(place, queue, row) {
  letterRows(place, queue, { number: () => 1, chosen: () => [row], all: () => ({}), flags: () => "", done: () => {} });
}
