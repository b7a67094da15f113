"""page_panels.py: tests of the other panels, the key, a server that goes away, sizes, colours and the keyboard.
takes: page_rig.py.
gives: PanelTests."""

import pathlib
import re
import time

from browser import Keys
from page_mock import MODEL
from page_rig import Case
from server import check


SERVE = pathlib.Path(__file__).resolve().parents[2] / "demo" / "serve"
BY_HAND = {"logit_bias", "dynamic_temperature"} # fields without a control: the page's other fields are for them


def sampler_names():
    """The names of each field of sampling that the server reads, as its source has them."""
    lists = dict(re.findall(r'#define (NAMES_\w+)\s(?:\\\n)?\s*"([^"]*)"', (SERVE / "request_names.h").read_text()))
    source = (SERVE / "sampling_fields.c").read_text().replace("\n", " ")
    found = re.findall(r'\{ ("[^"]+"|NAMES_\w+), [^{}]*? AT\(|(?:fields_\w+|sampling_ids)\(f, ("[^"]+"|NAMES_\w+)', source)
    return {tuple(lists.get(name, name.strip('"')).split("|")) for pair in found for name in pair if name}


class PanelTests(Case):
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

    def test_sampler(self):
        """Every field of sampling that the server reads has a control; others are typed as JSON."""
        server = self.fresh()
        self.short_answers()
        b = self.b
        b.script("document.querySelectorAll('#settings details').forEach((d) => { d.open = true; })")
        ids = set(b.script("return [...document.querySelectorAll('[id^=sampler-]')].map((n) => n.id.slice(8))"))
        names = sampler_names()
        lacking = [n for n in names if not ids & set(n) and n[0] not in BY_HAND]
        check(len(names) > 25 and lacking == [], f"{len(names)} fields are read; without a control: {lacking}")
        for name, value in (("Adaptive-p target", "0.3"), ("Adaptive-p decay", "0.8")):
            b.one("spinbutton", name).send_keys(Keys.CONTROL, "a")
            b.one("spinbutton", name).send_keys(value)
        others = b.one("textbox", "Other fields")
        others.send_keys('{"logit_bias": {"5": -100}')
        b.type("Message", "fields", Keys.ENTER)
        check("Other fields: this is no JSON" in b.one("alert").text, "wrong JSON is refused in a sentence")
        check(others.get_attribute("aria-invalid") == "true", "and marked")
        others.send_keys(', "max_tokens": 3, "stream": false}')
        b.type("Message", Keys.ENTER)
        self.done()
        check(b.texts()[1] != "" and b.all("alert") == [], f"an answer: {b.texts()}")
        if self.mock:
            sent = server.chats[-1]
            check(sent["adaptive_target"] == 0.3 and sent["adaptive_decay"] == 0.8, f"adaptive-p is sent: {sent}")
            check(sent["logit_bias"] == {"5": -100} and sent["max_tokens"] == 3, "and the other fields")
            check(sent["stream"] is True, "which change nothing that the page needs")

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
