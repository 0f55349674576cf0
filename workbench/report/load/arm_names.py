"""Names in a report: the arm that a run belongs to, its budget, and the code that trained it."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench.report.load.run_files import number, part
from workbench.spec.parts import UNITS
from workbench.spec.presets import PUBLISHED as PUBLISHED_SCALES

UNTRAINED, PUBLISHED = "untrained", "published"
ROWS_BEFORE = "start.parent.data.length"
SPOKEN = {
    "generator.width": "generator width", "generator.depth": "generator depth", "corruption.rate": "mask rate",
    "options.weight": "\u03bb", "optim.lr": "learning rate",
    "optim.generator_lr": "generator\u2019s learning rate",
    "corruption.generator_mask": "share of picks masked for the generator",
    "corruption.generator_random": "share of picks made random for the generator",
}  # fmt: skip
# Objectives as people say them; another one is named by its file.
OBJECTIVES = {
    "rtd": "RTD", "bert-mlm": "BERT MLM", "electra-15": "ELECTRA 15%", "replace-mlm": "Replace MLM",
    "all-tokens-mlm": "All-Tokens MLM", "adversarial": "Adversarial RTD", "albert": "ALBERT", "bert": "BERT",
    "causal-lm": "Causal LM", "cocolm-clm": "COCO-LM", "mc-bert": "MC-BERT",
    "multi-word-selection": "Multi-word selection", "permutation-lm": "Permutation LM",
}  # fmt: skip
SHARES = {0.125: "1/8", 0.25: "1/4", 0.375: "3/8", 0.5: "1/2", 0.625: "5/8", 0.75: "3/4", 0.875: "7/8", 1.0: "1"}


def budget_of(budget: Mapping[str, Any]) -> tuple[str, str]:
    """Return `2,000,000 tokens`, `60 seconds` or `1e17 FLOPs (paper)`, and the convention that FLOPs are counted by."""
    unit = next(k for k in UNITS if not math.isnan(number(budget.get(k))))
    amount, convention = number(budget[unit]), str(budget.get("convention") or "paper")
    text = f"{amount:,.0f}" if amount < 1e9 and amount.is_integer() else f"{amount:.6g}".replace("e+", "e")
    return f"{text} FLOPs ({convention})" if unit == "flops" else f"{text} {unit}", convention


def kind_of(spec: Mapping[str, Any]) -> str:
    """Return "published" for a model that others trained, "untrained" for initial weights, else "pre-training"."""
    if part(spec, "published"):
        return PUBLISHED
    return UNTRAINED if number(part(spec, "budget").get("steps")) == 0 else "pre-training"


def start_of(seed: Any, settings: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what a run shares with the untrained encoder that it starts from: its seed, sizes and data."""
    return (seed, *sorted((key, str(v)) for key, v in settings.items() if key.startswith(("encoder.", "data."))))


def arm_names(
    axis: str, runs: Iterable[Mapping[str, Any]], settings: Mapping[str, Mapping[str, Any]]
) -> dict[str, str]:
    """Return the name of the arm of each run.

    Runs belong to one arm if their specs differ in nothing but seed and budget, so that different specs are never
    averaged. An arm is named by its value on the axis; if several arms would get the same name, the settings in which
    they differ are added. On an axis of scales, those of the paper and ours are named with their objective.
    """
    arms: dict[tuple[tuple[str, str], ...], list[str]] = {}
    names = {row["run_id"]: "untrained" if row["role"] == "untrained" else "unknown" for row in runs}
    for row in runs:
        if row["role"] == "arm" and (spec := settings[row["run_id"]]):
            identity = ((key, str(value)) for key, value in spec.items() if _identifies(key, spec))
            arms.setdefault(tuple(sorted(identity)), []).append(row["run_id"])
    short: dict[Any, str] = {}
    for arm, run_ids in arms.items():
        own, spec = dict(arm), settings[run_ids[0]]
        words = [of_scale(spec) if key == "scale" else sizeless(key, own) or arm_name(own.get(key))
                 for key in axis.split(",")]  # fmt: skip
        short[arm] = ", ".join(words)
    for arm, run_ids in arms.items():
        own, name = dict(arm), short[arm]
        same = [dict(other) for other in arms if short[other] == name]
        keys = sorted(key for key in {k for one in same for k in one} if len({one.get(key) for one in same}) > 1)
        keys = [key for key in keys if key.partition(".")[0] != "start" and not _follows(key, same)]
        details = [f"{key}={own[key][:40]}" for key in keys if own.get(key) not in (None, "None", "")]
        full = ", ".join(filter(None, [name, begun(own), *details]))
        candidates = itertools.chain((full,), (f"{full} ({i})" for i in itertools.count(2)))
        used_names = {*names.values(), "untrained", "unknown"}
        names |= dict.fromkeys(run_ids, next(n for n in candidates if n not in used_names))
    return names


def spoken(axis: str) -> str:
    """Return the name of an axis in sentences: words for its first key, such as `generator width`."""
    key = axis.split(",")[0]
    return SPOKEN.get(key, key)


def person_name(axis: str, arm: str) -> str:
    """Return an arm as people say it: `RTD`, `Generator 1, depth 1/2`, `BERT MLM, learning rate 0.001`, `my_idea`.

    An arm is its values on the keys of the axis, and then the settings in which arms of one name differ, as KEY=VALUE
    (`arm_names`).
    """
    keys = axis.split(",")
    words = []
    for place, setting in enumerate(arm.split(", ")):
        key, given, value = setting.rpartition("=")
        key = key if given else keys[place] if place < len(keys) else ""
        word = _value_name(key, value)
        if word.endswith(" generator") and word.capitalize() in words:  # its kind, on each axis of generators
            continue
        words.append(word if place or key in ("objective", "scale", "") else word[:1].upper() + word[1:])
    name = ", ".join(words)
    return name.replace(", generator ", ", ") if axis.startswith("generator.") else name


def _value_name(key: str, value: str) -> str:
    """Return a value of a key in words: `RTD`, `generator 1/4`, `learning rate 0.001`."""
    if key == "objective" or not key:
        return OBJECTIVES.get(value, value)
    size = key.startswith("generator.")
    if size and value in ("ngram", "unigram", "uniform"):
        return f"{value} generator"
    with contextlib.suppress(ValueError):
        value = SHARES.get(float(value), value) if size else value
    noun = "generator" if key == "generator.width" else SPOKEN.get(key, key.rpartition(".")[2].replace("_", " "))
    return value if key == "scale" else f"{noun} {value}"


def _identifies(key: str, spec: Mapping[str, Any]) -> bool:
    """Return whether runs of one arm share a setting; a branch describes its trunk, whose length may differ."""
    trunk = key.startswith("start.parent.") and key != ROWS_BEFORE and spec.get("start.take") == "all"
    return not trunk and key not in ("seed", "scale") and not key.startswith(("budget.", "tasks."))


def _follows(key: str, specs: Sequence[Mapping[str, str]]) -> bool:
    """Return whether a key is an option, or the source, with one value for each objective: it tells nothing new."""
    several = len({spec.get("objective") for spec in specs}) > 1
    pairs = {(spec.get("objective"), spec.get(key)) for spec in specs}
    return several and key.startswith(("options.", "source")) and len(pairs) == len({one for one, _ in pairs})


def begun(spec: Mapping[str, Any]) -> str:
    """Return a phrase on the run that this one starts from, such as `two-stage`; "" if there is none.

    A run that takes over no more than an encoder is named by the share of its budget that another objective had, and
    one that goes on with longer rows by the length of those before.
    """
    if spec.get("start.take") == "generator":
        return "two-stage" if str(spec.get("start.freeze_generator")) == "True" else "started from a masked LM"
    first = spec.get("start.parent.objective")
    if spec.get("start.take") == "encoder" and first not in (None, spec.get("objective")):
        return f"after {100 * float(spec['start.share']):g} % {arm_name(first)}"
    if ROWS_BEFORE in spec and spec.get("start.take") == "all":
        return f"after rows of {spec[ROWS_BEFORE]} tokens"
    return {"all": "branch of a trunk", "encoder": "started from an encoder"}.get(str(spec.get("start.take")), "")


def sizeless(key: str, spec: Mapping[str, Any]) -> str:
    """Return `ngram`, `unigram` or `uniform` for a generator without weights on an axis of generator sizes, else ""."""
    kind = spec.get("generator.kind")
    return str(kind) if key.startswith("generator.") and kind not in (None, "None", "transformer") else ""


def of_scale(spec: Mapping[str, Any]) -> str:
    """Return the name of an arm on an axis of scales: `rtd-base`; `bert-large` for a scale that is a model's."""
    scale = str(spec.get("scale"))
    return scale if scale in PUBLISHED_SCALES else f"{arm_name(spec.get('objective'))}-{scale}"


def arm_name(value: Any) -> str:
    """Return a value of the axis as a short name: `rtd`, `0.25`, `my_idea` for `ideas/my_idea.py`."""
    if isinstance(value, float):
        return f"{value:g}"
    text = "unknown" if value is None else str(value)
    return Path(text).stem if text.endswith(".py") else text


def code_of(env: Mapping[str, Any]) -> str:
    """Return version and commit of the code from env.json, with `changed` if the working tree had changes."""
    git = part(env, "git")
    words = [str(env.get("workbench") or ""), str(git.get("commit") or "")[:10], "changed" if git.get("dirty") else ""]
    return " ".join(word for word in words if word)


def named(axis: str, arm: str) -> str:
    """Return the name of an arm in a sentence: `rtd`, `generator width 0.25`, `a unigram generator`."""
    if axis == "objective":
        return arm
    sizeless = arm.split(",")[0] in ("ngram", "unigram", "uniform") and axis.startswith("generator.")
    return f"{'an' if arm.startswith('ngram') else 'a'} {arm} generator" if sizeless else f"{spoken(axis)} {arm}"
