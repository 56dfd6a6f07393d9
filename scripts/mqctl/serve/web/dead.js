// dead.js - dead letters grouped by their error, of one queue or all
//
// The page /dead and the tab of a queue show the same list. A group is replayed
// or discarded as a whole, up to the newest letter that was on the page; it
// opens to its letters, of which some can be chosen.

import { apiOf, ask, pageOf, query } from "./api.js";
import { histogram } from "./charts.js";
import { button, el, empty, keyed, setText, setTime, time } from "./dom.js";
import { count, globOf, plural, quoted } from "./format.js";
import { begin, filterFlags, follow, jobOf } from "./jobs.js";
import { followed, listTable, text, ticks, when } from "./lists.js";
import { state } from "./live.js";
import { open } from "./router.js";

const FILTERS = ["match", "error", "reason", "group", "since", "until"];
const REASONS = ["exhausted", "rejected", "expired", "crashed", "bad-header", "group-closed"];
const REPLAYS = { sent: "replayed, on its way", unsure: "replayed, maybe not sent", lost: "replayed, lost in a restart" };
const EACH_MS = 5000; // the least time between two looks at the letters
const PAGE = 20;

const keyOf = (group) => `${group.queue} ${group.pattern}`;
const filterOf = (params) => Object.fromEntries(FILTERS.filter((name) => params.get(name)).map((name) => [name, params.get(name)]));

// ---- the letters of a group ----

// The list below an open group, with buttons for the letters that are ticked.
function lettersOf(group, filter) {
  const { queue, pattern } = group;
  const place = el("div.answer");
  const steer = (what) => (rows, event) =>
    begin(what, { queue, number: rows.length, body: { rows }, flags: ` ${rows.join(" ")}`, control: event.target, place, ticked: true });
  const boxes = state.about.write ? ticks((letter) => String(letter.row), "letter", [["Replay", steer("replay"), "small"], ["Discard…", steer("discard"), "small danger"]]) : null;
  const list = listTable(`Letters with the error ${pattern}`, [
    ...(boxes ? [boxes.column] : []),
    ["Letter", "key", (letter) => el("a", { href: pageOf(queue, "dead", letter.row) }, letter.row)],
    ["Died", "", when((letter) => letter.died_at)],
    ["Attempts", "n", text((letter) => letter.attempts)],
    ["Group", "wide-only", text((letter) => letter.group || "")],
    ["Error", "text", text((letter) => (letter.replay ? `${REPLAYS[letter.replay]}: ` : "") + (letter.error_line || letter.error || letter.reason))],
    ["Body", "text wide-only mono", text((letter) => letter.preview || "")],
  ], (letter) => letter.row);
  const letters = [];
  let after = null;
  const more = button("More letters", () => load());
  async function load() {
    const answer = await ask(`${apiOf(queue, "letters")}${query({ ...filter, pattern, limit: PAGE, after })}`);
    letters.push(...answer.letters);
    after = answer.next;
    list.show(letters);
    boxes?.show();
    more.hidden = !after;
  }
  load().catch((error) => setText(place, error.message));
  return el("div.letters", list.node, el("div.buttons", more, boxes?.buttons, place));
}

// ---- groups ----

function groupMake(filter, cuts, single) {
  return (first) => {
    let group = first;
    const number = el("b.many");
    const place = el("div.answer");
    const ages = [time(null), time(null)];
    const chart = el("span.wide-only");
    const fold = button(el("span.pattern", first.pattern), () => {
      const shut = fold.getAttribute("aria-expanded") === "false";
      fold.setAttribute("aria-expanded", String(shut));
      if (shut) node.append(lettersOf(group, filter));
      else node.querySelector(".letters").remove();
    }, { class: "fold", "aria-expanded": "false", title: first.sample });
    const order = (what, canary) => (event) => {
      const cut = cuts().find((one) => one.queue === group.queue);
      const meant = { ...filter, ...(cut ? { since: cut.since } : {}), pattern: group.pattern };
      begin(what, {
        queue: group.queue, number: group.count, canary, control: event.currentTarget, place, key: keyOf(group),
        body: { filter: meant, up_to: group.up_to, expect_count: group.count },
        flags: `${filterFlags(meant)} --error ${quoted(globOf(group.pattern))}`,
      });
    };
    const all = button("", order("replay", false), { class: "primary" });
    const one = button("Replay one first", order("replay", true));
    const discard = button("Discard…", order("discard"), { class: "danger" });
    const node = el("li.group", { "data-row": "" },
      el("div.outline", number, el("div.about", fold, el("div", { class: "secondary" },
        single ? null : [el("a", { href: pageOf(first.queue, "dead") }, first.queue), " · "], "first ", ages[0], ", last ", ages[1])), chart,
      state.about.write ? el("div.buttons", all, one, discard) : null), place);
    node.update = (now) => {
      const fresh = group.count !== now.count || !chart.firstChild;
      group = now;
      setText(number, count(now.count));
      setText(all, `Replay ${count(now.count)}`);
      one.classList.toggle("unneeded", now.count < 2); // hidden, but in place, so that all buttons are in line
      setTime(ages[0], now.first);
      setTime(ages[1], now.last);
      if (fresh) chart.replaceChildren(histogram(now.histogram, `when they died: ${plural(now.count, "letter")}`));
    };
    // The letters have left the list; what became of them stays until the page is left.
    node.settle = () => {
      setText(number, "0");
      for (const control of [all, one, discard]) control.hidden = true;
      node.classList.add("past");
    };
    const job = jobOf(keyOf(first));
    if (job) queueMicrotask(() => !place.firstChild && follow(place, job));
    return node;
  };
}

// The filter as fields; the address holds it.
function filterForm(filter, go) {
  const match = el("input", { type: "search", name: "match", value: filter.match || "", "aria-label": "Text in error, stderr or body", placeholder: "Text in letters" });
  const reason = el("select", { name: "reason", "aria-label": "Reason" }, el("option", { value: "" }, "every reason"),
    REASONS.map((word) => el("option", { value: word, selected: filter.reason === word }, word)));
  const since = el("input", { name: "since", value: filter.since || "", size: "8", "aria-label": "Died since, such as 2h or a time", placeholder: "since 2h" });
  const submit = (event) => {
    event.preventDefault();
    go({ ...filter, match: match.value.trim(), reason: reason.value, since: since.value.trim() });
  };
  const form = el("form.filter", { role: "search", "aria-label": "Filter", onsubmit: submit }, match, reason, since, el("button", { type: "submit" }, "Filter"),
    Object.keys(filter).length ? button("Show all", () => go({}), { class: "plain" }) : null);
  reason.addEventListener("change", submit);
  return form;
}

// The list of groups of one queue, or of all if queue is null.
export async function deadList(queue, params, go) {
  const filter = filterOf(params);
  const list = el("ul.groups", { "aria-label": "Dead letters by error" });
  const notes = el("div");
  const none = el("div");
  let cuts = [];
  const make = groupMake(filter, () => cuts, queue !== null);
  const dead = () => (queue ? state.rows.get(queue)?.dead : state.totals.dead);
  let before = null;
  const live = await followed(async () => {
    before = dead();
    const answer = await ask(`/api/v1/letters/groups${query({ ...filter, queue })}`);
    cuts = answer.cut;
    // A group whose replay this page began stays with its outcome.
    const now = new Set(answer.groups.map(keyOf));
    const kept = [...list.children].filter((node) => !now.has(node.dataset.key) && jobOf(node.dataset.key));
    keyed(list, answer.groups, keyOf, make);
    for (const node of kept) {
      node.settle();
      list.append(node);
    }
    notes.replaceChildren(...cuts.map((cut) => el("p.secondary", `${cut.queue}: only the newest ${count(cut.looked_at)} letters are grouped here.`)),
      ...answer.troubles.map((trouble) => el("p.bad", trouble)));
    none.replaceChildren(list.childElementCount ? "" : empty(Object.keys(filter).length ? "No dead letter matches the filter." :
      "There are no dead letters. A message becomes one when its attempts are used up or its handler rejects it."));
  }, EACH_MS, () => dead() !== before);
  return { node: el("div", { id: "letters" }, filterForm(filter, go), notes, list, none), leave: live.leave };
}

export async function deadView(main, { params }) {
  const list = await deadList(null, params, (filter) => open(`/dead${query(filter)}`));
  main.append(el("h1", "Dead letters"), list.node);
  return { name: "Dead letters", leave: list.leave };
}

