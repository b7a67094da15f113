/* keys.h: who may do what. A file has lines "api_key: TEXT" and "admin_key: TEXT"; it is read again when it changes.
   takes: a path; the three header fields that can bring a key.
   gives: keys_open, keys_right, keys_first, keys_close, keys_random.
   owns:  the keys' texts. */
#ifndef DEMO_KEYS_H
#define DEMO_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KEYS_MAX 64u
#define KEYS_BYTES 128u /* of a key, with its NUL */

typedef enum keys_level { KEYS_NONE, KEYS_API, KEYS_ADMIN } keys_level;

typedef struct keys_entry {
    char text[KEYS_BYTES];
    keys_level level;
} keys_entry;

typedef struct keys { /* zeroed: closed */
    bool open_to_all; /* --no-auth: everybody is an admin */
    char path[1024];
    int64_t changed;  /* the file's time when it was read, and its size */
    uint64_t bytes;
    uint64_t looked_ns;
    keys_entry entries[KEYS_MAX];
    uint32_t count;
} keys;

/* path NULL: `keys` in exl2's folder of the user's configuration, which is made with random keys if it is absent, for
   its owner alone. false: failed, message on stderr. */
bool keys_open(keys *k, const char *path);
/* The fields' values, or NULL: x-admin-key, which takes admin keys alone; x-api-key; authorization. The first that has
   a valid key counts. */
keys_level keys_right(keys *k, const char *admin, const char *api, const char *authorization);
const char *keys_first(const keys *k, keys_level level); /* NULL: there is none */
/* Random bytes of the system, for keys and ids. false: it has none. */
bool keys_random(void *out, size_t bytes);

#endif
