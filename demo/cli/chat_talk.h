/* chat_talk.h: the conversation of `exl2 chat`. The engine gets the whole conversation every time and reuses the part
   that its session already holds. When the context is too short for a reply, the older half of the turns is forgotten,
   and its tokens are trimmed from the session. A picture stays open as long as a message has it.
   takes: a loaded model with a session.
   gives: chat, chat_add, chat_add_shown, chat_keep, chat_begin, chat_set_system, chat_show, chat_reply,
          chat_close.
   owns:  the messages, until chat_close. */
#ifndef DEMO_CLI_CHAT_TALK_H
#define DEMO_CLI_CHAT_TALK_H

#include "../common/host.h"
#include "../common/images.h"
#include "../common/memory.h"
#include "reply_view.h"
#include "template.h"

typedef struct chat {
    host host;
    exl2_session session;
    exl2_message *messages; /* [count] the whole conversation; its texts and lists of pictures are on the heap */
    size_t count, cap;
    exl2_image shown[ARGS_LIST_MAX]; /* [shown_count] pictures of the next message */
    uint32_t shown_count;
    const images_options *images;
    char *system; /* NULL: none */
    reply_view view;
    exl2_chat_desc template;
    template_ending ending;
    uint32_t max_tokens;
    exl2_sampler_desc sampler;
    bool timings; /* each reply is followed by its figures */
    memory_text reply; /* text so far */
    host_end end;
} chat;

void chat_add(chat *c, const char *role, const char *text, size_t bytes);
void chat_add_shown(chat *c);            /* gives the newest message the pictures that were shown */
void chat_keep(chat *c, size_t count);   /* cuts the conversation back to its first `count` messages */
void chat_begin(chat *c);                /* forgets the conversation, but not the system message */
void chat_set_system(chat *c, const char *text); /* the same, with another system message; NULL or "": none */

/* Shows a picture, which stands in the next message. false: it cannot be; a message was printed. */
bool chat_show(chat *c, const char *path);

/* Streams the reply to the messages; Ctrl-C ends it early. false: failed, message printed. */
bool chat_reply(chat *c);

void chat_close(chat *c); /* before the engine is closed */

#endif
