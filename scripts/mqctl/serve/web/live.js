// live.js - one event stream for all tabs of a browser
//
// A browser opens six connections to a server at most, so the tab that holds
// the lock has the stream and hands on what it says. Where there are no locks
// (plain http to another name than localhost) each tab asks every 5 seconds.

import { ask } from "./dom.js";

const channel = new BroadcastChannel("mqctl");

function hear(listen) {
  channel.onmessage = (event) => listen(event.data.name, event.data.data);
}

function lead(listen) {
  return new Promise(() => {
    const source = new EventSource("/api/v1/events");
    let last = null;
    for (const name of ["hello", "resync", "queues", "job"])
      source.addEventListener(name, (event) => {
        const data = JSON.parse(event.data);
        if (name !== "job") last = data;
        listen(name, data);
        channel.postMessage({ name, data });
      });
    source.onerror = () => {
      listen("lost", null);
      channel.postMessage({ name: "lost", data: null });
    };
    window.addEventListener("pagehide", () => source.close());
  });
}

async function poll(listen) {
  try {
    const { queues } = await ask("/api/v1/queues");
    listen("hello", queues);
  } catch {
    listen("lost", null);
  }
  setTimeout(() => poll(listen), 5000);
}

export function live(listen) {
  if (!navigator.locks) {
    poll(listen);
    return;
  }
  hear(listen);
  navigator.locks.request("mqctl-events", () => lead(listen));
}
