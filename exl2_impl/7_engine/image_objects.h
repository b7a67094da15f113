/* image_objects.h: the pictures of one model: handles of the application, and what each slot of pictures.h holds.
   takes: nothing.
   gives: exl2__image, exl2__image_data, exl2__images.
   owns:  nothing; the model owns the tower's weights, and all arrays lie in its scratch arena. */
#ifndef EXL2__IMAGE_OBJECTS_H
#define EXL2__IMAGE_OBJECTS_H

#include "../3_backend/vision/resize.h"
#include "../3_backend/vision/tower_read.h"
#include "../3_backend/vision/tower_run.h"
#include "../4_cache/vectors.h"

#ifndef EXL2_NO_VISION

#define EXL2__IMAGE_ROWS 1280u           /* default of max_rows */
#define EXL2__IMAGE_PIXELS 8294400u      /* default of pixels_max: 3840 x 2160 */
#define EXL2__IMAGE_PROMPT_MAX 4096u     /* pictures of a prompt */
#define EXL2__IMAGE_PROMPT_BYTES 262144u /* of a prompt's text with pictures; a larger one is allocated */
#define EXL2__IMAGE_NOWHERE UINT64_MAX

/* A handle. Its id is serial << 32 | model's slot << 16 | index + 1; serials of an engine never repeat. */
typedef struct exl2__image {
    uint64_t id;      /* 0 = free */
    uint32_t picture; /* slot of the picture */
    exl2_event_fn on_event;
    void *user;
    bool silent;
    bool begun_due, end_due; /* events that are not delivered yet: that the work begins, or its result */
    bool ended;              /* its last event is delivered or due: rows that are computed again give no other one */
} exl2__image;

/* A part of an area, in its units. */
typedef struct exl2__image_room {
    uint64_t at, count; /* count 0: none */
} exl2__image_room;

/* What a slot's picture has. Its rows lie in the pool while exl2__picture.data points to them. */
typedef struct exl2__image_data {
    exl2__vision_size size;
    uint32_t width, height;        /* of the picture as the application gave it */
    exl2__image_room source, seen; /* RGB bytes as they were given, until they are resized; as the tower sees them */
    exl2__image_room rows;         /* in the pool */
    bool resized;                  /* `seen` is complete */
    bool fresh;                    /* it has not been encoded since it was made */
    bool wanted;                   /* a running job needs its rows next */
    exl2__vision_limits limits;
    uint32_t number;    /* scratch of one call: its number in a snapshot */
    exl2_result result; /* why it has no rows, or OK */
    uint64_t age;       /* when it was made, found or read, by exl2__images.clock */
    uint64_t encode_ns;
    char error[160];
} exl2__image_data;

typedef enum exl2__image_stage { EXL2__IMAGE_IDLE, EXL2__IMAGE_RESIZES, EXL2__IMAGE_ENCODES } exl2__image_stage;

typedef struct exl2__images {
    bool on; /* the model has a tower, which the desc asks for */
    exl2__vision_config config;
    exl2__vision_limits limits;
    exl2__vision_size largest;      /* size of the largest picture that the limits allow */
    uint64_t rows_max, pixel_bytes; /* size of the pool; size of the area of pixels */
    exl2__tower tower;
    exl2__tower_reader reader;        /* while the model loads */
    exl2__arena weights;              /* of the tower */
    uint64_t prepared_at;             /* offset of the tower's part of the model's scratch arena */
    uint64_t table_bytes;             /* host memory of the reader's list of tensors */
    exl2_token row_token, mark_token, video_token; /* ids of the family's marks; -1: the tokenizer has none */
    exl2_token open_token, close_token;
    exl2__image *image;               /* [count] */
    uint32_t count;
    exl2__image_data *data; /* [pictures.count] */
    float *pool;            /* [rows_max, levels, hidden] */
    uint8_t *pixels;        /* [pixel_bytes] */
    exl2__resize resize;
    uint32_t *prompt_slots; /* [EXL2__IMAGE_PROMPT_MAX] pictures of the prompt that is read now */
    char *prompt_text;      /* [EXL2__IMAGE_PROMPT_BYTES] its text with what stands for pictures */
    void *resize_scratch;
    exl2__image_stage stage;
    bool begun;             /* ENCODES: the pass through the tower has begun */
    uint32_t at; /* slot of the picture that is worked on, if stage is not IDLE */
    uint64_t clock;
    uint64_t passes; /* pictures that went through the tower */
} exl2__images;

#endif
#endif
