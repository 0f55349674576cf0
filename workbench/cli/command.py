"""How a function becomes a command: its options, its help, the completion of names, and the printing of results.

A function takes groups of options (`workbench.options`), whose fields become options of the command line, and further
options. Help shows the options that people use; --help-all shows all of them in sections.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import math
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, TextIO, get_args, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from workbench.errors import InputError
from workbench.options import Option, checked, flag, kinds_of, options_of
from workbench.spec.host import follows, launched
from workbench.spec.run_spec import split_settings
from workbench.store.atomic import user_path
from workbench.store.redact import refuse_secrets

FEW = 16  # a command with no more options than this shows all of them in its help
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else there.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print the plan and stop; with --out, draw it beside published scores.")
]
PRINTED = ("--dry-run", "--json")


def _show_all(ctx: typer.Context, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        ctx.meta["all"] = True
        typer.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


HELP_ALL = Annotated[
    bool, typer.Option("--help-all", is_eager=True, expose_value=False, callback=_show_all, help="Show all options.")
]


def typed_path(param: typer.CallbackParam, value: Path | None) -> Path | None:
    """Return a path with `~` replaced by the home folder, which a shell leaves in `--out=~/x`. Raises InputError."""
    return None if value is None else user_path(value, param.opts[0])


def number(least: float, most: float) -> Callable[[str | float], float]:
    """Return a parser of numbers from `least` to `most`, which refuses NaN and names an unusable value."""

    def parse(text: str | float) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            raise typer.BadParameter(f"{str(text)!r:.80} is not a number from {least:g} to {most:g}")
        return value

    return parse


def number_option(least: float, most: float, help: str) -> Any:
    """Return an option for a number from `least` to `most`."""
    return typer.Option(parser=number(least, most), metavar="NUMBER", help=help)


def path_option(help: str, metavar: str = "FOLDER", *names: str) -> Any:
    """Return an option for a path, under the name of its parameter or others."""
    return typer.Option(*names, callback=typed_path, metavar=metavar, help=help)


def name_argument(metavar: str, help: str, names: str) -> Any:
    """Return an argument that is completed by the names of a list (`completion`)."""
    return typer.Argument(metavar=metavar, help=help, autocompletion=completion(names))


# ---- groups of options as parameters ----


def groups_of(function: Callable[..., None]) -> dict[str, tuple[type, Collection[str]]]:
    """Return the parameters of a function that are groups of options, as `Annotated[RunOptions, "scale set"]`."""
    groups: dict[str, tuple[type, Collection[str]]] = {}
    for name, hint in get_type_hints(function, include_extras=True).items():
        group, chosen = (*get_args(hint)[:2],) if hasattr(hint, "__metadata__") else (hint, None)
        if is_dataclass(group) and isinstance(group, type):
            groups[name] = group, chosen.split() if isinstance(chosen, str) else list(options_of(group))
    return groups


def parameters(function: Callable[..., None]) -> Iterator[inspect.Parameter]:
    """Yield the parameters of a command as typer reads them: each group as its options, arguments first.

    Parameters behind a group in the signature come after all groups.
    """
    hints, groups = get_type_hints(function, include_extras=True), groups_of(function)
    own: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if name in groups:
            yield from own
            own.clear()
            group, chosen = groups[name]
            types, defaults = get_type_hints(group), {each.name: each.default for each in fields(group)}
            known = options_of(group)
            for each in sorted(chosen, key=lambda each: not known[each].positional):
                yield _parameter(each, known[each], types[each], defaults[each])
        else:
            own.append(parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY))
    yield from own
    if sum(len(names) for _, names in groups.values()) > FEW:
        yield inspect.Parameter("help_all", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=HELP_ALL)


def _parameter(name: str, declared: Option, kind: Any, default: Any) -> inspect.Parameter:
    kinds, choices = kinds_of(kind)
    facts: dict[str, Any] = {"help": declared.help, "metavar": declared.metavar}
    typed: Any = str
    if declared.names:
        facts["autocompletion"] = completion(declared.names)
    elif choices:
        facts["autocompletion"] = lambda incomplete: [each for each in choices if each.startswith(incomplete)]
    if declared.repeated:
        typed = list[str]
    elif int in kinds and str not in kinds:
        typed = int
        bounds = {"min": declared.least, "max": declared.most}
        facts |= {side: int(bound) for side, bound in bounds.items() if math.isfinite(bound)}
    elif float in kinds:
        typed = float
        facts["parser"] = number(declared.least, declared.most)
    elif bool in kinds:
        typed = bool
        del facts["metavar"]
    elif Path in kinds:
        typed = Path
        facts["callback"] = typed_path
    info: Any = typer.Argument(**facts) if declared.positional else typer.Option(flag(name), **facts)
    value = ... if default is MISSING else None if default == () else default
    annotation: Any = Annotated[typed | None if value is None else typed, info]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=value, annotation=annotation)


def _group(group: type, names: Collection[str], given: dict[str, Any]) -> Any:
    """Take the options of a group out of what was typed, and return the group. Raises InputError."""
    values: dict[str, Any] = {}
    types, known = get_type_hints(group), options_of(group)
    for name in names:
        value = given.pop(name)
        if value is None or value == []:
            continue
        if known[name].repeated and Mapping in kinds_of(types[name])[0]:
            value = split_settings(value, flag(name))
        elif isinstance(value, str) and int in kinds_of(types[name])[0] and value.isascii() and value.isdigit():
            value = int(value[:9])
        values[name] = value
    return checked(group, values, functools.partial(flag, end=" "))


# ---- completion ----


def completion(names: str) -> Callable[[typer.Context, str], list[str]]:
    """Return the completion of an option by the names of a list: `workbench list NAME`, keys, or runs of the store."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        from workbench.cli.lists import names_in, values_of

        key, equals, typed = incomplete.partition("=") if names == "keys" else ("", "", incomplete)
        before, comma, last = (typed if equals else incomplete).rpartition(",")
        before = f"{key}{equals}{before}" if equals else before
        try:
            known = values_of(key) if equals else names_in(names, Path(ctx.params.get("runs") or "runs"))
        except (InputError, OSError, ValueError):  # completion has no place for a message
            return []
        return [f"{before}{comma}{name}" for name in known if name.startswith(last)]

    return complete


# ---- help ----


class Command(TyperCommand):
    """A command whose help shows the options that people use, and all of them in sections with --help-all."""

    sections: Mapping[str, Sequence[str]] = {}  # the names of options by the title of their section
    common: Collection[str] = ()  # options that --help shows

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments and options to the formatter."""
        params = {max(param.opts, key=len): param for param in self.get_params(ctx)}  # `--help` of `-h, --help`
        rows = {name: param.get_help_record(ctx) for name, param in params.items()}
        arguments = [name for name, param in params.items() if param.param_type_name == "argument"]
        for name in arguments:  # typer adds the Python type, as in `EXPERIMENT <str>`
            if row := rows[name]:
                rows[name] = row[0].partition(" <")[0], row[1]
        if ctx.meta.get("all"):
            listed = {name for names in self.sections.values() for name in names}
            others = [name for name in rows if name not in listed and name not in arguments]
            sections = {"Arguments": arguments, **self.sections, "Other options": others}
        else:
            few = {*self.common, "--help", "--help-all"} if "--help-all" in rows else {*rows} - {*arguments}
            sections = {"Arguments": arguments, "Options": [name for name in rows if name in few]}
        for title, names in sections.items():
            if present := [rows[name] for name in names if rows.get(name)]:
                with formatter.section(title):
                    formatter.write_dl(present)


def in_sections(sections: Mapping[str, str]) -> type[TyperGroup]:
    """Return the class of a group of commands, whose help has their names in these sections."""

    class Group(TyperGroup):
        def format_commands(self, ctx: Any, formatter: Any) -> None:
            """Write the names of commands with their summaries to the formatter."""
            for title, names in sections.items():
                with formatter.section(title):
                    formatter.write_dl([(name, self.commands[name].get_short_help_str(1000)) for name in names.split()])

    return Group


def help_of(function: Callable[..., None]) -> type[Command]:
    """Return the class of a function's command, which has the sections of its help."""
    sections: dict[str, list[str]] = {}
    common = {"--dry-run"}
    for group, names in groups_of(function).values():
        for name in names:
            declared = options_of(group)[name]
            if not declared.positional:
                owner = next((each for each in group.__mro__ if name in inspect.get_annotations(each)), group)
                sections.setdefault(str(getattr(owner, "TITLE", "Other options")), []).append(flag(name))
                common |= {flag(name)} if declared.common else set()
    sections.setdefault("What is written", []).extend(PRINTED)
    return type("Command", (Command,), {"sections": sections, "common": common})


# ---- carrying out ----

_results: ContextVar[TextIO | None] = ContextVar("_results", default=None)
_printed: list[bool] = []  # of each result, whether standard output is the only place where it is


def emit(value: Any, as_json: bool, kept: bool = False) -> None:
    """Print a result on stdout, as text or one JSON document; a `kept` result is also in files."""
    _printed.append(as_json or not kept)
    text = json.dumps(value, indent=1, allow_nan=False) if as_json else str(value).rstrip("\n")
    stream = _results.get() or sys.stdout
    stream.write(text + "\n")
    with contextlib.suppress(OSError):  # a question may follow; `write_error` tells of what cannot be written
        stream.flush()


def only_printed() -> bool:
    """Return whether the command had a result that is lost if it cannot be printed; help and versions are too."""
    return not _printed or any(_printed)


def _refuse_values(typed: Mapping[str, Any]) -> None:
    """Raise InputError if the value of an option is another option, or an address that holds a password or key."""
    for name, value in typed.items():
        option = flag(name.strip("_"))
        if name == "notify" and not str(value).startswith("--"):
            continue  # no record keeps it
        for each in value if isinstance(value, list | tuple) else [value]:
            if str(each).startswith("--"):
                raise InputError(f"{option} is followed by {each}; give it a value")
            if isinstance(each, Path):
                refuse_secrets(str(each).replace(":/", "://", 1), option)  # a path has one slash of `s3://`
            elif isinstance(each, str):
                key, equals, inner = each.partition("=") if name in ("set", "over") else ("", "", each)
                refuse_secrets(inner, f"{option} {key}{equals}".rstrip())


def as_command(function: Callable[..., None], by_first: bool = False) -> Callable[..., None]:
    """Return the command of a function: it makes the groups of options, and writes nothing but results to stdout.

    What a user's code prints goes to stderr. A command `by_first` is carried out by the first process of `torchrun`,
    while the others compute their parts.
    """
    groups = groups_of(function)

    @functools.wraps(function)
    def carry_out(**given: Any) -> None:
        _printed.clear()
        given.pop("help_all", None)
        _refuse_values(given)
        token = _results.set(sys.stdout)
        several = by_first and launched() > 1
        try:
            with contextlib.redirect_stdout(sys.stderr):
                if several and follows():
                    from workbench.execution.devices import follow_all

                    follow_all()
                    return
                for name, (group, names) in groups.items():
                    given[name] = _group(group, names, given)
                function(**given)
        finally:
            _results.reset(token)
            if several and not follows():
                from workbench.execution.devices import dismiss

                dismiss()

    signature = inspect.Signature(list(parameters(function)))
    carry_out.__signature__ = signature  # type: ignore[attr-defined]
    carry_out.__annotations__ = {name: each.annotation for name, each in signature.parameters.items()}
    del carry_out.__wrapped__  # else typer would read the signature of the function
    return carry_out
