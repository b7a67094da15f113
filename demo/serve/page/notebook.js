/* notebook.js: a text that the model goes on with at its end. */

import { byId, countInWords, kept, later } from "./dom.js";
import { events, isOnline, json } from "./api.js";
import { Work, notice } from "./status.js";
import { samplerMembers } from "./sampler.js";
import { completionTokens, renderTokens } from "./tokens.js";

const COUNT_MS = 400;
const UNDO_MAX = 50;
const UNDO_BYTES = 4 << 20; /* of all texts before a generation */

let work = null;
let before = kept.get("notebook.undo") || []; /* texts, the latest last */
let written = [];  /* { at, text, logprob, top }: tokens of generations, with their places in the text */
let counting = null;

const box = () => byId("notebook-text");

function draw() {
  const go = byId("notebook-continue"), stop = byId("notebook-stop"), had = document.activeElement;
  go.hidden = !!work;
  stop.hidden = !work;
  if (had === go || had === stop) { /* the one that is there now has the focus */
    (work ? stop : go).focus();
  }
  byId("notebook-undo").disabled = !!work || before.length === 0;
  box().readOnly = !!work;
}

const keepLater = later(300, () => kept.set("notebook", box().value));

function textChanged() {
  keepLater();
  count();
}

/* ---- tokens of the text ---- */

const count = later(COUNT_MS, async () => {
  const text = box().value, view = byId("notebook-view").checked;
  counting?.abort();
  counting = new AbortController();
  if (!text) {
    showCount("0 tokens", []);
    return;
  }
  if (!isOnline() || work) {
    return;
  }
  try {
    const { tokens, length } = await json("POST", "/v1/token/encode", { text }, {}, counting.signal);
    const pieces = view ? await piecesOf(tokens, counting.signal) : [];
    showCount(countInWords(length ?? tokens.length, "token"), pieces);
  } catch (error) {
    if (error.name !== "AbortError") {
      showCount(error.message, []);
    }
  }
});

const PIECES_MAX = 2000; /* tokens that the view shows: the last ones */

/* The tokens with their texts. One request decodes one token: ids that are known are not asked for again. */
const texts = new Map();

async function piecesOf(ids, signal) {
  const shown = ids.slice(-PIECES_MAX), unknown = [...new Set(shown)].filter((id) => !texts.has(id));
  for (let i = 0; i < unknown.length; i += 8) {
    await Promise.all(unknown.slice(i, i + 8).map(async (id) => {
      texts.set(id, (await json("POST", "/v1/token/decode", { tokens: [id] }, {}, signal)).text);
    }));
  }
  return shown.map((id) => ({ id, text: texts.get(id), top: [] }));
}

/* Tokens that a generation made have alternatives. They are found by their texts, from the end on. */
function withAlternatives(pieces) {
  let next = written.length - 1;
  for (let i = pieces.length - 1; i >= 0 && next >= 0; i--) {
    if (pieces[i].text === written[next].text) {
      pieces[i] = { ...written[next], id: pieces[i].id };
      next--;
    } else if (next < written.length - 1) {
      break;
    }
  }
  return pieces;
}

function showCount(words, pieces) {
  byId("notebook-count").textContent = words;
  const view = byId("notebook-tokens");
  view.hidden = !byId("notebook-view").checked;
  if (!view.hidden) {
    renderTokens(view, withAlternatives(pieces));
  }
}

/* ---- generations ---- */

function rememberText(text) {
  before.push(text);
  while (before.length > UNDO_MAX || (before.length > 1 && before.join("").length > UNDO_BYTES)) {
    before.shift();
  }
  kept.set("notebook.undo", before);
}

async function go() {
  const node = box(), text = node.value;
  if (work || !text) {
    node.focus();
    return;
  }
  notice("notebook", null);
  rememberText(text);
  work = new Work("Writing");
  let usage = null, how = "Done";
  draw();
  try {
    const body = { ...samplerMembers(), prompt: text, stream: true, stream_options: { include_usage: true },
                   ...(byId("notebook-view").checked ? { logprobs: 5 } : {}) };
    for await (const event of events("POST", "/v1/completions", body, work.abort.signal)) {
      usage = event.usage || usage;
      const choice = event.choices?.[0];
      if (choice?.text) {
        const follow = node.scrollHeight - node.scrollTop - node.clientHeight < 40;
        node.value += choice.text;
        written.push(...completionTokens(choice.logprobs));
        work.step();
        if (follow) {
          node.scrollTop = node.scrollHeight;
        }
      }
    }
  } catch (error) {
    how = error.name === "AbortError" ? "Stopped" : "Failed";
    notice("notebook", how === "Failed" ? error.message : null);
  }
  work.end(how, usage);
  work = null;
  draw();
  textChanged();
}

function undo() {
  if (!work && before.length > 0) {
    box().value = before.pop();
    written = [];
    kept.set("notebook.undo", before);
    draw();
    textChanged();
    box().focus();
  }
}

export const stopNotebook = () => work?.abort.abort();

export function startNotebook() {
  box().value = kept.get("notebook") || "";
  before = Array.isArray(before) ? before.filter((text) => typeof text === "string") : [];
  box().addEventListener("input", textChanged);
  box().addEventListener("keydown", (e) => {
    if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) {
      e.preventDefault();
      go();
    }
  });
  byId("notebook-continue").addEventListener("click", go);
  byId("notebook-stop").addEventListener("click", stopNotebook);
  byId("notebook-undo").addEventListener("click", undo);
  byId("notebook-view").addEventListener("change", textChanged);
  draw();
}

export const showNotebook = count;

/* The page goes away. */
export const leaveNotebook = () => kept.set("notebook", box().value);
