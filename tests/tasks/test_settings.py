"""Settings of tasks that nothing reads, and tables that are not there, are refused before a plan is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.errors import InputError
from workbench.execution.study_options import checked_spec
from workbench.options import SpecOptions, checked
from workbench.spec.parts import TasksSpec
from workbench.spec.run_spec import split_settings
from workbench.tasks.common.contract import READERS, TUNING

TABLE = "text,label\n" + "".join(f"row {number},{'ab'[number % 2]}\n" for number in range(20))

# Names under --tasks, a setting, and what the refusal says it is a setting of; "" where one of the tasks reads it.
CASES = (
    ("none", "folds=5", "tables"),
    ("none", "seeds=2", "fine-tuning"),
    ("none", "lr=0.01", "fine-tuning"),
    ("none", "folds=unset", ""),
    ("none", "at=none", ""),
    ("none", "at=log:4", "tasks without fine-tuning"),
    ("probes", "at=words", "tasks without fine-tuning"),
    ("probes", "metric=f1", "tables"),
    ("probes", "kind=regression", "tables"),
    ("probes", "epochs=2", ""),
    ("probes", "squad_head=independent", "SQuAD"),
    ("probes", "scorers=pll", "minimal pairs"),
    ("probes", "control=true", "linear probes"),
    ("linear", "control=true", ""),
    ("linear", "rows=100", ""),
    ("linear", "dropout=0.3", "fine-tuning"),
    ("pairs,linear", "epochs=2", "fine-tuning"),
    ("pairs", "scorers=pll", ""),
    ("pairs", "text=t", "tables"),
    ("probes,own.csv", "folds=5", ""),
    ("own.csv", "kind=regression", ""),
    ("own.csv", "text=t", ""),
    ("own.csv", "blimp=x", "blimp"),
    ("linear:own.csv", "metric=macro_f1", ""),
    ("linear:own.csv", "glue=x", "GLUE"),
    ("linear:CoLA", "glue=x", ""),
    ("linear:blimp", "blimp=x", ""),
    ("similarity:own.csv", "pair=second", ""),
    ("similarity:own.csv", "metric=f1", "tables"),
    ("similarity:sts-b", "glue=x", ""),
    ("similarity:own.csv", "embeddings=contrastive", ""),
    ("similarity:own.csv", "epochs=2", "fine-tuning"),
    ("similarity:own.csv", "embeddings=contrastive epochs=2 rows=40", ""),
    ("pairs", "embeddings=contrastive", "similarity and retrieval"),
    ("choice:own.csv", "text=t", ""),
    ("choice:own.csv", "kind=regression", "tables"),
    ("choice:own.csv", "metric=f1", "tables"),
    ("spans:own.csv", "metric=f1", ""),
    ("tag:own.conllu", "tagging=x", "ner-dane and conll2003"),
    ("NER-DaNE", "tagging=x", ""),
    ("squad1", "squad_stride=64", ""),
    ("squad1", "length=64", "texts in rows"),
    ("superglue:copa", "babylm=x", "BabyLM"),
    ("CoLA", "superglue=x", "SuperGLUE"),
)


@pytest.mark.parametrize(("names", "setting", "what"), CASES, ids=lambda each: each)
def test_a_setting_that_no_chosen_task_reads_is_refused(
    names: str, setting: str, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.csv").write_text(TABLE)
    settings = split_settings(f"tasks.{each}" for each in setting.split())
    options = checked(SpecOptions, {"set": settings, "tasks": names})
    if not what:
        assert checked_spec(options).tasks.names == tuple(names.split(","))
        return
    with pytest.raises(InputError, match=rf"has no effect on --tasks {names}: it is a setting of .*{what}"):
        checked_spec(options)


def test_the_option_is_named_as_it_was_given() -> None:
    with pytest.raises(InputError, match=r"^--evaluate-at log:3 has no effect on --tasks none"):
        checked_spec(SpecOptions(tasks=("none",), evaluate_at="log:3"))


def test_every_setting_has_readers() -> None:
    """Names in the table are those of the settings, so that none is overlooked when one is renamed."""
    assert {*READERS, *TUNING, "names"} == set(TasksSpec.model_fields)


def test_a_table_that_is_not_there_is_refused_before_the_plan() -> None:
    with pytest.raises(InputError, match=r"^--tasks nowhere.csv: there is no such file$"):
        checked_spec(SpecOptions(tasks=("probes", "nowhere.csv")))
