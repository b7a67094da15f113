/* tree.js: a chat as a tree of messages. Nothing is ever taken out of it: an edit, a new answer, a continuation and a
   deletion each add a branch beside what was there. Pure functions; they know neither the page nor the server.

   chat = { id, title, named, system, variables, tools, format: { kind, text }, nodes: [node],
            picks: { parent: child }, pictures: { id: picture } }
   node = { id, parent, role, content, made, [pictures, reasoning, calls, call, deleted, error, stop, speed] }
   parent is "" for a first message. picks says which of several children is shown; without it the newest is. A node
   names its pictures by their ids, so that the branches of a message share them. */

import { soundPicture } from "./pictures.js";

export const FORMATS = ["none", "json_object", "json_schema", "regex", "grammar"];
const ROLES = ["user", "assistant", "tool"];
const PICTURE_ID = /^[a-z0-9]{16}$/; /* no name that an object has by itself */
const ID_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789";

export function newId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => ID_LETTERS[byte % 36]).join("");
}

export function newChat(like) {
  return {
    id: newId(), title: "New chat", named: false, system: like?.system || "", variables: like?.variables || "",
    tools: "", format: { kind: "none", text: "" }, nodes: [], picks: {}, pictures: {},
  };
}

const textOf = (value) => (typeof value === "string" ? value : "");

/* A chat of unknown origin, such as an imported file, as a sound one; null: it is none. */
export function soundChat(value) {
  if (!value || typeof value !== "object" || !Array.isArray(value.nodes)) {
    return null;
  }
  const chat = newChat();
  const known = new Set([""]);
  chat.id = /^[a-z0-9]{16}$/.test(value.id) ? value.id : chat.id;
  chat.title = textOf(value.title).slice(0, 200) || chat.title;
  chat.named = value.named === true;
  for (const name of ["system", "variables", "tools"]) {
    chat[name] = textOf(value[name]);
  }
  if (FORMATS.includes(value.format?.kind)) {
    chat.format = { kind: value.format.kind, text: textOf(value.format.text) };
  }
  for (const node of value.nodes) {
    const sound = node && typeof node.id === "string" && !known.has(node.id) && known.has(node.parent)
      && ROLES.includes(node.role);
    if (sound) {
      known.add(node.id);
      chat.nodes.push(soundNode(node));
    }
  }
  for (const [parent, child] of Object.entries(value.picks || {})) {
    if (known.has(parent) && chat.nodes.some((node) => node.id === child && node.parent === parent)) {
      chat.picks[parent] = child;
    }
  }
  for (const [id, given] of Object.entries(value.pictures || {})) {
    const picture = soundPicture(given);
    if (picture && PICTURE_ID.test(id)) {
      chat.pictures[id] = picture;
    }
  }
  return chat;
}

function soundNode(node) {
  const kept = {
    id: node.id, parent: node.parent, role: node.role, content: textOf(node.content), made: Number(node.made) || 0,
  };
  for (const name of ["reasoning", "error", "stop", "call"]) {
    if (typeof node[name] === "string" && node[name]) {
      kept[name] = node[name];
    }
  }
  if (Array.isArray(node.calls) && node.calls.length > 0) {
    kept.calls = node.calls.map((call) => ({
      id: textOf(call?.id), name: textOf(call?.name), arguments: textOf(call?.arguments),
    }));
  }
  const pictures = Array.isArray(node.pictures) ? node.pictures.filter((id) => PICTURE_ID.test(id)) : [];
  if (pictures.length > 0) {
    kept.pictures = pictures;
  }
  if (node.deleted === true) {
    kept.deleted = true;
  }
  if (Number.isFinite(node.speed)) {
    kept.speed = node.speed;
  }
  return kept;
}

/* The chat as it is kept: without log-probabilities and what else only this page needs. */
export function keptChat(chat) {
  return { ...chat, nodes: chat.nodes.map(soundNode) };
}

/* The pictures of a node; undefined stands for one that was not kept. */
export const picturesOf = (chat, node) => (node.pictures || []).map((id) => chat.pictures[id]);

/* Gives a picture an id in the chat. */
export function addPicture(chat, picture) {
  const id = newId();
  chat.pictures[id] = picture;
  return id;
}

export const versions = (chat, node) => chat.nodes.filter((other) => other.parent === node.parent);

/* The messages that are shown, from the first to the last. */
export function path(chat) {
  const children = new Map(), shown = [];
  for (const node of chat.nodes) {
    const some = children.get(node.parent);
    some ? some.push(node) : children.set(node.parent, [node]);
  }
  for (let at = ""; children.has(at);) {
    const some = children.get(at);
    const node = some.find((child) => child.id === chat.picks[at]) || some[some.length - 1];
    shown.push(node);
    at = node.id;
  }
  return shown;
}

/* Adds a message, and shows it. */
export function add(chat, parent, role, content, more) {
  const node = { id: newId(), parent, role, content, made: Date.now(), ...more };
  chat.nodes.push(node);
  chat.picks[parent] = node.id;
  return node;
}

/* A deletion is a branch in which a mark stands for the message. What followed is there, too. */
export function remove(chat, node) {
  const shown = path(chat), after = shown.slice(shown.indexOf(node) + 1);
  let parent = add(chat, node.parent, node.role, "", { deleted: true }).id;
  for (const { id, parent: old, made, ...rest } of after) {
    parent = add(chat, parent, rest.role, rest.content, rest).id;
  }
}

/* Shows the version before (step -1) or after (step 1) this one. Returns it. */
export function turn(chat, node, step) {
  const some = versions(chat, node), next = some[some.indexOf(node) + step];
  if (next) {
    chat.picks[node.parent] = next.id;
  }
  return next || node;
}

/* Two states of a chat, of two tabs: the branches of both. What differs but in branches is as `mine` has it. */
export function merge(mine, theirs) {
  const known = new Map(mine.nodes.map((node) => [node.id, node]));
  for (const node of theirs.nodes) {
    const same = known.get(node.id);
    if (!same) {
      known.set(node.id, node);
    } else if (node.content.length > same.content.length && !same.streams) { /* more of an answer that was cut here */
      Object.assign(same, node);
    }
  }
  mine.nodes = [...known.values()].sort((a, b) => a.made - b.made);
  mine.picks = { ...theirs.picks, ...mine.picks };
  mine.pictures = { ...theirs.pictures, ...mine.pictures };
  if (!mine.named && theirs.named) {
    mine.title = theirs.title;
    mine.named = true;
  }
}

/* The messages for a request: of the path up to `until`, without it (null: all). */
export function requestMessages(chat, until) {
  const messages = chat.system.trim() ? [{ role: "system", content: chat.system }] : [];
  for (const node of path(chat)) {
    if (node === until) {
      break;
    }
    if (node.deleted) {
      continue;
    }
    const message = { role: node.role, content: node.content }, pictures = picturesOf(chat, node).filter((one) => one);
    if (pictures.length > 0) {
      message.content = pictures.map(({ url }) => ({ type: "image_url", image_url: { url } }));
      if (node.content) {
        message.content.push({ type: "text", text: node.content });
      }
    }
    if (node.role === "tool") {
      message.tool_call_id = node.call || "";
    }
    if (node.reasoning) {
      message.reasoning_content = node.reasoning;
    }
    if (node.calls) {
      message.content = node.content || null;
      message.tool_calls = node.calls.map((call) => ({
        id: call.id, type: "function", function: { name: call.name, arguments: call.arguments },
      }));
    }
    if (node.role !== "assistant" || node.content || node.calls) { /* an answer that failed at once says nothing */
      messages.push(message);
    }
  }
  return messages;
}

/* A title from the first message. */
export function titleOf(text) {
  const line = text.trim().split("\n")[0].replace(/\s+/g, " ");
  const letters = Array.from(line);
  return letters.length > 48 ? letters.slice(0, 47).join("").trimEnd() + "…" : line || "New chat";
}
