"""The run store: folders that tell the truth about their runs, whatever happened to them."""

from __future__ import annotations

import json
import math
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workbench.errors import InputError
from workbench.spec.run_spec import RunSpec, digest
from workbench.spec.stages import BoundRun
from workbench.store import atomic
from workbench.store.atomic import dumps, loads, plain, read_object, sealed
from workbench.store.run_store import SINCE_HASHES, ExperimentRecord, LeaseHeld, LeaseLost, RunDir, RunStore

SPEC = RunSpec.model_validate({"budget": {"steps": 4}})


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore(tmp_path / "runs")


def rows(steps: int) -> str:
    return "".join(dumps({"step": n, "seconds": n / 2, "loss": 1 / n, "auc": None}) + "\n" for n in range(1, steps + 1))


def finish(run: RunDir, steps: int = 4) -> RunDir:
    (run.path / "metrics.jsonl").write_text(rows(steps))
    run.finish({"steps": steps, "tokens": 512.0, "flops": {"paper": 1e9}})
    return run


SCORE = {"format": 1, "task": "package", "suite": "probes", "metric": "accuracy", "seed": 0, "value": 61.5}


def score(run: RunDir, name: str = "package-0.json") -> dict[str, Any]:
    """Give a finished run a score as fine-tuning does, and return what was written."""
    told = SCORE | {"encoder": run.weight_digests()["encoder"]}
    run.write_json(f"scores/{name}", told)
    return told


def one_line(error: pytest.ExceptionInfo[BaseException]) -> str:
    text = str(error.value)
    assert "\n" not in text and len(text) < 500
    return text


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


def test_tasks_are_not_part_of_a_run(store: RunStore) -> None:
    run = store.open(BoundRun(SPEC))
    assert store.open(BoundRun(SPEC.changed({"tasks.names": "CoLA", "tasks.seeds": 1}))).path == run.path


def forge(run: RunDir, **changes: Any) -> None:
    """Put another spec in the run's folder, with all its hashes right."""
    spec = run.spec().changed(changes)
    raw = spec.model_dump(mode="json")
    record = {"format": 1, "run_id": run.run_id, "identity_sha": digest(spec.identity(), 64)}
    (run.path / "spec.json").write_text(dumps(record | {"spec_sha": digest(raw, 64), "spec": raw}))


@pytest.mark.parametrize(
    "changes", [{"optim.lr": 1e-3}, {"data.length": 64}, {"seed": 3}, {"budget.steps": 9}, {"encoder.layers": 2}]
)
def test_a_folder_of_another_run_is_refused(store: RunStore, changes: dict[str, Any]) -> None:
    forge(store.open(BoundRun(SPEC)), **changes)
    with pytest.raises(InputError) as caught:
        store.open(BoundRun(SPEC))
    text = one_line(caught)
    assert next(iter(changes)) in text and BoundRun(SPEC).run_id in text and "move that folder away" in text


def test_an_edited_spec_is_damage(store: RunStore) -> None:
    run = store.open(BoundRun(SPEC))
    text = (run.path / "spec.json").read_text()
    (run.path / "spec.json").write_text(text.replace('"seed":0', '"seed":1'))
    assert "hash" in (RunDir(run.path).damage or "") and RunDir(run.path).state == "damaged"
    with pytest.raises(InputError, match="hash"):
        store.open(BoundRun(SPEC))


def test_a_folder_moved_under_another_name_is_damage(store: RunStore) -> None:
    run = store.open(BoundRun(SPEC))
    moved = run.path.rename(run.path.with_name("rtd-nano-s0-000000000000"))
    assert BoundRun(SPEC).run_id in (RunDir(moved).damage or "")


def test_many_make_the_same_run_at_once(store: RunStore) -> None:
    barrier = threading.Barrier(8)
    made: list[RunDir] = []
    for seed in range(5):

        def make(seed: int = seed) -> None:
            barrier.wait()
            made.append(store.open(BoundRun(SPEC.replace(seed=seed))))

        threads = [threading.Thread(target=make) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
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


# -- states


def test_every_state_is_read_from_files(store: RunStore) -> None:
    run = store.open(BoundRun(SPEC))
    assert run.state == "new"
    run.write_json("plan.json", {"steps": 4, "tokens": 512, "flops": {}})
    assert run.state == "interrupted"
    with run.lease():
        assert run.state == "running" and f"process {os.getpid()}" in run.note
    assert run.state == "interrupted"
    run.fail("failed", "RuntimeError: no", step=2, where="train", trace="Traceback ...")
    assert run.state == "failed" and run.note == "RuntimeError: no"
    assert (run.path / run.read_json("error.json")["log"]).read_text() == "Traceback ..."
    run.fail("diverged", "loss nan at step 3", step=3)
    assert run.state == "diverged" and run.read_json("error.json")["step"] == 3
    run.clear_error()
    assert run.state == "interrupted" and not (run.path / "error.log").exists()
    assert not run.trained
    finish(run)
    assert run.trained and run.state == "trained"
    run.want(["package-0.json", "order-0.json"])
    told = score(run)
    assert run.state == "trained"
    score(run, "order-0.json")
    assert run.state == "done"
    run.want(["order-0.json"])
    assert run.state == "done"
    run.want(["next-0.json"])
    assert run.state == "trained"
    assert run.scores() == {"package-0.json": told, "order-0.json": told}
    summary = run.summary()
    assert (summary["run_id"], summary["state"], summary["note"]) == (run.run_id, "trained", "")


def test_without_tasks_trained_is_done(store: RunStore) -> None:
    assert finish(store.open(BoundRun(SPEC.changed({"tasks.names": "none"})))).state == "done"


def test_a_dead_owner_is_not_running(store: RunStore) -> None:
    run = store.open(BoundRun(SPEC))
    code = (
        f"import os; from workbench.store.run_store import *; r = RunStore({str(store.root)!r}).get({run.run_id!r})\n"
    )
    code += "with r.lease(): r.write_json('plan.json', dict(steps=1, tokens=1, flops={})); os.kill(os.getpid(), 9)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    assert (run.path / "lease").exists() and run.state == "interrupted"
    with run.lease(), pytest.raises(LeaseHeld, match=run.run_id), RunDir(run.path).lease():
        pass
    assert sorted(os.listdir(run.path)) == ["plan.json", "spec.json"]


def test_finish_takes_seconds_and_last_metrics_from_the_log(store: RunStore) -> None:
    run = store.open(BoundRun(SPEC.changed({"budget.steps": 100})))
    finish(run, 100)
    done = run.read_json("done.json")
    assert done["format"] == 1 and done["seconds"] == 50.0 and done["steps"] == 100
    assert done["final"]["loss"] == pytest.approx(sum(1 / n for n in range(96, 101)) / 5)
    assert done["final"]["auc"] is None and "step" not in done["final"]
    assert run.metrics()[-1] == {"step": 100, "seconds": 50.0, "loss": 0.01, "auc": None}
    untrained = store.open(BoundRun(SPEC.changed({"budget.steps": 0})))
    untrained.finish({"steps": 0, "tokens": 0, "flops": {}})
    assert untrained.state == "trained" and untrained.read_json("done.json")["seconds"] == 0


@pytest.mark.parametrize(
    ("logged", "told"),
    [
        (None, "lacks the row of step 1"),
        ("", "lacks the row of step 1"),
        (rows(3), "lacks the row of step 4"),
        (rows(5), "has rows after step 4"),
        ("".join(line for line in rows(4).splitlines(keepends=True) if json.loads(line)["step"] != 2), "of step 2"),
    ],
)
def test_no_run_is_done_with_rows_missing(store: RunStore, logged: str | None, told: str) -> None:
    run = store.open(BoundRun(SPEC))
    if logged is not None:
        (run.path / "metrics.jsonl").write_text(logged)
    with pytest.raises(InputError, match=told):
        run.finish({"steps": 4, "tokens": 1, "flops": {}})
    assert not run.trained


# -- writing


def test_writes_of_a_lost_owner_are_refused(store: RunStore) -> None:
    run, late = store.open(BoundRun(SPEC)), RunDir(store.root / BoundRun(SPEC).run_id)
    with late.lease() as lease:
        late.write_json("plan.json", {"steps": 1})
        (run.path / "lease").unlink()  # as after a long silence
        with run.lease():
            run.write_json("plan.json", {"steps": 2})
            before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
            for write in (
                lambda: late.write_json("plan.json", {"steps": 3}),
                lambda: late.write_json("scores/x.json", {}),
                lambda: late.fail("failed", "late", trace="x"),
                lambda: late.remove("plan.json"),
                lambda: late.staged("encoder").__enter__(),
                lambda: late.want(["a"]),
                late.check,
            ):
                with pytest.raises(LeaseLost):
                    write()
            assert {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()} == before
            assert lease.lost and run.owner is not None and not run.owner.lost


def test_staged_folders_are_whole_or_absent(store: RunStore) -> None:
    run = store.open(BoundRun(SPEC))
    for owned in (False, True):
        for text in ("one", "two"):
            with run.lease() if owned else run.staged("other"), run.staged("encoder") as draft:
                (draft / "config.json").write_text(text)
                assert not (run.path / "encoder" / "config.json").exists() or text == "two" or owned
            assert (run.path / "encoder" / "config.json").read_text() == text
    with pytest.raises(KeyError), run.staged("encoder") as draft:
        (draft / "config.json").write_text("half")
        raise KeyError
    assert (run.path / "encoder" / "config.json").read_text() == "two"
    assert not [name for name in os.listdir(run.path) if name.startswith(".")]


def test_sigkill_while_writing_leaves_old_or_new(tmp_path: Path) -> None:
    code = """
import os, sys
from workbench.store.run_store import RunStore
from workbench.spec.run_spec import RunSpec
from workbench.spec.stages import BoundRun
run = RunStore(sys.argv[1]).open(BoundRun(RunSpec()))
def again():
    n = 0
    while True:
        n += 1
        run.write_json("plan.json", {"n": n, "again": [n] * 2000, "steps": 1, "tokens": 1, "flops": {}})
        os.write(out, n.to_bytes(4, "little"))
import random, signal, time
draw = random.Random(1)
bad = 0
for number in range(30):
    source, out = os.pipe()
    child = os.fork()
    if not child:
        with run.lease():
            again()
    os.close(out)
    said = os.read(source, 4) if number % 3 else b""  # a busy machine may take longer than any sleep to begin
    time.sleep(draw.uniform(0, 0.06))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    last = int.from_bytes((said + os.fdopen(source, "rb").read())[-4:], "little")
    assert run.state in ("new", "interrupted"), run.note
    if last:
        found = run.read_json("plan.json")
        assert found["again"] == [found["n"]] * 2000 and found["n"] in (last, last + 1)
with run.lease():
    pass
print(*sorted(os.listdir(run.path)))
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["plan.json", "spec.json"]


def test_a_failed_write_names_room_and_leaves_the_old_file(store: RunStore) -> None:
    run = store.open(BoundRun(SPEC))
    run.write_json("plan.json", {"old": 1})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(OSError) as caught:
            run.write_json("plan.json", {"new": "x" * 3000})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "bytes are needed" in one_line(caught) and str(run.path) in str(caught.value)
    assert run.read_json("plan.json") == {"old": 1}
    assert sorted(os.listdir(run.path)) == ["plan.json", "spec.json"]


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers(-(2**70), 2**70) | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    )
)
def test_json_is_strict_and_comes_back(value: Any) -> None:
    text = dumps(value)
    assert "\n" not in text and loads(text) == plain(value)
    assert "NaN" not in dumps([math.nan]) and dumps([math.inf, -math.inf, math.nan]) == "[null,null,null]"


# -- damage


def damage(path: Path, kind: str, draw: random.Random) -> None:
    whole = path.read_bytes()
    if kind == "missing":
        path.unlink()
    elif kind == "truncated":
        path.write_bytes(whole[: draw.randrange(len(whole) - 2)])
    elif kind == "garbage":
        path.write_bytes(draw.randbytes(200))
    elif kind == "wrong types":
        wrong = [
            "[]",
            "null",
            "7",
            '"text"',
            '{"format": 1}',
            '{"format": []}',
            '{"format": 1, "spec": 3, "steps": "x"}',
        ]
        path.write_text(draw.choice(wrong) + "\n")
    elif kind == "deep":
        path.write_text("[" * 100_000)
    elif kind == "a folder":
        path.unlink()
        path.mkdir()
    elif kind == "a link":
        shutil.copy(path, path.parent.parent / "elsewhere")
        path.unlink()
        path.symlink_to(path.parent.parent / "elsewhere")
    elif kind == "a pipe":
        path.unlink()
        os.mkfifo(path)


KINDS = ("missing", "truncated", "garbage", "wrong types", "deep", "a folder", "a link", "a pipe")
FILES = ("spec.json", "done.json", "metrics.jsonl", "scores/package-0.json", "error.json", "wanted.json", "env.json")


def whole(store: RunStore, seed: int) -> RunDir:
    run = finish(store.open(BoundRun(SPEC.replace(seed=seed))))
    run.want(["package-0.json"])
    score(run)
    run.write_json("env.json", {"python": "3", "versions": {}, "machine": {}})
    return run


def test_damaged_runs_are_named_and_the_others_stay(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    draw = random.Random(3)
    spoiled: dict[str, tuple[str, str]] = {}
    for seed, (name, kind) in enumerate((name, kind) for name in FILES for kind in KINDS):
        run = whole(store, seed)
        if name == "error.json":
            run.fail("failed", "no")
        if kind == "missing" and name not in ("spec.json", "metrics.jsonl"):
            continue
        damage(run.path / name, kind, draw)
        if not (kind == "wrong types" and name == "env.json" and (run.path / name).read_text()[0] == "{"):
            spoiled[run.run_id] = (name, kind)
    (store.root / "store of a friend").mkdir()
    (store.root / "rtd-nano-s9-0").symlink_to(store.root.parent)
    (store.root / "notes.txt").write_text("not a run")
    spoiled |= {"store of a friend": ("name", "cannot"), "rtd-nano-s9-0": ("link", "")}
    found = {run.run_id: run for run in store.runs()}
    assert len(found) == len(FILES) * len(KINDS) + 2
    for run_id, run in found.items():
        state, text = run.state, run.damage
        assert (state == "damaged") == (run_id in spoiled) == (text is not None), (run_id, spoiled.get(run_id), text)
        if text is not None:
            assert "\n" not in text and len(text) < 400 and run.note == text
            assert spoiled[run_id][0].split("/")[-1].split(".")[0] in text, (text, spoiled[run_id])


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(FILES), st.data())
def test_no_bytes_in_a_file_stop_the_listing(store: RunStore, name: str, data: st.DataObject) -> None:
    path = store.root / BoundRun(SPEC).run_id
    if not path.exists():
        whole(store, 0)
    target = path / name
    before = target.read_bytes() if target.exists() else None
    kept = before or b"{}"
    place = data.draw(st.integers(0, len(kept)))
    blob = data.draw(
        st.binary(max_size=40)
        | st.sampled_from([b"9" * 5000, b"1e999", b"\\ud800", b'"\x00"', b"-", b"[[[[", b"{", b"NaN", b"\xef\xbb\xbf"])
    )
    target.write_bytes(kept[:place] + blob + kept[place + data.draw(st.integers(0, 5)) :])
    try:
        run = RunDir(path)
        assert run.state in ("done", "trained", "damaged", "failed", "diverged")
        assert isinstance(run.note, str)
    finally:
        target.write_bytes(before) if before is not None else target.unlink()


def test_a_damaged_row_is_named_with_its_line(store: RunStore) -> None:
    run = store.open(BoundRun(SPEC))
    lines = rows(4).splitlines()
    (run.path / "metrics.jsonl").write_text("\n".join(lines) + '\n{"step": 5, "lo')
    assert [row["step"] for row in run.metrics()] == [1, 2, 3, 4]
    (run.path / "metrics.jsonl").write_text("\n".join([*lines[:2], "rubbish", *lines[2:]]) + "\n")
    with pytest.raises(InputError, match="line 3"):
        run.metrics()


def test_unreadable_without_permission(store: RunStore) -> None:
    run = store.open(BoundRun(SPEC))
    (run.path / "spec.json").chmod(0)
    if os.access(run.path / "spec.json", os.R_OK):
        pytest.skip("this user may read everything")
    assert "Permission" in (RunDir(run.path).damage or "")


def test_a_thousand_runs_are_listed_by_opening_a_few_files_each(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That, and no checkpoint among them, keeps `workbench runs` within a second."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    for seed in range(1000):
        whole(store, seed)
    opened: list[str] = []
    counting = True
    sys.addaudithook(lambda event, words: opened.append(str(words[0])) if counting and event == "open" else None)
    states = {run.state for run in store.runs()}
    counting = False  # a hook stays for good
    assert states == {"done"}
    read = [path for path in opened if Path(path).is_file()]
    assert 1000 <= len(read) <= 8000
    assert not any("checkpoints" in path for path in read)


# -- formats


@pytest.mark.parametrize("content", ['{"format": 2}', '{"format": "1"}', "{}", "[1]", "", "\x00", '{"format": NaN}'])
def test_another_store_is_refused_by_name(tmp_path: Path, content: str) -> None:
    (tmp_path / "store.json").write_text(content)
    for make in (RunStore, RunStore.existing):
        with pytest.raises(InputError) as caught:
            make(tmp_path)
        assert "store.json" in one_line(caught) and str(tmp_path) in str(caught.value)
    assert (tmp_path / "store.json").read_text() == content


@pytest.mark.parametrize("name", ["spec.json", "done.json", "error.json", "scores/package-0.json"])
def test_files_of_another_format_are_named(store: RunStore, name: str) -> None:
    run = whole(store, 0)
    if name == "error.json":
        run.fail("failed", "x")
    path = run.path / name
    path.write_text(path.read_text().replace('"format":1', '"format":2'))
    text = RunDir(run.path).damage or ""
    assert "format 2" in text and "format 1" in text and path.name in text


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


@given(st.text(max_size=300))
def test_a_name_is_a_plain_name_or_refused(name: str) -> None:
    try:
        atomic.checked_name(name, "a test")
    except InputError as error:
        assert "\n" not in str(error)
        assert str(error).isascii()
    else:
        assert Path("/base", name).parent == Path("/base") and Path("/base", name).resolve() == Path("/base", name)
        assert name not in (".", "..") and len(name.encode()) < 256


def test_links_are_not_followed(store: RunStore, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    run = store.open(BoundRun(SPEC))
    (run.path / "scores").symlink_to(outside)
    with pytest.raises(InputError, match="symbolic link"):
        run.write_json("scores/x.json", {})
    assert "scores is a link or a file instead of a folder" in (run.damage or "")
    (run.path / "plan.json").symlink_to(outside / "plan.json")
    run.write_json("plan.json", {"mine": 1})  # the link is replaced, not followed
    assert os.listdir(outside) == [] and run.read_json("plan.json") == {"mine": 1}
    shutil.move(str(run.path), str(outside / run.run_id))
    run.path.symlink_to(outside / run.run_id)
    before = sorted(os.listdir(outside / run.run_id))
    for attempt in (
        lambda: store.open(BoundRun(SPEC)),
        lambda: run.write_json("env.json", {}),
        lambda: RunDir(run.path).spec(),
    ):
        with pytest.raises(InputError, match="symbolic link"):
            attempt()
    with pytest.raises(InputError, match="symbolic link"), run.lease():
        pass
    assert sorted(os.listdir(outside / run.run_id)) == before


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

    threads = [threading.Thread(target=add, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
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
def test_rows_that_cannot_be_used_are_damage_in_records_of_old_commands_too(
    store: RunStore, key: str, rows: list[object]
) -> None:
    """Records of the first commands carry no hash and no contrasts or looks; anybody may have written into them."""
    store.extend_experiment(record())
    path = store.root / "experiments" / "ablation-nano-1.json"
    written = {k: v for k, v in json.loads(path.read_text()).items() if k not in ("content_sha256", "counts")}
    old = {k: v for k, v in written.items() if k not in SINCE_HASHES}
    path.write_text(dumps(old))
    assert store.experiment("ablation-nano-1").runs == list(record().runs)
    changed = (written if key in SINCE_HASHES else old) | {key: rows}
    path.write_bytes(sealed(changed) if key in SINCE_HASHES else dumps(changed).encode())
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


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs Linux's /proc, where no folder can be made")
def test_a_folder_that_cannot_be_made_is_said_in_one_sentence() -> None:
    with pytest.raises(InputError, match="cannot be created; choose another folder with --runs"):
        RunStore("/proc/runs")
