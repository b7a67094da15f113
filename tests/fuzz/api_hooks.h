/* api_hooks.h: the application's hooks: an allocator that records its blocks and fails at random, files in memory that
   fail at random, a clock that advances with each reading and in which "another thread" makes calls.
   takes: api; api_other_thread of api_jobs.h.
   gives: api_engine_desc, api_files_make; api_clock, api_sleep, api_entropy for engine_rig.
   owns:  the files, for the life of the program. */
#ifndef API_HOOKS_H
#define API_HOOKS_H

#include "api_state.h"

#include "../adapter_maker.h"
#include "../engine/text_model.h"
#include "../model_maker.h"

#define API_LOOKS_MAX 4000000u /* a call that reads the clock more often counts as a hang */

static void api_other_thread(void);

/* ---- memory ---- */

static uint32_t api_block_at(const void *memory)
{
    uint32_t at = (uint32_t)(api_mix((uint64_t)(uintptr_t)memory) % API_BLOCKS);
    while (api.blocks[at].memory && api.blocks[at].memory != memory) {
        at = (at + 1) % API_BLOCKS;
    }
    return at;
}

static void *api_alloc(void *user, size_t bytes, size_t align, exl2_mem tag)
{
    const api_frame *frame = api.frame_count ? &api.frames[api.frame_count - 1] : NULL;
    void *memory = NULL;
    (void)user;
    API_MUST(bytes > 0 && align && (align & (align - 1)) == 0, "alloc_fn: %zu bytes aligned to %zu", bytes, align);
    API_MUST(frame != NULL, "alloc_fn outside of every call");
    if (!frame->may_allocate) {
        bool loading = false;
        for (uint32_t i = 0; i < API_MODELS; i++) {
            loading = loading || (api.models[i].id && api.models[i].loading);
        }
        for (uint32_t i = 0; i < API_LORAS; i++) {
            loading = loading || (api.loras[i].id && api.loras[i].loading);
        }
        API_MUST(loading, "%s allocates %zu bytes, though every model is ready", api_shared->call, bytes);
    }
    if (!api.quiet && api.refuse_one_in && api_below(&api.other_random, api.refuse_one_in) == 0) {
        api.refused++;
        api_shared->refused++;
        api_trace("(alloc_fn refuses %zu bytes)", bytes);
        return NULL;
    }
    align = align < sizeof(void *) ? sizeof(void *) : align;
    API_MUST(posix_memalign(&memory, align, bytes) == 0, "the machine has no %zu bytes", bytes);
    memset(memory, 0xA5, bytes < 4096 ? bytes : 4096);
    API_MUST(api.live_blocks < API_BLOCKS / 2, "more than %u blocks of memory", API_BLOCKS / 2);
    api.blocks[api_block_at(memory)] = (api_block){ memory, bytes, tag };
    api.live_blocks++;
    api.live_bytes += bytes;
    api.allocations++;
    return memory;
}

static void api_free(void *user, void *memory, size_t bytes, exl2_mem tag)
{
    uint32_t at = api_block_at(memory);
    (void)user;
    API_MUST(memory && api.blocks[at].memory == memory, "free_fn of what is not allocated");
    API_MUST(api.blocks[at].bytes == bytes && api.blocks[at].tag == tag, "free_fn: %zu bytes of tag %d, not %zu of %d",
             bytes, (int)tag, api.blocks[at].bytes, (int)api.blocks[at].tag);
    api.live_blocks--;
    api.live_bytes -= bytes;
    api.blocks[at].memory = NULL;
    for (uint32_t i = (at + 1) % API_BLOCKS; api.blocks[i].memory; i = (i + 1) % API_BLOCKS) { /* re-insert */
        api_block moved = api.blocks[i];
        api.blocks[i].memory = NULL;
        api.blocks[api_block_at(moved.memory)] = moved;
    }
    free(memory);
}

/* ---- files ---- */

typedef struct api_file {
    char path[64];
    const char *data;
    size_t bytes;
} api_file;

#define API_FILES 48u

static api_file api_file_list[API_FILES];
static uint32_t api_file_count;

/* The folders. API_TEXT_FOLDER has everything, API_PLAIN, API_ROPE and API_EXPERTS have no tokenizer, API_WORDS has
   only a tokenizer. API_SMOL, API_QWEN and API_GEMMA see; they are there with the shared fixtures. The last three
   cannot be loaded. */
typedef enum api_folder { API_TEXT_FOLDER, API_PLAIN, API_ROPE, API_EXPERTS, API_SMOL, API_QWEN, API_GEMMA, API_MADE,
                          API_WORDS, API_CUT, API_BROKEN, API_ABSENT, API_FOLDERS } api_folder;

static const char *const api_folders[] = { "m/text", "m/plain", "m/rope", "m/experts", "m/smolvlm", "m/qwen2.5-vl",
                                           "m/gemma3", "m/made", "m/words", "m/cut", "m/broken", "m/absent" };

static text_model api_text; /* tokenizer of API_TEXT_FOLDER */

static bool api_read_fails(void)
{
    bool fails = !api.quiet && api.fail_one_in && api_below(&api.other_random, api.fail_one_in) == 0;
    api.failed_reads += fails;
    return fails;
}

static void *api_file_open(void *user, const char *path, uint64_t *bytes)
{
    (void)user;
    for (uint32_t i = 0; i < api_file_count; i++) {
        if (strcmp(api_file_list[i].path, path) == 0) {
            if (api_read_fails()) {
                return NULL;
            }
            api.open_files++;
            *bytes = api_file_list[i].bytes;
            return &api_file_list[i];
        }
    }
    return NULL;
}

static bool api_file_names(void *user, const char *dir, uint32_t index, char *name, size_t cap)
{
    size_t length = strlen(dir);
    (void)user;
    for (uint32_t i = 0; i < api_file_count; i++) {
        if (strncmp(api_file_list[i].path, dir, length) == 0 && api_file_list[i].path[length] == '/' && index-- == 0) {
            snprintf(name, cap, "%s", api_file_list[i].path + length + 1);
            return true;
        }
    }
    return false;
}

static int64_t api_file_read(void *user, void *handle, uint64_t offset, void *dst, size_t bytes)
{
    const api_file *file = (const api_file *)handle;
    (void)user;
    if (api_read_fails()) {
        return -1;
    }
    uint64_t rest = offset < file->bytes ? file->bytes - offset : 0;
    bytes = bytes < rest ? bytes : (size_t)rest;
    if (bytes) {
        memcpy(dst, file->data + offset, bytes);
    }
    return (int64_t)bytes;
}

static void api_file_close(void *user, void *handle)
{
    (void)user;
    (void)handle;
    API_MUST(api.open_files > 0, "close of a file that is not open");
    api.open_files--;
}

static void api_file_add(const char *folder, const char *name, const char *data, size_t bytes)
{
    api_file *file = &api_file_list[api_file_count++];
    snprintf(file->path, sizeof file->path, "%s/%s", folder, name);
    file->data = data;
    file->bytes = bytes;
}

static void api_file_copy(const char *folder, const char *name, const char *from)
{
    size_t bytes;
    char path[1200];
    snprintf(path, sizeof path, "%s/%s", EXL2_GOLDEN_DIR, from);
    const char *data = check_read(path, &bytes);
    api_file_add(folder, name, data, bytes);
}

/* Texts of the tokens that are not single bytes: some begin like others, some are incomplete code points. */
static const char *const api_plan[] = { "ab", "abc", "abd", "the ", "th", "\xC3", "\xA9", "\xC3\xA9", "\xE2\x82",
                                        "\xAC", "{\"a\":", "true", "\n\n", "  ", "hi", "END", "aaaa", "stop", "zz",
                                        "\xF0\x9F" };

/* An adapter for m/text. */
static void api_make_adapter(void)
{
    static const adapter_matrix matrices[] = { { "model.layers.0.self_attn.q_proj", 128, 128 },
                                               { "model.layers.1.mlp.down_proj", 128, 160 } };
    static const char *const names[] = { "adapter_config.json", "adapter_model.safetensors" };
    char folder[] = "/tmp/exl2-fuzz-XXXXXX", path[80];
    API_MUST(mkdtemp(folder) != NULL, "no folder for an adapter");
    adapter_write(folder, matrices, EXL2__COUNT(matrices));
    for (uint32_t i = 0; i < EXL2__COUNT(names); i++) {
        size_t bytes;
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        const char *data = check_read(path, &bytes);
        api_file_add("m/lora", names[i], data, bytes);
        unlink(path);
    }
    rmdir(folder);
}

static bool api_sees(uint32_t folder)
{
    return folder >= API_SMOL && folder <= API_GEMMA;
}

static bool api_has_sight; /* the models that see are there */

/* The models that see, from the shared fixtures. */
static void api_files_see(void)
{
    static const char *const names[] = { "config.json", "preprocessor_config.json", "processor_config.json",
                                         "model.safetensors", "tokenizer.json", "tokenizer_config.json",
                                         "chat_template.jinja" };
    const char *shared = getenv("EXL2_TEST_DATA");
    char path[1200];
    for (uint32_t folder = API_SMOL; shared && folder <= API_GEMMA; folder++) {
        for (uint32_t i = 0; i < EXL2__COUNT(names); i++) {
            size_t bytes;
            snprintf(path, sizeof path, "%s/fixtures/vision/%s/%s", shared, api_folders[folder] + 2, names[i]);
            if (access(path, R_OK) == 0) {
                const char *data = check_read(path, &bytes);
                api_file_add(api_folders[folder], names[i], data, bytes);
                api_has_sight = true;
            }
        }
    }
}

/* Makes all files once, before the first fork. */
static void api_files_make(void)
{
    static maker made;
    size_t bytes;
    for (uint32_t i = 0; i < EXL2__COUNT(api_plan); i++) {
        api_text.planned[i] = (exl2_token)(TEXT_VOCAB - EXL2__COUNT(api_plan) + i);
    }
    text_write(&api_text, api_plan, EXL2__COUNT(api_plan), TEXT_CHAT_CONFIG);
    api_file_copy("m/text", "config.json", "models/exl2-mixed/config.json");
    api_file_copy("m/text", "output.safetensors", "models/exl2-mixed/output.safetensors");
    api_file_add("m/text", "tokenizer.json", api_text.tokenizer, strlen(api_text.tokenizer));
    api_file_add("m/text", "tokenizer_config.json", api_text.config, strlen(api_text.config));
    api_make_adapter();
    api_file_copy("m/plain", "config.json", "models/exl2-4bit/config.json");
    api_file_copy("m/plain", "output.safetensors", "models/exl2-4bit/output.safetensors");
    api_file_copy("m/rope", "config.json", "models/llama3-rope/config.json");
    api_file_copy("m/rope", "model.safetensors", "models/llama3-rope/model.safetensors");
    api_file_copy("m/experts", "config.json", "models/exl2-qwen3-moe/config.json");
    api_file_copy("m/experts", "output.safetensors", "models/exl2-qwen3-moe/output.safetensors");
    maker_make(&made);
    const char *weights = (const char *)maker_file(&made, &bytes);
    api_file_add("m/made", "config.json", MAKER_CONFIG, strlen(MAKER_CONFIG));
    api_file_add("m/made", "model.safetensors", weights, bytes);
    maker_free(&made);
    api_files_see();
    api_file_copy("m/words", "tokenizer.json", "tokenizer/behaviors/tokenizer.json");
    api_file_add("m/cut", "config.json", MAKER_CONFIG, strlen(MAKER_CONFIG));
    api_file_add("m/cut", "model.safetensors", weights, bytes * 2 / 3);
    api_file_add("m/broken", "config.json", MAKER_CONFIG, strlen(MAKER_CONFIG));
    api_file_add("m/broken", "model.safetensors", weights, bytes);
    api_file_add("m/broken", "tokenizer.json", api_text.tokenizer, strlen(api_text.tokenizer) / 2);
}

/* ---- time ---- */

static uint64_t api_entropy(void)
{
    return api_mix(++api.ns);
}

static pthread_t api_main; /* the thread that calls the engine; set by main */

static int api_clock(int clock, struct timespec *time)
{
    if (!pthread_equal(pthread_self(), api_main)) { /* the engine's worker, which no step allows anything */
        return clock_gettime(clock, time);
    }
    if (api.frame_count) {
        api_frame *frame = &api.frames[api.frame_count - 1];
        API_MUST(++frame->looks < API_LOOKS_MAX, "%s does not return", api_shared->call);
        API_MUST(!frame->interrupted || frame->looks < API_LOOKS_MAX / 4, "%s does not heed exl2_interrupt",
                 api_shared->call);
    }
    if (!api.quiet && !api.threads && api.frame_count && api_below(&api.other_random, 300) == 0) {
        api_other_thread();
    }
    if (api.cuda) {
        return fake_clock(clock, time);
    }
    api.ns += 1000;
    time->tv_sec = (time_t)(api.ns / 1000000000u);
    time->tv_nsec = (long)(api.ns % 1000000000u);
    return 0;
}

static int api_sleep(const struct timespec *time, struct timespec *left)
{
    if (api.cuda || api.threads) {
        return fake_sleep(time, left);
    }
    api.ns += (uint64_t)time->tv_sec * 1000000000u + (uint64_t)time->tv_nsec;
    return 0;
}

/* ---- the other hooks ---- */

/* Every message of the engine is UTF-8 and NUL-terminated within `cap` bytes. */
static void api_check_sentence(const char *text, size_t cap, const char *of)
{
    size_t bytes = 0;
    while (bytes < cap && text[bytes]) {
        bytes++;
    }
    API_MUST(bytes < cap, "%s: a sentence without an end", of);
    API_MUST(exl2__unicode_valid(text, bytes), "%s: a sentence that is not UTF-8", of);
    for (size_t i = 0; i < bytes; i++) {
        API_MUST((uint8_t)text[i] >= 0x20 && text[i] != 0x7F, "%s: a sentence with a control character", of);
    }
}

static void api_line(void *user, exl2_log_level level, exl2_log_id id, exl2_result code, const char *text)
{
    (void)user;
    API_MUST(level >= EXL2_LOG_ERROR && level <= EXL2_LOG_DEBUG && text[0], "a log line of level %d", (int)level);
    API_MUST(code <= 0 && code >= EXL2_ERR_INTERNAL, "a log line with code %d", (int)code);
    API_MUST(id >= EXL2_LOG_ID_FAILED && id <= EXL2_LOG_ID_COPY_IGNORED, "a log line with id %d", (int)id);
    API_MUST((id == EXL2_LOG_ID_FAILED) == (code < 0), "a log line with id %d and code %d", (int)id, (int)code);
    api_check_sentence(text, 1 << 20, "the logger");
}

static void api_zone_begin(void *user, const char *name)
{
    (void)user;
    API_MUST(name && name[0], "a zone without a name");
    api.zones++;
}

static void api_zone_end(void *user)
{
    (void)user;
    API_MUST(api.zones > 0, "a zone ends that did not begin");
    api.zones--;
}

/* Runs the tasks backwards, or from the middle on: no result may depend on their order. */
static void api_run_tasks(void *user, uint32_t count, void (*task)(void *arg, uint32_t index), void *arg)
{
    uint32_t middle = count ? (uint32_t)(api.seed % count) : 0;
    (void)user;
    for (uint32_t i = 0; i < count; i++) {
        task(arg, api.seed & 64 ? count - 1 - i : (i + middle) % count);
    }
}

/* Of several GPUs that share a model by columns, one without heads has no K and V: it samples what the others find. */
static void api_run_kernel(const char *function, const void *arguments, const unsigned grid[3])
{
    const exl2k_sample_args *sample = arguments;
    bool token = strcmp(function, "exl2k_sample_token") == 0;
    if (!token || !api.columns || fake_model_pages(sample->rows, false)->address) {
        fake_tower_run(function, arguments, grid);
    }
}

/* A fresh fake machine, if the engine computes on one: GPUs of one kind, all of which or none reach each other's
   memory. */
static void api_make_machine(void)
{
    if (!api.cuda) {
        return;
    }
    machine_make();
    fake.run = api_run_kernel;
    api.columns = false;
    fake.eager = api_chance(2);
    fake.device_count = (int)API_CARDS;
    api.peers = !api_chance(3);
    for (uint32_t i = 0; i < API_CARDS; i++) {
        fake.devices[i] = fake.devices[0];
        fake.devices[i].uuid[0] = (uint8_t)(10 + i);
        api.picks[i] = (exl2_device_desc){ .pick = EXL2_PICK_INDEX, .index = i };
        for (uint32_t k = 0; k < API_CARDS; k++) {
            fake.peer[i][k] = i != k && api.peers ? FAKE_PEER_GOOD : FAKE_PEER_NONE;
        }
    }
}

/* A desc with all hooks; the caller sets the rest. */
static exl2_engine_desc api_engine_desc(exl2_error *error)
{
    exl2_engine_desc d = machine_desc(api.cuda ? EXL2_BACKEND_CUDA : EXL2_BACKEND_CPU, error);
    d.allocator = (exl2_allocator){ .alloc_fn = api_alloc, .free_fn = api_free };
    d.files = (exl2_files){ api_file_open, api_file_names, api_file_read, api_file_close, NULL };
    d.log = (exl2_logger){ api_line, NULL, EXL2_LOG_DEBUG };
    d.zones = (exl2_zones){ .begin = api_zone_begin, .end = api_zone_end };
    d.parallel = (exl2_parallel){ api_run_tasks, 4, NULL };
    return d;
}

#endif
