/* sampler.c: resolving the sampler's settings: presets, the model's defaults, EXL2_OFF, rejected values. */
#include "private/sampler.h"
#include "../check.h"

#define OFF EXL2_OFF

static exl2__ctx context;

/* Compares fields, because padding is undefined. */
static int same(const exl2_sampler_desc *a, const exl2_sampler_desc *b)
{
    exl2_sampler_desc x = *a, y = *b;
    int equal = a->preset == b->preset && a->seed == b->seed && a->bias == b->bias && a->bias_count == b->bias_count
             && a->greedy == b->greedy && a->temperature_last == b->temperature_last
             && a->allow == b->allow && a->ban == b->ban
             && a->allow_count == b->allow_count && a->ban_count == b->ban_count && a->xtc_keep == b->xtc_keep
             && a->dry_breakers == b->dry_breakers;
    for (uint32_t i = 0; i < EXL2__COUNT(exl2__sampler_floats); i++) {
        equal &= *exl2__sampler_float(&x, i) == *exl2__sampler_float(&y, i);
    }
    for (uint32_t i = 0; i < EXL2__COUNT(exl2__sampler_ints); i++) {
        equal &= *exl2__sampler_int(&x, i) == *exl2__sampler_int(&y, i);
    }
    return equal;
}

static exl2_sampler_desc resolve(const exl2__config_defaults *model, exl2_sampler_desc d)
{
    const exl2__config_defaults silent = { 0 };
    exl2_sampler_desc out, again;
    CHECK_INT(exl2__sampler_resolve(&context, model ? model : &silent, &d, &out), EXL2_OK);
    CHECK_INT(exl2__sampler_resolve(&context, model ? model : &silent, &out, &again), EXL2_OK);
    CHECK(same(&out, &again)); /* resolving again changes nothing */
    return out;
}

static void check_numbers(const exl2_sampler_desc *d, float temperature, int32_t top_k, float top_p, float min_p,
                          float repeat_penalty, int32_t penalty_range)
{
    CHECK(d->temperature == temperature);
    CHECK_INT(d->top_k, top_k);
    CHECK(d->top_p == top_p);
    CHECK(d->min_p == min_p);
    CHECK(d->repeat_penalty == repeat_penalty);
    CHECK_INT(d->penalty_range, penalty_range);
}

static void test_presets(void)
{
    exl2_sampler_desc d = resolve(NULL, (exl2_sampler_desc){ .preset = EXL2_PRESET_NEUTRAL });
    check_numbers(&d, 1, OFF, OFF, OFF, OFF, 256);
    d = resolve(NULL, (exl2_sampler_desc){ .preset = EXL2_PRESET_GREEDY });
    check_numbers(&d, 1, 1, OFF, OFF, OFF, 256);
    d = resolve(NULL, (exl2_sampler_desc){ .preset = EXL2_PRESET_BALANCED, .seed = 77 });
    check_numbers(&d, 0.8f, OFF, OFF, 0.05f, 1.1f, 256);
    CHECK(d.seed == 77 && d.preset == EXL2_PRESET_BALANCED);
    d = resolve(NULL, (exl2_sampler_desc){ 0 }); /* preset MODEL, and the model defines nothing */
    check_numbers(&d, 0.8f, OFF, OFF, 0.05f, 1.1f, 256);
    exl2_sampler_desc of_null;
    exl2__config_defaults silent = { 0 };
    CHECK_INT(exl2__sampler_resolve(&context, &silent, NULL, &of_null), EXL2_OK);
    CHECK(same(&d, &of_null));
    /* input and output are the same struct */
    CHECK_INT(exl2__sampler_resolve(&context, &silent, &of_null, &of_null), EXL2_OK);
    CHECK(same(&d, &of_null));
}

/* Greedy replaces any preset, whatever the filters are. Penalties and lists remain those of the desc. */
static void test_greedy(void)
{
    const exl2_preset presets[] = { EXL2_PRESET_MODEL, EXL2_PRESET_NEUTRAL, EXL2_PRESET_GREEDY, EXL2_PRESET_BALANCED };
    exl2__config_defaults m = { .has_repeat_penalty = true, .repeat_penalty = 1.5f, .has_top_p = true, .top_p = 0.5f };
    exl2__sampling s;
    for (size_t i = 0; i < EXL2__COUNT(presets); i++) {
        exl2_sampler_desc d = resolve(&m, (exl2_sampler_desc){ .preset = presets[i], .greedy = true });
        check_numbers(&d, 1, 1, OFF, OFF, OFF, 256);
        CHECK(d.greedy && d.preset == presets[i]);
        d = resolve(&m, (exl2_sampler_desc){ .preset = presets[i] });
        CHECK_INT(d.greedy, presets[i] == EXL2_PRESET_GREEDY);
        d = resolve(&m, (exl2_sampler_desc){ .preset = presets[i], .greedy = true, .temperature = 0.7f, .top_k = 40,
                                             .repeat_penalty = 1.2f });
        exl2__sampler_make(&d, 1, &s);
        CHECK(s.greedy && s.repeat_penalty == 1.2f);
    }
    exl2_sampler_desc d = resolve(NULL, (exl2_sampler_desc){ .preset = EXL2_PRESET_GREEDY, .top_k = 40 });
    CHECK(!d.greedy); /* the desc has priority over its preset */
    d = resolve(NULL, (exl2_sampler_desc){ .temperature = 0.009f });
    CHECK(d.greedy);
}

static void test_fields_over_presets(void)
{
    exl2_sampler_desc given = { .preset = EXL2_PRESET_BALANCED, .temperature = 1.5f, .top_k = 40, .top_p = 0.9f,
                                .min_p = OFF, .repeat_penalty = 1.3f, .penalty_range = -1 };
    exl2_sampler_desc d = resolve(NULL, given);
    check_numbers(&d, 1.5f, 40, 0.9f, OFF, 1.3f, -1);
    CHECK_INT(exl2__sampler_penalty_range(&d), -1);
    given = (exl2_sampler_desc){ .preset = EXL2_PRESET_BALANCED, .temperature = OFF, .top_k = OFF, .top_p = OFF,
                                 .min_p = OFF, .repeat_penalty = OFF };
    d = resolve(NULL, given);
    check_numbers(&d, 1, OFF, OFF, OFF, OFF, 256);
    CHECK_INT(exl2__sampler_penalty_range(&d), 0);
    d = resolve(NULL, (exl2_sampler_desc){ .preset = EXL2_PRESET_BALANCED, .top_p = 1, .repeat_penalty = 1 });
    check_numbers(&d, 0.8f, OFF, OFF, 0.05f, OFF, 256);
    d = resolve(NULL, (exl2_sampler_desc){ .preset = EXL2_PRESET_BALANCED, .penalty_range = OFF });
    check_numbers(&d, 0.8f, OFF, OFF, 0.05f, 1.1f, OFF);
    CHECK_INT(exl2__sampler_penalty_range(&d), 0);
    given = (exl2_sampler_desc){ .preset = EXL2_PRESET_NEUTRAL, .repeat_penalty = 1.2f, .penalty_range = 64 };
    d = resolve(NULL, given);
    CHECK_INT(exl2__sampler_penalty_range(&d), 64);
}

/* Settings outside the plain chain: off in every preset, with default numbers where a setting only shapes another
   one. */
static void test_other_fields(void)
{
    const exl2_preset presets[] = { EXL2_PRESET_MODEL, EXL2_PRESET_NEUTRAL, EXL2_PRESET_GREEDY, EXL2_PRESET_BALANCED };
    for (size_t i = 0; i < EXL2__COUNT(presets); i++) {
        exl2_sampler_desc d = resolve(NULL, (exl2_sampler_desc){ .preset = presets[i] });
        CHECK(d.top_a == OFF && d.tail_free == OFF && d.typical == OFF && d.smoothing == OFF && d.skew == OFF);
        CHECK(d.dynamic_min == OFF && d.dynamic_max == OFF && d.dynamic_exponent == 1 && !d.temperature_last);
        CHECK(d.frequency_penalty == OFF && d.presence_penalty == OFF && d.penalty_decay == OFF);
        CHECK(d.dry_multiplier == OFF && d.dry_base == 1.75f && d.dry_allowed == 2 && d.dry_range == -1);
        CHECK(d.dry_match_max == 20 && d.xtc_probability == OFF && d.xtc_threshold == 0.1f);
        CHECK(d.mirostat_tau == OFF && d.mirostat_eta == 0.1f);
        CHECK(d.adaptive_target == OFF && d.adaptive_decay == 0.9f);
        exl2__sampling s;
        exl2__dry dry;
        exl2__sampler_make(&d, 1, &s);
        exl2__sampler_dry(&d, &dry);
        CHECK(s.top_a == 0 && s.tail_free == 0 && s.typical == 0 && s.smoothing == 0 && s.skew == 0);
        CHECK(s.dynamic_max <= s.dynamic_min && s.xtc_probability == 0 && s.mirostat_tau == 0 && dry.multiplier == 0);
        CHECK(s.adaptive_target == 0 && s.state == 0);
    }
    exl2_sampler_desc given = { .preset = EXL2_PRESET_NEUTRAL, .typical = 1, .tail_free = 1, .skew = -2,
                                .temperature_last = true, .frequency_penalty = -0.5f, .penalty_range = 10,
                                .penalty_decay = 30, .dry_multiplier = 0.8f, .dry_base = OFF, .dry_allowed = 4,
                                .dry_range = 99, .mirostat_tau = 3 };
    exl2_sampler_desc d = resolve(NULL, given);
    CHECK(d.typical == OFF && d.tail_free == OFF && d.skew == -2 && d.temperature_last);
    CHECK_INT(exl2__sampler_penalty_range(&d), 40);
    exl2__sampling s;
    exl2__dry dry;
    exl2__sampler_make(&d, 1, &s);
    exl2__sampler_dry(&d, &dry);
    CHECK(s.frequency_penalty == -0.5f && s.penalty_range == 10 && s.penalty_decay == 30 && s.repeat_penalty == 1);
    CHECK(s.mirostat_tau == 3 && s.state == 6);
    CHECK(dry.multiplier == 0.8f && dry.base == 1.75f && dry.allowed == 4 && dry.range == 99 && dry.match_max == 20);
    exl2_sampler_desc adaptive = resolve(NULL, (exl2_sampler_desc){ .adaptive_target = 0.4f, .adaptive_decay = OFF });
    CHECK(adaptive.adaptive_target == 0.4f && adaptive.adaptive_decay == OFF);
    exl2__sampler_make(&adaptive, 1, &s);
    CHECK(s.adaptive_target == 0.4f && s.adaptive_decay == 0 && s.state == 0.4f);
    adaptive.top_k = 1;
    exl2__sampler_make(&adaptive, 1, &s);
    CHECK(s.greedy && s.adaptive_target == 0);
    d.penalty_range = -1; /* the range is the whole history, so no decay follows it */
    CHECK_INT(exl2__sampler_penalty_range(&d), -1);
    exl2__sampler_make(&d, 1, &s);
    CHECK(s.penalty_decay == 0);
}

static void test_model_defaults(void)
{
    exl2__config_defaults m = { 0 };
    m.has_do_sample = m.do_sample = m.has_temperature = m.has_top_p = true;
    m.temperature = 0.6f;
    m.top_p = 0.9f;
    exl2_sampler_desc d = resolve(&m, (exl2_sampler_desc){ 0 });
    check_numbers(&d, 0.6f, OFF, 0.9f, 0.05f, 1.1f, 256);
    d = resolve(&m, (exl2_sampler_desc){ .preset = EXL2_PRESET_NEUTRAL });
    check_numbers(&d, 1, OFF, OFF, OFF, OFF, 256);
    d = resolve(&m, (exl2_sampler_desc){ .temperature = 1.1f, .top_p = OFF });
    check_numbers(&d, 1.1f, OFF, OFF, 0.05f, 1.1f, 256);

    m = (exl2__config_defaults){ 0 }; /* in the file, 0 is a value */
    m.has_top_k = m.has_top_p = m.has_min_p = m.has_repeat_penalty = true;
    m.repeat_penalty = 1;
    d = resolve(&m, (exl2_sampler_desc){ 0 });
    check_numbers(&d, 0.8f, OFF, OFF, OFF, OFF, 256);
    m.top_k = 20;
    m.top_p = 1;
    m.min_p = 0.1f;
    m.repeat_penalty = 1.05f;
    d = resolve(&m, (exl2_sampler_desc){ 0 });
    check_numbers(&d, 0.8f, 20, OFF, 0.1f, 1.05f, 256);

    m.has_do_sample = m.has_temperature = true; /* do_sample = false: greedy, with the model's own repetition penalty */
    m.temperature = 0.7f;
    d = resolve(&m, (exl2_sampler_desc){ 0 });
    check_numbers(&d, 1, 1, OFF, OFF, 1.05f, 256);
    m.has_repeat_penalty = false;
    d = resolve(&m, (exl2_sampler_desc){ 0 });
    check_numbers(&d, 1, 1, OFF, OFF, OFF, 256);
    m.do_sample = true;
    m.temperature = 0;
    d = resolve(&m, (exl2_sampler_desc){ 0 });
    CHECK_INT(d.top_k, 1);
}

static void test_refusals(void)
{
    const float nan = exl2__bits_float(0x7FC00000u), infinity = exl2__bits_float(0x7F800000u);
    const exl2_bias below[] = { { 3, 1 }, { -1, 2 } }, no_number[] = { { 3, nan } };
    const struct {
        exl2_sampler_desc d;
        const char *text;
    } refused[] = {
        { { .temperature = -0.1f }, "sampler: temperature must be in the range 0 to 1000, or be EXL2_OFF" },
        { { .temperature = nan }, "sampler: temperature must be in the range 0 to 1000, or be EXL2_OFF" },
        { { .temperature = infinity }, "sampler: temperature must be in the range 0 to 1000, or be EXL2_OFF" },
        { { .top_k = -1 }, "sampler: top_k is -1; it must be positive, or EXL2_OFF" },
        { { .top_p = 1.01f }, "sampler: top_p must be in the range 0 to 1, or be EXL2_OFF" },
        { { .top_p = -1 }, "sampler: top_p must be in the range 0 to 1, or be EXL2_OFF" },
        { { .min_p = nan }, "sampler: min_p must be in the range 0 to 1, or be EXL2_OFF" },
        { { .min_p = 2 }, "sampler: min_p must be in the range 0 to 1, or be EXL2_OFF" },
        { { .repeat_penalty = -2 }, "sampler: repeat_penalty must be in the range 0.01 to 100, or be EXL2_OFF" },
        { { .repeat_penalty = infinity }, "sampler: repeat_penalty must be in the range 0.01 to 100, or be EXL2_OFF" },
        { { .penalty_range = -2 }, "sampler: penalty_range is -2; it must be positive, -1 for all, or EXL2_OFF" },
        { { .penalty_decay = -1 }, "sampler: penalty_decay is -1; it must be positive, or EXL2_OFF" },
        { { .typical = 1.5f }, "sampler: typical must be in the range 0 to 1, or be EXL2_OFF" },
        { { .skew = nan }, "sampler: skew must be in the range -10 to 10, or be EXL2_OFF" },
        { { .adaptive_target = 1.1f }, "sampler: adaptive_target must be in the range 0 to 1, or be EXL2_OFF" },
        { { .adaptive_decay = 1 }, "sampler: adaptive_decay must be in the range 0 to 0.99, or be EXL2_OFF" },
        { { .adaptive_target = 0.5f, .mirostat_tau = 2 },
          "sampler: mirostat_tau and adaptive_target are both set; set one of them" },
        { { .dry_base = 0.5f }, "sampler: dry_base must be in the range 1 to 100, or be EXL2_OFF" },
        { { .allow_count = 1 }, "sampler: allow is NULL, but allow_count is 1" },
        { { .preset = (exl2_preset)9 }, "sampler: preset 9 does not exist" },
        { { .bias_count = 2 }, "sampler: bias is NULL, but bias_count is 2" },
        { { .bias = below, .bias_count = 2 }, "sampler: bias 1 is for token -1, but ids begin at 0" },
        { { .bias = no_number, .bias_count = 1 }, "sampler: bias 0, for token 3, is not a number" },
    };
    const exl2__config_defaults silent = { 0 };
    for (size_t i = 0; i < EXL2__COUNT(refused); i++) {
        exl2_sampler_desc out, zeroed = { 0 };
        memset(&out, 0x55, sizeof out);
        CHECK_INT(exl2__sampler_resolve(&context, &silent, &refused[i].d, &out), EXL2_ERR_ARG);
        CHECK_TEXT(context.error.text, refused[i].text);
        CHECK(same(&out, &zeroed));
    }
}

static void test_make(void)
{
    const exl2_bias ban[] = { { 3, exl2__bits_float(0xFF800000u) } };
    exl2__sampling s;
    exl2_sampler_desc given = { .preset = EXL2_PRESET_NEUTRAL, .bias = ban, .bias_count = 1 };
    exl2_sampler_desc d = resolve(NULL, given);
    exl2__sampler_make(&d, 99, &s);
    CHECK(!s.greedy && s.top_k == 0 && s.temperature == 1 && s.top_p == 1 && s.min_p == 0 && s.repeat_penalty == 1);
    CHECK(s.seed == 99 && s.bias == ban && s.bias_count == 1);
    d = resolve(NULL, (exl2_sampler_desc){ .preset = EXL2_PRESET_GREEDY });
    exl2__sampler_make(&d, 1, &s);
    CHECK(s.greedy);
    d = resolve(NULL, (exl2_sampler_desc){ .preset = EXL2_PRESET_BALANCED, .top_k = 40, .top_p = 0.9f });
    exl2__sampler_make(&d, 1, &s);
    CHECK(!s.greedy && s.top_k == 40 && s.temperature == 0.8f && s.top_p == 0.9f && s.min_p == 0.05f);
    CHECK(s.repeat_penalty == 1.1f);
    d = resolve(NULL, (exl2_sampler_desc){ .preset = EXL2_PRESET_BALANCED, .penalty_range = OFF });
    exl2__sampler_make(&d, 1, &s);
    CHECK(s.repeat_penalty == 1);
    d = resolve(NULL, (exl2_sampler_desc){ .temperature = 0.009f }); /* below 0.01 sampling is greedy */
    exl2__sampler_make(&d, 1, &s);
    CHECK(s.greedy);
    /* also if the temperature comes last */
    d = resolve(NULL, (exl2_sampler_desc){ .temperature = 0.009f, .temperature_last = true });
    exl2__sampler_make(&d, 1, &s);
    CHECK(s.greedy && !s.temperature_last);
    d = resolve(NULL, (exl2_sampler_desc){ .temperature = 0.01f });
    exl2__sampler_make(&d, 1, &s);
    CHECK(!s.greedy);
}

int main(void)
{
    test_presets();
    test_greedy();
    test_fields_over_presets();
    test_other_fields();
    test_model_defaults();
    test_refusals();
    test_make();
    return check_done();
}
