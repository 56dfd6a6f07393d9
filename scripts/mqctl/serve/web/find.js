// find.js - a message by its id, or text in dead letters
//
// An id is looked for in every queue; any other text in the errors, standard
// error and bodies of dead letters.

import { ask, pageOf, query } from "./api.js";
import { deadList } from "./dead.js";
import { $, el, empty } from "./dom.js";
import { quoted } from "./format.js";
import { open } from "./router.js";

const isId = (text) => /^[0-9A-Za-z]{26}$/.test(text);

export async function findView(main, { params }) {
  const text = (params.get("q") || params.get("id") || "").trim();
  $("#find-text").value = text;
  main.append(el("h1", "Find"));
  if (!text) {
    main.append(empty("Type the id of a message, or text that a dead letter has, into the field above."));
    return { name: "Find" };
  }
  if (!isId(text)) {
    const list = await deadList(null, new URLSearchParams({ match: text }), (filter) => open(`/dead${query(filter)}`));
    main.append(el("p", "Dead letters with this text. The id of a message has 26 letters and digits."), list.node);
    return { name: "Find", leave: list.leave };
  }
  const { found, queues } = await ask(`/api/v1/explain${query({ id: text.toUpperCase() })}`);
  main.append(el("p", "Message ", el("code", text)));
  main.append(el("div", { id: "found" }, ...(found.length ? found.map((one) => el("section", el("h2", el("a", { href: pageOf(one.queue) }, one.queue)), el("p", one.text), el("p", el("code", `mqctl explain ${quoted(one.queue)} ${text.toUpperCase()}`)),
    el("p", el("a", { href: /dead|letter/.test(one.where) ? pageOf(one.queue, "dead") : pageOf(one.queue, "messages", text.toUpperCase()) }, "Open")))) :
    [empty(`None of the ${queues} queues has this message. It is done, or it never came.`)])));
  return { name: "Find" };
}
