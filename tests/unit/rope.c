/* rope.c: the frequencies and magnitudes of every kind of RoPE, read from config.json, compared with published values
   and with the formulas in long double, for positions up to 2^20. */
#include "../memory_files.h"

#include "private/model_config_read.h"

#define BASE "{'architectures':['LlamaForCausalLM'],'vocab_size':320,'hidden_size':512,'intermediate_size':96," \
             "'num_hidden_layers':2,'num_attention_heads':4,'rms_norm_eps':1e-05,'head_dim':128"
#define POSITIONS (1u << 20)

typedef struct table {
    double frequency[64], magnitude;
    uint32_t half;
} table;

/* more: the rest of config.json; context: tokens that a sequence may have. */
static table read_table(const char *more, uint32_t context)
{
    static memory_files m;
    static exl2__config k;
    table t = { .half = 0 };
    char fields[3000];
    snprintf(fields, sizeof fields, BASE "%s}", more);
    memory_make(&m);
    memory_add_text(&m, "config.json", json_text(fields));
    if (!CHECK_INT(exl2__config_read(&m.c, "models/x", &k), EXL2_OK)) {
        printf("  %s: %s\n", more, m.c.error.text);
    } else {
        t.half = k.rotary / 2;
        exl2__rope_frequencies(&k.rope, k.rotary, context, t.frequency, &t.magnitude);
    }
    memory_free(&m);
    return t;
}

/* `wanted` has nine digits. */
static void check_near(double got, double wanted)
{
    if (!CHECK(fabs(got - wanted) <= 6e-9 * fabs(wanted))) {
        printf("  %.12g, wanted %.12g\n", got, wanted);
    }
}

/* frequency[i] = theta^(-2i / 128) / divisor: an error of the angle at position 2^20 of at most 2e-9 radians. */
static void check_formula(const table *t, long double theta, long double divisor)
{
    for (uint32_t i = 0; i < t->half; i++) {
        long double wanted = powl(theta, -2.0L * i / (2 * t->half)) / divisor;
        CHECK(fabsl((long double)t->frequency[i] - wanted) * POSITIONS <= 2e-9L);
    }
}

static void check_plain(void)
{
    table t = read_table("", 1000);
    CHECK(t.half == 64 && t.magnitude == 1);
    check_formula(&t, 10000, 1);
    t = read_table(",'rope_theta':1e6,'rope_scaling':{'rope_type':'linear','factor':8}", 1000);
    check_formula(&t, 1e6L, 8);
    CHECK(t.magnitude == 1);
    t = read_table(",'partial_rotary_factor':0.25", 1000);
    CHECK(t.half == 16);
    check_formula(&t, 10000, 1);
    t = read_table(",'rope_parameters':{'rope_theta':77,'partial_rotary_factor':0.5}", 1000);
    CHECK(t.half == 32);
    check_formula(&t, 77, 1);
    t = read_table(",'rope_scaling':{'type':'default','rope_type':'default','mrope_section':[16,24,24]}", 1000);
    check_formula(&t, 10000, 1);
}

/* A larger theta: theta * alpha^(128 / 126); dynamic: alpha is factor * context / trained - (factor - 1) above the
   trained context. */
static void check_ntk(void)
{
    const char *dynamic = ",'max_position_embeddings':4096,'rope_scaling':{'type':'dynamic','factor':2}";
    table t = read_table(",'rope_scaling':{'type':'dynamic','alpha':1000.0}", 1);
    check_formula(&t, 10000 * powl(1000, 128 / 126.0L), 1);
    t = read_table(dynamic, 4096);
    check_formula(&t, 10000, 1);
    t = read_table(dynamic, 16384);
    check_formula(&t, 10000 * powl(7, 128 / 126.0L), 1);
    CHECK(t.magnitude == 1);
}

static void check_llama3(void)
{
    table t = read_table(",'rope_theta':500000.0,'rope_scaling':{'rope_type':'llama3','factor':8.0,"
                         "'low_freq_factor':1.0,'high_freq_factor':4.0,'original_max_position_embeddings':8192}", 8192);
    table plain = read_table(",'rope_theta':500000.0", 8192);
    check_near(t.frequency[28], 0.00321144599);
    check_near(t.frequency[29], 0.00216657076);
    check_near(t.frequency[32], 0.000524846161);
    check_near(t.frequency[34], 0.000178507813);
    check_near(t.frequency[35], 9.55621235e-05);
    check_near(t.frequency[63], 3.06892599e-07);
    for (uint32_t i = 0; i < 64; i++) {
        CHECK((t.frequency[i] == plain.frequency[i]) == (i <= 28));
        CHECK((t.frequency[i] == plain.frequency[i] / 8) == (i >= 35));
    }
}

static void check_yarn(void)
{
#define YARN ",'rope_theta':1e6,'max_position_embeddings':131072,'rope_scaling':{'type':'yarn'," \
             "'original_max_position_embeddings':32768"
    table t = read_table(YARN ",'factor':4}", 131072), whole;
    check_near(t.frequency[16], 0.0316227766);
    check_near(t.frequency[24], 0.00537532149);
    check_near(t.frequency[32], 0.000602941176);
    check_near(t.frequency[40], 4.44569853e-05);
    check_near(t.frequency[63], 3.1023444e-07);
    check_near(t.magnitude, 1.138629436);
    static const uint32_t contexts[] = { 1, 2048, 32767, 32768, 32769, 1u << 20 };
    for (size_t i = 0; i < EXL2__COUNT(contexts); i++) { /* the model was trained with it: every context has it */
        whole = read_table(YARN ",'factor':4}", contexts[i]);
        CHECK(memcmp(whole.frequency, t.frequency, sizeof t.frequency) == 0 && whole.magnitude == t.magnitude);
        whole = read_table(YARN "}", contexts[i]); /* the factor is 131072 / 32768 */
        CHECK(memcmp(whole.frequency, t.frequency, sizeof t.frequency) == 0 && whole.magnitude == t.magnitude);
    }
    /* Not rounded: the ramp is from 128 ln(32768 / (2 pi 32)) / (2 ln 1e6) = 23.596 to 39.651. At 32: 0.001 * (1 - r)
       + 0.00025 * r with r = 0.523456. */
    t = read_table(YARN ",'factor':4,'truncate':false}", 131072);
    CHECK(fabs(t.frequency[32] - (0.001 - 0.00075 * (32 - 23.5959476) / (39.6508807 - 23.5959476))) < 1e-9);
    t = read_table(YARN ",'factor':4,'attention_factor':1.5}", 131072);
    CHECK(t.magnitude == 1.5);
    t = read_table(YARN ",'factor':4,'mscale':1,'mscale_all_dim':1}", 131072);
    CHECK(t.magnitude == 1);
    t = read_table(YARN ",'factor':40,'mscale':0.707,'mscale_all_dim':1}", 131072);
    check_near(t.magnitude, (0.1 * 0.707 * 3.68887945411 + 1) / (0.1 * 3.68887945411 + 1));
    t = read_table(YARN ",'factor':4,'beta_fast':16,'beta_slow':2}", 131072);
    /* from floor(26.8076) to ceil(36.4398) */
    CHECK(fabs(t.frequency[32] - (0.001 - 0.00075 * (32 - 26) / (37 - 26))) < 1e-9);
#undef YARN
}

/* Two divisors in turn for the 64 frequencies. */
static void check_longrope(void)
{
    char more[2000] = ",'max_position_embeddings':131072,'original_max_position_embeddings':4096,'rope_scaling':{"
                      "'type':'su','short_factor':[", *at;
    for (int list = 0; list < 2; list++) {
        for (int i = 0; i < 64; i++) {
            at = more + strlen(more);
            snprintf(at, (size_t)(more + sizeof more - at), "%s%s", i ? "," : "", list ? i % 2 ? "8" : "4"
                                                                                       : i % 2 ? "2" : "1");
        }
        strcat(more, list ? "]}" : "],'long_factor':[");
    }
    table shorter = read_table(more, 4096), longer = read_table(more, 4097), plain = read_table("", 1);
    for (uint32_t i = 0; i < 64; i++) {
        CHECK(shorter.frequency[i] == plain.frequency[i] / (i % 2 ? 2 : 1));
        CHECK(longer.frequency[i] == plain.frequency[i] / (i % 2 ? 8 : 4));
    }
    check_near(shorter.magnitude, 1.19023807); /* of 131072 / 4096, also where the short divisors are used */
    CHECK(fabs(longer.magnitude - 1.190238) < 1e-6);
    static const struct { const char *factor; double magnitude; } factors[] = { /* sqrt(1 + ln factor / ln 4096) */
        { "8", 1.118033989 }, { "64.0", 1.224744871 }, { "1", 1 }, { "0.5", 1 },
    };
    for (size_t i = 0; i < EXL2__COUNT(factors); i++) {
        char given[2100];
        snprintf(given, sizeof given, "%.*s,'factor':%s}", (int)strlen(more) - 1, more, factors[i].factor);
        check_near(read_table(given, 4096).magnitude, factors[i].magnitude);
        check_near(read_table(given, 8192).magnitude, factors[i].magnitude);
    }
    const char *kind = strstr(more, "'type':'su'");
    char early[2100]; /* early files of Phi-3 call it yarn */
    snprintf(early, sizeof early, "%.*s'type':'yarn'%s", (int)(kind - more), more, kind + strlen("'type':'su'"));
    table named = read_table(early, 4097);
    CHECK(memcmp(named.frequency, longer.frequency, sizeof longer.frequency) == 0);
}

int main(void)
{
    check_plain();
    check_ntk();
    check_llama3();
    check_yarn();
    check_longrope();
    return check_done();
}
