"""Every kind of measure has its function, and a name for each score that a run should have."""

from __future__ import annotations

from workbench.spec.parts import TasksSpec
from workbench.tasks.common.contract import Measure, Suite, expected, score_name
from workbench.tasks.common.examples import Examples, Tagged, Task
from workbench.tasks.embeddings import SIMILARITY, Embedding, Similar
from workbench.tasks.linear_probe import LinearProbe
from workbench.tasks.minimal_pairs import pair_set
from workbench.tasks.squad import Questions, Squad
from workbench.tasks.tagging import Tagging

ROWS = Examples(["a", "b"], None, [0, 1])
WORDS = Tagged([["a"]], [[0]])
MEASURES: list[Measure] = [
    Task("t", "table", ("x", "y"), "accuracy", ("accuracy",), 1.0, ROWS, {"dev": ROWS}),
    Tagging("tag:x", ("A",), 1, "", WORDS, {"test": WORDS}),
    LinearProbe("linear:x", "texts", ("x", "y"), "accuracy", ("accuracy",), ROWS, {"dev": ROWS}),
    Embedding("similarity:x", SIMILARITY, {"test": Similar(("a",), ("b",), (1.0,))}),
    pair_set("pairs:x", "minimal-pairs", ["a"], ["b"], {"paradigm": ["p"]}),
    Squad("squad1", False, Questions((), ()), {"dev": Questions((), ())}),
]
SPEC = TasksSpec(seeds=3)


def test_a_run_should_have_a_score_for_each_seed_or_one_where_nothing_is_drawn() -> None:
    listed = list(expected(Suite(tuple(measure for measure in MEASURES)), SPEC))
    seeds = {measure.name: [seed for other, seed, _ in listed if other is measure] for measure in MEASURES}
    assert {name for name, each in seeds.items() if each == [0, 1, 2]} == {"t", "tag:x", "squad1"}
    assert all(each == [0] for name, each in seeds.items() if name not in ("t", "tag:x", "squad1"))
    assert [name for *_, name in listed] == [score_name(measure, SPEC, seed) for measure, seed, _ in listed]
    assert len({name for *_, name in listed}) == len(listed) == 3 * 3 + 3
