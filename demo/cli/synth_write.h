/* synth_write.h: writes a synthetic model's folder, a chunk at a time.
   takes: a plan, a folder that does not exist yet or is empty.
   gives: synth_write.
   owns:  the folder's files until it is complete; a failure removes them. */
#ifndef DEMO_CLI_SYNTH_WRITE_H
#define DEMO_CLI_SYNTH_WRITE_H

#include "synth_plan.h"

/* Shards of at most 4 GiB, their index, config.json last. *file_bytes: of the shards. False with a sentence on
   stderr, and nothing left behind; Ctrl-C is a failure too. */
bool synth_write(const synth_plan *p, const char *folder, uint64_t *file_bytes);

#endif
