/* model.js: the model that is loaded, its memory and template; with the admin key, loading and unloading. */

import { byId, el, button, bytesInWords, countInWords } from "./dom.js";
import { events, isAdmin, json } from "./api.js";
import { notice, say } from "./status.js";
import { confirmed } from "./sessions.js";
import { setModel } from "./attach.js";

const tokens = (count) => count && countInWords(count, "token");

/* Members of a card's parameters, as they are shown; "" is left out. */
const LINES = [
  ["arch", "Architecture", String],
  ["bits_per_weight", "Bits per weight", (n) => n && Number(n).toFixed(2)],
  ["max_seq_len", "Context", tokens],
  ["cache_size", "Cache", tokens],
  ["cache_mode", "Cache format", String],
  ["max_batch_size", "Jobs at once", String],
  ["chunk_size", "Prompt tokens a step", String],
  ["rope_scale", "RoPE scale", (n) => (n === 1 ? "" : String(n))],
  ["rope_alpha", "RoPE alpha", (n) => (n === 1 ? "" : String(n))],
  ["prompt_template", "Template", String],
  ["use_vision", "Reads pictures", (sees) => (sees === true ? "yes" : "")],
];

let loading = null; /* { id, part } */
let card = null;

/* Asks for the card. The bar shows its name. */
export async function askModel() {
  try {
    card = await json("GET", "/v1/model");
  } catch (error) {
    card = null;
    if (error.status === 0) {
      throw error;
    }
  }
  setModel(card);
  byId("model-name").textContent = card?.id || "no model";
  byId("model-name").title = card?.id || "";
}

function memoryPart(memory) {
  const { on_device: device = 0, ...kinds } = memory || {}; /* of all of it, so much is on the device */
  const parts = Object.entries(kinds).filter(([, bytes]) => Number(bytes) > 0);
  const all = parts.reduce((sum, [, bytes]) => sum + bytes, 0);
  if (parts.length === 0) {
    return "";
  }
  const bar = el("div", { class: "stack", "aria-hidden": "true" }, ...parts.map(([, bytes], i) => {
    const piece = el("i", { class: `s${i % 6}` });
    piece.style.flexGrow = bytes / all;
    return piece;
  }));
  return el("section", { class: "card" }, el("h2", {}, "Memory by plan"), bar,
    el("dl", { class: "facts" }, ...parts.flatMap(([name, bytes], i) => [
      el("dt", {}, el("i", { class: `dot s${i % 6}`, "aria-hidden": "true" }), name.replaceAll("_", " ")),
      el("dd", {}, bytesInWords(bytes))]),
      el("dt", { class: "sum" }, "all"), el("dd", { class: "sum" }, bytesInWords(all))),
    device > 0 ? el("p", { class: "hint" }, `${bytesInWords(device)} of it on the device`) : "");
}

function modelCard() {
  const facts = LINES.map(([name, label, words]) => [label, words(card.parameters?.[name] ?? "")])
    .filter(([, text]) => text !== "");
  const draft = card.parameters?.draft?.id;
  return el("section", { class: "card" }, el("h2", {}, card.id),
    el("dl", { class: "facts" },
       ...facts.flatMap(([label, text]) => [el("dt", {}, label), el("dd", {}, text)]),
       ...(draft ? [el("dt", {}, "Draft model"), el("dd", {}, draft)] : [])),
    isAdmin() ? el("div", { class: "row" }, button("Unload", null, unload)) : "");
}

function templatePart(names) {
  const text = card?.parameters?.prompt_template_content, current = card?.parameters?.prompt_template;
  const list = el("select", { id: "template", disabled: !isAdmin() || names.length === 0, onchange: async () => {
    await attempt(() => json("POST", "/v1/template/switch", { prompt_template_name: list.value }));
  } }, ...(names.includes(current) ? [] : [el("option", { value: "" }, current || "the model's own")]),
     ...names.map((name) => el("option", { value: name, selected: name === current }, name)));
  return el("section", { class: "card" }, el("h2", {}, "Chat template"),
    el("div", { class: "field" }, el("label", { for: "template" }, "Template"), list),
    text ? el("details", {}, el("summary", {}, "Its text"), el("pre", { tabindex: "0" }, el("code", {}, text))) : "",
    isAdmin() ? "" : el("p", { class: "hint" }, "Switching needs an admin key."));
}

function listPart(models) {
  const rows = models.map((model) => {
    const here = model.id === card?.id, loads = isAdmin() && !here && !loading;
    const bar = el("progress", { max: 1, "aria-label": `Progress of ${model.id}` });
    if (loading?.id === model.id) {
      bar.value = loading.part;
    }
    return el("li", {}, el("span", {}, model.id), here ? el("span", { class: "badge" }, "loaded") : "",
      loading?.id === model.id ? bar : "",
      loads ? button("Load", null, () => load(model.id), { "aria-label": `Load ${model.id}` }) : "");
  });
  return el("section", { class: "card" }, el("h2", {}, "Models"),
    rows.length > 0 ? el("ul", { class: "models" }, ...rows) : el("p", { class: "hint" }, "The server lists none."),
    isAdmin() ? "" : el("p", { class: "hint" }, "Loading and unloading need an admin key."));
}

/* Does it, says what went wrong, and shows what is true afterwards. */
async function attempt(what) {
  notice("model", null);
  try {
    await what();
  } catch (error) {
    notice("model", error.message);
  }
  await showModel().catch(() => {});
}

const load = (id) => attempt(async () => {
  loading = { id, part: 0 };
  say(`Loading ${id}`);
  await showModel();
  try {
    for await (const event of events("POST", "/v1/model/load", { model_name: id })) {
      loading.part = event.modules > 0 ? event.module / event.modules : 0;
      const bar = byId("model").querySelector("progress");
      if (bar) {
        bar.value = loading.part;
      }
    }
    say(`Loaded ${id}`);
  } finally {
    loading = null;
  }
});

async function unload() {
  if (await confirmed(`Unload ${card.id}? Answers that are being written end.`, "Unload model")) {
    await attempt(() => json("POST", "/v1/model/unload", {}));
  }
}

/* Draws the panel anew. */
export async function showModel() {
  const listed = await Promise.allSettled([askModel(), json("GET", "/v1/models"), json("GET", "/v1/templates")]);
  const panel = byId("model"), models = listed[1].value?.data || [], names = listed[2].value?.data || [];
  if (listed[0].status === "rejected") {
    return;
  }
  panel.replaceChildren(el("div", { class: "cards" },
    card ? modelCard() : el("section", { class: "card" }, el("h2", {}, "No model"),
                            el("p", {}, "No model is loaded, so nothing can be answered.")),
    card ? memoryPart(card.parameters?.memory) : "",
    listPart(models), card ? templatePart(names.map((name) => name.id || name)) : ""));
}
