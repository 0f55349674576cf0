"""Files that are whole or absent, JSON that is strict, and names that stay in their folder."""

from __future__ import annotations

import errno
import hashlib
import math
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from limits import files_of_at_most, small_disk

from workbench.errors import InputError
from workbench.store import atomic
from workbench.store.atomic import disk_errors, dumps, loads, plain, write_atomic, write_together


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


def test_the_first_of_several_makers_of_a_folder_wins(tmp_path: Path) -> None:
    drafts = [atomic.draft_in(tmp_path) for _ in range(3)]
    for number, draft in enumerate(drafts):
        draft.mkdir()
        (draft / "number").write_text(str(number))
    (tmp_path / "place").mkdir()
    assert [atomic.place_first(draft, tmp_path / "place") for draft in drafts] == [True, False, False]
    assert (tmp_path / "place" / "number").read_text() == "0"
    with pytest.raises(FileNotFoundError):
        atomic.place_first(tmp_path / "absent", tmp_path / "elsewhere")


def test_a_quota_is_told_from_a_full_disk(tmp_path: Path) -> None:
    """The free bytes of the disk say nothing where a quota is used up, and what is left of it cannot be read."""
    for needed, words in ((7, "7 bytes are needed than"), (None, "more bytes are needed than")):
        with pytest.raises(OSError) as caught, disk_errors(tmp_path / "x", needed):
            raise OSError(errno.EDQUOT, "Disk quota exceeded")
        assert caught.value.errno == errno.EDQUOT
        assert f"{words} your quota leaves, although" in str(caught.value)


def test_a_disk_without_inodes_is_told_from_one_without_bytes(tmp_path: Path) -> None:
    with small_disk(tmp_path, "size=1m,nr_inodes=8") as disk:
        with pytest.raises(OSError) as caught:
            for number in range(20):
                write_atomic(disk / f"{number}.json", b"{}")
        assert caught.value.errno == errno.ENOSPC
        assert "one more file is needed and 0 of 8 inodes are free; delete files" in str(caught.value)
        (disk / "5.json").unlink()
        unfinished = disk / "unfinished"
        with pytest.raises(OSError) as caught, disk_errors(unfinished):  # which is removed, as in the cache
            try:
                unfinished.mkdir()
                (unfinished / "a").touch()
            finally:
                shutil.rmtree(unfinished)
        assert "more than 1 inodes are needed and 1 of 8 are free; delete files" in str(caught.value)


def test_files_that_belong_together_are_all_replaced_or_none(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a", "b", "c")]
    write_together({path: b"before" for path in paths})
    with files_of_at_most(100), pytest.raises(OSError, match="1000 bytes are needed"):
        write_together({path: b"x" * size for path, size in zip(paths, (10, 20, 1000), strict=True)})
    assert [path.read_bytes() for path in paths] == [b"before"] * 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "c"]


@pytest.mark.parametrize("call", ["rename", "fsync", "write"])
@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES, errno.ENOSPC])
def test_an_error_names_the_file_that_was_to_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    """The system names the temporary file for a rename, and none for a flush or a write."""

    def failing(*words: Any) -> None:
        raise OSError(number, os.strerror(number), *(words if call == "rename" else ()))

    monkeypatch.setattr(atomic.os, call, failing)
    for write in (write_atomic, lambda path, data: write_together({path: data})):
        with pytest.raises(OSError) as caught:
            write(tmp_path / "table.csv", b"x")
        assert (caught.value.errno, caught.value.filename) == (number, str(tmp_path / "table.csv"))
    monkeypatch.undo()
    assert not list(tmp_path.iterdir())


def test_after_a_kill_between_two_renames_the_page_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An old page beside new tables would contradict them without a word."""
    paths = [tmp_path / name for name in ("a.csv", "b.csv", "index.html")]
    real = os.rename
    for number in range(3):
        monkeypatch.undo()
        write_together(dict.fromkeys(paths, b"old"))
        renamed: list[Path] = []

        def rename(draft: Path, path: Path, number: int = number, renamed: list[Path] = renamed) -> None:
            if len(renamed) == number:
                raise KeyboardInterrupt
            real(draft, path)
            renamed.append(path)

        monkeypatch.setattr(atomic.os, "rename", rename)
        with pytest.raises(KeyboardInterrupt):
            write_together(dict.fromkeys(paths, b"new"))
        assert not paths[2].exists()
        assert [path.read_bytes() for path in paths[:2]] == [b"new"] * number + [b"old"] * (2 - number)
    monkeypatch.undo()
    write_together(dict.fromkeys(paths, b"new"))
    assert [path.read_bytes() for path in paths] == [b"new"] * 3


def test_what_is_sealed_is_read_only_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    written = atomic.sealed({"format": 1, "value": [1, None]})
    path.write_bytes(written)
    assert atomic.read_object(path, format=1, needs_seal=True) == {"format": 1, "value": [1, None]}
    body, mark = written.rsplit(b',"content_sha256":"', 1)
    assert mark == hashlib.sha256(body).hexdigest().encode() + b'"}\n'
    for place in range(len(written)):
        path.write_bytes(written[:place] + bytes([written[place] ^ 1]) + written[place + 1 :])
        with pytest.raises(ValueError, match=r"^x\.json "):
            atomic.read_object(path, format=1, needs_seal=True)
    path.write_text('{"format": 1}')
    assert atomic.read_object(path) == {"format": 1}
    with pytest.raises(ValueError, match=r"^x\.json has changed since it was written \(its hash is missing\)$"):
        atomic.read_object(path, needs_seal=True)


def test_only_regular_files_of_a_sensible_size_are_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert atomic.read_bytes(path, largest=5) == b"12345"
    assert atomic.sha256(path) == hashlib.sha256(b"12345").hexdigest()
    with pytest.raises(ValueError, match="has 5 bytes, more than the 4 allowed"):
        atomic.read_bytes(path, largest=4)
    (tmp_path / "link").symlink_to(path)
    os.mkfifo(tmp_path / "pipe")
    for name, what in (("link", "is a symbolic link"), ("pipe", "is not a regular file")):
        with pytest.raises(ValueError, match=what):
            atomic.read_bytes(tmp_path / name)


def test_a_refused_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path, stage = tmp_path / "x", tmp_path / "stage"
    stage.mkdir()
    write_atomic(path, b"old", stage)

    def refuse() -> None:
        assert [draft.read_bytes() for draft in stage.iterdir()] == [b"new"] and path.read_bytes() == b"old"
        raise KeyError

    with pytest.raises(KeyError):
        write_atomic(path, b"new", stage, refuse)
    assert path.read_bytes() == b"old" and not list(stage.iterdir())


def test_a_folder_replaces_another_and_what_was_left_is_swept_up(tmp_path: Path) -> None:
    for text in ("one", "two"):
        draft = atomic.draft_in(tmp_path)
        draft.mkdir()
        (draft / text).write_text(text)
        atomic.place(draft, tmp_path / "folder")
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["two"]
    kept = atomic.draft_in(tmp_path)
    for path in (kept, atomic.draft_in(tmp_path), tmp_path / f"{atomic.TRASH}1"):
        path.mkdir()
        (path / "half").write_text("x")
    (tmp_path / f"{atomic.STAGE}link").symlink_to(tmp_path / "folder")  # the link goes, not what it points to
    atomic.sweep(tmp_path, keep=kept.name)
    assert {path.name for path in tmp_path.iterdir()} == {"folder", kept.name}
    assert (tmp_path / "folder" / "two").read_text() == "two"


def test_only_old_files_of_ours_are_removed_from_a_folder_that_others_use_too(tmp_path: Path) -> None:
    kept, left = tmp_path / "kept", tmp_path / "left"
    for folder in (kept, left):
        folder.mkdir()
    begun = atomic.draft_in(kept)  # a folder that is still being filled
    (begun / "models").mkdir(parents=True)
    atomic.draft_in(kept).write_text("just written")
    (kept / ".tmp-of-another-program").write_text("x")
    (kept / f"{atomic.STAGE}{'0' * 33}").write_text("x")
    (begun / "models" / "new.bin").write_text("x")
    atomic.draft_in(left).write_text("x")
    (atomic.draft_in(left) / "models").mkdir(parents=True)
    (left / f"{atomic.TRASH}{'0' * 32}").symlink_to(kept)
    for path in (*kept.iterdir(), *left.rglob("*")):
        if path.is_dir() or path.is_symlink() or path.read_text() != "just written":
            os.utime(path, (0, 0), follow_symlinks=False)
    before = sorted(kept.rglob("*"))
    for folder in (kept, left):
        atomic.sweep_old(folder)
    assert sorted(kept.rglob("*")) == before and list(left.iterdir()) == []


def test_a_folder_can_hold_files_where_its_nearest_parent_can(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert atomic.can_hold_files(tmp_path) and atomic.can_hold_files(tmp_path / "not" / "there" / "yet")
    (tmp_path / "file").chmod(0o755)  # as a program, which may be "entered"
    assert not atomic.can_hold_files(tmp_path / "file" / "below")
    assert not atomic.can_hold_files(tmp_path.joinpath(*["deep"] * atomic.DEEPEST))
    assert atomic.user_path("~/x", "--out") == Path.home() / "x"
    with pytest.raises(InputError, match="--out ~nobody-of-this-name/x: ~nobody-of-this-name has no home folder"):
        atomic.user_path("~nobody-of-this-name/x", "--out")
