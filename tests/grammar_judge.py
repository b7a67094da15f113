"""grammar_judge.py: an independent opinion of texts that grammars let through: jsonschema for schemas, re for regular
expressions.
takes: a file of rows, as grammar_judge.h writes them: `s` (schema), `r` (expression), or `n` (expression that must
       not match), length of source, length of
       text, a newline, both of them.
gives: exit code 0, 1 or 77 (no jsonschema); a line for each text that is refused, and how many are not.
next:  grammar_judge.h"""
import datetime
import decimal
import json
import re
import sys

try:
    import jsonschema
except ImportError:
    sys.exit(77)

def is_date_time(value):
    if not isinstance(value, str):
        return True
    zone = r'(Z|[+-]\d\d:\d\d)'
    if not re.fullmatch(r'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?' + zone, value, re.ASCII):
        return False
    if value[-1] != 'Z':
        datetime.time.fromisoformat(value[-5:])
    return bool(datetime.datetime.strptime(value[:19], '%Y-%m-%dT%H:%M:%S'))


def formats_of(kind):
    """The formats of a draft (a checker of none in particular has draft 3's time)."""
    formats = kind.FORMAT_CHECKER
    for name, begin in (('date-time', ''), ('time', '2000-01-01T')):
        if name not in formats.checkers:  # jsonschema looks at these only with another package
            formats.checks(name, raises=ValueError)(
                lambda value, begin=begin: not isinstance(value, str) or is_date_time(begin + value))
    return formats


def allow_null(schema):
    """OpenAPI's nullable, which jsonschema does not know, in words that it does."""
    if isinstance(schema, list):
        return [allow_null(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {key: allow_null(value) for key, value in schema.items()}
    if schema.get('nullable') is True and 'type' in schema:
        types = schema['type'] if isinstance(schema['type'], list) else [schema['type']]
        schema['type'] = types + ['null']
    return schema


def exact(text):
    """A number with a point or an exponent, as it is written: jsonschema rounds quotients of floats (0.7 / 0.07)."""
    value = decimal.Decimal(text)
    return int(value) if value == value.to_integral_value() else value


def judge_of(kind, source):
    if kind == b'n':
        return lambda text: not re.fullmatch(source.decode(), text)
    if kind == b'r':
        return re.compile(source.decode()).fullmatch
    schema = allow_null(json.loads(source, parse_float=exact))
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)  # by its $schema
    validator = kind(schema, format_checker=formats_of(kind))
    return lambda text: validator.validate(json.loads(text, parse_float=exact)) is None


judges = {}
bad = count = 0
with open(sys.argv[1], 'rb') as rows:
    for line in rows:
        kind, source_bytes, text_bytes = line.split()
        source = rows.read(int(source_bytes))
        text = rows.read(int(text_bytes))
        count += 1
        try:
            if (kind, source) not in judges:
                judges[kind, source] = judge_of(kind, source)
            if not judges[kind, source](text.decode()):
                raise ValueError('no match')
        except Exception as error:  # whatever it is, this text is not good
            bad += 1
            print(source[:80], text[:200], str(error)[:200])
print(count - bad, 'of', count, 'texts are valid')
sys.exit(bad > 0)
