/* grammar_depend.h: members of an object that must be present where another member is present (dependentRequired).
   takes: pieces, one for each member, in the order in which they are written.
   gives: exl2__grammar_depend, exl2__grammar_depend_add, _find, _begin, _member, _close.
   owns:  the worlds, from _begin to _close.

   A world is what the members so far have decided about later ones: which must be written, because a member that needs
   them was written; and which are barred, because a member that they need was left out. Each world has a list of
   members of its own. A member that takes part in dependencies splits a world in two, written and left out; worlds that
   have decided the same become one again. After the last member nothing is left to decide, so one world remains. */
#ifndef EXL2__GRAMMAR_DEPEND_H
#define EXL2__GRAMMAR_DEPEND_H

#include "grammar_sequence.h"

#define EXL2__GRAMMAR_DEPEND_KEYS_MAX 64u
#define EXL2__GRAMMAR_DEPEND_WORLDS_MAX 1024u
#define EXL2__GRAMMAR_DEPEND_NONE UINT32_MAX

/* Bit i of a mask is keys[i]. */
typedef struct exl2__grammar_depend_world {
    uint64_t needed, barred; /* of the keys that are still to come */
    exl2__grammar_sequence list;
} exl2__grammar_depend_world;

typedef struct exl2__grammar_depend {
    exl2__grammar_code *g;
    const exl2__json *j;
    uint32_t keys[EXL2__GRAMMAR_DEPEND_KEYS_MAX];  /* tokens of the keys that take part */
    uint64_t needs[EXL2__GRAMMAR_DEPEND_KEYS_MAX]; /* keys that must be present where keys[i] is */
    uint64_t always, passed;                       /* keys that are required anyway; keys that were passed */
    uint32_t count, world_count, world_room;
    exl2__grammar_depend_world one;                /* the only world if there are no dependencies */
    exl2__grammar_depend_world *worlds;            /* allocated if world_room is not 0 */
} exl2__grammar_depend;

EXL2__PRIVATE uint32_t exl2__grammar_depend_find(const exl2__grammar_depend *d, uint32_t key)
{
    for (uint32_t i = 0; i < d->count; i++) {
        if (exl2__json_same(d->j, d->keys[i], key)) {
            return i;
        }
    }
    return EXL2__GRAMMAR_DEPEND_NONE;
}

/* The index of the key, which is added if it is new; NONE: there are too many, or an error. */
EXL2__PRIVATE uint32_t exl2__grammar_depend_index(exl2__grammar_depend *d, uint32_t key)
{
    uint32_t at = exl2__grammar_depend_find(d, key);
    if (at != EXL2__GRAMMAR_DEPEND_NONE || d->g->result < 0) {
        return at;
    }
    if (d->count == EXL2__GRAMMAR_DEPEND_KEYS_MAX) {
        d->g->result = exl2__fail(d->g->c, EXL2_ERR_BUDGET,
                                  "%s: at most %u members of an object may depend on each other", d->g->label,
                                  EXL2__GRAMMAR_DEPEND_KEYS_MAX);
        return at;
    }
    d->keys[d->count] = key;
    return d->count++;
}

/* Adds that `key` needs `other`. */
EXL2__PRIVATE void exl2__grammar_depend_add(exl2__grammar_depend *d, uint32_t key, uint32_t other)
{
    uint32_t from = exl2__grammar_depend_index(d, key), to = exl2__grammar_depend_index(d, other);
    if (from != EXL2__GRAMMAR_DEPEND_NONE && to != EXL2__GRAMMAR_DEPEND_NONE) {
        d->needs[from] |= 1ull << to;
    }
}

/* Begins the members, in a list that has been opened. `always`: the keys that are required anyway. */
EXL2__PRIVATE void exl2__grammar_depend_begin(exl2__grammar_depend *d, const exl2__grammar_sequence *list,
                                              uint64_t always)
{
    d->one = (exl2__grammar_depend_world){ .list = *list };
    d->worlds = &d->one;
    d->world_count = 1;
    d->always = always;
    for (uint32_t middle = 0; middle < d->count; middle++) { /* what a needed key needs is needed, too */
        for (uint32_t i = 0; i < d->count; i++) {
            d->needs[i] |= d->needs[i] >> middle & 1 ? d->needs[middle] : 0;
        }
    }
    for (uint32_t i = 0; i < d->count; i++) {
        d->one.needed |= always >> i & 1 ? d->needs[i] : 0;
    }
}

/* Makes room for one more world. */
EXL2__PRIVATE bool exl2__grammar_depend_room(exl2__grammar_depend *d)
{
    void *worlds = d->world_room ? d->worlds : NULL;
    if (d->world_count < d->world_room) {
        return d->g->result == EXL2_OK;
    }
    if (!exl2__grammar_code_grow(d->g, &worlds, &d->world_room, EXL2__GRAMMAR_DEPEND_WORLDS_MAX,
                                 sizeof *d->worlds, "combinations of members that depend on each other")) {
        return false;
    }
    if (d->worlds == &d->one) {
        memcpy(worlds, &d->one, sizeof d->one);
    }
    d->worlds = (exl2__grammar_depend_world *)worlds;
    return true;
}

/* Makes one world of those that have decided the same. */
EXL2__PRIVATE void exl2__grammar_depend_merge(exl2__grammar_depend *d)
{
    for (uint32_t i = 1; i < d->world_count; i++) {
        for (uint32_t k = 0; k < i; k++) {
            if (d->worlds[i].needed == d->worlds[k].needed && d->worlds[i].barred == d->worlds[k].barred) {
                exl2__grammar_sequence_merge(&d->worlds[k].list, &d->worlds[i].list);
                d->worlds[i--] = d->worlds[--d->world_count];
                break;
            }
        }
    }
}

/* Writes keys[at], leaves it out, or both, in every world. */
EXL2__PRIVATE void exl2__grammar_depend_split(exl2__grammar_depend *d, exl2__grammar_code_piece member, uint32_t at)
{
    uint64_t bit = 1ull << at, needed_by = 0;
    uint32_t count = d->world_count;
    d->passed |= bit;
    for (uint32_t i = 0; i < d->count; i++) {
        needed_by |= d->needs[i] & bit ? 1ull << i : 0;
    }
    uint32_t rule = exl2__grammar_code_rule(d->g);
    exl2__grammar_code_define(d->g, rule, member);
    for (uint32_t i = 0; i < count && exl2__grammar_depend_room(d); i++) {
        exl2__grammar_depend_world *with = &d->worlds[i], *without = &d->worlds[d->world_count];
        bool write = !(with->barred & bit), skip = !((with->needed | d->always) & bit);
        *without = *with;
        without->barred = (without->barred | needed_by) & ~d->passed;
        without->needed &= ~d->passed;
        with->needed = (with->needed | d->needs[at]) & ~d->passed;
        with->barred &= ~bit;
        exl2__grammar_sequence_split(&with->list, exl2__grammar_code_call(d->g, rule), write, skip, &without->list);
        d->world_count += write && skip;
        if (!write) {
            *with = *without;
        }
    }
    exl2__grammar_depend_merge(d);
}

/* Adds the member `key`. */
EXL2__PRIVATE void exl2__grammar_depend_member(exl2__grammar_depend *d, uint32_t key, exl2__grammar_code_piece member,
                                               bool required)
{
    uint32_t at = exl2__grammar_depend_find(d, key);
    if (at != EXL2__GRAMMAR_DEPEND_NONE) {
        exl2__grammar_depend_split(d, member, at);
    } else if (d->world_count == 1) {
        exl2__grammar_sequence_member(&d->worlds[0].list, member, required);
    } else {
        uint32_t rule = exl2__grammar_code_rule(d->g);
        exl2__grammar_code_define(d->g, rule, member);
        for (uint32_t i = 0; i < d->world_count; i++) {
            exl2__grammar_sequence_member(&d->worlds[i].list, exl2__grammar_code_call(d->g, rule), required);
        }
    }
}

EXL2__PRIVATE void exl2__grammar_depend_close(exl2__grammar_depend *d)
{
    exl2__free(d->g->c, d->world_room ? d->worlds : NULL, (uint64_t)d->world_room * sizeof *d->worlds,
               EXL2_MEM_GENERAL);
    d->worlds = NULL;
    d->world_count = d->world_room = 0;
}

#endif
