/* exl2.h - run EXL2 language models inside a game or desktop app, from one C header.

   This comment is the manual: what it is; build it; first program; the frame loop; recipes; a thread of its own; what
   it does not do; switches. Then come one part for each section of the declarations below, errors and what to do, and
   the licence (its text is at the end of the file). The details of a struct or a function are beside its declaration.

   WHAT IT IS

   An engine for language models in the EXL2 format of ExLlamaV2 (2 to 8 bits a weight, mixed within a matrix). It reads
   a model folder as Hugging Face hosts it, keeps the weights packed in memory, and delivers text through a callback.

   It is made for programs that have something else to do. All work happens inside exl2_step, within a budget of
   microseconds. Many sessions share one model and the KV pages of their common prefix. A model that is ready runs
   without allocating (section 5 lists the exceptions). Every failure is an error code and a message of one sentence.

   The engine has no globals, environment variables, signals or output of its own, no threads but a worker that you
   start, and it never ends the process.

   BUILD IT

   Copy the single header (build/dist/exl2.h) into your project. In exactly one C file:

       #define EXL2_IMPLEMENTATION
       #include "exl2.h"

   Everywhere else, C or C++, include it without the define. The implementation is C11; the declarations are C11 and
   C++11. Link only the C library (and -lm, -ldl, -lpthread where they are separate libraries).

   Compile that file with optimization (-O2). SIMD code is chosen at run time, so no -m flags are needed; -ffast-math
   is safe. No CUDA header, library or compiler is needed to build or to start: the engine looks for the CUDA driver
   when it opens.

   As a shared library, for other languages: meson setup build -Dlibrary=enabled makes libexl2.so or exl2.dll.

   With Meson: subproject('exl2').get_variable('exl2_dep'). If you build the source tree without Meson, first generate
   exl2_kernels.inc from kernels_src with exl2_impl/tools/embed.c, or define EXL2_NO_CUDA. With EXL2_CONVERT, generate
   exl2_texts.inc, too, as README.md says.

   FIRST PROGRAM

       #define EXL2_IMPLEMENTATION
       #include "exl2.h"
       #include <stdio.h>

       static exl2_flow say(void *out, const exl2_event *event)
       {
           if (event->text) fputs(event->text, out);
           return EXL2_CONTINUE;
       }

       int main(void)
       {
           exl2_engine *e;
           exl2_model m;
           exl2_open(NULL, &e);
           exl2_model_load(e, &(exl2_model_desc){ .path = "build/models/smollm2-135m-instruct" }, &m);
           exl2_generate(e, &(exl2_job_desc){ .model = m, .prompt.text = "Once upon a time",
                                              .on_event = say, .user = stdout });
           exl2_close(e);
       }

   `sh demo/run.sh` downloads that model. demo/hello.c is the same program with error handling. Every desc may be
   zeroed: 0 is the default, and the comment beside a field says what the default is.

   THE FRAME LOOP

   A game never calls a function that waits:

       exl2_model_open(e, &model_desc, &m);                  // start: nothing is read yet
       ...
       exl2_step(e, &(exl2_step_desc){ .cpu_us = 2000 });    // each frame: load, prefill, decode; about 2 ms of it
       ...
       exl2_job_start(e, &(exl2_job_desc){ .session = npc, .prompt = { .messages = turns, .message_count = n },
                                           .on_event = speak, .user = npc_data }, &job);
       exl2_job_cancel(e, job);                              // the player walks away: any thread, at once

   To keep a budget, the engine cuts a forward pass into units (some columns of a matrix product, some rows of a
   prompt) and learns the cost of each on the machine. A step ends before a unit that would not fit, but runs at least
   one.

   Words arrive in callbacks inside exl2_step, on the thread that called it. demo/frame.c measures frame times;
   demo/npc.c is a whole game, demo/tools.c a model that calls functions of the program.

   RECIPES

   Stream to a UI. Show a JSON reply while the model still writes it. The job has a JSON grammar, as in the third
   recipe; its `user` points to a zeroed `reply`:

       typedef struct reply { char json[4096], shown[1024]; size_t bytes; } reply;

       static exl2_flow speak(void *user, const exl2_event *event)
       {
           reply *r = user;
           size_t need;
           if (event->kind != EXL2_EVENT_TEXT) return EXL2_CONTINUE;
           if (event->bytes > sizeof r->json - r->bytes) return EXL2_STOP_JOB;
           memcpy(r->json + r->bytes, event->text, event->bytes);
           r->bytes += event->bytes;
           exl2_json_text(r->json, r->bytes, "/say", r->shown, sizeof r->shown, &need, NULL);
           ui_show(r->shown);                                // the words so far, unescaped
           return EXL2_CONTINUE;
       }

   Many NPCs on one world. Prefill the world once, then fork a session for each character. The forks share the world's
   KV pages, and one pass computes all characters together:

       exl2_session world, npc[NPCS];
       exl2_session_open(e, m, &world);
       exl2_generate(e, &(exl2_job_desc){ .session = world, .prompt.text = lore, .prefill_only = true });
       for (int i = 0; i < NPCS; i++) {
           exl2_session_fork(e, world, &npc[i]);
           exl2_job_start(e, &(exl2_job_desc){ .session = npc[i], .prompt.text = line[i],
                                               .on_event = speak, .user = &replies[i] }, NULL);
       }
       exl2_step(e, &(exl2_step_desc){ .cpu_us = 2000 });    // each frame, until each job's DONE

   A JSON action. The reply is valid JSON, and the action is one of three:

       static const char schema[] =
           "{\"type\":\"object\",\"required\":[\"say\",\"act\"],\"properties\":{"
           "\"say\":{\"type\":\"string\",\"maxLength\":200},"
           "\"act\":{\"enum\":[\"none\",\"give\",\"leave\"]}}}";
       exl2_grammar g;
       exl2_grammar_make(e, &(exl2_grammar_desc){ .model = m, .kind = EXL2_GRAMMAR_JSON_SCHEMA, .source = schema }, &g);
       exl2_job_start(e, &(exl2_job_desc){ .session = npc, .prompt = { .messages = turns, .message_count = n },
                                           .grammar = g, .on_event = speak, .user = &answer }, &job);
       exl2_grammar_close(e, g);                             // the job keeps what it needs

   Begin the reply. The last message is what the NPC has begun to say. The job continues it, and its events have only
   the new text. heal_prompt lets the begun text end within a word:

       exl2_message turns[] = { { .role = "system", .text = world }, { .role = "user", .text = question },
                                { .role = "assistant", .text = "I will say as Marla: \"The key" } };
       exl2_job_start(e, &(exl2_job_desc){ .session = npc, .prompt = { .messages = turns, .message_count = 3 },
                                           .chat.begun_reply = true, .heal_prompt = true, .on_event = speak,
                                           .user = &answer }, &job);  // next turn: the message is begun + new text

   Ship kernels. Players have no NVRTC, the compiler of GPU code (section 11). Compile once on your machine with
   `exl2 kernels build --arch 75,80,86,89,90,100,120 data/kernels`, ship the folder, and read it:

       static size_t load_kernel(void *user, const char *key, void *dst, size_t cap)
       {
           char path[512];
           snprintf(path, sizeof path, "%s/%s", (const char *)user, key);
           FILE *file = fopen(path, "rb");
           if (!file) return 0;                              // not in the folder
           long bytes = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : 0;
           rewind(file);
           if (bytes < 0 || ((size_t)bytes <= cap && fread(dst, 1, (size_t)bytes, file) != (size_t)bytes)) bytes = 0;
           fclose(file);
           return (size_t)bytes;
       }

       exl2_open(&(exl2_engine_desc){ .kernel_cache = { .load = load_kernel, .user = "data/kernels" } }, &e);

   Replay. The same seed gives the same words (section 9 says within which limits). Keep the seed that a job used:

       static exl2_flow keep_seed(void *user, const exl2_event *event)
       {
           if (event->kind == EXL2_EVENT_DONE) *(uint64_t *)user = event->stats.seed;
           return EXL2_CONTINUE;
       }

       uint64_t seed = 0;
       exl2_job_desc d = { .model = m, .prompt.text = scene, .on_event = keep_seed, .user = &seed };
       exl2_generate(e, &d);                                 // seed 0: the engine chooses one; DONE reports it
       d.sampler.seed = seed;                                // from the saved game
       exl2_generate(e, &d);                                 // the same words again

   Save and load in mid-sentence. A job that is resumed delivers the rest of the text alone, so the game saves what was
   heard, too. The session of the loaded talk is a new one, and d is the desc that the job was started with:

       typedef struct talk { exl2_session session; bool speaks; char heard[4096]; size_t bytes; } talk;

       static exl2_flow hear(void *user, const exl2_event *event)
       {
           talk *t = user;
           if (event->kind == EXL2_EVENT_DONE) t->speaks = false;
           if (event->kind != EXL2_EVENT_TEXT) return EXL2_CONTINUE;
           if (event->bytes >= sizeof t->heard - t->bytes) return EXL2_STOP_JOB;
           memcpy(t->heard + t->bytes, event->text, event->bytes + 1);  // with the NUL
           t->bytes += event->bytes;
           return EXL2_CONTINUE;
       }

       static bool save_talk(exl2_engine *e, const talk *t, FILE *file)  // between two steps, at any word
       {
           size_t bytes = 0;
           if (exl2_session_save(e, t->session, 0, NULL, 0, &bytes) < 0) return false;
           void *data = malloc(bytes);
           bool good = data && exl2_session_save(e, t->session, 0, data, bytes, &bytes) == EXL2_OK
                    && fwrite(&bytes, sizeof bytes, 1, file) == 1 && fwrite(data, bytes, 1, file) == 1
                    && fwrite(t->heard, sizeof t->heard, 1, file) == 1;
           free(data);
           return good;
       }

       static bool load_talk(exl2_engine *e, exl2_job_desc d, talk *t, FILE *file)
       {
           size_t bytes = 0;
           exl2_session_info info;
           void *data = fread(&bytes, sizeof bytes, 1, file) == 1 && bytes < 1 << 24 ? malloc(bytes) : NULL;
           bool good = data && fread(data, bytes, 1, file) == 1 && fread(t->heard, sizeof t->heard, 1, file) == 1
                    && exl2_session_restore(e, t->session, data, bytes) == EXL2_OK
                    && exl2_session_get(e, t->session, &info) == EXL2_OK;
           free(data);
           if (!good) return false;
           t->heard[sizeof t->heard - 1] = 0;
           t->bytes = strlen(t->heard);
           t->speaks = info.resumes;                         // false: it had finished when it was saved
           d.session = t->session;
           d.prompt = (exl2_prompt){ 0 };                    // the job has its prompt already
           d.resume = true;
           return !t->speaks || exl2_job_start(e, &d, NULL) == EXL2_OK;
       }

   A memory. An NPC knows a thousand sentences, and the nearest three go into its prompt. `m` is a model for embeddings
   beside the one that speaks, or that one. Embed the sentences once, and what is said to the NPC each time:

       #define WIDTH 1024                                    // at least exl2_model_info.hidden of m
       typedef struct fact { const char *text; float values[WIDTH]; bool known; } fact;

       static exl2_flow keep(void *user, const exl2_event *event)
       {
           fact *f = user;
           if (event->kind != EXL2_EVENT_EMBEDDING || event->value_count > WIDTH) return EXL2_CONTINUE;
           memcpy(f->values, event->values, event->value_count * sizeof *f->values);  // its length is 1
           f->known = true;
           return EXL2_CONTINUE;
       }

       static exl2_result embed(exl2_engine *e, exl2_model m, exl2_embed_pool pool, fact *f)
       {
           exl2_job_desc d = { .model = m, .prompt = { .text = f->text, .flags = EXL2_TEXT_PLAIN | EXL2_TEXT_END },
                               .embed.pool = pool, .on_event = keep, .user = f };
           return exl2_job_start(e, &d, NULL);               // BUDGET: all max_jobs are in use; step, then again
       }

       static void nearest(const fact *facts, int count, const fact *said, const fact *found[3])
       {
           float best[3] = { -2, -2, -2 };
           for (int i = 0; i < count; i++) {
               float dot = 0;
               for (int k = 0; k < WIDTH; k++) dot += facts[i].values[k] * said->values[k];
               for (int place = 0; place < 3; place++) {
                   if (dot <= best[place]) continue;
                   for (int next = 2; next > place; next--) {
                       best[next] = best[next - 1];
                       found[next] = found[next - 1];
                   }
                   best[place] = dot;
                   found[place] = &facts[i];
                   break;
               }
           }
       }

   A talk that outgrows the context. When a start gives EXL2_ERR_CONTEXT_FULL, drop the older half of the turns. The
   system message stays, so its K and V are found; the turns that follow the gap are computed again:

       exl2_job_desc d = { .session = npc, .prompt = { .messages = turns, .message_count = n }, .max_tokens = 200 };
       while (exl2_job_start(e, &d, &job) == EXL2_ERR_CONTEXT_FULL && n > 2) {
           size_t drop = 2 * ((n + 2) / 4);                  // turns[0] is the system message; then pairs
           memmove(turns + 1, turns + 1 + drop, (n - 1 - drop) * sizeof *turns);
           d.prompt.message_count = n -= drop;
       }

   A THREAD OF ITS OWN

   exl2_worker_start lets the engine work beside the main thread instead of inside its frames; the frame loop stays as
   it is (section 5). A program that wants its own thread for this can have it: then one thread owns the engine, and
   only that thread calls the functions tagged [E]. Requests and copies of events lie in lists under one lock (a pthread
   mutex here):

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

   The main thread adds a request (a job without on_event), sets list.news and signals list.more; each frame it collects
   the notes. It may call exl2_job_cancel, exl2_job_pause, exl2_job_get and exl2_stats itself; after the first two it
   also sets list.news. tests/engine/own_thread.c is this loop as a program.

   WHAT IT DOES NOT DO

   GPUs: NVIDIA only, with compute capability 7.5 (RTX 20) or higher and a driver of CUDA 12.0 or newer.

   Architectures: the families that `exl2 archs` lists (Llama, Mistral, Qwen, Gemma, Phi, Cohere, GLM, Granite, GPT-OSS
   and others), with and without experts. The tower of a model for pictures is loaded when vision.images asks for it
   (section 13). A known architecture that is not in the list is rejected with the reason. An unknown one is read by its
   model_type, or else as Llama, with a warning, and rejected if it has other tensors.

   Formats: EXL2, EXL3, GPTQ, AWQ (version gemm) and dense (F16, BF16, F32); a folder may mix them. EXL3 may have 1 to
   8, 1.5, 2.5 or 3.5 bits and any codebook; on a GPU all experts of a layer are EXL3, or none of them is. GPTQ may have
   2, 3, 4 or 8 bits. Folders that auto-round wrote as GPTQ or AWQ load, too. Others (Marlin, AWQ gemv,
   compressed-tensors, bitsandbytes, FP8, MXFP4) are rejected, and the message names them.

   Text: BPE tokenizers (tokenizer.json), and the constructs of chat templates that exl2_chat_desc lists. A tokenizer or
   template with something unsupported is rejected, and the message names it; the rest of the model still works.

   Not included: training, sound, downloads, GGUF at run time (import it to EXL2 once: section 12), a server (the
   program `exl2 serve` is one, over this header).

   The target has 64 bits. SIMD needs x86-64 with AVX2 or AVX-512 and gcc, clang (mingw-w64, too) or MSVC, or 64-bit ARM
   (NEON) and gcc or clang. Other CPUs and compilers run plain C, at about a third of AVX2's speed if the compiler
   vectorizes its loops, as clang and gcc (from 12 on) do at -O2. Its sums are rounded in another order.

   SWITCHES (define them before the implementation; EXL2_API, EXL2_STATIC, EXL2_NO_THREADS and EXL2_CONVERT, which
   change the declarations, before every inclusion)

       EXL2_IMPLEMENTATION   this file contains the engine
       EXL2_STATIC           all functions are static: a private copy inside one C file
       EXL2_API              your own linkage, such as __declspec(dllexport)
       EXL2_CONVERT          with section 12, which makes models; uses stdio
       EXL2_NO_CUDA          without GPUs, and without the sources of kernels
       EXL2_KERNEL_DIR       folder of kernel sources, read at run time instead of the built-in ones (for kernel work)
       EXL2_NO_FILES         without the default file functions: exl2_engine_desc.files must be set
       EXL2_NO_THREADS       without exl2_worker_start
       EXL2_NO_SIMD          plain C alone
       EXL2_NO_AVX512        AVX2 at most
       EXL2_NO_MOE           without models that have experts
       EXL2_NO_GPTQ          without GPTQ and AWQ models
       EXL2_NO_EXL3          without EXL3 models
       EXL2_NO_VISION        without towers: models for pictures are read as their text models
       EXL2_ASSERT(c)        checks of the engine's own consistency; default: none

   1. BASIC TYPES

   exl2_engine is the one object that you hold by pointer. Models, sessions, jobs, grammars, adapters and control
   vectors are handles: 64-bit ids that may be copied, stored, and kept longer than their objects. An engine never uses
   an id twice. A call with the handle of an object that has ended gives EXL2_ERR_STALE and touches nothing. 0 is no
   handle. A message writes the two halves of a handle, slot and generation, as 3.17 (those of adapters and control
   vectors are plain numbers).

   Results: a negative result is a failure; EXL2_OK, EXL2_PENDING and EXL2_IDLE are not. exl2_result_name gives the name
   of a result. exl2_last_error gives the message of the most recent error on that engine: file, key or tensor, what was
   expected, what was found. Nothing is written anywhere unless you set a logger.

   2. HOOKS

   A zeroed hook struct means the default. Hooks are called on the thread that called the engine (the tasks of
   exl2_parallel excepted) and, while a worker runs, on the worker's (section 5). They are never called from two threads
   at the same time for one engine. One exception: a function tagged [A] that fails on another thread logs its message
   there, at any time. Your file functions are not called on the worker's thread unless load_thread allows it. A hook
   must not call the engine.

   Allocator: every byte of host memory comes through it, with a tag, and it may fail. Blocks are few and large:
   weights, cache, scratch. device_alloc_fn and device_free_fn do the same for GPU memory: addresses are the driver's,
   aligned to 256 bytes, and the device's context is current during the call. Without them the driver allocates.

   Files: four functions, with which a model can lie in a game's archive. A path is the model's path, '/', a file name.
   `list` names the files of a folder, from index 0 until it gives false. `read` may be asked for any range.

   Logger: whole sentences, by default warnings and errors (max_level); exl2_log_id says what a line is about.

   Zones: begin and end nest. `unit` says which parts of a step last longer than predicted; demo/frame --trace F writes
   them to a file.

   Kernel cache: see section 11.

   Parallel: run calls task(arg, 0) ... task(arg, count - 1), in any order, possibly in parallel, and returns when all
   are done. The output is bit-identical either way, with 1 thread and with 16. demo/common/pool.c is an example.
   `width` is the number of cores that the game leaves for this; the engine pins no thread and does not ask which cores
   are fast. A model's passes run at most `width` tasks, and a task that has finished its share computes others: one
   core of four that is three times slower, or busy, costs a third of the speed. A budget is time, so an E-core does
   less in it: 2 ms on a core of half the speed are 1 ms of work, and the engine learns that by measuring.

   3. DEVICES AND THE ENGINE

   exl2_open makes an engine; a NULL desc is all defaults. Engines share nothing: two may run on two threads. exl2_open
   calls exl2_open_versioned, which detects a header and an implementation of different releases (exl2_version). When
   opening fails there is no engine for exl2_last_error: set open_error to receive the message.

   A binding for another language calls exl2_open_binding with the version that it was made for and with the offsets of
   all members that it declares. The version must be a constant of the binding, not what exl2_version returns. The
   library compares both with its own (exl2_layout_at lists them), so that a binding of another release fails with
   EXL2_ERR_VERSION. Releases with the same first two numbers have the same functions, layouts and values of constants.

   host_bytes_max is a hard cap: a load that would exceed it fails with EXL2_ERR_BUDGET before it begins, and a default
   cache shrinks to fit. device_bytes_max is the same for GPU memory.

   exl2_close ends everything and frees all memory; jobs get their DONE first, while all handles are still valid.
   exl2_interrupt ends a call that waits (exl2_model_load, exl2_generate ...) from another thread or a signal handler.

   exl2_open decides where models run. EXL2_BACKEND_AUTO uses the best supported GPU. If there is none it uses the CPU,
   and one warning says why. The reasons: no driver, a driver that is too old, no device, a compute capability below
   7.5, or neither a kernel compiler nor kernels in the cache (section 11). EXL2_BACKEND_CUDA uses a GPU or fails.
   EXL2_BACKEND_CPU looks for no GPU. exl2_engine_get gives the decision, with the limits in use.

   exl2_open also chooses the CPU's instruction set: EXL2_CPU_AVX512, EXL2_CPU_AVX2, EXL2_CPU_NEON or EXL2_CPU_C.
   cpu_path_max sets an upper limit: some older Intel CPUs lower their clock for AVX-512, and then EXL2_CPU_AVX2 may
   serve a game better. Sets of other CPUs limit nothing: an ARM CPU still uses NEON.

   The paths form two groups. AVX2, AVX-512 and NEON are one; plain C, which rounds each product before it is added, is
   the other. Results are bit-identical within a group, for any number of threads, budget, batch and compiler, so a seed
   gives the same text. Two things can make results differ between machines of one group. One is -ffast-math and its
   like. The other is the last bit of the C library's sines, powers and exponentials, which are computed in double and
   rounded to float (once in many millions of values). A replay on another machine needs a path of the same group.

   exl2_devices lists the GPUs, and says of each unsupported one why it is unsupported. exl2_device_desc selects one: by
   index in that list, by UUID, by the LUID of the adapter that renders, or by a CUDA context of yours. Without a
   context of yours the engine uses the device's primary context.

   An engine may have several GPUs (exl2_engine_desc.devices), each with a cap of its own. A model lies on the first
   one, unless exl2_model_desc.cards says otherwise. It may name one GPU: so the model that drafts can lie on another
   GPU than the one that speaks. Or it names several: each then has some of the layers, with their K and V.
   exl2_model_measure says which layers lie where, and how many bytes they need, before anything is read. With
   exl2_model_desc.split_auto the engine chooses `cards` itself: the fewest of its GPUs that hold weights, buffers and
   the cache (cache.tokens, or one context). Of several choices with equally many GPUs it takes the first ones of its
   list. If all GPUs together are too small, the model lies on all of them where `offload` is set; else it fails with
   BUDGET.

   A text has the same bits on any number of GPUs of one kind, and wherever its model is cut, so K and V that were saved
   on one GPU serve on several. GPUs of different kinds compute different bits. If two GPUs reach each other's memory,
   rows are copied directly between them, else through host memory (exl2_open finds out by copying a pattern there and
   back: exl2_engine_info.peers). No thread waits for these copies. Without budgets the GPUs work at the same time: a
   prompt of more than 1,000 tokens is read in up to four parts, and 9 to 16 sequences that sample form two groups. With
   fewer sequences one GPU works after the other.

   With exl2_model_desc.split = EXL2_SPLIT_COLUMNS all GPUs of a model compute each token together. Each has some
   columns of every matrix, and some heads with their K and V; tables that are read by row (embeddings) lie on each of
   them. They must be of one kind and reach each other's memory. They wait for each other four times in a layer. A GPU
   that has waited for 2 s gives up: it is lost, as is the one that it waited for. The bits are those of one GPU, also
   with experts, EXL3, adapters, and pictures, whose tower the first GPU has. The GPUs have equal parts, or those that
   exl2_card.share says, but each has at least one strip of columns, and a head if there are enough. `offload` is
   UNSUPPORTED.

   The context is current only inside calls, and the engine's streams have a lower priority than rendering. Where
   graphics shares the GPU's context, set shared_bytes_max to 49152. exl2_device_probe measures the bandwidth of GPU
   memory, which bounds the tokens per second. exl2_link_probe measures copies between two GPUs.

   A fault on the GPU (a defect, a reset of the driver, or another user of your context) ends its context for good. Jobs
   end with EXL2_ERR_DEVICE_LOST, and so does every later call that needs the device. Histories stay readable: save what
   exl2_session_tokens gives, close the engine, open another, and prefill them. To use the GPU again may need a new
   process; EXL2_BACKEND_CPU does not.

   4. EVENTS

   The application hears of everything through events. An event goes to the on_event of its job or model during
   exl2_step; where on_event is NULL it waits for exl2_next_event. (Blocking calls without on_event discard their
   events.) Either way the event has the `user` pointer of its job or model.

       LOAD      progress of a model; the last one has result EXL2_OK or the failure.
       PREFILL   progress of a job's prompt, once a pass; with score_prompt its tokens' log-probabilities instead.
       TEXT      new text, whole code points, with the tokens that made it. A stop string is never shown. Text in which
                 a stop string might begin waits until that is settled.
       EMBEDDING the vector of a job's prompt, before its DONE; such a job has no other events.
       IMAGE     the work on a picture begins (PENDING), or has ended (section 13).
       DONE      the job has ended: why (stop), result, statistics. Exactly one for each job that was started.

   on_event returns EXL2_CONTINUE, EXL2_STOP_JOB (the job ends after this text, with stop CALLBACK and EXL2_OK) or
   EXL2_PAUSE_JOB. A callback may start, cancel, fork and close. At DONE the session is already free, so the next job
   can start there. A callback may not step or wait (EXL2_ERR_STATE).

   If nobody calls exl2_next_event, the queue fills. A job whose events find no room stops until there is room; other
   jobs continue, and no event is lost. A DONE waits outside the queue, even when its model was closed. exl2_close
   discards the queue and all events in it.

   5. STEPPING

   exl2_step delivers events, admits jobs and runs passes. It returns EXL2_OK when a forward pass ended, EXL2_PENDING
   when it did part of a pass (or of a load), and EXL2_IDLE when there is nothing to do. With cpu_us 0 it runs one whole
   pass, for programs without frames.

   One pass has rows of all active jobs: one token of each job that decodes and a piece of each prompt, so eight
   speakers cost far less than eight times one. While any job decodes, prompts are cut into small pieces that run beside
   it.

   On a GPU a step queues work and collects finished work. gpu_us says how much GPU time it may queue, in ranges of
   layers or of the head's columns, whose time the engine learns (0.25 ms each, or one layer). With gpu_us a sequence
   gets at most one token a step. cpu_us limits the queueing itself: prompts cost the thread about 10 us a layer. At
   least one range is queued while the GPU has no work. Without gpu_us a whole pass is queued. If no other job is
   waiting, the next pass is queued as well, before the first one's tokens are known.

   The worker. exl2_worker_start makes a thread that does what exl2_step did, and exl2_step then delivers events. The
   budgets passed to exl2_step are granted to the worker, once for each step; after a step without budgets the worker
   has all the time that it needs. With `wait` a step sleeps until the worker has finished a pass or can do nothing
   more. IDLE means that nothing was done since the last step, and that there is nothing to do. The generated text does
   not change.

   Callbacks of events run where they did, on the thread that calls exl2_step, and meanwhile the worker goes on.
   `allow`, on_logits, on_token, exl2_parallel, the allocator, zones and the logger are called on the worker's thread,
   too, but never by both threads at once. The worker may write ahead of what callbacks have heard, at most 32 texts of
   each job. If a callback says stop, or the job is cancelled, the rest is dropped, and the history keeps what was
   heard. If the job is paused, the rest waits until the job goes on.

   A call tagged [E] waits until the worker has finished its present unit (on the CPU about 0.25 ms). A worker that had
   to wait gets a turn before the next exl2_step, so a loop that polls exl2_step does not stop it. A call tagged wait
   does all work itself, and may deliver events before it begins.

   The worker also loads models, if the file functions are the default ones. With file functions of yours, exl2_step
   loads, within its budget, and the worker waits meanwhile. If yours may be called on any thread, set load_thread to
   EXL2_LOAD_WORKER, and the worker loads. The kernel cache is called on the thread that loads.

   exl2_worker_stop ends the thread, and exl2_step does the work again.

   With `wait`, a step may sleep until the GPU finishes a pass. Decode passes of less than 4 ms are waited for in pairs,
   because waking the thread is the largest CPU cost of a token. Do not use `wait` in a frame loop.

   exl2_stats gives memory, KV pages, jobs, tokens and the slowest step. Once a model is ready, `allocations` stays
   constant. Four things allocate nevertheless:

   - A conversation that renders to more than 256 KiB, that brings a template_text or special_tokens, or whose reply is
     begun or has a text after its opening.
   - A job with guidance, with several grammars, or with a grammar and bans (section 9).
   - For a moment, a text that is not valid UTF-8, that has a word of more than 4 KiB, or more than 5 KiB in one stretch
     that the tokenizer normalizes first (Qwen: text that is not in normal form C).
   - An adapter or a control vector while it loads (exl2_lora_open, exl2_steer_make).

   A call needs at most 64 KiB of stack, on whatever thread it runs. Callbacks, hooks and the GPU's driver and compiler
   run on the same stack and need theirs in addition. That is for gcc -O2 (measured: 45 KiB); without optimization a
   call needs at most 80 KiB (measured: 64 KiB).

   6. MODELS

   exl2_model_measure reads headers (for a GPU also group tables) and predicts what loading needs: weight_bytes +
   cache_bytes + scratch_bytes is the peak, while loading and afterwards; device_bytes of it lie on the GPU.

   A model may be larger than the memory of its GPU, or than the cap that leaves room for your renderer. With `offload`
   EXL2_OFFLOAD_AUTO it loads: the CPU computes the MLPs of the last layers, or all experts of these layers, from host
   memory. The engine chooses the fewest layers that suffice, unless host_mlps says how many. Attention, K and V and the
   head stay on the GPU; if these do not fit, the load fails with BUDGET. Of several GPUs each leaves MLPs of its own
   last layers to the CPU. exl2_model_info.host_mlps and host_weight_bytes say what the CPU has. Its speed is that of
   your cores and their memory, so set exl2_parallel. A step has cpu_us for the CPU's part and gpu_us for the GPU's. In
   between it waits for the GPU's rows for up to 0.2 ms, or with `wait` until they have arrived. A parked model loads
   again with the same layers on the CPU; if a cap has become too small for that, it fails with BUDGET. Where the CPU
   has MLPs, adapters (lora_max) are UNSUPPORTED.

   The GPU computes these MLPs for rows of prompts, as it is hundreds of times faster there: their weights are copied to
   it once for each pass, while preceding layers are computed. A pass then takes at least the time of that copy (of half
   of host_weight_bytes), so a prompt of few rows takes as long as one of hundreds. This needs GPU memory for the MLP of
   one more layer (with experts, of two), and the weights in host memory twice: packed as the CPU reads them, and in
   pinned memory as the GPU does. In four cases the CPU computes rows of prompts, too: host_prompts of the desc is set;
   host_mlps is 1 (with experts 1 or 2); the GPU or host_bytes_max has no room for the copies; or the engine chooses the
   number of MLPs and would have to choose at least twice as many. exl2_model_info.host_prompts is true then. This is
   decided before anything is read, and holds for all rows of prompts of that model.

   exl2_model_open begins a load that exl2_step continues, in parts of less than a millisecond: reading the tokenizer
   and the headers, too. Two parts cannot be cut: the tables of one very large matrix (a head with 262,144 tokens), and
   compiling kernels that are not in the cache. Those are compiled a module at a time, or with four and more tasks of
   exl2_parallel all together (one to three seconds). exl2_model_load opens the model and waits until it is ready.

   exl2_model_park gives a model's memory back for a while, for a scene without talk: what it has on the GPU, or on the
   CPU its weights and cache. Jobs and sessions stay: their histories are in other memory. exl2_model_park(e, m, false)
   loads it again in slices, as exl2_model_open did, and the jobs go on; K and V are computed again, on a GPU perhaps by
   other kernels (section 9). With keep_packed nothing is read from files: on a GPU a copy of the packed weights is kept
   in pinned host memory (host_bytes counts it), and on the CPU only the cache is given back.

   exl2_model_state says whether the model is ready, once its last LOAD event was delivered. exl2_model_get gives the
   figures of exl2_model_measure later. exl2_model_close ends the model's jobs and sessions. While their DONE events are
   delivered, the model accepts no new jobs or sessions (EXL2_ERR_STATE).

   exl2_arch lists the families of models (`exl2 archs` prints them). family is the one that a model is computed as, and
   tower_skipped says that it reads pictures, too, but that its tower was not asked for (section 13). A family
   that needs_bos writes nonsense without its BOS token. Raw text gets BOS by itself, unless the tokenizer's files
   switch that off; a prompt of ids must begin with it.

   Attention windows: a layer with a window looks at the last `window` tokens. Decoding then reads less of a long
   history, and a token costs less. If all layers of a model have the window (Mistral 7B v0.1), older words reach a
   token only through the layers in between, each of which looks one window farther back.

   Layers with a window keep K and V of window_tokens tokens only, if that is fewer than the cache holds. There is room
   for the windows of batch_max running jobs, each with two pages more, and for the rows of a pass. If batch_max is 0,
   there are as many windows as the cache holds contexts (context_max), and at least 4. Gemma 3 4B with a context of
   32,768 then needs 0.3 of the bytes of a cache with all K and V. A job that finds no room for its window waits, as for
   pages. Windows that no running job sees stay while there is room: the oldest are evicted first, those at the ends of
   jobs last, so a session goes on where its last job ended. After a rewind, in a fork at an older place, or where texts
   with a common beginning diverge, the window may be gone. The job then computes again from the last place whose window
   is whole, which may be the beginning. Its words are the same; tokens_cached and reused_tokens say what it finds.
   cache.full keeps K and V of all tokens in all layers. So does cache.host_bytes; window_tokens is 0 then.

   Context and RoPE: without context_max a session has the model's own context, at most 8,192 tokens. More is a matter
   of memory (cache_bytes_per_token) up to what the model was trained for; above, a warning says that its words get
   worse. The scaling of config.json applies at every context: the model was trained with it. Dynamic scaling, and the
   two sets of divisors of longrope, are chosen once, by context_max, as they change K: ask for no more context than you
   use. rope_scale, rope_alpha and yarn_factor replace what config.json says, for a model whose authors name such a
   number for long contexts (Qwen2.5: YaRN, 4). Use them only with texts that need it, because words within the trained
   context get worse. rope_scale 1 is plain RoPE, without the scaling of config.json; the model's own context is then
   the original one of that scaling. `ropes` of exl2_model_info says what is computed. A learned table of positions
   (GPT-2) cannot be stretched: EXL2_ERR_ARG.

   The KV cache is one pool of 64-token pages for all sessions of the model (cache.tokens). By default it holds two
   contexts, but no more than the bytes of the weights or 256 MiB, whichever is more, and never less than one context.
   Under a cap of yours it shrinks, down to one context. The whole cache is planned when the model is loaded
   (cache_bytes), and on the CPU a page becomes resident at its first use. On Windows the cache is reserved, and each
   page committed before its first use: if the system has no memory for it, that job fails with EXL2_ERR_BUDGET. An
   allocator of yours is asked for the whole cache at once. context_max limits a session.

   cache.format is the format of K and V. Bits of an element, scales included: EXL2_KV_FP16 (the default) 16; EXL2_KV_Q8
   8.5; EXL2_KV_Q6 8.5 for K and 4.5 for V; EXL2_KV_Q4 4.5. A token needs layers x K/V heads x head size x (bits of K +
   bits of V) / 8 bytes (cache_bytes_per_token). With fewer bits the same memory holds more tokens, and long histories
   are decoded faster. On a GPU scratch_bytes grows by K and V of one layer in fp16, which prompts read. Each format
   gives words of its own; what section 9 promises holds within each. Take Q6 where memory is short. Q4 costs small
   models visibly: a model of 135M then picks a different top token at 16 % of positions. Heads must have a multiple of
   16 elements, else EXL2_ERR_UNSUPPORTED; one that is no multiple of 32 is stored as the next multiple.

   Pages belong to running jobs; all others are a cache. A page in it is found by the tokens that it holds and by all
   tokens before it, whoever computed it. The same session's next turn finds it, a fork, or another job whose prompt
   begins in the same way, also while the first one still computes it. So a common beginning is computed once. When a
   job needs pages, those that no open session needs are evicted first, then those of idle sessions, the longest unused
   first. A session whose pages were evicted continues as before; its next job computes them again. cache.no_reuse
   limits this to a session's own history and its forks.

   On a GPU, cache.host_bytes is a second tier: pages that are evicted are copied to pinned host memory, and come back
   when a text needs them again, also the last page of a text, which is filled in part. So 200 characters, whose
   histories exceed the GPU's memory many times over, go on without computing them again. Where two texts part inside of
   a page, the words before that place come back; fewer than 8 words of a page are computed again. The tier is used only
   where copying a page is faster than computing it: the time of a copy is measured while the model loads, the time of
   computing is learned. Copies are enqueued before the pass that needs them. The thread does not wait for them, and
   gpu_us does not count them, as they occupy no multiprocessor. If the tier is full, the text that was not used for the
   longest time gives way. The words are those of a model without a second tier. A vector or a picture, and what follows
   it, is not kept. exl2_model_park gives this memory back, too. exl2_engine_stats counts pages_out and pages_in.

   When a job becomes active, pages for its prompt and max_tokens are promised to it; it uses them as it writes. A job
   that finds too few pages waits for other jobs to end, never for idle sessions. One of a higher priority preempts
   those of lower ones: paused jobs first, then the lowest priority, then the newest. A preempted job waits again, and
   continues later with the same words; it is not preempted again before 16 more tokens. A job that can never fit fails
   at its start, and the message says how much it would need.

   Where max_tokens is large and texts are mostly short, few such jobs fill the cache with promises. Set
   job_desc.reserve then: pages are promised for the prompt and so many new tokens (64 at least), and for as many more
   whenever the job has used them up. If the cache has none left at that moment, jobs are preempted until it has: paused
   jobs first, then the lowest priority, then the newest, which may be the job itself. So more jobs run at once, the
   first of them always goes on, and the words are the same.

   Adapters (LoRA): a model that is opened with lora_max may have adapters of some megabytes, each of which gives a
   character a voice of its own. exl2_lora_measure reads an adapter's headers. exl2_lora_open begins a load that
   exl2_step continues beside running jobs, and exl2_lora_load waits for it. exl2_lora_state and exl2_lora_get say how
   far it is, and exl2_lora_close ends it after its last job. A job names its adapters and their factors
   (job_desc.loras), and jobs with different adapters share a pass. On a GPU, however, jobs with adapters and jobs
   without take turns, and at most eight tokens with adapters are sampled in a pass (speed: exl2_impl/docs/measured.md).
   A row computes y = W x + b as without adapters. Then it adds scale x alpha / rank x (B (A x)) for each adapter, in
   the order of their content_ids. So its bits depend on its own set, and not on the other rows of the pass.

   An adapter is what peft writes: adapter_config.json and adapter_model.safetensors, in F16, BF16 or F32. It may change
   every matrix of the layers: fused ones, experts and routers, too. rslora, rank_pattern and alpha_pattern are
   supported. Each tensor of the file must belong to a matrix, or EXL2_ERR_FORMAT names the first that does not. DoRA,
   adapters for which peft changes the base (PiSSA, OLoRA, CorDA, LoftQ, KaSA), modules_to_save, biases, files of
   pickle, and adapters of the embedding, the head or a vision tower are rejected, and the message names them. On a GPU,
   passes with adapters of routers, or of experts by number, are slow, and prompts with them have passes of their own.
   On several GPUs each one has the adapters' matrices of its layers.

   K and V depend on the set of adapters, so each set has a cache of its own. Equal sets share pages, also in another
   order of the list. A scale of 0.5 is another set than 1, and a set that leaves all of its adapters out is the model
   alone. A session may change its set from job to job: its history is then computed again, unless K and V of the new
   set are still cached. A world of 2,000 tokens that 5 characters with adapters of their own share is computed, and
   kept, 5 times. What a closed adapter has computed is evicted first, and never found again. A saved session names its
   set by content_ids and scales. `resume` needs the same set, and saved K and V serve no other.

   Control vectors, or moods: after each layer a vector, times a factor, is added to the residual. So a character
   becomes afraid or drunk without a word in the prompt. A model that is opened with steer_max has room for that many
   control vectors. exl2_model_measure counts it: 4 bytes for each value of the residual of each layer; a GPU needs the
   same again, and 16 vectors for the rows of a pass. exl2_steer_make makes a control vector from a file (GGUF of
   llama.cpp, or safetensors) or from arrays; `exl2 steer` makes such files from two lists of texts. exl2_steer_get
   describes it, and exl2_steer_close ends it after its last job. A job names up to four of them with their factors
   (job_desc.steers); a negative factor reverses the mood. A slider in the game sets the factor of the next job. A row's
   bits depend on its own vectors and factors alone, and a row without any has the bits that it has in a model without
   control vectors. A job may have adapters and control vectors.

   Control vectors and their factors are part of a job's set of adapters. K and V are found only for the same set.
   Snapshots name a vector by its content_id and factor, and `resume` needs the same ones. A drafter guesses without
   them. If a mood changes between two replies, the history is computed again; if it changes back, the job finds what is
   still cached. Control vectors stay in host memory while a model is parked. A GPU gets a vector with the first pass
   that has a row with it.

   7. TEXT

   exl2_tokenize and exl2_detokenize are the model's tokenizer, exact to the id and to the byte. Special tokens written
   in a text ("<|im_end|>") become those tokens, unless EXL2_TEXT_PLAIN says that they are plain text: use it for
   anything that a player types into a raw prompt.

   In `messages` this is done for you. The text of a message, of tools, documents and variables can never become a
   special token, nor an added token that the template contains (Qwen's <tool_call>), whatever the template does to it.
   Only an assistant's message may, because it is the model's own output: let no player write one.

   Before raw text comes BOS where the model wants it; exl2_text_flags has the rules. After it comes nothing, unless
   EXL2_TEXT_END asks for what the tokenizer's files put there, mostly an end token, which models for embeddings were
   trained with. Conversations have the BOS that their template writes. exl2_chat_render shows what the chat template
   makes of messages; exl2_chat_desc lists the Jinja that it runs.

   With chat.begun_reply the last message is the beginning of the reply, and the job continues it. The prompt ends right
   after its text, as the template writes it (without white space at its end, if the template trims it). The place is
   found by a second render with a marker after that text, so the same words may stand in other messages. The text of a
   grammar begins with the begun text, also after a save; only a CUSTOM grammar sees new tokens alone. Events, stop
   strings, banned strings, min_tokens and max_tokens are about the new text. ARG: the message has no text, the template
   does not write it once, or the grammar does not allow it.

   A prompt may have a text beside its messages: what the reply begins with, right after its opening. It is not a
   message and the template does not see it; its ids are those of the whole text with it. Markers in it become tokens,
   as in raw text, unless EXL2_TEXT_PLAIN is set. So an application opens a tool call or closes a reasoning tag in the
   model's own tokens. It is the prompt's: events, stop strings, limits and the text of a grammar begin after it, as if
   the template had written it. With begun_reply it is ARG: there the last message has that text, and a grammar's text
   begins with it.

   exl2_chat_tokenize gives the ids of a prompt without a job, and of text_only models: the count is the job's
   prompt_tokens in an empty session. exl2_detokenize with EXL2_TEXT_BYTES gives a token's own bytes, which may be a
   part of a character.

   exl2_tokenize, exl2_detokenize, exl2_chat_render and exl2_chat_tokenize set *need to the room that the answer needs,
   also when the answer did not fit (EXL2_ERR_TOO_SMALL). With NULL for the buffer they only do that (EXL2_OK).

   exl2_json_text reads one value of JSON that is still being written (first recipe). Collect the TEXT events of a job
   with a JSON grammar, ask after each for what a player should see, such as "/say", and show what is new. It reads the
   JSON from its beginning each time, in one to four microseconds for a kilobyte, allocates nothing and needs no engine.

   exl2_sentence gives whole sentences of a text that is still being written, for speech, lips and subtitles:

       size_t n;
       while ((n = exl2_sentence(text + spoken, bytes - spoken, whole)) > 0) {
           speak(text + spoken, n);
           spoken += n;
       }

   text is what TEXT events have brought so far, or what exl2_json_text gives of a member, and whole is true at DONE, or
   as exl2_json_text says. A sentence ends at a line break, or at . ! ? and the like in Latin, Greek, Cyrillic, Arabic,
   Indian, Chinese, Japanese and other scripts, with quotes and brackets that close after them. It does not end before a
   small letter or a dash, within numbers and names (3.5, example.com), after initials and abbreviations (J. Smith, Dr.,
   e.g., z.B., No. 5) and German ordinals (3. Mai). The next word decides, so a sentence is known with the first token
   after it. No rule is right for every text: "He lives in St. Then" is one sentence.

   8. SESSIONS

   A session is a history of tokens. exl2_session_open makes an empty one. Jobs append to it, one job at a time. K and V
   of the history are in the cache as long as there is room (section 6); an idle session holds no pages.

   exl2_session_fork copies a history at once: both sessions find the same pages, and each writes to pages of its own.
   Prefill a world once and fork a session for each character. exl2_session_rewind cuts the history back.
   exl2_session_trim takes tokens out of its middle; what follows is computed again, by the next job or by a
   prefill_only job without a prompt, since positions are never changed afterwards. exl2_session_tokens reads the
   history, exl2_session_get counts it, exl2_session_close ends the session.

   Save games. exl2_session_save gives a session as bytes, also while a job speaks; exl2_session_restore makes a free
   session of any engine with the same model (content_id) the saved one. To go on in the middle of a sentence, start the
   job with the same desc, but without a prompt, and with `resume` (session_info.resumes says that there is something to
   go on with). The words are those that would have come, on the same device and build. seed, max_tokens and min_tokens
   are those of the snapshot; in the desc they are 0 or the same. What the desc names by pointer (stops, grammar,
   callbacks) is not in the snapshot; log-probabilities of tokens whose text was held back are lost (0). A snapshot has
   4 bytes a token, and some 100 for the job. EXL2_SAVE_KV adds K and V (cache_bytes_per_token each; with window_tokens
   those of the last window in layers that have one), so that nothing is computed again. They are used only where they
   would be computed in the same way and kept alike: same release, cache format, cache.full, number of experts, angles
   of RoPE, and group of CPU paths or kind of GPU (section 3). The angles change with rope_scale, rope_alpha,
   yarn_factor and, with some models, context_max. Else the history is restored alone, a log line says so
   (EXL2_LOG_ID_SNAPSHOT_KV), tokens_cached is 0, and the next job computes them again. The same happens to saves of
   builds whose content_id did not cover all weights (EXL2_LOG_ID_SNAPSHOT_EARLIER). K and V from a snapshot are found
   by that session and its forks only. Bytes may come from anywhere: damaged ones are rejected, and the session stays as
   it was.

   After a job the history holds its prompt and the tokens that were delivered. The end token is included; the tokens of
   a cut stop string are not. After a cancel it holds what was delivered before.

   9. SAMPLING AND GRAMMARS

   In exl2_sampler_desc 0 keeps the preset's number and EXL2_OFF turns a setting off. exl2_sampler_resolve shows the
   settings that a desc results in. Presets: MODEL (what generation_config.json says, over BALANCED), BALANCED, NEUTRAL,
   GREEDY; in all of them the settings that they do not name are off. The comment of exl2_sampler_desc gives the order
   of the filters.

   A GPU samples with repeat penalty, bias, ban, allow, DRY, grammars, temperature, top-k, top-p and min-p. For any
   other setting the row's logits are copied to host memory and the CPU samples: some 0.2 ms a token, counted in
   cpu_sampled, and the same token. DRY, mirostat, adaptive-p and on_token need each token before the next one begins,
   so with them the GPU does not run ahead.

   Adaptive-p (llama.cpp, pull request 17927) favours tokens whose probability is near a target, and so avoids both the
   usual word and nonsense. With p, the probabilities that the filters before it left, a token's logit becomes

       5 - 10 d^2 / (1 + d)   where   d = |p - wanted| / 0.3
                                      wanted = 2 target - mean, within 0 and 1
       after each token               mean = decay mean + (1 - decay) p(token), which begins with the target

   So after likely tokens unlikely ones are wanted, and the other way round. The source keeps two sums; the mean is
   their quotient. Far from the target all tokens get nearly the same logit, so cut off the unlikely ones before, as
   min_p 0.05 does. Tokens whose weight is below 2^-40 of the likeliest one's stay out. It is a sampler of its own: with
   mirostat it is ARG. adaptive_target 0 means that it is off; for a target of 0 say 1e-6.

   The random number is a function of the seed and the token's position (Philox), and probabilities are summed as
   integers. From the same logits a GPU samples the same token as the CPU, but its logits differ from the CPU's in the
   last digits.

   What replay promises: a job's tokens are a function of the device, the build, the history, the set of adapters and
   control vectors, the settings and the seed, and of nothing else. Which layers have their MLPs on the CPU (section 6)
   is a part of the device, and so is the CPU then; saved K and V are used only where that is alike. They are the same
   alone or beside other jobs, with any budget and thread count, and with drafts or without. They are the same whether
   K and V were found or computed again, after a fork, a preemption or a cancel, and from a saved session. The numbers
   of an adapter count, not its handle, its path or the order of the list. On the CPU that is always so. On a GPU it
   is so for up to 16 jobs at a time, and for prompts that are read in passes of up to 128 rows, as under gpu_us or
   with prefill_chunk 128. Larger passes are faster and have other bits. There prompt rows and sampled rows use
   different kernels and never share a pass, and a history knows of each token how it was computed. So a text that is
   given as a prompt is another history than the same text that was sampled.

   A grammar says what a job's text can be, byte by byte, whatever the tokens. exl2_grammar_make compiles it, and the
   job's desc names it. Before a token is sampled all tokens that the grammar does not allow are masked, so only a
   whole, valid text can result, at any temperature. Early enough before max_tokens only tokens that lead to the end of
   the text stay allowed. A job's ban, allow or biases of minus infinity may exclude tokens that such an end would use.
   That job then has a copy of the grammar, with cache_bytes of its own, from exl2_job_start to its DONE; if they leave
   no text at all, it does not start (ARG).

   If the grammar allows one continuation only, it is appended without a pass. The text goes on with the longest token
   inside the string that must follow. The model chooses after all if the job's settings ban that token, or if a token
   reaches beyond the string (": and ":" where a space may follow the colon). Forced tokens are not sampled and have a
   log-probability of 0; the next pass has up to 16 rows of the job, on a GPU up to 8. The text is the same as with
   draft.one_by_one, which samples every token. Jobs with alts_per_token, on_logits, on_token, guidance, mirostat,
   adaptive-p or a CUSTOM grammar sample every token, too. stats.forced_tokens counts the forced ones.

   Where the text may end, the model's end tokens and the job's stop tokens are allowed; with prefer_end it ends there
   at once. Where nothing can follow, the job ends with EXL2_STOP_GRAMMAR. (Stop strings cut the text wherever they
   occur, and a cancelled job's text is incomplete.)

   A schema of a few hundred bytes compiles in about a millisecond, so make one from the state of the game each turn and
   close it after exl2_job_start. List the people who are present, or what they hold, as an enum. What is not listed
   cannot be chosen. Members come in the schema's order, so put the words that a player waits for first.

   A job may have several grammars (exl2_job_desc.grammars): a schema, and an expression for the same text. The text
   fits all of them. exl2_job_start searches for what they have in common, in memory of the engine's own, so forced
   tokens and the end before max_tokens are as those of one grammar, and no text is begun that cannot be ended. It is
   kept for the next job with the same list, until one of the grammars is closed and their jobs have ended. If no text
   fits all of them, the job does not start (ARG). Nor does it start if what they have in common needs more than 32,768
   states (BUDGET), as with two long counted strings, or values that nest without a bound. The first start costs the
   thread 1 to 3 ms, and 10 ms for a string of up to 200 characters of any language. A mask costs as much as the masks
   of the grammars alone, or less. It costs up to about twice as much where most tokens come near to a dead end, that
   is, a text that all grammars allow but that cannot end in all of them. If one of the grammars has prefer_end, texts
   end as soon as they may. CUSTOM grammars cannot be combined (UNSUPPORTED).

   The first grammar of a model makes a table of the model's tokens, in 0.4 ms and 54 KB for 1,000 tokens;
   exl2_model_desc.grammars does it while loading. exl2_grammar_close releases a grammar, which is freed after its last
   job. On a GPU the layers of the next pass run ahead; only sampling waits for the mask, which is made meanwhile. The
   comment of exl2_grammar_kind says what each kind supports.

   10. JOBS

   exl2_job_start queues one generation, on a session or (with .model) on a session of its own that ends with the job.
   Everything in the desc is copied.

   The prompt is text or ids to append, or messages: the whole conversation, every time. What the session already holds
   of the conversation is kept and only the rest is computed, so the application keeps turns and the engine keeps the
   cache. max_tokens 0 is 512, or what is left of the context. prefill_only fills the cache and ends. score_prompt gives
   each prompt token's log-probability, the likeliest alternatives and the logsumexp.

   exl2_generate starts a job, steps until DONE, and gives DONE's result. exl2_job_cancel ends a job before its next
   token, exl2_job_pause stops it while it keeps its pages (unless it is preempted: section 6), exl2_job_get reports its
   state: these three from any thread. exl2_job_priority changes its priority.

   exl2_job_measure counts before a start: the tokens of the prompt, those that are in the cache, how many new ones may
   come, and the pages for them. So an application can shorten a conversation that is too long before it has to wait. A
   start that has to evict pages may find fewer tokens in the cache.

   stats.reused_tokens counts the prompt's tokens whose K and V the job did not compute: its session's own, those it
   found, and those that another job computed meanwhile. It is final at the first token. The sum of prompt_tokens -
   reused_tokens over all jobs is tokens_in (with guidance, tokens_in counts the negative prompts, too).

   embed makes a vector of a prompt, for the search of texts that mean the same: their vectors have a large dot product.
   The job computes the prompt's hidden states, and no head. LAST is the state of the last token; what the cache has of
   the prompt is reused. MEAN and FIRST are of all tokens and of the first one: nothing is reused, but others find the
   pages. Values are summed in f32 in the order of tokens, so chunks, budgets, other jobs and threads change no bit of
   them. On a GPU that holds within a kind of passes, as for all K and V. A history before the prompt is context alone,
   and the prompt joins it. Up to batch_max prompts share a pass, so start many jobs, then step. The vector lies where
   other jobs keep text: nothing is allocated.

   A folder of sentence-transformers says which pool it wants and whether vectors are divided by their length:
   exl2_model_info.embed_pool and embed_raw, of 1_Pooling/config.json and modules.json. A job does what its desc says.
   Where the folder asks for more (a dense layer after the pooling), every embedding is UNSUPPORTED. A model that was
   saved without its head loads: it makes embeddings, and text is STATE (has_head). Encoders (BERT) and models with
   attention to both sides are rejected when they load.

   draft.ngram lets one pass confirm several tokens, where a text repeats what was said before: names, phrases, JSON.
   The engine guesses the next tokens by what followed the last 4 to 2 tokens earlier in the history, or else in the
   model's other sessions, and computes their rows in the same pass. Each token is sampled as always, with its own
   random number; a guess that equals it costs no pass of its own. So the text is the same with and without. How many
   tokens are guessed follows from how many were right and from the times of passes; it is 0 where it does not pay.
   Drafts are without effect for jobs with on_logits, on_token, mirostat, adaptive-p or a CUSTOM grammar, and rejected
   with guidance.

   draft.model guesses with a second, smaller model of the same vocabulary, which samples as the job does, with the same
   random numbers and only what the job's grammar and lists allow. Each job that it guesses for needs one more of
   max_jobs and of max_sessions, and pages in the cache of the second model, whose own jobs come first there. Without
   pages, or once that model is closed, the job goes on without guesses. It pays where a pass of the second model costs
   a few hundredths of one of the first. With ngram set, too, guesses come from the history while the model has none.

   The comment of exl2_job_desc says how ban_strings, heal_prompt and guidance work. on_logits gets the logits before
   any other setting applies, and may edit them. Jobs with a higher priority go first; ties in order of start. But a
   prompt that got no rows in 8 passes comes next, whatever its priority.

   on_token gets each sampled token before it joins the history, and gives the token that joins: the same one, or
   another one. Whatever follows is about the given token: text, penalties, grammar, stops, events, and the history. It
   is asked again for the same position after ban_strings have rewound to it. A given token ends the job with ARG if it
   is outside of the vocabulary, or if the grammar, the allow list or a healed token does not allow it. `ban`, biases
   and min_tokens do not bind it. Its log-probability is 0; alternatives are those of the place. Mirostat and adaptive-p
   count the token that they sampled. What replay promises (section 9) holds if the callback gives the same token for
   the same place.

   11. KERNELS

   The GPU's code is built in as source. NVRTC, a library of the CUDA toolkit (nvrtc_path; NULL: the system's), compiles
   it for the present GPU while a model loads: some seconds at the first start, and at every start without a cache.

   exl2_kernel_cache keeps the results: for one GPU an entry for each module that its models needed, 1 to 3 MB in all.
   An entry's key is a file name of letters, digits, '-' and '_'. It has the module, the architecture and a hash of all
   that the entry depends on, so another release of exl2.h asks for other keys. Entries are checked. An entry that is
   damaged or that the driver rejects is compiled again and overwritten. demo/common/kernel_folder.c keeps entries in a
   folder.

   Players have no NVRTC, and it is large. exl2_kernels_build compiles the kernels for the given architectures into such
   a cache, on a machine without a GPU; so does the program `exl2 kernels build` (fifth recipe). Ship the folder and
   let kernel_cache.load read it. Where a GPU's own entries are missing, those of a lower minor number are used (86 on
   8.9; but 90 on 9.0 alone). Without those the call fails with EXL2_ERR_NO_COMPILER, and the message names the missing
   entry.

   12. MAKING MODELS (EXL2_CONVERT)

   exl2_import_gguf makes an EXL2 folder from a GGUF file by rounding to nearest. exl2_convert makes a better one, which
   is calibrated. exl2_compare says how far the logits of two models are apart, and exl2_dump writes a matrix of EXL3 as
   it is decoded. The comment above their declarations says how they work. These functions are for tools: they allocate
   with malloc and wait for disks.

   13. PICTURES

   A model for pictures has a tower, which makes rows of a picture: vectors that stand in the prompt as tokens do. Set
   exl2_model_desc.vision.images to the number of pictures that are open at a time, and the tower is loaded: on the GPU
   of the model, if it has one. SmolVLM, Idefics 3, Qwen2-VL, Qwen2.5-VL, Qwen3-VL, Gemma 3, Mistral 3, Pixtral and
   LLaVA have towers. On several GPUs the first one has the tower. On a GPU, Gemma 3 and Qwen3-VL with both
   vision.images and lora_max are UNSUPPORTED.

       exl2_image image;                                     // pixels: of a decoder, or of a render target
       exl2_image_make(e, &(exl2_image_desc){ .model = m, .format = EXL2_PIXELS_RGBX8, .width = w, .height = h,
                                              .stride = pitch, .pixels = pixels }, &image);
       exl2_message turn = { .role = "user", .text = "What do you see?", .images = &image, .image_count = 1 };
       exl2_job_start(e, &(exl2_job_desc){ .session = npc, .prompt = { .messages = &turn, .message_count = 1 },
                                           .on_event = speak, .user = &answer }, &job);
       exl2_image_close(e, image);                           // the job keeps what it needs

   exl2_image_make copies the pixels and returns. exl2_step resizes the picture on the CPU and runs the tower, in units
   within the budget. Pictures that a job waits for have up to half of a step; others have the time that jobs leave. An
   IMAGE event tells that the work begins (PENDING), another one how it ended. exl2_image_get says how far it is,
   exl2_image_measure how many rows a size would have. exl2_image_seen and exl2_image_rows show what a tower sees and
   gives, for those who ask why a model does not see. The engine decodes no files.

   The picture is resized by its family's own rule, byte for byte as transformers does it with Pillow 11.3. max_rows
   bounds the rows: a larger picture is made smaller. SmolVLM and Idefics 3 cut a large picture into tiles, each with
   rows of its own; max_tiles 1 gives the whole alone, which is what a game wants. Rows of a picture depend on nothing
   but the picture.

   Marks. A chat template writes a mark for each part of type image; pictures of a message with `text` stand before the
   text. In exl2_prompt.text and .tokens a mark is the family's: <image>, [IMG], <|image_pad|>, <start_of_image>. The
   number of marks and that of pictures must be the same, else ARG with both. A mark that a player typed is plain text.
   stats.prompt_tokens counts rows, and image_rows those alone. Penalties, DRY, bans and drafts do not see them.

   Videos. The Qwen families read them; others fail with ARG. exl2_image_desc.frames frames of one size lie one after
   the other in `pixels`, `fps` of them to the second. The application chooses them, and two in a second are often
   enough. Two frames at a time become rows, so max_rows (1,280) bounds them all together, and each is made smaller by
   the rule for videos, with the numbers of video_preprocessor_config.json. vision.pixels_max must hold all frames of a
   video. Its mark is <|video_pad|>, and its part of a message has the type "video". Qwen2.5-VL knows the time by the
   positions, which fps sets; Qwen3-VL by a text such as "<1.5 seconds>" before each two frames. What is said here of
   pictures holds for videos, too.

   The cache knows a picture by 128 bits of its pixels and settings. The same picture at the same place of a text is
   found, also by another session; with another one nothing after it is found. A second exl2_image_make of the same
   pixels costs no pass of the tower. exl2_session_pictures lists the pictures of a history, and a rewind or trim that
   cuts one is ARG. Rows lie in a pool (vision.rows), from which those used longest ago make room for others; they are
   computed again from the resized pixels while these are kept. A picture that is made again gives its pixels to those
   of snapshots with the same id. All of this memory is planned and counted by exl2_model_measure: tower_bytes,
   image_bytes.

   Cost. exl2_image_info.operations says what the tower computes for a picture; on a CPU a tower reaches about the
   speed of a prompt of the text model (`exl2 bench --image WxH` measures both). A tile of SmolVLM-256M is 0.21 TFLOP,
   64 rows; Qwen2.5-VL at 448 x 448 1.36 TFLOP, 256 rows; Gemma 3 5.5 TFLOP, 256 rows, for any picture.

   exl2_session_save writes 44 bytes for each picture of the history, and with EXL2_SAVE_IMAGES its pixels, or its rows
   if they are less. A picture that neither the snapshot nor the engine has is missing
   (session_info.pictures_missing): a job that needs its rows fails with STATE until exl2_image_make has got the same
   pixels. With EXL2_SAVE_KV no rows are needed while K and V are in the cache.

   ERRORS AND WHAT TO DO (the message names the file, tensor or number)

       EXL2_ERR_ARG           an argument is wrong: a bug in the call
       EXL2_ERR_STATE         not now: the session is busy, the model is loading, a callback asked to wait
       EXL2_ERR_STALE         the handle's object has ended: forget the handle
       EXL2_ERR_TOO_SMALL     call again with *need
       EXL2_ERR_MEMORY        the allocator failed: free something, or load a smaller model or cache
       EXL2_ERR_DEVICE_MEMORY the GPU is full, or device_alloc_fn failed: as EXL2_ERR_MEMORY
       EXL2_ERR_BUDGET        over a cap of yours (host_bytes_max, cache.tokens, max_jobs ...): raise it or ask for less
       EXL2_ERR_CONTEXT_FULL  prompt and max_tokens exceed context_max: shorten, rewind, or open with more
       EXL2_ERR_IO            a file is missing or cannot be read: check the path
       EXL2_ERR_FORMAT        a file is damaged or not what it says: download it again
       EXL2_ERR_UNSUPPORTED   a good file with something that is not implemented: the message names it
       EXL2_ERR_NO_DEVICE     no supported driver or GPU: update the driver, or use the CPU backend
       EXL2_ERR_NO_COMPILER   a kernel is not in the cache, and NVRTC is not available: ship kernels (section 11)
       EXL2_ERR_COMPILE       NVRTC or the driver rejects a kernel: the log has all of its output
       EXL2_ERR_DEVICE_LOST   the GPU's context is lost: save the histories, close, open again
       EXL2_ERR_CANCELLED     you asked for it: exl2_interrupt, exl2_job_cancel, progress
       EXL2_ERR_VERSION       header and implementation are of different releases: rebuild both
       EXL2_ERR_INTERNAL      a defect of ours: please report the message

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

/* Handles; id 0 = none. The low half of an id is a slot, the high half its generation: no id comes twice, so a handle
   whose object has ended is reported as EXL2_ERR_STALE. */
typedef struct exl2_model { uint64_t id; } exl2_model;
typedef struct exl2_session { uint64_t id; } exl2_session;
typedef struct exl2_job { uint64_t id; } exl2_job;
typedef struct exl2_grammar { uint64_t id; } exl2_grammar;
typedef struct exl2_lora { uint64_t id; } exl2_lora;        /* an adapter; ids rise, and none comes twice */
typedef struct exl2_steer { uint64_t id; } exl2_steer;      /* a control vector; ids as those of adapters */
typedef struct exl2_image { uint64_t id; } exl2_image;

typedef int32_t exl2_token;                                 /* index into the model's vocabulary */

typedef enum exl2_result {
    EXL2_OK = 0,
    EXL2_PENDING = 1,            /* work is in flight; step again */
    EXL2_IDLE = 2,               /* nothing can advance until the application does something */
    EXL2_ERR_ARG = -1,           /* an argument is wrong */
    EXL2_ERR_STATE = -2,         /* not allowed now */
    EXL2_ERR_STALE = -3,         /* the handle's object has ended */
    EXL2_ERR_TOO_SMALL = -4,     /* the buffer is too small; *need says how much is needed */
    EXL2_ERR_MEMORY = -5,        /* host memory: the allocator failed, or the driver (pinned memory) */
    EXL2_ERR_DEVICE_MEMORY = -6, /* the device has no more memory, or the hook failed */
    EXL2_ERR_BUDGET = -7,        /* over a cap that you set */
    EXL2_ERR_CONTEXT_FULL = -8,  /* the session is at its limit */
    EXL2_ERR_IO = -9,            /* a file is missing or a read failed */
    EXL2_ERR_FORMAT = -10,       /* a file is malformed */
    EXL2_ERR_UNSUPPORTED = -11,  /* well formed, but not implemented here */
    EXL2_ERR_NO_DEVICE = -12,    /* no supported GPU or driver */
    EXL2_ERR_NO_COMPILER = -13,  /* no NVRTC, and the kernel is not in the cache */
    EXL2_ERR_COMPILE = -14,      /* a kernel does not compile or load */
    EXL2_ERR_DEVICE_LOST = -15,  /* the device's context is lost */
    EXL2_ERR_CANCELLED = -16,    /* exl2_interrupt, a cancelled job, or a callback that said stop */
    EXL2_ERR_VERSION = -17,      /* header and implementation differ */
    EXL2_ERR_INTERNAL = -18      /* a defect of ours; please report the message */
} exl2_result;

/* Every struct named exl2_..._desc begins with _start_canary and ends with _end_canary. Both must be 0: a call that
   finds another value rejects the desc, because its memory was never zeroed, and uses none of its pointers. */

typedef struct exl2_error {
    exl2_result code;
    int32_t native;  /* CUresult, nvrtcResult or errno; 0 = none */
    char text[248];  /* one UTF-8 sentence: what, where, what to do */
} exl2_error;

/* ---- 2. hooks: a zeroed hook struct means the default named beside it -------------------------------------- */

typedef enum exl2_mem { EXL2_MEM_GENERAL, EXL2_MEM_WEIGHTS, EXL2_MEM_KV, EXL2_MEM_SCRATCH, EXL2_MEM_STAGING } exl2_mem;

typedef struct exl2_allocator { /* default: malloc, free and the driver's. Set both functions of a pair, or neither */
    void *(*alloc_fn)(void *user, size_t bytes, size_t align, exl2_mem tag); /* NULL = failed; align: a power of 2 */
    void (*free_fn)(void *user, void *ptr, size_t bytes, exl2_mem tag);      /* _fn: free may be a macro */
    uint64_t (*device_alloc_fn)(void *user, uint32_t device, uint64_t bytes, exl2_mem tag); /* address; 0 = failed */
    void (*device_free_fn)(void *user, uint32_t device, uint64_t address, uint64_t bytes, exl2_mem tag);
    void *user;
} exl2_allocator;

/* Default: plain files; replace them to read an archive. Paths are UTF-8 with '/'. They are called on the thread that
   calls the engine, and on a worker's only with EXL2_LOAD_WORKER. */
typedef struct exl2_files {
    void *(*open)(void *user, const char *path, uint64_t *bytes);                            /* NULL = not found */
    bool (*list)(void *user, const char *dir, uint32_t index, char *name, size_t cap);       /* false = no more files */
    int64_t (*read)(void *user, void *file, uint64_t offset, void *dst, size_t bytes);       /* bytes read, or -1 */
    void (*close)(void *user, void *file);
    void *user;
} exl2_files;

typedef struct exl2_kernel_cache { /* default: none, kernels are compiled in every run; either may be NULL */
    size_t (*load)(void *user, const char *key, void *dst, size_t cap); /* the entry's size; copied if cap holds it */
    void (*store)(void *user, const char *key, const void *data, size_t bytes); /* load gives 0 for a miss */
    void *user;
} exl2_kernel_cache;

typedef enum exl2_log_level { EXL2_LOG_ERROR = 1, EXL2_LOG_WARN, EXL2_LOG_INFO, EXL2_LOG_DEBUG } exl2_log_level;

typedef enum exl2_log_id { /* what a line is about, to filter by; numbers stay as they are, new ones come last */
    EXL2_LOG_ID_FAILED = 1,             /* ERROR: a call or a job failed; only these lines have a code < 0 */
    EXL2_LOG_ID_COMPILER_OUTPUT,        /* ERROR, WARN: output of NVRTC or the driver for a kernel, line by line */
    EXL2_LOG_ID_CPU_FALLBACK,           /* WARN: EXL2_BACKEND_AUTO uses the CPU; the text says why */
    EXL2_LOG_ID_KERNEL_ENTRY_DAMAGED,   /* WARN: an entry of the kernel cache is damaged and not used */
    EXL2_LOG_ID_KERNEL_ENTRY_REJECTED,  /* WARN: the driver rejects an entry of the kernel cache; compiled again */
    EXL2_LOG_ID_KERNEL_BUILT,           /* INFO: exl2_kernels_build has stored a module, or found it */
    EXL2_LOG_ID_CONTEXT_ABOVE_MODEL,    /* WARN: context_max is larger than the model was trained for */
    EXL2_LOG_ID_SHARD_MISSING,          /* WARN: a set of .safetensors files has a gap */
    EXL2_LOG_ID_ZERO_SCALES,            /* WARN: groups of a matrix have the scale 0 */
    EXL2_LOG_ID_TOKEN_ID_IGNORED,       /* WARN: a configured token id lies outside the vocabulary */
    EXL2_LOG_ID_ADD_EOS_IGNORED,        /* WARN: the tokenizer asks for add_eos_token */
    EXL2_LOG_ID_TEMPLATE_UNUSABLE,      /* WARN: a chat template cannot be used; the text says why and where */
    EXL2_LOG_ID_TEMPLATES_LEFT_OUT,     /* WARN: the model folder has more chat templates than are read */
    EXL2_LOG_ID_UNKNOWN_ARCH,           /* WARN: an unknown architecture is read as a known one; the text says which */
    EXL2_LOG_ID_SNAPSHOT_KV,            /* WARN: K and V of a snapshot, computed in another way, are not used */
    EXL2_LOG_ID_SNAPSHOT_EARLIER,       /* WARN: a snapshot of an earlier release: its history alone is restored */
    EXL2_LOG_ID_SETTING_IGNORED,        /* WARN: a sampler's value in generation_config.json makes no sense */
    EXL2_LOG_ID_GPTQ_VERSION,           /* WARN: zeros of GPTQ are read as those of checkpoint_format gptq_v2 */
    EXL2_LOG_ID_DEQUANTIZED,            /* WARN: the GPU needs some quantized matrices as FP16; the text says why */
    EXL2_LOG_ID_TOOLS_DROPPED,          /* WARN: a job's chat template does not read its tools or tool_calls */
    EXL2_LOG_ID_COPY_IGNORED,           /* WARN: a plain weight beside a matrix of EXL3 is not used */
    EXL2_LOG_ID_DEVICE_LEFT_OUT         /* WARN: with EXL2_BACKEND_AUTO, one of several GPUs did not open */
} exl2_log_id;

typedef struct exl2_logger { /* default: silent */
    /* code: EXL2_OK except for failures. text: one line, UTF-8; valid until the function returns. */
    void (*line)(void *user, exl2_log_level level, exl2_log_id id, exl2_result code, const char *text);
    void *user;
    exl2_log_level max_level; /* 0 = EXL2_LOG_WARN */
} exl2_logger;

typedef struct exl2_zones { /* default: none; for Tracy, Superluminal, RAD Telemetry. Each function may be NULL */
    void (*begin)(void *user, const char *name);
    void (*end)(void *user);
    void *user;
    /* After a unit of CPU work in a step with a budget. predicted_ns: what the engine predicted for it; 0: nothing */
    void (*unit)(void *user, const char *name, uint64_t predicted_ns, uint64_t ns);
} exl2_zones;

typedef struct exl2_parallel { /* default: serial. Lets CPU work run on the application's job system */
    /* Returns when all tasks are done. */
    void (*run)(void *user, uint32_t count, void (*task)(void *arg, uint32_t index), void *arg);
    uint32_t width; /* tasks that can really run in parallel */
    void *user;
} exl2_parallel;

/* ---- 3. devices and the engine ------------------------------------------------------------------------------ */

typedef enum exl2_backend { EXL2_BACKEND_AUTO, EXL2_BACKEND_CUDA, EXL2_BACKEND_CPU } exl2_backend;

/* Instruction sets of the CPU code. */
typedef enum exl2_cpu_path { EXL2_CPU_AUTO, EXL2_CPU_C, EXL2_CPU_AVX2, EXL2_CPU_AVX512, EXL2_CPU_NEON } exl2_cpu_path;

typedef enum exl2_pick {
    EXL2_PICK_BEST,              /* the one with the fastest memory */
    EXL2_PICK_INDEX,
    EXL2_PICK_UUID,
    EXL2_PICK_LUID,              /* Windows: LUID of the D3D or Vulkan adapter */
    EXL2_PICK_CONTEXT
} exl2_pick;

#define EXL2_DEVICES_MAX 8       /* GPUs of an engine */

typedef struct exl2_device_desc {
    uint32_t _start_canary;
    exl2_pick pick;
    uint32_t index;              /* PICK_INDEX: index in the list of exl2_devices */
    uint8_t uuid[16], luid[8];   /* PICK_UUID, PICK_LUID */
    void *cuda_context;          /* PICK_CONTEXT: your CUcontext, which must outlive the engine */
    uint32_t shared_bytes_max;   /* bytes of shared memory a kernel may use; 0 = all the device has; at least 49152 */
    int32_t stream_priority;     /* CUDA's stream priority; 0 = the lowest, so that rendering goes first */
    uint64_t bytes_max;          /* hard cap of this GPU's memory, bytes; 0 = the engine's device_bytes_max */
    uint32_t gpu_us;             /* microseconds of GPU time to queue here in a step that has a gpu_us; 0 = the step's,
                                    UINT32_MAX = no limit, for a GPU that draws nothing */
    uint32_t _end_canary;
} exl2_device_desc;

typedef struct exl2_device_info {
    char name[64];
    uint8_t uuid[16], luid[8];   /* luid: zeros except on Windows */
    uint64_t bytes_total;        /* bytes of memory; free memory is known only with a context */
    uint32_t index, arch;        /* arch: 89 = compute capability 8.9 */
    bool usable;
    char why_not[120];           /* message when not usable, else "" */
} exl2_device_info;

typedef struct exl2_device_speed { /* memory bandwidth of exl2_engine_info.device */
    uint32_t index;              /* index in the list of exl2_devices */
    uint64_t read_bytes_s;       /* bytes a second that a kernel reads when it does nothing else */
    uint64_t copy_bytes_s;       /* bytes a second of a copy, bytes read plus bytes written */
} exl2_device_speed;

typedef struct exl2_link_speed { /* copies from one GPU of the engine to another one */
    bool direct;                 /* as exl2_engine_info.peers; false: through host memory */
    float us;                    /* microseconds until 16 KiB have arrived, and the thread knows of it */
    uint64_t bytes_s;            /* bytes a second of a copy of 16 MiB */
} exl2_link_speed;

/* Who loads models while a worker runs, and so calls the file functions and the kernel cache. Without a worker, and in
   calls that wait, it is always the thread that calls the engine. */
typedef enum exl2_load_thread {
    EXL2_LOAD_AUTO,   /* WORKER with the default file functions, CALLER with your own */
    EXL2_LOAD_CALLER, /* exl2_step, within its budget */
    EXL2_LOAD_WORKER  /* the worker: your functions must allow calls from its thread, but never two at a time */
} exl2_load_thread;

typedef struct exl2_engine_desc {
    uint32_t _start_canary;
    exl2_backend backend;    /* AUTO: a supported GPU, else the CPU */
    const exl2_device_desc *devices; /* [device_count] different GPUs; NULL = the best one */
    uint32_t device_count;   /* at most EXL2_DEVICES_MAX */
    exl2_cpu_path cpu_path_max; /* the fastest instruction set to use; AUTO: the fastest that this CPU has; a set of
                                   another kind of CPU limits nothing */
    uint64_t host_bytes_max, device_bytes_max; /* hard caps, bytes; 0 = no cap; device: of each GPU without its own */
    uint32_t max_models, max_sessions, max_jobs, max_events; /* 0 = 4, 256, 64, 1024. Most models: 1,024; sessions and
                                jobs: 65,535 */
    const char *nvrtc_path;  /* file of the kernel compiler, UTF-8; NULL or "" = system search */
    exl2_allocator allocator;
    exl2_files files;
    exl2_kernel_cache kernel_cache;
    exl2_logger log;
    exl2_zones zones;
    exl2_parallel parallel;
    exl2_load_thread load_thread; /* whether the worker may load models; AUTO: with the default file functions */
    exl2_error *open_error;  /* optional: filled when exl2_open fails */
    uint32_t _end_canary;
} exl2_engine_desc;

typedef struct exl2_engine_info { /* decided by exl2_open; constant until exl2_close */
    exl2_backend backend;    /* EXL2_BACKEND_CUDA or EXL2_BACKEND_CPU */
    exl2_device_info device; /* the GPU of models that name none; zeros with EXL2_BACKEND_CPU */
    exl2_device_info devices[EXL2_DEVICES_MAX]; /* [device_count] as exl2_engine_desc.devices names them; usable false:
                                one that did not open, with EXL2_BACKEND_AUTO */
    uint32_t device_count;   /* 0 with EXL2_BACKEND_CPU */
    uint32_t peers[EXL2_DEVICES_MAX]; /* [device_count] bit j of peers[i]: devices[i] reaches the memory of devices[j],
                                as copies there and back have shown; else the two exchange through host memory */
    exl2_cpu_path cpu_path;  /* what the CPU computes with, also when it only samples for a GPU; never AUTO */
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
/* [A wait] What exl2_open calls. VERSION when header and implementation are of different releases. */
EXL2_API exl2_result exl2_open_versioned(const exl2_engine_desc *d, uint32_t header_version, exl2_engine **out);
/* One member of a public struct, as this compiler lays it out. */
typedef struct exl2_layout {
    const char *type, *member;   /* "exl2_job_desc", "max_tokens" */
    uint32_t offset, bytes;      /* in the struct */
} exl2_layout;

/* [A nb] The members of all public structs, from index 0 on; false, and *out zeroed: index is too high. */
EXL2_API bool exl2_layout_at(uint32_t index, exl2_layout *out);
/* [A wait] What a binding calls in place of exl2_open (section 3). `version` is the EXL2_VERSION that the binding was
   made for, a constant in it. `members` lists all members of each struct that the binding declares, as the binding
   lays them out; exl2_engine_desc and exl2_error are among them. VERSION: another release, or a member that lies
   elsewhere, is missing or is unknown; nothing of *d was used then. Other errors as exl2_open. The message goes to
   *error, which may be NULL; d->open_error is not used. */
EXL2_API exl2_result exl2_open_binding(const exl2_engine_desc *d, uint32_t version, const exl2_layout *members,
                                       uint32_t member_count, exl2_error *error, exl2_engine **out);
/* [A wait] The GPUs of this machine: out gets the first `cap` of them, *count the number of all; 0 without a
   driver. Makes no context. */
EXL2_API exl2_result exl2_devices(exl2_device_info *out, uint32_t cap, uint32_t *count);
/* [E wait] Measures the memory bandwidth of the engine's GPU, which bounds the tokens per second; for tools. It needs
   milliseconds once its kernels are ready, and meanwhile half of the GPU's free memory, at most 4 GiB. NO_DEVICE when
   models run on the CPU; BUDGET and GPU errors as exl2_model_load. */
EXL2_API exl2_result exl2_device_probe(exl2_engine *e, exl2_device_speed *out);
/* [E wait] Measures copies between two GPUs of the engine, indices in exl2_engine_info.devices, as a model that lies on
   both has them; for tools. Needs 16 MiB of each GPU's memory for milliseconds, and as much pinned host memory where
   copies are not direct. ARG: no two GPUs that opened. NO_DEVICE, BUDGET and GPU errors as exl2_device_probe. */
EXL2_API exl2_result exl2_link_probe(exl2_engine *e, uint32_t from, uint32_t to, exl2_link_speed *out);
/* [E wait] Ends all jobs, which get their DONE, and frees all memory. NULL is allowed. */
EXL2_API void exl2_close(exl2_engine *e);
/* [A nb] The backend, the GPU and the limits in use: the desc's, or the defaults. */
EXL2_API void exl2_engine_get(const exl2_engine *e, exl2_engine_info *out);
/* [A nb] A copy of the engine's most recent error; code EXL2_OK when there was none. */
EXL2_API void exl2_last_error(const exl2_engine *e, exl2_error *out);
/* [A nb] Makes the call that waits now, if any, return CANCELLED soon. Also from signal handlers. */
EXL2_API void exl2_interrupt(exl2_engine *e);
/* [A wait] Makes an engine; a NULL desc is all defaults. ARG, MEMORY, BUDGET, VERSION: *out is NULL then. With
   EXL2_BACKEND_CUDA also NO_DEVICE, DEVICE_MEMORY, DEVICE_LOST, and UNSUPPORTED in a build without it. (__inline: a
   compiler set to C89 then gives the one message at the end of this header.) */
static __inline exl2_result exl2_open(const exl2_engine_desc *d, exl2_engine **out)
{
    return exl2_open_versioned(d, EXL2_VERSION, out);
}

/* ---- 4. events ---------------------------------------------------------------------------------------------- */

typedef enum exl2_event_kind {
    EXL2_EVENT_LOAD = 1,
    EXL2_EVENT_PREFILL,
    EXL2_EVENT_TEXT,
    EXL2_EVENT_DONE,
    EXL2_EVENT_EMBEDDING,
    EXL2_EVENT_IMAGE
} exl2_event_kind;

typedef enum exl2_stop {
    EXL2_STOP_NONE,
    EXL2_STOP_EOS,       /* one of the model's end tokens */
    EXL2_STOP_STRING,    /* one of the job's stop strings */
    EXL2_STOP_TOKEN,     /* one of the job's stop tokens */
    EXL2_STOP_LENGTH,    /* max_tokens, or a finished prefill_only job or embedding */
    EXL2_STOP_GRAMMAR,   /* the grammar's text is complete; nothing may follow */
    EXL2_STOP_CALLBACK,  /* on_event returned EXL2_STOP_JOB */
    EXL2_STOP_CANCELLED,
    EXL2_STOP_ERROR,
    EXL2_STOP_LOOP       /* the text repeats itself: exl2_job_desc.loop_stop */
} exl2_stop;

typedef struct exl2_job_stats {
    uint32_t prompt_tokens, reused_tokens;             /* reused: prompt tokens that this job did not compute */
    uint32_t new_tokens;                               /* tokens that TEXT events delivered */
    uint32_t forced_tokens;                            /* new tokens that the grammar forced and that cost no pass */
    uint32_t drafted, accepted;                        /* tokens that were guessed; that became new tokens */
    uint64_t seed;                                     /* the seed that was used */
    uint64_t queued_ns, prefill_ns, decode_ns;         /* CPU clock */
    uint32_t bans_avoided, bans_shown;                 /* banned strings that a rewind avoided; that were shown, as no
                                                          other text came */
    uint32_t stop_string;                              /* with EXL2_STOP_STRING: its index in stop_strings */
    uint32_t image_rows;                               /* part of prompt_tokens that are rows of pictures */
    uint64_t image_ns;                                 /* CPU clock: the job waited for a picture's rows */
} exl2_job_stats;

typedef struct exl2_alt { exl2_token token; float logprob; } exl2_alt; /* natural log of the raw softmax */

/* Members that each kind of event sets, besides kind and user; the other members are 0 or NULL.

                                        LOAD       PREFILL           TEXT        DONE       EMBEDDING
       model                            yes        yes               yes         yes        yes
       session, job                     -          yes               yes         yes        yes
       progress                         0..1       0..1              -           -          -
       text, bytes                      -          -                 yes         -          -
       tokens, token_count              -          score_prompt      yes         -          -
       alts, alts_per_token             -          score_prompt *    yes *       -          -
       logsumexp                        -          score_prompt      -           -          -
       values, value_count              -          -                 -           -          yes
       result, error                    yes        -                 -           yes        -
       stop, stats                      -          -                 -           yes        -

   score_prompt: where the job's desc sets it. *: where the job's desc sets alts_per_token.
   IMAGE sets model, image, progress, result and error (section 13). */
typedef struct exl2_event { /* pointers are valid until the callback returns, or until the next exl2_next_event */
    exl2_event_kind kind;
    exl2_model model;
    exl2_session session;
    exl2_job job;
    exl2_lora lora;           /* LOAD: the adapter that loads; id 0 = the model itself */
    void *user;               /* from the job's desc; LOAD: from the model's or the adapter's; IMAGE: from
                                 the picture's */
    const char *text;         /* TEXT: whole UTF-8 code points, NUL after them */
    size_t bytes;
    const exl2_alt *tokens;   /* TEXT: tokens of the text; PREFILL with score_prompt: prompt tokens from the 2nd on */
    uint32_t token_count;
    const exl2_alt *alts;     /* [token_count, alts_per_token] the likeliest tokens; NULL if the job asks for none */
    uint32_t alts_per_token;
    const float *logsumexp;   /* [token_count] with score_prompt; logit = logprob + logsumexp */
    const float *values;      /* EMBEDDING: [value_count] the vector of the prompt (exl2_embed_desc) */
    uint32_t value_count;     /* EMBEDDING: exl2_model_info.hidden */
    float progress;           /* LOAD, PREFILL, IMAGE: 0..1 */
    exl2_stop stop;           /* DONE */
    exl2_result result;       /* DONE; LOAD, IMAGE: PENDING before the last one */
    const char *error;        /* message for result < 0, else NULL */
    exl2_job_stats stats;     /* DONE */
    exl2_image image;         /* IMAGE */
} exl2_event;

typedef enum exl2_flow { EXL2_CONTINUE, EXL2_STOP_JOB, EXL2_PAUSE_JOB } exl2_flow;
typedef exl2_flow (*exl2_event_fn)(void *user, const exl2_event *event);

/* ---- 5. stepping: all work happens here --------------------------------------------------------------------- */

typedef struct exl2_step_desc {
    uint32_t _start_canary;
    uint32_t cpu_us; /* microseconds until it returns, roughly; 0 = one forward pass */
    uint32_t gpu_us; /* microseconds of GPU time to queue on each GPU, roughly; 0 = one forward pass. Ignored on the
                        CPU */
    bool wait;       /* may sleep until the GPU has finished a pass */
    uint32_t _end_canary;
} exl2_step_desc;

typedef struct exl2_engine_stats {
    uint64_t host_bytes, host_peak;                       /* bytes through the allocator hook: now, maximum */
    uint64_t device_bytes, device_peak;                   /* the same on the GPUs: sums */
    uint64_t devices_bytes[EXL2_DEVICES_MAX], devices_peak[EXL2_DEVICES_MAX]; /* of each GPU */
    uint64_t kernels_compiled;                            /* modules that were not in the cache */
    uint64_t allocations;                                 /* calls of alloc_fn so far */
    uint32_t pages_total;                                 /* pages of 64 tokens, of all models */
    uint32_t pages_used, pages_shared;                    /* used by running jobs; used by two jobs or more */
    uint32_t pages_cached;                                /* used by no job, with K and V of earlier text */
    uint32_t pages_host;                                  /* in the second tier (cache.host_bytes) now */
    uint32_t jobs_active, jobs_waiting;
    uint64_t pages_out, pages_in;                         /* pages copied to the second tier so far; copied back */
    uint64_t evictions, preemptions;                      /* cached pages that were given to other text; jobs that a job
                                                             of a higher priority has made wait again */
    uint64_t steps, forwards, tokens_in, tokens_out;      /* tokens_in: prompt tokens computed; tokens_out: new */
    uint64_t forced_tokens;                               /* part of tokens_out that grammars forced, not sampled */
    uint64_t drafted, accepted;                           /* tokens that drafts guessed; part of tokens_out from them */
    uint64_t cpu_sampled;                                 /* part of tokens_out sampled on the CPU, model on a GPU */
    uint64_t last_step_ns, slowest_step_ns;
} exl2_engine_stats;

/* [E nb] Advances all loads and jobs. EXL2_OK: a pass ended. EXL2_PENDING: part of one was done. EXL2_IDLE: there is
   nothing to do. A job reports its failure in its DONE; STATE (inside a callback) is the only error. NULL: one pass. */
EXL2_API exl2_result exl2_step(exl2_engine *e, const exl2_step_desc *d);
/* [E nb] The oldest event of jobs and models without on_event; false when there is none. */
EXL2_API bool exl2_next_event(exl2_engine *e, exl2_event *out);
/* [A nb] Statistics as of the end of the last call that changed them. */
EXL2_API void exl2_stats(const exl2_engine *e, exl2_engine_stats *out);
#ifndef EXL2_NO_THREADS
/* [E wait] Starts a thread that does the work of exl2_step (section 5). STATE: it runs already. MEMORY: the system has
   no thread left. BUDGET: the memory of its events exceeds host_bytes_max. */
EXL2_API exl2_result exl2_worker_start(exl2_engine *e);
/* [E wait] Ends that thread, and delivers what it has made for callbacks, of paused jobs, too; exl2_step goes on with
   its jobs. STATE: none runs. */
EXL2_API exl2_result exl2_worker_stop(exl2_engine *e);
#endif

/* ---- 6. models ---------------------------------------------------------------------------------------------- */

typedef enum exl2_kv { /* bits of an element of K and V, scales included (section 6) */
    EXL2_KV_FP16,    /* 16 */
    EXL2_KV_Q8,      /* 8.5 */
    EXL2_KV_Q6,      /* K 8.5, V 4.5 */
    EXL2_KV_Q4       /* 4.5 */
} exl2_kv;

typedef struct exl2_cache_desc {
    uint32_t _start_canary;
    uint64_t tokens; /* pool size for all sessions, rounded up to 64; 0 = the default (section 6) */
    bool no_reuse;   /* a job finds K and V of its own session's history and of forks only, not those of other jobs */
    bool full;       /* layers with a window keep K and V of all tokens, too, not those of their windows only */
    exl2_kv format;
    uint64_t host_bytes; /* host memory for pages that a GPU has no room for any more (section 6); 0 = none. No effect
                            on a model that runs on the CPU, whose cache lies in host memory: raise tokens there */
    uint32_t _end_canary;
} exl2_cache_desc;

/* Memory for pictures, all of it planned (section 13). Zeroed: the model's tower is not read. */
typedef struct exl2_vision_desc {
    uint32_t _start_canary;
    uint32_t images;           /* pictures that are open at a time, at most 4,096; 0 = none */
    uint32_t rows;             /* rows of pictures that are kept, at most 16,777,216; 0 = images times max_rows, but at
                                  most 8 times */
    uint32_t pixels_max;       /* of all pictures together that wait to be resized, at most 2^28; 0 = 8,294,400 (3840 x
                                  2160) */
    uint32_t max_rows;         /* rows of a picture, at most 131,071; a larger picture is made smaller by its family's
                                  rule; 0 = 1280 */
    uint32_t max_tiles;        /* tiles of a picture, in families that cut; 1 = the whole alone; 0 = the model's rule */
    uint32_t _end_canary;
} exl2_vision_desc;

typedef struct exl2_card {     /* a GPU that computes a model, or some of its layers */
    uint32_t device;           /* index in exl2_engine_desc.devices */
    uint64_t bytes_max;        /* most bytes of this model there; 0 = what is free. BUDGET: all have too little room */
    float share;               /* its part of the weights, relative to the shares of the other cards; 0 = by the speed
                                  of its memory, and of columns equal parts. Set it for all cards or for none */
} exl2_card;

/* How several cards share a model (section 3). */
typedef enum exl2_split {
    EXL2_SPLIT_LAYERS,         /* each has some of the layers */
    EXL2_SPLIT_COLUMNS         /* each has some columns of every matrix, and heads: all compute each token together */
} exl2_split;

/* What happens to a model that is larger than its GPU's memory (section 6). */
typedef enum exl2_offload {
    EXL2_OFFLOAD_NONE,         /* it does not load: BUDGET */
    EXL2_OFFLOAD_AUTO          /* the CPU computes MLPs, or experts, of its last layers: of as few as possible */
} exl2_offload;

/* A model folder has config.json, one or more .safetensors files (all are read, or those that
   model.safetensors.index.json names), and, for text, tokenizer.json, tokenizer_config.json (with the chat template; or
   chat_template.jinja) and generation_config.json. Without a tokenizer the model still loads: its jobs use ids. */
typedef struct exl2_model_desc {
    uint32_t _start_canary;
    const char *path;          /* the model folder, UTF-8, at most 1,023 bytes */
    exl2_cache_desc cache;
    uint32_t context_max;      /* tokens per session, at most 16,777,216; 0 = the model's own, but at most 8192 */
    bool text_only;            /* tokenizer, template and config files only: no weights, no jobs; of an architecture
                                  that is not supported, too */
    uint32_t prefill_chunk;    /* tokens per forward pass, at most 65,536; 0 = 1024, on a GPU 2048 for models of 2 GB
                                  and more */
    uint32_t batch_max;        /* sequences per forward pass, at most 1,024; 0 = 16 */
    uint32_t experts_active;   /* experts that a token uses, 1 to all of a layer's; 0 = the model's own number. ARG for
                                  more, and for a model without experts */
    uint32_t lora_max;         /* adapters that may be loaded at once, at most 256; 0 = none */
    uint32_t lora_rank_max;    /* largest rank of an adapter, at most 256; 0 = 64. Work memory grows with it */
    uint32_t steer_max;        /* control vectors that may be open at once, at most 256; 0 = none */
    bool keep_packed;          /* keep a copy of the packed weights in host memory, for exl2_model_park */
    bool grammars;             /* make the grammars' table of tokens while loading, not with the first grammar */
    /* RoPE (section 6). Each is 1 to 1000, or 0 = as the model has it: */
    float rope_scale;          /* positions are divided by this (linear); 1 = plain RoPE, without the scaling of
                                  config.json */
    float rope_alpha;          /* theta is raised for a context about this many times as long (NTK) */
    float yarn_factor;         /* YaRN by this factor; not with rope_scale */
    const exl2_card *cards;    /* [card_count] different GPUs, each with its part of the model, in this order; copied.
                                  NULL = exl2_engine_info.device alone */
    uint32_t card_count;       /* at most EXL2_DEVICES_MAX and, by layers, the number of layers */
    bool split_auto;           /* with card_count 0: the engine chooses the fewest GPUs with room for it (section 3) */
    exl2_split split;          /* COLUMNS needs cards of one kind that reach each other's memory */
    exl2_offload offload;      /* no effect on a model that runs on the CPU */
    uint32_t host_mlps;        /* AUTO: layers, the last ones of each GPU, whose MLPs the CPU computes; 0 = as few as
                                  the caps allow */
    bool host_prompts;         /* AUTO: the CPU computes these MLPs for rows of prompts, too: slow, but they need half
                                  of the host memory (section 6) */
    exl2_vision_desc vision;   /* pictures as input */
    exl2_event_fn on_event;    /* LOAD events; its result is ignored */
    void *user;
    uint32_t _end_canary;
} exl2_model_desc;

typedef struct exl2_rope_info { /* one table of RoPE, as it is computed for context_max */
    const char *kind;          /* "plain", "linear", "llama3", "dynamic", "alpha", "yarn", "longrope" */
    double theta, factor;      /* factor: of its scaling, 1 = none */
} exl2_rope_info;

#define EXL2_LAYERS_MAX 4096   /* of a model */

typedef struct exl2_card_info { /* what lies on one GPU of a model */
    uint32_t device;           /* index in exl2_engine_info.devices */
    uint32_t first_layer, layers;
    uint64_t weight_bytes, cache_bytes, scratch_bytes; /* by columns, a card without heads has room for one: then the
                                  cards' cache_bytes are more than those of exl2_model_info, whose scratch_bytes have
                                  the rest */
    uint32_t host_mlps;        /* number of its last layers whose MLPs the CPU computes */
    bool host_prompts;         /* the CPU computes these MLPs for rows of prompts, too */
    float columns;             /* its share of the columns of these layers, before rounding; 1 = all */
} exl2_card_info;

/* How an embedding is made of the hidden states of a prompt's tokens (section 10). */
typedef enum exl2_embed_pool {
    EXL2_EMBED_OFF,
    EXL2_EMBED_LAST,           /* that of the last token */
    EXL2_EMBED_MEAN,           /* the mean over all tokens */
    EXL2_EMBED_FIRST           /* that of the first token */
} exl2_embed_pool;

typedef struct exl2_model_info { /* constant once the headers are read, but for content_id; its texts are static */
    char arch[64];             /* "LlamaForCausalLM": as config.json names it */
    char norms[64];            /* "RMSNorm before blocks" */
    const char *family;        /* "Gemma 2": whose computation it is */
    const char *format;        /* of attention and MLPs: "exl2", "exl3", "gptq", "awq", "dense" (FP16, BF16, F32) or
                                "mixed" */
    uint32_t dequantized;      /* quantized matrices that the GPU holds as FP16: a block has dense ones, too */
    uint32_t head_dim;
    uint32_t window;           /* tokens that layers with a window look back on; 0 = no layer has one */
    uint32_t windowed[EXL2_LAYERS_MAX / 32]; /* bit i % 32 of word i / 32: layer i has the window */
    exl2_rope_info ropes[2];   /* [rope_count] of all layers; of layers with a window, where that differs */
    uint32_t rope_count;       /* 0: learned positions */
    bool needs_bos;            /* the model writes nonsense unless its text begins with BOS (section 6) */
    bool tower_skipped;        /* a model for pictures, too: vision.images is 0, so its text model alone is loaded */
    bool parallel;             /* attention and MLP read the same input */
    uint32_t vocab, hidden, layers, heads, kv_heads, context_max;
    uint32_t experts, experts_active; /* of a layer, and how many a token uses; 0 = the model has none */
    float bits_per_weight;     /* over all matrices, scales and permutations included */
    uint64_t weight_bytes, cache_bytes, scratch_bytes; /* loading needs their sum */
    const char *tower;         /* "Pixtral": whose pictures it reads; NULL = no tower is read */
    uint64_t tower_bytes;      /* weights of the tower, a part of weight_bytes */
    uint64_t image_bytes;      /* part of scratch_bytes that the tower and pictures need */
    uint64_t device_bytes;     /* part of the sum on GPUs; 0 = the model runs on the CPU */
    uint32_t host_mlps;        /* layers of a model on GPUs whose MLPs the CPU computes (section 6) */
    bool host_prompts;         /* on at least one of its GPUs the CPU computes them for rows of prompts, too */
    uint64_t host_weight_bytes; /* bytes of these MLPs in host memory, a part of weight_bytes; they lie there twice
                                   where the GPU computes rows of prompts */
    exl2_card_info cards[EXL2_DEVICES_MAX]; /* [card_count] */
    uint32_t card_count;       /* 0 = the model runs on the CPU */
    uint64_t cache_bytes_per_token; /* of all layers */
    uint64_t cache_tokens;     /* that the cache holds */
    uint64_t window_tokens;    /* layers with a window keep K and V of so many of them; 0 = of all (section 6) */
    uint64_t window_bytes;     /* part of cache_bytes for these layers; 0 = they keep all */
    uint32_t host_pages;       /* pages of 64 tokens that cache.host_bytes holds; part of scratch_bytes */
    uint64_t pass_bytes;       /* weights that a forward pass of one token reads, as stored in files, without the
                                  embedding and the experts that the token does not use */
    uint64_t row_weights;      /* elements of the matrices of all layers that a row is multiplied with: two operations
                                  each, beside attention and the head */
    exl2_token bos, eos;       /* -1 = none */
    bool has_tokenizer, has_chat_template;
    bool has_head;             /* false: the files have none, and config.json does not say that the embedding is it: the
                                  model makes embeddings, but no text */
    exl2_embed_pool embed_pool; /* how the folder says that embeddings are made (section 10); OFF: it says nothing */
    bool embed_raw;            /* the folder says that embeddings are not divided by their length */
    bool reads_tools, reads_tool_calls; /* the chat template for jobs with tools does (found by rendering); one that
                                   does not drops them without an error, and the job logs a warning */
    uint8_t content_id[16];    /* of config.json and all weights: a saved session fits models with the same id. Zeros
                                  until the weights are loaded, and always with text_only */
} exl2_model_info;

typedef struct exl2_arch_info {
    const char *name, *family; /* the string in config.json's `architectures`; family NULL: not supported */
    const char *reason;        /* why it is not supported; NULL = it is */
    bool golden;               /* the engine's tests compare a model of this name with transformers */
    char differs[256];         /* from Llama: "LayerNorm, RoPE in pairs"; "" = only in names, or not supported */
} exl2_arch_info;

/* [A nb] The architectures that the engine knows, the supported ones first. Returns false, with *out zeroed, if the
   index is too high. A model with another name is read by its model_type, or as Llama, with a warning. */
EXL2_API bool exl2_arch(uint32_t index, exl2_arch_info *out);
/* [E wait] Reads headers (for a GPU also group tables); gives the model's facts and the memory that loading needs.
   The default cache shrinks to what host_bytes_max leaves, down to one context; the sum may still exceed the cap. IO,
   FORMAT, UNSUPPORTED for the files. */
EXL2_API exl2_result exl2_model_measure(exl2_engine *e, const exl2_model_desc *d, exl2_model_info *out);
/* [E nb] Begins a load that exl2_step continues; failures come with the last LOAD event. BUDGET: max_models.
   UNSUPPORTED: `offload` with EXL2_SPLIT_COLUMNS. NO_DEVICE: `cards`, and models run on the CPU. */
EXL2_API exl2_result exl2_model_open(exl2_engine *e, const exl2_model_desc *d, exl2_model *out);
/* [E wait] exl2_model_open, then steps until the model is ready or has failed. Errors as exl2_model_measure, and BUDGET
   when the model exceeds a cap; on a GPU also NO_COMPILER, COMPILE, DEVICE_MEMORY, DEVICE_LOST. A model that failed is
   closed and *out is 0. */
EXL2_API exl2_result exl2_model_load(exl2_engine *e, const exl2_model_desc *d, exl2_model *out);
/* [E nb] PENDING while the model loads, OK when it is ready, IDLE while it is parked, else why it failed, with the
   message for exl2_last_error. It changes after the last LOAD event was delivered. */
EXL2_API exl2_result exl2_model_state(exl2_engine *e, exl2_model m);
/* [E nb] The same as exl2_model_measure gives, once the headers are read, and the content_id once the model is ready;
   zeros before. */
EXL2_API exl2_result exl2_model_get(exl2_engine *e, exl2_model m, exl2_model_info *out);
/* true: [E wait] gives back the memory of the model's weights and cache; its jobs and sessions stay, and wait. false:
   [E nb] begins to load it again; exl2_step continues, with LOAD events, and then the jobs go on with the same words.
   STATE: it is loading. If it cannot be loaded again it stays parked; the last LOAD event says why. */
EXL2_API exl2_result exl2_model_park(exl2_engine *e, exl2_model m, bool parked);
/* [E wait] Ends its jobs and sessions first; inside a callback STATE. */
EXL2_API exl2_result exl2_model_close(exl2_engine *e, exl2_model m);

/* ---- adapters: LoRA in peft's format (section 6) ---- */

typedef struct exl2_lora_desc {
    uint32_t _start_canary;
    exl2_model model;          /* opened with lora_max */
    const char *path;          /* the adapter's folder, UTF-8: adapter_config.json, adapter_model.safetensors */
    exl2_event_fn on_event;    /* LOAD events; its result is ignored */
    void *user;
    uint32_t _end_canary;
} exl2_lora_desc;

typedef struct exl2_lora_info { /* constant once the headers are read, but for content_id */
    uint8_t content_id[16];    /* of all numbers and what they are for; zeros until the adapter is loaded */
    uint32_t rank_max;         /* the largest rank of a matrix */
    uint32_t matrices;         /* pairs A, B in the file */
    uint64_t bytes;            /* memory of the adapter while it is loaded */
    uint64_t device_bytes;     /* part of it on the GPU */
    char warning[128];         /* "", or what may be wrong with the file: a target that no tensor belongs to */
} exl2_lora_info;

/* [E wait] Reads headers: the adapter's facts and the memory that loading needs. IO, FORMAT, UNSUPPORTED for the files;
   STATE: the model's headers are not read yet, or lora_max is 0. BUDGET: a rank above lora_rank_max. */
EXL2_API exl2_result exl2_lora_measure(exl2_engine *e, const exl2_lora_desc *d, exl2_lora_info *out);
/* [E nb] Begins a load that exl2_step continues beside running jobs; failures come with the last LOAD event. STATE: the
   model is not loaded, is parked, or lora_max is 0. BUDGET: lora_max adapters are open. */
EXL2_API exl2_result exl2_lora_open(exl2_engine *e, const exl2_lora_desc *d, exl2_lora *out);
/* [E wait] exl2_lora_open, then steps until the adapter is ready or has failed. Errors as exl2_lora_measure, and BUDGET
   when its memory exceeds a cap. An adapter that failed is closed and *out is 0. */
EXL2_API exl2_result exl2_lora_load(exl2_engine *e, const exl2_lora_desc *d, exl2_lora *out);
/* [E nb] PENDING while the adapter loads, OK when it is ready, else why it failed, with the message for
   exl2_last_error. */
EXL2_API exl2_result exl2_lora_state(exl2_engine *e, exl2_lora l);
/* [E nb] The same as exl2_lora_measure gives, once the headers are read; zeros before. */
EXL2_API exl2_result exl2_lora_get(exl2_engine *e, exl2_lora l, exl2_lora_info *out);
/* [E nb] The handle is stale at once; the adapter is freed after its last job. K and V of its texts are not found any
   more, also not by an adapter that is loaded from the same folder. */
EXL2_API exl2_result exl2_lora_close(exl2_engine *e, exl2_lora l);

/* ---- control vectors (section 6) ---- */

typedef struct exl2_steer_desc {
    uint32_t _start_canary;
    exl2_model model;          /* opened with steer_max */
    const char *path;          /* a file, UTF-8: .safetensors, or else GGUF as llama.cpp has it; its tensors direction.N
                                  are the vectors of the layers N, from 0. NULL: the vectors are those of `values` */
    const float *values;       /* [layer_count, hidden] of the layers from first_layer on; copied */
    uint32_t first_layer, layer_count;
    uint32_t _end_canary;
} exl2_steer_desc;

typedef struct exl2_steer_info {
    uint8_t content_id[16];    /* of all values and their layers */
    uint32_t layers;           /* number of layers with a vector that is not 0 */
    float largest;             /* L2 norm of the longest of these vectors */
    uint64_t bytes;            /* its part of the memory that exl2_model_desc.steer_max has planned */
} exl2_steer_info;

/* [E wait] Makes a control vector of a file or of arrays. STATE: the model is not ready, or steer_max is 0. BUDGET: as
   many as steer_max are open, or in use by jobs. IO, FORMAT, UNSUPPORTED for the file; ARG for values. */
EXL2_API exl2_result exl2_steer_make(exl2_engine *e, const exl2_steer_desc *d, exl2_steer *out);
/* [E nb] The control vector's content_id, and the number and norms of its vectors. */
EXL2_API exl2_result exl2_steer_get(exl2_engine *e, exl2_steer s, exl2_steer_info *out);
/* [E nb] The handle is stale at once; jobs that have it go on with it. A model's end closes those that are open. */
EXL2_API exl2_result exl2_steer_close(exl2_engine *e, exl2_steer s);

/* ---- 7. text: usable while a model loads, once its tokenizer is ready ---------------------------------------- */

typedef struct exl2_message {
    const char *role, *text;   /* "system", "user", "assistant", "tool"; text NULL: undefined for the template */
    const char *name;          /* name of the speaker or the tool; NULL, here and below: undefined for the template */
    const char *reasoning;     /* `reasoning_content`, which some templates call `thinking` */
    const char *tool_calls;    /* JSON array of {"id", "type", "function": {"name", "arguments": {..}}} */
    const char *tool_call_id;  /* the call that this "tool" message answers */
    const char *fields;        /* JSON object: any other key, or content in parts; overrides all members above. With
                                  it, text and role may be NULL, which then has no meaning */
    const exl2_image *images;  /* [image_count] pictures: they stand before `text`; with content in parts in `fields`,
                                  the k-th part of type "image", "image_url" or "video" is the k-th picture */
    size_t image_count;
} exl2_message;

/* How a chat template renders messages. Each call with template_text parses it again, in memory that is freed before
   the call returns. For every turn of a game, put the template into the model's folder instead, as chat_template.jinja.

   Templates are Jinja as transformers runs it (trim_blocks, lstrip_blocks, a sandbox). Supported are:
     statements   if, for, set, macro, call, filter, with, raw, break, continue
     filters, tests and methods of strings, lists and dicts: all that published templates use
     functions    namespace, range, dict, cycler, joiner, raise_exception, strftime_now
     integers     of any size: beyond 64 bits they are printed, compared and written as JSON, not computed with
   Anything else is rejected with line and column: a filter, test, method or function when it runs, the rest at parsing;
   also, as in Jinja, a filter or test that Jinja does not have, outside of `if`.

   A template is not trusted. Its source (512 KiB), nesting (64), macros inside each other (32), work and memory (64
   MiB) have limits, and exceeding one is an error. */
typedef struct exl2_chat_desc { /* zeroed: the model's own template, no tools, the clock */
    uint32_t _start_canary;
    const char *template_text; /* a Jinja template instead of the model's; NULL = the model's */
    const char *template_name; /* one of the model's; NULL: "tool_use" with tools, if there is one, else "default" */
    const char *tools, *documents; /* JSON arrays for the template; NULL = none */
    const char *variables;     /* JSON object: more variables, such as {"enable_thinking": false} */
    const char *special_tokens; /* JSON object instead of the model's bos_token, eos_token, unk_token, pad_token; keys
                                  that it lacks are undefined. The only text here that may contain markers */
    const char *now;           /* "YYYY-MM-DD HH:MM:SS" for strftime_now; NULL = the local clock */
    bool close_reply;          /* render without the opening of a reply */
    bool begun_reply;          /* the last message is the beginning of the reply, which the job continues (section 7);
                                  close_reply is not read then */
    uint32_t _end_canary;
} exl2_chat_desc;

/* BOS comes before raw text
     - where tokenizer_config.json says so (add_bos_token);
     - where it does not say: if the post-processor of tokenizer.json adds one;
     - else if the model has one (config.json, tokenizer_config.json), unless the text of BOS is in the chat
       template, which then opens turns with it.
   A job's prompt that begins with BOS gets no second one (exl2_tokenize adds one, as the tokenizers library does), nor
   does a prompt that continues a session. */
typedef enum exl2_text_flags {
    EXL2_TEXT_NO_BOS = 1,      /* tokenize: do not add BOS before the text */
    EXL2_TEXT_PLAIN = 2,       /* tokenize: markers such as <|end|> are plain text */
    EXL2_TEXT_SKIP_MARKERS = 4, /* detokenize: leave special tokens out */
    EXL2_TEXT_BYTES = 8,       /* detokenize: the tokens' own bytes: parts of characters are not replaced, and a space
                                  at the beginning is not stripped */
    EXL2_TEXT_END = 16         /* tokenize: add what the tokenizer's post-processor puts after a text, if it does; after
                                  a prompt's text, not after messages */
} exl2_text_flags;

/* What a model reads before it writes: messages, perhaps with a text after them; or a text; or ids. None of them: a job
   continues the session's history. */
typedef struct exl2_prompt {
    const char *text;          /* UTF-8. Alone: appended to the session. With messages: what the reply begins with,
                                  right after its opening; no event repeats it, and no grammar counts it */
    size_t text_bytes;         /* 0 = NUL-terminated */
    const exl2_token *tokens;  /* ids, appended to the session */
    size_t token_count;
    const exl2_message *messages; /* the whole conversation, for the chat template */
    size_t message_count;
    uint32_t flags;            /* exl2_text_flags for text */
    const exl2_image *images;  /* [image_count] pictures of text or tokens: the k-th mark of the model's family is the
                                  k-th picture; a text without marks has them before it (section 13) */
    size_t image_count;
} exl2_prompt;

/* [E nb] Text -> ids. *need: their number. To get only that, pass NULL for out and 0 for cap (OK). Invalid UTF-8 is
   read as U+FFFD. TOO_SMALL: cap is less than *need. STATE: the model has no tokenizer, or has not read it yet. FORMAT:
   its normalizer makes the text more than 16 times as long (no published one does). */
EXL2_API exl2_result exl2_tokenize(exl2_engine *e, exl2_model m, const char *text, size_t bytes, uint32_t flags,
                                   exl2_token *out, size_t cap, size_t *need);
/* [E nb] Ids -> UTF-8, followed by a NUL that *need does not count. Invalid UTF-8 becomes U+FFFD, unless
   EXL2_TEXT_BYTES asks for the bytes as they are. Errors as exl2_tokenize. */
EXL2_API exl2_result exl2_detokenize(exl2_engine *e, exl2_model m, const exl2_token *t, size_t n, uint32_t flags,
                                     char *out, size_t cap, size_t *need);
/* [E nb] What the chat template makes of the messages; out, cap, *need as exl2_detokenize. UNSUPPORTED: the template
   has something unsupported, named with line and column. FORMAT: the template is malformed. ARG: the template itself
   rejects the messages, JSON is invalid, or the model has no template_name of that name. BUDGET: rendering exceeds a
   limit. */
EXL2_API exl2_result exl2_chat_render(exl2_engine *e, exl2_model m, const exl2_message *msgs, size_t n,
                                      const exl2_chat_desc *d, char *out, size_t cap, size_t *need);
/* [E nb] A prompt of messages or text -> ids: those that a job in an empty session would have. d: how the messages are
   rendered, NULL for the defaults. out, cap, *need as exl2_tokenize; errors as exl2_chat_render and exl2_tokenize. ARG
   also for a prompt of tokens, or of nothing. */
EXL2_API exl2_result exl2_chat_tokenize(exl2_engine *e, exl2_model m, const exl2_prompt *prompt,
                                        const exl2_chat_desc *d, exl2_token *out, size_t cap, size_t *need);
/* [A nb] Reads one value from JSON that is still being written and may end anywhere. path is a JSON Pointer (RFC 6901):
   "/say", "/action/target", "/lines/0"; "" is the whole text. A string gives its text so far, unescaped; another value
   gives its JSON so far. The output is always whole code points: an escape, a surrogate pair or a UTF-8 sequence that
   is cut is left out until it is complete, and a lone surrogate is U+FFFD. So the output for longer JSON always begins
   with the output for shorter JSON. If a name occurs twice in an object, the first one counts.
   *need: bytes of the output, 0 before the value begins. out gets them and a NUL, and may be NULL with cap 0. *whole
   (may be NULL): the value has ended. ARG: path is no JSON Pointer. FORMAT: the text is no beginning of JSON, or nests
   deeper than 256 levels; out has the value as it was before the error. TOO_SMALL: out has what fits. */
EXL2_API exl2_result exl2_json_text(const char *json, size_t bytes, const char *path, char *out, size_t cap,
                                    size_t *need, bool *whole);

/* [A nb] The bytes of a text's first sentence, with the spaces after it; 0 while it may go on. The text is still being
   written and may end anywhere. whole: the text ends here, so its rest is a sentence. The sentences are the same
   however the text came in pieces. Section 7 says where they end. */
EXL2_API size_t exl2_sentence(const char *text, size_t bytes, bool whole);

/* ---- 8. sessions: token histories ---------------------------------------------------------------------------- */

typedef struct exl2_session_info {
    exl2_model model;
    exl2_job busy_with;        /* 0 = free */
    uint32_t tokens, tokens_cached, context_max; /* tokens: in the history; tokens_cached: with K and V */
    uint32_t pages, pages_shared; /* of its job, or of its history in the cache; shared: with other sessions */
    bool resumes;              /* restored with a job that exl2_job_desc.resume goes on with */
    uint32_t pictures_missing; /* pictures of the history whose rows and pixels are gone: make them again */
} exl2_session_info;

typedef enum exl2_save_flags {
    EXL2_SAVE_KV = 1,          /* with K and V, so that nothing is computed again; many bytes */
    EXL2_SAVE_IMAGES = 2       /* with pictures: their pixels as the tower sees them, or their rows if that is less */
} exl2_save_flags;

/* [E nb] An empty history. STATE: the model is not ready. BUDGET: max_sessions. */
EXL2_API exl2_result exl2_session_open(exl2_engine *e, exl2_model m, exl2_session *out);
/* [E nb] Another session with the same history. A fork of a busy session has what was delivered so far. */
EXL2_API exl2_result exl2_session_fork(exl2_engine *e, exl2_session s, exl2_session *out);
/* [E nb] Keeps the first `tokens` of the history. STATE: a job is using it. ARG: the history is shorter. */
EXL2_API exl2_result exl2_session_rewind(exl2_engine *e, exl2_session s, uint32_t tokens);
/* [E nb] Takes `count` tokens from token `from` on out of the history. What followed them is computed again by the next
   job. STATE: a job is using it. ARG: the history is shorter. */
EXL2_API exl2_result exl2_session_trim(exl2_engine *e, exl2_session s, uint32_t from, uint32_t count);
/* [E nb] The size of its history, and whether it is busy. */
EXL2_API exl2_result exl2_session_get(exl2_engine *e, exl2_session s, exl2_session_info *out);
/* [E nb] The history's ids; *need: their number. TOO_SMALL when cap is less; OK when out is NULL and cap 0. */
EXL2_API exl2_result exl2_session_tokens(exl2_engine *e, exl2_session s, exl2_token *out, size_t cap,
                                         size_t *need);
/* [E wait] Writes the session as bytes: its history and, while a job runs, what exl2_job_desc.resume needs to go on
   with it. *need: their number. TOO_SMALL when cap is less; OK when out is NULL and cap 0. flags: exl2_save_flags.
   STATE: a job with guidance is running, or one with stop strings, banned strings, mirostat or adaptive-p is paused
   before text that the worker has made, or any within a character. Errors of the device with EXL2_SAVE_KV. */
EXL2_API exl2_result exl2_session_save(exl2_engine *e, exl2_session s, uint32_t flags, void *out, size_t cap,
                                       size_t *need);
/* [E wait] Replaces the history of a free session by a saved one. Checks all bytes before anything changes. STATE: a
   job is using it. ARG: saved with another model. CONTEXT_FULL: longer than this session's context. FORMAT: damaged.
   UNSUPPORTED: of a later format. Errors of the device: the history is restored, K and V are not. */
EXL2_API exl2_result exl2_session_restore(exl2_engine *e, exl2_session s, const void *data, size_t bytes);
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

#define EXL2_OFF (-1000)       /* turns one setting off; 0 keeps the preset's value */

/* A token is sampled in this order:
     1. grammar and allow
     2. penalties (repeat, presence, frequency), bias and ban, DRY
     3. temperature and smoothing
     4. top-k, top-p, top-a, min-p, tail-free, typical, mirostat
     5. dynamic temperature, or the temperature with temperature_last
     6. XTC
     7. adaptive-p
     8. the choice by a random number, skewed or not
   Each filter sees the probabilities that the filter before it left, scaled to a sum of 1, and leaves at least one
   token. Lists are token ids. A job's lists, biases and stops share 8 KiB. */
typedef struct exl2_sampler_desc {
    uint32_t _start_canary;
    exl2_preset preset;
    bool greedy;               /* the likeliest token, as with EXL2_PRESET_GREEDY; `preset` is then ignored */
    uint64_t seed;             /* 0 = a random seed; exl2_job_stats has the seed that was used */
    int32_t top_k;             /* keep the k likeliest tokens */
    float temperature;         /* logits are divided by it; 0 = the preset's (for temperature 0 set greedy) */
    float top_p;               /* keep the likeliest tokens that together reach this probability */
    float min_p;               /* keep tokens with at least this fraction of the highest probability */
    float top_a;               /* keep tokens with at least this times the square of the highest probability */
    float tail_free;           /* keep tokens until this share of the summed second differences of the sorted
                                  probabilities (tail-free sampling) */
    float typical;             /* keep tokens whose surprise is nearest to the mean, up to this probability */
    float smoothing;           /* subtract from each logit this times the square of its distance to the top */
    float skew;                /* below 0: favours likely tokens; above 0: favours unlikely ones */
    bool temperature_last;     /* apply the temperature after the filters instead of before them */
    float dynamic_min, dynamic_max; /* temperature after the filters, by the entropy; on if max > min */
    float dynamic_exponent;    /* default 1 */
    float repeat_penalty;      /* logits of tokens in the range: divided by it if positive, else multiplied */
    float frequency_penalty;   /* subtracted from the logit for each occurrence in the range */
    float presence_penalty;    /* subtracted from the logit if the token occurs in the range */
    int32_t penalty_range;     /* newest tokens of the history that count; -1 = all */
    int32_t penalty_decay;     /* tokens before the range over which penalties fade */
    float dry_multiplier;      /* DRY: penalty of a token that extends a repetition of dry_allowed tokens */
    float dry_base;            /* default 1.75: factor of the penalty for each further repeated token */
    int32_t dry_allowed;       /* default 2 */
    int32_t dry_range;         /* newest tokens of the history that count; -1 = all */
    int32_t dry_match_max;     /* default 20: longer repetitions count as that many tokens */
    const char *const *dry_breakers; /* tokens that contain one of these texts end a repetition */
    uint32_t dry_breaker_count;      /* 0 = . , ! ? < > [ ] ( ) { } " newline, tab, and added tokens */
    float xtc_probability;     /* XTC: chance that all tokens of at least xtc_threshold except the least likely
                                  of them are removed */
    float xtc_threshold;       /* default 0.1 */
    const exl2_token *xtc_keep; /* never removed; none given: tokens with a newline, and added tokens */
    uint32_t xtc_keep_count;
    float mirostat_tau;        /* mirostat 2: the target surprise, in bits */
    float mirostat_eta;        /* default 0.1: learning rate */
    float adaptive_target;     /* adaptive-p: tokens whose probability is near this one are favoured (section 9); not
                                  with mirostat */
    float adaptive_decay;      /* default 0.9, at most 0.99: share of the mean of earlier tokens that a token leaves;
                                  EXL2_OFF: it leaves nothing of them */
    const exl2_bias *bias;
    uint32_t bias_count;
    const exl2_token *allow;   /* only these tokens can be sampled */
    uint32_t allow_count;      /* 0 = all */
    const exl2_token *ban;     /* these tokens are never sampled */
    uint32_t ban_count;
    uint32_t _end_canary;
} exl2_sampler_desc;

/* [E nb] The settings that a job would use: presets are resolved, and no number is 0. ARG: out of range. */
EXL2_API exl2_result exl2_sampler_resolve(exl2_engine *e, exl2_model m, const exl2_sampler_desc *d,
                                          exl2_sampler_desc *out);

/* JSON_SCHEMA: any draft from 4 on, nested up to 256 levels deep. One space may follow ':' and ','. Keywords:
     any type    type (also several; without it, the types that the other keywords are about), nullable, enum, const
     objects     properties (in this order; those not in `required` may be left out), required, additionalProperties
                 (absent: none, but anything where there are no properties), patternProperties, propertyNames,
                 minProperties, maxProperties (up to 256), dependentRequired and dependencies with lists of names
     arrays      items, prefixItems (absent items: none after them), additionalItems, minItems, maxItems, uniqueItems
     strings     minLength, maxLength (code points), pattern (unanchored; look-ahead at its beginning), format
     numbers     minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf (up to 1,000 / 10^n, or 10^n)
     schemas     anyOf, oneOf, allOf, not, and $ref to a path, $anchor or $id of the same document
     where the schema decides it: unevaluatedProperties
   Formats: date-time, date, time, duration, uuid, email, hostname, ipv4, ipv6, uri, uri-reference, uri-template,
   json-pointer, regex, and the idn- and iri- forms.

   Every text that a job writes fits the schema, but not every text that fits can be written. Keys come in the schema's
   order. Some texts of a format are left out. A string with both a pattern and a length has some hundred characters at
   most. Numbers have at most 15 digits (multiples of more than 16: six), and no exponent in a range. Items under
   uniqueItems are constants (up to six in any order, more in the schema's order), or strings and integers that begin
   with different characters, in ascending order. To satisfy `not`, and to fail the other branches of oneOf,
   the text fails the first of their conditions that can be failed. An object then leaves a member out, or the member's
   value is another constant.

   What cannot be enforced in this way is UNSUPPORTED, named with its place: if with then or else, contains,
   dependentSchemas, $dynamicRef, a $ref to another document, branches that cannot be kept apart.
   Annotations, unknown keywords (x-..., discriminator, contentEncoding) and unknown formats are ignored. With `strict`
   they are rejected, except title, description, default, examples, $schema, $id, id, $comment, $anchor, $vocabulary,
   deprecated, readOnly, writeOnly, $defs, definitions. A name one letter away from a keyword's is always rejected.

   REGEX: what JavaScript and Python agree on, without look-around, back references, \b, and ^ $ inside the expression.
   EBNF as llama.cpp has it: name ::= "text" [class] (a | b)* {2,5} # comment; without left recursion.

   enum, choices and alternatives may have thousands of values. A grammar may be ambiguous: all parses of the text so
   far are kept, up to 4,096, or up to the number of the grammar's steps if that is higher. A token that would lead to
   more is not allowed. A job that can neither end nor continue without such a token ends with BUDGET. */
typedef enum exl2_grammar_kind {
    EXL2_GRAMMAR_JSON,         /* any JSON value; source is ignored */
    EXL2_GRAMMAR_JSON_SCHEMA,
    EXL2_GRAMMAR_REGEX,        /* the whole text matches the expression */
    EXL2_GRAMMAR_EBNF,         /* GBNF, name ::= ...; the start is the rule root, or else the first rule */
    EXL2_GRAMMAR_CHOICES,      /* one of the lines of source */
    EXL2_GRAMMAR_CUSTOM        /* calls `allow` before each token */
} exl2_grammar_kind;

typedef struct exl2_grammar_desc {
    uint32_t _start_canary;
    exl2_model model;
    exl2_grammar_kind kind;
    const char *source;        /* at most 1 MiB */
    size_t source_bytes;       /* 0 = NUL-terminated */
    uint32_t cache_bytes;      /* memory for states and masks, allocated now and never in a step; 0 = 4 MiB; at least
                                  1 MiB is used */
    bool strict;               /* JSON_SCHEMA: UNSUPPORTED for a keyword or format that would be ignored */
    bool prefer_end;           /* the text ends as soon as it may; not with CUSTOM */
    /* CUSTOM: sets bit t % 32 of bits[t / 32] for each token t that may follow the n tokens `said` by the job; all
       bits are 0 before. false: the text ends here. */
    bool (*allow)(void *user, exl2_job job, const exl2_token *said, uint32_t n, uint32_t *bits, uint32_t words);
    void *user;
    uint32_t _end_canary;
} exl2_grammar_desc;

/* [E nb] Compiles a grammar, for jobs of its model, up to 256 at a time. FORMAT, UNSUPPORTED with line and column of
   the source. STATE: the tokenizer is not ready. BUDGET: the grammar is too large, its shortest text is too long, its
   texts can begin in too many ways, or max_sessions grammars are open. */
EXL2_API exl2_result exl2_grammar_make(exl2_engine *e, const exl2_grammar_desc *d, exl2_grammar *out);
/* [E nb] The handle is stale at once; the grammar is freed after its last job. */
EXL2_API exl2_result exl2_grammar_close(exl2_engine *e, exl2_grammar g);

/* ---- 10. jobs: one generation --------------------------------------------------------------------------------- */

/* Gets the model's logits in host memory, before any sampler setting applies, and may edit them. The edited logits are
   sampled, and log-probabilities come from them. */
typedef void (*exl2_logits_fn)(void *user, exl2_job job, float *logits, uint32_t vocab);

/* Gets a sampled token, and gives the one that joins the history in its place. position: tokens of the session's
   history before it. Section 10 says more. */
typedef exl2_token (*exl2_token_fn)(void *user, exl2_job job, uint32_t position, exl2_token token);

/* How a job gets several tokens from one pass. The text, its tokens and its end are the same with any of these
   settings; only the times differ. */
typedef struct exl2_draft_desc {
    uint32_t _start_canary;
    exl2_model model;          /* a smaller model of the same vocabulary guesses the next tokens; id 0 = none */
    uint32_t tokens;           /* guesses in a pass, at most; 0 = as many as pay, up to 15 */
    bool ngram;                /* guess the next tokens from what followed the last ones before (section 10) */
    bool one_by_one;           /* sample every token in a pass of its own, forced ones, too; no guesses */
    uint32_t _end_canary;
} exl2_draft_desc;

/* With pool the job makes a vector of its prompt and samples nothing: one event EXL2_EVENT_EMBEDDING, then DONE with
   LENGTH. Section 10 says more. ARG with settings that only text has (max_tokens, min_tokens, resume, score_prompt,
   heal_prompt, grammar, draft, alts_per_token, guidance, on_logits, on_token), for a layer that the model does not
   have, and for an empty prompt. UNSUPPORTED for a layer before the last one on a GPU, and for a model with more than
   12,160 values. UNSUPPORTED, too, where the folder asks for a pooling or a module that is not computed; the message
   names it. */
typedef struct exl2_embed_desc {
    uint32_t _start_canary;
    exl2_embed_pool pool;      /* OFF = no embedding */
    bool raw;                  /* not divided by its L2 norm */
    uint32_t layer;            /* 0 = the hidden states after the final norm, which the head multiplies; n = the
                                  residual after block n, from 1 */
    uint32_t _end_canary;
} exl2_embed_desc;

#define EXL2_JOB_LORAS 8       /* adapters of a job, at most */
#define EXL2_JOB_GRAMMARS 4    /* grammars of exl2_job_desc.grammars, at most */

typedef struct exl2_lora_use { /* an adapter of a job */
    exl2_lora lora;
    float scale;               /* factor of what the adapter adds, -100 to 100; 0 = 1, EXL2_OFF: it is left out */
} exl2_lora_use;

#define EXL2_JOB_STEERS 4      /* control vectors of a job, at most */

typedef struct exl2_steer_use { /* a control vector of a job */
    exl2_steer steer;
    float factor;              /* of its vectors, -100 to 100; 0 = 1, EXL2_OFF: it is left out */
} exl2_steer_use;

/* ban_strings: the text must not contain them, ASCII letters in either case. Text in which a banned string might begin
   waits, in whole tokens. When a banned string is complete, the history is rewound to the token in which it begins, and
   a different token is sampled there. After 64 tokens that all lead to one banned string (256 rewinds in all) the
   string is shown and counted.

   heal_prompt: a prompt may end within a word. Its last token may become a longer one that begins as it does; new text
   continues after the prompt's. The new token replaces the old one in the history. A TEXT event delivers it and
   stats.new_tokens counts it, but min_tokens and max_tokens do not, so that new_tokens is at most max_tokens + 1.
   heal_prompt needs a history of at least two tokens, and a last one that is no marker.

   With a grammar, a banned string is also shown if all tokens that the grammar allows there were tried. The text of a
   healed token that is the prompt's is no part of the grammar's text. A CUSTOM grammar cannot be used with heal_prompt,
   and with ban_strings its `allow` may be called again for fewer tokens.

   guidance: tokens are sampled from s log p + (1 - s) log n, where s is the guidance, p are the prompt's probabilities
   and n those of a negative prompt. The negative prompt continues with the same tokens in a session of its own. Above 1
   the text moves away from the negative prompt, below 1 towards it. Guidance costs two of max_jobs, two sequences of a
   pass, and memory for a row of logits, allocated at the start; the CPU samples.

   Log-probabilities and alternatives come from the logits after guidance and on_logits. */
typedef struct exl2_job_desc {
    uint32_t _start_canary;
    exl2_model model;          /* one-shot: the job gets a session of its own */
    exl2_session session;      /* or continue this session, which is busy until DONE */
    exl2_prompt prompt;
    exl2_chat_desc chat;       /* how the messages of both prompts are rendered */
    uint32_t max_tokens;       /* 0 = 512, or what is left of the context */
    uint32_t min_tokens;       /* no end token or stop token before this many */
    uint32_t reserve;          /* pages are promised for so many new tokens at a time; 0 = for max_tokens (section 6) */
    bool resume;               /* go on with the job of a restored session: same desc, but no prompt */
    bool prefill_only;         /* the job ends when the prompt is in the cache */
    bool score_prompt;         /* PREFILL events carry log-probabilities of the prompt's tokens */
    bool show_markers;         /* special tokens appear in the text */
    bool heal_prompt;          /* the prompt's last token may grow: its text is kept */
    exl2_sampler_desc sampler;
    const exl2_lora_use *loras; /* adapters, in any order, each once; both sequences of guidance have them */
    uint32_t lora_count;       /* at most EXL2_JOB_LORAS; 0 = the model alone */
    const exl2_steer_use *steers; /* control vectors, in any order, each once; for both sequences of guidance, too */
    uint32_t steer_count;      /* at most EXL2_JOB_STEERS; 0 = none */
    exl2_grammar grammar;      /* what the text may be; id 0 = anything */
    const exl2_grammar *grammars; /* more of them: the text fits them all and `grammar`, too; in any order; copied */
    uint32_t grammar_count;    /* at most EXL2_JOB_GRAMMARS */
    exl2_draft_desc draft;
    exl2_embed_desc embed;     /* the prompt becomes a vector; no text */
    const char *const *stop_strings; /* strings that end the text */
    uint32_t stop_string_count;
    const char *const *ban_strings; /* strings that must not be in the text */
    uint32_t ban_string_count;
    const exl2_token *stop_tokens; /* tokens that end the text */
    uint32_t stop_token_count;
    uint32_t loop_stop;        /* ends the text when its last tokens, 1 to 64 of them, came this many times in a row and
                                  are 32 or more together; 0 = off, else at least 2 */
    uint32_t alts_per_token;   /* likeliest tokens in events; at most EXL2_ALTS_MAX */
    float guidance;            /* classifier-free guidance away from a negative prompt; 0 = off, 1 = no effect */
    exl2_session negative_session; /* gets the same tokens, busy until DONE; 0 = a session of the job's own */
    exl2_prompt negative_prompt;
    int32_t priority;          /* higher first; ties in order of start */
    exl2_logits_fn on_logits;  /* called before each token is sampled */
    exl2_token_fn on_token;    /* called after; may replace the token */
    exl2_event_fn on_event;    /* NULL: events wait for exl2_next_event */
    void *user;
    uint32_t _end_canary;
} exl2_job_desc;               /* copied in full: its strings and arrays are not used after exl2_job_start */

#define EXL2_ALTS_MAX 64

/* QUEUED: the job waits for its start, or was preempted. */
typedef enum exl2_job_state { EXL2_JOB_QUEUED, EXL2_JOB_PREFILL, EXL2_JOB_DECODE, EXL2_JOB_PAUSED } exl2_job_state;

typedef struct exl2_job_info {
    exl2_job_state state;
    exl2_session session;
    exl2_job_stats stats;
} exl2_job_info;

typedef struct exl2_job_size { /* what a job would need in the present state of its session and the cache */
    uint32_t prompt_tokens, reused_tokens; /* as in exl2_job_stats */
    uint32_t max_tokens;       /* largest number of new tokens */
    uint32_t context_tokens, context_max; /* the history with all new tokens; the session's limit */
    uint32_t pages_needed, pages_free; /* of 64 tokens, with guidance for both sequences; free: neither in use nor
                                          promised. A job waits while pages_needed is more than pages_free */
} exl2_job_size;

/* [E nb] Queues a job, which ends in exactly one DONE; then the handle is stale. ARG, STATE, STALE for the desc and its
   session; CONTEXT_FULL, BUDGET when the job can never fit, or no text of its grammar fits into max_tokens; errors of
   the chat template as exl2_chat_render. After a failure nothing has changed. out may be NULL. */
EXL2_API exl2_result exl2_job_start(exl2_engine *e, const exl2_job_desc *d, exl2_job *out);
/* [E nb] What exl2_job_start would return for this desc now, and what the job would need; starts and changes nothing.
   With CONTEXT_FULL and BUDGET *out still has what is known: the prompt's tokens, and the context for them. */
EXL2_API exl2_result exl2_job_measure(exl2_engine *e, const exl2_job_desc *d, exl2_job_size *out);
/* [E wait] exl2_job_start, then steps until DONE; gives its result. Other jobs continue meanwhile. STATE: another
   job, named by its handle, has the place in the batch or the KV pages but is paused or waits for exl2_next_event, and
   nothing else can advance. If this job itself is paused, the call waits until another thread or a callback resumes
   it. */
EXL2_API exl2_result exl2_generate(exl2_engine *e, const exl2_job_desc *d);
/* [A nb] DONE follows in the next step. The history keeps what was delivered. */
EXL2_API exl2_result exl2_job_cancel(exl2_engine *e, exl2_job j);
/* [E nb] Another priority, from the next pass on. */
EXL2_API exl2_result exl2_job_priority(exl2_engine *e, exl2_job j, int32_t priority);
/* [A nb] The job's state, session and statistics so far. */
EXL2_API exl2_result exl2_job_get(exl2_engine *e, exl2_job j, exl2_job_info *out);
/* [A nb] true: the job joins no pass and keeps its pages, unless a job of a higher priority preempts it; a queued job
   stays queued. false: the job continues. */
EXL2_API exl2_result exl2_job_pause(exl2_engine *e, exl2_job j, bool paused);

/* ---- 11. kernels, for shipping without NVRTC ------------------------------------------------------------------- */

/* Architectures: 75 = RTX 20, 80 = A100, 86 = RTX 30, 89 = RTX 40, 90 = H100 and H200, 100 = B200, 120 = RTX 50. */
typedef struct exl2_kernel_build_desc {
    uint32_t _start_canary;
    const uint32_t *archs;     /* 89 = compute capability 8.9 */
    uint32_t arch_count;
    bool converter;            /* those of exl2_convert, too; in a build with EXL2_CONVERT */
    const char *nvrtc_path;    /* NULL or "" = system search; UTF-8 */
    exl2_kernel_cache into;    /* what its load finds, which may be NULL, is not compiled again */
    exl2_allocator allocator;
    exl2_logger log;           /* INFO: one line per module */
    exl2_parallel parallel;    /* compiles modules in parallel */
    exl2_error *error;         /* optional: filled when it fails */
    uint32_t _end_canary;
} exl2_kernel_build_desc;

/* [A wait] Compiles every kernel of the engine for each of the architectures; needs no GPU and no engine. NO_COMPILER,
   COMPILE; UNSUPPORTED for an architecture that this NVRTC cannot compile machine code for. Entries that were stored
   before a failure are good. */
EXL2_API exl2_result exl2_kernels_build(const exl2_kernel_build_desc *d);

/* ---- 13. pictures ---------------------------------------------------------------------------------------------- */

typedef enum exl2_pixels {     /* bytes of a pixel, in their order in memory */
    EXL2_PIXELS_RGB8,
    EXL2_PIXELS_RGBA8,         /* composed over white */
    EXL2_PIXELS_BGRA8,
    EXL2_PIXELS_RGBX8,         /* the fourth byte is not read: what render targets hold */
    EXL2_PIXELS_BGRX8,
    EXL2_PIXELS_GRAY8
} exl2_pixels;

typedef struct exl2_image_desc {
    uint32_t _start_canary;
    exl2_model model;
    exl2_pixels format;
    uint32_t width, height;
    int64_t stride;            /* bytes from a line to the next one; 0 = tight; negative: the last line comes first in
                                  memory, where `pixels` points to */
    const void *pixels;        /* copied by the call; of a video the frames one after the other, each of them with
                                  height times stride bytes */
    uint32_t frames;           /* 0: a picture; else a video of so many frames of one size */
    double fps;                /* of a video: its frames in a second, those that are given here; 0.001 to 1000 */
    uint32_t max_rows, max_tiles; /* limits below those of exl2_model_desc.vision; 0 = the same */
    exl2_event_fn on_event;    /* IMAGE events; its result is ignored. NULL: they wait for exl2_next_event */
    void *user;
    bool silent;               /* no IMAGE events */
    uint32_t _end_canary;
} exl2_image_desc;

/* WAITING: for steps, or for room among the rows. RESIZED: the tower is next. ENCODED: its rows are there. */
typedef enum exl2_image_state { EXL2_IMAGE_WAITING, EXL2_IMAGE_RESIZED, EXL2_IMAGE_ENCODED } exl2_image_state;

typedef struct exl2_image_info {
    exl2_image_state state;
    exl2_result result;        /* why it cannot be encoded, else OK */
    uint8_t id[16];            /* of the pixels and of all that changes the rows; zeros of exl2_image_measure */
    uint32_t width, height;    /* of a tile, as the tower sees it */
    uint32_t tiles;            /* with the whole picture, which is the last one */
    uint32_t grid[3];          /* pairs of frames of a video, else 1; lines and columns of the rows of a tile */
    uint32_t rows;             /* of all tiles: tokens of the text model */
    uint32_t tokens;           /* rows and the family's marks around them, where the picture stands alone */
    uint64_t bytes;            /* of its rows and of its pixels as the tower sees them */
    uint64_t encode_ns;        /* CPU clock: time in the tower so far */
    uint64_t operations;       /* of the products and of attention in the tower and the projector, for all tiles: a
                                  multiplication and an addition are two */
} exl2_image_info;

typedef struct exl2_picture {  /* a picture in a history */
    uint32_t from, count;      /* its places, with the marks between its rows: a cut within them is ARG */
    uint32_t rows;
    bool missing;              /* its rows and pixels are gone */
    uint8_t id[16];
} exl2_picture;

/* [E nb] Makes a picture of the model, to be encoded by exl2_step. Pixels that the model has a picture of already, in
   any format, are that picture. ARG: a size, stride or format that cannot be; a shape that the family rejects. STATE:
   the model is not ready, or has no tower (model_desc.vision.images is 0). BUDGET: more pictures are open than
   vision.images, or wait to be resized than vision.pixels_max allows. */
EXL2_API exl2_result exl2_image_make(exl2_engine *e, const exl2_image_desc *d, exl2_image *out);
/* [E nb] What the picture is, and how far it has come. */
EXL2_API exl2_result exl2_image_get(exl2_engine *e, exl2_image i, exl2_image_info *out);
/* [E nb] The same counts for a picture or video of this size, whose pixels are not read and may be NULL; before the
   model is ready, but once its headers are read, without `tokens`. Errors as exl2_image_make. */
EXL2_API exl2_result exl2_image_measure(exl2_engine *e, const exl2_image_desc *d, exl2_image_info *out);
/* [E nb] What the tower sees: RGB of all tiles, one below the other, the whole picture last, or of all frames;
   [tiles * height, width, 3] or [frames, height, width, 3] bytes of exl2_image_info. *need: their number. STATE: not
   resized yet, or the bytes made room for others. TOO_SMALL when cap is less; OK when out is NULL and cap 0. */
EXL2_API exl2_result exl2_image_seen(exl2_engine *e, exl2_image i, void *out, size_t cap, size_t *need);
/* [E nb] What the text model reads: [rows, 1 + D, W] floats. W is the width of the text model, and D the number of its
   first layers after which a vector is added to the row. cap, *need: floats. Results as exl2_image_seen; STATE: not
   encoded, or evicted. */
EXL2_API exl2_result exl2_image_rows(exl2_engine *e, exl2_image i, float *out, size_t cap, size_t *need);
/* [E nb] The handle is stale at once. Jobs and sessions keep the picture; its rows stay until others need the room. */
EXL2_API exl2_result exl2_image_close(exl2_engine *e, exl2_image i);
/* [E nb] The pictures of the history, in order; *need: their number. TOO_SMALL when cap is less; OK when out is NULL
   and cap 0. */
EXL2_API exl2_result exl2_session_pictures(exl2_engine *e, exl2_session s, exl2_picture *out, size_t cap,
                                           size_t *need);

/* ---- 12. making models: only with EXL2_CONVERT; uses stdio; for tools and build machines, not games ------------ */
#ifdef EXL2_CONVERT
/* What an import made. */
typedef struct exl2_import_info {
    char arch[64];      /* the architecture in config.json, such as "Gemma3ForCausalLM" */
    char from[32];      /* general.architecture of the GGUF file, such as "gemma3" */
    char tokenizer[8];  /* "spm" (SentencePiece), "bpe" or "none" */
    char warning[256];  /* "", or why the folder has no tokenizer, or what is uncertain about it */
    uint32_t tensors;   /* of the GGUF file, all parts together */
    uint32_t bits;      /* of the codes; 16: the folder is dense */
} exl2_import_info;

/* File: GGUF v2 or v3 of a supported architecture, also with experts, with tensors of F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1
   Q8_0 Q2_K..Q6_K IQ4_NL IQ4_XS MXFP4. gguf_path may name any part of a model that is split into files as
   llama-gguf-split does it; the others lie in the same folder. */
typedef struct exl2_import_desc {
    uint32_t _start_canary;
    const char *gguf_path, *out_dir;
    uint32_t bits, group, head_bits; /* 2..8 (not 7); 32, 64 or 128; 0 = 8, 32, 8. bits 16: a dense folder, matrices of
                                        FP16; group and head_bits must be 0 */
    bool no_tokenizer; /* makes a folder without a tokenizer: the only way to import a file whose tokenizer is not
                          supported, which is UNSUPPORTED else */
    bool (*progress)(void *user, float done, const char *what); /* false = cancel */
    void *user;
    exl2_parallel parallel;
    exl2_error *error;
    exl2_import_info *info; /* NULL, or filled in after success */
    uint32_t _end_canary;
} exl2_import_desc;

/* [A wait] GGUF -> an EXL2 or dense folder out_dir, which must not exist or must be empty. A failure leaves no partial
   folder.
   IO, FORMAT, UNSUPPORTED for the file; CANCELLED after progress gave false. */
EXL2_API exl2_result exl2_import_gguf(const exl2_import_desc *d);

/* How exl2_convert works. It runs the model over calibration text, measures how much each matrix matters, gives it bits
   accordingly, and rounds so that the errors of a matrix's outputs are small.

   Memory: it holds the whole dense model in host memory, or reads one layer at a time where host_bytes_max is less. On
   a GPU (backend) everything runs there except file I/O. Results differ a little from those of the CPU, which is the
   reference, and between instruction sets and GPUs. So a work folder belongs to the backend, the CPU's instruction set
   and the GPU (name, compute capability, number of SMs) that it was begun on. With too little device_bytes_max, CUDA
   fails with BUDGET, and AUTO chooses the CPU, as it does where host_bytes_max has no room for pinned memory.

   Text: by default one part is a text of this header, and the model writes the rest; or all of it is the application's
   own files. Text like that of the game is best.

   Before the work begins it checks all numbers of the source, the rate, memory and disks, and on_plan says what it will
   make and need. A GGUF or FP8 source, and one with adapters, becomes a dense folder in the work folder; all but its
   numbers is checked before that. What reads images or sound is copied as it is, and all tensors keep the source's
   names.

   All finished parts are kept in the work folder, so that a killed conversion continues where it was when it is called
   again. If a byte of the source has changed, it is rejected. What is read of the source is compared with hashes of its
   blocks, which need a thousandth of its bytes: no part is made of other bytes, even if they change back later.

   Several rates: with measure_only it writes measurement.json and calibration.json. Given back as measurement_file and
   as a calibration file, they save more than half of the work at every other rate. ExLlamaV2's own measurement.json is
   accepted, too: of its layouts those with the least sum of (1 - accuracy)^2 are chosen. size_bytes, in place of bpw,
   is the size of the whole folder: the head's bits are then chosen with the others.

   exl2_impl/docs/converting.md has rates, their cost, and how to give the text of a game. */

/* Stages of a conversion. On a GPU all but FILES run there. */
typedef enum exl2_convert_stage {
    EXL2_CONVERT_TEXT,     /* reading or writing the text of calibration */
    EXL2_CONVERT_FORWARD,  /* passes over calibration, moments of inputs */
    EXL2_CONVERT_FACTOR,   /* factorizations */
    EXL2_CONVERT_LOSSES,   /* losses of blocks, quantizing for the sensitivities */
    EXL2_CONVERT_PROBE,    /* sensitivities */
    EXL2_CONVERT_QUANTIZE,
    EXL2_CONVERT_FILES,    /* loading, the work folder, the output */
    EXL2_CONVERT_COMPARE,  /* on the rows that were kept out */
    EXL2_CONVERT_STAGES
} exl2_convert_stage;

/* What a conversion did to one matrix. */
typedef struct exl2_convert_matrix {
    const char *name;        /* such as "model.layers.0.mlp.up_proj" */
    uint32_t in, out;
    float bpw;               /* bits per weight, with scales and permutation */
    uint32_t rows[9];        /* input rows with codes of 2 to 8 bits */
    double loss;             /* squared error of the outputs, as a fraction of their squares */
    double kl;               /* predicted KL divergence that it causes; 0 if it was not measured: a head whose bits are
                                given, and with ExLlamaV2's measurement */
} exl2_convert_matrix;

/* What a conversion will make and need: found out before hours of work. */
typedef struct exl2_convert_plan {
    float bpw;               /* of the matrices whose widths are chosen: those of the layers; with size_bytes and
                                head_bits 0 the head's, too */
    float bpw_least, bpw_most; /* what this model can have */
    uint64_t bytes;          /* of all files of out_dir, at most */
    uint64_t bytes_least, bytes_most; /* what they can be */
    uint64_t disk_bytes;     /* out_dir and the work folder together, with the dense copy of a GGUF or FP8 source */
    uint64_t host_bytes;     /* memory at its peak */
    uint64_t device_bytes;   /* GPU memory at its peak; on the CPU 0 */
    bool streamed;           /* the source does not fit host_bytes_max: layers are read one at a time, and for each
                                layer that is measured, all later ones are read again */
    bool own_text;           /* calibration uses text that the model writes, besides that of this header */
} exl2_convert_plan;

typedef struct exl2_convert_info {
    char arch[64];           /* the architecture in config.json */
    float bpw, head_bpw;     /* bits per weight of the layers' matrices, of the head */
    char warning[256];       /* "", or what should be known: a quantized source, matrices that stay FP16, experts that
                                no text has reached, a rate above the most, ExLlamaV2's measurement */
    uint64_t bytes;          /* of the safetensors files */
    uint32_t matrices, rows, length; /* rows: of calibration, `length` tokens each */
    double predicted_kl;
    double kl, top1, nll_before, nll_after; /* on rows kept out of calibration: KL divergence from the source, in nats
                                a token; share of positions with the same likeliest token; negative log-likelihoods */
    exl2_backend backend;    /* CUDA or CPU: where all stages but EXL2_CONVERT_FILES ran */
    uint64_t host_peak, device_peak; /* bytes that were used at most; exl2_convert_plan predicts them */
    double stage_seconds[EXL2_CONVERT_STAGES];
} exl2_convert_info;

/* An adapter (LoRA, in peft's format) that is merged into the source's weights: W + scale factor B A. */
typedef struct exl2_convert_lora {
    const char *folder;      /* with adapter_config.json and adapter_model.safetensors */
    float scale;             /* 0 = 1; EXL2_OFF: it is left out; -100 to 100 */
} exl2_convert_lora;

/* Source: a GGUF file, or a folder that exl2_model_load loads, or one with FP8 weights (E4M3, a scale for all or for
   each block of 128 x 128). Matrices that are EXL2, EXL3, GPTQ or AWQ already are used as they are; those of EXL3 are
   decoded to F32. Blocks (attention, MLP, experts) with inputs that are no multiple of 32 stay FP16. Tensors that the
   text model does not use are left out. */
typedef struct exl2_convert_desc {
    uint32_t _start_canary;
    const char *source_dir, *out_dir;
    const char *work_dir;    /* NULL: out_dir + ".work", which is removed after success. None of the three folders lies
                                in another. A work folder serves one run at a time: a second one gets STATE */
    float bpw;               /* bits per weight of the layers' matrices, from about 2.2 to 8.2: the message of an error
                                has the exact range; above it, the most. With measure_only, 0 = 4: the rate that is
                                tried */
    uint64_t size_bytes;     /* in place of bpw: most bytes of all files of out_dir. Both given: ARG */
    uint32_t head_bits;      /* 2, 3, 4, 5, 6 or 8; 0 = 6, or with size_bytes what the head is worth */
    const char *const *calibration_files; /* .txt; .json with ids or rows of ids; .jsonl with "text" in each line, or
                                with "messages", which the model's chat template renders */
    uint32_t calibration_file_count;      /* 0: rows of a text of this header, and as many, or more where that is
                                short, that the model writes; if it is streamed, the former alone */
    uint32_t rows, length;   /* of calibration; 0 = 64 (of files: at most 128), 512; on a GPU 128, 2048. Fewer if the
                                files hold less; if they hold more, rows are spread over all of them */
    uint64_t seed;           /* of the text that the model writes, or of random ids */
    float rope_scale, rope_alpha, yarn_factor; /* RoPE of all that is computed, as of exl2_model_desc. config.json stays
                                what it is, so load the result with the same */
    bool random_ids;         /* rows of random ids in place of text, for a model without a tokenizer that is only to be
                                measured for speed: what they say of quality is not true of text. Not with files */
    const char *measurement_file; /* NULL, or a measurement.json of the same model: only what is rounded is new.
                                ExLlamaV2's own is accepted, too; with size_bytes it needs head_bits */
    bool measure_only;       /* out_dir gets measurement.json alone, which ExLlamaV2's converter reads, too, and
                                calibration.json: the ids that it was made of, as a calibration file */
    const exl2_convert_lora *loras; /* [lora_count] at most 8, DoRA included: merged in f32, in this order, before
                                calibration, into a dense, FP8 or GGUF source; into another one UNSUPPORTED */
    uint32_t lora_count;
    uint32_t bits;           /* 0, or 16: out_dir becomes a dense folder of the source with its adapters merged (F16;
                                what was BF16 or F32 and has an adapter becomes F32). With 16, bpw and all other
                                settings of quantizing must be 0 */
    bool corrected;          /* each matrix makes up for errors of those before: better at low rates, for about twice
                                the time; needs the default rows, or more. Not with measure_only */
    uint64_t shard_bytes;    /* most bytes of tensors in a file; 0 = 4 GiB. A larger tensor has a file for itself */
    uint64_t host_bytes_max; /* hard cap of memory; 0 = no cap. A model that does not fit is streamed */
    exl2_backend backend;    /* AUTO: a GPU if there is one that can convert this, else the CPU */
    const exl2_device_desc *device; /* which GPU; NULL = the best one */
    uint64_t device_bytes_max; /* hard cap of GPU memory; 0 = no cap. Too little: BUDGET, or with AUTO the CPU */
    exl2_kernel_cache kernel_cache; /* as of exl2_engine_desc */
    const char *nvrtc_path;  /* as of exl2_engine_desc */
    bool (*progress)(void *user, const char *stage, float done); /* false = cancel; the work folder stays */
    void (*on_plan)(void *user, const exl2_convert_plan *plan); /* once, before the work begins; may be NULL */
    void (*on_matrix)(void *user, const exl2_convert_matrix *matrix); /* at the end, once for each; may be NULL */
    void *user;
    exl2_parallel parallel;
    exl2_error *error;
    exl2_convert_info *info; /* NULL, or filled in after success */
    uint32_t _end_canary;
} exl2_convert_desc;

/* [A wait] Dense folder -> an EXL2 folder out_dir, which must not exist or must be empty.
   IO, FORMAT, UNSUPPORTED for files; STATE for a work folder of another conversion, of another source (all its bytes
   count) or that somebody else uses, and for a source that changes meanwhile; CANCELLED. */
EXL2_API exl2_result exl2_convert(const exl2_convert_desc *d);

typedef struct exl2_compare_info {
    uint64_t tokens;         /* positions that were compared */
    double nll_a, nll_b;     /* mean negative log-likelihood of the next token */
    double kl, kl_p99;       /* KL divergence of B from A: mean, and what 99 % of positions do not exceed */
    double top1;             /* share of positions with the same likeliest token */
    uint32_t layers;         /* of exl2_compare_desc.layers that were filled in */
    bool streamed;           /* the models were read layer by layer */
} exl2_compare_info;

typedef struct exl2_compare_layer { /* a layer's part in the difference of two models */
    double error;            /* of the residual after it: norm of B - A by the norm of A, over all positions */
    double kl;               /* mean KL divergence from A of A with this layer of B */
} exl2_compare_layer;

typedef struct exl2_compare_desc {
    uint32_t _start_canary;
    const char *a_dir, *b_dir; /* models with the same vocabulary; b_dir NULL: the likelihoods of A alone */
    const exl2_token *tokens;
    uint64_t token_count;
    uint32_t row;            /* tokens of a sequence: longer texts are cut into several; 0 = 512 */
    float *nll;              /* NULL, or [token_count]: by A, the negative log-likelihood of each token; 0 for the first
                                one of a sequence */
    exl2_compare_layer *layers; /* NULL, or [layer_max]: the layers' part in the difference of two models of the same
                                shape. The time grows with the square of their number */
    uint32_t layer_max;
    uint64_t host_bytes_max; /* hard cap of memory; 0 = no cap. Models that do not fit are read layer by layer, once if
                                there is room for the residuals of all tokens, else for each block of sequences that
                                has room. Too little for one sequence: BUDGET */
    bool (*progress)(void *user, const char *stage, float done); /* false = cancel */
    void *user;
    exl2_parallel parallel;
    exl2_error *error;
    uint32_t _end_canary;
} exl2_compare_desc;

/* [A wait] Runs one or both models over the tokens, on the CPU. TOO_SMALL: A has more than layer_max layers. */
EXL2_API exl2_result exl2_compare(const exl2_compare_desc *d, exl2_compare_info *out);

typedef struct exl2_dump_info {
    uint32_t in, out;        /* multiples of 128: the model's widths, rounded up */
    float bits;              /* of a weight: 1 to 8, 1.5, 2.5 or 3.5 */
    char codebook[8];        /* 3inst, mcg or mul1 */
} exl2_dump_info;

typedef struct exl2_dump_desc {
    uint32_t _start_canary;
    const char *model_dir;
    const char *matrix;      /* its name in the files, such as model.layers.0.mlp.down_proj */
    const char *out_path;    /* of a new file */
    exl2_error *error;
    uint32_t _end_canary;
} exl2_dump_desc;

/* [A wait] Writes a matrix of EXL3 as it is decoded: halves [in, out], little-endian, in the rotated basis, that is,
   before the Hadamard matrices, suh and svh. So its bits can be compared with those of other decoders. ARG: there is no
   such matrix, or there is a file; IO, FORMAT, UNSUPPORTED as when the model is loaded. */
EXL2_API exl2_result exl2_dump(const exl2_dump_desc *d, exl2_dump_info *out);
#endif

#ifdef __cplusplus
}
#endif
#endif /* EXL2_H */

#ifdef EXL2_IMPLEMENTATION
#ifdef __cplusplus
#error "exl2.h: the implementation is C11. Define EXL2_IMPLEMENTATION in one .c file; C++ includes exl2.h without it"
#elif defined(__GNUC__) && (!defined(__STDC_VERSION__) || __STDC_VERSION__ < 201112L) /* prints the message once */
#pragma GCC error "exl2.h: the implementation is C11. Compile this file with -std=c11 or later"
#elif !defined(__STDC_VERSION__) || __STDC_VERSION__ < 201112L
#error "exl2.h: the implementation is C11. Compile this file as C11 or later; MSVC: /std:c11"
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
