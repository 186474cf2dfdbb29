// Pictures in SVG. Each has a table beside it with the same numbers, for those who don't see it.

import { h, s } from "./dom.js";
import * as format from "./format.js";

const SHOWN = 8; // arms with a colour of their own; of more, the rest is one area
const HEIGHT = 220;
const EDGE = { left: 46, right: 10, top: 10, bottom: 26 };
const SMOOTH = 25; // decisions per bin, at least
const MOST_BINS = 80;
const SETTLED = 50; // pulls after which a mean does not jump any more
const ROWS = 12; // of a table beside a picture

const drawn = new Map(); // what the pointer reads, by the name of the picture

/** The arms with colours, those with the most decisions if there are many: [{number, label, colour}]. */
export function colours(arms) {
  const all = arms.length <= SHOWN;
  const most = [...arms].sort((a, b) => b.pulls - a.pulls).slice(0, all ? SHOWN : SHOWN - 1);
  const kept = new Set(most.map((arm) => arm.number));
  return arms
    .filter((arm) => kept.has(arm.number))
    .map((arm, place) => ({ number: arm.number, label: arm.label, colour: `c${place}` }));
}

export function colourOf(found, number) {
  return found.find((arm) => arm.number === number)?.colour ?? "rest";
}

/** Shares of the decisions over time, one on top of the other. */
export function sharesChart(report, width) {
  const { times, shares, perBin } = joinBins(report.series.shares, report.decisions);
  if (!times.length) return null;
  const arms = colours(report.arms);
  const rows = arms.map((arm) => ({ ...arm, values: shares.map((bin) => bin[arm.number] ?? 0) }));
  if (arms.length < report.arms.length) {
    const rest = shares.map((bin) => 1 - sum(arms.map((arm) => bin[arm.number] ?? 0)));
    rows.push({ label: `${report.arms.length - arms.length} others`, colour: "rest", values: rest });
  }
  const axis = timeAxis(times, perBin, width);
  const y = (share) => EDGE.top + (1 - share) * (HEIGHT - EDGE.top - EDGE.bottom);
  let below = shares.map(() => 0);
  const areas = rows.map((row) => {
    const above = below.map((start, bin) => start + row.values[bin]);
    const path = area(axis.xs, below.map(y), above.map(y));
    below = above;
    return s("path", { class: `area ${row.colour}`, d: path });
  });
  const name = "shares";
  drawn.set(name, { axis, rows, show: format.percent, rest: () => "" });
  return figure(name, "Shares over time", `Probability of each arm${perBin > 1 ? `, over ${format.count(perBin)} decisions at a time` : ""}.`, rows, axis, [
    ...areas, ...frame(axis, width, [0, 0.5, 1], y, (tick) => format.tick(tick, true)),
  ], width, format.percent);
}

/** Mean rewards so far over time, as lines. */
export function ratesChart(report, width) {
  const { times, pulls, so_far: rates, decisions_per_bin: perBin } = report.series.rates;
  if (!times.length) return null;
  const unit = report.rewards !== "any";
  const rows = colours(report.arms).map((arm) => ({ ...arm, values: rates.map((bin) => bin[arm.number] ?? null) }));
  const values = rows.flatMap((row) => settled(row.values, pulls.map((bin) => bin[row.number] ?? 0))).filter(format.known);
  if (!values.length) return null;
  const [low, high, ticks] = niceRange(Math.min(...values), Math.max(...values), unit);
  const axis = timeAxis(times, perBin, width);
  const y = (rate) => EDGE.top + ((high - rate) / (high - low)) * (HEIGHT - EDGE.top - EDGE.bottom);
  const lines = rows.map((row) => s("path", { class: `line ${row.colour}`, d: line(axis.xs, row.values.map((v) => (v === null ? null : y(v)))) }));
  const ends = rows.map((row) => {
    const bin = row.values.findLastIndex(format.known);
    return bin >= 0 && s("circle", { class: `end ${row.colour}`, cx: round(axis.xs[bin]), cy: round(y(row.values[bin])), r: 3 });
  });
  const clip = s("clipPath", { id: "inside" }, s("rect", { x: EDGE.left, y: EDGE.top - 2, width: Math.max(width - EDGE.left - EDGE.right + 4, 0), height: HEIGHT - EDGE.top - EDGE.bottom + 4 }));
  const show = (value) => format.rate(value, unit);
  drawn.set("rates", { axis, rows, show, rest: (row) => show(last(row.values)) });
  return figure("rates", "Mean reward so far", "Naive means, which move a lot at first.", rows, axis, [
    clip, ...frame(axis, width, ticks, y, (tick) => format.tick(tick, unit)), s("g", { "clip-path": "url(#inside)" }, lines, ends),
  ], width, show);
}

/** Means of more than a few pulls, and the last one: those of fewer would decide the scale. */
function settled(values, pulls) {
  const enough = Math.min(SETTLED, sum(pulls) / 3);
  let made = 0;
  return values.filter((_, bin) => (made += pulls[bin]) >= enough || bin === values.length - 1);
}

/** Fewer bins of more decisions: shares of a handful would jump. */
function joinBins({ times, shares, decisions_per_bin: width }, decisions) {
  const wanted = Math.min(Math.max(Math.floor(decisions / SMOOTH), 4), MOST_BINS);
  const step = Math.max(Math.ceil(times.length / wanted), 1);
  const starts = times.map((_, bin) => bin).filter((bin) => bin % step === 0);
  const joined = starts.map((start) => {
    const bins = shares.slice(start, start + step);
    return bins[0].map((_, arm) => sum(bins.map((bin) => bin[arm] ?? 0)) / bins.length);
  });
  return { times: starts.map((start) => times[start]), shares: joined, perBin: step * width };
}

function figure(name, title, told, rows, axis, parts, width, show) {
  const legend = rows.map((row) =>
    h("li", null, h("span", { class: `swatch ${row.colour}` }), h("span", { class: "label" }, row.label), " ",
      h("span", { class: "number" }, drawn.get(name).rest(row))));
  return h("figure", { class: "card", "data-key": name },
    h("figcaption", null, h("h3", null, title), h("p", { class: "told", "data-told": told }, told)),
    h("div", { class: "plot", "data-chart": name },
      s("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": `${title}. ${spoken(rows, show)}` }, parts),
      h("div", { class: "cursor", hidden: true })),
    h("ul", { class: "legend", "aria-label": "Arms" }, legend),
    table(title, rows, axis, show));
}

function spoken(rows, show) {
  return `Latest: ${rows.map((row) => `${row.label} ${show(last(row.values))}`).join(", ")}.`;
}

function table(title, rows, axis, show) {
  const bins = axis.xs.length;
  const step = Math.max(Math.ceil(bins / ROWS), 1);
  const places = Array.from({ length: bins }, (_, bin) => bin).filter((bin) => (bins - 1 - bin) % step === 0);
  return h("details", null, h("summary", null, "Show as a table"),
    h("div", { class: "wide", tabindex: "0", role: "region", "aria-label": `${title}, as a table` }, h("table", null,
      h("thead", null, h("tr", null, h("th", { scope: "col" }, axis.name), rows.map((row) => h("th", { scope: "col", class: "number" }, row.label)))),
      h("tbody", null, places.map((bin) => h("tr", null, h("th", { scope: "row" }, axis.tell(bin)),
        rows.map((row) => h("td", { class: "number" }, show(row.values[bin])))))))));
}

/** Positions of the bins, and ticks; by number of decisions where times are not known. */
function timeAxis(times, perBin, width) {
  const timed = times.every(format.known) && last(times) > times[0];
  const at = timed ? times : times.map((_, bin) => (bin + 1) * perBin);
  const [first, end] = [at[0], last(at)];
  const inner = Math.max(width - EDGE.left - EDGE.right, 1);
  const x = (value) => EDGE.left + (end > first ? (value - first) / (end - first) : 1) * inner;
  const most = Math.max(Math.floor(inner / 72), 1);
  const ticks = end > first ? (timed ? timeTicks(first, end, most) : niceTicks(first, end, most).map((tick) => [tick, format.count(tick)])) : [];
  return {
    xs: at.map(x),
    ticks: ticks.map(([value, label]) => [x(value), label]),
    name: timed ? "Time" : "Decisions",
    tell: (bin) => (timed ? (end - first < 7200 ? format.clock(1000 * at[bin]) : format.moment(at[bin])) : format.count(at[bin])),
  };
}

const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 259200, 432000, 604800, 1209600, 2592000, 7776000, 31536000];
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const MINUTE = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });

function timeTicks(first, end, most) {
  const step = STEPS.find((found) => (end - first) / found <= most) ?? last(STEPS);
  const zone = -60 * new Date(1000 * end).getTimezoneOffset();
  const ticks = [];
  for (let local = Math.ceil((first + zone) / step) * step; local - zone <= end; local += step) {
    const time = local - zone;
    const label = local % 86400 === 0 ? DAY.format(1000 * time) : step < 60 ? format.clock(1000 * time) : MINUTE.format(1000 * time);
    ticks.push([time, label]);
  }
  return ticks;
}

function niceTicks(low, high, most) {
  const raw = (high - low) / Math.max(most, 1);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= raw);
  const ticks = [];
  for (let tick = Math.ceil(low / step - 1e-9) * step; tick <= high + 1e-9 * step; tick += step) ticks.push(Number(tick.toPrecision(12)));
  return ticks;
}

function niceRange(low, high, unit) {
  if (high - low < 1e-12) [low, high] = [low - (Math.abs(low) || 1) / 10, high + (Math.abs(high) || 1) / 10];
  const margin = (high - low) / 8;
  const from = unit ? Math.max(low - margin, 0) : low - margin;
  const to = unit ? Math.min(high + margin, 1) : high + margin;
  return [from, to, niceTicks(from, to, 4)];
}

function frame(axis, width, ticks, y, tell) {
  const across = ticks.map((tick) => [
    s("line", { class: "grid", x1: EDGE.left, x2: width - EDGE.right, y1: y(tick), y2: y(tick) }),
    s("text", { class: "tick", x: EDGE.left - 8, y: y(tick) + 4, "text-anchor": "end" }, tell(tick)),
  ]);
  const roomy = axis.ticks.filter(([x]) => x > EDGE.left + 12 && x < width - EDGE.right - 12);
  const along = roomy.map(([x, label]) => [
    s("line", { class: "mark", x1: x, x2: x, y1: HEIGHT - EDGE.bottom, y2: HEIGHT - EDGE.bottom + 5 }),
    s("text", { class: "tick", x, y: HEIGHT - 6, "text-anchor": "middle" }, label),
  ]);
  return [...across, ...along];
}

function area(xs, lower, upper) {
  const wide = xs.length > 1 ? xs : [EDGE.left, xs[0]];
  const [low, high] = xs.length > 1 ? [lower, upper] : [[lower[0], lower[0]], [upper[0], upper[0]]];
  const there = wide.map((x, place) => `${round(x)} ${round(high[place])}`);
  const back = wide.map((x, place) => `${round(x)} ${round(low[place])}`).reverse();
  return `M${there.join("L")}L${back.join("L")}Z`;
}

function line(xs, ys) {
  let path = "";
  let pen = "M";
  xs.forEach((x, place) => {
    if (ys[place] === null) pen = "M";
    else {
      path += `${pen}${round(x)} ${round(ys[place])}`;
      pen = "L";
    }
  });
  return path || "M0 0";
}

/** What all rows of intervals have in common: a scale that shows the estimates well. */
export function scaleOf(arms, unit) {
  const enough = arms.filter((arm) => arm.pulls >= SETTLED);
  const shown = (enough.length ? enough : arms).filter((arm) => arm.estimate && arm.interval?.every(format.known));
  if (!shown.length) return null;
  const [least, most] = unit ? [0, 1] : [-Infinity, Infinity];
  const low = Math.min(...shown.flatMap((arm) => [arm.interval[0], arm.estimate.mean]));
  const high = Math.max(...shown.flatMap((arm) => [arm.interval[1], arm.estimate.mean]));
  const room = Math.max(high - low, 1e-9) * 0.35;
  const always = shown.flatMap((arm) => arm.always_valid).filter(format.known);
  return {
    low: Math.max(least, low - room, Math.min(low, ...always)),
    high: Math.min(most, high + room, Math.max(high, ...always)),
    best: Math.max(...shown.filter((arm) => arm.active).map((arm) => arm.estimate.mean)), // -Infinity if there is none
  };
}

/** An arm's estimate: a dot; its interval: a thick bar; the always-valid one: a thin line. */
export function intervalPicture(arm, { low, high, best }, colour) {
  const wide = 200;
  const x = (value) => round(7 + Math.min(Math.max((value - low) / (high - low || 1), 0), 1) * (wide - 14));
  const inside = (value) => value >= low && value <= high;
  const bar = (name, ends) => ends?.every(format.known) && ends[1] >= low && ends[0] <= high &&
    s("line", { class: `${name} ${colour}`, x1: x(ends[0]), x2: x(ends[1]), y1: 12, y2: 12 });
  return s("svg", { class: "interval", viewBox: `0 0 ${wide} 24`, "aria-hidden": "true" },
    inside(best) && s("line", { class: "best", x1: x(best), x2: x(best), y1: 0, y2: 24 }),
    arm.pulls > 0 && bar("always", arm.always_valid),
    bar("fixed", arm.interval),
    arm.estimate && inside(arm.estimate.mean) && s("circle", { class: `dot ${colour}`, cx: x(arm.estimate.mean), cy: 12, r: 4.5 }));
}

let pointer = null; // where it was last: {plot, x}

/** Shows the numbers below the pointer in the legend. */
export function readPointer(event) {
  const plot = event.target.closest?.("[data-chart]");
  if (pointer && pointer.plot !== plot) leave(pointer.plot);
  pointer = plot ? { plot, x: event.clientX } : null;
  keepReading();
}

/** Shows them again after the picture was drawn anew. */
export function keepReading() {
  const found = pointer?.plot.isConnected && drawn.get(pointer.plot.dataset.chart);
  if (!found) return;
  const { plot } = pointer;
  const box = plot.getBoundingClientRect();
  const scale = plot.querySelector("svg").viewBox.baseVal.width / box.width;
  const bin = nearest(found.axis.xs, (pointer.x - box.left) * scale);
  const cursor = plot.querySelector(".cursor");
  cursor.hidden = false;
  cursor.style.left = `${found.axis.xs[bin] / scale}px`;
  tell(plot, found.axis.tell(bin), found.rows.map((row) => found.show(row.values[bin])));
}

function leave(plot) {
  const found = drawn.get(plot.dataset.chart);
  plot.querySelector(".cursor").hidden = true;
  tell(plot, plot.parentElement.querySelector("[data-told]").dataset.told, found.rows.map(found.rest));
}

function tell(plot, caption, numbers) {
  plot.parentElement.querySelector("[data-told]").textContent = caption;
  plot.parentElement.querySelectorAll(".legend .number").forEach((place, row) => {
    place.textContent = numbers[row] ?? "";
  });
}

function nearest(xs, at) {
  return xs.reduce((best, x, place) => (Math.abs(x - at) < Math.abs(xs[best] - at) ? place : best), 0);
}

const round = (value) => Math.round(10 * value) / 10;
const last = (list) => list[list.length - 1];
const sum = (list) => list.reduce((total, value) => total + value, 0);
