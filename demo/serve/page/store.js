/* store.js: the chats on the server, and what has not reached it yet.
   A change is sent a moment after it was made, with the revision that it changes. If another tab was faster, both
   states are merged and sent again. What cannot be sent stays in this browser, and is sent when the server is back.
   This tab has one object of a chat, however often it is read: what comes from the server is put into it, so that no
   answer is written into an object that nobody sends. */

import { kept, later } from "./dom.js";
import { json, isOnline } from "./api.js";
import { keptChat, merge, newId, soundChat } from "./tree.js";

const SEND_MS = 400;
const TRIES = 4;      /* of a change that meets others */

const known = new Map();     /* id: the chat */
const deleted = new Set();   /* ids */
const revisions = new Map(); /* id: the revision that this tab knows; 0: not on the server */
const unsent = new Map();    /* id: the chat */
let onWay = null;            /* the chat that is being sent */
let local = false;           /* the server keeps no chats */
let tell = () => {};         /* (what, more): "merged", "local", "sent", "bare", "full", "refused" with a sentence */
let sending = null;

export const onStore = (what) => { tell = what; };

/* Marks the chat as changed. */
export function save(chat) {
  if (!deleted.has(chat.id)) {
    known.set(chat.id, chat);
    unsent.set(chat.id, chat);
    sendLater();
  }
}

const sendLater = later(SEND_MS, () => sendAll());

/* Sends what has changed. */
export function sendAll() {
  sending = sending || sendEach().finally(() => { sending = null; });
  return sending;
}

/* What changes meanwhile comes last. */
async function sendEach() {
  while (unsent.size > 0) {
    if (local || !isOnline()) {
      keepHere();
      return;
    }
    const [id, chat] = unsent.entries().next().value;
    unsent.delete(id);
    onWay = chat;
    try {
      await send(chat);
      if (!unsent.has(id)) {
        kept.set("unsent." + id, null);
      }
      tell("sent");
    } catch (error) {
      unsent.set(id, unsent.get(id) || chat);
      keepHere();
      if (error.status !== 0) {
        tell("refused", error.message);
      }
      return;
    } finally {
      onWay = null;
    }
  }
}

async function send(chat) {
  const path = "/ui/sessions/" + chat.id;
  for (let tries = 0; ; tries++) {
    const revision = revisions.get(chat.id) || 0;
    try {
      const answer = await json("PUT", path, keptChat(chat), revision ? { "If-Match": String(revision) } : {});
      revisions.set(chat.id, answer.revision);
      return;
    } catch (error) {
      if (error.status !== 409 || tries === TRIES) {
        throw error;
      }
    }
    await mergeNewest(chat, path);
  }
}

/* Another tab has changed or deleted the chat. What this tab has of it is never lost. */
async function mergeNewest(chat, path) {
  try {
    const theirs = await json("GET", path);
    revisions.set(chat.id, theirs.revision);
    merge(chat, soundChat(theirs) || chat);
    tell("merged");
  } catch (error) {
    if (error.status !== 404) {
      throw error;
    }
    revisions.set(chat.id, 0);
  }
}

/* In this browser's store. */
export function keepHere() {
  for (const [id, chat] of unsent) {
    const entry = { revision: revisions.get(id) || 0, updated: Date.now() / 1000, chat: keptChat(chat) };
    if (!kept.set("unsent." + id, entry)) { /* then without pictures; with revision 0 those of the server are added */
      const bare = { ...entry, revision: 0, chat: { ...entry.chat, pictures: {} } };
      tell(kept.set("unsent." + id, bare) ? "bare" : "full");
    }
  }
}

/* Takes up what an earlier page could not send. */
export function takeUnsent() {
  for (const name of kept.names("unsent.")) {
    const entry = kept.get(name), chat = soundChat(entry?.chat);
    if (chat && !unsent.has(chat.id)) {
      revisions.set(chat.id, Number(entry.revision) || 0);
      known.set(chat.id, chat);
      unsent.set(chat.id, chat);
    }
  }
  sendLater();
}

/* The rows of the list: { id, title, revision, updated }, the newest first. */
export async function listChats() {
  let rows = [];
  try {
    rows = local ? [] : (await json("GET", "/ui/sessions")).sessions;
  } catch (error) {
    if (error.status !== 404 && error.status !== 501) {
      throw error;
    }
    local = true;
    tell("local");
  }
  const here = new Map(rows.map((row) => [row.id, row]));
  for (const name of local ? kept.names("unsent.") : []) {
    const entry = kept.get(name);
    here.set(entry.chat.id, { id: entry.chat.id, title: entry.chat.title, revision: 0, updated: entry.updated });
  }
  for (const chat of unsent.values()) {
    here.set(chat.id, { id: chat.id, title: chat.title, revision: revisions.get(chat.id) || 0,
                        updated: Date.now() / 1000 });
  }
  return [...here.values()].sort((a, b) => b.updated - a.updated);
}

/* Has this tab something of the chat that the server may not have? */
function isAhead(chat) {
  return unsent.has(chat.id) || onWay === chat
    || chat.nodes.some((node) => node.streams || node.editing !== undefined);
}

/* Puts what the server has into the object that this tab has of the chat. */
function adopt(id, revision, theirs) {
  const mine = known.get(id);
  theirs.id = id;
  if (!mine) {
    known.set(id, theirs);
  } else if (revision < (revisions.get(id) || 0)) {
    return mine; /* an answer that was overtaken */
  } else if (isAhead(mine)) {
    merge(mine, theirs);
  } else {
    Object.assign(mine, theirs);
  }
  revisions.set(id, revision);
  return mine || theirs;
}

/* The chat, as it is newest. null: there is none. */
export async function loadChat(id) {
  if (unsent.has(id)) {
    return unsent.get(id);
  }
  if (local) {
    return known.get(id) || soundChat(kept.get("unsent." + id)?.chat);
  }
  try {
    const stored = await json("GET", "/ui/sessions/" + id), chat = soundChat(stored);
    return chat && adopt(id, stored.revision, chat);
  } catch (error) {
    if (error.status === 404 || error.status === 400) {
      return null;
    }
    throw error;
  }
}

/* Has somebody else changed the chat since this tab has read it? */
export const isOlder = (row) => !unsent.has(row.id) && row.revision > (revisions.get(row.id) || 0);

export async function deleteChat(id) {
  deleted.add(id);
  unsent.delete(id);
  kept.set("unsent." + id, null);
  if (!local) {
    try {
      await json("DELETE", "/ui/sessions/" + id);
    } catch (error) {
      if (error.status !== 404) {
        throw error;
      }
    }
  }
  revisions.delete(id);
  known.delete(id);
}

/* An imported chat that is there already becomes a second one. */
export async function importChat(chat, rows) {
  if (rows.some((row) => row.id === chat.id) || known.has(chat.id) || deleted.has(chat.id)) {
    chat.id = newId();
  }
  save(chat);
  await sendAll();
}
