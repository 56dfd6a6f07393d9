// letter.js - the page of one dead letter, and that of one waiting message
//
// Both show the error first, then the attempts as a timeline, then the contents.

import { apiOf, ask, pageOf, query, queueOf } from "./api.js";
import { commandIcon, copyButton } from "./dialog.js";
import { button, el, time } from "./dom.js";
import { bytes, count, duration, exact, plural, quoted, visible } from "./format.js";
import { begin, follow, jobOf } from "./jobs.js";
import { state } from "./live.js";
import { messageMark, messagesSteer } from "./messages.js";

// ---- parts of both ----

// Text that may be long, scrolled to its end if the end matters.
function long(text, label, atEnd) {
  const node = el("pre", { tabindex: "0", role: "region", "aria-label": label }, text);
  if (atEnd) requestAnimationFrame(() => { node.scrollTop = node.scrollHeight; });
  return node;
}

// The body as text, JSON or hex.
function bodyOf(one) {
  if (!one.bodies) return el("section", {}, el("h2", {}, "Body"), el("p", { class: "empty" }, "This server does not show bodies (--no-bodies)."));
  const forms = [["JSON", one.body_json], ["Text", one.body], ["Hex", one.body_hex]].filter(([, text]) => text !== null && text !== undefined);
  const place = el("div", {});
  const choices = forms.map(([word, text]) => button(word, () => {
    for (const choice of choices) choice.setAttribute("aria-pressed", String(choice.textContent === word));
    place.replaceChildren(long(text, `Body as ${word}`));
    shown = text;
  }, { class: "chip", "aria-pressed": "false" }));
  let shown = "";
  choices[0]?.click();
  return el("section", {}, el("h2", {}, `Body, ${bytes(one.size)}`), el("div", { class: "chips" }, choices, copyButton(() => shown, "the body")), place,
    one.body_cut ? el("p", { class: "secondary" }, "The body is longer than shown here.") : null,
    forms.length ? null : el("p", { class: "empty" }, "The body is empty."));
}

const headerOf = (one) => (one.header ? el("section", {}, el("h2", {}, "Header"), long(one.header, "Header")) : null);

// The attempts, each with its offset from the first.
function timelineOf(one) {
  if (!one.history?.length) return null;
  const first = Date.parse(one.history[0].started_at);
  const most = Math.max(...one.history.map((attempt) => attempt.took_ms || 0), 1);
  return el("section", {}, el("h2", {}, "Attempts"), el("ol", { class: "timeline" }, one.history.map((attempt) => {
    const bar = el("i", {});
    bar.style.width = `${Math.max(((attempt.took_ms || 0) / most) * 100, 1)}%`;
    const offset = Date.parse(attempt.started_at) - first;
    return el("li", {}, el("div", { class: "attempt" }, el("b", {}, attempt.n),
      el("span", { title: exact(attempt.started_at) }, offset ? `+ ${duration(offset)}` : time(attempt.started_at)),
      el("span", { class: "took" }, el("span", { class: "bar-of", "aria-hidden": "true" }, bar), `took ${duration(attempt.took_ms || 0)}`), el("span", { class: "text" }, attempt.error || "no result")),
    attempt.stderr ? el("details", {}, el("summary", {}, "standard error"), long(attempt.stderr, `Standard error of attempt ${attempt.n}`, true)) : null);
  })));
}

const facts = (rows) => el("dl", { class: "facts" }, rows.filter(([, value]) => value !== null && value !== undefined && value !== "").map(([word, value]) => el("div", {}, el("dt", {}, word), el("dd", {}, value))));

const idOf = (id) => el("span", {}, el("code", {}, id), " ", copyButton(id, "the id"));

// ---- a letter ----

// Links to the neighbours within the group of the same error.
async function neighbours(queue, letter) {
  const list = (await ask(`${apiOf(queue, "letters")}${query({ pattern: letter.pattern, limit: 500 })}`)).letters;
  const at = list.findIndex((one) => String(one.row) === String(letter.row));
  const link = (word, one) => (one ? el("a", { class: "button", href: pageOf(queue, "dead", one.row) }, word) : el("span", { class: "button off" }, word));
  if (at < 0) return [];
  return [link("‹ Newer", list[at - 1]), link("Older ›", list[at + 1]), el("span", { class: "secondary" }, `${count(at + 1)} of ${list.length === 500 ? "500 or more" : count(list.length)} with this error`)];
}

export async function letterView(main, { part, row }) {
  const queue = queueOf(part);
  const letter = await ask(apiOf(queue, "letters", row));
  const place = el("div", { class: "answer" });
  const key = `${queue} letter ${row}`;
  const order = (what) => (event) =>
    begin(what, { queue, number: 1, body: { rows: [String(row)] }, flags: ` ${row}`, control: event.currentTarget, place, key, ended: () => {
      for (const control of controls) control.setAttribute("aria-disabled", "true");
    } });
  const controls = [button("Replay", order("replay"), { class: "primary" }), button("Discard…", order("discard"), { class: "danger" })];
  const beside = el("span", { class: "buttons" });
  if (letter.pattern) neighbours(queue, letter).then((links) => beside.append(...links)).catch(() => {});
  const stderr = letter.stderr || "";
  main.append(
    el("p", { class: "crumbs" }, el("a", { href: pageOf(queue, "dead") }, `Dead letters of ${queue}`)),
    el("h1", { "data-row": row }, `Letter ${row}`), el("p", { class: "error-line" }, letter.error_line || letter.error || letter.reason),
    el("div", { class: "buttons bulk", id: "bulk" }, letter.write ? [controls, commandIcon(() => `mqdlq replay ${quoted(queue)} ${row}`, "Replay")] : null, beside), place,
    stderr ? el("section", {}, el("h2", {}, "Standard error"), long(stderr, "Standard error", true)) : "",
    facts([["Died", time(letter.died_at)], ["Reason", letter.reason], ["Error", letter.error], ["Attempts", plural(letter.attempts, "attempt") + (letter.crashes ? `, ${plural(letter.crashes, "crash").replace("crashs", "crashes")}` : "")],
      ["Group", letter.group], ["Priority", letter.priority], ["First received", letter.first_received_at && time(letter.first_received_at)],
      ["Sent again", letter.sent_again_at && time(letter.sent_again_at)], ["Message", letter.message_id && idOf(letter.message_id)]]),
    timelineOf(letter) || "", bodyOf(letter), headerOf(letter) || "");
  if (jobOf(key)) queueMicrotask(() => follow(place, jobOf(key)));
  return { name: `Letter ${row} of ${queue}` };
}

// ---- a message ----

// Where a message is that no longer waits.
async function wentView(main, queue, id) {
  const { found } = await ask(`/api/v1/explain${query({ id, queue })}`);
  main.append(el("p", { class: "crumbs" }, el("a", { href: pageOf(queue, "messages") }, `Messages of ${queue}`)), el("h1", {}, "This message waits no more"),
    ...(found.length ? found.map((one) => el("p", {}, one.text)) : [el("p", { class: "empty" }, "It is done, and nothing is kept of it.")]));
  return { name: "Message" };
}

export async function messageView(main, { part, id: encoded }) {
  const queue = queueOf(part);
  const id = decodeURIComponent(encoded);
  let one;
  try {
    one = await ask(apiOf(queue, "messages", id));
  } catch (error) {
    if (error.status !== 404) throw error;
    return wentView(main, queue, id);
  }
  const place = el("span", { class: "answer" });
  const mark = messageMark();
  mark.update(one);
  const name = one.name || id;
  const steer = (verb) => (event) => messagesSteer(queue, verb, [name], event.currentTarget, place);
  main.append(
    el("p", { class: "crumbs" }, el("a", { href: pageOf(queue, "messages") }, `Messages of ${queue}`)), el("h1", {}, "Message"), el("p", { class: "state-line" }, mark, one.error_text || one.error ? ` last error: ${visible(one.error_text || one.error)}` : ""),
    el("div", { class: "buttons bulk" }, state.about.write && one.state !== "running" ? [button("Run now", steer("run-now"), { class: "primary" }), button("Cancel…", steer("cancel"), { class: "danger" })] : null,
      commandIcon(() => `mqctl explain ${quoted(queue)} ${quoted(name)}`, "Explain"), place),
    facts([["Due", one.due_at && time(one.due_at)], ["Received", one.received_at && time(one.received_at)], ["Running since", one.started_at && time(one.started_at)], ["Failures", count(one.failures)],
      ["Priority", one.priority], ["Group", one.group && el("a", { href: pageOf(queue, "groups") }, one.group)], ["Process", one.pid], ["Message", one.id && idOf(one.id)]]),
    timelineOf(one) || "", bodyOf(one), headerOf(one) || "");
  return { name: `Message of ${queue}` };
}

