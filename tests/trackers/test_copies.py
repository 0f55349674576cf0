"""What trackers are given of a run, and what the real packages have of it afterwards."""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from reading import Read, read, stored_rows, trackio_database
from written_runs import SPEC, begun, finished

import workbench
from workbench.cli import main
from workbench.errors import InputError
from workbench.spec.scoring import score_file
from workbench.spec.stages import BoundRun
from workbench.store import manage
from workbench.store.checkpoint import Metrics
from workbench.store.run_store import ExperimentRecord, RunDir, RunStore
from workbench.store.validation import weights_digest
from workbench.trackers import Mirror, check, copies, find

TEMPLATE = (Path(workbench.__file__).parent / "templates/tracker.py").read_text(encoding="utf-8")
NAMES = ("wandb", "trackio", "tensorboard", "mlflow")


@pytest.fixture
def store(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> RunStore:
    """Return a store with a study of two seeds, an untrained encoder of one of them, and notes and tags."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    store = RunStore(tmp_path / "runs")
    runs = [finished(store, seed) for seed in (0, 1)]
    untrained = store.open(BoundRun(SPEC.changed({"budget": {"steps": 0}})))
    score(untrained, "order", 0, 12.5)
    store.extend_experiment(
        ExperimentRecord("sizes-1", "sizes", "?", runs=[run.run_id for run in runs], untrained=[untrained.run_id])
    )
    manage.annotate(runs[0], lambda notes: notes.tagged(("good", "x" * 64)).noted('best "so far" – grüße\nline 2'))
    return store


def score(run: RunDir, task: str, seed: int, value: float, place: str = "") -> None:
    """Write a score of a run, at its end or at a point."""
    (run.path / place / "scores").mkdir(parents=True, exist_ok=True)
    content = {
        "format": 1, "task": task, "suite": "probes", "metric": "accuracy", "seed": seed, "value": value,
        "values": {}, "baselines": {}, "digest": "ab12cd34", "encoder": weights_digest({}, "encoder"),
    }  # fmt: skip
    run.write_json(f"{place}scores/{score_file(task, 'ab12cd34', seed)}", content)


def runs_of(store: RunStore) -> list[RunDir]:
    return [store.get(name) for name in store.experiment("sizes-1").runs]


def recorded(run: RunDir) -> dict[str, Any]:
    """Return what the recorder wrote: the fields of its calls, with rows in a list."""
    found: dict[str, Any] = {"rows": []}
    for line in (run.path / "mirrors" / "recorded.jsonl").read_text().splitlines():
        content = json.loads(line)
        if "row" in content:
            found["rows"].append(content["row"])
        else:
            found |= content
    if "scores" in found:
        found["scores"] = {
            name if step is None else (name, step): value for name, value, step in found["scores"]
        }  # fmt: skip
    return found


def problems(found: Any) -> list[str]:
    return [message["problem"] for message in found if "problem" in message]


def test_a_tracker_is_told_all_that_is_known_of_a_run(store: RunStore, recorder: Path) -> None:
    first, second = runs_of(store)
    assert problems(copies(str(recorder), [first, second], "sizes-1")) == []
    told = recorded(first)
    assert told["rows"] == [dict(row) for row in stored_rows(first).values()]
    assert (told["study"], told["job_type"], told["state"]) == ("sizes-1", "pre-training", "done")
    spec = json.loads((first.path / "spec.json").read_text())["spec"]
    config = told["config"]
    assert config["optim.lr"] == spec["optim"]["lr"] and config["seed"] == 0 and "data.fingerprint" in config
    assert config["env.machine.cores"] == 2 and not {"env.command", "env.places", "env.job"} & set(config)
    assert told["tags"] == ["good", "x" * 64] and told["notes"].endswith('best "so far" – grüße\nline 2')

    scores = told["scores"]
    values = {name: json.loads(path.read_text())["value"] for path in first.path.glob("scores/*.json")
              for name in [path.name.replace("-ab12cd34-", "/seed ").removesuffix(".json")]}  # fmt: skip
    assert {f"score/{name}": value for name, value in values.items()}.items() <= scores.items() and len(values) == 4
    for task in ("order", "next"):
        pair = values[f"{task}/seed 0"], values[f"{task}/seed 1"]
        mean, half = sum(pair) / 2, 12.7062047 * abs(pair[0] - pair[1]) / 2  # t of one degree of freedom
        assert scores[f"score/{task}"] == pytest.approx(mean)
        assert scores[f"score/{task}/low"] == pytest.approx(mean - half)
        assert scores[f"score/{task}/high"] == pytest.approx(mean + half)
        arm = [mean, recorded(second)["scores"][f"score/{task}"]]
        assert scores[f"arm/{task}/mean"] == pytest.approx(sum(arm) / 2) and scores[f"arm/{task}/seeds"] == 2
        assert scores[f"arm/{task}/high"] - scores[f"arm/{task}/mean"] == pytest.approx(
            12.7062047 * abs(arm[0] - arm[1]) / 2
        )
    assert scores["untrained/order"] == 12.5 and "untrained/order" not in recorded(second)["scores"]
    assert scores["spent/steps"] == 4


def test_scores_during_training_have_their_step(store: RunStore, recorder: Path) -> None:
    run, place = begun(store, 3), "points/00000002/"
    (run.path / place).mkdir(parents=True)
    facts = {"tokens": 256, "seconds": 1.0, "flops": dict.fromkeys(("paper", "paper-sparse", "matmul"), 1e9)}
    run.write_json(f"{place}point.json", {"format": 1, "step": 2, "mark": "", "encoder": {}, "heads": {}} | facts)
    score(run, "order", 0, 33.0, place)
    assert problems(copies(str(recorder), [run], "sizes-1")) == []
    assert recorded(run)["scores"][("score/order", 2)] == 33.0


def test_a_run_whose_study_is_not_named_is_of_the_latest_one(store: RunStore, recorder: Path) -> None:
    run, other = runs_of(store)
    store.extend_experiment(ExperimentRecord("later-2", "later", "?", runs=[run.run_id]), "2099-01-01")
    assert problems(copies(str(recorder), [run, other])) == []
    assert (recorded(run)["study"], recorded(other)["study"]) == ("later-2", "sizes-1")


def test_a_damaged_run_is_not_copied_and_the_next_one_is(store: RunStore, recorder: Path) -> None:
    broken, whole = runs_of(store)
    (broken.path / "metrics.jsonl").write_bytes(b"{}\n" + (broken.path / "metrics.jsonl").read_bytes())
    (message,) = problems(copies(str(recorder), [broken, whole], "sizes-1"))
    assert "damaged" in message and not (broken.path / "mirrors" / "recorded.jsonl").exists()
    assert len(recorded(whole)["rows"]) == 4


def test_a_copy_of_a_killed_run_begins_anew_and_waits_for_the_former_one(store: RunStore, recorder: Path) -> None:
    """As after a resumption: rows after the checkpoint were removed, and others come in their place."""
    run = begun(store, 7)
    log = Metrics(run.path / "metrics.jsonl")
    log.append([{"step": 5, "loss": 1.0, "seconds": 3.0}])
    first = Mirror(str(recorder), run)
    first.news()
    while not (run.path / "mirrors" / "recorded.jsonl").exists() or len(recorded(run)["rows"]) < 5:
        time.sleep(0.05)
    assert problems(copies(str(recorder), [run])) == ["another process copies this run at the moment"]
    second = Mirror(str(recorder), run)  # which waits until the first one has ended
    log.rewind(4)
    second.news()
    log.append([{"step": 5, "loss": 1.0, "seconds": 9.0}, {"step": 6, "loss": 0.5, "seconds": 10.0}])
    first.close()
    while len(recorded(run)["rows"]) < 6 or recorded(run)["rows"][4]["seconds"] == 3.0:
        time.sleep(0.05)
    second.close()
    assert recorded(run)["rows"] == list(stored_rows(run).values()) and recorded(run)["state"] == "interrupted"
    assert recorded(run)["reached"] in (4, 6)


FAULTY = {
    "def available():\n    return None\n": "has no open",
    "def available():\n    return 'no flux capacitor; buy one'\n\ndef open(run):\n    pass\n": "buy one",
    "import no_such_package_at_all\n": "no_such_package_at_all",
    "def available():\n    1 / 0\n\ndef open(run):\n    pass\n": "ZeroDivisionError",
    "def available(:\n": "SyntaxError",
}


@pytest.mark.parametrize("code", FAULTY)
def test_a_faulty_file_is_refused_at_the_start(code: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(code)
    with pytest.raises(InputError, match=FAULTY[code]) as error:
        find(str(path))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", NAMES)
def test_a_tracker_that_is_not_installed_is_refused_with_the_way_to_install_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).mkdir()  # no package, though Python would import it as one
    monkeypatch.setattr(sys, "path", [str(tmp_path), *(p for p in sys.path if "site-packages" not in p)])
    monkeypatch.setattr(sys, "argv", ["workbench", "run", "ablation", "--track", name])
    with pytest.raises(SystemExit) as end:
        main()
    text = capsys.readouterr().err
    assert end.value.code == 2 and text.count("\n") == 1
    assert f"--track {name}: the package {name} is not installed; pip install {name}" in text
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize("given", ["rubbish\n", '{"folder": "/tmp"}\n'])
def test_a_process_that_is_started_by_hand(given: str) -> None:
    command = [sys.executable, "-m", "workbench.trackers"]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "workbench track STUDY" in done.stderr


# ---- the real packages ----


def same(found: Read, run: RunDir, told: dict[str, Any]) -> None:
    """Compare a run as a tracker has it with its folder, and with what trackers are told."""
    assert found.runs == 1
    stored = stored_rows(run)
    assert set(found.rows) == set(stored)
    for step, row in stored.items():
        assert found.rows[step] == {key: float(value) for key, value in row.items()}, step
    assert found.scores == {name: pytest.approx(value, abs=0, rel=1e-15) for name, value in told["scores"].items()}
    assert (found.study, found.state, found.notes) == (told["study"], told["state"], told["notes"])
    assert sorted(found.tags) == sorted(told["tags"])
    for key, value in told["config"].items():
        if value is not None or key in found.config:
            assert found.config[key] in (value, str(value), str(value)[:5000]), key


@pytest.mark.parametrize("name", [*NAMES[:-1], pytest.param("mlflow", marks=pytest.mark.slow)])
def test_what_was_copied_twice_is_one_run_with_every_row_score_tag_and_key(
    name: str, store: RunStore, recorder: Path
) -> None:
    """The second time with more rows, and with another note, another tag and one tag less."""
    run = begun(store, 5)
    store.extend_experiment(ExperimentRecord("sizes-1", "sizes", "?", runs=[run.run_id]))
    manage.annotate(run, lambda notes: notes.tagged(("early", "both")))
    assert problems(copies(name, [run, run], "sizes-1")) == []
    manage.annotate(run, lambda notes: notes.tagged(("late",), ("early",)).noted("goes on"))
    log = Metrics(run.path / "metrics.jsonl")
    log.rewind(3)  # a row that a resumed run computes again takes another time
    log.append([{"step": n, "seconds": 7.25 * n, "loss": 1 / (3 * n), "flops": {"matmul": 10**19 + n}, "off": None}
                for n in range(4, 700)])  # fmt: skip
    score(run, "öde/aufgabe (1)", 0, 100 / 3)
    assert problems(copies(name, [run, run], "sizes-1")) == []
    assert problems(copies(str(recorder), [run], "sizes-1")) == []
    told = recorded(run)
    assert told["tags"] == ["both", "late"] and "score/öde/aufgabe (1)" in told["scores"]
    found = read(name, run)
    if name == "mlflow":  # whose names have fewer signs
        (changed,) = {key for key in found.scores if "aufgabe" in key and "score" in key}
        found.scores["score/öde/aufgabe (1)"] = found.scores.pop(changed)
    same(found, run, told)
    assert math.isclose(found.rows[5]["flops/matmul"], 1e19)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_files_are_artifacts_if_they_are_asked_for(name: str, store: RunStore, tmp_path: Path) -> None:
    run, _ = runs_of(store)
    page = tmp_path / "index.html"
    page.write_text("<h1>report</h1>")
    assert problems(copies(name, [run], "sizes-1", True, page)) == []
    files = {path.name for path in run.path.glob("encoder/*")} | {"index.html"}
    if name == "trackio":
        assert sorted(trackio_database(run)["artifacts"]) == ["model", "report"]
    elif name == "mlflow":
        kept = {path.name for path in (store.root / ".mlflow").rglob("*") if path.is_file()}
        assert kept >= files
    elif name == "wandb":
        (path,) = run.path.glob("wandb/*run-*/*.wandb")
        assert all(each.encode() in path.read_bytes() for each in files)


# ---- the template and the check ----


def test_the_template_is_a_tracker_that_keeps_the_contract(store: RunStore, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(TEMPLATE.replace("NAME_", "mine"))
    assert len(check(str(path))) == 3
    run, _ = runs_of(store)
    assert problems(copies(str(path), [run])) == []
    lines = (run.path / "mirrors" / "mine.csv").read_text().splitlines()
    rows = [line.split(",") for line in lines[1:]]
    losses = {int(step): float(value) for step, name, value in rows if name == "loss"}
    assert losses == {step: row["loss"] for step, row in stored_rows(run).items()}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("def log(", "def add(", r"has no log\(\)"),
        ("for score in scores:", "for score in scores.x:", r"finish\(scores, files\) raised AttributeError"),
        ("for row in rows:", "for row in rows[1:]['x']:", r"line \d+: log\(rows\) raised TypeError"),
        ("return Copy(run)", "return None", "returns None"),
        ("self.run = run", "self.run = run.no_such", r"open\(run\) raised AttributeError"),
    ],
)
def test_a_breach_of_the_contract_is_named(old: str, new: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    assert old in TEMPLATE
    path.write_text(TEMPLATE.replace(old, new))
    with pytest.raises(InputError, match=message) as error:
        check(str(path))
    assert "\n" not in str(error.value) and str(path) in str(error.value)


@pytest.mark.slow
def test_an_mlflow_server_has_the_same(
    store: RunStore, recorder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where its web server is installed, which the small package leaves out."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    place = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += [
        "--backend-store-uri",
        f"sqlite:///{tmp_path}/served.db",
        "--artifacts-destination",
        str(tmp_path / "a"),
    ]
    with (tmp_path / "server.log").open("w") as output:
        server = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
    try:
        end = time.monotonic() + 120
        while True:
            try:
                urllib.request.urlopen(f"{place}/health", timeout=5).close()
                break
            except OSError:
                if server.poll() is not None and "No module named" in (tmp_path / "server.log").read_text():
                    pytest.skip("the package mlflow-skinny has no web server")
                assert server.poll() is None and time.monotonic() < end, (tmp_path / "server.log").read_text()
                time.sleep(0.5)
        monkeypatch.setenv("MLFLOW_TRACKING_URI", place)
        run, _ = runs_of(store)
        for _ in range(2):
            assert problems(copies("mlflow", [run], "sizes-1")) == []
        assert problems(copies(str(recorder), [run], "sizes-1")) == []
        same(read("mlflow", run), run, recorded(run))
        assert not (store.root / "mlflow.db").exists()
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


# ---- the command ----


def test_the_command_copies_studies_and_runs(
    store: RunStore, recorder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = runs_of(store)

    def given(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["workbench", "track", *words, "--runs", str(store.root)])
        with pytest.raises(SystemExit) as end:
            main()
        printed = capsys.readouterr()
        assert isinstance(end.value.code, int)
        return end.value.code, printed.out, printed.err

    code, out, err = given("sizes", "--to", str(recorder), "--json")
    assert code == 0, err
    assert [row["run_id"] for row in json.loads(out)] == [first.run_id, second.run_id]
    assert "arm/order/mean" in recorded(first)["scores"]
    code, out, _ = given("nano-s1", "--to", str(recorder))
    assert code == 0 and second.run_id in out and "arm/order/mean" not in recorded(second)["scores"]
    code, out, err = given("sizes", "--to", str(recorder), "--artifacts")
    assert code == 0 and "workbench report sizes-1 writes it" in err and set(recorded(first)["files"]) == {"encoder"}
    for words, message in (
        (("no-such", "--to", str(recorder)), "no study and no run 'no-such'"),
        (("untrained", "--to", str(recorder)), "is an untrained encoder"),
        (("sizes", "--to", "wanbd"), "--to wanbd: there is no such tracker; did you mean 'wandb'"),
        (("sizes", "--to", "./no_such.py"), "--to ./no_such.py: there is no such file"),
    ):
        code, out, err = given(*words)
        assert (code, out) == (2, "") and message in err and err.count("\n") == 1
    (second.path / "metrics.jsonl").write_bytes(b"[]\n")
    code, out, err = given("sizes", "--to", str(recorder))
    assert code == 1 and first.run_id in out and f"{second.run_id} is not copied: it is damaged" in err
