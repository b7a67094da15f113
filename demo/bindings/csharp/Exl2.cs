// Exl2.cs: Engine, Model, Session, Grammar and Job for C# (netstandard 2.0, Mono, Unity with Mono or IL2CPP).
//
//     using (var engine = new Engine(Backend.Auto))
//     using (Model model = engine.Load("models/smollm2-135m-instruct"))
//         foreach (string piece in model.Start("Once upon a time", new JobOptions { MaxTokens = 64 }).Pieces())
//             Console.Write(piece);
//
// In a game call engine.OpenModel, engine.Step(2000) once a frame, and model.Start with OnText. Callbacks run on the
// thread that calls Step, never on another one, also with `worker`. Only Job.Cancel and Job.Pause may be called from
// other threads. The comments of exl2.h are the manual.
using System;
using System.Collections.Generic;
using System.Runtime.InteropServices;
using System.Text;
using System.Threading;

namespace Exl2
{
    public enum Backend { Auto, Cuda, Cpu }
    public enum CacheFormat { Fp16, Q8, Q6, Q4 }
    public enum GrammarKind { Json, JsonSchema, Regex, Ebnf, Choices }
    public enum Flow { Continue, StopJob, PauseJob }
    public enum Stop { None, Eos, String, Token, Length, Grammar, Callback, Cancelled, Error, Loop }
    public enum Result
    {
        Ok = 0, Pending = 1, Idle = 2, Arg = -1, State = -2, Stale = -3, TooSmall = -4, Memory = -5, DeviceMemory = -6,
        Budget = -7, ContextFull = -8, Io = -9, Format = -10, Unsupported = -11, NoDevice = -12, NoCompiler = -13,
        Compile = -14, DeviceLost = -15, Cancelled = -16, Version = -17, Internal = -18
    }

    /// <summary>A call failed; the message is the engine's.</summary>
    public sealed class Exl2Exception : Exception
    {
        public Result Result { get; private set; }

        public Exl2Exception(Result result, string message) : base(message)
        {
            Result = result;
        }
    }

    /// <summary>UTF-8 texts and arrays that a desc points to, until the call has ended.</summary>
    sealed class Texts : IDisposable
    {
        readonly List<IntPtr> blocks = new List<IntPtr>();

        public IntPtr Add(string text)
        {
            if (text != null && text.IndexOf('\0') >= 0) // C would read the text up to it
                throw new ArgumentException("A text has a zero character.");
            return text == null ? IntPtr.Zero : Add(Encoding.UTF8.GetBytes(text + "\0"));
        }

        public IntPtr Add(byte[] bytes)
        {
            IntPtr block = Block(bytes.Length);
            Marshal.Copy(bytes, 0, block, bytes.Length);
            return block;
        }

        public IntPtr Add(int[] ids)
        {
            IntPtr block = Block(ids.Length * 4);
            Marshal.Copy(ids, 0, block, ids.Length);
            return block;
        }

        public IntPtr Add(string[] texts)
        {
            IntPtr block = Block(texts.Length * IntPtr.Size);
            for (int i = 0; i < texts.Length; i++)
            {
                Marshal.WriteIntPtr(block, i * IntPtr.Size, Add(texts[i]));
            }
            return block;
        }

        public IntPtr Block(int bytes)
        {
            IntPtr block = Marshal.AllocHGlobal(Math.Max(bytes, 1));
            blocks.Add(block);
            return block;
        }

        public void Dispose()
        {
            foreach (IntPtr block in blocks)
            {
                Marshal.FreeHGlobal(block);
            }
            blocks.Clear();
        }

        /// <summary>The text at an address; bytes -1: up to its NUL.</summary>
        public static string Read(IntPtr at, long bytes)
        {
            if (at == IntPtr.Zero)
            {
                return "";
            }
            if (bytes < 0)
            {
                for (bytes = 0; Marshal.ReadByte(at, (int)bytes) != 0; bytes++) { }
            }
            var copy = new byte[bytes];
            Marshal.Copy(at, copy, 0, (int)bytes);
            return Encoding.UTF8.GetString(copy);
        }
    }

    /// <summary>Settings of a job. 0, null and false keep the engine's defaults.</summary>
    public sealed class JobOptions
    {
        /// <summary>Reserve: new tokens that KV pages are promised for at a time; 0: MaxTokens.</summary>
        public uint MaxTokens, MinTokens, Reserve, TopK;
        /// <summary>Null: as the model's files say. 0: the likeliest token.</summary>
        public float? Temperature;
        public float TopP, MinP, RepeatPenalty, FrequencyPenalty, PresencePenalty;
        public ulong Seed;
        public int Priority;
        public string[] StopStrings, BanStrings;
        public int[] StopTokens, BanTokens;
        public Grammar Grammar;
        public bool Resume, PrefillOnly, HealPrompt, BegunReply, Ngram;
        /// <summary>A JSON array, for the chat template.</summary>
        public string Tools;
        /// <summary>Called with each piece of the text, in Step. Without it the pieces wait for Pieces.</summary>
        public Func<string, Flow> OnText;
        /// <summary>Called in Step when the job has ended.</summary>
        public Action<Job> OnDone;
    }

    /// <summary>A message of a conversation: role is "system", "user", "assistant" or "tool".</summary>
    public struct Message
    {
        public string Role, Text, Name, ToolCalls, ToolCallId;

        public Message(string role, string text) : this()
        {
            Role = role;
            Text = text;
        }
    }

    /// <summary>An engine: where models run. One thread at a time calls its methods and those of its objects.</summary>
    public sealed class Engine : IDisposable
    {
        // One delegate for all engines: a static one, which IL2CPP needs and the garbage collector never moves.
        static readonly EventFn onEvent = OnEvent;
        static readonly Dictionary<long, Engine> engines = new Dictionary<long, Engine>();
        static long lastReceiver;

        internal IntPtr Address;
        readonly Dictionary<long, Job> jobs = new Dictionary<long, Job>();
        readonly Dictionary<long, Action<float>> loads = new Dictionary<long, Action<float>>();
        Exception raised; // by a callback; the call that steps throws it

        public Engine(Backend backend, bool worker = false, ulong hostBytesMax = 0, ulong deviceBytesMax = 0)
        {
            var d = new exl2_engine_desc { backend = (int)backend, host_bytes_max = hostBytesMax,
                                           device_bytes_max = deviceBytesMax };
            var error = new exl2_error();
            using (var texts = new Texts())
            {
                exl2_layout[] members = Native.Layouts(texts);
                int r = Native.exl2_open_binding(ref d, Native.Version, members, (uint)members.Length, ref error,
                                                 out Address);
                if (r < 0)
                {
                    throw new Exl2Exception((Result)r, Message(error));
                }
            }
            if (worker)
            {
                Check(Native.exl2_worker_start(Address));
            }
        }

        internal static string Message(exl2_error error)
        {
            int bytes = error.text == null ? 0 : Array.IndexOf(error.text, (byte)0);
            return bytes <= 0 ? "" : Encoding.UTF8.GetString(error.text, 0, bytes);
        }

        internal int Check(int result)
        {
            if (result < 0)
            {
                var error = new exl2_error();
                Native.exl2_last_error(Address, ref error);
                throw new Exl2Exception((Result)result, Message(error));
            }
            return result;
        }

        internal void Open()
        {
            if (Address == IntPtr.Zero)
            {
                throw new Exl2Exception(Result.Stale, "the engine is closed");
            }
        }

        // A number for `user` of a job or model, by which its events find it.
        internal long Receive()
        {
            long id = Interlocked.Increment(ref lastReceiver);
            lock (engines)
            {
                engines[id] = this;
            }
            return id;
        }

        internal void Forget(long id)
        {
            lock (engines)
            {
                engines.Remove(id);
            }
            jobs.Remove(id);
            loads.Remove(id);
        }

        internal void Add(long id, Job job)
        {
            jobs[id] = job;
        }

        internal static IntPtr OnEventAddress()
        {
            return Marshal.GetFunctionPointerForDelegate(onEvent);
        }

#if UNITY_5_3_OR_NEWER
        [AOT.MonoPInvokeCallback(typeof(EventFn))]
#endif
        static int OnEvent(IntPtr user, IntPtr at)
        {
            Engine engine;
            lock (engines)
            {
                engines.TryGetValue(user.ToInt64(), out engine);
            }
            if (engine == null)
            {
                return (int)Flow.Continue;
            }
            return engine.Deliver((exl2_event)Marshal.PtrToStructure(at, typeof(exl2_event)));
        }

        // No exception may pass through C: it ends the job, and Step throws it.
        int Deliver(exl2_event e)
        {
            long id = e.user.ToInt64();
            try
            {
                Job job;
                Action<float> progress;
                if (jobs.TryGetValue(id, out job))
                {
                    if (e.kind == Job.KindDone)
                    {
                        Forget(id);
                    }
                    return (int)job.Take(e);
                }
                if (loads.TryGetValue(id, out progress))
                {
                    progress(e.progress);
                }
            }
            catch (Exception exception)
            {
                raised = raised ?? exception;
                return (int)Flow.StopJob;
            }
            return (int)Flow.Continue;
        }

        /// <summary>Advances all loads and jobs; once a frame with a budget in microseconds, 0: a whole pass. False:
        /// nothing can advance until you do something.</summary>
        public bool Step(uint cpuUs = 0, uint gpuUs = 0, bool wait = false)
        {
            Open();
            var d = new exl2_step_desc { cpu_us = cpuUs, gpu_us = gpuUs, wait = wait };
            int result = Check(Native.exl2_step(Address, ref d));
            bool taken = false;
            exl2_event e;
            while (Address != IntPtr.Zero && Native.exl2_next_event(Address, out e))
            {
                taken = true;
                Deliver(e);
            }
            if (raised != null)
            {
                Exception exception = raised;
                raised = null;
                System.Runtime.ExceptionServices.ExceptionDispatchInfo.Capture(exception).Throw();
            }
            return taken || result != (int)Result.Idle;
        }

        /// <summary>Begins to load a model, which Step continues.</summary>
        public Model OpenModel(string path, uint context = 0, CacheFormat cache = CacheFormat.Fp16,
                               ulong cacheTokens = 0, Action<float> onProgress = null)
        {
            Open();
            using (var texts = new Texts())
            {
                var d = new exl2_model_desc { path = texts.Add(path), context_max = context };
                d.cache.format = (int)cache;
                d.cache.tokens = cacheTokens;
                long id = Receive();
                loads[id] = onProgress ?? (p => { });
                d.user = new IntPtr(id);
                exl2_model handle;
                int r = Native.exl2_model_open(Address, ref d, out handle);
                if (r < 0)
                {
                    Forget(id);
                }
                Check(r);
                return new Model(this, handle, id);
            }
        }

        /// <summary>Loads a model and waits until it is ready.</summary>
        public Model Load(string path, uint context = 0, CacheFormat cache = CacheFormat.Fp16, ulong cacheTokens = 0,
                          Action<float> onProgress = null)
        {
            Model model = OpenModel(path, context, cache, cacheTokens, onProgress);
            try
            {
                while (!model.Ready)
                {
                    Step(wait: true);
                }
                return model;
            }
            catch
            {
                model.Dispose();
                throw;
            }
        }

        /// <summary>Bytes of host memory in use, and calls of the allocator so far.</summary>
        public void Memory(out ulong hostBytes, out ulong allocations)
        {
            Open();
            exl2_engine_stats stats;
            Native.exl2_stats(Address, out stats);
            hostBytes = stats.host_bytes;
            allocations = stats.allocations;
        }

        /// <summary>Ends all jobs and frees all memory.</summary>
        public void Dispose()
        {
            if (Address == IntPtr.Zero)
            {
                return;
            }
            IntPtr address = Address;
            Address = IntPtr.Zero;
            Native.exl2_close(address);
            foreach (Job job in new List<Job>(jobs.Values))
            {
                job.EndWithEngine();
            }
            lock (engines)
            {
                foreach (long id in jobs.Keys)
                {
                    engines.Remove(id);
                }
                foreach (long id in loads.Keys)
                {
                    engines.Remove(id);
                }
            }
            jobs.Clear();
            loads.Clear();
        }
    }

    /// <summary>A model: it makes sessions and grammars, and runs jobs of one prompt.</summary>
    public sealed class Model : IDisposable
    {
        internal readonly Engine Engine;
        internal readonly exl2_model Handle;
        readonly long receiver;

        internal Model(Engine engine, exl2_model handle, long id)
        {
            Engine = engine;
            Handle = handle;
            receiver = id;
        }

        /// <summary>False while the model loads. Throws if loading failed.</summary>
        public bool Ready
        {
            get
            {
                Engine.Open();
                return Engine.Check(Native.exl2_model_state(Engine.Address, Handle)) == (int)Result.Ok;
            }
        }

        public string Arch
        {
            get
            {
                Engine.Open();
                var info = new exl2_model_info();
                Engine.Check(Native.exl2_model_get(Engine.Address, Handle, ref info));
                return Encoding.ASCII.GetString(info.arch, 0, Math.Max(Array.IndexOf(info.arch, (byte)0), 0));
            }
        }

        public int[] Tokenize(string text)
        {
            Engine.Open();
            byte[] bytes = Encoding.UTF8.GetBytes(text);
            UIntPtr need;
            Engine.Check(Native.exl2_tokenize(Engine.Address, Handle, bytes, (UIntPtr)bytes.Length, 0, null,
                                              UIntPtr.Zero, out need));
            var ids = new int[(int)need];
            Engine.Check(Native.exl2_tokenize(Engine.Address, Handle, bytes, (UIntPtr)bytes.Length, 0, ids, need,
                                              out need));
            return ids;
        }

        public Session OpenSession()
        {
            Engine.Open();
            exl2_session handle;
            Engine.Check(Native.exl2_session_open(Engine.Address, Handle, out handle));
            return new Session(this, handle);
        }

        public Grammar MakeGrammar(GrammarKind kind, string source)
        {
            Engine.Open();
            using (var texts = new Texts())
            {
                var d = new exl2_grammar_desc { model = Handle, kind = (int)kind, source = texts.Add(source) };
                exl2_grammar handle;
                Engine.Check(Native.exl2_grammar_make(Engine.Address, ref d, out handle));
                return new Grammar(Engine, handle);
            }
        }

        /// <summary>Starts a job in a session of its own.</summary>
        public Job Start(string prompt, JobOptions options)
        {
            return new Job(this, new exl2_session(), prompt, null, options);
        }

        public Job Start(Message[] messages, JobOptions options)
        {
            return new Job(this, new exl2_session(), null, messages, options);
        }

        public void Dispose()
        {
            if (Engine.Address != IntPtr.Zero)
            {
                Native.exl2_model_close(Engine.Address, Handle);
                Engine.Forget(receiver);
            }
        }
    }

    /// <summary>A history of tokens, to which jobs append.</summary>
    public sealed class Session : IDisposable
    {
        readonly Model model;
        readonly exl2_session handle;

        internal Session(Model model, exl2_session handle)
        {
            this.model = model;
            this.handle = handle;
        }

        /// <summary>Starts a job: prompt is appended to the history; null goes on.</summary>
        public Job Start(string prompt, JobOptions options)
        {
            return new Job(model, handle, prompt, null, options);
        }

        /// <summary>Starts a job: messages are the whole conversation.</summary>
        public Job Start(Message[] messages, JobOptions options)
        {
            return new Job(model, handle, null, messages, options);
        }

        public Session Fork()
        {
            model.Engine.Open();
            exl2_session other;
            model.Engine.Check(Native.exl2_session_fork(model.Engine.Address, handle, out other));
            return new Session(model, other);
        }

        public void Rewind(uint tokens)
        {
            model.Engine.Open();
            model.Engine.Check(Native.exl2_session_rewind(model.Engine.Address, handle, tokens));
        }

        /// <summary>Tokens in the history.</summary>
        public uint Tokens
        {
            get
            {
                model.Engine.Open();
                exl2_session_info info;
                model.Engine.Check(Native.exl2_session_get(model.Engine.Address, handle, out info));
                return info.tokens;
            }
        }

        /// <summary>The session as bytes, also while it speaks. withCache: with K and V.</summary>
        public byte[] Save(bool withCache = false)
        {
            model.Engine.Open();
            UIntPtr need;
            uint flags = withCache ? 1u : 0u;
            model.Engine.Check(Native.exl2_session_save(model.Engine.Address, handle, flags, null, UIntPtr.Zero,
                                                        out need));
            var data = new byte[(int)need];
            model.Engine.Check(Native.exl2_session_save(model.Engine.Address, handle, flags, data, need, out need));
            return data;
        }

        /// <summary>Replaces the history by a saved one. A job with Resume goes on in mid-sentence.</summary>
        public void Restore(byte[] data)
        {
            model.Engine.Open();
            model.Engine.Check(Native.exl2_session_restore(model.Engine.Address, handle, data, (UIntPtr)data.Length));
        }

        public void Dispose()
        {
            if (model.Engine.Address != IntPtr.Zero)
            {
                Native.exl2_session_close(model.Engine.Address, handle);
            }
        }
    }

    /// <summary>A compiled grammar, for any number of jobs.</summary>
    public sealed class Grammar : IDisposable
    {
        readonly Engine engine;
        internal readonly exl2_grammar Handle;

        internal Grammar(Engine engine, exl2_grammar handle)
        {
            this.engine = engine;
            Handle = handle;
        }

        public void Dispose()
        {
            if (engine.Address != IntPtr.Zero)
            {
                Native.exl2_grammar_close(engine.Address, Handle);
            }
        }
    }

    /// <summary>A generation.</summary>
    public sealed class Job
    {
        const int KindText = 3;
        internal const int KindDone = 4;

        readonly Engine engine;
        readonly exl2_job handle;
        readonly JobOptions options;
        readonly StringBuilder text = new StringBuilder();
        readonly Queue<string> pending = new Queue<string>();
        Exl2Exception failure;

        /// <summary>The text so far.</summary>
        public string Text { get { return text.ToString(); } }
        public bool Done { get; private set; }
        public Stop Stop { get; private set; }
        public uint PromptTokens { get; private set; }
        public uint NewTokens { get; private set; }

        internal Job(Model model, exl2_session session, string prompt, Message[] messages, JobOptions given)
        {
            engine = model.Engine;
            options = given ?? new JobOptions();
            engine.Open();
            using (var texts = new Texts())
            {
                exl2_job_desc d = Describe(texts);
                d.session = session;
                d.model = session.id == 0 ? model.Handle : new exl2_model();
                d.prompt.text = texts.Add(prompt);
                if (messages != null)
                {
                    d.prompt.messages = Messages(messages, texts);
                    d.prompt.message_count = (UIntPtr)messages.Length;
                }
                long id = engine.Receive();
                engine.Add(id, this);
                d.user = new IntPtr(id);
                if (options.OnText != null || options.OnDone != null)
                {
                    d.on_event = Engine.OnEventAddress();
                }
                int r = Native.exl2_job_start(engine.Address, ref d, out handle);
                if (r < 0)
                {
                    engine.Forget(id);
                }
                engine.Check(r);
            }
        }

        exl2_job_desc Describe(Texts texts)
        {
            var d = new exl2_job_desc { max_tokens = options.MaxTokens, min_tokens = options.MinTokens,
                                        reserve = options.Reserve,
                                        resume = options.Resume, prefill_only = options.PrefillOnly,
                                        heal_prompt = options.HealPrompt, priority = options.Priority };
            d.sampler.greedy = options.Temperature == 0;
            d.sampler.temperature = options.Temperature ?? 0;
            d.sampler.top_k = (int)options.TopK;
            d.sampler.top_p = options.TopP;
            d.sampler.min_p = options.MinP;
            d.sampler.repeat_penalty = options.RepeatPenalty;
            d.sampler.frequency_penalty = options.FrequencyPenalty;
            d.sampler.presence_penalty = options.PresencePenalty;
            d.sampler.seed = options.Seed;
            d.draft.ngram = options.Ngram;
            d.chat.begun_reply = options.BegunReply;
            d.chat.tools = texts.Add(options.Tools);
            if (options.Grammar != null)
            {
                d.grammar = options.Grammar.Handle;
            }
            Lists(ref d, texts);
            return d;
        }

        void Lists(ref exl2_job_desc d, Texts texts)
        {
            if (options.StopStrings != null)
            {
                d.stop_strings = texts.Add(options.StopStrings);
                d.stop_string_count = (uint)options.StopStrings.Length;
            }
            if (options.BanStrings != null)
            {
                d.ban_strings = texts.Add(options.BanStrings);
                d.ban_string_count = (uint)options.BanStrings.Length;
            }
            if (options.StopTokens != null)
            {
                d.stop_tokens = texts.Add(options.StopTokens);
                d.stop_token_count = (uint)options.StopTokens.Length;
            }
            if (options.BanTokens != null)
            {
                d.sampler.ban = texts.Add(options.BanTokens);
                d.sampler.ban_count = (uint)options.BanTokens.Length;
            }
        }

        static IntPtr Messages(Message[] messages, Texts texts)
        {
            int bytes = Marshal.SizeOf(typeof(exl2_message));
            IntPtr block = texts.Block(bytes * messages.Length);
            for (int i = 0; i < messages.Length; i++)
            {
                var m = new exl2_message { role = texts.Add(messages[i].Role), text = texts.Add(messages[i].Text),
                                           name = texts.Add(messages[i].Name),
                                           tool_calls = texts.Add(messages[i].ToolCalls),
                                           tool_call_id = texts.Add(messages[i].ToolCallId) };
                Marshal.StructureToPtr(m, new IntPtr(block.ToInt64() + (long)i * bytes), false);
            }
            return block;
        }

        // Copies what an event has: its pointers are valid only now.
        internal Flow Take(exl2_event e)
        {
            if (e.kind == KindText)
            {
                string piece = Texts.Read(e.text, (long)e.bytes);
                text.Append(piece);
                if (options.OnText != null)
                {
                    return options.OnText(piece);
                }
                pending.Enqueue(piece);
            }
            else if (e.kind == KindDone)
            {
                Done = true;
                Stop = (Stop)e.stop;
                PromptTokens = e.stats.prompt_tokens;
                NewTokens = e.stats.new_tokens;
                if (e.result < 0 && e.result != (int)Result.Cancelled)
                {
                    failure = new Exl2Exception((Result)e.result, Texts.Read(e.error, -1));
                }
                if (options.OnDone != null)
                {
                    options.OnDone(this);
                }
            }
            return Flow.Continue;
        }

        internal void EndWithEngine()
        {
            if (!Done)
            {
                Done = true;
                Stop = Stop.Cancelled;
            }
        }

        /// <summary>Steps the engine and gives the text in pieces, until the job has ended. Throws if it
        /// failed.</summary>
        public IEnumerable<string> Pieces()
        {
            for (;;)
            {
                while (pending.Count > 0)
                {
                    yield return pending.Dequeue();
                }
                if (Done)
                {
                    break;
                }
                if (!engine.Step(wait: true))
                {
                    Thread.Sleep(1); // paused: another thread may let it go on
                }
            }
            if (failure != null)
            {
                throw failure;
            }
        }

        /// <summary>Steps the engine until the job has ended, and returns its text.</summary>
        public string Wait()
        {
            foreach (string piece in Pieces()) { }
            return Text;
        }

        /// <summary>Ends the job before its next token; from any thread.</summary>
        public void Cancel()
        {
            IntPtr address = engine.Address;
            if (!Done && address != IntPtr.Zero)
            {
                Native.exl2_job_cancel(address, handle);
            }
        }

        /// <summary>Stops the job for a while, or lets it go on; from any thread.</summary>
        public void Pause(bool paused)
        {
            IntPtr address = engine.Address;
            if (!Done && address != IntPtr.Zero)
            {
                Native.exl2_job_pause(address, handle, paused);
            }
        }
    }
}
