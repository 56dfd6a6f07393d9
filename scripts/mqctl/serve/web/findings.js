// findings.js - what mqctl doctor warns of, one line each, worst first
//
// Used by the page of all queues and by that of one. A finding is known by its
// id, so that a number that changes in its text is not news.

import { ask, pageOf, query } from "./api.js";
import { commandIcon } from "./dialog.js";
import { el, keyed, say, setText, button } from "./dom.js";
import { count } from "./format.js";
import { state, watch } from "./live.js";

const MOST = matchMedia("(max-width: 720px)").matches ? 1 : 5;
const LINE_PX = 33;
const EACH_MS = 60000;
const SOON_MS = 1500; // after a change, so that one look serves several changes

// The page on which a finding is put right.
const addressOf = (check, queue) =>
  pageOf(queue, ...(/dead/.test(check) ? ["dead"] : /group/.test(check) ? ["groups"] : /setting/.test(check) ? ["settings"] : []));

function findingMake(first) {
  const text = el("span", { class: "what" });
  const links = el("span", { class: "links" });
  const node = el("li", { "data-row": "" }, el("span", { class: `state ${first.level}` }, first.level === "bad" ? "broken" : "warning"), text, links);
  let now = first;
  const fix = () => now.fix || now.queues.map((one) => one.fix).filter(Boolean).join("\n") || "mqctl doctor";
  node.append(commandIcon(fix, "Fix this finding"));
  node.update = (finding) => {
    now = finding;
    node.firstChild.className = `state ${finding.level}`;
    setText(text, finding.text);
    text.title = finding.text;
    const named = finding.queues.filter((one) => one.queue);
    keyed(links, named.slice(0, 4), (one) => one.id, (one) => {
      const link = el("a", { href: addressOf(finding.check, one.queue) });
      link.update = (newest) => setText(link, named.length === 1 ? "Open" : newest.count ? `${newest.queue} ${count(newest.count)}` : newest.queue);
      return link;
    });
  };
  return node;
}

// What makes another look worth it: a row whose trouble is another than before.
const troubleOf = (row) => [row.state, row.severity, row.dead > 0, row.blocked > 0, row.depth === row.depth_max].join();

// How many findings to keep room for when there was no look yet.
function expected(queue) {
  const rows = [...state.rows.values()].filter((row) => !queue || row.queue === queue);
  const kinds = rows.flatMap((row) => [row.dead > 0 && "dead", row.blocked > 0 && "blocked", row.depth_max && row.depth === row.depth_max && "full", /bad|warn/.test(row.severity) && row.state]);
  return Math.min(new Set(kinds.filter(Boolean)).size, MOST);
}

// Show the findings, of one queue or all. Returns {node, first, leave}; first
// resolves when they are there.
export function findings(queue = null) {
  const list = el("ul", { class: "findings", "aria-label": "Findings" });
  const node = el("section", { id: "findings", "aria-label": "Findings" }, list);
  // Keep the room that the findings took last time, so that they do not push the page down.
  const height = `mqctl-findings ${queue || ""}`;
  list.style.minHeight = sessionStorage.getItem(height) || `${expected(queue) * LINE_PX}px`;
  let all = null;
  let folded = true;
  let timer = 0;
  const more = button("", () => {
    folded = !folded;
    show();
  }, { class: "plain" });

  function show() {
    keyed(list, folded ? all.slice(0, MOST) : all, (finding) => finding.id, findingMake);
    if (all.length > MOST) node.append(more);
    else more.remove();
    list.style.minHeight = "";
    sessionStorage.setItem(height, `${list.childElementCount * LINE_PX}px`);
    setText(more, folded ? `and ${all.length - MOST} more` : "fewer");
  }

  async function look() {
    clearTimeout(timer);
    try {
      const had = all && new Set(all.map((finding) => finding.id));
      all = (await ask(`/api/v1/findings${query({ queue })}`)).findings;
      const fresh = had && all.filter((finding) => !had.has(finding.id));
      if (fresh?.length) say(`New: ${fresh[0].text}`);
      show();
    } catch {
      // The header says if the server does not answer; the findings stay.
    }
    timer = setTimeout(look, document.hidden ? 5 * EACH_MS : EACH_MS);
  }

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
  };
  return { node, first: look(), leave };
}
