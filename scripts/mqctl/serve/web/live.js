// live.js - one event stream for all tabs of a browser
//
// A browser opens six connections to a server at most, so the tab that holds
// the lock has the stream and hands on what it says. Where there are no locks
// (plain http to another name than localhost) each tab asks every 5 seconds.

import { ask, say } from "./dom.js";

const channel = new BroadcastChannel("mqctl");
const LOST = "The server does not answer; what is here may be old.";

let lost = false;

// hand - an event to the page; what is lost is said, and so is its end
function hand(listen, name, data) {
  if (name === "lost") {
    if (!lost) say(LOST);
    lost = true;
    return;
  }
  if (lost) say("The server answers again.");
  lost = false;
  if (name !== "job") listen(name, data);
}

// stream - until the page goes; a stream that was refused, as after a new token
// or by a proxy, is tried again
function stream(listen) {
  const source = new EventSource("/api/v1/events");
  const tell = (name, data) => {
    hand(listen, name, data);
    channel.postMessage({ name, data });
  };
  for (const name of ["hello", "resync", "queues", "job"])
    source.addEventListener(name, (event) => tell(name, JSON.parse(event.data)));
  source.onerror = () => {
    tell("lost", null);
    if (source.readyState === EventSource.CLOSED) setTimeout(() => stream(listen), 3000);
  };
  window.addEventListener("pagehide", () => source.close());
}

async function poll(listen) {
  try {
    const { queues } = await ask("/api/v1/queues");
    hand(listen, "hello", queues);
  } catch {
    hand(listen, "lost", null);
  }
  setTimeout(() => poll(listen), 5000);
}

export function live(listen) {
  if (!navigator.locks) {
    poll(listen);
    return;
  }
  channel.onmessage = (event) => hand(listen, event.data.name, event.data.data);
  navigator.locks.request("mqctl-events", () => new Promise(() => stream(listen)));
}
