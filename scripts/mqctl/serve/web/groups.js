// groups.js - ordered groups: the tab of a queue, and the page of all that are blocked
//
// A held group waits because its first message died; release lets it continue.

import { apiOf, pageOf, pagesAsk, post } from "./api.js";
import { act, commandIcon, question } from "./dialog.js";
import { button, el, empty, stateMark, time, updated } from "./dom.js";
import { count, quoted } from "./format.js";
import { followed, listTable, text, when } from "./lists.js";
import { state } from "./live.js";

const SEVERITIES = { running: "fine", ready: "idle", blocked: "warn", held: "bad", closing: "warn" };
const EACH_MS = 2000;

const command = (g, verb) => `mqctl group ${g.group?.startsWith("-") ? "-- " : ""}${quoted(g.queue)} ${quoted(g.group || "")} ${verb}`;

// The state of a group and what it waits for.
function stateCell() {
  const mark = stateMark();
  const why = el("span");
  return updated(el("span", mark, " ", why), (g) => {
    mark.update(g.state + (g.closing && g.state !== "closing" ? ", closing" : ""), SEVERITIES[g.state]);
    why.replaceChildren(...(g.letter ? ["by ", el("a", { href: pageOf(g.queue, "dead", g.letter) }, `letter ${g.letter}`)] :
      g.state === "blocked" && g.due_at ? ["retry ", time(g.due_at)] : []));
  });
}

// The buttons of a group; only those that can change something now are shown.
const actionsCell = (reload) => (first) => {
  let g = first;
  const place = el("span.answer");
  const order = (word, verb, cls, done) => button(word, async (event) => {
    const control = event.currentTarget;
    if (verb === "close" && !(await question({
      title: `Close the group ${g.group}?`, text: "Until its messages are done, new messages of the group become dead letters.",
      word: "Close", danger: true, command: () => command(g, verb),
    }))) return;
    await act(control, place, async () => {
      await post(apiOf(g.queue, "groups", verb), { group: g.group });
      return done;
    });
    reload();
  }, { class: `small ${cls}` });
  const release = order("Release", "release", "primary", "Released; its letter stays.");
  const close = order("Close…", "close", "", "Closed.");
  const again = order("Open", "open", "", "Open.");
  const icon = commandIcon(() => command(g, g.state === "held" ? "release" : g.closing ? "open" : "close"), `Change the group ${first.group}`);
  return updated(el("span.buttons", release, close, again, icon, place), (now) => {
    g = now;
    release.hidden = g.state !== "held";
    close.hidden = Boolean(g.closing);
    again.hidden = !g.closing;
  });
};

// The groups in some states of the queues that queues() returns.
async function groupList(queues, single, states, none) {
  let pages = 1;
  const more = button("More groups", () => {
    pages++;
    live.now();
  });
  const list = listTable("Ordered groups", [
    ["Group", "key text", text((g) => g.group || "(no name)")],
    ...(single ? [] : [["Queue", "", (g) => el("a", { href: pageOf(g.queue, "groups") }, g.queue)]]),
    ["State", "", stateCell],
    ["Waiting", "n", text((g) => count(g.waiting))],
    ["Oldest", "n wide-only", when((g) => g.received_at, "age")],
    ...(state.about.write ? [["Actions", "", actionsCell(() => live.now())]] : []),
  ], (g) => `${g.queue} ${g.group || g.group_base64}`);
  const nothing = el("div");
  const live = await followed(async () => {
    const all = [];
    more.hidden = true;
    for (const queue of queues()) {
      const found = await pagesAsk(pages, apiOf(queue, "groups"), { state: states });
      all.push(...found.flatMap((page) => page.groups));
      if (found.at(-1).next) more.hidden = false;
    }
    list.show(all);
    nothing.replaceChildren(all.length ? "" : empty(none));
  }, EACH_MS, (changed) => !changed || queues().some((queue) => changed.has(queue)));
  return { node: el("div", { id: "groups" }, list.node, nothing, more), leave: live.leave };
}

export const groupsTab = (queue) =>
  groupList(() => [queue], true, "", "No group has messages. Messages with the same group run one at a time, in order: mqsend --group KEY.");

export async function groupsView(main) {
  const blocked = () => [...state.rows.values()].filter((row) => row.blocked).map((row) => row.queue);
  const list = await groupList(blocked, false, "held,blocked", "No group is blocked. The groups that are running are on the page of their queue.");
  main.append(el("h1", "Blocked groups"), el("p.secondary", "A group is held because its first message died, or waits for the retry of that message."), list.node);
  return { name: "Groups", leave: list.leave };
}
