// csharp_test.cs: demo/bindings/csharp over the shared library, on a small synthetic model.
// takes: PROGRAM MODEL SAVE, or "rest MODEL SAVE": the second process of the test of saves.
// gives: exit code 0 when all checks hold.
using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.IO;
using System.Linq;
using System.Threading;
using Exl2;

static class Test
{
    const string Prompt = "The lighthouse stood";
    static int checks, failed;
    static string program, folder;

    static void Check(bool good, string what)
    {
        checks++;
        if (!good)
        {
            failed++;
            Console.WriteLine("failed: " + what);
        }
    }

    static Result Fails(Action call)
    {
        try
        {
            call();
            return Result.Ok;
        }
        catch (Exl2Exception e)
        {
            Check(e.Message.Length > 10, "a message of one sentence");
            return e.Result;
        }
    }

    static string Run(string file, string arguments)
    {
        var start = new ProcessStartInfo(file, arguments) { RedirectStandardOutput = true, UseShellExecute = false };
        using (Process process = Process.Start(start))
        {
            string text = process.StandardOutput.ReadToEnd();
            process.WaitForExit();
            Check(process.ExitCode == 0, file + " " + arguments);
            return text;
        }
    }

    static void Texts(Model model)
    {
        string said = Run(program, "generate " + folder + " --backend cpu --context 512 --prompt \"" + Prompt
                          + "\" --max-tokens 32 --seed 7");
        string pulled = string.Concat(model.Start(Prompt, new JobOptions { MaxTokens = 32, Seed = 7 }).Pieces());
        string heard = "";
        Job job = model.Start(Prompt, new JobOptions { MaxTokens = 32, Seed = 7,
                                                       OnText = piece => { heard += piece; return Flow.Continue; } });
        job.Wait();
        Check(pulled.Length > 10 && pulled == heard && job.Text == heard, "text by pull and by callback");
        Check(said.TrimEnd('\n') == pulled.TrimEnd('\n'), "the text of exl2 generate");
        Check(job.NewTokens == 32 && job.Stop == Stop.Length, "statistics");
        Check(job.PromptTokens == model.Tokenize(Prompt).Length, "tokens of the prompt");
        using (Grammar grammar = model.MakeGrammar(GrammarKind.Choices, "left\nright"))
        {
            string choice = model.Start("Turn", new JobOptions { Grammar = grammar, Seed = 3 }).Wait();
            Check(choice == "left" || choice == "right", "a grammar");
        }
        var messages = new[] { new Message("system", "You are Marla."), new Message("user", "An ale, please.") };
        job = model.Start(messages, new JobOptions { MaxTokens = 3, Seed = 2, StopStrings = new[] { "zzz" } });
        Check(job.Wait().Length > 0 && job.PromptTokens > 15, "messages");
        Check(IsCut(() => model.Start("a\0b", new JobOptions { MaxTokens = 1 })), "a prompt with a zero character");
        Check(IsCut(() => model.Start(new[] { new Message("user", "a\0b") }, new JobOptions { MaxTokens = 1 })),
              "a message with one");
        Check(IsCut(() => model.Start("a", new JobOptions { StopStrings = new[] { "a\0b" } })), "a stop string with one");
    }

    /// <summary>C would read a text up to its zero character.</summary>
    static bool IsCut(Action call)
    {
        try
        {
            call();
            return false;
        }
        catch (ArgumentException)
        {
            return true;
        }
    }

    static void Ends(Engine engine, Model model)
    {
        var options = new JobOptions { MaxTokens = 400, Seed = 1, BanTokens = new[] { 0, 1, 2 } };
        Job job = model.Start(Prompt, options);
        IEnumerator<string> pieces = job.Pieces().GetEnumerator();
        pieces.MoveNext();
        var thread = new Thread(job.Cancel);
        thread.Start();
        thread.Join();
        while (pieces.MoveNext()) { }
        Check(job.Stop == Stop.Cancelled && job.NewTokens < 400, "cancel from a second thread");

        options.OnText = piece => { throw new InvalidOperationException("from the callback"); };
        job = model.Start(Prompt, options);
        string message = "";
        try
        {
            job.Wait();
        }
        catch (InvalidOperationException e)
        {
            message = e.Message;
        }
        while (!job.Done)
        {
            engine.Step();
        }
        Check(message == "from the callback" && job.Stop == Stop.Callback, "an exception in a callback");
    }

    static ulong Jobs(Engine engine, Model model, int count)
    {
        for (int i = 0; i < count; i++)
        {
            model.Start("a", new JobOptions { MaxTokens = 1, Seed = 1 }).Wait();
        }
        GC.Collect();
        ulong bytes, allocations;
        engine.Memory(out bytes, out allocations);
        return allocations;
    }

    static void Memory(Engine engine, Model model)
    {
        ulong before = Jobs(engine, model, 100);
        long heap = GC.GetTotalMemory(true);
        Check(Jobs(engine, model, 1000) == before, "1,000 jobs allocate nothing in the engine");
        Check(GC.GetTotalMemory(true) - heap < 200000, "1,000 jobs leave nothing behind");
    }

    static void Lives()
    {
        for (int i = 0; i < 20; i++)
        {
            using (var engine = new Engine(Backend.Cpu))
            {
                engine.OpenModel(folder, 128);
                for (int k = 0; k < i; k++)
                {
                    engine.Step(100);
                }
            }
        }
        var other = new Engine(Backend.Cpu);
        Check(Fails(() => other.Load(folder + "/nowhere")) == Result.Io, "a wrong path");
        Model model = other.Load(folder, 128);
        Session session = model.OpenSession();
        model.Dispose();
        Check(Fails(() => session.Fork()) == Result.Stale, "a stale handle");
        Check(Fails(() => model.Tokenize("a")) == Result.Stale, "a closed model");
        other.Dispose();
        other.Dispose();
        Check(Fails(() => other.Step()) == Result.Stale, "a call after close");
        Check(Fails(() => session.Save()) == Result.Stale, "a session after close");
    }

    static void Worker(Model model)
    {
        var threads = new HashSet<int>();
        using (var engine = new Engine(Backend.Cpu, worker: true))
        using (Model own = engine.Load(folder, 512))
        {
            Job job = own.Start(Prompt, new JobOptions { MaxTokens = 8, Seed = 7, OnText = piece =>
            {
                threads.Add(Thread.CurrentThread.ManagedThreadId);
                return Flow.Continue;
            } });
            Check(job.Wait() == model.Start(Prompt, new JobOptions { MaxTokens = 8, Seed = 7 }).Wait(), "a worker");
        }
        Check(threads.Count == 1 && threads.Single() == Thread.CurrentThread.ManagedThreadId, "threads of callbacks");
    }

    static void Saves(Model model, string self, string save)
    {
        string whole = model.Start(Prompt, new JobOptions { MaxTokens = 24, Seed = 9 }).Wait();
        using (Session session = model.OpenSession())
        {
            Job job = session.Start(Prompt, new JobOptions { MaxTokens = 24, Seed = 9 });
            foreach (string piece in job.Pieces())
            {
                if (job.Text.Length > 12)
                {
                    break;
                }
            }
            File.WriteAllBytes(save, session.Save());
            string rest = Run("mono", self + " rest " + folder + " " + save);
            Check(rest.Length > 0 && job.Text + rest == whole, "saved here, restored in another process");
        }
    }

    static int Rest(string model, string save)
    {
        using (var engine = new Engine(Backend.Cpu))
        using (Model m = engine.Load(model, 512))
        using (Session session = m.OpenSession())
        {
            session.Restore(File.ReadAllBytes(save));
            Console.Write(session.Start((string)null, new JobOptions { Resume = true }).Wait());
        }
        return 0;
    }

    static int Main(string[] arguments)
    {
        if (arguments[0] == "rest")
        {
            return Rest(arguments[1], arguments[2]);
        }
        program = arguments[0];
        folder = arguments[1];
        using (var engine = new Engine(Backend.Cpu))
        using (Model model = engine.Load(folder, 512))
        {
            Check(model.Arch == "LlamaForCausalLM", "info");
            Texts(model);
            Ends(engine, model);
            Memory(engine, model);
            Worker(model);
            Saves(model, typeof(Test).Assembly.Location, arguments[2]);
        }
        Lives();
        Console.WriteLine("{0} checks, {1} failed", checks, failed);
        return failed == 0 ? 0 : 1;
    }
}
