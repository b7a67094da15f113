/* api.js: everything that is said to the server: the key, requests, streams of events, and whether it is there. */

import { kept } from "./dom.js";

const CHECK_MS = 3000;      /* between two looks at a server that is there */
const AWAY_MS = [500, 1000, 2000, 4000]; /* between tries while it is away */

let key = null, admin = false, online = true, tries = 0, timer = 0;
const watchers = { online: [], key: [], warning: [] };
const waiting = []; /* requests that wait for a key */

/* What the server refused, as one sentence. status 0: it was not reached. */
export class Refused extends Error {
  constructor(status, message, body) {
    super(message);
    this.status = status;
    this.body = body;
  }
}

export const isAdmin = () => admin;
export const isOnline = () => online;
export const onOnline = (what) => watchers.online.push(what);
export const onKeyNeeded = (what) => watchers.key.push(what);
export const onWarning = (what) => watchers.warning.push(what);

/* ---- the key ---- */

/* Takes the key out of the address, so that it does not stay in the history or in a copied link. */
export function takeKey() {
  const found = /^#key=(.+)$/.exec(location.hash);
  if (found) {
    history.replaceState(null, "", location.pathname);
    kept.set("key", decodeText(found[1]));
  }
  key = kept.get("key");
}

function decodeText(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/* Tries a key, and keeps it when the server takes it. */
export async function useKey(text) {
  const before = key;
  key = text;
  try {
    await askPermission();
  } catch (error) {
    key = before;
    throw error;
  }
  kept.set("key", key);
  waiting.splice(0).forEach((go) => go());
}

export async function askPermission() {
  const answer = await readJson(await once("GET", "/v1/auth/permission"));
  admin = answer.permission === "admin";
}

function headers(more) {
  return { ...(key ? { Authorization: "Bearer " + key } : {}), ...more };
}

/* ---- requests ---- */

/* One request; throws Refused unless the answer is a good one. */
async function once(method, path, body, more = {}, signal = undefined) {
  let answer;
  try {
    answer = await fetch(path, {
      method, signal, cache: "no-store", credentials: "omit", referrerPolicy: "no-referrer",
      headers: headers({ ...(body === undefined ? {} : { "Content-Type": "application/json" }), ...more }),
      body: body === undefined ? undefined : typeof body === "string" ? body : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") {
      throw error;
    }
    setOnline(false);
    throw new Refused(0, "The server does not answer.");
  }
  setOnline(true);
  if (!answer.ok) {
    let told = null;
    try {
      told = await answer.json();
    } catch { /* a proxy may answer with something else */ }
    const sentence = told?.error?.message || (typeof told?.detail === "string" ? told.detail : null);
    throw new Refused(answer.status, sentence || `The server answered ${answer.status} ${answer.statusText}.`, told);
  }
  return answer;
}

/* The same, but it asks for a key if one is needed. */
export async function request(method, path, body, more, signal) {
  for (;;) {
    try {
      return await once(method, path, body, more, signal);
    } catch (error) {
      if (error.status !== 401) {
        throw error;
      }
      await new Promise((go) => {
        waiting.push(go);
        watchers.key.forEach((what) => what());
      });
    }
  }
}

async function readJson(answer) {
  if (answer.status === 204) {
    return null;
  }
  try {
    return await answer.json();
  } catch {
    throw new Refused(answer.status, "The server's answer is no JSON.");
  }
}

export async function json(method, path, body, more, signal) {
  return readJson(await request(method, path, body, more, signal));
}

/* ---- streams ---- */

/* The events of a stream, parsed, until it ends or [DONE] comes. An error event is thrown. */
export async function* events(method, path, body, signal) {
  const answer = await request(method, path, body, { Accept: "text/event-stream" }, signal);
  if (method === "POST") {
    watchers.warning.forEach((what) => what(answer.headers.get("x-warning"))); /* what it did not heed */
  }
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "", done = false;
  try {
    while (!done) {
      let part;
      try {
        part = await reader.read();
      } catch (error) {
        if (error.name === "AbortError") {
          throw error;
        }
        check();
        throw new Refused(0, "The connection broke.");
      }
      done = part.done;
      text += part.value || "";
      const lines = text.split("\n");
      text = lines.pop();
      for (const line of lines) {
        const data = line.startsWith("data:") ? line.slice(5).trim() : "";
        if (data === "[DONE]") {
          return;
        }
        if (data) {
          const event = JSON.parse(data);
          if (event.error) {
            throw new Refused(200, event.error.message || "The server failed.", event);
          }
          yield event;
        }
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/* ---- is the server there? ---- */

function setOnline(now) {
  if (now !== online) {
    online = now;
    tries = 0;
    watchers.online.forEach((what) => what(online));
  }
  schedule();
}

function schedule() {
  clearTimeout(timer);
  timer = setTimeout(check, online ? CHECK_MS : AWAY_MS[Math.min(tries, AWAY_MS.length - 1)]);
}

/* Asks /health. A server that answers is there, even if it says that it is not well: then the notice says so. */
export async function check() {
  clearTimeout(timer);
  if (document.hidden && online) {
    schedule();
    return;
  }
  tries++;
  try {
    await once("GET", "/health");
    watchers.online.forEach((what) => what(true, null));
  } catch (error) {
    if (error.status !== 0) {
      const issue = error.body?.issues?.[0];
      const why = issue?.description || error.body?.status || error.message;
      watchers.online.forEach((what) => what(true, String(why)));
    }
  }
}
