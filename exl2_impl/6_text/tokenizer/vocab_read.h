/* vocab_read.h: reads tokenizer.json and tokenizer_config.json into memory.
   takes: a model folder; both files may be missing.
   gives: exl2__vocab_read_begin, exl2__vocab_read_slice, exl2__vocab_read_end.
   owns:  scratch memory and file contents, until exl2__vocab_read_end. */
#ifndef EXL2__VOCAB_READ_H
#define EXL2__VOCAB_READ_H

#include "vocab_measure.h"

/* ---- contents ---- */

/* Writes the length of every piece of model.vocab to starts[id + 1]. */
EXL2__HOT
EXL2__PRIVATE exl2_result exl2__vocab_fill_lengths(exl2__vocab_reader *r, exl2__work *work)
{
    exl2__pieces *p = &r->v->pieces;
    for (; r->at < r->vocab_count; r->at++) {
        const exl2__vocab_entry *e = &r->entries[r->at];
        if (!exl2__work_spend(work, 10)) {
            return EXL2_PENDING;
        }
        if (p->flags[e->id]) {
            return exl2__fail(r->c, EXL2_ERR_FORMAT, EXL2__VOCAB_RULES_FILE ": model.vocab has the id %u twice", e->id);
        }
        p->starts[e->id + 1] = e->bytes;
        p->flags[e->id] = (uint8_t)(EXL2__PIECES_USED | e->kind);
    }
    return EXL2_OK;
}

/* The same for added tokens that are not in model.vocab. */
EXL2__PRIVATE exl2_result exl2__vocab_fill_added_lengths(exl2__vocab_reader *r, exl2__work *work)
{
    exl2__pieces *p = &r->v->pieces;
    exl2__added_token token;
    uint32_t content;
    uint8_t kind;
    while (exl2__work_spend(work, EXL2__VOCAB_ADDED_COST)) {
        EXL2__TRY(exl2__vocab_read_added(r, &token, &content));
        if (r->at == 0) {
            return EXL2_OK;
        }
        if (!(p->flags[token.id] & EXL2__PIECES_USED)) {
            if (p->flags[token.id] & EXL2__PIECES_PLANNED) {
                return exl2__fail(r->c, EXL2_ERR_FORMAT,
                                  EXL2__VOCAB_RULES_FILE ": added_tokens has the id %u twice", token.id);
            }
            p->starts[token.id + 1] = (uint32_t)exl2__vocab_read_bytes(r, &r->j, content, &kind);
            p->flags[token.id] = (uint8_t)(EXL2__PIECES_PLANNED | (kind & EXL2__PIECES_RAW));
        }
    }
    return EXL2_PENDING;
}

/* Turns the lengths into offsets. */
EXL2__HOT
EXL2__PRIVATE exl2_result exl2__vocab_fill_starts(exl2__vocab_reader *r, exl2__work *work)
{
    exl2__pieces *p = &r->v->pieces;
    for (; r->at < p->count; r->at++) {
        if (!exl2__work_spend(work, 2)) {
            return EXL2_PENDING;
        }
        p->longest = exl2__max32(p->longest, p->starts[r->at + 1]);
        p->starts[r->at + 1] += p->starts[r->at];
    }
    r->text_used = p->starts[p->count];
    memset(r->v->raw_ids, 0xFF, sizeof r->v->raw_ids);
    return EXL2_OK;
}

static inline exl2_result exl2__vocab_add_piece(exl2__vocab_reader *r, uint32_t id, uint64_t hash)
{
    return exl2__pieces_add(&r->v->pieces, id, hash)
         ? EXL2_OK
         : exl2__fail(r->c, EXL2_ERR_FORMAT,
                      EXL2__VOCAB_RULES_FILE ": model.vocab has the text of token %u twice, or too many texts with the "
                      "same hash", id);
}

#define EXL2__VOCAB_WAITING 16 /* pieces that wait while their slots are prefetched */

/* Writes the bytes of every piece, and adds the piece to the hash table. */
EXL2__HOT
EXL2__PRIVATE exl2_result exl2__vocab_fill_pieces(exl2__vocab_reader *r, exl2__work *work)
{
    exl2__vocab *v = r->v;
    exl2__pieces *p = &v->pieces;
    exl2__json_token string = { 0, 0, 0, 0, EXL2__JSON_STRING, false };
    exl2__json view = { .text = r->j.text, .tokens = &string };
    uint32_t ids[EXL2__VOCAB_WAITING], count = 0, done = 0;
    uint64_t hashes[EXL2__VOCAB_WAITING];
    for (; r->at < r->vocab_count && exl2__work_spend(work, 80); r->at++) {
        const exl2__vocab_entry *e = &r->entries[r->at];
        uint8_t kind;
        uint32_t id = e->id;
        string.begin = e->begin;
        string.end = e->end;
        string.escaped = e->escaped;
        exl2__vocab_read_bytes(r, &view, 0, &kind);
        int raw = kind & EXL2__PIECES_RAW ? (uint8_t)r->buffer[0] : exl2__pieces_raw(r->buffer, e->bytes);
        memcpy(p->text + p->starts[id], r->buffer, e->bytes);
        if (raw >= 0) {
            v->raw_ids[raw] = id;
        }
        if (!(kind & EXL2__PIECES_BYTES)) {
            continue;
        }
        if (count - done == EXL2__VOCAB_WAITING) {
            EXL2__TRY(exl2__vocab_add_piece(r, ids[done % EXL2__VOCAB_WAITING], hashes[done % EXL2__VOCAB_WAITING]));
            done++;
        }
        ids[count % EXL2__VOCAB_WAITING] = id;
        hashes[count % EXL2__VOCAB_WAITING] = exl2__pieces_hash(r->buffer, e->bytes);
        EXL2__PREFETCH(&p->slots[(uint32_t)hashes[count++ % EXL2__VOCAB_WAITING] & p->mask]);
    }
    for (; done < count; done++) {
        EXL2__TRY(exl2__vocab_add_piece(r, ids[done % EXL2__VOCAB_WAITING], hashes[done % EXL2__VOCAB_WAITING]));
    }
    if (r->at < r->vocab_count) {
        return EXL2_PENDING;
    }
    for (uint32_t byte = 0; byte < 256; byte++) {
        char text = (char)(uint8_t)byte;
        v->byte_ids[byte] = exl2__pieces_find(p, &text, 1);
    }
    exl2__merges_begin(&r->merges, r->c, &r->j, &r->j.flat[1], p, r->buffer, &v->bpe, r->gaps);
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__vocab_fill_merges(exl2__vocab_reader *r, exl2__work *work)
{
    return exl2__merges_slice(&r->merges, work);
}

/* Copies the rules. Where U+2581 is a space, a step is added that cuts text before each space that no merge crosses:
   the result is the same, but short words merge faster. */
EXL2__PRIVATE void exl2__vocab_fill_rules(exl2__vocab_reader *r)
{
    exl2__vocab *v = r->v;
    v->normal = r->rules.normal;
    v->words = r->rules.words;
    v->ignore_merges = r->rules.ignore_merges;
    v->fuse_unk = r->rules.fuse_unk;
    v->byte_fallback = r->rules.byte_fallback;
    v->strip = r->rules.strip;
    if (v->pieces.marked && !v->ignore_merges && v->byte_ids[' '] != EXL2__PIECES_NONE) {
        exl2__words_step *s = &v->words.steps[v->words.count++];
        *s = (exl2__words_step){ 0 };
        s->kind = EXL2__WORDS_MARKS;
        s->kept = r->gaps->kept;
    }
}

/* Appends text to the block of texts, and returns its offset. */
static inline uint32_t exl2__vocab_keep_text(exl2__vocab_reader *r, const char *text, size_t bytes)
{
    uint32_t at = r->text_used;
    memcpy(r->v->pieces.text + at, text, bytes);
    r->text_used += (uint32_t)bytes;
    return at;
}

/* Finds or creates the piece of an added token. If model.vocab has its content, the id from there counts, as in the
   library. */
EXL2__PRIVATE exl2_result exl2__vocab_place_added(exl2__vocab_reader *r, exl2__added_token *token, uint32_t content)
{
    exl2__pieces *p = &r->v->pieces;
    uint8_t kind;
    exl2__normal_view pattern;
    exl2__json_text(&r->j, content, r->buffer, SIZE_MAX);
    EXL2__TRY(exl2__vocab_pattern(r, token, &pattern));
    token->at = exl2__vocab_keep_text(r, pattern.text, pattern.bytes);
    size_t bytes = exl2__pieces_load(p, r->buffer, r->buffer, token->bytes, &kind);
    token->bytes = (uint32_t)pattern.bytes;
    uint32_t known = kind & EXL2__PIECES_BYTES ? exl2__pieces_find(p, r->buffer, bytes) : EXL2__PIECES_NONE;
    if (known != EXL2__PIECES_NONE) {
        token->id = known;
    } else if (!(p->flags[token->id] & EXL2__PIECES_USED)) {
        memcpy(p->text + p->starts[token->id], r->buffer, bytes);
        p->flags[token->id] |= EXL2__PIECES_USED;
    } else {
        size_t other_bytes;
        const char *other = exl2__pieces_text(p, token->id, &other_bytes);
        if (other_bytes != bytes || memcmp(other, r->buffer, bytes) != 0) {
            return exl2__fail(r->c, EXL2_ERR_FORMAT,
                              EXL2__VOCAB_RULES_FILE ": added token \"%.*s\" has the id %u, which is that of \"%.*s\"",
                              (int)token->bytes, r->v->added.text + token->at, token->id, (int)other_bytes, other);
        }
    }
    p->flags[token->id] |= token->special ? EXL2__PIECES_SPECIAL : 0;
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__vocab_fill_added(exl2__vocab_reader *r, exl2__work *work)
{
    exl2__added *a = &r->v->added;
    exl2__added_token token;
    uint32_t content;
    while (exl2__work_spend(work, EXL2__VOCAB_ADDED_COST)) {
        EXL2__TRY(exl2__vocab_read_added(r, &token, &content));
        if (r->at == 0) {
            return EXL2_OK;
        }
        EXL2__TRY(exl2__vocab_place_added(r, &token, content));
        a->tokens[a->count] = token;
        a->count += token.bytes > 0;
    }
    return EXL2_PENDING;
}

EXL2__PRIVATE exl2_result exl2__vocab_sort_added(exl2__vocab_reader *r, exl2__work *work)
{
    exl2__added *a = &r->v->added;
    uint32_t twice, at = (uint32_t)r->at;
    exl2_result result = exl2__added_sort(a, &at, work, &twice);
    r->at = at;
    EXL2__TRY_DONE(result);
    if (twice != EXL2__ADDED_NONE) {
        return exl2__fail(r->c, EXL2_ERR_FORMAT,
                          EXL2__VOCAB_RULES_FILE ": added_tokens has \"%.*s\" twice", (int)a->tokens[twice].bytes,
                          a->text + a->tokens[twice].at);
    }
    return EXL2_OK;
}

/* Id of the token whose string is in r->buffer, or EXL2__PIECES_NONE. Overwrites the buffer. */
EXL2__PRIVATE uint32_t exl2__vocab_resolve(exl2__vocab_reader *r, size_t bytes)
{
    exl2_token added = exl2__vocab_token(r->v, r->buffer, bytes);
    uint8_t kind;
    bytes = exl2__pieces_load(&r->v->pieces, r->buffer, r->buffer, bytes, &kind);
    if (added >= 0) {
        return (uint32_t)added;
    }
    return kind & EXL2__PIECES_BYTES ? exl2__pieces_find(&r->v->pieces, r->buffer, bytes) : EXL2__PIECES_NONE;
}

EXL2__PRIVATE void exl2__vocab_fill_names(exl2__vocab_reader *r)
{
    exl2__vocab *v = r->v;
    const char **texts[EXL2__VOCAB_NAMES_ROLES] = { &v->bos_text, &v->eos_text, &v->unk_text, &v->pad_text };
    exl2_token *ids[EXL2__VOCAB_NAMES_ROLES] = { &v->bos, &v->eos, &v->unk, &v->pad };
    for (int role = 0; role < EXL2__VOCAB_NAMES_ROLES; role++) {
        uint32_t token = exl2__vocab_names_text(&r->config, (exl2__vocab_names_role)role);
        *ids[role] = -1;
        if (token) {
            size_t bytes = exl2__json_text(&r->config, token, r->buffer, SIZE_MAX);
            r->buffer[bytes] = 0;
            *texts[role] = v->pieces.text + exl2__vocab_keep_text(r, r->buffer, bytes + 1);
            uint32_t id = exl2__vocab_resolve(r, bytes);
            *ids[role] = id == EXL2__PIECES_NONE ? -1 : (exl2_token)id;
        }
    }
}

/* Fails if a token that the post-processor adds does not exist. */
EXL2__PRIVATE exl2_result exl2__vocab_check_added(const exl2__vocab_reader *r, const exl2_token *tokens, uint32_t count,
                                                  const char *where)
{
    size_t bytes;
    for (uint32_t i = 0; i < count; i++) {
        if (!exl2__pieces_text(&r->v->pieces, (uint32_t)tokens[i], &bytes)) {
            return exl2__fail(r->c, EXL2_ERR_FORMAT,
                              EXL2__VOCAB_RULES_FILE ": post_processor puts token %d %s the text, but no token has "
                              "that id", tokens[i], where);
        }
    }
    return EXL2_OK;
}

/* tokenizer_config.json decides whether tokens come before raw text. If it does not say, they do so if the
   post-processor has any. */
EXL2__PRIVATE exl2_result exl2__vocab_fill_bos(exl2__vocab_reader *r)
{
    exl2__vocab *v = r->v;
    int32_t add_bos = exl2__vocab_names_flag(&r->config, "add_bos_token");
    EXL2__TRY(exl2__vocab_check_added(r, r->rules.prefix, r->rules.prefix_count, "before"));
    EXL2__TRY(exl2__vocab_check_added(r, r->rules.suffix, r->rules.suffix_count, "after"));
    memcpy(v->suffix, r->rules.suffix, sizeof v->suffix);
    v->suffix_count = r->rules.suffix_count;
    v->bos = r->rules.prefix_count == 1 ? r->rules.prefix[0] : v->bos;
    v->add_bos = (int8_t)(add_bos < 0 && r->rules.prefix_count ? 1 : add_bos);
    if (v->add_bos == 1 && r->rules.prefix_count) {
        memcpy(v->prefix, r->rules.prefix, sizeof v->prefix);
        v->prefix_count = r->rules.prefix_count;
    }
    exl2__vocab_choose_bos(v, -1, false);
    if (exl2__vocab_names_flag(&r->config, "add_eos_token") == 1) {
        exl2__log(r->c, EXL2_LOG_WARN, EXL2_LOG_ID_ADD_EOS_IGNORED,
                  EXL2__VOCAB_NAMES_FILE ": add_eos_token is ignored: no token is added after a text");
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__vocab_fill_unk(exl2__vocab_reader *r)
{
    r->v->unk_id = EXL2__PIECES_NONE;
    if (r->rules.unk_token == 0) {
        return EXL2_OK;
    }
    r->v->unk_id = exl2__vocab_resolve(r, exl2__json_text(&r->j, r->rules.unk_token, r->buffer, SIZE_MAX));
    if (r->v->unk_id == EXL2__PIECES_NONE) {
        return exl2__fail(r->c, EXL2_ERR_FORMAT, EXL2__VOCAB_RULES_FILE ": model.unk_token is not a token of the file");
    }
    return EXL2_OK;
}

/* The rest, which is short. */
EXL2__PRIVATE exl2_result exl2__vocab_finish(exl2__vocab_reader *r, exl2__work *work)
{
    exl2__vocab *v = r->v;
    (void)work;
    exl2__vocab_fill_rules(r);
    exl2__vocab_fill_names(r);
    EXL2__TRY(exl2__vocab_fill_bos(r));
    EXL2__TRY(exl2__vocab_fill_unk(r));
    if (!r->keep_slots) {
        v->pieces.slots = NULL; /* lies in scratch */
    }
    v->piece_bytes_max = v->pieces.longest;
    v->present = true;
    return EXL2_OK;
}

/* ---- the files ---- */

EXL2__PRIVATE exl2_result exl2__vocab_read_rules(exl2__vocab_reader *r, exl2__work *work)
{
    exl2__arena dry = { 0 };
    EXL2__TRY_DONE(exl2__json_file_slice(r->c, &r->file, work));
    r->j = r->file.parse.j;
    r->missing = r->j.tokens == NULL;
    if (r->missing) {
        return EXL2_OK;
    }
    EXL2__TRY(exl2__vocab_rules_read(r->c, &r->j, &dry, &r->rules));
    r->v->pieces.marked = !r->rules.byte_level;
    r->v->pieces.raw_bytes = r->rules.raw_bytes;
    r->normal_allowed = exl2__normal_allowance(r->j.bytes);
    r->keep_slots = r->rules.ignore_merges || !r->rules.byte_level;
    return exl2__json_file_open(r->c, r->dir, EXL2__VOCAB_NAMES_FILE, EXL2__VOCAB_FILE_MAX, NULL, &r->config_file);
}

EXL2__PRIVATE exl2_result exl2__vocab_read_names(exl2__vocab_reader *r, exl2__work *work)
{
    EXL2__TRY_DONE(exl2__json_file_slice(r->c, &r->config_file, work));
    r->config = r->config_file.parse.j;
    if (r->config.tokens && r->config.tokens[0].kind != EXL2__JSON_OBJECT) {
        return exl2__fail(r->c, EXL2_ERR_FORMAT, EXL2__VOCAB_NAMES_FILE " is not an object");
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__vocab_read_close(exl2__vocab_reader *r, exl2__work *work)
{
    return exl2__file_reader_discard(r->c, &r->file.reader, &r->at, work);
}

/* ---- opening ---- */

typedef exl2_result (*exl2__vocab_stage)(exl2__vocab_reader *r, exl2__work *work);

static const exl2__vocab_stage exl2__vocab_stages[] = {
    exl2__vocab_read_rules, exl2__vocab_read_names,
    exl2__vocab_open_scratch, exl2__vocab_clear_scratch,
    exl2__vocab_measure_pieces, exl2__vocab_measure_added, exl2__vocab_measure_names,
    exl2__vocab_open_memory, exl2__vocab_clear_memory,
    exl2__vocab_fill_lengths, exl2__vocab_fill_added_lengths, exl2__vocab_fill_starts,
    exl2__vocab_fill_pieces, exl2__vocab_fill_merges,
    exl2__vocab_fill_added, exl2__vocab_sort_added,
    exl2__vocab_finish, exl2__vocab_read_close,
};

/* Begins to read the tokenizer of the model folder `dir` into *v. After a failure, too, the caller ends r. */
EXL2__PRIVATE exl2_result exl2__vocab_read_begin(exl2__vocab_reader *r, exl2__ctx *c, const char *dir, exl2__vocab *v)
{
    static const char *const flat_keys[EXL2__JSON_FLAT_MAX] = { "vocab", "merges" };
    memset(r, 0, sizeof *r);
    *v = (exl2__vocab){ 0 };
    r->c = c;
    r->v = v;
    r->dir = dir;
    return exl2__json_file_open(c, dir, EXL2__VOCAB_RULES_FILE, EXL2__VOCAB_FILE_MAX, flat_keys, &r->file);
}

/* Reads on, in slices. Without a tokenizer.json the result is EXL2_OK, and v->present is false. An unsupported
   component is EXL2_ERR_UNSUPPORTED; the message names it. */
EXL2__PRIVATE exl2_result exl2__vocab_read_slice(exl2__vocab_reader *r, exl2__work *work)
{
    while (r->stage < EXL2__COUNT(exl2__vocab_stages) && !r->missing) {
        EXL2__TRY_DONE(exl2__vocab_stages[r->stage](r, work));
        r->stage++;
        r->at = 0;
    }
    return EXL2_OK;
}

/* Frees what reading needed; if it was not finished, the tokenizer, too. Accepts a zeroed reader. */
EXL2__PRIVATE void exl2__vocab_read_end(exl2__vocab_reader *r)
{
    if (r->c) {
        exl2__arena_close(r->c, &r->scratch);
        exl2__normal_free(r->c, &r->normal[0]);
        exl2__normal_free(r->c, &r->normal[1]);
        exl2__json_file_close(r->c, &r->file);
        exl2__json_file_close(r->c, &r->config_file);
        if (r->stage < EXL2__COUNT(exl2__vocab_stages)) {
            exl2__vocab_close(r->c, r->v);
        }
    }
    memset(r, 0, sizeof *r);
}

#endif
