/* sampling.h: the sampling flags that generate and chat share.
   takes: flags.
   gives: SAMPLING_ARGS, sampling_defaults, sampling_desc.
   owns:  nothing; descs point into the options. */
#ifndef DEMO_CLI_SAMPLING_H
#define DEMO_CLI_SAMPLING_H

#include "../common/args.h"
#include "exl2.h"

#include <float.h>

#define SAMPLING_NOT_GIVEN (-FLT_MAX)

/* Settings with a number: flag, field of exl2_sampler_desc, least and largest value, help. */
#define SAMPLING_NUMBERS(X)                                                                                           \
    X("--temperature", temperature, 0, 1000, "above 1: more random; below 1: less; 0 = greedy (the model's)")          \
    X("--top-p", top_p, 0, 1, "keeps the likeliest tokens that together have probability X; 1 = off (the model's)")   \
    X("--min-p", min_p, 0, 1, "keeps tokens of at least X times the top probability; 0 = off (the model's)")          \
    X("--top-a", top_a, 0, 1, "keeps tokens of at least X times the square of the top probability (0)")               \
    X("--tail-free", tail_free, 0, 1, "cuts the flat tail of the sorted probabilities; 1 = off (1)")                  \
    X("--typical", typical, 0, 1, "keeps tokens of typical surprise that together have probability X; 1 = off (1)")   \
    X("--smoothing", smoothing, 0, 100, "puts logits X times their squared distance below the top one (0)")           \
    X("--skew", skew, -10, 10, "below 0 favours likely tokens, above 0 unlikely ones (0)")                            \
    X("--dynamic-min", dynamic_min, 0, 1000, "temperature where the model is certain (0)")                            \
    X("--dynamic-max", dynamic_max, 0, 1000, "temperature where it is uncertain; on if above --dynamic-min (0)")      \
    X("--dynamic-exponent", dynamic_exponent, 0, 100, "curve between the two temperatures (1)")                       \
    X("--repeat-penalty", repeat_penalty, 0.01f, 100, "makes earlier tokens less likely; 1 = off (the model's)")       \
    X("--frequency-penalty", frequency_penalty, -100, 100, "lowers a token's logit by X per earlier use (0)")         \
    X("--presence-penalty", presence_penalty, -100, 100, "lowers a token's logit by X if used before (0)")            \
    X("--dry", dry_multiplier, 0, 1000, "DRY: penalty for continuing a repetition (0)")                               \
    X("--dry-base", dry_base, 1, 100, "factor of the DRY penalty per repeated token (1.75)")                          \
    X("--xtc", xtc_probability, 0, 1, "XTC: chance to remove all likely tokens but the last (0)")                     \
    X("--xtc-threshold", xtc_threshold, 0, 1, "XTC: probability from which a token counts as likely (0.1)")           \
    X("--mirostat-tau", mirostat_tau, 0, 100, "mirostat 2: target surprise in bits; 0 = off (0)")                     \
    X("--mirostat-eta", mirostat_eta, 0, 10, "mirostat 2: learning rate (0.1)")                                       \
    X("--adaptive-target", adaptive_target, 0, 1, "adaptive-p: favours tokens of about probability X; 0 = off (0)")   \
    X("--adaptive-decay", adaptive_decay, 0, 0.99f, "adaptive-p: how long earlier tokens count (0.9)")

/* Settings with a number of tokens: flag, field, does 0 mean all (-1 in the desc), help. */
#define SAMPLING_COUNTS(X)                                                                        \
    X("--top-k", top_k, false, "keeps the N likeliest tokens; 0 = off (the model's)")             \
    X("--penalty-range", penalty_range, true, "last tokens that penalties count; 0 = all (256)")  \
    X("--penalty-decay", penalty_decay, false, "tokens before --penalty-range over which they fade (0)") \
    X("--dry-allowed", dry_allowed, false, "repeated tokens without a DRY penalty (2)")           \
    X("--dry-range", dry_range, true, "last tokens that DRY compares; 0 = all (0)")               \
    X("--dry-match-max", dry_match_max, false, "DRY counts longer repetitions as N tokens (20)")

typedef struct sampling_options {
    bool greedy, temperature_last;
    uint32_t preset; /* an exl2_preset, in the order of --preset */
#define X(flag, name, low, high, help) float name; /* SAMPLING_NOT_GIVEN: the preset's value */
    SAMPLING_NUMBERS(X)
#undef X
#define X(flag, name, all, help) uint32_t name; /* UINT32_MAX: the preset's value */
    SAMPLING_COUNTS(X)
#undef X
    uint64_t seed;
    arg_numbers allow, ban, xtc_keep;
    arg_texts dry_breakers, biases; /* a bias is "ID=X" */
    exl2_token tokens[3][ARGS_LIST_MAX]; /* allow, ban and xtc_keep as ids */
    exl2_bias bias[ARGS_LIST_MAX];
} sampling_options;

#define SAMPLING_FLOAT_ROW(flag, name, low, high, help) { flag, ARG_FLOAT, &SAMPLING_OF.name, "X", help },
#define SAMPLING_COUNT_ROW(flag, name, all, help) { flag, ARG_U32, &SAMPLING_OF.name, "N", help },

/* Rows of a flag table for the sampling_options that SAMPLING_OF names. */
#define SAMPLING_ARGS                                                                                               \
    { "--preset", ARG_CHOICE, &SAMPLING_OF.preset, "model|neutral|greedy|balanced",                                 \
      "values of the settings that no flag sets (model)" },                                                         \
    { "--greedy", ARG_BOOL, &SAMPLING_OF.greedy, NULL, "always chooses the likeliest token" },                      \
    SAMPLING_NUMBERS(SAMPLING_FLOAT_ROW) SAMPLING_COUNTS(SAMPLING_COUNT_ROW)                                        \
    { "--temperature-last", ARG_BOOL, &SAMPLING_OF.temperature_last, NULL,                                          \
      "the temperature applies after the filters" },                                                                \
    { "--dry-breaker", ARG_TEXTS, &SAMPLING_OF.dry_breakers, "T",                                                   \
      "text that ends DRY's repetitions; may be repeated" },                                                        \
    { "--xtc-keep", ARG_NUMBERS, &SAMPLING_OF.xtc_keep, "1,2", "tokens that XTC never removes" },                   \
    { "--bias", ARG_TEXTS, &SAMPLING_OF.biases, "ID=X", "adds X to the logit of token ID; may be repeated" },       \
    { "--allow", ARG_NUMBERS, &SAMPLING_OF.allow, "1,2", "samples only these tokens" },                             \
    { "--ban", ARG_NUMBERS, &SAMPLING_OF.ban, "1,2", "never samples these tokens" },                                \
    { "--seed", ARG_U64, &SAMPLING_OF.seed, "N", "the same seed gives the same text; 0 = random (0)" }

/* Options for a command line without flags. */
sampling_options sampling_defaults(void);
/* Makes the desc; *out points into *o. ARGS_USAGE with a printed message: a value is out of range, or greedy sampling
   would ignore a setting. */
args_result sampling_desc(const args_desc *d, sampling_options *o, exl2_sampler_desc *out);

#endif
