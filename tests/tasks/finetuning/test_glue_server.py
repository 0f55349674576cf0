"""The files of a GLUE submission: what is read for them, and how predictions are spelled."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import glue_folder

from workbench.errors import InputError
from workbench.tasks import glue
from workbench.tasks.glue import PARTS


def test_the_parts_are_the_eleven_files_of_the_server() -> None:
    assert {part.name: part.rows for part in PARTS.values()} == glue_folder.ROWS
    assert [part.task for part in PARTS.values() if part.name in ("AX", "MNLI-m", "MNLI-mm")] == ["MNLI"] * 3
    assert all(part.task in glue.ROWS and part.file == f"{name}.tsv" for name, part in PARTS.items())


@pytest.mark.parametrize("name", [name for name in PARTS if name != "QQP"])
def test_a_test_file_is_read_row_by_row(name: str, tmp_path: Path) -> None:
    lines = glue_folder.unlabelled(name)
    glue_folder.write(tmp_path / PARTS[name].path, lines)
    found = glue.read_part(tmp_path, PARTS[name])
    assert found is not None and len(found) == glue_folder.ROWS[name] == len(found.targets) and not any(found.targets)
    head = lines[0].split("\t")
    texts = [i for i, column in enumerate(head) if column in glue_folder.TEXTS]
    assert found.first == [line.split("\t")[texts[0]] for line in lines[1:]]
    second = [line.split("\t")[texts[1]] for line in lines[1:]] if len(texts) > 1 else None
    assert found.second == second


def test_a_part_without_a_file_is_none(tmp_path: Path) -> None:
    assert glue.read_part(tmp_path, PARTS["RTE"]) is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda lines: lines[:-1], r"has 145 rows for WNLI\.tsv, and the server of GLUE takes exactly 146"),
        (lambda lines: [*lines, "146\ta\tb"], "has 147 rows"),
        (lambda lines: [lines[0], lines[2], lines[1], *lines[3:]], "line 2: the index is '1', and 0 is expected"),
        (lambda lines: [*lines[:5], "4", *lines[6:]], "line 6: 1 columns where 3 are needed"),
        (lambda lines: ["index\tsentence1", *lines[1:]], "no column 'sentence2'"),
        (lambda lines: lines[:1], "has 0 rows"),
    ],
)
def test_a_damaged_test_file_is_refused(change, said: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    glue_folder.write(tmp_path / "WNLI/test.tsv", change(glue_folder.unlabelled("WNLI")))
    with pytest.raises(InputError, match=said):
        glue.read_part(tmp_path, PARTS["WNLI"])


def test_the_hubs_parquet_has_the_same_texts(tmp_path: Path) -> None:
    count = glue_folder.ROWS["AX"]
    rows = {"premise": [f"a {i}" for i in range(count)], "hypothesis": ["b"] * count, "label": [-1] * count}
    (tmp_path / "ax").mkdir()
    pq.write_table(pa.table(rows), tmp_path / "ax" / "test-00000-of-00001.parquet")
    found = glue.read_part(tmp_path, PARTS["AX"])
    assert found is not None and found.first == rows["premise"] and found.second == rows["hypothesis"]


def test_words_are_spelled_as_the_server_has_them() -> None:
    outputs = np.array([[3.0, 1.0, 2.0], [0.0, 5.0, 1.0], [0.0, 0.5, 1.0]], dtype=np.float32)
    assert glue.words_of(outputs, glue.ROWS["MNLI"]) == ["entailment", "neutral", "contradiction"]
    assert glue.words_of(outputs[:, :2], glue.ROWS["QNLI"]) == ["entailment", "not_entailment", "not_entailment"]
    assert glue.words_of(outputs[:, :2], glue.ROWS["CoLA"]) == ["0", "1", "1"]


def test_the_scores_of_sts_b_are_clipped_to_0_and_5() -> None:
    outputs = np.array([[-0.2], [0.0], [0.12345], [1.0], [1.7]], dtype=np.float32)
    assert glue.words_of(outputs, glue.ROWS["STS-B"]) == ["0.000", "0.000", "0.617", "5.000", "5.000"]


def test_an_ensemble_averages_probabilities_and_not_outputs() -> None:
    """One classifier is sure of label 0 and two lean to label 1: the mean of the outputs would say 0."""
    outputs = [np.array([[40.0, 0.0]]), np.array([[0.0, 3.0]]), np.array([[0.0, 3.0]])]
    mean = glue.averaged(outputs, glue.ROWS["CoLA"])
    sure = 1 / (1 + np.exp(-3.0))
    np.testing.assert_allclose(mean, [[(1 + 2 * (1 - sure)) / 3, 2 * sure / 3]], rtol=1e-12)
    assert glue.words_of(mean, glue.ROWS["CoLA"]) == ["1"] and np.mean(outputs, axis=0).argmax() == 0
    scores = glue.averaged([np.array([[0.2]]), np.array([[0.4]])], glue.ROWS["STS-B"])
    np.testing.assert_allclose(scores, [[0.3]])
    assert glue.averaged(outputs[:1], glue.ROWS["CoLA"]) is outputs[0]


def test_a_file_has_a_header_and_numbered_rows() -> None:
    assert glue.tsv(["neutral", "entailment"]) == b"index\tprediction\n0\tneutral\n1\tentailment\n"


def test_the_real_test_files(real_data: Path) -> None:
    found = {name: glue.read_part(real_data / "glue", part) for name, part in PARTS.items()}
    there = {name for name, rows in found.items() if rows is not None}
    assert there == {"CoLA", "SST-2", "MRPC", "STS-B", "QNLI", "RTE", "WNLI", "AX"}
    cola, diagnostic = found["CoLA"], found["AX"]
    assert cola is not None and cola.first[0] == "Bill whistled past the house."
    assert diagnostic is not None and diagnostic.second is not None
    assert diagnostic.second[0] == "The cat did not sit on the mat."
