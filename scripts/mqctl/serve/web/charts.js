// charts.js - the sparkline of a queue, and its four charts
//
// Values come as rows of numbers, oldest first, null where nothing was measured;
// a line breaks there. The four charts share one crosshair, and what it reads
// stands in the head of each chart, so that nothing moves.

import { ask, apiOf, query } from "./api.js";
import { button, el, say, setText, svg } from "./dom.js";
import { clock, count, duration, exact, rate } from "./format.js";
import { state, watch } from "./live.js";

// A path through the values; a single value between gaps becomes a dot.
function pathOf(values, x, y) {
  let path = "";
  let pen = false;
  values.forEach((value, i) => {
    if (value === null || value === undefined) {
      pen = false;
      return;
    }
    path += `${pen ? "L" : "M"}${x(i).toFixed(1)} ${y(value).toFixed(1)}`;
    if (!pen && (values[i + 1] === null || values[i + 1] === undefined)) path += "h.1";
    pen = true;
  });
  return path;
}

// ---- sparklines ----

const WIDE = 140;
const HIGH = 24;

const decode = (text, max) => [...(text || "")].map((c) => (c === "-" ? null : (parseInt(c, 36) * max) / 35));

// The last ten minutes of a queue: done as a line, failures as red ticks.
export function spark() {
  const line = svg("path.line.done");
  const ticks = svg("path.line.failed");
  const node = svg("svg.spark", { width: WIDE, height: HIGH, viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", "aria-label": "no history yet" },
    svg("line.grid", { x2: WIDE, y1: HIGH - 0.5, y2: HIGH - 0.5 }), ticks, line);
  node.update = ({ max, done, failed_max: failedMax, failed }) => {
    const values = decode(done, max);
    const failures = decode(failed, failedMax || 0);
    const x = (i) => 1 + (i * (WIDE - 2)) / Math.max(values.length - 1, 1);
    line.setAttribute("d", pathOf(values, x, (v) => HIGH - 2 - (v / (max || 1)) * (HIGH - 5)));
    ticks.setAttribute("d", failures.map((v, i) => (v ? `M${x(i).toFixed(1)} ${HIGH}v-${(3 + (v / failedMax) * 8).toFixed(1)}` : "")).join(""));
    const note = `last 10 min: up to ${rate(max)} done/s${failedMax ? `, up to ${rate(failedMax)} failed/s` : ""}`;
    node.setAttribute("aria-label", note);
  };
  return node;
}

// Bars that show how many letters died in each part of a time.
export function histogram(counts, label) {
  const most = Math.max(...counts, 1);
  return svg("svg.bars", { width: counts.length * 5, height: HIGH, role: "img", "aria-label": label },
    counts.map((n, i) => svg("rect", { x: i * 5, width: 4, y: HIGH - (n ? 2 + (n / most) * (HIGH - 2) : 1), height: n ? 2 + (n / most) * (HIGH - 2) : 1, class: n ? "some" : "none" })));
}

// ---- four charts ----

// The next round number from `rough` up.
function stepDecimal(rough) {
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].find((n) => n * power >= rough) * power;
}

// The same for a duration in ms: from a second up its units are not decimal.
function stepTime(rough) {
  const steps = [1e3, 60e3, 3600e3].flatMap((unit) => [1, 2, 5, 10, 20, 30].map((n) => n * unit));
  return rough <= 500 ? Math.max(stepDecimal(rough), 1) : steps.find((ms) => ms >= rough) || steps.at(-1);
}

// A title, the lines with their words, how a value is written, and the distance of
// the ticks, which is the next round number from `rough` up.
const CHARTS = [
  ["Deliveries a second", [["done", "done"], ["failed", "failed"]], (v) => `${rate(v)}/s`, (rough) => stepDecimal(rough)],
  ["Waiting", [["waiting", "waiting"]], count, (rough) => Math.max(stepDecimal(rough), 1)],
  ["Running", [["in_flight", "running"]], count, (rough) => Math.max(stepDecimal(rough), 1)],
  ["Handler time", [["p50_ms", "p50"], ["p99_ms", "p99"]], duration, stepTime],
];
const RANGES = [["10m", "10 min", 120], ["1h", "1 h", 900], ["24h", "24 h", 21600]];
const LEFT = 52;
const RIGHT = 10;
const TOP = 8;
const BOTTOM = 20;
const HEIGHT = 150;

// Three or four round ticks that reach the maximum.
function ticksOf(max, stepOf) {
  const step = stepOf(Math.max(max, 0.3) / 3);
  const ticks = [0];
  while (ticks.at(-1) < max || ticks.length < 3) ticks.push(Number((ticks.at(-1) + step).toPrecision(6)));
  return ticks;
}

// One chart. show(data, range) draws it, read(i) puts the crosshair on a value.
function chart([title, lines, write, stepOf], move, leave) {
  const when = el("span");
  const keys = lines.map(([name]) => el("span", { class: lines.length > 1 ? `legend ${name}` : null }));
  const picture = svg("svg", { height: HEIGHT, role: "img", "aria-label": title });
  const cross = svg("line.cross", { y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
  const node = el("div", {
    class: "chart", tabindex: "0", role: "group", "aria-label": `${title}: arrow keys read values`,
    onkeydown: (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 }[event.key];
      if (!step || !data) return;
      event.preventDefault();
      move(Math.min(Math.max((at ?? length() - 1) + step, 0), length() - 1));
      say(`${title} ${when.textContent} ${valuesAt(at).join(", ")}`);
    },
    onblur: leave,
  }, el("div.caption", el("strong", title), el("span.read", when, keys)), picture);
  let data = null;
  let at = null;
  const length = () => data[lines[0][0]].length;
  const x = (i) => LEFT + (i * (width() - LEFT - RIGHT)) / (length() - 1);
  const width = () => picture.clientWidth || 560;

  picture.addEventListener("pointermove", (event) => {
    if (!data) return;
    const part = (event.clientX - picture.getBoundingClientRect().left - LEFT) / (width() - LEFT - RIGHT);
    move(Math.min(Math.max(Math.round(part * (length() - 1)), 0), length() - 1));
  });
  picture.addEventListener("pointerleave", leave);

  const valuesAt = (i) => lines.map(([name, word]) => `${word} ${data[name][i] === null ? "none" : write(data[name][i])}`);

  node.read = (i) => {
    at = i;
    if (!data) return;
    cross.setAttribute("visibility", i === null ? "hidden" : "visible");
    if (i !== null) {
      cross.setAttribute("x1", x(i));
      cross.setAttribute("x2", x(i));
    }
    setText(when, i === null ? "" : exact(Date.parse(data.end) - (length() - 1 - i) * data.step_s * 1000).slice(11, 19));
    valuesAt(i === null ? length() - 1 : i).forEach((text, n) => setText(keys[n], text));
  };

  node.show = (now, tickS) => {
    data = now;
    const max = Math.max(0, ...lines.flatMap(([name]) => data[name].filter((v) => v !== null)));
    const ticks = ticksOf(max, stepOf);
    const y = (v) => HEIGHT - BOTTOM - (v / ticks.at(-1)) * (HEIGHT - TOP - BOTTOM);
    const end = Date.parse(data.end);
    const begin = end - (length() - 1) * data.step_s * 1000;
    const xOf = (ms) => LEFT + ((ms - begin) * (width() - LEFT - RIGHT)) / (end - begin);
    const parts = ticks.map((v) => [
      svg("line.grid", { x1: LEFT, x2: width() - RIGHT, y1: y(v), y2: y(v) }),
      svg("text", { x: LEFT - 6, y: y(v) + 4, "text-anchor": "end" }, v === 0 ? "0" : write(v).replace(".0", "")),
    ]);
    // Round times in the browser's time zone, with the day where it changes.
    const zone = new Date(end).getTimezoneOffset() * 60000;
    let day = null;
    for (let t = Math.ceil((begin - zone) / (tickS * 1000)) * tickS * 1000 + zone; t <= end; t += tickS * 1000) {
      const date = new Date(t);
      const text = day !== null && date.getDate() !== day ? date.toLocaleDateString("en", { day: "numeric", month: "short" }) : clock(date);
      day = date.getDate();
      const left = xOf(t);
      if (left > width() - RIGHT - 12 && left < width() - RIGHT - 1) continue;
      parts.push(svg("text", { x: Math.min(left, width() - 18), y: HEIGHT - 5, "text-anchor": "middle" }, text));
    }
    let room = Infinity; // a mark right of this has no room for its words
    for (const mark of [...data.marks].reverse()) {
      const left = xOf(Date.parse(mark.at));
      if (left < LEFT || left > width()) continue;
      parts.push(svg("line.mark", { x1: left, x2: left, y1: TOP, y2: HEIGHT - BOTTOM },
        svg("title", `${mark.what} ${mark.text || ""} at ${exact(mark.at)}`)));
      if (title !== CHARTS[0][0] || left > room) continue;
      room = left - 90;
      parts.push(svg("text.mark", { x: left > width() - 90 ? left - 4 : left + 4, y: TOP + 8, "text-anchor": left > width() - 90 ? "end" : "start" }, mark.text ? `${mark.what} ${mark.text}` : mark.what));
    }
    for (const [name] of lines) parts.push(svg("path", { class: `line ${name}`, d: pathOf(data[name], x, y) }));
    picture.replaceChildren(...parts.flat(2), cross);
    picture.setAttribute("aria-label", `${title}: now ${valuesAt(length() - 1).join(", ")}, at most ${write(max)}`);
    node.read(at);
  };
  return node;
}

const NAMES = ["done", "failed", "waiting", "in_flight", "p50_ms", "p99_ms"];

// The four charts of a queue with a choice of the time they cover.
export function charts(queue) {
  const leave = () => all.forEach((one) => one.read(null));
  const move = (i) => all.forEach((one) => one.read(i));
  const all = CHARTS.map((one) => chart(one, move, leave));
  let [range, , tickS] = RANGES.find(([name]) => name === localStorage.getItem("mqctl-range")) || RANGES[0];
  let data = null;
  let timer = 0;
  let was = "";

  const draw = () => data && all.forEach((one) => one.show(data, tickS));

  async function load() {
    clearTimeout(timer);
    timer = setTimeout(load, document.hidden ? 300000 : range === "24h" ? 180000 : range === "1h" ? 20000 : 60000);
    try {
      data = await ask(`${apiOf(queue, "history")}${query({ range })}`);
      draw();
    } catch {
      // The charts stay; the header says if the server does not answer.
    }
  }

  // Between two loads the ten-minute charts grow by what the row says.
  const grow = setInterval(() => {
    const row = state.rows.get(queue);
    if (!data || range !== "10m" || !row || document.hidden || state.link !== "live") return;
    const steps = Math.floor((Date.now() - Date.parse(data.end)) / (data.step_s * 1000));
    if (steps < 1 || steps > 30) return;
    const now = { done: row.done_s, failed: row.failed_s, waiting: row.waiting, in_flight: row.running, p50_ms: row.p50_ms, p99_ms: row.p99_ms };
    for (const name of NAMES)
      for (let i = 0; i < steps; i++) {
        data[name].push(now[name] ?? null);
        data[name].shift();
      }
    data.end = new Date(Date.parse(data.end) + steps * data.step_s * 1000).toISOString();
    draw();
  }, 2000);

  // A change of the state adds a mark, which only the server knows: load again.
  const unwatch = watch(() => {
    const row = state.rows.get(queue);
    const now = row ? `${row.state} ${row.capacity}` : was;
    if (was && now !== was) {
      clearTimeout(timer);
      timer = setTimeout(load, 1000);
    }
    was = now;
  });

  const choices = RANGES.map(([name, word, s]) => button(word, () => {
    [range, tickS] = [name, s];
    localStorage.setItem("mqctl-range", name);
    for (const one of choices) one.setAttribute("aria-pressed", String(one.dataset.range === name));
    load();
  }, { class: "chip", "data-range": name, "aria-pressed": String(name === range) }));
  const node = el("section.charts", { "aria-label": "Charts" }, el("div.chips", choices), el("div.four", all));
  const resize = new ResizeObserver(draw);
  resize.observe(node);
  load();
  return {
    node,
    leave: () => {
      unwatch();
      clearTimeout(timer);
      clearInterval(grow);
      resize.disconnect();
    },
  };
}

// Fetch the sparklines every 30 s; each(queue, spark) shows one. Returns a
// function that stops it.
export function sparks(each) {
  let timer = 0;
  const load = async () => {
    clearTimeout(timer);
    timer = setTimeout(load, document.hidden ? 120000 : 30000);
    const { queues } = await ask("/api/v1/sparks").catch(() => ({ queues: [] }));
    for (const one of queues) each(one.queue, one);
  };
  load();
  const unwatch = watch((changed) => changed === null && load());
  return () => {
    clearTimeout(timer);
    unwatch();
  };
}
