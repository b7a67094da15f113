/* markdown.js: Markdown as elements: what models write of it. Blocks: headings, paragraphs, lists, quotes, code,
   tables, rules. Inside: code, bold, italic, strike, links. HTML stays text, and pictures become links, so that nothing
   is loaded from elsewhere. An answer that grows changes its last blocks alone. */

import { el, button } from "./dom.js";

const FENCE = /^( {0,3})(`{3,}|~{3,})\s*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*)$/;
const RULE = /^ {0,3}([-*_])(\s*\1){2,}\s*$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])(\s+|$)/;
const TABLE_LINE = /^ {0,3}\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;
const DEPTH_MAX = 12;    /* of quotes and lists in each other */
const COLUMNS_MAX = 100; /* of a table; a larger one stays text */

/* ---- blocks ---- */

/* The lines as blocks { kind, lines, ... }. */
function blocksOf(lines) {
  const blocks = [];
  for (let i = 0; i < lines.length;) {
    const first = i, block = blockAt(lines, i);
    i = Math.max(block.end, first + 1);
    if (block.kind !== "empty") {
      blocks.push({ ...block, lines: lines.slice(first, i) });
    }
  }
  return blocks;
}

function blockAt(lines, i) {
  const line = lines[i], fence = FENCE.exec(line);
  if (!line.trim()) {
    return { kind: "empty", end: i + 1 };
  }
  if (fence) {
    return fenceAt(lines, i, fence);
  }
  if (HEADING.test(line)) {
    return { kind: "heading", end: i + 1 };
  }
  if (RULE.test(line)) {
    return { kind: "rule", end: i + 1 };
  }
  if (QUOTE.test(line)) {
    return { kind: "quote", end: lineAfter(lines, i, (next) => QUOTE.test(next)) };
  }
  if (ITEM.test(line)) {
    return listAt(lines, i);
  }
  if (line.includes("|") && isTableLine(lines[i + 1])) {
    return { kind: "table", end: lineAfter(lines, i, (next) => next.includes("|")) };
  }
  return { kind: "paragraph", end: lineAfter(lines, i, (next) => !beginsBlock(next)) };
}

/* The line under the names of the columns. */
function isTableLine(line) {
  return line !== undefined && line.includes("-") && TABLE_LINE.test(line) && cellsOf(line).length <= COLUMNS_MAX;
}

function beginsBlock(line) {
  return !line.trim() || FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line)
    || ITEM.test(line);
}

function lineAfter(lines, i, belongs) {
  for (i++; i < lines.length && belongs(lines[i]); i++) { /* the next line */ }
  return i;
}

/* A fence that is not closed yet goes on to the end of the text. */
function fenceAt(lines, i, fence) {
  const mark = fence[2], indent = fence[1].length;
  let end = i + 1;
  for (; end < lines.length; end++) {
    const line = lines[end].trim();
    if (line.startsWith(mark) && !line.replaceAll(mark[0], "").trim()) {
      break;
    }
  }
  return { kind: "code", language: fence[3].trim().split(/\s/)[0], indent, closed: end < lines.length, end: end + 1 };
}

/* Items of one list, with the lines that are indented under them. */
function listAt(lines, i) {
  const first = ITEM.exec(lines[i]), ordered = /\d/.test(first[2]), indent = first[1].length;
  const items = [];
  let end = i, gap = false;
  for (; end < lines.length; end++) {
    const line = lines[end], item = ITEM.exec(line), depth = /^\s*/.exec(line)[0].length;
    if (!line.trim()) {
      gap = true;
    } else if (item && depth <= indent + 1) {
      if (/\d/.test(item[2]) !== ordered || RULE.test(line)) {
        break;
      }
      items.push({ number: parseInt(item[2], 10), inside: item[0].length, lines: [line.slice(item[0].length)] });
    } else if (depth > indent + 1 || (!gap && !beginsBlock(line))) {
      const under = items[items.length - 1];
      under.lines.push(...(gap ? [""] : []), line.slice(Math.min(depth, under.inside)));
    } else {
      break;
    }
    gap = line.trim() ? false : gap;
  }
  return { kind: "list", ordered, items, end };
}

/* ---- inside of a line ---- */

const INLINE = [
  [/^(`+)([^`]|[^`][^]*?[^`])\1(?!`)/, (m) => el("code", {}, m[2].replace(/^ (.*) $/s, "$1"))],
  [/^!?\[([^\]\n]*)\]\(\s*<?((?:[^\s()<>]|\([^\s()]*\))*)>?(?:\s+"[^"]*")?\s*\)/,
   (m, depth) => link(m[1], m[2], depth)],
  [/^<(https?:\/\/[^\s<>]+)>/, (m) => link(m[1], m[1], DEPTH_MAX)],
  [/^https?:\/\/[^\s<>()]*[^\s<>().,;:!?'"*_`\]]/, (m) => link(m[0], m[0], DEPTH_MAX)],
  [/^(\*\*\*|___)(?=\S)([^]*?\S)\1/, (m, depth) => el("strong", {}, el("em", {}, ...inline(m[2], depth)))],
  [/^\*\*(?=\S)([^]*?[^\s*]\*?)\*\*(?!\*)/, (m, depth) => el("strong", {}, ...inline(m[1], depth))],
  [/^__(?=\S)([^]*?\S)__(?!\w)/, (m, depth) => el("strong", {}, ...inline(m[1], depth))],
  [/^\*(?=[^\s*])([^*]*[^\s*])\*(?!\*)/, (m, depth) => el("em", {}, ...inline(m[1], depth))],
  [/^_(?=[^\s_])([^_]*[^\s_])_(?!\w)/, (m, depth) => el("em", {}, ...inline(m[1], depth))],
  [/^~~(?=\S)([^~]*\S)~~/, (m, depth) => el("del", {}, ...inline(m[1], depth))],
  [/^\\([!-/:-@[-`{-~])/, (m) => m[1]],
  [/^(?: {2,}|\\)\n/, () => el("br")],
];
const SPECIAL = /[`!\[<*_~\\]|https?:\/\/| {2,}\n/g; /* what a pattern of INLINE begins with */
const INLINE_MAX = 8000; /* characters of a paragraph that is searched for marks: a search may read on to its end */

/* Only addresses that cannot run a script become links. */
function link(text, address, depth) {
  if (!/^(https?:\/\/|mailto:)/i.test(address)) {
    return text || address;
  }
  return el("a", { href: address, target: "_blank", rel: "noopener noreferrer" }, ...inline(text || address, depth));
}

function inline(text, depth = 0) {
  const parts = [];
  let plain = 0, at = 0;
  if (depth >= DEPTH_MAX || text.length > INLINE_MAX) {
    return [text];
  }
  while (at < text.length) {
    SPECIAL.lastIndex = at;
    const found = SPECIAL.exec(text);
    if (!found) {
      break;
    }
    at = found.index;
    const inWord = at > 0 && /\w/.test(text[at - 1]) && (text[at] === "_" || text[at] === "h");
    const rest = inWord ? "" : text.slice(at);
    let matched = null, make = null;
    for (const [pattern, result] of rest ? INLINE : []) {
      matched = pattern.exec(rest);
      if (matched) {
        make = result;
        break;
      }
    }
    if (matched) {
      parts.push(text.slice(plain, at), make(matched, depth + 1));
      at += matched[0].length;
      plain = at;
    } else {
      at += /^`+/.exec(rest)?.[0].length || 1;
    }
  }
  parts.push(text.slice(plain));
  return parts.filter((part) => part !== "");
}

/* ---- elements ---- */

function codeBlock(block) {
  const inside = block.lines.slice(1, block.closed ? -1 : undefined);
  const text = inside.map((line) => line.slice(Math.min(block.indent, /^ */.exec(line)[0].length))).join("\n");
  const copied = button("Copy code", "copy", () => copyText(text, copied), { bare: true });
  return el("div", { class: "code" },
            el("div", { class: "code-head" }, el("span", {}, block.language || "text"), copied),
            el("pre", { tabindex: "0" }, el("code", {}, text)));
}

/* Without TLS and away from the server's own machine there is no navigator.clipboard. */
function copySelected(text, node) {
  const box = el("textarea", { class: "hidden", "aria-hidden": "true" });
  box.value = text;
  document.body.append(box);
  box.select();
  const copied = document.execCommand("copy");
  box.remove();
  node.focus();
  return copied;
}

/* Puts the text into the clipboard; the button shows for a moment that it is there. */
export async function copyText(text, node) {
  const title = node.title;
  let copied = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    copied = copySelected(text, node);
  }
  node.classList.toggle("done", copied);
  node.title = copied ? "Copied" : "This browser did not let the page copy";
  setTimeout(() => {
    node.classList.remove("done");
    node.title = title;
  }, 1500);
}

/* A heading may end with signs, too: ## Title ## */
function headingText(text) {
  const line = text.trimEnd();
  let end = line.length;
  while (end > 0 && line[end - 1] === "#") {
    end--;
  }
  return end === 0 || line[end - 1] === " " ? line.slice(0, end).trimEnd() : line;
}

function cellsOf(line) {
  return line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
}

function table(block) {
  const sides = cellsOf(block.lines[1])
    .map((mark) => (!mark.endsWith(":") ? "" : mark.startsWith(":") ? "middle" : "end"));
  const row = (line, tag) => {
    const cells = cellsOf(line);
    return el("tr", {}, ...sides.map((side, i) => el(tag, { class: side }, ...inline(cells[i] || ""))));
  };
  return el("div", { class: "table", tabindex: "0" },
            el("table", {}, el("thead", {}, row(block.lines[0], "th")),
               el("tbody", {}, block.lines.slice(2).map((line) => row(line, "td")))));
}

function list(block, depth) {
  const items = block.items.map((item) => {
    const task = /^\[([ xX])\]\s+/.exec(item.lines[0]);
    const lines = task ? [item.lines[0].slice(task[0].length), ...item.lines.slice(1)] : item.lines;
    const parts = blocksOf(lines).flatMap((inside) => (inside.kind === "paragraph"
      ? [el("span", {}, ...inline(inside.lines.join("\n")))] : [element(inside, depth + 1)]));
    return el("li", {}, task && (task[1] === " " ? "☐ " : "☑ "), parts);
  });
  const start = block.ordered && block.items[0].number !== 1 ? block.items[0].number : null;
  return el(block.ordered ? "ol" : "ul", { start }, items);
}

function element(block, depth) {
  const text = block.lines.join("\n");
  if (depth > DEPTH_MAX) {
    return el("p", {}, text);
  }
  switch (block.kind) {
  case "code":
    return codeBlock(block);
  case "rule":
    return el("hr");
  case "heading": {
    const found = HEADING.exec(text);
    const level = Math.max(3, Math.min(found[1].length + 1, 6)); /* under the h2 of the message */
    return el("h" + level, {}, ...inline(headingText(found[2])));
  }
  case "quote":
    return el("blockquote", {},
              blocksOf(block.lines.map((line) => line.replace(QUOTE, ""))).map((part) => element(part, depth + 1)));
  case "list":
    return list(block, depth);
  case "table":
    return table(block);
  default:
    return el("p", {}, ...inline(text));
  }
}

/* Makes `node` show the text. Blocks whose source is as before stay as they are: a selection in them, too. */
export function renderMarkdown(node, text) {
  const blocks = blocksOf(text.replaceAll("\r\n", "\n").replaceAll("\t", "    ").split("\n"));
  const shown = node.shownBlocks || [];
  let same = 0;
  const sources = blocks.map((block) => block.lines.join("\n"));
  while (same < sources.length && same < shown.length && shown[same] === sources[same]) {
    same++;
  }
  while (node.children.length > same) {
    node.lastChild.remove();
  }
  for (const block of blocks.slice(same)) {
    node.append(element(block, 0));
  }
  node.shownBlocks = sources;
}
