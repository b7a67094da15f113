/* sampling_fields.c: see sampling_fields.h.
   takes: the request's members.
   gives: what sampling_fields.h declares.
   owns:  the lists of a sampling. */
#include "sampling_fields.h"

#include "request_names.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct float_row { /* a setting that is a float */
    const char *names;
    double least, most;
    double off, off_too; /* values that turn it off; NAN: none */
    size_t at;           /* in exl2_sampler_desc */
} float_row;

#define AT(member) offsetof(exl2_sampler_desc, member)

static const float_row floats[] = {
    { "top_p", 0, 1, 1, 0, AT(top_p) },
    { "min_p", 0, 1, 0, NAN, AT(min_p) },
    { "top_a", 0, 1, 0, NAN, AT(top_a) },
    { "tfs", 0, 1, 1, 0, AT(tail_free) },
    { NAMES_TYPICAL, 0, 1, 1, 0, AT(typical) },
    { "smoothing_factor", 0, 100, 0, NAN, AT(smoothing) },
    { "skew", -10, 10, 0, NAN, AT(skew) },
    { NAMES_REPEAT_PENALTY, 0.01, 100, 1, NAN, AT(repeat_penalty) },
    { "frequency_penalty", -2, 2, 0, NAN, AT(frequency_penalty) },
    { "presence_penalty", -2, 2, 0, NAN, AT(presence_penalty) },
    { "dry_multiplier", 0, 100, 0, NAN, AT(dry_multiplier) },
    { "xtc_probability", 0, 1, 0, NAN, AT(xtc_probability) },
};

/* A float that the engine does not take for "as the preset says", which 0 means there. */
static float not_zero(double value)
{
    return fabs(value) < FLT_MIN ? FLT_MIN : (float)value;
}

static void read_floats(fields *f, exl2_sampler_desc *d)
{
    for (size_t i = 0; i < sizeof floats / sizeof floats[0]; i++) {
        const float_row *row = &floats[i];
        double value;
        if (fields_number(f, row->names, row->least, row->most, &value)) {
            float number = value == row->off || value == row->off_too ? EXL2_OFF : not_zero(value);
            memcpy((char *)d + row->at, &number, sizeof number);
        }
    }
}

static void read_temperature(fields *f, exl2_sampler_desc *d)
{
    double value, low = 1, high = 1, exponent = 1;
    bool dynamic = true;
    if (fields_number(f, "temperature", 0, 10, &value)) {
        d->greedy = value == 0;
        d->temperature = d->greedy ? 0 : not_zero(value);
    }
    fields_bool(f, "temperature_last", &d->temperature_last);
    fields_bool(f, "dynamic_temperature", &dynamic);
    bool both = fields_number(f, NAMES_MIN_TEMP, 0, 10, &low);
    both = fields_number(f, NAMES_MAX_TEMP, 0, 10, &high) && both;
    fields_number(f, NAMES_TEMP_EXPONENT, 0, 100, &exponent);
    if (dynamic && both && low > high) {
        fields_fail(f->error, fields_find(f, NAMES_MIN_TEMP)->key, "min_temp is larger than max_temp");
    } else if (dynamic && high > low) {
        d->dynamic_min = low > 0 ? not_zero(low) : EXL2_OFF;
        d->dynamic_max = not_zero(high);
        d->dynamic_exponent = not_zero(exponent);
    }
}

static void read_ranges(fields *f, exl2_sampler_desc *d)
{
    int64_t whole;
    double value;
    if (fields_whole(f, "top_k", -1, 1e9, &whole)) {
        d->top_k = whole <= 0 ? EXL2_OFF : (int32_t)whole;
    }
    if (fields_whole(f, NAMES_PENALTY_RANGE, -1, 2e9, &whole)) {
        d->penalty_range = whole <= 0 ? -1 : (int32_t)whole;
    }
    if (fields_whole(f, "repetition_decay", 0, 2e9, &whole)) {
        d->penalty_decay = whole == 0 ? EXL2_OFF : (int32_t)whole;
    }
    if (fields_number(f, "dry_base", 0, 100, &value) && value != 0) { /* 0: the default */
        d->dry_base = (float)value;
        if (value < 1) {
            fields_fail(f->error, "dry_base", "dry_base must be 0 or from 1 to 100, not %.9g", value);
        }
    }
    if (fields_whole(f, "dry_allowed_length", 0, 1000, &whole)) {
        d->dry_allowed = (int32_t)whole;
    }
    if (fields_whole(f, NAMES_DRY_RANGE, -1, 2e9, &whole)) {
        d->dry_range = whole <= 0 ? -1 : (int32_t)whole;
    }
    if (fields_number(f, "xtc_threshold", 0, 1, &value)) {
        d->xtc_threshold = not_zero(value);
    }
    double tau = 1.5, eta = 0.3;
    bool mirostat = fields_whole(f, NAMES_MIROSTAT, 0, 2, &whole);
    fields_number(f, "mirostat_tau", 0, 100, &tau);
    fields_number(f, "mirostat_eta", 0, 10, &eta);
    if (mirostat && whole == 2) {
        d->mirostat_tau = not_zero(tau);
        d->mirostat_eta = not_zero(eta);
    } else if (mirostat) {
        d->mirostat_tau = EXL2_OFF;
    }
    if (fields_number(f, "adaptive_target", -1e30, 1e30, &value)) { /* clients turn it off by 0 or less, or by 1 */
        d->adaptive_target = value > 0 && value < 1 ? not_zero(value) : EXL2_OFF;
    }
    if (fields_number(f, "adaptive_decay", 0, 1, &value)) { /* llama.cpp's limit */
        d->adaptive_decay = not_zero(fmin(value, 0.99));
    }
}

/* ---- lists ---- */

static bool add_id(fields *f, const char *name, double number, uint32_t vocab, exl2_token *list, uint32_t *count)
{
    if (number != floor(number) || number < 0 || number >= vocab) {
        return fields_fail(f->error, name, "%s has %.9g, which is no token id of this model", name, number);
    }
    if (*count == SAMPLING_LIST_MAX) {
        return fields_fail(f->error, name, "%s has more than %u ids", name, SAMPLING_LIST_MAX);
    }
    list[(*count)++] = (exl2_token)number;
    return true;
}

bool sampling_ids(fields *f, const char *names, uint32_t vocab, exl2_token **out, uint32_t *count)
{
    const json_value *v = f->error->set ? NULL : fields_find(f, names);
    if (!v) {
        return false;
    }
    if (v->kind != JSON_ARRAY && v->kind != JSON_TEXT) {
        return fields_fail(f->error, v->key, "%s must be a list of ids, or ids in a text with commas", v->key);
    }
    exl2_token *list = malloc(SAMPLING_LIST_MAX * sizeof *list);
    bool good = list || fields_fail(f->error, NULL, "there is no memory left for this request");
    *count = 0;
    for (const json_value *item = v->child; item && good && v->kind == JSON_ARRAY; item = item->next) {
        good = item->kind == JSON_NUMBER ? add_id(f, v->key, item->number, vocab, list, count)
                                         : fields_fail(f->error, v->key, "%s must have ids only", v->key);
    }
    const char *ids = v->kind == JSON_TEXT ? v->text : "";
    for (const char *at = ids + strspn(ids, ", "); *at && good;) {
        char *end;
        double number = strtod(at, &end);
        good = end != at ? add_id(f, v->key, number, vocab, list, count)
                         : fields_fail(f->error, v->key, "%s must have ids with commas between them", v->key);
        at = end + strspn(end, ", ");
    }
    if (!good) {
        free(list);
        return false;
    }
    free(*out);
    *out = list;
    return true;
}

static void read_bias(fields *f, uint32_t vocab, sampling *s)
{
    const json_value *map = NULL;
    if (!fields_object(f, "logit_bias", &map)) {
        return;
    }
    if (map->child_count > SAMPLING_LIST_MAX) {
        fields_fail(f->error, "logit_bias", "logit_bias has more than %u ids", SAMPLING_LIST_MAX);
        return;
    }
    s->bias = calloc(map->child_count, sizeof *s->bias);
    if (!s->bias) {
        fields_fail(f->error, NULL, "there is no memory left for this request");
        return;
    }
    for (const json_value *item = map->child; item; item = item->next) {
        char *end;
        double id = strtod(item->key, &end);
        if (end == item->key || *end || id != floor(id) || id < 0 || item->kind != JSON_NUMBER) {
            fields_fail(f->error, "logit_bias", "logit_bias must map token ids to numbers, not '%.40s'", item->key);
            return;
        }
        if (id < vocab) { /* ids outside of the vocabulary are skipped */
            double add = item->number <= -100 ? -INFINITY : fmin(item->number, 1e30);
            s->bias[s->desc.bias_count++] = (exl2_bias){ (exl2_token)id, (float)add };
        }
    }
    s->desc.bias = s->bias;
}

/* A list of texts; JSON of such a list, or the inside of it, in a text; or words with commas between them. */
static void read_breakers(fields *f, sampling *s)
{
    const json_value *v = f->error->set ? NULL : fields_find(f, "dry_sequence_breakers");
    const json_value *list = v;
    if (!v) {
        return;
    }
    if (v->kind == JSON_TEXT) {
        const char *error = NULL;
        buffer inside = { 0 };
        bool whole = v->text[strspn(v->text, " \t\n")] == '[';
        buffer_string(&inside, whole ? "" : "[");
        buffer_add(&inside, v->text, v->text_bytes);
        buffer_string(&inside, whole ? "" : "]");
        s->breaker_tree = inside.failed ? NULL : json_read_rules(inside.data, inside.bytes, &FIELDS_RULES, &error);
        if (!s->breaker_tree && !whole && !inside.failed && error != json_no_memory) { /* plain words */
            buffer_clear(&inside);
            buffer_array(&inside, NULL);
            for (const char *at = v->text; *at;) {
                size_t bytes = strcspn(at, ",");
                buffer_text(&inside, NULL, at, bytes);
                at += bytes + (at[bytes] == ',');
            }
            buffer_end(&inside);
            s->breaker_tree = inside.failed ? NULL : json_read_rules(inside.data, inside.bytes, &FIELDS_RULES, &error);
        }
        s->breaker_texts = inside.data; /* `raw` of the tree points into it */
        list = s->breaker_tree;
        if (inside.failed || (!list && error == json_no_memory)) {
            fields_fail(f->error, NULL, "there is no memory left for this request");
            return;
        }
    }
    if (!list || list->kind != JSON_ARRAY || list->child_count > SAMPLING_BREAKERS_MAX) {
        fields_fail(f->error, v->key, "%s must be a list of at most %u texts", v->key, SAMPLING_BREAKERS_MAX);
        return;
    }
    s->breakers = calloc(list->child_count + 1, sizeof *s->breakers);
    if (!s->breakers) {
        fields_fail(f->error, NULL, "there is no memory left for this request");
        return;
    }
    for (const json_value *item = list->child; item; item = item->next) {
        if (item->kind != JSON_TEXT || strlen(item->text) != item->text_bytes) {
            fields_fail(f->error, v->key, "%s must have texts only", v->key);
            return;
        }
        if (item->text_bytes) {
            s->breakers[s->desc.dry_breaker_count++] = item->text;
        }
    }
    s->desc.dry_breakers = s->breakers;
}

/* ---- what the engine lacks ---- */

typedef struct lack_row {
    const char *name;
    double off, off_too; /* values at which it does nothing */
} lack_row;

static void warn(buffer *warnings, const char *name)
{
    buffer_format(warnings, "%s%s", warnings->bytes ? ", " : "", name);
}

static void read_lacks(fields *f, buffer *warnings)
{
    static const lack_row rows[] = {
        { "smoothing_curve", 1, 0 },      { "nsigma", 0, -1 },         { "top_n_sigma", 0, -1 },
        { "min_keep", 0, 1 },             { "epsilon_cutoff", 0, 0 },  { "eta_cutoff", 0, 0 },
        { "penalty_alpha", 0, 0 },        { "no_repeat_ngram_size", 0, 0 }, { "encoder_repetition_penalty", 1, 0 },
        { "max_tokens_second", 0, 0 },    { "best_of", 1, 0 },         { "loop_detect_window", 0, 0 },
    };
    double value = 0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (fields_number(f, rows[i].name, -1e30, 1e30, &value) && value != rows[i].off && value != rows[i].off_too) {
            warn(warnings, rows[i].name);
        }
    }
    if (fields_number(f, NAMES_MIROSTAT, 0, 2, &value) && value == 1) {
        warn(warnings, "mirostat_mode");
    }
}

/* Seeds reach over what a double holds exactly. 0 is random in the engine, and a seed like others here. */
static void read_seed(fields *f, exl2_sampler_desc *d)
{
    const json_value *v = f->error->set ? NULL : fields_find(f, NAMES_SEED);
    int64_t whole;
    if (!v || !fields_whole(f, v->key, -1, 18446744073709551615.0, &whole)) {
        return;
    }
    size_t digits = strspn(v->raw, "0123456789");
    uint64_t seed = digits == v->raw_bytes ? strtoull(v->raw, NULL, 10) : (uint64_t)whole;
    d->seed = v->number < 0 ? 0 : seed == UINT64_MAX ? seed : seed + 1;
}

bool sampling_read(fields *f, exl2_preset preset, uint32_t vocab, sampling *out, buffer *warnings)
{
    exl2_sampler_desc *d = &out->desc;
    d->preset = preset;
    read_temperature(f, d);
    read_floats(f, d);
    read_ranges(f, d);
    read_breakers(f, out);
    read_bias(f, vocab, out);
    read_seed(f, d);
    if (sampling_ids(f, NAMES_ALLOWED_TOKENS, vocab, &out->allow, &d->allow_count)) {
        d->allow = out->allow;
    }
    if (sampling_ids(f, NAMES_BANNED_TOKENS, vocab, &out->ban, &d->ban_count)) {
        d->ban = out->ban;
    }
    read_lacks(f, warnings);
    return !f->error->set;
}

void sampling_free(sampling *s)
{
    free(s->bias);
    free(s->allow);
    free(s->ban);
    free((void *)s->breakers);
    json_free(s->breaker_tree);
    free(s->breaker_texts);
    *s = (sampling){ 0 };
}
