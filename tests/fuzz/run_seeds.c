/* run_seeds.c: main for a fuzz target without libFuzzer: every file of the folders given, as it is and changed in a few
   hundred ways by a fixed generator, so that each run is the same. A crash, a sanitizer report or an abort fails.
   run_seeds FOLDER... */
#include "../check.h"

#include <dirent.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUTATIONS 300

static uint64_t state = 0x9E3779B97F4A7C15u;

static uint32_t draw(uint32_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)((state >> 32) * below >> 32);
}

/* One change to data [*size, cap >= *size + 8]: a bit, a byte of interest, a cut, a repeated or a removed piece. */
static void mutate(uint8_t *data, size_t *size)
{
    static const uint8_t bytes[] = { 0, 0xFF, 0x80, 0x7F, '"', '\\', '{', '}', '[', ']', ',', ':', '0', '9', '-', 'e',
                                     '.', 'u' };
    if (*size == 0) {
        data[(*size)++] = bytes[draw(sizeof bytes)];
        return;
    }
    uint32_t at = draw((uint32_t)*size), piece = 1 + draw(8);
    piece = piece < *size - at ? piece : (uint32_t)(*size - at);
    switch (draw(6)) {
    case 0:
        data[at] ^= (uint8_t)(1u << draw(8));
        break;
    case 1:
    case 2:
        data[at] = bytes[draw(sizeof bytes)];
        break;
    case 3:
        *size = at;
        break;
    case 4:
        memmove(data + at + piece, data + at, *size - at);
        *size += piece;
        break;
    default:
        memmove(data + at, data + at + piece, *size - at - piece);
        *size -= piece;
        break;
    }
}

/* The target gets a block of exactly `size` bytes, so that ASan sees the first byte past it. */
static void run(const uint8_t *data, size_t size)
{
    uint8_t *exact = (uint8_t *)malloc(size ? size : 1);
    memcpy(exact, data, size);
    LLVMFuzzerTestOneInput(exact, size);
    check_count++;
    free(exact);
}

static void run_seed(const char *path)
{
    size_t seed_bytes;
    char *seed = check_read(path, &seed_bytes);
    run((const uint8_t *)seed, seed_bytes);
    uint8_t *data = (uint8_t *)malloc(seed_bytes + 8 * 8);
    for (int i = 0; i < MUTATIONS; i++) {
        size_t size = seed_bytes;
        memcpy(data, seed, seed_bytes);
        for (uint32_t changes = 1 + draw(8); changes > 0; changes--) {
            mutate(data, &size);
        }
        run(data, size);
    }
    free(data);
    free(seed);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp((const char *)a, (const char *)b);
}

/* In the order of names, so that runs on different disks agree. */
static void run_folder(const char *folder)
{
    char names[256][256];
    int count = 0;
    DIR *dir = opendir(folder);
    if (!CHECK(dir != NULL)) {
        return;
    }
    for (struct dirent *entry; count < 256 && (entry = readdir(dir)) != NULL;) {
        if (entry->d_name[0] != '.') {
            snprintf(names[count++], sizeof names[0], "%s", entry->d_name);
        }
    }
    closedir(dir);
    qsort(names, (size_t)count, sizeof names[0], compare_names);
    for (int i = 0; i < count; i++) {
        char path[1200];
        int length = snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        if (CHECK(length > 0 && (size_t)length < sizeof path)) {
            run_seed(path);
        }
    }
    CHECK(count > 0);
}

int main(int argc, char **argv)
{
    CHECK(argc > 1);
    for (int i = 1; i < argc; i++) {
        run_folder(argv[i]);
    }
    return check_done();
}
