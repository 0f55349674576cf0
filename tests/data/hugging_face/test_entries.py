"""What lies in a folder that others made: regular files inside it, and settings as JSON objects."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import refused

from workbench.data.model_files import read_settings, regular_files
from workbench.errors import InputError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "encoder"
    made.mkdir()
    (made / "config.json").write_text("{}")
    return made


def test_regular_files_are_found_by_name_and_links_to_them_are_resolved(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "vocab.txt").write_text("a")
    links = {"near.txt": "config.json", "deep.txt": "sub/vocab.txt", "twice.txt": "near.txt",
             ".around": "../encoder/config.json", "sub-link": "sub"}  # fmt: skip
    for name, target in links.items():
        (folder / name).symlink_to(target)
    (folder.parent / "link").symlink_to("encoder")
    config = folder.resolve() / "config.json"
    assert regular_files(folder) == regular_files(folder.parent / "link") == {
        "config.json": config, "near.txt": config, "twice.txt": config, ".around": config,
        "deep.txt": folder.resolve() / "sub/vocab.txt",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["gone", "encoder/config.json", "encoder/config.json/deeper"])
def test_what_is_no_folder_holds_no_files(folder: Path, name: str) -> None:
    assert regular_files(folder.parent / name) == {}


def snapshot(root: Path, parent: str = "snapshots") -> Path:
    """A folder as the hub's cache has it, whose files are links to a folder of blobs two levels above."""
    made = root / "models--owner--name" / parent / "0123"
    made.mkdir(parents=True)
    (root / "models--owner--name" / "blobs").mkdir()
    (root / "models--owner--name" / "blobs" / "abc").write_text("{}")
    (made / "config.json").symlink_to("../../blobs/abc")
    return made


def test_a_snapshot_of_the_hub_s_cache_links_to_its_blobs_and_nowhere_else(tmp_path: Path) -> None:
    made = snapshot(tmp_path)
    blobs = tmp_path.resolve() / "models--owner--name" / "blobs"
    assert regular_files(made) == {"config.json": blobs / "abc"}
    (blobs.parent / "blobs-of-others").mkdir()
    (blobs.parent / "blobs-of-others" / "abc").write_text("{}")
    (made / "vocab.txt").symlink_to("../../blobs-of-others/abc")
    with pytest.raises(InputError, match=r"vocab\.txt"):
        regular_files(made)


def test_no_other_folder_links_to_blobs(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"config\.json"):
        regular_files(snapshot(tmp_path, parent="revisions"))


def leads_out(path: Path) -> None:
    """To a file whose name begins with that of the folder."""
    (path.parents[1] / "encoder-secret").write_text("{}")
    path.symlink_to("../encoder-secret")


HOSTILE: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "out": leads_out,
    "nothing": lambda path: path.symlink_to("gone"),
    "loop": lambda path: path.symlink_to(path.name),
}


@pytest.mark.parametrize("name", ["x.json", "a\nb\x1b[31m\u202e", "\udcff"])
@pytest.mark.parametrize("case", HOSTILE)
def test_anything_else_is_refused_by_name_in_one_line(folder: Path, case: str, name: str) -> None:
    HOSTILE[case](folder / name)
    said = refused.refusal(folder, lambda: regular_files(folder))
    assert ascii(name)[1:-1] in said and "secret" not in said


def written(folder: Path, content: bytes) -> Path:
    (path := folder / "tokenizer_config.json").write_bytes(content)
    return path


def refusal(folder: Path, content: bytes, **options: int) -> str:
    name = "tokenizer_config.json"
    message = refused.refusal(folder, lambda: read_settings(folder, name, written(folder, content), **options))
    assert name in message
    return message


def test_settings_are_an_object(folder: Path) -> None:
    value = {"a": 1, "b": [None, 0.5], "c": "\u00e9", "auto_map": {}}
    assert read_settings(folder, "x", written(folder, json.dumps(value).encode())) == value
    for other, kind in (("[]", "list"), ("null", "NoneType"), ("3", "int"), ('"a"', "str"), ("true", "bool")):
        assert kind in refusal(folder, other.encode())


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b'{"a": }', b'{"a": NaN}', b'{"a": -Infinity}', b'{"a": 1e999}', b'{"a": -1e999}', b"\xff{}",
     b'{"a": ' + b"9" * 9999 + b"}", b"[" * 200_000, b'{"a": 1} {"b": 2}', b'{"auto_map": {"A": ["mine.M", null]}}'],
    ids=lambda content: repr(content[:12]),
)  # fmt: skip
def test_what_is_no_json_or_names_code_is_refused(folder: Path, content: bytes) -> None:
    refusal(folder, content)


def test_settings_are_read_up_to_their_largest_size(folder: Path) -> None:
    content = json.dumps({"a": "b" * 100}).encode()
    path = written(folder, content)
    assert read_settings(folder, "x", path, len(content)) == json.loads(content)
    said = refusal(folder, content, largest=len(content) - 1)
    assert str(len(content)) in said and str(len(content) - 1) in said


def test_what_is_gone_or_no_file_by_now_is_refused(folder: Path) -> None:
    """A file may be replaced between the two looks at it; a pipe is not waited for."""
    os.mkfifo(folder / "pipe")
    (folder / "link").symlink_to("config.json")
    for name in ("gone", "pipe", "link", "."):
        with pytest.raises(InputError, match=str(folder)):
            read_settings(folder, name, folder / name)
