/* settings.js: the panel with the settings of the chat that is shown (system prompt, template variables, tools, format
   of the answer), and below them the sampler. */

import { byId, el, button, isObject, readJson } from "./dom.js";
import { drawSampler } from "./sampler.js";
import { save } from "./store.js";

const KINDS = [
  ["none", "Free text"], ["json_object", "A JSON object"], ["json_schema", "JSON by a schema"],
  ["regex", "A regular expression"], ["grammar", "A grammar"],
];

/* The members of a request that the settings of the chat stand for. Throws a sentence if one cannot be read. */
export function chatMembers(chat) {
  const members = {}, { kind, text } = chat.format;
  if (chat.variables.trim()) {
    members.chat_template_kwargs = readJson(chat.variables, "Template variables", isObject);
  }
  if (chat.tools.trim()) {
    members.tools = readJson(chat.tools, "Tools", Array.isArray);
  }
  if (kind === "json_object") {
    members.response_format = { type: "json_object" };
  } else if (kind === "json_schema" && text.trim()) {
    const schema = readJson(text, "Schema", (value) => isObject(value) || typeof value === "boolean");
    members.response_format = { type: "json_schema", json_schema: { name: "answer", schema } };
  } else if (kind === "regex" && text) {
    members.regex_pattern = text;
  } else if (kind === "grammar" && text.trim()) {
    members.grammar_string = text;
  }
  return members;
}

function area(chat, name, label, rows, note) {
  const id = "chat-" + name, box = el("textarea", { id, rows, spellcheck: name === "system" ? "true" : "false" });
  const error = el("p", { class: "error", hidden: true });
  box.value = chat[name];
  box.addEventListener("input", () => {
    chat[name] = box.value;
    save(chat);
  });
  box.addEventListener("change", () => showError(chat, error, name === "system" ? null : label));
  return el("div", { class: "field" }, el("label", { for: id }, label), box,
            note ? el("span", { class: "hint" }, note) : "", error);
}

/* Says under the box what is wrong with what is in it. */
function showError(chat, node, label) {
  node.hidden = true;
  try {
    chatMembers(chat);
  } catch (error) {
    node.hidden = !label || !error.message.startsWith(label);
    node.textContent = error.message;
  }
}

function formatField(chat) {
  const error = el("p", { class: "error", hidden: true });
  const text = el("textarea", { id: "chat-format-text", rows: 4, spellcheck: "false",
                                "aria-label": "Schema, expression or grammar" });
  const options = KINDS.map(([value, label]) => el("option", { value, selected: chat.format.kind === value }, label));
  const kind = el("select", { id: "chat-format" }, ...options);
  const draw = () => { text.hidden = kind.value === "none" || kind.value === "json_object"; };
  text.value = chat.format.text;
  const take = () => {
    chat.format = { kind: kind.value, text: text.value };
    save(chat);
    draw();
  };
  kind.addEventListener("change", take);
  text.addEventListener("input", take);
  text.addEventListener("change", () => showError(chat, error, "Schema"));
  draw();
  return el("div", { class: "field" }, el("label", { for: "chat-format" }, "Format of the answer"), kind, text, error);
}

export function drawSettings(chat) {
  const panel = byId("settings"), sampler = el("div", { class: "sampler" });
  const close = button("Close settings", "close", () => byId("show-settings").click(), { bare: true });
  panel.replaceChildren(
    el("div", { class: "panel-head" }, el("h2", {}, "Settings"), close),
    el("div", { class: "of-chat" },
       el("h3", {}, "This chat"),
       area(chat, "system", "System prompt", 4),
       formatField(chat),
       el("details", {}, el("summary", {}, "Template and tools"),
          area(chat, "variables", "Template variables", 2, 'A JSON object, such as {"enable_thinking": false}'),
          area(chat, "tools", "Tools", 4, "A JSON list, as in the requests of OpenAI's clients"))),
    el("h3", {}, "Sampler"), sampler);
  drawSampler(sampler);
}
