/* sessions.js: the list of chats: new, open, rename, delete, search, export, import. */

import { byId, el, button, kept } from "./dom.js";
import { currentChat, drawChat, runningChat, showChat, stopAnswer } from "./chat.js";
import { drawSettings } from "./settings.js";
import { say, notice } from "./status.js";
import { deleteChat, importChat, isOlder, listChats, loadChat, save, sendAll } from "./store.js";
import { keptChat, newChat, soundChat } from "./tree.js";

let rows = [];
let renaming = null; /* id */

/* ---- which chat is shown ---- */

/* A reload shows the chat of its tab; a new tab shows the one that was shown last. */
function remember(id) {
  kept.set("current", id);
  try {
    sessionStorage.setItem("exl2.current", id);
  } catch { /* then a reload shows the chat that was shown last in any tab */ }
}

function remembered() {
  try {
    return sessionStorage.getItem("exl2.current") || kept.get("current");
  } catch {
    return kept.get("current");
  }
}

function show(chat) {
  remember(chat.id);
  showChat(chat);
  drawSettings(chat);
  drawList();
}

/* The chat has changed in another tab. What is being typed stays. */
function redraw(chat) {
  if (chat !== currentChat()) {
    show(chat);
    return;
  }
  drawChat();
  if (!byId("settings").contains(document.activeElement)) {
    drawSettings(chat);
  }
}

export async function openChat(id) {
  const chat = await loadChat(id);
  if (chat) {
    show(chat);
  } else {
    notice("chat", "This chat cannot be read, or has been deleted.");
    await refresh();
  }
}

export function startSessions() {
  byId("new-chat").addEventListener("click", () => {
    notice("chat", null);
    show(newChat(currentChat()));
    document.body.classList.remove("sessions-open");
    byId("message").focus();
  });
  byId("search").addEventListener("input", drawList);
  byId("export").addEventListener("click", exportChat);
  byId("import").addEventListener("click", () => byId("import-file").click());
  byId("import-file").addEventListener("change", importFile);
  const chat = newChat(), id = remembered();
  chat.id = /^[a-z0-9]{16}$/.test(id) ? id : chat.id; /* with its draft; the rest of it comes from the server */
  show(chat);
}

/* The server is there: its list, and the chat that was shown before the page was loaded. */
export async function loadSessions() {
  rows = await listChats();
  const shown = currentChat();
  if (shown.nodes.length === 0 && rows.some((row) => row.id === shown.id)) {
    const chat = await loadChat(shown.id);
    if (chat && currentChat() === shown) {
      show(chat);
    }
  }
  drawList();
}

/* The list as it is now; the chat that is shown, too, if another tab has changed it. */
export async function refresh() {
  rows = await listChats();
  const shown = currentChat(), row = rows.find((one) => one.id === shown.id);
  if (row && isOlder(row)) {
    const chat = await loadChat(shown.id);
    if (chat && currentChat().id === shown.id) {
      redraw(chat);
    }
  }
  drawList();
}

/* ---- the list ---- */

function titleBox(row) {
  const box = el("input", { type: "text", class: "rename", "aria-label": "Title of the chat", maxlength: 200 });
  box.value = row.title;
  const end = async (good) => {
    if (renaming !== row.id) {
      return;
    }
    renaming = null;
    if (good && box.value.trim()) {
      const chat = currentChat().id === row.id ? currentChat() : await loadChat(row.id);
      if (chat) {
        chat.title = row.title = box.value.trim();
        chat.named = true;
        save(chat);
      }
    }
    drawList();
    byId("sessions").querySelector(`[data-id="${row.id}"] button`)?.focus();
  };
  box.addEventListener("keydown", (e) => {
    if (e.key === "Enter" || e.key === "Escape") {
      e.preventDefault();
      end(e.key === "Enter");
    }
  });
  box.addEventListener("blur", () => end(true));
  return box;
}

function rowOf(row) {
  const shown = currentChat()?.id === row.id;
  const item = el("li", { "data-id": row.id, class: shown ? "shown" : "" });
  const onclick = () => {
    notice("chat", null);
    document.body.classList.remove("sessions-open");
    openChat(row.id).catch((error) => notice("chat", error.message));
  };
  if (renaming === row.id) {
    item.append(titleBox(row));
    return item;
  }
  item.append(
    el("button", { type: "button", class: "open", "aria-current": shown ? "true" : null, title: row.title, onclick },
       row.title, row.damaged ? el("span", { class: "hint" }, " damaged") : ""),
    button(`Rename chat ${row.title}`, "edit", () => {
      renaming = row.id;
      drawList();
      const box = byId("sessions").querySelector("input");
      box.focus();
      box.select();
    }, { bare: true }),
    button(`Delete chat ${row.title}`, "delete", () => removeChat(row), { bare: true }));
  return item;
}

export function drawList() {
  const list = byId("sessions"), words = byId("search").value.trim().toLowerCase();
  const shown = currentChat(), row = rows.find((one) => one.id === shown?.id);
  if (row) {
    row.title = shown.title;
  } else if (shown?.nodes.length > 0) {
    rows.unshift({ id: shown.id, title: shown.title, revision: 0, updated: Date.now() / 1000 });
  }
  if (renaming && list.querySelector(`[data-id="${renaming}"] input`)) {
    return; /* nothing that is typed is lost */
  }
  const found = rows.filter((one) => one.title.toLowerCase().includes(words));
  list.replaceChildren(...found.map(rowOf));
  if (found.length === 0) {
    list.append(el("li", { class: "none" }, words ? "No chat has these words in its title." : "No chats yet."));
  }
}

/* Asks before something is lost. */
export function confirmed(question, action) {
  return new Promise((answer) => {
    const dialog = el("dialog", { "aria-label": question }, el("p", {}, question),
      el("div", { class: "row end" }, button("Cancel", null, () => dialog.close("")),
         button(action, null, () => dialog.close("yes"), { class: "danger" })));
    dialog.addEventListener("close", () => {
      dialog.remove();
      answer(dialog.returnValue === "yes");
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

async function removeChat(row) {
  if (!await confirmed(`Delete the chat “${row.title}” with all of its branches?`, "Delete chat")) {
    return;
  }
  if (runningChat()?.id === row.id) {
    stopAnswer();
  }
  try {
    await deleteChat(row.id);
  } catch (error) {
    notice("chat", error.message);
    return;
  }
  rows = rows.filter((one) => one.id !== row.id);
  kept.set("draft." + row.id, null);
  if (currentChat().id === row.id) {
    show(newChat());
  }
  drawList();
  byId("new-chat").focus();
}

/* ---- files ---- */

function exportChat() {
  const chat = currentChat(), text = JSON.stringify({ format: "exl2 chats", chats: [keptChat(chat)] }, null, 2);
  const address = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  const name = chat.title.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 40) || "chat";
  const link = el("a", { href: address, download: `${name}.json` });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
  say("Exported");
}

async function importFile(e) {
  const file = e.target.files[0];
  let chats = [];
  try {
    const given = JSON.parse(await file.text());
    chats = (Array.isArray(given?.chats) ? given.chats : [given]).map(soundChat).filter((chat) => chat);
  } catch { /* the sentence below says so */ }
  e.target.value = "";
  notice("chat", chats.length === 0 ? "This file has no chat in it that this page can read." : null);
  for (const chat of chats) {
    await importChat(chat, rows);
  }
  if (chats.length > 0) {
    await sendAll();
    await refresh();
    show(chats[0]);
    say("Imported");
  }
}
