"""Damage to the files of a run: it is named, no bytes stop the listing of a store, and what a manifest lists."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from written_runs import SPEC, rows, whole

from workbench.errors import InputError
from workbench.execution.workers import last_row
from workbench.report.load import run_files
from workbench.spec.stages import BoundRun
from workbench.store import manifest, validation
from workbench.store.atomic import sealed
from workbench.store.checkpoint import Metrics
from workbench.store.run_store import RunDir, RunStore


def damage(path: Path, kind: str, draw: random.Random) -> None:
    whole = path.read_bytes()
    if kind == "missing":
        path.unlink()
    elif kind == "truncated":
        path.write_bytes(whole[: draw.randrange(len(whole) - 2)])
    elif kind == "garbage":
        path.write_bytes(draw.randbytes(200))
    elif kind == "wrong types":
        objects = ['{"format": 1}', '{"format": []}', '{"format": 1, "spec": 3, "steps": "x"}']
        path.write_text(draw.choice(["[]", "null", "7", '"text"', *objects]) + "\n")
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


@pytest.mark.parametrize("name", ["spec.json", "done.json", "error.json", "scores/package-0.json"])
def test_files_of_another_format_are_named(store: RunStore, name: str) -> None:
    run = whole(store, 0)
    if name == "error.json":
        run.fail("failed", "x")
    path = run.path / name
    own = json.loads(path.read_text())["format"]
    path.write_text(path.read_text().replace(f'"format":{own}', '"format":7'))
    text = RunDir(run.path).damage or ""
    assert "format 7" in text and f"format {own}" in text and path.name in text


def test_the_names_of_scores_of_points_are_read_and_checked(tmp_path: Path) -> None:
    for name in ("points/00000100/scores/b.json", "points/99999999/scores/a.json", "points/100000000/scores/c.json"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("{}")
    for name in ("points/notes/scores/d.json", "points/00000100/scores/.tmp-e.json", "points/00000100/scores/f.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    assert validation.points(tmp_path) == ["points/00000100/", "points/99999999/", "points/100000000/"]  # by number
    names = validation.score_names(tmp_path, "scores")
    assert names == ["points/00000100/b.json", "points/99999999/a.json", "points/100000000/c.json"]
    for name in (*names, "a.json"):
        validation.check_score_name(name)
        assert validation.inside("failures", name).split("/")[-2:] == ["failures", name.split("/")[-1]]
    assert validation.inside("scores", names[0]) == "points/00000100/scores/b.json"
    for wrong in ("points/../a.json", "points/1/a.json", "heads/00000100/a.json", "points/00000100/../a.json", ""):
        with pytest.raises(InputError, match="cannot be the name of a score"):
            validation.check_score_name(wrong)


@pytest.mark.parametrize("value", [{}, {"seed": "1"}, {"seed": True}, {"seed": None}, {"seed": 1, "names": ["a", 2]}])
def test_fields_of_another_type_are_named(value: dict[str, object]) -> None:
    validation.check_fields("x.json", {"seed": 1, "names": ["a"]}, {"seed": int, "names": list})
    with pytest.raises(ValueError, match=r"x\.json has no usable '(seed|names)'"):
        validation.check_fields("x.json", {"names": []} | value, {"seed": int, "names": list})


@given(st.binary(max_size=20))
def test_a_line_is_a_row_of_metrics_or_none(line: bytes) -> None:
    found = validation.row(line)
    assert found is None or type(found["step"]) is int
    assert validation.row(b'{"step":3,"loss":null}') == {"step": 3, "loss": None}
    for wrong in (b'{"step":3.0}', b'{"step":true}', b'{"loss":1}', b"[3]", b'{"step":3,"loss":NaN}', b'{"step":3'):
        assert validation.row(wrong) is None


@pytest.mark.parametrize("metrics", [1, 700, 4_000, 18_000])
def test_a_row_of_any_allowed_length_is_read_to_its_end(store: RunStore, metrics: int) -> None:
    """Rows of up to a megabyte, of as many metrics as an objective likes to log. Longer ones are not written."""
    run = store.open(BoundRun(SPEC))
    wide = {f"a metric of an objective, number {number}": number + 0.5 for number in range(metrics)}
    log = Metrics(run.path / "metrics.jsonl")
    log.append([{"step": step, "seconds": step / 2, "loss": 1.5, **wide} for step in range(1, 5)])
    with pytest.raises(InputError, match=r"a row of metrics has 1,2\d\d,\d\d\d bytes"):
        log.append([{"step": 5, "loss": 1.5, "x" * 1_200_000: 1.0}])
    log.close()
    run.finish({"steps": 4, "tokens": 512.0, "flops": {"paper": 1e9}})
    assert run.damage is None and run.examine(full=True).state in ("trained", "done")
    row = last_row(run)
    assert row is not None and row["step"] == 4 and row.keys() >= wide.keys()
    curve = run_files.read_curve(run.path / "metrics.jsonl", most=16)
    assert curve.last["step"] == 4 and curve.skipped == 0 and curve.rows[-1].keys() >= wide.keys()
    content = (run.path / "metrics.jsonl").read_bytes()
    for changed in (content[:-1], b"x" + content):
        (run.path / "metrics.jsonl").write_bytes(changed)
        assert run.damage == f"metrics.jsonl has {len(changed)} bytes instead of {len(content)}"
    for name in ("done.json", "manifest.json"):
        (run.path / name).unlink()
    assert run.damage == "metrics.jsonl is damaged in its first line"


@pytest.mark.parametrize("lines", [[], [b""], [b"a"], [b"a", b""], [b"", b"b"], [b"a" * 70_000, b"b" * 300_000]])
@pytest.mark.parametrize("rest", [0, 1, (1 << 14) - 1, 1 << 14, (1 << 16) + 5])
def test_the_last_line_and_what_follows_it(tmp_path: Path, lines: list[bytes], rest: int) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"".join(line + b"\n" for line in lines) + b"z" * rest)
    with path.open("rb") as file:
        assert validation.last_line(file) == (lines[-1] if lines else b"", b"z" * rest)
        assert file.tell() == path.stat().st_size


LISTED = {
    "spec.json": b"{}",
    "scores/CoLA-0.json": b"[1]",
    "encoder/model.safetensors": b"weights",
    "points/00000100/heads/model.safetensors": b"heads",
}
LEFT_OUT = ("notes.txt", "error.json", "lease", ".tmp-1/spec.json", "scores/.tmp-2", "checkpoints/.trash-3/x")

LATER = 1 << 62  # no file has changed since then, so that sizes alone are compared


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a run, with files that a manifest lists and some that it does not."""
    for name, data in {**LISTED, **dict.fromkeys(LEFT_OUT, b"x")}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    return tmp_path


def test_a_run_s_own_files_are_listed_with_their_sizes_and_hashes(run: Path) -> None:
    listed = manifest.entries(run)
    assert listed == {
        name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in LISTED.items()
    }
    assert list(listed) == manifest.listing(run) == sorted(LISTED)
    assert listed["spec.json"] == manifest.entry(b"{}")
    assert not list(manifest.differences(run, listed))


def test_each_change_has_its_kind_and_its_sentence(run: Path) -> None:
    listed = manifest.entries(run)
    (run / "spec.json").unlink()
    (run / "scores/CoLA-0.json").write_bytes(b"[2]")
    (run / "encoder/model.safetensors").write_bytes(b"weight")
    (run / "scores/CoLA-1.json").write_bytes(b"[3]")
    quick = {each.file: (each.kind, each.what) for each in manifest.differences(run, listed, since=LATER)}
    assert quick == {
        "spec.json": ("missing", "spec.json is missing"),
        "encoder/model.safetensors": ("changed", "encoder/model.safetensors has 6 bytes instead of 7"),
    }
    whole = {each.file: (each.kind, each.what) for each in manifest.differences(run, listed)}
    change = ("changed", "scores/CoLA-0.json has changed since it was written")  # of the same size
    assert whole == quick | {"scores/CoLA-0.json": change}
    assert [name for name in manifest.listing(run) if name not in listed] == ["scores/CoLA-1.json"]


def test_a_folder_of_weights_may_be_deleted_whole_and_one_of_its_files_may_not(run: Path) -> None:
    listed = manifest.entries(run)
    heads = run / "points/00000100/heads"
    (heads / "model.safetensors").unlink()
    assert [(each.kind, each.file) for each in manifest.differences(run, listed, since=LATER)] == [
        ("missing", "points/00000100/heads/model.safetensors")
    ]
    heads.rmdir()
    (run / "scores/CoLA-0.json").unlink()
    for name in (run / "scores").iterdir():
        name.unlink()
    (run / "scores").rmdir()
    told = {each.file: each.kind for each in manifest.differences(run, listed, since=LATER)}
    assert told == {"points/00000100/heads/model.safetensors": "spared", "scores/CoLA-0.json": "missing"}


def test_files_that_are_reached_through_links_are_differences(run: Path) -> None:
    listed = manifest.entries(run)
    (run / "encoder").rename(run / "elsewhere")
    (run / "encoder").symlink_to(run / "elsewhere")
    (run / "spec.json").rename(run / "other.json")
    (run / "spec.json").symlink_to(run / "other.json")
    told = {each.file: each.what for each in manifest.differences(run, listed)}
    assert told == {
        "encoder/model.safetensors": "encoder/model.safetensors is reached through a symbolic link",
        "spec.json": "spec.json is not a regular file",
    }


@pytest.mark.parametrize("name", ["../spec.json", "scores/../../x", "scores//x", "notes.txt", "lease", "scores/./x"])
def test_a_manifest_that_names_other_files_is_refused(run: Path, name: str) -> None:
    assert manifest.read(run) is None
    listed = manifest.entries(run)
    (run / manifest.NAME).write_bytes(sealed(manifest.content(run.name, listed)))
    assert manifest.read(run) == listed
    (run / manifest.NAME).write_bytes(sealed(manifest.content(run.name, listed | {name: manifest.entry(b"")})))
    with pytest.raises(ValueError, match=r"manifest\.json has no usable 'files'"):
        manifest.read(run)


def test_a_manifest_of_another_run_or_without_a_hash_is_refused(run: Path) -> None:
    listed = manifest.entries(run)
    (run / manifest.NAME).write_bytes(sealed(manifest.content("another", listed)))
    with pytest.raises(ValueError, match=r"manifest\.json belongs to the run 'another'"):
        manifest.read(run)
    (run / manifest.NAME).write_text('{"format":1,"run_id":"x","files":{}}')
    with pytest.raises(ValueError, match=r"manifest\.json has changed since it was written"):
        manifest.read(run)


def test_a_link_or_pipe_is_named_when_files_are_listed(run: Path) -> None:
    (run / "heads").mkdir(exist_ok=True)
    os.mkfifo(run / "heads" / "pipe")
    with pytest.raises(ValueError, match="heads/pipe is not a regular file"):
        manifest.entries(run)
