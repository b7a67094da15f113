/* import_families.c: GGUF files that llama.cpp's converter made of the tiny models of the fixtures, imported without
   quantization: every tensor equals that of the safetensors beside the file, and config.json opens to the same
   numbers. */
#define EXL2_CONVERT
#include "private/import.h"
#include "private/model_config_read.h"
#include "../check.h"
#include "../tensors_open.h"

#include <math.h>

static char out_dir[512];

/* ---- config.json ---- */

static void check_near(const char *what, double got, double wanted)
{
    if (!CHECK(fabs(got - wanted) <= 1e-6 * fabs(wanted))) {
        printf("  %s is %.9g, expected %.9g\n", what, got, wanted);
    }
}

static void check_rope(const exl2__rope *got, const exl2__rope *wanted, uint32_t rotary, uint32_t context)
{
    double frequencies[2][EXL2__ROPE_HALF_MAX], magnitudes[2];
    exl2__rope_frequencies(got, rotary, context, frequencies[0], &magnitudes[0]);
    exl2__rope_frequencies(wanted, rotary, context, frequencies[1], &magnitudes[1]);
    check_near("magnitude", magnitudes[0], magnitudes[1]);
    for (uint32_t i = 0; i < rotary / 2; i++) {
        check_near("a frequency", frequencies[0][i], frequencies[1][i]);
    }
}

static void check_config(const exl2__config *got, const exl2__config *wanted)
{
    CHECK_TEXT(got->arch_name, wanted->arch_name);
    CHECK_INT(got->vocab, wanted->vocab);
    CHECK_INT(got->hidden, wanted->hidden);
    CHECK_INT(got->layers, wanted->layers);
    CHECK_INT(got->heads, wanted->heads);
    CHECK_INT(got->kv_heads, wanted->kv_heads);
    CHECK_INT(got->head_dim, wanted->head_dim);
    CHECK_INT(got->inter, wanted->inter);
    CHECK_INT(got->context_max, wanted->context_max);
    CHECK_INT(got->rotary, wanted->rotary);
    CHECK_INT(got->window, wanted->window);
    CHECK_INT(got->act, wanted->act);
    CHECK_INT(got->qk_norm, wanted->qk_norm);
    CHECK_INT(got->parallel, wanted->parallel);
    CHECK_INT(got->tie_embeddings, wanted->tie_embeddings);
    CHECK_INT(got->has_local_rope, wanted->has_local_rope);
    CHECK_INT(got->experts.count, wanted->experts.count);
    CHECK_INT(got->experts.active, wanted->experts.active);
    CHECK_INT(got->experts.inter, wanted->experts.inter);
    CHECK_INT(got->experts.shared_inter, wanted->experts.shared_inter);
    CHECK_INT(got->experts.renormalized, wanted->experts.renormalized);
    check_near("scale of experts", (double)got->experts.scale, (double)wanted->experts.scale);
    CHECK(memcmp(got->sparse, wanted->sparse, sizeof got->sparse) == 0);
    CHECK(memcmp(got->windowed, wanted->windowed, sizeof got->windowed) == 0);
    CHECK(memcmp(got->unrotated, wanted->unrotated, sizeof got->unrotated) == 0);
    check_near("norm_eps", (double)got->norm_eps, (double)wanted->norm_eps);
    check_near("attn_scale", (double)got->attn_scale, (double)wanted->attn_scale);
    check_near("embed_scale", (double)got->embed_scale, (double)wanted->embed_scale);
    check_near("residual_scale", (double)got->residual_scale, (double)wanted->residual_scale);
    check_near("logit_scale", (double)got->logit_scale, (double)wanted->logit_scale);
    check_near("attn_softcap", (double)got->attn_softcap, (double)wanted->attn_softcap);
    check_near("final_softcap", (double)got->final_softcap, (double)wanted->final_softcap);
    check_near("clip_qkv", (double)got->clip_qkv, (double)wanted->clip_qkv);
    check_rope(&got->rope, &wanted->rope, wanted->rotary, 8);
    check_rope(&got->rope, &wanted->rope, wanted->rotary, wanted->context_max);
    if (wanted->has_local_rope) {
        check_rope(&got->local_rope, &wanted->local_rope, wanted->rotary, wanted->context_max);
    }
}

/* ---- tensors ---- */

/* Replaces `from` at the end of the layer's part of a name. false: the name does not have it. */
static bool renamed(const char *name, const char *from, const char *to, char *out, size_t bytes)
{
    const char *at = strstr(name, from);
    if (!at) {
        return false;
    }
    snprintf(out, bytes, "%.*s%s%s", (int)(at - name), name, to, at + strlen(from));
    return true;
}

/* The tensor of the original that has the values of tensor `name`, and the row with which they begin there. */
static const exl2__tensor *find_original(const exl2__tensors *t, const exl2__config *c, const char *name, uint32_t *row)
{
    const uint32_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
    const struct {
        const char *part, *fused;
        uint32_t row;
    } parts[] = { { "q_proj", "qkv_proj", 0 }, { "k_proj", "qkv_proj", q }, { "v_proj", "qkv_proj", q + kv },
                  { "gate_proj", "gate_up_proj", 0 }, { "up_proj", "gate_up_proj", c->inter } };
    const exl2__tensor *found = exl2__tensors_find(t, name);
    *row = 0;
    for (size_t i = 0; i < EXL2__COUNT(parts) && !found; i++) {
        char fused[200];
        if (renamed(name, parts[i].part, parts[i].fused, fused, sizeof fused)) {
            found = exl2__tensors_find(t, fused);
            *row = parts[i].row;
        }
    }
    return found;
}

static uint32_t count_of(const exl2__tensor *t)
{
    return (uint32_t)(t->dims[0] * (t->rank == 2 ? t->dims[1] : 1));
}

/* Matrices are equal bit by bit. The weights of Gemma's norms were stored plus 1, which rounds them. */
static void check_tensor(exl2__ctx *c, const exl2__tensors *t, const exl2__tensor *got, const exl2__tensors *originals,
                         const exl2__tensor *original, uint32_t row)
{
    uint32_t count = count_of(got);
    uint64_t skip = (uint64_t)row * (got->rank == 2 ? got->dims[1] : 1);
    float *values = (float *)malloc(count * sizeof *values), *wanted = (float *)malloc(count * sizeof *wanted);
    bool norm = got->rank == 1 || got->type == EXL2__TENSOR_F32; /* or router */
    double worst = 0;
    CHECK(got->type == (norm ? EXL2__TENSOR_F32 : EXL2__TENSOR_F16));
    CHECK_INT(exl2__tensor_floats_range(c, t, got, 0, count, values), EXL2_OK);
    CHECK_INT(exl2__tensor_floats_range(c, originals, original, skip, count, wanted), EXL2_OK);
    for (uint32_t i = 0; i < count; i++) {
        worst = fmax(worst, fabs((double)values[i] - (double)wanted[i]));
    }
    if (!CHECK(worst <= (norm ? 1.2e-7 : 0))) {
        printf("  %s differs by %g\n", got->name, worst);
    }
    free(values);
    free(wanted);
}

static void check_tensors(exl2__ctx *c, const char *folder, const exl2__config *config)
{
    exl2__tensors t, originals;
    uint64_t numbers = 0, wanted = 0;
    CHECK_INT(tensors_open(c, out_dir, &t), EXL2_OK);
    CHECK_INT(tensors_open(c, folder, &originals), EXL2_OK);
    for (uint32_t i = 0; i < t.count; i++) {
        const exl2__tensor *got = &t.entries[i];
        uint32_t row;
        const exl2__tensor *original = find_original(&originals, config, got->name, &row);
        numbers += count_of(got);
        if (!CHECK(original != NULL)) {
            printf("  no tensor %s\n", got->name);
        } else {
            check_tensor(c, &t, got, &originals, original, row);
        }
    }
    for (uint32_t i = 0; i < originals.count; i++) {
        wanted += count_of(&originals.entries[i]);
    }
    CHECK_INT(numbers, wanted);
    exl2__tensors_close(c, &t);
    exl2__tensors_close(c, &originals);
}

static void check_family(const char *folder)
{
    exl2__ctx c = { 0 };
    exl2_import_info info = { 0 };
    static exl2__config got, wanted;
    char path[1200];
    snprintf(path, sizeof path, "%s/model.gguf", folder);
    exl2_import_desc d = { .gguf_path = path, .out_dir = out_dir, .bits = 16, .info = &info };
    c.allocator = exl2__platform_allocator();
    c.files = exl2__platform_files();
    printf("%s\n", folder);
    if (!CHECK_INT(exl2__import_gguf(&c, &d), EXL2_OK) || !CHECK_INT(exl2__config_read(&c, folder, &wanted), EXL2_OK) ||
        !CHECK_INT(exl2__config_read(&c, out_dir, &got), EXL2_OK)) {
        printf("  %s\n", c.error.text);
        return;
    }
    check_config(&got, &wanted);
    check_tensors(&c, folder, &wanted);
    CHECK_TEXT(info.arch, wanted.arch_name);
    CHECK_TEXT(info.tokenizer, "none");
    CHECK(strstr(info.warning, "no tokenizer") != NULL);
    CHECK(info.bits == 16 && info.tensors > 10);
    CHECK(exl2__folder_remove(out_dir));
    CHECK_INT(c.host_bytes, 0);
}

int main(void)
{
    static const char *const folders[] = { "llama3-rope", "qwen2", "gemma3-six", "phi3-longrope", "granite", "glm4",
                                           "cohere", "mixtral", "qwen3-moe" };
    const char *temporary = getenv("TMPDIR");
    snprintf(out_dir, sizeof out_dir, "%s/exl2-families-%llx", temporary && *temporary ? temporary : "/tmp",
             (unsigned long long)exl2__platform_entropy(out_dir));
    check_family(EXL2_GOLDEN_DIR "/models/granite");
    for (size_t i = 0; i < EXL2__COUNT(folders); i++) {
        char relative[200];
        snprintf(relative, sizeof relative, "fixtures/arch/%s", folders[i]);
        check_family(check_shared(relative));
    }
    return check_done();
}
