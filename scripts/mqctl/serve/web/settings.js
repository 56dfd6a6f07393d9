// settings.js - the tab with the settings of a worker
//
// Settings that can change while the worker is running have a field in their row.

import { apiOf, ask } from "./api.js";
import { act, commandIcon } from "./dialog.js";
import { el, empty, time } from "./dom.js";
import { quoted } from "./format.js";
import { listTable, text } from "./lists.js";
import { state } from "./live.js";

const value = (one) => (one === null || one === undefined ? "–" : String(one));

// Show the value, in a field if it can change; changed() is called after a change.
const nowCell = (queue, running, changed) => (setting) => {
  if (!setting.live || !running || !state.about.write) return el("span", value(setting.now));
  const { name } = setting;
  const place = el("span.answer");
  const input = el("input", { name, value: setting.now ?? "", "aria-label": `New value of ${name}`, placeholder: setting.value, autocomplete: "off" });
  const submit = el("button.small", { type: "submit" }, "Set");
  const set = (event) => {
    event.preventDefault();
    act(submit, place, async () => {
      const wanted = input.value.trim();
      const number = typeof setting.now === "number" && /^\d+$/.test(wanted);
      const [one] = (await ask(apiOf(queue, "settings"), "PATCH", { [name]: number ? Number(wanted) : wanted })).settings;
      input.value = one.new;
      changed();
      return `${one.old} -> ${one.new}`;
    });
  };
  return el("div", el("form.inline", { onsubmit: set }, input, submit, commandIcon(() => `mqctl set ${quoted(queue)} ${quoted(`${name}=${input.value}`)}`, `Set ${name}`)), place);
};

export async function settingsTab(queue) {
  const load = () => ask(apiOf(queue, "settings"));
  const { settings, running, keep } = await load();
  const note = el("p.keep");
  const keepShow = (flags) => note.replaceChildren(...(flags ? ["A change lasts until the worker restarts. To keep it, start the worker with ", el("code", flags)] : []));
  const changed = () => load().then((answer) => keepShow(answer.keep)).catch(() => {});
  keepShow(keep);
  const sections = Object.entries(Object.groupBy(settings, (one) => one.under)).map(([under, rows]) => {
    const list = listTable(under, [
      ["Setting", "key mono", text((one) => one.name)],
      ["Now", "now", nowCell(queue, running, changed)],
      ["At start", "wide-only value", (one) => el("span", value(one.started), one.set_at && el("small", ", changed ", time(one.set_at)))],
      ["Default", "wide-only value", text((one) => value(one.default))],
      ["What it does", "help", text((one) => one.help)],
    ], (one) => one.name, { class: "settings" });
    list.show(rows);
    return el("section", el("h2", under), list.node);
  });
  return { node: el("div", running ? null : empty("No worker is running, so no setting has a value now."), note, sections) };
}
