/* pictures.js: pictures as files, clipboards and drops bring them: checked, made small enough, and shown. A picture is
   { name, url, width, height }; the url is a data: URL of PNG or JPEG, so that it can be kept and sent as it is. */

import { el, button } from "./dom.js";

export const CHAT_BYTES = 8 << 20; /* of all pictures of a chat, as text: the server keeps 16 MiB of a chat */

const FILE_BYTES = 1 << 20;  /* a larger file is encoded anew, */
const PIXELS = 3840 * 2160;  /* and so is one with more pixels, as the server takes no more */
const SIDE = 2048;           /* the longer side of what is encoded anew, at most */
const QUALITY = 0.9;
const DATA_URL = /^data:image\/(png|jpeg);base64,[A-Za-z0-9+/]+={0,2}$/;

/* A picture of unknown origin, such as an imported file, as a sound one; null: it is none. */
export function soundPicture(value) {
  const good = typeof value?.url === "string" && value.url.length <= CHAT_BYTES && DATA_URL.test(value.url);
  return good ? { name: String(value.name || "picture").slice(0, 200), url: value.url,
                  width: Number(value.width) || 0, height: Number(value.height) || 0 } : null;
}

function urlOf(blob) {
  return new Promise((done, failed) => {
    const reader = new FileReader();
    reader.onload = () => done(reader.result);
    reader.onerror = () => failed(reader.error);
    reader.readAsDataURL(blob);
  });
}

/* What the first bytes say, as names of files are often wrong. */
async function typeOf(file) {
  const [a, b, c] = new Uint8Array(await file.slice(0, 3).arrayBuffer());
  return a === 0x89 && b === 0x50 ? "image/png" : a === 0xFF && b === 0xD8 && c === 0xFF ? "image/jpeg" : null;
}

/* The picture as JPEG, not larger than SIDE. What can be seen through is white, as for the model. */
function encodeAnew(bitmap) {
  const scale = Math.min(1, SIDE / Math.max(bitmap.width, bitmap.height)), canvas = el("canvas");
  canvas.width = Math.max(1, Math.round(bitmap.width * scale));
  canvas.height = Math.max(1, Math.round(bitmap.height * scale));
  const to = canvas.getContext("2d");
  to.fillStyle = "#ffffff";
  to.fillRect(0, 0, canvas.width, canvas.height);
  to.imageSmoothingQuality = "high";
  to.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  return new Promise((done) => {
    canvas.toBlob((blob) => done([blob, canvas.width, canvas.height]), "image/jpeg", QUALITY);
  });
}

/* Reads a file. Throws a sentence if it is no picture that can be sent. */
export async function readPicture(file) {
  const type = await typeOf(file), name = file.name || "picture";
  if (!type) {
    throw new Error(`“${name}” is neither a PNG nor a JPEG picture.`);
  }
  let bitmap = null;
  try {
    bitmap = await createImageBitmap(new Blob([file], { type }));
  } catch {
    throw new Error(`“${name}” cannot be read: the picture is damaged or too large.`);
  }
  let { width, height } = bitmap, blob = new Blob([file], { type });
  if (file.size > FILE_BYTES || width * height > PIXELS) {
    [blob, width, height] = await encodeAnew(bitmap);
  }
  bitmap.close();
  if (!blob) {
    throw new Error(`“${name}” cannot be made smaller: it is too large for this browser.`);
  }
  return { name, url: await urlOf(blob), width, height };
}

const sizeInWords = (picture) => (picture.width ? `${picture.width} × ${picture.height}` : "");

/* Shows a picture as large as the window allows. */
function showLarge(picture) {
  const dialog = el("dialog", { class: "large", "aria-label": picture.name },
    el("img", { src: picture.url, alt: picture.name }),
    el("div", { class: "row" }, el("span", { class: "hint" }, `${picture.name} ${sizeInWords(picture)}`),
       button("Close picture", "close", () => dialog.close(), { bare: true })));
  dialog.addEventListener("click", (e) => {
    if (e.target === dialog) { /* beside the picture */
      dialog.close();
    }
  });
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

/* A list of pictures; undefined stands for one that was not kept. `drop`, if given, takes the place of one that is to
   be removed. */
export function pictureList(pictures, label, drop) {
  return el("ul", { class: "pictures", "aria-label": label }, ...pictures.map((picture, i) => el("li", {},
    picture ? el("button", { type: "button", class: "picture", "aria-label": `Show picture ${picture.name}`,
                             title: `${picture.name} ${sizeInWords(picture)}`, onclick: () => showLarge(picture) },
                 el("img", { src: picture.url, alt: "" }))
      : el("span", { class: "picture lost" }, "This picture was not kept"),
    drop ? button(`Remove picture ${picture?.name || i + 1}`, "close", () => drop(i), { bare: true }) : "")));
}
