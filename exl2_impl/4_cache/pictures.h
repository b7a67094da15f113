/* pictures.h: the pictures that words of histories and pages name.
   takes: ids of pictures, their numbers of rows and grids; histories and pages whose words name rows.
   gives: exl2__pictures, exl2__picture, exl2__pictures_make, _is, _of, _row, _word, _find, _fits, _add, _is_unused,
          _free, _use, _cuts, exl2__pictures_turner, _pass, _turn.

   A row of a picture stands in a history as a token does, and its word is EXL2__WORD_VECTOR, EXL2__WORD_PICTURE, the
   picture's slot here and the row's number. A slot names one picture as long as any word or handle does, so that equal
   words are rows with the same number of the same picture: pictures are compared in full, by all 128 bits of their
   ids, when they get a slot. What the rows are need not be known for that: it lies elsewhere, and may be evicted.

   A picture of a history is whole: nothing is cut within it. */
#ifndef EXL2__PICTURES_H
#define EXL2__PICTURES_H

#include "../0_base/arena.h"

#define EXL2__WORD_VECTOR 0x40000000u  /* bit of a word that is no token's */
#define EXL2__WORD_PICTURE 0x20000000u /* bit of such a word that is of a row of a picture */
#define EXL2__PICTURE_ROW_BITS 17u
#define EXL2__PICTURE_ROWS_MAX (1u << EXL2__PICTURE_ROW_BITS)
#define EXL2__PICTURES_MAX (1u << (29 - EXL2__PICTURE_ROW_BITS))
#define EXL2__NO_PICTURE UINT32_MAX

typedef struct exl2__picture {
    uint64_t id[2];
    uint32_t rows;     /* 0: the slot is free */
    uint32_t grid[3];  /* pairs of frames, lines and columns of rows, of one tile */
    uint32_t frames;   /* of a video; 0: a still picture */
    double fps;        /* its frames in a second */
    uint32_t handles;  /* the application's, and what else keeps the slot without a word */
    bool given;            /* its pixels or rows are a snapshot's, which nobody can compare with the id */
    uint64_t uses;     /* words that name it */
    const float *data; /* [rows, levels, hidden] what the rows are; NULL: not there now */
} exl2__picture;

typedef struct exl2__pictures {
    uint32_t count, live;   /* slots; those that are not free. Zeroed: a model without pictures */
    uint32_t row_floats;    /* of one row: [levels, hidden] */
    bool turns;             /* positions have three axes (M-RoPE), and pictures turn them */
    bool apart;             /* each pair of a video's frames has positions as a picture has, after those before it */
    uint32_t ticks;         /* positions of time in a second of a video; 0: one for each pair of frames */
    bool whole;             /* rows of a picture see each other */
    exl2__picture *picture; /* [count] */
} exl2__pictures;

static inline void exl2__pictures_make(exl2__pictures *p, exl2__arena *arena, uint32_t count, uint32_t row_floats)
{
    EXL2__ASSERT(count <= EXL2__PICTURES_MAX);
    *p = (exl2__pictures){ .count = count, .row_floats = row_floats };
    p->picture = (exl2__picture *)exl2__arena_alloc_zeroed(arena, (uint64_t)count * sizeof *p->picture);
}

/* Is the word that of a row of a picture? */
static inline bool exl2__pictures_is(uint32_t word)
{
    return (word & EXL2__WORD_VECTOR) && (word & EXL2__WORD_PICTURE);
}

static inline uint32_t exl2__pictures_of(uint32_t word)
{
    return (word & (EXL2__WORD_PICTURE - 1)) >> EXL2__PICTURE_ROW_BITS;
}

static inline uint32_t exl2__pictures_row(uint32_t word)
{
    return word & (EXL2__PICTURE_ROWS_MAX - 1);
}

static inline uint32_t exl2__pictures_word(uint32_t slot, uint32_t row)
{
    return EXL2__WORD_VECTOR | EXL2__WORD_PICTURE | slot << EXL2__PICTURE_ROW_BITS | row;
}

/* The slot of the picture with this id, or EXL2__NO_PICTURE. */
static inline uint32_t exl2__pictures_find(const exl2__pictures *p, const uint64_t id[2])
{
    for (uint32_t i = 0; i < p->count; i++) {
        const exl2__picture *picture = &p->picture[i];
        if (picture->rows > 0 && !picture->given && picture->id[0] == id[0] && picture->id[1] == id[1]) {
            return i;
        }
    }
    return EXL2__NO_PICTURE;
}

/* Whether a picture has these rows at these positions. */
static inline bool exl2__pictures_fits(const exl2__picture *p, uint32_t rows, const uint32_t grid[3], uint32_t frames,
                                       double fps)
{
    return p->rows == rows && memcmp(p->grid, grid, sizeof p->grid) == 0 && p->frames == frames
        && memcmp(&p->fps, &fps, sizeof fps) == 0;
}

/* A slot for a picture that has none, with one handle. EXL2__NO_PICTURE: no slot is free. */
static inline uint32_t exl2__pictures_add(exl2__pictures *p, const uint64_t id[2], uint32_t rows,
                                          const uint32_t grid[3], uint32_t frames, double fps)
{
    EXL2__ASSERT(rows > 0 && rows < EXL2__PICTURE_ROWS_MAX);
    for (uint32_t i = 0; i < p->count; i++) {
        exl2__picture *picture = &p->picture[i];
        if (picture->rows == 0) {
            *picture = (exl2__picture){
                .id = { id[0], id[1] }, .rows = rows, .grid = { grid[0], grid[1], grid[2] }, .frames = frames,
                .fps = fps, .handles = 1
            };
            p->live++;
            return i;
        }
    }
    return EXL2__NO_PICTURE;
}

/* Nobody names the picture: neither a word nor a handle. */
static inline bool exl2__pictures_is_unused(const exl2__pictures *p, uint32_t slot)
{
    return p->picture[slot].rows > 0 && p->picture[slot].uses == 0 && p->picture[slot].handles == 0;
}

/* Frees the slot of a picture that no word or handle names. */
static inline void exl2__pictures_free(exl2__pictures *p, uint32_t slot)
{
    EXL2__ASSERT(exl2__pictures_is_unused(p, slot));
    p->picture[slot] = (exl2__picture){ 0 };
    p->live--;
}

/* The word is one use more of its picture, or one less. */
static inline void exl2__pictures_use(exl2__pictures *p, uint32_t word, bool more)
{
    exl2__picture *picture = &p->picture[exl2__pictures_of(word)];
    EXL2__ASSERT(exl2__pictures_of(word) < p->count && exl2__pictures_row(word) < picture->rows);
    EXL2__ASSERT(more || picture->uses > 0);
    picture->uses += more ? 1 : UINT64_MAX;
}

/* Number of rows of the same picture after this word's. Those of a family whose rows see each other have no tokens in
   between. */
static inline uint32_t exl2__pictures_later(const exl2__pictures *p, uint32_t word)
{
    return exl2__pictures_is(word) ? p->picture[exl2__pictures_of(word)].rows - 1 - exl2__pictures_row(word) : 0;
}

/* Whether a history that ends before its place `at` would lack rows of a picture that it has begun. Then the picture's
   places, with the tokens between its rows, are [*begin, *end). words [count]: the whole history. */
static inline bool exl2__pictures_cuts(const exl2__pictures *p, const uint32_t *words, uint32_t count, uint32_t at,
                                       uint32_t *begin, uint32_t *end)
{
    uint32_t last = p->live ? exl2__min32(at, count) : 0;
    while (last > 0 && !exl2__pictures_is(words[last - 1])) {
        last--;
    }
    if (last-- == 0) {
        return false;
    }
    uint32_t rows = p->picture[exl2__pictures_of(words[last])].rows;
    if (exl2__pictures_row(words[last]) + 1 == rows) {
        return false;
    }
    for (*begin = last; !exl2__pictures_is(words[*begin]) || exl2__pictures_row(words[*begin]) > 0;) {
        --*begin;
    }
    for (*end = last;
         *end < count && (!exl2__pictures_is(words[*end]) || exl2__pictures_row(words[*end]) + 1 < rows);) {
        ++*end;
    }
    *end += *end < count;
    return true;
}

/* The angle's position of a place in a history, after those of the places before it. */
typedef struct exl2__pictures_turner {
    uint32_t at;        /* the place that comes next */
    int64_t next, base; /* its position if it is a token's; base: position where the picture begins */
} exl2__pictures_turner;

/* The position of time of a pair of frames, from that of the first one: floor(pair * seconds of a pair * ticks). */
static inline uint32_t exl2__pictures_time(const exl2__pictures *p, const exl2__picture *picture, uint32_t pair)
{
    return !picture->frames || !p->ticks ? pair : (uint32_t)((double)pair * 2 * p->ticks / picture->fps);
}

/* Goes on by one word of a history, and gives its three positions. A picture with a grid of t x h x w rows has the
   positions next + (time, line, column), and what follows begins after the largest of them (transformers 4,
   get_rope_index of Qwen2-VL and Qwen2.5-VL). */
static inline void exl2__pictures_pass(const exl2__pictures *p, exl2__pictures_turner *t, uint32_t word,
                                       int64_t position[3])
{
    position[0] = position[1] = position[2] = t->next;
    t->at++;
    if (!exl2__pictures_is(word)) {
        t->next++;
        return;
    }
    const exl2__picture *picture = &p->picture[exl2__pictures_of(word)];
    uint32_t row = exl2__pictures_row(word), h = picture->grid[1], w = picture->grid[2];
    uint32_t first = p->apart ? row / (h * w) * h * w : 0, end = p->apart ? first + h * w : picture->rows;
    uint32_t time = exl2__pictures_time(p, picture, (row - first) / (h * w));
    t->base = row == first ? t->next : t->base;
    position[0] = t->base + time;
    position[1] = t->base + row / w % h;
    position[2] = t->base + row % w;
    t->next = row + 1 == end ? t->base + exl2__max32(exl2__max32(h, w), time + 1) : t->next;
}

/* Goes on to the place `to` of the history, whose words [to + 1] are known, and gives its three positions as turns from
   the place. */
static inline void exl2__pictures_turn(const exl2__pictures *p, exl2__pictures_turner *t, const uint32_t *words,
                                       uint32_t known, uint32_t to, int32_t turn[3])
{
    int64_t position[3] = { 0, 0, 0 };
    while (t->at <= to) {
        exl2__pictures_pass(p, t, t->at < known ? words[t->at] : 0, position);
    }
    for (uint32_t i = 0; i < 3; i++) {
        turn[i] = (int32_t)(position[i] - (int64_t)to);
    }
}

#endif
