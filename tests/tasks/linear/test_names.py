"""Names of linear probes: which of them a word selects, and what has to be downloaded for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.errors import InputError
from workbench.spec.parts import TasksSpec
from workbench.spec.scoring import LINEAR, PROBES
from workbench.tasks import glue, linear_probe, minimal_pairs

TAGGED = "".join(f"w{n}\tO\nw{n % 5}\tB-X\n\n" for n in range(40))
PAIR = '{"sentence_good": "a b", "sentence_bad": "b a"}\n'


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working folder, with files of every kind that a name may stand for."""
    monkeypatch.chdir(tmp_path)
    for name, text in (("größe.iob2", TAGGED), ("pairs.jsonl", PAIR), ("rows.jsonl", '{"text": "a", "label": 1}\n'),
                       ("rows.csv", "text,label\na,1\nb,0\nc,1\nd,0\n"), ("notes.md", "x")):  # fmt: skip
        (tmp_path / name).write_text(text, encoding="utf-8")
    for folder, file, text in (("tagged", "a.conllu", ""), ("sets", "b.jsonl", PAIR), ("empty", "", "")):
        (tmp_path / folder).mkdir()
        if file:
            (tmp_path / folder / file).write_text(text)
    return tmp_path


def reads(word: str) -> set[str]:
    """The settings that a word reads."""
    return linear_probe.reads(word, TasksSpec())


@pytest.mark.parametrize("name", ["linear", "LINEAR", "linear:probes", "Linear:Probes"])
def test_one_word_selects_all_probes(name: str) -> None:
    assert linear_probe.place(name) == list(PROBES)


@pytest.mark.parametrize("known", [*PROBES, *glue.ROWS, *minimal_pairs.NAMED])
def test_every_task_of_ours_is_found_in_any_case(known: str) -> None:
    for name in (f"linear:{known}", f"LINEAR:{known.upper()}", f"Linear:{known.lower()}"):
        assert linear_probe.place(name) == [known]


def test_a_substitute_keeps_its_own_name() -> None:
    assert linear_probe.place("linear:qnli-devsplit") == ["qnli-devsplit"]
    assert "glue" in reads("linear:QNLI-devsplit")


@pytest.mark.parametrize(
    "name", ["CoLA", "order", "probes", "none", "mine.csv", "linearly", "pairs.jsonl", "sets", "notes.md"]
)
def test_other_tasks_are_left_to_others(files: Path, name: str) -> None:
    assert linear_probe.place(name) is None
    assert not reads(name) & {"glue", "blimp"}


@pytest.mark.parametrize("name", ["größe.iob2", "tagged"])
def test_tagged_sentences_are_a_probe_with_and_without_the_prefix(files: Path, name: str) -> None:
    assert linear_probe.place(name) == linear_probe.place(f"linear:{name}") == [name]
    assert linear_probe.place(str(files / name)) == [str(files / name)]


@pytest.mark.parametrize("name", ["pairs.jsonl", "sets", "empty", "rows.csv", "rows.jsonl", "missing.csv"])
def test_other_paths_need_the_prefix(files: Path, name: str) -> None:
    assert linear_probe.place(f"linear:{name}") == [name]


@pytest.mark.parametrize(("rest", "near"), [("ordr", "order"), ("COLAA", "CoLA"), ("blimp-fats", "blimp-fast")])
def test_an_unknown_name_is_told_with_the_nearest(rest: str, near: str) -> None:
    with pytest.raises(InputError, match=f"linear:{rest}.*'{near}'"):
        linear_probe.place(f"linear:{rest}")


@pytest.mark.parametrize("rest", ["", "nowhere/größe", "notes.md", "linear:order"])
def test_what_stands_for_no_probe_is_refused(files: Path, rest: str) -> None:
    for ask in (linear_probe.place, linear_probe.accepts, reads):
        with pytest.raises(InputError, match=f"linear:{rest}"):
            ask(f"linear:{rest}")


def test_what_is_read_from_glue_and_from_blimp_is_told_apart(files: Path) -> None:
    asked = [
        "linear",
        "linear:order",
        *(f"linear:{row}" for row in glue.ROWS),
        *(f"linear:{each}" for each in minimal_pairs.NAMED),
    ]
    asked += ["größe.iob2", "linear:rows.csv"]
    assert [name for name in asked if "glue" in reads(name)] == [f"linear:{row}" for row in glue.ROWS]
    assert [name for name in asked if "blimp" in reads(name)] == [f"linear:{each}" for each in minimal_pairs.NAMED]


def test_probes_that_are_listed_are_those_that_the_word_selects() -> None:
    rows = linear_probe.names()
    assert tuple(name for name, *_ in rows) == LINEAR and {suite for _, suite, _, _ in rows} == {"linear"}
    assert all(metric and summary for *_, metric, summary in rows)
    assert [linear_probe.place(name) for name, *_ in rows] == [[name] for name in PROBES]


def test_a_probe_named_twice_is_loaded_once(files: Path) -> None:
    found = linear_probe.load(["größe.iob2", "linear:rows.csv", "größe.iob2"], TasksSpec())
    assert [probe.name for probe in found] == ["linear:größe-ner", "linear:rows"]
    assert all(probe.fingerprint for probe in found) and found[0].labels == ("B-X", "O")
    assert linear_probe.load([], TasksSpec()) == []


def test_a_task_of_glue_that_is_not_in_its_folder_is_named(files: Path) -> None:
    with pytest.raises(InputError, match=r"linear:CoLA\b.*empty"):
        linear_probe.load(["linear:CoLA"], TasksSpec(glue=str(files / "empty")))
