/* chat_file.c: see chat_file.h.
   takes: files of other programs and people.
   gives: what chat_file.h declares. */
#define _POSIX_C_SOURCE 200809L
#include "chat_file.h"

#include "../common/json_in.h"
#include "../common/json_out.h"
#include "../common/memory.h"
#include "../common/text_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool chat_file_write(const char *path, const exl2_message *messages, size_t count)
{
    text_file_part part;
    bool good = text_file_begin(&part, path);
    if (good) {
        json_out j = { .file = part.file };
        json_out_object(&j, NULL);
        json_out_array(&j, "messages");
        for (size_t i = 0; i < count; i++) {
            json_out_object(&j, NULL);
            json_out_string(&j, "role", messages[i].role);
            json_out_string(&j, "content", messages[i].text);
            json_out_end(&j);
        }
        json_out_end(&j);
        json_out_end(&j);
        good = text_file_end(&part, !ferror(part.file));
    }
    if (!good) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
    }
    return good;
}

void chat_file_free(exl2_message *messages, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free((void *)(uintptr_t)messages[i].text);
    }
    free(messages);
}

/* The role as a constant, or NULL: it is none that may stand after `turns` turns. */
static const char *role_of(const json_value *message, size_t index, size_t turns)
{
    const json_value *role = json_member(message, "role");
    const char *wanted = turns % 2 ? "assistant" : "user";
    if (!role || role->kind != JSON_TEXT) {
        return NULL;
    }
    return strcmp(role->text, wanted) == 0 ? wanted
         : index == 0 && strcmp(role->text, "system") == 0 ? "system" : NULL;
}

/* Returns NULL, or what is wrong with message number *at. */
static const char *take(const json_value *list, exl2_message *out, size_t *at)
{
    size_t turns = 0;
    *at = 0;
    for (const json_value *v = list->child; v; v = v->next, ++*at) {
        const json_value *content = json_member(v, "content");
        const char *role = role_of(v, *at, turns);
        if (!role) {
            return "has another \"role\" than is expected: \"user\" and \"assistant\" take turns, after a \"system\" "
                   "message or none";
        }
        if (!content || content->kind != JSON_TEXT || strlen(content->text) != content->text_bytes) {
            return "has no text as its \"content\"";
        }
        out[*at] = (exl2_message){ .role = role, .text = memory_copy_text(content->text, content->text_bytes) };
        turns += strcmp(role, "system") != 0;
    }
    return NULL;
}

bool chat_file_read(const char *path, exl2_message **messages, size_t *count)
{
    size_t bytes, at = 0;
    char *text = text_file_read(path, &bytes);
    *messages = NULL;
    *count = 0;
    if (!text) {
        return false;
    }
    const char *error = NULL, *wrong = NULL;
    json_value *root = json_read(text, bytes, &error);
    const json_value *list = json_member(root, "messages");
    if (!root) {
        fprintf(stderr, "%s: %s\n", path, error);
    } else if (!list || list->kind != JSON_ARRAY) {
        fprintf(stderr, "%s has no list \"messages\"\n", path);
    } else {
        *messages = memory_take(list->child_count + 1, sizeof **messages);
        wrong = take(list, *messages, &at);
        *count = at;
    }
    if (wrong) {
        fprintf(stderr, "%s: message %zu %s\n", path, at + 1, wrong);
        chat_file_free(*messages, at);
        *messages = NULL;
        *count = 0;
    }
    json_free(root);
    free(text);
    return *messages != NULL;
}
