/* call_turn.c: the turn of a chat that has reasoning or tools.
   takes: a choice of a chat.
   gives: call_turn_begin, call_turn_text, call_turn_done, call_turn_free of call_prepare.h. */
#include "answer.h"
#include "call_prepare.h"

bool call_turn_begin(choice *c, request_error *error)
{
    (void)c;
    return !error->set;
}

void call_turn_text(choice *c, const engine_record *r)
{
    answer_content(c, r->text, r->bytes, r);
}

bool call_turn_done(choice *c)
{
    (void)c;
    return false;
}

void call_turn_free(choice *c)
{
    c->turn = NULL;
}
