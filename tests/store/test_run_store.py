"""The run store: folders that tell the truth about their runs, whatever happened to them."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from written_runs import SPEC, one_line, whole

from workbench.errors import InputError
from workbench.spec.run_spec import RunSpec, digest
from workbench.spec.stages import BoundRun, ResolvedSpec
from workbench.store.atomic import dumps, read_object, sealed
from workbench.store.run_store import ExperimentRecord, RunDir, RunStore, check_outside

# -- runs and their identity


def test_equal_specs_are_one_run(store: RunStore) -> None:
    run = store.open(BoundRun(SPEC))
    assert run.path == store.root / BoundRun(SPEC).run_id and run.state == "new" and run.damage is None
    assert store.open(BoundRun(RunSpec.model_validate({"budget": {"steps": 4}}))).path == run.path
    assert RunDir(run.path).spec() == SPEC
    other = store.open(BoundRun(SPEC.replace(seed=1)))
    assert other.path != run.path and [r.run_id for r in store.runs()] == sorted([run.run_id, other.run_id])
    assert store.get(run.run_id).path == run.path
    assert sorted(os.listdir(store.root)) == sorted([run.run_id, other.run_id, "store.json"])


def forge(run: RunDir, **changes: Any) -> None:
    """Put another spec in the run's folder, with all its hashes right."""
    spec = run.spec().changed(changes)
    raw = spec.model_dump(mode="json")
    record = {"format": 2, "run_id": run.run_id, "identity_sha": digest(spec.identity(), 64)}
    (run.path / "spec.json").write_bytes(sealed(record | {"spec_sha": digest(raw, 64), "spec": raw}))


@pytest.mark.parametrize(
    "changes", [{"optim.lr": 1e-3}, {"data.length": 64}, {"seed": 3}, {"budget.steps": 9}, {"encoder.layers": 2}]
)
def test_a_folder_of_another_run_is_refused(store: RunStore, changes: dict[str, Any]) -> None:
    forge(store.open(BoundRun(SPEC)), **changes)
    with pytest.raises(InputError) as caught:
        store.open(BoundRun(SPEC))
    text = one_line(caught)
    assert next(iter(changes)) in text and BoundRun(SPEC).run_id in text and "move that folder away" in text


def test_a_folder_moved_under_another_name_is_damage(store: RunStore) -> None:
    run = store.open(BoundRun(SPEC))
    moved = run.path.rename(run.path.with_name("rtd-nano-s0-000000000000"))
    assert BoundRun(SPEC).run_id in (RunDir(moved).damage or "")


def test_many_make_the_same_run_at_once(store: RunStore) -> None:
    barrier = threading.Barrier(8)
    made: list[RunDir] = []

    def make(seed: int) -> None:
        barrier.wait()
        made.append(store.open(BoundRun(SPEC.replace(seed=seed))))

    for seed in range(5):
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(make, [seed] * 8))
    assert len(made) == 40 and all(run.state == "new" for run in made)
    assert len(os.listdir(store.root)) == 5 + 1


def test_an_empty_folder_in_the_way_is_filled(store: RunStore) -> None:
    (store.root / BoundRun(SPEC).run_id).mkdir()
    assert store.open(BoundRun(SPEC)).state == "new"
    shutil.rmtree(store.root / BoundRun(SPEC).run_id)
    (store.root / BoundRun(SPEC).run_id).mkdir()
    (store.root / BoundRun(SPEC).run_id / "metrics.jsonl").write_text("")
    with pytest.raises(InputError, match=r"spec\.json is missing"):
        store.open(BoundRun(SPEC))


# -- reading


def test_runs_are_listed_by_opening_a_few_files_of_each(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """That, and no checkpoint among them, keeps `workbench runs` within a second."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    for seed in range(50):
        whole(store, seed)
    opened: list[str] = []
    counting = True
    sys.addaudithook(lambda event, words: opened.append(str(words[0])) if counting and event == "open" else None)
    states = {run.state for run in store.runs()}
    counting = False  # a hook stays for good
    assert states == {"done"}
    read = [path for path in opened if Path(path).is_file()]
    assert 50 <= len(read) <= 400
    assert not any("checkpoints" in path for path in read)


# -- formats


@pytest.mark.parametrize(
    "content", ['{"format": 1}', '{"format": 3}', '{"format": "1"}', "{}", "[1]", "", "\x00", '{"format": NaN}']
)
def test_another_store_is_refused_by_name(tmp_path: Path, content: str) -> None:
    (tmp_path / "store.json").write_text(content)
    for make in (RunStore, RunStore.existing):
        with pytest.raises(InputError) as caught:
            make(tmp_path)
        assert "store.json" in one_line(caught) and str(tmp_path) in str(caught.value)
    assert (tmp_path / "store.json").read_text() == content


def test_reading_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        RunStore.existing(tmp_path / "none")
    with pytest.raises(InputError, match=r"store\.json"):
        RunStore.existing(tmp_path)
    assert os.listdir(tmp_path) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="not a folder"):
        RunStore(tmp_path / "file")


# -- names


HOSTILE = [
    "..", ".", "", "../x", "a/../../x", "/etc/passwd", "/dev/null", "a\0b", "x" * 300, "a/b", "~", "-rf", ".hidden",
    "a\nb", "a b", "ünï", "\ud800", "a\\b", "experiments/../..", "con\r", "%2e%2e", "..\u2024", "lease\0.json",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_hostile_names_stay_inside(store: RunStore, name: str) -> None:
    outside = {path for path in store.root.parent.rglob("*") if store.root not in path.parents}
    run = store.open(BoundRun(SPEC))
    record = ExperimentRecord(name=name, runs=[BoundRun(SPEC).run_id])
    for attempt in (
        lambda: store.get(name),
        lambda: store.experiment(name),
        lambda: store.extend_experiment(record),
        lambda: run.want([name]),
    ):
        with pytest.raises(InputError) as caught:
            attempt()
        one_line(caught)
    if name not in ("a/b",):
        for write in (lambda: run.write_json(name, {}), lambda: run.write_json(f"scores/{name}", {})):
            with pytest.raises(InputError):
                write()
    assert {path for path in store.root.parent.rglob("*") if store.root not in path.parents} == outside


def test_an_unknown_run_gets_a_suggestion(store: RunStore) -> None:
    run = store.open(BoundRun(SPEC))
    with pytest.raises(InputError, match=f"did you mean '{run.run_id}'"):
        store.get(run.run_id[:-1])
    with pytest.raises(InputError, match="no run"):
        store.get("experiments")


@pytest.mark.parametrize("word", ["./Ünïcode ☃.py", "./" + "é" * 90 + ".py", "./a b\n.py"])
def test_a_file_objective_of_any_name_has_a_folder(store: RunStore, word: str) -> None:
    assert store.open(BoundRun(SPEC.replace(objective=word))).state == "new"


# -- experiments


def record(**changes: Any) -> ExperimentRecord:
    fields = {"name": "ablation-nano-1", "experiment": "ablation", "question": "what?", "runs": ["a"]} | changes
    return ExperimentRecord(**fields)


def test_a_record_grows(store: RunStore) -> None:
    assert store.experiments() == []
    store.extend_experiment(record(runs=["a", "b"], untrained=["u"], base=SPEC.model_dump(mode="json")))
    grown = store.extend_experiment(record(runs=["c", "b"], command="workbench run ablation"))
    assert grown.runs == ["a", "b", "c"] and grown.untrained == ["u"] and grown.updated.startswith("20")
    assert store.experiment("ablation-nano-1") == grown == store.experiments()[0]
    assert sorted(os.listdir(store.root / "experiments")) == ["ablation-nano-1.json"]
    assert [run.run_id for run in store.runs()] == []
    raw = read_object(store.root / "experiments" / "ablation-nano-1.json")
    assert raw["format"] == 1 and raw == grown.dump()
    again = store.extend_experiment(record(base=SPEC.model_dump(mode="json")))
    assert again.base_spec() == SPEC


def test_commands_that_write_at_once_lose_no_run(store: RunStore) -> None:
    def add(number: int) -> None:
        for part in range(5):
            store.extend_experiment(record(runs=[f"run-{number}-{part}"]))

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(add, range(6)))
    assert sorted(store.experiment("ablation-nano-1").runs) == sorted(
        f"run-{n}-{p}" for n in range(6) for p in range(5)
    )


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", '{"format": 2}', '{"format": 1}', '{"format":1,"name":"x"}', "..", '{"runs": ["../../x"]}', "7"],
)
def test_damaged_records_are_named_and_never_overwritten(store: RunStore, content: str) -> None:
    store.extend_experiment(record(name="good"))
    store.extend_experiment(record())
    path = store.root / "experiments" / "ablation-nano-1.json"
    if "runs" in content:
        content = dumps(json.loads(path.read_text()) | json.loads(content))
    path.write_text(content)
    damaged, good = store.experiments()
    assert good.name == "good" and good.damage is None
    assert damaged.name == "ablation-nano-1" and damaged.damage and "\n" not in damaged.damage
    for attempt in (lambda: store.experiment("ablation-nano-1"), lambda: store.extend_experiment(record())):
        with pytest.raises(InputError, match=r"ablation-nano-1\.json"):
            attempt()
    assert path.read_text() == content


@pytest.mark.parametrize("key", ["match", "tuning", "contrasts", "looks"])
@pytest.mark.parametrize("rows", [[1], [{}], [{"seeds": "three"}], [{"seeds": True}], [None]])
def test_rows_that_cannot_be_used_are_damage_even_under_a_right_hash(
    store: RunStore, key: str, rows: list[object]
) -> None:
    store.extend_experiment(record())
    path = store.root / "experiments" / "ablation-nano-1.json"
    written = {k: v for k, v in json.loads(path.read_text()).items() if k != "content_sha256"}
    path.write_bytes(sealed(written))
    assert store.experiment("ablation-nano-1").runs == list(record().runs)
    path.write_bytes(sealed(written | {key: rows}))
    with pytest.raises(InputError, match=rf"ablation-nano-1\.json has a row of '{key}' that cannot be used"):
        store.experiment("ablation-nano-1")


def test_secrets_stay_out_of_records(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_TOKEN", "planted-token-4711")
    run = store.open(BoundRun(SPEC))
    run.fail(
        "failed", "no answer from https://me:planted-pw@host/x", trace="key planted-token-4711\nAuthorization: abcdef12"
    )
    store.extend_experiment(
        record(command="workbench run x --api-key planted-key --storage postgres://me:planted-pw@h/db")
    )
    for path in store.root.rglob("*"):
        if path.is_file():
            text = path.read_text()
            assert "planted" not in text and "abcdef12" not in text, path
    assert "https://***@host/x" in run.read_json("error.json")["message"]


def test_many_runs_are_opened_in_order_and_the_folder_is_listed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing for each new run would take a time that grows with the square of their number."""
    store = RunStore(tmp_path / "runs")
    bounds = [BoundRun(ResolvedSpec(SPEC.replace(seed=seed))) for seed in range(40)]
    listed = []
    real = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path=".": listed.append(str(path)) or real(path))
    assert [run.run_id for run in store.open_all(bounds)] == [bound.run_id for bound in bounds]
    assert listed.count(str(store.root)) == 1
    assert {run.run_id for run in store.runs()} == {bound.run_id for bound in bounds} and store.open_all([]) == []


@pytest.mark.parametrize(("call", "file"), [("write", "spec.json"), ("mkdir", ""), ("fsync", "spec.json")])
def test_a_run_that_cannot_be_made_is_named_and_leaves_nothing(
    store: RunStore, monkeypatch: pytest.MonkeyPatch, call: str, file: str
) -> None:
    """The user knows the name of the run, and not that of the temporary folder in which it begins."""

    def full(*words: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), *(words[:1] if call == "mkdir" else ()))

    bound = BoundRun(SPEC)
    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        with pytest.raises(OSError, match=r"bytes are needed and \d+ are free") as caught:
            store.open(bound)
    assert caught.value.filename == str(store.root / bound.run_id / file).rstrip("/")
    assert sorted(path.name for path in store.root.iterdir()) == ["store.json"]


@pytest.mark.parametrize("place", [0, 2])
def test_of_many_runs_a_damaged_one_is_left_as_it_is(store: RunStore, place: int) -> None:
    """A command that carries out the others names and skips it, as it does for damage to any other file."""
    bounds = [BoundRun(ResolvedSpec(SPEC.replace(seed=seed))) for seed in range(4)]
    spec = store.open(bounds[place]).path / "spec.json"
    whole = spec.read_text()
    spec.write_text("{")
    assert [run.run_id for run in store.open_all(bounds)] == [bound.run_id for bound in bounds]
    assert [bool(run.damage) for run in store.runs()].count(True) == 1 and spec.read_text() == "{"
    spec.write_text(whole)
    other = store.open(bounds[1]).path / "spec.json"
    raw = json.loads(other.read_text())
    raw["identity_sha"] = "0" * 64
    other.write_bytes(sealed({key: value for key, value in raw.items() if key != "content_sha256"}))
    with pytest.raises(InputError, match="contains a run that differs"):
        store.open_all(bounds)


def test_what_is_written_for_others_lies_outside_of_the_store(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    RunStore(root)
    (tmp_path / "link").symlink_to(root)
    for out in (root, root / "store.json", root / "experiments" / "x.json", tmp_path / "link" / "run" / "spec.json"):
        with pytest.raises(InputError, match=r"lies in the store .*; name a place outside of it"):
            check_outside(root, out, "--out")
    for out in (tmp_path / "runs.csv", tmp_path / "runs-2" / "scores.csv"):
        check_outside(root, out, "--out")


@pytest.mark.parametrize("folder", ["/proc/runs", "/sys/runs", "/sys"])
def test_a_folder_of_the_kernel_holds_no_runs(folder: str) -> None:
    with pytest.raises(InputError, match=r"cannot (be created|hold runs); choose another folder with --runs"):
        RunStore(folder)
