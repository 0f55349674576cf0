"""The log's own account of its rows, and what is left behind after a row, a file or a step that cannot be used.

How rows survive kills, full disks and late owners is tested in `test_tracking.py`.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workbench.store.lease import acquire
from workbench.tracking.metrics_file import Metrics

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


def test_another_writer_s_rows_count_once_the_file_is_opened(path: Path) -> None:
    Metrics(path).append([{"step": 1}, {"step": 2}])
    second = Metrics(path)
    second.append([{"step": 3}])
    assert second.content() == content(path) and path.read_bytes().count(b"\n") == 3


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
