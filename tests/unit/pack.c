/* pack.c: packing compared with hand-computed vectors of the format, and with an independent decoder for random
   layouts. */
#define EXL2_CONVERT
#include "private/pack.h"
#include "../check.h"
#include "../matrix_decode.h"

static uint32_t state = 1;

static uint32_t draw(uint32_t below)
{
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % below;
}

/* perm: input feature of each packed row; inverse: packed row of each input feature, as in q_invperm. */
static void invert(const uint32_t *perm, uint32_t count, uint32_t *inverse)
{
    for (uint32_t i = 0; i < count; i++) {
        inverse[perm[i]] = i;
    }
}

/* ---- packing of codes ---- */

static void test_vectors(void)
{
    static const struct {
        uint32_t bits, words[8];
    } rows[] = {
        { 2, { 0x1b1b1b1b, 0x1b1b1b1b } },
        { 3, { 0x53977053, 0x70539770, 0x97705397 } },
        { 4, { 0x4d6f81a3, 0xc5e7092b, 0x4d6f81a3, 0xc5e7092b } },
        { 5, { 0x4dfc4543, 0x78245ba3, 0x0753617d, 0x4b276cf4, 0xe55c7066 } },
        { 6, { 0x9f611283, 0x90bbd2d9, 0xb2579740, 0x8f201eb3, 0x9cab91d5, 0x71538703 } },
        { 8, { 0x18110a03, 0x342d261f, 0x5049423b, 0x6c655e57, 0x88817a73, 0xa49d968f, 0xc0b9b2ab, 0xdcd5cec7 } },
    };
    for (size_t i = 0; i < EXL2__COUNT(rows); i++) {
        uint8_t codes[32][3];
        uint32_t words[8][4];
        memset(words, 0xEE, sizeof words);
        for (uint32_t r = 0; r < 32; r++) {
            codes[r][0] = codes[r][1] = (uint8_t)((7 * r + 3) % (1u << rows[i].bits));
            codes[r][2] = 0xFF; /* beyond the last column */
        }
        exl2__pack_codes(&codes[0][0], 32, 2, 3, rows[i].bits, &words[0][0], 4);
        for (uint32_t w = 0; w < rows[i].bits; w++) {
            CHECK_INT(words[w][0], rows[i].words[w]);
            CHECK_INT(words[w][1], rows[i].words[w]);
            CHECK_INT(words[w][2], 0xEEEEEEEE);
        }
    }
}

/* ---- the worked example ---- */

static void test_worked_example(void)
{
    static const uint32_t wanted_words[10] = { 0x4d6f81a3, 0xc5e7092b, 0x4d6f81a3, 0xc5e7092b, 0x53977053,
                                               0x70539770, 0x97705397, 0x53977053, 0x70539770, 0x97705397 };
    static const uint16_t wanted_rows[6] = { 0xad00, 0xa500, 0x2900, 0x2e40, 0xb100, 0x8ee8 }; /* W[0..5, 0] */
    static const exl2__pack_band bands[2] = { { 4, 32, 32 }, { 3, 64, 64 } };
    static const uint16_t scale_max[2] = { 0x2a66, 0x2225 };
    exl2__ctx c = { 0 };
    exl2__group groups[2];
    uint32_t group_count = 0, word_count = 0, perm[96], inverse[96];
    uint8_t codes[96][32], levels[2][32];
    uint32_t words[10][32], scales[2][4];
    uint16_t units[2], decoded[96][32];
    CHECK_INT(exl2__pack_layout(&c, "x", 96, bands, 2, NULL, &group_count, &word_count), EXL2_OK);
    CHECK_INT(group_count, 2);
    CHECK_INT(word_count, 10);
    CHECK_INT(exl2__pack_layout(&c, "x", 96, bands, 2, groups, &group_count, &word_count), EXL2_OK);
    CHECK(groups[0].row == 0 && groups[0].rows == 32 && groups[0].word == 0 && groups[0].bits == 4);
    CHECK(groups[1].row == 32 && groups[1].rows == 64 && groups[1].word == 4 && groups[1].bits == 3);
    for (uint32_t j = 0; j < 96; j++) {
        perm[(5 * j + 7) % 96] = j;
    }
    CHECK(perm[0] == 37 && perm[1] == 18 && perm[2] == 95 && perm[5] == 38);
    invert(perm, 96, inverse);
    CHECK(inverse[0] == 7 && inverse[1] == 12 && inverse[37] == 0);
    for (uint32_t r = 0; r < 96; r++) {
        for (uint32_t n = 0; n < 32; n++) {
            uint32_t local = r < 32 ? r : r - 32;
            codes[r][n] = (uint8_t)((7 * local + 3) % (r < 32 ? 16 : 8));
        }
    }
    for (uint32_t n = 0; n < 32; n++) {
        levels[0][n] = 10;
        levels[1][n] = (uint8_t)(n == 0 ? 3 : n % 16 + 1);
    }
    for (uint32_t g = 0; g < 2; g++) {
        exl2__pack_codes(codes[groups[g].row], groups[g].rows, 32, 32, groups[g].bits, words[groups[g].word], 32);
        exl2__pack_levels(levels[g], 32, scales[g]);
        units[g] = exl2__f32_to_f16(exl2__f16_to_f32(scale_max[g]) / 256);
    }
    for (uint32_t w = 0; w < 10; w++) {
        CHECK_INT(words[w][0], wanted_words[w]);
    }
    CHECK_INT(scales[0][0], 0x99999999);
    CHECK_INT(scales[1][0] & 15, 2);
    CHECK_INT(scales[1][1], 0xFEDCBA98);
    CHECK_INT(exl2__float_bits(exl2__pack_scale(scale_max[0], 10)), exl2__float_bits(0.01953125f));
    CHECK_INT(exl2__f32_to_f16(exl2__pack_scale(scale_max[1], 3)), 0x0ee8);
    exl2__matrix_desc desc = { 0 };
    desc.in = 96;
    desc.out_stored = 32;
    desc.groups = groups;
    desc.group_count = 2;
    desc.scale_codes = &scales[0][0];
    desc.scale_max = units;
    desc.inverse_perm = inverse;
    matrix_decode(&desc, &words[0][0], &decoded[0][0]);
    for (uint32_t j = 0; j < 6; j++) {
        CHECK_INT(decoded[j][0], wanted_rows[j]);
    }
    CHECK_INT(decoded[37][0], 0xae40);
    CHECK_INT(decoded[95][0], 0xb060);
    CHECK_INT(decoded[82][0], 0x92e8);
    CHECK_INT(decoded[56][0] & 0x7FFF, 0);
    double sum = 0, weighted = 0;
    for (uint32_t j = 0; j < 96; j++) {
        sum += (double)exl2__f16_to_f32(decoded[j][0]);
        weighted += j * (double)exl2__f16_to_f32(decoded[j][0]);
    }
    CHECK(sum == -0.32598876953125);
    CHECK(weighted == -14.7908935546875);
}

/* ---- random layouts ---- */

static void test_random(void)
{
    static const uint32_t widths[6] = { 8, 6, 5, 4, 3, 2 };
    static const uint32_t sizes[3] = { 32, 64, 128 };
    enum { COLUMNS = 64 };
    exl2__ctx c = { 0 };
    for (uint32_t round = 0; round < 40; round++) {
        exl2__pack_band bands[6];
        uint32_t count = 0, in = 0, group_count, word_count;
        for (uint32_t i = 0; i < 6; i++) {
            if (draw(2)) {
                bands[count].bits = widths[i];
                bands[count].size = sizes[draw(3)];
                bands[count].rows = bands[count].size * (1 + draw(3));
                in += bands[count++].rows;
            }
        }
        if (count == 0) {
            continue;
        }
        in -= bands[count - 1].rows;
        bands[count - 1].rows = 32 * (1 + draw(8)); /* the last group may be short */
        in += bands[count - 1].rows;
        CHECK_INT(exl2__pack_layout(&c, "x", in, bands, count, NULL, &group_count, &word_count), EXL2_OK);
        exl2__group *groups = (exl2__group *)malloc(group_count * sizeof *groups);
        CHECK_INT(exl2__pack_layout(&c, "x", in, bands, count, groups, &group_count, &word_count), EXL2_OK);
        uint32_t *perm = (uint32_t *)malloc(in * 4), *inverse = (uint32_t *)malloc(in * 4);
        uint8_t *codes = (uint8_t *)malloc((size_t)in * COLUMNS),
                *levels = (uint8_t *)malloc((size_t)group_count * COLUMNS);
        uint32_t *words = (uint32_t *)malloc((size_t)word_count * COLUMNS * 4),
                 *scales = (uint32_t *)malloc((size_t)group_count * COLUMNS / 2);
        uint16_t *units = (uint16_t *)malloc(group_count * 2), *decoded = (uint16_t *)malloc((size_t)in * COLUMNS * 2);
        for (uint32_t i = 0; i < in; i++) {
            uint32_t other = draw(i + 1);
            perm[i] = perm[other];
            perm[other] = i;
        }
        invert(perm, in, inverse);
        uint32_t row = 0, word = 0, differ = 0;
        for (uint32_t g = 0; g < group_count; g++) {
            CHECK(groups[g].row == row && groups[g].word == word);
            row += groups[g].rows;
            word += groups[g].rows * groups[g].bits / 32;
            for (uint32_t i = 0; i < groups[g].rows * COLUMNS; i++) {
                codes[groups[g].row * COLUMNS + i] = (uint8_t)draw(1u << groups[g].bits);
            }
            for (uint32_t n = 0; n < COLUMNS; n++) {
                levels[g * COLUMNS + n] = (uint8_t)(1 + draw(16));
            }
            units[g] = (uint16_t)(1 + draw(0x2000));
            /* in two halves, as tasks do */
            for (uint32_t n = 0; n < COLUMNS; n += COLUMNS / 2) {
                exl2__pack_codes(codes + groups[g].row * COLUMNS + n, groups[g].rows, COLUMNS / 2, COLUMNS,
                                 groups[g].bits, words + groups[g].word * COLUMNS + n, COLUMNS);
                exl2__pack_levels(levels + g * COLUMNS + n, COLUMNS / 2, scales + (g * COLUMNS + n) / 8);
            }
        }
        CHECK_INT(row, in);
        CHECK_INT(word, word_count);
        exl2__matrix_desc desc = { 0 };
        desc.in = in;
        desc.out_stored = COLUMNS;
        desc.groups = groups;
        desc.group_count = group_count;
        desc.scale_codes = scales;
        desc.scale_max = units;
        desc.inverse_perm = inverse;
        matrix_decode(&desc, words, decoded);
        for (uint32_t g = 0; g < group_count; g++) {
            for (uint32_t r = groups[g].row; r < groups[g].row + groups[g].rows; r++) {
                for (uint32_t n = 0; n < COLUMNS; n++) {
                    int code = codes[r * COLUMNS + n] - (1 << (groups[g].bits - 1));
                    int level = levels[g * COLUMNS + n];
                    float step =
                        exl2__f16_to_f32(exl2__f32_to_f16((float)(level * level) * exl2__f16_to_f32(units[g])));
                    differ += decoded[perm[r] * COLUMNS + n] != exl2__f32_to_f16((float)code * step);
                }
            }
        }
        CHECK_INT(differ, 0);
        free(groups);
        free(perm);
        free(inverse);
        free(codes);
        free(levels);
        free(words);
        free(scales);
        free(units);
        free(decoded);
    }
}

static void test_layout_refusals(void)
{
    static const struct {
        uint32_t in, count;
        exl2__pack_band bands[2];
        const char *text;
    } rows[] = {
        { 64, 1, { { 7, 64, 32 } }, "7 bits follow" },
        { 64, 1, { { 1, 64, 32 } }, "1 bits follow" },
        { 64, 2, { { 4, 32, 32 }, { 5, 32, 32 } }, "5 bits follow 4" },
        { 64, 1, { { 4, 64, 48 } }, "groups of 48" },
        { 64, 1, { { 4, 64, 0 } }, "groups of 0" },
        { 50, 1, { { 4, 50, 32 } }, "50 rows" },
        { 128, 2, { { 5, 96, 64 }, { 4, 32, 32 } }, "96 rows in groups of 64" },
        { 64, 1, { { 4, 96, 32 } }, "96 rows" },
        { 96, 1, { { 4, 64, 32 } }, "cover 64 of 96" },
        { 0, 0, { { 0, 0, 0 } }, "cover 0 of 0" },
        { 65536, 1, { { 4, 65536, 128 } }, "65536" },
    };
    for (size_t i = 0; i < EXL2__COUNT(rows); i++) {
        exl2__ctx c = { 0 };
        uint32_t groups, words;
        CHECK_INT(exl2__pack_layout(&c, "model.layer", rows[i].in, rows[i].bands, rows[i].count, NULL, &groups, &words),
                  EXL2_ERR_ARG);
        if (!CHECK(strstr(c.error.text, rows[i].text) && strstr(c.error.text, "model.layer"))) {
            printf("  \"%s\" should hold \"%s\"\n", c.error.text, rows[i].text);
        }
    }
}

int main(void)
{
    test_vectors();
    test_worked_example();
    test_random();
    test_layout_refusals();
    return check_done();
}
