"""The help of a command: its options in sections, so that a command with thirty of them can be looked through."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

# Options by what they decide, in the order of the help.
SECTIONS = {
    "What is compared": ("--objective", "--over", "--set", "--scale", "--corpus"),
    "How much is trained": (
        "--budget", "--match", "--seeds", "--most-seeds", "--most-compute", "--most-epochs", "--trials", "--sampler",
        "--tuning-seeds", "--storage",
    ),
    "What is measured": ("--tasks", "--evaluate-at"),
    "How it is computed": (
        "--workers", "--launcher", "--device", "--devices", "--shard", "--precision", "--threads", "--micro-batch",
        "--compile", "--plain", "--save-every",
    ),
    "What is written": ("--runs", "--out", "--track", "--json", "--dry-run", "--help"),
}  # fmt: skip
FEW = 16  # a command with no more options than this shows them in one list


class SectionedCommand(TyperCommand):
    """A command whose help has sections if it has many options."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments and options to the formatter."""
        params = self.get_params(ctx)
        rows = {param.opts[0]: param.get_help_record(ctx) for param in params}
        if len(rows) <= FEW:
            super().format_options(ctx, formatter)
            return
        known = {name for names in SECTIONS.values() for name in names}
        arguments = [param.opts[0] for param in params if param.param_type_name == "argument"]
        others = [name for name in rows if name not in known and name not in arguments]
        for title, names in {"Arguments": arguments, **SECTIONS, "Other options": others}.items():
            if present := [rows[name] for name in names if rows.get(name)]:
                with formatter.section(title):
                    formatter.write_dl(present)
