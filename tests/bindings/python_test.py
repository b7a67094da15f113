"""python_test.py: the Python package demo/bindings/python over the shared library, on a small synthetic model.

takes: LIBRARY EXL2 GOLDEN WORK: the library, the program exl2, tests/golden, and a folder to write to.
gives: exit code 0 when all tests pass.
"""

import asyncio
import os
import resource
import shutil
import subprocess
import sys
import threading
import unittest

LIBRARY, PROGRAM, GOLDEN, WORK = (os.path.abspath(argument) for argument in sys.argv[1:5])
os.environ.update(EXL2_LIBRARY=LIBRARY, PYTHONDONTWRITEBYTECODE="1")
sys.dont_write_bytecode = True  # the source tree stays as it is
PACKAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "demo", "bindings", "python")
sys.path.insert(0, PACKAGE)

import exl2  # noqa: E402
from exl2 import _abi  # noqa: E402

MODEL = os.path.join(WORK, "model")
PROMPT = "The lighthouse stood"


def make_model():
    shutil.rmtree(WORK, ignore_errors=True)
    os.makedirs(WORK)
    subprocess.run([PROGRAM, "synth", MODEL, "--shape", "smollm2-135m", "--layers", "1", "--bpw", "2.5"], check=True,
                   stdout=subprocess.DEVNULL)
    for name in os.listdir(os.path.join(GOLDEN, "smollm2")):
        shutil.copy(os.path.join(GOLDEN, "smollm2", name), MODEL)


class Texts(unittest.TestCase):
    """Jobs of one model."""

    @classmethod
    def setUpClass(cls):
        cls.engine = exl2.Engine(backend="cpu", max_jobs=8)
        cls.model = cls.engine.load(MODEL, context=512)

    @classmethod
    def tearDownClass(cls):
        cls.engine.close()

    def test_generate_is_the_programs(self):
        for settings, flags in (({"temperature": 0}, ["--temperature", "0"]), ({"seed": 7}, ["--seed", "7"])):
            program = subprocess.run([PROGRAM, "generate", MODEL, "--backend", "cpu", "--context", "512", "--prompt", PROMPT,
                                      "--max-tokens", "32"] + flags, check=True, stdout=subprocess.PIPE).stdout
            pulled = "".join(self.model.generate(PROMPT, max_tokens=32, **settings))
            heard = []
            self.model.start(PROMPT, max_tokens=32, on_text=heard.append, **settings).wait()
            self.assertEqual("".join(heard), pulled)
            self.assertGreater(len(pulled), 10)
            self.assertEqual(program.rstrip(b"\n"), pulled.encode().rstrip(b"\n"))

    def test_tokens_and_alternatives(self):
        job = self.model.start(PROMPT, max_tokens=5, temperature=0, logprobs=3)
        text = job.wait()
        self.assertEqual(len(job.tokens), 5)
        self.assertEqual(self.model.detokenize([token.id for token in job.tokens]), text)
        for token in job.tokens:
            self.assertEqual(token.alternatives[0][0], token.id)  # greedy: the likeliest one
            self.assertEqual(len(token.alternatives), 3)
        self.assertEqual(job.stats["new_tokens"], 5)
        self.assertEqual(job.stop, "length")
        scores = self.model.score(PROMPT)
        self.assertEqual(len(scores), len(self.model.tokenize(PROMPT)) - 1)
        self.assertTrue(all(score.logprob < 0 for score in scores))

    def test_embed_is_a_vector(self):
        width = self.model.info["hidden"]
        one = self.model.embed(PROMPT)
        self.assertEqual(len(one), width)
        self.assertAlmostEqual(sum(value * value for value in one), 1, places=4)
        ids = self.model.tokenize(PROMPT)
        self.assertEqual(self.model.embed(ids), one)  # this tokenizer puts nothing after a text
        texts = [PROMPT + " " * i for i in range(20)]  # more than max_jobs
        many = self.model.embed(texts, pool="mean", unit=False)
        self.assertEqual(len(many), 20)
        self.assertEqual(many[3], self.model.embed(texts[3], pool="mean", unit=False))
        self.assertGreater(abs(sum(value * value for value in many[0]) - 1), 0.1)
        self.assertNotEqual(self.model.embed(PROMPT, layer=1), one)
        with self.assertRaises(ValueError):
            self.model.embed(PROMPT, pool="max")
        with self.assertRaises(exl2.Exl2Error) as failure:
            self.model.embed(PROMPT, layer=9)
        self.assertIn("embed.layer is 9", str(failure.exception))

    def test_schema_gives_values(self):
        schema = {"type": "object", "required": ["act"], "additionalProperties": False,
                  "properties": {"act": {"enum": ["give", "leave"]}, "say": {"type": "string", "maxLength": 20}}}
        value = self.model.generate_json("Turn:", schema, max_tokens=100, seed=3)
        self.assertIn(value["act"], ("give", "leave"))
        self.assertIn("".join(self.model.generate("Turn:", choices=["left", "right"], seed=3)), ("left", "right"))

    def test_sessions(self):
        with self.model.session() as one:
            first = "".join(one.say(PROMPT, max_tokens=6, seed=5))
            with one.fork() as two:
                self.assertEqual(one.tokens, two.tokens)
                self.assertEqual("".join(one.say(" and", max_tokens=6, seed=5)),
                                 "".join(two.say(" and", max_tokens=6, seed=5)))
                self.assertGreater(two.info["tokens"], len(self.model.tokenize(PROMPT)))
            one.rewind(len(self.model.tokenize(PROMPT)))
            self.assertEqual("".join(one.say(max_tokens=6, seed=5)), first)

    def test_messages(self):
        messages = [{"role": "system", "content": "You are Marla."}, {"role": "user", "content": "An ale, please."}]
        self.assertEqual(self.model.render(messages).count("<|im_start|>"), 3)
        job = self.model.start(messages, max_tokens=4, seed=2)
        job.wait()
        self.assertEqual(job.stats["prompt_tokens"], len(self.model.tokenize(self.model.render(messages), bos=False)))
        job = self.model.start(messages, max_tokens=4, seed=2, begin="Aye, ", stop=["nobody says this"])
        job.wait()
        ids = self.model.tokenize(self.model.render(messages) + "Aye, ", bos=False)
        self.assertEqual(self.model.chat_tokens(messages, begin="Aye, "), ids)
        self.assertEqual(job.stats["prompt_tokens"], len(ids))
        pieces = [self.model.detokenize([one], as_bytes=True) for one in self.model.tokenize("\u20ac \U0001f600")]
        self.assertEqual(b"".join(pieces), "\u20ac \U0001f600".encode())

    def test_sentences(self):
        text = "Dr. Who? Nobody knows. \u8c01\uff1f\u6211"
        self.assertEqual(self.engine.sentences(text), ["Dr. Who? ", "Nobody knows. ", "\u8c01\uff1f", "\u6211"])
        self.assertEqual(self.engine.sentences(text, whole=False), ["Dr. Who? ", "Nobody knows. ", "\u8c01\uff1f"])

    def test_async(self):
        async def say(seed):
            return "".join([piece async for piece in self.model.start(PROMPT, max_tokens=12, seed=seed)])

        async def all_three():
            return await asyncio.gather(say(1), say(2), say(3))

        together = asyncio.run(all_three())
        self.assertEqual(together, ["".join(self.model.generate(PROMPT, max_tokens=12, seed=seed)) for seed in (1, 2, 3)])

    def test_cancel_from_another_thread(self):
        job = self.model.start(PROMPT, max_tokens=400, seed=1, ban_tokens=[0, 1, 2])
        pieces = iter(job)
        next(pieces)
        thread = threading.Thread(target=job.cancel)
        thread.start()
        thread.join()
        for _ in pieces:
            pass
        self.assertEqual(job.stop, "cancelled")
        self.assertLess(len(job.tokens), 400)

    def test_dropped_iterator_cancels(self):
        pieces = self.model.generate(PROMPT, max_tokens=400, ban_tokens=[0, 1, 2])
        next(pieces)
        pieces.close()
        while self.engine.step(wait=True):
            pass
        self.assertEqual(self.engine.stats["jobs_active"] + self.engine.stats["jobs_waiting"], 0)

    def test_exception_in_a_callback(self):
        def fail(_piece):
            raise KeyError("from the callback")

        job = self.model.start(PROMPT, max_tokens=50, seed=1, on_text=fail)
        with self.assertRaises(KeyError):
            job.wait()
        while not job.done:
            self.engine.step()
        self.assertEqual(job.stop, "callback")
        self.assertGreater(len("".join(self.model.generate(PROMPT, max_tokens=2, seed=1))), 0)

    def test_callback_stops(self):
        heard = []

        def stop(piece):
            heard.append(piece)
            return exl2.STOP_JOB if len(heard) == 3 else None

        job = self.model.start(PROMPT, max_tokens=50, seed=1, on_text=stop)
        job.wait()
        self.assertEqual((job.stop, len(heard)), ("callback", 3))

    def test_callbacks_run_on_the_thread_that_steps(self):
        threads = set()
        with exl2.Engine(backend="cpu", worker=True) as engine, engine.load(MODEL, context=512) as model:
            job = model.start(PROMPT, max_tokens=8, seed=7,
                              on_text=lambda _piece: threads.add(threading.get_ident()) and None)
            text = job.wait()
        self.assertEqual(threads, {threading.get_ident()})
        self.assertEqual(text, "".join(self.model.generate(PROMPT, max_tokens=8, seed=7)))

    def test_wrong_settings(self):
        for settings in ({"temprature": 1}, {"json": True, "regex": "a"}):
            with self.assertRaises(TypeError):
                self.model.start(PROMPT, **settings)
        with self.assertRaises(exl2.Exl2Error) as caught:
            self.model.start(PROMPT, top_p=7)
        self.assertEqual(caught.exception.name, "EXL2_ERR_ARG")
        for _ in range(300):  # more than there may be grammars: a wrong setting leaves none open
            with self.assertRaises(ValueError):
                self.model.start(PROMPT, choices=["left"], preset="wild")
        with self.model.grammar("json"):
            pass
        with self.assertRaises(ValueError):
            exl2.Engine(backend="gpu")
        with self.assertRaises(exl2.Exl2Error) as caught:
            self.model.grammar("schema", {"type": "nonsense"})
        self.assertIn(caught.exception.name, ("EXL2_ERR_FORMAT", "EXL2_ERR_UNSUPPORTED"))

    def test_what_c_has_no_room_for(self):
        for settings in ({"max_tokens": -1}, {"max_tokens": 1 << 32}, {"seed": -1}, {"logprobs": 1 << 32},
                         {"bias": {1 << 32: 1}}, {"stop_tokens": [1 << 32]}, {"stop": ["a\0b"]}, {"ban": ["a\0b"]},
                         {"template_text": "a\0b"}):
            with self.assertRaises(ValueError, msg=repr(settings)):
                self.model.start(PROMPT, **settings)
        messages = [{"role": "user", "content": "a\0b"}]
        for call in (lambda: self.model.start([1 << 32]), lambda: self.model.detokenize([1 << 32]),
                     lambda: self.model.start(messages), lambda: self.model.render(messages, template_text="x"),
                     lambda: self.engine.load(MODEL + "\0x"), lambda: self.engine.load(MODEL, context=1 << 32),
                     lambda: self.engine.step(cpu_us=-1), lambda: exl2.Engine(backend="cpu", max_jobs=1 << 32)):
            with self.assertRaises(ValueError):
                call()
        with self.model.session() as session:
            session.start(PROMPT, max_tokens=2).wait()
            for call in (lambda: session.rewind(1 << 32), lambda: session.trim(0, 1 << 32), lambda: session.rewind(-1)):
                with self.assertRaises(ValueError):
                    call()
            self.assertGreater(len(session.tokens), 2)

    def test_close_waits_for_calls_of_other_threads(self):
        engine = exl2.Engine(backend="cpu")
        job = engine.load(MODEL, context=128).start(PROMPT, max_tokens=8)
        library, closed = engine._library, []

        class Library:
            """The library, but that another thread closes the engine just before a call."""

            def __getattr__(self, name):
                if name == "exl2_job_cancel":
                    closer = threading.Thread(target=engine.close)
                    closer.start()
                    closer.join(0.5)
                    closed.append(not closer.is_alive())
                return getattr(library, name)

        engine._library = Library()
        job.cancel()
        self.assertEqual(closed, [False])

    def test_a_thousand_jobs_keep_the_memory(self):
        def run(count):
            for _ in range(count):
                self.model.start([5], max_tokens=1, seed=1).wait()
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

        run(300)
        before = run(1)
        self.assertLess(run(1000) - before, 1024)  # KiB
        self.assertLessEqual(len(self.engine._receivers), 1)  # the model's


class Saves(unittest.TestCase):
    """A sentence goes on in another process."""

    def part(self, code):
        script = ("import exl2, sys\nwith exl2.Engine(backend='cpu') as e, e.load(%r, context=512) as m, m.session() as s:"
                  "\n    %s\n" % (MODEL, code))
        environment = dict(os.environ, PYTHONPATH=PACKAGE)
        return subprocess.run([sys.executable, "-c", script], check=True, stdout=subprocess.PIPE, env=environment).stdout

    def test_save_and_restore(self):
        whole = self.part("sys.stdout.write(''.join(s.say(%r, max_tokens=24, seed=9)))" % PROMPT)
        for kv in (False, True):
            path = os.path.join(WORK, "saved")
            first = self.part("job = s.start(%r, max_tokens=24, seed=9)\n    pieces = iter(job)\n    "
                              "said = ''.join(next(pieces) for _ in range(5))\n    "
                              "open(%r, 'wb').write(s.save(kv=%r))\n    sys.stdout.write(job.text)" % (PROMPT, path, kv))
            rest = self.part("s.restore(open(%r, 'rb').read())\n    "
                             "sys.stdout.write(''.join(s.say(resume=True)))" % path)
            self.assertGreater(len(first), 0)
            self.assertGreater(len(rest), 0)
            self.assertEqual(first + rest, whole)


class Lives(unittest.TestCase):
    """Objects that end, and what comes after."""

    def test_close_while_loading_twenty_times(self):
        for count in range(20):
            engine = exl2.Engine(backend="cpu")
            heard = []
            model = engine.open_model(MODEL, context=128, on_progress=heard.append)
            for _ in range(count):
                engine.step(cpu_us=100)
            if count % 2:
                model.close()
            engine.close()
        with exl2.Engine(backend="cpu") as engine, engine.load(MODEL, context=128, on_progress=heard.append) as model:
            self.assertTrue(model.ready)
        self.assertEqual(heard[-1], 1.0)

    def test_calls_after_the_end(self):
        engine = exl2.Engine(backend="cpu")
        model = engine.load(MODEL, context=128)
        session = model.session()
        job = session.start(PROMPT, max_tokens=8)
        model.close()
        engine.step()
        self.assertEqual((job.done, job.stop), (True, "cancelled"))
        for call in (lambda: session.say("x").__next__(), lambda: session.tokens, lambda: model.tokenize("x"),
                     lambda: session.fork()):
            with self.assertRaises(exl2.Exl2Error) as caught:
                call()
            self.assertIn(caught.exception.name, ("EXL2_ERR_STALE", "EXL2_ERR_ARG"))
        other = engine.load(MODEL, context=128).start(PROMPT, max_tokens=8)
        engine.close()
        self.assertEqual((other.done, other.wait(), other.stop), (True, "", "cancelled"))
        session.close()
        model.close()
        engine.close()
        job.cancel()
        for read in (lambda: engine.info, lambda: engine.stats, engine.step):
            with self.assertRaises(exl2.Exl2Error):
                read()
        with self.assertRaises(exl2.Exl2Error):
            engine.load(MODEL)

    def test_wrong_paths(self):
        with exl2.Engine(backend="cpu") as engine:
            with self.assertRaises(exl2.Exl2Error) as caught:
                engine.load(os.path.join(WORK, "nowhere"))
            self.assertEqual(caught.exception.name, "EXL2_ERR_IO")
            self.assertIn("nowhere", str(caught.exception))
            self.assertEqual(engine._receivers, {})
        with self.assertRaises(OSError):
            exl2.Engine(library=os.path.join(WORK, "libnothing.so"))

    def test_logs(self):
        lines = []
        with exl2.Engine(backend="cpu", log=lambda level, text: lines.append((level, text))) as engine:
            with self.assertRaises(exl2.Exl2Error):
                engine.load(os.path.join(WORK, "nowhere"))
        self.assertEqual(lines[0][0], "error")


class Layouts(unittest.TestCase):
    """A package whose structs are not the library's opens nothing."""

    def opened_with(self, change):
        members = _abi.layout()
        kept = [member for member in members if change(member)]
        array = (_abi.Layout * len(kept))(*kept)
        real = _abi.layout
        _abi.layout = lambda: array
        try:
            with exl2.Engine(backend="cpu") as engine:
                return engine.info["backend"]
        finally:
            _abi.layout = real

    def test_same(self):
        self.assertEqual(self.opened_with(lambda member: True), 2)

    def test_a_member_is_missing(self):
        with self.assertRaises(exl2.Exl2Error) as caught:
            self.opened_with(lambda member: (member.type, member.member) != (b"exl2_job_desc", b"loop_stop"))
        self.assertEqual(caught.exception.name, "EXL2_ERR_VERSION")
        self.assertIn("exl2_job_desc.loop_stop", str(caught.exception))

    def test_another_release(self):
        version = _abi.VERSION
        _abi.VERSION = version + 100
        try:
            with self.assertRaises(exl2.Exl2Error) as caught:
                exl2.Engine(backend="cpu")
            self.assertEqual(caught.exception.name, "EXL2_ERR_VERSION")
        finally:
            _abi.VERSION = version


if __name__ == "__main__":
    make_model()
    result = unittest.main(argv=[sys.argv[0]], exit=False).result
    print("%d checks, %d failed" % (result.testsRun, len(result.failures) + len(result.errors)))
    sys.exit(not result.wasSuccessful())
