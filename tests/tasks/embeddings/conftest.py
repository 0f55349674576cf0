"""What tests of embeddings share."""

from __future__ import annotations

from pathlib import Path

import pytest
from embedding_files import texts, write


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    """Return a collection in which each query has the words of one document, and of half of another."""
    folder = tmp_path / "toys"
    (folder / "qrels").mkdir(parents=True)
    documents = texts(60)
    rows = [{"_id": f"d{n}", "title": "", "text": text} for n, text in enumerate(documents)]
    write(folder / "corpus.jsonl", rows)
    write(folder / "queries.jsonl", [{"_id": f"q{n}", "text": documents[n]} for n in range(20)])
    lines = [
        "query-id\tcorpus-id\tscore",
        *(f"q{n}\td{n}\t2" for n in range(10)),
        *(f"q{n}\td{n + 1}\t1" for n in range(10)),
    ]
    (folder / "qrels/test.tsv").write_text("\n".join(lines) + "\n")
    return folder
