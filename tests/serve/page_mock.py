"""page_mock.py: a server that speaks the endpoints of `exl2 serve` which the page uses, without a model.
takes: a folder with the page's files, a key, options of `Mock`.
gives: Mock, whose `address` a browser can open, and its members for tests: `requests`, `sessions`, `budget`.

It answers with texts that depend on the prompt, token by token, so that a test can say what must be seen. Bodies and
events have the shapes that the project's issue about the server gives. It never asks anything of the network."""

import json
import pathlib
import re
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
         ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
MODEL = "mock-1b-exl2-4.0bpw"
ERROR_TYPES = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error"}


def policy(folder):
    """The header of page.h, so that the page is tested under the same rules."""
    text = (folder.parent / "page.h").read_text()
    lines = re.search(r"#define PAGE_POLICY((?:.*\\\n)*.*\n)", text).group(1)
    return "".join(re.findall(r'"([^"]*)"', lines))


def words(text):
    """The text as tokens: words with the space before them, and single characters."""
    return re.findall(r"\s?\w+|\s|[^\w\s]", text)


def answer_to(body):
    """What the model says: as (kind, text) pieces."""
    asked = next((m["content"] or "" for m in reversed(body["messages"]) if m["role"] == "user"), "")
    seen = 0
    if isinstance(asked, list): # parts
        seen = sum(part["type"] == "image_url" for part in asked)
        asked = "".join(part.get("text", "") for part in asked)
    roles = [m["role"] for m in body["messages"]]
    if body.get("tools") and "tool" not in roles:
        return [("call", json.dumps({"city": asked.split()[-1]}))]
    if body.get("response_format"):
        return [("content", '{"answer": 42}')]
    if asked.startswith("think"):
        return [("reasoning_content", "First the question, then the answer."), ("content", "The answer is 42.")]
    if asked.startswith("markdown"):
        return [("content", MARKDOWN)]
    if asked.startswith("long"):
        return [("content", " ".join(f"word{i}" for i in range(2000)))]
    count = roles.count("user")
    system = body["messages"][0]["content"] + " " if roles[0] == "system" else ""
    prefix = body.get("response_prefix")
    if prefix:
        return [("content", " And so it goes on.")]
    return [("content", f"{system}Reply {count} to “{asked}”." + (f" I see {seen}." if seen else ""))]


MARKDOWN = """## Pages of a cache

A cache is cut into **pages** of *64 tokens*, so that `prefixes` can be shared:

1. Hash the tokens of a page.
2. Look for the page in the tree.
   - found: share it
   - absent: compute it

| page | state | users |
|---|---|---:|
| 1 | shared | 3 |
| 2 | used | 1 |

```c
static bool page_is_free(const page *p)
{
    return p->users == 0; /* <script>alert(1)</script> */
}
```

> A page that nobody uses stays until its place is needed.

See [the manual](https://example.com/manual), not [this](javascript:alert(1)). <img src="https://example.com/x.png">
![picture](https://example.com/y.png)
"""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    # ---- answers ----

    def send(self, status, body=b"", kind="application/json", **headers):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        if status != 204:
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def refuse(self, status, message, **more):
        error = {"message": message, "type": ERROR_TYPES.get(status, "server_error"), "param": None, "code": None}
        self.send(status, {"error": error, "detail": message, **more})

    def begin_events(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        if self.command == "POST" and self.server.mock.warning:
            self.send_header("X-Warning", self.server.mock.warning)
        self.end_headers()
        self.close_connection = True

    def event(self, value):
        self.wfile.write(b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n\n")
        self.wfile.flush()

    # ---- requests ----

    def body(self):
        length = int(self.headers.get("Content-Length") or 0)
        data = self.rfile.read(length)
        return json.loads(data) if data else None

    def permission(self):
        mock, given = self.server.mock, self.headers.get("Authorization", "")
        return {None: "admin", "Bearer " + str(mock.key): "api", "Bearer " + str(mock.admin_key): "admin"}.get(
            None if mock.key is None else given)

    def handle_any(self):
        mock, path = self.server.mock, self.path.partition("?")[0]
        mock.requests.append((self.command, path))
        body = self.body()
        if path == "/health":
            issue = mock.issue
            self.send(503 if issue else 200, {"status": "unhealthy" if issue else "healthy",
                                              "issues": [{"time": 0, "description": issue}] if issue else []})
            return
        if self.command in ("GET", "HEAD") and self.page_file(path):
            return
        permission = self.permission()
        if permission is None:
            self.refuse(401, "A key is needed.")
            return
        name = re.sub(r"/ui/sessions/.*", "/ui/sessions/", path)
        if path.startswith("/ui/sessions") and not mock.keeps:
            self.refuse(404, "This server keeps no chats.")
            return
        what = getattr(self, f"{self.command}{re.sub(r'[^a-z]', '_', name)}", None)
        if what is None:
            self.refuse(404, f"There is no {path}.")
        else:
            what(body, permission)

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = handle_any

    def page_file(self, path):
        folder = self.server.mock.page
        name = {"/": "index.html", "/favicon.ico": "favicon.svg"}.get(path, path[1:])
        file = folder / name
        if "/" in name or not file.is_file():
            return False
        self.send(200, file.read_bytes(), TYPES[file.suffix], Content_Security_Policy=policy(folder),
                  X_Content_Type_Options="nosniff", Referrer_Policy="no-referrer", Cache_Control="no-cache")
        return True

    # ---- the model ----

    def GET_v__auth_permission(self, body, permission):
        self.send(200, {"permission": permission})

    def GET_v__model(self, body, permission):
        memory = {"weights": 712 << 20, "pages": 1 << 30, "work_buffers": 96 << 20, "tokenizer": 14 << 20,
                  "on_device": 1700 << 20}
        parameters = {"max_seq_len": 8192, "cache_size": 65536, "cache_mode": "Q8", "max_batch_size": 32,
                      "chunk_size": 512, "prompt_template": "chatml", "memory": memory, "arch": "llama",
                      "use_vision": self.server.mock.images_max > 0, "images_max": self.server.mock.images_max,
                      "bits_per_weight": 4.0, "rope_scale": 1, "rope_alpha": 1,
                      "prompt_template_content": "{% for m in messages %}...{% endfor %}"}
        self.send(200, {"id": self.server.mock.model, "object": "model", "created": 0, "owned_by": "exl2",
                        "parameters": parameters})

    def GET_v__models(self, body, permission):
        self.send(200, {"object": "list", "data": [{"id": MODEL}, {"id": "mock-8b-exl2-5.0bpw"}]})

    def GET_v__templates(self, body, permission):
        self.send(200, {"object": "list", "data": ["chatml", "llama3"]})

    def POST_v__template_switch(self, body, permission):
        self.send(200, {})

    def POST_v__model_unload(self, body, permission):
        self.send(200, b"null")

    def POST_v__model_load(self, body, permission):
        if permission != "admin":
            self.refuse(403, "Loading a model needs an admin key.")
            return
        self.begin_events()
        for module in range(20):
            self.event({"model_type": "model", "module": module, "modules": 20, "status": "processing"})
            time.sleep(0.02)
        self.event({"model_type": "model", "module": 20, "modules": 20, "status": "finished"})
        self.server.mock.model = body["model_name"]

    # ---- generations ----

    def POST_v__chat_completions(self, body, permission):
        mock = self.server.mock
        mock.chats.append(body)
        if mock.refuse:
            self.refuse(400, mock.refuse)
            return
        head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 0, "model": MODEL}
        chunk = lambda delta, **more: {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None, **more}]}
        tokens = 0
        self.begin_events()
        self.event(chunk({"role": "assistant", "content": ""}))
        for kind, text in answer_to(body):
            if kind == "call":
                function = {"name": "weather", "arguments": ""}
                call = {"index": 0, "id": "call_1", "type": "function", "function": function}
                self.event(chunk({"tool_calls": [call]}))
            for word in words(text):
                mock.pace()
                tokens += 1
                delta, more = {kind: word}, {}
                if kind == "call":
                    delta = {"tool_calls": [{"index": 0, "function": {"arguments": word}}]}
                if body.get("logprobs") and kind == "content":
                    token = {"token": word, "token_id": 100 + tokens, "logprob": -0.4}
                    other = {"token": " or", "token_id": 1, "logprob": -1.5}
                    more = {"logprobs": {"content": [{**token, "top_logprobs": [token, other]}]}}
                self.event(chunk(delta, **more))
                if mock.break_after and tokens == mock.break_after:
                    self.event({"error": {"message": "The device was lost.", "type": "server_error"}})
                    self.event(b"[DONE]")
                    return
        self.event(chunk({}, finish_reason="tool_calls" if body.get("tools") and kind == "call" else "stop"))
        usage = {"prompt_tokens": 12, "completion_tokens": tokens, "total_tokens": tokens + 12,
                 "completion_tokens_per_sec": 48.5}
        self.event({**head, "choices": [], "usage": usage})
        self.event(b"[DONE]")

    def POST_v__completions(self, body, permission):
        mock = self.server.mock
        mock.completions.append(body)
        self.begin_events()
        for word in words(" once upon a time there was a page."):
            mock.pace()
            choice = {"index": 0, "text": word, "finish_reason": None, "logprobs": None}
            if body.get("logprobs"):
                choice["logprobs"] = {"tokens": [word], "token_logprobs": [-1.2],
                                      "top_logprobs": [{word: -1.2, " other": -0.9}]}
            self.event({"id": "cmpl-1", "object": "text_completion", "choices": [choice]})
        end = {"index": 0, "text": "", "finish_reason": "stop"}
        self.event({"id": "cmpl-1", "object": "text_completion", "choices": [end]})
        self.event(b"[DONE]")

    def POST_v__token_encode(self, body, permission):
        mock, pieces = self.server.mock, words(body["text"])
        ids = [mock.vocabulary.setdefault(piece, len(mock.vocabulary)) for piece in pieces]
        self.send(200, {"tokens": ids, "length": len(ids)})

    def POST_v__token_decode(self, body, permission):
        texts = {i: piece for piece, i in self.server.mock.vocabulary.items()}
        self.send(200, {"text": "".join(texts[i] for i in body["tokens"])})

    # ---- the page's own ----

    def GET_ui_sessions(self, body, permission):
        rows = [{"id": i, "title": s["title"], "revision": s["revision"], "updated": s["updated"]}
                for i, s in self.server.mock.sessions.items()]
        self.send(200, {"sessions": rows})

    def session(self):
        return self.path.rsplit("/", 1)[1]

    def GET_ui_sessions_(self, body, permission):
        stored = self.server.mock.sessions.get(self.session())
        time.sleep(self.server.mock.read_delay)
        self.send(200, stored) if stored else self.refuse(404, "There is no such chat.")

    def PUT_ui_sessions_(self, body, permission):
        mock, given = self.server.mock, int(self.headers.get("If-Match") or 0)
        with mock.lock:
            newest = mock.sessions.get(self.session(), {"revision": 0})["revision"]
            if given == newest:
                mock.sessions[self.session()] = {**body, "revision": newest + 1, "updated": time.time()}
        if given != newest:
            mock.conflicts += 1
            self.refuse(409, "The chat has been changed by another.", revision=newest)
        else:
            self.send(200, {"revision": newest + 1})

    def DELETE_ui_sessions_(self, body, permission):
        found = self.server.mock.sessions.pop(self.session(), None)
        self.send(204) if found else self.refuse(404, "There is no such chat.")

    def POST_ui_budget(self, body, permission):
        if permission != "admin":
            self.refuse(403, "An admin key is needed.")
            return
        self.server.mock.budget.update(body)
        self.send(200, self.server.mock.budget)

    def GET_ui_watch(self, body, permission):
        mock = self.server.mock
        self.begin_events()
        for tick in range(100000):
            if mock.closing:
                return
            wave = 1 + 0.3 * ((tick % 40) / 40)
            jobs = [{"id": i, "phase": phase, "prompt_tokens": prompt, "tokens": tokens, "tokens_per_second": speed,
                     "age_ms": age} for i, phase, prompt, tokens, speed, age in (
                        (41, "decode", 812, 120 + tick, 24.5, 5200 + tick * 250),
                        (42, "decode", 96, 40 + tick, 23.9, 1900 + tick * 250),
                        (43, "prefill", 3120, 0, 0.0, 310), (44, "queue", 58, 0, 0.0, 90))]
            used = 360 + tick % 40
            self.event({"pages": {"total": 1024, "used": used, "shared": 96, "cached": 280, "free": 1024 - 280 - used},
                        "page_bytes": 1 << 20, "jobs": jobs, "tokens_per_second": 61 * wave,
                        "step_us": {"p50": 4100 * wave, "p99": 7900, "max": 11200}, **mock.budget,
                        "model": mock.model, "host_bytes": 410 << 20, "device_bytes": 1838 << 20})
            time.sleep(0.25)


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, mock, port):
        self.mock, self.connections = mock, set()
        super().__init__(("127.0.0.1", port), Handler)

    def process_request(self, request, client_address):
        self.connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request):
        self.connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request, client_address):
        """A browser that leaves a stream is no error."""


class Mock:
    """key None: none is needed, and everybody is an admin."""

    def __init__(self, page, key=None, admin_key=None):
        self.page, self.key, self.admin_key = pathlib.Path(page), key, admin_key
        self.model, self.lock, self.closing = MODEL, threading.Lock(), False
        self.requests, self.chats, self.completions, self.sessions = [], [], [], {}
        self.vocabulary, self.budget, self.conflicts = {}, {"cpu_us": 0, "gpu_us": 4000}, 0
        self.issue = self.refuse = self.warning = None
        self.keeps = True # chats
        self.images_max = 8 # 0: the model cannot see
        self.break_after, self.slow, self.read_delay = 0, 0.0, 0.0
        self.port = 0
        self.start()

    def start(self):
        """Begins to listen; after `stop` at the same port."""
        self.closing = False
        self.server = Server(self, self.port)
        self.port = self.server.server_address[1]
        self.address = f"http://127.0.0.1:{self.port}/"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self):
        """No new connections, and the open ones break."""
        self.closing = True
        self.server.shutdown()
        self.server.server_close()
        for connection in list(self.server.connections):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass # it has ended already

    def pace(self):
        """Between two tokens. A server that closes breaks the connection."""
        time.sleep(self.slow)
        if self.closing:
            raise ConnectionAbortedError


if __name__ == "__main__":
    mock = Mock(pathlib.Path(__file__).resolve().parents[2] / "demo" / "serve" / "page")
    mock.slow = 0.03
    print(mock.address, flush=True)
    threading.Event().wait()
