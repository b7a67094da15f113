/* api.c: a fuzzer of the whole API. A sequence has some hundred operations; the seed and an operation's number choose
   the operation among all functions of exl2.h. Engines have tiny caps, models have few layers, callbacks start, cancel,
   fork and close, allocations and file reads fail at random. A shadow model (api_shadow.h) checks that
     - each job has one DONE, and no event after it;
     - a history is what it was before, the prompt, and the tokens of the events;
     - the handle of an object that has ended stays stale for ever;
     - functions return only the results and make only the allocations that exl2.h names;
     - as many bytes are freed as were allocated;
     - the same ids, seed, settings and pictures generate the same tokens in another engine;
     - a picture of a history stays the picture that was given, whatever rows make room for others.

   Sequences run in child processes, so that a crash is a finding, too. A finding is reduced to the shortest prefix that
   still fails, without the operations that are not needed, and printed with one line for each operation.

       fuzz_api [--cuda] [--begin SEED] [--count SEQUENCES] [--operations N]   runs these sequences, as CI does
       fuzz_api [--cuda] --seconds S [--begin SEED]     runs sequences for S seconds of CPU time: 1800 for a release
       fuzz_api [--cuda] --seed SEED                    runs one sequence and prints every operation
       fuzz_api --threads --seconds S                   a second thread calls what any thread may call; not repeatable
       --all: goes on after a finding

   --cuda: uses the CUDA backend over the fake driver of tests/device. CI uses a build with the address and
   undefined-behaviour sanitizers. For a release also run, for 30 minutes each: a build with -Db_sanitize=thread, with
   --threads; and a build by clang with -Db_sanitize=memory and -Dc_args=-DEXL2_NO_SIMD (CC=clang meson setup ...).
   takes: the goldens of tests/golden; the shared fixtures (fixtures/vision), without which no model has pictures.
   gives: exit code 0 or 1. */
#define _GNU_SOURCE
#include "api_replay.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>

#define MAIN_BATCH 20u        /* sequences per child process */
#define MAIN_OPERATIONS 4096u
#define MAIN_CPU_SECONDS 100  /* a sequence that needs more CPU time counts as a hang */

static bool skipped[MAIN_OPERATIONS];

/* ---- the second thread ---- */

static uint32_t thread_ends;

/* Calls functions that any thread may call, with guessed handles. The lock keeps the engine open during a call; nothing
   else is synchronized with the first thread. */
static void *second_thread(void *seed)
{
    uint64_t random = *(uint64_t *)seed;
    while (!__atomic_load_n(&thread_ends, __ATOMIC_ACQUIRE)) {
        exl2_job handle = { 0 };
        exl2_job_info info;
        exl2_engine_stats stats;
        exl2_error error;
        exl2_result r = EXL2_OK;
        pthread_mutex_lock(&api_lent_lock);
        exl2_engine *e = api_lent;
        handle.id = (api_id)(1 + api_below(&random, 200)) << 32 | (1 + api_below(&random, 3));
        switch (e ? api_below(&random, 12) : 12) {
        case 0:
            r = exl2_job_cancel(e, handle);
            break;
        case 1: case 2:
            r = exl2_job_pause(e, handle, true);
            break;
        case 3: case 4: case 5: case 6:
            r = exl2_job_pause(e, handle, false);
            break;
        case 7:
            r = exl2_job_get(e, handle, &info);
            break;
        case 8:
            exl2_stats(e, &stats);
            break;
        case 9:
            exl2_last_error(e, &error);
            break;
        case 10:
            exl2_interrupt(e);
            break;
        default:
            break;
        }
        pthread_mutex_unlock(&api_lent_lock);
        API_MUST(r == EXL2_OK || r == EXL2_ERR_STALE, "a call on the second thread gives %s", exl2_result_name(r));
    }
    return NULL;
}

/* ---- one sequence ---- */

static void end_jobs(void)
{
    for (uint32_t i = 0; i < api.job_count; i++) {
        free(api.jobs[i]);
    }
    api.job_count = 0;
}

/* Runs the operations [0, count) of the seed that are not skipped, closes the engine, and replays some jobs. */
static void run_sequence(uint64_t seed, uint32_t count)
{
    struct itimerval limit = { { 0, 0 }, { MAIN_CPU_SECONDS, 0 } };
    pthread_t second;
    uint64_t second_seed = seed;
    setitimer(ITIMER_PROF, &limit, NULL);
    api.seed = api_mix(seed);
    api.ns = 1000000000u;
    api.depth = api.frame_count = 0;
    memset(api.looks_of, 0, sizeof api.looks_of); /* a finding comes from its own sequence alone */
    api_shared->seed = seed;
    if (api.threads) {
        __atomic_store_n(&thread_ends, 0, __ATOMIC_RELEASE);
        pthread_create(&second, NULL, second_thread, &second_seed);
    }
    for (uint32_t i = 0; i < count; i++) {
        api_shared->op = i;
        api.op = i;
        api.random = api_mix(api.seed + i);
        api.other_random = api_mix(api.random);
        if (!skipped[i]) {
            api_operation();
        }
    }
    if (api.threads) {
        __atomic_store_n(&thread_ends, 1, __ATOMIC_RELEASE);
        pthread_join(second, NULL);
    }
    api_shared->op = count;
    api.random = api_mix(api.seed + count);
    api.refuse_one_in = api.fail_one_in = 0;
    if (api.e && !api.threads && api.seed & 1) {
        api_drain();
    }
    api_close_engine();
    api_replay_some(3);
    end_jobs();
    api_shared->sequences++;
}

/* ---- children ---- */

/* Runs `count` sequences in a child process. Returns whether the child ended without a finding. silent: its output is
   discarded. */
static bool run_child(uint64_t begin, uint32_t count, uint32_t operations, bool silent)
{
    int status;
    fflush(stdout);
    fflush(stderr);
    api_shared->found = false;
    api_shared->finding[0] = api_shared->call[0] = 0;
    pid_t child = fork();
    if (child == 0) {
        int nowhere = silent ? open("/dev/null", O_WRONLY) : -1;
        if (nowhere >= 0) {
            dup2(nowhere, 1);
            dup2(nowhere, 2);
        }
        for (uint32_t i = 0; i < count; i++) {
            run_sequence(begin + i, operations);
        }
        fflush(stdout);
        _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) < 0) {
        printf("no child process\n");
        exit(1);
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        return true;
    }
    if (!api_shared->found) {
        snprintf(api_shared->finding, sizeof api_shared->finding, "the process ends with %s %d in %s",
                 WIFSIGNALED(status) ? "signal" : "exit code", WIFSIGNALED(status) ? WTERMSIG(status)
                 : WEXITSTATUS(status), api_shared->call[0] ? api_shared->call : "the fuzzer");
    }
    return false;
}

/* Whether two findings are equal, apart from the numbers in them. */
static bool same_finding(const char *a, const char *b)
{
    for (; *a || *b; a++, b++) {
        a += strspn(a, "0123456789-");
        b += strspn(b, "0123456789-");
        if (*a != *b) {
            return false;
        }
        if (!*a) {
            return true;
        }
    }
    return true;
}

/* ---- reducing a finding ---- */

static uint32_t shorten_runs;

static bool still_fails(uint64_t seed, uint32_t operations, const char *finding)
{
    shorten_runs++;
    return !run_child(seed, 1, operations, true) && same_finding(api_shared->finding, finding);
}

/* Finds the shortest prefix that still fails, removes the operations that are not needed, and runs the rest with
   tracing. */
static void show(uint64_t seed, uint32_t operations)
{
    char finding[512];
    uint32_t good = 0, bad = operations;
    memset(skipped, 0, sizeof skipped);
    if (run_child(seed, 1, operations, true)) {
        printf("the finding does not repeat: it depends on more than the seed\n");
        return;
    }
    snprintf(finding, sizeof finding, "%s", api_shared->finding);
    bad = api_shared->op < operations ? api_shared->op + 1 : operations;
    good = api_shared->op < operations && still_fails(seed, bad, finding) ? bad - 1 : 0;
    while (good + 1 < bad) { /* a finding at the end of the sequence: its cause is an earlier operation */
        uint32_t middle = good + (bad - good) / 2;
        *(still_fails(seed, middle, finding) ? &bad : &good) = middle;
    }
    printf("seed %llu: %s\nshortest prefix: %u operations\n", (unsigned long long)seed, finding, bad);
    for (uint32_t piece = bad / 2; piece > 0 && shorten_runs < 1500; piece /= 2) {
        for (uint32_t at = 0; at < bad; at += piece) {
            bool before[MAIN_OPERATIONS];
            bool any = false;
            memcpy(before, skipped, sizeof before);
            for (uint32_t i = at; i < bad && i < at + piece; i++) {
                any = any || !skipped[i];
                skipped[i] = true;
            }
            if (any && !still_fails(seed, bad, finding)) {
                memcpy(skipped, before, sizeof before);
            }
        }
    }
    api.tracing = true;
    run_child(seed, 1, bad, false);
    printf("    then: %s\n", api_shared->finding);
    api.tracing = false;
    memset(skipped, 0, sizeof skipped);
}

/* ---- main ---- */

static double cpu_seconds(void)
{
    struct rusage children;
    getrusage(RUSAGE_CHILDREN, &children);
    return (double)children.ru_utime.tv_sec + (double)children.ru_stime.tv_sec
         + ((double)children.ru_utime.tv_usec + (double)children.ru_stime.tv_usec) * 1e-6;
}

int main(int argc, char **argv)
{
    uint64_t begin = 1, count = 0, one = 0;
    uint32_t operations = 300;
    double seconds = 0;
    bool single = false, going_on = false;
    api_main = pthread_self();
    engine_rig.sleep = api_sleep;
    engine_rig.clock = api_clock;
    engine_rig.nap = api_nap;
    engine_rig.entropy = api_entropy;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "0";
        if (strcmp(argv[i], "--cuda") == 0) {
            api.cuda = true;
        } else if (strcmp(argv[i], "--threads") == 0) {
            api.threads = true;
        } else if (strcmp(argv[i], "--all") == 0) {
            going_on = true;
        } else if (strcmp(argv[i], "--begin") == 0) {
            begin = strtoull(value, NULL, 10), i++;
        } else if (strcmp(argv[i], "--count") == 0) {
            count = strtoull(value, NULL, 10), i++;
        } else if (strcmp(argv[i], "--operations") == 0) {
            operations = (uint32_t)strtoul(value, NULL, 10), i++;
        } else if (strcmp(argv[i], "--seconds") == 0) {
            seconds = strtod(value, NULL), i++;
        } else if (strcmp(argv[i], "--seed") == 0) {
            one = strtoull(value, NULL, 10), i++;
            single = true;
        } else {
            printf("fuzz_api knows no %s; see the head of tests/fuzz/api.c\n", argv[i]);
            return 1;
        }
    }
    if (operations > MAIN_OPERATIONS) {
        printf("at most %u operations\n", MAIN_OPERATIONS);
        return 1;
    }
    api_shared = mmap(NULL, sizeof *api_shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    api.jobs = (api_job **)calloc(API_JOBS_MAX, sizeof *api.jobs);
    api_files_make();
    if (single) {
        api.tracing = true;
        bool good = run_child(one, 1, operations, false);
        api.tracing = false;
        printf("seed %llu: %s\n", (unsigned long long)one, good ? "no finding" : api_shared->finding);
        if (!good && !api.threads) {
            show(one, operations);
        }
        return good ? 0 : 1;
    }
    count = count ? count : seconds > 0 ? UINT64_MAX / 2 : 100;
    uint32_t findings = 0;
    for (uint64_t seed = begin; seed - begin < count && (seconds <= 0 || cpu_seconds() < seconds);) {
        uint64_t left = count - (seed - begin);
        uint32_t batch = left < MAIN_BATCH ? (uint32_t)left : MAIN_BATCH;
        CHECK(true);
        if (run_child(seed, batch, operations, false)) {
            seed += batch;
            continue;
        }
        CHECK(false);
        findings++;
        uint64_t bad = api_shared->seed;
        printf("seed %llu: %s\n", (unsigned long long)bad, api_shared->finding);
        if (!going_on) {
            if (!api.threads) {
                show(bad, operations);
            }
            break;
        }
        seed = bad + 1;
    }
    printf("%llu sequences, %llu calls, %llu jobs, %llu DONE, %llu tokens, %llu replays, %llu refused, %llu draft "
           "models that came back, %llu tokens drafted by models, %llu jobs with pictures, %llu of them again, "
           "%u findings\n",
           (unsigned long long)api_shared->sequences, (unsigned long long)api_shared->calls,
           (unsigned long long)api_shared->jobs, (unsigned long long)api_shared->dones,
           (unsigned long long)api_shared->tokens, (unsigned long long)api_shared->replays,
           (unsigned long long)api_shared->refused, (unsigned long long)api_shared->restarts,
           (unsigned long long)api_shared->drafted, (unsigned long long)api_shared->seeing,
           (unsigned long long)api_shared->seen_again, findings);
    return check_done();
}
