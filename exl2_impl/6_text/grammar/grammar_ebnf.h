/* grammar_ebnf.h: compiles grammars in GBNF or EBNF, and lists of choices, to an automaton.
   takes: untrusted UTF-8. A rule is `name ::= ...` with "text" 'text' [class] . name (group) | * + ? {m,n} and #
   comments. The root is the rule `root`, or the first rule if there is no `root`.
   gives: exl2__grammar_ebnf_read, exl2__grammar_ebnf_choices. */
#ifndef EXL2__GRAMMAR_EBNF_H
#define EXL2__GRAMMAR_EBNF_H

#include "grammar_choice.h"
#include "grammar_regex.h"

#define EXL2__GRAMMAR_EBNF_RULES_MAX 4096u

typedef struct exl2__grammar_ebnf_name {
    const char *text;
    uint32_t bytes, line;
} exl2__grammar_ebnf_name;

typedef struct exl2__grammar_ebnf {
    exl2__grammar_regex r;
    exl2__grammar_ebnf_name *names; /* [RULES_MAX] names[i] is the name of rule i + 1; rule 0 calls the root */
    uint16_t *slots;                /* [2 * RULES_MAX] hash table by name: rule, 0 = empty */
} exl2__grammar_ebnf;

/* space: {" " | "\t" | "\n" | "\v" | "\f" | "\r" | "#" {character} "\n"}. */
EXL2__PRIVATE void exl2__grammar_ebnf_space(exl2__grammar_ebnf *e)
{
    exl2__grammar_regex *r = &e->r;
    for (char c; r->x.at < r->x.bytes && ((c = r->x.text[r->x.at]) == ' ' || (c >= '\t' && c <= '\r') || c == '#');) {
        while (c == '#' && r->x.at < r->x.bytes && r->x.text[r->x.at] != '\n') {
            r->x.at++;
        }
        r->x.at += c != '#';
    }
}

/* name: (letter | "_") {letter | "_" | digit | "-"}. Bytes of the name at the current byte, or 0. */
EXL2__PRIVATE uint32_t exl2__grammar_ebnf_name_bytes(const exl2__grammar_ebnf *e)
{
    uint32_t bytes = 0;
    for (;; bytes++) {
        char c = exl2__regex_lex_peek(&e->r.x, bytes);
        bool letter = (uint8_t)((c | 32) - 'a') < 26 || c == '_';
        if (!letter && !(bytes && ((uint8_t)(c - '0') < 10 || c == '-'))) {
            return bytes;
        }
    }
}

/* Reads a name of `bytes` bytes and returns its rule, which may not be defined yet. */
EXL2__PRIVATE uint32_t exl2__grammar_ebnf_rule(exl2__grammar_ebnf *e, uint32_t bytes)
{
    const char *text = e->r.x.text + e->r.x.at;
    uint32_t hash = bytes, mask = 2 * EXL2__GRAMMAR_EBNF_RULES_MAX - 1;
    for (uint32_t i = 0; i < bytes; i++) {
        hash = (hash ^ (uint8_t)text[i]) * 0x01000193u;
        hash ^= hash >> 15;
    }
    e->r.x.at += bytes;
    for (hash &= mask; e->slots[hash]; hash = (hash + 1) & mask) {
        const exl2__grammar_ebnf_name *name = &e->names[e->slots[hash] - 1];
        if (name->bytes == bytes && memcmp(name->text, text, bytes) == 0) {
            return e->slots[hash];
        }
    }
    if (e->r.g->rule_count == EXL2__GRAMMAR_EBNF_RULES_MAX) {
        exl2__grammar_regex_reject(&e->r, EXL2_ERR_BUDGET, "at most 4096 rules are supported");
        return 0;
    }
    uint32_t rule = exl2__grammar_code_rule(e->r.g);
    if (rule) {
        exl2__grammar_ebnf_name name = { text, bytes, 0 };
        e->names[rule - 1] = name;
        e->slots[hash] = (uint16_t)rule;
    }
    return rule;
}

/* text: '"' {char} '"' | "'" {char} "'". */
EXL2__PRIVATE exl2__grammar_code_piece exl2__grammar_ebnf_text(exl2__grammar_ebnf *e)
{
    exl2__grammar_regex *r = &e->r;
    char quote = r->x.text[r->x.at++];
    exl2__grammar_code_piece all = exl2__grammar_code_empty(r->g);
    while (exl2__grammar_regex_more(r) && exl2__regex_lex_peek(&r->x, 0) != quote) {
        uint32_t code = exl2__grammar_regex_char(r);
        all = exl2__grammar_code_cat(r->g, all, exl2__grammar_regex_one(r->g, code));
    }
    if (exl2__regex_lex_peek(&r->x, 0) == quote) {
        r->x.at++;
    } else {
        exl2__grammar_regex_reject(r, EXL2_ERR_FORMAT, "the closing quote is missing");
    }
    return all;
}

EXL2__PRIVATE exl2__grammar_code_piece exl2__grammar_ebnf_either(exl2__grammar_ebnf *e);

/* part: name | text | class | "." | "(" either ")". At the end of a sequence, *more is set to false. */
EXL2__PRIVATE exl2__grammar_code_piece exl2__grammar_ebnf_part(exl2__grammar_ebnf *e, bool *more)
{
    exl2__grammar_regex *r = &e->r;
    char c = exl2__regex_lex_peek(&r->x, 0);
    size_t begin = r->x.at;
    uint32_t bytes = exl2__grammar_ebnf_name_bytes(e);
    if (bytes) { /* a name before ::= begins the next rule */
        r->x.at += bytes;
        exl2__grammar_ebnf_space(e);
        bool next_rule = r->x.bytes - r->x.at >= 3 && memcmp(r->x.text + r->x.at, "::=", 3) == 0;
        r->x.at = begin;
        if (!next_rule) {
            return exl2__grammar_code_call(r->g, exl2__grammar_ebnf_rule(e, bytes));
        }
    } else if (c == '"' || c == '\'') {
        return exl2__grammar_ebnf_text(e);
    } else if (c == '[') {
        return exl2__grammar_regex_class(r);
    } else if (c == '.') {
        r->x.at++;
        return exl2__grammar_regex_any(r->g, true);
    } else if (c == '(') {
        r->x.at++;
        if (++r->depth > EXL2__GRAMMAR_REGEX_DEPTH_MAX) {
            exl2__grammar_regex_reject(r, EXL2_ERR_UNSUPPORTED, "at most 64 nested groups are supported");
            return exl2__grammar_code_empty(r->g);
        }
        exl2__grammar_code_piece inner = exl2__grammar_ebnf_either(e);
        r->depth--;
        if (!exl2__regex_lex_skip(&r->x, ")")) {
            exl2__grammar_regex_reject(r, EXL2_ERR_FORMAT, "expected a part of a rule, or ')' at the end of the group");
        }
        return inner;
    }
    *more = false;
    return exl2__grammar_code_empty(r->g);
}

/* either: {part counts} {"|" {part counts}}. */
EXL2__PRIVATE exl2__grammar_code_piece exl2__grammar_ebnf_either(exl2__grammar_ebnf *e)
{
    exl2__grammar_code *g = e->r.g;
    exl2__grammar_code_piece list = { 0, 0 };
    do {
        exl2__grammar_code_piece all = exl2__grammar_code_empty(g);
        bool more = true;
        while (more && g->result == EXL2_OK) {
            exl2__grammar_ebnf_space(e);
            exl2__grammar_code_piece part = exl2__grammar_ebnf_part(e, &more);
            if (more) {
                exl2__grammar_ebnf_space(e);
                part = exl2__grammar_regex_counts(&e->r, part);
            }
            all = exl2__grammar_code_cat(g, all, part);
        }
        exl2__grammar_code_or(g, &list, all);
    } while (g->result == EXL2_OK && exl2__regex_lex_skip(&e->r.x, "|"));
    return list;
}

/* rules: {name "::=" either}. Rule 0 calls the root. */
EXL2__PRIVATE void exl2__grammar_ebnf_rules(exl2__grammar_ebnf *e)
{
    exl2__grammar_code *g = e->r.g;
    uint32_t root = 0, first = 0;
    exl2__grammar_code_rule(g);
    for (exl2__grammar_ebnf_space(e); exl2__grammar_regex_more(&e->r); exl2__grammar_ebnf_space(e)) {
        uint32_t bytes = exl2__grammar_ebnf_name_bytes(e);
        uint32_t rule = bytes ? exl2__grammar_ebnf_rule(e, bytes) : 0;
        exl2__grammar_ebnf_space(e);
        if (!rule || e->r.x.bytes - e->r.x.at < 3 || memcmp(e->r.x.text + e->r.x.at, "::=", 3) != 0) {
            exl2__grammar_regex_reject(&e->r, EXL2_ERR_FORMAT, "expected `name ::=` or the end of a rule");
            return;
        }
        if (g->rules[rule]) {
            exl2__grammar_regex_reject(&e->r, EXL2_ERR_FORMAT, "the rule is defined twice");
        }
        e->r.x.at += 3;
        exl2__grammar_code_define(g, rule, exl2__grammar_ebnf_either(e));
        first = first ? first : rule;
        const exl2__grammar_ebnf_name *name = &e->names[rule - 1];
        root = name->bytes == 4 && memcmp(name->text, "root", 4) == 0 ? rule : root;
    }
    if (g->result == EXL2_OK && !first) {
        exl2__grammar_regex_reject(&e->r, EXL2_ERR_FORMAT, "expected at least one rule");
    }
    for (uint32_t i = 1; i < g->rule_count && g->result == EXL2_OK; i++) {
        if (g->rules[i] == 0) {
            g->result = exl2__fail(g->c, EXL2_ERR_FORMAT, "%s: the rule %.*s is used but not defined", g->label,
                                   (int)exl2__min32(e->names[i - 1].bytes, 80), e->names[i - 1].text);
        }
    }
    exl2__grammar_code_define(g, 0, exl2__grammar_code_call(g, root ? root : first));
}

/* Compiles the text to *g, which has just been opened. */
EXL2__PRIVATE void exl2__grammar_ebnf_read(exl2__grammar_code *g, const char *text, size_t bytes)
{
    exl2__grammar_ebnf e = { exl2__grammar_regex_of(g, text, bytes), NULL, NULL };
    uint64_t names = EXL2__GRAMMAR_EBNF_RULES_MAX * sizeof *e.names, slots = EXL2__GRAMMAR_EBNF_RULES_MAX * 4;
    void *memory;
    g->result = exl2__alloc(g->c, names + slots, 8, EXL2_MEM_GENERAL, &memory);
    if (g->result == EXL2_OK) {
        e.names = (exl2__grammar_ebnf_name *)memory;
        e.slots = (uint16_t *)(void *)((char *)memory + names);
        memset(e.slots, 0, slots);
        exl2__grammar_ebnf_rules(&e);
        exl2__free(g->c, memory, names + slots, EXL2_MEM_GENERAL);
    }
}

/* ---- choices ---- */

/* Each line is a choice. Empty lines, and a CR at the end of a line, are ignored. */
EXL2__PRIVATE void exl2__grammar_ebnf_choices(exl2__grammar_code *g, const char *text, size_t bytes)
{
    exl2__grammar_regex r = exl2__grammar_regex_of(g, text, bytes);
    exl2__grammar_choice list;
    uint32_t rule = exl2__grammar_code_rule(g), lines = 1;
    if (!exl2__unicode_valid(text, bytes)) {
        exl2__grammar_regex_reject(&r, EXL2_ERR_FORMAT, "the choices are not valid UTF-8");
    }
    for (size_t i = 1; i < bytes; i++) {
        lines += text[i - 1] == '\n' && text[i] != '\n';
    }
    exl2__grammar_choice_open(g, lines, &list);
    for (; exl2__grammar_regex_more(&r); r.x.at++) {
        const char *line = text + r.x.at, *end = (const char *)memchr(line, '\n', bytes - r.x.at);
        size_t length = end ? (size_t)(end - line) : bytes - r.x.at;
        r.x.at += length;
        length -= length && line[length - 1] == '\r';
        if (length) {
            exl2__grammar_choice_add(&list, line, length);
        }
    }
    if (list.count == 0) {
        exl2__grammar_regex_reject(&r, EXL2_ERR_FORMAT, "expected at least one choice");
    }
    exl2__grammar_choice_sort(&list);
    exl2__grammar_code_define(g, rule, exl2__grammar_choice_piece(&list));
    exl2__grammar_choice_close(&list);
}

#endif
