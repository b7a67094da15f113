/* gap.h: what a shorter conversation leaves out of a longer one.
   takes: the tokens of both.
   gives: gap_find. */
#ifndef DEMO_GAP_H
#define DEMO_GAP_H

#include "exl2.h"

/* The gap that makes `old` begin as `now` does for as long as possible: old[*from, *from + result) is left out. Before
   *from both are the same. Linear in the number of tokens, however often they repeat. */
uint32_t gap_find(const exl2_token *old, size_t old_count, const exl2_token *now, size_t now_count, uint32_t *from);

#endif
