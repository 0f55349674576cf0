"""Searching and tuning, on real runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .conftest import SETS, Command


def words(text: Path, table: Path, *more: object) -> list[object]:
    given = ["--corpus", text, "--tasks", table, "--budget", "steps=4", "--match", "steps", *SETS]
    return ["sweep", *more, *given, "--threads", 1, "--set", "tasks.seeds=1", "--set", "tasks.epochs=1", "--json"]


def record(folder: Path, prefix: str) -> dict[str, Any]:
    path = next(path for path in (folder / "runs/experiments").glob("*.json") if path.name.startswith(prefix))
    return dict(json.loads(path.read_text()))


def test_a_search_goes_on_with_the_trials_it_has(text: Path, table: Path, workbench: Command, tmp_path: Path) -> None:
    import optuna

    search = ["--over", "optim.lr=1e-4..1e-2:log", "--over", "tying=tokens,none"]
    done = workbench(*words(text, table, *search, "--trials", 2), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    first = record(tmp_path, "over-")["tuning"]
    assert [trial["trial"] for trial in first] == [0, 1]
    assert all(1e-4 <= trial["values"]["optim.lr"] <= 1e-2 and 0 <= trial["score"] <= 100 for trial in first)
    weights = {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/*/encoder/model.safetensors")}

    journal = next((tmp_path / "runs/experiments").glob("*.optuna.log"))
    journal.write_bytes(journal.read_bytes()[:-20])  # torn, as by a power cut
    done = workbench(*words(text, table, *search, "--trials", 3), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    trials = record(tmp_path, "over-")["tuning"]
    assert trials[:2] == first and len(trials) == 3
    assert all(path.stat().st_mtime_ns == before for path, before in weights.items())
    assert len(list(tmp_path.glob("runs/rtd-*"))) == len({run for trial in trials for run in trial["run_ids"]})

    storage = optuna.storages.JournalStorage(
        optuna.storages.journal.JournalFileBackend(
            str(journal), lock_obj=optuna.storages.journal.JournalFileOpenLock(str(journal))
        )
    )
    (study,) = optuna.get_all_study_summaries(storage)
    shown = optuna.load_study(study_name=study.study_name, storage=storage).get_trials()
    assert [trial.value for trial in shown] == [trial["score"] for trial in trials]


@pytest.mark.slow
def test_tuning_treats_objectives_alike_and_reports_on_other_seeds_and_rows(
    text: Path, table: Path, workbench: Command, tmp_path: Path
) -> None:
    arms = ["tune", "--objective", "bert-mlm", "--objective", "electra-15", "--trials", 2, "--seeds", 2]
    done = workbench(*words(text, table, *arms), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    final = record(tmp_path, "tune-nano")
    assert final["axis"] == "objective" and len(final["runs"]) == 4
    trials = {name: [t for t in final["tuning"] if t["objective"] == name] for name in ("bert-mlm", "electra-15")}
    assert {len(found) for found in trials.values()} == {2}

    chosen: dict[str, set[float]] = {}
    for run in final["runs"]:
        spec = json.loads((tmp_path / "runs" / run / "spec.json").read_text())["spec"]
        chosen.setdefault(spec["objective"], set()).add(spec["optim"]["lr"])
        assert spec["seed"] in (0, 1)
        scores = [json.loads(path.read_text()) for path in (tmp_path / "runs" / run / "scores").glob("*.json")]
        assert [list(score["values"]) for score in scores] == [["test"]]
    for name, found in trials.items():
        best = max(found, key=lambda trial: (trial["score"], -trial["trial"]))
        assert chosen[name] == {best["values"]["optim.lr"]}
        for trial in found:
            assert not set(trial["run_ids"]) & set(final["runs"])
            assert min(trial["seeds"]) > 1
            scores = [
                json.loads(path.read_text())
                for run in trial["run_ids"]
                for path in (tmp_path / "runs" / run / "scores").glob("*.json")
            ]
            assert [list(score["values"]) for score in scores] == [["held-out"]]
            assert trial["score"] == scores[0]["value"]
