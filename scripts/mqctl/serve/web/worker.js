// worker.js - what a person can do to the worker of a queue
//
// The menu of a row and the buttons of a queue's page offer the same actions.
// Each answer stands in the note beside the control that was used.

import { apiOf, ask, pageOf, post } from "./api.js";
import { act, question } from "./dialog.js";
import { count, quoted } from "./format.js";
import { state } from "./live.js";
import { open } from "./router.js";

export const isPaused = (row) => Boolean(row.paused_until) || /paused/.test(row.state);

// Show an answer in a note for ten seconds; then the row may show its error there.
async function answer(control, note, request) {
  note.dataset.answer = "1";
  await act(control, note, request);
  setTimeout(() => {
    delete note.dataset.answer;
    note.classList.remove("bad");
    note.textContent = "";
  }, 10000);
}

export const pause = (queue, control, note, how = {}) =>
  answer(control, note, async () => {
    await post(apiOf(queue, "pause"), how);
    return how.for ? `Paused for ${how.for}.` : how.until ? "Paused until then." : "Paused until you resume it.";
  });

export const resume = (queue, control, note) =>
  answer(control, note, async () => {
    await post(apiOf(queue, "resume"));
    return "Resumed.";
  });

// Pause or resume several queues, one after the other. Resolves to true if it was
// done to all of them.
export const steerAll = (verb, queues, control, place) =>
  act(control, place, async () => {
    const refused = [];
    for (const queue of queues) await post(apiOf(queue, verb)).catch((error) => refused.push(`${queue}: ${error.message}`));
    const done = `${count(queues.length - refused.length)} of ${count(queues.length)} ${verb}d.`;
    if (refused.length) throw new Error([done, ...refused].join(" "));
    return done;
  });

export async function pauseAsk(queue, control, note) {
  const values = await question({
    title: `Pause ${queue}`, word: "Pause",
    text: "The worker takes no messages until then. Handlers that are running finish.",
    fields: [["for", "For", { placeholder: "10m, 2h, 1d", value: "10m" }], ["until", "Or until", { type: "datetime-local" }]],
    command: (v) => `mqctl pause ${quoted(queue)} ${v.until ? `${Math.max(Math.ceil((new Date(v.until) - Date.now()) / 60000), 1)}m` : v.for}`.trim(),
  });
  if (values) await pause(queue, control, note, values.until ? { until: new Date(values.until).toISOString() } : values.for ? { for: values.for } : {});
}

export async function concurrencyAsk(row, control, note) {
  const { queue } = row;
  const values = await question({
    title: `Concurrency of ${queue}`, word: "Set",
    text: "How many handlers may run at the same time. It lasts until the worker restarts.",
    fields: [["concurrency", "Handlers", { type: "number", min: "1", required: true, value: row.capacity }]],
    command: (v) => `mqctl set ${quoted(queue)} max-concurrency=${v.concurrency}`,
  });
  if (values) await answer(control, note, async () => {
    const { settings } = await ask(apiOf(queue, "settings"), "PATCH", { "max-concurrency": Number(values.concurrency) });
    return `max-concurrency: ${settings[0].old} -> ${settings[0].new}`;
  });
}

export async function drainAsk(queue, control, note) {
  const values = await question({
    title: `Drain ${queue}?`, word: "Drain", danger: true,
    text: "The worker finishes the running messages and exits. Waiting messages stay in the queue.",
    command: () => `mqctl drain ${quoted(queue)}`,
  });
  if (values) await answer(control, note, async () => {
    await post(apiOf(queue, "drain"));
    return "Draining.";
  });
}

// The rows of the menu of a queue.
export function workerMenu(row, control, note) {
  const { queue } = row;
  const items = [];
  if (state.about.write && row.capacity) {
    if (isPaused(row)) items.push(["Resume", () => resume(queue, control, note)]);
    else items.push(["Pause", () => pause(queue, control, note)], ["Pause for…", () => pauseAsk(queue, control, note)]);
    items.push(["Set concurrency…", () => concurrencyAsk(row, control, note)], ["Drain…", () => drainAsk(queue, control, note), "danger"]);
  }
  return [...items, ["Open", () => open(pageOf(queue))], ["Settings", () => open(pageOf(queue, "settings"))]];
}
