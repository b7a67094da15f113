"""page_chats.py: tests of the Chat panel: messages, branches, what is stored, two tabs, errors.
takes: page_rig.py.
gives: ChatTests."""

import json
import time

from browser import Keys
from page_rig import Case, EXPORTED
from server import check

WATCHDOG_S = 60
HOSTILE = ("*", "** a ", "***a ", "[", "[a](", "` `` ", "_a", "~~a ", "> ", "|a", "- ", "http://", "\\", " ", "#",
           '[a](b "')

# Renders texts as HTML, without the buttons.
RENDERED = """
const [texts, done] = arguments;
import('/markdown.js').then(({ renderMarkdown }) => done(texts.map((text) => {
  const node = document.createElement('div');
  renderMarkdown(node, text);
  node.querySelectorAll('button').forEach((button) => button.remove());
  return node.innerHTML;
})));
"""

LINK = ' target="_blank" rel="noopener noreferrer">'
MARKDOWN = (
    ("# A `b` ##", "<h3>A <code>b</code></h3>"),
    ("#no", "<p>#no</p>"),
    ("**b** *i* ***x*** ~~d~~ __u__",
     "<p><strong>b</strong> <em>i</em> <strong><em>x</em></strong> <del>d</del> <strong>u</strong></p>"),
    ("snake_case_name, 2 * 3 * 4, \\*", "<p>snake_case_name, 2 * 3 * 4, *</p>"),
    ("`` a`b `` and ` open", "<p><code>a`b</code> and ` open</p>"),
    ("a\n\n\nb\nc", "<p>a</p><p>b\nc</p>"),
    ("<b>&amp;</b>", "<p>&lt;b&gt;&amp;amp;&lt;/b&gt;</p>"),
    ("[x](javascript:alert(1)) [y](data:text/html,z)", "<p>x y</p>"),
    ("[a *b*](https://c.d/e_(f))", f'<p><a href="https://c.d/e_(f)"{LINK}a <em>b</em></a></p>'),
    ("See https://a.b/c.", f'<p>See <a href="https://a.b/c"{LINK}https://a.b/c</a>.</p>'),
    ("![p](https://a.b/c.png)", f'<p><a href="https://a.b/c.png"{LINK}p</a></p>'),
    ("- a\n- b\n  - c\n\n  d", "<ul><li><span>a</span></li><li><span>b</span><ul><li><span>c</span></li></ul>"
                              "<span>d</span></li></ul>"),
    ("3. a\n4) b", '<ol start="3"><li><span>a</span></li><li><span>b</span></li></ol>'),
    ("- [x] a\n- [ ] b", "<ul><li>☑ <span>a</span></li><li>☐ <span>b</span></li></ul>"),
    ("> a\n> - b", "<blockquote><p>a</p><ul><li><span>b</span></li></ul></blockquote>"),
    ("***", "<hr>"),
    ("```c\na < b\n  *p*", '<div class="code"><div class="code-head"><span>c</span></div><pre tabindex="0">'
                         "<code>a &lt; b\n  *p*</code></pre></div>"),
    ("~~~\n```\n~~~\nz", '<div class="code"><div class="code-head"><span>text</span></div><pre tabindex="0">'
                       "<code>```</code></pre></div><p>z</p>"),
    ("| a | b |\n|---|--:|\n| `1` | 2\\|3 |\n", '<div class="table" tabindex="0"><table><thead><tr><th class="">a</th>'
     '<th class="end">b</th></tr></thead><tbody><tr><td class=""><code>1</code></td><td class="end">2|3</td></tr>'
     "</tbody></table></div>"),
)


class ChatTests(Case):
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
        self.short_answers("{ ban_eos_token: true }") # one that does not end before it is stopped
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
        self.short_answers()
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

    def change_elsewhere(self, server):
        """Begins a chat, to which another tab then adds a message in the mock's store. Returns the chat's id."""
        self.say("begin")
        self.stored()
        (chat_id, chat), = server.sessions.items()
        node = {"id": "zzzz", "parent": chat["nodes"][-1]["id"], "role": "user", "content": "of another tab",
                "made": int(time.time() * 1000)}
        server.sessions[chat_id] = {**chat, "nodes": chat["nodes"] + [node], "revision": chat["revision"] + 1}
        return chat_id

    def test_conflict(self):
        """The store is newer than the tab knows: the answer is 409, and the branches of both are kept."""
        server = self.fresh()
        if not self.mock:
            return
        b = self.b
        chat_id = self.change_elsewhere(server)
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
        chat_id = self.change_elsewhere(server)
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

    def test_markdown(self):
        """What Markdown becomes, and texts that are long searches for a careless pattern."""
        self.fresh()
        if not self.mock:
            return
        self.b.driver.set_script_timeout(WATCHDOG_S)
        got = self.b.driver.execute_async_script(RENDERED, [text for text, _ in MARKDOWN])
        for (text, wanted), made in zip(MARKDOWN, got):
            check(made == wanted, f"{text!r} becomes {made!r}")
        hostile = [piece * (20000 // len(piece)) for piece in HOSTILE]
        hostile += ["# " + "#" * 20000 + "x", "```\n" + "x\n" * 50000]
        got = self.b.driver.execute_async_script(RENDERED, hostile)
        check(len(got) == len(hostile), "long texts end")
        many = 150000 # more than a call has room for as arguments
        got = self.b.driver.execute_async_script(RENDERED, ["- a\n" * many, "|a|\n|-|\n" + "|b|\n" * many])
        check(got[0].count("<li>") == many and got[1].count("<td") == many, "long lists and tables are whole")

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
        server.warning = "skew"
        self.say("with a warning")
        check(any("skew" in n.text for n in b.all("alert")), "a setting that the server did not heed is named")
        server.warning = None
        self.say("without")
        check(not any("skew" in n.text for n in b.all("alert")), "and no longer afterwards")
        server.issue = "No step has ended for 30 s."
        b.wait(lambda: any("30 s" in n.text for n in b.all("alert")), "the notice of a sick server")
        server.issue = None
        b.wait(lambda: not any("30 s" in n.text for n in b.all("alert")), "it to go")

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
        laid_out = b.script("return [...document.querySelectorAll('article .text')]"
                            ".filter((n) => n.checkVisibility({ contentVisibilityAuto: true })).length")
        check(15 <= laid_out <= 100, f"of 500 messages {laid_out} are laid out")
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
