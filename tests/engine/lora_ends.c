/* lora_ends.c: pages of an adapter that was closed are evicted before those of other texts, though these are older, and
   histories of idle sessions keep them no longer. */
#define _XOPEN_SOURCE 700
#include "rig.h"

#include "../adapter_maker.h"

#include <sys/stat.h>
#include <unistd.h>

#define TEXT 150u /* tokens of a text: three pages */

typedef struct world {
    rig r;
    exl2_lora lora;
    exl2_session session; /* whose job had the adapter */
    exl2_token ids[3][TEXT]; /* without adapters, with the adapter, of a job that needs room */
} world;

/* A cache of seven pages: two texts leave one free. */
static world open_world(const char *folder)
{
    world w = { 0 };
    exl2_model_desc m = { .path = rig_golden("llama3-rope"), .lora_max = 1, .cache = { .tokens = 7 * 64 } };
    exl2_lora_desc d = { .path = folder };
    w.r = rig_open(NULL, &m);
    d.model = w.r.model;
    exl2_result result = exl2_lora_load(w.r.engine, &d, &w.lora);
    if (result < 0) {
        rig_fail(w.r.engine, folder, result);
    }
    CHECK_INT(exl2_session_open(w.r.engine, w.r.model, &w.session), EXL2_OK);
    for (uint32_t i = 0; i < 3 * TEXT; i++) {
        w.ids[i / TEXT][i % TEXT] = (exl2_token)(3 + (i * 37 + i / TEXT * 11) % 300);
    }
    return w;
}

/* Reads a text; how many of its tokens were in the cache. */
static uint32_t read_text(const world *w, uint32_t text, bool adapter)
{
    static rig_said said;
    const exl2_lora_use use = { w->lora, 1 };
    exl2_job_desc d = rig_job(&w->r, w->ids[text], TEXT, 1, &said);
    d.prefill_only = true;
    d.loras = adapter ? &use : NULL;
    d.lora_count = adapter;
    d.session = adapter ? w->session : d.session;
    rig_run(&w->r, &d);
    return said.stats.reused_tokens;
}

/* The first text is the oldest, so it goes first, unless the adapter of the second one was closed. */
static void check_eviction(const char *folder, bool closed)
{
    world w = open_world(folder);
    CHECK_INT(read_text(&w, 0, false), 0);
    CHECK_INT(read_text(&w, 1, true), 0);
    if (closed) {
        CHECK_INT(exl2_lora_close(w.r.engine, w.lora), EXL2_OK);
    }
    CHECK_INT(read_text(&w, 2, false), 0);
    uint32_t reused = read_text(&w, 0, false);
    CHECK(closed ? reused == TEXT - 1 : reused < TEXT - 1);
    rig_close(&w.r);
}

int main(int argc, char **argv)
{
    static const adapter_matrix matrix = { "model.layers.0.self_attn.q_proj", 64, 64 };
    char folder[] = "/tmp/exl2-lora-ends-XXXXXX", file[64];
    rig_read_path(&argc, &argv);
    if (!CHECK(mkdtemp(folder) != NULL)) {
        return check_done();
    }
    adapter_write(folder, &matrix, 1);
    check_eviction(folder, true);
    check_eviction(folder, false);
    snprintf(file, sizeof file, "%s/adapter_config.json", folder);
    unlink(file);
    snprintf(file, sizeof file, "%s/adapter_model.safetensors", folder);
    unlink(file);
    rmdir(folder);
    return check_done();
}
