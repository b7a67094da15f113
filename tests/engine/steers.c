/* steers.c: jobs with control vectors. Logits of three families against float64 (tests/golden/steer); rows with
   different vectors beside each other give the bits that they give alone; K and V never cross sets; snapshots, parking,
   closing, files, rejected calls, memory. -DRIG_BACKEND=EXL2_BACKEND_CUDA: on a GPU. */
#define _GNU_SOURCE /* mkdtemp */
#include "steer_rig.h"

#include <unistd.h>

#define TOPS 4
#define POSITIONS 6

/* ---- goldens ---- */

/* Compares the scores of a job with a row of the golden; gives the largest difference. */
static double compare(const rig_golden_file *g, uint32_t set, const rig_said *said, uint32_t first)
{
    double sums[POSITIONS], ids[POSITIONS * TOPS], logits[POSITIONS * TOPS], worst = 0;
    rig_golden_numbers(g, exl2__json_get(&g->json, set, "logsumexp"), sums, POSITIONS);
    rig_golden_numbers(g, exl2__json_get(&g->json, set, "top_ids"), ids, POSITIONS * TOPS);
    rig_golden_numbers(g, exl2__json_get(&g->json, set, "top_logits"), logits, POSITIONS * TOPS);
    for (uint32_t p = 0; p < POSITIONS; p++) {
        uint32_t found = 0;
        worst = fmax(worst, fabs((double)said->logsumexp[first + p] - sums[p]));
        for (uint32_t k = 0; k < TOPS * EXL2_ALTS_MAX; k++) {
            const exl2_alt *alt = &said->alts[first + p][k % EXL2_ALTS_MAX];
            uint32_t at = p * TOPS + k / EXL2_ALTS_MAX;
            if (alt->token == (exl2_token)ids[at]) {
                found++;
                worst = fmax(worst, fabs((double)alt->logprob + (double)said->logsumexp[first + p] - logits[at]));
            }
        }
        CHECK_INT(found, TOPS);
    }
    return worst;
}

static void goldens(void)
{
    static rig_said said;
    rig_golden_file g;
    char path[1024], name[64];
    uint32_t models = 0;
    snprintf(path, sizeof path, "%s/steer/steer.json", EXL2_GOLDEN_DIR);
    rig_golden_open(path, &g);
    for (uint32_t at = exl2__json_first(&g.json, 0); at; at = exl2__json_next(&g.json, 0, at), models++) {
        exl2_token tokens[TOKENS];
        shape s;
        name[exl2__json_text(&g.json, exl2__json_get(&g.json, at, "model"), name, sizeof name - 1)] = 0;
        uint32_t count = rig_golden_ids(&g, exl2__json_get(&g.json, at, "tokens"), tokens, TOKENS);
        rig r = open_model(name, (exl2_model_desc){ 0 }, 2, &s);
        exl2_steer both[2] = { make(&r, s, 0), make(&r, s, 1) };
        uint32_t sets = exl2__json_get(&g.json, at, "sets");
        for (uint32_t set = exl2__json_first(&g.json, sets); set; set = exl2__json_next(&g.json, sets, set)) {
            double uses[8];
            exl2_steer_use use[4];
            uint32_t numbers = rig_golden_numbers(&g, exl2__json_get(&g.json, set, "uses"), uses, 8);
            exl2_job_desc d = rig_job(&r, tokens, count, 0, &said);
            memset(&said, 0, sizeof said);
            d.score_prompt = d.prefill_only = true;
            d.alts_per_token = EXL2_ALTS_MAX;
            d.steers = use;
            for (uint32_t i = 0; i < numbers / 2; i++) { /* the order of the list does not matter */
                use[numbers / 2 - 1 - i] = (exl2_steer_use){ both[(int)uses[2 * i]], (float)uses[2 * i + 1] };
            }
            d.steer_count = numbers / 2;
            rig_run(&r, &d);
            CHECK_INT(said.scored, count - 1);
            double worst = compare(&g, set, &said, count - 1 - POSITIONS);
            printf("%s, %u vectors: within %.2g\n", name, d.steer_count, worst);
            CHECK(worst < BOUND);
        }
        rig_close(&r);
    }
    CHECK_INT(models, 3);
    rig_golden_close(&g);
}

/* The residual of a single token after a layer is that without vectors, plus factor * vector, to the bit; an embedding
   shows it. A GPU shows the last layer alone, and adds the vector before what the MLP gives. */
static exl2_flow keep_values(void *user, const exl2_event *event)
{
    if (event->kind == EXL2_EVENT_EMBEDDING) {
        memcpy(user, event->values, event->value_count * sizeof(float));
    }
    return EXL2_CONTINUE;
}

static void one_layer(void)
{
    static float with[HIDDEN_MAX], without[HIDDEN_MAX];
    exl2_token token = 17;
    shape s;
    rig r = open_model("gemma2", (exl2_model_desc){ 0 }, 1, &s);
    uint32_t layer = ON_GPU ? s.layers - 1 : 0;
    exl2_steer_use use = { make_from(&r, s, 0, layer), -0.5f };
    exl2_job_desc d = rig_job(&r, &token, 1, 0, NULL);
    const float *vector = vectors(s, 0, layer);
    d.on_event = keep_values;
    d.embed = (exl2_embed_desc){ .pool = EXL2_EMBED_LAST, .raw = true, .layer = layer + 1 };
    d.user = without;
    rig_run(&r, &d);
    d.user = with;
    d.steers = &use;
    d.steer_count = 1;
    rig_run(&r, &d);
    for (uint32_t i = 0; i < s.hidden; i++) {
        float product = -0.5f * vector[i]; /* exact */
        float sum = without[i] + product;
        bool close = fabs((double)with[i] - (double)sum) < 1e-6 * (1 + fabs((double)sum));
        CHECK(memcmp(&with[i], &sum, sizeof sum) == 0 || (ON_GPU && close));
    }
    rig_close(&r);
}

/* ---- K and V never cross sets ---- */

/* A GPU may compute the last rows of a prompt again, in products of another size. */
static void check_reused(uint32_t got, uint32_t wanted)
{
    if (!CHECK(got <= wanted && got >= (ON_GPU ? wanted / 64 * 64 : wanted))) {
        printf("  %u tokens were found, not %u\n", got, wanted);
    }
}

static uint32_t reused(const rig *r, exl2_session session, const exl2_steer_use *uses, uint32_t count)
{
    static rig_said said;
    exl2_token ids[70];
    exl2_job_size size;
    exl2_job_desc d = rig_job(r, ids, prompt_of(ids, 70, 3), 0, &said);
    memset(&said, 0, sizeof said);
    d.prefill_only = true;
    d.session = session;
    d.steers = uses;
    d.steer_count = count;
    CHECK_INT(exl2_job_measure(r->engine, &d, &size), EXL2_OK);
    rig_run(r, &d);
    CHECK_INT(size.reused_tokens, said.stats.reused_tokens);
    return said.stats.reused_tokens;
}

static void cache(void)
{
    shape s;
    rig r = open_model("llama3-rope", (exl2_model_desc){ .cache.tokens = 8192 }, 3, &s);
    exl2_steer a = make(&r, s, 0), b = make(&r, s, 1);
    exl2_session none = { 0 };
    bool seen[SETS] = { false };
    for (uint32_t i = 0; i < 2 * SETS; i++) {
        exl2_steer_use uses[2];
        uint32_t set = i % SETS, count = set_of(set, a, b, uses);
        check_reused(reused(&r, none, uses, count), seen[set_class[set]] ? 69 : 0);
        seen[set_class[set]] = true;
    }
    /* a session whose mood changes computes its history again, and finds what is still cached when it comes back */
    exl2_session talk;
    exl2_steer_use up = { a, 0.25f }, down = { a, -0.25f };
    CHECK_INT(exl2_session_open(r.engine, r.model, &talk), EXL2_OK);
    CHECK_INT(reused(&r, talk, &up, 1), 0);
    CHECK_INT(exl2_session_rewind(r.engine, talk, 64), EXL2_OK);
    exl2_token more[] = { 9, 8, 7, 6 };
    static rig_said said;
    exl2_job_desc d = rig_job(&r, more, 4, 0, &said);
    d.prefill_only = true;
    d.session = talk;
    d.steers = &down;
    d.steer_count = 1;
    rig_run(&r, &d);
    CHECK_INT(said.stats.reused_tokens, 0);
    CHECK_INT(said.stats.prompt_tokens, 4);
    /* what a closed vector has computed is never found, also not by the same vector made again */
    CHECK_INT(exl2_steer_close(r.engine, a), EXL2_OK);
    CHECK_INT(exl2_steer_close(r.engine, a), EXL2_ERR_STALE);
    exl2_steer again = make(&r, s, 0);
    CHECK(again.id > b.id);
    exl2_steer_use use = { again, 1 };
    CHECK_INT(reused(&r, none, &use, 1), 0);
    check_reused(reused(&r, none, &use, 1), 69);
    rig_close(&r);
}

/* ---- saving, parking, closing ---- */

#define WORDS 24

/* A job that is saved in the middle goes on with the same words, with K and V and without; only with its vectors. */
static void saved(uint32_t flags)
{
    static rig_said whole, rest;
    static uint8_t bytes[1 << 22];
    exl2_token ids[40];
    shape s;
    size_t need = 0;
    exl2_job job;
    exl2_error error;
    exl2_session talk, later;
    rig r = open_model("llama3-rope", (exl2_model_desc){ 0 }, 2, &s);
    exl2_steer_use uses[2] = { { make(&r, s, 0), 0.5f }, { make(&r, s, 1), -0.25f } };
    CHECK_INT(exl2_session_open(r.engine, r.model, &talk), EXL2_OK);
    CHECK_INT(exl2_session_open(r.engine, r.model, &later), EXL2_OK);
    exl2_job_desc d = rig_job(&r, ids, prompt_of(ids, 40, 1), WORDS, &whole);
    memset(&whole, 0, sizeof whole);
    memset(&rest, 0, sizeof rest);
    d.model.id = 0;
    d.session = talk;
    d.steers = uses;
    d.steer_count = 2;
    CHECK_INT(exl2_job_start(r.engine, &d, &job), EXL2_OK);
    while (whole.count < WORDS / 2) {
        exl2_step(r.engine, NULL);
    }
    uint32_t heard = whole.count;
    CHECK_INT(exl2_session_save(r.engine, talk, flags, bytes, sizeof bytes, &need), EXL2_OK);
    rig_drain(&r, 0);
    CHECK_INT(exl2_session_restore(r.engine, later, bytes, need), EXL2_OK);
    exl2_session_info info;
    CHECK_INT(exl2_session_get(r.engine, later, &info), EXL2_OK);
    CHECK(info.resumes && info.tokens_cached > 0);
    d.session = later;
    d.prompt = (exl2_prompt){ 0 };
    d.resume = true;
    d.user = &rest;
    d.steer_count = 1;
    CHECK_INT(exl2_job_start(r.engine, &d, NULL), EXL2_ERR_ARG);
    exl2_last_error(r.engine, &error);
    CHECK(strstr(error.text, "adapter or control vector with content_id") != NULL);
    d.steer_count = 2;
    uses[0].factor = 0.25f;
    CHECK_INT(exl2_job_start(r.engine, &d, NULL), EXL2_ERR_ARG);
    uses[0].factor = 0.5f;
    CHECK_INT(exl2_job_start(r.engine, &d, NULL), EXL2_OK);
    rig_drain(&r, 0);
    CHECK_INT(rest.count, whole.count - heard);
    CHECK(memcmp(rest.ids, whole.ids + heard, rest.count * sizeof *rest.ids) == 0);
    /* another engine knows the vectors by their contents */
    rig other = open_model("llama3-rope", (exl2_model_desc){ 0 }, 2, &s);
    CHECK_INT(exl2_session_open(other.engine, other.model, &later), EXL2_OK);
    CHECK_INT(exl2_session_restore(other.engine, later, bytes, need), EXL2_OK);
    exl2_steer_use made[2] = { { make(&other, s, 1), -0.25f }, { make(&other, s, 0), 0.5f } };
    memset(&rest, 0, sizeof rest);
    d.session = later;
    d.steers = made;
    CHECK_INT(exl2_job_start(other.engine, &d, NULL), EXL2_OK);
    rig_drain(&other, 0);
    CHECK_INT(rest.count, whole.count - heard);
    CHECK(memcmp(rest.ids, whole.ids + heard, rest.count * sizeof *rest.ids) == 0);
    rig_close(&other);
    /* a model without room for vectors gives the snapshot no job to go on with them */
    rig bare = open_model("llama3-rope", (exl2_model_desc){ 0 }, 0, &s);
    CHECK_INT(exl2_session_open(bare.engine, bare.model, &later), EXL2_OK);
    CHECK_INT(exl2_session_restore(bare.engine, later, bytes, need), EXL2_OK);
    d.session = later;
    d.steer_count = 0;
    CHECK_INT(exl2_job_start(bare.engine, &d, NULL), EXL2_ERR_ARG);
    CHECK_INT(exl2_session_save(bare.engine, later, 0, NULL, 0, &need), EXL2_ERR_STATE);
    rig_close(&bare);
    rig_close(&r);
}

/* Runs a job of 40 ids with one vector, and returns its desc. */
static exl2_job_desc run_one(rig *r, exl2_token ids[40], const exl2_steer_use *use, rig_said *said)
{
    exl2_job_desc d = rig_job(r, ids, prompt_of(ids, 40, 1), WORDS, said);
    memset(said, 0, sizeof *said);
    d.steers = use;
    d.steer_count = 1;
    rig_run(r, &d);
    return d;
}

/* The words of a job are the same when its model is parked in the middle, and when its vectors are closed. */
static void parked(void)
{
    static rig_said whole, cut;
    exl2_token ids[40];
    shape s;
    rig r = open_model("cohere", (exl2_model_desc){ 0 }, 1, &s);
    exl2_steer_use use = { make(&r, s, 0), 2 };
    exl2_job_desc d = run_one(&r, ids, &use, &whole);
    memset(&cut, 0, sizeof cut);
    d.user = &cut;
    CHECK_INT(exl2_job_start(r.engine, &d, NULL), EXL2_OK);
    while (cut.count < WORDS / 2) {
        exl2_step(r.engine, NULL);
    }
    CHECK_INT(exl2_steer_close(r.engine, use.steer), EXL2_OK);
    exl2_steer_desc more = { .model = r.model, .values = vectors(s, 0, 0), .layer_count = s.layers };
    exl2_steer no;
    CHECK_INT(exl2_steer_make(r.engine, &more, &no), EXL2_ERR_BUDGET); /* the job still has it */
    CHECK_INT(exl2_model_park(r.engine, r.model, true), EXL2_OK);
    CHECK_INT(exl2_model_park(r.engine, r.model, false), EXL2_OK);
    rig_drain(&r, 0);
    CHECK(cut.count == whole.count && memcmp(cut.ids, whole.ids, cut.count * sizeof *cut.ids) == 0);
    CHECK(ON_GPU || same(&whole, &cut)); /* a GPU computes what was said as rows of a prompt, in other products */
    CHECK_INT(exl2_steer_make(r.engine, &more, &no), EXL2_OK);
    rig_close(&r);
}

/* Guidance: both sequences have the vectors. Drafts change no word. */
static void others(void)
{
    static rig_said one, two;
    exl2_token ids[40];
    shape s;
    rig r = open_model("exl2-4bit", (exl2_model_desc){ 0 }, 1, &s);
    exl2_steer_use use = { make(&r, s, 0), 1 };
    exl2_job_desc d = run_one(&r, ids, &use, &one);
    memset(&two, 0, sizeof two);
    d.user = &two;
    d.draft.ngram = true;
    rig_run(&r, &d);
    CHECK(same(&one, &two)); /* on a GPU, too: rows of drafts are sampled ones */
    d.draft.ngram = false;
    d.guidance = 1.5f; /* against itself: no effect, if both have the vector */
    d.negative_prompt = d.prompt;
    memset(&two, 0, sizeof two);
    rig_run(&r, &d);
    CHECK(two.count == one.count && memcmp(one.ids, two.ids, one.count * sizeof *one.ids) == 0);
    rig_close(&r);
}

/* ---- files ---- */

typedef struct buffer {
    uint8_t data[1 << 16];
    size_t bytes;
} buffer;

static void put(buffer *b, const void *data, size_t bytes)
{
    memcpy(b->data + b->bytes, data, bytes);
    b->bytes += bytes;
}

static void put_number(buffer *b, uint64_t value, size_t bytes)
{
    uint8_t little[8];
    for (size_t i = 0; i < bytes; i++) {
        little[i] = (uint8_t)(value >> 8 * i);
    }
    put(b, little, bytes);
}

static void put_text(buffer *b, const char *text)
{
    put_number(b, strlen(text), 8);
    put(b, text, strlen(text));
}

/* What a test changes of a good GGUF file. */
typedef struct gguf_way {
    uint32_t version, type, rank;
    const char *name;   /* of the first tensor */
    uint64_t offset;    /* added to that of the last one */
    uint64_t cut;       /* bytes that are missing at the end */
    uint32_t align;
    const char *words;  /* of the message */
    exl2_result result;
} gguf_way;

/* A file as llama.cpp writes it: vectors of the layers from 1 on. */
static void gguf(buffer *b, shape s, const gguf_way *way)
{
    const float *values = vectors(s, 1, 1);
    b->bytes = 0;
    put(b, "GGUF", 4);
    put_number(b, way->version, 4);
    put_number(b, s.layers - 1, 8);
    put_number(b, 5, 8);
    put_text(b, "general.architecture");
    put_number(b, 8, 4);
    put_text(b, "controlvector");
    put_text(b, "general.alignment");
    put_number(b, 4, 4);
    put_number(b, way->align, 4);
    put_text(b, "controlvector.layer_count");
    put_number(b, 5, 4);
    put_number(b, s.layers - 1, 4);
    put_text(b, "notes");
    put_number(b, 9, 4); /* a list of two lists, of texts and of bytes */
    put_number(b, 9, 4);
    put_number(b, 2, 8);
    put_number(b, 8, 4);
    put_number(b, 1, 8);
    put_text(b, "x");
    put_number(b, 0, 4);
    put_number(b, 3, 8);
    put(b, "abc", 3);
    put_text(b, "flag");
    put_number(b, 7, 4);
    put_number(b, 1, 1);
    for (uint32_t i = 1; i < s.layers; i++) {
        char name[32];
        snprintf(name, sizeof name, "direction.%u", i);
        put_text(b, i == 1 && way->name ? way->name : name);
        put_number(b, way->rank, 4);
        for (uint32_t k = 0; k < way->rank; k++) {
            put_number(b, k ? 1 : s.hidden, 8);
        }
        put_number(b, way->type, 4);
        put_number(b, (uint64_t)(i - 1) * s.hidden * 4 + (i + 1 == s.layers ? way->offset : 0), 8);
    }
    while (b->bytes % 32) {
        put_number(b, 0, 1);
    }
    put(b, values, (size_t)(s.layers - 1) * s.hidden * sizeof(float));
    b->bytes -= (size_t)way->cut;
}

static void write_file(const char *path, const buffer *b)
{
    FILE *file = fopen(path, "wb");
    CHECK(file && fwrite(b->data, 1, b->bytes, file) == b->bytes && fclose(file) == 0);
}

static void check_file(const rig *r, const char *path, exl2_result wanted, const char *words)
{
    exl2_steer out = { 7 };
    exl2_error error;
    exl2_steer_desc d = { .model = r->model, .path = path };
    CHECK_INT(exl2_steer_make(r->engine, &d, &out), wanted);
    exl2_last_error(r->engine, &error);
    if (!CHECK(strstr(error.text, words) && out.id == 0)) {
        printf("  %s\n", error.text);
    }
}

static void files(void)
{
    static buffer b;
    static const gguf_way good = { 3, 0, 1, NULL, 0, 0, 32, NULL, EXL2_OK };
    static const gguf_way ways[] = {
        { 1, 0, 1, NULL, 0, 0, 32, "version 1 of GGUF", EXL2_ERR_UNSUPPORTED },
        { 3, 1, 1, NULL, 0, 0, 32, "of type 1 of GGUF", EXL2_ERR_UNSUPPORTED },
        { 3, 0, 2, NULL, 0, 0, 32, "of rank 2", EXL2_ERR_FORMAT },
        { 3, 0, 1, "blk.0.attn_q", 0, 0, 32, "'blk.0.attn_q' has no use", EXL2_ERR_FORMAT },
        { 3, 0, 1, "direction.01", 0, 0, 32, "has no use", EXL2_ERR_FORMAT },
        { 3, 0, 1, "direction.4000", 0, 0, 32, "the layers of this model", EXL2_ERR_FORMAT },
        { 3, 0, 1, "direction.2", 0, 0, 32, "has 'direction.2' twice", EXL2_ERR_FORMAT },
        { 3, 0, 1, NULL, 32, 0, 32, "lies beyond the end", EXL2_ERR_FORMAT },
        { 3, 0, 1, NULL, UINT64_MAX / 2, 0, 32, "lies beyond the end", EXL2_ERR_FORMAT },
        { 3, 0, 1, NULL, 0, 4, 32, "lies beyond the end", EXL2_ERR_FORMAT },
        { 3, 0, 1, NULL, 0, 0, 33, "no power of 2", EXL2_ERR_FORMAT },
    };
    char folder[] = "/tmp/exl2_steer_XXXXXX", path[64], header[2048];
    shape s;
    exl2_steer_info arrays, read;
    rig r = open_model("gemma2", (exl2_model_desc){ 0 }, 3, &s);
    exl2_steer of_arrays = make(&r, s, 1), of_file;
    exl2_steer_desc d = { .model = r.model, .path = path };
    CHECK(mkdtemp(folder) != NULL);
    CHECK_INT(exl2_steer_get(r.engine, of_arrays, &arrays), EXL2_OK);
    CHECK_INT(arrays.layers, s.layers - 1);
    CHECK(arrays.largest > 0.1f && arrays.bytes == (uint64_t)s.layers * s.hidden * 4);
    for (uint32_t version = 2; version < 4; version++) {
        gguf_way way = good;
        way.version = version;
        snprintf(path, sizeof path, "%s/v.gguf", folder);
        gguf(&b, s, &way);
        write_file(path, &b);
        CHECK_INT(exl2_steer_make(r.engine, &d, &of_file), EXL2_OK);
        CHECK_INT(exl2_steer_get(r.engine, of_file, &read), EXL2_OK);
        CHECK(memcmp(&arrays, &read, sizeof read) == 0);
        CHECK_INT(exl2_steer_close(r.engine, of_file), EXL2_OK);
    }
    for (size_t cut = 0; cut + 1 < b.bytes; cut += 1 + cut / 40) { /* every end is found */
        buffer part = b;
        part.bytes = cut;
        write_file(path, &part);
        exl2_result result = exl2_steer_make(r.engine, &d, &of_file);
        if (!CHECK(result == EXL2_ERR_FORMAT && of_file.id == 0)) {
            printf("  %zu of %zu bytes: %s\n", cut, b.bytes, exl2_result_name(result));
        }
    }
    for (size_t i = 0; i < EXL2__COUNT(ways); i++) {
        gguf(&b, s, &ways[i]);
        write_file(path, &b);
        check_file(&r, path, ways[i].result, ways[i].words);
    }
    gguf(&b, s, &good);
    memset(b.data + b.bytes - 8, 0xFF, 4);
    write_file(path, &b);
    check_file(&r, path, EXL2_ERR_FORMAT, "is not finite");
    remove(path);
    check_file(&r, path, EXL2_ERR_IO, "no v.gguf in");
    /* safetensors of the same names */
    snprintf(path, sizeof path, "%s/v.safetensors", folder);
    for (uint32_t way = 0; way < 2; way++) {
        int used = snprintf(header, sizeof header, "{");
        for (uint32_t i = 1; i < s.layers; i++) {
            size_t at = (size_t)(i - 1) * s.hidden * 4;
            used += snprintf(header + used, sizeof header - (size_t)used,
                             "%s\"direction.%u\":{\"dtype\":\"F32\",\"shape\":[%s%u],\"data_offsets\":[%zu,%zu]}",
                             i > 1 ? "," : "", i, way ? "1," : "", s.hidden, at, at + s.hidden * 4);
        }
        used += snprintf(header + used, sizeof header - (size_t)used, "}");
        b.bytes = 0;
        put_number(&b, (uint64_t)used, 8);
        put(&b, header, (size_t)used);
        put(&b, vectors(s, 1, 1), (size_t)(s.layers - 1) * s.hidden * 4);
        write_file(path, &b);
        if (way) {
            check_file(&r, path, EXL2_ERR_FORMAT, "of rank 2");
            continue;
        }
        CHECK_INT(exl2_steer_make(r.engine, &d, &of_file), EXL2_OK);
        CHECK_INT(exl2_steer_get(r.engine, of_file, &read), EXL2_OK);
        CHECK(memcmp(&arrays, &read, sizeof read) == 0);
    }
    remove(path);
    rmdir(folder);
    rig_close(&r);
}

/* ---- rejected calls, memory ---- */

static void refuse(const rig *r, exl2_job_desc d, const exl2_steer_use *uses, uint32_t count, exl2_result wanted,
                   const char *words)
{
    exl2_error error;
    d.steers = uses;
    d.steer_count = count;
    CHECK_INT(exl2_job_start(r->engine, &d, NULL), wanted);
    exl2_last_error(r->engine, &error);
    if (!CHECK(strstr(error.text, words) != NULL)) {
        printf("  %s\n", error.text);
    }
}

static void rejected(void)
{
    static rig_said said;
    exl2_token id = 9;
    shape s;
    exl2_error error;
    rig r = open_model("llama3-rope", (exl2_model_desc){ 0 }, 5, &s);
    exl2_model other;
    exl2_model_desc m = { .path = rig_golden("llama3-rope"), .steer_max = 1 };
    exl2_steer a = make(&r, s, 0), foreign, out;
    CHECK_INT(exl2_model_load(r.engine, &m, &other), EXL2_OK);
    rig second = { r.engine, other };
    foreign = make(&second, s, 0);
    exl2_job_desc d = rig_job(&r, &id, 1, 1, &said);
    exl2_steer_use five[5] = { { a, 1 } }, twice[2] = { { a, 1 }, { a, 2 } }, none = { { 99 }, 1 };
    exl2_steer_use of_other = { foreign, 1 }, large = { a, 100.5f }, nan = { a, (float)NAN };
    refuse(&r, d, five, 5, EXL2_ERR_ARG, "at most 4");
    refuse(&r, d, twice, 2, EXL2_ERR_ARG, "twice");
    refuse(&r, d, &none, 1, EXL2_ERR_STALE, "names no control vector");
    refuse(&r, d, &of_other, 1, EXL2_ERR_ARG, "another model");
    refuse(&r, d, &large, 1, EXL2_ERR_ARG, "-100 to 100");
    refuse(&r, d, &nan, 1, EXL2_ERR_ARG, "-100 to 100");
    refuse(&r, d, NULL, 1, EXL2_ERR_ARG, "its array is NULL");
    float bad[HIDDEN_MAX * LAYERS_MAX] = { 0 };
    bad[3] = (float)INFINITY;
    exl2_steer_desc v = { .model = r.model, .values = bad, .layer_count = 1 };
    CHECK_INT(exl2_steer_make(r.engine, &v, &out), EXL2_ERR_ARG);
    bad[3] = 0;
    v.first_layer = s.layers;
    CHECK_INT(exl2_steer_make(r.engine, &v, &out), EXL2_ERR_ARG);
    v.first_layer = 1;
    v.layer_count = s.layers;
    CHECK_INT(exl2_steer_make(r.engine, &v, &out), EXL2_ERR_ARG);
    v.path = "x.gguf";
    CHECK_INT(exl2_steer_make(r.engine, &v, &out), EXL2_ERR_ARG);
    v = (exl2_steer_desc){ .model = r.model };
    CHECK_INT(exl2_steer_make(r.engine, &v, &out), EXL2_ERR_ARG);
    v = (exl2_steer_desc){ .model = other, .values = bad, .layer_count = 1 };
    CHECK_INT(exl2_steer_make(r.engine, &v, &out), EXL2_ERR_BUDGET);
    exl2_last_error(r.engine, &error);
    CHECK(strstr(error.text, "steer_max is 1") != NULL);
    /* a vector of zeros is one, and adds nothing: the set is the base's */
    v.model = r.model;
    exl2_steer_info info;
    CHECK_INT(exl2_steer_make(r.engine, &v, &out), EXL2_OK);
    CHECK_INT(exl2_steer_get(r.engine, out, &info), EXL2_OK);
    CHECK(info.layers == 0 && info.largest <= 0);
    exl2_steer_use zero = { out, 3 };
    exl2_session free_one = { 0 };
    CHECK_INT(reused(&r, free_one, NULL, 0), 0);
    check_reused(reused(&r, free_one, &zero, 1), 69);
    rig_close(&r);
    rig bare = open_model("llama3-rope", (exl2_model_desc){ 0 }, 0, &s);
    v.model = bare.model;
    CHECK_INT(exl2_steer_make(bare.engine, &v, &out), EXL2_ERR_STATE);
    exl2_last_error(bare.engine, &error);
    CHECK(strstr(error.text, "steer_max 0") != NULL);
    rig_close(&bare);
}

/* The plan counts the room, and making vectors of arrays or using them allocates nothing. */
static void memory(void)
{
    static rig_said said;
    exl2_token ids[40];
    shape s;
    exl2_model_info info[2];
    exl2_engine_stats before, after;
    rig r = open_model("llama3-rope", (exl2_model_desc){ 0 }, 4, &s);
    exl2_model_desc m = { .path = rig_golden("llama3-rope"), .steer_max = 4 };
    for (uint32_t i = 0; i < 2; i++, m.steer_max = 0) {
        CHECK_INT(exl2_model_measure(r.engine, &m, &info[i]), EXL2_OK);
    }
    CHECK(info[0].scratch_bytes - info[1].scratch_bytes >= 4u * s.layers * s.hidden * 4);
    CHECK(!ON_GPU || info[0].device_bytes - info[1].device_bytes >= 4u * s.layers * s.hidden * 4);
    exl2_stats(r.engine, &before);
    exl2_steer_use uses[4];
    for (uint32_t i = 0; i < 4; i++) {
        uses[i] = (exl2_steer_use){ make(&r, s, i), 0.1f * (float)i };
    }
    exl2_job_desc d = rig_job(&r, ids, prompt_of(ids, 40, 1), WORDS, &said);
    d.steers = uses;
    d.steer_count = 4;
    rig_run(&r, &d);
    exl2_stats(r.engine, &after);
    CHECK_INT(after.allocations, before.allocations);
    rig_close(&r);
}

int main(void)
{
    goldens();
    one_layer();
    beside("llama3-rope", 0, 0, 8);
    beside("gemma2", 24, 200, 8);
    beside("cohere", 24, 0, 16);
    cache();
    saved(0);
    saved(EXL2_SAVE_KV);
    parked();
    others();
    files();
    rejected();
    memory();
    return check_done();
}
