/* cpu_split.c: how a stage is divided among cores of different speeds. Four threads compute, one at a time: the next is
   always the one whose simulated clock is behind, so the result is that of four cores and the same in every run. */
#include "private/cpu.h"
#include "../check.h"

#include <pthread.h>

#define WORKERS 4u
#define ITEMS 96u
#define ITEM_COST 1000000u /* multiply-adds */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t turn_changed;
    uint32_t slowness[WORKERS]; /* time per item */
    uint32_t clock[WORKERS];    /* time */
    bool done[WORKERS];
    uint32_t turn;
    void (*task)(void *arg, uint32_t index);
    void *arg;
    uint32_t workers, computed[ITEMS], shares;
} cores = { .lock = PTHREAD_MUTEX_INITIALIZER, .turn_changed = PTHREAD_COND_INITIALIZER };

static _Thread_local uint32_t this_worker;

static void next_turn(void)
{
    uint32_t next = WORKERS;
    for (uint32_t i = 0; i < cores.workers; i++) {
        next = !cores.done[i] && (next == WORKERS || cores.clock[i] < cores.clock[next]) ? i : next;
    }
    cores.turn = next;
    pthread_cond_broadcast(&cores.turn_changed);
}

static void wait_for_turn(void)
{
    while (cores.turn != this_worker) {
        pthread_cond_wait(&cores.turn_changed, &cores.lock);
    }
}

/* The work of a stage, with the lock of the thread whose turn it is. */
static void count_items(const exl2__cpu_share *s)
{
    CHECK_INT(s->task, this_worker);
    CHECK(s->begin < s->end);
    cores.shares++;
    for (uint32_t i = s->begin; i < s->end; i++) {
        cores.computed[i]++;
        cores.clock[this_worker] += cores.slowness[this_worker];
    }
    next_turn();
    wait_for_turn();
}

static void *worker(void *index)
{
    this_worker = (uint32_t)(uintptr_t)index;
    pthread_mutex_lock(&cores.lock);
    wait_for_turn();
    cores.task(cores.arg, this_worker);
    cores.done[this_worker] = true;
    next_turn();
    pthread_mutex_unlock(&cores.lock);
    return NULL;
}

static void run_on_cores(void *user, uint32_t count, void (*task)(void *arg, uint32_t index), void *arg)
{
    pthread_t threads[WORKERS];
    (void)user;
    CHECK(count <= WORKERS);
    cores.task = task;
    cores.arg = arg;
    cores.workers = count;
    cores.turn = 0;
    for (uintptr_t i = 0; i < count; i++) {
        pthread_create(&threads[i], NULL, worker, (void *)i);
    }
    for (uint32_t i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
    }
}

/* The time that four cores need, of which the last one needs `slowness` per item. */
static uint32_t time_of(uint32_t items, uint64_t item_cost, uint32_t slowness)
{
    exl2__ctx c = { .parallel = { .run = run_on_cores, .width = WORKERS } };
    exl2__cpu_device d = { .c = &c, .tasks = WORKERS };
    exl2__cpu_share all = { .d = &d, .end = items };
    uint32_t time = 0;
    cores.shares = 0;
    memset(cores.computed, 0, sizeof cores.computed);
    for (uint32_t i = 0; i < WORKERS; i++) {
        cores.slowness[i] = i + 1 == WORKERS ? slowness : 1;
        cores.clock[i] = 0;
        cores.done[i] = false;
    }
    exl2__cpu_device_split(count_items, &all, items * item_cost);
    for (uint32_t i = 0; i < WORKERS; i++) {
        time = exl2__max32(time, cores.clock[i]);
    }
    for (uint32_t i = 0; i < ITEMS; i++) {
        CHECK_INT(cores.computed[i], i < items);
    }
    return time;
}

int main(void)
{
    CHECK_INT(time_of(ITEMS, ITEM_COST, 1), ITEMS / WORKERS); /* equal cores lose nothing */
    CHECK_INT(cores.shares, WORKERS * EXL2__CPU_SHARES);

    /* A core that is three times slower: at most 35 % less speed than four equal ones. Equal tasks would lose 67 %. */
    uint32_t time = time_of(ITEMS, ITEM_COST, 3);
    printf("%u items on 1 + 1 + 1 + 1/3 cores: time %u, of four %u\n", ITEMS, time, ITEMS / WORKERS);
    CHECK(time * 65 <= ITEMS / WORKERS * 100);
    CHECK(time_of(ITEMS, ITEM_COST, 30) < 2 * 30 * ITEMS / (WORKERS * EXL2__CPU_SHARES)); /* it gets one share */

    /* Shares are not too small: here there is work for four tasks, but not for more shares. */
    CHECK_INT(time_of(ITEMS, EXL2__CPU_SHARE_COST * WORKERS / ITEMS + 1, 1), ITEMS / WORKERS);
    CHECK_INT(cores.shares, WORKERS);
    CHECK_INT(time_of(5, ITEM_COST, 1), 2); /* fewer items than shares */
    CHECK_INT(cores.shares, WORKERS);

    /* Work for five shares: with five of them one of four equal cores would compute two. */
    CHECK_INT(time_of(80, EXL2__CPU_SHARE_COST * 5 / 80 + 1, 1), 80 / WORKERS);
    CHECK_INT(cores.shares, WORKERS);
    return check_done();
}
