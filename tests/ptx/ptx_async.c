/* ptx_async.c: asynchronous copies.
   takes: ptx_parts.h.
   gives: ptx_bulk_arrive, ptx_copies_end, ptx_async_decode. */
#include "ptx_parts.h"

void ptx_copies_end(ptx_warp *w)
{
    free(w->copies);
    w->copies = NULL;
    w->copy_count = w->copy_cap = 0;
}

bool ptx_async_decode(ptx_code *c) { (void)c; return false; }
