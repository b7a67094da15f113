/* predict.c: what tests/device/predict.c makes of ncu's table: a table with several hundred columns, quoted numbers
   with separators, and a model of two layers in place of four.
   takes: nothing.
   gives: exit code.
   owns:  a temporary file.

   Expected times are the data sheet's rates by hand: an RTX 3060 moves 360,000 bytes in a microsecond, and its 28 SMs
   have 49,756 clocks in a microsecond, each of which issues 4 instructions. */
#define main predict_main
#include "../device/predict.c"
#undef main

#define COLUMNS 600u /* of attributes of the GPU, before and after those that matter */

static void fill(FILE *file, const char *what, uint32_t first)
{
    for (uint32_t i = 0; i < COLUMNS / 2; i++) {
        fprintf(file, ",\"%s%u\"", what, *what ? first + i : 0);
    }
}

static void line(FILE *file, uint32_t id, const char *kernel, const char *values)
{
    fprintf(file, "\"%u\",\"%s\"", id, kernel);
    fill(file, "1,024 of ", 0);
    fprintf(file, ",%s", values);
    fill(file, "", 0);
    fprintf(file, "\n");
}

static FILE *table_of_ncu(void)
{
    FILE *file = tmpfile();
    const char *product = "\"360,000,000\",\"0\",\"199,024,000\",\"49,756,000\",\"6,219,500\",\"1,000,000\",\"132\","
                          "\"1,980,000\"";
    const char *small = "\"0\",\"36,000,000\",\"0\",\"0\",\"0\",\"5,000\",\"132\",\"1,980,000\"";
    fprintf(file, "==PROF== Connected\n\"ID\",\"Kernel Name\"");
    fill(file, "device__attribute_", 0);
    fprintf(file, ",\"dram__bytes_read.sum\",\"dram__bytes_write.sum\",\"smsp__inst_executed.sum\","
                  "\"l1tex__data_pipe_lsu_wavefronts_mem_shared.sum\",\"smsp__inst_executed_pipe_tensor_op_hmma.sum\","
                  "\"gpu__time_duration.sum\",\"device__attribute_multiprocessor_count\","
                  "\"device__attribute_clock_rate\"");
    fill(file, "launch__", 0);
    fprintf(file, "\n");
    line(file, 0, "", "\"byte\",\"byte\",\"inst\",\"\",\"inst\",\"ns\",\"\",\"\""); /* the row of units */
    line(file, 0, "exl2k_embed", small);
    for (uint32_t layer = 0; layer < 2; layer++) {
        line(file, 1, "exl2k_gemv8", product);
        line(file, 2, "exl2k_attend_decode128", small);
        line(file, 3, "exl2k_gemv8", product);
        line(file, 4, "exl2k_gemv8", small);
        line(file, 5, "exl2k_gemv8", product);
    }
    line(file, 6, "exl2k_gemv8", product);
    line(file, 7, "exl2k_sample_token", small);
    line(file, 8, "exl2k_embed", small);
    line(file, 9, "exl2k_attend_prefill128", small);
    rewind(file);
    return file;
}

static void test_pass(void)
{
    uint32_t first = 0;
    double ms[RATES];
    FILE *file = table_of_ncu();
    CHECK(read_launches(file));
    CHECK_INT(launch_count, 15);
    CHECK(here_sms > 131.5 && here_sms < 132.5 && here_ghz > 1.9799 && here_ghz < 1.9801);
    counts c = sum_pass(&first, 4);
    CHECK_INT(first, 13);
    CHECK_INT(c.layers, 2);
    CHECK_INT(c.products, 9);
    times_of(&targets[0], c.sum[QKV], ms); /* four layers of 360 MB */
    CHECK(fabs(ms[BY_MEMORY] - 4) < 1e-6);
    CHECK(fabs(ms[BY_ISSUE] - 4) < 1e-3); /* 796 million instructions */
    CHECK(fabs(ms[BY_SHARED] - 4) < 1e-3);
    CHECK(fabs(ms[BY_TENSOR] - 4) < 1e-3); /* 24.9 million products of 2,048, at 256 a clock */
    times_of(&targets[0], c.sum[GATE_UP], ms);
    CHECK(fabs(ms[BY_MEMORY] - 0.4) < 1e-6 && ms[BY_ISSUE] < 1e-9);
    times_of(&targets[0], c.sum[HEAD], ms); /* once, whatever the number of layers is */
    CHECK(fabs(ms[BY_MEMORY] - 1) < 1e-6);
    CHECK(fabs(c.sum[DOWN][TIME] - 4e6) < 1);
    c = sum_pass(&first, 4);
    CHECK_INT(first, launch_count);
    fclose(file);
}

/* Without a metric there is no prediction. */
static void test_missing(void)
{
    FILE *file = tmpfile();
    fprintf(file, "\"ID\",\"Kernel Name\",\"dram__bytes_read.sum\"\n\"0\",\"exl2k_embed\",\"1\"\n");
    rewind(file);
    CHECK(!read_launches(file));
    fclose(file);
}

int main(void)
{
    test_pass();
    test_missing();
    return check_done();
}
