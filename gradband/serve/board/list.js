// All tests: their state and their traffic.

import { h } from "./dom.js";
import * as format from "./format.js";

export const STATES = { created: "Not started", running: "Running", paused: "Paused", ended: "Ended" };
const PAGE = 100; // tests that are shown at once
const SEARCH_FROM = 8;
const WINDOW = 30; // seconds over which traffic is measured

export function chip(status) {
  return h("span", { class: `chip ${status}` }, STATES[status] ?? status);
}

/** How many decisions per second each test makes, from its counts at two times. */
export class Traffic {
  #seen = new Map();

  note(tests, now = Date.now() / 1000) {
    for (const { key, decisions } of tests) {
      const seen = this.#seen.get(key) ?? [];
      if (seen.length && decisions < seen[seen.length - 1].decisions) seen.length = 0;
      seen.push({ now, decisions });
      while (seen.length > 2 && seen[1].now < now - WINDOW) seen.shift();
      this.#seen.set(key, seen);
    }
  }

  /** Decisions per second, or nothing if that is not known yet. */
  of(key, now = Date.now() / 1000) {
    const seen = this.#seen.get(key) ?? [];
    const recent = seen.filter((sample) => sample.now >= now - WINDOW);
    const first = seen[Math.max(seen.length - recent.length - 1, 0)];
    if (!first || now - first.now < 2) return null;
    const made = seen[seen.length - 1].decisions - first.decisions;
    return made / Math.max(Math.min(now - first.now, 2 * WINDOW), 2);
  }
}

export function listView({ tests, traffic, filter, admin }) {
  const order = ["running", "paused", "created", "ended"];
  const found = tests.filter((test) => matches(test, filter)).sort((a, b) => order.indexOf(a.status) - order.indexOf(b.status));
  const running = tests.filter((test) => test.status === "running").length;
  return [
    h("div", { class: "title", "data-key": "title" },
      h("div", null,
        h("h1", { tabindex: "-1" }, "Tests"),
        tests.length > 0 && h("p", { class: "told" }, `${format.counted(tests.length, "test")}, ${format.count(running)} running`)),
      admin && h("button", { type: "button", class: "primary", "data-do": "create" }, "New test")),
    tests.length === 0 ? nothing(admin) : [
      tools(tests, filter),
      found.length === 0
        ? h("p", { class: "empty", "data-key": "none" }, "No test matches. Change the filter or the search.")
        : table(found.slice(0, filter.most), traffic),
      found.length > filter.most && h("p", { class: "more", "data-key": "more" },
        h("button", { type: "button", "data-do": "more" }, `Show more of ${format.count(found.length)} tests`)),
    ],
  ];
}

function nothing(admin) {
  return h("div", { class: "empty card", "data-key": "empty" },
    h("h2", null, "There are no tests yet"),
    admin
      ? h("p", null, "Create one with the button above. To play a policy that you have learned, upload it first:")
      : h("p", null, "Someone with the role admin can create one. To play a policy that was learned, upload it first:"),
    h("pre", { tabindex: "0", "aria-label": "A command that uploads a policy" }, h("code", null,
      "curl -H \"Authorization: Bearer $TOKEN\" --data-binary @policy.safetensors \\\n" +
      "  -H \"Content-Type: application/octet-stream\" \\\n" +
      `  ${location.origin}/v1/policies`)));
}

function tools(tests, filter) {
  const counts = { all: tests.length };
  for (const { status } of tests) counts[status] = (counts[status] ?? 0) + 1;
  const choice = (name, label) => h("button", {
    type: "button", "data-do": "filter", "data-status": name, "aria-pressed": String(filter.status === name), "data-key": name,
  }, label, " ", h("span", { class: "number" }, format.count(counts[name] ?? 0)));
  return h("div", { class: "tools", "data-key": "tools" },
    h("div", { class: "choices", role: "group", "aria-label": "Show tests by state" },
      choice("all", "All"), Object.entries(STATES).filter(([name]) => counts[name]).map(([name, label]) => choice(name, label))),
    tests.length >= SEARCH_FROM && h("label", { class: "search", "data-key": "search" },
      h("span", { class: "hidden" }, "Search by name"),
      h("input", { type: "search", placeholder: "Search", "data-input": "search", autocomplete: "off", spellcheck: "false" })));
}

function table(tests, traffic) {
  const column = (label, number) => h("th", { scope: "col", role: "columnheader", class: number ? "number" : null }, label);
  return h("div", { class: "card", "data-key": "table" }, h("table", { class: "stacks tests", role: "table", "aria-label": "Tests" },
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, column("Test"), column("State"), column("Arms", true), column("Traffic", true),
      column("Decisions", true), column("Rewards", true), column("Waiting", true))),
    h("tbody", { role: "rowgroup" }, tests.map((test) => row(test, traffic.of(test.key))))));
}

function row(test, perSecond) {
  const cell = (label, ...content) => h("td", { role: "cell", "data-label": label, class: label === "State" ? null : "number" }, content);
  const active = test.arms.filter((arm) => !arm.retired).length;
  return h("tr", { role: "row", "data-key": `test ${test.key}` },
    h("th", { scope: "row", role: "rowheader" }, h("a", { href: `#/tests/${encodeURIComponent(test.key)}` }, test.key)),
    cell("State", chip(test.status)),
    cell("Arms", active === test.arms.length ? format.count(active) : `${format.count(active)} of ${format.count(test.arms.length)}`),
    cell("Traffic", test.status === "running" ? format.traffic(perSecond) : "–"),
    cell("Decisions", format.count(test.decisions)),
    cell("Rewards", format.count(test.rewards)),
    cell("Waiting", format.count(test.waiting)));
}

function matches(test, filter) {
  const state = filter.status === "all" || test.status === filter.status;
  return state && test.key.toLowerCase().includes(filter.search.trim().toLowerCase());
}

export const newFilter = () => ({ status: "all", search: "", most: PAGE });
export { PAGE };
