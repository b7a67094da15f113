/* chat.js: the chat that is shown: sending, answers as they come, branches. */

import { byId, el, kept } from "./dom.js";
import { events } from "./api.js";
import { Work, notice } from "./status.js";
import { add, addPicture, path, remove, requestMessages, titleOf, turn } from "./tree.js";
import {
  attachedPictures, pictureRefusal, readingPictures, showAttached, startAttach, takeAttached,
} from "./attach.js";
import { drawMessage, drawText, signature } from "./message.js";
import { chatTokens } from "./tokens.js";
import { samplerMembers, wantsProbabilities } from "./sampler.js";
import { chatMembers } from "./settings.js";
import { save } from "./store.js";

const SAVE_MS = 5000; /* between two saves of an answer that is being written */
const NEAR_END = 80;  /* pixels: the end stays in view as the answer grows */

let chat = null;      /* that is shown */
let running = null;   /* { chat, node, work }: one answer at a time */
let frame = 0;
const articles = new Map(); /* id of a node: its article */
let changed = () => {};     /* the list of chats is told */

export const currentChat = () => chat;
export const runningChat = () => running?.chat;
export const onChatChanged = (what) => { changed = what; };

/* ---- drawing ---- */

function atEnd() {
  const box = byId("messages");
  return box.scrollHeight - box.scrollTop - box.clientHeight < NEAR_END;
}

function toEnd() {
  const box = byId("messages");
  box.scrollTop = box.scrollHeight;
}

function welcome() {
  return el("div", { class: "welcome" }, el("img", { src: "/favicon.ico", alt: "", width: 56, height: 56 }),
            el("h2", {}, "What shall we talk about?"),
            el("p", {}, "The model runs on this server. Nothing leaves it."));
}

export function drawChat() {
  const box = byId("messages"), shown = chat ? path(chat) : [];
  const wanted = shown.map((node, i) => {
    const last = i === shown.length - 1, sign = signature(chat, node, last);
    let article = articles.get(node.id);
    if (!article) {
      article = el("article", { "data-id": node.id });
      articles.set(node.id, article);
    }
    if (article.sign !== sign) {
      article.sign = sign;
      drawMessage(article, chat, node, last, act);
    }
    return article;
  });
  if (wanted.length === 0) {
    box.replaceChildren(welcome());
  } else {
    placeAll(box, wanted);
  }
  const send = byId("send"), stop = byId("stop"), had = document.activeElement;
  send.hidden = !!running;
  stop.hidden = !running;
  if (had === send || had === stop) { /* the focus stays in the row */
    (running ? stop : byId("message")).focus();
  }
}

/* Puts the articles into the box, and moves only what is not in its place: focus and scrolling stay. */
function placeAll(box, wanted) {
  const keep = new Set(wanted);
  for (const child of [...box.children]) {
    if (!keep.has(child)) {
      child.remove();
    }
  }
  wanted.forEach((article, i) => {
    if (box.children[i] !== article) {
      box.insertBefore(article, box.children[i] || null);
    }
  });
}

/* The answer's text, once a frame at most. */
function drawSoon(node) {
  frame = frame || requestAnimationFrame(() => {
    const article = articles.get(node.id), follow = atEnd();
    frame = 0;
    if (article?.isConnected) {
      node.calls ? drawChat() : drawText(article, node);
      if (follow) {
        toEnd();
      }
    }
  });
}

export function showChat(next) {
  keepDraft();
  chat = next;
  articles.clear();
  byId("messages").replaceChildren();
  const box = byId("message"), edit = kept.get("edit");
  const edited = edit?.chat === chat.id && chat.nodes.find((node) => node.id === edit.node);
  if (edited) {
    edited.editing = edit.text;
    edited.keeps = Array.isArray(edit.pictures) ? edit.pictures : edited.pictures && [...edited.pictures];
  }
  box.value = kept.get("draft." + chat.id) || "";
  fit(box);
  showAttached(chat);
  drawChat();
  toEnd();
}

export function keepDraft() {
  if (chat) {
    kept.set("draft." + chat.id, byId("message").value || null);
  }
}

function fit(box) {
  box.style.height = "auto";
  box.style.height = `${Math.min(box.scrollHeight, innerHeight * 0.4)}px`;
}

/* ---- an answer ---- */

function takeDelta(node, choice) {
  const delta = choice.delta || {};
  node.content += delta.content || "";
  if (delta.reasoning_content) {
    node.reasoning = (node.reasoning || "") + delta.reasoning_content;
  }
  for (const part of delta.tool_calls || []) {
    node.calls = node.calls || [];
    const call = node.calls[part.index ?? node.calls.length] ||= { id: "", name: "", arguments: "" };
    call.id = part.id || call.id;
    call.name = part.function?.name || call.name;
    call.arguments += part.function?.arguments || "";
  }
  if (choice.logprobs) {
    node.tokens = [...(node.tokens || []), ...chatTokens(choice.logprobs)];
  }
  node.stop = choice.finish_reason || node.stop;
  return !!(delta.content || delta.reasoning_content || delta.tool_calls);
}

/* The model writes `node`, an empty answer, or goes on after its content. */
async function answer(own, node, prefix) {
  const work = new Work("Answering");
  let usage = null, how = "Done", saved = performance.now();
  running = { chat: own, node, work };
  node.streams = true;
  save(own);
  drawChat();
  toEnd();
  try {
    const body = {
      ...samplerMembers(), ...chatMembers(own), ...(prefix ? { response_prefix: prefix } : {}),
      messages: requestMessages(own, node), stream: true, stream_options: { include_usage: true },
      ...(wantsProbabilities() ? { logprobs: true, top_logprobs: 5 } : {}),
    };
    for await (const event of events("POST", "/v1/chat/completions", body, work.abort.signal)) {
      usage = event.usage || usage;
      const choice = event.choices?.[0];
      if (choice && takeDelta(node, choice)) {
        work.step();
        drawSoon(node);
      }
      if (performance.now() - saved > SAVE_MS) {
        saved = performance.now();
        save(own);
      }
    }
  } catch (error) {
    how = error.name === "AbortError" ? "Stopped" : "Failed";
    if (how === "Failed") {
      node.error = error.message;
    }
  }
  delete node.streams;
  running = null;
  node.speed = work.end(how, usage);
  save(own);
  changed();
  const follow = atEnd();
  drawChat();
  if (follow) {
    toEnd();
  }
}

/* Is nothing else running, do the settings hold together, and does the model see the pictures? They are those of the
   messages up to `until`, without it (null: all), and `more`. */
function ready(until, more = 0) {
  if (running) {
    return false;
  }
  const shown = path(chat), end = until ? shown.indexOf(until) : shown.length;
  const why = pictureRefusal(shown.slice(0, end).reduce((sum, node) => sum + (node.pictures?.length || 0), more));
  notice("pictures", why);
  if (why) {
    return false;
  }
  try {
    chatMembers(chat);
    samplerMembers();
    notice("settings", null);
    return true;
  } catch (error) {
    notice("settings", error.message);
    return false;
  }
}

/* ---- what the buttons of messages do ---- */

const act = {
  turn(node, step) {
    const next = turn(chat, node, step);
    save(chat);
    drawChat();
    articles.get(next.id)?.querySelector(`[aria-label="${step < 0 ? "Previous" : "Next"} version"]`)?.focus();
  },
  edit(node) {
    node.editing = node.content;
    node.keeps = node.pictures && [...node.pictures];
    drawChat();
    const box = articles.get(node.id).querySelector("textarea");
    fit(box);
    box.focus();
  },
  editing(node, text) {
    node.editing = text; /* the article keeps its box: see signature */
    articles.get(node.id).sign = signature(chat, node, path(chat).at(-1) === node);
    kept.set("edit", { chat: chat.id, node: node.id, text, pictures: node.keeps });
  },
  dropPicture(node, i) {
    node.keeps.splice(i, 1);
    kept.set("edit", { chat: chat.id, node: node.id, text: node.editing, pictures: node.keeps });
    drawChat();
    articles.get(node.id).querySelector("textarea").focus();
  },
  cancelEdit(node) {
    delete node.editing;
    delete node.keeps;
    kept.set("edit", null);
    drawChat();
    articles.get(node.id).querySelector('[aria-label="Edit"]')?.focus();
  },
  saveEdit(node, text) {
    if (node.role === "user" && !ready(node, node.keeps?.length)) {
      return;
    }
    const more = { ...(node.call ? { call: node.call } : {}), ...(node.keeps?.length ? { pictures: node.keeps } : {}) };
    const fresh = add(chat, node.parent, node.role, text, more);
    delete node.editing;
    delete node.keeps;
    kept.set("edit", null);
    if (node.role === "user") {
      answer(chat, add(chat, fresh.id, "assistant", ""));
    } else {
      save(chat);
      drawChat();
    }
    byId("message").focus();
  },
  regenerate(node) {
    if (ready(node.role === "assistant" ? node : null)) {
      answer(chat, add(chat, node.role === "assistant" ? node.parent : node.id, "assistant", ""));
    }
  },
  go(node) {
    if (ready(node)) {
      const more = node.tokens ? { tokens: [...node.tokens] } : {};
      answer(chat, add(chat, node.parent, "assistant", node.content,
                       node.reasoning && node.content ? { ...more, reasoning: node.reasoning } : more), node.content);
    }
  },
  remove(node) {
    remove(chat, node);
    save(chat);
    drawChat();
  },
  tokens(node) {
    node.asTokens = !node.asTokens;
    drawChat();
    articles.get(node.id).querySelector('[aria-label="Tokens"]')?.focus();
  },
  results(node, texts) {
    if (ready(null)) {
      let parent = node.id;
      node.calls.forEach((call, i) => {
        parent = add(chat, parent, "tool", texts[i], { call: call.id }).id;
      });
      answer(chat, add(chat, parent, "assistant", ""));
    }
  },
};

/* ---- the composer ---- */

function send() {
  const box = byId("message"), text = box.value;
  if (readingPictures()) { /* they belong to the message */
    readingPictures().then(send);
    return;
  }
  if ((!text.trim() && attachedPictures().length === 0) || !ready(null, attachedPictures().length)) {
    return;
  }
  const shown = path(chat), parent = shown.length > 0 ? shown.at(-1).id : "";
  if (shown.length === 0 && !chat.named) {
    chat.title = titleOf(text.trim() || attachedPictures()[0].name);
  }
  const pictures = takeAttached().map((picture) => addPicture(chat, picture));
  const asked = add(chat, parent, "user", text, pictures.length > 0 ? { pictures } : {});
  box.value = "";
  fit(box);
  kept.set("draft." + chat.id, null);
  answer(chat, add(chat, asked.id, "assistant", ""));
  changed();
}

export function stopAnswer() {
  running?.work.abort.abort();
}

export function startChat() {
  const box = byId("message");
  byId("composer").addEventListener("submit", (e) => {
    e.preventDefault();
    send();
  });
  byId("stop").addEventListener("click", () => {
    stopAnswer();
    box.focus();
  });
  box.addEventListener("keydown", (e) => {
    if (e.key === "Enter" && !e.shiftKey && !e.isComposing) {
      e.preventDefault();
      send();
    }
  });
  box.addEventListener("input", () => {
    fit(box);
    keepDraft();
  });
  startAttach();
  byId("messages").addEventListener("scroll", () => { byId("to-end").hidden = atEnd(); }, { passive: true });
  byId("to-end").addEventListener("click", toEnd);
}

/* The page goes away: what has come of an answer is kept. */
export function leaveChat() {
  keepDraft();
  if (running) {
    save(running.chat);
  }
}
