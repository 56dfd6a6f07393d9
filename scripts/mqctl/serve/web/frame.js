// frame.js - the header of every page: totals, whether the page is live, shortcuts
//
// app.js starts it once. It also writes the tab's title and icon, which carry
// the worst state of all queues.

import { helpShow } from "./dialog.js";
import { $, $$, el, say, setText } from "./dom.js";
import { age, count, duration, rate } from "./format.js";
import { state, watch } from "./live.js";
import { signOut } from "./api.js";

// ---- totals ----

const TOTALS = [
  ["done", "done", (t) => `${rate(t.done_s)}/s`, "messages done a second"],
  ["failed", "failed", (t) => `${rate(t.failed_s)}/s`, "deliveries failed a second"],
  ["waiting", "waiting", (t) => count(t.waiting), "messages waiting in queues, spools and stores"],
  ["oldest", "oldest", (t) => age(t.oldest_at), "how long the oldest message that could run has waited"],
  ["running", "busy", (t) => `${count(t.running)} of ${count(t.capacity)}`, "handlers busy"],
];

function totalsBuild() {
  $("#totals").append(...TOTALS.map(([sort, word, write, title]) => {
    const value = el("b", "–");
    const node = el("a", { href: `/?sort=${sort}`, title }, value, ` ${word}`);
    node.update = (totals) => {
      setText(value, write(totals));
      node.classList.toggle("bad", sort === "failed" && totals.failed_s > 0);
    };
    return node;
  }));
}

function totalsShow() {
  $("#totals").style.visibility = state.about ? "" : "hidden"; // nothing is known before the sign-in
  for (const node of $("#totals").children) node.update(state.totals);
  for (const [id, n] of [["dead", state.totals.dead], ["groups", state.totals.blocked]]) {
    const number = $(`#nav-${id} b`);
    setText(number, n ? count(n) : "");
    number.className = n ? "bad" : "";
  }
}

// ---- live or not ----

const LINKS = {
  connecting: ["idle", () => "connecting"],
  live: ["fine", () => "live"],
  polling: ["fine", () => "every 5 s"],
  lost: ["bad", () => `no answer for ${duration(Math.floor((Date.now() - state.since) / 1000) * 1000)}, trying again`],
  "signed out": ["bad", () => "signed out"],
};
let said = "connecting";

function linkShow() {
  const [severity, write] = LINKS[state.link];
  const node = $("#link");
  node.className = `state ${severity}`;
  setText(node, write() + (state.about && !state.about.write && severity === "fine" ? ", read-only" : ""));
  if (said === state.link || !state.about) return;
  if (state.link === "lost") say("The server does not answer; this page may be out of date.");
  else if (state.link === "signed out") say("You are signed out; this page may be out of date.");
  else if (said === "lost") say("The server answers again.");
  else if (said === "signed out") say("You are signed in again.");
  said = state.link;
}

// ---- the tab ----

const COLOURS = { bad: "#d1242f", warn: "#bf6a02", fine: "#1a7f37", idle: "#6e7781" };
let name = "Queues";
let iconColour = "";

// The worst state in a few words; empty if nothing is wrong.
function worst() {
  const { totals } = state;
  if (totals.dead) return `${count(totals.dead)} dead`;
  if (totals.severity !== "bad" && totals.severity !== "warn") return "";
  const row = [...state.rows.values()].find((one) => one.severity === totals.severity);
  return row ? `${row.queue} ${row.state}` : "";
}

function tabShow() {
  const trouble = worst();
  const host = state.about ? ` - ${state.about.host}` : "";
  const title = `${trouble ? `● ${trouble} - ` : ""}${name}${host}`;
  if (document.title !== title) document.title = title;
  const colour = COLOURS[state.link === "live" || state.link === "polling" ? (state.totals.dead ? "bad" : state.totals.severity) : "idle"] || COLOURS.idle;
  if (colour === iconColour) return;
  iconColour = colour;
  $("#icon").href = "data:image/svg+xml," + encodeURIComponent(
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect x="1" y="2" width="14" height="12" rx="2" fill="#24292f"/><circle cx="8" cy="8" r="4" fill="${colour}"/></svg>`);
}

export function nameSet(text) {
  name = text;
  tabShow();
}

function show() {
  totalsShow();
  linkShow();
  tabShow();
  if (!state.about) return;
  setText($("#host"), state.about.host);
  $("#host").title = `${state.about.state_dirs.join(", ")}, mqworker ${state.about.version}`;
  $("#out").hidden = state.link === "signed out";
}

// ---- keys ----

// Move to the next row, or the previous one: to its link, which Enter opens.
function rowMove(step) {
  const rows = $$("main [data-row]").filter((row) => row.checkVisibility());
  if (!rows.length) return;
  const at = rows.indexOf(document.activeElement.closest("[data-row]"));
  const row = rows[Math.min(Math.max(at + step, 0), rows.length - 1)];
  (row.querySelector("a") || row.querySelector("button, input") || row).focus();
  row.scrollIntoView({ block: "nearest" });
}

function keysListen(open) {
  let before = "";
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || event.target.closest("input, select, textarea, dialog, [popover]")) return;
    const keys = before + event.key;
    before = event.key === "g" ? "g " : "";
    const actions = {
      "/": () => $("#find-text").focus(),
      "g q": () => open("/"),
      "g d": () => open("/dead"),
      "g g": () => open("/groups"),
      j: () => rowMove(1),
      k: () => rowMove(-1),
      x: () => document.activeElement.closest("[data-row]")?.querySelector("input[type=checkbox]")?.click(),
      "?": helpShow,
    };
    if (!actions[keys]) return;
    before = "";
    event.preventDefault();
    actions[keys]();
  });
}

// Begin. open(address) shows a page.
export function frameStart(open) {
  totalsBuild();
  watch(show);
  setInterval(show, 1000); // ages and seconds without an answer
  keysListen(open);
  $("#find").addEventListener("submit", (event) => {
    event.preventDefault();
    const text = $("#find-text").value.trim();
    if (text) open(`/find?q=${encodeURIComponent(text)}`);
  });
  $("#theme").addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.scheme ? root.dataset.scheme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.scheme = dark ? "light" : "dark";
    localStorage.setItem("mqctl-scheme", root.dataset.scheme);
  });
  $("#help").addEventListener("click", helpShow);
  $("#out").addEventListener("click", async () => {
    await signOut().catch(() => {});
    location.assign("/");
  });
}
