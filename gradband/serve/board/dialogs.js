// Dialogs that ask before something is changed. The browser keeps the focus inside and returns it.

import { change, pathOf } from "./api.js";
import { h, render } from "./dom.js";

const box = document.getElementById("dialog");
let submit = null; // what the open dialog does when it is confirmed

const REASON = { name: "reason", label: "Reason", told: "Recorded in the history.", maxlength: 500 };

/** What each button of a test asks, and sends. */
export function actionOf(name, test, label) {
  const path = pathOf(test.key);
  const reason = (values) => ({ reason: values.reason.trim() });
  return {
    start: {
      title: test.status === "paused" ? `Resume ${test.key}?` : `Start ${test.key}?`,
      told: "It makes decisions from now on.",
      button: test.status === "paused" ? "Resume" : "Start", fields: [REASON],
      done: `${test.key} is running.`,
      send: (values) => change(`${path}/start`, reason(values)),
    },
    pause: {
      title: `Pause ${test.key}?`,
      told: "It makes no decisions until it is resumed: clients get an error and use their own default. Rewards of earlier decisions still count.",
      button: "Pause", fields: [REASON],
      done: `${test.key} is paused.`,
      send: (values) => change(`${path}/pause`, reason(values)),
    },
    end: {
      title: `End ${test.key}?`,
      told: "It makes no more decisions and cannot be started again. Its report stays.",
      button: "End for good", danger: true, fields: [REASON],
      done: `${test.key} has ended.`,
      send: (values) => change(`${path}/end`, reason(values)),
    },
    retire: {
      title: `Retire ${label}?`,
      told: "The arm gets no more decisions. This cannot be undone.",
      button: "Retire", danger: true, fields: [REASON],
      done: `${label} is retired.`,
      send: (values) => change(`${path}/arms/${encodeURIComponent(label)}/retire`, reason(values)),
    },
    add: {
      title: `Add an arm to ${test.key}`,
      told: "It starts without any decisions, and the policy explores it.",
      button: "Add", fields: [{ name: "label", label: "Label", told: "Up to 64 characters, without a slash.", maxlength: 64, required: true }],
      done: "The arm is added.",
      send: (values) => change(`${path}/arms`, { label: values.label.trim() }),
    },
  }[name];
}

const WITHOUT_FILE = { ts: "Thompson sampling", "bayes-ucb": "Bayes-UCB", "kl-ucb": "KL-UCB", ucb1: "UCB1", "ucb-v": "UCB-V", uniform: "Equal split" };

/** What the dialog for a new test asks, with the uploaded policies to choose from. */
export function creation(policies) {
  const learned = policies.filter((policy) => !(policy.name in WITHOUT_FILE));
  const options = [
    ...learned.map((policy) => [policy.fingerprint, `${policy.name}, learned for ${policy.arms} arms (${policy.fingerprint})`]),
    ...Object.entries(WITHOUT_FILE),
  ];
  return {
    title: "New test",
    told: "It is created, and waits for you to start it.",
    button: "Create", done: "The test is created.",
    fields: [
      { name: "key", label: "Name", told: "Letters, digits, dots, underscores and hyphens.", maxlength: 64, required: true },
      { name: "policy", label: "Policy", told: "One that you have uploaded, or one that needs no learning.", options, required: true },
      { name: "arms", label: "Arms", told: "One label per line.", rows: 3, required: true },
      { name: "wait", label: "Wait for rewards", told: "Such as 24h. A decision without a reward for that long counts as 0. Empty: no limit.", maxlength: 32 },
      { name: "floor", label: "Floor", told: "Every arm gets at least this share, in percent.", type: "number", min: 0, max: 100, step: "any", value: "0" },
    ],
    send: (values) => change("v1/tests", {
      key: values.key.trim(),
      policy: values.policy,
      arms: values.arms.split("\n").map((label) => label.trim()).filter(Boolean),
      wait: values.wait.trim() || null,
      floor: Number(values.floor) / 100,
    }),
  };
}

/** Shows a dialog; calls `then(answer, told)` after it was confirmed and done. */
export function openDialog(asked, then) {
  submit = async (values) => then(await asked.send(values), asked.done);
  box.replaceChildren();
  render(box, h("form", { "data-form": "dialog", method: "dialog", novalidate: true },
    h("h2", { id: "dialog-title" }, asked.title),
    h("p", null, asked.told),
    asked.fields.map(field),
    h("p", { class: "error", role: "alert" }),
    h("div", { class: "actions" },
      h("button", { type: "button", "data-do": "cancel" }, "Cancel"),
      h("button", { type: "submit", class: asked.danger ? "danger solid" : "primary" }, asked.button))));
  box.showModal();
  box.querySelector("input, select, textarea").focus();
}

export function closeDialog() {
  submit = null;
  if (box.open) box.close();
}

/** Does what the dialog asks about, or says why not and leaves it open. */
export async function submitDialog(form) {
  if (!submit) return;
  const told = form.querySelector(".error");
  const empty = [...form.elements].find((input) => input.required && !input.value.trim());
  const invalid = [...form.elements].find((input) => input.validity && !input.validity.valid);
  if (empty || invalid) {
    told.textContent = empty ? `${nameOf(empty)} is needed.` : `${nameOf(invalid)}: ${invalid.validationMessage}`;
    (empty ?? invalid).focus();
    return;
  }
  const button = form.querySelector("[type=submit]");
  button.disabled = true;
  told.textContent = "";
  try {
    await submit(Object.fromEntries(new FormData(form)));
  } catch (error) {
    told.textContent = error.message;
  } finally {
    button.disabled = false;
  }
}

const nameOf = (input) => input.closest(".field").querySelector("label").textContent;

function field({ name, label, told, rows, options, value, ...rest }) {
  const id = `field-${name}`;
  const about = { id, name, "aria-describedby": told && `${id}-told`, autocomplete: "off", ...rest };
  const input = options
    ? h("select", about, options.map(([key, shown]) => h("option", { value: key }, shown)))
    : rows ? h("textarea", { ...about, rows, spellcheck: "false" }) : h("input", { type: "text", ...about, value });
  return h("div", { class: "field" }, h("label", { for: id }, label), input, told && h("p", { class: "told", id: `${id}-told` }, told));
}
