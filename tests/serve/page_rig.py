"""page_rig.py: what the tests of the page share: the servers, and a person's usual steps.
takes: browser.py, page_mock.py.
gives: Case, Real, EXPORTED."""

import pathlib
import socket
import subprocess
import tempfile
import time

from browser import Keys
from page_mock import Mock

# Catches the exported file instead of storing it.
EXPORTED = """
const make = URL.createObjectURL;
URL.createObjectURL = (blob) => { blob.text().then((text) => { window.exported = text; }); return make(blob); };
HTMLAnchorElement.prototype.click = function () {};
return null;
"""


class Real:
    """`exl2 serve` itself. Its answers are what a small model says, so tests of their texts are for the mock."""

    mock = False

    def __init__(self, program, model, key=None, admin_key=None):
        self.program, self.model, self.folder = program, model, tempfile.TemporaryDirectory()
        self.arguments = ["--sessions", self.folder.name]
        if key:
            keys = pathlib.Path(self.folder.name) / "keys"
            keys.write_text(f"api_key: {key}\nadmin_key: {admin_key or key + 'admin'}\n")
            self.arguments += ["--keys", str(keys)]
        else:
            self.arguments += ["--no-auth"]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.slow = 0
        self.start()

    def start(self):
        command = [self.program, "serve", self.model, "--port", str(self.port), "--context", "4096", *self.arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.address = self.process.stdout.readline().strip()
        if not self.address.startswith("http://"):
            raise SystemExit(f"the server did not start: {self.address!r}")

    def stop(self):
        self.process.kill()
        self.process.wait()


class Case:
    """What tests share: a fresh server, and what people do again and again."""

    def __init__(self, b, start, out):
        self.b, self.start, self.out = b, start, out
        self.server, self.addresses = None, []

    # ---- helpers ----

    def fresh(self, **how):
        """A new server, whose port makes it a new place for the browser's store, too."""
        if self.server:
            self.server.stop()
        self.server = self.start(**how)
        self.addresses += [self.server.address, "blob:" + self.server.address]
        self.b.size(1280, 800)
        self.b.prefer(prefers_color_scheme="light")
        self.b.open(self.server.address)
        if not how.get("key"):
            self.b.wait(lambda: self.b.one("status").text == "Ready", "the page to be ready")
        return self.server

    @property
    def mock(self):
        return isinstance(self.server, Mock)

    def say(self, text):
        """Sends a message and waits for the whole answer."""
        self.b.type("Message", text, Keys.ENTER)
        self.done()

    def done(self):
        self.b.wait(lambda: self.b.script("return document.body.dataset.state === 'idle' && "
                                          "document.querySelector('#stop').hidden"), "the answer")

    def article(self, i):
        return self.b.wait(lambda: self.b.all("article")[i:][:1] or self.b.all("article")[i:], f"message {i}")[0]

    def last(self):
        return self.b.all("article")[-1]

    def press(self, i, name):
        """A button of a message."""
        self.b.wait(lambda: len(self.b.all("button", name, self.b.all("article")[i])) == 1, f"{name} at message {i}")
        self.b.all("button", name, self.b.all("article")[i])[0].click()

    def stored(self):
        """Waits until the page has nothing left to send."""
        time.sleep(0.6)
        self.b.wait(lambda: self.b.script("return !Object.keys(localStorage).some((k) => k.startsWith('exl2.unsent'))"),
                    "the chat to be stored")

    def short_answers(self, sampler="{ max_tokens: 24, temperature: 0 }"):
        """Small models talk on; a test need not wait for it."""
        if not self.mock:
            self.b.script(f"localStorage.setItem('exl2.sampler', JSON.stringify({sampler}))")
            self.b.driver.refresh()
            self.b.wait(lambda: self.b.one("status").text == "Ready", "the page to be ready")
