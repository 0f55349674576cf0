"""Write the pages of the site that follow from the code: every command, and every setting with its default.

python docs/generate.py
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from settings_facts import SOURCES, UNITS
from typer.testing import CliRunner

from workbench.cli import COMMANDS, app
from workbench.spec.presets import SCALES, resolve
from workbench.spec.run_spec import SPELLINGS, RunSpec, flat

TARGET = Path(__file__).parents[1] / "build" / "pages"
BOUNDS = {"exclusiveMinimum": "above", "minimum": "at least", "exclusiveMaximum": "below", "maximum": "at most"}
TYPES = {"integer": "whole number", "number": "number", "string": "text", "boolean": "true or false", "null": "unset",
         "array": "list, separated by commas", "object": "keys and values"}  # fmt: skip


def commands() -> Iterator[str]:
    """Each command with its --help, in the order of `workbench --help`."""
    yield "# Commands\n\nWhat `workbench COMMAND --help` says of each command.\n"
    for words in [[name] for name in COMMANDS] + [["data", "prepare"]]:
        output = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "100"}, prog_name="workbench").output
        yield f"## workbench {' '.join(words)}\n\n```text\n{output.strip()}\n```\n"


def settings() -> Iterator[str]:
    """Every key of --set, with what it takes, its unit, its default and its source."""
    yield (
        "# Settings\n\nEvery key of `--set key=value`, with what it takes, its unit, its default and its\n"
        "source: sections, tables and the released code are those of ELECTRA. Where scales differ, it is\n"
        "the default at each scale, which `--scale` chooses. Recipes and objectives change some of them: `workbench\n"
        "run ablation --dry-run --json` shows the values in effect. `unset` leaves a field without a value of its\n"
        "own, so that it follows from others. The objective's own options are `options.NAME`.\n"
    )
    schema = RunSpec.model_json_schema()
    values = {scale: flat(resolve(scale, {}).model_dump(mode="json")) for scale in SCALES}
    own = {name: field for name, field in schema["properties"].items() if _part(field) is None}
    yield from _table("A run", schema["description"], own, "", values)
    for name, field in schema["properties"].items():
        if name in ("pair", "published"):  # filled in by commands, but for the keys in SPELLINGS
            continue
        if part := _part(field):
            definition = schema["$defs"][part]
            yield from _table(name, definition.get("description", ""), definition["properties"], f"{name}.", values)
    pair = schema["$defs"]["PairSpec"]
    fields = {key.removeprefix("start."): pair["properties"][inner.split(".")[1]] for key, inner in SPELLINGS.items()}
    yield from _table("Going on from a published pair", pair["description"], fields, "start.", values)


def _part(field: Mapping[str, Any]) -> str | None:
    """The name of the part of a spec that a field holds, also where it may be left out."""
    places = [field, *field.get("anyOf", ())]
    return next((place["$ref"].rpartition("/")[2] for place in places if "$ref" in place), None)


def _table(
    title: str, description: str, fields: Mapping[str, Any], prefix: str, values: Mapping[str, Mapping[str, Any]]
) -> Iterator[str]:
    yield f"## {title}\n\n{_line(description)}\n"
    yield "| key | takes | unit | default | source |\n|---|---|---|---|---|"
    for name, field in fields.items():
        key = f"{prefix}{name}"
        default = _defaults({scale: spec.get(key) for scale, spec in values.items()})
        yield f"| `{key}` | {_takes(field)} | {UNITS.get(key, '')} | {default} | {SOURCES.get(key, '')} |"
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
