/* tokens.js: a text as its tokens. The pointer, or the arrow keys, shows a token's id, its probability and what the
   model thought of instead. */

import { el } from "./dom.js";

const tip = el("div", { class: "tip", role: "tooltip", id: "token-tip", hidden: true });

/* What log-probabilities of an answer say: { text, id, logprob, top: [[text, logprob]] } each. */
export function chatTokens(logprobs) {
  return (logprobs?.content || []).map((token) => ({
    text: token.token, id: token.token_id, logprob: token.logprob,
    top: (token.top_logprobs || []).map((other) => [other.token, other.logprob]),
  }));
}

export function completionTokens(logprobs) {
  return (logprobs?.tokens || []).map((text, i) => ({
    text, logprob: logprobs.token_logprobs?.[i], top: Object.entries(logprobs.top_logprobs?.[i] || {}),
  }));
}

const percent = (logprob) => `${(Math.exp(logprob) * 100).toFixed(1)} %`;
const visible = (text) => text.replaceAll("\n", "⏎").replaceAll(" ", "␣") || "∅";

function fill(token) {
  const rows = token.top.map(([text, logprob]) => el("tr", { class: text === token.text ? "chosen" : "" },
                                                     el("td", {}, visible(text)), el("td", {}, percent(logprob))));
  tip.replaceChildren(
    el("div", {}, el("b", {}, visible(token.text)), token.id === undefined ? "" : ` id ${token.id}`,
       Number.isFinite(token.logprob) ? `, ${percent(token.logprob)}` : ""),
    rows.length > 0 ? el("table", {}, ...rows) : "");
}

function show(span, token) {
  fill(token);
  document.body.append(tip);
  tip.hidden = false;
  const at = span.getBoundingClientRect(), box = tip.getBoundingClientRect();
  const below = at.bottom + box.height + 8 < innerHeight;
  tip.style.left = `${Math.max(8, Math.min(at.left, innerWidth - box.width - 8))}px`;
  tip.style.top = `${below ? at.bottom + 6 : Math.max(8, at.top - box.height - 6)}px`;
}

const hide = () => { tip.hidden = true; };

/* Likely tokens have no colour; the less likely a token was, the more. */
function shade(logprob) {
  const p = Number.isFinite(logprob) ? Math.exp(logprob) : 1;
  return p > 0.8 ? "" : p > 0.4 ? "p1" : p > 0.1 ? "p2" : "p3";
}

export function renderTokens(node, tokens) {
  let current = -1;
  const spans = tokens.map((token, i) => el("span", { class: `token t${i % 2} ${shade(token.logprob)}` }, token.text));
  const choose = (i) => {
    spans[current]?.classList.remove("current");
    current = Math.max(0, Math.min(i, spans.length - 1));
    spans[current]?.classList.add("current");
    if (spans[current]) {
      show(spans[current], tokens[current]);
    }
  };
  node.replaceChildren(...spans);
  node.tabIndex = 0;
  node.setAttribute("aria-describedby", "token-tip");
  node.onpointerover = (e) => {
    const i = spans.indexOf(e.target);
    i >= 0 ? show(e.target, tokens[i]) : hide();
  };
  node.onpointerleave = hide;
  node.onblur = hide;
  node.onkeydown = (e) => {
    if (e.key === "ArrowRight" || e.key === "ArrowLeft") {
      e.preventDefault();
      choose(current + (e.key === "ArrowRight" ? 1 : -1));
    } else if (e.key === "Escape") {
      hide();
    }
  };
}
