// The board: which view is shown, what it knows, and what the user does. Everything comes from the HTTP API.

import { ApiError, ask, pathOf, send, token } from "./api.js";
import { keepReading, readPointer } from "./charts.js";
import { detailView, splitAdvice } from "./detail.js";
import { actionOf, closeDialog, creation, openDialog, submitDialog } from "./dialogs.js";
import { h, render } from "./dom.js";
import * as format from "./format.js";
import { STATES, Traffic, listView, newFilter, PAGE } from "./list.js";
import { Live } from "./live.js";

const LEAST_PAUSE = 1000; // milliseconds between two looks at the service
const RETRY = 3000; // after a request without an answer
const TICK = 5000; // until traffic and times are shown anew
const [header, banner, main, announcer] = ["header", "banner", "main", "announcer"].map((id) => document.getElementById(id));

const board = {
  me: null, // {name, role}
  policies: [],
  tests: null,
  test: null,
  report: null,
  reportError: null,
  missing: null, // why there is nothing to show
  connection: "connecting",
  updated: null,
  filter: newFilter(),
  allArms: false, // or those with the most decisions
  traffic: new Traffic(),
};
const live = new Live((keys) => refreshIfChanged(keys), setConnection, refuse);
let looking = false; // at the service, now
let again = false; // look once more afterwards
let timer = 0;
let turn = 0; // grows with every route, so that late answers are dropped

function route() {
  const match = /^#\/tests\/([^/]+)$/.exec(location.hash);
  try {
    return match ? decodeURIComponent(match[1]) : null;
  } catch {
    return match[1];
  }
}

const isAdmin = () => board.me?.role === "admin";

// What is shown

function show() {
  const key = route();
  document.title = board.me && key ? `${key} – gradband` : "gradband";
  render(header, headerView());
  if (!board.me) return;
  const width = main.clientWidth - 2 * parseFloat(getComputedStyle(main).paddingLeft);
  if (board.missing) render(main, missingView(key));
  else if (key === null) render(main, board.tests ? listView({ ...board, admin: isAdmin() }) : loading());
  else if (board.test?.key === key) render(main, detailView({ ...board, perSecond: board.traffic.of(key), admin: isAdmin(), width }));
  else render(main, loading());
  keepReading();
}

const loading = () => h("p", { class: "empty", "data-key": "loading" }, "Loading …");

function headerView() {
  const words = { live: "Live", polling: "Live", connecting: "Connecting", lost: "Reconnecting" };
  return h("div", { class: "bar" },
    h("a", { class: "brand", href: "#/" }, h("img", { src: "board/icon.svg", alt: "", width: 24, height: 24 }), "gradband"),
    board.me && h("div", { class: "who" },
      h("span", { class: `connection ${board.connection}`, title: board.updated ? `Last update at ${format.clock(board.updated)}` : null }, h("span", { class: "word" }, words[board.connection])),
      h("span", { class: "me" }, h("span", { class: "label" }, board.me.name), h("span", { class: "role" }, board.me.role)),
      h("button", { type: "button", class: "small", "data-do": "sign-out" }, "Sign out")));
}

function missingView(key) {
  return h("div", { class: "empty card", "data-key": "missing" },
    h("h1", { tabindex: "-1" }, board.missing.status === 404 ? `There is no test ${key}` : "This cannot be shown"),
    h("p", null, board.missing.status === 404 ? "It may have another name, or belong to another service." : board.missing.message),
    h("p", null, h("a", { href: "#/" }, "Show all tests")));
}

function signInView(told = "") {
  render(main, h("form", { class: "card sign-in", "data-form": "sign-in", "data-key": "sign-in" },
    h("h1", { tabindex: "-1" }, "Sign in"),
    h("p", null, "Enter a token with the role read, or admin to change tests."),
    h("div", { class: "field" }, h("label", { for: "token" }, "Token"),
      h("input", { id: "token", name: "token", type: "password", autocomplete: "off", spellcheck: "false", required: true, "aria-describedby": "token-told" })),
    h("p", { class: "error", role: "alert" }, told),
    h("button", { type: "submit", class: "primary" }, "Sign in"),
    h("p", { class: "told", id: "token-told" }, "It is kept in this tab until you sign out or close it. The operator of the service creates one with ",
      h("code", null, "gradband serve token --role read --db …"))));
  document.getElementById("token").focus();
}

function setBanner(text) {
  render(banner, text && h("p", null, text));
}

function announce(text) {
  announcer.textContent = text;
}

function setConnection(state) {
  if (state === "lost" && board.connection !== "lost") {
    const seen = board.updated ? ` The numbers below are from ${format.clock(board.updated)}.` : "";
    setBanner(`The service does not answer. The board tries again by itself.${seen}`);
  } else if (state !== "lost") setBanner("");
  board.connection = state;
  show();
}

// What is known

/** Looks at the service unless what has changed is not shown. */
function refreshIfChanged(keys) {
  const key = route();
  if (keys === null || key === null || keys.includes(key)) refresh();
}

function refresh() {
  if (!board.me || document.hidden) return;
  if (looking || timer) {
    again = true;
    return;
  }
  look();
}

async function look() {
  looking = true;
  again = false;
  const started = performance.now();
  const mine = turn;
  try {
    await (route() === null ? lookAtList(mine) : lookAtTest(route(), mine));
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    if (mine === turn) failed(error);
  } finally {
    looking = false;
    const took = performance.now() - started;
    timer = setTimeout(() => {
      timer = 0;
      if (again) refresh();
    }, mine === turn ? Math.max(LEAST_PAUSE, 3 * took) : 0);
  }
}

async function lookAtList(mine) {
  const { tests } = await ask("v1/tests");
  if (mine !== turn) return;
  board.traffic.note(tests);
  Object.assign(board, { tests, missing: null });
  succeeded();
}

/** The test is shown at once, its report when it has been computed. */
async function lookAtTest(key, mine) {
  const reporting = ask(`${pathOf(key)}/report`).catch((error) => error);
  const test = await ask(pathOf(key));
  const named = board.policies.some((policy) => policy.fingerprint === test.policy);
  const policies = named ? board.policies : (await ask("v1/policies")).policies;
  if (mine !== turn) return;
  const before = board.test;
  board.traffic.note([test]);
  Object.assign(board, { test, policies, missing: null });
  succeeded();
  if (before && before.status !== test.status) announce(`${key} is now ${STATES[test.status].toLowerCase()}.`);
  const report = await reporting;
  if (mine === turn) takeReport(report);
}

function takeReport(report) {
  if (report instanceof ApiError) {
    if (report.status === 401) throw report;
    board.reportError = report.message;
    again = true;
  } else {
    const before = board.report?.advice;
    Object.assign(board, { report, reportError: null });
    if (before && before !== report.advice) announce(`New advice. ${splitAdvice(report).join("")}`);
  }
  show();
}

function succeeded() {
  board.updated = new Date();
  if (board.connection === "lost") board.connection = "polling"; // it answers, whatever the stream does
  setBanner("");
  show();
}

function failed(error) {
  if (error.status === 401 || error.status === 403) refuse(error);
  else if (error.status === 404 || error.status === 422) {
    board.missing = error;
    show();
  } else if (error.status === 0) {
    setConnection("lost");
    setTimeout(refresh, RETRY);
  } else {
    setBanner(`${error.message} The board tries again by itself.`);
    again = true;
  }
}

// Signing in and out

async function signIn(text, fresh) {
  let me;
  try {
    me = await ask("v1/me", { text });
  } catch (error) {
    const told = refusal(error);
    if (!fresh && error.status !== 401 && error.status !== 403) {
      setBanner(`${error.message} The board tries again by itself.`);
      setTimeout(() => signIn(text, fresh), RETRY);
      return;
    }
    signOut(told);
    return;
  }
  token.keep(text);
  board.me = me;
  setBanner("");
  if (fresh) announce(`Signed in as ${me.name}, with the role ${me.role}.`);
  changeRoute(fresh);
  live.start();
}

function refusal(error) {
  if (error.status === 401) return "This token is not valid. It may be mistyped or revoked.";
  if (error.status === 403) return "This token may not see tests: its role is decide. Use one with the role read or admin.";
  return error.message;
}

function refuse(error) {
  signOut(error.status === 401 ? "You were signed out: the token is not valid any more." : refusal(error));
}

function signOut(told = "") {
  token.forget();
  live.stop();
  closeDialog();
  turn += 1;
  Object.assign(board, { me: null, tests: null, test: null, report: null, reportError: null, missing: null, connection: "connecting", updated: null });
  board.traffic = new Traffic();
  setBanner("");
  show();
  signInView(told);
}

// What the user does

function changeRoute(focus = true) {
  turn += 1;
  closeDialog();
  clearTimeout(timer);
  timer = 0;
  Object.assign(board, { test: null, report: null, reportError: null, missing: null, allArms: false });
  if (!board.me) return;
  show();
  scrollTo(0, 0);
  look().then(() => {
    if (focus) main.querySelector("h1")?.focus({ preventScroll: true });
  });
}

async function newTest() {
  const { policies } = await ask("v1/policies");
  openDialog(creation(policies), (test) => {
    closeDialog();
    location.hash = `#/tests/${encodeURIComponent(test.key)}`;
  });
}

function act(button) {
  openDialog(actionOf(button.dataset.action, board.test, button.dataset.label), async (_, done) => {
    closeDialog();
    clearTimeout(timer);
    timer = 0;
    await look();
    announce(done);
    if (document.activeElement === document.body) main.querySelector("h1")?.focus({ preventScroll: true });
  });
}

async function download(kind) {
  const { key } = board.test;
  const response = await send(`${pathOf(key)}/report?format=${kind}`);
  const address = URL.createObjectURL(await response.blob());
  h("a", { href: address, download: `${key}.${kind}` }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

const DOES = {
  act,
  "all-arms": () => (board.allArms = true) && show(),
  cancel: closeDialog,
  create: newTest,
  download: (button) => download(button.dataset.format),
  filter: (button) => Object.assign(board.filter, { status: button.dataset.status, most: PAGE }) && show(),
  more: () => (board.filter.most += PAGE) && show(),
  "sign-out": () => signOut(),
  skip: () => main.focus(),
};

document.addEventListener("click", async (event) => {
  const button = event.target.closest?.("[data-do]");
  if (!button) return;
  event.preventDefault();
  try {
    await DOES[button.dataset.do](button);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    if (error.status === 401) refuse(error);
    else setBanner(error.message);
  }
});

document.addEventListener("submit", (event) => {
  event.preventDefault();
  const form = event.target;
  if (form.dataset.form === "dialog") submitDialog(form);
  else signIn(new FormData(form).get("token").trim(), true);
});

document.addEventListener("input", (event) => {
  if (event.target.dataset.input !== "search") return;
  Object.assign(board.filter, { search: event.target.value, most: PAGE });
  show();
});

document.addEventListener("visibilitychange", () => {
  if (!board.me) return;
  if (document.hidden) live.stop();
  else live.start();
});

document.addEventListener("pointermove", readPointer);
document.addEventListener("pointerdown", readPointer);
addEventListener("hashchange", () => changeRoute());
addEventListener("resize", () => board.me && show());
setInterval(() => board.me && !document.hidden && show(), TICK);

show();
if (token.read()) signIn(token.read(), false);
else signInView();
