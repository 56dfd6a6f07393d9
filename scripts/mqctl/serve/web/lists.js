// lists.js - tables whose rows follow what the server says, with boxes to tick
//
// Used for queues, messages, letters, groups and settings. A column is [head,
// class, make, title]: make(item) returns a node, and the node's update(item),
// if there is one, is called whenever the item is shown again.

import { button, el, keyed, setAttribute, setText, setTime, time } from "./dom.js";
import { count } from "./format.js";
import { watch } from "./live.js";

// Columns whose cell is a text, or a time as "ago" or "age".
export const text = (write, tone) => () => {
  const node = el("span");
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
// heads, show}; show(items) makes or updates a row for each item, in their order.
export function listTable(label, columns, keyOf, attributes = {}) {
  const body = el("tbody");
  const heads = columns.map(([word, cls, , title]) => el("th", { scope: "col", class: cls, title }, word));
  const node = el("div.scroll", { tabindex: "0", role: "region", "aria-label": label },
    el("table", { "aria-label": label, ...attributes }, el("thead", el("tr", heads)), body));
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

// Boxes to tick in the first column of a table, one in its head for all of them, and
// buttons for what is ticked: [word, action(values, event), class] rows. An action
// resolves to true if it was done. Then its rows lose their ticks, so that the next
// action leaves them out; if `leaving`, they turn grey, too. valueOf(item) is null
// for a row without a box. A button is never disabled, because it would lose the
// focus.
export function ticks(valueOf, name, actions, leaving = true) {
  const boxes = new Set();
  const shown = () => [...boxes].filter((box) => box.isConnected);
  const chosen = () => shown().filter((box) => box.checked).map((box) => box.value);
  const show = () => {
    const n = chosen().length;
    all.checked = n > 0 && n === shown().length;
    all.indeterminate = n > 0 && !all.checked;
    buttons.forEach((node, i) => {
      setText(node, n ? `${actions[i][0]} (${count(n)})` : actions[i][0]);
      setAttribute(node, "aria-disabled", n ? null : "true");
    });
  };
  const all = el("input", {
    type: "checkbox", autocomplete: "off", "aria-label": `Choose every ${name} that is shown`,
    onchange: () => {
      for (const box of shown()) box.checked = all.checked;
      show();
    },
  });
  const buttons = actions.map(([, action, cls]) => button("", async (event) => {
    const values = chosen();
    if (!values.length || !(await action(values, event))) return;
    for (const box of boxes) {
      if (!values.includes(box.value)) continue;
      box.checked = false;
      box.closest("tr")?.classList.toggle("past", leaving);
    }
    show();
  }, { class: cls }));
  show();
  const make = (item) => {
    const value = valueOf(item);
    if (value === null) return null;
    const box = el("input", { type: "checkbox", value, autocomplete: "off", "aria-label": `Choose ${name} ${value}`, onchange: show });
    boxes.add(box);
    return el("label.target", box);
  };
  const head = el("label.target", el("span.sr", "Choose"), all);
  return { column: [head, "box", make], buttons, chosen, show };
}

// Load a list now, and again after each change that concerns it, at most every
// eachMs; and without a change every idleMs, if that is not 0. concerns(changed)
// returns true if a change of these queues (null: all) concerns the list.
export async function followed(load, eachMs, concerns, idleMs = 0) {
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
  const idle = idleMs && setInterval(() => document.hidden || now().catch(() => {}), idleMs);
  return {
    now: () => now().catch(() => {}),
    leave: () => {
      unwatch();
      clearInterval(idle);
      clearTimeout(timer);
    },
  };
}

