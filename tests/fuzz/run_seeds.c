/* run_seeds.c: main for a fuzz target without libFuzzer. Runs the target on every file of the given folders, unchanged
   and with a few hundred changes by a generator with a fixed seed, so that each run is the same. The test fails by a
   crash, an abort or a sanitizer report.
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

/* Makes one change to data, which has room for *size + 8 bytes: a flipped bit, a special byte, a cut, or a piece
   that is repeated or removed. */
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

/* The target gets a block of exactly `size` bytes, so that ASan detects an access to the byte after it. */
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

/* Runs the files in the order of their names, so that runs on different disks agree. */
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
