/* import_text_write.h: writes tokenizer.json and tokenizer_config.json of an imported model.
   takes: what import_text.h has read.
   gives: exl2__import_text_write. */
#ifndef EXL2__IMPORT_TEXT_WRITE_H
#define EXL2__IMPORT_TEXT_WRITE_H

#include "import_spm.h"

#define EXL2__IMPORT_TEXT_MERGE_MAX 1024u /* bytes of the longest merge, both sides and the space */

static inline void exl2__import_text_quote(exl2__write *w, const exl2__import_text *t, uint32_t id)
{
    exl2__write_quoted(w, "a token of tokenizer.ggml.tokens", t->tokens[id].data, t->tokens[id].bytes);
}

/* Writes the object that describes an added token in both files. Only in tokenizer.json it has an id. */
EXL2__PRIVATE void exl2__import_text_write_added(exl2__write *w, const exl2__import_text *t, uint32_t id, bool with_id)
{
    bool special = exl2__import_text_type_of(t, id) != EXL2__IMPORT_TEXT_USER;
    exl2__write_format(w, "{");
    if (with_id) {
        exl2__write_format(w, "\"id\": %u, ", id);
    }
    exl2__write_format(w, "\"content\": ");
    exl2__import_text_quote(w, t, id);
    exl2__write_format(w, ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false");
    exl2__write_format(w, ", \"special\": %s}", special ? "true" : "false");
}

EXL2__PRIVATE void exl2__import_text_write_splitter(exl2__write *w, const exl2__import_text *t)
{
    const exl2__import_text_family *family = t->family;
    bool sequence = family->digits || family->regexes[0];
    exl2__write_format(w, "  \"normalizer\": %s,\n", family->nfc ? "{\"type\": \"NFC\"}" : "null");
    exl2__write_format(w, "  \"pre_tokenizer\": %s", sequence ? "{\"type\": \"Sequence\", \"pretokenizers\": [" : "");
    if (family->digits) {
        exl2__write_format(w, "{\"type\": \"Digits\", \"individual_digits\": true}, ");
    }
    for (uint32_t i = 0; i < EXL2__IMPORT_TEXT_REGEXES && family->regexes[i]; i++) {
        exl2__write_format(w, "{\"type\": \"Split\", \"pattern\": {\"Regex\": ");
        exl2__write_quoted_z(w, family->regexes[i]);
        exl2__write_format(w, "}, \"behavior\": \"Isolated\", \"invert\": false}, ");
    }
    exl2__write_format(w, "{\"type\": \"ByteLevel\", \"add_prefix_space\": %s", t->prefix_space ? "true" : "false");
    exl2__write_format(w, ", \"trim_offsets\": true, \"use_regex\": %s}", family->regexes[0] ? "false" : "true");
    exl2__write_format(w, "%s,\n", sequence ? "]}" : "");
}

/* Writes {"SpecialToken": ...}, {"Sequence": A}: the post-processor's items for BOS before a text. */
EXL2__PRIVATE void exl2__import_text_write_bos_then_text(exl2__write *w, const exl2__import_text *t)
{
    exl2__write_format(w, "{\"SpecialToken\": {\"id\": ");
    exl2__import_text_quote(w, t, (uint32_t)t->ids.bos);
    exl2__write_format(w, ", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}");
}

/* Writes the post-processor that puts BOS before raw text, if the file asks for it. */
EXL2__PRIVATE void exl2__import_text_write_template(exl2__write *w, const exl2__import_text *t)
{
    exl2__write_format(w, "  \"post_processor\": ");
    if (!t->add_bos) {
        exl2__write_format(w, "null,\n");
        return;
    }
    uint32_t bos = (uint32_t)t->ids.bos;
    exl2__write_format(w, "{\"type\": \"TemplateProcessing\", \"single\": [");
    exl2__import_text_write_bos_then_text(w, t);
    exl2__write_format(w, "], \"pair\": [");
    exl2__import_text_write_bos_then_text(w, t);
    exl2__write_format(w, ", {\"Sequence\": {\"id\": \"B\", \"type_id\": 1}}], \"special_tokens\": {");
    exl2__import_text_quote(w, t, bos);
    exl2__write_format(w, ": {\"id\": ");
    exl2__import_text_quote(w, t, bos);
    exl2__write_format(w, ", \"ids\": [%u], \"tokens\": [", bos);
    exl2__import_text_quote(w, t, bos);
    exl2__write_format(w, "]}}},\n");
}

/* Checks and writes merge i, which is "a b"; the vocabulary must contain a, b and ab. */
EXL2__PRIVATE exl2_result exl2__import_text_write_merge(exl2__write *w, const exl2__import_text *t, uint64_t i,
                                                        exl2__gguf_text merge)
{
    char joined[EXL2__IMPORT_TEXT_MERGE_MAX];
    uint64_t left = 1;
    while (left < merge.bytes && merge.data[left] != ' ') {
        left++;
    }
    if (left + 1 >= merge.bytes || merge.bytes > sizeof joined) {
        return exl2__fail(t->g->ctx, EXL2_ERR_FORMAT,
                          "%s: tokenizer.ggml.merges[%llu] is not two tokens with a space between them", t->g->path,
                          (unsigned long long)i);
    }
    const char *right = merge.data + left + 1;
    size_t right_bytes = (size_t)(merge.bytes - left - 1);
    memcpy(joined, merge.data, (size_t)left);
    memcpy(joined + left, right, right_bytes);
    if (exl2__strtab_find(&t->names, merge.data, (size_t)left, NULL) == UINT32_MAX ||
        exl2__strtab_find(&t->names, right, right_bytes, NULL) == UINT32_MAX ||
        exl2__strtab_find(&t->names, joined, (size_t)merge.bytes - 1, NULL) == UINT32_MAX) {
        return exl2__fail(t->g->ctx, EXL2_ERR_FORMAT,
                          "%s: tokenizer.ggml.merges[%llu] needs or makes a token that is not in the vocabulary",
                          t->g->path, (unsigned long long)i);
    }
    exl2__write_format(w, "%s[", i ? ",\n" : "\n");
    exl2__write_quoted(w, "a half of tokenizer.ggml.merges", merge.data, left);
    exl2__write_format(w, ", ");
    exl2__write_quoted(w, "a half of tokenizer.ggml.merges", right, right_bytes);
    exl2__write_format(w, "]");
    return EXL2_OK;
}

/* The merges of the file. */
EXL2__PRIVATE exl2_result exl2__import_text_write_merges(exl2__write *w, const exl2__import_text *t)
{
    const uint8_t *at = t->merges->data;
    for (uint64_t i = 0; i < t->merges->count; i++) {
        exl2__gguf_text merge = exl2__gguf_string_at(at);
        EXL2__TRY(exl2__import_text_write_merge(w, t, i, merge));
        at += 8 + merge.bytes;
    }
    return EXL2_OK;
}

/* Writes everything of BPE between the added tokens and the vocabulary. */
EXL2__PRIVATE void exl2__import_text_write_bpe(exl2__write *w, const exl2__import_text *t)
{
    exl2__import_text_write_splitter(w, t);
    exl2__import_text_write_template(w, t);
    exl2__write_format(w, "  \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, ");
    exl2__write_format(w, "\"trim_offsets\": true, \"use_regex\": true},\n");
    exl2__write_format(w, "  \"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, ");
    exl2__write_format(w, "\"continuing_subword_prefix\": null, \"end_of_word_suffix\": null, \"fuse_unk\": false, ");
    exl2__write_format(w, "\"byte_fallback\": false, \"ignore_merges\": %s,\n\"vocab\": {",
                       t->family->ignore_merges ? "true" : "false");
}

/* The same of SentencePiece. U+2581 stands for a space, and comes before a text if prefix_space is set. */
EXL2__PRIVATE void exl2__import_text_write_spm(exl2__write *w, const exl2__import_text *t)
{
    const char *const spaces = "{\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, "
                               "\"content\": \"\xE2\x96\x81\"}";
    const char *const prefix = "{\"type\": \"Prepend\", \"prepend\": \"\xE2\x96\x81\"}";
    uint32_t unknown = 0;
    while (unknown < t->count && exl2__import_text_type_of(t, unknown) != EXL2__IMPORT_TEXT_UNKNOWN) {
        unknown++;
    }
    unknown = t->ids.unk >= 0 ? (uint32_t)t->ids.unk : unknown;
    exl2__write_format(w, t->prefix_space ? "  \"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [%s, %s]},\n"
                                          : "  \"normalizer\": %s%s,\n",
                       t->prefix_space ? prefix : spaces, t->prefix_space ? spaces : "");
    exl2__write_format(w, "  \"pre_tokenizer\": null,\n");
    exl2__import_text_write_template(w, t);
    exl2__write_format(w, "  \"decoder\": {\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", \"pattern\": "
                          "{\"String\": \"\xE2\x96\x81\"}, \"content\": \" \"}, {\"type\": \"ByteFallback\"}, "
                          "{\"type\": \"Fuse\"}%s]},\n",
                       t->prefix_space ? ", {\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}" : "");
    exl2__write_format(w, "  \"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": ");
    if (unknown < t->count) {
        exl2__import_text_quote(w, t, unknown);
    } else {
        exl2__write_format(w, "null");
    }
    exl2__write_format(w, ", \"continuing_subword_prefix\": null, \"end_of_word_suffix\": null, \"fuse_unk\": true, "
                          "\"byte_fallback\": true, \"ignore_merges\": false,\n\"vocab\": {");
}

EXL2__PRIVATE exl2_result exl2__import_text_write_tokenizer(exl2__write *w, const exl2__import_text *t)
{
    const char *comma = "\n";
    bool spm = exl2__import_text_is_spm(t);
    exl2__write_format(w, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n");
    exl2__write_format(w, "  \"added_tokens\": [");
    for (uint32_t id = 0; id < t->count; id++) {
        if (exl2__import_text_is_added(t, id)) {
            exl2__write_format(w, "%s    ", comma);
            exl2__import_text_write_added(w, t, id, true);
            comma = ",\n";
        }
    }
    exl2__write_format(w, "\n  ],\n");
    if (spm) {
        exl2__import_text_write_spm(w, t);
    } else {
        exl2__import_text_write_bpe(w, t);
    }
    comma = "\n";
    for (uint32_t id = 0; id < t->count; id++) {
        if (exl2__import_text_type_of(t, id) != EXL2__IMPORT_TEXT_UNUSED) {
            exl2__write_format(w, "%s", comma);
            exl2__import_text_quote(w, t, id);
            exl2__write_format(w, ": %u", id);
            comma = ",\n";
        }
    }
    exl2__write_format(w, "},\n\"merges\": [");
    EXL2__TRY(spm ? exl2__import_spm_write(w, t) : exl2__import_text_write_merges(w, t));
    exl2__write_format(w, "]}\n}\n");
    return EXL2_OK;
}

EXL2__PRIVATE void exl2__import_text_write_config(exl2__write *w, const exl2__import_text *t, uint32_t context)
{
    const struct {
        const char *key;
        int32_t id;
    } named[4] = { { "bos_token", t->ids.bos },
                   { "eos_token", t->ids.eos },
                   { "unk_token", t->ids.unk },
                   { "pad_token", t->ids.pad } };
    const char *comma = "\n";
    exl2__write_format(w, "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n  \"model_max_length\": %u",
                       context);
    exl2__write_format(w, ",\n  \"add_bos_token\": %s", t->add_bos ? "true" : "false");
    exl2__write_format(w, ",\n  \"add_eos_token\": %s", t->add_eos ? "true" : "false");
    exl2__write_format(w, ",\n  \"add_prefix_space\": %s", t->prefix_space ? "true" : "false");
    exl2__write_format(w, ",\n  \"clean_up_tokenization_spaces\": false,\n");
    for (uint32_t i = 0; i < 4; i++) {
        if (named[i].id >= 0) {
            exl2__write_format(w, "  \"%s\": ", named[i].key);
            exl2__import_text_quote(w, t, (uint32_t)named[i].id);
            exl2__write_format(w, ",\n");
        }
    }
    if (t->chat_template.bytes > 0) {
        exl2__write_format(w, "  \"chat_template\": ");
        exl2__write_quoted(w, "tokenizer.chat_template", t->chat_template.data, t->chat_template.bytes);
        exl2__write_format(w, ",\n");
    }
    exl2__write_format(w, "  \"added_tokens_decoder\": {");
    for (uint32_t id = 0; id < t->count; id++) {
        if (exl2__import_text_is_added(t, id)) {
            exl2__write_format(w, "%s    \"%u\": ", comma, id);
            exl2__import_text_write_added(w, t, id, false);
            comma = ",\n";
        }
    }
    exl2__write_format(w, "\n  }\n}\n");
}

/* Writes tokenizer.json and tokenizer_config.json to `dir`; nothing if the folder gets no tokenizer. */
EXL2__PRIVATE exl2_result exl2__import_text_write(exl2__ctx *c, const char *dir, const exl2__import_text *t,
                                                  uint32_t context)
{
    char path[EXL2__FILE_PATH_MAX];
    exl2__write w;
    if (!t->family) {
        return EXL2_OK;
    }
    exl2__format(path, sizeof path, "%s/tokenizer.json", dir);
    EXL2__TRY(exl2__write_open(c, path, &w));
    w.from = t->g->path;
    exl2_result result = exl2__import_text_write_tokenizer(&w, t);
    exl2_result closed = exl2__write_close(&w);
    EXL2__TRY(result);
    EXL2__TRY(closed);
    exl2__format(path, sizeof path, "%s/tokenizer_config.json", dir);
    EXL2__TRY(exl2__write_open(c, path, &w));
    w.from = t->g->path;
    exl2__import_text_write_config(&w, t, context);
    return exl2__write_close(&w);
}

#endif
