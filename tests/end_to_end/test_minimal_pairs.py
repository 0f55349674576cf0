"""`--tasks pairs` and a folder of minimal pairs, from text to report: nothing is fine-tuned, and nothing done twice."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

from .conftest import SETS, Command

ANIMALS = ["cat", "dog", "bird", "fish", "horse", "cow", "goat", "duck", "hen", "fox"]
VERBS = ["sees", "likes", "finds", "leaves", "knows", "hears", "follows", "helps", "feeds", "meets"]
PLACES = ["garden", "river", "hill", "bridge", "house", "road", "field", "barn", "lake", "wood"]


@pytest.fixture(scope="module")
def folder(workbench: Command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two objectives and their untrained encoder, measured on pairs and on a folder of pairs."""
    place = tmp_path_factory.mktemp("pairs")
    draw = random.Random(0)

    def sentence() -> str:
        one, other = draw.sample(ANIMALS, 2)
        return f"The {one} {draw.choice(VERBS)} the {other} near the {draw.choice(PLACES)}."

    documents = [" ".join(sentence() for _ in range(4)) for _ in range(260)]
    (place / "text.txt").write_text("\n\n".join(documents), encoding="utf-8")
    (place / "mine").mkdir()
    rows = [{"sentence_good": (text := sentence()), "sentence_bad": text.replace("The", "the the")} for _ in range(20)]
    (place / "mine" / "the.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = workbench(*words(), cwd=place)
    assert done.returncode == 0, done.stderr
    (place / "stderr.txt").write_text(done.stderr)
    return place


def words(*more: str) -> list[str]:
    given = ["run", "ablation", "--objective", "bert-mlm", "--objective", "rtd", "--corpus", "text.txt"]
    return [*given, "--tasks", "pairs,mine", "--budget", "steps=4", *SETS, "--set", "data.held_out=0.5", *more]


def scores(folder: Path) -> dict[tuple[str, str], dict[str, object]]:
    found = [json.loads(path.read_text()) for path in folder.glob("runs/*/scores/*.json")]
    return {(str(score["run_id"]).rsplit("-nano", 1)[0], score["task"]): score for score in found}


def test_every_run_has_one_score_a_task_with_its_scorer(folder: Path) -> None:
    found = scores(folder)
    assert set(found) == {(run, task) for run in ("untrained", "bert-mlm", "rtd") for task in ("pairs", "mine")}
    assert {(run, score["scorer"]) for (run, _), score in found.items()} == {
        ("untrained", "pll"), ("bert-mlm", "pll"), ("rtd", "originality"),
    }  # fmt: skip
    for (_, task), score in found.items():
        assert 0 <= float(str(score["value"])) <= 100 and score["heads"] and score["encoder"] and score["seed"] == 0
        levels = score["values"]
        assert isinstance(levels, dict)
        assert set(levels["kind"]) == {"exchange", "order", "replace"} if task == "pairs" else levels["paradigm"]


def test_the_report_tells_how_sentences_were_scored(folder: Path) -> None:
    page = next(folder.glob("reports/*/index.html")).read_text()
    assert "Scorers differ between objectives" in page and "originality (rtd)" in page
    assert "originality" in next(folder.glob("reports/*/scores.csv")).read_text()


def test_the_same_command_measures_nothing_again_and_heads_are_covered(folder: Path, workbench: Command) -> None:
    before = {path: path.read_bytes() for path in folder.glob("runs/*/scores/*.json")}
    again = workbench(*words(), cwd=folder)
    assert again.returncode == 0 and "scores in" not in again.stderr
    assert {path: path.read_bytes() for path in folder.glob("runs/*/scores/*.json")} == before
    for run in folder.glob("runs/*/manifest.json"):
        assert "heads/model.safetensors" in run.read_text()
    assert workbench("verify", "runs", cwd=folder).returncode == 0


def test_a_run_without_heads_is_refused_in_a_sentence(folder: Path, workbench: Command, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    place = tmp_path / "copy"
    run = next(place.glob("runs/rtd*"))
    shutil.rmtree(run / "heads")
    done = workbench("evaluate", run / "encoder", "--tasks", "mine", cwd=place)
    assert done.returncode == 2 and "has no folder heads" in done.stderr and "Traceback" not in done.stderr


def test_evaluate_scores_the_encoder_of_a_run(folder: Path, workbench: Command) -> None:
    run = next(folder.glob("runs/rtd*"))
    done = workbench("evaluate", run / "encoder", "--tasks", "mine", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    (score,) = json.loads(done.stdout)
    assert score["value"] == scores(folder)["rtd", "mine"]["value"] and score["scorer"] == "originality"


def test_a_corpus_without_a_held_out_part_gives_one_up(folder: Path, workbench: Command) -> None:
    words = ["run", "ablation", "--objective", "bert-mlm", "--corpus", "text.txt", "--tasks", "pairs", "--dry-run"]
    done = workbench(*words, *SETS, cwd=folder)
    assert done.returncode == 0 and "--set data.held_out=0.02 is in effect" in done.stderr


def test_the_plan_says_what_scores_during_training_cost(folder: Path, workbench: Command) -> None:
    """The text of the plan and its JSON, for text that is prepared already; nothing is trained or written."""
    before = sorted(folder.glob("runs/**/*"))
    told = workbench(*words("--evaluate-at", "log:6", "--dry-run"), cwd=folder)
    assert told.returncode == 0, told.stderr
    last = told.stdout.splitlines()[-1]
    assert (
        last.startswith("scores during training: minimal-pairs at 1 to 2 points (at most ")
        and " pairs at 1 to 2 points" in last
    )
    facts = json.loads(workbench(*words("--evaluate-at", "log:6", "--dry-run", "--json"), cwd=folder).stdout)
    assert [row["suite"] for row in facts["points"]] == ["minimal-pairs", "pairs"]
    assert all(row["all_points"] > row["one_point"] > 0.05 for row in facts["points"])
    short = workbench(*words("--evaluate-at", "log:2", "--dry-run"), cwd=folder).stdout.splitlines()[-1]
    assert short.endswith(": none, because the run ends before the first point of --evaluate-at log:2")
    auto = workbench(*words("--dry-run"), cwd=folder).stdout.splitlines()[-1]
    assert auto.startswith("scores during training: no point of minimal-pairs (one costs ")
    assert sorted(folder.glob("runs/**/*")) == before


def test_words_for_points_that_cannot_be_used_are_refused(workbench: Command, folder: Path) -> None:
    for given, why in (
        (("--evaluate-at", "sometimes"), "must be auto, none, words, or log:N"),
        (("--evaluate-at", "log:2", "--set", "tasks.at=none"), "contradict each other"),
    ):
        done = workbench(*words(*given), cwd=folder)
        assert done.returncode == 2 and why in done.stderr and done.stderr.count("\n") <= 2, done.stderr
