/* attach.js: pictures that are about to be sent: attached by a button, pasted or dropped, shown above the message, and
   refused in a sentence where the model cannot see them. What is attached survives a reload, if this browser's store
   has room for it. */

import { byId, kept } from "./dom.js";
import { notice } from "./status.js";
import { CHAT_BYTES, pictureList, readPicture, soundPicture } from "./pictures.js";

let chat = null;     /* that is shown */
let attached = [];   /* pictures of its next message */
let reading = null;  /* a promise while files are read */
let card = null;     /* of the model; undefined: none is loaded, null: not known yet */

export const setModel = (known) => { card = known ?? undefined; };
export const attachedPictures = () => attached;
export const readingPictures = () => reading;

const bytesOf = (pictures) => pictures.reduce((sum, picture) => sum + picture.url.length, 0);

/* Why the model cannot read so many pictures; null: it can, as far as the page knows. */
export function pictureRefusal(count) {
  const parameters = card?.parameters, most = parameters?.images_max;
  if (count === 0 || card === null) {
    return null;
  }
  if (card === undefined) {
    return "No model is loaded, so there is none that could see a picture.";
  }
  if (!parameters?.use_vision) {
    return `The model ${card.id} cannot see pictures. Load a model that sees, or begin a chat without pictures.`;
  }
  return most && count > most
    ? `The model reads ${most} pictures of a chat at most, and this one would have ${count}.` : null;
}

/* ---- what is attached ---- */

function draw() {
  const old = byId("attached"), list = pictureList(attached, "Attached pictures", remove);
  list.id = "attached";
  list.hidden = attached.length === 0;
  old.replaceWith(list);
}

function keep() {
  const lost = !kept.set("pictures." + chat.id, attached.length > 0 ? attached : null);
  if (lost) {
    kept.set("pictures." + chat.id, null);
  }
  notice("pictures", lost ? "This browser's store is full: a reload of this page would lose the attached pictures."
    : null);
}

function remove(i) {
  attached.splice(i, 1);
  keep();
  draw();
  const buttons = byId("attached").querySelectorAll(".icon");
  (buttons[Math.min(i, buttons.length - 1)] || byId("message")).focus();
}

/* The chat is shown, with what was attached to its next message. */
export function showAttached(next) {
  chat = next;
  attached = (kept.get("pictures." + chat.id) || []).map(soundPicture).filter((picture) => picture);
  notice("pictures", null);
  draw();
}

/* They are sent. */
export function takeAttached() {
  const taken = attached;
  attached = [];
  keep();
  draw();
  return taken;
}

/* ---- attaching ---- */

async function readAll(files) {
  const own = chat;
  let why = null;
  for (const file of files) {
    try {
      const picture = await readPicture(file), all = [...Object.values(own.pictures), ...attached, picture];
      if (chat !== own) {
        return;
      }
      why = pictureRefusal(attached.length + 1);
      if (!why && bytesOf(all) > CHAT_BYTES) {
        why = `A chat keeps pictures of ${CHAT_BYTES >> 20} MiB at most: begin a new chat for “${picture.name}”.`;
      }
      if (why) {
        break;
      }
      attached.push(picture);
    } catch (error) {
      why = error.message;
    }
  }
  keep();
  if (why) {
    notice("pictures", why);
  }
  draw();
  byId("message").focus();
}

export function attach(files) {
  const why = pictureRefusal(1), some = [...files];
  if (why) {
    notice("pictures", why);
  } else if (some.length > 0) {
    const own = (reading || Promise.resolve()).then(() => readAll(some)).finally(() => {
      reading = reading === own ? null : reading;
    });
    reading = own;
  }
}

/* ---- the ways to attach ---- */

const hasFiles = (e) => e.dataTransfer?.types.includes("Files");
const chatIsShown = () => document.body.dataset.tab === "chat" && !document.querySelector("dialog[open]");

function startDrop() {
  const show = (on) => byId("chat").classList.toggle("dropping", on);
  addEventListener("dragover", (e) => {
    if (hasFiles(e)) { /* elsewhere, too, so that the browser does not leave the page for a file */
      e.preventDefault();
      e.dataTransfer.dropEffect = chatIsShown() ? "copy" : "none";
      show(chatIsShown());
    }
  });
  addEventListener("dragleave", (e) => {
    if (!e.relatedTarget) {
      show(false);
    }
  });
  addEventListener("drop", (e) => {
    show(false);
    if (hasFiles(e)) {
      e.preventDefault();
      if (chatIsShown()) {
        attach(e.dataTransfer.files);
      }
    }
  });
}

export function startAttach() {
  const file = byId("attach-file");
  byId("attach").addEventListener("click", () => {
    const why = pictureRefusal(1);
    notice("pictures", why);
    if (!why) {
      file.click();
    }
  });
  file.addEventListener("change", () => {
    attach(file.files);
    file.value = "";
  });
  addEventListener("paste", (e) => {
    const { files, types } = e.clipboardData, typing = e.target.matches?.("input, textarea");
    const text = typing && types.includes("text/plain"); /* office programs put a picture of the text beside it */
    const elsewhere = typing && e.target.id !== "message";
    if (chatIsShown() && files.length > 0 && !text && !elsewhere) {
      e.preventDefault();
      attach(files);
    }
  });
  startDrop();
}
