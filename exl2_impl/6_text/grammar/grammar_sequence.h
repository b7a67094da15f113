/* grammar_sequence.h: lists of members in a fixed order. Members may be left out, but the number of members that are
   written has a least and a greatest value.
   takes: pieces, one for each member.
   gives: exl2__grammar_sequence, exl2__grammar_sequence_open, _member, _split, _merge, _rest, _end. */
#ifndef EXL2__GRAMMAR_SEQUENCE_H
#define EXL2__GRAMMAR_SEQUENCE_H

#include "grammar_value.h"

#define EXL2__GRAMMAR_SEQUENCE_LEVELS_MAX 256u

/* A level is the number of members written so far. The last level, `levels`, means that number or more if `max` is
   ENDLESS. */
typedef struct exl2__grammar_sequence {
    exl2__grammar_code *g;
    uint32_t places[EXL2__GRAMMAR_SEQUENCE_LEVELS_MAX + 1]; /* [level] JUMP that is not joined yet; 0 = not reached */
    uint32_t levels, min, max;
} exl2__grammar_sequence;

/* Begins a list after the piece `open`. `most`: the number of members that can be written. false: no list has min to
   max members, or an error. */
EXL2__PRIVATE bool exl2__grammar_sequence_open(exl2__grammar_code *g, exl2__grammar_code_piece open, uint32_t min,
                                               uint32_t max, uint32_t most, exl2__grammar_sequence *q)
{
    memset(q, 0, sizeof *q);
    q->g = g;
    q->min = min;
    q->max = max >= most ? EXL2__GRAMMAR_CODE_ENDLESS : max;
    q->levels = exl2__max32(exl2__max32(min, 1), q->max == EXL2__GRAMMAR_CODE_ENDLESS ? 1 : q->max);
    q->places[0] = open.last;
    if (q->levels > EXL2__GRAMMAR_SEQUENCE_LEVELS_MAX && min <= most && g->result == EXL2_OK) {
        g->result = exl2__fail(g->c, EXL2_ERR_BUDGET,
                               "%s: counts above %u are not supported for members that differ", g->label,
                               EXL2__GRAMMAR_SEQUENCE_LEVELS_MAX);
    }
    return min <= max && min <= most && g->result == EXL2_OK;
}

/* The JUMP of a level after the current member. */
EXL2__PRIVATE uint32_t exl2__grammar_sequence_place(exl2__grammar_sequence *q, uint32_t *places, uint32_t level)
{
    if (!places[level]) {
        places[level] = exl2__grammar_code_add(q->g, EXL2__GRAMMAR_CODE_JUMP, 0, 0);
    }
    return places[level];
}

/* Adds a member, with a comma before it on all levels but 0. `may_write`: it can be written, and the list goes on in q.
   `may_skip`: it can be left out, and the list goes on in `without`, which may be q itself. */
EXL2__PRIVATE void exl2__grammar_sequence_split(exl2__grammar_sequence *q, exl2__grammar_code_piece member,
                                                bool may_write, bool may_skip, exl2__grammar_sequence *without)
{
    exl2__grammar_code *g = q->g;
    uint32_t next[EXL2__GRAMMAR_SEQUENCE_LEVELS_MAX + 1] = { 0 }, left[EXL2__GRAMMAR_SEQUENCE_LEVELS_MAX + 1] = { 0 };
    bool counts = q->levels > 1 || q->max != EXL2__GRAMMAR_CODE_ENDLESS;
    uint32_t rule = counts ? exl2__grammar_code_rule(g) : 0;
    if (counts) {
        exl2__grammar_code_define(g, rule, member);
    }
    for (uint32_t level = 0; level <= q->levels && g->result == EXL2_OK; level++) {
        uint32_t place = q->places[level], after = exl2__min32(level + 1, q->levels), write = 0, skip = 0;
        if (!place) {
            continue;
        }
        if (level < q->max && may_write) {
            uint32_t end = exl2__grammar_sequence_place(q, next, after);
            exl2__grammar_code_piece one = counts ? exl2__grammar_code_call(g, rule) : member;
            exl2__grammar_code_join(g, one.last, end);
            write = one.first;
            if (level > 0) {
                exl2__grammar_code_piece comma = exl2__grammar_value_mark(g, ',');
                exl2__grammar_code_join(g, comma.last, write);
                write = comma.first;
            }
        }
        skip = may_skip ? exl2__grammar_sequence_place(q, without == q ? next : left, level) : 0;
        uint32_t node = write ? write : skip ? skip : exl2__grammar_code_bytes(g, 1, 0).first;
        if (write && skip) {
            node = exl2__grammar_code_add(g, EXL2__GRAMMAR_CODE_SPLIT, write, skip);
        }
        exl2__grammar_code_join(g, place, node);
    }
    memcpy(q->places, next, sizeof next);
    if (without != q) {
        memcpy(without->places, left, sizeof left);
    }
}

/* The same for a member that stays in one list. `required`: it cannot be left out. */
EXL2__PRIVATE void exl2__grammar_sequence_member(exl2__grammar_sequence *q, exl2__grammar_code_piece member,
                                                 bool required)
{
    exl2__grammar_sequence_split(q, member, true, !required, q);
}

/* Continues another list, with the same counts, where q goes on. */
EXL2__PRIVATE void exl2__grammar_sequence_merge(exl2__grammar_sequence *q, const exl2__grammar_sequence *other)
{
    for (uint32_t level = 0; level <= q->levels; level++) {
        if (other->places[level] && q->places[level]) {
            exl2__grammar_code_join(q->g, other->places[level], q->places[level]);
        } else if (other->places[level]) {
            q->places[level] = other->places[level];
        }
    }
}

/* Adds any number of members by `rule` at the end of the list. */
EXL2__PRIVATE void exl2__grammar_sequence_rest(exl2__grammar_sequence *q, uint32_t rule)
{
    exl2__grammar_code *g = q->g;
    uint32_t end = exl2__grammar_code_add(g, EXL2__GRAMMAR_CODE_JUMP, 0, 0);
    for (uint32_t level = 0; level <= q->levels && g->result == EXL2_OK; level++) {
        uint32_t least = q->min > level ? q->min - level : 0;
        uint32_t most = q->max == EXL2__GRAMMAR_CODE_ENDLESS ? q->max : q->max - level;
        if (!q->places[level]) {
            continue;
        }
        exl2__grammar_code_piece list = exl2__grammar_code_empty(g);
        if (most > 0) {
            exl2__grammar_code_piece more = exl2__grammar_value_mark(g, ',');
            more = exl2__grammar_code_cat(g, more, exl2__grammar_code_call(g, rule));
            uint32_t first = level == 0;
            uint32_t others = most == EXL2__GRAMMAR_CODE_ENDLESS ? most : most - first;
            list = exl2__grammar_code_repeat(g, more, least > first ? least - first : 0, others);
            if (first) {
                list = exl2__grammar_code_cat(g, exl2__grammar_code_call(g, rule), list);
                list = least ? list : exl2__grammar_code_option(g, list);
            }
        }
        exl2__grammar_code_join(g, q->places[level], list.first);
        exl2__grammar_code_join(g, list.last, end);
        q->places[level] = 0;
    }
    q->places[q->levels] = end; /* the least number has been written */
}

/* Ends the list: levels with enough members lead to `close`, others to nothing. */
EXL2__PRIVATE void exl2__grammar_sequence_end(exl2__grammar_sequence *q, uint32_t close)
{
    for (uint32_t level = 0; level <= q->levels; level++) {
        if (q->places[level]) {
            exl2__grammar_code_join(q->g, q->places[level], level >= q->min ? close
                                        : exl2__grammar_code_bytes(q->g, 1, 0).first);
        }
    }
}

#endif
