/* sampler.js: the settings of sampling. Only those that differ from the default are sent, so that what the server was
   started with (--sampling, --override) holds for the rest. They are of this browser, for Chat and Notebook alike. */

import { el, button, isObject, kept, readJson } from "./dom.js";

/* name of the request, label, kind, least, most, step, default. Kinds: number, whole, yes, words (a list, one a line),
   text, json (an object with members of requests). A number that is not given in the request has the server's value;
   the default here is its neutral one. */
const GROUPS = [
  ["Length", [
    ["max_tokens", "Most tokens", "whole", 0, 1048576, 1, 0, "0: what the context leaves"],
    ["min_tokens", "Least tokens", "whole", 0, 1048576, 1, 0],
    ["stop", "Stop at", "words", 0, 128, 0, "", "Texts, one a line"],
    ["reasoning_budget", "Most reasoning tokens", "whole", -1, 1048576, 1, -1, "-1: no limit"],
    ["seed", "Seed", "whole", -1, 4294967295, 1, -1, "-1: another one each time"],
  ]],
  ["Temperature and filters", [
    ["temperature", "Temperature", "number", 0, 10, 0.05, 1, "0: always the likeliest token"],
    ["temperature_last", "Temperature last", "yes", 0, 1, 1, false],
    ["top_k", "Top K", "whole", 0, 1000, 1, 0, "0: off"],
    ["top_p", "Top P", "number", 0, 1, 0.01, 1],
    ["min_p", "Min P", "number", 0, 1, 0.01, 0],
    ["top_a", "Top A", "number", 0, 1, 0.01, 0],
    ["tfs", "Tail free", "number", 0, 1, 0.01, 1],
    ["typical", "Typical", "number", 0.01, 1, 0.01, 1],
    ["smoothing_factor", "Smoothing", "number", 0, 10, 0.05, 0],
    ["skew", "Skew", "number", -5, 5, 0.05, 0],
    ["min_temp", "Dynamic temperature, least", "number", 0, 10, 0.05, 1],
    ["max_temp", "Dynamic temperature, most", "number", 0, 10, 0.05, 1],
    ["temp_exponent", "Dynamic exponent", "number", 0, 10, 0.05, 1],
    ["xtc_probability", "XTC probability", "number", 0, 1, 0.01, 0],
    ["xtc_threshold", "XTC threshold", "number", 0, 0.5, 0.01, 0.1],
    ["mirostat_mode", "Mirostat", "whole", 0, 2, 2, 0, "0: off, 2: on"],
    ["mirostat_tau", "Mirostat tau", "number", 0, 10, 0.1, 1.5],
    ["mirostat_eta", "Mirostat eta", "number", 0, 1, 0.01, 0.3],
    ["adaptive_target", "Adaptive-p target", "number", 0, 0.99, 0.01, 0,
     "0: off. Favours tokens of about this probability"],
    ["adaptive_decay", "Adaptive-p decay", "number", 0.01, 0.99, 0.01, 0.9],
  ]],
  ["Repetition", [
    ["repetition_penalty", "Repetition penalty", "number", 0.5, 3, 0.01, 1],
    ["frequency_penalty", "Frequency penalty", "number", -2, 2, 0.05, 0],
    ["presence_penalty", "Presence penalty", "number", -2, 2, 0.05, 0],
    ["penalty_range", "Range of penalties", "whole", -1, 1048576, 1, -1, "-1: the whole text"],
    ["repetition_decay", "Decay of penalties", "whole", 0, 1048576, 1, 0],
    ["dry_multiplier", "DRY multiplier", "number", 0, 5, 0.05, 0],
    ["dry_base", "DRY base", "number", 1, 4, 0.05, 1.75],
    ["dry_allowed_length", "DRY allowed length", "whole", 1, 50, 1, 2],
    ["dry_range", "DRY range", "whole", 0, 1048576, 1, 0, "0: the whole text"],
    ["dry_sequence_breakers", "DRY breakers", "words", 0, 64, 0, "", "Texts, one a line"],
  ]],
  ["Words", [
    ["banned_strings", "Banned texts", "words", 0, 128, 0, "", "Texts, one a line"],
    ["ban_eos_token", "Never end by itself", "yes", 0, 1, 1, false],
    ["banned_tokens", "Banned tokens", "text", 0, 0, 0, "", "Ids with commas"],
    ["allowed_tokens", "Allowed tokens", "text", 0, 0, 0, "", "Ids with commas; empty: all"],
    ["token_healing", "Heal the prompt's last token", "yes", 0, 1, 1, false],
    ["negative_prompt", "Negative prompt", "text", 0, 0, 0, ""],
    ["cfg_scale", "Guidance scale", "number", 0, 10, 0.1, 1],
  ]],
  ["Others", [
    ["others", "Other fields", "json", 0, 0, 0, "", 'A JSON object, such as {"logit_bias": {"42": -5}}'],
  ]],
];
const PROBABILITIES = ["probabilities", "Keep probabilities", "yes", 0, 1, 1, false,
                       "Shows each token's probability and its alternatives"];
const FIELDS = new Map([...GROUPS.flatMap(([, fields]) => fields), PROBABILITIES].map((field) => [field[0], field]));

const PRESETS = {
  "Server's own": {},
  "Precise": { temperature: 0 },
  "Balanced": { temperature: 0.8, top_p: 0.95, min_p: 0.05 },
  "Inventive": { temperature: 1.2, min_p: 0.08, xtc_probability: 0.3 },
};

let values = soundValues(kept.get("sampler"));
let redraw = () => {};

function soundValues(given) {
  const sound = {};
  for (const [name, value] of Object.entries(given || {})) {
    const field = FIELDS.get(name);
    if (field && typeof value === typeof field[6] && value !== field[6]) {
      sound[name] = value;
    }
  }
  return sound;
}

function change(name, value) {
  if (value === FIELDS.get(name)[6]) {
    delete values[name];
  } else {
    values[name] = value;
  }
  kept.set("sampler", values);
}

export const wantsProbabilities = () => values.probabilities === true;

/* The members for a request. Throws a sentence if the other fields cannot be read. */
export function samplerMembers() {
  const members = {};
  for (const [name, value] of Object.entries(values)) {
    const [, label, kind] = FIELDS.get(name);
    if (kind === "json") {
      Object.assign(members, value.trim() ? readJson(value, label, isObject) : {});
    } else if (name !== "probabilities") {
      members[name] = kind === "words" ? value.split("\n").filter((line) => line) : value;
    }
  }
  return members;
}

/* ---- the form ---- */

function isGood(what) {
  try {
    what();
    return true;
  } catch {
    return false;
  }
}

function input(field, row) {
  const [name, label, kind, least, most, step, normal] = field, id = "sampler-" + name;
  const value = values[name] ?? normal;
  const mark = () => row.classList.toggle("changed", name in values);
  if (kind === "yes") {
    return el("input", { type: "checkbox", id, checked: value,
                         onchange: (e) => { change(name, e.target.checked); mark(); } });
  }
  if (kind === "words" || kind === "text" || kind === "json") {
    const area = el("textarea", { id, rows: 2, spellcheck: "false",
                                  oninput: (e) => { change(name, e.target.value); mark(); } });
    area.value = value;
    if (kind === "json") {
      area.addEventListener("change", () => {
        area.setAttribute("aria-invalid", String(!isGood(samplerMembers)));
      });
    }
    return area;
  }
  const box = el("input", { type: "number", id, min: least, max: most, step: kind === "whole" ? 1 : "any", value });
  const range = most <= 1000 && el("input", { type: "range", min: least, max: most, step, value, tabindex: "-1",
                                              "aria-label": label + " slider" });
  const take = (text, from) => {
    const number = Number(text), good = text !== "" && Number.isFinite(number) && number >= least && number <= most
      && (kind !== "whole" || Number.isInteger(number));
    box.setAttribute("aria-invalid", String(!good));
    if (good) {
      change(name, number);
      (from === box ? range : box).value = number;
      mark();
    }
  };
  box.addEventListener("input", () => take(box.value, box));
  box.addEventListener("change", () => {
    box.value = values[name] ?? normal;
    box.setAttribute("aria-invalid", "false");
  });
  if (range) {
    range.addEventListener("input", () => take(range.value, range));
  }
  return el("span", { class: "number" }, range || null, box);
}

function fieldRow(field) {
  const [name, label, kind, least, most, , normal, note] = field;
  const numeric = kind === "number" || kind === "whole";
  const hint = [numeric ? `${least} to ${most}, default ${normal}` : "", note || ""].filter((part) => part).join(". ");
  const row = el("div", { class: "field " + kind + (name in values ? " changed" : "") });
  const reset = button(`Reset ${label}`, "reset", () => {
    change(name, normal);
    row.replaceWith(fieldRow(field));
  }, { bare: true });
  reset.classList.add("reset");
  row.append(el("label", { for: "sampler-" + name }, label), reset, input(field, row),
             hint ? el("span", { class: "hint" }, hint) : "");
  return row;
}

function presetRow() {
  const own = kept.get("presets") || {}, names = [...Object.keys(PRESETS), ...Object.keys(own)];
  const list = el("select", { id: "preset", onchange: () => {
    const chosen = PRESETS[list.value] || own[list.value];
    if (chosen) {
      values = soundValues({ ...chosen, probabilities: values.probabilities });
      kept.set("sampler", values);
      redraw();
    }
  } }, el("option", { value: "" }, "Choose"), ...names.map((name) => el("option", { value: name }, name)));
  const name = el("input", { type: "text", id: "preset-name", "aria-label": "Name of a preset", placeholder: "Name",
                             maxlength: 40 });
  const keep = button("Save preset", null, () => {
    const text = name.value.trim();
    if (text && !PRESETS[text]) {
      kept.set("presets", { ...own, [text]: values });
      redraw();
    }
  });
  const drop = button("Delete preset", "delete", () => {
    const { [name.value.trim() || list.value]: gone, ...rest } = own;
    kept.set("presets", rest);
    redraw();
  }, { bare: true });
  return el("div", { class: "presets" },
            el("label", { for: "preset" }, "Preset"), list,
            el("div", { class: "row" }, name, keep, Object.keys(own).length ? drop : null),
            button("Reset all", "reset", () => {
              values = {};
              kept.set("sampler", values);
              redraw();
            }, { class: "quiet" }));
}

/* Draws the form into `node`. */
export function drawSampler(node) {
  redraw = () => {
    const open = [...node.querySelectorAll("details")].map((group) => group.open);
    node.replaceChildren(
      presetRow(),
      ...GROUPS.map(([title, fields], i) => {
        const changed = fields.some(([name]) => name in values);
        return el("details", { open: open[i] ?? (i === 0 || changed) },
                  el("summary", {}, title), ...fields.map(fieldRow));
      }),
      fieldRow(PROBABILITIES));
  };
  redraw();
}
