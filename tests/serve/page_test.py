"""page_test.py: the page of `exl2 serve` in chromium, driven by the names that scripts and screen readers find.
takes: page_test.py OUT [--server PROGRAM MODEL] [--only NAME]: OUT is a folder for screenshots. Without --server the
       page talks to page_mock.py; with it, to the real one.
gives: exit code 0, 1 (the failed checks are printed) or 77 (skipped; the reason is printed)."""

import json
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import traceback

import browser as browsers
from page_mock import MODEL, Mock

if browsers.skip_reason() is None:
    from selenium.webdriver.common.keys import Keys

PAGE = pathlib.Path(__file__).resolve().parents[2] / "demo" / "serve" / "page"
PAGE_BYTES_MAX = 150 * 1024
EXPECTED = ("status of 401", "status of 404", "status of 409", "ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED",
            "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE", "status of 503", "status of 403", "status of 400")

failures, checks = [], 0


def check(holds, what):
    global checks
    checks += 1
    if not holds:
        failures.append(what)
        print("failed:", what, flush=True)


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


class Tests:
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

    def short_answers(self):
        """Small models talk on; a test need not wait for it."""
        if not self.mock:
            self.b.script("localStorage.setItem('exl2.sampler', JSON.stringify({ max_tokens: 24, temperature: 0 }))")
            self.b.driver.refresh()
            self.b.wait(lambda: self.b.one("status").text == "Ready", "the page to be ready")

    # ---- tests ----

    def test_names(self):
        """Everything has the name and the role that the manual gives."""
        self.fresh()
        b = self.b
        for name in ("Chat", "Notebook", "Model", "Engine"):
            check(len(b.all("tab", name)) == 1, f"one tab {name}")
        for name in ("Message", "System prompt", "Search"):
            check(len(b.all("textbox", name)) == 1, f"one text box {name}")
        for name in ("Send", "New chat", "Export"):
            check(len(b.all("button", name)) == 1, f"one button {name}")
        check(len(b.all("list", "Sessions")) == 1, "one list Sessions")
        check(b.state() == "idle", "idle at first")
        check(b.script("return document.documentElement.lang") == "en", "the language is given")
        controls = b.driver.find_elements("css selector", "button, input, textarea, select")
        unnamed = [n.get_attribute("outerHTML") for n in controls if n.is_displayed() and not n.accessible_name]
        check(unnamed == [], f"controls without a name: {unnamed}")

    def test_chat(self):
        self.fresh()
        self.short_answers()
        b = self.b
        b.type("Message", "first line")
        b.shift_enter()
        b.keys("second line")
        typed = b.one("textbox", "Message").get_property("value")
        check(typed == "first line\nsecond line", f"Shift+Enter breaks the line: {typed!r}")
        b.click("button", "Send")
        self.done()
        texts = b.texts()
        check(len(texts) == 2 and texts[0] == "first line\nsecond line" and texts[1] != "", f"two messages: {texts}")
        check("tokens/s" in b.one("status").text, f"the status has the speed: {b.one('status').text}")
        check(b.one("textbox", "Message").get_property("value") == "", "the box is empty again")
        self.say("and then")
        check(len(b.texts()) == 4, "four messages")
        if self.mock:
            check(b.texts()[3] == "Reply 2 to “and then”.", f"the answer: {b.texts()[3]}")
            sent = self.server.chats[-1]
            check([m["role"] for m in sent["messages"]] == ["user", "assistant", "user"], "the whole chat is sent")
            check(sent["stream"] is True and "temperature" not in sent, "unchanged settings are not sent")
        rows = [n.text for n in b.all("listitem", within=b.one("list", "Sessions"))]
        check(any("first line" in row for row in rows), f"the chat is in the list: {rows}")
        self.say("markdown" if self.mock else "Write a short list.")
        if self.mock:
            answer = self.last()
            check(len(answer.find_elements("css selector", "pre code")) == 1, "code is a block")
            check("alert(1)" in answer.text and b.script("return window.alert.name") == "alert", "HTML stays text")
            links = [a.get_attribute("href") for a in answer.find_elements("css selector", "a")]
            check(all(link.startswith("https://") for link in links), f"no address runs a script: {links}")
            check(answer.find_elements("css selector", "img") == [], "no picture is loaded")
            b.shot(self.out / "chat.png")

    def test_stop(self):
        self.fresh()
        b = self.b
        self.server.slow = 0.05
        b.type("Message", "long story about a river", Keys.ENTER)
        b.wait_state("busy")
        b.wait(lambda: len(b.texts()) == 2 and len(b.texts()[1]) > 8, "some text")
        b.click("button", "Stop")
        self.done()
        text = b.texts()[1]
        check(len(text) > 8, "what came stays")
        check("Stopped" in b.one("status").text, "the status says so")
        time.sleep(0.3)
        check(b.texts()[1] == text, "nothing comes afterwards")
        self.stored()
        b.driver.refresh()
        b.wait(lambda: len(b.texts()) == 2, "the messages after a reload")
        check(b.texts()[1] == text, "what came is stored")

    def test_branches(self):
        """Edit, regenerate, continue, delete: each adds a version, and every one can be seen again."""
        self.fresh()
        self.short_answers()
        b = self.b
        self.say("one")
        self.say("two")
        before = b.texts()
        self.press(0, "Edit")
        box = b.one("textbox", "Edit message")
        box.send_keys(Keys.CONTROL, "a")
        box.send_keys("uno")
        b.click("button", "Save")
        self.done()
        check(b.texts()[0] == "uno" and len(b.texts()) == 2, f"a branch begins with the edit: {b.texts()}")
        self.press(0, "Previous version")
        check(b.texts() == before, "the first branch is whole")
        self.press(0, "Next version")
        check(b.texts()[0] == "uno", "and back")
        self.press(1, "Regenerate")
        self.done()
        check("2/2" in self.article(1).text, "a second answer")
        first = b.texts()[1]
        self.press(1, "Continue")
        self.done()
        check("3/3" in self.article(1).text and b.texts()[1].startswith(first[:10]), "it goes on in a third version")
        if self.mock:
            check(b.texts()[1] == "Reply 1 to “uno”. And so it goes on.", f"continued: {b.texts()[1]}")
            check(self.server.chats[-1]["response_prefix"] == "Reply 1 to “uno”.", "the beginning is sent")
        self.press(0, "Delete")
        check("Deleted message" in self.article(0).text, "a mark stands for what was deleted")
        check(len(b.texts()) == 2, "what followed is still there")
        self.press(0, "Previous version")
        check(b.texts()[0] == "uno", "a deleted message comes back")
        self.stored()
        b.driver.refresh()
        b.wait(lambda: len(b.texts()) == 2, "the branch after a reload")
        self.press(0, "Previous version")
        check(b.texts() == before, "all branches are stored")

    def test_reload(self):
        self.fresh()
        b = self.b
        b.type("Message", "not sent yet")
        b.driver.refresh()
        b.wait(lambda: b.one("textbox", "Message").get_property("value") == "not sent yet", "the text after a reload")
        b.type("System prompt", "Be brief.")
        self.stored()
        b.driver.refresh()
        b.wait(lambda: b.one("textbox", "System prompt").get_property("value") == "Be brief.", "the system prompt")
        b.type("Message", Keys.ENTER)
        self.done()
        self.press(0, "Edit")
        b.type("Edit message", " more")
        b.driver.refresh()
        b.wait(lambda: b.all("textbox", "Edit message"), "the edit after a reload")
        check(b.one("textbox", "Edit message").get_property("value") == "not sent yet more", "the edit is kept")
        if self.mock:
            self.server.slow = 0.05
            b.click("button", "Cancel")
            b.type("Message", "long one", Keys.ENTER)
            b.wait(lambda: len(b.texts()) == 4 and len(b.texts()[3]) > 20, "some text")
            b.driver.refresh()
            b.wait(lambda: len(b.texts()) == 4, "the messages after a reload in an answer")
            check(b.texts()[3].startswith("Be brief.") or b.texts()[3].startswith("word0"), "what came is there")

    def test_sessions(self):
        self.fresh()
        self.short_answers()
        b = self.b
        self.say("apples")
        b.click("button", "New chat")
        self.say("pears")
        self.stored()
        sessions = b.one("list", "Sessions")
        rows = lambda: [n.text.strip() for n in b.all("listitem", within=sessions)]
        check(rows() == ["pears", "apples"], f"two chats: {rows()}")
        b.type("Search", "app")
        check(rows() == ["apples"], f"found: {rows()}")
        b.one("textbox", "Search").send_keys(Keys.CONTROL, "a")
        b.type("Search", Keys.DELETE)
        b.click("button", "apples")
        b.wait(lambda: b.texts()[:1] == ["apples"], "the other chat")
        b.click("button", "Rename chat apples")
        box = b.one("textbox", "Title of the chat")
        box.send_keys(Keys.CONTROL, "a")
        box.send_keys("Fruit", Keys.ENTER)
        b.wait(lambda: "Fruit" in rows(), "the new title")
        self.stored()
        b.driver.refresh()
        sessions = b.one("list", "Sessions")
        b.wait(lambda: sorted(rows()) == ["Fruit", "pears"], "both after a reload")
        b.script("document.querySelector('#sessions').parentElement.querySelector('li').focus?.()")
        exported = b.script(EXPORTED)
        b.click("button", "Export")
        chat = json.loads(b.wait(lambda: b.script("return window.exported"), "the exported file"))["chats"][0]
        check(exported is None and chat["title"] == "Fruit" and len(chat["nodes"]) == 2, "the file has the chat")
        chat["title"], chat["nodes"][0]["content"] = "Imported", "changed by hand"
        file = self.out / "import.json"
        file.write_text(json.dumps({"chats": [chat]}))
        b.script("document.querySelector('#import-file').hidden = false")
        b.driver.find_element("css selector", "#import-file").send_keys(str(file))
        b.wait(lambda: b.texts()[:1] == ["changed by hand"], "the imported chat")
        check(sorted(rows()) == ["Fruit", "Imported", "pears"], f"it is a third one: {rows()}")
        row = next(n for n in b.all("listitem", within=sessions) if n.text.strip() == "pears")
        b.hover(row)
        b.click("button", "Delete chat pears")
        b.click("button", "Delete chat")
        b.wait(lambda: "pears" not in rows(), "the chat to go")
        b.driver.refresh()
        sessions = b.one("list", "Sessions")
        b.wait(lambda: sorted(rows()) == ["Fruit", "Imported"], "it is gone after a reload, too")

    def test_second_tab(self):
        """Two tabs change one chat: neither loses anything, whatever comes first."""
        server = self.fresh()
        self.short_answers()
        b = self.b
        self.say("shared beginning")
        self.stored()
        first = b.driver.current_window_handle
        b.driver.switch_to.new_window("tab")
        b.size(1280, 800)
        b.open(server.address)
        b.wait(lambda: b.texts()[:1] == ["shared beginning"], "the chat in the second tab")
        second = b.driver.current_window_handle
        tabs, said = [first, second], {"shared beginning"}
        for i in range(6): # sent as soon as the tab has the focus, when it is just about to read the newer chat
            self.say(f"message {i}") if i == 0 else self.send_at_once(f"message {i}")
            said.add(f"message {i}")
            self.done()
            if i % 2:
                self.stored()
            b.driver.switch_to.window(tabs[i % 2])
        for tab in tabs:
            b.driver.switch_to.window(tab)
            self.stored()
        b.driver.refresh()
        b.wait(lambda: len(b.texts()) >= 2, "the chat")
        exported = b.script(EXPORTED)
        b.click("button", "Export")
        chat = json.loads(b.wait(lambda: b.script("return window.exported"), "the exported file"))["chats"][0]
        kept = {node["content"] for node in chat["nodes"] if node["role"] == "user"}
        check(exported is None and kept == said, f"all that was said is kept: {sorted(kept)}")
        answers = [node for node in chat["nodes"] if node["role"] == "assistant"]
        check(len(answers) == len(said) and all(node["content"] for node in answers), "and all that was answered")
        b.driver.switch_to.window(second)
        b.driver.close()
        b.driver.switch_to.window(first)

    def send_at_once(self, text):
        self.b.script("document.querySelector('#message').value = arguments[0];"
                      "document.querySelector('#composer').requestSubmit();", text)

    def test_conflict(self):
        """The store is newer than the tab knows: the answer is 409, and the branches of both are kept."""
        server = self.fresh()
        if not self.mock:
            return
        b = self.b
        self.say("begin")
        self.stored()
        (chat_id, chat), = server.sessions.items()
        node = {"id": "zzzz", "parent": chat["nodes"][-1]["id"], "role": "user", "content": "of another tab",
                "made": int(time.time() * 1000)}
        server.sessions[chat_id] = {**chat, "nodes": chat["nodes"] + [node], "revision": chat["revision"] + 1}
        self.say("of this tab")
        self.stored()
        check(server.conflicts > 0, "the revision was refused once")
        said = {n["content"] for n in server.sessions[chat_id]["nodes"]}
        check({"of another tab", "of this tab"} <= said, f"both are stored: {said}")
        b.wait(lambda: "2/2" in self.article(2).text, "both versions")
        self.press(2, "Previous version")
        check(b.texts()[2] == "of another tab", f"the other one can be seen: {b.texts()}")

    def test_overtaken(self):
        """A chat is changed while its newer state is on the way from the server."""
        server = self.fresh()
        if not self.mock:
            return
        b = self.b
        self.say("begin")
        self.stored()
        (chat_id, chat), = server.sessions.items()
        node = {"id": "zzzz", "parent": chat["nodes"][-1]["id"], "role": "user", "content": "of another tab",
                "made": int(time.time() * 1000)}
        server.sessions[chat_id] = {**chat, "nodes": chat["nodes"] + [node], "revision": chat["revision"] + 1}
        server.read_delay, server.slow = 1.0, 0.2
        b.script("dispatchEvent(new Event('focus'))")
        b.wait(lambda: server.requests[-1] == ("GET", f"/ui/sessions/{chat_id}"), "the chat to be asked for")
        self.send_at_once("of this tab")
        self.done()
        self.stored()
        said = {n["content"] for n in server.sessions[chat_id]["nodes"]}
        check({"of another tab", "of this tab"} <= said, f"both are stored: {said}")
        check(any(text == "of this tab" for text in b.texts()), f"and it is still shown: {b.texts()}")
        check("Reply 2 to" in b.texts()[-1], f"with the whole answer: {b.texts()}")

    def test_reasoning_and_tools(self):
        server = self.fresh()
        if not self.mock:
            return
        b = self.b
        self.say("think about it")
        fold = self.last().find_element("css selector", "details.reasoning")
        check(not fold.get_property("open") and "The answer is 42." in b.texts()[1], "reasoning is folded")
        fold.find_element("css selector", "summary").click()
        check("First the question" in fold.text, "and can be read")
        b.click("button", "New chat")
        b.script("document.querySelector('#settings details').open = true")
        b.type("Tools", '[{"type": "function", "function": {"name": "weather"}}]')
        self.say("What is the weather in Oslo")
        check("weather" in self.last().text and '"city": "Oslo"' in self.last().text, f"the call: {self.last().text}")
        b.type("Result of weather", "rain")
        b.click("button", "Send results")
        self.done()
        roles = [m["role"] for m in server.chats[-1]["messages"]]
        check(roles == ["user", "assistant", "tool"], f"the result is sent: {roles}")
        check(server.chats[-1]["messages"][2]["tool_call_id"] == "call_1", "with the call's id")

    def test_settings(self):
        server = self.fresh()
        b = self.b
        b.script("document.querySelectorAll('#settings details').forEach((d) => { d.open = true; })")
        box = b.one("spinbutton", "Temperature")
        box.send_keys(Keys.CONTROL, "a")
        box.send_keys("0.5")
        check(len(b.all("button", "Reset Temperature")) == 1, "a changed value is marked, and can be reset")
        box.send_keys(Keys.CONTROL, "a")
        box.send_keys("-1")
        check(box.get_attribute("aria-invalid") == "true", "a value out of range is marked")
        box.send_keys(Keys.TAB)
        check(box.get_property("value") == "0.5", "and not taken")
        b.script("document.querySelector('#chat-format').value = 'json_object';"
                 "document.querySelector('#chat-format').dispatchEvent(new Event('change'))")
        b.type("System prompt", "Speak JSON.")
        b.type("Template variables", '{"a": ')
        b.type("Message", "wrong settings", Keys.ENTER)
        check("Template variables" in b.one("alert").text, "wrong JSON is refused in a sentence")
        check(b.one("textbox", "Message").get_property("value") == "wrong settings", "the message stays")
        b.type("Template variables", "1}")
        if not self.mock:
            return
        b.type("Message", Keys.ENTER)
        self.done()
        sent = server.chats[-1]
        check(sent["temperature"] == 0.5 and sent["response_format"] == {"type": "json_object"}, f"is sent: {sent}")
        check(sent["messages"][0] == {"role": "system", "content": "Speak JSON."}, "the system prompt is sent")
        check(sent["chat_template_kwargs"] == {"a": 1}, "template variables are sent")
        b.type("Name of a preset", "Mine")
        b.click("button", "Save preset")
        b.click("button", "Reset all")
        check(b.one("spinbutton", "Temperature").get_property("value") == "1", "reset")
        b.one("combobox", "Preset").send_keys("Mine")
        b.wait(lambda: b.one("spinbutton", "Temperature").get_property("value") == "0.5", "the preset")
        b.one("checkbox", "Keep probabilities").click()
        self.say("with probabilities")
        self.press(-1, "Tokens")
        token = self.last().find_elements("css selector", ".token")[1]
        b.script("arguments[0].dispatchEvent(new PointerEvent('pointerover', { bubbles: true }))", token)
        tip = b.driver.find_element("css selector", "[role=tooltip]")
        check("67.0 %" in tip.text and "22.3 %" in tip.text, f"probabilities of a token: {tip.text}")

    def test_errors(self):
        server = self.fresh()
        if not self.mock:
            return
        b = self.b
        server.refuse = "The grammar does not compile: keyword contains at /a."
        self.say("refused")
        check("keyword contains" in self.last().text, "the server's sentence is shown")
        server.refuse = None
        server.break_after = 3
        self.say("breaks")
        check("The device was lost." in self.last().text and b.texts()[3] != "", "what came stays")
        server.break_after = 0
        self.press(3, "Continue")
        self.done()
        check("2/2" in self.article(3).text, "it can go on")
        server.issue = "No step has ended for 30 s."
        b.wait(lambda: any("30 s" in n.text for n in b.all("alert")), "the notice of a sick server")
        server.issue = None
        b.wait(lambda: not any("30 s" in n.text for n in b.all("alert")), "it to go")

    def test_notebook(self):
        server = self.fresh()
        self.short_answers()
        b = self.b
        b.click("tab", "Notebook")
        b.type("Notebook text", "Once")
        b.wait(lambda: b.driver.find_element("id", "notebook-count").text.endswith(("token", "tokens")), "the count")
        b.click("button", "Continue")
        value = lambda: b.one("textbox", "Notebook text").get_property("value")
        b.wait(lambda: b.state() == "idle" and len(value()) > 4, "a text")
        text = b.one("textbox", "Notebook text").get_property("value")
        check(text.startswith("Once") and len(text) > 4, f"it goes on: {text}")
        if self.mock:
            check(text == "Once once upon a time there was a page.", text)
            b.wait(lambda: b.driver.find_element("id", "notebook-count").text == "10 tokens", "the count of all")
            b.one("checkbox", "Tokens").click()
            b.wait(lambda: len(b.driver.find_elements("css selector", "#notebook-tokens .token")) == 10, "ten tokens")
            server.slow = 0.5
        b.click("button", "Undo")
        check(b.one("textbox", "Notebook text").get_property("value") == "Once", "Undo takes it back")
        check(not b.one("button", "Undo").is_enabled(), "there is no more to undo")
        b.script("localStorage.removeItem('exl2.sampler')") # a text that is long enough to be stopped
        b.driver.refresh()
        b.wait(lambda: value() == "Once", "the text after a reload")
        b.click("button", "Continue")
        b.click("button", "Stop")
        b.wait_state("idle")
        check("Stopped" in b.one("status").text, f"Stop ends it: {b.one('status').text}")
        check(b.focused() == ("button", "Continue"), f"the focus stays in the row: {b.focused()}")

    def test_model(self):
        server = self.fresh()
        b = self.b
        b.click("tab", "Model")
        panel = b.driver.find_element("id", "model")
        name = MODEL if self.mock else pathlib.Path(self.server.model).name
        b.wait(lambda: name in panel.text, "the model's id")
        b.wait(lambda: "Context" in panel.text, "its context")
        if not self.mock:
            return
        check("weights" in panel.text and "712 MiB" in panel.text, "memory by plan")
        b.click("button", "Load mock-8b-exl2-5.0bpw")
        b.wait(lambda: b.driver.find_element("id", "model-name").text == "mock-8b-exl2-5.0bpw", "the other model")
        b.click("button", "Unload")
        b.click("button", "Cancel")
        check(("POST", "/v1/model/unload") not in server.requests, "it asks first")

    def test_engine(self):
        server = self.fresh()
        b = self.b
        b.click("tab", "Engine")
        panel = b.driver.find_element("id", "engine")
        b.wait(lambda: "pages used" in panel.text, "pages in words")
        name = MODEL if self.mock else pathlib.Path(self.server.model).name
        for word in ("Step", "p99", "tokens/s", name):
            check(word in panel.text, f"the panel says {word}")
        drawn = b.script("const c = document.querySelector('canvas.pages'); const d = c.getContext('2d')"
                         ".getImageData(0, 0, c.width, c.height).data; return new Set(Array.from({ length: c.width },"
                         "(_, i) => [...d.slice(4 * (i + 3 * c.width), 4 * (i + 3 * c.width) + 3)].join())).size")
        check(drawn >= 2, f"the grid is drawn in colours: {drawn}")
        slider = b.one("slider", "Budget of a step")
        slider.send_keys(Keys.ARROW_RIGHT)
        if self.mock:
            check("816" in panel.text or "decode" in panel.text or "writes" in panel.text, "jobs are rows")
            b.wait(lambda: server.budget["gpu_us"] == 6000, "the budget at the server")
            time.sleep(2)
            b.shot(self.out / "engine.png")
            b.click("tab", "Chat")
            time.sleep(0.6)
            watches = server.requests.count(("GET", "/ui/watch"))
            time.sleep(1.5)
            check(server.requests.count(("GET", "/ui/watch")) == watches, "nobody watches a panel that is not seen")

    def test_key(self):
        server = self.fresh(key="secret-api", admin_key="secret-admin")
        b = self.b
        b.type("Key", "wrong", Keys.ENTER)
        b.wait(lambda: any("does not know" in n.text for n in b.all("alert")), "a sentence for a wrong key")
        b.one("textbox", "Key").send_keys(Keys.CONTROL, "a")
        b.type("Key", "secret-api", Keys.ENTER)
        b.wait(lambda: b.one("status").text == "Ready", "the page with the key")
        self.say("hello") if self.mock else None
        b.click("tab", "Model")
        b.wait(lambda: "need an admin key" in b.driver.find_element("id", "model").text, "no admin's buttons")
        check(b.all("button", "Unload") == [], "Unload is an admin's")
        b.click("tab", "Engine")
        b.wait(lambda: "pages used" in b.driver.find_element("id", "engine").text, "the engine's panel")
        check(b.all("slider", "Budget of a step") == [], "the slider is an admin's")
        b.driver.refresh()
        b.wait(lambda: b.one("status").text == "Ready", "the key is kept")
        b.script("localStorage.clear(); sessionStorage.clear()")
        b.driver.get("about:blank")
        b.open(server.address + "#key=secret-admin")
        b.wait(lambda: b.one("status").text == "Ready", "the page with the key of the address")
        check(b.script("return location.href") == server.address, "the key is out of the address")
        b.click("tab", "Engine")
        b.wait(lambda: len(b.all("slider", "Budget of a step")) == 1, "the admin's slider")
        if self.mock:
            admin = {"/v1/model/load", "/v1/model/unload", "/v1/template/switch", "/ui/budget"}
            check(not admin & {path for _, path in server.requests}, "no admin's call by itself")
        for address in ("?q=hello&message=hi", "#message=hi&send=1"):
            b.driver.get("about:blank")
            before = len(server.requests) if self.mock else 0
            b.open(server.address + address)
            b.wait(lambda: b.one("status").text == "Ready", "the page")
            b.click("tab", "Chat")
            check(b.one("textbox", "Message").get_property("value") == "", f"{address} does nothing")
            if self.mock:
                sent = [path for _, path in server.requests[before:] if "completions" in path]
                check(sent == [], f"{address} sends nothing: {sent}")

    def test_offline(self):
        server = self.fresh()
        self.short_answers()
        b = self.b
        self.say("before")
        self.stored()
        server.stop()
        b.wait_state("offline")
        check(any("does not answer" in n.text for n in b.all("alert")), "the notice says so")
        b.type("Message", "typed while it is away", Keys.ENTER)
        b.wait(lambda: len(b.texts()) == 4, "the message")
        b.wait(lambda: "does not answer" in self.last().text, "the error at the message")
        b.type("Message", "draft")
        server.start()
        b.wait(lambda: b.state() == "idle", "it to come back by itself")
        check(not any("does not answer" in n.text for n in b.all("alert")), "the notice goes")
        check(b.one("textbox", "Message").get_property("value") == "draft", "nothing typed is lost")
        self.stored()
        self.press(3, "Regenerate")
        self.done()
        check("2/2" in self.article(3).text and "does not answer" not in b.texts()[3], "it works again")
        if self.mock:
            self.server.slow = 0.05
            b.one("textbox", "Message").send_keys(Keys.CONTROL, "a")
            b.type("Message", "long one", Keys.ENTER)
            b.wait(lambda: len(b.texts()) == 6 and len(b.texts()[5]) > 20, "some text")
            server.stop()
            b.wait_state("offline")
            check(len(b.texts()[5]) > 20, "an answer that breaks stays")
            server.start()
            b.wait_state("idle")

    def test_sizes(self):
        """No sideways scrolling, and contrast, in both sizes, both schemes, at 200 % zoom, on every panel."""
        self.fresh()
        self.short_answers()
        b = self.b
        self.say("markdown" if self.mock else "Write a list and some code.")
        self.say("think " + "verylongword" * 20)
        self.press(0, "Edit")
        for width, height, scale in ((1280, 800, 1), (390, 844, 2), (640, 400, 2)):
            b.size(width, height, scale)
            for tab in ("Chat", "Notebook", "Model", "Engine"):
                b.click("tab", tab)
                time.sleep(0.8)
                bad = b.sideways()
                check(bad == [], f"{width} px, {tab}: sticks out: {bad[:5]}")
                for scheme in ("light", "dark"):
                    b.prefer(prefers_color_scheme=scheme)
                    seen, low = b.low_contrast()
                    check(seen > 8, f"{width} px, {tab}, {scheme}: texts judged: {seen}")
                    check(low == [], f"{width} px, {tab}, {scheme}: contrast: {low[:5]}")
                    serious = b.axe()
                    check(not serious, f"{width} px, {tab}, {scheme}: axe: {serious}")
                    time.sleep(0.3)
                    b.shot(self.out / f"{tab.lower()}-{width}-{scheme}.png")
        b.size(390, 844, 2)
        b.click("tab", "Chat")
        for name in ("Settings", "Show chats"):
            b.click("button", name)
            check(b.sideways() == [], f"390 px, {name}: sticks out: {b.sideways()[:5]}")
            b.shot(self.out / f"{name.replace(' ', '-').lower()}-390.png")
            b.keys(Keys.ESCAPE)
        b.prefer(prefers_color_scheme="light", prefers_reduced_motion="reduce")
        moving = b.script("return document.getAnimations().length")
        check(moving == 0, f"{moving} animations with reduced motion")

    def test_keyboard(self):
        """Everything with the keyboard alone, and the focus is always to be seen."""
        self.fresh()
        self.short_answers()
        b = self.b
        seen = []
        for _ in range(60):
            b.keys(Keys.TAB)
            role, name = b.focused()
            ring = b.script("const n = document.activeElement, box = n.closest('.composer-box') || n; const s ="
                            "getComputedStyle(n); return n === document.body || (s.outlineStyle !== 'none' &&"
                            "parseFloat(s.outlineWidth) >= 2) || box !== n")
            check(ring, f"the focus is seen at {role} {name}")
            seen.append(name)
            if name == "Message":
                break
        check("Message" in seen and "New chat" in seen and "Search" in seen, f"Tab reaches: {seen}")
        b.keys("asked by keys", Keys.ENTER)
        self.done()
        check(b.texts()[0] == "asked by keys", "Enter sends")
        for _ in range(40):
            b.driver.switch_to.active_element.send_keys(Keys.SHIFT, Keys.TAB)
            if b.focused()[1] == "Edit":
                break
        check(b.focused() == ("button", "Edit"), f"Shift+Tab goes back: {b.focused()}")
        b.keys(Keys.ENTER)
        check(b.focused()[1] == "Edit message", "Edit puts the focus into its box")
        b.keys(Keys.ESCAPE)
        check(b.focused()[1] == "Edit", "Escape gives it back")
        for _ in range(60):
            b.driver.switch_to.active_element.send_keys(Keys.SHIFT, Keys.TAB)
            if b.focused()[0] == "tab":
                break
        for name in ("Notebook", "Model", "Engine", "Chat"):
            b.keys(Keys.ARROW_RIGHT)
            check(b.focused() == ("tab", name), f"the arrow goes to {name}: {b.focused()}")
        live = b.one("status")
        check(live.get_attribute("aria-live") == "polite", "the live region is polite")

    def test_long(self):
        """500 messages, of which only those that are seen are laid out."""
        server = self.fresh()
        if not self.mock:
            return
        b = self.b
        nodes, parent = [], ""
        for i in range(500):
            text = f"Message {i}. " + "Some **words** and `code`. " * 12
            role = "assistant" if i % 2 else "user"
            nodes.append({"id": f"n{i}", "parent": parent, "role": role, "content": text, "made": i})
            parent = f"n{i}"
        server.sessions["long00000000chat"] = {"id": "long00000000chat", "title": "A long chat", "nodes": nodes,
                                               "revision": 1, "updated": time.time()}
        b.driver.refresh()
        b.click("button", "A long chat")
        b.wait(lambda: len(b.driver.find_elements("css selector", "article")) == 500, "500 messages")
        b.driver.set_script_timeout(60)
        frames = b.driver.execute_async_script("""
            const done = arguments[0], box = document.querySelector('#messages'), times = []; let last = 0, left = 90;
            box.scrollTop = 0;
            requestAnimationFrame(function step(now) {
              if (last) times.push(now - last);
              last = now; box.scrollTop += 400;
              if (--left) requestAnimationFrame(step); else done(times.sort((a, b) => a - b));
            });""")
        print(f"500 messages: a frame takes {frames[len(frames) // 2]:.0f} ms, the longest {frames[-1]:.0f} ms")
        check(frames[len(frames) // 2] < 100, "scrolling is smooth")
        self.say("one more")
        check(b.texts()[-1].startswith("Reply 251 to"), f"it goes on at its end: {b.texts()[-1]}")

    def test_no_sessions(self):
        """A server that keeps no chats: the browser does."""
        server = self.fresh()
        if not self.mock:
            return
        server.keeps = False
        self.b.driver.refresh()
        self.b.wait(lambda: any("keeps no chats" in n.text for n in self.b.all("alert")), "the notice")
        self.say("kept here")
        self.b.driver.refresh()
        self.b.wait(lambda: self.b.texts()[:1] == ["kept here"], "the chat after a reload")


# Catches the exported file instead of storing it.
EXPORTED = """
const make = URL.createObjectURL;
URL.createObjectURL = (blob) => { blob.text().then((text) => { window.exported = text; }); return make(blob); };
HTMLAnchorElement.prototype.click = function () {};
return null;
"""


def main():
    out = pathlib.Path(sys.argv[1])
    arguments = sys.argv[2:]
    reason = browsers.skip_reason()
    if reason:
        print("skipped:", reason)
        return 77
    out.mkdir(parents=True, exist_ok=True)
    size = sum(file.stat().st_size for file in PAGE.iterdir())
    check(size <= PAGE_BYTES_MAX, f"the page has {size} bytes")
    real = arguments.index("--server") if "--server" in arguments else None
    only = arguments[arguments.index("--only") + 1] if "--only" in arguments else ""
    if real is None:
        start = lambda **how: Mock(PAGE, **how)
    else:
        start = lambda **how: Real(arguments[real + 1], arguments[real + 2], **how)
    b = browsers.Browser()
    tests = Tests(b, start, out)
    try:
        for name in [name for name in dir(Tests) if name.startswith("test_") and only in name]:
            begun = time.monotonic()
            try:
                getattr(tests, name)()
                errors = [line for line in b.console_errors() if not any(e in line for e in EXPECTED)]
                check(errors == [], f"{name}: the console has no error: {errors[:3]}")
                own = tuple(tests.addresses) + ("about:",)
                elsewhere = [url for url in b.requested() if not url.startswith(own)]
                check(elsewhere == [], f"{name}: nothing is asked elsewhere: {elsewhere[:3]}")
            except Exception as error: # a test that cannot go on is one failure; the others still run
                check(False, f"{name}: {error.__class__.__name__}: {str(error).splitlines()[0]}")
                traceback.print_exc()
                b.shot(out / f"{name}.png")
                b.console_errors()
                b.requested()
            print(f"{name}: {time.monotonic() - begun:.1f} s", flush=True)
    finally:
        if tests.server:
            tests.server.stop()
        b.close()
    print(f"{checks} checks, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
