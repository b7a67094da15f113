/* request_pictures.c: pictures in the messages of a chat: PNG and JPEG files in data: URLs. Nothing is fetched.
   takes: content parts of type image_url (chats) and input_image (/v1/responses).
   gives: request_is_picture, request_read_picture, request_free_pixels of request.h.
   owns:  nothing; pixels and handles are the request's. */
#include "request.h"

#include <stdlib.h>
#include <string.h>

/* The text after `words` without regard to case; NULL: the text does not begin with them. */
static const char *after(const char *text, const char *words)
{
    for (; *words; text++, words++) {
        char c = *text >= 'A' && *text <= 'Z' ? (char)(*text + 32) : *text;
        if (c != *words) {
            return NULL;
        }
    }
    return text;
}

static int value_of(char c)
{
    return c >= 'A' && c <= 'Z' ? c - 'A'
         : c >= 'a' && c <= 'z' ? c - 'a' + 26
         : c >= '0' && c <= '9' ? c - '0' + 52
         : c == '+'             ? 62
         : c == '/'             ? 63
                                : -1;
}

/* Base64 of RFC 4648, whole groups, padded: its bytes -> out [count / 4 * 3]. White space does not count, as RFC 2045
   has it: mail programs and `base64` break lines. false: it is not that. */
static bool decode_base64(const char *text, size_t count, uint8_t *out, size_t *bytes)
{
    uint32_t group = 0;
    size_t digits = 0, padding = 0;
    *bytes = 0;
    for (size_t i = 0; i < count; i++) {
        char c = text[i];
        if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
            continue;
        }
        int value = c == '=' ? 0 : value_of(c);
        if (value < 0 || (c != '=' && padding > 0)) {
            return false;
        }
        padding += c == '=';
        group = group << 6 | (uint32_t)value;
        if (++digits % 4 == 0) {
            out[(*bytes)++] = (uint8_t)(group >> 16);
            out[(*bytes)++] = (uint8_t)(group >> 8);
            out[(*bytes)++] = (uint8_t)group;
        }
    }
    *bytes -= padding < *bytes ? padding : *bytes;
    return digits > 0 && digits % 4 == 0 && padding <= 2;
}

/* The URL of a part: {"image_url": {"url": U}}, or {"image_url": U}. NULL: none. */
static const json_value *url_of(const json_value *part)
{
    const json_value *url = json_member(part, "image_url");
    url = url && url->kind == JSON_OBJECT ? json_member(url, "url") : url;
    return url && url->kind == JSON_TEXT ? url : NULL;
}

/* Finds the base64 text of a data: URL. */
static bool read_url(const json_value *url, const char **data, size_t *count, request_error *error)
{
    static const char *const heads[] = { "image/png;base64,", "image/jpeg;base64,", "image/jpg;base64," };
    const char *type = after(url->text, "data:");
    if (after(url->text, "http:") || after(url->text, "https:")) {
        return fields_fail(error, "messages", "this server fetches no pictures: send image_url as a data: URL");
    }
    if (!type) {
        return fields_fail(error, "messages",
                           "image_url must be data:image/png;base64,... or data:image/jpeg;base64,...");
    }
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        const char *begin = after(type, heads[i]);
        if (begin) {
            *data = begin;
            *count = url->text_bytes - (size_t)(begin - url->text);
            return true;
        }
    }
    return fields_fail(error, "messages", "a picture must be image/png or image/jpeg in base64, not '%.*s'",
                       (int)strcspn(type, ",") < 40 ? (int)strcspn(type, ",") : 40, type);
}

static bool decode(const char *data, size_t count, picture_file *out, request_error *error)
{
    char why[256];
    size_t bytes = 0;
    uint8_t *file = malloc(count / 4 * 3 + 1);
    bool good = file != NULL;
    if (!file) {
        fields_fail(error, NULL, "there is no memory left for this request");
    } else if (!decode_base64(data, count, file, &bytes)) {
        good = fields_fail(error, "messages", "the base64 of a picture is damaged");
    } else if (bytes < 4 || (file[0] != 0x89 && file[0] != 0xFF)) { /* the first byte of PNG and of JPEG */
        good = fields_fail(error, "messages", "the bytes of a picture are neither PNG nor JPEG");
    } else if (!picture_file_decode(file, bytes, REQUEST_PIXELS_MAX, out, why, sizeof why)) {
        good = fields_fail(error, "messages", "a picture cannot be read: %s", why);
    }
    free(file);
    return good;
}

bool request_is_picture(const json_value *part)
{
    const json_value *type = json_member(part, "type");
    return type && type->kind == JSON_TEXT
        && (strcmp(type->text, "image_url") == 0 || strcmp(type->text, "input_image") == 0);
}

bool request_read_picture(request *r, const json_value *part, request_error *error)
{
    const request_limits *limits = r->limits;
    const json_value *url = url_of(part);
    const char *data = NULL;
    size_t count = 0;
    picture_file one = { 0 };
    if (!url) {
        return fields_fail(error, "messages", "a picture must have an image_url");
    }
    if (limits->pictures_max == 0) {
        return fields_fail(error, "messages", "%s",
                           limits->no_pictures ? limits->no_pictures : "this model reads no pictures");
    }
    if (r->picture_count == limits->pictures_max) {
        return fields_fail(error, "messages", "a request may have %u pictures at most", limits->pictures_max);
    }
    if (!read_url(url, &data, &count, error) || !decode(data, count, &one, error)) {
        return false;
    }
    uint64_t bytes = (uint64_t)one.width * one.height * one.channels;
    picture_file *all = realloc(r->pictures, (r->picture_count + 1) * sizeof *all);
    if (!all || r->picture_bytes + bytes > REQUEST_PIXEL_BYTES) {
        r->pictures = all ? all : r->pictures;
        picture_file_close(&one);
        return all ? fields_fail(error, "messages", "the pictures have more than %llu bytes of pixels together",
                                 (unsigned long long)REQUEST_PIXEL_BYTES)
                   : fields_fail(error, NULL, "there is no memory left for this request");
    }
    r->pictures = all;
    r->pictures[r->picture_count++] = one;
    r->picture_bytes += bytes;
    return true;
}

void request_free_pixels(request *r)
{
    for (uint32_t i = 0; i < r->picture_count && r->pictures; i++) {
        picture_file_close(&r->pictures[i]);
    }
    free(r->pictures);
    r->pictures = NULL;
    r->picture_bytes = 0;
}
