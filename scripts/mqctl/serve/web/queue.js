// queue.js - the page of one queue: its state, its tabs, and the overview tab
//
// The server sends a whole look at the queue whenever it changes, while this
// tab is seen.

import { apiOf, ask, pageOf, query, queueOf } from "./api.js";
import { charts } from "./charts.js";
import { button, el, empty, keyed, say, setText, setTime, stateMark, time, updated } from "./dom.js";
import { count, exact, percent, rate, relative } from "./format.js";
import { state, watch, watchQueue } from "./live.js";
import { messagesSteer, messagesTab, runningTable } from "./messages.js";
import { later, open } from "./router.js";
import { concurrencyAsk, drainAsk, isPaused, pause, pauseAsk, resume } from "./worker.js";
import { findings } from "./findings.js";

const TABS = [
  ["", "Overview", () => 0],
  ["messages", "Messages", (row) => row.waiting],
  ["dead", "Dead", (row) => row.dead],
  ["groups", "Groups", (row) => row.blocked],
  ["settings", "Settings", () => 0],
];

// ---- the head of every tab ----

function headMake(queue) {
  const mark = stateMark();
  const more = el("span.secondary");
  const note = el("span.answer");
  const paused = button("", () => (isPaused(state.rows.get(queue)) ? resume : pause)(queue, paused, note));
  const forTime = button("Pause for…", () => pauseAsk(queue, forTime, note));
  const set = button("Concurrency…", () => concurrencyAsk(state.rows.get(queue), set, note));
  const drain = button("Drain…", () => drainAsk(queue, drain, note), { class: "danger" });
  const node = el("div.queue-head", el("h1", { "data-queue": queue }, queue), el("p.state-line", mark, " ", more),
    state.about.write ? el("div", { id: "actions" }, el("div.buttons", paused, forTime, set, drain), note) : null);
  node.update = (row, look) => {
    mark.update(row.state, row.severity);
    setText(paused, isPaused(row) ? "Resume" : "Pause");
    for (const control of [paused, forTime, set, drain]) control.hidden = !row.capacity; // no worker is running
    forTime.hidden ||= isPaused(row);
    const parts = [];
    if (look.paused_until) parts.push(`until ${exact(look.paused_until)}`);
    if (look.paused_by && look.paused) parts.push(`by ${look.paused_by}`);
    if (look.why) parts.push(look.why);
    if (look.breaker_reason && look.breaker !== "closed") parts.push(look.breaker_reason);
    if (look.started_at && look.pid) parts.push(`worker ${look.pid}, started ${relative(look.started_at)}${look.user ? ` by ${look.user}` : ""}`);
    setText(more, parts.join(" · "));
    more.title = look.command || "";
  };
  return node;
}

function tabsMake(queue, now) {
  const links = TABS.map(([tab, word, number]) => {
    const b = el("b");
    return updated(el("a", { href: pageOf(queue, ...(tab ? [tab] : [])), "aria-current": tab === now ? "page" : null }, word, " ", b), (row) => {
      setText(b, number(row) ? count(number(row)) : "");
      b.className = tab === "dead" || tab === "groups" ? "bad" : "";
    });
  });
  const node = el("nav.tabs", { "aria-label": "Parts of the queue" }, links);
  node.update = (row) => links.forEach((link) => link.update(row));
  return node;
}

// ---- the overview tab ----

const WAITING = [["depth", "in the kernel queue"], ["spooled", "spooled"], ["waiting", "scheduled or retrying"], ["parked", "blocked by their group"], ["held", "held"]];

// Since when the oldest message of each kind has waited: its member of `ages`, its words.
const AGES = [["kernel", "in the kernel queue"], ["spooled", "spooled"], ["overdue", "due, not started"], ["blocked", "blocked by its group"], ["held", "held"]];

const number = (value, tone) => () => {
  const node = el("b");
  return updated(node, (row) => {
    setText(node, value(row));
    if (tone) node.className = tone(row);
  });
};

const note = (write) => () => {
  const node = el("small");
  return updated(node, (row, look) => setText(node, write(row, look)));
};

function oldestNumber() {
  const at = time(null, "age");
  return updated(el("b", at), (row) => setTime(at, row.oldest_at));
}

// The oldest message of each kind, the oldest of all first.
function agesNote() {
  const node = el("small.ages");
  return updated(node, (row, { ages = {} }) => {
    const known = AGES.filter(([name]) => ages[name]).sort(([a], [b]) => (ages[a] < ages[b] ? -1 : 1));
    keyed(node, known, ([name]) => name, ([, words]) => {
      const at = time(null, "age");
      return updated(el("span", at, ` ${words}`), ([name]) => setTime(at, ages[name]));
    });
  });
}

// Five large numbers: word, number, what stands below it.
const NUMBERS = [
  ["Waiting", number((row) => count(row.waiting), (row) => (row.waiting ? "" : "zero")), note((row, look) => WAITING.filter(([name]) => look[name]).map(([name, word]) => `${count(look[name])} ${word}`).join(", "))],
  ["Oldest waiting", oldestNumber, agesNote],
  ["Running", number((row) => `${count(row.running)} / ${count(row.capacity)}`, (row) => (row.running ? "" : "zero")), note((row, look) => (look.groups ? `${count(look.groups)} groups` : ""))],
  ["Done a second", number((row) => rate(row.done_s), (row) => (row.done_s ? "" : "zero")), note((row, look) => (Number.isFinite(look.done) ? `${count(look.done)} since the start` : ""))],
  ["Failed", number((row) => (Number.isFinite(row.failed_pct) ? `${percent(row.failed_pct)} %` : "–"), (row) => (row.failed_pct >= 5 ? "bad" : row.failed_pct ? "" : "zero")), note(() => "of the deliveries of 5 min")],
];

function numbersMake() {
  const parts = NUMBERS.map(([word, big, small]) => [el("span", word), big(), small()]);
  return updated(el("div.numbers", parts.map((part) => el("div", part))),
    (row, look) => parts.flat().forEach((part) => part.update?.(row, look)));
}

function runningMake(queue) {
  const place = el("p.answer");
  const cancel = (m) => m.name && button("Cancel…", (event) => messagesSteer(queue, "cancel", [m.name], event.currentTarget, place, true), { class: "small danger" });
  const list = runningTable(queue, state.about.write ? cancel : null);
  const none = empty("No handler is running.");
  list.show([]);
  const node = el("section", el("h2", "Running now"), list.node, none, place);
  let loaded = 0;
  node.load = async () => {
    if (Date.now() - loaded < 2000 || document.hidden) return;
    loaded = Date.now();
    const { messages } = await ask(`${apiOf(queue, "messages")}${query({ state: "running" })}`);
    list.show(messages);
    none.hidden = messages.length > 0;
  };
  return node;
}

function errorsMake(queue) {
  const list = el("ul.errors");
  const at = time(null);
  const words = el("span");
  const last = el("p", words, " ", el("span.secondary", at));
  const none = empty("No delivery has failed.");
  const node = el("section", el("h2", "Last errors"), last, list, none);
  let groups = [];
  const show = (row) => {
    setTime(at, row.last_error_at);
    setText(words, row.last_error || "");
    last.hidden = !row.last_error;
    none.hidden = Boolean(row.last_error) || groups.length > 0;
  };
  let dead = -1;
  node.update = async (row) => {
    show(row);
    if (row.dead === dead) return;
    dead = row.dead;
    groups = (await ask(`/api/v1/letters/groups${query({ queue })}`).catch(() => ({ groups: [] }))).groups.slice(0, 5);
    keyed(list, groups, (g) => g.pattern, () => {
      const number = el("b");
      const when = time(null);
      const link = el("a", { href: pageOf(queue, "dead") });
      return updated(el("li", number, " ", link, " ", el("span.secondary", "last ", when)), (g) => {
        setText(number, count(g.count));
        setText(link, g.pattern);
        setTime(when, g.last);
      });
    });
    show(row);
  };
  return node;
}

async function overviewTab(queue) {
  const numbers = numbersMake();
  const drawn = charts(queue);
  const running = runningMake(queue);
  const errors = errorsMake(queue);
  const found = findings(queue);
  await found.ready;
  return {
    node: el("div", found.node, numbers, drawn.node, el("div.beside", errors, running)),
    update: (look, row) => {
      numbers.update(row, look);
      running.load().catch(() => {});
      errors.update(row);
    },
    leave: () => {
      drawn.leave();
      found.leave();
    },
  };
}

// ---- the page ----

const BODIES = {
  "": overviewTab,
  messages: messagesTab,
  dead: async (queue, look, params, go) => (await import("./dead.js")).deadList(queue, params, go),
  groups: later("./groups.js", "groupsTab"),
  settings: later("./settings.js", "settingsTab"),
};

export async function queueView(main, { part, tab = "", params }) {
  const queue = queueOf(part);
  let look = await ask(apiOf(queue));
  let row = state.rows.get(queue) || look;
  const head = headMake(queue);
  const tabs = tabsMake(queue, tab);
  const body = await BODIES[tab](queue, look, params, (filter) => open(`${pageOf(queue, tab)}${query(filter)}`));
  const note = el("p.bad", { hidden: true });
  let kernel = Number.isInteger(row.depth); // it is a queue of the kernel, which can be removed
  const show = () => {
    head.update(row, look);
    tabs.update(row);
    body.update?.(look, row);
  };
  const unwatch = watch((changed) => {
    if (changed && !changed.has(queue)) return;
    const now = state.rows.get(queue);
    kernel ||= Number.isInteger(now?.depth);
    const gone = !now || kernel && !Number.isInteger(now.depth);
    if (gone !== !note.hidden) {
      note.hidden = !gone;
      setText(note, gone ? `${queue} is gone: it was removed while you had it open.${now ? " Its waiting messages and dead letters are kept." : ""}` : "");
      say(gone ? note.textContent : `${queue} is there again.`);
    }
    if (!now) return;
    row = now;
    show();
  });
  // The stream lacks what only the worker knows; keep those members.
  const end = watchQueue(queue, (newest) => {
    look = { ...look, ...newest };
    show();
  });
  main.append(head, note, tabs, body.node);
  show();
  return {
    name: queue + (tab ? ` ${TABS.find(([one]) => one === tab)[1].toLowerCase()}` : ""),
    leave: () => [unwatch, end, body.leave].forEach((f) => f?.()),
  };
}
