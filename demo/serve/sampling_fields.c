/* sampling_fields.c: see sampling_fields.h.
   takes: the request's members.
   gives: what sampling_fields.h declares.
   owns:  the lists of a sampling. */
#include "sampling_fields.h"

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
    { "typical|typical_p", 0, 1, 1, 0, AT(typical) },
    { "smoothing_factor", 0, 100, 0, NAN, AT(smoothing) },
    { "skew", -10, 10, 0, NAN, AT(skew) },
    { "repetition_penalty|rep_pen|repeat_penalty", 0, 10, 1, 0, AT(repeat_penalty) },
    { "frequency_penalty", -2, 2, 0, NAN, AT(frequency_penalty) },
    { "presence_penalty", -2, 2, 0, NAN, AT(presence_penalty) },
    { "dry_multiplier", 0, 100, 0, NAN, AT(dry_multiplier) },
    { "xtc_probability", 0, 1, 0, NAN, AT(xtc_probability) },
};

static void set_float(exl2_sampler_desc *d, size_t at, double value)
{
    float number = (float)value;
    memcpy((char *)d + at, &number, sizeof number);
}

static void read_floats(fields *f, exl2_sampler_desc *d)
{
    for (size_t i = 0; i < sizeof floats / sizeof floats[0]; i++) {
        const float_row *row = &floats[i];
        double value;
        if (fields_number(f, row->names, row->least, row->most, &value)) {
            set_float(d, row->at, value == row->off || value == row->off_too ? EXL2_OFF : value);
        }
    }
}

static void read_temperature(fields *f, exl2_sampler_desc *d)
{
    double value, low = 1, high = 1, exponent = 0;
    bool dynamic = true;
    if (fields_number(f, "temperature", 0, 10, &value)) {
        d->greedy = value == 0;
        d->temperature = d->greedy ? 0 : (float)value;
    }
    fields_bool(f, "temperature_last", &d->temperature_last);
    fields_bool(f, "dynamic_temperature", &dynamic);
    fields_number(f, "min_temp|dynatemp_low", 0, 10, &low);
    fields_number(f, "max_temp|dynatemp_high", 0, 10, &high);
    fields_number(f, "temp_exponent|dynatemp_exponent", 0, 100, &exponent);
    if (dynamic && high > low) {
        d->dynamic_min = low > 0 ? (float)low : EXL2_OFF;
        d->dynamic_max = (float)high;
        d->dynamic_exponent = (float)exponent;
    }
}

static void read_ranges(fields *f, exl2_sampler_desc *d)
{
    int64_t whole;
    double value;
    if (fields_whole(f, "top_k", -1, 1e9, &whole)) {
        d->top_k = whole <= 0 ? EXL2_OFF : (int32_t)whole;
    }
    if (fields_whole(f, "penalty_range|repetition_range|repetition_penalty_range|rep_pen_range|repeat_last_n", -1, 2e9,
                     &whole)) {
        d->penalty_range = whole <= 0 ? -1 : (int32_t)whole;
    }
    if (fields_whole(f, "repetition_decay", 0, 2e9, &whole)) {
        d->penalty_decay = whole == 0 ? EXL2_OFF : (int32_t)whole;
    }
    if (fields_number(f, "dry_base", 0, 100, &value)) {
        d->dry_base = (float)value;
    }
    if (fields_whole(f, "dry_allowed_length", 0, 1000, &whole)) {
        d->dry_allowed = (int32_t)whole;
    }
    if (fields_whole(f, "dry_range|dry_penalty_last_n", -1, 2e9, &whole)) {
        d->dry_range = whole <= 0 ? -1 : (int32_t)whole;
    }
    if (fields_number(f, "xtc_threshold", 0, 1, &value)) {
        d->xtc_threshold = (float)value;
    }
    if (fields_whole(f, "mirostat_mode|mirostat", 0, 2, &whole) && whole == 2) {
        double tau = 1.5, eta = 0.3;
        fields_number(f, "mirostat_tau", 0, 100, &tau);
        fields_number(f, "mirostat_eta", 0, 10, &eta);
        d->mirostat_tau = (float)tau;
        d->mirostat_eta = (float)eta;
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
    for (const char *at = v->kind == JSON_TEXT ? v->text : ""; *at && good;) {
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
            double add = item->number;
            bool bans = add <= -100;
            s->bias[s->desc.bias_count++] = (exl2_bias){ (exl2_token)id, bans ? -INFINITY : (float)add };
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
        const char *error;
        buffer inside = { 0 };
        bool whole = v->text[strspn(v->text, " \t\n")] == '[';
        buffer_string(&inside, whole ? "" : "[");
        buffer_add(&inside, v->text, v->text_bytes);
        buffer_string(&inside, whole ? "" : "]");
        s->breaker_tree = inside.failed ? NULL : json_read(inside.data, inside.bytes, &error);
        if (!s->breaker_tree && !whole && !inside.failed) { /* plain words */
            buffer_clear(&inside);
            buffer_array(&inside, NULL);
            for (const char *at = v->text; *at;) {
                size_t bytes = strcspn(at, ",");
                buffer_text(&inside, NULL, at, bytes);
                at += bytes + (at[bytes] == ',');
            }
            buffer_end(&inside);
            s->breaker_tree = inside.failed ? NULL : json_read(inside.data, inside.bytes, &error);
        }
        s->breaker_texts = inside.data; /* `raw` of the tree points into it */
        list = s->breaker_tree;
    }
    if (!list || list->kind != JSON_ARRAY || list->child_count > SAMPLING_BREAKERS_MAX) {
        fields_fail(f->error, v->key, "%s must be a list of at most %u texts", v->key, SAMPLING_BREAKERS_MAX);
        return;
    }
    s->breakers = calloc(list->child_count + 1, sizeof *s->breakers);
    for (const json_value *item = list->child; item && s->breakers; item = item->next) {
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

static void warn(const fields *f, buffer *warnings)
{
    static const lack_row rows[] = {
        { "smoothing_curve", 1, 0 },  { "nsigma", 0, -1 },          { "top_n_sigma", 0, -1 },
        { "min_keep", 0, 1 },         { "epsilon_cutoff", 0, 0 },   { "eta_cutoff", 0, 0 },
        { "penalty_alpha", 0, 0 },    { "no_repeat_ngram_size", 0, 0 }, { "encoder_repetition_penalty", 1, 0 },
        { "max_tokens_second", 0, 0 }, { "best_of", 1, 1 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const json_value *v = json_member(f->object, rows[i].name);
        if (v && v->kind == JSON_NUMBER && v->number != rows[i].off && v->number != rows[i].off_too) {
            buffer_format(warnings, "%s%s", warnings->bytes ? ", " : "", rows[i].name);
        }
    }
    const json_value *target = json_member(f->object, "adaptive_target");
    if (target && target->kind == JSON_NUMBER && target->number > 0 && target->number < 1) {
        buffer_format(warnings, "%sadaptive_target", warnings->bytes ? ", " : "");
    }
    const json_value *mirostat = json_member(f->object, "mirostat_mode");
    if (mirostat && mirostat->kind == JSON_NUMBER && mirostat->number == 1) {
        buffer_format(warnings, "%smirostat_mode", warnings->bytes ? ", " : "");
    }
}

bool sampling_read(fields *f, exl2_preset preset, uint32_t vocab, sampling *out, buffer *warnings)
{
    exl2_sampler_desc *d = &out->desc;
    int64_t seed = -1;
    d->preset = preset;
    read_temperature(f, d);
    read_floats(f, d);
    read_ranges(f, d);
    read_breakers(f, out);
    read_bias(f, vocab, out);
    if (fields_whole(f, "seed|sampler_seed", -1, 1.8e19, &seed)) {
        d->seed = seed < 0 ? 0 : (uint64_t)seed + 1; /* 0 is random in the engine, and a seed like others here */
    }
    if (sampling_ids(f, "allowed_tokens|allowed_token_ids", vocab, &out->allow, &d->allow_count)) {
        d->allow = out->allow;
    }
    if (sampling_ids(f, "banned_tokens|custom_token_bans", vocab, &out->ban, &d->ban_count)) {
        d->ban = out->ban;
    }
    warn(f, warnings);
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
