/* api.c: a fuzzer of the whole API. A sequence is some hundred operations, each chosen by the seed and its own number
   over all functions of exl2.h, on engines with tiny caps, models of a few layers, callbacks that start, cancel, fork
   and close, an allocator that refuses and files that fail. A shadow model (api_shadow.h) knows what must hold:
   one DONE a job and nothing after it; histories are prompt and events; what has ended is stale for ever; only results
   that exl2.h names; no allocation but those that it names; bytes freed are bytes allocated; the same ids, seed and
   settings say the same in another engine.

   Sequences run in child processes, so that a crash is a finding, too. Of a finding the shortest prefix is printed that
   still fails, without the operations that it does not need, one line each.

       fuzz_api [--cuda] [--begin SEED] [--count SEQUENCES] [--operations N]   those sequences; what CI does
       fuzz_api [--cuda] --seconds S [--begin SEED]     as many as S seconds of CPU hold: 1800 for a release
       fuzz_api [--cuda] --seed SEED                    one, with every operation printed
       fuzz_api --threads --seconds S                   a second thread calls what any thread may call; not repeatable

   --cuda: over the fake driver of tests/device. In CI with the address and undefined-behaviour sanitizers. By hand, for
   30 minutes each: a build with -Db_sanitize=thread and --threads; with clang, -Db_sanitize=memory and
   -Dc_args=-DEXL2_NO_SIMD (CC=clang meson setup ...; MSan does not see into the C library's functions otherwise).
   takes: the goldens of tests/golden.
   gives: exit code 0 or 1.
   owns:  nothing that outlives the program. */
#define _GNU_SOURCE
#include "api_replay.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>

#define MAIN_BATCH 20u        /* sequences a child */
#define MAIN_OPERATIONS 4096u
#define MAIN_CPU_SECONDS 100  /* of a sequence: more is a hang */

static bool skipped[MAIN_OPERATIONS];

/* ---- the second thread ---- */

static uint32_t thread_ends;

/* Calls what any thread may call, with handles as they come. The lock keeps the engine; nothing else is in step. */
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

/* The operations [0, count) of the seed that are not skipped, the end, replays. */
static void run_sequence(uint64_t seed, uint32_t count)
{
    struct itimerval limit = { { 0, 0 }, { MAIN_CPU_SECONDS, 0 } };
    pthread_t second;
    uint64_t second_seed = seed;
    setitimer(ITIMER_PROF, &limit, NULL);
    api.seed = api_mix(seed);
    api.ns = 1000000000u;
    api.depth = api.frame_count = 0;
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

/* Runs them in a child; whether it ended as it should. silent: what it prints is lost. */
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

/* Whether two findings are the same but for their numbers. */
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

/* ---- the shortest ---- */

static uint32_t shorten_runs;

static bool still_fails(uint64_t seed, uint32_t operations, const char *finding)
{
    shorten_runs++;
    return !run_child(seed, 1, operations, true) && same_finding(api_shared->finding, finding);
}

/* The shortest prefix, then without what it does not need; printed as it runs. */
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
    while (good + 1 < bad) { /* what shows only at the end began somewhere */
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
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "0";
        if (strcmp(argv[i], "--cuda") == 0) {
            api.cuda = true;
        } else if (strcmp(argv[i], "--threads") == 0) {
            api.threads = true;
        } else if (strcmp(argv[i], "--all") == 0) { /* goes on after a finding */
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
    printf("%llu sequences, %llu calls, %llu jobs, %llu DONE, %llu tokens, %llu replays, %llu refused, %u findings\n",
           (unsigned long long)api_shared->sequences, (unsigned long long)api_shared->calls,
           (unsigned long long)api_shared->jobs, (unsigned long long)api_shared->dones,
           (unsigned long long)api_shared->tokens, (unsigned long long)api_shared->replays,
           (unsigned long long)api_shared->refused, findings);
    return check_done();
}
