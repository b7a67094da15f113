/* page.js: the start of the page: tabs, the dialog for the key, colours, and what happens when the server goes away and
   comes back. Nothing in the address acts but `#key=`, and that only gives a key. */

import { byId, drawIcons, kept } from "./dom.js";
import { askPermission, check, onKeyNeeded, onOnline, onWarning, takeKey, useKey } from "./api.js";
import { drawOnline, notice, say } from "./status.js";
import { drawChat, leaveChat, onChatChanged, startChat, stopAnswer } from "./chat.js";
import { drawList, loadSessions, refresh, startSessions } from "./sessions.js";
import { keepHere, onStore, sendAll, takeUnsent } from "./store.js";
import { leaveNotebook, showNotebook, startNotebook, stopNotebook } from "./notebook.js";
import { askModel, showModel } from "./model.js";
import { drawEngine, leaveEngine, startEngine, watchEngine } from "./engine.js";

const TABS = ["chat", "notebook", "model", "engine"];
const THEMES = ["system", "light", "dark"];
const WIDE = matchMedia("(min-width: 1100px)"); /* room for the settings beside the chat */

let begun = false; /* the server has answered with what the page needs */

/* ---- tabs ---- */

function showTab(name, focus) {
  for (const tab of TABS) {
    const node = byId("tab-" + tab), shown = tab === name;
    node.setAttribute("aria-selected", String(shown));
    node.tabIndex = shown ? 0 : -1;
    byId(tab).hidden = !shown;
    if (shown && focus) {
      node.focus();
    }
  }
  document.body.dataset.tab = name;
  kept.set("tab", name);
  leaveEngine();
  const draw = { notebook: showNotebook, model: showModel, engine: () => setTimeout(watchEngine) }[name];
  Promise.resolve(draw?.()).catch(() => {}); /* what fails because the server is away is done again when it is back */
}

function startTabs() {
  TABS.forEach((tab, i) => {
    const node = byId("tab-" + tab);
    node.addEventListener("click", () => showTab(tab));
    node.addEventListener("keydown", (e) => {
      const to = { ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: TABS.length - 1 }[e.key];
      if (to !== undefined) {
        e.preventDefault();
        showTab(TABS[(to + TABS.length) % TABS.length], true);
      }
    });
  });
  showTab(TABS.includes(kept.get("tab")) ? kept.get("tab") : "chat");
}

/* ---- panels at the sides ---- */

function startSides() {
  const settings = byId("settings"), open = byId("show-settings"), menu = byId("show-sessions");
  const show = (on) => {
    settings.hidden = !on;
    open.setAttribute("aria-expanded", String(on));
    document.body.classList.toggle("settings-open", on);
  };
  show(WIDE.matches && kept.get("settings") !== false);
  open.addEventListener("click", () => {
    show(settings.hidden);
    kept.set("settings", !settings.hidden);
    (settings.hidden ? open : settings.querySelector("button"))?.focus();
  });
  WIDE.addEventListener("change", () => show(WIDE.matches && kept.get("settings") !== false));
  menu.addEventListener("click", () => {
    const on = document.body.classList.toggle("sessions-open");
    menu.setAttribute("aria-expanded", String(on));
    (on ? byId("new-chat") : menu).focus();
  });
  byId("main").addEventListener("click", () => {
    document.body.classList.remove("sessions-open");
    menu.setAttribute("aria-expanded", "false");
  });
  addEventListener("keydown", (e) => {
    if (e.key !== "Escape" || document.querySelector("dialog[open]")) {
      return;
    }
    if (document.body.classList.contains("sessions-open")) {
      menu.click();
    } else if (!settings.hidden && !WIDE.matches) {
      open.click();
    } else if (!e.target.closest("article, li")) { /* there Escape ends an edit */
      stopAnswer();
      stopNotebook();
    }
  });
}

function startTheme() {
  const node = byId("theme");
  const show = (theme) => {
    const name = theme === "system" ? "as the system" : theme;
    document.documentElement.dataset.theme = theme;
    node.setAttribute("aria-label", `Colours: ${name}`);
    node.title = `Colours: ${name}`;
    drawEngine();
  };
  show(THEMES.includes(kept.get("theme")) ? kept.get("theme") : "system");
  node.addEventListener("click", () => {
    const next = THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length];
    kept.set("theme", next);
    show(next);
  });
}

/* ---- the key ---- */

function startKey() {
  const dialog = byId("key-dialog"), box = byId("key");
  onKeyNeeded(() => {
    if (!dialog.open) {
      dialog.showModal();
      box.focus();
    }
  });
  dialog.addEventListener("cancel", (e) => e.preventDefault()); /* without a key there is nothing to do */
  byId("key-form").addEventListener("submit", async (e) => {
    e.preventDefault();
    byId("key-error").textContent = "";
    try {
      await useKey(box.value.trim());
      box.value = "";
      dialog.close();
      await begin();
    } catch (error) {
      byId("key-error").textContent = error.status === 401 ? "The server does not know this key." : error.message;
      box.select();
    }
  });
}

/* ---- the server ---- */

/* What the page needs of the server. Done once, when it is there and knows the key. */
async function begin() {
  if (begun) {
    return;
  }
  begun = true;
  try {
    takeUnsent();
    await loadSessions(); /* asks for a key, if one is needed */
    await askPermission();
    await askModel();
    showTab(document.body.dataset.tab);
    say("Ready");
  } catch (error) {
    begun = false;
    if (error.status !== 0) {
      notice("start", error.message);
    }
  }
}

function serverChanged(online, issue) {
  const was = document.body.dataset.state;
  drawOnline(online, issue);
  if (!online) {
    keepHere();
    return;
  }
  if (!begun) {
    notice("start", null);
    begin();
  } else if (was === "offline") {
    sendAll().then(refresh).then(askModel).catch(() => {});
    watchEngine();
  }
}

function storeChanged(what, more) {
  if (what === "merged") {
    say("This chat was changed in another tab: the branches of both are kept");
    drawChat();
  } else if (what === "refused") {
    notice("store", `The chat is kept in this browser only: ${more}`);
  } else if (what === "sent") {
    notice("store", null);
  } else if (what === "local") {
    notice("store", "This server keeps no chats: they stay in this browser.");
  } else if (what === "bare") {
    notice("store", "This browser's store is full: export the chat, or closing this page loses its pictures.");
  } else if (what === "full") {
    notice("store", "This browser's store is full: export the chat, or it is lost when this page is closed.");
  }
}

function seen() {
  if (!document.hidden && begun) {
    check();
    refresh().catch(() => {});
    watchEngine();
  } else if (document.hidden) {
    leaveEngine();
  }
}

takeKey();
drawIcons();
startTheme();
startKey();
startChat();
startNotebook();
startEngine();
startSessions();
startTabs();
startSides();
onOnline(serverChanged);
onWarning((names) => notice("warning", names && `The server did not heed: ${names}.`));
onStore(storeChanged);
onChatChanged(drawList);
addEventListener("visibilitychange", seen);
addEventListener("focus", seen);
addEventListener("pagehide", () => {
  leaveChat();
  leaveNotebook();
  keepHere();
});
addEventListener("hashchange", () => { /* a key that is pasted into the address bar of an open page */
  if (location.hash.startsWith("#key=")) {
    takeKey();
    location.reload();
  }
});
begin();
