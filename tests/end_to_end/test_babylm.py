"""BabyLM from its folder of text to its layout of models and predictions, by the real commands."""

from __future__ import annotations

import csv
import json
import os
import time
from pathlib import Path

import pytest
from drills.small import write_text
from test_contributing import OBJECTIVE

from .conftest import SETS, Command

PAIRS = {"turn_taking": 4, "hypernym": 6}


@pytest.fixture(scope="module")
def folder(workbench: Command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a run of some words and its untrained encoder, measured on a set of pairs under BabyLM's name."""
    place = tmp_path_factory.mktemp("babylm")
    (place / "text").mkdir()
    write_text(place / "text" / "childes.train")
    (place / "supplement_filtered").mkdir()
    for name, count in PAIRS.items():
        rows = [
            {"sentence_good": f"the cat sees a dog {'on a hill ' * i}.", "sentence_bad": f"hill a {'cat the ' * i}."}
            for i in range(count)
        ]
        path = place / "supplement_filtered" / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    workbench(*words(), cwd=place, ends=0)
    return place


def words(*more: str) -> list[str]:
    given = ["run", "ablation", "--objective", "rtd", "--corpus", "text", "--match", "words"]
    return [*given, "--budget", "words=5000", "--tasks", "supplement_filtered", *SETS, *more]


def test_the_plan_and_the_runs_see_the_words_that_were_asked_for(folder: Path, workbench: Command) -> None:
    done = workbench(*words("--dry-run", "--json"), cwd=folder)
    plan = json.loads(done.stdout)
    text = (folder / "text" / "childes.train").read_text()
    assert plan["text"]["words"] == len(text.split()) and list(plan["text"]["sources"]) == ["childes.train"]
    for row in plan["runs"]:
        assert 4700 < row["words"] <= 5000 and row["epochs"] == pytest.approx(row["words"] / len(text.split()))
    refused = workbench(*words("--most-epochs", "0.1"), cwd=folder)
    assert refused.returncode == 2 and "--most-epochs 0.1" in refused.stderr and refused.stderr.count("\n") == 1


@pytest.fixture(scope="module")
def out(folder: Path, workbench: Command) -> Path:
    """What is exported of the store."""
    done = workbench("export", "ablation", "--babylm", "out", cwd=folder, ends=0)
    assert "supplement_filtered has 10 rows in 2 where BabyLM expects 5,218 in 5" in done.stderr
    return folder / "out"


def test_export_writes_models_predictions_and_scores(folder: Path, out: Path) -> None:
    with open(out / "scores.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert sorted(row["backend"] for row in rows) == ["electric", "mlm", "originality"]
    for row in rows:
        score = next(
            json.loads(path.read_text()) for path in folder.glob(f"runs/{row['run_id']}/scores/supplement*.json")
        )
        beside = score["values"].get({"mlm": "generator-pll"}.get(row["backend"], row["backend"]))
        assert float(row["ours"]) == (score["value"] if row["backend"] == "originality" else beside["accuracy"])
        path = f"main/zero_shot/{row['backend']}/blimp/supplement_filtered/predictions.json"
        content = json.loads((out / "results" / row["run_id"] / path).read_text())
        shares = [
            sum(each["pred"].startswith("the cat sees") for each in content[name]["predictions"]) / count
            for name, count in PAIRS.items()
        ]
        assert float(row["pipeline"]) == pytest.approx(100 * sum(shares) / 2)
        file = out / "results" / row["run_id"] / f"all_full_preds_and_fast_scores_{row['backend']}.json"
        assert json.loads(file.read_text())["blimp_supplement"] is None  # it has too few rows


def test_exported_models_load(out: Path) -> None:
    from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer

    (rtd,) = (out / "models").glob("rtd*")
    model, info = AutoModelForMaskedLM.from_pretrained(rtd / "main", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    assert model.config.hidden_size == 16  # the generator
    assert AutoModel.from_pretrained(rtd / "main" / "encoder").config.hidden_size == 32
    inputs = AutoTokenizer.from_pretrained(rtd / "main")("the cat sees a dog", return_tensors="pt")
    assert model(**inputs).logits.shape[:2] == inputs["input_ids"].shape


def test_an_objective_that_scores_no_sentences_is_exported_beside_the_others(folder: Path, workbench: Command) -> None:
    """The objective of CONTRIBUTING defines no `score`, so it has no predictions, but it has an encoder."""
    assert "score" not in OBJECTIVE
    (folder / "my_idea.py").write_text(OBJECTIVE, encoding="utf-8")
    workbench(*words("--objective", "./my_idea.py", "--tasks", "none"), cwd=folder, ends=0)
    workbench("export", "ablation", "--babylm", "both", cwd=folder, ends=0)
    assert len(list((folder / "both" / "models").glob("*/main/config.json"))) == 2
    (mine,) = (folder / "both" / "models").glob("my-idea-*/main")
    assert "has no part that learned to predict [MASK]" in (mine / "README.md").read_text()
    (rtd,) = (folder / "both" / "models").glob("rtd-*/main")
    assert "the **generator**" in (rtd / "README.md").read_text()


def test_a_place_that_holds_something_is_refused(folder: Path, workbench: Command) -> None:
    (folder / "full").mkdir()
    (folder / "full" / "notes.txt").write_text("mine")
    for more in (["--babylm", "full"], ["--babylm", "new", "--format", "latex"]):
        done = workbench("export", "ablation", *more, cwd=folder)
        assert done.returncode == 2 and "--babylm" in done.stderr and "Traceback" not in done.stderr
    assert [path.name for path in (folder / "full").iterdir()] == ["notes.txt"] and not (folder / "new").exists()
    done = workbench("export", "ablation", "--babylm", "full/notes.txt/a/b", cwd=folder)
    assert done.returncode == 2 and "nothing can be written in 'full/notes.txt/a'" in done.stderr


def test_folders_above_are_made_and_not_left_behind_by_an_export_that_fails(folder: Path, workbench: Command) -> None:
    run = next(folder.glob("runs/rtd*"))
    heads = run / "heads" / "model.safetensors"
    whole = heads.read_bytes()
    heads.write_bytes(whole[:-4] + b"\0\1\2\3")
    time.sleep(0.02)
    os.utime(run / "done.json")  # so that times do not show it
    try:  # not compared with its hash beforehand, it is found out when the model is put together
        done = workbench("export", "ablation", "--babylm", "a/b/c", "--no-verify", cwd=folder)
        assert done.returncode == 1 and "heads/model.safetensors has changed" in done.stderr
        assert not (folder / "a").exists()
    finally:
        heads.write_bytes(whole)
    done = workbench("export", "ablation", "--babylm", "a/b/c", cwd=folder)
    assert done.returncode == 0 and (folder / "a/b/c/scores.csv").is_file()
    assert [path.name for path in (folder / "a").iterdir()] == ["b"]
