/* message.js: one message of a chat as an article: its text, reasoning, calls, versions and buttons. What the buttons
   do is chat.js's. */

import { el, button, speedInWords } from "./dom.js";
import { copyText, renderMarkdown } from "./markdown.js";
import { renderTokens } from "./tokens.js";
import { pictureList } from "./pictures.js";
import { picturesOf, versions } from "./tree.js";

const NAMES = { user: "You", assistant: "Model", tool: "Tool" };

/* What the article shows, in short: when this is as before, the article stays. */
export function signature(chat, node, last) {
  const some = versions(chat, node);
  return [node.content.length, node.reasoning?.length, node.calls?.length, node.deleted, node.error, node.streams,
          node.editing, node.keeps?.length, picturesOf(chat, node).map((one) => !!one), node.asTokens,
          last, some.indexOf(node), some.length].join();
}

function versionButtons(chat, node, act) {
  const some = versions(chat, node), at = some.indexOf(node);
  if (some.length < 2) {
    return null;
  }
  return el("span", { class: "versions" },
            button("Previous version", "left", () => act.turn(node, -1), { bare: true, disabled: at === 0 }),
            el("span", { "aria-label": `Version ${at + 1} of ${some.length}` }, `${at + 1}/${some.length}`),
            button("Next version", "right", () => act.turn(node, 1), { bare: true, disabled: at === some.length - 1 }));
}

function actions(chat, node, last, act) {
  const row = el("div", { class: "actions" }, versionButtons(chat, node, act)), small = { bare: true };
  if (node.streams) {
    return row;
  }
  if (!node.deleted) {
    const copied = button("Copy", "copy", () => copyText(node.content, copied), small);
    row.append(copied, button("Edit", "edit", () => act.edit(node), small));
    if (node.role === "assistant" || last) {
      row.append(button("Regenerate", "regenerate", () => act.regenerate(node), small));
    }
    if (node.role === "assistant" && !node.calls) {
      row.append(button("Continue", "go", () => act.go(node), small));
    }
    row.append(button("Delete", "delete", () => act.remove(node), small));
  }
  if (node.tokens?.length > 0) {
    row.append(button("Tokens", "tokens", () => act.tokens(node),
                      { bare: true, "aria-pressed": String(!!node.asTokens) }));
  }
  if (node.role === "assistant" && Number.isFinite(node.speed)) {
    row.append(el("span", { class: "hint" }, speedInWords(node.speed)));
  }
  return row;
}

function editor(chat, node, act) {
  const box = el("textarea", { "aria-label": "Edit message", class: "edit", rows: 3 });
  box.value = node.editing;
  const done = () => act.saveEdit(node, box.value);
  box.addEventListener("input", () => act.editing(node, box.value));
  box.addEventListener("keydown", (e) => {
    if (e.key === "Escape") {
      act.cancelEdit(node);
    } else if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) {
      done();
    }
  });
  const pictures = node.keeps?.length > 0 ? pictureList(node.keeps.map((id) => chat.pictures[id]), "Pictures",
                                                        (i) => act.dropPicture(node, i)) : "";
  return el("div", { class: "editor" }, pictures, box,
            el("div", { class: "row end" }, button("Cancel", null, () => act.cancelEdit(node), { class: "quiet" }),
               button("Save", null, done, { class: "primary" })));
}

function prettyArguments(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text; /* it is still being written */
  }
}

function callsOf(node, last, act) {
  if (!node.calls) {
    return [];
  }
  const parts = node.calls.map((call) => el("div", { class: "call" },
    el("div", { class: "code-head" }, el("span", {}, "Calls ", el("b", {}, call.name || "…"))),
    el("pre", { tabindex: "0" }, el("code", {}, prettyArguments(call.arguments)))));
  if (last && !node.streams) {
    const boxes = node.calls.map((call) => el("textarea", { rows: 2, "aria-label": `Result of ${call.name}`,
                                                            placeholder: `Result of ${call.name}` }));
    const send = button("Send results", null, () => act.results(node, boxes.map((box) => box.value)));
    parts.push(el("div", { class: "editor" }, ...boxes, el("div", { class: "row end" }, send)));
  }
  return parts;
}

/* Makes or changes the article's text. Called for each frame while an answer is being written. */
export function drawText(article, node) {
  const body = article.querySelector(".text"), thought = article.querySelector(".reasoning");
  if (thought) {
    thought.hidden = !node.reasoning;
    if (node.reasoning) {
      thought.querySelector("summary").textContent = node.streams && !node.content ? "Thinking…" : "Reasoning";
      renderMarkdown(thought.querySelector(".thought"), node.reasoning);
    }
  }
  if (!body) {
    return;
  }
  if (node.asTokens) {
    renderTokens(body, node.tokens);
  } else if (node.role === "assistant") {
    renderMarkdown(body, node.content);
  } else {
    body.textContent = node.content;
  }
  article.querySelector(".waits")?.toggleAttribute("hidden", !!(node.content || node.reasoning || node.calls));
}

export function drawMessage(article, chat, node, last, act) {
  const name = NAMES[node.role];
  article.className = `message ${node.role}${node.streams ? " streams" : ""}${node.deleted ? " deleted" : ""}`;
  article.setAttribute("aria-label", name);
  article.setAttribute("aria-busy", String(!!node.streams));
  if (node.deleted) {
    article.replaceChildren(el("span", { class: "hint" }, "Deleted message"), actions(chat, node, last, act));
    return;
  }
  const open = article.querySelector(".reasoning")?.open, marked = node.role === "assistant" && !node.asTokens;
  article.replaceChildren(
    el("h2", { class: "who" }, name),
    el("details", { class: "reasoning", hidden: true, open: !!open }, el("summary", {}, "Reasoning"),
       el("div", { class: "thought markdown" })),
    node.pictures && node.editing === undefined ? pictureList(picturesOf(chat, node), "Pictures") : "",
    node.editing === undefined ? el("div", { class: marked ? "text markdown" : "text" }) : editor(chat, node, act),
    node.streams ? el("div", { class: "waits", "aria-hidden": "true" }, el("i"), el("i"), el("i")) : "",
    ...callsOf(node, last, act),
    node.error ? el("p", { class: "error" }, node.error) : "",
    node.stop === "length" && !node.streams ? el("p", { class: "hint" }, "The limit of tokens ended this answer.") : "",
    node.editing === undefined ? actions(chat, node, last, act) : "");
  drawText(article, node);
}
