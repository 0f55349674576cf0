"""The score of an encoder, its name, and the files that are kept beside it."""

from __future__ import annotations

import errno
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.store import run_directory
from workbench.store.manifest import entry
from workbench.store.run_directory import RunDir
from workbench.tasks.common.contract import Measure, Model, Score, Suite, expected, keep, score_digest, score_name, take
from workbench.tasks.common.examples import Examples, Tagged, Task, fingerprinted
from workbench.tasks.embeddings import SIMILARITY, Embedding, Similar
from workbench.tasks.linear_probe import LinearProbe
from workbench.tasks.minimal_pairs import pair_set
from workbench.tasks.squad import Questions, Squad
from workbench.tasks.tagging import Tagging

SCORE = Score(
    "tag:x", "tagging", "accuracy", 0, 50.0, {"test": {"accuracy": 50.0}}, {}, 1, 2, 3, 0.1, {}, "d", "12345678",
    details={"scheme": ""}, files={".test.conll": "å A B\n\n", ".dev.conll": "b A A\n\n"},
)  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    (tmp_path / "some-run").mkdir()
    return RunDir(tmp_path / "some-run")


@pytest.mark.parametrize("place", ["", "points/00000100/"])
def test_files_lie_in_the_predictions_of_the_run(place: str, run: RunDir) -> None:
    (run.path / place).mkdir(parents=True, exist_ok=True)
    content = keep(run, f"{place}tag-x-12345678-0.json", SCORE, {"encoder": "abc"})
    names = [f"{place}predictions/tag-x-12345678-0.{part}.conll" for part in ("test", "dev")]
    assert list(content["files"]) == names
    files = {name: (run.path / name).read_bytes() for name in names}
    assert files[names[0]] == "å A B\n\n".encode()
    assert content["files"] == {name: entry(data) for name, data in files.items()}
    assert [path.name for path in (run.path / place / "scores").iterdir()] == ["tag-x-12345678-0.json"]
    written = json.loads((run.path / place / "scores" / "tag-x-12345678-0.json").read_text())
    assert written["encoder"] == "abc" and written["scheme"] == "" and written.items() >= content.items()


def test_scores_without_files_are_as_they_were(run: RunDir) -> None:
    plain = Score(**{**SCORE.__dict__, "files": {}})
    assert keep(run, "a.json", plain, {}) == plain.to_json() and "files" not in plain.to_json()


def test_a_full_disk_leaves_no_score(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    real = run_directory.write_atomic

    def full(path: Path, *arguments: Any) -> None:
        if path.name.endswith(".dev.conll"):
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        real(path, *arguments)

    monkeypatch.setattr(run_directory, "write_atomic", full)
    with pytest.raises(OSError, match="No space left"):
        keep(run, "tag-x-12345678-0.json", SCORE, {})
    assert [path.name for path in run.path.rglob("*") if path.is_file()] == []  # nor a part of its files
    monkeypatch.setattr(run_directory, "write_atomic", real)
    assert keep(run, "tag-x-12345678-0.json", SCORE, {})["value"] == 50.0


SPEC = TasksSpec(lr=3e-3, layer_decay=0.9, length=32, dropout=0.1)


CPU = Host(device="cpu")


def test_score_names_follow_what_decides_the_score(keyword: Task) -> None:
    name = score_name(keyword, SPEC, 3)
    assert name == f"keyword-{score_digest(keyword, SPEC)}-3.json"
    same = SPEC.model_copy(update={"names": ("keyword", "other"), "seeds": 9, "glue": "elsewhere", "epochs": 6.0})
    assert score_name(keyword, same, 3) == name
    for changes in ({"lr": 1e-3}, {"epochs": 2.0}, {"rows": 5}, {"doubled": True}, {"batch": 16}):
        assert score_name(keyword, SPEC.model_copy(update=changes), 3) != name
    assert score_name(fingerprinted(keyword, rows=99), SPEC, 3) != name
    assert "/" not in score_name(replace(keyword, name="../a b"), SPEC, 0)


def test_json_holds_everything_a_report_needs(encoder: Path, keyword: Task) -> None:
    score = take(replace(keyword, epochs=0.5), Model(encoder, SPEC, 1), CPU)
    found = json.loads(json.dumps(score.to_json(), allow_nan=False))
    expected = {"format": 1, "task": "keyword", "suite": "table", "metric": "accuracy", "seed": 1, "test_rows": 101}
    assert found.items() >= expected.items()
    assert found["finetune"]["epochs"] == 0.5 and found["finetune"]["lr"] == 3e-3
    assert found["data"] == keyword.fingerprint and len(found["digest"]) == 8 and found["seconds"] > 0


# ---- Every kind of measure has its function, and a name for each score that a run should have ----

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
SPEC_MEASURES = TasksSpec(seeds=3)


def test_a_run_should_have_a_score_for_each_seed_or_one_where_nothing_is_drawn() -> None:
    listed = list(expected(Suite(tuple(measure for measure in MEASURES)), SPEC_MEASURES))
    seeds = {measure.name: [seed for other, seed, _ in listed if other is measure] for measure in MEASURES}
    assert {name for name, each in seeds.items() if each == [0, 1, 2]} == {"t", "tag:x", "squad1"}
    assert all(each == [0] for name, each in seeds.items() if name not in ("t", "tag:x", "squad1"))
    assert [name for *_, name in listed] == [score_name(measure, SPEC_MEASURES, seed) for measure, seed, _ in listed]
    assert len({name for *_, name in listed}) == len(listed) == 3 * 3 + 3
