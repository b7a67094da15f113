/* engine_news.c: news of loads and tasks reach the I/O thread even if they come while it takes others. The engine's
   thread does not wake it again before it has taken all, so engine_take must leave none behind. */
#include "../../demo/serve/engine_inside.h"
#include "../check.h"

static engine_thread t;
static engine_load model = { .new_state = ENGINE_READY };
static uint32_t tasks_done, news;

static void on_news(engine_load *l)
{
    CHECK(l->state == ENGINE_READY);
    news++;
}

/* While the I/O thread is in a callback, the engine's thread has loaded a model. */
static void done(engine_task *task)
{
    (void)task;
    tasks_done++;
    lock_take(&t.lock);
    model.listed = true;
    t.ready_loads = &model;
    lock_release(&t.lock);
}

int main(void)
{
    engine_task task = { .done = done };
    CHECK(lock_open(&t.lock));
    t.ready_end = &t.ready;
    t.done_tasks = &task;
    t.woken = true;
    model.on_news = on_news;
    CHECK(!engine_take(&t));
    CHECK(tasks_done == 1 && news == 1 && !model.listed);
    CHECK(!t.woken && !t.ready_loads && !t.done_tasks);
    lock_close(&t.lock);
    return check_done();
}
