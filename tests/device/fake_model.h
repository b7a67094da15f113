/* fake_model.h: a model of what the kernels do to histories, and of nothing else. Attention stores (token, position) in
   the pages of its rows; sampling returns a token that depends on every token in the row's pages. So a page that is
   missing, stale, or of another session changes the generated tokens. Layers whose K and V lie in window parts of pages
   must have in a row's window what the next layer without them has there.
   takes: launches, as fake.run.
   gives: fake_model_run, fake_model_say, fake_model_kinds.
   owns:  the table of passes; marks lie in the pages. */
#ifndef FAKE_MODEL_H
#define FAKE_MODEL_H

#include "fake_engine.h"

#define FAKE_MODEL_FIRST 16u /* lower ids, which include the end-of-text tokens, are never sampled */

typedef struct fake_mark {
    uint32_t token, place; /* place: 4 * position + kind of the row */
} fake_mark;

#define FAKE_MODEL_PASSES 64u

/* Kinds of rows; they must not share a pass. */
enum { FAKE_ROWS_NONE, FAKE_ROWS_PROMPT, FAKE_ROWS_SAMPLED };

static struct fake_pages { /* for each pass, known by its rows' address: pages of the layer whose attention ran last */
    uint64_t rows, address, used, pass; /* pass: of layers whose K and V lie in pages */
    uint32_t page_bytes, kind;
    exl2k_attend_args parts; /* of the last layer with window parts that is not checked yet; pass 0: there is none */
} fake_pages[FAKE_MODEL_PASSES];

/* Set by a test whose prompts have only ids below FAKE_MODEL_FIRST: every row must be of its token's kind. Only the
   last token of a reply that a prompt follows is one of the prompt, too. */
static bool fake_model_kinds;
static bool fake_model_guesses; /* drafts may be tokens of prompts */
static uint32_t fake_model_rows[3]; /* by kind, counted in layer 0 of every model */
static uint64_t fake_model_windows; /* rows whose windows were checked and begin after the history */
static uint64_t fake_pages_used; /* counts uses; the least recently used entry is replaced */

/* The entry of the pass whose rows lie at `rows`. Several models can run on one device at the same time, and each group
   of logits that is sampled has a step of its own; but the address of the rows is the same as in attention before. */
static struct fake_pages *fake_model_pages(uint64_t rows, bool make)
{
    struct fake_pages *found = NULL, *oldest = fake_pages;
    for (uint32_t i = 0; i < FAKE_MODEL_PASSES; i++) {
        found = fake_pages[i].rows == rows ? &fake_pages[i] : found;
        oldest = fake_pages[i].used < oldest->used ? &fake_pages[i] : oldest;
    }
    if (!found && !make) {
        fake_misuse("a row is sampled that no attention has seen");
    }
    if (!found) {
        found = oldest;
        *found = (struct fake_pages){ .rows = rows };
    }
    found->used = ++fake_pages_used;
    return found;
}

/* Device memory that a kernel accesses; misuse if it is not allocated. */
static void *fake_model_at(uint64_t address, uint64_t bytes)
{
    static uint64_t nothing[4096];
    void *memory = fake_memory(address, bytes);
    if (!memory) {
        fake_misuse("a kernel reads or writes outside of device memory");
    }
    return memory || bytes > sizeof nothing ? memory : nothing;
}

/* The place in the pages of the row's sequence where the token at `position` is stored. */
static fake_mark *fake_model_mark(const struct fake_pages *pages, const exl2k_pass *step, const exl2k_row *row,
                                  uint32_t position)
{
    uint64_t entry = (uint64_t)row->sequence * step->table_pitch + position / EXL2K_PAGE_TOKENS;
    uint32_t page = *(uint32_t *)fake_model_at(step->tables + entry * sizeof page, sizeof page);
    uint64_t slot = (uint64_t)position % EXL2K_PAGE_TOKENS * sizeof(fake_mark);
    return fake_model_at(pages->address + (uint64_t)page * pages->page_bytes + slot, sizeof(fake_mark));
}

/* Notes the kind of rows that a kernel of the pass is for. */
static void fake_model_kind(struct fake_pages *pages, uint32_t kind)
{
    if (pages->kind != FAKE_ROWS_NONE && pages->kind != kind) {
        fake_misuse("a pass has rows of both kinds");
    }
    pages->kind = kind;
}

/* Compares the window of each row in its window parts with what its pages have there. */
static void fake_model_check_parts(struct fake_pages *pages, uint32_t count)
{
    struct fake_pages parts = { .address = pages->parts.pages, .page_bytes = pages->parts.page_bytes };
    const exl2k_pass *step = fake_model_at(pages->pass, sizeof *step);
    const exl2k_pass *parts_step = fake_model_at(pages->parts.pass, sizeof *step);
    for (uint32_t i = 0; i < count && i < step->row_count; i++) {
        const exl2k_row *row = fake_model_at(pages->rows + i * sizeof *row, sizeof *row);
        uint32_t window = pages->parts.window, end = row->position + 1;
        for (uint32_t at = end > window ? end - window : 0; at < end && !(row->flags & EXL2K_ROW_DONE); at++) {
            const fake_mark *seen = fake_model_mark(&parts, parts_step, row, at);
            if (seen->place / 4 != at || seen->token != fake_model_mark(pages, step, row, at)->token) {
                fake_misuse("a layer with a window sees a part of a page that holds something else");
            }
            fake_model_windows += at + 1 == end && window < end;
        }
    }
    pages->parts.pass = 0;
}

/* The token before the row's was sampled, too: its kind is known now. */
static void fake_model_check_kind(const struct fake_pages *pages, const exl2k_pass *step, const exl2k_row *row,
                                  uint32_t kind)
{
    bool given = row->token < FAKE_MODEL_FIRST, as_given = kind == FAKE_ROWS_PROMPT;
    if (!fake_model_kinds) {
        return;
    }
    const fake_mark *before = row->position ? fake_model_mark(pages, step, row, row->position - 1) : NULL;
    bool sampled = before && before->place / 4 + 1 == row->position && before->token >= FAKE_MODEL_FIRST;
    if ((given && !as_given && !fake_model_guesses)
        || (sampled && (before->place % 4 == FAKE_ROWS_PROMPT) != (given && as_given))) {
        fake_misuse("a row is computed as one of the other kind");
    }
}

static void fake_model_attend(const exl2k_attend_args *a, uint32_t count, uint32_t kind)
{
    const exl2k_pass *step = fake_model_at(a->pass, sizeof *step);
    struct fake_pages *pages = fake_model_pages(a->rows, true), parts = { .address = a->pages };
    bool first = pages->kind == FAKE_ROWS_NONE, has_parts = a->window < EXL2K_WINDOW_MAX && a->pass != pages->pass;
    fake_model_kind(pages, kind);
    parts.page_bytes = a->page_bytes;
    pages->parts = has_parts ? *a : pages->parts;
    pages->address = has_parts ? pages->address : a->pages;
    pages->page_bytes = a->page_bytes;
    for (uint32_t i = 0; i < count && i < step->row_count; i++) {
        const exl2k_row *row = fake_model_at(a->rows + i * sizeof *row, sizeof *row);
        if (!(row->flags & EXL2K_ROW_DONE)) {
            const struct fake_pages *of = has_parts ? &parts : pages;
            *fake_model_mark(of, step, row, row->position) = (fake_mark){ row->token, 4 * row->position + kind };
            fake_model_rows[kind] += first;
            fake_model_check_kind(of, step, row, kind);
        }
    }
    if (!has_parts && pages->parts.pass) {
        fake_model_check_parts(pages, count);
    }
}

static void fake_model_copy(const exl2k_copy_args *a, uint32_t layers)
{
    for (uint32_t i = 0; i < a->count * layers; i++) {
        const uint32_t *pair = fake_model_at(a->copies + i % a->count * 8, 8);
        uint64_t layer = a->pages + (uint64_t)(i / a->count) * a->page_count * a->page_bytes;
        const void *from = fake_memory(layer + (uint64_t)pair[0] * a->page_bytes, a->page_bytes);
        void *to = fake_memory(layer + (uint64_t)pair[1] * a->page_bytes, a->page_bytes);
        if (from && to) {
            memcpy(to, from, a->page_bytes);
        } else {
            fake_misuse("a copy of a page that is not there");
        }
    }
}

/* Adds a token to the hash of the history; `sum` is 0 before the first token. */
static inline uint32_t fake_model_hear(uint32_t sum, uint32_t token)
{
    return (sum ^ (token + 1)) * 16777619u + 12345u;
}

/* The token that follows a history with this hash. */
static inline exl2_token fake_model_say(uint32_t sum, uint32_t vocab)
{
    return (exl2_token)(FAKE_MODEL_FIRST + (sum >> 7) % (vocab - FAKE_MODEL_FIRST));
}

/* The token that follows the row's history. needed: the token is used, so the row's pages must be right. */
static uint32_t fake_model_draw(const exl2k_sample_args *a, const exl2k_row *row, bool needed)
{
    const exl2k_pass *step = fake_model_at(a->pass, sizeof *step);
    const struct fake_pages *pages = fake_model_pages(a->rows, false);
    uint32_t sum = 0;
    for (uint32_t i = 0; i <= row->position; i++) {
        const fake_mark *mark = fake_model_mark(pages, step, row, i);
        if (mark->place / 4 != i && needed) {
            fake_misuse("attention sees a page that holds something else");
        }
        sum = fake_model_hear(sum, mark->token);
    }
    return (uint32_t)fake_model_say(sum, a->vocab);
}

/* The first token from `token` on, cyclically, that the mask allows. */
static uint32_t fake_model_allowed(uint64_t mask, uint32_t vocab, uint32_t token)
{
    const uint32_t *bits = mask ? fake_model_at(mask, (vocab + 31) / 32 * 4) : NULL;
    for (uint32_t i = 0; i < vocab; i++) {
        uint32_t id = (token + i) % vocab;
        if (!bits || bits[id / 32] >> id % 32 & 1) {
            return id;
        }
    }
    return EXL2K_NO_TOKEN;
}

/* Writes logits of a row that the CPU samples: the token that the kernel would have sampled leads by far. */
static void fake_model_logits(const exl2k_sample_args *a, const exl2k_row *row, uint32_t i)
{
    float *logits = fake_memory(a->logits + (uint64_t)i * a->stride * sizeof(float), a->vocab * sizeof(float));
    if (!logits) {
        fake_misuse("a row of logits is not in device memory");
        return;
    }
    memset(logits, 0, a->vocab * sizeof(float));
    logits[fake_model_draw(a, row, false)] = 50;
}

/* As exl2k_advance of sample.cu. */
static void fake_model_advance(exl2k_row *row, exl2k_sampling *draw, uint32_t token)
{
    if (draw->history_size > 0) {
        *(uint32_t *)fake_model_at(draw->history + 4ull * draw->history_next, 4) = token;
        draw->history_next = (draw->history_next + 1) % draw->history_size;
        draw->history_count += draw->history_count < draw->history_size;
    }
    row->flags = draw->left <= 1 ? EXL2K_ROW_DONE : row->flags >> EXL2K_ROW_MOVED << EXL2K_ROW_MOVED;
    row->token = token;
    row->position++;
    draw->left--;
    draw->position++;
}

static void fake_model_sample(const exl2k_sample_args *a, uint32_t rows)
{
    exl2k_pass *step = fake_model_at(a->pass, sizeof *step);
    exl2k_result *results = (exl2k_result *)(uintptr_t)a->results + step->ticket % EXL2K_RESULT_SETS * a->rows_max;
    if (!fake_pinned((void *)(uintptr_t)a->results, EXL2K_RESULT_SETS * a->rows_max * sizeof *results)) {
        fake_misuse("results go to memory that is not pinned");
        return;
    }
    for (uint32_t i = 0; i < rows && i < step->logit_count; i++) {
        exl2k_sampling *draw = fake_model_at(a->samplings + i * sizeof *draw, sizeof *draw);
        exl2k_row *row = fake_model_at(a->rows + draw->row * sizeof *row, sizeof *row);
        uint32_t token = EXL2K_NO_TOKEN;
        bool done = row->flags & EXL2K_ROW_DONE;
        if (!done) {
            token = draw->use == EXL2K_SCORE ? draw->target
                : fake_model_allowed(draw->mask, a->vocab, fake_model_draw(a, row, true));
        }
        if (!done && draw->use == EXL2K_SCORE) {
            fake_model_logits(a, row, i);
        }
        if (!done && draw->use == EXL2K_SAMPLE && (draw->flags & EXL2K_ADVANCE)) {
            fake_model_advance(row, draw, token);
        }
        results[i] = (exl2k_result){ .sum = (uint64_t)1 << 40 };
        results[i].stamp = token | (uint64_t)(step->ticket + 1) << 32;
    }
    step->ticket++;
}

static void fake_model_run(const char *function, const void *arguments, const unsigned grid[3])
{
    if (strcmp(function, "exl2k_embed") == 0) {
        const exl2k_embed_args *embed = arguments;
        struct fake_pages *pages = fake_model_pages(embed->rows, true);
        pages->kind = FAKE_ROWS_NONE;
        pages->pass = embed->pass;
        pages->parts.pass = 0;
    } else if (strncmp(function, "exl2k_attend_store", 18) == 0) {
        fake_model_attend(arguments, grid[0], FAKE_ROWS_PROMPT);
    } else if (strcmp(function, "exl2k_attend_expand") == 0) { /* of a quantized cache, beside exl2k_attend_quantize */
        fake_model_attend(arguments, UINT32_MAX, FAKE_ROWS_PROMPT);
    } else if (strncmp(function, "exl2k_attend_decode", 19) == 0 || strncmp(function, "exl2k_attend_codes", 18) == 0) {
        fake_model_attend(arguments, grid[2], FAKE_ROWS_SAMPLED);
    } else if (strcmp(function, "exl2k_copy_pages") == 0) {
        fake_model_copy(arguments, grid[1]);
    } else if (strcmp(function, "exl2k_sample_token") == 0) {
        fake_model_sample(arguments, grid[1]);
    }
}

#endif
