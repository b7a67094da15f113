/* chat_file.h: conversations as files: {"messages": [{"role", "content"}, ..]}, as servers and `exl2 render` take them.
   takes: paths, messages.
   gives: chat_file_write, chat_file_read.
   owns:  nothing; the caller frees the messages. */
#ifndef DEMO_CLI_CHAT_FILE_H
#define DEMO_CLI_CHAT_FILE_H

#include "../../exl2.h"

#include <stdbool.h>

bool chat_file_write(const char *path, const exl2_message *messages, size_t count); /* false: message on stderr */

/* Role and content of each message, on the heap, to be freed with chat_file_free. A system message may come first; then
   the user and the assistant take turns. false: message on stderr, and no messages. */
bool chat_file_read(const char *path, exl2_message **messages, size_t *count);
void chat_file_free(exl2_message *messages, size_t count);

#endif
