"""Files of minimal pairs: BLiMP's sets, folders of one's own, and what is refused."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from workbench import tasks
from workbench.errors import InputError
from workbench.spec.parts import DataSpec, TasksSpec
from workbench.tasks import minimal_pairs


def write_pairs(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_folder_of_json_lines_is_a_task_and_its_files_are_paradigms(tmp_path: Path) -> None:
    folder = tmp_path / "zorro"
    folder.mkdir()
    for name in ("b", "a"):
        write_pairs(folder / f"{name}.jsonl", [{"sentence_good": f"Good {name}.", "sentence_bad": "Bad."}])
    (folder / "c.jsonl.xz").write_bytes(lzma.compress(b'{"sentence_good": "Good c.", "sentence_bad": "Bad."}\n'))
    task = minimal_pairs.load_path(str(folder))
    assert (task.name, task.suite, task.groups) == ("zorro", "minimal-pairs", {"paradigm": ("a", "b", "c")})
    assert minimal_pairs.holds_pairs(str(folder / "a.jsonl")) and minimal_pairs.load_path(
        str(folder / "a.jsonl")
    ).good == ("Good a.",)
    assert not minimal_pairs.holds_pairs(str(write_pairs(tmp_path / "t.jsonl", [{"text": "x", "label": 1}])))


def test_files_of_a_folder_that_are_not_read_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    row = {"sentence_good": "Good.", "sentence_bad": "Bad."}
    write_pairs(tmp_path / "A.JSONL", [row])
    (tmp_path / "more").mkdir()
    for name in ("._A.jsonl", "b.json", "more/c.jsonl", "readme"):
        write_pairs(tmp_path / name, [row])
    assert minimal_pairs.load_path(str(tmp_path)).good == ("Good.",)
    assert f"minimal pairs in {tmp_path}: ._A.jsonl, b.json, more, readme are not read: neither .jsonl" in caplog.text
    (tmp_path / "x-00000-of-00002.parquet").write_bytes(b"")
    with pytest.raises(InputError, match=r"x-00001-of-00002.parquet is missing"):
        minimal_pairs.load_path(str(tmp_path))


def test_a_task_of_glue_is_meant_by_its_name_whatever_folders_lie_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("CoLA", "zorro"):
        (tmp_path / name).mkdir()
        write_pairs(tmp_path / name / "a.jsonl", [{"sentence_good": "a", "sentence_bad": "b"}])
    with pytest.raises(InputError, match="task CoLA is not available: no train"):
        tasks.load(TasksSpec(names="CoLA", glue=str(tmp_path)))
    assert [task.name for task in tasks.load(TasksSpec(names="./CoLA,zorro")).tasks] == ["CoLA", "zorro"]
    with pytest.raises(
        InputError, match="a search cannot choose settings by the pairs that a report shows; use --tasks pairs"
    ):
        tasks.load(TasksSpec(names="zorro", held_out=0.2))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="there are no JSON lines of minimal pairs in this folder"):
        tasks.load(TasksSpec(names="empty"))


def test_files_that_are_absent_are_named_before_pairs_are_made_of_a_text(tmp_path: Path) -> None:
    write_pairs(tmp_path / "blimp_fast.jsonl", [{"sentence_good": "A.", "sentence_bad": "B.", "UID": "u"}])
    asked = TasksSpec(names=("pairs:replace", "blimp-fast"), blimp=str(tmp_path))
    made: list[str] = []

    def text() -> tuple[DataSpec, Path]:
        made.append("text")
        return DataSpec(corpus="docs"), tmp_path

    assert [task.name for task in tasks.read(asked, text).tasks] == ["pairs:replace", "blimp-fast"] and made
    made.clear()
    with pytest.raises(InputError, match="is not a file or folder here"):
        tasks.read(asked.model_copy(update={"blimp": str(tmp_path / "gone")}), text)
    assert not made


def test_blimp_s_three_sets_lie_in_one_folder(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    row = {"sentence_good": "A.", "sentence_bad": "B.", "UID": "u", "linguistics_term": "t", "field": "f"}
    write_pairs(tmp_path / "data" / "u.jsonl", [row])
    write_pairs(tmp_path / "blimp_filtered.jsonl", [row, row | {"UID": "v"}])
    assert minimal_pairs.load_named("blimp", str(tmp_path)).groups == {
        "paradigm": ("u",),
        "phenomenon": ("t",),
        "field": ("f",),
    }
    assert minimal_pairs.load_named("blimp-filtered", str(tmp_path)).groups["paradigm"] == ("u", "v")
    with pytest.raises(InputError, match="task blimp-fast is not available: there are no JSON lines in"):
        minimal_pairs.load_named("blimp-fast", str(tmp_path))


def test_babylm_s_sets_are_found_where_its_pipeline_has_them(tmp_path: Path) -> None:
    for name, place in (("blimp-filtered", "full_eval/blimp_filtered"), ("blimp-fast", "fast_eval/blimp_fast")):
        (tmp_path / place).mkdir(parents=True)
        write_pairs(tmp_path / place / "u.jsonl", [{"sentence_good": f"{name}.", "sentence_bad": "B."}])
        for where in (tmp_path, tmp_path / place.partition("/")[0]):
            found = minimal_pairs.load_named(name, str(where))
            assert (found.name, found.good, found.groups["paradigm"]) == (name, (f"{name}.",), ("u",))


def test_a_path_that_is_not_there_is_named(tmp_path: Path) -> None:
    lost = tmp_path / "lost"
    with pytest.raises(InputError, match=rf"^--tasks {lost}: there is no such file or folder$"):
        tasks.load(TasksSpec(names=str(lost)))
    with pytest.raises(InputError, match=rf"^tasks.blimp={lost} is not a file or folder here; give the folder"):
        minimal_pairs.load_named("blimp-fast", str(lost))
    with pytest.raises(InputError, match=r"^task blimp-fast is not on the hub; give the folder"):
        minimal_pairs.load_named("blimp-fast", None)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 2 is not JSON"),
        ("[]", "line 2 is not a JSON object"),
        ('{"sentence_good": "a"}', "line 2: 'sentence_bad' holds no text"),
        ('{"sentence_good": "a", "sentence_bad": " "}', "line 2: 'sentence_bad' holds no text"),
        ('{"sentence_good": 1, "sentence_bad": "a"}', "line 2: 'sentence_good' holds no text"),
        ('{"sentence_good": "\\ud800", "sentence_bad": "a"}', "half of a surrogate pair"),
        ('{"sentence_good": "a\\u0000", "sentence_bad": "a"}', "holds a NUL"),
        ('{"sentence_good": "' + "a" * 70_000 + '", "sentence_bad": "a"}', "70,000 characters"),
        ('{"sentence_good": "a", "sentence_bad": "b", "UID": 7}', "'UID' is not a name"),
        ("[" * 100_000, "line 2 is not JSON"),
    ],
)  # fmt: skip
def test_files_that_hold_no_pairs_are_refused_in_a_sentence(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"sentence_good": "a", "sentence_bad": "b"}\n' + line + "\n")
    with pytest.raises(InputError) as caught:
        minimal_pairs.load_path(str(path))
    assert said in str(caught.value) and str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_more_pairs_than_memory_is_meant_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minimal_pairs, "MOST", 2)
    path = write_pairs(tmp_path / "t.jsonl", [{"sentence_good": "a", "sentence_bad": "b"}] * 3)
    with pytest.raises(InputError, match="line 3: there are more than 2 pairs in t"):
        minimal_pairs.load_path(str(path))


def test_real_blimp(real_data: Path) -> None:
    task = minimal_pairs.load_named("blimp-filtered", str(real_data / "blimp"))
    assert len(task.good) == 59_875
    assert [len(set(task.groups[level])) for level in ("paradigm", "phenomenon", "field")] == [67, 12, 4]
    assert sum(good == bad for good, bad in zip(task.good, task.bad, strict=True)) == 7
    assert len(minimal_pairs.load_named("blimp", str(real_data / "blimp")).good) == 67_000
