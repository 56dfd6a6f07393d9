// format.js - how numbers, times and commands are written
//
// Pure functions. Times arrive as ISO strings; durations are milliseconds.

const HIDES = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e0fff}]/gu;

// Replace each character that hides or reorders text with an escape.
export const visible = (text) =>
  String(text).replace(HIDES, (c) => `\\u{${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}}`);

const thousands = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

const missing = (value) => value === null || value === undefined;

export const count = (n) => (missing(n) ? "–" : thousands.format(n));
export const rate = (n) => (missing(n) ? "–" : n < 10 ? n.toFixed(1) : thousands.format(n));
export const percent = (n) => (missing(n) ? "–" : n > 0 && n < 0.1 ? "<0.1" : n < 10 ? n.toFixed(1) : n.toFixed(0));
export const plural = (n, noun) => `${count(n)} ${noun}${n === 1 ? "" : "s"}`;

const UNITS = [
  [86400e3, "d"],
  [3600e3, "h"],
  [60e3, "min"],
  [1e3, "s"],
  [1, "ms"],
];

// Write a duration in its largest unit; below 10 s or 10 ms with one decimal.
export function duration(ms) {
  if (missing(ms) || Number.isNaN(ms)) return "–";
  const [size, unit] = UNITS.find(([from]) => ms >= from) || UNITS[4];
  const n = ms / size;
  const precise = n < 10 && size <= 1e3 && n !== Math.round(n);
  return `${precise ? n.toFixed(1) : Math.floor(n)} ${unit}`;
}

// Write two durations; their unit once, if it is the same.
export function durations(one, two) {
  const [first, second] = [duration(one), duration(two)];
  const unit = second.slice(second.indexOf(" "));
  return `${first.endsWith(unit) ? first.slice(0, -unit.length) : first} / ${second}`;
}

export function bytes(n) {
  if (missing(n)) return "–";
  for (const [size, unit] of [[1 << 20, "MiB"], [1 << 10, "KiB"]])
    if (n >= size) return `${(n / size).toFixed(n < 10 * size ? 1 : 0)} ${unit}`;
  return `${n} B`;
}

// Write a time as people say it: "2 min ago", "in 5 s".
export function relative(iso, now = Date.now()) {
  const ms = now - Date.parse(iso);
  if (Math.abs(ms) < 1500) return ms < 0 ? "in a moment" : "a moment ago";
  const text = duration(Math.floor(Math.abs(ms) / 1e3) * 1e3);
  return ms < 0 ? `in ${text}` : `${text} ago`;
}

// Write how long ago a time was, without "ago", in whole seconds.
export function age(iso, now = Date.now()) {
  if (missing(iso)) return "–";
  const seconds = Math.floor((now - Date.parse(iso)) / 1e3);
  return seconds < 1 ? "0 s" : duration(seconds * 1e3);
}

const two = (n) => String(n).padStart(2, "0");
export const clock = (date) => `${two(date.getHours())}:${two(date.getMinutes())}`;

// Write a time exactly, in the browser's time zone: 2026-12-24T18:00:00+01:00
export function exact(iso) {
  const date = new Date(iso);
  const offset = -date.getTimezoneOffset();
  const minutes = Math.abs(offset);
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}T${clock(date)}:${two(date.getSeconds())}` +
    `${offset < 0 ? "-" : "+"}${two(Math.floor(minutes / 60))}:${two(minutes % 60)}`;
}

// Quote an argument for a shell, if it needs quotes.
export const quoted = (text) =>
  (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${String(text).replace(/'/g, "'\\''")}'`);

// The pattern of a group of errors as mqdlq --error takes it.
export const globOf = (pattern) => pattern.replace(/[?[]/g, "\\$&");
