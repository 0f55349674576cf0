"""An encoder has the same scores when its run is measured and when `evaluate` measures its folder, wherever that lies.

The run has other sizes than its scale, so that `evaluate` would take another scale by the size of the encoder, and rows
of pre-training that are shorter than the encoder's positions.
"""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import squad_files

from workbench.spec import presets

from .conftest import Command

SIZES = (
    "encoder.layers=2", "encoder.vocab=300", "data.length=8", "data.held_out=0.2", "batch.size=8",
)  # fmt: skip
TASKS = ("mine.csv", "tag:words.conll", "linear:mine.csv", "similarity:alike.csv", "squad1", "pairs:exchange")


@pytest.fixture(scope="module")
def study(text: Path, workbench: Command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run that is measured on every kind of task, whose texts are longer than its rows."""
    folder, rng = tmp_path_factory.mktemp("study"), random.Random(3)
    nouns = ["the cat", "a dog", "one bird", "this fish"]

    def long(words: int) -> str:
        return " ".join(rng.choice(nouns) for _ in range(words))

    rows = [f"{long(8)} {('sees', 'likes')[n % 2]} {long(12)},{'xy'[n % 2]}" for n in range(60)]
    (folder / "mine.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    alike = [f"{long(15)},{long(15)},{n % 6}" for n in range(30)]
    (folder / "alike.csv").write_text("\n".join(["sentence1,sentence2,score", *alike]) + "\n")
    tagged = [
        "\n".join(f"{word} {'NOUN' if word in ('cat', 'dog') else 'OTHER'}" for word in long(20).split())
        for _ in range(40)
    ]
    (folder / "words.conll").write_text("\n\n".join(tagged) + "\n")
    squad_files.write(folder, train=4, dev=2)
    words = ["run", "ablation", "--objective", "rtd", "--corpus", text, "--tasks", ",".join(TASKS)]
    words += ["--budget", "steps=20", *(part for each in SIZES for part in ("--set", each))]
    words += ["--set", "tasks.epochs=1", "--set", "tasks.seeds=1", "--set", "tasks.squad=."]
    done = workbench(*words, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def scores_of_run(study: Path) -> dict[str, Any]:
    """Value and every metric of each task, as the run's own files have them."""
    [run] = (study / "runs").glob("rtd-*")
    scores = [json.loads(path.read_text()) for path in (run / "scores").iterdir()]
    return {score["task"]: (score["value"], score["values"]) for score in scores}


def evaluated(folder: Path, tasks: tuple[str, ...], study: Path, text: Path, workbench: Command) -> dict[str, Any]:
    words = ["evaluate", folder, "--tasks", ",".join(tasks), "--runs", "others", "--json"]
    sets = ("tasks.squad=.", f"data.corpus={text}", "data.held_out=0.2", "encoder.vocab=300")
    done = workbench(*words, *(part for each in sets for part in ("--set", each)), cwd=study)
    assert done.returncode == 0, done.stderr
    assert "with the settings of its run" in done.stderr
    return {row["task"]: (row["value"], row["values"]) for row in json.loads(done.stdout)}


def test_its_settings_would_be_others_by_its_size(study: Path) -> None:
    [run] = (study / "runs").glob("rtd-*")
    assert json.loads((run / "spec.json").read_text())["spec"]["scale"] == "nano"
    assert presets.scale_of_encoder(2, 64) == "micro"


@pytest.mark.parametrize("place", ["in the run", "copied", "exported"])
def test_the_scores_are_the_same(place: str, study: Path, text: Path, workbench: Command, tmp_path: Path) -> None:
    """Minimal pairs need the head of pre-training, which a copy of the encoder alone lacks."""
    [run] = (study / "runs").glob("rtd-*")
    folder, tasks = run / "encoder", TASKS
    if place == "copied":
        folder, tasks = shutil.copytree(folder, tmp_path / "mine"), TASKS[:-1]
    elif place == "exported":
        assert workbench("export", run.name, "--checkpoint", tmp_path / "m", cwd=study).returncode == 0
        folder = tmp_path / "m" / "discriminator"
    known = scores_of_run(study)
    if place == "exported":
        for scorer in ("generator-pll", "electric"):  # beside the score, and of the generator, which is exported apart
            known[TASKS[-1]][1].pop(scorer, None)
    assert len(known) == len(TASKS)
    found = evaluated(folder, tasks, study, text, workbench)
    assert found == {name: known[name] for name in found} and len(found) == len(tasks)


def test_options_take_precedence_and_a_foreign_entry_is_refused(
    study: Path, workbench: Command, tmp_path: Path
) -> None:
    [run] = (study / "runs").glob("rtd-*")
    folder = Path(shutil.copytree(run / "encoder", tmp_path / "mine"))
    words = ["evaluate", folder, "--tasks", study / "mine.csv", "--runs", tmp_path / "others", "--json"]
    for more, settings in ((("--set", "tasks.lr=0.004"), (0.004, 0.6, 32)), (("--scale", "micro"), (1e-3, 0.7, 64))):
        done = workbench(*words, *more, "--set", "tasks.epochs=1", "--set", "tasks.seeds=1", cwd=study)
        [row] = json.loads(done.stdout)
        assert tuple(row["finetune"][key] for key in ("lr", "layer_decay", "length")) == settings
    config = folder / "config.json"
    facts = json.loads(config.read_text())
    for wrong in ({"row_length": 0}, {"row_length": "x"}, {"tasks": {"lr": -1}}, {"tasks": {"names": ["a"]}}):
        config.write_text(json.dumps(facts | {"workbench": facts["workbench"] | wrong}))
        done = workbench(*words, cwd=study)
        assert done.returncode == 2 and "the entry 'workbench' of config.json" in done.stderr, done.stderr
        assert done.stderr.count("\n") == 1
