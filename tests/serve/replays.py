"""replays.py: what clients really send to `exl2 serve`, as raw requests, and what they read of its answers.
takes: replays.py PROGRAM [MODEL]; the model of EXL2_TEST_MODEL.
gives: exit code 0, 1 (the failed checks are printed) or 77 (no model)."""

import concurrent.futures
import json
import sys
import time

from server import Connection, Server, check, model_of, result, run_tests, wait_for

ST_SAMPLERS = {
    "n": 1, "max_new_tokens": 12, "max_tokens": 12, "n_predict": 12, "num_predict": 12, "num_ctx": 8192,
    "truncation_length": 8192, "temperature": 0, "top_p": 1, "top_k": 0, "min_p": 0, "top_a": 0, "tfs": 1, "typical_p": 1,
    "typical": 1, "skew": 0, "smoothing_factor": 0, "smoothing_curve": 1, "nsigma": 0, "top_n_sigma": 0, "min_keep": 0,
    "adaptive_target": -0.01, "adaptive_decay": 0.9, "xtc_threshold": 0.1, "xtc_probability": 0,
    "temperature_last": True, "mirostat_mode": 0, "mirostat": 0, "mirostat_tau": 5, "mirostat_eta": 0.1,
    "repetition_penalty": 1, "rep_pen": 1, "repeat_penalty": 1, "rep_pen_range": 0, "repetition_penalty_range": 0,
    "repeat_last_n": 0, "repetition_decay": 0, "rep_pen_slope": 1, "frequency_penalty": 0, "presence_penalty": 0,
    "dry_multiplier": 0, "dry_base": 1.75, "dry_allowed_length": 2, "dry_penalty_last_n": 0,
    "dry_sequence_breakers": '["\\n", ":", "\\"", "*"]', "min_tokens": 0, "add_bos_token": True, "ban_eos_token": False,
    "ignore_eos": False, "skip_special_tokens": True, "include_reasoning": True, "max_tokens_second": 0,
    "custom_token_bans": "", "banned_strings": [], "logit_bias": {}, "seed": -1, "sampler_seed": -1,
    "guidance_scale": 1, "negative_prompt": "", "grammar_string": "", "json_schema": {}, "speculative_ngram": False,
    "api_type": "tabby", "api_server": "http://127.0.0.1:5000/", "legacy_api": False,
}

TEXT_GENERATION = {
    "max_tokens": 12, "preset": None, "min_p": 0, "top_k": 0, "typical_p": 1, "tfs": 1, "top_a": 0, "epsilon_cutoff": 0,
    "eta_cutoff": 0, "smoothing_factor": 0, "smoothing_curve": 1, "dynamic_temperature": False, "dynatemp_low": 1,
    "dynatemp_high": 1, "dynatemp_exponent": 1, "temperature": 0, "temperature_last": False, "dry_multiplier": 0,
    "dry_allowed_length": 2, "dry_base": 1.75, "dry_sequence_breakers": '"\\n", ":", "\\"", "*"',
    "repetition_penalty": 1, "repetition_penalty_range": 1024, "encoder_repetition_penalty": 1,
    "no_repeat_ngram_size": 0, "penalty_alpha": 0, "guidance_scale": 1, "negative_prompt": "", "mirostat_mode": 0,
    "do_sample": True, "seed": -1, "sampler_priority": "temperature\ntop_p", "custom_token_bans": "",
    "grammar_string": "", "add_bos_token": True, "ban_eos_token": False, "skip_special_tokens": True,
    "truncation_length": 0, "auto_max_new_tokens": False, "max_tokens_second": 0, "prompt_lookup_num_tokens": 0,
    "static_cache": False, "suffix": None, "best_of": 1, "user": None, "echo": False, "logprobs": None,
    "logit_bias": None, "n": 1, "stop": None, "stream": False, "stream_options": None,
}


def text_of(events):
    return "".join(c.get("text") or "" for e in events if e != "[DONE]" for c in e["choices"])


def chat_of(events):
    return "".join(c["delta"].get("content") or "" for e in events if e != "[DONE]" for c in e["choices"])


def sillytavern_text(s):
    """Type TabbyAPI: list, card, tokens, generation with and without a stream, swipes, token probabilities."""
    both = {"Authorization": "Bearer " + s.keys["api_key"], "x-api-key": s.keys["api_key"]}
    listed = s.ask("GET", "/v1/model/list", None, both)
    check(listed.status == 200 and listed.json()["data"][0]["id"], "the list of models has ids")
    check("x-powered-by" not in listed.headers, "no header of LM Studio")
    check(s.ask("GET", "/v1/model", None, both).json()["id"] == listed.json()["data"][0]["id"], "/v1/model has the id")
    check(isinstance(s.ask("GET", "/props", None, both).json()["chat_template"], str), "/props has the template")
    check(s.ask("GET", "/v1/auth/permission", None, both).json()["permission"] == "api", "the permission is api")
    counted = s.ask("POST", "/v1/token/encode", {"text": "Once upon a time"}, both).json()
    check(counted["length"] == len(counted["tokens"]) > 0, "length counts tokens")
    stops = ["\nMember %d:" % i for i in range(60)] + ["<|im_end|>"]
    body = dict(ST_SAMPLERS, prompt="Once upon a time", model=listed.json()["data"][0]["id"], stream=False,
                stopping_strings=stops, stop=stops, logprobs=10, n_probs=10)
    plain = s.ask("POST", "/v1/completions", body, both)
    check(plain.status == 200, "a flat body of SillyTavern is good: %s" % plain.body[:200])
    one = plain.json()["choices"][0]
    probs = one["logprobs"]
    offsets = probs["text_offset"] + [len(one["text"])]
    pieces = [one["text"][a:b] for a, b in zip(offsets, offsets[1:])]
    check(offsets[0] == 0 and pieces == probs["tokens"], "text_offset cuts the text into its tokens: %r" % pieces)
    check(all(len(row) in (10, 11) for row in probs["top_logprobs"]), "ten alternatives a token")
    streamed = s.ask("POST", "/v1/completions", dict(body, stream=True), both)
    events = streamed.events()
    check(events[-1] == "[DONE]" and text_of(events) == one["text"], "the stream has the same text")
    check(all(len(e["choices"]) == 1 for e in events[:-1]), "one choice a chunk")
    first = [e for e in events[:-1] if e["choices"][0]["text"]][0]
    check(len(first["choices"][0]["logprobs"]["top_logprobs"]) >= 1, "a chunk has top_logprobs")
    swipes = s.ask("POST", "/v1/completions", dict(body, stream=True, n=3, logprobs=None, n_probs=None), both).events()
    indexes = {c["index"] for e in swipes[:-1] for c in e["choices"]}
    check(indexes == {0, 1, 2}, "three swipes by index")
    wrong = s.ask("POST", "/v1/completions", dict(body, temperature="hot"), both)
    check(wrong.status == 400 and wrong.json()["detail"] == wrong.json()["error"]["message"], "detail says the error")
    both["x-api-key"] = both["Authorization"] = "wrong"
    check(s.ask("POST", "/v1/completions", body, both).status == 401, "a wrong key is a 401")


def sillytavern_chat(s):
    body = {"messages": [{"role": "system", "content": "You are Marla."}, {"role": "user", "content": "Hi", "name": "Bo"},
                         {"role": "user", "content": "Are you there?"}, {"role": "system", "content": "Be brief."}],
            "model": "custom", "temperature": 0, "max_tokens": 8, "stream": False, "presence_penalty": 0,
            "frequency_penalty": 0, "top_p": 1, "top_k": 0, "stop": [], "logit_bias": {}, "n": 2, "logprobs": True,
            "top_logprobs": 3}
    answer = s.post("/v1/chat/completions", body)
    check(answer.status == 200, "a chat of SillyTavern: %s" % answer.body[:200])
    choices = answer.json()["choices"]
    check([c["index"] for c in choices] == [0, 1] and choices[0]["message"]["content"], "two swipes")
    items = choices[0]["logprobs"]["content"]
    check(all(len(i["top_logprobs"]) == 3 and i["token"] is not None for i in items), "top_logprobs of each token")
    raw = b"".join(bytes(i["bytes"]) for i in items)
    check(choices[0]["message"]["content"].encode() in raw or raw.startswith(choices[0]["message"]["content"].encode()),
          "bytes of the tokens are the text")


def loader(s):
    """SillyTavern's TabbyAPI loader asks with the admin key as x-api-key."""
    key = {"x-api-key": s.keys["admin_key"]}
    for path in ("/v1/model/list", "/v1/model/draft/list", "/v1/lora/list"):
        check("data" in s.ask("GET", path, None, key).json(), path + " has data")
    head = s.ask("OPTIONS", "/v1/model/load", None, {"Origin": "http://127.0.0.1:8000",
                 "Access-Control-Request-Method": "POST",
                 "Access-Control-Request-Headers": "content-type,x-csrf-token,x-admin-key"})
    allowed = head.headers.get("access-control-allow-headers", "").lower()
    check(head.status == 204 and "x-admin-key" in allowed and "x-csrf-token" in allowed, "the preflight names headers")
    denied = s.post("/v1/model/load", {"name": "x"}, Authorization="Bearer " + s.keys["api_key"])
    check(denied.status == 403, "loading needs an admin key")
    refused = s.post("/v1/model/load", {"name": "none-such", "max_seq_len": 0}, **{"x-admin-key": s.keys["admin_key"]})
    check(refused.status in (400, 404) and refused.json()["detail"], "an unknown model has a detail")


def text_generation_webui(s):
    body = dict(TEXT_GENERATION, prompt="Once upon a time")
    check(s.post("/v1/completions", body).status == 200, "a body of text-generation-webui's API")
    chat = dict(TEXT_GENERATION, messages=[{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "I am"}],
                mode="instruct", instruction_template=None, character=None, name1=None, continue_=True, functions=None,
                function_call=None, tools=None, tool_choice=None)
    answer = s.post("/v1/chat/completions", chat)
    check(answer.status == 200 and not answer.json()["choices"][0]["message"]["content"].startswith("I am"),
          "continue_ goes on with the last message and does not repeat it")
    encoded = s.post("/v1/internal/encode", {"text": "Hello there"}).json()
    check(s.post("/v1/internal/decode", {"tokens": encoded["tokens"]}).json()["text"].endswith("Hello there"),
          "encode and decode")
    check(s.post("/v1/internal/token-count", {"text": "Hello there"}).json() == {"length": encoded["length"]}, "count")
    check(s.get("/v1/internal/model/info").json()["model_name"], "model info")


def open_webui(s):
    body = {"model": "any", "messages": [{"role": "user", "content": [{"type": "text", "text": "Say "},
                                                                       {"type": "text", "text": "hello."}]}],
            "stream": True, "stream_options": {"include_usage": True}, "temperature": 0, "top_p": 0.9, "min_p": 0.05,
            "max_tokens": 10, "frequency_penalty": 0, "presence_penalty": 0, "seed": 7, "stop": ["###"],
            "user": {"name": "Bo", "id": "1", "email": "bo@example.org", "role": "user"}}
    title = {"model": "any", "messages": [{"role": "user", "content": "Make a title"}], "stream": False, "max_tokens": 6}
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        stream = threads.submit(s.post, "/v1/chat/completions", body)
        others = [threads.submit(s.post, "/v1/chat/completions", title) for _ in range(3)]
        events = stream.result().events()
        check(all(o.result().status == 200 for o in others), "title, tags and follow-ups beside the talk")
    check(events[-1] == "[DONE]" and events[-2]["choices"] == [], "the last chunk has usage and no choices")
    usage = events[-2]["usage"]
    check(usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"], "usage adds up")
    check(all(not e.get("usage") for e in events[:-2]), "no usage before")
    check(events[0]["choices"][0]["delta"]["role"] == "assistant", "the first delta has the role")
    check(events[-3]["choices"][0]["finish_reason"] in ("stop", "length"), "a finish_reason")
    image = dict(body, messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:x"}}]}])
    refused = s.post("/v1/chat/completions", image)
    check(refused.status == 400 and "reads no pictures" in refused.json()["error"]["message"], "a picture is refused")
    check(len(s.post("/v1/embeddings", {"input": ["x"], "model": "any"}).json()["data"]) == 1, "embeddings")


def lollms(s):
    body = {"model": "any", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 6, "n": 1, "temperature": 0.1,
            "top_p": 0.95, "frequency_penalty": 1.1, "stream": True, "seed": 1, "tool_choice": None,
            "chat_template_kwargs": {"enable_thinking": False}}
    check(s.post("/v1/chat/completions", body).events()[-1] == "[DONE]", "a chat of lollms")
    check(s.post("/v1/chat/completions", dict(body, reasoning_effort="low", reasoning_summary="auto", max_tokens=None,
                                              max_completion_tokens=6)).status == 200, "its second try")


def continue_dev(s):
    stops = ["<|endoftext|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "/src/", "#- coding: utf-8", "```",
             "\n\n\n", "\nfunction", "\nclass"]
    body = {"prompt": "<|fim_prefix|>def add(a, b):\n<|fim_suffix|>\n<|fim_middle|>", "model": "any", "stream": True,
            "max_tokens": 8, "temperature": 0.01, "stop": stops}
    answer = s.post("/v1/completions", body)
    check(answer.status == 200 and answer.events()[-1] == "[DONE]", "an autocompletion")
    check(b": ping" not in answer.body, "no comment is a ping")


def long_text(s):
    body = {"prompt": "word " * 20000, "max_tokens": 4}
    answer = s.post("/v1/completions", body)
    error = answer.json()["error"]
    check(answer.status == 400 and error["code"] == "context_length_exceeded"
          and error["message"].startswith("This model's maximum context length is"), "too long: %s" % answer.body[:200])
    streamed = s.post("/v1/completions", dict(body, stream=True))
    check(streamed.status == 400, "too long, before the first byte of a stream")


def same_text(s):
    """Greedy text by stream, plain, alone and among 32 others; counts agree; the prompt is found again."""
    prompt = "The old lighthouse keeper looked out at the storm and wrote in his diary: " * 8
    body = {"prompt": prompt, "max_tokens": 24, "temperature": 0}
    alone = s.post("/v1/completions", body).json()
    text, usage = alone["choices"][0]["text"], alone["usage"]
    again = s.post("/v1/completions", body).json()
    check(again["choices"][0]["text"] == text, "the same request, the same text")
    cached = again["usage"]["prompt_tokens_details"]["cached_tokens"]
    check(cached >= usage["prompt_tokens"] - 65, "the prompt was found: %d of %d" % (cached, usage["prompt_tokens"]))
    check(s.post("/v1/token/encode", {"text": prompt}).json()["length"] == usage["prompt_tokens"], "encode counts so")
    events = s.post("/v1/completions", dict(body, stream=True, stream_options={"include_usage": True})).events()
    check(text_of(events) == text and events[-2]["usage"]["completion_tokens"] == usage["completion_tokens"],
          "the stream has the same text and count")
    with concurrent.futures.ThreadPoolExecutor(33) as threads:
        others = [threads.submit(s.post, "/v1/completions", {"prompt": "Number %d is" % i, "max_tokens": 16,
                                                            "temperature": 1, "seed": i}) for i in range(32)]
        among = [threads.submit(s.post, "/v1/completions", dict(body, stream=stream)) for stream in (False, True)]
        check(among[0].result().json()["choices"][0]["text"] == text, "the same among 32 others")
        check(text_of(among[1].result().events()) == text, "the same as a stream among 32 others")
        check(all(o.result().status == 200 for o in others), "the others are served, too")
    seeded = dict(body, temperature=1, seed=5, n=2)
    first, second = s.post("/v1/completions", seeded).json(), s.post("/v1/completions", seeded).json()
    check([c["text"] for c in first["choices"]] == [c["text"] for c in second["choices"]], "a seed gives the same text")
    check(first["choices"][0]["text"] != first["choices"][1]["text"], "choices differ")
    ids = s.post("/v1/token/encode", {"text": prompt}).json()["tokens"]
    check(s.post("/v1/completions", dict(body, prompt=ids)).json()["choices"][0]["text"] == text, "ids as the prompt")


def stops_and_echo(s):
    plain = s.post("/v1/completions", {"prompt": "Count: one, two, three, four,", "max_tokens": 24,
                                       "temperature": 0}).json()["choices"][0]
    stop = plain["text"][6:9]
    cut = s.post("/v1/completions", {"prompt": "Count: one, two, three, four,", "max_tokens": 24, "temperature": 0,
                                     "stop": [stop]}).json()["choices"][0]
    check(cut["text"] == plain["text"][:plain["text"].index(stop)] and cut["finish_reason"] == "stop"
          and cut["stop_str"] == stop, "a stop string cuts the text: %r" % cut)
    echo = s.post("/v1/completions", {"prompt": "Hello there", "max_tokens": 4, "temperature": 0, "echo": True,
                                      "logprobs": 2}).json()["choices"][0]
    check(echo["text"].startswith("Hello there") and echo["logprobs"]["token_logprobs"][0] is None
          and echo["logprobs"]["text_offset"][0] == 0, "echo gives the prompt: %r" % echo)
    check("".join(echo["logprobs"]["tokens"]) == echo["text"], "its tokens are the text")
    scored = s.post("/v1/completions", {"prompt": "Hello there", "max_tokens": 0, "echo": True, "logprobs": 1}).json()
    check(scored["choices"][0]["text"] == "Hello there" and scored["usage"]["completion_tokens"] == 0
          and len(scored["choices"][0]["logprobs"]["tokens"]) == scored["usage"]["prompt_tokens"], "a prompt is scored")


def grammars(s):
    schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"}},
              "required": ["name", "age"], "additionalProperties": False}
    ask = {"messages": [{"role": "user", "content": "Give me a person as JSON."}], "max_tokens": 80, "temperature": 0}
    for form in ({"type": "json_schema", "json_schema": {"name": "p", "schema": schema, "strict": True}},
                 {"type": "json_schema", "json_schema": schema}):
        answer = s.post("/v1/chat/completions", dict(ask, response_format=form))
        check(answer.status == 200, "a schema: %s" % answer.body[:300])
        value = json.loads(answer.json()["choices"][0]["message"]["content"])
        check(set(value) == {"name", "age"} and isinstance(value["age"], int), "the answer fits the schema: %r" % value)
    thing = s.post("/v1/chat/completions", dict(ask, response_format={"type": "json_object"}, max_tokens=200)).json()
    check(thing["choices"][0]["message"]["content"].lstrip().startswith("{"), "json_object is an object")
    picked = s.post("/v1/completions", {"prompt": "Yes or no? ", "regex_pattern": "(yes|no)", "temperature": 0}).json()
    check(picked["choices"][0]["text"] in ("yes", "no"), "a regex holds")
    bad = s.post("/v1/completions", {"prompt": "x", "json_schema": {"type": "object", "if": {}, "then": {}}})
    check(bad.status == 400 and "if" in bad.json()["error"]["message"], "what does not compile: %s" % bad.body[:200])
    both = s.post("/v1/completions", {"prompt": "x", "regex_pattern": "a", "grammar_string": 'root ::= "a"'})
    check(both.status == 400, "two grammars at once")


def job_count(s):
    figures = s.figures()
    return figures["exl2_jobs_active"] + figures["exl2_jobs_waiting"] + figures["exl2_queue"]


def cancels(s):
    """A closed socket ends its job in decode and prefill, streaming or not, and nobody else's."""
    beside = s.open("POST", "/v1/completions", {"prompt": "A long story:", "max_tokens": 160, "temperature": 0,
                                                "ban_eos_token": True})
    for stream in (True, False):
        for prompt, reset in (("Once", False), ("Once", True), ("word " * 6000, False)):
            one = s.open("POST", "/v1/completions", {"prompt": prompt, "max_tokens": 1500, "stream": stream, "n": 2,
                                                     "ban_eos_token": True})
            wait_for(lambda: job_count(s) >= 2)
            if stream and prompt == "Once":
                one.read_until(b"data: ")
            one.close(reset)
            begin = time.monotonic()
            wait_for(lambda: job_count(s) <= 1, 20)
            took = time.monotonic() - begin
            check(took < 1.0, "gone after %.3f s (stream %s, %d bytes)" % (took, stream, len(prompt)))
    answer = beside.answer()
    check(answer.status == 200 and answer.json()["usage"]["completion_tokens"] == 160, "the other request went on")
    wait_for(lambda: s.figures()["exl2_pages_used"] == 0)


def errors(s):
    post = "/v1/chat/completions"
    for body, status in (({}, 400), ({"messages": []}, 400), ({"messages": "x"}, 400), (b"{", 400), (b"[]", 400),
                         ({"messages": [{"role": "user", "content": 5}]}, 400),
                         (b'{"messages":[],"messages":[]}', 400),
                         ({"messages": [{"role": "user", "content": "x"}], "n": 17}, 400),
                         ({"messages": [{"role": "user", "content": "x"}], "top_logprobs": 21}, 400)):
        answer = s.post(post, body)
        check(answer.status == status and answer.json()["error"]["message"], "%r is a %d: %d" % (body, status, answer.status))
        check(answer.headers["x-request-id"], "an error has an id")
    ids = [s.get("/v1/nothing").headers["x-request-id"], s.get("/health").headers["x-request-id"]]
    check(ids[0] != ids[1], "each answer has its own: %s" % ids)
    check(s.get("/v1/nothing").status == 404, "an unknown path")
    wrong = s.get("/v1/chat/completions")
    check(wrong.status == 405 and "POST" in wrong.headers["allow"], "a wrong method")
    template = s.post(post, {"messages": [{"role": "tool", "tool_call_id": "none", "content": "x"}]})
    check(template.status == 400, "a result of no call")
    check(s.post("/v1/download", {}, **{"x-admin-key": s.keys["admin_key"]}).status == 501, "downloads are a 501")
    s.headers, kept = {}, s.headers
    check(s.get("/health").json()["status"] == "healthy", "health needs no key")
    check(s.get("/v1/models").status == 401, "models need one")
    check(s.get("/").status == 200, "the page needs none")
    s.headers = kept


def bodies(s):
    """What holds for a body holds on all paths; and a page's path has its own methods."""
    admin = {"x-admin-key": s.keys["admin_key"]}
    many = b"[" + b"1," * 500000 + b"1]"
    for path, one in (("token/encode", b'"text":"a"'), ("token/decode", b'"tokens":[1]'), ("embeddings", b'"input":"a"'),
                      ("../ui/budget", b'"cpu_us":20000'), ("sampling/override/switch", b'"preset":"none"'),
                      ("model/load", b'"name":"none"')):
        for body, words in ((b"{%s,%s}" % (one, one), "twice"), (b'{%s,"x":"\xff"}' % one, "UTF-8"),
                            (b'{%s,"x":+1}' % one, "malformed"), (b'{%s,"x":%s}' % (one, many), "too many values"),
                            (b"", "no JSON object"), (b"[]", "no JSON object")):
            got = s.ask("POST", ("/v1/" + path).replace("/v1/..", ""), body, admin)
            check(got.status == 400 and words in got.json()["error"]["message"] and got.json()["error"]["code"] == "invalid_json",
                  "%s: %s: %s" % (path, words, got.body[:200]))
    for inner in (61, 62, 64, 65):
        call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":' * inner + "1" + "}" * inner}}
        turn = [{"role": "user", "content": "x"}, {"role": "assistant", "content": None, "tool_calls": [call]}]
        tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
        for more in ({}, {"tools": [tool]}):
            got = s.post("/v1/chat/completions", dict({"messages": turn, "max_tokens": 1}, **more))
            check(got.status == 200, "arguments of %d levels: %s" % (inner, got.body[:200]))
    for method, path in (("POST", "/"), ("PUT", "/page.js"), ("DELETE", "/favicon.ico")):
        got = s.ask(method, path, {} if method != "DELETE" else None)
        check(got.status == 405 and got.headers["allow"] == "GET, HEAD, OPTIONS", "%s %s: %d" % (method, path, got.status))


def main():
    with Server(sys.argv[1], model=model_of(sys.argv)) as s:
        s.headers = {"Authorization": "Bearer " + s.keys["api_key"]}
        run_tests(s, (sillytavern_text, sillytavern_chat, loader, text_generation_webui, open_webui, lollms, continue_dev,
                      long_text, same_text, stops_and_echo, grammars, cancels, errors, bodies))
        s.process.terminate()
        check(s.process.wait(30) == 0, "a signal ends it with 0")
    return result()


if __name__ == "__main__":
    sys.exit(main())
