/* cli.c: the program exl2 from outside: the numbers of generate and score on tiny models, the lines of tokenize and
   render, what it reports about GPUs, and its messages and exit codes.
   takes: cli CASE PROGRAM FOLDER. CASE: "numbers", "lines", "devices" or "sentences"; PROGRAM: the program; FOLDER: a
   folder to write to.
   gives: exit code 0 or 1.
   owns:  FOLDER. */
#define _POSIX_C_SOURCE 200809L
#include "cli_lines.h"

#define LOGIT_BOUND 0.15 /* FP16 K and V, factored scales: the bounds of the engine as shipped */
#define LOGSUMEXP_BOUND 0.1
#define NLL_BOUND 0.03

#define MODELS EXL2_GOLDEN_DIR "/models/"

/* ---- numbers ---- */

/* Writes ids as [1,2,3], as in the golden. */
static void write_ids(const char *name, const json_value *ids)
{
    char *text = memory_copy_text(ids->raw, ids->raw_bytes);
    program_write(name, text);
    free(text);
}

static void check_greedy(const char *model, const json_value *ids, const json_value *wanted)
{
    char *text, *list = memory_copy_text(ids->raw + 1, ids->raw_bytes - 2), plain[256] = "";
    CHECK(strchr(list, ' ') == NULL);
    int code = program_run("generate " MODELS "%s --ids %s --greedy --max %zu --threads 2 --json", model, list,
                           wanted->child_count);
    json_value *said = program_json(code, &text);
    CHECK(same_numbers(json_member(said, "prompt_ids"), ids));
    CHECK(same_numbers(json_member(said, "ids"), wanted));
    CHECK_TEXT(program_text(said, "stop"), "length");
    CHECK_TEXT(program_text(said, "text"), "");
    const json_value *stats = json_member(said, "stats");
    CHECK_INT(program_number(stats, "prompt_tokens"), ids->child_count);
    CHECK_INT(program_number(stats, "new_tokens"), wanted->child_count);
    json_free(said);
    free(text);
    /* Without a tokenizer the plain output is ids, too. */
    CHECK_INT(program_run("generate " MODELS "%s --ids %s --temperature 0 --max 2 --threads 1", model, list), 0);
    snprintf(plain, sizeof plain, "%.0f,%.0f\n", wanted->child->number, wanted->child->next->number);
    text = program_read("out");
    CHECK_TEXT(text, plain);
    free(text);
    free(list);
}

/* Compares the golden ids and logits of a position with the program's, which lists more of them. */
static double worst_logit(const json_value *ids, const json_value *logits, const json_value *wanted_ids,
                          const json_value *wanted_logits)
{
    double worst = 0;
    const json_value *wanted = wanted_logits->child;
    for (const json_value *id = wanted_ids->child; id; id = id->next, wanted = wanted->next) {
        const json_value *got = ids->child, *logit = logits->child;
        while (got && (int)got->number != (int)id->number) {
            got = got->next;
            logit = logit->next;
        }
        worst = fmax(worst, got ? fabs(logit->number - wanted->number) : INFINITY);
    }
    return worst;
}

static double score_nll(const char *model, const char *ids, size_t skip)
{
    char *text;
    int code = program_run("score " MODELS "%s --ids-file '%s/%s' --skip %zu --json", model, folder, ids, skip);
    json_value *said = program_json(code, &text);
    CHECK(json_member(said, "top_ids") == NULL);
    double nll = program_number(said, "nll");
    CHECK(fabs(log(program_number(said, "perplexity")) - nll) < 1e-6);
    json_free(said);
    free(text);
    return nll;
}

static void check_score(const char *model, const json_value *golden, size_t sequence)
{
    char *text;
    const json_value *ids = item(json_member(golden, "tokens"), sequence);
    const json_value *wanted_ids = item(json_member(golden, "top_ids"), sequence);
    const json_value *wanted_logits = item(json_member(golden, "top_logits"), sequence);
    const json_value *wanted_sums = item(json_member(golden, "logsumexp"), sequence);
    write_ids("ids.json", ids);
    int code = program_run("score " MODELS "%s --ids-file '%s/ids.json' --top 64 --json", model, folder);
    json_value *said = program_json(code, &text);
    const json_value *top_ids = json_member(said, "top_ids"), *top_logits = json_member(said, "top_logits");
    const json_value *sums = json_member(said, "logsumexp");
    CHECK(same_numbers(json_member(said, "ids"), ids));
    CHECK_INT(program_number(said, "tokens"), ids->child_count);
    size_t positions = ids->child_count - 1;
    if (CHECK(top_ids && top_logits && sums && top_ids->child_count == positions && sums->child_count == positions)) {
        double worst = 0, worst_sum = 0;
        for (size_t p = 0; p < positions; p++) {
            worst = fmax(worst, worst_logit(item(top_ids, p), item(top_logits, p), item(wanted_ids, p),
                                            item(wanted_logits, p)));
            worst_sum = fmax(worst_sum, fabs(item(sums, p)->number - item(wanted_sums, p)->number));
        }
        printf("%s %zu: logits off by %.4f, logsumexp by %.4f\n", model, sequence, worst, worst_sum);
        CHECK(worst <= LOGIT_BOUND);
        CHECK(worst_sum <= LOGSUMEXP_BOUND);
    }
    double nll = item(json_member(golden, "nll"), sequence)->number;
    CHECK(fabs(program_number(said, "nll") - nll) <= NLL_BOUND);
    json_free(said);
    free(text);
}

/* The sum over all tokens is the sum over a prefix plus the sum that --skip leaves. */
static void check_skipping(const char *model, const json_value *ids)
{
    const size_t prefix = 8;
    const json_value *last = item(ids, prefix - 1);
    char *text = memory_copy_text(ids->raw, (size_t)(last->raw + last->raw_bytes - ids->raw) + 1);
    text[strlen(text) - 1] = ']';
    program_write("prefix.json", text);
    write_ids("ids.json", ids);
    free(text);
    double all = score_nll(model, "ids.json", 0) * (double)(ids->child_count - 1);
    CHECK(fabs(score_nll(model, "ids.json' --memory '64", 0) * (double)(ids->child_count - 1) - all) < 0.01);
    double front = score_nll(model, "prefix.json", 0) * (double)(prefix - 1);
    double rest = score_nll(model, "ids.json", prefix - 1) * (double)(ids->child_count - prefix);
    CHECK(fabs(all - front - rest) < 1e-4 * all);
}

/* The token of rank `rank` at a position (0: the most likely). */
static int ranked(const json_value *logits, size_t rank)
{
    size_t count = logits->child_count;
    for (size_t id = 0; id < count; id++) {
        size_t above = 0;
        for (size_t other = 0; other < count; other++) {
            above += item(logits, other)->number > item(logits, id)->number;
        }
        if (above == rank) {
            return (int)id;
        }
    }
    return -1;
}

/* The ids that generate gives with `flags` after these tokens, as JSON text. */
static char *ids_with(const char *model, const char *ids, const char *flags)
{
    char *text;
    json_value *said = program_json(program_run("generate " MODELS "%s --ids %s --max 40 --json %s", model, ids, flags),
                                    &text);
    const json_value *list = json_member(said, "ids");
    char *copy = CHECK(list) ? memory_copy_text(list->raw, list->raw_bytes) : memory_copy_text("", 0);
    json_free(said);
    free(text);
    return copy;
}

static void check_same_ids(const char *model, const char *ids, const char *a, const char *b, bool same)
{
    char *x = ids_with(model, ids, a), *y = ids_with(model, ids, b);
    if (!CHECK((strcmp(x, y) == 0) == same)) {
        printf("%s: %s; %s: %s\n", a, x, b, y);
    }
    free(x);
    free(y);
}

/* Log-probabilities of the first token against the golden's logits. A bias, a stop token and presets have their
   effect. */
static void check_flags(const char *model, const json_value *golden)
{
    const json_value *ids = item(json_member(golden, "tokens"), 0), *greedy = item(json_member(golden, "greedy"), 0);
    const json_value *logits = item(json_member(golden, "logits_last"), 0);
    const json_value *sums = item(json_member(golden, "logsumexp"), 0);
    double sum = item(sums, sums->child_count - 1)->number;
    char *text, *list = memory_copy_text(ids->raw + 1, ids->raw_bytes - 2), flags[128], wanted[128];
    json_value *said = program_json(program_run("generate " MODELS "%s --ids %s --greedy --max 4 --logprobs 3 --json",
                                                model, list), &text);
    const json_value *rows = json_member(said, "logprobs"), *top = json_member(item(rows, 0), "top");
    CHECK_INT(rows->child_count, 4);
    for (size_t i = 0; i < 4; i++) {
        CHECK_INT(program_number(item(rows, i), "id"), item(greedy, i)->number);
    }
    CHECK(fabs(program_number(item(rows, 0), "logprob") - (item(logits, (size_t)ranked(logits, 0))->number - sum))
          < LOGIT_BOUND + LOGSUMEXP_BOUND);
    CHECK_INT(top->child_count, 3);
    for (size_t rank = 0; rank < 3; rank++) {
        size_t id = (size_t)program_number(item(top, rank), "id");
        double difference = program_number(item(top, rank), "logprob") - (item(logits, id)->number - sum);
        CHECK(fabs(difference) < LOGIT_BOUND + LOGSUMEXP_BOUND);
    }
    json_free(said);
    free(text);
    /* Each row: log-probability, id, alternatives. */
    CHECK_INT(program_run("generate " MODELS "%s --ids %s --greedy --max 2 --logprobs 0", model, list), 0);
    text = program_read("out");
    int first = 0, second = 0, used = 0;
    float a = 1, b = 1;
    CHECK(sscanf(text, "%f %d %f %d%n", &a, &first, &b, &second, &used) == 4 && strcmp(text + used, "\n") == 0);
    CHECK(first == (int)greedy->child->number && second == (int)greedy->child->next->number && a < 0 && b < 0);
    free(text);

    snprintf(flags, sizeof flags, "--greedy --max 1 --bias %d=-100", ranked(logits, 0));
    snprintf(wanted, sizeof wanted, "[%d]", ranked(logits, 1));
    text = ids_with(model, list, flags);
    CHECK_TEXT(text, wanted);
    free(text);
    snprintf(flags, sizeof flags, "--greedy --max 1 --bias 7=0.5 --bias %d=1000", ranked(logits, 9));
    snprintf(wanted, sizeof wanted, "[%d]", ranked(logits, 9));
    text = ids_with(model, list, flags);
    CHECK_TEXT(text, wanted);
    free(text);
    snprintf(flags, sizeof flags, "--greedy --stop-ids 999999,%.0f", greedy->child->next->number);
    program_sentence(program_run("generate " MODELS "%s --ids %s %s", model, list, flags), 1, "999999");
    const json_value *stop = greedy->child->next; /* the first token that differs from its predecessor */
    size_t before = 1;
    while (stop->next && (int)stop->number == (int)greedy->child->number) {
        stop = stop->next;
        before++;
    }
    snprintf(flags, sizeof flags, "--greedy --logprobs 0 --stop-ids 0,%.0f", stop->number);
    said = program_json(program_run("generate " MODELS "%s --ids %s %s --json", model, list, flags), &text);
    CHECK_TEXT(program_text(said, "stop"), "token");
    CHECK_INT(json_member(said, "ids")->child_count, before + 1); /* the stop token is included and has a row */
    CHECK_INT(json_member(said, "logprobs")->child_count, before + 1);
    CHECK_INT(program_number(item(json_member(said, "logprobs"), before), "id"), stop->number);
    json_free(said);
    free(text);
    check_same_ids(model, list, "--preset greedy", "--greedy", true);
    check_same_ids(model, list, "--preset neutral --seed 5", "--temperature 1 --min-p 0 --repeat-penalty 1 --seed 5",
                   true);
    check_same_ids(model, list, "--preset balanced --seed 5",
                   "--temperature 0.8 --min-p 0.05 --repeat-penalty 1.1 --seed 5", true);
    check_same_ids(model, list, "--preset neutral --seed 5", "--preset balanced --seed 5", false);
    free(list);
}

/* The vectors of the program are the goldens', for one text and as lines. */
static void check_embed(void)
{
    static const struct { const char *flags, *key; } ways[] = {
        { "--pool last", "last_unit" }, { "", "last_unit" }, { "--pool mean --no-unit", "mean" },
        { "--pool first", "first_unit" },
    };
    size_t bytes;
    char *golden_text = check_read(EXL2_GOLDEN_DIR "/embed/qwen3.json", &bytes), *text, lines[2048];
    json_value *golden = program_parse(golden_text, bytes);
    const json_value *ids = item(json_member(golden, "tokens"), 1);
    write_ids("ids.json", ids);
    snprintf(lines, sizeof lines, "{\"ids\": %.*s}\n[]\n{\"ids\": [5]}\n", (int)ids->raw_bytes, ids->raw);
    program_write("lines.json", lines);
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        const json_value *wanted = json_member(item(json_member(golden, "sequences"), 1), ways[i].key);
        json_value *said = program_json(program_run("embed " MODELS "qwen3 --ids-file '%s/ids.json' %s --json", folder,
                                                    ways[i].flags), &text);
        const json_value *got = json_member(said, "embedding")->child;
        double worst = 0;
        CHECK_INT(json_member(said, "embedding")->child_count, wanted->child_count);
        for (const json_value *w = wanted->child; w && got; w = w->next, got = got->next) {
            worst = fmax(worst, fabs(got->number - w->number));
        }
        bool raw = strstr(ways[i].flags, "--no-unit") != NULL;
        CHECK(worst < (raw ? 0.02 : 0.01));
        CHECK_INT(json_member(said, "unit")->kind, raw ? JSON_FALSE : JSON_TRUE);
        CHECK_INT(program_number(said, "tokens"), ids->child_count);
        CHECK(strncmp(program_text(said, "pool"), ways[i].key, strlen(program_text(said, "pool"))) == 0);
        CHECK_INT(program_run("embed " MODELS "qwen3 --lines '%s/lines.json' %s", folder, ways[i].flags), 0);
        char *out = program_read("out");
        size_t first = strlen(text);
        CHECK(strncmp(out, text, first) == 0); /* the same line as for the text alone */
        CHECK(strncmp(out + first, "{\"error\": \"the line is not", 26) == 0);
        CHECK(strstr(out + first, "\"tokens\": 1") != NULL);
        free(out);
        json_free(said);
        free(text);
    }
    CHECK_INT(program_run("embed " MODELS "qwen3 --ids-file '%s/ids.json' --no-unit --layer 1", folder), 0);
    char *out = program_read("out");
    double wanted = item(json_member(item(json_member(golden, "layers"), 0), "last"), 0)->number;
    CHECK(fabs(strtod(out, NULL) - wanted) < 0.02); /* plain: numbers on a line */
    free(out);
    json_free(golden);
    free(golden_text);
}

static void case_numbers(void)
{
    static const char *const models[] = { "exl2-4bit", "exl2-mixed", "llama3-rope" };
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        char path[1024];
        size_t bytes;
        snprintf(path, sizeof path, MODELS "%s/golden.json", models[i]);
        char *text = check_read(path, &bytes);
        json_value *golden = program_parse(text, bytes);
        for (size_t sequence = 0; sequence < 2; sequence++) {
            check_greedy(models[i], item(json_member(golden, "tokens"), sequence),
                         item(json_member(golden, "greedy"), sequence));
            check_score(models[i], golden, sequence);
        }
        check_skipping(models[i], item(json_member(golden, "tokens"), 0));
        check_flags(models[i], golden);
        json_free(golden);
        free(text);
    }
    check_embed();
}

/* ---- lines ---- */

static void case_lines(void)
{
    check_lines("tokenize '" TOKENIZER "'", EXL2_GOLDEN_DIR "/tokenizer/encode.jsonl", "ids");
    check_lines("tokenize '" TOKENIZER "' --decode", EXL2_GOLDEN_DIR "/tokenizer/decode.jsonl", "text");
    check_lines("render '" TOKENIZER "'", EXL2_GOLDEN_DIR "/template/smollm2.jsonl", "rendered");
    check_bad_lines();
}

/* ---- devices ---- */

/* What `info` reports about GPUs, with a model and without. On a machine without a GPU: the reason. */
static void case_devices(void)
{
    char *text;
    const char *tiny = MODELS "exl2-4bit";
    json_value *alone = program_json(program_run("info --json"), &text);
    const json_value *devices = json_member(alone, "devices");
    CHECK(json_member(alone, "arch") == NULL && json_member(alone, "runs_on") == NULL);
    size_t usable = 0, count = CHECK(devices && devices->kind == JSON_ARRAY) ? devices->child_count : 0;
    for (size_t i = 0; i < count; i++) {
        const json_value *d = item(devices, i), *serves = json_member(d, "usable");
        CHECK_INT(program_number(d, "index"), i);
        CHECK(program_text(d, "name") && program_number(d, "arch") > 10 && program_number(d, "bytes_total") > 0);
        CHECK((program_text(d, "why_not") == NULL) == (serves && serves->kind == JSON_TRUE));
        usable += serves && serves->kind == JSON_TRUE;
    }
    json_free(alone);
    free(text);
    json_value *said = program_json(program_run("info '%s' --json", tiny), &text);
    bool on_gpu = program_text(said, "runs_on") && strcmp(program_text(said, "runs_on"), "cuda") == 0;
    CHECK((program_number(said, "device_bytes") > 0) == on_gpu);
    CHECK((program_text(said, "why_cpu") == NULL) == on_gpu);
    CHECK(json_member(said, "devices") && json_member(said, "devices")->child_count == count);
    CHECK_INT(program_number(said, "pass_bytes"), 140230); /* of the file: all tensors but norms and the embedding */
    json_free(said);
    free(text);
    said = program_json(program_run("info '%s' --backend cpu --json", tiny), &text);
    CHECK_TEXT(program_text(said, "runs_on"), "cpu");
    CHECK(program_text(said, "why_cpu") == NULL); /* the CPU was asked for */
    const char *path = program_text(said, "cpu_path");
    CHECK(path && strstr(" c avx2 avx512 neon ", path));
    json_free(said);
    free(text);
    said = program_json(program_run("info '%s' --cpu-path c --json", tiny), &text);
    CHECK_TEXT(program_text(said, "cpu_path"), "c");
    json_free(said);
    free(text);
    CHECK_INT(program_run("info '%s'", tiny), 0);
    text = program_read("out");
    CHECK(strstr(text, "would run on") && (count == 0) == (strstr(text, "GPUs               none\n") != NULL));
    free(text);
    if (usable == 0) {
        program_sentence(program_run("info '%s' --backend cuda", tiny), 1, "");
        program_sentence(program_run("bench --probe"), 1, "this engine has no GPU");
    }
    CHECK_INT(program_run("bench --probe --backend cpu && grep 'one core reads [1-9]' '%s/out'", folder), 0);
    CHECK_INT(program_run("generate '%s' --ids 1 --max 2 --device 7 --backend cpu", tiny), 0);
}

/* ---- messages ---- */

static void check_usage(void)
{
    static const struct { const char *flags, *part; } wrong[] = {
        { "", "a command is missing" },
        { "sing", "unknown command 'sing'" },
        { "generate", "MODEL is missing" },
        { "generte m", "unknown command 'generte' (did you mean generate?); see 'exl2 --help'" },
        { "sin g", "unknown command 'sin'; see" },
        { "generate m --temprature 1", "unknown flag '--temprature' (did you mean --temperature?); see 'exl2 " },
        { "generate m --temp 1", "'--temp' (did you mean --template or --temperature or --temperature-last?);" },
        { "chat m --temperatur=0.9", "'--temperatur' (did you mean --temperature or --temperature-last?);" },
        { "generate m --penalty-rage 4", "'--penalty-rage' (did you mean --penalty-range?);" },
        { "generate m --nonsense", "unknown flag '--nonsense'; see" },
        { "generate m -t 4", "unknown flag '-t'; see" },
        { "generate m", "give exactly one of --prompt" },
        { "generate m --prompt a --ids 1", "give exactly one of --prompt" },
        { "generate m --ids 1,,2", "--ids must be whole numbers" },
        { "generate m --ids 1 --chat", "--chat needs" },
        { "generate m --ids 1 --device 0,1", "--device names one GPU" },
        { "score m --ids-file f --device 0 --cards 1", "--device and --cards are both set" },
        { "chat m --cards 0,1,", "--cards must be at most 32 whole numbers" },
        { "info m --cards 0,1,2,3,4,5,6,7,8", "--cards names more than 8 GPUs" },
        { "bench m --cards 1,0,1", "--cards names GPU 1 twice" },
        { "generate m --ids 1 --cards 0,1,2,3,4,5,6,7 --draft d@8", "--draft and --cards name more than 8 GPUs" },
        { "serve m --cards 0,1 --shares 1", "--shares needs a value for each" },
        { "embed m --text a --cards 0,1 --card-bytes 1GB,2GB,3GB", "--card-bytes needs a value for each" },
        { "replay m s --cards 0,1 --shares 1,0", "--shares must be above 0" },
        { "generate m --ids 1 --cards 0,1 --shares 1e9,1", "--shares must be above 0" },
        { "generate m --ids 1 --cards 0 --split columns", "--split columns needs at least two GPUs" },
        { "generate m --ids 1 --cards 0,1 --shares 1,2 --split auto", "--shares and --split auto are both set" },
        { "generate m --ids 1 --host-mlps 1 --offload none", "--host-mlps and --offload none contradict" },
        { "generate m --ids 1 --gpu-bytes 1GB,2GB", "--gpu-bytes must be a size" },
        { "generate m --ids 1 --cards 0,1 --backend cpu", "--cards and --backend cpu contradict each other" },
        { "generate m --prompt a --system s", "--system needs --chat" },
        { "generate m --prompt a --stop ''", "--stop must not be empty" },
        { "generate m --prompt a --max -1", "--max-tokens must be a whole number" },
        { "generate m --prompt a --seed 18446744073709551616", "--seed must be a whole number" },
        { "generate m --prompt a --temperature -1", "--temperature must be 0 to 1000" },
        { "generate m --prompt a --temperature 1e99", "--temperature must be a number" },
        { "generate m --prompt a --top-p 0", "--top-p must be above 0" },
        { "generate m --prompt a --min-p 1.5", "--min-p must be 0 to 1" },
        { "generate m --prompt a --min x", "--min-tokens must be a whole number" },
        { "generate m --prompt a --typical 2", "--typical must be 0 to 1" },
        { "generate m --prompt a --repeat-penalty 0", "--repeat-penalty must be 0.01 to 100" },
        { "generate m --prompt a --dry-range 3000000000", "--dry-range must be at most" },
        { "generate m --prompt a --guidance 2", "--guidance and --negative must be given together" },
        { "generate m --prompt a --ban-text ''", "--ban-text must not be empty" },
        { "generate m --prompt a --greedy --top-k 4", "--greedy cannot be combined with" },
        { "generate m --prompt a --preset hot", "--preset must be one of model|neutral|greedy|balanced, not 'hot'" },
        { "generate m --prompt a --preset greedy --min-p 0.1", "--preset greedy cannot be combined with" },
        { "generate m --prompt a --preset balanced --greedy", "--greedy and --preset cannot be combined" },
        { "generate m --prompt a --bias 5", "--bias must be a token id, '=' and a number, not '5'" },
        { "generate m --prompt a --bias -5=1", "--bias must be a token id" },
        { "generate m --prompt a --bias 5=", "--bias must be a token id" },
        { "generate m --prompt a --bias 5=nan", "--bias must be a token id" },
        { "generate m --prompt a --bias 9999999999=1", "--bias must be a token id" },
        { "generate m --prompt a --stop-ids x", "--stop-ids must be at most" },
        { "generate m --prompt a --logprobs 65", "--logprobs must be at most 64" },
        { "generate m --prompt a --backend gpu", "--backend must be one of auto|cuda|cpu" },
        { "chat m --greedy --temperature 2", "--greedy cannot be combined with" },
        { "score m", "give either --text-file or --ids-file" },
        { "score m --text-file f --ids-file f", "give either --text-file or --ids-file" },
        { "score m --ids-file f --stride 3", "--stride needs --length" },
        { "score m --ids-file f --stride 5 --length 4", "--stride must be at most --length" },
        { "score m --ids-file f --length 1", "--length must be at least 2" },
        { "score m --ids-file f --length 8 --json --top 2", "--top needs one text, in one piece" },
        { "score m --ids-file f --bytes 3", "--bytes needs --text-file" },
        { "score m --ids-file f --top 2", "--top needs --json" },
        { "score m --ids-file f --json --top 65", "--top must be at most 64" },
        { "score m --ids-file f --memory 100 --json --top 6", "--top and --memory are both set" },
        { "score m --ids-file f --memory 100 --rope-scale 2", "--rope-scale and --memory are both set" },
        { "score m --ids-file f --gpu-bytes 6.5x", "--gpu-bytes must be a size such as 8GB, 6.5GB or 900MiB" },
        { "score m --ids-file f --gpu-bytes 6GB,8GB", "--gpu-bytes must be a size" },
        { "score m --ids-file f --cards 0,1 --card-bytes 6GB,8x", "--card-bytes must be at most 32 sizes such as 8GB" },
        { "embed m", "there is no text to embed: give --text" },
        { "embed m --text a --lines f", "give only one of --text" },
        { "embed m --text a --pool max", "--pool must be one of auto|last|mean|first" },
        { "generate m --prompt a --device first", "--device must be" },
        { "bench", "MODEL is missing" },
        { "bench m --batch 0", "--batch must be 1 to 64" },
        { "bench m --batch 1,", "--batch must be" },
        { "bench m --decode 1", "--decode must be 0, or at least 2" },
        { "bench m --cache fp16,q5", "--cache must be at most 32 of fp16|q8|q6|q4, separated by commas" },
        { "info m n", "unexpected argument 'n'" },
        { "tokenize m --json", "unknown flag '--json'" },
        { "import g o --bits 7", "7" },
        { "convert m o", "--bpw is missing" },
        { "convert m o --bpw 4 --lora x:101", "loras[0].scale must be" },
        { "convert m o --bpw 4 --lora x:-1000", "loras[0].scale must be" }, /* the value of EXL2_OFF */
        { "convert m o --bpw 4 --lora x --lora y --lora x:2", "loras[2].folder is that of loras[0]" },
        { "convert m o --bpw 4 --lora :2", "loras[0].folder is an empty string" },
        { "convert m o --bits 8", "bits is 8, expected 16" },
        { "convert m o --bits 16 --bpw 4", "bits is 16, so nothing is quantized, and bpw" },
        { "convert m o --bpw 4 --size 100MB", "size_bytes and bpw are both given" },
        { "convert m o --bpw 4 --memory 8T", "--memory must be a size" },
        { "convert m o --bpw 1", "bpw must be from 2 to 16" },
        { "convert m o --bpw -1", "bpw must be from 2 to 16" },
        { "convert m o --bpw 4 --head-bits 7", "head_bits is 7" },
        { "convert m o --bpw 4 --rope-scale 0.5", "rope_scale, rope_alpha and yarn_factor are 0 or from 1" },
        { "convert m o --bpw 4 --rope-scale 2 --yarn 2", "rope_scale and yarn_factor are both set" },
        { "compare a b", "either --text or --ids-file" },
        { "compare a", "B is missing" },
        { "compare a b c --ids-file f --by-layer", "--by-layer compares two models, not 3" },
        { "dump a b", "FILE is missing" },
        { "kernels", "build is missing" },
        { "kernels make o --arch 89", "unknown action 'make'" },
        { "kernels build o", "--arch is missing" },
        { "kernels build o --arch 89,x", "--arch must be" },
        { "synth o", "--shape or --adapter is missing" },
        { "synth o --shape mouse", "--shape must be one of" },
        { "synth o --shape llama2-7b --bpw 7", "--bpw must be one of" },
        { "synth o --shape llama2-7b --format awq --bpw 3", "--bpw must be 4 with --format awq" },
        { "synth o --shape llama2-7b --format gguf", "--format must be exl2, gptq, awq, dense or exl3" },
        { "synth o --shape llama2-7b --layers 1001", "--layers must be at most 1000" },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        program_sentence(program_run("%s", wrong[i].flags), 2, wrong[i].part);
        char *out = program_read("out");
        CHECK_TEXT(out, "");
        free(out);
    }
}

static void check_failures_of_files(void)
{
    program_write("no.json", "{\"a\": 1}");
    program_write("one.json", "[5]");
    program_write("two.json", "[5, 6]");
    program_write("far.json", "[5, 999999]");
    const char *tiny = MODELS "exl2-4bit";
    program_sentence(program_run("info '%s'", folder), 1, "no config.json in");
    program_write("weights.GGUF", "GGUF");
    program_sentence(program_run("info '%s'", folder), 1, "but weights.GGUF: a GGUF file must be imported");
    program_sentence(program_run("generate '%s/weights.GGUF' --ids 1", folder), 1, "a model is a folder");
    program_sentence(program_run("generate '%s' --prompt a", tiny), 1, "no tokenizer.json");
    program_sentence(program_run("generate '%s' --ids 1 --stop a", tiny), 1, "no tokenizer.json");
    program_sentence(program_run("generate '%s' --ids 1 --regex a", tiny), 1, "no tokenizer.json");
    program_sentence(program_run("generate '%s' --ids 320", tiny), 1, "320");
    program_sentence(program_run("generate '%s' --ids 1 --max 100000", tiny), 1, "100001 tokens");
    program_sentence(program_run("generate '%s' --prompt-file '%s/none'", tiny, folder), 1, "none: No such file");
    program_sentence(program_run("generate '%s' --prompt-file '%s'", tiny, folder), 1, "Is a directory");
    program_sentence(program_run("chat '%s'", tiny), 1, "no tokenizer.json");
    program_sentence(program_run("tokenize '%s'", tiny), 1, "no tokenizer.json");
    program_sentence(program_run("render '%s'", folder), 1, "no tokenizer.json");
    program_sentence(program_run("score '%s' --text-file '%s/no.json'", tiny, folder), 1, "no tokenizer.json");
    program_sentence(program_run("score '%s' --ids-file '%s/no.json'", tiny, folder), 1, "not a JSON array");
    program_sentence(program_run("score '%s' --ids-file '%s/one.json'", tiny, folder), 1, "1 tokens");
    program_sentence(program_run("score '%s' --ids-file '%s/two.json' --skip 1", tiny, folder), 1, "at least 3");
    program_sentence(program_run("score '%s' --ids-file '%s/far.json'", tiny, folder), 1, "999999");
    program_sentence(program_run("embed '%s' --text a", tiny), 1, "no tokenizer.json");
    program_sentence(program_run("embed '%s' --text ''", tiny), 2, "no text to embed: --text is empty");
    program_sentence(program_run("embed '%s' --ids-file '%s/none.json'", tiny, folder), 1, "none.json");
    program_sentence(program_run("embed '%s' --lines /dev/null", tiny), 2, "no text to embed: /dev/null is empty");
    program_sentence(program_run("embed '%s' --ids-file '%s/one.json' --layer 99", tiny, folder), 1,
                     "embed.layer is 99");
    program_sentence(program_run("bench '%s' --decode 4294967295", tiny), 1, "");
    program_sentence(program_run("import '%s/no.json' '%s/made'", folder, folder), 1, "not a GGUF file");
    program_sentence(program_run("convert '%s/none' '%s/made' --bpw 4", folder, folder), 1, "config.json");
    program_sentence(program_run("convert " MODELS "qwen3 '%s/made' --bpw 4 --lora 'C:\\x'", folder), 1, "C:\\x");
    program_sentence(program_run("convert " MODELS "qwen3 '%s/made' --bits 16 --lora 'x:-0.5'", folder), 1,
                     "no adapter_config.json in x");
    program_sentence(program_run("convert " MODELS "qwen3 '%s/made' --bits 16 --lora x:0", folder), 2, "no adapter to");

    program_sentence(program_run("compare '%s' '%s' --ids-file '%s/far.json'", tiny, tiny, folder), 2, "999999");
    program_sentence(program_run("kernels build '%s/k' --arch 89 --nvrtc '%s/none'", folder, folder), 1,
                     "kernels cannot be built: no kernel compiler");
    program_sentence(program_run("synth '%s/no.json' --shape llama2-7b", folder), 1, "not an empty folder");
}

/* README: `generate` has the whole sampler. Every field of the desc has a flag, and a new field needs one, too. */
static void check_all_of_the_sampler(void)
{
    static const char *const flags[][2] = {
        { "dry_multiplier", "--dry" }, { "dry_breakers", "--dry-breaker" }, { "xtc_probability", "--xtc" },
    };
    char *header = check_read("exl2.h", NULL), *help, name[64], flag[80];
    const char *at = strstr(header, "typedef struct exl2_sampler_desc {");
    const char *end = strstr(header, "} exl2_sampler_desc;");
    int fields = 0;
    CHECK_INT(program_run("generate --help"), 0);
    help = program_read("out");
    for (at = at ? strchr(at, '\n') : NULL; at && at + 1 < end; at = strchr(at + 1, '\n')) {
        char line[160];
        if (strspn(at + 1, " ") > 4) { /* a comment that continues */
            continue;
        }
        snprintf(line, sizeof line, "%.*s", (int)strcspn(at + 1, ";\n"), at + 1); /* "    float a, b" */
        for (char *word = strtok(line, " ,*"); word; word = strtok(NULL, " ,*")) {
            static const char *const types[] = { "float", "int32_t", "uint64_t", "uint32_t", "bool", "const", "char",
                                                 "exl2_preset", "exl2_token", "exl2_bias" };
            bool is_name = !strstr(word, "_count") && !strstr(word, "_canary");
            for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
                is_name = is_name && strcmp(word, types[i]) != 0;
            }
            if (word[0] == '/') { /* a comment */
                break;
            }
            if (!is_name) {
                continue;
            }
            snprintf(name, sizeof name, "%s", word);
            snprintf(flag, sizeof flag, "  --%s ", name);
            for (char *c = flag; *c; c++) {
                *c = *c == '_' ? '-' : *c;
            }
            for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
                if (strcmp(name, flags[i][0]) == 0) {
                    snprintf(flag, sizeof flag, "  %s ", flags[i][1]);
                }
            }
            fields++;
            if (!CHECK(strstr(help, flag) != NULL)) {
                printf("exl2_sampler_desc.%s has no flag%s\n", name, flag);
            }
        }
    }
    CHECK(fields >= 34);
    free(header);
    free(help);
}

/* Each warning of the engine appears once on stderr, and the result is the same as without it. */
static void check_warnings(void)
{
    char *text, command[4096];
    snprintf(command, sizeof command, "cp -r '" MODELS "exl2-4bit' '%s/warned' && chmod u+w '%s/warned' && sed -i "
             "'s/\"bos_token_id\": 1/\"bos_token_id\": 4000/; s/\"eos_token_id\": 2/\"eos_token_id\": 999/' "
             "'%s/warned/config.json'", folder, folder, folder);
    CHECK_INT(system(command), 0);
    static const char *const commands[] = { "generate '%s/warned' --ids 1,2 --max 2 --json",
                                            "info '%s/warned' --json" };
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        CHECK_INT(program_run(commands[i], folder), 0);
        text = program_read("err");
        CHECK_TEXT(text, "warning: config.json: bos_token_id=4000 is ignored, the vocabulary has 320 tokens\n"
                         "warning: config.json: eos_token_id=999 is ignored, the vocabulary has 320 tokens\n");
        free(text);
        text = program_read("out");
        json_free(program_parse(text, strlen(text)));
        free(text);
    }
}

/* families.md has the first table of `exl2 archs` as it is; the JSON has the same rows, and only ASCII. */
static void check_archs(void)
{
    char *out, *text, *families = check_read("exl2_impl/docs/families.md", NULL);
    CHECK_INT(program_run("archs"), 0);
    out = program_read("out");
    char *end = strstr(out, "\n\n");
    if (CHECK(end != NULL)) {
        end[1] = 0;
        if (!CHECK(strstr(families, out) != NULL)) {
            printf("put the first table of 'exl2 archs' into exl2_impl/docs/families.md\n");
        }
    }
    json_value *all = program_json(program_run("archs --json"), &text);
    for (const char *c = text; *c; c++) {
        CHECK((unsigned char)*c < 128);
    }
    CHECK(strstr(text, "\"arch\": \"Gemma2ForCausalLM\", \"family\": \"Gemma 2\"") != NULL);
    CHECK(strstr(text, "\"arch\": \"MambaForCausalLM\", \"reason\": ") != NULL);
    json_free(all);
    free(text);
    free(out);
    free(families);
}

/* What info says of families, and RoPE settings. */
static void check_info(void)
{
    char *text;
    json_value *said = program_json(program_run("info '" MODELS "gemma2' --backend cpu --json --rope-alpha 3"), &text);
    CHECK_TEXT(program_text(said, "family"), "Gemma 2");
    CHECK_TEXT(program_text(said, "format"), "dense");
    CHECK_TEXT(program_text(said, "norms"), "RMSNorm + 1 before and after blocks");
    CHECK_INT(program_number(said, "head_dim"), 16);
    CHECK(strstr(text, "\"windows\": [32, 0, 32, 0]") != NULL);
    CHECK(strstr(text, "\"rope\": [{\"kind\": \"plain\", \"theta\": 3509") != NULL); /* 10000 * 3^(16/14) */
    CHECK(strstr(text, "\"needs_bos\": true") != NULL && strstr(text, "\"tower_skipped\": false") != NULL);
    CHECK(strstr(text, "\"warnings\": []") != NULL && strstr(text, "\"parallel\": false") != NULL);
    json_free(said);
    free(text);
    said = program_json(program_run("info '" MODELS "llama3-rope' --backend cpu --json --yarn 4"), &text);
    CHECK(strstr(text, "\"rope\": [{\"kind\": \"yarn\", \"theta\": 500000, \"factor\": 4}]") != NULL);
    json_free(said);
    free(text);
    said = program_json(program_run("info '" MODELS "exl2-mixed' --backend cpu --json --cache q6 --cache-tokens 640"),
                        &text); /* 2 layers, 2 heads of 32 */
    CHECK_INT(program_number(said, "cache_bytes_per_token"), 208);
    CHECK_INT(program_number(said, "cache_bytes"), 640 * 208);
    CHECK_TEXT(program_text(said, "cache_format"), "q6");
    json_free(said);
    free(text);
    program_sentence(program_run("info '" MODELS "awq' --backend cpu --cache q4"), 1, "24 elements");
    program_sentence(program_run("info '" MODELS "gemma2' --rope-scale 0.5"), 1, "from 1 to 1000");
    program_sentence(program_run("generate '" MODELS "gemma2' --ids 1 --yarn 2 --rope-scale 2"), 1, "both set");
    program_sentence(program_run("score '" MODELS "gemma2' --ids-file /dev/null --rope-alpha -1"), 1, "from 1 to 1000");
}

/* A full disk, and a reader that has closed the pipe. */
static void check_stdout(void)
{
    static const char *const commands[] = { "--help", "--version", "info --help", "info '" MODELS "exl2-4bit' --json",
                                            "generate '" MODELS "exl2-4bit' --ids 1,2 --max 4" };
    char command[8192];
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        program_sentence(program_run("%s >/dev/full", commands[i]), 1, "stdout cannot be written");
    }
    program_write("in", "{\"text\": \"a\"}\n{\"text\": \"b\"}\n");
    snprintf(command, sizeof command,
             "(sleep 0.2; '%s' tokenize '" TOKENIZER "' <'%s/in' 2>'%s/err'; echo $? >'%s/out') | true",
             program, folder, folder, folder);
    CHECK_INT(system(command), 0);
    char *code = program_read("out");
    program_sentence(atoi(code), 1, "stdout cannot be written");
    free(code);
}

static void case_sentences(void)
{
    static const char *const commands[] = { "", "info", "archs", "chat", "generate", "replay", "score", "embed",
                                            "vision", "tokenize", "render", "bench", "import", "convert", "compare",
                                            "dump", "kernels", "serve", "steer", "synth" };
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        CHECK_INT(program_run("%s --help", commands[i]), 0);
        char *out = program_read("out"), *err = program_read("err");
        CHECK(strstr(out, "usage: exl2") != NULL && strstr(out, commands[i]) != NULL);
        CHECK_TEXT(err, "");
        for (const char *line = out; *line; line += strcspn(line, "\n") + 1) {
            CHECK(strcspn(line, "\n") <= 100);
        }
        free(out);
        free(err);
    }
    check_usage();
    check_failures_of_files();
    check_all_of_the_sampler();
    check_archs();
    check_info();
    check_warnings();
    check_stdout();
}

int main(int argc, char **argv)
{
    static const struct { const char *name; void (*run)(void); } cases[] = {
        { "numbers", case_numbers }, { "lines", case_lines }, { "devices", case_devices },
        { "sentences", case_sentences },
    };
    if (argc != 4) {
        printf("usage: cli CASE PROGRAM FOLDER\n");
        return 1;
    }
    program_set(argv[2], argv[3]);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (strcmp(argv[1], cases[i].name) == 0) {
            cases[i].run();
        }
    }
    return check_done();
}
