// lists.js - tables whose rows follow what the server says, with boxes to tick
//
// Used for queues, messages, letters, groups and settings. A column is [head,
// class, make, title]: make(item) returns a node, and the node's update(item),
// if there is one, is called whenever the item is shown again.

import { button, el, keyed, setText, setTime, time } from "./dom.js";
import { count } from "./format.js";
import { watch } from "./live.js";

// Columns whose cell is a text, or a time as "ago" or "age".
export const text = (write, tone) => () => {
  const node = el("span", {});
  node.update = (item) => {
    setText(node, write(item));
    if (tone) node.className = tone(item);
  };
  return node;
};
export const when = (pick, how = "ago") => () => {
  const node = time(null, how);
  node.update = (item) => setTime(node, pick(item));
  return node;
};

// Make a table. The column of class "key" heads its row. Returns {node, body,
// show}; show(items) puts the rows of the items in their order.
export function listTable(label, columns, keyOf, attributes = {}) {
  const body = el("tbody", {});
  const heads = columns.map(([word, cls, , title]) => el("th", { scope: "col", class: cls, title }, word));
  const node = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
    el("table", { "aria-label": label, ...attributes }, el("thead", {}, el("tr", {}, heads)), body));
  const rowMake = (first) => {
    const cells = columns.map(([, , make]) => make(first));
    const row = el("tr", { "data-row": "" }, cells.map((cell, i) => {
      const head = /\bkey\b/.test(columns[i][1]);
      return el(head ? "th" : "td", { class: columns[i][1], scope: head ? "row" : null }, cell);
    }));
    row.update = (item) => cells.forEach((cell) => cell?.update?.(item));
    return row;
  };
  const show = (items) => {
    keyed(body, items, keyOf, rowMake);
    node.hidden = items.length === 0;
  };
  return { node, body, heads, show };
}

// Boxes to tick in the first column of a table, and buttons for what is ticked:
// [word, action(values, event), class] rows. An action resolves to true if it was
// done; then its rows turn grey and lose their ticks, so that the next button
// does not mean them as well. valueOf(item) is null where nothing can be done.
export function ticks(valueOf, name, actions) {
  const boxes = new Set();
  const chosen = () => [...boxes].filter((box) => box.isConnected && box.checked).map((box) => box.value);
  const show = () => {
    const n = chosen().length;
    buttons.forEach((node, i) => {
      setText(node, n ? `${actions[i][0]} ${count(n)} chosen` : `${actions[i][0]} chosen`);
      node.disabled = n === 0;
    });
  };
  const buttons = actions.map(([, action, cls]) => button("", async (event) => {
    const values = chosen();
    if (!(await action(values, event))) return;
    for (const box of boxes) {
      if (!values.includes(box.value)) continue;
      box.checked = false;
      box.closest("tr")?.classList.add("past");
    }
    show();
  }, { class: cls }));
  show();
  const make = (item) => {
    const value = valueOf(item);
    if (value === null) return null;
    const box = el("input", { type: "checkbox", value, autocomplete: "off", "aria-label": `Choose ${name} ${value}`, onchange: show });
    boxes.add(box);
    return el("label", { class: "target" }, box);
  };
  return { column: [el("span", { class: "sr" }, "Choose"), "box", make], buttons, chosen, show };
}

// Load a list now, and again after each change that concerns it, at most every
// eachMs. concerns(changed) is asked with the queues that changed, null for all.
export async function followed(load, eachMs, concerns) {
  let timer = 0;
  let loaded = 0;
  const now = async () => {
    clearTimeout(timer);
    timer = 0;
    loaded = Date.now();
    await load();
  };
  const unwatch = watch((changed) => {
    if (timer || document.hidden || !concerns(changed)) return;
    timer = setTimeout(() => now().catch(() => {}), Math.max(300, loaded + eachMs - Date.now()));
  });
  await now();
  return {
    now: () => now().catch(() => {}),
    leave: () => {
      unwatch();
      clearTimeout(timer);
    },
  };
}

