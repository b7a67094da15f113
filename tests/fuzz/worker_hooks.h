/* worker_hooks.h: what the fuzzer of the worker gives to the engine: an allocator and files that fail at random, and a
   logger; each hook checks its thread, and that no other hook runs. With findings and random numbers.
   takes: the golden models.
   gives: MUST, finding; draw, chance; the hook_* functions; make_model; check_sentence; CALL, CALL_WORKER. */
#ifndef WORKER_HOOKS_H
#define WORKER_HOOKS_H

#include "../engine/text_model.h"

#include "private/unicode.h"

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/time.h>
#include <unistd.h>

#define HANG_CPU_SECONDS 120u /* a sequence that needs more CPU time, or lasts longer than the other one, is a hang: */
#define HANG_SECONDS 1800u    /* on a busy machine a sequence may get a twentieth of a core */

/* ---- findings and chance ---- */

static uint64_t seed, at;              /* the sequence, and its operation */
static const char *volatile doing = ""; /* the call that runs */

__attribute__((format(printf, 1, 2), noreturn))
static void finding(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("seed %llu, operation %llu, %s: ", (unsigned long long)seed, (unsigned long long)at, doing);
    vprintf(format, arguments);
    printf("\n");
    va_end(arguments);
    fflush(stdout);
    if (getenv("FUZZ_ABORT")) {
        abort();
    }
    _exit(1);
}

#define MUST(condition, ...)      \
    do {                          \
        if (!(condition)) {       \
            finding(__VA_ARGS__); \
        }                         \
    } while (0)

static void on_alarm(int number)
{
    finding(number == SIGPROF ? "no end after %u s of CPU time" : "no end after %u s",
            number == SIGPROF ? HANG_CPU_SECONDS : HANG_SECONDS);
}

static void watch_hang(bool on)
{
    struct itimerval limit = { { 0, 0 }, { on ? HANG_CPU_SECONDS : 0, 0 } };
    setitimer(ITIMER_PROF, &limit, NULL);
    alarm(on ? HANG_SECONDS : 0);
}

/* An assertion failed, and its line was printed: its seed. */
static void on_abort(int number)
{
    (void)number;
    signal(SIGABRT, SIG_DFL);
    fprintf(stderr, "seed %llu, operation %llu, %s\n", (unsigned long long)seed, (unsigned long long)at, doing);
}

static uint64_t main_chance, hook_chance, other_chance; /* of the main thread; of hooks; of the second thread */

static uint32_t draw_of(uint64_t *state, uint32_t below)
{
    uint64_t x = *state += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return (uint32_t)(((x ^ (x >> 31)) >> 32) * below >> 32);
}

static uint32_t draw(uint32_t below)
{
    return draw_of(&main_chance, below);
}

static bool chance(uint32_t one_in)
{
    return draw(one_in) == 0;
}

/* ---- hooks ---- */

static pthread_t main_thread;
static text_model words; /* the tokenizer of all models */
static uint32_t inside, fail_alloc, fail_read, files_open; /* fail_*: one of n; 0 = none. Atomic */
static uint64_t live_bytes;
static bool worker_may_load;

/* While a hook runs, no other one does. */
static void enter(const char *hook)
{
    MUST(exl2__atomic_swap(&inside, 1) == 0, "%s runs beside another hook", hook);
}

static void leave(void)
{
    exl2__atomic_store(&inside, 0);
}

static bool fails(uint32_t *one_in)
{
    uint32_t n = exl2__atomic_load(one_in);
    return n && draw_of(&hook_chance, n) == 0;
}

static void *hook_alloc(void *user, size_t bytes, size_t align, exl2_mem tag)
{
    enter("alloc_fn");
    void *memory = fails(&fail_alloc) ? NULL : exl2__platform_alloc(user, bytes, align, tag);
    live_bytes += memory ? bytes : 0;
    leave();
    return memory;
}

static void hook_free(void *user, void *memory, size_t bytes, exl2_mem tag)
{
    enter("free_fn");
    live_bytes -= bytes;
    exl2__platform_free(user, memory, bytes, tag);
    leave();
}

static void enter_file(const char *hook)
{
    enter(hook);
    MUST(worker_may_load || pthread_equal(main_thread, pthread_self()), "%s is called on the worker's thread", hook);
}

static void *hook_open(void *user, const char *path, uint64_t *bytes)
{
    enter_file("files.open");
    void *file = fails(&fail_read) ? NULL : text_open(user, path, bytes);
    files_open += file != NULL;
    leave();
    return file;
}

static bool hook_list(void *user, const char *dir, uint32_t index, char *name, size_t cap)
{
    enter_file("files.list");
    bool any = text_list(user, dir, index, name, cap);
    leave();
    return any;
}

static int64_t hook_read(void *user, void *file, uint64_t offset, void *dst, size_t bytes)
{
    enter_file("files.read");
    int64_t got = fails(&fail_read) ? -1 : text_read(user, file, offset, dst, bytes);
    leave();
    return got;
}

static void hook_close(void *user, void *file)
{
    enter_file("files.close");
    text_close(user, file);
    files_open--;
    leave();
}

static void check_sentence(const char *text, size_t cap, const char *of)
{
    size_t bytes = strnlen(text, cap);
    MUST(bytes > 8 && bytes < cap && exl2__unicode_valid(text, bytes) && !memchr(text, '\n', bytes),
         "%s: not a sentence of one line in UTF-8: \"%.*s\"", of, (int)bytes, text);
}

static void hook_line(void *user, exl2_log_level level, exl2_log_id id, exl2_result code, const char *text)
{
    (void)user; /* it may run beside another hook: calls of the second thread that fail are logged */
    MUST(level >= EXL2_LOG_ERROR && level <= EXL2_LOG_DEBUG && id && code <= 0, "a log line of level %d", (int)level);
    check_sentence(text, 4096, "the logger");
}

static void hook_run(void *user, uint32_t count, void (*task)(void *arg, uint32_t index), void *arg)
{
    (void)user;
    for (uint32_t i = count; i-- > 0;) {
        task(arg, i);
    }
}

/* ---- models ---- */

static void make_model(exl2_model_desc *d)
{
    static const char *const names[] = { "exl2-mixed", "exl2-qwen3-moe", "llama3-rope" };
    static char paths[3][1024];
    static const uint32_t contexts[] = { 192, 256, 512 };
    uint32_t folder = chance(4) ? 0 : draw(3);
    snprintf(paths[folder], sizeof paths[folder], "%s", rig_golden(names[folder]));
    *d = (exl2_model_desc){ .path = paths[folder], .context_max = contexts[draw(3)], .keep_packed = chance(3) };
    d->batch_max = chance(3) ? 1 + draw(3) : 0;
    d->prefill_chunk = chance(3) ? 1 + draw(32) : 0;
    d->cache.tokens = 512 + 512 * draw(4);
    d->cache.format = chance(4) ? (exl2_kv)draw(4) : EXL2_KV_FP16;
    if (chance(3)) {
        *(chance(2) ? &d->rope_scale : chance(2) ? &d->rope_alpha : &d->yarn_factor) = 1.5f + (float)draw(3);
    }
    if (folder == 1 && chance(2)) {
        d->experts_active = 1 + draw(3);
    }
}

/* ---- calls ---- */

static exl2_engine *engine;

/* What a call gave; a failure has its sentence. Another thread's failed call may have replaced it. */
static exl2_result ended(const char *call, exl2_result r)
{
    exl2_error error;
    doing = "";
    MUST(r > EXL2_ERR_INTERNAL && r <= EXL2_IDLE, "%s gives %s", call, exl2_result_name(r));
    if (r < 0) {
        exl2_last_error(engine, &error);
        check_sentence(error.text, sizeof error.text, call);
    }
    return r;
}

#define CALL(function, ...) (doing = #function, ended(#function, function(engine, __VA_ARGS__)))
#define CALL_WORKER(function) (doing = #function, ended(#function, function(engine)))

#endif
