"""Rows that keep the pieces of two marked spans."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from workbench.data.tokenizer import load_published_tokenizer
from workbench.tasks.common.examples import Examples, Task
from workbench.tasks.common.token_rows import encode_marked, nearest, parts_of, splitter


@given(count=st.integers(2, 60), starts=st.tuples(st.integers(0, 59), st.integers(0, 59)), width=st.integers(1, 20),
       room=st.integers(4, 60))  # fmt: skip
def test_pieces_of_both_spans_are_always_kept(count: int, starts: tuple[int, int], width: int, room: int) -> None:
    spans = [(start % count, min(count, start % count + width)) for start in starts]
    kept = nearest(count, spans, room).tolist()
    assert kept == sorted(set(kept)) and len(kept) == min(room, count)
    assert all(start in kept for start, _ in spans)
    inside = {piece for start, end in spans for piece in range(start, end)}
    assert inside <= set(kept) or set(kept) <= inside


def test_marked_rows_hold_the_pieces_of_their_spans(encoder: Path) -> None:
    text = "bada, kego lofe mitu (bago) keni"
    spans = ((6, 15), (22, 26))
    assert [text[a:b] for a, b in spans] == ["kego lofe", "bago"]
    assert [text[a:b] for a, b in parts_of(text, spans)] == ["bada,", "kego", "lofe", "mitu", "(", "bago", ")", "keni"]
    rows = Examples([text], None, [0], None, [spans])
    task = Task("x", "table", ("a", "b"), "accuracy", ("accuracy",), 1.0, rows, {"dev": rows})
    data = encode_marked(encoder, task, 64)["train"]
    reader = splitter(encoder, load_published_tokenizer(encoder), 64, "x")
    words = [reader.tokenizer.decode(data.ids[0][start:end]).replace(" ", "") for start, end in data.spans[0].tolist()]
    assert words == ["kegolofe", "bago"]
    inputs, _ = data.batch([0], "cpu")
    assert inputs["spans"].shape == (1, 2, 2) and "token_type_ids" not in inputs
