/* exl2_impl.h: the implementation, in reading order, which is the order of dependence: the table of contents.
   takes: exl2.h above it, in the one C file that defines EXL2_IMPLEMENTATION.
   gives: every public function.
   owns:  nothing.
   next:  0_base/config.h */

/* ---- 0_base: what every other folder stands on ---- */

/* defines: EXL2__ASSERT, EXL2__PRINTF, EXL2__COUNT, SIMD target attributes, atomics, locks */
#include "0_base/config.h"
/* defines: the context, formatting, exl2__fail, EXL2__TRY */
#include "0_base/result.h"
/* defines: checked arithmetic, little-endian loads and stores */
#include "0_base/bytes.h"
/* defines: allocation with byte counts and the host's cap */
#include "0_base/alloc.h"
/* defines: arenas, dry ones included */
#include "0_base/arena.h"
/* defines: ids for fixed slots */
#include "0_base/pool.h"
/* defines: fp16 and bf16 */
#include "0_base/half.h"
/* defines: string hash, string table */
#include "0_base/hash.h"
/* defines: log lines, profiler zones */
#include "0_base/log.h"
/* defines: clock, entropy, default allocator, default files */
#include "0_base/platform.h"

/* ---- 1_load: files of a model, checked as they are read ---- */

/* defines: what a matrix of the model is, EXL2 or dense */
#include "1_load/exl2_matrix.h"

/* ---- 2_graph: the forward pass ---- */

/* defines: the backend boundary */
#include "2_graph/phases.h"
