/* dom.js: elements, icons, numbers in words; what was typed as JSON; this browser's store. Text is never parsed as
   HTML, so nothing that a model writes can become part of the page. */

const SVG = "http://www.w3.org/2000/svg";

/* Outlines of 24 x 24, drawn with lines. */
const ICONS = {
  menu: "M4 7h16M4 12h16M4 17h16",
  plus: "M12 5v14M5 12h14",
  sliders: "M4 7h9M17 7h3M4 17h3M11 17h9M15 4.5v5M9 14.5v5",
  theme: "M12 3.5a8.5 8.5 0 1 0 0 17zM12 3.5a8.5 8.5 0 0 1 0 17",
  send: "M12 19V5M6 11l6-6 6 6",
  stop: "M7 7h10v10H7z",
  down: "M12 5v14M6 13l6 6 6-6",
  undo: "M9 14L4 9l5-5M4 9h10a6 6 0 0 1 0 12h-3",
  export: "M12 15V4M8 8l4-4 4 4M5 15v4h14v-4",
  import: "M12 4v11M8 11l4 4 4-4M5 15v4h14v-4",
  edit: "M4 20h4L19 9l-4-4L4 16zM13 7l4 4",
  regenerate: "M20 6v5h-5M4 18v-5h5M5.5 9a7 7 0 0 1 12-2.5L20 11M18.5 15a7 7 0 0 1-12 2.5L4 13",
  go: "M5 12h13M12 6l6 6-6 6",
  delete: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
  copy: "M9 9h10v11H9zM15 9V4H5v11h4",
  left: "M15 6l-6 6 6 6",
  right: "M9 6l6 6-6 6",
  close: "M6 6l12 12M18 6L6 18",
  check: "M5 13l5 5L19 7",
  tokens: "M4 8h7v8H4zM13 8h7v8h-7z",
  picture: "M4 5h16v14H4zM4 16l5-5 5 5 2-2 4 4M15 9.5h.01",
  reset: "M4 12a8 8 0 1 0 2.5-5.8L4 8M4 4v4h4",
};

export const byId = (id) => document.getElementById(id);

export function icon(name) {
  const svg = document.createElementNS(SVG, "svg"), path = document.createElementNS(SVG, "path");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}

/* An element. `about` has attributes; "on..." are listeners, and false or null leaves an attribute out. Children that
   may be many come as an array: a call has room for some hundred thousand arguments only. */
export function el(tag, about, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(about || {})) {
    if (name.startsWith("on")) {
      node.addEventListener(name.slice(2), value);
    } else if (name === "class") {
      node.className = value;
    } else if (value === true) {
      node.setAttribute(name, "");
    } else if (value !== false && value !== null && value !== undefined) {
      node.setAttribute(name, value);
    }
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined && child !== false) {
      node.append(child);
    }
  }
  return node;
}

/* A button with an icon. The text is its name; with `bare` only screen readers and tooltips say it. */
export function button(text, picture, onclick, about) {
  const { bare, ...rest } = about || {};
  const names = bare ? { "aria-label": text, title: text } : {};
  return el("button", { type: "button", class: bare ? "icon" : "", ...names, ...rest, onclick },
            picture && icon(picture), bare ? null : el("span", {}, text));
}

/* Puts the icons into the buttons of index.html. */
export function drawIcons() {
  for (const node of document.querySelectorAll("[data-icon]")) {
    const text = node.textContent.trim();
    node.replaceChildren(icon(node.dataset.icon), ...(text ? [el("span", {}, text)] : []));
    if (!text && !node.title) {
      node.title = node.getAttribute("aria-label");
    }
  }
}

/* What a later call does within `ms` replaces what an earlier one would have done. */
export function later(ms, what) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => what(...values), ms);
  };
}

export function bytesInWords(bytes) {
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  let step = 0;
  for (; bytes >= 1024 && step < units.length - 1; step++) {
    bytes /= 1024;
  }
  return `${step === 0 || bytes >= 100 ? Math.round(bytes) : bytes.toFixed(1)} ${units[step]}`;
}

export function countInWords(count, one, many = one + "s") {
  return `${Number(count).toLocaleString("en")} ${count === 1 ? one : many}`;
}

export function timeInWords(us) {
  if (!Number.isFinite(us)) {
    return "–";
  }
  return us < 1000 ? `${Math.round(us)} µs` : us < 1e6 ? `${(us / 1000).toFixed(us < 1e4 ? 2 : 1)} ms`
    : `${(us / 1e6).toFixed(1)} s`;
}

export function speedInWords(speed) {
  return `${Number.isFinite(speed) ? speed.toFixed(speed < 100 ? 1 : 0) : "0.0"} tokens/s`;
}

export const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

/* What somebody has typed as JSON. Throws a sentence that begins with `what`. */
export function readJson(text, what, isRight) {
  let value;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new Error(`${what}: this is no JSON: ${error.message}`);
  }
  if (!isRight(value)) {
    throw new Error(`${what}: this is JSON, but not of the right kind.`);
  }
  return value;
}

/* A value of this browser's store. A browser that keeps nothing, or whose store is full, gets `null` back later. */
export const kept = {
  get(name) {
    try {
      return JSON.parse(localStorage.getItem("exl2." + name));
    } catch {
      return null;
    }
  },
  set(name, value) {
    try {
      if (value === null || value === undefined) {
        localStorage.removeItem("exl2." + name);
      } else {
        localStorage.setItem("exl2." + name, JSON.stringify(value));
      }
      return true;
    } catch {
      return false;
    }
  },
  names(prefix) {
    try {
      return Object.keys(localStorage).filter((name) => name.startsWith("exl2." + prefix))
        .map((name) => name.slice(5));
    } catch {
      return [];
    }
  },
};
