/* engine.js: the engine at work, from /ui/watch: pages of the KV cache, jobs, speed and time of steps over a minute.
   With the admin key, a slider sets the time that a step may take, as a game does. */

import { byId, el, bytesInWords, countInWords, later, speedInWords, timeInWords } from "./dom.js";
import { events, isAdmin, isOnline, json } from "./api.js";
import { notice } from "./status.js";

const SECONDS = 60;
const TOUCHED_MS = 2000;     /* a slider that has been moved stays where it is until the server can know */
const SAMPLES = SECONDS * 4; /* the server sends four a second */
const CELLS_MAX = 960;       /* of the grid; a cell stands for several pages of a larger cache */
/* Of a step, in us; 0: none. */
const BUDGETS = [0, 500, 1000, 2000, 3000, 4000, 6000, 8000, 12000, 16000, 20000, 33000, 50000, 100000];
const KINDS = ["used", "shared", "cached", "free"]; /* of pages */
const COLUMNS = ["Job", "Phase", "Prompt", "Tokens", "tokens/s", "Age"];

let watching = null; /* AbortController */
let speeds = [], steps = [], last = null, parts = null;

/* ---- pages ---- */

/* How many cells each kind gets: in proportion, but at least one if there is any. */
function cellsOf({ total, used, shared, cached }) {
  const cells = Math.min(total, CELLS_MAX), kinds = [Math.min(shared, used), used - Math.min(shared, used), cached];
  const counts = kinds.map((count) => (count > 0 ? Math.max(1, Math.round(count / total * cells)) : 0));
  return { cells, counts };
}

function drawPages(canvas, pages) {
  const width = canvas.clientWidth, { cells, counts } = cellsOf(pages), ratio = devicePixelRatio || 1;
  const size = Math.max(6, Math.min(16, Math.floor(Math.sqrt(width * 150 / Math.max(cells, 1)))));
  const gap = size > 8 ? 3 : 2;
  const columns = Math.max(1, Math.floor((width + gap) / size)), lines = Math.max(1, Math.ceil(cells / columns));
  const style = getComputedStyle(canvas), colours = ["--shared", "--used", "--cached", "--free"]
    .map((name) => style.getPropertyValue(name));
  resize(canvas, width, lines * size - gap, ratio);
  const to = canvas.getContext("2d");
  to.setTransform(ratio, 0, 0, ratio, 0, 0);
  to.clearRect(0, 0, width, lines * size);
  for (let i = 0, kind = 0, left = counts[0]; i < cells; i++, left--) {
    while (left <= 0 && kind < 3) {
      kind++;
      left = kind < 3 ? counts[kind] : cells;
    }
    to.fillStyle = colours[kind];
    to.beginPath();
    to.roundRect((i % columns) * size, Math.floor(i / columns) * size, size - gap, size - gap, 2);
    to.fill();
  }
}

function resize(canvas, width, height, ratio) {
  const w = Math.round(width * ratio), h = Math.round(height * ratio);
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
    canvas.style.height = `${height}px`;
  }
}

/* ---- curves ---- */

/* A round number that is not below `value`. */
function ceiling(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1e-9)));
  return [1, 2, 5, 10].find((step) => step * power >= value) * power;
}

/* least: of the value at the upper line. */
function drawCurve(canvas, values, words, least) {
  const width = canvas.clientWidth, height = canvas.clientHeight, ratio = devicePixelRatio || 1;
  const style = getComputedStyle(canvas), top = ceiling(Math.max(...values, least)), to = canvas.getContext("2d");
  const w = Math.round(width * ratio), h = Math.round(height * ratio);
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
  }
  const x = (i) => width - (values.length - 1 - i) * width / (SAMPLES - 1);
  const y = (value) => height - 1 - value / top * (height - 18);
  to.setTransform(ratio, 0, 0, ratio, 0, 0);
  to.clearRect(0, 0, width, height);
  to.strokeStyle = style.getPropertyValue("--line");
  to.lineWidth = 1;
  for (const part of [0.5, 1]) {
    to.beginPath();
    to.moveTo(0, Math.round(y(top * part)) + 0.5);
    to.lineTo(width, Math.round(y(top * part)) + 0.5);
    to.stroke();
  }
  to.fillStyle = style.getPropertyValue("--muted");
  to.font = `11px ${style.fontFamily}`;
  to.fillText(words(top), 2, y(top) - 5);
  if (values.length < 2) {
    return;
  }
  to.beginPath();
  values.forEach((value, i) => to.lineTo(x(i), y(value)));
  to.strokeStyle = style.getPropertyValue("--accent");
  to.lineWidth = 1.75;
  to.lineJoin = "round";
  to.stroke();
  to.lineTo(width, height);
  to.lineTo(x(0), height);
  to.globalAlpha = 0.14;
  to.fillStyle = style.getPropertyValue("--accent");
  to.fill();
  to.globalAlpha = 1;
}

/* ---- the panel ---- */

function budgetPart() {
  const label = el("span", { "aria-hidden": "true" }, "no limit"); /* the slider says it, too */
  const range = el("input", { type: "range", id: "budget", min: 0, max: BUDGETS.length - 1, step: 1, value: 0 });
  const send = later(150, async (us) => {
    try {
      await json("POST", "/ui/budget", last?.gpu ? { gpu_us: us } : { cpu_us: us });
      notice("engine", null);
    } catch (error) {
      notice("engine", error.message);
    }
  });
  const words = (us) => (us === 0 ? "no limit" : timeInWords(us));
  range.addEventListener("input", () => {
    const us = BUDGETS[range.value];
    label.textContent = words(us);
    range.setAttribute("aria-valuetext", words(us));
    range.touched = performance.now();
    send(us);
  });
  const node = el("section", { class: "card", hidden: true },
    el("h2", {}, el("label", { for: "budget" }, "Budget of a step")),
    el("div", { class: "budget" }, range, label),
    el("p", { class: "hint" }, "As in a game: a step ends within this time, and answers take more steps."));
  const draw = (us) => {
    if (!(performance.now() - range.touched < TOUCHED_MS)) {
      const at = BUDGETS.findIndex((budget) => budget >= us);
      range.value = at < 0 ? BUDGETS.length - 1 : at;
      label.textContent = words(us);
      range.setAttribute("aria-valuetext", words(us));
    }
  };
  return { node, draw };
}

function legend(name) {
  const text = el("b", {}, "0");
  return { text, node: el("li", {}, el("i", { class: `dot ${name}`, "aria-hidden": "true" }), `${name} `, text) };
}

function build() {
  const legends = KINDS.map(legend), budget = budgetPart();
  const big = (label) => {
    const value = el("strong", {}, "–"), note = el("span", { class: "hint" }, label);
    return { value, note, node: el("div", { class: "big" }, value, note) };
  };
  const made = {
    legends, budget, speed: big("tokens/s"), step: big("step, median"), worst: big("step, p99"), jobs: big("jobs"),
    words: el("p", { class: "words" }), grid: el("canvas", { class: "pages", "aria-hidden": "true" }),
    speedCurve: el("canvas", { class: "curve", "aria-hidden": "true" }),
    stepCurve: el("canvas", { class: "curve", "aria-hidden": "true" }),
    rows: el("tbody"), none: el("p", { class: "hint" }, "No job at work."), model: el("span", { class: "hint" }),
    memory: el("p", { class: "hint" }),
  };
  made.table = el("table", { class: "jobs" },
    el("thead", {}, el("tr", {}, ...COLUMNS.map((name) => el("th", { scope: "col" }, name)))),
    made.rows);
  byId("engine").replaceChildren(
    el("div", { class: "bigs" }, made.speed.node, made.step.node, made.worst.node, made.jobs.node),
    el("div", { class: "cards" },
      el("section", { class: "card span" }, el("h2", {}, "Pages of the KV cache"), made.grid,
         el("ul", { class: "legend" }, ...legends.map((one) => one.node)), made.words),
      el("section", { class: "card" }, el("h2", {}, "Speed, over a minute"), made.speedCurve),
      el("section", { class: "card" }, el("h2", {}, "Time of a step, over a minute"), made.stepCurve),
      el("section", { class: "card span" }, el("h2", {}, "Jobs"),
         el("div", { class: "table", tabindex: "0" }, made.table), made.none),
      budget.node,
      el("section", { class: "card" }, el("h2", {}, "Memory"), made.model, made.memory)));
  return made;
}

function jobRow(job) {
  const age = job.age_ms >= 1000 ? `${(job.age_ms / 1000).toFixed(1)} s` : `${Math.round(job.age_ms)} ms`;
  return el("tr", {}, el("td", {}, String(job.id)),
            el("td", {}, el("span", { class: `phase ${job.phase}` }, job.phase)),
            ...[job.prompt_tokens, job.tokens, job.tokens_per_second?.toFixed(1) ?? "–", age]
              .map((text) => el("td", { class: "end" }, String(text))));
}

function take(event) {
  const { pages, step_us: step, jobs = [] } = event;
  last = { ...event, gpu: event.device_bytes > 0 };
  speeds = [...speeds, event.tokens_per_second || 0].slice(-SAMPLES);
  steps = [...steps, step?.p50 || 0].slice(-SAMPLES);
  parts = parts || build();
  parts.speed.value.textContent = (event.tokens_per_second || 0).toFixed(1);
  parts.step.value.textContent = timeInWords(step?.p50);
  parts.worst.value.textContent = timeInWords(step?.p99);
  parts.jobs.value.textContent = String(jobs.length);
  KINDS.forEach((kind, i) => { parts.legends[i].text.textContent = pages[kind].toLocaleString("en"); });
  parts.words.textContent = `${pages.used} of ${countInWords(pages.total, "page")} used, ${pages.shared} shared, `
    + `${pages.cached} cached, ${pages.free} free; a page is ${bytesInWords(event.page_bytes)}. `
    + `Step ${timeInWords(step?.p50)}, p99 ${timeInWords(step?.p99)}, longest ${timeInWords(step?.max)}. `
    + `${speedInWords(event.tokens_per_second || 0)}.`;
  parts.model.textContent = event.model || "No model";
  parts.memory.textContent = [event.device_bytes > 0 && `${bytesInWords(event.device_bytes)} of the device`,
                              `${bytesInWords(event.host_bytes || 0)} of the host`].filter((part) => part).join(", ");
  parts.rows.replaceChildren(...jobs.map(jobRow));
  parts.table.hidden = jobs.length === 0;
  parts.none.hidden = jobs.length > 0;
  parts.budget.node.hidden = !isAdmin();
  parts.budget.draw(last.gpu ? event.gpu_us : event.cpu_us);
  draw();
}

function draw() {
  if (parts && last && !byId("engine").hidden) {
    drawPages(parts.grid, last.pages);
    drawCurve(parts.speedCurve, speeds, (value) => `${value} tokens/s`, 10);
    drawCurve(parts.stepCurve, steps, timeInWords, 1000);
  }
}

/* Watches while the panel is seen, and again after the server was away. */
export async function watchEngine() {
  if (watching || byId("engine").hidden || document.hidden || !isOnline()) {
    return;
  }
  watching = new AbortController();
  try {
    for await (const event of events("GET", "/ui/watch", undefined, watching.signal)) {
      take(event);
    }
  } catch (error) {
    if (error.name !== "AbortError" && error.status !== 0) {
      notice("engine", error.message);
    }
  }
  const stopped = watching.signal.aborted;
  watching = null;
  if (!stopped) {
    setTimeout(watchEngine, 1000);
  }
}

export function leaveEngine() {
  watching?.abort();
}

export function startEngine() {
  addEventListener("resize", later(100, draw));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
}

export const drawEngine = draw;
