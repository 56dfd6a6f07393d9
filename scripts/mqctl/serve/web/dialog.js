// dialog.js - questions, menus, commands and notices above the page
//
// Used by every page that changes something. A question shows the command that
// does the same; an error stays as a notice until it is closed.

import { $, button, el, say, setText } from "./dom.js";

// Show a notice at the foot of the window. An error stays until it is closed.
export function toast(text, bad = false) {
  const close = () => node.remove();
  const node = el("div", { class: bad ? "toast bad" : "toast" }, el("span", text),
    button("Close", close, { "aria-label": `Close the notice: ${text}`, class: "plain" }));
  $("#toasts").append(node);
  say(text);
  if (!bad) setTimeout(close, 8000);
}

async function copy(text, node) {
  try {
    await navigator.clipboard.writeText(text);
    setText(node, "Copied");
  } catch {
    setText(node, "Select it and press Ctrl-C");
  }
  setTimeout(() => setText(node, "Copy"), 2000);
}

export const copyButton = (text, label) => {
  const node = button("Copy", () => copy(typeof text === "function" ? text() : text, node), { class: "small", "aria-label": `Copy ${label}` });
  return node;
};

// Open a small box below a control; it closes with Escape or a click elsewhere.
function popup(control, node) {
  const at = control.getBoundingClientRect();
  node.popover = "auto";
  document.body.append(node);
  node.addEventListener("toggle", (event) => {
    if (event.newState !== "closed") return;
    control.setAttribute("aria-expanded", "false");
    node.remove();
  });
  node.showPopover();
  control.setAttribute("aria-expanded", "true");
  const size = node.getBoundingClientRect();
  node.style.left = `${Math.max(8, Math.min(at.left, innerWidth - size.width - 8))}px`;
  node.style.top = `${at.bottom + size.height + 8 > innerHeight ? Math.max(8, at.top - size.height - 4) : at.bottom + 4}px`;
}

// An icon that shows a command, to be copied. A click on it calls command().
export function commandIcon(command, label) {
  const node = button("›_", () => {
    const text = command();
    popup(node, el("div.popup", { role: "group", "aria-label": "Command" }, el("code", text), copyButton(text, "the command")));
  }, { class: "icon", title: "As a command", "aria-label": `${label} as a command`, "aria-expanded": "false" });
  return node;
}

// A button that opens a menu. items() returns [word, action, class] rows.
export function menuButton(label, items) {
  const open = () => {
    const rows = items().map(([word, action, cls]) =>
      el("button", {
        type: "button", role: "menuitem", tabindex: "-1", class: cls,
        onclick: () => {
          menu.hidePopover();
          node.focus();
          action();
        },
      }, word));
    const menu = el("div", {
      class: "popup menu", role: "menu", "aria-label": label,
      onkeydown: (event) => {
        const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
        if (!step && event.key !== "Tab") return;
        event.preventDefault();
        rows.at((rows.indexOf(document.activeElement) + (step || 1)) % rows.length).focus();
      },
    }, rows);
    popup(node, menu);
    rows[0].focus();
  };
  const node = button("⋯", open, { class: "icon", "aria-label": label, "aria-haspopup": "menu", "aria-expanded": "false" });
  return node;
}

// Ask before something is done. fields are [name, label, attributes of its input,
// which is a text of several lines if it has `rows`];
// command(values) is shown and changes with them. request(values) is sent while the
// question is open; if it is refused, the reason and what was typed stay. Resolves
// to the values, or to null if the person does not want it. `word` is on the button that
// does it, `keep` on the other.
export function question({ title, text, fields = [], command, word, keep = "Cancel", danger = false, request = null }) {
  const inputs = fields.map(([name, label, attributes]) => {
    const input = el(attributes.rows ? "textarea" : "input", { name, id: `field-${name}`, autocomplete: "off", ...attributes });
    if (attributes.rows) input.value = attributes.value;
    return [input, el("label", { for: `field-${name}` }, label), attributes.type === "checkbox"];
  });
  const values = () => Object.fromEntries(inputs.map(([input, , box]) => [input.name, box ? input.checked : input.rows ? input.value : input.value.trim()]));
  const code = el("code");
  const show = () => setText(code, command(values()));
  const begun = document.activeElement;
  const refused = el("p.bad", { role: "alert" });
  const submit = el("button", { type: "submit", class: danger ? "danger" : "primary" }, word);
  return new Promise((resolve) => {
    let answer = null;
    let busy = false;
    const form = el("form", {
      method: "dialog",
      oninput: show,
      onsubmit: async (event) => {
        event.preventDefault();
        if (busy) return;
        busy = true;
        submit.setAttribute("aria-disabled", "true");
        try {
          const now = values();
          await request?.(now);
          answer = now;
          dialog.close();
        } catch (error) {
          setText(refused, error.message);
        }
        busy = false;
        submit.removeAttribute("aria-disabled");
      },
    },
    el("h2", { id: "question" }, title),
    text ? el("p", text) : null,
    inputs.map(([input, label, box]) => el("p.field", box ? [input, label] : [label, input])),
    el("p.secondary", "The same as a command: ", code, " ", copyButton(() => code.textContent, "the command")),
    refused,
    el("p.buttons", submit, button(keep, () => busy || dialog.close())));
    const dialog = el("dialog", { "aria-labelledby": "question", oncancel: (event) => busy && event.preventDefault() }, form);
    dialog.addEventListener("close", () => {
      dialog.remove();
      if (begun?.isConnected) begun.focus();
      resolve(answer);
    });
    show();
    document.body.append(dialog);
    dialog.showModal();
    (inputs[0]?.[0] || $(".buttons button", form)).focus();
  });
}

// Do something at a button: a second click waits for the answer to the first. The
// answer stands in `place`; an error is a notice too. Resolves to true if it was done.
export async function act(control, place, request) {
  if (control.getAttribute("aria-disabled") === "true") return false;
  control.setAttribute("aria-disabled", "true");
  const answer = (text, bad) => {
    setText(place, text || "");
    place.title = text || "";
    place.classList.toggle("bad", bad);
  };
  try {
    const text = await request();
    answer(text, false);
    if (text) say(text);
    return true;
  } catch (error) {
    answer(error.message, true);
    toast(error.message, true);
    return false;
  } finally {
    control.removeAttribute("aria-disabled");
  }
}

const SHORTCUTS = [
  ["/", "find a message, or text in dead letters"],
  ["g q", "queues"],
  ["g d", "dead letters"],
  ["g g", "groups"],
  ["j, k", "next and previous row"],
  ["Enter", "open the row"],
  ["x", "tick the row"],
  ["?", "this help"],
];

export function helpShow() {
  const dialog = el("dialog", { "aria-labelledby": "help-title", onclose: () => dialog.remove() },
    el("h2", { id: "help-title" }, "Keyboard shortcuts"),
    el("dl.keys", SHORTCUTS.map(([keys, what]) => [el("dt", el("kbd", keys)), el("dd", what)])),
    el("p.buttons", button("Close", () => dialog.close())));
  document.body.append(dialog);
  dialog.showModal();
}
