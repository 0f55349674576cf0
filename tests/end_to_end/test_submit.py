"""`workbench submit`: a zip that GLUE's server takes, checked row by row, and a card that says where it comes from."""

from __future__ import annotations

import json
import os
import shutil
import signal
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import glue_files

from workbench.errors import Interrupted
from workbench.execution.glue_submission import repeat, task_of
from workbench.process import interrupting
from workbench.spec.host import Host
from workbench.store.run_store import RunStore
from workbench.tasks import glue

from .conftest import SETS, Command

PARTS = ("CoLA", "STS-B", "WNLI")  # the whole of GLUE takes a minute: see the slow test below
FAST = ("tasks.epochs=8", "tasks.seeds=2", "tasks.length=16", "tasks.batch=8")


@pytest.fixture(scope="module")
def home(text: Path, workbench: Command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a run that was fine-tuned on some tasks of a made-up GLUE."""
    place = tmp_path_factory.mktemp("submit")
    glue_files.write_glue(place / "glue", PARTS)
    words = ["run", "ablation", "--objective", "rtd", "--corpus", text]
    words += ["--budget", "steps=3", "--tasks", ",".join(PARTS), "--set", f"tasks.glue={place / 'glue'}", *SETS]
    workbench(*words, *[word for each in FAST for word in ("--set", each)], cwd=place, ends=0)
    return place


def read(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def run_of(home: Path) -> str:
    return next(path.parent.name for path in home.glob("runs/rtd-*/done.json"))


def scores_of(home: Path, run: str) -> list[dict]:  # type: ignore[type-arg]
    return [json.loads(path.read_text()) for path in (home / "runs" / run / "scores").glob("*.json")]


def test_a_partial_zip_holds_what_a_server_takes_and_the_card_names_the_best_seeds(
    home: Path, workbench: Command
) -> None:
    run = run_of(home)
    done = workbench("submit", run, "--out", "best/glue.zip", "--partial", "--json", cwd=home, ends=0)
    files = read(home / "best/glue.zip")
    assert glue_files.faults(files, PARTS) == []
    card = json.loads((home / "best/glue.json").read_text())
    assert json.loads(done.stdout) == card and not card["complete"] and card["run"] == run
    assert set(card["missing"]) == {f"{name}.tsv" for name in set(glue_files.ROWS) - set(PARTS)}
    assert card["missing"]["AX.tsv"] == "no score on MNLI" and card["missing"]["QQP.tsv"] == "no score on QQP"
    scores = scores_of(home, run)
    for entry in card["entries"]:
        same = [score for score in scores if score["task"] == entry["task"]]
        best = max(same, key=lambda score: (score["value"], -score["seed"]))
        assert entry["dev"] == [{"seed": best["seed"], "recorded": best["value"], "repeated": best["value"]}]
        assert (entry["rows"], entry["data"], entry["code"]) == (
            glue_files.ROWS[entry["file"][:-4]], best["data"], best["code"]
        )  # fmt: skip
        assert entry["chosen"] == "the best on dev of 2 fine-tuning seeds" and entry["settings"] == best["finetune"]
    page = (home / "best/glue.md").read_text()
    assert run in page and "| CoLA.tsv | 1,063 | CoLA |" in page and "- QQP.tsv: no score on QQP" in page


def test_the_same_command_again_gives_the_same_bytes_from_the_cache(
    home: Path, workbench: Command, cache: Path
) -> None:
    words = ("submit", run_of(home), "--partial", "--out")
    first = workbench(*words, "one.zip", cwd=home)
    folders = {path: path.stat().st_mtime_ns for path in (cache / "submissions").iterdir()}
    again = workbench(*words, "two.zip", cwd=home)
    assert (first.returncode, again.returncode) == (0, 0), first.stderr + again.stderr
    assert (home / "one.zip").read_bytes() == (home / "two.zip").read_bytes()
    assert {path: path.stat().st_mtime_ns for path in (cache / "submissions").iterdir()} == folders
    shutil.rmtree(cache / "submissions")
    anew = workbench(*words, "three.zip", cwd=home)
    assert anew.returncode == 0 and (home / "three.zip").read_bytes() == (home / "one.zip").read_bytes()


def test_a_given_seed_and_an_ensemble_are_named_and_the_mean_of_their_members(
    home: Path, workbench: Command, cache: Path
) -> None:
    run = run_of(home)
    outputs = []
    for number in range(2):
        workbench("submit", run, "--seed", number, "--out", f"s{number}.zip", "--partial", cwd=home, ends=0)
        card = json.loads((home / f"s{number}.json").read_text())
        assert all([dev["seed"] for dev in entry["dev"]] == [number] for entry in card["entries"])
        assert {entry["chosen"] for entry in card["entries"]} == {f"seed {number}, as given"}
        words = read(home / f"s{number}.zip")["STS-B.tsv"].decode().split()[3::2]
        outputs.append(np.array(words, dtype=float))
    workbench("submit", run, "--ensemble", 2, "--out", "both.zip", "--partial", cwd=home, ends=0)
    files, card = read(home / "both.zip"), json.loads((home / "both.json").read_text())
    assert glue_files.faults(files, PARTS) == []
    mean = np.array(files["STS-B.tsv"].decode().split()[3::2], dtype=float)
    inside = (np.minimum(*outputs) > 0) & (np.maximum(*outputs) < 5)  # where neither member is clipped
    assert inside.any()
    np.testing.assert_allclose(mean[inside], (sum(outputs) / 2)[inside], atol=1.1e-3)
    for entry in card["entries"]:
        assert sorted(dev["seed"] for dev in entry["dev"]) == [0, 1] and "an ensemble of 2" in entry["chosen"]
    assert "mean of the probabilities of 2 classifiers" in (home / "both.md").read_text()


def test_wnli_is_predicted_by_its_majority_only_if_asked(home: Path, workbench: Command) -> None:
    words = ("submit", run_of(home), "--partial", "--wnli-majority", "--out", "w.zip")
    lines = glue_files.labelled("WNLI", 40, 0)
    glue_files.write(home / "glue/WNLI/train.tsv", lines[0], *(line[:-1] + "1" for line in lines[1:]))
    try:
        done = workbench(*words, cwd=home)
    finally:
        glue_files.write(home / "glue/WNLI/train.tsv", *lines)
    assert done.returncode == 0, done.stderr
    assert set(read(home / "w.zip")["WNLI.tsv"].decode().split()[3::2]) == {"1"}
    entry = next(each for each in json.loads((home / "w.json").read_text())["entries"] if each["file"] == "WNLI.tsv")
    assert entry["how"] == "no classifier: the most frequent training label, 1, for every row" and entry["dev"] == []


def refused(home: Path, workbench: Command, *words: object) -> str:
    before = sorted(home.iterdir())
    done = workbench("submit", *words, cwd=home)
    assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1, done.stderr
    assert "Traceback" not in done.stderr and sorted(home.iterdir()) == before
    return done.stderr


def test_what_cannot_be_submitted_is_one_sentence(home: Path, workbench: Command) -> None:
    run = run_of(home)
    whole = refused(home, workbench, run, "--out", "x.zip")
    assert "SST-2.tsv: no score on SST-2; " in whole and "--partial leaves them out" in whole
    assert "one zip" not in whole and "glue.zip" in refused(home, workbench, run, "--out", "x.tar")
    assert "--seed 1 names one fine-tuning" in refused(
        home, workbench, run, "--out", "x.zip", "--seed", 1, "--ensemble", 2
    )
    few = refused(home, workbench, run, "--out", "x.zip", "--partial", "--ensemble", 3)
    assert "fewer than 3 fine-tuning seeds on CoLA" in few and "--partial leaves" not in few
    assert "no score with fine-tuning seed 7" in refused(home, workbench, run, "--out", "x.zip", "--seed", 7)
    assert "is a run" in refused(home, workbench, run, "--out", "x.zip", "--arm", "rtd")
    assert "no run 'nothing'" in refused(home, workbench, "nothing", "--out", "x.zip")
    (home / "folder.zip").mkdir(exist_ok=True)
    assert "is not a regular file" in refused(home, workbench, run, "--out", "folder.zip", "--partial")


def test_a_name_that_is_not_utf8_is_refused_before_anything_is_computed(home: Path, workbench: Command) -> None:
    done = workbench("submit", run_of(home), "--partial", "--out", "caf\udce9.zip", cwd=home)
    assert done.returncode == 2 and done.stderr.startswith("workbench: --out 'caf\\udce9.zip': the name is not UTF-8")


def test_other_data_or_a_score_that_is_not_reproduced_are_refused(
    home: Path, workbench: Command, tmp_path: Path
) -> None:
    run = run_of(home)
    other = Path(shutil.copytree(home / "glue", tmp_path / "glue"))
    glue_files.write(other / "CoLA/dev.tsv", *glue_files.labelled("CoLA", 30, 9))
    said = refused(home, workbench, run, "--out", "x.zip", "--partial", "--glue", other)
    assert "CoLA: the rows in" in said and "are not those of the recorded score" in said
    (other / "WNLI/test.tsv").write_text("index\tsentence1\tsentence2\n0\ta\tb\n")
    assert "has 1 rows for WNLI.tsv" in refused(home, workbench, run, "--out", "x.zip", "--partial", "--glue", other)

    said = refused(home, workbench, run, "--runs", shifted(home, tmp_path / "50", 50), "--out", "x.zip", "--partial")
    assert "this is not the model that was chosen" in said


def shifted(home: Path, folder: Path, points: float) -> Path:
    """A copy of the store in which every recorded score on CoLA is higher than what fine-tuning gives here."""
    store = RunStore(Path(shutil.copytree(home / "runs", folder)))
    run = store.get(run_of(home))
    for name, score in run.scores().items():
        if score["task"] == "CoLA":
            value = score["value"] + points
            values = {"dev": score["values"]["dev"] | {"matthews": value}}
            run.write_json(f"scores/{name}", score | {"value": value, "values": values})
    return store.root


def test_a_score_that_differs_by_rounding_is_said_and_recorded(home: Path, workbench: Command, tmp_path: Path) -> None:
    words = ("--runs", shifted(home, tmp_path / "half", 0.5), "--out", tmp_path / "x.zip", "--partial")
    done = workbench("submit", run_of(home), *words, cwd=home)
    assert done.returncode == 0 and done.stderr.count("rounds differently; the card says so") == 1, done.stderr
    cola = json.loads((tmp_path / "x.json").read_text())["entries"][0]
    assert cola["file"] == "CoLA.tsv" and cola["dev"][0]["recorded"] - cola["dev"][0]["repeated"] == pytest.approx(0.5)


def test_damaged_predictions_in_the_cache_are_made_again(home: Path, workbench: Command, cache: Path) -> None:
    words = ("submit", run_of(home), "--partial", "--out")
    first = workbench(*words, "whole.zip", cwd=home)
    (path,) = (cache / "submissions").glob(f"WNLI-{best_seed(home, 'WNLI')}-*/WNLI.npy")
    path.write_bytes(path.read_bytes()[:-8] + bytes(8))
    again = workbench(*words, "again.zip", cwd=home)
    assert (first.returncode, again.returncode) == (0, 0) and "it will be made again" in again.stderr
    assert (home / "whole.zip").read_bytes() == (home / "again.zip").read_bytes()


def best_seed(home: Path, task: str) -> int:
    same = [score for score in scores_of(home, run_of(home)) if score["task"] == task]
    return max(same, key=lambda score: (score["value"], -score["seed"]))["seed"]  # type: ignore[no-any-return]


def test_the_python_interface_writes_the_same(
    home: Path, workbench: Command, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import workbench as wb

    run = run_of(home)
    workbench("submit", run, "--partial", "--out", "typed.zip", cwd=home, ends=0)
    monkeypatch.chdir(home)
    monkeypatch.setenv("WORKBENCH_CACHE", str(cache))
    card = wb.submit(run, "called.zip", partial=True)
    assert (home / "called.zip").read_bytes() == (home / "typed.zip").read_bytes()
    assert card == json.loads((home / "called.json").read_text())
    with pytest.raises(wb.InputError, match="unknown argument 'treads'"):
        wb.submit(run, "called.zip", partial=True, treads=1)


def test_a_model_that_others_trained_is_found_again_by_its_name(home: Path, workbench: Command) -> None:
    """The folder of a run's encoder, copied out of the store, stands for one."""
    shutil.copytree(home / "runs" / run_of(home) / "encoder", home / "model")
    words = ["evaluate", "model", "--scale", "nano", "--tasks", "WNLI", "--set", f"tasks.glue={home / 'glue'}"]
    done = workbench(*words, "--runs", "others", "--set", "tasks.epochs=1", "--set", "tasks.seeds=1", cwd=home, ends=0)
    run = next(path.parent.name for path in home.glob("others/published-*/done.json"))
    words = ["submit", run, "--runs", "others", "--partial", "--out", "other.zip", "--glue", home / "glue"]
    workbench(*words, cwd=home, ends=0)
    assert glue_files.faults(read(home / "other.zip"), ("WNLI",)) == []
    (home / "model/tokenizer_config.json").write_text((home / "model/tokenizer_config.json").read_text() + " ")
    done = workbench(*words, cwd=home)
    assert done.returncode == 2 and "model holds other files than those of model that were measured" in done.stderr


class Stop(Exception):
    """Stands for the end of the process: nothing of the fine-tuning runs after it."""


def test_a_repetition_that_was_interrupted_goes_on_where_it_was(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunStore(home / "runs").get(run_of(home))
    score = next(score for score in scores_of(home, run.run_id) if score["task"] == "CoLA")
    task, spec = task_of(score, str(home / "glue"))
    rows = glue.read_part(home / "glue", glue.PARTS["CoLA"])
    assert rows is not None
    taken: list[int] = []

    def repeated(cache: str, step: Callable[[int, int], None]) -> Any:
        monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / cache))
        weights = run.weight_digests()["encoder"]
        return repeat(run.path / "encoder", weights, score, task, spec, {"CoLA": rows}, host, step)

    def stop_at(last: int, how: Callable[[], None]) -> Callable[[int, int], None]:
        def step(now: int, steps: int) -> None:
            taken.append(now)
            if now == last:
                how()

        return step

    def die() -> None:
        raise Stop

    host = Host(device="cpu")  # which saves every five minutes, and after a signal
    whole = repeated("undisturbed", lambda now, steps: None)
    host = Host(device="cpu", save_every=1)
    with pytest.raises(Stop):  # as if killed: the newest state is that of the step before, or of this one
        repeated("cut", stop_at(3, die))
    host = Host(device="cpu")
    with interrupting(), pytest.raises(Interrupted):
        repeated("cut", stop_at(6, lambda: os.kill(os.getpid(), signal.SIGTERM)))
    assert list((tmp_path / "cut/repeating").iterdir())
    again = repeated("cut", stop_at(0, die))
    steps = sorted(set(taken))
    assert steps == list(range(1, score["steps"] + 1)) and len(taken) <= len(steps) + 2
    assert again[1] == whole[1] and np.array_equal(again[0]["CoLA"], whole[0]["CoLA"])
    assert not list((tmp_path / "cut/repeating").iterdir())  # nothing is left behind
    assert not list((tmp_path / "undisturbed/repeating").iterdir())


@pytest.mark.slow
def test_a_whole_submission_of_eleven_files(text: Path, workbench: Command, tmp_path: Path) -> None:
    glue_files.write_glue(tmp_path / "glue", glue_files.ROWS)
    words = ["run", "ablation", "--objective", "rtd", "--corpus", text, "--budget", "steps=3", "--tasks", "glue", *SETS]
    words += ["--set", f"tasks.glue={tmp_path / 'glue'}", "--set", "tasks.epochs=1", "--set", "tasks.seeds=1"]
    workbench(*words, cwd=tmp_path, ends=0)
    workbench("submit", "ablation", "--out", "glue.zip", cwd=tmp_path, ends=0)
    files = read(tmp_path / "glue.zip")
    assert glue_files.faults(files, glue_files.ROWS) == [] and len(files) == 11
    card = json.loads((tmp_path / "glue.json").read_text())
    by_file = {entry["file"]: entry for entry in card["entries"]}
    assert card["complete"] and len(by_file) == 11
    assert by_file["AX.tsv"]["task"] == "MNLI" and by_file["AX.tsv"]["dev"] == by_file["MNLI-m.tsv"]["dev"]


@pytest.mark.slow
def test_the_real_test_files_that_are_here(real_data: Path, text: Path, workbench: Command, tmp_path: Path) -> None:
    words = ["run", "ablation", "--objective", "rtd", "--corpus", text, "--budget", "steps=3", *SETS]
    words += ["--tasks", "RTE,WNLI,STS-B", "--set", f"tasks.glue={real_data / 'glue'}", "--set", "tasks.epochs=1"]
    workbench(*words, "--set", "tasks.seeds=1", "--set", "tasks.rows=200", cwd=tmp_path, ends=0)
    workbench("submit", "ablation", "--out", "glue.zip", "--partial", cwd=tmp_path, ends=0)
    assert glue_files.faults(read(tmp_path / "glue.zip"), ("RTE", "WNLI", "STS-B")) == []
