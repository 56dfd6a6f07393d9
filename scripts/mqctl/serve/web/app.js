// app.js - signing in, listening to the server, and the page of the address
//
// Started by index.html. Each page is a file of its own; all but the first are
// loaded when they are opened.

import { signIn } from "./api.js";
import { $, button, el, say } from "./dom.js";
import { frameStart } from "./frame.js";
import { linkSet, start, state, watch } from "./live.js";
import { queuesView } from "./queues.js";
import { later, open, reload, routerStart } from "./router.js";

const ROUTES = [
  [/^\/$/, queuesView],
  [/^\/dead$/, later("./dead.js", "deadView")],
  [/^\/groups$/, later("./groups.js", "groupsView")],
  [/^\/find$/, later("./find.js", "findView")],
  [/^\/queues\/(?<part>[^/]+)\/dead\/(?<row>\d+)$/, later("./letter.js", "letterView")],
  [/^\/queues\/(?<part>[^/]+)\/messages\/(?<id>[^/]+)$/, later("./letter.js", "messageView")],
  [/^\/queues\/(?<part>[^/]+)(?:\/(?<tab>messages|dead|groups|settings))?$/, later("./queue.js", "queueView")],
];

// The token stands behind #: no browser sends that part, so no log has it.
async function tokenTake() {
  const token = /^#t=([0-9a-f]{64})$/.exec(location.hash);
  if (!token) return;
  history.replaceState(null, "", location.pathname + location.search);
  await signIn(token[1]);
}

// Ask for the token in place of the page; the address stays.
function signInShow(reason) {
  const note = el("p.bad", { role: "alert" }, reason || "");
  const input = el("input", { id: "token", name: "token", type: "password", autocomplete: "current-password", required: true, spellcheck: "false" });
  const form = el("form", {
    id: "login",
    onsubmit: async (event) => {
      event.preventDefault();
      try {
        await signIn(input.value.trim().replace(/^.*#t=/, ""));
        await begin();
      } catch (error) {
        note.textContent = error.message;
        input.select();
      }
    },
  },
  el("h1", "Sign in"),
  el("p", "Paste the token, or the whole address that ", el("code", "mqctl serve"), " printed. The token is also in ", el("code", "web.token"), " of the state directory."),
  el("p.field", el("label", { for: "token" }, "Token"), input), note,
  el("p.buttons", el("button.primary", { type: "submit" }, "Sign in")));
  $("#main").replaceChildren(form);
  linkSet("signed out");
  input.focus();
}

// Offer to sign in again when the session ends; the page stays as it is.
function signedOutOffer() {
  const bar = el("div.toast.bad", "You are signed out, and this page may be out of date. ", button("Sign in", () => signInShow(), { class: "primary" }));
  watch(() => {
    if (state.link === "signed out" && !$("#login")) $("#toasts").append(bar);
    else bar.remove();
  });
}

let begun = false;

async function begin() {
  await start();
  if (begun) {
    reload();
    return;
  }
  begun = true;
  await routerStart(ROUTES);
}

async function first() {
  frameStart(open);
  signedOutOffer();
  try {
    await tokenTake();
    await begin();
  } catch (error) {
    if (error.status === 401 || error.status === 429) signInShow(error.status === 401 ? "" : error.message);
    else {
      $("#main").replaceChildren(el("h1", "The server does not answer"), el("p", error.message));
      say("The server does not answer.");
      setTimeout(() => location.reload(), 5000);
    }
  }
}

// Sign in when a person pastes the address with the token over this one.
addEventListener("hashchange", () => /^#t=/.test(location.hash) && tokenTake().then(begin).catch((error) => signInShow(error.message)));
first();
