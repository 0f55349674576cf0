"""What runs are called in a report: the arm they belong to, the budget they had, the code they ran."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from workbench.report.load.run_files import number, part
from workbench.spec.parts import UNITS

UNTRAINED = "untrained"
SPOKEN = {
    "generator.width": "generator width", "generator.depth": "generator depth", "corruption.rate": "mask rate",
    "options.weight": "\u03bb", "optim.lr": "learning rate",
    "optim.generator_lr": "generator\u2019s learning rate",
    "corruption.generator_mask": "picks the generator sees masked",
    "corruption.generator_random": "picks the generator sees as random words",
}  # fmt: skip


def budget_of(budget: Mapping[str, Any]) -> tuple[str, str]:
    """Return `2,000,000 tokens`, `60 seconds` or `1e17 FLOPs (paper)`, and the convention that FLOPs are counted by."""
    unit = next(k for k in UNITS if not math.isnan(number(budget.get(k))))
    amount, convention = number(budget[unit]), str(budget.get("convention") or "paper")
    text = f"{amount:,.0f}" if amount < 1e9 and amount.is_integer() else f"{amount:.6g}".replace("e+", "e")
    return f"{text} FLOPs ({convention})" if unit == "flops" else f"{text} {unit}", convention


def kind_of(spec: Mapping[str, Any]) -> str:
    """Return "untrained" for an encoder with its initial weights, which has no objective, else "pre-training"."""
    return UNTRAINED if number(part(spec, "budget").get("steps")) == 0 else "pre-training"


def arm_names(
    axis: str, runs: Iterable[Mapping[str, Any]], settings: Mapping[str, Mapping[str, Any]]
) -> dict[str, str]:
    """What each run is called. One arm is one spec but for seed and budget, so that no two specs are ever averaged.

    It goes by its value on the axis; where several arms would share that name, by what else tells them apart.
    """
    arms: dict[tuple[tuple[str, str], ...], list[str]] = {}
    names = {row["run_id"]: "untrained" if row["role"] == "untrained" else "unknown" for row in runs}
    for row in runs:
        if row["role"] == "arm" and (spec := settings[row["run_id"]]):
            apart = ((k, str(v)) for k, v in spec.items() if not _aside(k) and not _trunk(k, spec))
            arms.setdefault(tuple(sorted(apart)), []).append(row["run_id"])
    axes = axis.split(",")
    short = {arm: ", ".join(sizeless(key, dict(arm)) or arm_name(dict(arm).get(key)) for key in axes) for arm in arms}
    for arm, run_ids in arms.items():
        name = short[arm]
        same = [dict(other) for other in arms if short[other] == name]
        keys = sorted(key for key in {k for one in same for k in one} if len({one.get(key) for one in same}) > 1)
        told = [
            f"{key}={dict(arm)[key][:40]}"
            for key in keys
            if dict(arm).get(key) not in (None, "None", "") and key.partition(".")[0] != "start"
        ]
        told = [begun(dict(arm))] * bool(begun(dict(arm))) + told
        taken = {*names.values(), "untrained", "unknown"}
        full = ", ".join([name, *told])
        name = next(
            n for n in itertools.chain((full,), (f"{full} ({i})" for i in itertools.count(2))) if n not in taken
        )
        names |= dict.fromkeys(run_ids, name)
    return names


def _aside(key: str) -> bool:
    """Return whether a setting leaves a run in its arm: seed, budget, and what is no part of a run's identity."""
    return key in ("seed", "scale") or key.startswith(("budget.", "tasks."))


def spoken(axis: str) -> str:
    """The first key of an axis in words."""
    key = axis.split(",")[0]
    return SPOKEN.get(key, key)


def _trunk(key: str, spec: Mapping[str, Any]) -> bool:
    """Whether a setting only says from which trunk a run branches off: the longer the run, the longer its trunk."""
    return key.startswith("start.parent.") and spec.get("start.take") == "all"


def begun(spec: Mapping[str, Any]) -> str:
    """What a run that starts from another one is, in a word or two, else ""."""
    if spec.get("start.take") == "generator":
        return "two-stage" if str(spec.get("start.freeze_generator")) == "True" else "started from a masked LM"
    return {"all": "branch of a trunk", "encoder": "started from an encoder"}.get(str(spec.get("start.take")), "")


def sizeless(key: str, spec: Mapping[str, Any]) -> str:
    """`unigram` or `uniform` for a generator without weights on an axis of generator sizes, else ""."""
    kind = spec.get("generator.kind")
    return str(kind) if key.startswith("generator.") and kind not in (None, "None", "transformer") else ""


def arm_name(value: Any) -> str:
    """A value of the axis as a person says it: `rtd`, `0.25`, `my_idea` for `ideas/my_idea.py`."""
    if isinstance(value, float):
        return f"{value:g}"
    text = "unknown" if value is None else str(value)
    return Path(text).stem if text.endswith(".py") else text


def code_of(env: Mapping[str, Any]) -> str:
    """Which code ran, from env.json: version and commit, marked when the working tree had changes."""
    git = part(env, "git")
    words = [str(env.get("workbench") or ""), str(git.get("commit") or "")[:10], "changed" if git.get("dirty") else ""]
    return " ".join(word for word in words if word)
