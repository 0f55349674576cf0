"""The log's own account of its rows, and what is left behind after a row, a file or a step that cannot be used."""

from __future__ import annotations

import hashlib
import json
import math
import os
import resource
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workbench.errors import DamagedRun, LeaseLost
from workbench.report.load import run_files
from workbench.store import validation
from workbench.store.checkpoint import Metrics
from workbench.store.lease import acquire

WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)  # JSON in UTF-8 has no half surrogates
APPENDED = st.tuples(st.just("append"), st.lists(WORDS, max_size=3))
REWOUND = st.tuples(st.just("rewind"), st.integers(0, 12))
OTHERS = st.tuples(st.sampled_from(["sync", "close"]), st.none())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


def content(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(APPENDED, REWOUND, OTHERS), max_size=12))
def test_size_and_hash_are_those_of_the_file_whatever_came_before(path: Path, acts: list[tuple[str, Any]]) -> None:
    """After every act, also where rows were taken back, and where the file was closed and opened again."""
    path.unlink(missing_ok=True)
    metrics, step = Metrics(path), 0
    for act, given_to_it in acts:
        if act == "append":
            rows = [{"step": step + n, "said": word} for n, word in enumerate(given_to_it, 1)]
            metrics.append(rows)
            step += len(rows)
        elif act == "rewind":
            step = metrics.rewind(given_to_it)
        else:
            getattr(metrics, act)()
        if path.exists():
            assert metrics.content() == content(path)
    assert [part.name for part in path.parent.iterdir()] in ([], ["metrics.jsonl"])


def test_an_empty_log_has_the_hash_of_nothing(path: Path) -> None:
    metrics = Metrics(path)
    nothing = {"bytes": 0, "sha256": hashlib.sha256(b"").hexdigest()}
    assert metrics.content() == nothing and not path.exists()
    metrics.sync()  # before the first row there is nothing to wait for
    assert not path.exists()
    metrics.append([])
    assert path.read_bytes() == b"" and metrics.content() == nothing
    assert metrics.rewind(5) == 0


def test_a_row_that_json_cannot_hold_writes_none_of_its_neighbours(path: Path) -> None:
    metrics = Metrics(path)
    metrics.append([{"step": 1}])
    before = path.read_bytes()
    with pytest.raises(TypeError, match="complex"):
        metrics.append([{"step": 2}, {"step": 3, "loss": 1j}])
    assert path.read_bytes() == before and metrics.content() == content(path)


def test_lines_that_are_no_rows_at_the_end_are_cut_and_those_between_stay(path: Path) -> None:
    """A cut goes by the last row that is kept, so what stands before that one is copied as it is."""
    path.write_bytes(b'{"step": 1}\nnot a row\n{"step": 2}\n{"loss": 3}\n[4]\n{"step": null}\n')
    assert Metrics(path).rewind(2) == 2
    assert path.read_bytes() == b'{"step": 1}\nnot a row\n{"step": 2}\n'


@pytest.mark.parametrize("kind", ["link", "folder"])
def test_what_is_no_file_of_its_own_is_refused_and_left_alone(path: Path, tmp_path: Path, kind: str) -> None:
    target = tmp_path / "elsewhere"
    if kind == "link":
        target.write_bytes(b'{"step": 1}\n')
        path.symlink_to(target)
    else:
        path.mkdir()
    before, metrics = open_files(), Metrics(path)
    with pytest.raises(OSError):
        metrics.append([{"step": 2}])
    assert open_files() == before
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")], "a draft was left"
    if kind == "link":
        assert target.read_bytes() == b'{"step": 1}\n' and path.is_symlink()


def test_a_folder_that_is_not_there_is_an_error_of_the_disk(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Metrics(tmp_path / "gone" / "metrics.jsonl").append([{"step": 1}])


def test_no_file_stays_open(path: Path) -> None:
    before = open_files()
    metrics = Metrics(path)
    for step in range(1, 4):
        metrics.append([{"step": step}])
        metrics.rewind(step)
    assert open_files() == before + 1
    metrics.close()
    metrics.close()
    assert open_files() == before
    metrics.append([{"step": 4}])
    del metrics
    assert open_files() == before


def test_an_owner_s_draft_is_made_in_its_own_folder(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a former owner has nothing to put in place once its folder was taken away."""
    lease, drafts = acquire(path.parent), []
    rename = os.rename

    def seen(source: Any, target: Any) -> None:
        drafts.append(Path(source).parent)
        rename(source, target)

    monkeypatch.setattr(os, "rename", seen)
    Metrics(path, lease).append([{"step": 1}])
    assert drafts == [lease.stage]
    lease.release()
    Metrics(path).append([{"step": 2}])
    assert drafts[-1] == path.parent


def row(step: int, **more: Any) -> dict[str, Any]:
    return {"step": step, "loss": 1 / step, "flops": {"paper": 1.5 * step}} | more


def steps(path: Path) -> list[int]:
    return [json.loads(line)["step"] for line in path.read_text().splitlines()]


def test_what_is_undefined_is_null(path: Path) -> None:
    Metrics(path).append([row(1, a=math.nan, b=math.inf, c=-math.inf, d=None, e={"f": math.nan}, g=[math.nan])])
    text = path.read_text()
    found = json.loads(text, parse_constant=lambda name: pytest.fail(name))
    assert [found[key] for key in "abcdeg"] == [None] * 4 + [{"f": None}, [None]]


def test_numbers_of_torch_and_numpy(path: Path) -> None:
    np, torch = pytest.importorskip("numpy"), pytest.importorskip("torch")
    Metrics(path).append([row(1, a=np.float32(0.5), b=np.int64(3), c=torch.tensor(2.5), d=np.float64("nan"))])
    assert [json.loads(path.read_text())[key] for key in "abcd"] == [0.5, 3, 2.5, None]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.integers(1, 3), max_size=12),
    st.integers(0, 40),
    st.integers(0, 200),
    st.sampled_from([b"", b"\0" * 50, b"\0\n", b"[]\n", b'{"step": "1"}\n', b"\xff\xfe\n", b'{"step": 1', b"\n\n"]),
)
def test_rewind(path: Path, gaps: list[int], step: int, torn: int, tail: bytes) -> None:
    """Compared with a plain reader of the file: whole rows up to the step stay as they are, byte for byte."""
    logged = [row(sum(gaps[: n + 1])) for n in range(len(gaps))]
    text = "".join(json.dumps(r) + "\n" for r in logged).encode()
    cut = text[: max(0, len(text) - torn)]
    whole = cut[: cut.rfind(b"\n") + 1]
    path.write_bytes(whole + tail if tail else cut)
    kept = [line for line in whole.splitlines(keepends=True) if json.loads(line)["step"] <= step]
    last = json.loads(kept[-1])["step"] if kept else 0
    metrics = Metrics(path)
    assert metrics.rewind(step) == last
    assert path.read_bytes() == b"".join(kept)
    metrics.append([row(step + 1)])
    assert steps(path) == [json.loads(line)["step"] for line in kept] + [step + 1]
    assert os.listdir(path.parent) == ["metrics.jsonl"]


@pytest.mark.parametrize("room", [1, 40, 130, 200])
def test_rows_that_do_not_fit_are_an_error_and_none_of_them_is_written(path: Path, room: int) -> None:
    metrics = Metrics(path)
    metrics.append([row(1), row(2)])
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + room, hard))
    try:
        with pytest.raises(OSError) as caught:
            metrics.append([row(3, filler="x" * 100), row(4, filler="x" * 100)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert str(path) in str(caught.value) and "bytes are needed" in str(caught.value)
    assert path.read_bytes() == before
    metrics.append([row(3)])
    assert steps(path) == [1, 2, 3]


def test_a_late_owner_writes_no_row(tmp_path: Path, path: Path) -> None:
    """Neither after a check of its lease, nor between its last check and the write: its open file is not the log."""
    late = acquire(tmp_path)
    old = Metrics(path, late)
    old.append([row(1), row(2)])
    (tmp_path / "lease").unlink()  # as after a long silence
    new = acquire(tmp_path)
    fresh = Metrics(path, new)
    assert fresh.rewind(2) == 2
    with pytest.raises(LeaseLost):
        old.append([row(3)])
    old.owner = None  # as if it had looked just before
    old.append([row(3)])
    assert steps(path) == [1, 2]
    fresh.append([row(3, new=True)])
    assert steps(path) == [1, 2, 3]
    old.owner = late
    with pytest.raises(LeaseLost):
        old.rewind(0)
    late.lost = False
    late.check = lambda: None  # type: ignore[method-assign]
    with pytest.raises(FileNotFoundError):
        old.rewind(0)
    assert steps(path) == [1, 2, 3]
    late.release()
    new.release()


def test_a_log_with_a_hole_or_a_line_of_megabytes_is_read_in_little_memory(path: Path) -> None:
    """A failure of the machine can leave zeros in place of rows, as many as a sparse file can have."""
    rows = [{"step": step, "loss": 1.0} for step in range(1, 5)]
    lines = [json.dumps(row).encode() + b"\n" for row in rows]
    path.write_bytes(b"".join(lines))
    os.truncate(path, 1 << 28)
    tracemalloc.start()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert list(validation.rows(path)) == rows  # the zeros are an incomplete last line
    assert run_files.read_curve(path).last == {"step": 1.0, "loss": 1.0}  # every k-th row of a log of this size
    metrics = Metrics(path)
    assert metrics.rewind(3) == 3 and path.read_bytes() == b"".join(lines[:3])
    metrics.close()
    path.write_bytes(b"".join(lines[:2]))
    os.truncate(path, 1 << 27)
    with open(path, "ab") as file:
        file.write(b"\n" + lines[2])
    with pytest.raises(DamagedRun, match="line 3: is not a row of metrics"):
        list(validation.rows(path))
    assert metrics.rewind(2) == 2 and path.read_bytes() == b"".join(lines[:2])
    metrics.close()
    assert tracemalloc.get_traced_memory()[1] < 64 << 20
    tracemalloc.stop()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000
