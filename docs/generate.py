"""Write the pages of the site that follow from the code: every command, and every setting with default and meaning.

python docs/generate.py
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from settings_facts import SOURCES, UNITS
from typer.testing import CliRunner

from workbench import objectives
from workbench.cli import COMMANDS, app
from workbench.cli.lists import meanings
from workbench.spec import host, parts
from workbench.spec.presets import SCALES, resolve
from workbench.spec.run_spec import SPELLINGS, RunSpec, flat

TARGET = Path(__file__).parents[1] / "build" / "pages"
BOUNDS = {"exclusiveMinimum": "above", "minimum": "at least", "exclusiveMaximum": "below", "maximum": "at most"}
TYPES = {"integer": "whole number", "number": "number", "string": "text", "boolean": "true or false", "null": "unset",
         "array": "list, separated by commas", "object": "keys and values"}  # fmt: skip


def commands() -> Iterator[str]:
    """Each command with its --help, in the order of `workbench --help`."""
    yield "# Commands\n\nWhat `workbench COMMAND --help-all` says; `--help` shows the common ones.\n"
    for words in [[name] for name in COMMANDS] + [["data", "prepare"]]:
        shown = [
            CliRunner().invoke(app, [*words, flag], env={"COLUMNS": "100"}, prog_name="workbench")
            for flag in ("--help-all", "--help")
        ]
        output = next(each.output for each in shown if each.exit_code == 0)
        yield f"## workbench {' '.join(words)}\n\n```text\n{output.strip()}\n```\n"


def settings() -> Iterator[str]:
    """Every key of --set, with its meaning, what it takes, its unit, its default and its source."""
    yield (
        "# Settings\n\nEvery key of `--set key=value`. Sections, tables and the released code are ELECTRA's. Where\n"
        "scales differ, the default is given for each scale, which `--scale` chooses. Recipes and objectives change\n"
        "some of them: `workbench run ablation --dry-run --json` shows the values in effect. `unset` leaves a field\n"
        "without a value of its own, so that it follows from others.\n"
    )
    schema = RunSpec.model_json_schema()
    values = {scale: flat(resolve(scale, {}).model_dump(mode="json")) for scale in SCALES}
    own = {name: field for name, field in schema["properties"].items() if _part(field) is None}
    yield from _table("A run", RunSpec, own, "", values)
    for name, field in schema["properties"].items():
        if name in ("pair", "published"):  # filled in by commands, but for the keys in SPELLINGS
            continue
        if part := _part(field):
            yield from _table(name, getattr(parts, part), schema["$defs"][part]["properties"], f"{name}.", values)
    pair = schema["$defs"]["PairSpec"]["properties"]
    fields = {key.removeprefix("start."): pair[inner.split(".")[1]] for key, inner in SPELLINGS.items()}
    names = {key.removeprefix("start."): inner.split(".")[1] for key, inner in SPELLINGS.items()}
    yield from _table("Going on from a published pair", parts.PairSpec, fields, "start.", values, names)
    for name in objectives.names():
        options = objectives.load(RunSpec(objective=name)).Options
        fields = options.model_json_schema().get("properties", {})
        defaults = {scale: {f"options.{key}": field["default"] for key, field in fields.items()} for scale in SCALES}
        if fields:
            yield from _table(f"options of {name}", options, fields, "options.", defaults)
    yield f"## launch\n\n{_line(inspect.getdoc(host.Launch) or '')} `launch.profile` is a TOML file of these keys.\n"
    yield "| key | meaning | such as |\n|---|---|---|"
    yield from (
        f"| `launch.{name}` | {meaning} | `{host.OPTIONS[name][1]}` |"
        for name, meaning in meanings(host.Launch).items()
    )


def _part(field: Mapping[str, Any]) -> str | None:
    """The name of the part of a spec that a field holds, also where it may be left out."""
    places = [field, *field.get("anyOf", ())]
    return next((place["$ref"].rpartition("/")[2] for place in places if "$ref" in place), None)


def _table(
    title: str, part: type, fields: Mapping[str, Any], prefix: str, values: Mapping[str, Mapping[str, Any]],
    names: Mapping[str, str] | None = None,
) -> Iterator[str]:  # fmt: skip
    """The fields of a part of the spec; `names` are their names in its class, where keys have others."""
    comments = meanings(part)
    yield f"## {title}\n\n{_line(inspect.getdoc(part) or '')}\n"
    yield "| key | meaning | takes | unit | default | source |\n|---|---|---|---|---|---|"
    for name, field in fields.items():
        key = f"{prefix}{name}"
        meaning, unit, source = (
            comments.get((names or {}).get(name, name), ""),
            UNITS.get(key, ""),
            SOURCES.get(key, ""),
        )
        default = _defaults({scale: spec.get(key) for scale, spec in values.items()})
        yield f"| `{key}` | {_line(meaning)} | {_takes(field)} | {unit} | {default} | {source} |"
    yield ""


def _defaults(values: Mapping[str, Any]) -> str:
    """The default of a key: one value, or each value with the scales that have it."""
    scales: dict[str, list[str]] = {}
    for scale, value in values.items():
        scales.setdefault(_value(value), []).append(scale)
    if len(scales) == 1:
        return next(iter(scales))
    return "; ".join(f"{value or 'unset'} ({', '.join(names)})" for value, names in scales.items())


def _takes(field: Mapping[str, Any]) -> str:
    kinds = []
    for each in field.get("anyOf", [field]):
        if "enum" in each:
            kinds.append(", ".join(f"`{value}`" for value in each["enum"]))
        else:
            bounds = [f"{word} {each[name]}" for name, word in BOUNDS.items() if abs(each.get(name, 1e99)) < 1e9]
            kinds.append(", ".join([TYPES[each["type"]], *bounds]) if "type" in each else "text")
    return " or ".join(kinds)


def _value(value: Any) -> str:
    if value is None or value == "" or value == {}:
        return ""
    return f"`{', '.join(map(str, value)) if isinstance(value, (list, tuple)) else value}`"


def _line(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|").strip()


if __name__ == "__main__":
    for file, lines in (("commands.md", commands()), ("settings.md", settings())):
        TARGET.mkdir(parents=True, exist_ok=True)
        (TARGET / file).write_text("\n".join(lines) + "\n", encoding="utf-8")
