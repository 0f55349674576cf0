"""Every kind of measure has its function, and a name for each score that a run should have."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.tasks import _embedding_vectors as embedding_vectors
from workbench.tasks import _linear_readout as linear
from workbench.tasks import _preferences as preferences
from workbench.tasks import _squad_answers as squad_answers
from workbench.tasks import _tagger as tagger
from workbench.tasks import measures
from workbench.tasks.common import classification
from workbench.tasks.common.contract import score_name
from workbench.tasks.common.examples import Examples, Measure, Suite, Tagged, Task
from workbench.tasks.embeddings import SIMILARITY, Embedding, Similar
from workbench.tasks.linear_probe import LinearProbe
from workbench.tasks.minimal_pairs import pair_set
from workbench.tasks.squad import Questions, Squad
from workbench.tasks.tagging import Tagging

ROWS = Examples(["a", "b"], None, [0, 1])
WORDS = Tagged([["a"]], [[0]])
KINDS: list[tuple[Measure, ModuleType, str]] = [
    (Task("t", "table", ("x", "y"), "accuracy", ("accuracy",), 1.0, ROWS, {"dev": ROWS}), classification, "finetune"),
    (Tagging("tag:x", ("A",), 1, "", WORDS, {"test": WORDS}), tagger, "tag"),
    (LinearProbe("linear:x", "texts", ("x", "y"), "accuracy", ("accuracy",), ROWS, {"dev": ROWS}), linear, "probe"),
    (Embedding("similarity:x", SIMILARITY, {"test": Similar(("a",), ("b",), (1.0,))}), embedding_vectors, "embed"),
    (pair_set("pairs:x", "minimal-pairs", ["a"], ["b"], {"paradigm": ["p"]}), preferences, "zero_shot"),
    (Squad("squad1", False, Questions((), ()), {"dev": Questions((), ())}), squad_answers, "answer"),
]
SPEC = TasksSpec(seeds=3)


@pytest.mark.parametrize(("measure", "module", "function"), KINDS, ids=lambda each: getattr(each, "name", ""))
def test_each_kind_is_measured_by_its_own_function(
    measure: Measure, module: ModuleType, function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[tuple[Any, ...]] = []
    for _, other, name in KINDS:
        monkeypatch.setattr(other, name, lambda *given, name=name: (taken.append((name, *given)), "score")[1])
    assert measures.take(Path("encoder"), measure, SPEC, 2, Host(device="cpu")) == "score"
    (call,) = taken
    assert call[:5] == (function, Path("encoder"), measure, SPEC, 2)


def test_another_kind_is_an_error() -> None:
    with pytest.raises(TypeError, match="no function measures a str"):
        measures.take(Path("encoder"), "a task", SPEC, 0, Host(device="cpu"))  # type: ignore[arg-type]


def test_a_run_should_have_a_score_for_each_seed_or_one_where_nothing_is_drawn() -> None:
    listed = list(measures.expected(Suite(tuple(measure for measure, *_ in KINDS)), SPEC))
    seeds = {measure.name: [seed for other, seed, _ in listed if other is measure] for measure, *_ in KINDS}
    assert {name for name, each in seeds.items() if each == [0, 1, 2]} == {"t", "tag:x", "squad1"}
    assert all(each == [0] for name, each in seeds.items() if name not in ("t", "tag:x", "squad1"))
    assert [name for *_, name in listed] == [score_name(measure, SPEC, seed) for measure, seed, _ in listed]
    assert len({name for *_, name in listed}) == len(listed) == 3 * 3 + 3
