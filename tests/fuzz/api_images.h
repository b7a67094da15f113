/* api_images.h: operations on pictures, and the pictures of a job. What a picture is depends on its recipe alone: its
   pixels come from a seed. So its id, what the tower sees and its rows must be the same in every model of a folder.
   takes: the shadow model, api.random of the operation; the shared fixtures, without which no model sees.
   gives: api_op_image, api_aim_images, api_hear_image, api_make_image; api_forget_images.
   owns:  nothing; records belong to the shadow model. */
#ifndef API_IMAGES_H
#define API_IMAGES_H

#include "api_jobs.h"

#define API_SIDE 96u       /* the longest side of a picture, but for wrong ones */
#define API_FRAMES_MAX 4u  /* of a video */
#define API_ROWS 8192u     /* floats of the rows of a picture */
#define API_PIXELS ((API_SIDE + 8) * API_SIDE * API_FRAMES_MAX * 4)
#define API_SEEN 200000u   /* bytes that a tower sees */

/* ---- what is known of a recipe ---- */

static api_look *api_look_of(uint32_t folder, const api_recipe *r)
{
    for (uint32_t i = 0; i < API_LOOKS; i++) {
        api_look *look = &api.looks_of[i];
        bool free = look->folder == 0;
        if (free || (look->folder == folder && memcmp(&look->recipe, r, sizeof *r) == 0)) {
            look->recipe = *r;
            look->folder = folder;
            return look;
        }
    }
    memset(api.looks_of, 0, sizeof api.looks_of); /* full: what comes is compared with what comes later */
    return api_look_of(folder, r);
}

/* A hash that is the same whenever it is asked for. */
static void api_look_same(uint64_t *known, uint64_t now, const char *what)
{
    API_MUST(!*known || *known == now, "%s of a picture are other ones than before", what);
    *known = now;
}

/* ---- making ---- */

/* videos: the model reads them. */
static api_recipe api_make_recipe(bool videos)
{
    static const uint32_t sides[] = { 1, 16, 33, 64, 64, 64, 96 };
    api_recipe r = { 0 };
    r.seed = 1 + api_draw(2); /* few, so that pictures are made again */
    r.width = sides[api_draw(EXL2__COUNT(sides))];
    r.height = api_chance(3) ? sides[api_draw(EXL2__COUNT(sides))] : r.width;
    r.max_tiles = api_chance(4) ? 1 + api_draw(2) : 0;
    r.gray = api_chance(4);
    r.frames = videos && api_chance(4) ? 1 + api_draw(API_FRAMES_MAX) : 0;
    return r;
}

/* Pixels of the recipe in some format and stride, and a desc that points to them. */
static exl2_image_desc api_image_desc(const api_recipe *r, exl2_model m, bool plain)
{
    static uint8_t pixels[API_PIXELS];
    exl2_image_desc d = { .model = m, .width = r->width, .height = r->height, .max_tiles = r->max_tiles };
    uint64_t random = r->seed;
    d.frames = r->frames;
    d.fps = r->frames ? 2 : 0;
    d.format = plain ? EXL2_PIXELS_RGB8 : r->gray && api_chance(2) ? EXL2_PIXELS_GRAY8 : (exl2_pixels)api_draw(5);
    uint32_t bytes = d.format == EXL2_PIXELS_GRAY8 ? 1 : d.format == EXL2_PIXELS_RGB8 ? 3 : 4;
    uint32_t line = r->width * bytes + (plain ? 0 : api_draw(3) * 4), height = r->height;
    bool up = !plain && api_chance(4), blue = d.format == EXL2_PIXELS_BGRA8 || d.format == EXL2_PIXELS_BGRX8;
    for (uint32_t i = 0; i < height * exl2__max32(r->frames, 1); i++) {
        uint32_t y = up ? height - 1 - i % height : i % height;
        uint8_t *to = pixels + (size_t)(i / height * height + y) * line;
        for (uint32_t x = 0; x < r->width; x++, to += bytes) {
            uint64_t color = api_next(&random);
            for (uint32_t c = 0; c < 3 && c < bytes; c++) {
                to[blue ? 2 - c : c] = (uint8_t)(r->gray ? color : color >> 8 * c);
            }
            if (bytes == 4) {
                to[3] = 255;
            }
        }
    }
    d.stride = up ? -(int64_t)line : (int64_t)line;
    d.pixels = pixels;
    return d;
}

static exl2_flow api_hear_image(void *user, const exl2_event *event);

/* Makes the picture; its handle is 0 if that fails. */
static exl2_result api_make_image(exl2_model m, const api_recipe *r, api_image *record, exl2_image *out)
{
    bool plain = record == NULL;
    exl2_image_desc d = api_image_desc(r, m, plain);
    d.silent = plain || api_chance(3);
    d.on_event = !plain && api_chance(2) ? api_hear_image : NULL;
    d.user = record;
    *out = (exl2_image){ 0 };
    exl2_result result = API_CALL(image_make, exl2_image_make(api.e, &d, out));
    memset((void *)(uintptr_t)d.pixels, 0xEE, API_PIXELS); /* the call has copied them */
    API_MUST((result == EXL2_OK) == (out->id != 0), "exl2_image_make gives %s, and the handle %llu",
             exl2_result_name(result), (unsigned long long)out->id);
    return result;
}

static void api_forget_images(const api_model *m)
{
    for (uint32_t i = 0; i < API_IMAGES; i++) {
        api_image *image = &api.images[i];
        if (image->id && image->model == m) {
            exl2_result r = API_CALL(image_close, exl2_image_close(api.e, (exl2_image){ image->id }));
            API_MUST(r == EXL2_ERR_STALE, "a picture of a closed model gives %s", exl2_result_name(r));
            image->id = 0;
        }
    }
}

static api_image *api_pick_image(const api_model *m)
{
    api_image *picked = NULL;
    uint32_t count = 0;
    for (uint32_t i = 0; i < API_IMAGES; i++) {
        api_image *image = &api.images[i];
        if (image->id && (!m || image->model == m) && api_draw(++count) == 0) {
            picked = image;
        }
    }
    return picked;
}

/* ---- events ---- */

/* An IMAGE event of a callback or of the queue, which may be of a handle that was closed since. */
static void api_event_image(const exl2_event *event)
{
    API_MUST(event->image.id != 0, "an IMAGE event names no picture");
    API_MUST((event->result < 0) == (event->error != NULL), "IMAGE with %s", exl2_result_name(event->result));
    for (uint32_t i = 0; i < API_IMAGES; i++) {
        api_image *image = &api.images[i];
        if (image->id == event->image.id) {
            API_MUST(!image->ended, "an IMAGE event after the last one");
            API_MUST(event->result != EXL2_PENDING || !image->begun, "a picture begins twice");
            image->begun = true;
            image->ended = event->result != EXL2_PENDING;
        }
    }
}

static exl2_flow api_hear_image(void *user, const exl2_event *event)
{
    const api_image *image = (const api_image *)user;
    API_MUST(event->kind == EXL2_EVENT_IMAGE, "a picture has an event of kind %d", (int)event->kind);
    API_MUST(image->id == event->image.id, "an IMAGE event of a picture that is closed");
    api_event_image(event);
    if (api_chance(6)) {
        api.depth++;
        api_callback_operation(NULL, event);
        api.depth--;
    }
    return EXL2_STOP_JOB; /* must be ignored */
}

/* ---- looking ---- */

static void api_look_at_image(api_image *image)
{
    static uint8_t seen[API_SEEN];
    static float rows[API_ROWS];
    exl2_image handle = { image->id };
    exl2_image_info info;
    size_t need = 0;
    api_look *look = api_look_of(image->model->folder, &image->recipe);
    exl2_result r = API_CALL(image_get, exl2_image_get(api.e, handle, &info));
    API_MUST(r == EXL2_OK, "exl2_image_get of an open picture gives %s", exl2_result_name(r));
    bool known = image->rows > 0;
    API_MUST(!known || image->rows == info.rows, "a picture has %u rows, and had %u", info.rows, image->rows);
    API_MUST(!known || memcmp(image->name, info.id, sizeof info.id) == 0, "the handle of a picture names another one");
    image->rows = info.rows;
    memcpy(image->name, info.id, sizeof info.id);
    if (image->model->desc.vision.max_rows || image->model->desc.vision.max_tiles) {
        return; /* these change what the recipe gives */
    }
    api_look_same(&look->id, exl2__hash(info.id, sizeof info.id) | 1, "id and size");
    size_t cap = api_chance(4) ? api_draw(100) : sizeof seen;
    r = API_CALL(image_seen, exl2_image_seen(api.e, handle, seen, cap, &need));
    API_MUST(r != EXL2_OK || need <= cap, "exl2_image_seen is OK with %zu of %zu", need, cap);
    if (r == EXL2_OK) {
        api_look_same(&look->seen, exl2__hash(seen, need) | 1, "the bytes");
    }
    cap = api_chance(4) ? api_draw(100) : API_ROWS;
    r = API_CALL(image_rows, exl2_image_rows(api.e, handle, rows, cap, &need));
    API_MUST(r != EXL2_OK || (need <= cap && info.state == EXL2_IMAGE_ENCODED), "exl2_image_rows is OK with %zu of %zu",
             need, cap);
    API_MUST(r == EXL2_OK || r == EXL2_ERR_TOO_SMALL || info.state != EXL2_IMAGE_ENCODED,
             "exl2_image_rows of an encoded picture gives %s", exl2_result_name(r));
    if (r == EXL2_OK) {
        api_look_same(&look->rows, exl2__hash(rows, need * sizeof *rows) | 1, "the rows");
    }
}

/* Descs that cannot be, and models that cannot have pictures. */
static void api_wrong_image(api_model *m)
{
    static const struct { uint32_t width, height; int64_t stride; uint32_t format; } cases[] = {
        { 0, 8, 0, 0 }, { 8, 0, 0, 0 }, { 65536, 65536, 0, 1 }, { UINT32_MAX, UINT32_MAX, 0, 1 }, { 8, 8, 23, 0 },
        { 8, 8, -23, 0 }, { 8, 8, INT64_MAX, 0 }, { 8, 8, INT64_MIN, 0 }, { 8, 8, 0, 6 }, { 1, 100000, 0, 0 },
    };
    uint32_t which = api_draw(EXL2__COUNT(cases) + 6);
    api_recipe recipe = api_make_recipe(false);
    exl2_image_desc d = api_image_desc(&recipe, (exl2_model){ m ? m->id : 0 }, true);
    exl2_image out = { 0 };
    if (which < EXL2__COUNT(cases)) {
        d.width = cases[which].width;
        d.height = cases[which].height;
        d.stride = cases[which].stride;
        d.format = (exl2_pixels)cases[which].format;
    } else if (which == EXL2__COUNT(cases)) {
        d.pixels = NULL;
    } else if (which == EXL2__COUNT(cases) + 1) {
        d._end_canary = 1;
    } else if (which == EXL2__COUNT(cases) + 3) {
        static const double rates[] = { 0, -1, 1e9, (double)NAN, 0.0001 };
        d.frames = 1 + api_draw(3);
        d.fps = rates[api_draw(EXL2__COUNT(rates))];
    } else if (which == EXL2__COUNT(cases) + 4) {
        d.frames = 2;
        d.fps = 1;
        if (m && m->folder == API_QWEN) {
            d.frames = UINT32_MAX;
        }
    } else if (which == EXL2__COUNT(cases) + 2) {
        exl2_image_info info;
        d.width = 0;
        exl2_result r = API_CALL(image_measure, exl2_image_measure(api.e, &d, &info));
        API_MUST(r < 0, "exl2_image_measure of nothing gives %s", exl2_result_name(r));
        return;
    } else {
        d.model.id = api_pick_model(false) ? api_pick_model(false)->id : 77;
        api_model *of = api_find_model(d.model.id);
        if (of && of->desc.vision.images) {
            return;
        }
    }
    exl2_result r = API_CALL(image_make, exl2_image_make(api.e, &d, &out));
    API_MUST(r < 0 && !out.id, "exl2_image_make of a wrong desc gives %s", exl2_result_name(r));
}

/* ---- an operation ---- */

static void api_open_image(api_model *m)
{
    for (uint32_t i = 0; i < API_IMAGES; i++) {
        api_image *image = &api.images[i];
        if (image->id) {
            continue;
        }
        exl2_image handle;
        *image = (api_image){ .model = m, .recipe = api_make_recipe(m->folder == API_QWEN) };
        exl2_result r = api_make_image((exl2_model){ m->id }, &image->recipe, image, &handle);
        api_trace("exl2_image_make %u x %u of seed %u: %s", image->recipe.width, image->recipe.height,
                  image->recipe.seed, exl2_result_name(r));
        API_MUST(r != EXL2_OK || m->desc.vision.images, "exl2_image_make of a model without a tower");
        for (uint32_t k = 0; r == EXL2_OK && k < API_IMAGES; k++) {
            API_MUST(api.images[k].id != handle.id, "two pictures have one handle");
        }
        image->id = handle.id;
        if (image->id) {
            api_look_at_image(image);
        }
        return;
    }
}

/* Makes and closes more pictures than a model has slots for: what nobody names makes room, and nothing else does. */
static void api_flood_images(const api_model *m)
{
    for (uint32_t i = 0; i < 90; i++) {
        const api_recipe tiny = { .seed = 100 + api_draw(100000), .width = 1 + i % 7, .height = 1 + i % 3 };
        exl2_image handle;
        if (api_make_image((exl2_model){ m->id }, &tiny, NULL, &handle) == EXL2_OK) {
            exl2_result r = API_CALL(image_close, exl2_image_close(api.e, handle));
            API_MUST(r == EXL2_OK, "exl2_image_close of an open picture gives %s", exl2_result_name(r));
        }
    }
    api_trace("(pictures that nobody names)");
    for (uint32_t i = 0; i < API_IMAGES; i++) {
        if (api.images[i].id && api.images[i].model == m) {
            api_look_at_image(&api.images[i]);
        }
    }
}

/* A model with a tower. */
static api_model *api_pick_sight(void)
{
    api_model *m = NULL;
    uint32_t count = 0;
    for (uint32_t i = 0; i < API_MODELS; i++) {
        api_model *of = &api.models[i];
        m = of->id && of->desc.vision.images && api_draw(++count) == 0 ? of : m;
    }
    return m;
}

static void api_op_image(void)
{
    uint32_t what = api_draw(10);
    api_model *m = api_pick_sight();
    api_image *image = api_pick_image(NULL);
    if (what < 5 && m) {
        api_open_image(m);
    } else if (what < 7 && image && image->model->ready && !image->model->closing) {
        api_look_at_image(image);
    } else if (what == 7 && image && image->model->ready) {
        exl2_result r = API_CALL(image_close, exl2_image_close(api.e, (exl2_image){ image->id }));
        api_trace("exl2_image_close: %s", exl2_result_name(r));
        API_MUST(r == EXL2_OK, "exl2_image_close of an open picture gives %s", exl2_result_name(r));
        r = API_CALL(image_close, exl2_image_close(api.e, (exl2_image){ image->id }));
        API_MUST(r == EXL2_ERR_STALE, "exl2_image_close twice gives %s", exl2_result_name(r));
        image->id = 0;
    } else if (what == 8 && m) {
        exl2_image_info info;
        uint32_t width = 1 + api_draw(200), height = 1 + api_draw(200);
        exl2_image_desc d = { .model = { m->id }, .format = EXL2_PIXELS_RGB8, .width = width, .height = height };
        exl2_result r = API_CALL(image_measure, exl2_image_measure(api.e, &d, &info));
        API_MUST(r != EXL2_OK || info.rows > 0, "exl2_image_measure of %u x %u gives no rows", width, height);
    } else if (what == 9 && m && m->ready && !api_chance(3)) {
        api_flood_images(m);
    } else if (what == 9) {
        api_wrong_image(m);
    }
}

/* ---- in jobs ---- */

/* The mark of a picture or video in a text and in ids, by folder. */
static void api_mark_of(const api_model *m, bool video, const char **text, exl2_token *id)
{
    *text = m->folder == API_SMOL ? "<image>" : video ? "<|video_pad|>"
          : m->folder == API_QWEN ? "<|image_pad|>" : "<start_of_image>";
    *id = m->folder == API_SMOL ? 309 : video ? 319 : m->folder == API_QWEN ? 318 : 317;
}

/* A text or ids with a mark for each picture; now and then with one mark less. */
static void api_mark_prompt(api_job_store *s, const api_model *m, const api_recipe *recipes, uint32_t marks)
{
    const char *mark = "";
    exl2_token id = 0;
    size_t used = 0;
    marks -= api_chance(20);
    if (s->d.prompt.text) {
        bool first = api_chance(4); /* pictures stand before a text without marks */
        for (uint32_t i = 0; i <= marks && used < 600; i++) {
            used += (size_t)snprintf(s->prompt + used, sizeof s->prompt - used, "%s %s", i && !first ? mark : "",
                                     api_words[api_draw(4)]);
            api_mark_of(m, i < marks && recipes[i].frames, &mark, &id);
        }
        s->d.prompt.text_bytes = 0;
        s->d.prompt.flags = api_chance(6) ? api_draw(4) : 0;
        return;
    }
    s->d.prompt.tokens = s->tokens;
    s->d.prompt.token_count = 2 * marks + 1;
    for (uint32_t i = 0; i < 2 * marks + 1; i++) {
        api_mark_of(m, i % 2 && recipes[i / 2].frames, &mark, &id);
        s->tokens[i] = i % 2 ? id : (exl2_token)(5 + api_draw(40));
    }
}

/* Gives the job's prompt some pictures: mostly those of its model. recipes: of them. */
static void api_aim_images(api_job_store *s, const api_model *m, api_recipe *recipes)
{
    exl2_prompt *p = &s->d.prompt;
    s->image_count = 0;
    if (!m->desc.vision.images || api_chance(3)) {
        return;
    }
    uint32_t most = 1 + api_draw(API_JOB_IMAGES);
    for (uint32_t i = 0; i < most; i++) {
        const api_image *image = api_pick_image(api_chance(30) ? NULL : m);
        if (image) {
            recipes[s->image_count] = image->recipe;
            s->images[s->image_count++] = (exl2_image){ image->id };
        }
    }
    if (s->image_count == 0) {
        return;
    }
    if (p->messages) {
        exl2_message *message = &s->messages[api_draw((uint32_t)p->message_count)];
        message->images = s->images;
        message->image_count = s->image_count;
        return;
    }
    api_mark_prompt(s, m, recipes, s->image_count);
    p->images = s->images;
    p->image_count = s->image_count;
}

#endif
