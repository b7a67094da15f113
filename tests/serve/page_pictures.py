"""page_pictures.py: tests of pictures in the Chat panel: attached, pasted, dropped, sent, kept, refused.
takes: page_rig.py.
gives: PictureTests."""

import base64
import json

from browser import Keys
from page_rig import Case, EXPORTED
from pictures import png
from server import check

# Files of the browser's own making: [name, type, width, height], of noise or of one colour.
MADE = """
const [wanted, noise, done] = arguments;
Promise.all(wanted.map(async ([name, type, width, height]) => {
  const canvas = Object.assign(document.createElement('canvas'), { width, height }), to = canvas.getContext('2d');
  to.fillStyle = '#3070b0';
  to.fillRect(0, 0, width, height);
  for (let i = 0; i < 40; i++) {
    to.fillStyle = `hsl(${i * 47} 70% 60%)`;
    to.fillRect((i * 137) % width, (i * 91) % height, width / 7, height / 9);
  }
  if (noise) {
    const data = to.getImageData(0, 0, width, height);
    for (let i = 0, x = 1; i < data.data.length; i++) {
      x = (Math.imul(x, 1103515245) + 12345) & 0x7fffffff;
      data.data[i] = i % 4 === 3 ? 255 : (x >> 16) & 255;
    }
    to.putImageData(data, 0, 0);
  }
  const blob = await new Promise((made) => canvas.toBlob(made, type, 0.95));
  return new Promise((read) => {
    const reader = new FileReader();
    reader.onload = () => read(reader.result.split(',')[1]);
    reader.readAsDataURL(blob);
  });
})).then(done);
"""

# A paste or a drop of files [name, type, base64], perhaps with a text.
BROUGHT = """
const [how, files, text, target] = arguments, bag = new DataTransfer();
for (const [name, type, data] of files) {
  bag.items.add(new File([Uint8Array.from(atob(data), (c) => c.charCodeAt(0))], name, { type }));
}
if (text) bag.setData('text/plain', text);
const node = document.querySelector(target);
if (how === 'paste') {
  node.dispatchEvent(new ClipboardEvent('paste', { clipboardData: bag, bubbles: true, cancelable: true }));
  return true;
}
const over = new DragEvent('dragover', { dataTransfer: bag, bubbles: true, cancelable: true });
node.dispatchEvent(over);
window.dropping = document.querySelector('#chat').classList.contains('dropping');
const drop = new DragEvent('drop', { dataTransfer: bag, bubbles: true, cancelable: true });
node.dispatchEvent(drop);
return over.defaultPrevented && drop.defaultPrevented;
"""


def pictures_of(message):
    """The bytes of the pictures of a message that was sent, with their types."""
    urls = [part["image_url"]["url"] for part in message["content"] if part["type"] == "image_url"]
    return [(url.partition(";")[0][5:], base64.b64decode(url.partition(",")[2])) for url in urls]


class PictureTests(Case):
    # ---- steps ----

    def made(self, *wanted, noise=False):
        """Files in self.out: their paths."""
        self.b.driver.set_script_timeout(60)
        datas = self.b.driver.execute_async_script(MADE, [list(one) for one in wanted], noise)
        paths = []
        for (name, *_), data in zip(wanted, datas):
            paths.append(self.out / name)
            paths[-1].write_bytes(base64.b64decode(data))
        return paths

    def attach(self, *paths):
        self.b.script("document.querySelector('#attach-file').hidden = false")
        box = self.b.driver.find_element("css selector", "#attach-file")
        box.send_keys("\n".join(str(path.resolve()) for path in paths))
        self.b.script("document.querySelector('#attach-file').hidden = true")

    def bring(self, how, *files, text=None, target="#message"):
        return self.b.script(BROUGHT, how, [[n, t, base64.b64encode(d).decode()] for n, t, d in files], text, target)

    def attached(self, count):
        b = self.b
        items = lambda: b.all("listitem", within=b.driver.find_element("id", "attached"))
        b.wait(lambda: len(items()) == count, f"{count} attached pictures")

    def shown(self, i):
        """How many pictures message i shows, once they are drawn."""
        nodes = self.article(i).find_elements("css selector", ".pictures img")
        self.b.wait(lambda: all(n.get_property("naturalWidth") > 0 for n in nodes), "the pictures to be drawn")
        return len(nodes)

    def told(self, words):
        self.b.wait(lambda: any(words in n.text for n in self.b.all("alert")), f"the sentence: {words}")

    def sees(self):
        """Does the model of the server see? Else the page must refuse pictures in a sentence."""
        return self.b.script("return fetch('/v1/model').then((a) => a.json()).then((m) => m.parameters.use_vision)")

    # ---- tests ----

    def test_pictures(self):
        """Attach, remove, send, reload, edit, regenerate: the picture stays with its message."""
        server = self.fresh()
        self.short_answers()
        b = self.b
        if not self.sees():
            return self.blind()
        paths = self.made(("a sky.png", "image/png", 320, 200), ("photo.jpg", "image/jpeg", 400, 300),
                          ("third.png", "image/png", 90, 160))
        self.attach(*paths)
        self.attached(3)
        b.click("button", "Remove picture third.png")
        self.attached(2)
        b.driver.refresh()
        self.attached(2)
        self.looks("attached")
        self.say("What is this?")
        self.attached(0)
        check(self.shown(0) == 2 and b.texts()[0] == "What is this?", "the bubble shows them")
        check(b.texts()[1] != "" and "error" not in self.article(1).get_attribute("innerHTML"), f"an answer: {b.texts()}")
        if self.mock:
            sent = server.chats[-1]["messages"]
            check(pictures_of(sent[0]) == [("image/png", paths[0].read_bytes()), ("image/jpeg", paths[1].read_bytes())],
                  "the files are sent as they are")
            check(sent[0]["content"][-1] == {"type": "text", "text": "What is this?"}, "with the text")
            check("I see 2." in b.texts()[1], f"the model sees both: {b.texts()[1]}")
        self.say("And now?")
        self.stored()
        b.driver.refresh()
        b.wait(lambda: len(b.texts()) == 4, "the messages after a reload")
        check(self.shown(0) == 2, "pictures are stored with the chat")
        self.looks("chat")
        serious = b.axe()
        check(not serious, f"axe: {serious}")
        self.press(0, "Edit")
        b.click("button", "Remove picture photo.jpg")
        b.driver.refresh()
        b.wait(lambda: b.all("textbox", "Edit message"), "the edit after a reload")
        b.type("Edit message", " Look again.")
        b.click("button", "Save")
        self.done()
        check(self.shown(0) == 1 and "2/2" in self.article(0).text, "an edit keeps what was not removed")
        self.press(1, "Regenerate")
        self.done()
        if self.mock:
            for body in server.chats[-2:]:
                check([t for t, _ in pictures_of(body["messages"][0])] == ["image/png"], "edit and new answer have it")
        self.press(0, "Previous version")
        check(self.shown(0) == 2, "the first branch has both")
        b.all("button", "Show picture a sky.png", self.article(0))[0].click()
        check("320 × 200" in b.one("dialog", "a sky.png").text, "a picture is shown large")
        b.shot(self.out / "picture-large.png")
        b.click("button", "Close picture")
        b.script(EXPORTED)
        b.click("button", "Export")
        text = b.wait(lambda: b.script("return window.exported"), "the exported file")
        chat = json.loads(text)["chats"][0]
        check(len(chat["pictures"]) == 2, "the file has each picture once")
        hostile = {"url": "data:text/html;base64,AAAA"}
        chat["pictures"].update({"aaaaaaaaaaaaaaaa": hostile, "__proto__": next(iter(chat["pictures"].values()))})
        chat["nodes"][0]["pictures"] += ["aaaaaaaaaaaaaaaa", "constructor", "__proto__"]
        text = json.dumps({"chats": [chat]})
        file = self.out / "import-pictures.json"
        file.write_text(text)
        b.script("document.querySelector('#import-file').hidden = false")
        b.driver.find_element("css selector", "#import-file").send_keys(str(file.resolve()))
        b.wait(lambda: b.one("status").text == "Imported", "the import")
        check(self.shown(0) == 2, "and an import has them, too")
        lost = self.article(0).find_elements("css selector", ".lost")
        check(len(lost) == 1 and "not kept" in lost[0].text, "what is no picture is not shown")

    def looks(self, name):
        """Screenshots in both sizes and colours; nothing sticks out, and all texts can be read."""
        for width, height in ((1280, 800), (390, 780)):
            for colours in ("light", "dark"):
                self.b.size(width, height)
                self.b.prefer(prefers_color_scheme=colours)
                self.b.script("document.querySelector('#messages').scrollTop = 0")
                check(self.b.sideways() == [], f"{name} {width}: nothing sticks out: {self.b.sideways()[:3]}")
                check(self.b.low_contrast()[1] == [], f"{name} {colours}: contrast: {self.b.low_contrast()[1][:3]}")
                self.b.shot(self.out / f"pictures-{name}-{width}-{colours}.png")
        self.b.size(1280, 800)
        self.b.prefer(prefers_color_scheme="light")

    def blind(self):
        """A model that cannot see: every way to attach is refused in a sentence, and nothing is attached."""
        b = self.b
        b.click("button", "Attach pictures")
        self.told("cannot see pictures")
        b.click("button", "New chat")
        check(not any("pictures" in n.text for n in b.all("alert")), "the sentence goes with the chat")
        check(self.bring("paste", ("a.png", "image/png", png(9, 9))), "pasted")
        self.told("cannot see pictures")
        self.bring("drop", ("a.png", "image/png", png(9, 9)), target="#messages")
        self.attached(0)

    def test_pictures_brought(self):
        """Pasted and dropped; what is no picture is named; a text that office programs paste stays a text."""
        self.fresh()
        b = self.b
        if not self.sees():
            return
        one, two = png(40, 30), png(30, 40)
        self.bring("paste", ("image.png", "image/png", one))
        self.attached(1)
        check(self.bring("drop", ("b.png", "image/png", two), ("c.png", "image/png", one), target="#messages"),
              "the browser does not leave the page for a file")
        check(b.script("return window.dropping"), "the place says where to drop")
        self.attached(3)
        check(not b.script("return document.querySelector('#chat').classList.contains('dropping')"), "until it was dropped")
        self.bring("paste", ("d.png", "image/png", two), text="cells of a table")
        self.bring("drop", ("notes.png", "image/png", b"GIF89a, or something else"), target="#messages")
        self.told("“notes.png” is neither a PNG nor a JPEG picture.")
        self.bring("paste", ("cut.png", "image/png", two[:-30]))
        self.told("“cut.png” cannot be read")
        self.attached(3)
        b.click("tab", "Notebook")
        check(self.bring("drop", ("e.png", "image/png", two), target="#notebook-text"), "nor on another tab")
        b.click("tab", "Chat")
        self.attached(3)
        b.type("Message", Keys.ENTER)
        self.done()
        check(self.shown(0) == 3 and b.texts()[0] == "", "pictures alone are a message")
        check(b.all("listitem", within=b.one("list", "Sessions"))[0].text.startswith("image.png"), "its title is a name")

    def test_pictures_limits(self):
        """Large files are made smaller; a chat keeps 8 MiB; the model reads so many; one that goes blind is told."""
        server = self.fresh()
        if not self.mock:
            return
        b = self.b
        large, small = self.made(("large.png", "image/png", 2100, 1050), ("other.png", "image/png", 2100, 1000),
                                 noise=True)
        self.attach(large)
        self.attached(1)
        b.type("Message", "noise", Keys.ENTER)
        self.done()
        (kind, data), = pictures_of(server.chats[-1]["messages"][0])
        check(kind == "image/jpeg" and len(data) < large.stat().st_size, f"it is made smaller: {kind} {len(data)}")
        title = b.all("button", "Show picture large.png")[0].get_attribute("title")
        check(title == "large.png 2048 × 1024", f"and says so: {title}")
        self.stored()
        b.driver.refresh()
        check(self.shown(0) == 1, "it is stored")
        self.attach(small, small, small, small, small, small)
        self.told("A chat keeps pictures of 8 MiB at most: begin a new chat for “other.png”.")
        server.images_max = 2
        b.click("button", "New chat")
        b.driver.refresh()
        b.wait(lambda: b.one("status").text == "Ready", "the page")
        self.bring("paste", *[(f"{i}.png", "image/png", png(9 + i, 9)) for i in range(3)])
        self.told("The model reads 2 pictures of a chat at most, and this one would have 3.")
        self.attached(2)
        self.say("two")
        check(self.shown(0) == 2, "two are sent")
        self.bring("paste", ("4.png", "image/png", png(9, 19)))
        self.attached(1)
        b.type("Message", "a third", Keys.ENTER)
        self.told("and this one would have 3.")
        check(b.one("textbox", "Message").get_property("value") == "a third", "what was typed stays")
        server.images_max = 0
        b.driver.refresh()
        b.wait(lambda: b.one("status").text == "Ready", "the page")
        b.type("Message", Keys.ENTER)
        self.told(f"The model {server.model} cannot see pictures.")
        check(len(server.chats) == 2 and len(b.texts()) == 2, "nothing is sent")
        self.blind()

    def test_pictures_full(self):
        """The browser's store has no room for the pictures of a chat that changes while the server is away: the chat is
        kept without them, and gets them back from the server."""
        server = self.fresh()
        if not self.mock:
            return
        b = self.b
        noise, = self.made(("noise.png", "image/png", 1100, 700), noise=True)
        self.attach(noise)
        self.attached(1)
        self.say("before")
        self.stored()
        (chat_id, before), = server.sessions.items()
        b.script("localStorage.setItem('filler', 'x'.repeat(5000000))")
        server.stop()
        b.wait_state("offline")
        b.type("Message", "meanwhile", Keys.ENTER)
        self.told("or closing this page loses its pictures.")
        b.open("about:blank")
        server.start()
        b.open(server.address)
        b.wait(lambda: len(server.sessions[chat_id]["nodes"]) > len(before["nodes"]), "the newer chat on the server")
        check(server.sessions[chat_id]["pictures"] == before["pictures"] != {}, "it has its pictures")
        b.driver.refresh()
        b.wait(lambda: b.texts()[:1] == ["before"] and "meanwhile" in b.texts(), "the chat")
        check(self.shown(0) == 1, "and shows them")
