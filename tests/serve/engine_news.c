/* engine_news.c: news of loads and tasks reach the I/O thread even if they come while it takes others. The engine's
   thread does not wake it again before it has taken all, so engine_take must leave none behind. And ids of long
   prompts, which the I/O thread makes: a text is tokenized once. */
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

/* ---- ids ---- */

/* Each time that a long word is tokenized costs one allocation of work space. */
static void check_ids(void)
{
    static char word[20001];
    static const exl2_chat_desc template = {
        .template_text = "{% for m in messages %}{{ m.content * 4 }}{% endfor %}"
    };
    static const exl2_model_desc desc = { .path = EXL2_GOLDEN_DIR "/smollm2", .text_only = true };
    static const exl2_message message = { .role = "user", .text = word };
    exl2_engine *e = NULL;
    exl2_model m;
    CHECK_INT(exl2_open(NULL, &e), EXL2_OK);
    CHECK_INT(exl2_model_load(e, &desc, &m), EXL2_OK);
    exl2_engine_stats before, after;
    exl2_token *ids;
    size_t count, need;
    memset(word, 'a', sizeof word - 1);
    exl2_prompt p = { .text = word };
    exl2_stats(e, &before);
    CHECK_INT(engine_ids(e, m, &p, NULL, &ids, &count), EXL2_OK);
    exl2_stats(e, &after);
    CHECK_INT(after.allocations - before.allocations, 1);
    CHECK_INT(exl2_chat_tokenize(e, m, &p, NULL, NULL, 0, &need), EXL2_OK);
    CHECK_INT(count, need);
    exl2_token *same = calloc(need, sizeof *same);
    CHECK_INT(exl2_chat_tokenize(e, m, &p, NULL, same, need, &need), EXL2_OK);
    CHECK(memcmp(ids, same, need * sizeof *ids) == 0);
    free(same);
    free(ids);
    memset(word, '1', sizeof word - 1); /* a token each */
    p = (exl2_prompt){ .messages = &message, .message_count = 1 };
    CHECK_INT(engine_ids(e, m, &p, &template, &ids, &count), EXL2_OK); /* more than the guess */
    CHECK_INT(exl2_chat_tokenize(e, m, &p, &template, NULL, 0, &need), EXL2_OK);
    CHECK(count == need && count > sizeof word + 1024);
    free(ids);
    p = (exl2_prompt){ 0 };
    CHECK_INT(engine_ids(e, m, &p, NULL, &ids, &count), EXL2_ERR_ARG);
    CHECK(!ids && !count);
    exl2_close(e);
}

int main(void)
{
    check_ids();
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
