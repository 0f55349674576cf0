"""Commands for plug-ins of one's own: new writes the template of one, check runs its contract."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from workbench.cli.command import AsJson, emit

OF_KINDS = "objective, encoder, task, tracker or experiment"


def _kinds() -> list[str]:
    from workbench.execution.plug_checks import KINDS

    return list(KINDS)


def new(
    kind: Annotated[str, typer.Argument(metavar="KIND", help=f"{OF_KINDS}.", autocompletion=_kinds)],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the file, with or without folder and .py.")],
    as_json: AsJson = False,
) -> None:
    """Write a commented, working file of a plug-in, and print the commands to give next.

    An existing file is never overwritten.
    """
    from workbench.execution import plug_checks

    path, commands = plug_checks.new(kind, name)
    text = "\n".join([f"{path} is written; next:", *(f"  {command}" for command in commands)])
    emit({"file": str(path), "next": commands} if as_json else text, as_json, kept=True)


def check(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Python file of the plug-in; or a name, with --kind.")],
    kind: Annotated[
        str | None,
        typer.Option(metavar="KIND", help=f"{OF_KINDS}; by default what the file defines.", autocompletion=_kinds),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run the contract of a plug-in on a file, and say what is wrong with it; the exit code is 1 if anything is.

    At a small size on made-up text, in less than a minute: shapes, gradients, FLOPs against torch's counter,
    determinism, stopping and resuming, export. Of tasks: names, settings, price, baselines and a measurement. Of
    trackers: copies of a made-up run. Of experiments: the plan.
    """
    from workbench.execution import plug_checks

    kind, findings = plug_checks.check(file, kind)
    faults = any(each.fault for each in findings)
    rows = [asdict(each) for each in findings]
    text = "\n".join(plug_checks.lines(kind, file, findings))
    emit({"file": file, "kind": kind, "checks": rows} if as_json else text, as_json)
    raise typer.Exit(1 if faults else 0)
