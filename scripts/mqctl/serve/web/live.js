// live.js - one event stream for all tabs of a browser
//
// A browser opens six connections to a server at most, so the tab that holds
// the lock has the stream and hands on what it says. Where there are no locks
// (plain http to another name than localhost), or the server has no stream left,
// the queues are asked for every 5 seconds.

import { ask, say } from "./dom.js";

const channel = new BroadcastChannel("mqctl");
const TROUBLES = {
  lost: "The server does not answer; this page may be out of date.",
  "signed-out": "You are signed out; this page may be out of date. Reload it to sign in.",
};

let trouble = null;

// hand - an event to the page; a trouble is said when it begins and when it ends
function hand(listen, name, data) {
  if (name in TROUBLES) {
    if (trouble !== name) say(TROUBLES[name]);
    trouble = name;
    return;
  }
  if (trouble) say(trouble === "lost" ? "The server answers again." : "You are signed in again.");
  trouble = null;
  if (name !== "job") listen(name, data);
}

// poll - ask once; then again() after a while
async function poll(tell, again) {
  let wait = 5000;
  try {
    const { queues } = await ask("/api/v1/queues");
    tell("hello", queues);
  } catch (error) {
    tell(error.status === 401 ? "signed-out" : "lost", null);
    wait = error.status === 401 ? 15000 : 3000;
  }
  setTimeout(again, wait);
}

// stream - until the page goes. One that was refused does not say why: a question
// does, and after its answer the stream is tried again.
function stream(tell) {
  const source = new EventSource("/api/v1/events");
  for (const name of ["hello", "resync", "queues", "job"])
    source.addEventListener(name, (event) => tell(name, JSON.parse(event.data)));
  source.onerror = () => {
    if (source.readyState === EventSource.CLOSED) poll(tell, () => stream(tell));
    else tell("lost", null);
  };
  window.addEventListener("pagehide", () => source.close());
}

export function live(listen) {
  if (!navigator.locks) {
    const again = () => poll((name, data) => hand(listen, name, data), again);
    again();
    return;
  }
  const tell = (name, data) => {
    hand(listen, name, data);
    channel.postMessage({ name, data });
  };
  channel.onmessage = (event) => hand(listen, event.data.name, event.data.data);
  navigator.locks.request("mqctl-events", () => new Promise(() => stream(tell)));
}
