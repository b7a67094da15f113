/* cuda_model.c: upload of weights over the fake driver: every word and row of the files goes through the staging buffer
   to the kernels that pack it, once; columns of gate and up are stored in the order of down's rows; the predicted bytes
   are allocated; the staging buffer is small and is freed afterwards; parts with different permutations get maps of
   their own; the cap on device memory is kept. */
#define EXL2__CUDA_STAGING_BYTES 9000u /* several staged blocks for each part, and slices that end inside a block */

#include "../../exl2.h"

#include "private/model_config_read.h"
#include "private/weights_load.h"
#include "private/cuda.h"
#include "../../kernels_src/probe_args.h"
#include "../check.h"
#include "../device/fake_driver.h"
#include "../mixed_model.h"
#include "../tensors_open.h"
#include "../weights_measure.h"

#define PARTS_MAX 128
#define PAGES 4u

static const fake_kernel kernels[] = { EXL2__KERNELS(FAKE_KERNEL_ROW) };

/* ---- arguments of the kernels in shuffle.cu ---- */

typedef struct packed {
    uint64_t base;     /* address of the part */
    uint8_t *rows;     /* [count, row_bytes] as received */
    uint8_t *times;    /* [count] how often each row arrived */
    uint32_t count, next_strip;
    uint64_t row_bytes;
    uint16_t *order;   /* [row_bytes / 4] the stored column of each column, as all launches got it; NULL: natural */
    bool good, ordered; /* ordered: a launch has set `order` */
} packed;

static packed parts[PARTS_MAX];
static uint32_t part_count, launches;

static packed *part_of(uint64_t base, uint64_t row_bytes)
{
    for (uint32_t i = 0; i < part_count; i++) {
        if (parts[i].base == base) {
            return &parts[i];
        }
    }
    CHECK(part_count < PARTS_MAX);
    packed *p = &parts[part_count++];
    *p = (packed){ .base = base, .row_bytes = row_bytes, .count = 2048, .good = true };
    p->rows = calloc(p->count, row_bytes);
    p->times = calloc(p->count, 1);
    return p;
}

/* Receives row `row` of the part, which is row `at` of the staging buffer. */
static void receive(packed *p, uint64_t source, uint32_t row, uint32_t at)
{
    const void *from = fake_memory(source + at * p->row_bytes, p->row_bytes);
    if (!from || row >= p->count) {
        p->good = false;
        return;
    }
    memcpy(p->rows + row * p->row_bytes, from, p->row_bytes);
    p->times[row]++;
}

/* All launches for a part get the same order. */
static void receive_order(packed *p, const exl2k_shuffle_args *a)
{
    const uint16_t *order = a->columns_from ? fake_memory(a->columns_from, a->columns * 2u) : NULL;
    CHECK((order != NULL) == (a->columns_from != 0));
    if (!p->ordered && order) {
        p->order = memcpy(malloc(a->columns * 2u), order, a->columns * 2u);
    }
    p->good = p->good && (order != NULL) == (p->order != NULL);
    p->good = p->good && (!order || memcmp(order, p->order, a->columns * 2u) == 0);
    p->ordered = true;
}

static void run_codes(const exl2k_shuffle_args *a, uint32_t grid_x, uint32_t grid_y)
{
    static const uint32_t bits[] = { 2, 3, 4, 5, 6, 8 };
    packed *p = part_of(a->base, a->columns * 4u);
    CHECK_INT(grid_x, a->columns / 32);
    receive_order(p, a);
    for (uint32_t i = 0; i < grid_y; i++) {
        const exl2k_chunk *chunk = fake_memory(a->chunks + (a->chunk + i) * sizeof *chunk, sizeof *chunk);
        if (!CHECK(chunk && chunk->word >= a->first)) {
            return;
        }
        for (uint32_t w = 0; w < chunk->halves * bits[chunk->width]; w++) {
            receive(p, a->source, chunk->word + w, chunk->word + w - a->first);
        }
    }
}

static void run_dense(const exl2k_shuffle_args *a, uint32_t grid_x)
{
    packed *p = part_of(a->base, (uint64_t)a->inputs * (a->type == EXL2K_FROM_F32 ? 4 : 2));
    CHECK_INT(a->first, 16 * p->next_strip);
    CHECK(a->rows <= 16 * grid_x);
    p->next_strip += grid_x;
    for (uint32_t row = 0; row < a->rows; row++) {
        receive(p, a->source, a->first + row, row);
    }
}

static void run(const char *function, const void *arguments, const unsigned grid[3])
{
    if (strcmp(function, "exl2k_shuffle_codes") == 0) {
        run_codes(arguments, grid[0], grid[1]);
        launches++;
    } else if (strcmp(function, "exl2k_shuffle_scales") == 0) {
        const exl2k_shuffle_args *a = arguments;
        receive_order(part_of(a->base, a->columns * 4u), a);
    } else if (strcmp(function, "exl2k_shuffle_dense") == 0) {
        run_dense(arguments, grid[0]);
        launches++;
    }
}

/* ---- a model ---- */

static struct rig {
    exl2__ctx c;
    exl2_files files;
    uint64_t swap_at, swap_bytes, reads; /* bytes of a permutation whose first two entries are swapped */
    exl2__cuda_device gpu;
    exl2__device *d;
    exl2__weights load;
    exl2__plan plan;
    exl2__arena none, scratch;
    exl2__layer layers[8];
    exl2__matrix *experts[64];
    double frequency[128];
    exl2__rope_angles ropes[2];
} rig;

static int64_t read_swapped(void *user, void *file, uint64_t offset, void *dst, size_t bytes)
{
    int64_t got = rig.files.read(user, file, offset, dst, bytes);
    rig.reads++;
    if (rig.swap_bytes && offset == rig.swap_at && bytes == rig.swap_bytes && got == (int64_t)bytes) {
        uint32_t *values = dst, first = values[0];
        values[0] = values[1];
        values[1] = first;
    }
    return got;
}

static void rig_make(uint64_t device_bytes_max)
{
    exl2__cuda_settings settings = { .device_bytes_max = device_bytes_max };
    fake_reset();
    fake.kernels = kernels;
    fake.kernel_count = EXL2__COUNT(kernels);
    fake.run = run;
    fake.devices[0].shared_optin = 232448; /* as an H200 has */
    for (uint32_t i = 0; i < part_count; i++) {
        free(parts[i].rows);
        free(parts[i].times);
        free(parts[i].order);
    }
    memset(&rig, 0, sizeof rig);
    part_count = launches = 0;
    rig.files = exl2__platform_files();
    rig.c.allocator = exl2__platform_allocator();
    rig.c.files = rig.files;
    rig.c.files.read = read_swapped;
    rig.gpu.driver = fake_driver();
    rig.gpu.compiler.nvrtc = fake_nvrtc();
    CHECK_INT(exl2__cuda_device_open(&rig.c, &rig.gpu, &settings), EXL2_OK);
}

/* As 7_engine/loading.h does. */
static exl2_result rig_load(const char *path)
{
    const exl2__backend *b = &exl2__cuda_backend;
    exl2__arena dry[2] = { { 0 }, { 0 } };
    EXL2__TRY(exl2__config_read(&rig.c, path, &rig.load.config));
    EXL2__TRY(b->open(&rig.c, &rig.gpu, &rig.d));
    EXL2__TRY(weights_measure(&rig.c, &rig.load, path, b, rig.d));
    exl2__plan_make(&rig.plan, &rig.load.config, rig.load.embed_rows, 128, 16, 2);
    rig.plan.shape.affine = rig.load.has_affine;
    rig.plan.shape.exl3 = rig.load.has_exl3;
    rig.plan.shape.mixes_exl3 = rig.load.mixes_exl3;
    rig.plan.shape.exl3_experts = rig.load.has_exl3 && !rig.load.plain_experts;
    exl2__plan_ropes(&rig.plan, &rig.load.config, rig.frequency, rig.ropes);
    rig.plan.layers = rig.layers;
    rig.plan.pages = PAGES;
    exl2__plan_layers(&rig.plan, &rig.load.config, rig.layers);
    CHECK(exl2__plan_expert_pointers(&rig.load.config) <= EXL2__COUNT(rig.experts));
    exl2__plan_experts(&rig.load.config, rig.experts, rig.layers);
    EXL2__TRY(b->prepare(rig.d, &rig.plan, &dry[0], &dry[1]));
    rig.reads = 0;
    exl2_result r = EXL2_PENDING;
    while (r == EXL2_PENDING) { /* compiles a few kernels at a time */
        EXL2__TRY(r = b->memory->reserve(rig.d, &rig.load.weight_bytes));
    }
    EXL2__TRY(exl2__weights_begin(&rig.c, &rig.load));
    r = EXL2_PENDING;
    while (r == EXL2_PENDING) {
        exl2__work work = exl2__work_slice();
        EXL2__TRY(r = exl2__weights_slice(&rig.c, &rig.load, &rig.plan, b, rig.d, &rig.none, &work));
    }
    EXL2__TRY(exl2__arena_open(&rig.c, &rig.scratch, 4096, EXL2_MEM_SCRATCH));
    return b->prepare(rig.d, &rig.plan, &rig.none, &rig.scratch);
}

static void rig_end(void)
{
    exl2__weights_close(&rig.c, &rig.load);
    exl2__cuda_backend.close(rig.d);
    exl2__arena_close(&rig.c, &rig.scratch);
    CHECK_INT(rig.gpu.bytes, 0);
    exl2__cuda_device_close(&rig.gpu);
    CHECK_INT(rig.c.host_bytes, 0);
    CHECK_INT(fake_leaks(), 0);
    CHECK_INT(fake.allocated, 0);
}

static const char *golden(const char *name)
{
    static char path[1024];
    const char *dir = check_env("EXL2_GOLDEN_DIR") ? check_env("EXL2_GOLDEN_DIR") : EXL2_GOLDEN_DIR;
    snprintf(path, sizeof path, "%s/models/%s", dir, name);
    return path;
}

/* ---- checks ---- */

/* The part equals its tensor, and each row arrived once. */
static void check_part(const exl2__cuda_matrix *m, uint32_t index, const exl2__matrix_desc *desc)
{
    const exl2__tensor *data = desc->data;
    uint32_t rows = exl2__weights_rows(desc), wrong = 0;
    uint64_t row_bytes = exl2__weights_row_bytes(desc);
    uint8_t *wanted = malloc(rows * row_bytes);
    CHECK_INT(exl2__tensors_read(&rig.c, &rig.load.tensors, data, 0, wanted, rows * row_bytes), EXL2_OK);
    packed *p = part_of(m->device.part[index].base, row_bytes);
    CHECK(p->good && p->row_bytes == row_bytes && rows <= p->count);
    for (uint32_t row = 0; row < p->count; row++) {
        wrong += p->times[row] != (row < rows);
    }
    CHECK_INT(wrong, 0);
    CHECK(memcmp(p->rows, wanted, rows * row_bytes) == 0);
    if (desc->kind == EXL2__MATRIX_DENSE) {
        CHECK_INT(p->next_strip, m->device.part[index].strips);
    }
    free(wanted);
}

/* Columns of gate and up are stored in the order of down's rows, those of all others in their own. */
static void check_order(const exl2__cuda_matrix *m, uint32_t index, const exl2__unit *u, const exl2__matrix_desc *desc)
{
    const packed *p = part_of(m->device.part[index].base, exl2__weights_row_bytes(desc));
    char key[96];
    snprintf(key, sizeof key, "model.layers.%u.mlp.down_proj.q_invperm", (unsigned)u->layer);
    const exl2__tensor *down = exl2__tensors_find(&rig.load.tensors, key);
    if (!CHECK_INT(p->order != NULL, u->kind == EXL2__UNIT_GATE_UP && down) || !p->order) {
        return;
    }
    uint32_t inverse[2048], wrong = 0;
    CHECK_INT(desc->out_stored, desc->out);
    CHECK(down->bytes == desc->out * 4u && down->bytes <= sizeof inverse);
    CHECK_INT(exl2__tensors_read(&rig.c, &rig.load.tensors, down, 0, inverse, desc->out * 4u), EXL2_OK);
    for (uint32_t i = 0; i < desc->out; i++) {
        wrong += p->order[inverse[i]] != i;
    }
    CHECK_INT(wrong, 0);
    CHECK(exl2__cuda_inputs(rig.layers[u->layer].matrix[EXL2__ROLE_DOWN]) == 0);
}

static exl2__matrix **unit_place(uint32_t index)
{
    exl2__unit u;
    exl2__unit_make(&rig.load.config, index, &u);
    return exl2__weights_place(&rig.load, &u, &rig.plan);
}

static void check_unit(uint32_t index)
{
    exl2__unit u;
    exl2__matrix_desc descs[3];
    const exl2__cuda_matrix *m = exl2__cuda_matrix_of(*unit_place(index));
    CHECK_INT(exl2__weights_find(&rig.c, &rig.load, index, &u, descs), EXL2_OK);
    for (uint32_t i = 0; i < m->device.parts; i++) {
        check_part(m, i, &descs[i]);
        check_order(m, i, &u, &descs[i]);
    }
    if (m->table) {
        const exl2__tensor *data = exl2__matrix_data(&rig.load.tensors, descs[0].name, true);
        uint64_t bytes = descs[0].out * exl2__weights_row_bytes(&descs[0]);
        uint8_t *wanted = malloc(bytes);
        CHECK_INT(exl2__tensors_read(&rig.c, &rig.load.tensors, data, 0, wanted, bytes), EXL2_OK);
        CHECK(memcmp(fake_memory(m->table, bytes), wanted, bytes) == 0);
        free(wanted);
    }
}

/* Parks the model and loads it again from its copy, at another address: the same bytes, and all addresses moved
   alike. */
static void check_park(void)
{
    const exl2__backend *b = &exl2__cuda_backend;
    exl2__cuda_model *m = exl2__cuda_of(rig.d);
    uint64_t used = m->weights.used, before = m->weights.base, host = rig.c.host_bytes, other;
    uint8_t *wanted = malloc(used);
    exl2__cuda_matrix first = *exl2__cuda_matrix_of(rig.layers[0].matrix[EXL2__ROLE_QKV]), *moved = NULL;
    uint64_t norm = exl2__cuda_values(rig.layers[0].attn_norm.weight);
    memcpy(wanted, fake_memory(before, used), used);
    exl2_result r = EXL2_PENDING;
    uint32_t slices = 0;
    for (; r == EXL2_PENDING; slices++) {
        exl2__work work = exl2__work_slice();
        r = b->memory->keep_packed(rig.d, &work);
    }
    CHECK_INT(r, EXL2_OK);
    CHECK(rig.c.host_bytes > host + used && rig.c.host_bytes < host + used + 4096);
    b->memory->drop(rig.d);
    CHECK_INT(rig.gpu.bytes, 0);
    CHECK_INT(exl2__cuda_device_enter(&rig.gpu), EXL2_OK);
    CHECK_INT(exl2__cuda_device_alloc(&rig.gpu, 4096, EXL2_MEM_KV, &other), EXL2_OK); /* takes the old place */
    exl2__cuda_device_leave(&rig.gpu);
    while ((r = b->memory->reserve(rig.d, &rig.load.weight_bytes)) == EXL2_PENDING) {
    }
    CHECK_INT(r, EXL2_OK);
    uint64_t by = m->weights.base - before;
    CHECK(by != 0);
    for (r = EXL2_PENDING; r == EXL2_PENDING;) {
        exl2__work work = exl2__work_slice();
        r = b->memory->restore(rig.d, &work);
    }
    CHECK_INT(r, EXL2_OK);
    CHECK_INT(m->weights.used, used);
    CHECK(memcmp(fake_memory(m->weights.base, used), wanted, used) == 0);
    moved = (exl2__cuda_matrix *)(uintptr_t)exl2__cuda_matrix_of(rig.layers[0].matrix[EXL2__ROLE_QKV]);
    for (uint32_t i = 0; i < first.device.parts; i++) {
        CHECK_INT(moved->device.part[i].base, first.device.part[i].base + by);
        CHECK_INT(moved->device.part[i].chunks, first.device.part[i].chunks + by);
        CHECK_INT(moved->device.part[i].bias, first.device.part[i].bias ? first.device.part[i].bias + by : 0);
        CHECK_INT(moved->order.inputs[i], first.order.inputs[i] ? first.order.inputs[i] + by : 0);
    }
    CHECK_INT(exl2__cuda_values(rig.layers[0].attn_norm.weight), norm + by);
    uint64_t table = exl2__cuda_matrix_of(rig.plan.embed)->table;
    CHECK(table >= m->weights.base && table < m->weights.base + used);
    CHECK_INT(exl2__cuda_device_enter(&rig.gpu), EXL2_OK);
    exl2__cuda_device_free(&rig.gpu, other, 4096, EXL2_MEM_KV);
    exl2__cuda_device_leave(&rig.gpu);
    rig.scratch.used = 0;
    CHECK_INT(b->prepare(rig.d, &rig.plan, &rig.none, &rig.scratch), EXL2_OK);
    CHECK_INT(rig.gpu.bytes, m->weights.size + m->pass_memory.size);
    free(wanted);
}

static void test_model(const char *name, bool swap)
{
    rig_make(0);
    if (swap) {
        exl2__tensors t;
        CHECK_INT(tensors_open(&rig.c, golden(name), &t), EXL2_OK);
        const exl2__tensor *perm = exl2__tensors_find(&t, "model.layers.0.self_attn.k_proj.q_invperm");
        rig.swap_at = perm->offset;
        rig.swap_bytes = perm->bytes;
        exl2__tensors_close(&rig.c, &t);
    }
    exl2_result r = rig_load(golden(name));
    if (!CHECK_INT(r, EXL2_OK)) {
        printf("  %s: %s\n", name, rig.c.error.text);
        rig_end();
        return;
    }
    exl2__cuda_model *m = exl2__cuda_of(rig.d);
    uint64_t slack = 0; /* bytes reserved for maps that turned out not to be needed */
    for (uint32_t index = 0; index < exl2__weights_units(&rig.load); index++) {
        const exl2__cuda_matrix *w = exl2__cuda_matrix_of(*unit_place(index));
        bool two = w->device.parts > 1 && !w->feed[0].dense;
        slack += two && !w->order.apart ? (w->device.parts - 1) * exl2__cuda_round(w->in * sizeof(uint16_t)) : 0;
        CHECK_INT(w->order.apart, swap && index == 1);
        check_unit(index);
    }
    CHECK_INT(m->weights.used + slack, m->weights.size);
    CHECK_INT(m->weights.size, rig.load.weight_bytes);
    CHECK_INT(m->staging, 0);
    CHECK_INT(rig.gpu.bytes, m->weights.size + m->pass_memory.size);
    CHECK(rig.gpu.peak <= rig.gpu.bytes + 2 * EXL2__CUDA_STAGING_BYTES);
    CHECK(launches > part_count); /* each part was staged in several blocks */
    if (swap) {
        const exl2__cuda_matrix *w = exl2__cuda_matrix_of(rig.layers[0].matrix[EXL2__ROLE_QKV]);
        const uint16_t *q = fake_memory(w->order.inputs[0], w->in * 2), *k = fake_memory(w->order.inputs[1], w->in * 2);
        CHECK(w->order.apart && q && k);
        CHECK(q[0] == k[1] && q[1] == k[0] && memcmp(q + 2, k + 2, (w->in - 2) * 2) == 0);
    }
    check_park();
    rig_end();
}

/* ---- blocks of several kinds ---- */

/* The matrix of a unit on the device; of an expert as it was uploaded. */
static exl2k_matrix device_matrix(const exl2__unit *u)
{
    exl2__matrix *handle = *exl2__weights_place(&rig.load, u, &rig.plan);
    if (!exl2__weights_is_expert(u)) {
        return exl2__cuda_matrix_of(handle)->device;
    }
    const exl2__cuda_experts *e = (const exl2__cuda_experts *)(const void *)handle;
    const exl2k_expert *expert = fake_memory(e->device + u->expert * sizeof *expert, sizeof *expert);
    return u->kind == EXL2__UNIT_EXPERT_DOWN ? expert->down : expert->up;
}

/* The first of the model's matrices that the unit holds. */
static uint32_t first_matrix(const exl2__unit *u)
{
    bool down = u->kind == EXL2__UNIT_DOWN || u->kind == EXL2__UNIT_EXPERT_DOWN;
    return u->kind == EXL2__UNIT_QKV ? 0 : u->kind == EXL2__UNIT_OUT ? 3 : 4 + 3 * u->expert + (down ? 2 : 0);
}

/* A trellis lies on the device as in the file. column: where its results begin in the product's. */
static bool same_trellis(const mixed_model *x, const exl2__matrix_desc *d, const exl2__cuda_exl3 *made, uint32_t part,
                         uint32_t column)
{
    const exl2k_exl3_part *p = &made->part[part];
    const void *words = fake_memory(p->trellis, d->data->bytes), *suh = fake_memory(p->suh, 256);
    const void *svh = fake_memory(p->svh, 256);
    return words && suh && svh && memcmp(words, x->file + d->data->offset, d->data->bytes) == 0
        && memcmp(suh, x->file + d->exl3.in_scales->offset, 256) == 0
        && memcmp(svh, x->file + d->exl3.out_scales->offset, 256) == 0
        && p->columns == d->out && p->column == column && p->rate == d->exl3.words / 8;
}

/* Every dense matrix on the device has the weights of the file formats, whatever the file holds, in natural order; a
   matrix with codes has them in the order of `down`. Parts beside EXL3 are matrices of their own. The memory is what
   the plan says. */
static void test_mixed(const char *first, const char *second, const char *config, bool experts, uint32_t dequantized)
{
    static mixed_model x;
    memset(&x, 0, sizeof x);
    x.kinds[0] = first;
    x.kinds[1] = second;
    x.config = config;
    x.experts = experts;
    x.state = 3;
    mixed_make(&x);
    rig_make(0);
    rig.c.files = mixed_files(&x);
    exl2_result r = rig_load("mixed");
    if (!CHECK_INT(r, EXL2_OK)) {
        printf("  %s %s: %s\n", first, second, rig.c.error.text);
        rig_end();
        mixed_free(&x);
        return;
    }
    CHECK_INT(rig.load.dequantized, dequantized);
    exl2__cuda_model *m = exl2__cuda_of(rig.d);
    uint64_t slack = 0;
    uint32_t wrong = 0, found = 0;
    bool down_codes = false;
    for (uint32_t index = 1; index < exl2__weights_units(&rig.load); index++) {
        exl2__unit u;
        exl2__matrix_desc descs[3];
        CHECK_INT(exl2__weights_find(&rig.c, &rig.load, index, &u, descs), EXL2_OK);
        if (u.kind == EXL2__UNIT_ROUTER) {
            continue;
        }
        const exl2__cuda_matrix *made = exl2__cuda_matrix_of(*exl2__weights_place(&rig.load, &u, &rig.plan));
        bool is_expert = exl2__weights_is_expert(&u), alone = !is_expert && made->alone[0], natural = false;
        exl2k_matrix matrix = device_matrix(&u);
        uint32_t column = 0;
        bool up = u.kind == EXL2__UNIT_GATE_UP || u.kind == EXL2__UNIT_EXPERT_UP, codes = false;
        for (uint32_t i = 0; i < u.count; column += descs[i++].out) {
            const exl2__matrix_desc *d = &descs[i];
            const exl2__cuda_matrix *own = alone ? made->alone[i] : made;
            natural = (d->uses & EXL2__USE_NATURAL) != 0;
            if (exl2__matrix_is_exl3(d->kind)) {
                CHECK(same_trellis(&x, d, &own->exl3, alone ? 0 : i, up && !alone ? 0 : column));
                CHECK(own->exl3.parts == (alone ? 1 : u.count) && own->device.parts == 0);
                continue;
            }
            exl2k_part part = alone ? own->device.part[0] : matrix.part[i];
            CHECK_INT(alone ? own->device.parts : matrix.parts, alone ? 1 : u.count);
            CHECK(!alone || part.column == column);
            const packed *p = part_of(part.base, exl2__weights_row_bytes(d));
            codes = d->kind != EXL2__MATRIX_DENSE;
            CHECK(is_expert || own->natural == (alone || natural));
            CHECK(is_expert || !own->natural || codes == (own->order.inputs[0] != 0));
            CHECK(alone || i == 0 || codes == (descs[0].kind != EXL2__MATRIX_DENSE));
            CHECK_INT(p->order != NULL, up && codes && down_codes);
            CHECK(!up || codes || !down_codes);
            found += d->dequantized;
            for (uint32_t n = 0; !codes && n < d->out; n++) {
                const uint16_t *row = (const uint16_t *)(const void *)(p->rows + n * p->row_bytes);
                const double *w = x.w[u.layer][first_matrix(&u) + i] + (size_t)n * d->in;
                wrong += p->times[n] != 1;
                for (uint32_t k = 0; k < d->in; k++) {
                    float got = d->dtype == EXL2__BF16 ? exl2__bf16_to_f32(row[k]) : exl2__f16_to_f32(row[k]);
                    wrong += (double)got != w[k];
                }
            }
        }
        down_codes = up ? false : codes && !natural;
        bool split = !is_expert && made->order.apart;
        slack += codes && !split && !alone ? (u.count - 1) * exl2__cuda_round(u.in * sizeof(uint16_t)) : 0;
    }
    CHECK_INT(wrong, 0);
    CHECK_INT(found, dequantized);
    CHECK_INT(m->weights.used + slack, m->weights.size);
    CHECK_INT(m->weights.size, rig.load.weight_bytes);
    CHECK_INT(rig.gpu.bytes, m->weights.size + m->pass_memory.size);
    rig_end();
    mixed_free(&x);
}

static void test_kinds(void)
{
#define GPTQ ",\"quantization_config\":{\"quant_method\":\"gptq\",\"dynamic\":{\"-:.*down_proj\":{}},\"group_size\":32}"
#define AWQ ",\"quantization_config\":{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":32}"
    test_mixed("ggggggg", "aaaaaaa", GPTQ, false, 0);
    test_mixed("ggggggd", "aaaaaad", GPTQ, false, 0);       /* down_proj and o_proj may be dense as they are */
    test_mixed("gggdggg", "dddaddd", GPTQ, false, 0);
    test_mixed("ggdgggg", "aadaaaa", GPTQ, false, 4);       /* v_proj: q and k are dequantized */
    test_mixed("ggggddg", "aaaadda", GPTQ, false, 2);       /* down alone is quantized */
    test_mixed("ggggdgg", "aaaaaba", GPTQ, false, 4);       /* gate or up: the other and down */
    test_mixed("8d3g2d8", "23dd8d3", GPTQ, false, 8);       /* every width */
    test_mixed("eegeged", "geddeea", GPTQ, false, 7);       /* EXL2 beside GPTQ */
    test_mixed("eedeede", "eeeedde", "", false, 5);
    test_mixed("wwdwwww", "wwwdwdw", AWQ, false, 4);
    test_mixed("dwwwwwd", "wwdwddw", AWQ, false, 5);
    test_mixed("ttttttt", "mtmmmtm", "", false, 0);
    test_mixed("teettet", "ettette", "", false, 0);         /* EXL3 beside EXL2: nothing is dequantized */
    test_mixed("tdetbte", "etdemde", "", false, 0);
    test_mixed("eeettte", "eeedttd", "", false, 0);
    test_mixed("tggatga", "agt2m83", GPTQ, false, 0);
    test_mixed("tggdgda", "agd2m83", GPTQ, false, 4);       /* without EXL3 beside them as before */
    test_mixed("gggggggggggggggg", "ddddgggggggggggg", GPTQ, true, 0);
    test_mixed("ggggggdggdggdggd", "ggggggggggggdddg", GPTQ, true, 17); /* all affine experts of a layer, or none */
    test_mixed("eeeeeeeeedeedeee", "eeeedddddedddeee", "", true, 1);
#undef GPTQ
#undef AWQ
}

/* With a cap one byte below what the model needs, it is rejected before its weights are read. With exactly that cap, it
   loads. */
static void test_cap(void)
{
    rig_make(0);
    CHECK_INT(rig_load(golden("exl2-mixed")), EXL2_OK);
    uint64_t ready = rig.gpu.bytes, peak = rig.gpu.peak;
    rig_end();
    rig_make(ready - 1);
    CHECK_INT(rig_load(golden("exl2-mixed")), EXL2_ERR_BUDGET);
    CHECK(strstr(rig.c.error.text, "but its cap of"));
    CHECK_INT(rig.reads, 0);
    CHECK_INT(fake.allocated, 0);
    rig_end();
    rig_make(peak);
    CHECK_INT(rig_load(golden("exl2-mixed")), EXL2_OK);
    rig_end();
}

/* An allocation that the driver rejects gives its code and a message, whichever allocation it is. */
static void test_refused(void)
{
    uint32_t refused = 0;
    bool failed = true;
    for (uint32_t call = 1; failed; call++) {
        rig_make(0);
        fake.fail_code = EXL2__CUDA_OUT_OF_MEMORY;
        fake.fail_at = call;
        exl2_result r = rig_load(golden("exl2-4bit"));
        failed = fake.failed[0] != 0;
        CHECK(r == EXL2_OK || (r < 0 && strlen(rig.c.error.text) > 20));
        if (strcmp(fake.failed, "cuMemAlloc") == 0) {
            CHECK_INT(r, EXL2_ERR_DEVICE_MEMORY);
            refused++;
        }
        rig_end();
    }
    CHECK(refused >= 3); /* at least the weights, the staging buffer, the memory of passes */
}

/* Shapes for which the backend has no kernels are rejected with a sentence that names what is missing. */
static void test_unsupported(void)
{
    const exl2__shape shapes[] = {
        { .experts.count = 8, .post_norms = true },
        { .experts.count = 8, .parallel = true },
        { .affine = true, .act = EXL2__ACT_CLAMPED },
        { .parallel = true, .post_norms = true },
        { .experts.count = 8, .act = EXL2__ACT_CLAMPED },
    };
    static const char *const missing[] = { "experts with norms after their blocks", "experts in parallel blocks",
                                           "clamped activations of GPTQ and AWQ matrices",
                                           "norms after parallel blocks", NULL };
    for (uint32_t i = 0; i < EXL2__COUNT(shapes); i++) {
        char wanted[160];
        rig_make(0);
        CHECK_INT(exl2__cuda_backend.open(&rig.c, &rig.gpu, &rig.d), EXL2_OK);
        CHECK_INT(exl2__cuda_backend.supports(rig.d, &shapes[i]), missing[i] ? EXL2_ERR_UNSUPPORTED : EXL2_OK);
        snprintf(wanted, sizeof wanted, "the CUDA backend does not compute %s; EXL2_BACKEND_CPU does",
                 missing[i] ? missing[i] : "");
        CHECK(!missing[i] || strcmp(rig.c.error.text, wanted) == 0);
        rig_end();
    }
}

int main(void)
{
    test_unsupported();
    test_model("exl2-mixed", false);
    test_model("exl2-4bit", false);
    test_model("llama3-rope", false);
    test_model("exl2-4bit", true);
    test_kinds();
    test_cap();
    test_refused();
    fake_reset();
    return check_done();
}
