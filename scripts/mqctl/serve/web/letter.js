// letter.js - the page of one dead letter, and that of one waiting message
//
// Both show the error first, then the attempts as a timeline, then the contents.
// While a page is seen it follows what others do to the letter or message.

import { apiOf, ask, bodyAsk, pageOf, post, query, queueOf } from "./api.js";
import { act, commandIcon, copyButton, question, toast } from "./dialog.js";
import { button, el, setText, time } from "./dom.js";
import { bytes, count, duration, exact, globOf, plural, quoted } from "./format.js";
import { begin, follow, jobOf } from "./jobs.js";
import { followed } from "./lists.js";
import { state } from "./live.js";
import { messageMark, messagesSteer } from "./messages.js";

const EACH_MS = 2000; // between two looks while something happens to the queue
const IDLE_MS = 15000; // and while nothing does
let bodyForm = null; // JSON, Text or Hex, as the person chose last

// ---- parts of both ----

// Text that may be long, scrolled to its end if the end matters.
function long(text, label, atEnd) {
  const node = el("pre", { tabindex: "0", role: "region", "aria-label": label }, text.trimEnd());
  if (atEnd) requestAnimationFrame(() => { node.scrollTop = node.scrollHeight; });
  return node;
}

// The body as text, JSON or hex.
function bodyOf(one) {
  if (!one.bodies) return el("section", el("h2", "Body"), el("p.empty", "This server does not show bodies (--no-bodies)."));
  const forms = [["JSON", one.body_json], ["Text", one.body], ["Hex", one.body_hex]].filter(([, text]) => text !== null && text !== undefined);
  const place = el("div");
  let shown = "";
  const show = (word, text) => {
    for (const choice of choices) choice.setAttribute("aria-pressed", String(choice.textContent === word));
    place.replaceChildren(long(text, `Body as ${word}`));
    shown = text;
  };
  const choices = forms.map(([word, text]) => button(word, () => {
    bodyForm = word;
    show(word, text);
  }, { class: "chip" }));
  if (forms.length) show(...(forms.find(([word]) => word === bodyForm) || forms[0]));
  return el("section", el("h2", `Body, ${bytes(one.size)}`), el("div.chips", choices, copyButton(() => shown, "the body")), place,
    one.body_cut ? el("p.secondary", "The body is longer than shown here.") : null,
    forms.length ? null : el("p.empty", "The body is empty."));
}

const headerOf = (one) => (one.header ? el("section", el("h2", "Header"), long(one.header, "Header")) : null);

const stderrOf = (text, label) => (text ? el("section", el("h2", label), long(text, label, true)) : null);

// The attempts on a line of time, each with its offset from the first.
function timelineOf(one) {
  if (!one.history?.length) return null;
  const first = Date.parse(one.history[0].started_at);
  const most = Math.max(...one.history.map((attempt) => attempt.took_ms || 0), 1);
  return el("section", el("h2", "Attempts"), el("ol.timeline", one.history.map((attempt) => {
    const bar = el("i");
    bar.style.width = `${Math.max(((attempt.took_ms || 0) / most) * 100, 1)}%`;
    const offset = Date.parse(attempt.started_at) - first;
    const cpu = attempt.cpu_seconds ?? null;
    const memory = attempt.peak_memory_bytes ?? null;
    return el("li", el("div.attempt", el("b", attempt.n),
      el("span", { title: exact(attempt.started_at) }, offset ? `+ ${duration(offset)}` : time(attempt.started_at)),
      el("span.took", `took ${duration(attempt.took_ms || 0)}`, el("span.bar-of", { "aria-hidden": "true" }, bar)),
      el("span", { class: cpu === null ? "zero" : null, title: "time on processors" }, `CPU ${duration(cpu === null ? null : cpu * 1000)}`),
      el("span", { class: memory === null ? "zero" : null, title: "peak memory of its largest process" }, `memory ${bytes(memory)}`),
      el("span.text", attempt.error || "no result")),
    attempt.stderr ? el("details", el("summary", "standard error"), long(attempt.stderr, `Standard error of attempt ${attempt.n}`, true)) : null);
  })));
}

const facts = (rows) => el("dl.facts", rows.filter(([, value]) => value !== null && value !== undefined && value !== "").map(([word, value]) => el("div", el("dt", word), el("dd", value))));

const idOf = (id) => el("span.id", el("code", id), copyButton(id, "the id"));

// A part of the page that is drawn again only when its data differ, so that what a
// person selected, opened or scrolled in it stays.
function drawn(make) {
  const node = el("div");
  let shown = "";
  node.show = (data) => {
    const now = JSON.stringify(data);
    if (now === shown) return;
    shown = now;
    node.replaceChildren(...make(data).filter(Boolean));
  };
  return node;
}

// ---- a letter ----

// Links to the letters before and after this one with the same error, and to all
// letters with that error.
async function neighbours(queue, letter) {
  const list = (await ask(`${apiOf(queue, "letters")}${query({ pattern: letter.pattern, limit: 500 })}`)).letters;
  const at = list.findIndex((one) => String(one.row) === String(letter.row));
  const link = (word, one) => (one ? el("a.button", { href: pageOf(queue, "dead", one.row) }, word) : el("span.button.off", word));
  if (at < 0) return [];
  return [link("‹ Newer", list[at - 1]), link("Older ›", list[at + 1]), el("span.secondary", `${count(at + 1)} of `,
    el("a", { href: pageOf(queue, "dead") + query({ error: globOf(letter.pattern) }) }, `${list.length === 500 ? "500 or more" : count(list.length)} with this error`))];
}

// States of a replayed letter. For each: the text before and after the time, and the
// label of the button for the next step.
const FATES = {
  sent: ["It was sent to the queue again ", ", and is not finished yet."],
  unsure: ["It may have been sent again ", ": mqdlq was killed before it could record that. Send it again; if a copy was sent, the worker drops one.", "Send again"],
  lost: ["It was sent again ", ", and lost when the machine restarted. The worker makes it dead again when it starts.", "Replay"],
};

export async function letterView(main, { part, row }) {
  const queue = queueOf(part);
  const key = `${queue} letter ${row}`;
  let letter = null;
  let known = null; // the id of the message that this page showed first, or sent
  let editing = false; // an edit of this person is being sent
  let gone = false; // the letter is resolved, and its row is never used again
  const place = el("div.answer");
  const error = el("p.error-line");

  const order = (what, again) => async (event) => {
    const done = await begin(what, {
      queue, number: 1, control: event.currentTarget, place, key, again, flags: ` ${row}`, ended: () => live.now(),
      body: { rows: [String(row)], message_id: letter.message_id || undefined, again: again || undefined },
    });
    if (!done) live.now();
  };

  const edit = async (event) => {
    const control = event.currentTarget;
    const before = letter.message_id; // before the edit
    let body = "";
    if (!(await act(control, place, async () => { body = await bodyAsk(apiOf(queue, "letters", row, "body")); }))) return;
    let stored = null; // the refusal of an edit that was stored, but not sent
    let sent = null;
    await question({
      title: `Edit letter ${row} of ${queue}`, word: "Replay", text: "It is sent with this body and a new id.",
      fields: [["body", "Body", { rows: 12, value: body, spellcheck: "false" }]], command: () => `mqdlq edit --body FILE ${quoted(queue)} ${row}`,
      request: async (values) => {
        editing = true;
        try {
          sent = known = (await post(apiOf(queue, "letters", row, "edit"), { ...values, message_id: before || undefined })).message_id;
        } catch (refusal) {
          if (refusal.status !== 503) throw refusal;
          await live.now();
          if (letter.message_id === before) throw refusal;
          stored = refusal;
        } finally {
          editing = false;
        }
      },
    });
    if (sent) toast(`Sent with the id ${sent}.`);
    if (stored) act(control, place, () => Promise.reject(stored));
    live.now();
  };

  const replay = button("Replay", order("replay"), { class: "primary" });
  const again = button("", (event) => order("replay", letter.replay === "unsure")(event), { class: "primary" });
  const change = button("Edit and replay…", edit);
  const discard = button("Discard…", order("discard"), { class: "danger" });
  const icon = commandIcon(() => letter.fix || `mqdlq replay ${quoted(queue)} ${row}`, "Replay");
  const beside = el("span.buttons");

  const fate = drawn(({ resolved, replay: fateNow, sent_again_at: at, changed }) => {
    if (resolved) return [el("p.notice", "This letter is gone: it was replayed and done, or discarded. ", known && el("a", { href: `/find${query({ q: known })}` }, "Find the message"))];
    const [before, after] = FATES[fateNow] || [];
    return [changed && el("p.notice", "Somebody edited this letter while you had it open; this is its new version."),
      before && el("p.notice", before, at ? time(at) : "", after)];
  });
  const contents = drawn((one) => [
    stderrOf(one.stderr, "Standard error"),
    facts([["Died", time(one.died_at)], ["Reason", one.reason], ["Error", one.error],
      ["Attempts", plural(one.attempts, "attempt") + (one.crashes ? `, ${one.crashes === 1 ? "1 crash" : `${one.crashes} crashes`}` : "")],
      ["Group", one.group], ["Priority", one.priority], ["First received", one.first_received_at && time(one.first_received_at)],
      ["Message", one.message_id && idOf(one.message_id)]]),
    timelineOf(one), bodyOf(one), headerOf(one)]);

  const show = () => {
    const { replay: fateNow, fix, sent_again_at: at, ...rest } = letter;
    const dead = !gone && !fateNow;
    setText(error, letter.error_line || letter.error || letter.reason);
    fate.show({ resolved: gone, replay: fateNow, sent_again_at: at, changed: letter.message_id !== known });
    contents.show(rest);
    contents.classList.toggle("past", gone);
    replay.hidden = discard.hidden = !dead;
    change.hidden = !dead || !letter.bodies;
    again.hidden = gone || !FATES[fateNow]?.[2];
    setText(again, FATES[fateNow]?.[2] || "");
    icon.hidden = gone || fateNow === "sent";
  };

  const live = await followed(async () => {
    if (gone) return;
    try {
      letter = await ask(apiOf(queue, "letters", row));
      if (!known || editing) known = letter.message_id;
    } catch (refusal) {
      gone = Boolean(letter) && refusal.status === 404;
      if (!gone) throw refusal;
    }
    show();
  }, EACH_MS, (changed) => !changed || changed.has(queue), IDLE_MS);
  if (letter.pattern) neighbours(queue, letter).then((links) => beside.append(...links)).catch(() => {});
  main.append(
    el("p.crumbs", el("a", { href: pageOf(queue, "dead") }, `Dead letters of ${queue}`)),
    el("h1", { "data-row": row }, `Letter ${row}`), error, fate,
    el("div.buttons.bulk", { id: "bulk" }, letter.write ? [replay, again, change, discard, icon] : null, beside), place, contents);
  if (jobOf(key)) queueMicrotask(() => follow(place, jobOf(key), () => live.now()));
  return { name: `Letter ${row} of ${queue}`, leave: live.leave };
}

// ---- a message ----

export async function messageView(main, { part, id: encoded }) {
  const queue = queueOf(part);
  const id = decodeURIComponent(encoded);
  let one = null;
  const place = el("span.answer");
  const mark = messageMark();
  const error = el("span");
  const steer = (verb) => async (event) => {
    await messagesSteer(queue, verb, [one.name || id], event.currentTarget, place, one.state === "running");
    live.now();
  };
  const runNow = button("Run now", steer("run-now"), { class: "primary" });
  const cancel = button("Cancel…", steer("cancel"), { class: "danger" });
  const ended = el("div");
  const contents = drawn((now) => [
    facts([["Due", now.due_at && time(now.due_at)], ["Received", now.received_at && time(now.received_at)], ["Running since", now.started_at && time(now.started_at)],
      ["Failures", count(now.failures)], ["Priority", now.priority], ["Group", now.group && el("a", { href: pageOf(queue, "groups") }, now.group)],
      ["Process", now.pid], ["Message", now.id && idOf(now.id)]]),
    stderrOf(now.last_stderr, "Standard error, last line"), timelineOf(now), bodyOf(now), headerOf(now)]);

  const live = await followed(async () => {
    try {
      one = await ask(apiOf(queue, "messages", id));
      mark.update(one);
      setText(error, one.error_text || one.error ? `last error: ${one.error_text || one.error}` : "");
      ended.replaceChildren();
      contents.show(one);
      contents.classList.remove("past");
    } catch (refusal) {
      if (refusal.status !== 404) throw refusal;
      const { found } = await ask(`/api/v1/explain${query({ id, queue })}`);
      mark.update({ state: "ended" });
      ended.replaceChildren(...(found.length ? found.map(({ text }) => el("p.notice", text)) : [el("p.notice", "This message has ended. The worker no longer has a record of it.")]));
      contents.classList.add("past");
    }
    const waits = one && !ended.firstChild;
    runNow.hidden = !waits || one.state === "running";
    cancel.hidden = !waits;
  }, EACH_MS, (changed) => !changed || changed.has(queue), IDLE_MS);
  main.append(
    el("p.crumbs", el("a", { href: pageOf(queue, "messages") }, `Messages of ${queue}`)), el("h1", "Message"), el("p.state-line", mark, " ", error), ended,
    el("div.buttons.bulk", state.about.write ? [runNow, cancel] : null, commandIcon(() => `mqctl explain ${quoted(queue)} ${quoted(one?.name || id)}`, "Explain"), place), contents);
  return { name: `Message of ${queue}`, leave: live.leave };
}
