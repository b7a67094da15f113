/* grammar_common.c: what several grammars allow in common, without a model. Each mask is compared with two searches: of
   the grammars' own states token by token, and of the pairs of their states for an end. Then what the masks cost, in
   visited nodes, beside those of the grammars alone. The shapes of tokens, which masks are made with, are compared with
   the tokens' texts. */
#define _GNU_SOURCE /* mkdtemp */
#include "../grammar_rig.h"

typedef struct source {
    exl2_grammar_kind kind;
    const char *text;
} source;

#define STRING(max) "{\"type\":\"string\",\"minLength\":1,\"maxLength\":" #max "}"
#define REPLY                                                                                                     \
    "{\"type\":\"object\",\"properties\":{\"say\":{\"type\":\"string\",\"maxLength\":24}},\"required\":[\"say\"]}"
#define LINE                                                                                                      \
    "{\"type\":\"object\",\"properties\":{\"mood\":{\"enum\":[\"calm\",\"angry\"]},\"say\":{\"type\":\"string\"," \
    "\"maxLength\":90}},\"required\":[\"mood\",\"say\"]}"

typedef struct pair {
    source of[3];
    uint32_t count;
    double cost; /* nodes of the common masks / nodes of the grammars' own, at most */
} pair;

static const pair pairs[] = {
    { { { EXL2_GRAMMAR_JSON_SCHEMA, STRING(200) }, { EXL2_GRAMMAR_REGEX, "\"[A-Za-z ,.']+\"" } }, 2, 1.05 },
    { { { EXL2_GRAMMAR_JSON_SCHEMA, STRING(60) }, { EXL2_GRAMMAR_REGEX, "\"[^ab]*\"" } }, 2, 1.05 },
    { { { EXL2_GRAMMAR_JSON_SCHEMA, STRING(50) }, { EXL2_GRAMMAR_REGEX, "\"([A-Z][a-z ]{2,}[.!?] ?)+\"" } }, 2, 1.2 },
    { { { EXL2_GRAMMAR_JSON_SCHEMA, LINE }, { EXL2_GRAMMAR_REGEX, "[^\\\\]*" } }, 2, 1.05 },
    { { { EXL2_GRAMMAR_JSON_SCHEMA, LINE }, { EXL2_GRAMMAR_REGEX, "[^\\\\]*" }, { EXL2_GRAMMAR_REGEX, ".{25,80}" } }, 3,
      0.5 },
    /* dead ends near to most tokens: after a quote, at the end of a count, after a letter, without a word */
    { { { EXL2_GRAMMAR_JSON_SCHEMA, REPLY }, { EXL2_GRAMMAR_REGEX, "(.{2})*" } }, 2, 1.1 },
    { { { EXL2_GRAMMAR_JSON_SCHEMA, STRING(30) }, { EXL2_GRAMMAR_REGEX, "\"[^\\\\]*\\.\"" } }, 2, 3.2 },
    { { { EXL2_GRAMMAR_JSON_SCHEMA, STRING(40) }, { EXL2_GRAMMAR_REGEX, "\"[b-y]{3,96}z?\"" } }, 2, 1.1 },
    { { { EXL2_GRAMMAR_JSON_SCHEMA, REPLY }, { EXL2_GRAMMAR_REGEX, "(.*the){2}.*" } }, 2, 1.3 },
    /* tokens of 17 characters without a w may come at first, longer ones may not */
    { { { EXL2_GRAMMAR_JSON_SCHEMA, STRING(19) }, { EXL2_GRAMMAR_REGEX, "(.*w){2}.*" } }, 2, 1.3 },
    { { { EXL2_GRAMMAR_REGEX, "z?.{1,19}" }, { EXL2_GRAMMAR_REGEX, "(.*w){2}.*" } }, 2, 1.3 },
    { { { EXL2_GRAMMAR_REGEX, "[a-z ]{3,200}" }, { EXL2_GRAMMAR_REGEX, "[^xyz]*" } }, 2, 1.05 },
    { { { EXL2_GRAMMAR_REGEX, "(abc|[d-f]+x|b[^a]*){1,9}" }, { EXL2_GRAMMAR_REGEX, "([ab]+|e*d)*x?c{0,2}" } }, 2, 1.2 },
    { { { EXL2_GRAMMAR_CHOICES, "the north gate\nthe northern sea\nnowhere\nthe south" },
        { EXL2_GRAMMAR_REGEX, "[^g]*(sea|south|gate)" } }, 2, 1.2 },
    { { { EXL2_GRAMMAR_JSON_SCHEMA, "{\"type\":\"array\",\"items\":{\"type\":\"boolean\"},\"minItems\":3}" },
        { EXL2_GRAMMAR_REGEX, "(.*true){2}.{0,40}" } }, 2, 1.2 },
};

static exl2__grammar made[4], alone[3]; /* made[3]: what the first ones have in common */

/* ---- an independent search for an end ---- */

#define PLACES 6000u

typedef struct place_of {
    uint32_t state[3];
} place_of;

static place_of queue[PLACES];
static uint32_t tokens_of[PLACES];
static uint32_t found_at[4 * PLACES]; /* places of the queue by their hash; UINT32_MAX: none */

static bool step(const pair *p, const place_of *from, uint32_t byte, place_of *to)
{
    bool alive = true;
    char text = (char)byte;
    for (uint32_t k = 0; k < p->count; k++) {
        to->state[k] = exl2__grammar_state_next(&made[k].mask.states, from->state[k], &text, 1);
        alive = alive && to->state[k] != EXL2__GRAMMAR_STATE_DEAD;
    }
    return alive;
}

/* The entry of found_at that has `to`, or will have it. */
static uint32_t *entry_of(const place_of *to)
{
    size_t at = (to->state[0] * 2654435761u + to->state[1] * 40503u + to->state[2] * 69069u) % EXL2__COUNT(found_at);
    while (found_at[at] != UINT32_MAX && memcmp(&queue[found_at[at]], to, sizeof *to) != 0) {
        at = at + 1 == EXL2__COUNT(found_at) ? 0 : at + 1;
    }
    return &found_at[at];
}

/* Bytes up to the nearest end; PLACES: none within so many places; UINT32_MAX: there is none. */
static uint32_t bytes_to_end(const pair *p, place_of from)
{
    uint32_t count = 1;
    memset(found_at, 0xFF, sizeof found_at);
    *entry_of(&from) = 0;
    queue[0] = from;
    tokens_of[0] = 0;
    for (uint32_t i = 0; i < count; i++) {
        bool ends = true;
        for (uint32_t k = 0; k < p->count; k++) {
            ends = ends && made[k].mask.states.states[queue[i].state[k]].may_end;
        }
        if (ends) {
            return tokens_of[i];
        }
        for (uint32_t byte = 0; byte < 256; byte++) {
            place_of to = { { 0 } };
            if (!step(p, &queue[i], byte, &to)) {
                continue;
            }
            uint32_t *entry = entry_of(&to);
            if (*entry != UINT32_MAX) {
                continue;
            }
            if (count == PLACES) {
                return PLACES;
            }
            *entry = count;
            queue[count] = to;
            tokens_of[count++] = tokens_of[i] + 1;
        }
    }
    return UINT32_MAX;
}

/* ---- masks ---- */

static uint32_t checked, dead_ends, searched, alike[EXL2__GRAMMAR_MASK_ALIKE];

/* Each bit, by walking the token's bytes in each grammar alone. Of tokens that only the common mask rejects, some are
   searched for an end. */
static void check_mask(const pair *p, const exl2__grammar_mask_place *place, uint32_t left, const uint32_t *bits)
{
    uint32_t wrong = 0;
    exl2__grammar_state *s = &made[3].mask.states;
    for (uint32_t id = 0; id < vocab.id_count; id++) {
        size_t bytes;
        bool special, fits = true, bit = bits[id / 32] >> id % 32 & 1;
        const char *text = exl2__vocab_piece(&vocab, (exl2_token)id, &bytes, &special);
        place_of to = { { 0 } };
        for (uint32_t k = 0; k < p->count && fits; k++) {
            exl2__grammar_state *own = &made[k].mask.states;
            to.state[k] = special || !bytes ? 0 : exl2__grammar_state_next(own, place->of[k], text, bytes);
            fits = to.state[k] != EXL2__GRAMMAR_STATE_DEAD;
        }
        uint32_t next = special || !bytes ? 0 : exl2__grammar_state_next(s, place->state, text, bytes);
        bool live = next != EXL2__GRAMMAR_STATE_DEAD;
        wrong += (!fits && live) || bit != (live && s->states[next].tokens < left);
        if (fits && (live ? random_number(2000) : random_number(40)) == 0) {
            uint32_t end = bytes_to_end(p, to);
            wrong += end != PLACES && (live ? end == UINT32_MAX || s->states[next].tokens > end : end != UINT32_MAX);
            searched++;
        }
        dead_ends += fits && !live;
    }
    CHECK_INT(wrong, 0);
    checked++;
}

/* Makes every second mask in parts, as a step with a budget does. */
static void make_in_parts(exl2__grammar_mask *m, exl2__grammar_mask_place *place, uint32_t left)
{
    for (uint32_t most = 1 + random_number(600), parts = 0; left % 2 && CHECK(parts < 1000000); parts++) {
        if (exl2__grammar_mask_cost(m, place, left) == 0) {
            break;
        }
        exl2__grammar_mask_prepare(m, place, left, most);
    }
}

static exl2_token choose(const uint32_t *bits)
{
    uint32_t allowed = 0, pick, id = 0;
    for (uint32_t i = 0; i < vocab.id_count; i++) {
        allowed += bits[i / 32] >> i % 32 & 1;
    }
    if (!allowed) {
        return -1;
    }
    for (pick = random_number(allowed); !(bits[id / 32] >> id % 32 & 1) || pick-- > 0; id++) {
    }
    return (exl2_token)id;
}

/* One text of at most `left` tokens. The grammars alone follow it, too. compared: one mask in so many is compared, and
   masks are made in parts, too. */
static void follow(const pair *p, uint32_t left, uint32_t compared)
{
    exl2__grammar_mask_place place, own[3];
    static char text[1 << 14];
    size_t used = 0;
    CHECK_INT(exl2__grammar_mask_join(&context, &made[3].mask, &place), EXL2_OK);
    for (uint32_t k = 0; k < p->count; k++) {
        CHECK_INT(exl2__grammar_mask_join(&context, &alone[k].mask, &own[k]), EXL2_OK);
    }
    CHECK(exl2__grammar_mask_shortest(&made[3].mask, &place) <= left);
    for (;; left--) {
        const uint32_t *bits, *others;
        bool may_end, other_end;
        if (compared) {
            make_in_parts(&made[3].mask, &place, left);
        }
        if (!CHECK_INT(exl2__grammar_mask_get(&context, &made[3].mask, &place, left, &bits, &may_end), EXL2_OK)) {
            break;
        }
        for (uint32_t k = 0; k < p->count; k++) {
            CHECK_INT(exl2__grammar_mask_get(&context, &alone[k].mask, &own[k], 9999, &others, &other_end), EXL2_OK);
        }
        if (left && compared && (used == 0 || random_number(compared) == 0)) {
            check_mask(p, &place, left, bits);
        }
        exl2_token token = choose(bits), forced;
        CHECK_INT(exl2__grammar_forced_token(&context, &made[3].mask, &place, left, &forced), EXL2_OK);
        CHECK(forced < 0 || bits[forced / 32] >> forced % 32 & 1);
        if (token < 0 || left == 0 || (may_end && random_number(12) == 0)) {
            CHECK(may_end);
            break;
        }
        token = forced >= 0 && random_number(2) ? forced : token;
        size_t bytes;
        bool special;
        const char *piece = exl2__vocab_piece(&vocab, token, &bytes, &special);
        CHECK_INT(exl2__grammar_mask_accept(&context, &made[3].mask, &place, token, 0), EXL2_OK);
        for (uint32_t k = 0; k < p->count; k++) {
            CHECK_INT(exl2__grammar_mask_accept(&context, &alone[k].mask, &own[k], token, 0), EXL2_OK);
        }
        memcpy(text + used, piece, bytes);
        used += bytes;
    }
    exl2__grammar_mask_leave(&made[3].mask, &place);
    for (uint32_t k = 0; k < p->count; k++) {
        exl2__grammar_mask_leave(&alone[k].mask, &own[k]);
        CHECK(fits_at_once(&alone[k], text, used));
    }
}

static uint64_t nodes_of(const exl2__grammar *g, uint32_t count)
{
    uint64_t nodes = 0;
    for (uint32_t k = 0; k < count; k++) {
        nodes += g[k].mask.nodes;
    }
    return nodes;
}

/* Random states that are alike: both allow the same tokens up to the length for which they are. */
static void check_alike(void)
{
    static const uint32_t lengths[] = { EXL2__GRAMMAR_VOCAB_SHORT, EXL2__GRAMMAR_VOCAB_LONG, UINT32_MAX };
    exl2__grammar_state *s = &made[3].mask.states;
    const exl2__grammar_mask_bound *bounds = made[3].mask.bounds;
    for (uint32_t tries = 0; tries < 24; tries++) {
        uint32_t level = tries % EXL2__GRAMMAR_MASK_ALIKE, a = 1 + random_number(s->state_count - 1), b = a, wrong = 0;
        for (uint32_t i = 1 + random_number(s->state_count - 1), n = 1; n < s->state_count && b == a; n++) {
            b = i != a && bounds[i].alike[level] == bounds[a].alike[level] ? i : a;
            i = i + 1 < s->state_count ? i + 1 : 1;
        }
        for (uint32_t id = 0; id < vocab.id_count && b != a; id++) {
            size_t bytes;
            uint32_t characters = 0, code;
            bool special;
            const char *text = exl2__vocab_piece(&vocab, (exl2_token)id, &bytes, &special);
            for (size_t at = 0; text && !special && at < bytes; characters++) {
                at += exl2__unicode_next(text + at, bytes - at, &code);
            }
            wrong += characters && characters <= lengths[level]
                && (exl2__grammar_state_next(s, a, text, bytes) == EXL2__GRAMMAR_STATE_DEAD)
                    != (exl2__grammar_state_next(s, b, text, bytes) == EXL2__GRAMMAR_STATE_DEAD);
        }
        CHECK_INT(wrong, 0);
        alike[level] += b != a;
    }
}

static void check_pair(const pair *p, uint64_t cache_bytes)
{
    exl2__grammar *from[3];
    uint64_t held = context.host_bytes;
    for (uint32_t k = 0; k < p->count; k++) {
        from[k] = &made[k];
        if (!open_grammar(p->of[k].kind, p->of[k].text, cache_bytes, &made[k])
            || !open_grammar(p->of[k].kind, p->of[k].text, 0, &alone[k])) {
            return;
        }
    }
    if (!CHECK_INT(exl2__grammar_intersect(&context, from, p->count, NULL, &made[3]), EXL2_OK)) {
        printf("  %s\n", context.error.text);
        return;
    }
    check_alike();
    exl2__grammar_mask_place place;
    CHECK_INT(exl2__grammar_mask_join(&context, &made[3].mask, &place), EXL2_OK);
    uint32_t shortest = exl2__grammar_mask_shortest(&made[3].mask, &place);
    exl2__grammar_mask_leave(&made[3].mask, &place);
    for (uint32_t i = 0; i < 4; i++) { /* far from the end of the tokens: what a mask costs */
        follow(p, 400, 0);
    }
    uint64_t common = made[3].mask.nodes, own = nodes_of(alone, p->count);
    for (uint32_t k = 0; k < p->count; k++) {
        common += made[k].mask.nodes;
    }
    if (!CHECK((double)common <= p->cost * (double)own || cache_bytes)) {
        printf("  %s: %llu nodes, alone %llu\n", p->of[1].text, (unsigned long long)common, (unsigned long long)own);
    }
    follow(p, 400, cache_bytes ? 0 : 6); /* a search needs states, for which a small block has no room */
    for (uint32_t i = 0; i < 6; i++) { /* near the end of the tokens */
        follow(p, shortest + i * i, cache_bytes ? 0 : 4);
    }
    exl2__grammar_close(&context, &made[3]);
    for (uint32_t k = 0; k < p->count; k++) {
        CHECK_INT(made[k].mask.place_count, 0);
        exl2__grammar_close(&context, &made[k]);
        exl2__grammar_close(&context, &alone[k]);
    }
    CHECK_INT(context.host_bytes, held);
}

/* Each token has a place in one shape: its bytes are in the ranges of the nodes down to it. */
static void check_shapes(void)
{
    const exl2__grammar_shapes *s = &table.shapes;
    uint8_t *seen = calloc(vocab.id_count, 1);
    const exl2__grammar_shape *path[256];
    uint32_t tokens = 0, wrong = 0, nested = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        const exl2__grammar_shape *n = path[s->nodes[i].depth - 1] = &s->nodes[i];
        uint32_t deepest = n->depth, characters = 0;
        for (uint32_t k = i + 1; k < n->skip; k++) {
            deepest = s->nodes[k].depth > deepest ? s->nodes[k].depth : deepest;
            nested += s->nodes[k].depth <= n->depth;
        }
        nested += deepest - n->depth != n->height || (n->skip < s->count && s->nodes[n->skip].depth > n->depth);
        for (uint32_t k = n->first; k < n[1].first; k++, tokens++) {
            size_t bytes;
            bool special, text;
            const char *piece = exl2__vocab_piece(&vocab, (exl2_token)s->ids[k], &bytes, &special);
            characters = 0;
            for (uint32_t b = 0; b < bytes && b < n->depth; b++) {
                uint8_t byte = (uint8_t)piece[b];
                wrong += byte < path[b]->low || byte > path[b]->high;
                characters += (byte & 0xC0) != 0x80;
            }
            text = table.masks[EXL2__GRAMMAR_VOCAB_LENGTHS - 1][s->ids[k] / 32] >> s->ids[k] % 32 & 1;
            wrong += bytes != n->depth || characters != n->chars || special || seen[s->ids[k]]++
                || text != (i < s->text_count);
        }
    }
    for (uint32_t id = 0; id < vocab.id_count; id++) {
        size_t bytes;
        bool special;
        const char *piece = exl2__vocab_piece(&vocab, (exl2_token)id, &bytes, &special);
        tokens -= piece && !special && bytes > 0 && bytes <= EXL2__GRAMMAR_VOCAB_BYTES_MAX;
    }
    CHECK_INT(wrong, 0);
    CHECK_INT(nested, 0);
    CHECK_INT(tokens, 0);
    CHECK(s->count > 1000 && s->count < 3000 && s->text_count > s->count / 2 && s->text_count < s->count);
    free(seen);
}

/* Two places of one text go on by themselves; when a factor makes room, both are renumbered. */
static void check_places(void)
{
    exl2__grammar *from[2] = { &made[0], &made[1] };
    exl2__grammar_mask_place a, b;
    const uint32_t *bits;
    bool may_end;
    open_grammar(EXL2_GRAMMAR_JSON_SCHEMA, STRING(200), 1, &made[0]);
    open_grammar(EXL2_GRAMMAR_REGEX, "\"([a-m]{1,40} )*[n-z]{1,9}\"", 1, &made[1]);
    CHECK_INT(exl2__grammar_intersect(&context, from, 2, NULL, &made[3]), EXL2_OK);
    CHECK_INT(exl2__grammar_mask_join(&context, &made[3].mask, &a), EXL2_OK);
    for (uint32_t i = 0; i < 30; i++) {
        CHECK_INT(exl2__grammar_mask_get(&context, &made[3].mask, &a, 300, &bits, &may_end), EXL2_OK);
        exl2_token token = choose(bits);
        if (token < 0) {
            break;
        }
        CHECK(exl2__grammar_mask_copy(&made[3].mask, &a, &b));
        CHECK_INT(exl2__grammar_mask_accept(&context, &made[3].mask, &b, token, 0), EXL2_OK);
        exl2__grammar_mask_collect(&made[0].mask, NULL, 0);
        exl2__grammar_mask_collect(&made[1].mask, NULL, 0);
        CHECK_INT(exl2__grammar_mask_accept(&context, &made[3].mask, &a, token, 0), EXL2_OK);
        CHECK(a.state == b.state && a.of[0] == b.of[0] && a.of[1] == b.of[1]);
        exl2__grammar_mask_leave(&made[3].mask, &b);
    }
    exl2__grammar_mask_leave(&made[3].mask, &a);
    CHECK_INT(made[0].mask.place_count + made[1].mask.place_count + made[3].mask.place_count, 0);
    /* a token that only one of them allows moves nothing */
    CHECK_INT(exl2__grammar_mask_join(&context, &made[3].mask, &a), EXL2_OK);
    exl2__grammar_mask_place before = a;
    CHECK_INT(exl2__grammar_mask_accept(&context, &made[3].mask, &a, 'a', 0), EXL2_ERR_ARG);
    CHECK(memcmp(&before, &a, sizeof a) == 0);
    exl2__grammar_mask_leave(&made[3].mask, &a);
    /* a factor with as many texts as it can have */
    exl2__grammar_mask_place many[EXL2__GRAMMAR_MASK_PLACES_MAX];
    for (uint32_t i = 0; i < EXL2__GRAMMAR_MASK_PLACES_MAX; i++) {
        CHECK_INT(exl2__grammar_mask_join(&context, &made[1].mask, &many[i]), EXL2_OK);
    }
    CHECK_INT(exl2__grammar_mask_join(&context, &made[3].mask, &a), EXL2_ERR_BUDGET);
    CHECK_INT(made[0].mask.place_count + made[3].mask.place_count, 0);
    for (uint32_t i = 0; i < EXL2__GRAMMAR_MASK_PLACES_MAX; i++) {
        exl2__grammar_mask_leave(&made[1].mask, &many[i]);
    }
    for (uint32_t i = 0; i < 4; i++) {
        exl2__grammar_close(&context, &made[i]);
        made[i] = (exl2__grammar){ 0 };
    }
}

/* No end needs a banned token, and what cannot end without one is refused by the right sentence. */
static void check_bans(void)
{
    exl2__grammar *from[2] = { &made[0], &made[1] };
    exl2__grammar_mask_place place;
    uint32_t *banned = calloc(table.words, sizeof *banned);
    open_grammar(EXL2_GRAMMAR_REGEX, "a*(bc|[de]*f)", 0, &made[0]);
    open_grammar(EXL2_GRAMMAR_REGEX, "a+[^g]*", 0, &made[1]);
    for (uint32_t id = 0; id < vocab.id_count; id++) {
        size_t bytes;
        bool special;
        const char *text = exl2__vocab_piece(&vocab, (exl2_token)id, &bytes, &special);
        banned[id / 32] |= (uint32_t)(text && !special && memchr(text, 'f', bytes) != NULL) << id % 32;
    }
    if (CHECK_INT(exl2__grammar_intersect(&context, from, 2, banned, &made[3]), EXL2_OK)) {
        const uint32_t *bits;
        bool may_end;
        CHECK_INT(exl2__grammar_mask_join(&context, &made[3].mask, &place), EXL2_OK);
        CHECK_INT(exl2__grammar_mask_get(&context, &made[3].mask, &place, 300, &bits, &may_end), EXL2_OK);
        for (uint32_t id = 0; id < vocab.id_count; id++) { /* d and e lead to f alone */
            size_t bytes;
            bool special;
            const char *text = exl2__vocab_piece(&vocab, (exl2_token)id, &bytes, &special);
            bool leads = text && !special && bytes && (memchr(text, 'd', bytes) || memchr(text, 'e', bytes));
            CHECK(!leads || !(bits[id / 32] >> id % 32 & 1));
        }
        exl2__grammar_mask_leave(&made[3].mask, &place);
        exl2__grammar_close(&context, &made[3]);
    }
    for (uint32_t id = 0; id < vocab.id_count; id++) {
        size_t bytes;
        bool special;
        const char *text = exl2__vocab_piece(&vocab, (exl2_token)id, &bytes, &special);
        banned[id / 32] |= (uint32_t)(text && !special && memchr(text, 'c', bytes) != NULL) << id % 32;
    }
    uint64_t held = context.host_bytes;
    CHECK_INT(exl2__grammar_intersect(&context, from, 2, banned, &made[3]), EXL2_ERR_ARG);
    CHECK(strstr(context.error.text, "exclude tokens that every text") != NULL);
    CHECK_INT(context.host_bytes, held);
    exl2__grammar_close(&context, &made[1]);
    open_grammar(EXL2_GRAMMAR_REGEX, "g+", 0, &made[1]);
    CHECK_INT(exl2__grammar_intersect(&context, from, 2, banned, &made[3]), EXL2_ERR_ARG);
    CHECK_TEXT(context.error.text, "no text fits all 2 grammars of the job");
    exl2__grammar_close(&context, &made[0]);
    exl2__grammar_close(&context, &made[1]);
    free(banned);
}

int main(void)
{
    context = rows_ctx();
    if (!CHECK(vocab_open(&context, EXL2_GOLDEN_DIR "/smollm2", &vocab) == EXL2_OK)
        || !CHECK(exl2__grammar_vocab_open(&context, &vocab, &table) == EXL2_OK)) {
        return check_done();
    }
    check_shapes();
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        check_pair(&pairs[i], 0);
    }
    check_pair(&pairs[0], 1); /* in blocks so small that states are forgotten all the time */
    check_pair(&pairs[6], 1);
    check_places();
    check_bans();
    CHECK(checked > 100 && dead_ends > 1000 && searched > 300);
    CHECK(alike[0] > 50 && alike[1] > 30 && alike[2] > 30);
    printf("%u masks, %u tokens into dead ends, %u ends searched; %u, %u, %u pairs of states alike\n", checked,
           dead_ends, searched, alike[0], alike[1], alike[2]);
    exl2__grammar_vocab_close(&context, &table);
    exl2__vocab_close(&context, &vocab);
    return check_done();
}
