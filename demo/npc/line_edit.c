/* line_edit.c: see line_edit.h.
   takes: bytes.
   gives: what line_edit.h declares. */
#include "line_edit.h"

#include <string.h>

#define CTRL(letter) ((letter) - '@')
#define ESCAPE 27
#define RUBOUT 127

/* ---- text ---- */

static size_t before(const line_edit *l, size_t at)
{
    do {
        at -= at > 0;
    } while (at && ((unsigned char)l->now.text[at] & 0xC0) == 0x80);
    return at;
}

static size_t after(const line_edit *l, size_t at)
{
    do {
        at += at < l->now.bytes;
    } while (at < l->now.bytes && ((unsigned char)l->now.text[at] & 0xC0) == 0x80);
    return at;
}

static size_t word_before(const line_edit *l)
{
    size_t at = l->at;
    while (at && l->now.text[at - 1] == ' ') {
        at--;
    }
    while (at && l->now.text[at - 1] != ' ') {
        at--;
    }
    return at;
}

/* Removes the bytes [from, to) and sets the cursor to `from`. */
static void take_out(line_edit *l, size_t from, size_t to)
{
    memmove(l->now.text + from, l->now.text + to, l->now.bytes - to + 1);
    l->now.bytes -= to - from;
    l->at = from;
    l->full = l->full && from == to;
}

static void put_in(line_edit *l, const char *text, size_t bytes)
{
    l->full = l->now.bytes + bytes > LINE_BYTES_MAX;
    if (!l->full) {
        memmove(l->now.text + l->at + bytes, l->now.text + l->at, l->now.bytes - l->at + 1);
        memcpy(l->now.text + l->at, text, bytes);
        l->now.bytes += bytes;
        l->at += bytes;
    }
}

/* Inserts a code point when all its bytes have arrived; bytes that are no UTF-8 are ignored. */
static void put_byte(line_edit *l, unsigned char byte)
{
    bool goes_on = (byte & 0xC0) == 0x80;
    if (!goes_on) {
        l->part_bytes = 0;
        l->part_wanted = byte < 0x80 ? 1 : byte >= 0xC2 && byte < 0xE0 ? 2 : byte >= 0xE0 && byte < 0xF0 ? 3
                       : byte >= 0xF0 && byte < 0xF5 ? 4 : 0;
    }
    if (l->part_bytes == 0 && (goes_on || l->part_wanted == 0)) {
        return;
    }
    l->part[l->part_bytes++] = (char)byte;
    if (l->part_bytes == l->part_wanted) {
        put_in(l, l->part, l->part_bytes);
        l->part_bytes = 0;
    }
}

/* ---- history ---- */

static line_text *past_line(line_edit *l, size_t back)
{
    return back ? &l->history[(l->history_count - back) % LINE_HISTORY] : &l->draft;
}

static void look_back(line_edit *l, bool further)
{
    size_t kept = l->history_count < LINE_HISTORY ? l->history_count : LINE_HISTORY;
    if (further ? l->back == kept : l->back == 0) {
        return;
    }
    if (l->back == 0) {
        l->draft = l->now;
    }
    l->back = further ? l->back + 1 : l->back - 1;
    l->now = *past_line(l, l->back);
    l->at = l->now.bytes;
    l->full = false;
}

static line_key enter(line_edit *l)
{
    bool known = l->history_count && strcmp(past_line(l, 1)->text, l->now.text) == 0;
    l->entered = l->now;
    if (l->now.bytes && !known) {
        l->history[l->history_count++ % LINE_HISTORY] = l->now;
    }
    l->back = 0;
    l->at = l->now.bytes;
    take_out(l, 0, l->now.bytes);
    return LINE_ENTERED;
}

/* ---- keys ---- */

/* Terminals send Home as ESC [ H, ESC O H, ESC [ 1 ~ or ESC [ 7 ~. Returns the letter for the number; 0 = none. */
static char key_of_number(const line_edit *l)
{
    static const char keys[] = "\0H\0X" "F\0\0HF";
    bool single = l->sequence_bytes == 3 || (l->sequence_bytes > 3 && l->sequence[3] == ';');
    return single && l->sequence[2] >= '0' && l->sequence[2] <= '8' ? keys[l->sequence[2] - '0'] : 0;
}

/* The last byte decides, as in ESC [ D, ESC O D and ESC [ 1 ; 5 D; if it is '~', the number does. */
static void run_sequence(line_edit *l, char last)
{
    switch (last == '~' ? key_of_number(l) : last) {
    case 'A': look_back(l, true); break;
    case 'B': look_back(l, false); break;
    case 'C': l->at = after(l, l->at); break;
    case 'D': l->at = before(l, l->at); break;
    case 'H': l->at = 0; break;
    case 'F': l->at = l->now.bytes; break;
    case 'X': take_out(l, l->at, after(l, l->at)); break; /* Delete */
    default: break;
    }
}

/* F5, F6, F7 and F9 are ESC [ 1 5 ~, 1 7, 1 8 and 2 0. */
static line_key function_key(const line_edit *l)
{
    static const struct { const char *digits; line_key key; } keys[] = {
        { "[15", LINE_SAVE }, { "[17", LINE_LESS }, { "[18", LINE_MORE }, { "[20", LINE_LOAD }
    };
    for (size_t i = 0; l->sequence_bytes == 4 && i < sizeof keys / sizeof keys[0]; i++) {
        if (memcmp(l->sequence + 1, keys[i].digits, 3) == 0) {
            return keys[i].key;
        }
    }
    return LINE_TYPING;
}

/* true: the byte belongs to an escape sequence. *key: what the sequence asks for when it ends. */
static bool in_sequence(line_edit *l, unsigned char byte, line_key *key)
{
    if (byte == ESCAPE) {
        l->sequence[0] = ESCAPE;
        l->sequence_bytes = 1;
        return true;
    }
    if (l->sequence_bytes == 0) {
        return false;
    }
    bool opens = l->sequence_bytes == 1 && (byte == '[' || byte == 'O');
    bool ends = l->sequence_bytes == 1 ? !opens : byte >= '@' && byte <= '~';
    if (ends) {
        if (l->sequence_bytes > 1) {
            *key = byte == '~' ? function_key(l) : LINE_TYPING;
            run_sequence(l, (char)byte);
        }
        l->sequence_bytes = 0;
    } else if (l->sequence_bytes < sizeof l->sequence) {
        l->sequence[l->sequence_bytes++] = (char)byte;
    }
    return true;
}

line_key line_edit_byte(line_edit *l, unsigned char byte)
{
    line_key key = LINE_TYPING;
    if (in_sequence(l, byte, &key)) {
        return key;
    }
    switch (byte) {
    case '\n':
    case '\r': return enter(l);
    case RUBOUT:
    case '\b': take_out(l, before(l, l->at), l->at); break;
    case CTRL('A'): l->at = 0; break;
    case CTRL('B'): l->at = before(l, l->at); break;
    case CTRL('E'): l->at = l->now.bytes; break;
    case CTRL('F'): l->at = after(l, l->at); break;
    case CTRL('K'): take_out(l, l->at, l->now.bytes); break;
    case CTRL('N'): look_back(l, false); break;
    case CTRL('P'): look_back(l, true); break;
    case CTRL('U'): take_out(l, 0, l->at); break;
    case CTRL('W'): take_out(l, word_before(l), l->at); break;
    case CTRL('D'):
        if (l->now.bytes == 0) {
            return LINE_CLOSED;
        }
        take_out(l, l->at, after(l, l->at));
        break;
    default:
        if (byte >= ' ') {
            put_byte(l, byte);
        }
    }
    return LINE_TYPING;
}

/* ---- the visible part ---- */

/* The part ends with the row, and begins far enough to the left that the cursor is in it. */
line_view line_edit_view(const line_edit *l, uint32_t columns)
{
    uint32_t used = 1, width;
    size_t from = l->at, to = l->at;
    while (from) {
        size_t next = before(l, from);
        wrap_code_point(l->now.text + next, &width);
        if (used + width > columns) {
            break;
        }
        used += width;
        from = next;
    }
    while (to < l->now.bytes) {
        size_t bytes = wrap_code_point(l->now.text + to, &width);
        if (used + width > columns) {
            break;
        }
        used += width;
        to += bytes;
    }
    return (line_view){ l->now.text + from, to - from, l->at - from };
}
