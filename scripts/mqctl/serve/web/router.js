// router.js - which page an address shows, and moving between pages
//
// A page is a function view(main, {params, ...}) that fills main and resolves to
// {name, leave}. Links are followed without loading the document again, so the
// event stream and the header stay.

import { $, el, say, setAttribute } from "./dom.js";
import { nameSet } from "./frame.js";

// Make a function that loads a file when it is called, and calls `name` in it.
export const later = (file, name) => async (...args) => (await import(file))[name](...args);

let routes = [];
let current = null;
let turn = 0;

async function show(focus) {
  const mine = ++turn;
  current?.leave?.();
  current = null;
  const here = new URL(location.href);
  const [view, match] = routes.map(([pattern, one]) => [one, pattern.exec(here.pathname)]).find(([, found]) => found) || [null];
  const main = el("main", { id: "main", tabindex: "-1" });
  let next;
  try {
    next = view ? await view(main, { params: here.searchParams, ...match.groups }) : null;
    if (!view) main.append(el("h1", "There is no such page"), el("p", el("a", { href: "/" }, "All queues")));
  } catch (error) {
    main.replaceChildren(el("h1", "This page cannot be shown"), el("p.bad", error.message), el("p", el("a", { href: "/" }, "All queues")));
  }
  if (mine !== turn) {
    next?.leave?.();
    return;
  }
  current = next;
  $("#main").replaceWith(main);
  nameSet(next?.name || "mqworker");
  const part = here.pathname.split("/")[1];
  for (const [id, parts] of [["queues", ["", "queues"]], ["dead", ["dead"]], ["groups", ["groups"]]])
    setAttribute($(`#nav-${id}`), "aria-current", parts.includes(part) ? "page" : null);
  if (!focus) return;
  scrollTo(0, 0);
  main.focus({ preventScroll: true });
  say(next?.name || "");
}

// Go to another page of this server.
export function open(address) {
  history.pushState(null, "", address);
  show(true);
}

export const reload = () => show(false);

// Begin with the page of the present address. table: [pattern, view] rows.
export function routerStart(table) {
  routes = table;
  addEventListener("popstate", () => show(false));
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[href]");
    if (!link || event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey || link.target || link.download) return;
    const to = new URL(link.href);
    if (to.origin !== location.origin || to.pathname.startsWith("/api/") || link.classList.contains("skip")) return;
    event.preventDefault();
    open(to.pathname + to.search);
  });
  return show(false);
}
