/* exl2.h - run EXL2 language models inside a game or desktop app, from one C header.

   This comment is the manual: what it is; build it; five lines; the frame loop; what it does not do; switches; one
   part for each section of the declarations below; errors and what to do; licence (at the end of the file).

   WHAT IT IS

   An engine for language models in the EXL2 format of ExLlamaV2 (2 to 8 bits a weight, mixed within a matrix). It reads
   a model folder as Hugging Face hosts it, keeps the weights packed in memory, and writes text through a callback. It
   is made for programs that have something else to do: all work happens inside exl2_step, within a budget of
   microseconds; many sessions share one model and the pages of their common past; nothing is allocated while it runs;
   every failure is a code and one sentence. There are no globals, threads, environment variables, signals or output of
   its own, and it never ends the process.

   BUILD IT

   Copy the single header (build/dist/exl2.h) into your project. In exactly one C file:

       #define EXL2_IMPLEMENTATION
       #include "exl2.h"

   Everywhere else, C or C++, include it without the define. The implementation is C11; the declarations are C11 and
   C++11. Link nothing but the C library (and -lm, -ldl where they are apart). Optimize that file (-O2): SIMD code is
   chosen at run time, so no -m flags are needed; -ffast-math is safe. No CUDA header, library or compiler is needed to
   build or to start: the driver is looked for when an engine opens. With Meson:
   subproject('exl2').get_variable('exl2_dep'). Whoever compiles the source tree by hand gives it exl2_kernels.inc,
   which exl2_impl/tools/embed.c makes of kernels_src, or EXL2_NO_CUDA.

   FIVE LINES

       static exl2_flow say(void *user, const exl2_event *event)
       {
           if (event->text) fputs(event->text, stdout);
           return EXL2_CONTINUE;
       }

       exl2_engine *e; exl2_model m;
       exl2_open(NULL, &e);
       exl2_model_load(e, &(exl2_model_desc){ .path = "build/models/smollm2-135m-instruct" }, &m);
       exl2_generate(e, &(exl2_job_desc){ .model = m, .prompt.text = "Once upon a time", .on_event = say });
       exl2_close(e);

   demo/hello.c is the same with its errors handled. Every desc may be zeroed: 0 is the default, and the comment beside
   a field says which.

   THE FRAME LOOP

   A game never calls a function that waits:

       exl2_model_open(e, &model_desc, &m);                  // start: nothing is read yet
       ...
       exl2_step(e, &(exl2_step_desc){ .cpu_us = 2000 });    // each frame: load, prefill, decode; about 2 ms of it
       ...
       exl2_job_start(e, &(exl2_job_desc){ .session = npc, .prompt = { .messages = turns, .message_count = n },
                                           .on_event = speak, .user = npc_data }, &job);
       exl2_job_cancel(e, job);                              // the player walks away: any thread, at once

   A budget is kept by cutting a forward pass into units (some columns of a product, some rows of a prompt), whose cost
   the engine learns on the machine; a step ends before a unit that would not fit, but runs at least one. Words arrive
   in callbacks inside exl2_step, on the thread that called it. demo/frame.c measures it, demo/npc.c is a whole game.

   A THREAD OF ITS OWN

   A program that wants the engine beside its main thread, and not inside its frames, lets one thread own it. Only that
   thread calls what is tagged [E]; requests and copies of events lie in lists under one lock (here pthread's):

       while (!list.quit) {                                  // the engine's thread, which holds list.lock here
           while (take_wanted(&d)) exl2_job_start(e, &d, NULL);
           pthread_mutex_unlock(&list.lock);
           exl2_result r = exl2_step(e, &(exl2_step_desc){ .wait = true });
           pthread_mutex_lock(&list.lock);
           while (exl2_next_event(e, &ev)) {
               put_note(&ev);                                // a copy; ev.user says whose it is
               r = EXL2_OK;
           }
           while (r == EXL2_IDLE && !list.news) pthread_cond_wait(&list.more, &list.lock);
           list.news = false;
       }

   The main thread adds a request, whose job has no on_event, sets list.news and signals list.more; each frame it takes
   the notes. exl2_job_cancel, exl2_job_pause, exl2_job_get and exl2_stats it may call itself; after the first two it
   sets list.news, too. tests/engine/own_thread.c is this as a program.

   WHAT IT DOES NOT DO

   Of GPUs it uses NVIDIA's, one for an engine: compute capability 7.5 (RTX 20) or higher, with a driver of CUDA 12.0
   or newer. Of architectures it knows Llama (Llama 1 to 3, SmolLM2, TinyLlama and others with LlamaForCausalLM in
   config.json, llama3 RoPE scaling included); others are refused by name. It reads BPE tokenizers
   (tokenizer.json), and chat templates as far as their constructs are known; what it does not know it refuses by name,
   and the rest of the model goes on working. No training, no server, no downloads, no GGUF at run time (import it to
   EXL2 once: section 12), no LoRA, images or speculative decoding. SIMD needs x86-64 with AVX2 or AVX-512 and
   gcc or clang; other processors and compilers run plain C with the same meaning, slower.

   SWITCHES (define them before the implementation; EXL2_API and EXL2_STATIC before every inclusion)

       EXL2_IMPLEMENTATION   this file holds the engine
       EXL2_STATIC           all functions are static: a private copy inside one C file
       EXL2_API              your own linkage, such as __declspec(dllexport)
       EXL2_CONVERT          with section 12, which makes models; uses stdio
       EXL2_NO_CUDA          without GPUs, and without the sources of kernels
       EXL2_KERNEL_DIR       folder of kernel sources, read at run time in place of those built in (to work on kernels)
       EXL2_NO_FILES         without the default file functions: exl2_engine_desc.files must be set
       EXL2_NO_SIMD          the reference path alone
       EXL2_NO_AVX512        AVX2 at most
       EXL2_ASSERT(c)        checks of the engine's own consistency; default: none

   1. BASIC TYPES

   exl2_engine is the one object that you hold by pointer. Models, sessions and jobs are handles: numbers of 64 bits
   that may be copied, stored and outlive what they name; an engine uses none twice. A call with the handle of something
   that has ended gives EXL2_ERR_STALE and touches nothing. 0 is no handle. A sentence writes the two halves of a
   handle, slot and generation, as 3.17. Results: negative is failure; EXL2_OK, EXL2_PENDING and EXL2_IDLE are not.
   exl2_result_name gives a result's name, exl2_last_error the sentence of the newest failure on that engine: file, key
   or tensor, what was expected, what was found. Nothing is written anywhere unless you set a logger.

   2. HOST HOOKS

   A zeroed hook struct means the default. Hooks are called on the thread that called the engine (exl2_parallel's tasks
   aside), never at the same time from two threads for one engine, and must not call back into the engine.
   Allocator: every byte comes through it, with a tag; it may refuse. Blocks are few and large: weights, cache, scratch.
   device_alloc_fn and device_free_fn do the same for memory of the GPU (addresses are the driver's, aligned to 256
   bytes; the device's context is current). Left out, the driver is asked.
   Files: paths are the model's path, '/', a file name. `list` names the files of a folder, from index 0 until false.
   `read` may be asked for any range. With these four a model can lie in a game's archive.
   Logger: whole sentences, from warnings on unless max_level says otherwise; exl2_log_id says what a line is about.
   Zones: begin and end nest.
   Kernel cache: section 11.
   Parallel: run calls task(arg, 0) ... task(arg, count - 1), in any order, side by side or not, and returns when all
   have returned. Results do not depend on how: the same bits with 1 thread and with 16. demo/common/pool.c is one.

   3. DEVICES AND THE ENGINE

   exl2_open makes an engine; a NULL desc is all defaults. Engines share nothing: two may run on two threads.
   exl2_open_versioned is what exl2_open calls, so that a header and an implementation of different releases are told
   apart (exl2_version). When opening fails there is no engine to ask: give open_error for the sentence. host_bytes_max
   is a hard cap: a load that would pass it fails with EXL2_ERR_BUDGET before it begins, and a default cache shrinks to
   fit. exl2_close ends everything and frees all; jobs get their DONE first, while every handle still answers.
   exl2_interrupt ends a call that waits (exl2_model_load, exl2_generate ...) from another thread or a signal handler.

   Where models run is settled at exl2_open. EXL2_BACKEND_AUTO takes the best GPU that serves, else the processor, and
   then says why in one warning: no driver, one that is too old, no device, a compute capability below 7.5, or neither a
   kernel compiler nor kernels in the cache (section 11). EXL2_BACKEND_CUDA takes a GPU or fails; EXL2_BACKEND_CPU looks
   for none. exl2_engine_get says which it is, with the limits in use. exl2_devices lists the GPUs, with the reason
   where one does not serve. exl2_device_desc names one: by its place in that list, by UUID, by the LUID of the adapter
   that renders, or by a CUDA context of yours. Otherwise the device's primary context is used. It is current only
   inside of calls, and its streams give way to rendering. Where graphics shares the GPU's context, set shared_bytes_max
   to 49152. device_bytes_max is to the GPU's memory what host_bytes_max is to the host's. exl2_device_probe measures
   what that memory gives: the bound of tokens a second.
   A fault on the GPU (a defect, a reset of the driver, or another user of your context) ends its context for good: jobs
   end with EXL2_ERR_DEVICE_LOST, and so does whatever needs the device from then on. Histories stay readable: keep what
   exl2_session_tokens gives, close the engine, open another, and prefill them. The GPU may need a new process for that;
   EXL2_BACKEND_CPU does not.

   4. EVENTS

   What happens is told by events: to the on_event of the job or model, during exl2_step, or, where on_event is NULL,
   through exl2_next_event. (Blocking calls without on_event drop theirs.) Either way the event has the `user` pointer
   of its job or model, so that a host that pulls knows at once whose event it is.
       LOAD      progress of a model; the last one has result EXL2_OK or the failure.
       PREFILL   progress of a job's prompt, once a pass; with score_prompt its tokens' log-probabilities instead.
       TEXT      new text, whole code points, with the tokens that made it. A stop string is never shown, nor text
                 in which one might still begin: that waits until it is settled.
       DONE      the job has ended: why (stop), result, statistics. Exactly one for each job that was started.
   on_event answers EXL2_CONTINUE, EXL2_STOP_JOB (the job ends after this text, with stop CALLBACK and EXL2_OK) or
   EXL2_PAUSE_JOB. A callback may start, cancel, fork and close: at DONE the session is free already, so the next job
   can be started there. It may not step or wait (EXL2_ERR_STATE). If nobody pulls, the queue fills: a job whose events
   find no room stands still until there is some, the others go on, and no event is lost. A DONE waits outside the
   queue, even where its model was closed; exl2_close ends the queue with all that is in it.

   5. STEPPING

   exl2_step delivers, admits jobs, runs passes. It returns EXL2_OK when a forward pass ended, EXL2_PENDING when it did
   part of one (or of a load), EXL2_IDLE when there is nothing to do. With cpu_us 0 it runs one whole pass, for programs
   without frames. On a GPU a step queues work and looks for what has ended; gpu_us says how much of the device's time
   it may queue, in ranges of layers whose time is learnt. Without gpu_us a pass is queued whole, and where nobody waits
   the one behind it too, before its tokens are known; with gpu_us a sequence gets at most one token a step. `wait` lets
   a step sleep until the device has finished a pass, or two that decode in less than 4 ms each: being woken is most of
   what a token costs the processor: for programs without frames. One pass takes rows of all active jobs: a token of
   each that decodes and a piece of each prompt, so eight speakers cost far less than eight times one. While somebody
   decodes, prompts are cut into small pieces beside. exl2_stats: memory, KV pages, jobs, tokens, the slowest step. Once
   a model is ready `allocations` stands still, but for conversations that render to more than 256 KiB or bring a
   template_text or special_tokens, for jobs with guidance, and for a moment where a text is not valid UTF-8, has a
   word of more than 4 KiB, or has more than 5 KiB in one stretch that the tokenizer rewrites first (Qwen: what is not
   in normal form C).

   A call needs at most 64 KiB of stack, on whatever thread it runs. Callbacks, hooks and the GPU's driver and compiler
   run on the same stack and need theirs beside it. That is for gcc -O2 (measured: 45 KiB); without optimization a call
   needs at most 80 KiB (measured: 64 KiB).

   6. MODELS

   A model folder has config.json, one or more .safetensors files (all are read), and, for text, tokenizer.json,
   tokenizer_config.json (the chat template; or chat_template.jinja), generation_config.json. Without a tokenizer the
   model still loads: jobs take ids.
   exl2_model_measure reads headers (for a GPU group tables, too) and says what loading will take: weight_bytes +
   cache_bytes + scratch_bytes is the peak, while loading and after; device_bytes of it lie on the GPU. exl2_model_open
   begins a load that exl2_step carries on, 1 MiB of weights at a time (reading the tokenizer is one slice: about a
   millisecond for 1,000 tokens of vocabulary; so is compiling one module of kernels, up to a second, where the cache
   has none); exl2_model_load does both and waits. exl2_model_state says whether the model is ready, exl2_model_get
   gives the same figures later. exl2_model_close ends its jobs and sessions. While their DONE events are told, the
   model accepts no new ones (EXL2_ERR_STATE).
   text_only opens the tokenizer and the template alone.
   The KV cache is one pool of 64-token pages for all sessions of the model, in FP16 (cache.tokens). context_max limits
   a session. A job reserves pages for its prompt and max_tokens when it becomes active; a job that finds too few waits
   for others to end; one that can never fit fails at its start with the number that it would need.

   7. TEXT

   exl2_tokenize and exl2_detokenize are the model's tokenizer, to the id and to the byte. Special tokens written in a
   text ("<|im_end|>") become those tokens, unless EXL2_TEXT_PLAIN says that they are plain text: use it for whatever a
   player types into a raw prompt. In `messages` this is done for you: text of a message, of tools, documents and
   variables can never become a special token, nor an added token that stands in the template (Qwen's <tool_call>),
   whatever the template does to it. Only an assistant's message may: it is what the model has said, so let no player
   write one.
   BOS comes before raw text where tokenizer_config.json says so (add_bos_token); where it does not say, if the
   post-processor of tokenizer.json does it; else if the model has one (config.json, tokenizer_config.json), unless it
   stands in the chat template, where it opens turns. A text_only model has no architecture: the last rule adds none.
   EXL2_TEXT_NO_BOS leaves it out. A prompt that begins with BOS gets no second one (exl2_tokenize gives it two, as the
   tokenizers library does), nor one that continues a session. Conversations have the BOS that their template writes.
   exl2_chat_render shows what the chat template makes of messages. All three tell in *need how much room the answer
   takes, also when it did not fit (EXL2_ERR_TOO_SMALL); with NULL for the buffer that is all they do (EXL2_OK).
   exl2_json_text reads JSON while it is being written: collect the TEXT events of a job with a JSON grammar, and after
   each one ask for what a player should see already, such as "/say"; show what is new behind what is shown. It reads
   the text from its beginning, one to four microseconds for a kilobyte, allocates nothing and needs no engine.
   Templates are Jinja as transformers runs it (trim_blocks, lstrip_blocks, a sandbox): if, for, set, macro, call,
   filter, with, raw, break, continue; all filters, tests and methods of texts, lists and dicts that published
   templates use; namespace, range, dict, raise_exception, strftime_now. What is beyond is refused with line and
   column: where it stands, or, for methods and functions, when it runs. exl2_chat_desc brings tools, documents and
   variables, chooses among the model's templates or brings another. Each call with template_text parses it anew, in
   memory that is freed before the call returns: for every turn of a game give the template to the model's folder, as
   chat_template.jinja, instead. A template is not trusted: source (512 KiB),
   nesting (64), macros in each other (32), work and memory (64 MiB) have limits, and each ends with an error.

   8. SESSIONS

   A session is a history of tokens and the KV pages for it. exl2_session_open makes an empty one. Jobs add to it, one
   at a time. exl2_session_fork copies it in no time: pages are shared and copied when one side writes; let a world be
   prefilled once and fork a session for each character. exl2_session_rewind cuts it back, exl2_session_tokens reads it,
   exl2_session_get counts it, exl2_session_close ends it. After a job the history holds its prompt and the tokens that
   were delivered: the end token included, those of a cut stop string not; after a cancel, what was heard.

   9. SAMPLING AND GRAMMARS

   A token is drawn so: grammar and allow; penalties (repeat, presence, frequency), bias and ban, DRY; temperature and
   smoothing; top-k, top-p, top-a, min-p, tail-free, typical, mirostat; dynamic temperature, or the temperature if it
   comes last; XTC; the draw, skewed or not. Each step sees what the one before it left, as shares of 1, and leaves one
   token at least. In exl2_sampler_desc 0 keeps the preset's number and EXL2_OFF turns a setting off;
   exl2_sampler_resolve shows what a desc comes to. Presets: MODEL (what generation_config.json says, over BALANCED),
   BALANCED, NEUTRAL, GREEDY; what they do not name is off in all of them. Lists are ids; those of a job, its biases and
   its stops share 8 KiB.
   A GPU draws with repeat penalty, bias, ban, allow, DRY, grammars, temperature, top-k, top-p and min-p. With anything
   else the row's logits are copied to the host and drawn from there, some 0.2 ms a token, counted in cpu_sampled: the
   same token. DRY and mirostat look at each token before the next one is begun, so the GPU does not run ahead.
   The random number is a function of the seed and the token's position (Philox), and probabilities are summed as
   integers: the same seed gives the same words, alone or in a batch, with any budget or thread count, and in a session
   that was forked, rewound or paused. From the same logits a GPU draws the same token as the processor; its logits
   differ from the processor's in the last digits, and those of a prompt with the company that it is read in: 17 rows of
   a pass and more are computed another way than fewer.

   A grammar says what a job's text can be, byte by byte, whatever the tokens: exl2_grammar_make compiles it, the job's
   desc names it. Before a token is drawn all others are taken away, so nothing but a whole, valid text can come out, at
   any temperature; and early enough before max_tokens only those stay that lead to its end. Where the text may end, the
   model's end tokens and the job's stop tokens may come; where nothing can follow, the job ends with EXL2_STOP_GRAMMAR.
   (Stop strings cut it wherever they come, and a cancelled job's text is a part.) A schema of a few hundred bytes
   compiles in about a millisecond, so make one of the game as it is each turn, and close it after exl2_job_start: the
   people who are present as an enum, what they hold as an enum; what is not listed cannot be chosen. Put what a player
   waits for, the words, first; members come in the schema's order. The first grammar of a model makes a table of its
   tokens, 0.4 ms and 50 KB for 1,000; exl2_model_desc.grammars does it while loading. exl2_grammar_close lets go of it
   after its last job. On a GPU the layers of the next pass run ahead; only drawing waits for the mask, made meanwhile.
   JSON schema, any draft from 4 on: type (also several; without it, the types that the keywords are about), nullable,
   enum, const, properties (in this order; those not in `required` may be left out), additionalProperties (absent: none,
   but anything where there are no properties), patternProperties, propertyNames, minProperties, maxProperties (up to
   256), items, prefixItems (absent items: none behind them), additionalItems, minItems, maxItems, uniqueItems,
   minLength, maxLength (code points), pattern (unanchored; look-ahead at its beginning), format, minimum, maximum,
   exclusiveMinimum, exclusiveMaximum, multipleOf (integers up to 1,000), anyOf, oneOf, allOf, not, and $ref to a path,
   $anchor or $id of the same document. unevaluatedProperties, dependencies and dependentRequired where the schema
   decides them. Formats: date-time, date, time, duration, uuid, email, hostname, ipv4, ipv6, uri, uri-reference,
   uri-template, json-pointer, regex, and the idn- and iri- forms. Every text fits the schema; not every text that fits
   it can come: keys in the schema's order, some texts of a format, some hundred characters where a pattern has a length
   too, numbers of at most 15 digits (multiples of more than 16: six) and without exponent in a range, and with
   uniqueItems constants (up to six in any order, more in the schema's), or strings and integers that begin with
   different characters, in ascending order. What `not` and the other branches of oneOf say is kept by the first
   condition that can be failed: an object leaves a member out, or its value is another constant.
   What cannot be enforced so is UNSUPPORTED by name and place: if with then or else, contains, dependentSchemas,
   $dynamicRef, a $ref to another document, a branch that cannot be kept apart. Annotations, unknown keywords (x-...,
   discriminator, contentEncoding) and unknown formats mean nothing, unless `strict` is set: then they are refused, but
   for title, description, default, examples, $schema, $id, id, $comment, $anchor, $vocabulary, deprecated, readOnly,
   writeOnly, $defs, definitions. A name one letter away from that of a keyword is always refused. One space may follow
   ':' and ','.
   Regular expressions: what JavaScript and Python agree on, but look-around, references, \b, and ^ $ inside. EBNF, as
   llama.cpp has it: name ::= "text" [class] (a | b)* {2,5} # comment; no left recursion.
   enum, choices and alternatives may have thousands of values. A grammar may be ambiguous: all readings of the text so
   far are kept, 4,096 of them or as many as the grammar has steps, if those are more. A token after which there would
   be more is not allowed; a job that can neither end nor go on without one ends with BUDGET.

   10. JOBS

   exl2_job_start queues a generation, on a session or (with .model) on one of its own that ends with it. The prompt is
   text or ids to append, or messages: the whole conversation, every time; what the session already holds of it is kept
   and only the rest computed, so the host keeps turns and the engine keeps the cache. max_tokens 0 is 512, or what is
   left of the context. prefill_only fills the cache and ends. score_prompt gives each prompt token's log-probability,
   the likeliest alternatives and the logsumexp. priority: higher first, ties in order of start. exl2_generate starts
   and steps until DONE, and gives DONE's result. exl2_job_cancel ends a job before its next token, exl2_job_pause holds
   it with its pages, exl2_job_get looks: these three from any thread. Everything in the desc is copied.
   exl2_job_measure counts before a start: tokens of the prompt, those that the session has already, how many may come,
   and the pages for them; so a host can cut a conversation that is too long, or close a session before it has to wait.
   ban_strings must not come, ASCII letters in either case: text in which one might begin waits, whole tokens of it;
   when one is complete the history is taken back to the token in which it begins, and another one is drawn there. After
   64 tokens that all lead to one (256 rewinds in all) it is shown and counted. With heal_prompt the prompt's last token
   may become a longer one that begins as it does, so that a prompt may end within a word; the text that comes goes on
   behind the prompt's, the new token is in the history in place of the old one, and does not count. It takes two
   tokens, and not a marker. on_logits sees the logits before anything else does and may edit them. None of ban_strings
   and heal_prompt goes with a grammar. guidance draws from s log p + (1 - s) log n, where p are the prompt's
   probabilities and n those of a negative prompt, which goes on with the same tokens in a session of its own: away from
   it above 1, towards it below. That takes two jobs' places, two sequences of a pass, the memory of a row of logits,
   allocated at the start, and the host draws. Log-probabilities and alternatives are of what guidance and on_logits
   leave.

   11. KERNELS

   The GPU's code is built in as source. NVRTC, a library of the CUDA toolkit (nvrtc_path; NULL: the system's), compiles
   it for the GPU at hand while a model loads: some seconds at the first start, and at every start without a cache.
   exl2_kernel_cache keeps the results, for a GPU 17 entries of 1 MB in all. An entry's key is a file name of letters,
   digits, '-' and '_' with the module, the architecture and a hash of all that the entry depends on: another release of
   exl2.h asks for other keys. Entries are checked; a damaged one, and one that the driver refuses, is made anew and
   stored over. demo/common/kernel_folder.c keeps them in a folder.
   Players have no NVRTC, and it is large. exl2_kernels_build compiles all kernels for the architectures that it is
   given into such a cache, on a machine without a GPU; so does `exl2 kernels build --arch 75,80,86,89,90,100,120
   FOLDER`. Ship the folder and let kernel_cache.load read it. 75: RTX 20, 80: A100, 86: RTX 30, 89: RTX 40, 90: H100
   and H200, 100: B200, 120: RTX 50. Where a GPU's own entries are missing, those of a lower minor number serve (86 on
   8.9; but 90 on 9.0 alone), and without those EXL2_ERR_NO_COMPILER says which one is.

   12. MAKING MODELS (EXL2_CONVERT)

   exl2_import_gguf makes an EXL2 folder of a GGUF file (v2, v3; Llama architecture; F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1
   Q8_0 Q2_K..Q6_K IQ4_NL IQ4_XS) by rounding to nearest. It is for tools: it allocates with malloc and waits for disks.

   ERRORS AND WHAT TO DO (the sentence names the file, tensor or number)

       EXL2_ERR_ARG           an argument is wrong: a bug in the call
       EXL2_ERR_STATE         not now: the session is busy, the model is loading, a callback asked to wait
       EXL2_ERR_STALE         the handle's object ended before: forget the handle
       EXL2_ERR_TOO_SMALL     call again with *need
       EXL2_ERR_MEMORY        the allocator refused: free something, or load a smaller model or cache
       EXL2_ERR_DEVICE_MEMORY the GPU is full, or device_alloc_fn refused: as EXL2_ERR_MEMORY
       EXL2_ERR_BUDGET        over a cap of yours (host_bytes_max, cache.tokens, max_jobs ...): raise it or ask for less
       EXL2_ERR_CONTEXT_FULL  prompt and max_tokens exceed context_max: shorten, rewind, or open with more
       EXL2_ERR_IO            a file is missing or cannot be read: check the path
       EXL2_ERR_FORMAT        a file is damaged or not what it says: download it again
       EXL2_ERR_UNSUPPORTED   a good file with something that is not built: the sentence names it
       EXL2_ERR_NO_DEVICE     no driver or GPU that serves: update the driver, or use the CPU backend
       EXL2_ERR_NO_COMPILER   a kernel is not in the cache, and NVRTC is not there: ship kernels (section 11)
       EXL2_ERR_COMPILE       NVRTC or the driver refuses a kernel: the log has all that it said
       EXL2_ERR_DEVICE_LOST   the GPU's context is dead: keep the histories, close, open again
       EXL2_ERR_CANCELLED     you asked for it: exl2_interrupt, exl2_job_cancel, progress
       EXL2_ERR_VERSION       header and implementation are of different releases: rebuild both
       EXL2_ERR_INTERNAL      a defect of ours: please report the sentence

   LICENCE

   MIT or public domain (Unlicense), whichever you prefer; the texts are at the end of this file.
*/
#ifndef EXL2_H
#define EXL2_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef EXL2_API
#ifdef EXL2_STATIC
#define EXL2_API static
#else
#define EXL2_API extern
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define EXL2_VERSION 200 /* major * 10000 + minor * 100 + patch */

/* ---- 1. basic types ---------------------------------------------------------------------------------------- */

typedef struct exl2_engine exl2_engine;                     /* opaque root object; owns everything below */
typedef struct exl2_model { uint64_t id; } exl2_model;      /* handles: 0 = none. Slot (low half) and generation, */
typedef struct exl2_session { uint64_t id; } exl2_session;  /* so that a closed one is reported as EXL2_ERR_STALE */
typedef struct exl2_job { uint64_t id; } exl2_job;          /* and never followed: no id comes twice. */
typedef struct exl2_grammar { uint64_t id; } exl2_grammar;
typedef int32_t exl2_token;                                 /* index into the model's vocabulary */

typedef enum exl2_result {
    EXL2_OK = 0,
    EXL2_PENDING = 1,            /* work is in flight; step again */
    EXL2_IDLE = 2,               /* nothing can advance until the host does something */
    EXL2_ERR_ARG = -1,           /* an argument is wrong */
    EXL2_ERR_STATE = -2,         /* not allowed now */
    EXL2_ERR_STALE = -3,         /* the handle's object has ended */
    EXL2_ERR_TOO_SMALL = -4,     /* the buffer is too small; *need says how much it takes */
    EXL2_ERR_MEMORY = -5,        /* the host allocator refused, or the driver: pinned memory */
    EXL2_ERR_DEVICE_MEMORY = -6, /* the device has no more memory, or the hook refused */
    EXL2_ERR_BUDGET = -7,        /* over a cap that you set */
    EXL2_ERR_CONTEXT_FULL = -8,  /* the session is at its limit */
    EXL2_ERR_IO = -9,            /* a file is missing or a read failed */
    EXL2_ERR_FORMAT = -10,       /* a file is malformed */
    EXL2_ERR_UNSUPPORTED = -11,  /* well formed, but not implemented here */
    EXL2_ERR_NO_DEVICE = -12,    /* no GPU or driver that serves */
    EXL2_ERR_NO_COMPILER = -13,  /* no NVRTC, and the kernel is not in the cache */
    EXL2_ERR_COMPILE = -14,      /* a kernel does not compile or load */
    EXL2_ERR_DEVICE_LOST = -15,  /* the device's context is dead */
    EXL2_ERR_CANCELLED = -16,    /* exl2_interrupt, a cancelled job, or a callback that said stop */
    EXL2_ERR_VERSION = -17,      /* header and implementation differ */
    EXL2_ERR_INTERNAL = -18      /* a defect of ours; please report the text */
} exl2_result;

/* Every struct named exl2_..._desc begins with _start_canary and ends with _end_canary. Both must be 0: a call that
   finds another value rejects the desc, because its memory was never zeroed, and uses none of its pointers. */

typedef struct exl2_error {
    exl2_result code;
    int32_t native;  /* CUresult, nvrtcResult or errno; 0 = none */
    char text[248];  /* one UTF-8 sentence: what, where, what to do */
} exl2_error;

/* ---- 2. host hooks: a zeroed hook struct means the default named at its right ------------------------------- */

typedef enum exl2_mem { EXL2_MEM_GENERAL, EXL2_MEM_WEIGHTS, EXL2_MEM_KV, EXL2_MEM_SCRATCH, EXL2_MEM_STAGING } exl2_mem;

typedef struct exl2_allocator { /* malloc and free; the driver's allocator. Set both of a pair, or neither */
    void *(*alloc_fn)(void *user, size_t bytes, size_t align, exl2_mem tag); /* NULL = refused; align: a power of 2 */
    void (*free_fn)(void *user, void *ptr, size_t bytes, exl2_mem tag);      /* _fn: hosts define free() macros */
    uint64_t (*device_alloc_fn)(void *user, uint32_t device, uint64_t bytes, exl2_mem tag); /* address; 0 = refused */
    void (*device_free_fn)(void *user, uint32_t device, uint64_t address, uint64_t bytes, exl2_mem tag);
    void *user;
} exl2_allocator;

typedef struct exl2_files { /* plain files; replace it to read from a game archive. Paths are UTF-8, '/' inside */
    void *(*open)(void *user, const char *path, uint64_t *bytes);                            /* NULL = not found */
    bool (*list)(void *user, const char *dir, uint32_t index, char *name, size_t cap);       /* false = no more files */
    int64_t (*read)(void *user, void *file, uint64_t offset, void *dst, size_t bytes);       /* bytes read, or -1 */
    void (*close)(void *user, void *file);
    void *user;
} exl2_files;

typedef struct exl2_kernel_cache { /* none: kernels are compiled in every run; either function may be NULL */
    size_t (*load)(void *user, const char *key, void *dst, size_t cap); /* the entry's size; copied if cap holds it */
    void (*store)(void *user, const char *key, const void *data, size_t bytes); /* load gives 0 for a miss */
    void *user;
} exl2_kernel_cache;

typedef enum exl2_log_level { EXL2_LOG_ERROR = 1, EXL2_LOG_WARN, EXL2_LOG_INFO, EXL2_LOG_DEBUG } exl2_log_level;

typedef enum exl2_log_id { /* what a line is about, to filter by; numbers stay as they are, new ones come last */
    EXL2_LOG_ID_FAILED = 1,             /* ERROR: a call or a job failed; only these lines have a code < 0 */
    EXL2_LOG_ID_COMPILER_OUTPUT,        /* ERROR, WARN: what NVRTC or the driver says of a kernel, line by line */
    EXL2_LOG_ID_CPU_FALLBACK,           /* WARN: EXL2_BACKEND_AUTO uses the CPU; the text says why */
    EXL2_LOG_ID_KERNEL_ENTRY_DAMAGED,   /* WARN: an entry of the kernel cache is damaged, and not used */
    EXL2_LOG_ID_KERNEL_ENTRY_REJECTED,  /* WARN: the driver rejects an entry of the kernel cache; compiled again */
    EXL2_LOG_ID_KERNEL_BUILT,           /* INFO: exl2_kernels_build has stored a module */
    EXL2_LOG_ID_CONTEXT_ABOVE_MODEL,    /* WARN: context_max is more than the model was made for */
    EXL2_LOG_ID_SHARD_MISSING,          /* WARN: a set of .safetensors files has a gap */
    EXL2_LOG_ID_ZERO_SCALES,            /* WARN: groups of a matrix have the scale 0 */
    EXL2_LOG_ID_TOKEN_ID_IGNORED,       /* WARN: a configured token id lies outside the vocabulary */
    EXL2_LOG_ID_ADD_EOS_IGNORED,        /* WARN: the tokenizer asks for add_eos_token */
    EXL2_LOG_ID_TEMPLATE_UNUSABLE,      /* WARN: a chat template cannot be used; the text says why and where */
    EXL2_LOG_ID_TEMPLATES_LEFT_OUT      /* WARN: the model folder has more chat templates than are read */
} exl2_log_id;

typedef struct exl2_logger { /* silent */
    /* code: EXL2_OK but for failures. text: one line, UTF-8; it lives until the function returns. */
    void (*line)(void *user, exl2_log_level level, exl2_log_id id, exl2_result code, const char *text);
    void *user;
    exl2_log_level max_level; /* 0 = EXL2_LOG_WARN */
} exl2_logger;

typedef struct exl2_zones { /* none; for Tracy, Superluminal, RAD Telemetry */
    void (*begin)(void *user, const char *name);
    void (*end)(void *user);
    void *user;
} exl2_zones;

typedef struct exl2_parallel { /* serial; lets CPU work run on the host's job system */
    /* Returns when all tasks are done. */
    void (*run)(void *user, uint32_t count, void (*task)(void *arg, uint32_t index), void *arg);
    uint32_t width; /* tasks that can really run side by side */
    void *user;
} exl2_parallel;

/* ---- 3. devices and the engine ------------------------------------------------------------------------------ */

typedef enum exl2_backend { EXL2_BACKEND_AUTO, EXL2_BACKEND_CUDA, EXL2_BACKEND_CPU } exl2_backend;

typedef enum exl2_pick {
    EXL2_PICK_BEST,              /* the one with the fastest memory */
    EXL2_PICK_INDEX,
    EXL2_PICK_UUID,
    EXL2_PICK_LUID,              /* Windows: of the D3D or Vulkan adapter */
    EXL2_PICK_CONTEXT
} exl2_pick;

typedef struct exl2_device_desc {
    uint32_t _start_canary;
    exl2_pick pick;
    uint32_t index;              /* PICK_INDEX: as exl2_devices counts */
    uint8_t uuid[16], luid[8];   /* PICK_UUID, PICK_LUID */
    void *cuda_context;          /* PICK_CONTEXT: your CUcontext, which must outlive the engine */
    uint32_t shared_bytes_max;   /* shared memory that a kernel may use; 0 = what the device has; at least 49152 */
    int32_t stream_priority;     /* as CUDA has it; 0 = the lowest, so that rendering goes first */
    uint32_t _end_canary;
} exl2_device_desc;

typedef struct exl2_device_info {
    char name[64];
    uint8_t uuid[16], luid[8];   /* luid: zeros but on Windows */
    uint64_t bytes_total;        /* memory; how much of it is free only a context can tell */
    uint32_t index, arch;        /* arch: 89 = compute capability 8.9 */
    bool usable;
    char why_not[120];           /* one sentence when not usable, else "" */
} exl2_device_info;

typedef struct exl2_device_speed { /* of the engine's GPU */
    uint32_t index;              /* as exl2_devices counts */
    uint64_t read_bytes_s;       /* bytes a second that a kernel reads which does nothing else */
    uint64_t copy_bytes_s;       /* bytes a second that are copied, those read and those written together */
} exl2_device_speed;

typedef struct exl2_engine_desc {
    uint32_t _start_canary;
    exl2_backend backend;    /* AUTO: a GPU that serves, else the CPU */
    const exl2_device_desc *devices; /* NULL = the best one */
    uint32_t device_count;   /* 0 or 1 */
    uint64_t host_bytes_max, device_bytes_max; /* hard caps, bytes; 0 = no cap */
    uint32_t max_models, max_sessions, max_jobs, max_events; /* 0 = 4, 256, 64, 1024 */
    const char *nvrtc_path;  /* of the kernel compiler, UTF-8; NULL = system search */
    exl2_allocator allocator;
    exl2_files files;
    exl2_kernel_cache kernel_cache;
    exl2_logger log;
    exl2_zones zones;
    exl2_parallel parallel;
    exl2_error *open_error;  /* optional: filled when exl2_open fails */
    uint32_t _end_canary;
} exl2_engine_desc;

typedef struct exl2_engine_info { /* what exl2_open settled; nothing in it changes until exl2_close */
    exl2_backend backend;    /* EXL2_BACKEND_CUDA or EXL2_BACKEND_CPU */
    exl2_device_info device; /* the GPU; zeros with EXL2_BACKEND_CPU */
    uint32_t max_models, max_sessions, max_jobs, max_events;
    uint64_t host_bytes_max, device_bytes_max; /* bytes; 0 = no cap */
} exl2_engine_info;

/* Function tags. A: any thread, also inside callbacks. E: one thread at a time per engine; engines are independent.
   nb: never waits for disk or another thread; allowed inside callbacks (but not exl2_step, exl2_next_event).
   wait: may take long; inside a callback it returns EXL2_ERR_STATE; exl2_interrupt ends it.
   Every function may also give EXL2_ERR_ARG for a NULL pointer or a desc that was not zeroed, EXL2_ERR_STALE for a
   handle whose object has ended, EXL2_ERR_MEMORY where it allocates. Errors below are named without EXL2_ERR_. */

/* [A nb] EXL2_VERSION of the implementation. */
EXL2_API uint32_t exl2_version(void);
/* [A nb] "EXL2_ERR_IO" and so on; a static string. */
EXL2_API const char *exl2_result_name(exl2_result r);
/* [A wait] What exl2_open calls. EXL2_ERR_VERSION when header and implementation are of different releases. */
EXL2_API exl2_result exl2_open_versioned(const exl2_engine_desc *d, uint32_t header_version, exl2_engine **out);
/* [A wait] The GPUs of this machine: the first `cap` of them to out, all of them counted; 0 without a driver. Makes no
   context. */
EXL2_API exl2_result exl2_devices(exl2_device_info *out, uint32_t cap, uint32_t *count);
/* [E wait] Measures the memory of the engine's GPU, the yardstick of tokens a second; for tools. It takes milliseconds,
   once its kernels are there, and half of the GPU's free memory for that time, at most 4 GiB. NO_DEVICE when models run
   on the CPU; as exl2_model_load, what a GPU may fail with. */
EXL2_API exl2_result exl2_device_probe(exl2_engine *e, exl2_device_speed *out);
/* [E wait] Ends all jobs, which get their DONE, and frees all. NULL is fine. */
EXL2_API void exl2_close(exl2_engine *e);
/* [A nb] The backend, the GPU and the limits that the engine uses: the desc's, or the defaults. */
EXL2_API void exl2_engine_get(const exl2_engine *e, exl2_engine_info *out);
/* [A nb] A copy of the engine's newest failure; code EXL2_OK when there was none. */
EXL2_API void exl2_last_error(const exl2_engine *e, exl2_error *out);
/* [A nb] The call that waits now, if there is one, returns EXL2_ERR_CANCELLED soon. From signal handlers too. */
EXL2_API void exl2_interrupt(exl2_engine *e);
/* [A wait] Makes an engine; a NULL desc is all defaults. ARG, MEMORY, BUDGET, VERSION: *out is NULL then; with
   EXL2_BACKEND_CUDA also NO_DEVICE, DEVICE_MEMORY, DEVICE_LOST, and UNSUPPORTED in a build without it. */
static inline exl2_result exl2_open(const exl2_engine_desc *d, exl2_engine **out)
{
    return exl2_open_versioned(d, EXL2_VERSION, out);
}

/* ---- 4. events ---------------------------------------------------------------------------------------------- */

typedef enum exl2_event_kind {
    EXL2_EVENT_LOAD = 1,
    EXL2_EVENT_PREFILL,
    EXL2_EVENT_TEXT,
    EXL2_EVENT_DONE
} exl2_event_kind;

typedef enum exl2_stop {
    EXL2_STOP_NONE,
    EXL2_STOP_EOS,       /* one of the model's end tokens */
    EXL2_STOP_STRING,    /* one of the job's stop strings */
    EXL2_STOP_TOKEN,     /* one of the job's stop tokens */
    EXL2_STOP_LENGTH,    /* max_tokens, or a finished prefill_only job */
    EXL2_STOP_GRAMMAR,   /* the text is whole, and nothing may follow it */
    EXL2_STOP_CALLBACK,  /* on_event returned EXL2_STOP_JOB */
    EXL2_STOP_CANCELLED,
    EXL2_STOP_ERROR
} exl2_stop;

typedef struct exl2_job_stats {
    uint32_t prompt_tokens, reused_tokens, new_tokens; /* reused: of the prompt, already in the session's KV cache */
    uint64_t seed;                                     /* the one that was used */
    uint64_t queued_ns, prefill_ns, decode_ns;         /* host clock */
    uint32_t bans_avoided, bans_shown;                 /* ban_strings: taken back; shown, where nothing else came */
} exl2_job_stats;

typedef struct exl2_alt { exl2_token token; float logprob; } exl2_alt; /* natural log of the raw softmax */

/* Members that a kind of event sets, besides kind and user; all others are 0 or NULL.

                                        LOAD       PREFILL           TEXT        DONE
       model                            yes        yes               yes         yes
       session, job                     -          yes               yes         yes
       progress                         0..1       0..1              -           -
       text, bytes                      -          -                 yes         -
       tokens, token_count              -          score_prompt      yes         -
       alts, alts_per_token             -          score_prompt *    yes *       -
       logsumexp                        -          score_prompt      -           -
       result, error                    yes        -                 -           yes
       stop, stats                      -          -                 -           yes

   score_prompt: where the job's desc sets it. *: where the job's desc sets alts_per_token. */
typedef struct exl2_event { /* every pointer lives until the callback returns, or until the next exl2_next_event */
    exl2_event_kind kind;
    exl2_model model;
    exl2_session session;
    exl2_job job;
    void *user;               /* of the job's desc; LOAD: of the model's */
    const char *text;         /* TEXT: whole UTF-8 code points, NUL after them */
    size_t bytes;
    const exl2_alt *tokens;   /* TEXT: what made the text; PREFILL with score_prompt: prompt tokens from the 2nd on */
    uint32_t token_count;
    const exl2_alt *alts;     /* [token_count, alts_per_token] the likeliest tokens; NULL if the job asks for none */
    uint32_t alts_per_token;
    const float *logsumexp;   /* [token_count] with score_prompt; logit = logprob + logsumexp */
    float progress;           /* LOAD, PREFILL: 0..1 */
    exl2_stop stop;           /* DONE */
    exl2_result result;       /* DONE; LOAD: PENDING before the last one */
    const char *error;        /* the sentence for result < 0, else NULL */
    exl2_job_stats stats;     /* DONE */
} exl2_event;

typedef enum exl2_flow { EXL2_CONTINUE, EXL2_STOP_JOB, EXL2_PAUSE_JOB } exl2_flow;
typedef exl2_flow (*exl2_event_fn)(void *user, const exl2_event *event);

/* ---- 5. stepping: all work happens in here ------------------------------------------------------------------ */

typedef struct exl2_step_desc {
    uint32_t _start_canary;
    uint32_t cpu_us; /* return after about this long; 0 = one forward pass */
    uint32_t gpu_us; /* queue about this much device time; 0 = one forward pass. The CPU backend does not look at it */
    bool wait;       /* may sleep until the device has finished something */
    uint32_t _end_canary;
} exl2_step_desc;

typedef struct exl2_engine_stats {
    uint64_t host_bytes, host_peak;                       /* through the allocator hook, now and at most */
    uint64_t device_bytes, device_peak;                   /* the same on the GPU */
    uint64_t kernels_compiled;                            /* modules that were not in the cache */
    uint64_t allocations;                                 /* calls of alloc_fn so far */
    uint32_t pages_total, pages_used, pages_shared;       /* of 64 tokens, over all models; shared: by 2 sessions */
    uint32_t jobs_active, jobs_waiting;
    uint64_t steps, forwards, tokens_in, tokens_out;      /* tokens_in: prompt tokens computed; tokens_out: sampled */
    uint64_t cpu_sampled;                                 /* of them, sampled on the CPU for a model on a GPU */
    uint64_t last_step_ns, slowest_step_ns;
} exl2_engine_stats;

/* [E nb] Advances all loads and jobs. EXL2_OK: a pass ended. EXL2_PENDING: part of one was done. EXL2_IDLE: there is
   nothing to do. A job's failure is told by its DONE; STATE (inside a callback) is the only error. NULL: one pass. */
EXL2_API exl2_result exl2_step(exl2_engine *e, const exl2_step_desc *d);
/* [E nb] The oldest event of jobs and models without on_event; false when there is none. */
EXL2_API bool exl2_next_event(exl2_engine *e, exl2_event *out);
/* [A nb] As of the end of the last call that changed them. */
EXL2_API void exl2_stats(const exl2_engine *e, exl2_engine_stats *out);

/* ---- 6. models ---------------------------------------------------------------------------------------------- */

typedef struct exl2_cache_desc {
    uint32_t _start_canary;
    uint64_t tokens; /* pool size over all sessions; 0 = 4 x context_max, less if a cap says so; rounded up to 64 */
    uint32_t _end_canary;
} exl2_cache_desc;

typedef struct exl2_model_desc {
    uint32_t _start_canary;
    const char *path;          /* directory with config.json, tokenizer.json, *.safetensors */
    exl2_cache_desc cache;
    uint32_t context_max;      /* tokens per session; 0 = the model's own, at most 8192 */
    bool text_only;            /* tokenizer and template files only: no weights, no jobs */
    uint32_t prefill_chunk;    /* tokens per forward pass; 0 = 1024, on a GPU 2048 for models of 2 GB and more */
    uint32_t batch_max;        /* sequences per forward pass; 0 = 16 */
    bool grammars;             /* make what grammars need of the vocabulary now, not with the first grammar */
    exl2_event_fn on_event;    /* LOAD events; its result is ignored */
    void *user;
    uint32_t _end_canary;
} exl2_model_desc;

typedef struct exl2_model_info { /* facts; nothing in it changes once the headers are read */
    char arch[32];             /* "LlamaForCausalLM" */
    uint32_t vocab, hidden, layers, heads, kv_heads, context_max;
    float bits_per_weight;     /* over all matrices, scales and permutations included */
    uint64_t weight_bytes, cache_bytes, scratch_bytes; /* loading adds their sum */
    uint64_t device_bytes;     /* of the sum: on the GPU; 0 = the model runs on the CPU */
    uint64_t cache_bytes_per_token;
    uint64_t pass_bytes;       /* as stored in files: weights that a forward pass reads, all but the embedding's rows */
    exl2_token bos, eos;       /* -1 = none */
    bool has_tokenizer, has_chat_template;
} exl2_model_info;

/* [E wait] Reads headers (for a GPU group tables, too) and says what the model is and what loading it would take. The
   default cache shrinks to what host_bytes_max leaves, down to one context; the sum may still be over. IO, FORMAT,
   UNSUPPORTED for its files. */
EXL2_API exl2_result exl2_model_measure(exl2_engine *e, const exl2_model_desc *d, exl2_model_info *out);
/* [E nb] Begins a load that exl2_step carries on; failures come with the last LOAD event. BUDGET: max_models. */
EXL2_API exl2_result exl2_model_open(exl2_engine *e, const exl2_model_desc *d, exl2_model *out);
/* [E wait] exl2_model_open, then steps until the model is ready or has failed: as exl2_model_measure, and BUDGET when
   it does not fit under a cap; on a GPU also NO_COMPILER, COMPILE, DEVICE_MEMORY, DEVICE_LOST. A model that failed is
   closed and *out is 0. */
EXL2_API exl2_result exl2_model_load(exl2_engine *e, const exl2_model_desc *d, exl2_model *out);
/* [E nb] PENDING while the model loads, OK when it is ready, else why it failed, with the message for exl2_last_error.
   It changes after the last LOAD event was delivered. */
EXL2_API exl2_result exl2_model_state(exl2_engine *e, exl2_model m);
/* [E nb] The same as exl2_model_measure gives, once the headers are read; zeros before. */
EXL2_API exl2_result exl2_model_get(exl2_engine *e, exl2_model m, exl2_model_info *out);
/* [E wait] Ends its jobs and sessions first; inside a callback STATE. */
EXL2_API exl2_result exl2_model_close(exl2_engine *e, exl2_model m);

/* ---- 7. text: usable while a model loads, as soon as its tokenizer is there ---------------------------------- */

typedef struct exl2_message {
    const char *role, *text;   /* "system", "user", "assistant", "tool"; text NULL: the template sees none */
    const char *name;          /* of the speaker or the tool; NULL, here and below: the template sees nothing */
    const char *reasoning;     /* `reasoning_content`, that some templates call `thinking` */
    const char *tool_calls;    /* JSON array of {"id", "type", "function": {"name", "arguments": {..}}} */
    const char *tool_call_id;  /* the call that this "tool" message answers */
    const char *fields;        /* JSON object: any other key, or content in parts; wins over all of the above. With it,
                                  text and role may be NULL and mean nothing */
} exl2_message;

typedef struct exl2_chat_desc { /* zeroed: the model's own template, no tools, the clock */
    uint32_t _start_canary;
    const char *template_text; /* a Jinja template instead of the model's; NULL = the model's */
    const char *template_name; /* one of the model's; NULL: "tool_use" with tools, if there is one, else "default" */
    const char *tools, *documents; /* JSON arrays for the template; NULL = none */
    const char *variables;     /* JSON object: more variables, such as {"enable_thinking": false} */
    const char *special_tokens; /* JSON object instead of the model's bos_token, eos_token, unk_token, pad_token; those
                                  that are not in it are undefined. The one text that may hold markers */
    const char *now;           /* "YYYY-MM-DD HH:MM:SS" for strftime_now; NULL = the local clock */
    bool close_reply;          /* render without the opening of a reply */
    uint32_t _end_canary;
} exl2_chat_desc;

typedef enum exl2_text_flags {
    EXL2_TEXT_NO_BOS = 1,      /* tokenize: do not put the model's BOS in front where it wants one */
    EXL2_TEXT_PLAIN = 2,       /* tokenize: markers such as <|end|> are plain text */
    EXL2_TEXT_SKIP_MARKERS = 4 /* detokenize: leave special tokens out */
} exl2_text_flags;

/* [E nb] Text -> ids. *need: how many there are. out may be NULL with cap 0, to learn that: OK. Bytes that are no UTF-8
   are read as U+FFFD. TOO_SMALL when cap is less; STATE when the model has no tokenizer, or has not read it yet; FORMAT
   when its normalizer makes more than 16 times as many bytes of the text (no published one does). */
EXL2_API exl2_result exl2_tokenize(exl2_engine *e, exl2_model m, const char *text, size_t bytes, uint32_t flags,
                                   exl2_token *out, size_t cap, size_t *need);
/* [E nb] Ids -> UTF-8, with a NUL behind it that *need does not count. Bytes that are no UTF-8 become U+FFFD. Errors as
   exl2_tokenize. */
EXL2_API exl2_result exl2_detokenize(exl2_engine *e, exl2_model m, const exl2_token *t, size_t n, uint32_t flags,
                                     char *out, size_t cap, size_t *need);
/* [E nb] What the chat template makes of the messages; out, cap, *need as exl2_detokenize. UNSUPPORTED for a template
   with something unknown, named with line and column; FORMAT for one that is broken; ARG for what the template itself
   refuses, JSON that is none, a template_name that the model does not have; BUDGET when it takes too much. */
EXL2_API exl2_result exl2_chat_render(exl2_engine *e, exl2_model m, const exl2_message *msgs, size_t n,
                                      const exl2_chat_desc *d, char *out, size_t cap, size_t *need);
/* [A nb] One value out of JSON that is still being written and may end anywhere. path is a JSON Pointer (RFC 6901):
   "/say", "/action/target", "/lines/0"; "" is all of it. Of a string: its text so far, unescaped; of another value: its
   JSON so far. Always whole code points; what is cut (an escape, a surrogate pair, UTF-8) is left out until it is
   complete, and a surrogate alone is U+FFFD. So what more JSON gives always begins with what less gave. *need: bytes, 0
   while the value has not begun; out gets a NUL behind them, and may be NULL with cap 0. *whole, which may be NULL: the
   value has ended. Of a name that comes twice in an object, the first counts. ARG: path is no JSON Pointer. FORMAT: no
   JSON begins so, or it nests deeper than 256 levels; the value is what came before. TOO_SMALL: out has what fits. */
EXL2_API exl2_result exl2_json_text(const char *json, size_t bytes, const char *path, char *out, size_t cap,
                                    size_t *need, bool *whole);

/* ---- 8. sessions: a token history and its KV pages ----------------------------------------------------------- */

typedef struct exl2_session_info {
    exl2_model model;
    exl2_job busy_with;        /* 0 = free */
    uint32_t tokens, tokens_cached, context_max; /* history; how many of them have K and V */
    uint32_t pages, pages_shared;
} exl2_session_info;

/* [E nb] An empty history. STATE: the model is not ready. BUDGET: max_sessions. */
EXL2_API exl2_result exl2_session_open(exl2_engine *e, exl2_model m, exl2_session *out);
/* [E nb] Another session with the same history; pages are shared until one side writes. Of a busy one: what was
   delivered so far. */
EXL2_API exl2_result exl2_session_fork(exl2_engine *e, exl2_session s, exl2_session *out);
/* [E nb] Keeps the first `tokens` of the history. STATE: a job is using it. ARG: there are fewer. */
EXL2_API exl2_result exl2_session_rewind(exl2_engine *e, exl2_session s, uint32_t tokens);
/* [E nb] Its size now. */
EXL2_API exl2_result exl2_session_get(exl2_engine *e, exl2_session s, exl2_session_info *out);
/* [E nb] The history's ids; *need: how many. TOO_SMALL when cap is less; OK when out is NULL and cap 0. */
EXL2_API exl2_result exl2_session_tokens(exl2_engine *e, exl2_session s, exl2_token *out, size_t cap,
                                         size_t *need);
/* [E nb] The handle is stale at once; a job that is using the session is cancelled. */
EXL2_API exl2_result exl2_session_close(exl2_engine *e, exl2_session s);

/* ---- 9. sampling --------------------------------------------------------------------------------------------- */

typedef enum exl2_preset {
    EXL2_PRESET_MODEL,         /* generation_config.json over BALANCED */
    EXL2_PRESET_NEUTRAL,       /* temperature 1, nothing else */
    EXL2_PRESET_GREEDY,        /* the likeliest token, ties to the lowest id */
    EXL2_PRESET_BALANCED       /* temperature 0.8, min-p 0.05, repeat penalty 1.1 over the last 256 tokens */
} exl2_preset;

typedef struct exl2_bias { exl2_token token; float add; } exl2_bias; /* added to the logit; -INFINITY bans */

#define EXL2_OFF (-1000)       /* turns one filter off; 0 keeps the preset's value */

typedef struct exl2_sampler_desc {
    uint32_t _start_canary;
    exl2_preset preset;
    bool greedy;               /* the likeliest token, as with EXL2_PRESET_GREEDY; `preset` is then not looked at */
    uint64_t seed;             /* 0 = drawn; the one used is in exl2_job_stats */
    int32_t top_k;             /* keep the k likeliest */
    float temperature;         /* logits are divided by it; 0 = the preset's (for temperature 0 set greedy) */
    float top_p;               /* keep the likeliest that together reach this probability */
    float min_p;               /* keep those at least this share of the likeliest */
    float top_a;               /* keep those at least this times the square of the likeliest's probability */
    float tail_free;           /* cut where the curve of probabilities has made this share of its bends */
    float typical;             /* keep those whose surprise is nearest to the mean, up to this probability */
    float smoothing;           /* logits fall by this times the square of their distance to the top */
    float skew;                /* below 0: draws lean to likely tokens; above: to unlikely ones */
    bool temperature_last;     /* behind the filters, in place of before them */
    float dynamic_min, dynamic_max; /* temperature behind the filters, by the entropy; on if max > min */
    float dynamic_exponent;    /* 1 */
    float repeat_penalty;      /* logits of tokens seen: divided by it if positive, else multiplied */
    float frequency_penalty;   /* subtracted for each time seen */
    float presence_penalty;    /* subtracted if seen */
    int32_t penalty_range;     /* tokens looked back; -1 = all */
    int32_t penalty_decay;     /* tokens behind the range over which penalties fade */
    float dry_multiplier;      /* DRY: what a token pays that goes on with an earlier text of dry_allowed tokens; */
    float dry_base;            /* 1.75: times this for each token more */
    int32_t dry_allowed;       /* 2 */
    int32_t dry_range;         /* tokens looked back; -1 = all */
    int32_t dry_match_max;     /* 20: longer matches count as so many tokens */
    const char *const *dry_breakers; /* tokens with such a text break matches; none given: . , ! ? < > [ ] ( ) { } " */
    uint32_t dry_breaker_count;      /* newline and tab, and added tokens */
    float xtc_probability;     /* how often all tokens of at least xtc_threshold go but the least likely of them */
    float xtc_threshold;       /* 0.1 */
    const exl2_token *xtc_keep; /* which never go; none given: those with a newline, and added tokens */
    uint32_t xtc_keep_count;
    float mirostat_tau;        /* mirostat 2: the surprise to steer to, in bits */
    float mirostat_eta;        /* 0.1: how fast */
    const exl2_bias *bias;
    uint32_t bias_count;
    const exl2_token *allow;   /* nothing but these */
    uint32_t allow_count;      /* 0 = all */
    const exl2_token *ban;     /* never these */
    uint32_t ban_count;
    uint32_t _end_canary;
} exl2_sampler_desc;

/* [E nb] What a job with these settings would use: no number is 0, presets are resolved. ARG: out of range. */
EXL2_API exl2_result exl2_sampler_resolve(exl2_engine *e, exl2_model m, const exl2_sampler_desc *d,
                                          exl2_sampler_desc *out);

typedef enum exl2_grammar_kind {
    EXL2_GRAMMAR_JSON,         /* any JSON value; source is not looked at */
    EXL2_GRAMMAR_JSON_SCHEMA,
    EXL2_GRAMMAR_REGEX,        /* the whole text matches */
    EXL2_GRAMMAR_EBNF,         /* GBNF, name ::= ...: the rule root, or else the first */
    EXL2_GRAMMAR_CHOICES,      /* one of the lines of source */
    EXL2_GRAMMAR_CUSTOM        /* asks allow before each token */
} exl2_grammar_kind;

typedef struct exl2_grammar_desc {
    uint32_t _start_canary;
    exl2_model model;
    exl2_grammar_kind kind;
    const char *source;
    size_t source_bytes;       /* 0 = NUL-terminated */
    uint32_t cache_bytes;      /* of states and masks, allocated now and never in a step; 0 = 4 MiB */
    bool strict;               /* JSON_SCHEMA: UNSUPPORTED for each keyword and format that would be passed over */
    /* CUSTOM: sets bit t % 32 of bits[t / 32] for each token t that may come after the n that the job has said; all
       are 0 before. false: the text ends here. */
    bool (*allow)(void *user, exl2_job job, const exl2_token *said, uint32_t n, uint32_t *bits, uint32_t words);
    void *user;
    uint32_t _end_canary;
} exl2_grammar_desc;

/* [E nb] Compiles a grammar, for any number of jobs of its model. FORMAT, UNSUPPORTED with line and column of the
   source; STATE while the tokenizer is not there; BUDGET: too large, its shortest text is too long, its texts can begin
   in too many ways, or max_sessions grammars are open. */
EXL2_API exl2_result exl2_grammar_make(exl2_engine *e, const exl2_grammar_desc *d, exl2_grammar *out);
/* [E nb] The handle is stale at once; the grammar is freed after its last job. */
EXL2_API exl2_result exl2_grammar_close(exl2_engine *e, exl2_grammar g);

/* ---- 10. jobs: one generation --------------------------------------------------------------------------------- */

/* The logits as the model gives them, on the host; what it leaves there is sampled, and log-probabilities are of it. */
typedef void (*exl2_logits_fn)(void *user, exl2_job job, float *logits, uint32_t vocab);

typedef struct exl2_prompt { /* text, ids or messages; none of them = go on with what the session holds */
    const char *text;          /* appended to the session; UTF-8 */
    size_t text_bytes;         /* 0 = NUL-terminated */
    const exl2_token *tokens;  /* ids, appended to the session */
    size_t token_count;
    const exl2_message *messages; /* the whole conversation, for the chat template */
    size_t message_count;
    uint32_t flags;            /* exl2_text_flags for text */
} exl2_prompt;

typedef struct exl2_job_desc {
    uint32_t _start_canary;
    exl2_model model;          /* one-shot: on a session of its own */
    exl2_session session;      /* or go on with this one; it is busy until DONE */
    exl2_prompt prompt;
    exl2_chat_desc chat;       /* how messages are rendered, of both prompts */
    uint32_t max_tokens;       /* 0 = 512; pages for the prompt and max_tokens are reserved */
    uint32_t min_tokens;       /* no end or stop token comes before */
    bool prefill_only;         /* ends when the prompt is in the cache */
    bool score_prompt;         /* PREFILL events carry log-probabilities of the prompt's tokens */
    bool show_markers;         /* special tokens appear in the text */
    bool heal_prompt;          /* the prompt's last token may grow: its text is kept */
    exl2_sampler_desc sampler;
    exl2_grammar grammar;      /* what the text must be; id 0 = anything */
    const char *const *stop_strings; /* end the text */
    uint32_t stop_string_count;
    const char *const *ban_strings; /* must not be in the text */
    uint32_t ban_string_count;
    const exl2_token *stop_tokens; /* end the text */
    uint32_t stop_token_count;
    uint32_t alts_per_token;   /* at most EXL2_ALTS_MAX */
    float guidance;            /* classifier-free guidance away from a negative prompt; 0 = off, 1 = no effect */
    exl2_session negative_session; /* goes on with the same tokens, busy until DONE; 0 = one of the job's own */
    exl2_prompt negative_prompt;
    int32_t priority;          /* higher first; ties in order of start */
    exl2_logits_fn on_logits;  /* before each draw */
    exl2_event_fn on_event;    /* NULL: exl2_next_event */
    void *user;
    uint32_t _end_canary;
} exl2_job_desc;               /* copied in full: nothing must outlive exl2_job_start */

#define EXL2_ALTS_MAX 64

typedef enum exl2_job_state { EXL2_JOB_QUEUED, EXL2_JOB_PREFILL, EXL2_JOB_DECODE, EXL2_JOB_PAUSED } exl2_job_state;

typedef struct exl2_job_info {
    exl2_job_state state;
    exl2_session session;
    exl2_job_stats stats;
} exl2_job_info;

typedef struct exl2_job_size { /* what a job would need, as its session and the cache are now */
    uint32_t prompt_tokens, reused_tokens; /* as in exl2_job_stats */
    uint32_t max_tokens;       /* new tokens that may come at most */
    uint32_t context_tokens, context_max; /* of the history once all of them have come; of a session */
    uint32_t pages_needed, pages_free; /* it waits while pages_needed is more; of 64 tokens, with guidance of both */
} exl2_job_size;

/* [E nb] Queues a job, which ends in exactly one DONE; then the handle is stale. ARG, STATE, STALE for the desc and its
   session; CONTEXT_FULL, BUDGET when it can never fit, or no text of its grammar into max_tokens; from the chat
   template as exl2_chat_render. After a failure nothing has changed. out may be NULL. */
EXL2_API exl2_result exl2_job_start(exl2_engine *e, const exl2_job_desc *d, exl2_job *out);
/* [E nb] What exl2_job_start would answer for this desc now, and what the job would need; starts nothing and changes
   nothing. With CONTEXT_FULL and BUDGET *out still says what is known: a prompt's tokens, and the context for them. */
EXL2_API exl2_result exl2_job_measure(exl2_engine *e, const exl2_job_desc *d, exl2_job_size *out);
/* [E wait] exl2_job_start, then steps until DONE; gives its result. Other jobs go on meanwhile. STATE, with its handle:
   another job has the place in the batch or the KV pages, is paused or waits for exl2_next_event, and nothing else
   moves. BUDGET: idle sessions have the pages. A job that is paused itself waits for another thread, or a callback. */
EXL2_API exl2_result exl2_generate(exl2_engine *e, const exl2_job_desc *d);
/* [A nb] DONE follows in the next step, with what was delivered so far in the history. */
EXL2_API exl2_result exl2_job_cancel(exl2_engine *e, exl2_job j);
/* [A nb] How far it is. */
EXL2_API exl2_result exl2_job_get(exl2_engine *e, exl2_job j, exl2_job_info *out);
/* [A nb] true: it takes no part in passes and keeps its pages; one that is queued stays there. false: it goes on. */
EXL2_API exl2_result exl2_job_pause(exl2_engine *e, exl2_job j, bool paused);

/* ---- 11. kernels, for shipping without NVRTC ------------------------------------------------------------------- */

typedef struct exl2_kernel_build_desc {
    uint32_t _start_canary;
    const uint32_t *archs;     /* 89 = compute capability 8.9 */
    uint32_t arch_count;
    const char *nvrtc_path;    /* NULL = system search; UTF-8 */
    exl2_kernel_cache into;    /* only store is called */
    exl2_allocator allocator;
    exl2_logger log;           /* INFO: one line a module */
    exl2_parallel parallel;    /* modules are compiled side by side */
    exl2_error *error;         /* optional: filled when it fails */
    uint32_t _end_canary;
} exl2_kernel_build_desc;

/* [A wait] Compiles every kernel for every one of the architectures; needs no GPU and no engine. NO_COMPILER, COMPILE;
   UNSUPPORTED for an architecture that this NVRTC has no machine code for. What was stored before a failure is good. */
EXL2_API exl2_result exl2_kernels_build(const exl2_kernel_build_desc *d);

/* ---- 12. making models: only with EXL2_CONVERT; uses stdio; for tools and build machines, not games ------------ */
#ifdef EXL2_CONVERT
typedef struct exl2_import_desc {
    uint32_t _start_canary;
    const char *gguf_path, *out_dir;
    uint32_t bits, group, head_bits; /* 2..8 (not 7); 32, 64 or 128; 0 = 8, 32, 8 */
    bool (*progress)(void *user, float done, const char *what); /* false = cancel */
    void *user;
    exl2_parallel parallel;
    exl2_error *error;
    uint32_t _end_canary;
} exl2_import_desc;

/* [A wait] GGUF -> an EXL2 folder out_dir, which must not exist or be empty. Nothing half-made is left behind. IO,
   FORMAT, UNSUPPORTED for the file; CANCELLED after progress gave false. */
EXL2_API exl2_result exl2_import_gguf(const exl2_import_desc *d);
#endif

#ifdef __cplusplus
}
#endif
#endif /* EXL2_H */

#ifdef EXL2_IMPLEMENTATION
#ifdef __cplusplus
#error "exl2.h: the implementation is C11. Define EXL2_IMPLEMENTATION in one .c file; C++ includes exl2.h without it"
#elif !defined(EXL2_IMPLEMENTATION_DONE)
#define EXL2_IMPLEMENTATION_DONE
#include "exl2_impl/exl2_impl.h"
#endif
#endif

/*
exl2.h is available under two licences; choose whichever you prefer.

------------------------------------------------------------------------------
ALTERNATIVE A - MIT License

Copyright (c) 2026 the exl2.h authors

Permission is hereby granted, free of charge, to any person obtaining a copy of
this software and associated documentation files (the "Software"), to deal in
the Software without restriction, including without limitation the rights to
use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies
of the Software, and to permit persons to whom the Software is furnished to do
so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all
copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
SOFTWARE.

------------------------------------------------------------------------------
ALTERNATIVE B - Public Domain (www.unlicense.org)

This is free and unencumbered software released into the public domain.

Anyone is free to copy, modify, publish, use, compile, sell, or distribute this
software, either in source code form or as a compiled binary, for any purpose,
commercial or non-commercial, and by any means.

In jurisdictions that recognize copyright laws, the author or authors of this
software dedicate any and all copyright interest in the software to the public
domain. We make this dedication for the benefit of the public at large and to
the detriment of our heirs and successors. We intend this dedication to be an
overt act of relinquishment in perpetuity of all present and future rights to
this software under copyright law.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
AUTHORS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN
ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION
WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
*/
