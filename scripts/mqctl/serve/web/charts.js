// charts.js - a spark of ten minutes, and charts with a table behind them

import { el, svg, ask, apiUrl, duration, rate, count } from "./dom.js";

const WIDTH = 480,
  HEIGHT = 140,
  LEFT = 60,
  TOP = 8,
  BOTTOM = 18;

// path - a step for each sample; a gap where nobody looked
function path(values, x, y) {
  let text = "",
    pen = false;
  values.forEach((value, i) => {
    if (value === null || value === undefined) {
      pen = false;
      return;
    }
    text += `${pen ? "L" : "M"}${x(i).toFixed(1)} ${y(value).toFixed(1)}`;
    pen = true;
  });
  return text;
}

const highest = (lists) =>
  lists.flat().reduce((most, v) => (v > most ? v : most), 0);

// scale - the next round number above the highest value
function scale(most) {
  if (!(most > 0)) return 1;
  const ten = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 5, 10].map((n) => n * ten).find((n) => n >= most);
}

export function spark(values) {
  const top = highest([values]) || 1;
  const d = path(
    values,
    (i) => (i / Math.max(values.length - 1, 1)) * 130,
    (v) => 22 - (v / top) * 20,
  );
  return svg(
    "svg",
    { viewBox: "0 0 130 24", role: "img", "aria-label": "Done, ten minutes" },
    svg("path", { class: "line", d }),
  );
}

const CHARTS = [
  {
    title: "Messages a second",
    print: rate,
    lines: [
      ["done", "done"],
      ["retried", "retried"],
      ["died", "died"],
    ],
  },
  { title: "In the queue", print: count, lines: [["depth", "depth"]] },
  {
    title: "Handler time",
    print: (ms) => duration(ms * 1e6),
    lines: [
      ["p50_ms", "p50"],
      ["p99_ms", "p99"],
    ],
  },
  { title: "In flight", print: count, lines: [["in_flight", "in flight"]] },
];
const CLASSES = ["", " second", " third"];

// values_table - what the chart shows, for who cannot see it: 12 moments
function valuesTable(chart, data, ends) {
  const n = data[chart.lines[0][0]].length;
  const step = Math.ceil(n / 12);
  const rows = [];
  for (let i = n - 1; i >= 0; i -= step)
    rows.push(
      el(
        "tr",
        {},
        el("th", { scope: "row" }, ends(i)),
        chart.lines.map(([name]) =>
          el("td", { class: "n" }, data[name][i] === null ? "-" : chart.print(data[name][i])),
        ),
      ),
    );
  return el(
    "details",
    {},
    el("summary", {}, "As a table"),
    el(
      "table",
      {},
      el("caption", { class: "sr" }, chart.title),
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          el("th", { scope: "col" }, "Time"),
          chart.lines.map(([, word]) => el("th", { scope: "col", class: "n" }, word)),
        ),
      ),
      el("tbody", {}, rows),
    ),
  );
}

function draw(chart, data) {
  const lists = chart.lines.map(([name]) => data[name] || []);
  const n = lists[0].length,
    top = scale(highest(lists));
  const x = (i) => LEFT + (i / Math.max(n - 1, 1)) * (WIDTH - LEFT - 4);
  const y = (v) => TOP + (1 - v / top) * (HEIGHT - TOP - BOTTOM);
  const end = Date.parse(data.end);
  const at = (i) =>
    new Date(end - (n - 1 - i) * data.step_s * 1000).toLocaleTimeString([], {
      hour: "2-digit",
      minute: "2-digit",
      second: data.step_s === 1 ? "2-digit" : undefined,
    });
  const cursor = svg("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
  const read = el("span", {}, "");
  const picture = svg(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": chart.title },
    svg("path", { class: "grid", d: `M${LEFT} ${y(0)}H${WIDTH}M${LEFT} ${y(top)}H${WIDTH}` }),
    svg("text", { x: LEFT - 6, y: y(top) + 8, "text-anchor": "end" }, chart.print(top)),
    svg("text", { x: LEFT - 6, y: y(0), "text-anchor": "end" }, "0"),
    svg("text", { x: LEFT, y: HEIGHT - 4 }, at(0)),
    svg("text", { x: WIDTH - 4, y: HEIGHT - 4, "text-anchor": "end" }, at(n - 1)),
    lists.map((list, i) => svg("path", { class: "line" + CLASSES[i], d: path(list, x, y) })),
    cursor,
  );
  picture.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect();
    const px = ((event.clientX - box.left) / box.width) * WIDTH;
    const i = Math.min(n - 1, Math.max(0, Math.round(((px - LEFT) / (WIDTH - LEFT - 4)) * (n - 1))));
    cursor.setAttribute("x1", x(i));
    cursor.setAttribute("x2", x(i));
    cursor.setAttribute("visibility", "visible");
    read.textContent =
      at(i) + "  " + lists.map((list, k) => `${chart.lines[k][1]} ${list[i] === null ? "-" : chart.print(list[i])}`).join(", ");
  });
  picture.addEventListener("pointerleave", () => {
    cursor.setAttribute("visibility", "hidden");
    read.textContent = "";
  });
  return el(
    "figure",
    {},
    el(
      "figcaption",
      {},
      el("strong", {}, chart.title),
      " ",
      chart.lines.length > 1
        ? chart.lines.map(([, word], i) => el("span", { class: "swatch" + CLASSES[i] }, word))
        : null,
      read,
    ),
    picture,
    valuesTable(chart, data, at),
  );
}

// charts - of a queue, below `place`; drawn again while nobody is at them
export async function charts(place, queue) {
  let step = "1s";
  const grid = el("div", { class: "charts" });
  const show = async () => {
    const data = await ask(`${apiUrl(queue)}/history?step=${step}`);
    if (data.done && !grid.querySelector("details[open]") && !grid.matches(":hover, :focus-within"))
      grid.replaceChildren(...CHARTS.map((chart) => draw(chart, data)));
  };
  const button = (value, word) =>
    el("button", {
      type: "button",
      "aria-pressed": String(value === step),
      onclick: (event) => {
        step = value;
        for (const other of event.target.parentNode.children)
          other.setAttribute("aria-pressed", String(other === event.target));
        grid.replaceChildren();
        show().catch(() => {});
      },
    }, word);
  place.append(
    el("h2", {}, "Charts"),
    el("div", { class: "actions", role: "group", "aria-label": "Range" }, button("1s", "10 minutes"), button("1m", "24 hours")),
    grid,
  );
  const again = () => show().catch(() => {}).finally(() => setTimeout(again, document.hidden ? 30000 : 5000));
  again();
}
