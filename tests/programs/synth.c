/* synth.c: models of `exl2 synth` under `exl2 info` and `exl2 bench`.
   takes: synth PROGRAM FOLDER. PROGRAM: the program exl2; FOLDER: a folder to write to.
   gives: exit code 0 or 1.
   owns:  FOLDER. */
#define _POSIX_C_SOURCE 200809L
#include "program.h"

static void check_bench(const char *model)
{
    char *text;
    int code = program_run("bench '%s' --prefill 8,16 --decode 2 --context 0,8 --batch 1,2 --threads 1 --json", model);
    json_value *said = program_json(code, &text);
    const json_value *runs = json_member(said, "runs");
    CHECK(program_number(said, "prefill_tok_s") > 0 && program_number(said, "decode_tok_s") > 0);
    CHECK(program_number(said, "load_s") > 0 && program_number(said, "open_s") > 0);
    CHECK(program_number(said, "kernels_s") >= 0);
    double weights = program_number(said, "weight_bytes"), pass_bytes = program_number(said, "pass_bytes");
    double load_s = program_number(said, "load_s") - program_number(said, "kernels_s");
    CHECK(fabs(program_number(said, "load_gb_s") * load_s - weights * 1e-9) < 1e-6 * weights);
    bool on_gpu = strcmp(program_text(said, "backend"), "cuda") == 0;
    CHECK((program_number(said, "device_bytes") > 0) == on_gpu);
    CHECK((json_member(said, "device") != NULL) == on_gpu);
    CHECK(program_number(said, "device_bytes_peak") <= program_number(said, "device_bytes_planned"));
    CHECK(strstr(" c avx2 avx512 neon ", program_text(said, "cpu_path")) && program_text(said, "compiler"));
    const char *cpu = program_text(said, "cpu");
    FILE *cpus = cpu ? fopen("/proc/cpuinfo", "r") : NULL;
    if (cpus) { /* on x86-64 it has the same name; on ARM numbers */
        char line[256];
        bool found = strstr(cpu, " part 0x") != NULL;
        while (fgets(line, sizeof line, cpus)) {
            found = found || strstr(line, cpu);
        }
        CHECK(found && cpu[0] != ' ');
        fclose(cpus);
    }
    CHECK(runs && runs->child_count == 6);
    for (size_t i = 0; runs && i < runs->child_count; i++) {
        const json_value *run = item(runs, i);
        bool prefill = i < 2;
        double speed = program_number(run, prefill ? "prefill_tok_s" : "decode_tok_s");
        CHECK(speed > 0 && program_number(run, "cpu_us_per_token") > 0);
        if (!prefill) { /* a decode pass reads the weights once for the whole batch */
            double gb_s = pass_bytes * 1e-9 * speed / program_number(run, "batch");
            CHECK(fabs(program_number(run, "gb_s") - gb_s) < 1e-6 * gb_s);
            CHECK(program_number(run, "first_token_ms") > 0);
        }
        CHECK_INT(program_number(run, "tokens"), prefill ? 8 << i : 2);
        CHECK_INT(program_number(run, "threads"), 1);
        CHECK_INT(program_number(run, "batch"), prefill ? 1 : 1 + i % 2);
        CHECK_INT(program_number(run, "context"), i < 4 ? 0 : 8);
    }
    json_free(said);
    free(text);
}

/* --cache as a list: the same lengths with one format after the other. */
static void check_bench_caches(const char *model)
{
    static const char *const caches[] = { "q6", "fp16", "q4" };
    char *text;
    json_value *said = program_json(program_run("bench '%s' --prefill 8 --decode 2 --cache q6,fp16,q4 --backend cpu "
                                                "--threads 1 --json", model), &text);
    const json_value *runs = json_member(said, "runs");
    CHECK(!json_member(said, "cache")); /* null: each run has its own */
    CHECK(runs && runs->child_count == 6);
    for (size_t i = 0; runs && i < runs->child_count; i++) {
        const json_value *run = item(runs, i);
        CHECK_TEXT(program_text(run, "cache"), caches[i / 2]);
        CHECK(program_number(run, i % 2 == 0 ? "prefill_tok_s" : "decode_tok_s") > 0);
    }
    json_free(said);
    free(text);
}

/* A model of another family and format: its name, and what a token reads. */
static void check_family(const char *model, const char *shape, const char *family, double experts)
{
    char *text, command[2300];
    json_value *made = program_json(program_run("synth '%s' --shape %s --layers 1 --json", model, shape), &text);
    double read_bytes = program_number(made, "read_per_token");
    json_free(made);
    free(text);
    int code = program_run("bench '%s' --prefill 4 --decode 2 --batch 2 --threads 1 --json", model);
    json_value *said = program_json(code, &text);
    const json_value *runs = json_member(said, "runs");
    CHECK_TEXT(program_text(said, "family"), family);
    CHECK(fabs(program_number(said, "bytes_per_token") / read_bytes - 1) < 0.01);
    CHECK(runs && runs->child_count == 2);
    bool touched = runs && json_member(item(runs, 1), "experts_touched");
    CHECK(touched == (experts > 0) &&
          (!touched || fabs(program_number(item(runs, 1), "experts_touched") - experts) < 1e-6));
    CHECK(runs && (json_member(item(runs, 1), "gb_s") != NULL) == (experts == 0));
    json_free(said);
    free(text);
    snprintf(command, sizeof command, "rm -rf '%s'", model);
    CHECK_INT(system(command), 0);
}

/* A shape with a tower: every tensor of it is there, and none is left over. */
static void check_tower(const char *model, const char *shape, const char *family, double rows)
{
    char *text, command[2300];
    CHECK_INT(program_run("synth '%s' --shape %s --layers 1", model, shape), 0);
    json_value *said = program_json(program_run("info '%s' --json", model), &text);
    const json_value *tower = json_member(said, "tower");
    CHECK(tower && strcmp(program_text(tower, "family"), family) == 0);
    CHECK(tower && program_number(item(json_member(tower, "pictures"), 0), "rows") == rows);
    json_free(said);
    free(text);
    snprintf(command, sizeof command, "rm -rf '%s'", model);
    CHECK_INT(system(command), 0);
}

static void case_synth(void)
{
    char *text, model[1100], command[2300];
    snprintf(model, sizeof model, "%s/model", folder);
    snprintf(command, sizeof command, "rm -rf '%s'", model);
    CHECK_INT(system(command), 0);
    json_value *made = program_json(program_run("synth '%s' --shape smollm2-135m --bpw 2.5 --json", model), &text);
    double bpw = program_number(made, "bpw"), file_bytes = program_number(made, "file_bytes");
    double read_bytes = program_number(made, "read_per_token");
    CHECK(fabs(bpw - 2.5) < 0.3);
    json_free(made);
    free(text);
    program_sentence(program_run("synth '%s' --shape smollm2-135m", model), 1, "not an empty folder");
    json_value *info = program_json(program_run("info '%s' --json", model), &text);
    CHECK_INT(program_number(info, "layers"), 30);
    CHECK_INT(program_number(info, "hidden"), 576);
    CHECK_INT(program_number(info, "vocab"), 49152);
    CHECK_TEXT(program_text(info, "arch"), "LlamaForCausalLM");
    double weight_bytes = program_number(info, "weight_bytes");
    CHECK(weight_bytes > 0.9 * file_bytes && weight_bytes < 1.3 * file_bytes);
    CHECK(fabs(program_number(info, "pass_bytes") / read_bytes - 1) < 0.01);
    json_free(info);
    free(text);
    check_bench(model);
    check_bench_caches(model);
    json_value *said = program_json(program_run("generate '%s' --ids 5,6 --max 3 --seed 9 --json", model), &text);
    CHECK_INT(program_number(json_member(said, "stats"), "seed"), 9);
    CHECK(json_member(said, "ids") && json_member(said, "ids")->child_count > 0);
    json_free(said);
    free(text);
    CHECK_INT(system(command), 0);
    check_family(model, "starcoder2-3b --format gptq", "StarCoder 2", 0);
    check_family(model, "olmoe-1b-7b", "OLMoE", 15); /* 64 (1 - (56 / 64)^2) */
    check_tower(model, "smolvlm-256m", "SmolVLM", 1088); /* 16 tiles and the whole */
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        printf("usage: synth PROGRAM FOLDER\n");
        return 1;
    }
    program_set(argv[1], argv[2]);
    case_synth();
    return check_done();
}
