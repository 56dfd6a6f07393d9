// jobs.js - replays and discards, followed to their outcome
//
// Used wherever letters are replayed or discarded. The server does the work in
// a job of its own, so leaving the page does not stop it; a page that comes
// back follows the jobs that it began.

import { apiOf, ask, post } from "./api.js";
import { act, question, toast } from "./dialog.js";
import { button, el, say, setText } from "./dom.js";
import { count, plural, quoted } from "./format.js";

const EACH_MS = 500;
const OUTCOME_MS = 2000;
const MANY = 100; // to discard so many letters, a person must type the number

// The ids of jobs by the key of the row that began them, to show them there again.
const remembered = () => JSON.parse(sessionStorage.getItem("mqctl-jobs") || "{}");

const remember = (key, id) => sessionStorage.setItem("mqctl-jobs", JSON.stringify({ ...remembered(), [key]: id }));
export const jobOf = (key) => remembered()[key];

const sentence = (job, outcome) => {
  if (job.what === "discard") return `${count(job.changed)} of ${count(job.count)} discarded`;
  const parts = [`${count(job.changed)} of ${count(job.count)} sent`];
  if (job.canary && job.verdict === "waiting") parts.push("waiting for the first one");
  if (job.canary && job.verdict === "done") parts.push("the first one is done");
  if (outcome) {
    parts.push(`${count(outcome.done)} done`);
    if (outcome.died_again) parts.push(`${count(outcome.died_again)} died again`);
    if (outcome.on_way) parts.push(`${count(outcome.on_way)} on the way`);
  }
  if (job.refused) parts.push(`${count(job.refused)} refused`);
  return parts.join(", ");
};

// Follow a job in `place` until its outcome is known or the place has gone.
export async function follow(place, id, ended = () => {}) {
  const bar = el("progress", { "aria-label": "Progress" });
  const text = el("span");
  const stop = button("Stop", () => ask(`/api/v1/jobs/${id}`, "DELETE").catch((error) => toast(error.message, true)), { class: "small" });
  place.replaceChildren(el("span.job", bar, text, stop));
  const gone = () => !text.isConnected;
  const wait = (ms) => new Promise((go) => setTimeout(go, ms));
  try {
    let job = null;
    let outcome = null;
    for (let waited = EACH_MS; ; ) {
      job = await ask(`/api/v1/jobs/${id}`);
      if (job.what === "replay" && job.changed && waited >= OUTCOME_MS) {
        outcome = await ask(`/api/v1/jobs/${id}/outcome`);
        waited = 0;
      }
      bar.max = job.count || 1;
      bar.value = job.what === "replay" && outcome ? outcome.done + outcome.died_again + job.refused : job.taken;
      setText(text, sentence(job, outcome));
      if (job.state !== "running") {
        stop.remove();
        if (job.what !== "replay" || !job.changed) break;
        outcome = await ask(`/api/v1/jobs/${id}/outcome`);
        setText(text, sentence(job, outcome));
        bar.value = outcome.done + outcome.died_again + job.refused;
        if (outcome.complete) break;
        await wait(document.hidden ? 5 * OUTCOME_MS : OUTCOME_MS);
      } else {
        await wait(EACH_MS);
        waited += EACH_MS;
      }
      if (gone()) return;
    }
    const bad = job.state === "failed" || job.verdict === "failed" || Boolean(outcome?.died_again) || job.refused > 0;
    const end = job.verdict === "failed" ? `The first one died again, so nothing else was sent: ${job.error || ""}` :
      (job.state === "ended" ? "" : `${job.state}: `) + sentence(job, outcome) + (job.error ? `: ${job.error}` : "");
    bar.remove();
    setText(text, end);
    text.className = bad ? "bad" : "good";
    say(`${job.what === "replay" ? "Replay" : "Discard"}: ${end}`);
    if (job.state === "failed") toast(end, true);
    ended(job, outcome);
  } catch (error) {
    bar.remove();
    stop.remove();
    setText(text, error.status === 404 ? "The server has forgotten this job." : error.message);
  }
}

// The options of mqdlq that select the same letters as a filter.
export const filterFlags = (filter) =>
  Object.entries(filter).filter(([name]) => name !== "pattern").map(([name, value]) => ` --${name} ${quoted(value)}`).join("");

// Ask, begin and follow a replay or discard. order: {queue, number, body, flags,
// control, place, key, canary, again, ticked}; flags are those of the command;
// ticked: the letters were ticked in a list.
export async function begin(what, { queue, number, body, flags, control, place, key, canary, again, ticked, ended }) {
  const letters = plural(number, "letter");
  const discard = what === "discard";
  const fields = [];
  if (discard && number >= MANY) fields.push(["typed", `Type ${number} to confirm`, { inputmode: "numeric", pattern: String(number), required: true }]);
  if (!discard && number > 1) fields.push(["canary", "Send one first, and the rest only when it is done", { type: "checkbox", checked: canary }],
    ["rate", "Letters a second (empty: no limit)", { type: "number", min: "1" }]);
  const values = await question({
    title: discard ? `Discard ${letters} of ${queue}?` : `Replay ${letters} into ${queue}?`,
    text: (discard ? (number > 1 ? "They are permanently removed." : "It is permanently removed.")
      : number > 1 ? "They are sent to the queue again, oldest first." : "It is sent to the queue again.") +
      (ticked ? " Letters that you did not tick stay, whether they are shown or not." : number > 1 ? " Letters that arrive in the meantime stay." : ""),
    fields, danger: discard, word: discard ? `Discard ${count(number)}` : `Replay ${count(number)}`,
    command: (v) => `mqdlq ${what}${again ? " --again" : ""}${v.canary ? " --canary" : ""}${v.rate ? ` --rate ${v.rate}` : ""} ${quoted(queue)}${flags}`,
  });
  if (!values) return false;
  const note = el("span");
  place.replaceChildren(note);
  return act(control, note, async () => {
    const more = { ...(values.canary ? { canary: true } : {}), ...(values.rate ? { rate: Number(values.rate) } : {}) };
    const { job } = await post(apiOf(queue, "letters", what), { ...body, ...more });
    if (key) remember(key, job);
    follow(place, job, ended);
  });
}
