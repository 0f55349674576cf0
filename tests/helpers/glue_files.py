"""Folders of GLUE in the official layout: of given lines, or of made-up rows in files of the official lengths."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

from workbench import tasks
from workbench.spec.parts import TasksSpec
from workbench.tasks.common.contract import Suite

WORDS = ("the cat", "a dog", "one bird", "this fish", "my horse", "sees", "likes", "finds", "near", "under")
# Rows of the official test files, written down here again: what the server counts.
ROWS = {
    "CoLA": 1063, "SST-2": 1821, "MRPC": 1725, "STS-B": 1379, "QQP": 390_965, "MNLI-m": 9796, "MNLI-mm": 9847,
    "QNLI": 5463, "RTE": 3000, "WNLI": 146, "AX": 1104,
}  # fmt: skip
NLI = ("contradiction", "entailment", "neutral")
LABELS = {
    "CoLA": ("0", "1"), "SST-2": ("0", "1"), "MRPC": ("0", "1"), "QQP": ("0", "1"), "WNLI": ("0", "1"),
    "QNLI": ("entailment", "not_entailment"), "RTE": ("entailment", "not_entailment"), "MNLI": NLI,
}  # fmt: skip
HEADS: dict[str, tuple[str, ...]] = {
    "SST-2": ("sentence", "label"), "MRPC": ("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"),
    "STS-B": ("index", *["none"] * 6, "sentence1", "sentence2", "score"),
    "QQP": ("id", "qid1", "qid2", "question1", "question2", "is_duplicate"),
    "MNLI": ("index", "promptID", "sentence1", "sentence2", "label1", "gold_label"),
    "QNLI": ("index", "question", "sentence", "label"), "RTE": ("index", "sentence1", "sentence2", "label"),
    "WNLI": ("index", "sentence1", "sentence2", "label"),
}  # fmt: skip
TESTS = {
    "CoLA": ("CoLA/test.tsv", "index sentence"), "SST-2": ("SST-2/test.tsv", "index sentence"),
    "MRPC": ("MRPC/test.tsv", "index #1_ID #2_ID #1_String #2_String"),
    "STS-B": ("STS-B/test.tsv", "index genre filename year old_index source1 source2 sentence1 sentence2"),
    "QQP": ("QQP/test.tsv", "id question1 question2"),
    "MNLI-m": ("MNLI/test_matched.tsv", "index promptID sentence1 sentence2"),
    "MNLI-mm": ("MNLI/test_mismatched.tsv", "index promptID sentence1 sentence2"),
    "QNLI": ("QNLI/test.tsv", "index question sentence"), "RTE": ("RTE/test.tsv", "index sentence1 sentence2"),
    "WNLI": ("WNLI/test.tsv", "index sentence1 sentence2"),
    "AX": ("diagnostic/diagnostic.tsv", "index sentence1 sentence2"),
}  # fmt: skip
TEXTS = ("sentence", "sentence1", "sentence2", "question", "question1", "question2", "#1 String", "#2 String")


def write(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(line + "\n" for line in lines).encode())
    return path


def phrase(draw: random.Random) -> str:
    return " ".join(draw.choices(WORDS, k=draw.randint(1, 3)))


def labelled(task: str, count: int, seed: int) -> list[str]:
    """The lines of a file to learn from, or of a dev set."""
    draw = random.Random(f"{task} {seed}")
    if task == "CoLA":
        return [f"gj04\t{draw.choice('01')}\t\t{phrase(draw)}." for _ in range(count)]
    head = HEADS[task]
    lines = ["\t".join(head)]
    for index in range(count):
        label = f"{draw.uniform(0, 5):.2f}" if task == "STS-B" else LABELS[task][index % len(LABELS[task])]
        given = {"index": str(index), "id": str(index), "score": label, "label": label, "Quality": label}
        given |= {"is_duplicate": label, "gold_label": label} | {name: phrase(draw) for name in TEXTS}
        lines.append("\t".join(given.get(name, "none") for name in head))
    return lines


def unlabelled(part: str, count: int | None = None) -> list[str]:
    """The lines of a test file, in the official number unless another is given."""
    draw, head = random.Random(part), [name.replace("_", " ", name[0] == "#") for name in TESTS[part][1].split()]
    lines = ["\t".join(head)]
    for index in range(ROWS[part] if count is None else count):
        fields = (str(index) if name in ("index", "id") else phrase(draw) if name in TEXTS else "n" for name in head)
        lines.append("\t".join(fields))
    return lines


def write_glue(folder: Path, parts: Iterable[str], rows: int = 40) -> Path:
    """Write what is needed to submit these parts of GLUE."""
    for part in parts:
        write(folder / TESTS[part][0], *unlabelled(part))
        task = "MNLI" if part in ("MNLI-m", "MNLI-mm", "AX") else part
        names = ("dev_matched", "dev_mismatched") if task == "MNLI" else ("dev",)
        for seed, name in enumerate(("train", *names)):
            write(folder / task / f"{name}.tsv", *labelled(task, rows if name == "train" else 30, seed))
    return folder


def faults(files: dict[str, bytes], expected: Iterable[str]) -> list[str]:
    """What a server would object to in the files of a submission, by name: an independent reading of every row."""
    wrong = [f"{name} is missing or too much" for name in {f"{part}.tsv" for part in expected} ^ set(files)]
    for name, content in files.items():
        part = name.removesuffix(".tsv")
        text = content.decode("ascii")
        head, *rows = text.removesuffix("\n").split("\n")
        wrong += [f"{name}: header {head!r}"] if head != "index\tprediction" else []
        wrong += [f"{name}: {len(rows)} rows"] if len(rows) != ROWS[part] else []
        spelled = set(LABELS["MNLI" if part in ("MNLI-m", "MNLI-mm", "AX") else part]) if part != "STS-B" else set()
        for index, row in enumerate(rows):
            first, _, word = row.partition("\t")
            right = 0.0 <= float(word) <= 5.0 if part == "STS-B" else word in spelled
            wrong += [f"{name}, row {index}: {row!r}"] if first != str(index) or not right else []
    return wrong


HEADERS = {
    "SST-2": "sentence\tlabel",
    "MRPC": "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String",
    "STS-B": "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore",
    "QQP": "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
    "QNLI": "index\tquestion\tsentence\tlabel",
    "RTE": "index\tsentence1\tsentence2\tlabel",
    "WNLI": "index\tsentence1\tsentence2\tlabel",
}


def write_both(folder: Path, name: str, *lines: str) -> None:
    for part in ("train", "dev"):
        write(folder / name / f"{part}.tsv", *lines)


def load(folder: Path | str, *names: str, rows: int | None = None, cache: Path | None = None) -> Suite:
    return tasks.load(TasksSpec(names=names, glue=str(folder), rows=rows), cache or Path(str(folder)) / "cache")


def rte(folder: Path) -> None:
    write_both(folder, "RTE", HEADERS["RTE"], "0\tIt rains.\tIt is wet.\tentailment", "1\tA b.\tC d.\tnot_entailment")
