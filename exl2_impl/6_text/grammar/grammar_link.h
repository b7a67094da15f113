/* grammar_link.h: checks an automaton and computes what a walk needs: byte classes, and for every node the fewest
   tokens and the fewest nested calls with which its rule can end.
   takes: exl2__grammar_code, whose rule 0 is the root; a model's token table.
   gives: exl2__grammar_link, exl2__grammar_link_open, exl2__grammar_link_is_empty, exl2__grammar_link_close.
   owns:  one block, from open to close. */
#ifndef EXL2__GRAMMAR_LINK_H
#define EXL2__GRAMMAR_LINK_H

#include "../../0_base/heap.h"
#include "grammar_code.h"
#include "grammar_vocab.h"

#define EXL2__GRAMMAR_LINK_NEVER (1u << 28) /* number of tokens or calls where the end cannot be reached */
#define EXL2__GRAMMAR_LINK_HUGE (EXL2__GRAMMAR_LINK_NEVER - 1) /* the end can be reached, with this many or more */
#define EXL2__GRAMMAR_LINK_DEPTH_MAX 256u   /* nested calls and counted loops */
#define EXL2__GRAMMAR_LINK_LEAPS 4u         /* tokens considered at each byte of a literal */

typedef struct exl2__grammar_link {
    exl2__grammar_code_node *nodes; /* low and high are byte classes here; a CALL's `other` is a node */
    uint32_t *tokens; /* [nodes] nearly the fewest tokens from this node to the end of its rule, or NEVER */
    uint32_t *depth;  /* [nodes] fewest nested calls and loops from this node to the end of its rule, or NEVER */
    uint32_t node_count, first, classes;
    uint8_t class_of[256]; /* never falls from one byte to the next */
    exl2__arena memory;
} exl2__grammar_link;

static inline uint32_t exl2__grammar_link_sum(uint32_t a, uint32_t b)
{
    return a >= EXL2__GRAMMAR_LINK_NEVER || b >= EXL2__GRAMMAR_LINK_NEVER ? EXL2__GRAMMAR_LINK_NEVER
        : exl2__min32(a + b, EXL2__GRAMMAR_LINK_HUGE);
}

static inline uint32_t exl2__grammar_link_times(uint32_t count, uint32_t a)
{
    return count && a >= EXL2__GRAMMAR_LINK_NEVER ? EXL2__GRAMMAR_LINK_NEVER
        : (uint32_t)exl2__min64((uint64_t)count * a, EXL2__GRAMMAR_LINK_HUGE);
}

EXL2__PRIVATE void exl2__grammar_link_close(exl2__ctx *c, exl2__grammar_link *g)
{
    exl2__arena_close(c, &g->memory);
    *g = (exl2__grammar_link){ 0 };
}

/* ---- nodes ---- */

/* The node to which a chain of JUMPs from `node` leads; a cycle of JUMPs leads to one of them. Each step also makes a
   JUMP skip the next one (path halving), so that a long chain is not walked again from each of its nodes. */
EXL2__PRIVATE uint32_t exl2__grammar_link_land(exl2__grammar_code *g, uint32_t node)
{
    for (uint32_t steps = 0; g->nodes[node].kind == EXL2__GRAMMAR_CODE_JUMP && steps < 1000; steps++) {
        uint32_t next = g->nodes[node].next;
        if (g->nodes[next].kind == EXL2__GRAMMAR_CODE_JUMP) {
            g->nodes[node].next = g->nodes[next].next;
        }
        node = g->nodes[node].next;
    }
    return node;
}

EXL2__PRIVATE exl2_result exl2__grammar_link_nodes(exl2__grammar_code *g)
{
    for (uint32_t i = 0; i < g->rule_count; i++) {
        if (g->rules[i] == 0) {
            return exl2__fail(g->c, EXL2_ERR_FORMAT, "%s: a rule is used but not defined", g->label);
        }
    }
    for (uint32_t i = 1; i < g->node_count; i++) {
        exl2__grammar_code_node *n = &g->nodes[i];
        n->next = exl2__grammar_link_land(g, n->next);
        n->other = n->kind == EXL2__GRAMMAR_CODE_CALL ? g->rules[n->other] : n->other;
        n->other = exl2__grammar_link_land(g, n->other);
    }
    return EXL2_OK;
}

/* Bytes between two cuts are one class. Fixed cuts keep characters that a JSON string must escape, and the different
   kinds of UTF-8 bytes, in separate classes. */
EXL2__PRIVATE void exl2__grammar_link_classes(exl2__grammar_link *g)
{
    static const uint8_t cuts[] = { 0x20, 0x22, 0x23, 0x5C, 0x5D, 0x80, 0x90, 0xA0, 0xC0, 0xC2,
                                    0xE0, 0xE1, 0xED, 0xEE, 0xF0, 0xF1, 0xF4, 0xF5 };
    bool cut[257] = { false };
    for (size_t i = 0; i < sizeof cuts; i++) {
        cut[cuts[i]] = true;
    }
    for (uint32_t i = 0; i < g->node_count; i++) {
        if (g->nodes[i].kind == EXL2__GRAMMAR_CODE_BYTES) {
            cut[g->nodes[i].low] = cut[g->nodes[i].high + 1] = true;
        }
    }
    uint32_t class_now = 0;
    for (uint32_t byte = 0; byte < 256; byte++) {
        class_now += byte > 0 && cut[byte];
        g->class_of[byte] = (uint8_t)class_now;
    }
    g->classes = class_now + 1;
    for (uint32_t i = 0; i < g->node_count; i++) {
        exl2__grammar_code_node *n = &g->nodes[i];
        if (n->kind == EXL2__GRAMMAR_CODE_BYTES && n->low > n->high) { /* matches no byte: its tokens are NEVER */
            n->low = 1;
            n->high = 0;
        } else if (n->kind == EXL2__GRAMMAR_CODE_BYTES) {
            n->low = g->class_of[n->low];
            n->high = g->class_of[n->high];
        }
    }
}

/* ---- the fewest tokens and calls (Knuth's generalization of Dijkstra's algorithm) ---- */

/* A node that leads to another one. */
typedef struct exl2__grammar_link_user {
    uint32_t node : 31;
    uint32_t leaps : 1; /* by one token of several bytes */
} exl2__grammar_link_user;

typedef struct exl2__grammar_link_solver {
    const exl2__grammar_code_node *nodes;
    const exl2__grammar_vocab *vocab;
    const uint32_t *banned; /* bits of tokens that are not used, or NULL */
    uint32_t count;
    bool spelled[256];   /* [classes] a byte of the class is a token by itself */
    int16_t byte_of[256]; /* [classes] the class's byte; -1: it has several */
    bool depth;          /* solve for nested calls instead of tokens */
    uint32_t *values;    /* [count] */
    bool *done;          /* [count] */
    uint32_t *begin;     /* [count + 1] where each node's list in `users` begins */
    exl2__grammar_link_user *users;
    exl2__heap heap;     /* value << 32 | node */
    uint8_t *leaps;      /* [count * LEAPS] bytes of the longest tokens with which the literal at a node begins */
} exl2__grammar_link_solver;

EXL2__PRIVATE void exl2__grammar_link_push(exl2__grammar_link_solver *s, uint32_t node, uint32_t value)
{
    if (s->done[node] || value >= s->values[node]) {
        return;
    }
    s->values[node] = value;
    exl2__heap_push(&s->heap, (uint64_t)value << 32 | node);
}

/* Fills in what the solver knows of classes. */
EXL2__PRIVATE void exl2__grammar_link_know_classes(exl2__grammar_link_solver *s, const uint8_t *class_of)
{
    const exl2__grammar_vocab *v = s->vocab;
    for (uint32_t byte = 0; byte < 256; byte++) {
        bool shared = byte > 0 && class_of[byte] == class_of[byte - 1];
        s->byte_of[class_of[byte]] = shared ? -1 : (int16_t)byte;
    }
    for (uint32_t i = 0; i < v->begin[EXL2__GRAMMAR_VOCAB_GROUPS]; i = v->nodes[i].skip) { /* the first bytes */
        uint32_t token = v->nodes[i].token;
        s->spelled[class_of[v->nodes[i].byte]] |=
            token != EXL2__GRAMMAR_VOCAB_NONE && !exl2__grammar_vocab_is_banned(s->banned, token);
    }
}

EXL2__PRIVATE bool exl2__grammar_link_spelled(const exl2__grammar_link_solver *s, const exl2__grammar_code_node *n)
{
    for (uint32_t k = n->low; k <= n->high; k++) {
        if (s->spelled[k]) {
            return true;
        }
    }
    return false;
}

/* The cost of `node` by the nodes that are done so far; NEVER while it is unknown. */
EXL2__PRIVATE uint32_t exl2__grammar_link_value(const exl2__grammar_link_solver *s, uint32_t node)
{
    const exl2__grammar_code_node *n = &s->nodes[node];
    uint32_t next = s->done[n->next] ? s->values[n->next] : EXL2__GRAMMAR_LINK_NEVER;
    uint32_t other = s->done[n->other] ? s->values[n->other] : EXL2__GRAMMAR_LINK_NEVER;
    switch ((exl2__grammar_code_kind)n->kind) {
    case EXL2__GRAMMAR_CODE_BYTES:
        return n->low > n->high ? EXL2__GRAMMAR_LINK_NEVER : s->depth ? next
            : exl2__grammar_link_spelled(s, n) ? exl2__grammar_link_sum(next, 1) : EXL2__GRAMMAR_LINK_NEVER;
    case EXL2__GRAMMAR_CODE_JUMP:
        return next;
    case EXL2__GRAMMAR_CODE_SPLIT:
        return exl2__min32(next, other);
    case EXL2__GRAMMAR_CODE_CALL:
        return s->depth ? exl2__max32(exl2__grammar_link_sum(other, n->next != 0), next)
            : exl2__grammar_link_sum(other, next);
    case EXL2__GRAMMAR_CODE_REPEAT:
        if (n->min == 0) {
            return next;
        }
        return s->depth ? exl2__max32(exl2__grammar_link_sum(other, 1), next)
            : exl2__grammar_link_sum(exl2__grammar_link_times(n->min, other), next);
    default:
        return 0;
    }
}

/* The node after `bytes` bytes of a literal. */
EXL2__PRIVATE uint32_t exl2__grammar_link_leap(const exl2__grammar_link_solver *s, uint32_t node, uint32_t bytes)
{
    for (; bytes > 0; bytes--) {
        node = s->nodes[node].next;
    }
    return node;
}

EXL2__PRIVATE bool exl2__grammar_link_literal(const exl2__grammar_link_solver *s, const exl2__grammar_code_node *n)
{
    return n->kind == EXL2__GRAMMAR_CODE_BYTES && n->low == n->high && s->byte_of[n->low] >= 0;
}

/* Finds the longest tokens of several bytes with which the literal at `node` begins. */
EXL2__PRIVATE void exl2__grammar_link_find_leaps(exl2__grammar_link_solver *s, uint32_t node)
{
    char text[EXL2__GRAMMAR_VOCAB_FIND_MAX];
    uint64_t hash = 0;
    uint32_t bytes = 0, found = 0;
    uint8_t *leaps = s->leaps + (size_t)node * EXL2__GRAMMAR_LINK_LEAPS;
    for (uint32_t at = node; bytes < sizeof text && exl2__grammar_link_literal(s, &s->nodes[at]);
         at = s->nodes[at].next) {
        uint8_t byte = (uint8_t)s->byte_of[s->nodes[at].low];
        text[bytes] = (char)byte;
        hash = exl2__grammar_vocab_hash(hash, byte);
        bytes++;
        if (bytes > 1 && exl2__grammar_vocab_find(s->vocab, hash, text, bytes, s->banned)) {
            leaps[found++ % EXL2__GRAMMAR_LINK_LEAPS] = (uint8_t)bytes;
        }
    }
}

/* Notes that node `user` leads to node `target`. The first pass, without `users`, only counts; the second fills. */
EXL2__PRIVATE void exl2__grammar_link_use(exl2__grammar_link_solver *s, uint32_t target, uint32_t user, bool leaps)
{
    if (s->users) {
        exl2__grammar_link_user *one = &s->users[--s->begin[target]];
        one->node = user & 0x7FFFFFFFu;
        one->leaps = leaps;
    } else {
        s->begin[target]++;
    }
}

EXL2__PRIVATE void exl2__grammar_link_list_users(exl2__grammar_link_solver *s)
{
    for (uint32_t i = 0; i < s->count; i++) {
        const exl2__grammar_code_node *n = &s->nodes[i];
        if (n->kind != EXL2__GRAMMAR_CODE_RETURN) {
            exl2__grammar_link_use(s, n->next, i, false);
        }
        if (n->kind >= EXL2__GRAMMAR_CODE_SPLIT) {
            exl2__grammar_link_use(s, n->other, i, false);
        }
        for (uint32_t k = 0; k < EXL2__GRAMMAR_LINK_LEAPS; k++) {
            uint32_t leap = s->leaps[(size_t)i * EXL2__GRAMMAR_LINK_LEAPS + k];
            if (leap) {
                exl2__grammar_link_use(s, exl2__grammar_link_leap(s, i, leap), i, true);
            }
        }
    }
}

EXL2__PRIVATE void exl2__grammar_link_solve(exl2__grammar_link_solver *s, uint32_t *values, bool depth)
{
    s->values = values;
    s->depth = depth;
    s->heap.count = 0;
    memset(s->done, 0, s->count);
    for (uint32_t i = 0; i < s->count; i++) {
        s->values[i] = EXL2__GRAMMAR_LINK_NEVER;
    }
    exl2__grammar_link_push(s, 0, 0);
    while (s->heap.count) {
        uint32_t node = (uint32_t)exl2__heap_pop(&s->heap);
        if (s->done[node]) {
            continue;
        }
        s->done[node] = true;
        for (uint32_t i = s->begin[node]; i < s->begin[node + 1]; i++) {
            exl2__grammar_link_user user = s->users[i];
            uint32_t value = user.leaps ? values[node] + !depth : exl2__grammar_link_value(s, user.node);
            exl2__grammar_link_push(s, user.node, value);
        }
    }
}

/* Solves for depth, then for tokens; with banned tokens for tokens only. */
EXL2__PRIVATE exl2_result exl2__grammar_link_costs(exl2__ctx *c, exl2__grammar_link *g,
                                                   const exl2__grammar_vocab *vocab, const uint32_t *banned)
{
    exl2__grammar_link_solver s = { 0 };
    exl2__arena scratch;
    uint64_t n = g->node_count, users = n * (2 + EXL2__GRAMMAR_LINK_LEAPS);
    s.nodes = g->nodes;
    s.vocab = vocab;
    s.banned = banned;
    s.count = g->node_count;
    exl2__grammar_link_know_classes(&s, g->class_of);
    EXL2__TRY(exl2__arena_open(c, &scratch, n * (1 + 4 + EXL2__GRAMMAR_LINK_LEAPS) + users * 12 + 64 * 8,
                               EXL2_MEM_GENERAL));
    s.done = (bool *)exl2__arena_alloc(&scratch, n);
    s.leaps = (uint8_t *)exl2__arena_alloc_zeroed(&scratch, n * EXL2__GRAMMAR_LINK_LEAPS);
    s.begin = (uint32_t *)exl2__arena_alloc_zeroed(&scratch, (n + 1) * 4);
    s.heap.keys = (uint64_t *)exl2__arena_alloc(&scratch, users * 8);
    for (uint32_t i = 0; i < s.count; i++) {
        if (exl2__grammar_link_literal(&s, &s.nodes[i])) {
            exl2__grammar_link_find_leaps(&s, i);
        }
    }
    exl2__grammar_link_list_users(&s);
    uint32_t sum = 0;
    for (uint32_t i = 0; i <= s.count; i++) {
        sum += s.begin[i];
        s.begin[i] = sum; /* the end of the node's list; filling counts down to its beginning */
    }
    s.users = (exl2__grammar_link_user *)exl2__arena_alloc(&scratch, users * sizeof *s.users);
    exl2__grammar_link_list_users(&s);
    if (!banned) {
        exl2__grammar_link_solve(&s, g->depth, true);
    }
    exl2__grammar_link_solve(&s, g->tokens, false);
    exl2__arena_close(c, &scratch);
    return EXL2_OK;
}

/* ---- grammars that are rejected ---- */

/* Does no text match, or has the model no tokens for the bytes of one? */
static inline bool exl2__grammar_link_is_empty(const exl2__grammar_link *g)
{
    return g->tokens[g->first] >= EXL2__GRAMMAR_LINK_NEVER;
}

EXL2__PRIVATE exl2_result exl2__grammar_link_check(exl2__ctx *c, const exl2__grammar_link *g, const char *label)
{
    for (uint32_t i = 0; i < g->node_count; i++) {
        if (g->nodes[i].kind == EXL2__GRAMMAR_CODE_REPEAT && g->tokens[g->nodes[i].other] == 0) {
            return exl2__fail(c, EXL2_ERR_UNSUPPORTED,
                              "%s: a counted repetition must not repeat something that may be empty", label);
        }
    }
    if (g->depth[g->first] >= EXL2__GRAMMAR_LINK_DEPTH_MAX && g->depth[g->first] < EXL2__GRAMMAR_LINK_NEVER) {
        return exl2__fail(c, EXL2_ERR_BUDGET,
                          "%s: every text needs %u nested rules and loops; at most %u are supported",
                          label, g->depth[g->first], EXL2__GRAMMAR_LINK_DEPTH_MAX);
    }
    if (g->tokens[g->first] >= EXL2__GRAMMAR_LINK_HUGE && !exl2__grammar_link_is_empty(g)) {
        return exl2__fail(c, EXL2_ERR_BUDGET, "%s: the shortest text is too long: it needs %u tokens or more", label,
                          EXL2__GRAMMAR_LINK_HUGE);
    }
    return EXL2_OK;
}

/* Rules, each named by its first node, and the calls by which one enters another before it matches a byte. */
typedef struct exl2__grammar_link_rules {
    const exl2__grammar_link *g;
    uint32_t *entered; /* [node] number of calls that enter this rule */
    uint32_t *seen;    /* [node] the rule + 1 that came to this node last */
    uint32_t *list;    /* rules to walk */
    uint32_t *stack;   /* nodes of a rule to visit */
    bool *is_rule;     /* [node] */
    uint32_t count;    /* rules in `list` */
} exl2__grammar_link_rules;

/* The nodes of the same rule that follow a node before a byte is matched. Returns their number. */
EXL2__PRIVATE uint32_t exl2__grammar_link_follow(const exl2__grammar_link *g, const exl2__grammar_code_node *node,
                                                 uint32_t follow[2])
{
    uint32_t count = 0;
    switch ((exl2__grammar_code_kind)node->kind) {
    case EXL2__GRAMMAR_CODE_JUMP:
        follow[count++] = node->next;
        break;
    case EXL2__GRAMMAR_CODE_CALL:
        if (g->tokens[node->other] == 0) {
            follow[count++] = node->next;
        }
        break;
    case EXL2__GRAMMAR_CODE_REPEAT:
        if (node->min == 0) {
            follow[count++] = node->next;
        }
        follow[count++] = node->other;
        break;
    case EXL2__GRAMMAR_CODE_SPLIT:
        follow[count++] = node->next;
        follow[count++] = node->other;
        break;
    default:
        break;
    }
    return count;
}

/* Walks the rule `from`, and counts the calls by which it enters rules. With `removing`, subtracts these calls instead:
   a rule that no call enters any more goes to the list. */
EXL2__PRIVATE void exl2__grammar_link_walk(exl2__grammar_link_rules *r, uint32_t from, bool removing)
{
    uint32_t top = 0, follow[2];
    r->stack[top++] = from;
    r->seen[from] = from + 1;
    while (top) {
        const exl2__grammar_code_node *node = &r->g->nodes[r->stack[--top]];
        if (node->kind == EXL2__GRAMMAR_CODE_CALL && !removing) {
            r->entered[node->other]++;
        } else if (node->kind == EXL2__GRAMMAR_CODE_CALL && --r->entered[node->other] == 0) {
            r->list[r->count++] = node->other;
        }
        uint32_t count = exl2__grammar_link_follow(r->g, node, follow);
        for (uint32_t k = 0; k < count; k++) {
            if (r->seen[follow[k]] != from + 1) {
                r->seen[follow[k]] = from + 1;
                r->stack[top++] = follow[k];
            }
        }
    }
}

/* Rejects left recursion: a cycle of rules, each of which can call the next before it matches a byte. Removes rules
   that no remaining rule enters in this way (a topological sort); rules that cannot be removed lie on a cycle, or can
   be entered only from one. */
EXL2__PRIVATE exl2_result exl2__grammar_link_recursion(exl2__ctx *c, const exl2__grammar_link *g, const char *label)
{
    exl2__arena a;
    uint64_t n = g->node_count;
    EXL2__TRY(exl2__arena_open(c, &a, n * 17 + 64 * 8, EXL2_MEM_GENERAL));
    exl2__grammar_link_rules r = { .g = g };
    r.entered = (uint32_t *)exl2__arena_alloc_zeroed(&a, n * 4);
    r.seen = (uint32_t *)exl2__arena_alloc_zeroed(&a, n * 4);
    r.list = (uint32_t *)exl2__arena_alloc(&a, n * 4);
    r.stack = (uint32_t *)exl2__arena_alloc(&a, n * 4);
    r.is_rule = (bool *)exl2__arena_alloc_zeroed(&a, n);
    r.is_rule[g->first] = true;
    for (uint32_t i = 0; i < n; i++) {
        r.is_rule[g->nodes[i].other] |= g->nodes[i].kind == EXL2__GRAMMAR_CODE_CALL;
    }
    uint32_t rules = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (r.is_rule[i]) {
            exl2__grammar_link_walk(&r, i, false);
            rules++;
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        if (r.is_rule[i] && r.entered[i] == 0) {
            r.list[r.count++] = i;
        }
    }
    memset(r.seen, 0, n * 4);
    uint32_t removed = 0;
    for (; removed < r.count; removed++) {
        exl2__grammar_link_walk(&r, r.list[removed], true);
    }
    exl2__arena_close(c, &a);
    return removed == rules ? EXL2_OK
        : exl2__fail(c, EXL2_ERR_UNSUPPORTED,
                     "%s: left recursion is not supported: a rule can begin with itself; write a repetition", label);
}

/* ---- opening ---- */

EXL2__PRIVATE exl2_result exl2__grammar_link_make(exl2__grammar_code *code, const exl2__grammar_vocab *vocab,
                                                  exl2__grammar_link *g)
{
    exl2__ctx *c = code->c;
    uint64_t n = code->node_count;
    EXL2__TRY(code->result);
    EXL2__TRY(exl2__grammar_link_nodes(code));
    EXL2__TRY(exl2__arena_open(c, &g->memory, n * (sizeof *g->nodes + 8) + 64 * 3, EXL2_MEM_GENERAL));
    g->nodes = (exl2__grammar_code_node *)exl2__arena_alloc(&g->memory, n * sizeof *g->nodes);
    g->tokens = (uint32_t *)exl2__arena_alloc(&g->memory, n * 4);
    g->depth = (uint32_t *)exl2__arena_alloc(&g->memory, n * 4);
    memcpy(g->nodes, code->nodes, n * sizeof *g->nodes);
    g->node_count = code->node_count;
    g->first = exl2__grammar_link_land(code, code->rules[0]);
    exl2__grammar_link_classes(g);
    EXL2__TRY(exl2__grammar_link_costs(c, g, vocab, NULL));
    EXL2__TRY(exl2__grammar_link_recursion(c, g, code->label));
    return exl2__grammar_link_check(c, g, code->label);
}

EXL2__PRIVATE exl2_result exl2__grammar_link_banned(exl2__ctx *c)
{
    return exl2__fail(c, EXL2_ERR_ARG, "the job's ban, allow or biases exclude tokens that every text of its grammar "
                      "needs");
}

/* The automaton of `from`, whose nodes it shares, for texts without the banned tokens. *same: bans change nothing. On
   failure and for *same, *g is zeroed. */
EXL2__PRIVATE exl2_result exl2__grammar_link_restrict(exl2__ctx *c, const exl2__grammar_link *from,
                                                      const exl2__grammar_vocab *vocab, const uint32_t *banned,
                                                      exl2__grammar_link *g, bool *same)
{
    size_t bytes = from->node_count * sizeof *g->tokens;
    *g = *from;
    *same = false;
    g->memory = (exl2__arena){ 0 };
    exl2_result r = exl2__arena_open(c, &g->memory, bytes + 64, EXL2_MEM_GENERAL);
    if (r >= 0) {
        g->tokens = (uint32_t *)exl2__arena_alloc(&g->memory, bytes);
        r = exl2__grammar_link_costs(c, g, vocab, banned);
    }
    if (r >= 0 && g->tokens[g->first] >= EXL2__GRAMMAR_LINK_HUGE) {
        r = exl2__grammar_link_banned(c);
    }
    *same = r >= 0 && memcmp(g->tokens, from->tokens, bytes) == 0;
    if (r < 0 || *same) {
        exl2__grammar_link_close(c, g);
    }
    return r;
}

/* Links the automaton whose root is rule 0 of `code`, which may match no text. On failure *g is zeroed. */
EXL2__PRIVATE exl2_result exl2__grammar_link_open(exl2__grammar_code *code, const exl2__grammar_vocab *vocab,
                                                  exl2__grammar_link *g)
{
    *g = (exl2__grammar_link){ 0 };
    exl2_result result = exl2__grammar_link_make(code, vocab, g);
    if (result < 0) {
        exl2__grammar_link_close(code->c, g);
    }
    return result;
}

#endif
