/* spare_texts.h: what a model reads for calibration that is too large for memory and so cannot write its own text.
   takes: exl2_texts.inc, which tools/embed.c makes of the files of the folder spare_texts.
   gives: exl2__spare_texts.

   Each string is a document; in the files, lines of two percent signs separate them. 1_written.txt was written for this
   purpose (ten languages, dialogue, JSON, questions). 2_exl2.txt is of exl2.h's manual, its README and its sources, as
   they once were. Both have the licence of exl2.h. SmolLM2-135M-Instruct (Apache-2.0, Hugging Face) wrote 3_model.txt,
   at temperature 0.9, from beginnings such as those in texts.h; what it wrote is free of rights (CC0). Such text
   calibrates as well as what people wrote. A changed byte changes every measurement and every conversion that uses the
   spare texts: tests/unit/convert_sources.c has their hash. */
#ifndef EXL2__SPARE_TEXTS_H
#define EXL2__SPARE_TEXTS_H

static const char *const exl2__spare_texts[] = {
#include "exl2_texts.inc"
};

#endif
