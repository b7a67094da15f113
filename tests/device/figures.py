#!/usr/bin/env python3
"""figures.py: figures of `exl2 bench --json` as one file, two such files compared, and their tables in Markdown.

    figures.py collect OUT.json CARD DRIVER COMMIT PART=MODEL ...   PART: the output of a bench of the model MODEL
    figures.py compare BEFORE.json AFTER.json [PERCENT]             prints each row that fell by more than 2 %
    figures.py table FILE.json ...                                  prints the tables; files of one card

takes: outputs of `exl2 bench --json`; or files that `collect` has written.
gives: exit code 0; of `compare` 1 if a row fell or is missing; 2 if a file or the command line is wrong.

A file has the card, the driver and the commit, and a row for each run: {"model", "kind" ("prefill" or "decode"),
"tokens", "batch", "context", "cache", "tokens_per_second", "cpu_us_per_step"}. A row is known by all but these two
members, and may have "read_share": the part of the memory's speed at which weights are read. More tokens per second are
better, and less CPU time of a step is better. Figures of different cards, or of different drivers, are not compared:
they say nothing about a change of the program."""
import json
import sys

KEYS = ("model", "kind", "tokens", "batch", "context", "cache")
CPU_US_SMALL = 30.0  # CPU times of a step that differ by less are equal: a program differs by 22 us from itself


class Wrong(Exception):
    """What is wrong, in one sentence."""


def read_json(path):
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError) as error:
        raise Wrong(f"{path}: {error}") from error


def number(value, path, name):
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
        raise Wrong(f"{path}: {name} must be a number of at least 0, not {value!r}")
    return value


# ---- collect ----

def rows_of_bench(path, model):
    """The rows of one output of `exl2 bench --json`."""
    bench = read_json(path)
    runs = bench.get("runs") if isinstance(bench, dict) else None
    if not isinstance(runs, list) or not runs:
        raise Wrong(f"{path}: not the output of `exl2 bench MODEL --json`: it has no runs")
    rows = []
    for run in runs:
        kind = "prefill" if "prefill_tok_s" in run else "decode"
        row = {"model": model, "kind": kind, "cache": str(run.get("cache"))}
        for key in ("tokens", "batch", "context"):
            row[key] = number(run.get(key), path, key)
        row["tokens_per_second"] = number(run.get(kind + "_tok_s"), path, kind + "_tok_s")
        steps = row["batch"] if kind == "decode" else row["tokens"]
        row["cpu_us_per_step"] = number(run.get("cpu_us_per_token"), path, "cpu_us_per_token") * steps
        if "read_share" in run:
            row["read_share"] = number(run["read_share"], path, "read_share")
        rows.append(row)
    return rows


def collect(out, card, driver, commit, parts):
    rows = []
    for part in parts:
        path, separator, model = part.rpartition("=")
        if not separator or not path or not model:
            raise Wrong(f"{part}: must be PART=MODEL")
        rows += rows_of_bench(path, model)
    figures = {"card": card, "driver": driver, "commit": commit, "rows": rows}
    with open(out, "w", encoding="utf-8") as file:
        json.dump(figures, file, indent=1)
        file.write("\n")


# ---- files that collect has written ----

def read_figures(path):
    figures = read_json(path)
    if not isinstance(figures, dict) or not isinstance(figures.get("rows"), list):
        raise Wrong(f"{path}: not a file of `figures.py collect`")
    for name in ("card", "driver", "commit"):
        if not isinstance(figures.get(name), str) or not figures[name]:
            raise Wrong(f"{path}: {name} is missing")
    rows = {}
    for row in figures["rows"]:
        if not isinstance(row, dict) or any(key not in row for key in KEYS):
            raise Wrong(f"{path}: a row lacks one of {', '.join(KEYS)}")
        number(row.get("tokens_per_second"), path, "tokens_per_second")
        number(row.get("cpu_us_per_step"), path, "cpu_us_per_step")
        rows[tuple(row[key] for key in KEYS)] = row
    figures["rows"] = rows
    return figures


def name_of(key):
    model, kind, tokens, batch, context, cache = key
    what = f"prompt of {tokens}" if kind == "prefill" else f"{batch} sequences after {context} tokens"
    return f"{model}, {what}, cache {cache}"


# ---- compare ----

def fall(before, after):
    """By which part of `before` a figure fell; negative: it rose."""
    return (before - after) / before if before > 0 else 0.0


def compare(before_path, after_path, percent, print_line=print):
    """Prints each row that is worse by more than `percent`, or missing. Returns their number."""
    before, after = read_figures(before_path), read_figures(after_path)
    for name in ("card", "driver"):
        if before[name] != after[name]:
            raise Wrong(f"{before_path} and {after_path} are of different {name}s: "
                        f"{before[name]} and {after[name]}")
    print_line(f"{before['card']}, driver {before['driver']}: {before['commit']}, then {after['commit']}")
    worse, common = 0, 0
    for key, old in before["rows"].items():
        new = after["rows"].get(key)
        if new is None:
            print_line(f"missing: {name_of(key)}")
            worse += 1
            continue
        common += 1
        speed = fall(old["tokens_per_second"], new["tokens_per_second"])
        if speed > percent / 100:
            print_line(f"fell by {speed:.1%}: {name_of(key)}: {old['tokens_per_second']:.1f}, now "
                       f"{new['tokens_per_second']:.1f} tokens/s")
            worse += 1
        more_us = new["cpu_us_per_step"] - old["cpu_us_per_step"]
        if key[1] == "decode" and more_us > CPU_US_SMALL and more_us > old["cpu_us_per_step"] * percent / 100:
            print_line(f"more CPU time: {name_of(key)}: {old['cpu_us_per_step']:.0f}, now "
                       f"{new['cpu_us_per_step']:.0f} us a step")
            worse += 1
    print_line(f"{common} rows compared, {worse} worse by more than {percent:g} %")
    return worse


# ---- table ----

def table(paths, print_line=print):
    """Tables in Markdown: of each model its prompts, and its sequences at each context and cache."""
    files = [read_figures(path) for path in paths]
    if len({file["card"] for file in files}) > 1:
        raise Wrong("the files are of different cards: " + ", ".join(sorted({file["card"] for file in files})))
    rows = {}
    for file in files:
        rows.update(file["rows"])
    print_line("; ".join(f"{file['card']}, driver {file['driver']}, commit {file['commit']}" for file in files))
    print_line("")
    print_line("| model | what | tokens/s | part of the memory's speed | CPU us a step |")
    print_line("|---|---|---|---|---|")
    groups = {}
    for key, row in rows.items():
        model, kind, tokens, batch, context, cache = key
        head = "prompt of" if kind == "prefill" else f"sequences after {context} tokens"
        head += "" if cache == "fp16" else f", cache {cache}"
        groups.setdefault((model, head), []).append((tokens if kind == "prefill" else batch, row))
    for (model, head), members in groups.items():
        members.sort(key=lambda member: member[0])
        sizes = "; ".join(f"{size:,}" for size, _ in members)
        speeds = "; ".join(f"{row['tokens_per_second']:,.0f}" for _, row in members)
        decodes = not head.startswith("prompt")
        times = "; ".join(f"{row['cpu_us_per_step']:,.0f}" for _, row in members) if decodes else "-"
        shares = "; ".join(f"{row['read_share']:.0%}" if "read_share" in row else "-" for _, row in members)
        what = f"{sizes} {head}" if decodes else f"{head} {sizes}"
        print_line(f"| {model} | {what} | {speeds} | {shares if decodes else '-'} | {times} |")


def main(arguments):
    command, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    try:
        if command == "collect" and len(rest) > 4:
            collect(rest[0], rest[1], rest[2], rest[3], rest[4:])
            return 0
        if command == "compare" and len(rest) in (2, 3):
            percent = float(rest[2]) if len(rest) == 3 else 2.0
            return 1 if compare(rest[0], rest[1], number(percent, "PERCENT", "it")) else 0
        if command == "table" and rest:
            table(rest)
            return 0
    except Wrong as wrong:
        print(f"figures.py: {wrong}", file=sys.stderr)
        return 2
    except ValueError:
        print("figures.py: PERCENT must be a number", file=sys.stderr)
        return 2
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
