"""Folders that others made: regular files inside, settings as JSON objects, and what a library gets to see."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import refused
from refused import refused_sentence
from transformers.utils import logging

from workbench.data import model_files
from workbench.data.model_files import INDEX, read_settings, refusing, regular_files, view
from workbench.errors import InputError, Interrupted


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
    [b"", b"{", b'{"a": }', b'{"a": NaN}', b'{"a": -Infinity}', b"\xff{}",
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


@pytest.fixture
def given(tmp_path: Path) -> Path:
    made = tmp_path / "encoder"
    made.mkdir()
    (made / "model.safetensors").write_bytes(b"weights")
    (made / "adapter_config.json").write_text("{}")
    return made


def seen(here: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in here.iterdir()}


def test_only_checked_files_are_seen_and_none_is_copied(given: Path) -> None:
    with view(given, {"model.safetensors": given / "model.safetensors"}, {"hidden_size": 4}) as here:
        assert seen(here).keys() == {"config.json", "model.safetensors"}
        assert (here / "model.safetensors").samefile(given / "model.safetensors")
        assert json.loads((here / "config.json").read_text()) == {"hidden_size": 4}
    with view(given, {}) as here:
        assert seen(here) == {}


def test_the_view_is_gone_afterwards_and_the_folder_as_before(given: Path) -> None:
    before = seen(given)
    with pytest.raises(KeyError), view(given, {"model.safetensors": given / "model.safetensors"}, {}) as here:
        raise KeyError
    assert not here.exists() and seen(given) == before


def test_settings_of_a_tokenizer_name_no_file_and_no_code(given: Path) -> None:
    kept = {"tokenizer_class": "BertTokenizer", "do_lower_case": True, "vocab_file_size": 3}
    elsewhere = {"vocab_file": "/etc/passwd", "tokenizer_file": "/etc/passwd", "merges_file": None, "gguf_file": "x",
                 "name_or_path": "owner/name", "auto_map": {}, "chat_template": "{{ 1 / 0 }}",
                 "processor_class": "Mine", "fast_tokenizer_files": ["/etc/passwd"]}  # fmt: skip
    path = given / "tokenizer_config.json"
    path.write_text(json.dumps(kept | elsewhere))
    with view(given, {path.name: path}) as here:
        assert json.loads((here / path.name).read_text()) == kept
        assert not (here / path.name).is_symlink()
    assert json.loads(path.read_text()) == kept | elsewhere


def test_an_index_keeps_its_places_alone(given: Path) -> None:
    (given / INDEX).write_text(json.dumps({"metadata": {"total_size": "x"}, "weight_map": {"a": "b"}, "other": 1}))
    with view(given, {INDEX: given / INDEX}) as here:
        assert json.loads((here / INDEX).read_text()) == {"metadata": {}, "weight_map": {"a": "b"}}


def test_settings_that_became_something_else_are_refused(given: Path) -> None:
    (given / "tokenizer_config.json").write_text("[]")
    files = {"tokenizer_config.json": given / "tokenizer_config.json"}
    with pytest.raises(InputError, match=r"tokenizer_config\.json"), view(given, files):
        raise AssertionError("such a view was made")


def complaint(error: BaseException) -> str:
    with pytest.raises(InputError) as caught, refusing("FOLDER", "is not WHAT"):
        raise error
    assert caught.value.__cause__ is None and caught.value.__suppress_context__
    said = str(caught.value)
    assert said.startswith("FOLDER is not WHAT: ") and said.isprintable()
    return said.removeprefix("FOLDER is not WHAT: ")


class Silent(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no message can be made")


class PanicException(BaseException):
    """As a library in Rust raises it."""


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("first\nsecond"), "first"), (OSError("\n\n  first  \nsecond"), "first"),
        (ValueError("heading:\n  reason\nmore"), "heading: reason"), (ValueError("heading:"), "heading:"),
        (ValueError(""), "ValueError"), (ValueError(" \n "), "ValueError"), (Silent(), "Silent"),
        (RuntimeError("a\x1b[31mb\x07"), "a?[31mb?"), (RuntimeError("\u202e\ud800"), "??"),
        (PanicException("out of memory"), "out of memory"), (PanicException(), "PanicException"),
        (ValueError("a" * 5000), "a" * 300),
    ],
)  # fmt: skip
def test_an_error_of_a_library_ends_in_its_first_line(error: BaseException, said: str) -> None:
    assert complaint(error) == said


def test_a_key_alone_is_put_into_words() -> None:
    said = complaint(KeyError("gelu_9"))
    assert "'gelu_9'" in said and len(said) > len("'gelu_9'")


@pytest.mark.parametrize(
    "error", [InputError("said already"), KeyboardInterrupt(), SystemExit(3), Interrupted(15), GeneratorExit()]
)
def test_what_is_no_complaint_of_a_library_passes_unchanged(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught, refusing("FOLDER", "is not WHAT"):
        raise error
    assert caught.value is error


def complain() -> None:
    os.write(2, b"panicked at src/lib.rs")


@pytest.mark.parametrize("end", [None, ValueError("x"), KeyboardInterrupt()])
@pytest.mark.parametrize(("mute", "heard"), [(True, ""), (False, "panicked at src/lib.rs")])
def test_standard_error_is_silent_inside_and_heard_again_after(
    capfd: pytest.CaptureFixture[str], end: BaseException | None, mute: bool, heard: str
) -> None:
    open_files = len(os.listdir("/proc/self/fd"))
    try:
        with refusing("FOLDER", "is not WHAT", mute):
            complain()
            if end is not None:
                raise end
    except (InputError, KeyboardInterrupt):
        assert end is not None
    assert capfd.readouterr().err == heard
    complain()
    assert capfd.readouterr().err == "panicked at src/lib.rs"
    assert len(os.listdir("/proc/self/fd")) == open_files


@pytest.mark.parametrize("bars", [True, False])
@pytest.mark.parametrize("level", [logging.INFO, logging.CRITICAL])
def test_the_library_s_log_is_silent_inside_and_as_before_after(bars: bool, level: int) -> None:
    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    show: dict[bool, Callable[[], Any]] = {True: logging.enable_progress_bar, False: logging.disable_progress_bar}
    try:
        logging.set_verbosity(level)
        show[bars]()
        with pytest.raises(InputError), refusing("FOLDER", "is not WHAT"):
            inside = logging.get_verbosity(), logging.is_progress_bar_enabled()
            raise ValueError
        assert inside == (logging.ERROR, False)
        assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == (level, bars)
    finally:
        logging.set_verbosity(before[0])
        show[before[1]]()


# ---- limits of time ----


def test_a_tokenizer_that_takes_minutes_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_files, "LEAST", 0.05)
    given_up = threading.Event()

    def endless() -> None:
        while not given_up.is_set():
            hashlib.sha256(bytes(100_000))

    try:
        said = refused_sentence(lambda: model_files.in_time(endless, 1000, "mine"))
    finally:
        given_up.set()
    assert said.startswith("mine: its tokenizer took more than") and "1,000 characters" in said
    assert model_files.in_time(lambda: 7, 1000, "mine") == 7


def test_time_in_which_the_process_does_not_compute_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """As while it is stopped, or as other processes have all processors."""
    monkeypatch.setattr(model_files, "LEAST", 0.2)

    def waiting() -> str:
        time.sleep(1.0)
        return "ids"

    assert model_files.in_time(waiting, 1000, "mine") == "ids"


def test_the_limit_grows_with_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second for so many characters, after the time that any call has."""
    limits: list[float] = []
    monkeypatch.setattr(model_files, "interruptible", lambda work, limit: limits.append(limit))
    for characters in (0, 20_000, 2_000_000):
        model_files.in_time(lambda: None, characters, "mine")
    assert limits == [30, 31, 130]


def test_a_fault_of_a_tokenizer_is_a_sentence_with_its_name() -> None:
    def failing() -> None:
        raise ValueError("no such model\nand more")

    said = refused_sentence(lambda: model_files.in_time(failing, 10, "mine"))
    assert said.startswith("mine") and "holds a tokenizer that cannot encode these texts" in said
    assert "no such model" in said
