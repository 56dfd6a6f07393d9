// messages.js - the tab with the running and waiting messages of a queue
//
// The list follows the queue; ticks stay on the messages they were set on.

import { apiOf, pageOf, pagesAsk, post, query } from "./api.js";
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

// The mark of a message's state; its tooltip is the last error.
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

// Columns of messages.
const messageLink = (queue) => ["Message", "key mono",
  (m) => (m.name || m.id ? el("a", { href: pageOf(queue, "messages", m.name || m.id) }, (m.id || m.name).slice(-10)) : el("span", "–"))];
const ATTEMPT = ["Attempt", "n", text((m) => count(m.attempt ?? m.failures), (m) => (m.attempt ?? m.failures ? "" : "zero"))];
const GROUP = ["Group", "wide-only", text((m) => m.group || "")];
const BODY = ["Body", "text wide-only mono", text((m) => m.preview || "")];
const keyOf = (m) => m.name || m.id || m.cursor;

// The table of running messages; cancel(m) makes the button of a row (null: none).
export const runningTable = (queue, cancel) =>
  listTable("Running now", [
    messageLink(queue),
    ["For", "n", when((m) => m.started_at, "age")],
    ["Attempt", "n wide-only", ATTEMPT[2]],
    ["Process", "n wide-only", text((m) => m.pid ?? "–")],
    GROUP,
    ["Last line of stderr", "text mono", text((m) => m.last_stderr || "–", (m) => (m.last_stderr ? "" : "zero"))],
    BODY,
    ...(cancel ? [["Actions", "", cancel]] : []),
  ], keyOf);

// Make messages due now, or cancel them; `running`: some are running. Resolves to
// true if it was done.
export async function messagesSteer(queue, verb, names, control, place, running = false) {
  const cancel = verb === "cancel";
  const values = cancel && await question({
    title: `Cancel ${plural(names.length, "message")}?`, danger: true,
    text: names.length > 1 ? "They end unprocessed. Messages that you did not tick stay, whether they are shown or not." : "It ends unprocessed.",
    word: names.length > 1 ? `Cancel ${count(names.length)} messages` : "Cancel the message", keep: names.length > 1 ? "Keep them" : "Keep it",
    fields: running ? [["running", "Also terminate the handlers of running messages, which may take a minute", { type: "checkbox", checked: true }]] : [],
    command: (v) => `mqctl cancel${v.running ? " --running" : ""} ${quoted(queue)} ${names.map(quoted).join(" ")}`,
  });
  if (cancel && !values) return false;
  return act(control, place, async () => {
    const n = await post(apiOf(queue, "messages", verb), { ids: names, ...values });
    return [`${count(n.done)} of ${count(n.chosen)} ${cancel ? "cancelled" : "due now"}`,
      ...RESULTS.filter(([name]) => n[name]).map(([name, word]) => `${n[name]} ${word}`)].join(", ");
  });
}

export async function messagesTab(queue, look, params) {
  const filter = params.get("state") || "";
  const place = el("span.answer");
  const none = el("div");
  let all = [];
  const steer = (verb) => (names, event) =>
    messagesSteer(queue, verb, names, event.target, place, all.some((m) => m.state === "running" && names.includes(m.name)));
  const boxes = state.about.write ? ticks((m) => m.name, "message", [["Run now", steer("run-now")], ["Cancel…", steer("cancel"), "danger"]]) : null;
  const list = listTable("Messages", [
    ...(boxes ? [boxes.column] : []),
    messageLink(queue),
    ["State", "", messageMark],
    ["Due", "wide-only", when((m) => m.due_at)],
    ATTEMPT,
    ["Priority", "n wide-only", text((m) => m.priority, (m) => (m.priority ? "" : "zero"))],
    GROUP,
    ["Age", "n", when((m) => m.received_at, "age")],
    ["Size", "n wide-only", text((m) => bytes(m.size))],
    BODY,
  ], keyOf);
  const chips = [["", "all", ""], ...STATES].map(([value, word, , number]) => {
    const node = el("a.chip", { href: `${pageOf(queue, "messages")}${query({ state: value })}`, "aria-current": value === filter ? "true" : null });
    node.update = (q) => setText(node, number?.(q) ? `${word} ${count(number(q))}` : word);
    return node;
  });
  let pages = 1;
  const more = button("More messages", () => {
    pages++;
    live.now();
  });
  const live = await followed(async () => {
    const found = await pagesAsk(pages, apiOf(queue, "messages"), { state: filter });
    all = found.flatMap((page) => page.messages);
    list.show(all);
    boxes?.show();
    more.hidden = !found.at(-1).next;
    const depth = state.rows.get(queue)?.depth;
    none.replaceChildren(all.length ? "" : empty(filter ? "No message is in this state." : "The worker has no messages."),
      depth && (!filter || filter === "ready") ? el("p.secondary", `${plural(depth, "message")} in the kernel queue, whose contents cannot be shown.`) : "");
  }, EACH_MS, (changed) => !changed || changed.has(queue));
  const update = (q) => chips.forEach((chip) => chip.update(q));
  update(look);
  return {
    node: el("div", { id: "messages" }, el("div.chips", { role: "group", "aria-label": "States" }, chips),
      boxes && el("div.buttons.bulk", boxes.buttons,
        commandIcon(() => `mqctl run-now|cancel ${quoted(queue)} ${boxes.chosen().map(quoted).join(" ") || "ID..."}`, "Run now or cancel"), place),
      list.node, none, more),
    update,
    leave: live.leave,
  };
}
