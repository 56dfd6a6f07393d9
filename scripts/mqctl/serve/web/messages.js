// messages.js - the tab with the running and waiting messages of a queue
//
// The list follows the queue; ticks stay on the messages they were set on.

import { apiOf, ask, pageOf, post, query } from "./api.js";
import { act, commandIcon, question } from "./dialog.js";
import { button, el, empty, setText, stateMark } from "./dom.js";
import { bytes, count, plural, quoted } from "./format.js";
import { followed, listTable, text, ticks, when } from "./lists.js";
import { state } from "./live.js";

// State, its word, its severity, its number in a look at the queue.
const STATES = [
  ["running", "running", "fine", (q) => q.in_flight],
  ["ready", "ready", "idle"],
  ["spooled", "spooled", "idle", (q) => q.spooled],
  ["delayed", "scheduled", "idle"],
  ["retry", "retrying", "warn"],
  ["parked", "blocked", "warn", (q) => q.parked],
  ["held", "held", "idle", (q) => q.held],
];
const RESULTS = [
  ["already", "already so, or behind the head of their group"],
  ["in_flight", "running, left alone"],
  ["spooled", "in the spool, left alone"],
  ["gone", "no longer there"],
];
const EACH_MS = 2000;

// The mark of a message's state; it says the last error when pointed at.
export function messageMark() {
  const mark = stateMark();
  const write = mark.update;
  mark.update = (m) => {
    const [, word, severity] = STATES.find(([name]) => name === m.state) || [0, m.state, "idle"];
    write(word, severity);
    mark.title = m.error_text || m.error || "";
  };
  return mark;
}

// The table of messages; `box` is a column to tick them.
export const messageTable = (queue, label, box) =>
  listTable(label, [
    ...(box ? [box] : []),
    ["Message", "key mono", (m) => (m.name || m.id ? el("a", { href: pageOf(queue, "messages", m.name || m.id) }, (m.id || m.name).slice(-10)) : el("span", {}, "–"))],
    ["State", "", messageMark],
    ["Due", "wide-only", when((m) => m.due_at)],
    ["Attempt", "n", text((m) => count(m.attempt ?? m.failures))],
    ["Process", "n wide-only", text((m) => m.pid ?? "–")],
    ["Priority", "n wide-only", text((m) => m.priority)],
    ["Group", "wide-only", text((m) => m.group || "")],
    ["Age", "n", when((m) => (m.state === "running" ? m.started_at : m.received_at), "age")],
    ["Size", "n wide-only", text((m) => bytes(m.size))],
    ["Body", "text wide-only mono", text((m) => m.preview || "")],
  ], (m) => m.name || m.id || m.cursor);

// Make messages due now, or cancel them. Resolves to true if it was done.
export async function messagesSteer(queue, verb, names, control, place) {
  const cancel = verb === "cancel";
  if (cancel && !(await question({
    title: `Cancel ${plural(names.length, "message")}?`, text: "They end unprocessed.", danger: true, word: `Cancel ${names.length}`,
    command: () => `mqctl cancel ${quoted(queue)} ${names.map(quoted).join(" ")}`,
  }))) return false;
  return act(control, place, async () => {
    const n = await post(apiOf(queue, "messages", verb), { ids: names });
    return [`${count(n.done)} of ${count(n.chosen)} ${cancel ? "cancelled" : "due now"}`,
      ...RESULTS.filter(([name]) => n[name]).map(([name, word]) => `${n[name]} ${word}`)].join(", ");
  });
}

export async function messagesTab(queue, look, params) {
  const filter = params.get("state") || "";
  const place = el("span", { class: "answer" });
  const none = el("div", {});
  const steer = (verb) => (names, event) => messagesSteer(queue, verb, names, event.target, place);
  const boxes = state.about.write ?
    ticks((m) => (m.name && m.state !== "running" ? m.name : null), "message", [["Run now", steer("run-now")], ["Cancel", steer("cancel"), "danger"]]) : null;
  const list = messageTable(queue, "Messages", boxes?.column);
  const chips = [["", "all", ""], ...STATES].map(([value, word, , number]) => {
    const node = el("a", { class: "chip", href: `${pageOf(queue, "messages")}${query({ state: value })}`, "aria-current": value === filter ? "true" : null });
    node.update = (q) => setText(node, number?.(q) ? `${word} ${count(number(q))}` : word);
    return node;
  });
  let pages = 1;
  const more = button("More messages", () => {
    pages++;
    live.now();
  });
  const live = await followed(async () => {
    const all = [];
    let after = null;
    for (let i = 0; i < pages && (i === 0 || after); i++) {
      const answer = await ask(`${apiOf(queue, "messages")}${query({ state: filter, after })}`);
      all.push(...answer.messages);
      after = answer.next;
    }
    list.show(all);
    boxes?.show();
    more.hidden = !after;
    const depth = state.rows.get(queue)?.depth;
    none.replaceChildren(all.length ? "" : empty(filter ? "No message is in this state." : "The worker has no messages."),
      depth && (!filter || filter === "ready") ? el("p", { class: "secondary" }, `${plural(depth, "message")} in the kernel queue, which nobody can look into.`) : "");
  }, EACH_MS, (changed) => !changed || changed.has(queue));
  const update = (q) => chips.forEach((chip) => chip.update(q));
  update(look);
  return {
    node: el("div", { id: "messages" }, el("div", { class: "chips", role: "group", "aria-label": "States" }, chips),
      boxes && el("div", { class: "buttons bulk" }, boxes.buttons,
        commandIcon(() => `mqctl run-now|cancel ${quoted(queue)} ${boxes.chosen().map(quoted).join(" ") || "ID..."}`, "Run now or cancel"), place),
      list.node, none, more),
    update,
    leave: live.leave,
  };
}
