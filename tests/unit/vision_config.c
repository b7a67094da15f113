/* vision_config.c: towers in config.json and preprocessor_config.json: published files, values that are rejected and
   with which message, and the sizes of pictures: the families' rules, an application's limits, what largest gives. */
#include "../memory_files.h"

#include "private/vision_read.h"
#include "private/vision_size.h"

/* Published files, but for what does not concern pictures. */
#define SMOLVLM "{'model_type':'smolvlm','image_token_id':49190,'scale_factor':4,'vision_config':{'hidden_size':768," \
                "'image_size':512,'max_image_size':{'longest_edge':512},'model_type':'smolvlm_vision'," \
                "'num_attention_heads':12,'patch_size':16,'size':{'longest_edge':2048}}"
#define SMOLVLM_PRE "{'do_image_splitting':true,'image_mean':[0.5,0.5,0.5],'image_std':[0.5,0.5,0.5],'resample':1," \
                    "'rescale_factor':0.00392156862745098,'max_image_size':{'longest_edge':512}," \
                    "'size':{'longest_edge':2048}"
#define QWEN "{'model_type':'qwen2_5_vl','image_token_id':151655,'vision_config':{'depth':32,'hidden_act':'silu'," \
             "'hidden_size':1280,'intermediate_size':3420,'num_heads':16,'in_chans':3,'out_hidden_size':2048," \
             "'patch_size':14,'spatial_merge_size':2,'spatial_patch_size':14,'window_size':112," \
             "'fullatt_block_indexes':[7,15,23,31],'tokens_per_second':2,'temporal_patch_size':2}"
#define QWEN_PRE "{'min_pixels':3136,'max_pixels':12845056,'patch_size':14,'merge_size':2," \
                 "'image_mean':[0.48145466,0.4578275,0.40821073],'image_std':[0.26862954,0.26130258,0.27577711]"
#define QWEN3 "{'model_type':'qwen3_vl','image_token_id':151655,'vision_config':{" \
              "'deepstack_visual_indexes':[5,11,17],'depth':24,'hidden_act':'gelu_pytorch_tanh','hidden_size':1024," \
              "'in_channels':3,'intermediate_size':4096,'num_heads':16,'num_position_embeddings':2304," \
              "'out_hidden_size':2560," \
              "'patch_size':16,'spatial_merge_size':2,'temporal_patch_size':2}"
#define GEMMA "{'model_type':'gemma3','boi_token_index':255999,'image_token_index':262144," \
              "'mm_tokens_per_image':256,'vision_config':{'hidden_size':1152,'image_size':896," \
              "'intermediate_size':4304,'model_type':'siglip_vision_model','num_attention_heads':16," \
              "'num_hidden_layers':27,'patch_size':14," \
              "'vision_use_head':false}"
#define GEMMA_PRE "{'size':{'height':896,'width':896},'resample':2"
#define PIXTRAL "{'model_type':'llava','image_token_index':10,'projector_hidden_act':'gelu'," \
                "'vision_feature_layer':-1,'vision_feature_select_strategy':'full'," \
                "'vision_config':{'head_dim':64,'hidden_act':'silu'," \
                "'image_size':1024,'is_composition':true,'model_type':'pixtral','patch_size':16,'rope_theta':10000.0}"
#define PIXTRAL_PRE "{'resample':3,'patch_size':{'height':16,'width':16},'size':{'longest_edge':1024}"
#define LLAVA "{'model_type':'llava','image_token_index':32000,'vision_feature_layer':-2," \
              "'vision_feature_select_strategy':'default','projector_hidden_act':'gelu','vision_config':{" \
              "'hidden_size':1024,'image_size':336,'intermediate_size':4096,'model_type':'clip_vision_model'," \
              "'num_attention_heads':16,'num_hidden_layers':24,'patch_size':14,'projection_dim':768}"
#define SIGLIP "{'model_type':'llava','image_token_index':151646,'vision_feature_layer':-1," \
               "'vision_feature_select_strategy':'full','vision_config':{'hidden_size':1152,'image_size':384," \
               "'intermediate_size':4304,'model_type':'siglip_vision_model','num_attention_heads':16," \
               "'num_hidden_layers':27,'patch_size':14}"
#define SIGLIP_PRE "{'size':{'height':384,'width':384},'resample':3"
#define LLAVA_PRE "{'crop_size':{'height':336,'width':336},'size':{'shortest_edge':336},'resample':3"

typedef struct family {
    const char *config, *pre;
} family;

static const family families[] = {
    { SMOLVLM "}", SMOLVLM_PRE "}" }, { QWEN "}", QWEN_PRE "}" }, { QWEN3 "}", NULL }, { GEMMA "}", GEMMA_PRE "}" },
    { PIXTRAL "}", PIXTRAL_PRE "}" }, { LLAVA "}", LLAVA_PRE "}" }, { SIGLIP "}", SIGLIP_PRE "}" },
};

/* The text with `from` replaced by `to`; `from` must be there. It lives until the next but one call. */
static const char *with(const char *text, const char *from, const char *to)
{
    static char copies[4][4096];
    static int next;
    char *copy = copies[next++ & 3];
    const char *at = strstr(text, from);
    if (!CHECK(at != NULL)) {
        printf("  %s\n", from);
        return text;
    }
    snprintf(copy, sizeof copies[0], "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    return copy;
}

static const char *video; /* video_preprocessor_config.json of the next reads; NULL: there is none */

/* Reads both texts; pre NULL: there is no such file. */
static exl2_result read_texts(memory_files *m, const char *config, const char *pre, exl2__vision_config *out)
{
    static exl2__config text;
    text.hidden = 576;
    text.norm_eps = 1e-5f;
    memory_make(m);
    memory_add_text(m, "config.json", json_text(config));
    if (pre) {
        memory_add_text(m, "preprocessor_config.json", json_text(pre));
    }
    if (video) {
        memory_add_text(m, "video_preprocessor_config.json", json_text(video));
    }
    exl2_result result = exl2__vision_config_read(&m->c, "models/x", &text, out);
    memory_free(m);
    return result;
}

static exl2__vision_config read_good(const char *config, const char *pre, uint32_t warnings)
{
    memory_files m;
    exl2__vision_config v;
    if (!CHECK_INT(read_texts(&m, config, pre, &v), EXL2_OK)) {
        printf("  %s: %s\n", config, m.c.error.text);
        exit(1);
    }
    CHECK_INT(m.warnings, warnings);
    return v;
}

static void read_bad(const char *config, const char *pre, exl2_result code, const char *piece, const char *other)
{
    memory_files m;
    exl2__vision_config v;
    if (!CHECK_INT(read_texts(&m, config, pre, &v), code)) {
        printf("  %s %s: %s\n", config, pre ? pre : "", m.c.error.text);
    }
    check_error(&m.c, piece, other, config);
}

static void check_published(void)
{
    exl2__vision_config v = read_good(SMOLVLM "}", SMOLVLM_PRE "}", 0);
    CHECK(v.width == 768 && v.layers == 12 && v.heads == 12 && v.head_dim == 64 && v.inter == 3072 && v.side == 32);
    CHECK(v.merge == 4 && v.edge == 2048 && v.splits && v.filter == 1 && v.row_id == 49190 && v.mark_id == 49190);
    CHECK(v.levels == 1 && !v.whole && !v.mrope && v.hidden == 576 && v.post_norm);
    CHECK(v.act == EXL2__VISION_ACT_GELU_TANH);
    v = read_good(QWEN "}", QWEN_PRE "}", 0);
    CHECK(v.width == 1280 && v.layers == 32 && v.head_dim == 80 && v.inter == 3420 && v.window == 4 && v.frames == 2);
    CHECK(v.full[7] && v.full[31] && !v.full[0] && !v.full[30] && v.mrope && v.act == EXL2__VISION_ACT_SILU);
    CHECK(v.mean[0] == 0.48145466 && v.std[2] == 0.27577711 && v.rescale == 1.0 / 255);
    v = read_good(QWEN3 "}", NULL, 1);
    CHECK(v.levels == 4 && v.deep[0] == 5 && v.deep[2] == 17 && v.side == 48 && v.full[0] && v.pixels_max == 16777216);
    v = read_good(GEMMA "}", GEMMA_PRE ",'do_pan_and_scan':true}", 1);
    CHECK(v.layers == 27 && v.head_dim == 72 && v.merge == 4 && v.whole && v.filter == 2 && v.side == 64);
    CHECK(v.row_id == 262144 && v.mark_id == 255999 && v.eps == 1e-6f);
    v = read_good(PIXTRAL "}", PIXTRAL_PRE "}", 0);
    CHECK(v.width == 1024 && v.layers == 24 && v.heads == 16 && v.inter == 4096 && v.merge == 1 && v.eps == 1e-5f);
    v = read_good(LLAVA "}", LLAVA_PRE "}", 0);
    CHECK(v.layers == 23 && v.class_row && !v.keeps_class && !v.post_norm && v.act == EXL2__VISION_ACT_QUICK_GELU);
    CHECK(v.edge == 336 && v.high == 336 && v.eps == 1e-5f && v.mean[1] == 0.4578275);
    v = read_good(SIGLIP "}", SIGLIP_PRE "}", 0); /* the last 6 pixels of a side are of no patch */
    CHECK(v.layers == 27 && v.side == 27 && v.high == 384 && !v.class_row && !v.post_norm && v.head_dim == 72);
    v = read_good(with(PIXTRAL "}", "'vision_feature_layer':-1", "'vision_feature_layer':-3"), PIXTRAL_PRE "}", 0);
    CHECK_INT(v.layers, 22);
    v = read_good(with(PIXTRAL "}", "'vision_feature_layer':-1,'vision_feature_select_strategy':'full',", ""),
                  PIXTRAL_PRE "}", 0);
    CHECK_INT(v.layers, 24);
    v = read_good("{'model_type':'mistral3','vision_feature_layer':5,'vision_feature_select_strategy':'default',"
                  "'vision_config':{'model_type':'pixtral'}}", NULL, 1);
    CHECK_INT(v.layers, 5);
}

/* Since transformers 5 the image processor may be a part of processor_config.json. */
static void check_processor(void)
{
    memory_files m;
    exl2__vision_config v;
    static exl2__config text;
    memory_make(&m);
    memory_add_text(&m, "config.json", json_text(GEMMA "}"));
    memory_add_text(&m, "processor_config.json",
                    json_text("{'image_processor':{'resample':3},'image_seq_length':256}"));
    CHECK_INT(exl2__vision_config_read(&m.c, "models/x", &text, &v), EXL2_OK);
    CHECK_INT(v.filter, 3);
    CHECK_INT(m.warnings, 0);
    memory_free(&m);
    memory_make(&m);
    memory_add_text(&m, "config.json", json_text(QWEN "}"));
    memory_add_text(&m, "processor_config.json",
                    json_text("{'image_processor':{'min_pixels':4000},'video_processor':{'max_pixels':50000}}"));
    CHECK_INT(exl2__vision_config_read(&m.c, "models/x", &text, &v), EXL2_OK);
    CHECK(v.pixels_min == 4000 && v.pixels_max == 12845056 && v.video_min == 4000 && v.video_max == 50000);
    memory_free(&m);
}

static void check_rejected(void)
{
    const char *pre = SMOLVLM_PRE "}", *config = SMOLVLM "}";
    static const struct { const char *from, *to, *piece, *other; } configs[] = {
        { "'patch_size':16", "'patch_size':0", "patch_size=0", "1 to 128" },
        { "'patch_size':16", "'patch_size':17", "image_size 512 is not a multiple", "17" },
        { "'image_size':512", "'image_size':0", "image_size=0", "" },
        { "'scale_factor':4", "'scale_factor':0", "scale_factor=0", "" },
        { "'scale_factor':4", "'scale_factor':3", "32 patches a side", "merged by 3" },
        { "'num_attention_heads':12", "'num_attention_heads':11", "11 heads", "width 768" },
        { "'num_attention_heads':12", "'num_attention_heads':-1", "num_attention_heads=-1", "" },
        { "'hidden_size':768", "'hidden_size':1e99", "hidden_size", "out of range" },
        { "'hidden_size':768", "'hidden_size':'x'", "hidden_size='x'", "" },
        { "'image_token_id':49190", "'image_token_id':-3", "image_token_id=-3", "" },
        { "'image_size':512", "'image_size':512,'num_hidden_layers':1000000000", "num_hidden_layers", "1 to 256" },
    };
    static const struct { const char *from, *to, *piece, *other; } pres[] = {
        { "'image_mean':[0.5,0.5,0.5]", "'image_mean':[0.5,0.5]", "image_mean=[2 values]", "three numbers" },
        { "'image_mean':[0.5,0.5,0.5]", "'image_mean':[0.5,0.5,'x']", "image_mean", "three numbers" },
        { "'image_std':[0.5,0.5,0.5]", "'image_std':[0.5,0,0.5]", "image_std", "above 0" },
        { "'resample':1", "'resample':0", "resample=0", "1 to 3" },
        { "'resample':1", "'resample':9", "resample=9", "1 to 3" },
        { "'size':{'longest_edge':2048}", "'size':{'longest_edge':0}", "longest_edge=0", "" },
        { "'max_image_size':{'longest_edge':512}", "'max_image_size':{'longest_edge':384}", "384 x 384", "512 x 512" },
        { "0.00392156862745098", "0", "rescale_factor=0", "" },
    };
    for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++) {
        read_bad(with(config, configs[i].from, configs[i].to), pre, EXL2_ERR_FORMAT, configs[i].piece,
                 configs[i].other);
    }
    for (size_t i = 0; i < sizeof pres / sizeof pres[0]; i++) {
        read_bad(config, with(pre, pres[i].from, pres[i].to), EXL2_ERR_FORMAT, pres[i].piece, pres[i].other);
    }
    read_bad(config, SMOLVLM_PRE ",'do_normalize':false}", EXL2_ERR_UNSUPPORTED, "do_normalize=false", "true");
    read_bad(with(GEMMA "}", "'mm_tokens_per_image':256", "'mm_tokens_per_image':255"), NULL, EXL2_ERR_FORMAT,
             "mm_tokens_per_image 255", "not the square");
    read_bad(with(GEMMA "}", "'mm_tokens_per_image':256", "'mm_tokens_per_image':225"), NULL, EXL2_ERR_FORMAT,
             "mm_tokens_per_image 225", "64 patches");
    read_bad(with(QWEN "}", "'spatial_merge_size':2", "'spatial_merge_size':0"), NULL, EXL2_ERR_FORMAT,
             "spatial_merge_size=0", "");
    read_bad(with(QWEN "}", "[7,15,23,31]", "[7,15,23,32]"), NULL, EXL2_ERR_FORMAT, "fullatt_block_indexes",
             "ascending");
    read_bad(with(QWEN "}", "[7,15,23,31]", "[7,7]"), NULL, EXL2_ERR_FORMAT, "fullatt_block_indexes", "ascending");
    read_bad(with(QWEN "}", "'window_size':112", "'window_size':27"), NULL, EXL2_ERR_FORMAT, "window_size 27", "28");
    read_bad(QWEN "}", with(QWEN_PRE "}", "'min_pixels':3136", "'min_pixels':99999999"), EXL2_ERR_FORMAT, "min_pixels",
             "out of range");
    read_bad(QWEN "}", with(QWEN_PRE "}", "'max_pixels':12845056", "'max_pixels':3000"), EXL2_ERR_FORMAT,
             "min_pixels 3136", "max_pixels 3000");
    read_bad(with(QWEN3 "}", "'num_position_embeddings':2304", "'num_position_embeddings':2305"), NULL, EXL2_ERR_FORMAT,
             "2305", "not a square number");
    read_bad(with(QWEN3 "}", "2304", "1000000000"), NULL, EXL2_ERR_FORMAT, "num_position_embeddings", "out of range");
    read_bad(with(LLAVA "}", "'vision_feature_layer':-2", "'vision_feature_layer':[-2,-5]"), NULL, EXL2_ERR_UNSUPPORTED,
             "vision_feature_layer=[2 values]", "one layer");
    read_bad(with(LLAVA "}", "'vision_feature_layer':-2", "'vision_feature_layer':-25"), NULL, EXL2_ERR_FORMAT,
             "vision_feature_layer is -25", "24 layers");
    read_bad(with(PIXTRAL "}", "'full'", "'default'"), NULL, EXL2_ERR_UNSUPPORTED, "default drops a row", "full");
    read_bad(with(PIXTRAL "}", "'vision_feature_layer':-1", "'vision_feature_layer':[-1]"), NULL, EXL2_ERR_UNSUPPORTED,
             "vision_feature_layer=[1 values]", "one layer");
    read_bad(LLAVA "}", LLAVA_PRE ",'do_center_crop':false}", EXL2_ERR_UNSUPPORTED, "do_center_crop=false", "true");
    read_bad(LLAVA "}", LLAVA_PRE ",'do_pad':true}", EXL2_ERR_UNSUPPORTED, "do_pad=true", "false");
    read_bad(with(LLAVA "}", "'patch_size':14", "'patch_size':15"), NULL, EXL2_ERR_FORMAT, "not a multiple", "15");
    read_bad(with(LLAVA "}", "clip_vision_model", "dinov2"), NULL, EXL2_ERR_UNSUPPORTED, "'llava'", "'dinov2'");
    read_bad("{'model_type':'llama'}", NULL, EXL2_ERR_UNSUPPORTED, "no vision_config", "'llama'");
    read_bad("{'model_type':'internvl','vision_config':{}}", NULL, EXL2_ERR_UNSUPPORTED, "'internvl'", "not supported");
    read_bad("{'vision_config':{}}", NULL, EXL2_ERR_FORMAT, "model_type", "missing");
}

/* ---- sizes ---- */

typedef struct wanted {
    uint32_t family, width, height, max_rows, max_tiles; /* an index of `families` */
    uint32_t tiles, rows, tile_width, tile_height;
} wanted;

static void check_sizes(void)
{
    static const wanted cases[] = {
        { 0, 1920, 1080, 0, 0, 13, 832, 512, 512 },   { 0, 1920, 1080, 1280, 1, 1, 64, 512, 512 },
        { 0, 512, 512, 1280, 0, 17, 1088, 512, 512 }, { 0, 1920, 1080, 500, 0, 7, 448, 512, 512 },
        { 0, 1, 1, 1280, 1, 1, 64, 512, 512 },        { 0, 1, 100000, 1280, 0, 5, 320, 512, 512 },
        { 1, 448, 448, 1280, 0, 1, 256, 448, 448 },   { 1, 1280, 720, 1280, 0, 1, 1196, 1288, 728 },
        { 1, 1920, 1080, 1280, 0, 1, 1222, 1316, 728 }, { 1, 1, 1, 1280, 0, 1, 4, 56, 56 },
        { 3, 17, 5000, 1280, 0, 1, 256, 896, 896 },   { 4, 1024, 1024, 4096, 0, 1, 4096, 1024, 1024 },
        { 4, 1920, 1080, 0, 0, 1, 2304, 1024, 576 },  { 5, 640, 480, 1280, 0, 1, 576, 336, 336 },
        { 5, 1, 100000, 1280, 0, 1, 576, 336, 336 },  { 6, 640, 480, 1280, 0, 1, 729, 384, 384 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const wanted *w = &cases[i];
        exl2__ctx c = { .allocator = exl2__platform_allocator() };
        exl2__vision_config v = read_good(families[w->family].config, families[w->family].pre, w->family == 2);
        exl2__vision_limits limits = { w->max_rows, w->max_tiles };
        exl2__vision_size s;
        CHECK_INT(exl2__vision_sizes(&c, &v, &limits, w->width, w->height, 0, 0, &s), EXL2_OK);
        bool same = s.width == w->tile_width && s.height == w->tile_height;
        if (!CHECK(same && s.tiles == w->tiles && s.rows == w->rows)) {
            printf("  %s, %u x %u: %u tiles of %u x %u, %u rows\n", v.family, w->width, w->height, s.tiles, s.width,
                   s.height, s.rows);
        }
    }
}

/* Sizes of videos: those of smart_resize in transformers 5.24 for pictures of Qwen2-VL, with the numbers of a frame,
   and for videos of Qwen3-VL, with those of all frames. A limit of rows holds for all pairs of frames together. */
static void check_videos(void)
{
    static const struct { uint32_t width, height, frames, by_frame[2], by_all[2]; } cases[] = {
        { 1280, 720, 2, { 1008, 560 }, { 1280, 704 } },  { 1280, 720, 5, { 1008, 560 }, { 1280, 704 } },
        { 1920, 1080, 3, { 1008, 560 }, { 1920, 1088 } }, { 640, 480, 8, { 644, 476 }, { 640, 480 } },
        { 30, 20, 9, { 84, 56 }, { 64, 32 } },           { 3840, 2160, 32, { 1008, 560 }, { 1152, 640 } },
        { 64, 64, 64, { 56, 56 }, { 64, 64 } },          { 500, 31, 7, { 504, 28 }, { 512, 32 } },
        { 1280, 720, 100, { 1008, 560 }, { 640, 352 } }, { 1, 1, 4, { 56, 56 }, { 32, 32 } },
    };
    static const char *const numbers[2] = { "{'min_pixels':3136,'max_pixels':602112}",
                                            "{'size':{'shortest_edge':4096,'longest_edge':25165824}}" };
    exl2__vision_config v[2];
    for (uint32_t k = 0; k < 2; k++) {
        video = numbers[k];
        v[k] = read_good(families[1 + k].config, families[1 + k].pre, k);
        CHECK_INT(v[k].ticks, k ? 0 : 2);
    }
    for (size_t i = 0; i < 2 * sizeof cases / sizeof cases[0]; i++) {
        uint32_t frames = cases[i / 2].frames, all = i % 2;
        const uint32_t *side = all ? cases[i / 2].by_all : cases[i / 2].by_frame;
        for (uint32_t most = 0; most < 4000; most = 4 * most + 60) {
            exl2__ctx c = { .allocator = exl2__platform_allocator() };
            exl2__vision_limits limits = { most, 0 };
            exl2__vision_size s;
            CHECK_INT(exl2__vision_sizes(&c, &v[all], &limits, cases[i / 2].width, cases[i / 2].height, frames, 2, &s),
                      EXL2_OK);
            bool free_size = s.width == side[0] && s.height == side[1];
            if (!CHECK(most ? s.rows <= most : free_size)) {
                printf("  %u x %u, %u frames: %u x %u\n", cases[i / 2].width, cases[i / 2].height, frames, s.width,
                       s.height);
            }
            CHECK_INT(s.grid[0], (frames + 1) / 2);
            CHECK_INT(s.rows, s.grid[0] * s.grid[1] * s.grid[2]);
            CHECK_INT(s.seen_bytes, (uint64_t)frames * s.width * s.height * 3);
        }
    }
    video = "{'min_pixels':5000,'max_pixels':4000}";
    read_bad(QWEN "}", QWEN_PRE "}", EXL2_ERR_FORMAT, "min_pixels 5000", "max_pixels 4000");
    video = "{'image_mean':[0.4,0.5,0.5]}";
    read_bad(QWEN "}", QWEN_PRE "}", EXL2_ERR_UNSUPPORTED, "video_preprocessor_config.json", "differs from");
    read_bad(QWEN "}", QWEN_PRE ",'resample':2}", EXL2_ERR_UNSUPPORTED, "resample", "differs from");
    video = "{'cap_pixels_per_frame':true}";
    read_good(QWEN3 "}", QWEN_PRE "}", 1);
    video = "{'cap_pixels_per_frame':false}";
    read_good(QWEN3 "}", QWEN_PRE "}", 0);
    video = "[]";
    read_bad(QWEN "}", QWEN_PRE "}", EXL2_ERR_FORMAT, "video_preprocessor_config.json", "object");
    video = NULL; /* the numbers of pictures */
    v[0] = read_good(QWEN "}", QWEN_PRE "}", false);
    CHECK(v[0].video_min == 3136 && v[0].video_max == 12845056);
    v[0] = read_good(with(QWEN "}", "'tokens_per_second':2,", ""), QWEN_PRE "}", false);
    CHECK_INT(v[0].ticks, 4);
    read_bad(with(QWEN "}", "'tokens_per_second':2", "'tokens_per_second':0"), NULL, EXL2_ERR_FORMAT,
             "tokens_per_second=0", "");
}

/* Every size that is accepted lies within the limits, and within what exl2__vision_largest promises. */
static void check_largest(void)
{
    static const exl2__vision_limits limits[] = { { 0, 0 }, { 1280, 0 }, { 1280, 1 }, { 700, 5 }, { 64, 0 }, { 5, 0 } };
    uint32_t random = 1, accepted = 0;
    for (size_t f = 0; f < sizeof families / sizeof families[0]; f++) {
        exl2__vision_config v = read_good(families[f].config, families[f].pre, f == 2);
        for (size_t k = 0; k < sizeof limits / sizeof limits[0]; k++) {
            exl2__vision_size most, s;
            exl2__vision_largest(&v, &limits[k], &most);
            for (uint32_t i = 0; i < 2000; i++) {
                exl2__ctx c = { .allocator = exl2__platform_allocator() };
                uint32_t side[2];
                for (uint32_t j = 0; j < 2; j++) {
                    random = random * 1664525 + 1013904223;
                    side[j] = i < 40 ? 1 + i % 7 : 1 + (random >> 8) % (1u << (random >> 28) % 18);
                }
                uint32_t frames = v.marks.video && i % 3 == 2 ? 2 + (random >> 4) % 30 : 0;
                exl2_result r = exl2__vision_sizes(&c, &v, &limits[k], side[0], side[1], frames, frames ? 2 : 0, &s);
                if (r != EXL2_OK) {
                    CHECK_INT(r, EXL2_ERR_ARG);
                    CHECK(strlen(c.error.text) > 30);
                    continue;
                }
                accepted++;
                uint32_t pictures = frames ? frames : s.tiles;
                bool fits = (s.rows <= most.rows || (frames && !limits[k].max_rows)) && s.patches <= most.patches
                         && s.grid[1] <= most.grid[1] && s.grid[2] <= most.grid[2]
                         && (frames || s.tiles <= most.tiles)
                         && (s.seen_bytes <= most.seen_bytes * (frames ? 2 : 1) || (frames && !limits[k].max_rows))
                         && (!limits[k].max_rows || s.rows <= limits[k].max_rows)
                         && (!limits[k].max_tiles || s.tiles <= limits[k].max_tiles || frames)
                         && s.rows > 0 && s.seen_bytes == pictures * (uint64_t)s.width * s.height * 3;
                if (!CHECK(fits)) {
                    printf("  %s, %u x %u, limits %u %u: %u rows, %u patches, tiles %u\n", v.family, side[0], side[1],
                           limits[k].max_rows, limits[k].max_tiles, s.rows, s.patches, s.tiles);
                }
            }
        }
    }
    CHECK(accepted > 40000);
}

static void check_refused(void)
{
    static const struct refused {
        uint32_t family, width, height, frames;
        double fps;
        uint32_t max_rows;
        exl2_result code;
        const char *piece;
    } cases[] = {
        { 0, 0, 5, 0, 0, 0, EXL2_ERR_ARG, "0 x 5" },          { 0, 5, 0, 0, 0, 0, EXL2_ERR_ARG, "5 x 0" },
        { 0, 131073, 5, 0, 0, 0, EXL2_ERR_ARG, "131073 x 5" }, { 1, 1, 201, 0, 0, 0, EXL2_ERR_ARG, "200 times" },
        { 1, 100000, 1, 0, 0, 0, EXL2_ERR_ARG, "200 times" }, { 4, 1, 100000, 0, 0, 0, EXL2_ERR_ARG, "too narrow" },
        { 3, 64, 64, 0, 0, 255, EXL2_ERR_ARG, "256 rows, and max_rows is 255" },
        { 0, 64, 64, 2, 1, 0, EXL2_ERR_ARG, "no videos" },    { 3, 64, 64, 1, 1, 0, EXL2_ERR_ARG, "no videos" },
        { 1, 64, 64, 0, 1, 0, EXL2_ERR_ARG, "fps" },          { 1, 64, 64, 2, 0, 0, EXL2_ERR_ARG, "0.001 to 1000" },
        { 1, 64, 64, 2, -1, 0, EXL2_ERR_ARG, "0.001" },       { 1, 64, 64, 2, INFINITY, 0, EXL2_ERR_ARG, "0.001" },
        { 1, 64, 64, 2, NAN, 0, EXL2_ERR_ARG, "0.001" },      { 1, 64, 64, 0, NAN, 0, EXL2_ERR_ARG, "fps" },
        { 1, 64, 64, 2, 1001, 0, EXL2_ERR_ARG, "0.001" },     { 1, 64, 64, 9, 1, 4, EXL2_ERR_ARG, "5 rows" },
        { 1, 64, 64, UINT32_MAX, 9, 0, EXL2_ERR_ARG, "lasts too long" },
        { 2, 64, 64, UINT32_MAX, 9, 0, EXL2_ERR_ARG, "at least" }, { 2, 64, 64, 1, 1, 0, EXL2_ERR_ARG, "2 frames" },
        { 1, 200, 1, 20, 1, 10, EXL2_ERR_ARG, "max_rows is 10" }, { 1, 64, 64, 131072, 0.1, 0, EXL2_ERR_ARG, "long" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        exl2__ctx c = { .allocator = exl2__platform_allocator() };
        const struct refused *k = &cases[i];
        exl2__vision_config v = read_good(families[k->family].config, families[k->family].pre, k->family == 2);
        exl2__vision_limits limits = { k->max_rows, 0 };
        exl2__vision_size s;
        CHECK_INT(exl2__vision_sizes(&c, &v, &limits, k->width, k->height, k->frames, k->fps, &s), k->code);
        check_error(&c, k->piece, "", v.family);
    }
}

int main(void)
{
    check_published();
    check_processor();
    check_rejected();
    check_sizes();
    check_videos();
    check_refused();
    check_largest();
    return check_done();
}
