/* status.js: what the page does, for eyes, screen readers and scripts: the state in the body (idle, busy or offline),
   the status line, and the notice above the panels. */

import { byId, speedInWords, countInWords } from "./dom.js";
import { isOnline } from "./api.js";

const SAY_MS = 4000; /* between two reports of an answer that is being written: more would disturb a screen reader */

let works = 0, said = 0;
const notices = new Map(); /* kind: text; the first one is shown */

function draw() {
  const state = !isOnline() ? "offline" : works > 0 ? "busy" : "idle";
  document.body.dataset.state = state;
}

export function say(text) {
  byId("status").textContent = text;
}

/* Shows a notice until `text` is null. Each kind has one. */
export function notice(kind, text) {
  if (text) {
    notices.set(kind, text);
  } else {
    notices.delete(kind);
  }
  const node = byId("notice"), shown = [...notices.values()].join(" ");
  if (node.textContent !== shown) {
    node.textContent = shown;
  }
  node.hidden = notices.size === 0;
}

/* A work that can be stopped. Measures its speed. */
export class Work {
  constructor(what) {
    this.abort = new AbortController();
    this.what = what;
    this.tokens = 0;
    this.first = 0;
    works++;
    said = performance.now();
    say(what);
    draw();
  }

  /* A chunk with text has come. */
  step() {
    const now = performance.now();
    this.first = this.first || now;
    this.tokens++;
    if (now - said > SAY_MS) {
      said = now;
      say(`${this.what}, ${speedInWords(this.speed())}`);
    }
  }

  speed() {
    const ms = performance.now() - this.first;
    return this.tokens > 1 && ms > 0 ? (this.tokens - 1) / ms * 1000 : NaN;
  }

  /* how: "Done", "Stopped" or "Failed". usage: of the last chunk, if one came. Returns the speed. */
  end(how, usage) {
    const given = usage?.completion_tokens_per_sec, tokens = usage?.completion_tokens ?? this.tokens;
    const speed = Number.isFinite(given) ? given : this.speed();
    works--;
    draw();
    say(`${how}: ${speedInWords(speed)}, ${countInWords(tokens, "token")}`);
    return speed;
  }
}

export function drawOnline(online, issue) {
  draw();
  if (!online) {
    notice("away", "The server does not answer. The page tries again by itself; what you have typed is kept.");
    say("Offline");
    return;
  }
  if (notices.has("away")) {
    notice("away", null);
    say("Connected again");
  }
  if (issue !== undefined) {
    notice("health", issue && `The server reports a problem: ${issue}`);
  }
}
