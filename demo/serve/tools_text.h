/* tools_text.h: tools for templates that do not read them: as texts of messages.
   takes: messages as request_read_messages makes them, the tools of a request.
   gives: tools_text_messages, tools_text_free, tools_text_short_ids.
   owns:  the new messages, until tools_text_free.

   Whether a template reads tools is found by rendering the messages with and without them: the same text means no. */
#ifndef DEMO_TOOLS_TEXT_H
#define DEMO_TOOLS_TEXT_H

#include "exl2.h"
#include "tools.h"

typedef struct tools_text { /* zeroed: nothing to free */
    exl2_message *messages;
    size_t count;
    buffer texts;
} tools_text;

/* The same conversation with a system text that lists the tools and says how to call one (joined to the first message
   if that is a system message; t NULL: without one), earlier calls as text of their reply in the format's marks, and
   results as messages of the user, those with pictures as they are. Other messages are copied as they are and point to
   the same texts. false: memory ran out. */
bool tools_text_messages(const tools *t, tools_format format, const exl2_message *messages, size_t count,
                         tools_text *out);
void tools_text_free(tools_text *t);

/* Templates of the mistral format refuse ids of calls that do not have nine letters and digits. Gives the messages such
   ids: the last nine of each, after zeros where there are fewer. The texts are in *texts, which must be empty and must
   stay. false: memory ran out, and nothing has changed. */
bool tools_text_short_ids(exl2_message *messages, size_t count, buffer *texts);

#endif
