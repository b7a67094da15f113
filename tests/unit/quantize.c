/* quantize.c: the search for scales and the rounding, compared with errors that are computed in double, number by
   number, from decoded values. */
#define EXL2_CONVERT
#include "private/quantize.h"
#include "../check.h"

#include <math.h>
#include <stdbool.h>

enum { STRIPS = 4, LANES = EXL2__QUANTIZE_LANES, COLUMNS = STRIPS * LANES, ROWS_MAX = 128,
       TRIES = 16 /* as the import does */ };

static uint64_t state = 7;

static double uniform(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return ((double)(state >> 11) + 0.5) / 9007199254740992.0;
}

static double normal(void)
{
    return sqrt(-2 * log(uniform())) * cos(6.283185307179586 * uniform());
}

static float strips[STRIPS][ROWS_MAX * LANES];
static uint8_t codes[ROWS_MAX][COLUMNS], levels[COLUMNS];

/* The fp16 value that a decoder computes, by the decoder's own steps. */
static double decode(uint16_t scale_max, uint32_t level, uint32_t bits, uint32_t code)
{
    float unit = exl2__f16_to_f32(exl2__f32_to_f16(exl2__f16_to_f32(scale_max) / 256));
    float step = exl2__f16_to_f32(exl2__f32_to_f16((float)(level * level) * unit));
    return (double)exl2__f16_to_f32(exl2__f32_to_f16((float)((int)code - (1 << (bits - 1))) * step));
}

/* Least squared error of a column at any of the 16 levels; the codes are found by trying the neighbours of the
   quotient. */
static double best_error(uint32_t column, uint32_t rows, uint32_t bits, uint16_t scale_max)
{
    double best = 1e300;
    int top = (1 << bits) - 1, zero = 1 << (bits - 1);
    for (uint32_t level = 1; level <= 16; level++) {
        double step = decode(scale_max, level, bits, (uint32_t)zero + 1), sum = 0;
        for (uint32_t r = 0; r < rows; r++) {
            double x = (double)strips[column / LANES][r * LANES + column % LANES], least = 1e300;
            int near = (int)fmin(fmax(floor(x / step) + zero, -1), top);
            for (int code = near; code <= near + 1; code++) {
                int kept = code < 0 ? 0 : code > top ? top : code;
                double error = decode(scale_max, level, bits, (uint32_t)kept) - x;
                least = fmin(least, error * error);
            }
            sum += least;
        }
        best = fmin(best, sum);
    }
    return best;
}

/* All steps for one group: fills in levels and codes; returns q_scale_max. */
static uint16_t quantize(exl2_cpu_path path, uint32_t rows, uint32_t bits)
{
    float peaks[COLUMNS], peak = 0;
    uint16_t tries[TRIES];
    double errors[TRIES] = { 0 };
    for (uint32_t s = 0; s < STRIPS; s++) {
        exl2__quantize_peaks(strips[s], rows, peaks + s * LANES);
    }
    for (uint32_t n = 0; n < COLUMNS; n++) {
        peak = peak > peaks[n] ? peak : peaks[n];
    }
    exl2__quantize_tries(peak, bits, false, TRIES, tries);
    for (uint32_t s = 0; s < STRIPS; s++) {
        exl2__quantize_errors(path, strips[s], NULL, rows, peaks + s * LANES, bits, tries, TRIES, errors);
    }
    uint16_t scale_max = exl2__quantize_pick(tries, TRIES, errors);
    for (uint32_t s = 0; s < STRIPS; s++) {
        exl2__quantize_levels(path, strips[s], NULL, rows, peaks + s * LANES, bits, scale_max, levels + s * LANES);
        exl2__quantize_codes(strips[s], rows, levels + s * LANES, bits, scale_max, &codes[0][s * LANES], COLUMNS);
    }
    return scale_max;
}

/* The same by every instruction set, which must not change it; *relative: the error of the decoded values. */
static uint16_t run(uint32_t rows, uint32_t bits, double *relative)
{
    static uint8_t plain_levels[sizeof levels], plain_codes[sizeof codes];
    double sum = 0, power = 0;
    uint16_t plain = quantize(EXL2_CPU_C, rows, bits);
    memcpy(plain_levels, levels, sizeof levels);
    memcpy(plain_codes, codes, sizeof codes);
    uint16_t scale_max = quantize(exl2__cpu_path_best(), rows, bits);
    CHECK(scale_max == plain && memcmp(levels, plain_levels, sizeof levels) == 0
          && memcmp(codes, plain_codes, sizeof codes) == 0);
    for (uint32_t n = 0; n < COLUMNS; n++) {
        for (uint32_t r = 0; r < rows; r++) {
            double x = (double)strips[n / LANES][r * LANES + n % LANES],
                   got = decode(scale_max, levels[n], bits, codes[r][n]);
            CHECK(levels[n] >= 1 && levels[n] <= 16 && codes[r][n] < 1u << bits && isfinite(got));
            sum += (got - x) * (got - x);
            power += x * x;
        }
    }
    *relative = power > 0 ? sqrt(sum / power) : sqrt(sum);
    return scale_max;
}

/* kind 0: normal; 1: uneven columns with outliers; 2: columns of very different sizes, some empty, some of one sign. */
static void fill(uint32_t rows, int kind, double size)
{
    for (uint32_t n = 0; n < COLUMNS; n++) {
        double column = kind == 0 ? 1 : kind == 1 ? exp(0.5 * normal()) : n % 5 == 0 ? 0 : pow(10, -4 * uniform());
        for (uint32_t r = 0; r < rows; r++) {
            double x = normal() * (kind == 1 && uniform() < 0.02 ? 3 : 1);
            x = kind == 2 && n % 3 == 0 ? fabs(x) : x;
            strips[n / LANES][r * LANES + n % LANES] = (float)(x * column * size);
        }
    }
}

/* The bounds are a little above what was measured on normal numbers. */
static void test_errors(void)
{
    static const double bounds[9] = { 0, 0, 0.39, 0.20, 0.105, 0.054, 0.028, 0, 0.0071 };
    for (uint32_t bits = 2; bits <= 8; bits += bits == 6 ? 2 : 1) {
        for (uint32_t rows = 32; rows <= 128; rows *= 2) {
            for (int kind = 0; kind < 3; kind++) {
                double relative, found = 0, best = 0, power = 0;
                fill(rows, kind, 0.03);
                uint16_t scale_max = run(rows, bits, &relative);
                for (uint32_t n = 0; n < COLUMNS; n++) {
                    best += best_error(n, rows, bits, scale_max);
                    for (uint32_t r = 0; r < rows; r++) {
                        double x = (double)strips[n / LANES][r * LANES + n % LANES];
                        double error = decode(scale_max, levels[n], bits, codes[r][n]) - x;
                        found += error * error;
                        power += x * x;
                    }
                }
                bool good =
                    CHECK(found <=
                          best * 1.02); /* nearly the best levels: the search stops at the first unclipped one */
                good = CHECK(kind != 0 || relative <= bounds[bits]) && good;
                if (!good) {
                    printf("  %u bits, %u rows, kind %d: %.5f, %.4f of the best\n", bits, rows, kind, relative,
                           found / best);
                }
                CHECK(fabs(sqrt(found / power) - relative) < 1e-12);
            }
        }
    }
}

/* The simple method: the scale that does not clip the peak, and the nearest level for each column. The search must be
   better. */
static void test_against_plain(void)
{
    for (uint32_t bits = 2; bits <= 8; bits += bits == 6 ? 2 : 1) {
        double relative, sum = 0, power = 0;
        fill(64, 1, 0.5);
        double base[COLUMNS], widest = 0;
        for (uint32_t n = 0; n < COLUMNS; n++) {
            base[n] = 0;
            for (uint32_t r = 0; r < 64; r++) {
                base[n] = fmax(base[n], fabs((double)strips[n / LANES][r * LANES + n % LANES]) /
                                            (pow(2, bits - 1) - (bits < 4 ? 0.5 : 1)));
            }
            widest = fmax(widest, base[n]);
        }
        uint16_t scale_max = exl2__f32_to_f16((float)widest);
        for (uint32_t n = 0; n < COLUMNS; n++) {
            uint32_t level = (uint32_t)fmin(fmax(floor(16 * sqrt(base[n] / widest) + 0.5), 1), 16);
            double step = decode(scale_max, level, bits, (1u << (bits - 1)) + 1);
            for (uint32_t r = 0; r < 64; r++) {
                double x = (double)strips[n / LANES][r * LANES + n % LANES];
                double code = fmin(fmax(floor(x / step + 0.5) + pow(2, bits - 1), 0), pow(2, bits) - 1);
                double error = decode(scale_max, level, bits, (uint32_t)code) - x;
                sum += error * error;
                power += x * x;
            }
        }
        run(64, bits, &relative);
        if (!CHECK(relative < sqrt(sum / power) * 0.995)) {
            printf("  %u bits: %.5f, plain %.5f\n", bits, relative, sqrt(sum / power));
        }
    }
}

static void test_extremes(void)
{
    double relative;
    for (uint32_t bits = 2; bits <= 8; bits += bits == 6 ? 2 : 1) {
        memset(strips, 0, sizeof strips);
        uint16_t scale_max = run(32, bits, &relative);
        CHECK(relative == 0);
        CHECK(exl2__pack_scale(scale_max, 1) > 0); /* readers warn of a scale of 0 */
        fill(32, 0, 1e-7); /* near the smallest fp16: steps of 2^-24 */
        run(32, bits, &relative);
        CHECK(relative < 0.6);
        fill(32, 0, 1);
        for (uint32_t i = 0; i < STRIPS; i++) {
            strips[i][5] = i % 2 ? EXL2__QUANTIZE_MAX : -EXL2__QUANTIZE_MAX;
        }
        run(32, bits, &relative); /* checks that all decoded numbers are finite */
        CHECK(relative < 0.6);
    }
}

static void test_peaks(void)
{
    static const uint32_t odd[4] = { 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC12345 }; /* infinities, NaNs */
    float peaks[LANES];
    fill(32, 0, 1);
    strips[0][3 * LANES + 2] = -9.5f;
    strips[0][31 * LANES + 15] = 11.25f;
    strips[0][0] = exl2__bits_float(1); /* subnormal */
    exl2__quantize_peaks(strips[0], 32, peaks);
    CHECK(peaks[2] == 9.5f);
    CHECK(peaks[15] == 11.25f);
    for (size_t i = 0; i < 4; i++) {
        strips[0][7 * LANES + 4] = exl2__bits_float(odd[i]);
        exl2__quantize_peaks(strips[0], 32, peaks);
        CHECK_INT(exl2__float_bits(peaks[4]), 0x7F800000);
        CHECK(peaks[2] == 9.5f);
    }
}

int main(void)
{
    test_peaks();
    test_errors();
    test_against_plain();
    test_extremes();
    return check_done();
}
