/* synth_write.h: writes the folder of a synthetic model, chunk by chunk.
   takes: a plan, a folder that does not exist yet or is empty.
   gives: synth_write.
   owns:  the files, until the folder is complete; if it fails it removes them. */
#ifndef DEMO_CLI_SYNTH_WRITE_H
#define DEMO_CLI_SYNTH_WRITE_H

#include "synth_plan.h"

/* Writes shards of at most 4 GiB, their index, and config.json last; of an adapter, one file and adapter_config.json.
   *file_bytes: sum of the sizes of the shards. false: failed or Ctrl-C; a message was printed to stderr, and no file is
   left. */
bool synth_write(const synth_plan *p, const char *folder, uint64_t *file_bytes);

#endif
