// findings.js - what mqctl doctor warns of, one line each, worst first
//
// Used by the page of all queues and by that of one. A finding is new if its id is
// new; a changed number in its text is not announced. While a person uses what is
// below the list, it does not grow: if all its lines are in use, a new finding is
// behind "and 1 more". It shrinks only while the page is hidden.

import { ask, pageOf, query } from "./api.js";
import { commandIcon } from "./dialog.js";
import { $, button, el, keyed, say, setText } from "./dom.js";
import { count } from "./format.js";
import { state, watch } from "./live.js";
import { resume } from "./worker.js";

const [LEAST, MOST] = matchMedia("(max-width: 720px)").matches ? [1, 1] : [3, 5]; // lines
const NOTHING = { id: "nothing" }; // shown if there are no findings
const EACH_MS = 60000;
const SOON_MS = 1500; // after a change, so that several changes cause one request
const UNUSED_MS = 10000; // without input for so long, nobody uses the page

let touched = 0; // time of the last input
for (const name of ["pointermove", "pointerdown", "keydown", "scroll"])
  addEventListener(name, () => { touched = Date.now(); }, { capture: true, passive: true });

// Return true if a person uses what is below the findings.
const inUse = () => Date.now() - touched < UNUSED_MS && $("#findings ~ :is(:hover, :focus-within)") !== null;

// The address of the page on which a person can fix a finding of a queue.
const addressOf = (check, { queue, fix }) =>
  pageOf(queue, ...(/dead/.test(check) ? ["dead"] : /group/.test(check) ? ["groups"] : /setting/.test(check) || /^mqctl set /.test(fix) ? ["settings"] : []));

// The row of a finding, on the page of one queue or of all (null).
const findingMake = (page) => (first) => {
  const text = el("span.what");
  const links = el("span.links");
  const node = el("li", { "data-row": "" }, el("span", { class: `state ${first.level}` }, first.level === "bad" ? "broken" : "warning"), text, links);
  let now = first;
  const fix = () => now.fix || now.queues.map((one) => one.fix).filter(Boolean).join("\n") || "mqctl doctor";
  const note = el("span.answer");
  const resumed = button("Resume", () => resume(now.queues[0].queue, resumed, note), { class: "small" });
  node.append(note, commandIcon(fix, "Fix this finding"));
  node.update = (finding) => {
    now = finding;
    node.firstChild.className = `state ${finding.level}`;
    setText(text, page ? finding.queues[0].text : finding.text);
    text.title = text.textContent;
    const named = finding.queues.filter((one) => one.queue && addressOf(finding.check, one) !== (page && pageOf(page)));
    if (state.about.write && /^mqctl resume /.test(finding.fix)) links.after(resumed);
    else resumed.remove();
    keyed(links, named.slice(0, 4), (one) => one.id, (one) => {
      const link = el("a", { href: addressOf(finding.check, one) });
      link.update = (newest) => setText(link, named.length === 1 ? "Open" : newest.count ? `${newest.queue} ${count(newest.count)}` : newest.queue);
      return link;
    });
  };
  return node;
};

// The parts of a row that findings depend on. When they change, findings are loaded
// again.
const troubleOf = (row) => [row.state, row.severity, row.dead > 0, row.blocked > 0, row.depth === row.depth_max].join();

// The number of lines to reserve before the first request.
function expected(queue) {
  const rows = [...state.rows.values()].filter((row) => !queue || row.queue === queue);
  const kinds = rows.flatMap((row) => [row.dead > 0 && "dead", row.blocked > 0 && "blocked", row.depth_max && row.depth === row.depth_max && "full", /bad|warn/.test(row.severity) && row.state]);
  return new Set(kinds.filter(Boolean)).size;
}

const limited = (lines) => Math.min(Math.max(lines, LEAST), MOST);

// Show the findings of one queue, or of all. Returns {node, ready, leave}; ready
// resolves when the number of lines is known.
export function findings(queue = null) {
  const list = el("ul.findings", { "aria-label": "Findings" });
  const node = el("section", { id: "findings", "aria-label": "Findings" }, list);
  const place = `mqctl-findings ${queue || ""}`;
  const last = Number(sessionStorage.getItem(place)); // lines, when this page was left
  let room = limited(last || expected(queue)); // lines before a click on "and N more"
  let lines = room; // lines now
  let all = null;
  let timer = 0;
  let growing = 0;
  const make = findingMake(queue);
  const more = button("", () => {
    lines = all.length > lines ? all.length : room;
    show(true);
  }, { class: "plain" });
  const keep = () => list.style.setProperty("--lines", lines);

  function show(clicked = false) {
    clearTimeout(growing);
    const needed = Math.max(limited(all.length), room);
    if (needed > room && inUse()) growing = setTimeout(show, 1000);
    else [room, lines] = [needed, Math.max(lines, needed)];
    keyed(list, all.length ? all.slice(0, lines) : [NOTHING], (finding) => finding.id,
      (finding) => (finding === NOTHING ? el("li.zero", "Nothing is wrong.") : make(finding)));
    keep();
    sessionStorage.setItem(place, room);
    setText(more, all.length > lines ? `and ${all.length - lines} more` : "fewer");
    const end = list.lastElementChild;
    if (all.length <= room) more.remove();
    else if (more.parentNode !== end) {
      $(".icon", end).before(more);
      if (clicked) more.focus();
    }
  }

  async function look() {
    clearTimeout(timer);
    try {
      const had = all && new Set(all.map((finding) => finding.id));
      const found = (await ask(`/api/v1/findings${query({ queue })}`)).findings;
      // Lines that are no longer needed go only while the page is hidden.
      if (!all || document.hidden) room = lines = limited(found.length);
      all = found;
      const fresh = had && all.filter((finding) => !had.has(finding.id));
      if (fresh?.length) say(`New: ${fresh[0].text}`);
      show();
    } catch {
      // The header shows that the server does not answer; the findings stay.
    }
    timer = setTimeout(look, document.hidden ? 5 * EACH_MS : EACH_MS);
  }

  keep();
  let troubles = "";
  const unwatch = watch(() => {
    const now = [...state.rows.values()].filter((row) => !queue || row.queue === queue).map((row) => row.queue + troubleOf(row)).join("\n");
    if (now === troubles) return;
    troubles = now;
    clearTimeout(timer);
    timer = setTimeout(look, SOON_MS);
  });
  const leave = () => {
    unwatch();
    clearTimeout(timer);
    clearTimeout(growing);
  };
  // The findings are at the top and must not push the page down under a pointer, so
  // the page waits up to 100 ms for them if the number of lines is not known.
  const loaded = look();
  return { node, ready: last ? null : Promise.race([loaded, new Promise((go) => setTimeout(go, 100))]), leave };
}
