/* room.c: the program room on a virtual display, with a model of random weights: its messages where there is no
   display; an evening that is played by keys says what the terminal's evening says, though it is left by walking,
   saved and loaded by F5 and F9, and has frames without a budget; bubbles in the picture; keys of another client of
   the display.
   takes: room ROOM NPC FOLDER EXL2: the programs, a folder to write to.
   gives: exit code 0, 1 or 77 (no Xvfb or no libX11).
   owns:  FOLDER. */
#define _XOPEN_SOURCE 700
#define _DEFAULT_SOURCE
#include "display.h"
#include "program.h"

#ifdef HAVE_STB_IMAGE
#define STB_READS
#define STBI_ONLY_PNG
#include "../../demo/common/stb.h"
#endif

#define PAPER 0xFBF3DC /* of bubbles, and of nothing else: demo/room/bubbles.h */
#define INK 0x241A20   /* of their letters */

static char room[2048], npc[2048];

/* ---- without a display ---- */

static void sentences(void)
{
    unsetenv("DISPLAY");
    program_sentence(program_run("--model '%s'", folder), 1, "there is no display (DISPLAY is not set)");
    setenv("DISPLAY", ":12345", 1);
    program_sentence(program_run("--model '%s' --frames 3", folder), 1, "there is no display (DISPLAY is :12345)");
    program_sentence(program_run("%s", ""), 1, "room needs a model");
    program_sentence(program_run("--frames -1"), 2, "--frames must be a whole number");
    program_sentence(program_run("--cpu-us 0"), 2, "--cpu-us");
    CHECK_INT(program_run("--help"), 0);
}

/* ---- with one ---- */

static json_value *play(const char *path, const char *name, const char *script, const char *flags, char **text)
{
    char file[64];
    snprintf(program, sizeof program, "%s", path);
    snprintf(file, sizeof file, "%s.script", name);
    program_write(file, script);
    int code = program_run("--model model --script %s.script --json %s.json --transcript %s.txt --seed 5 "
                           "--cpu-us 20000 %s", name, name, name, flags);
    char *err = program_read("err");
    CHECK_INT(code, 0);
    CHECK_TEXT(err, "");
    free(err);
    snprintf(file, sizeof file, "%s.json", name);
    *text = program_read(file);
    return program_parse(*text, strlen(*text));
}

/* Osric speaks when the evening is saved, so the rest of his words is said twice: once more after the load, where all
   that came after the save is gone. */
static const char terminal_script[] =
    "frames 12\nmarla, Good evening.\nwait\npike, Tell me about your friends.\nhear 4\n/leave\nframes 12\n"
    "osric, Did you see the ship?\nhear 3\n/save lantern.save\nwait\nosric, Good bye.\nhear 2\n"
    "/load lantern.save\nwait\n/shout Which of you has the key?\nwait\n/transcript\n";
static const char window_script[] =
    "frames 12\nmarla, Good evening.\nwait\npike, Tell me about your friends.\nhear 4\nhold down 20\nhold right 80\n"
    "frames 12\npress f2\nosric, Did you see the ship?\nhear 3\npress f5\nwait\npress f2\nosric, Good bye.\nhear 2\n"
    "press f9\nwait\n/shout Which of you has the key?\nwait\n/transcript\n";

/* Pike speaks when the player walks away: his line is cut, and no other one. */
static void check_cut(const json_value *report)
{
    uint32_t cut = 0, lines = 0;
    for (const json_value *l = json_member(report, "lines")->child; l; l = l->next) {
        const char *stop = program_text(l, "stop"), *by = program_text(l, "npc");
        bool cancelled = stop && strcmp(stop, "cancelled") == 0;
        cut += cancelled;
        lines++;
        CHECK(!cancelled || (by && strcmp(by, "Pike") == 0));
    }
    CHECK_INT(cut, 1);
    CHECK(lines >= 10);
}

static void same_words(void)
{
    char *text, *again;
    json_value *terminal = play(npc, "terminal", terminal_script, "", &text);
    json_value *window = play(room, "window", window_script, "--png window.png", &again);
    const char *hash = program_text(window, "transcript_hash");
    CHECK(hash && strlen(hash) == 16);
    CHECK_TEXT(hash, program_text(terminal, "transcript_hash"));
    CHECK_INT(program_number(window, "allocations_since_load"), 0);
    CHECK_INT(program_number(window, "invalid_turns"), 0);
    check_cut(window);
    json_free(terminal);
    json_free(window);
    free(text);
    free(again);
    char *said = program_read("terminal.txt"), *seen = program_read("window.txt");
    CHECK_TEXT(seen, said);
    free(said);
    free(seen);
}

static uint32_t count_pixels(const char *file, int colour)
{
    uint32_t count = 0;
#ifdef HAVE_STB_IMAGE
    int width = 0, height = 0, parts = 0;
    unsigned char *pixels = stbi_load(file, &width, &height, &parts, 3);
    CHECK(pixels != NULL);
    CHECK_INT(width, 960);
    CHECK_INT(height, 560);
    for (int i = 0; pixels && i < width * height; i++) {
        count += (pixels[i * 3] << 16 | pixels[i * 3 + 1] << 8 | pixels[i * 3 + 2]) == colour;
    }
    stbi_image_free(pixels);
#else
    (void)file;
    (void)colour;
#endif
    return count;
}

/* A quiet room has no bubble; with --frames it ends after so many frames. Who has not begun to speak has dots, and who
   speaks has words: more ink than the frame of a bubble, and more paper than ink. */
static void pictures(void)
{
    char *text;
    json_value *report = play(room, "quiet", "frames 900\n", "--frames 40 --png quiet.png", &text);
    CHECK_INT(program_number(json_member(report, "frames"), "count"), 40);
    json_free(report);
    free(text);
    json_free(play(room, "dots", "frames 5\nmarla, Good evening.\nframes 900\n",
                   "--frames 8 --cpu-us 100 --threads 1 --png dots.png", &text));
    free(text);
    json_free(play(room, "words", "marla, Good evening.\nwait\nframes 5\n", "--png words.png", &text));
    free(text);
#ifdef HAVE_STB_IMAGE
    uint32_t dots = count_pixels("dots.png", PAPER), words = count_pixels("words.png", PAPER);
    CHECK_INT(count_pixels("quiet.png", PAPER), 0);
    CHECK(dots > 1500 && words > 2 * dots);
    CHECK(count_pixels("words.png", INK) > count_pixels("dots.png", INK) + 400);
#else
    printf("no pixels are counted: there is no stb_image\n");
#endif
}

/* Keys that another client presses: a question, and the command that ends the evening. */
static void pressed_keys(void)
{
    unsigned long window = 0;
    int status = -1;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        execl(room, room, "--model", "model", "--json", "keys.json", "--frames", "6000", (char *)NULL);
        _exit(127);
    }
    for (int i = 0; i < 6000 && waitpid(child, &status, WNOHANG) == 0; i++) { /* keys before the door opens are lost */
        window = window ? window : display_window();
        if (window && i % 100 == 99) {
            display_type(window, "osric, is it cold outside\n/quit\n");
        }
        usleep(10000);
    }
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    char *text = program_read("keys.json");
    json_value *report = program_parse(text, strlen(text));
    const json_value *line = item(json_member(report, "lines"), 0);
    CHECK_TEXT(program_text(line, "text"), "is it cold outside");
    CHECK_TEXT(program_text(line, "to"), "Osric");
    json_free(report);
    free(text);
}

static void wrong_keys(void)
{
    snprintf(program, sizeof program, "%s", room);
    program_write("wrong", "hold sideways 3\n");
    program_sentence(program_run("--model model --script wrong"), 1, "'hold sideways 3' is no key");
    program_sentence(program_run("--model none --frames 2"), 1, "config.json");
    program_sentence(program_run("--model model --frames 2 --png none/f.png"), 1, "none/f.png cannot be written");
    program_sentence(program_run("--model model --frames 2 --memory 1MiB"), 1, "host_bytes_max");
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fputs("usage: room ROOM NPC FOLDER EXL2\n", stderr);
        return 2;
    }
    program_set(argv[2], argv[3]);
    snprintf(npc, sizeof npc, "%s", program);
    program_set(argv[1], argv[3]);
    snprintf(room, sizeof room, "%s", program);
    sentences();
    if (!display_open()) {
        display_close();
        printf("skipped: Xvfb and libX11 are not both here\n");
        return check_done() ? 1 : 77;
    }
    program_make_model(argv[4], "model", 1, 1); /* its turns are quick */
    CHECK_INT(chdir(folder), 0); /* F5 and F9 use a file of the working folder */
    same_words();
    pictures();
    pressed_keys();
    wrong_keys();
    display_close();
    program_set(argv[1], argv[3]); /* the model is large */
    return check_done();
}
