#!/usr/bin/env python3
"""Renders chat templates with Jinja2 as transformers sets it up, and prints a row of cases.jsonl for each.

usage: make.py < FILE: a line of FILE is a template as a JSON string, or a row of cases.jsonl, whose template is used.
Needs jinja2 3.1.6. Variables come from variables.json beside this file; the clock is 2025-03-07 09:05:03.
"""
import datetime, json, os, sys
import jinja2, jinja2.ext, jinja2.nodes, jinja2.sandbox


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("said"), [], [], body).set_lineno(line)

    @jinja2.pass_eval_context
    def said(self, context, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def strftime_now(form):
    return datetime.datetime(2025, 3, 7, 9, 5, 3).strftime(form)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def namespace(*values, **pairs):
    for key in pairs:
        if key.startswith("_"):
            raise jinja2.exceptions.TemplateError("a namespace cannot hold %r" % key)
    return jinja2.utils.Namespace(*values, **pairs)


def environment():
    made = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    made.filters["tojson"] = tojson
    made.globals.update(raise_exception=raise_exception, strftime_now=strftime_now, namespace=namespace)
    return made


def row(env, template, variables):
    try:
        return {"template": template, "rendered": env.from_string(template).render(**variables)}
    except jinja2.exceptions.TemplateSyntaxError as e:
        return {"template": template, "error": str(e), "error_kind": "parse"}
    except Exception as e:
        return {"template": template, "error": str(e), "error_kind": "runtime"}


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "variables.json"), encoding="utf-8") as f:
        variables = json.load(f)
    env = environment()
    for line in sys.stdin:
        given = json.loads(line)
        template = given if isinstance(given, str) else given["template"]
        print(json.dumps(row(env, template, variables)))


main()
