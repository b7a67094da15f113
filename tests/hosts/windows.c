/* windows.c: what only a Windows build does: paths in UTF-8 and beyond 260 characters, a drive that is missing, files
   that another process holds open, and keys of the console.
   takes: windows FOLDER MODEL: a folder to write to, a model folder; or windows hold FILE: opens FILE for itself alone,
          prints a line and ends when stdin does.
   gives: exit code 0 or 1.
   owns:  what it makes in FOLDER. */
#define EXL2_CONVERT
#include "../../exl2_impl/0_base/platform_write.h"

#include "../../demo/common/memory.c"
#include "../../demo/npc/keyboard.c"
#include "../../demo/npc/line_edit.c"
#include "../../demo/npc/wrap.c"
#include "../check.h"

#define ODD_NAME "Gr\xC3\xBC\xC3\x9F" "e-\xE6\x97\xA5\xE6\x9C\xAC-\xF0\x9F\x98\x80" /* two, three and four bytes */

static exl2_error last;

/* Loads the model and closes it: the result, whose message is in `last`. */
static exl2_result load(const char *path)
{
    exl2_engine *e = NULL;
    exl2_model model;
    exl2_engine_desc engine = { .backend = EXL2_BACKEND_CPU };
    exl2_model_desc desc = { .path = path, .context_max = 64 };
    CHECK_INT(exl2_open(&engine, &e), EXL2_OK);
    exl2_result result = exl2_model_load(e, &desc, &model);
    exl2_last_error(e, &last);
    exl2_close(e);
    return result;
}

static void copy_file(const char *from_folder, const char *to_folder, const char *name)
{
    char from[1024], to[1024];
    size_t bytes;
    snprintf(from, sizeof from, "%s/%s", from_folder, name);
    snprintf(to, sizeof to, "%s/%s", to_folder, name);
    char *data = check_read(from, &bytes);
    void *file = exl2__platform_create(to);
    if (CHECK(file != NULL)) {
        CHECK(exl2__platform_write(file, 0, data, bytes));
        CHECK(exl2__platform_finish(file));
    }
    free(data);
}

static void test_model_in(const char *folder, const char *model)
{
    char name[256], names[1024] = " ";
    copy_file(model, folder, "config.json");
    copy_file(model, folder, "output.safetensors");
    for (uint32_t i = 0; exl2__platform_entry(folder, i, name, sizeof name); i++) {
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s ", name);
    }
    CHECK(strstr(names, " config.json ") && strstr(names, " output.safetensors "));
    if (!CHECK_INT(load(folder), EXL2_OK)) {
        printf("  %s\n", last.text);
    }
}

/* Names of a folder come back as they were given; a model in it loads. */
static void test_paths(const char *folder, const char *model)
{
    char path[1024], name[64], moved[1024];
    wchar_t wide[EXL2__WIDE_MAX];
    snprintf(path, sizeof path, "%s/" ODD_NAME, folder);
    CHECK(exl2__platform_make_dir(path));
    CHECK(exl2__platform_entry(folder, 0, name, sizeof name));
    CHECK_TEXT(name, ODD_NAME);
    test_model_in(path, model);
    CHECK(exl2__platform_wide(path, wide) && wide[0] == L'/');
    while (strlen(path) < 600) {
        snprintf(path + strlen(path), sizeof path - strlen(path), "/one level more of a long path");
        CHECK(exl2__platform_make_dir(path));
    }
    CHECK(exl2__platform_wide(path, wide) && wcsncmp(wide, L"\\\\?\\", 4) == 0 && wide[5] == L':');
    CHECK(!wcschr(wide, L'/'));
    test_model_in(path, model);
    snprintf(moved, sizeof moved, "%s/moved", path);
    snprintf(path + strlen(path), sizeof path - strlen(path), "/config.json");
    CHECK(exl2__platform_is_file(path) && !exl2__platform_is_link(path));
    CHECK(exl2__platform_rename(path, moved) && !exl2__platform_is_file(path) && exl2__platform_is_file(moved));
    CHECK(exl2__platform_remove_file(moved) && !exl2__platform_is_file(moved));
    CHECK(exl2__platform_wide("\\\\server\\share\\a", wide) && wcscmp(wide, L"\\\\server\\share\\a") == 0);
    snprintf(path, sizeof path, "\\\\server\\share\\%0300d", 7);
    CHECK(exl2__platform_wide(path, wide) && wcsncmp(wide, L"\\\\?\\UNC\\server\\share\\000", 24) == 0);
    CHECK_INT(wcslen(wide), strlen(path) + 6);
    memset(path, 'a', sizeof path);
    path[sizeof path - 1] = 0;
    CHECK(!exl2__platform_wide(path, wide));
}

static void test_missing_drive(void)
{
    char name[64];
    uint64_t bytes;
    exl2_files files = exl2__platform_files();
    CHECK(files.open(files.user, "Q:/models/config.json", &bytes) == NULL);
    CHECK(!files.list(files.user, "Q:/models", 0, name, sizeof name));
    CHECK(!exl2__platform_make_dir("Q:/models"));
    CHECK(exl2__platform_create("Q:/file") == NULL);
    CHECK_INT(load("Q:/models"), EXL2_ERR_IO);
    CHECK_TEXT(last.text, "no config.json in Q:/models");
}

/* ---- a file that another process holds ---- */

static int hold(const char *path)
{
    wchar_t wide[EXL2__WIDE_MAX];
    HANDLE file = exl2__platform_wide(path, wide) ? CreateFileW(wide, GENERIC_READ, 0, NULL, OPEN_EXISTING, 0, NULL)
                                                  : INVALID_HANDLE_VALUE;
    puts(file == INVALID_HANDLE_VALUE ? "failed" : "held");
    fflush(stdout);
    while (getchar() != EOF) {
    }
    return 0;
}

typedef struct holder {
    HANDLE process, end; /* closing `end` ends its stdin, and so the process */
} holder;

static holder holder_start(const char *program, const char *path)
{
    HANDLE in, in_end, out, out_end;
    SECURITY_ATTRIBUTES inherits = { sizeof inherits, NULL, TRUE };
    STARTUPINFOA start = { .cb = sizeof start, .dwFlags = STARTF_USESTDHANDLES };
    PROCESS_INFORMATION process;
    char line[2400], said[8] = "";
    DWORD got = 0;
    CHECK(CreatePipe(&in, &in_end, &inherits, 0) && CreatePipe(&out, &out_end, &inherits, 0));
    SetHandleInformation(in_end, HANDLE_FLAG_INHERIT, 0);
    start.hStdInput = in;
    start.hStdOutput = start.hStdError = out_end;
    snprintf(line, sizeof line, "\"%s\" hold \"%s\"", program, path);
    if (!CHECK(CreateProcessA(NULL, line, NULL, NULL, TRUE, 0, NULL, NULL, &start, &process))) {
        exit(1);
    }
    CloseHandle(in);
    CloseHandle(out_end);
    ReadFile(out, said, 4, &got, NULL);
    CHECK_TEXT(said, "held");
    CloseHandle(out);
    CloseHandle(process.hThread);
    return (holder){ process.hProcess, in_end };
}

static void holder_end(holder h)
{
    CloseHandle(h.end);
    CHECK_INT(WaitForSingleObject(h.process, 20000), WAIT_OBJECT_0);
    CloseHandle(h.process);
}

/* The message names the file and the folder; when the other process has ended, the model loads. */
static void test_held(const char *program, const char *folder, const char *model)
{
    static const char *const names[] = { "config.json", "output.safetensors" };
    char path[1024], file[1100], wanted[2][1200];
    snprintf(path, sizeof path, "%s/held", folder);
    CHECK(exl2__platform_make_dir(path));
    test_model_in(path, model);
    snprintf(wanted[0], sizeof wanted[0], "no config.json in %s", path);
    snprintf(wanted[1], sizeof wanted[1], "output.safetensors in %s cannot be opened", path);
    for (int i = 0; i < 2; i++) {
        snprintf(file, sizeof file, "%s/%s", path, names[i]);
        holder h = holder_start(program, file);
        CHECK_INT(load(path), EXL2_ERR_IO);
        CHECK_TEXT(last.text, wanted[i]);
        holder_end(h);
        CHECK_INT(load(path), EXL2_OK);
    }
}

/* ---- the console's keys ---- */

static void key(keyboard *k, wchar_t unit, WORD code, bool down)
{
    KEY_EVENT_RECORD event = { .bKeyDown = down, .wRepeatCount = 1, .wVirtualKeyCode = code };
    char bytes[8];
    event.uChar.UnicodeChar = unit;
    for (uint32_t i = 0, count = bytes_of(k, &event, bytes); i < count; i++) {
        line_edit_byte(&k->line, (unsigned char)bytes[i]);
    }
}

static void test_keys(void)
{
    keyboard k = { 0 };
    const wchar_t *text = L"ae\x00E9\x20AC\xD83D\xDE00";
    for (; *text; text++) {
        key(&k, *text, 0, true);
        key(&k, *text, 0, false); /* a key that is released types nothing */
    }
    CHECK_TEXT(k.line.now.text, "ae\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80");
    key(&k, 0, VK_LEFT, true);
    key(&k, 0, VK_SHIFT, true);
    key(&k, '\b', VK_BACK, true);
    key(&k, 0, VK_HOME, true);
    key(&k, 0, VK_DELETE, true);
    key(&k, 0, VK_END, true);
    key(&k, 0x20AC, VK_MENU, false); /* Alt and a number */
    CHECK_TEXT(k.line.now.text, "e\xC3\xA9\xF0\x9F\x98\x80\xE2\x82\xAC");
    key(&k, '\r', VK_RETURN, true);
    key(&k, 0, VK_UP, true);
    key(&k, 0, VK_RIGHT, true);
    CHECK_TEXT(k.line.now.text, k.line.entered.text);
    key(&k, 0, VK_DOWN, true);
    CHECK_TEXT(k.line.now.text, "");
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fputs("usage: windows FOLDER MODEL\n", stderr);
        return 2;
    }
    if (strcmp(argv[1], "hold") == 0) {
        return hold(argv[2]);
    }
    test_paths(argv[1], argv[2]);
    test_missing_drive();
    test_held(argv[0], argv[1], argv[2]);
    test_keys();
    return check_done();
}
