"""make_splits.py: how the tokenizers library cuts texts into words, for each name of a pre-tokenizer in GGUF files.
takes: nothing; the patterns are those of the published tokenizer.json files or, where llama.cpp alone defines a name,
       of its vocabulary code. Where import_text.h writes another pattern for the same words, this has the original.
gives: splits.jsonl beside this file: a line with the texts, then for each family its names, and for each text the bytes
       of its words.
next:  tests/unit/import_splits.c"""
import json
import os

from tokenizers import Regex, pre_tokenizers

ENGLISH = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACES = r'|\s*[\r\n]+|\s+(?!\S)|\s+'
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
HEAD = r'[^\r\n\p{L}\p{N}]?'
UPPER, LOWER = r'[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]', r'[\p{Ll}\p{Lm}\p{Lo}\p{M}]'
EASTERN = '[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+'
CASED = ('A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376'
         '\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f'
         '\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77'
         '\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d'
         '\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec'
         '\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d'
         '\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2'
         '\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17'
         '\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb'
         '\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943')


def cl100k(digits):
    return ENGLISH + '|' + HEAD + r'\p{L}+|\p{N}' + digits + r'| ?[^\s\p{L}\p{N}]+[\r\n]*' + SPACES


def o200k(end, digits):
    return (HEAD + UPPER + '*' + LOWER + '+' + end + '|' + HEAD + UPPER + '+' + LOWER + '*' + end + r'|\p{N}' + digits
            + r'| ?[^\s\p{L}\p{N}]+[\r\n/]*' + SPACES)


GPT4O = o200k(ENGLISH + '?', '{1,3}')
FAMILIES = [
    ('smollm starcoder refact exaone command-r codeshell minerva-7b mellum2', [r'\p{N}', GPT2]),
    ('gpt-2 phi-2 exaone4 olmo mpt jais trillion granite-docling gigachat a.x-4.0 mellum', [GPT2]),
    ('llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 dbrx smaug-bpe chatglm-bpe glm4',
     [cl100k('{1,3}')]),
    ('qwen2 deepseek-r1-qwen megrez kormo stablelm2 hunyuan solar-open', [cl100k('')]),
    ('gpt-4o llama4 kanana2 minimax-m2', [GPT4O]),
    ('tekken', [o200k('', '')]),
    ('hunyuan-dense deepseek-v3',
     [r'\p{N}{1,3}', '[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+',
      r'[!"#$%&' + "'" + r'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+'
      r'| ?[\p{P}\p{S}]+[\r\n]*' + SPACES]),
    ('deepseek-llm', ['[\r\n]', r'\s?[' + CASED + ']+',
                      '\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+', r'\s+$', EASTERN, r'\p{N}+']),
    ('deepseek-coder', ['[\r\n]', r'\s?\p{L}+', r'\s?\p{P}+', EASTERN, r'\p{N}']),
    ('superbpe', [r'\p{N}+', r'(?=(\d{3})+(?!\d))']),
    ('viking', [' ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+', r'\p{N}']),
    ('exaone-moe', [ENGLISH + '|' + HEAD + r'(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?'
                    r'|\s*[\r\n]|\s+(?!\S)|\s+']),
    ('tiny_aya', [r'\d{1,3}(?=(?:\d{3})*\b)', GPT4O]),
    ('default', [r'[\p{P}\$\+<=>\^~\|]+', GPT2, r'\p{N}+', '[0-9][0-9][0-9]']),
]
TEXTS = [
    "Hello world 12345 foo!!\n\n  bar, I'M sure don't 1 12 123 1234 1234567",
    '  a  b\t\tc\r\n\r\nx=1;y+=22 \n   ',
    'fooBar HTTPServer caf\u00e9 na\u00efve e\u0301t\u00e9 \u00df\u00b5 \u0394\u03ad\u03bb\u03c4\u03b1 \u041f\u0440\u0438\u0432\u0435\u0442',
    '\u4f60\u597d\uff0c\u4e16\u754c\u3002\u3053\u3093 \u30ab\u30bf \ud55c\uad6d\uc5b4 12\u00b2345\u0661\u0662\u0663\u0664 a12b1234567c',
    'if (a<=b) { return "x\\\\y"; } // http://e.org/?q=1&r=2...\u2026 $5 ^_^ ~|`',
    '\u0939\u093f\u0928\u094d\u0926\u0940 \u0964 \u0561\u0562 \u0531\u0532 \U0001d400b \U0001f600\U0001f44d\ufe0f \u2160\u2161 1_000_000 3.14e-10',
]

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), 'splits.jsonl'), 'w', encoding='ascii') as out:
    out.write(json.dumps({'texts': TEXTS}) + '\n')
    for names, patterns in FAMILIES:
        steps = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(p), 'isolated') for p in patterns])
        words = [[len(w.encode()) for w, _ in steps.pre_tokenize_str(text)] for text in TEXTS]
        assert all(sum(w) == len(text.encode()) for w, text in zip(words, TEXTS))
        out.write(json.dumps({'names': names.split(), 'words': words}, separators=(',', ':')) + '\n')
