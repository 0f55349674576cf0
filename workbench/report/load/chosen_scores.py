"""The scores that an experiment counts, of all that its runs have: each task under one fine-tuning setting."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from workbench.errors import plural
from workbench.spec.scoring import EMBEDDINGS, FROM_PATHS, PATH_PREFIXES

FROZEN = {"embeddings": "frozen"}  # the default of `tasks.embeddings`


def choose(scores: list[dict[str, Any]], tasks: Mapping[str, Any], notes: list[str]) -> list[dict[str, Any]]:
    """Return the scores of the tasks of this experiment, each task under one fine-tuning setting.

    A run may also have been scored for other experiments. If a task has scores under several settings, those that
    agree with the settings of the experiment are chosen, or else the setting with the most scores; `notes` gets a
    sentence on the others. A score that is not a number is left out.
    """
    chosen = []
    selected = _selected(scores, tasks.get("names")) or scores
    for task in dict.fromkeys(score["task"] for score in selected):
        groups: dict[str, list[dict[str, Any]]] = {}  # digest -> scores under one setting
        for score in sorted((s for s in selected if s["task"] == task), key=lambda s: s["digest"]):
            groups.setdefault(score["digest"], []).append(score)
        best = max(groups, key=lambda digest: (_agrees(groups[digest][0], tasks), len(groups[digest])))
        notes += _other_settings(task, groups, best)
        for score in groups[best]:
            if math.isnan(score["value"]):
                notes.append(f"{score['path']}: the score is not a number and is left out")
            else:
                chosen.append(score)
    return chosen


def _selected(scores: list[dict[str, Any]], names: Any) -> list[dict[str, Any]]:
    """Return the scores of the tasks that an experiment names: by task, by suite, or by the path of their data."""
    texts = [str(name) for name in names] if isinstance(names, list | tuple) else []
    suites = {*texts}
    if any("." in text or "/" in text or text.startswith(PATH_PREFIXES) for text in texts):
        suites |= {*FROM_PATHS}
    return [score for score in scores if score["task"] in texts or score["suite"] in suites]


def _other_settings(task: str, groups: Mapping[str, list[dict[str, Any]]], best: str) -> list[str]:
    """Return a sentence on the scores of a task under other settings than `best`, if there are any."""
    others = [digest for digest in groups if digest != best]
    if not others:
        return []
    count = sum(len(groups[digest]) for digest in others)
    return [
        f"{task}: {plural(count, 'score')} under other fine-tuning settings or data {'is' if count == 1 else 'are'} "
        f"left out (digest {', '.join(digest or 'unnamed' for digest in others)}; shown: {best or 'unnamed'})"
    ]


def _agrees(score: Mapping[str, Any], tasks: Mapping[str, Any]) -> bool:
    """Return whether the settings of a score are those that the experiment gives for its tasks."""
    finetune = score["finetune"]
    if score["suite"] in EMBEDDINGS:  # scores of frozen encoders do not name this setting, nor do records without it
        finetune, tasks = {**FROZEN, **finetune}, {**FROZEN, **tasks}
    shared = (finetune.keys() & tasks.keys()) - {"names", "seeds", "glue"}
    return all(tasks[k] is None or finetune[k] == tasks[k] for k in shared)
