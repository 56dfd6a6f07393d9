// queue.js - the page of one queue: its state, its tabs, and the overview tab
//
// The server sends a whole look at the queue whenever it changes, while this
// tab is seen.

import { apiOf, ask, pageOf, query, queueOf } from "./api.js";
import { charts } from "./charts.js";
import { button, el, empty, keyed, say, setText, setTime, stateMark, time } from "./dom.js";
import { age, count, exact, percent, rate, relative } from "./format.js";
import { state, watch, watchQueue } from "./live.js";
import { messagesTab, messageTable } from "./messages.js";
import { open } from "./router.js";
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
  const more = el("span", { class: "secondary" });
  const note = el("span", { class: "answer" });
  const paused = button("", () => (isPaused(state.rows.get(queue)) ? resume : pause)(queue, paused, note));
  const forTime = button("Pause for…", () => pauseAsk(queue, forTime, note));
  const set = button("Concurrency…", () => concurrencyAsk(state.rows.get(queue), set, note));
  const drain = button("Drain…", () => drainAsk(queue, drain, note), { class: "danger" });
  const node = el("div", { class: "head" }, el("h1", { "data-queue": queue }, queue), el("p", { class: "state-line" }, mark, " ", more),
    state.about.write ? el("div", { class: "buttons", id: "actions" }, paused, forTime, set, drain, note) : null);
  node.update = (row, look) => {
    mark.update(row.state, row.severity);
    setText(paused, isPaused(row) ? "Resume" : "Pause");
    forTime.hidden = isPaused(row);
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
    const b = el("b", {});
    const link = el("a", { href: pageOf(queue, ...(tab ? [tab] : [])), "aria-current": tab === now ? "page" : null }, word, " ", b);
    link.update = (row) => {
      setText(b, number(row) ? count(number(row)) : "");
      b.className = tab === "dead" || tab === "groups" ? "bad" : "";
    };
    return link;
  });
  const node = el("nav", { class: "tabs", "aria-label": "Parts of the queue" }, links);
  node.update = (row) => links.forEach((link) => link.update(row));
  return node;
}

// ---- the overview tab ----

const WAITING = [["depth", "in the kernel queue"], ["spooled", "spooled"], ["waiting", "scheduled or retrying"], ["parked", "blocked by their group"], ["held", "held"]];

// Five large numbers: word, value, note.
const NUMBERS = [
  ["Waiting", (row) => count(row.waiting), (row, look) => WAITING.filter(([name]) => look[name]).map(([name, word]) => `${count(look[name])} ${word}`).join(", ")],
  ["Oldest waiting", (row) => age(row.oldest_at), (row) => (row.oldest_at ? `since ${exact(row.oldest_at).slice(11, 19)}` : "")],
  ["Running", (row) => `${count(row.running)} / ${count(row.capacity)}`, (row, look) => (look.groups ? `${count(look.groups)} groups` : "")],
  ["Done a second", (row) => rate(row.done_s), (row, look) => (look.done === undefined || look.done === null ? "" : `${count(look.done)} since the start`)],
  ["Failed", (row) => `${percent(row.failed_pct)}${row.failed_pct === undefined || row.failed_pct === null ? "" : " %"}`, () => "of the deliveries of 5 min"],
];

function numbersMake() {
  const cells = NUMBERS.map(([word, value, note]) => {
    const big = el("b", {});
    const small = el("small", {});
    const node = el("div", {}, el("span", {}, word), big, small);
    node.update = (row, look) => {
      setText(big, value(row, look));
      setText(small, note(row, look));
      big.className = word === "Failed" && row.failed_pct >= 5 ? "bad" : "";
    };
    return node;
  });
  const node = el("div", { class: "numbers" }, cells);
  node.update = (row, look) => cells.forEach((cell) => cell.update(row, look));
  return node;
}

function runningMake(queue) {
  const list = messageTable(queue, "Running now");
  const none = empty("No handler is running.");
  const node = el("section", {}, el("h2", {}, "Running now"), list.node, none);
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
  const list = el("ul", { class: "errors" });
  const last = el("p", {});
  const at = time(null);
  const words = el("span", {});
  last.append(at, " ", words);
  const none = empty("No delivery has failed.");
  const node = el("section", {}, el("h2", {}, "Last errors"), last, list, none);
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
      const number = el("b", {});
      const when = time(null);
      const link = el("a", { href: pageOf(queue, "dead") });
      const li = el("li", {}, number, " ", link, " ", el("span", { class: "secondary" }, "last ", when));
      li.update = (g) => {
        setText(number, count(g.count));
        setText(link, g.pattern);
        setTime(when, g.last);
      };
      return li;
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
  await Promise.race([found.first, new Promise((go) => setTimeout(go, 200))]);
  return {
    node: el("div", {}, found.node, numbers, drawn.node, running, errors),
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

const later = (file, name) => async (...args) => (await import(file))[name](...args);
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
  const note = el("p", { class: "bad", hidden: true });
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
      setText(note, gone ? `${queue} is gone: it was removed while you looked.${now ? " What waits in its store and its dead letters are kept." : ""}` : "");
      say(gone ? note.textContent : `${queue} is there again.`);
    }
    if (!now) return;
    row = now;
    show();
  });
  // The stream does not have what only the worker knows, so that is kept.
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
