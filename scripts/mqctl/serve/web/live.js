// live.js - what the server last said about all queues
//
// `state` has the rows, the totals and how this page gets changes. One event
// stream serves all tabs of a browser, because a browser opens six connections
// to a server at most: the tab that holds the lock has the stream and passes on
// each event. Without locks (plain http to a name other than localhost), or
// when the server has no stream left, each tab asks every 5 seconds.

import { ask, query } from "./api.js";

const QUIET_MS = 10000; // without an event for so long, ask whether the server answers
const POLL_MS = 5000;
const LOCK = "mqctl-events";

export const state = {
  about: null,
  rows: new Map(),
  totals: {},
  looked: false, // the server has looked at all queues once
  link: "connecting", // live, polling, lost, signed out
  since: Date.now(), // when the link became so
};

const channel = new BroadcastChannel("mqctl");
const watchers = new Set();
let early = []; // deltas that came before the first whole state
let heard = Date.now();
let leads = false; // this tab has the lock, and so the stream
let source = null; // the stream

// Call f(changed) after each change: changed is the set of queues, null for all.
// Returns a function that stops the calls.
export function watch(f) {
  watchers.add(f);
  return () => watchers.delete(f);
}

const tell = (changed) => {
  for (const f of [...watchers]) f(changed);
};

export function linkSet(link) {
  heard = Date.now();
  if (state.link === link) return;
  state.link = link;
  state.since = Date.now();
  tell(new Set());
}

function wholeTake(all) {
  state.about = all.about;
  state.totals = all.totals;
  state.looked = all.looked;
  state.rows = new Map(all.rows.map((row) => [row.queue, row]));
  for (const delta of early) deltaTake(delta);
  early = [];
  tell(null);
}

function deltaTake({ rows, totals }) {
  state.looked = true;
  Object.assign(state.totals, totals);
  for (const delta of rows) {
    if (delta.gone) state.rows.delete(delta.queue);
    else state.rows.set(delta.queue, { ...state.rows.get(delta.queue), ...delta });
  }
}

function eventTake(name, data) {
  if (name === "link") {
    linkSet(data);
    return;
  }
  if (name !== "overview") linkSet("live");
  if (name !== "rows") wholeTake(data);
  else if (!state.about) early.push(data);
  else {
    const fresh = !state.looked;
    deltaTake(data);
    tell(fresh ? null : new Set(data.rows.map((row) => row.queue)));
  }
}

// Ask once for everything. Resolves to the new link.
async function overviewTake(share) {
  try {
    share("overview", await ask("/api/v1/overview"));
    return "polling";
  } catch (error) {
    return error.status === 401 ? "signed out" : "lost";
  }
}

// Ask now and then; again() decides what follows each answer.
async function poll(share, again) {
  const link = await overviewTake(share);
  share("link", link);
  const soon = link === "polling" && !state.looked ? 1000 : POLL_MS;
  setTimeout(again, document.hidden && link === "polling" ? 12 * POLL_MS : soon);
}

// Listen to the server. Resolves to true with the first event, to false if the
// server refuses the stream.
function stream(share) {
  source?.close();
  const mine = new EventSource("/api/v1/events");
  source = mine;
  // A broken connection looks like a server without news: after a while, ask it.
  let asked = false;
  const check = setInterval(async () => {
    if (mine.readyState === EventSource.CLOSED) clearInterval(check);
    else if (!asked && Date.now() - heard > (document.hidden ? 3 : 1) * QUIET_MS) {
      asked = true;
      try {
        await Promise.race([ask("/api/v1/about"), new Promise((_, fail) => setTimeout(() => fail(Error()), QUIET_MS))]);
        if (mine.readyState === EventSource.OPEN) share("link", "live");
      } catch (error) {
        share("link", error.status === 401 ? "signed out" : "lost");
      }
      asked = false;
    }
  }, 1000);
  return new Promise((begun) => {
    for (const name of ["hello", "resync", "rows"])
      mine.addEventListener(name, (event) => {
        share(name, JSON.parse(event.data));
        begun(true);
      });
    // A refused stream gives no reason; the answer to another request does.
    mine.onerror = () => {
      if (mine.readyState !== EventSource.CLOSED) share("link", "lost");
      else if (state.about) poll(share, () => stream(share));
      begun(false);
    };
  });
}

// Return true if this tab has the lock, which it keeps while it is open.
const lockTry = () => new Promise((go) => navigator.locks.request(LOCK, { ifAvailable: true }, (lock) => {
  go(lock !== null);
  return lock && new Promise(() => {});
}));

// Begin to listen. Resolves when the first state is there; rejects with the
// server's refusal, such as 401 without a session. The state comes with the
// stream; a tab without a stream asks for it.
export async function start() {
  const share = (name, data) => {
    eventTake(name, data);
    channel.postMessage({ name, data });
  };
  channel.onmessage = ({ data }) => eventTake(data.name, data.data);
  leads ||= Boolean(navigator.locks) && await lockTry();
  if (leads && await stream(share)) return;
  wholeTake(await ask("/api/v1/overview"));
  if (!navigator.locks || leads) {
    linkSet("polling");
    const again = leads ? () => stream(share) : () => poll(eventTake, again);
    setTimeout(again, state.looked ? POLL_MS : 1000);
    return;
  }
  linkSet("live");
  navigator.locks.request(LOCK, () => {
    leads = true;
    return new Promise(() => stream(share));
  });
}

addEventListener("pagehide", () => source?.close());

// Call f(look) with each new look at one queue while this tab is seen. Returns
// a function that stops the calls.
export function watchQueue(queue, f) {
  let source = null;
  const open = () => {
    if (document.hidden || source) return;
    source = new EventSource(`/api/v1/events${query({ queue })}`);
    source.addEventListener("queue", (event) => f(JSON.parse(event.data)));
  };
  const close = () => {
    source?.close();
    source = null;
  };
  const turn = () => (document.hidden ? close() : open());
  open();
  document.addEventListener("visibilitychange", turn);
  return () => {
    document.removeEventListener("visibilitychange", turn);
    close();
  };
}
