"""Names of tagging under --tasks: columns, folders and named sets."""

from __future__ import annotations

from pathlib import Path

import pytest
from tagged_made import SPEC, as_spans, load, sentences, write

from workbench import tasks
from workbench.errors import InputError
from workbench.tasks import tagging
from workbench.tasks.tagging import Tagging


def conllu(path: Path, count: int, seed: int) -> None:
    lines = (
        f"{n}\t{w}\t_\t{w[2:].upper()}\t{w[:2]}" + "\t_" * 4 + f"\tname={'B-X' if w[2:3] == 'd' else 'O'}\n"
        for words in sentences(count, seed) for n, w in enumerate([*words, "."], 1)
    )  # fmt: skip
    text = "".join(f"\n{line}" if line.startswith("1\t") else line for line in lines)
    path.write_text(text.replace("\t.\t_\t\t", "\t.\t_\tPUNCT\tZ"), encoding="utf-8")


@pytest.fixture
def dane(tmp_path: Path) -> Path:
    for seed, part in enumerate(("train", "dev", "test")):
        conllu(tmp_path / f"ddt.{part}.conllu", 30, seed)
    return tmp_path


def test_columns_are_chosen_by_the_name(dane: Path) -> None:
    names = {
        f"tag:{dane}": ("tag:ddt-pos", "accuracy", 6), f"tag:{dane}#XPOS": ("tag:ddt-xpos", "accuracy", 5),
        f"TAG:{dane / 'ddt.dev.conllu'}#ner": ("tag:ddt-ner", "entity_f1", 2),
    }  # fmt: skip
    suite = tasks.load(SPEC.model_copy(update={"names": tuple(names)}), dane / "cache")
    for task, wanted in zip(suite.tasks, names.values(), strict=True):
        assert isinstance(task, Tagging) and (task.name, task.metric, task.known) == wanted
    (dane / "a#b.txt").write_text("".join(f"a{n} A\nb B\n\n" for n in range(60)), encoding="utf-8")
    assert load(dane / "a#b.txt").name == "tag:a#b"
    assert load(f"{dane}/a#b.txt#2").name == "tag:a#b-2"


def test_named_sets_are_read_from_their_folder(dane: Path, tmp_path: Path) -> None:
    spec = SPEC.model_copy(update={"names": ("NER-DaNE",), "tagging": str(dane)})
    (task,) = tasks.load(spec, tmp_path / "cache").tasks
    assert (task.name, task.suite, task.metric) == ("ner-dane", "tagging", "entity_f1")
    (tmp_path / "sets" / "conll2003").mkdir(parents=True)
    for seed, name in enumerate(("eng.train", "eng.testa", "eng.testb")):
        write(tmp_path / "sets" / "conll2003" / name, sentences(30, seed), as_spans)
    both = SPEC.model_copy(update={"names": ("conll2003",), "tagging": str(tmp_path / "sets")})
    (task,) = tasks.load(both, tmp_path / "cache").tasks
    assert task.name == "conll2003" and tasks.local(both)
    (tmp_path / "sets" / "conll2003" / "eng.testa").unlink()
    for wrong in (both, SPEC.model_copy(update={"names": ("conll2003",)}),
                  SPEC.model_copy(update={"names": ("ner-dane",), "tagging": str(tmp_path / "sets")})):  # fmt: skip
        with pytest.raises(InputError, match=r"is not available: --set tasks.tagging=DIR must name a folder with"):
            tasks.load(wrong, tmp_path / "cache")
    assert set(tagging.NAMED) <= {row["name"] for row in tasks.known() if row["suite"] == "tagging"}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tag:", "give a file or folder of tagged sentences"), ("tag:nowhere.conll", "there is no such file"),
        ("tag:nowhere#ner", "there is no such file"),
    ],
)  # fmt: skip
def test_what_is_no_set_is_refused(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        tasks.load(SPEC.model_copy(update={"names": (name,)}))
