// One test: the advice, its numbers, pictures, arms, checks, settings and history.

import { colourOf, colours, intervalPicture, ratesChart, scaleOf, sharesChart } from "./charts.js";
import { h } from "./dom.js";
import * as format from "./format.js";
import { chip } from "./list.js";

const MISMATCH = 0.01; // a p-value below which the numbers are not to be trusted
const MOST_ARMS = 50; // at first
const TWO_COLUMNS = 820; // pixels, as in board.css
const NARROWEST = 200; // pixels of a picture

/** Everything about a test; `report` is null until it has come. */
export function detailView({ test, report, reportError, policies, perSecond, admin, width, allArms }) {
  const columns = width >= TWO_COLUMNS ? 2 : 1;
  const inner = Math.max(Math.floor((width - (columns - 1) * 20) / columns - 42), NARROWEST);
  return [
    h("nav", { "aria-label": "Breadcrumb", class: "back", "data-key": "back" }, h("a", { href: "#/" }, "← All tests")),
    h("div", { class: "title", "data-key": "title" },
      h("div", { class: "name" }, h("h1", { tabindex: "-1" }, test.key), chip(test.status)),
      actions(test, admin)),
    reportError ? problem(reportError) : report ? advice(test, report) : h("p", { class: "card loading", "data-key": "advice" }, "The report is on its way …"),
    tiles(test, report, perSecond),
    report && charts(report, inner),
    arms(test, report, admin, allArms),
    report?.decisions > 0 && checks(report),
    report?.decisions > 0 && notes(report),
    settings(test, policies),
    history(test),
  ];
}

function actions(test, admin) {
  if (!admin) return h("p", { class: "told readonly" }, "Read only: changes need the role admin.");
  const button = (name, label, kind) => h("button", { type: "button", class: kind, "data-do": "act", "data-action": name, "data-key": name }, label);
  const open = test.status !== "ended";
  return h("div", { class: "actions", role: "group", "aria-label": "Change this test" },
    test.status === "created" && button("start", "Start", "primary"),
    test.status === "paused" && button("start", "Resume", "primary"),
    test.status === "running" && button("pause", "Pause"),
    open && button("add", "Add arm"),
    open && button("end", "End", "danger"));
}

function problem(error) {
  return h("section", { class: "card advice cant", "data-key": "advice" }, h("h2", null, "There is no report right now"), h("p", null, error));
}

function advice(test, report) {
  if (!report.decisions && test.status !== "ended") return beginning(test);
  const [head, rest] = splitAdvice(report);
  const kind = { stop: "stop", "go on": "go" }[report.advice] ?? "cant";
  return h("section", { class: `card advice ${kind}`, "data-key": "advice", "aria-labelledby": "advice" },
    h("p", { class: "eyebrow", id: "advice" }, "May we stop?"),
    h("p", { class: "sentence" }, h("strong", null, head), rest));
}

/** What to do before there is anything to report. */
function beginning(test) {
  const told = {
    created: ["Not started:", " it makes no decisions yet."],
    running: ["Running:", " it waits for its first decision."],
    paused: ["Paused:", " it has made no decisions so far."],
  }[test.status];
  const route = (name) => h("code", null, `POST /v1/tests/${test.key}/${name}`);
  return h("section", { class: "card advice go", "data-key": "advice", "aria-labelledby": "advice" },
    h("p", { class: "eyebrow", id: "advice" }, "What next?"),
    h("p", { class: "sentence" }, h("strong", null, told[0]), told[1]),
    h("p", { class: "told" }, "Clients ask for a decision with ", route("decide"), " and send its reward with ", route("reward"), "."));
}

/** "Go on: red leads …" as "Go on:" and " red leads …". */
export function splitAdvice(report) {
  const at = report.sentence.indexOf(": ");
  const known = at > 0 && report.sentence.slice(0, at).toLowerCase() === report.advice;
  return known ? [report.sentence.slice(0, at + 1), report.sentence.slice(at + 1)] : ["", report.sentence];
}

function tiles(test, report, perSecond) {
  const tile = (label, value, told, kind) => h("div", { class: kind, "data-key": label }, h("dt", null, label), h("dd", { class: "value" }, value), h("dd", { class: "told" }, told));
  const counts = report ? `${format.count(report.counted)} count in the report` : "";
  return h("dl", { class: "tiles", "data-key": "tiles" },
    tile("Decisions", format.count(test.decisions), test.status === "running" && perSecond > 0 ? `${format.traffic(perSecond)} now` : counts),
    tile("Rewards", format.count(test.rewards), `${format.count(test.waiting)} waiting`),
    gain(report, tile));
}

function gain(report, tile) {
  const label = "Gain against an equal split";
  const value = report?.value;
  const found = value?.gain?.dr;
  if (!format.known(found?.mean) || !format.known(found?.se)) return tile(label, "–", "Known after the first rewards of all arms", "gain");
  const unit = report.rewards !== "any";
  const total = format.withError(found.mean * value.decisions, found.se * value.decisions, false, true);
  const told = `${format.rate(value.played.mean, unit)} per decision instead of ${format.rate(value.split.dr.mean, unit)}; ± is one standard error`;
  const sure = Math.abs(found.mean) > 2 * found.se;
  return tile(label, [total, h("span", { class: "of" }, " rewards")], told, `gain ${sure ? (found.mean > 0 ? "up" : "down") : ""}`);
}

function charts(report, width) {
  const found = [sharesChart(report, width), ratesChart(report, width)].filter(Boolean);
  if (!found.length) return null;
  return h("div", { class: "charts", "data-key": "charts" }, h("h2", { class: "hidden" }, "Over time"), found);
}

/** One row per arm, with what the report says of it where there is one. */
function arms(test, report, admin, all) {
  const rows = test.arms.map((arm, number) => {
    const told = report?.arms.find((row) => row.number === number) ?? null;
    return { ...arm, number, told };
  });
  const known = rows.flatMap((arm) => arm.told ?? []);
  const unit = report?.rewards !== "any";
  const scale = scaleOf(known, unit);
  const shared = {
    unit,
    scale,
    colours: colours(known),
    ended: test.status === "ended",
    retire: admin && test.status !== "ended" && rows.filter((arm) => !arm.retired).length > 1,
  };
  const shown = all || rows.length <= MOST_ARMS ? rows : [...rows].sort((a, b) => (b.told?.pulls ?? 0) - (a.told?.pulls ?? 0)).slice(0, MOST_ARMS);
  const level = report ? `${Math.round(100 * report.confidence)}\u202f%` : "95\u202f%";
  const column = (label, number) => h("th", { scope: "col", role: "columnheader", class: number ? "number" : null, "data-key": label }, label);
  return h("section", { class: "card", "data-key": "arms" }, h("h2", null, "Arms"),
    h("table", { class: "stacks arms", role: "table", "aria-label": "Arms" },
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" },
        column("Arm"), column("Share now", true), column("Decisions", true), column("Mean reward", true),
        h("th", { class: "picture", "aria-hidden": "true", "data-key": "picture" }),
        column(`${level} interval`, true), column("Always valid", true), column("P(best)", true),
        shared.retire && h("th", { scope: "col", role: "columnheader", "data-key": "change" }, h("span", { class: "hidden" }, "Change")))),
      h("tbody", { role: "rowgroup" }, shown.map((arm) => armRow(arm, shared, level)))),
    shown.length < rows.length && h("p", { class: "more" }, h("button", { type: "button", "data-do": "all-arms" }, `Show all ${format.count(rows.length)} arms`)),
    scale && h("p", { class: "told key" },
      "Dot: estimate that corrects for the changing shares (AIPW). Thick bar: its interval, for one look at a time fixed in advance. ",
      "Thin line: always valid, however often you look. Dashed: the highest estimate."));
}

function armRow(arm, shared, level) {
  const { told } = arm;
  const { unit } = shared;
  const cell = (label, ...content) => h("td", { role: "cell", "data-label": label, class: "number" }, content);
  const colour = colourOf(shared.colours, arm.number);
  const share = shared.ended ? null : arm.retired ? 0 : arm.share;
  return h("tr", { role: "row", class: arm.retired ? "retired" : null, "data-key": `arm ${arm.number}` },
    h("th", { scope: "row", role: "rowheader" }, h("span", { class: `swatch ${colour}` }), h("span", { class: "label" }, arm.label),
      arm.retired && h("span", { class: "chip ended" }, "Retired")),
    cell("Share now", format.percent(share)),
    cell("Decisions", told ? format.count(told.pulls) : "–"),
    cell("Mean reward", told?.estimate ? format.withError(told.estimate.mean, told.estimate.se, unit) : "–",
      format.known(told?.naive) && h("span", { class: "naive" }, `naive ${format.rate(told.naive, unit)}`)),
    h("td", { role: "presentation", class: "picture" }, told && shared.scale && intervalPicture(told, shared.scale, colour)),
    cell(`${level} interval`, format.span(told?.interval, unit)),
    cell("Always valid", told?.pulls ? format.span(told.always_valid, unit) : "–"),
    cell("P(best)", arm.retired ? "–" : format.percent(told?.best)),
    shared.retire && h("td", { role: "cell", class: "change" }, !arm.retired && h("button", {
      type: "button", class: "small", "data-do": "act", "data-action": "retire", "data-label": arm.label, "aria-label": `Retire ${arm.label}`,
    }, "Retire")));
}

function checks(report) {
  return h("section", { class: "card", "data-key": "checks" }, h("h2", null, "Checks"),
    check(report, report.allocation, "Arms were chosen as often as their logged probabilities say",
      "Arms were not chosen as often as their logged probabilities say: find out why before you trust these numbers"),
    check(report, report.feedback, "Rewards come equally often for all arms",
      "Rewards come for some arms more often than for others: are zeros not reported, or rewards lost?"));
}

function check(report, found, good, bad) {
  if (!found) return null;
  const total = found.observed.reduce((sum, value) => sum + value, 0);
  if (!total) return null;
  const fine = found.p_value >= MISMATCH;
  const p = found.p_value < 1e-4 ? "p\u00a0<\u00a00.0001" : `p\u00a0=\u00a0${Number(found.p_value.toPrecision(2))}`;
  const number = (value) => h("td", { class: "number" }, value);
  return h("div", { class: `check ${fine ? "fine" : "bad"}` },
    h("p", null, h("span", { class: "mark", "aria-hidden": "true" }, fine ? "✓" : "!"), `${fine ? good : bad} (${p}).`),
    h("details", null, h("summary", null, "Show observed and expected decisions"),
      h("div", { class: "wide", tabindex: "0", role: "region", "aria-label": fine ? good : bad }, h("table", null,
        h("thead", null, h("tr", null, ["Arm", "Observed", "Expected", "z"].map((name, place) => h("th", { scope: "col", class: place ? "number" : null }, name)))),
        h("tbody", null, report.arms.map((arm) => h("tr", null, h("th", { scope: "row" }, arm.label),
          number(format.count(found.observed[arm.number] ?? 0)), number(format.count(found.expected[arm.number] ?? 0)),
          number(format.known(found.z[arm.number]) ? found.z[arm.number].toFixed(2).replace("-", "\u2212") : "–"))))))));
}

function notes(report) {
  if (!report.notes.length) return null;
  return h("section", { class: "card", "data-key": "notes" }, h("h2", null, "Notes"),
    h("ul", { class: "notes" }, report.notes.map((note) => h("li", null, note))),
    h("p", { class: "downloads" }, "Download the report: ",
      ["html", "csv", "json"].map((kind) => h("button", { type: "button", class: "small", "data-do": "download", "data-format": kind }, kind.toUpperCase()))));
}

function settings(test, policies) {
  const given = test.settings ?? {};
  const policy = policies.find((found) => found.fingerprint === test.policy);
  const rows = [
    ["Policy", [policy && `${policy.name} `, h("code", null, test.policy)]],
    ["Wait for rewards", format.duration(given.wait)],
    format.known(given.default) && given.wait !== null && ["Reward after that", String(given.default)],
    ["Floor of every arm", format.percent(given.floor ?? 0)],
    given.control && ["Control", `${given.control}, at least ${format.percent(given.control_share ?? 0)}`],
    format.known(given.cap) && given.cap < 1 && ["Cap", format.percent(given.cap)],
    format.known(given.seed) && ["Seed", h("code", null, String(given.seed))],
  ].filter(Boolean);
  return h("section", { class: "card", "data-key": "settings" }, h("h2", null, "Settings"),
    h("dl", { class: "settings" }, rows.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value)))));
}

const DONE = { create: "created the test", start: "started it", pause: "paused it", end: "ended it", add: "added", retire: "retired", swap: "changed the policy to" };

function history(test) {
  const changes = [...(test.history ?? [])].reverse();
  if (!changes.length) return null;
  return h("section", { class: "card", "data-key": "history" }, h("h2", null, "History"),
    h("ol", { class: "history" }, changes.map((change) => h("li", null,
      h("time", { datetime: new Date(1000 * change.t).toISOString() }, format.moment(change.t)),
      h("p", null, h("b", null, change.actor), ` ${DONE[change.action] ?? change.action}`, change.detail && [" ", h("b", null, change.detail)],
        change.reason && h("q", null, change.reason))))));
}
