"""Folders of GLUE that hold the given lines."""

from __future__ import annotations

from pathlib import Path

from workbench import tasks
from workbench.spec.parts import TasksSpec
from workbench.tasks.common.contract import Suite

HEADERS = {
    "SST-2": "sentence\tlabel",
    "MRPC": "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String",
    "STS-B": "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore",
    "QQP": "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
    "QNLI": "index\tquestion\tsentence\tlabel",
    "RTE": "index\tsentence1\tsentence2\tlabel",
    "WNLI": "index\tsentence1\tsentence2\tlabel",
}


def write(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(line + "\n" for line in lines).encode())
    return path


def write_both(folder: Path, name: str, *lines: str) -> None:
    for part in ("train", "dev"):
        write(folder / name / f"{part}.tsv", *lines)


def load(folder: Path | str, *names: str, rows: int | None = None, cache: Path | None = None) -> Suite:
    return tasks.load(TasksSpec(names=names, glue=str(folder), rows=rows), cache or Path(str(folder)) / "cache")


def rte(folder: Path) -> None:
    write_both(folder, "RTE", HEADERS["RTE"], "0\tIt rains.\tIt is wet.\tentailment", "1\tA b.\tC d.\tnot_entailment")
