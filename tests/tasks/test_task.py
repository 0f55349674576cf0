"""Tasks as plain data: rows, questions, parts held out, and fingerprints."""

from __future__ import annotations

from pathlib import Path

from glue_lines import HEADERS, load, rte, write, write_both

from workbench.tasks.task import Examples, Task, held_out


def test_rows_held_out_come_from_training_and_are_no_longer_learnt(keyword: Task) -> None:
    def rows(part: Examples) -> list[tuple[str, object]]:
        return list(zip(part.first, part.targets, strict=True))

    found = held_out(keyword, 0.25)
    asked = found.tests["held-out"]
    assert list(found.tests) == ["held-out"] and len(asked) == round(0.25 * len(keyword.train))
    assert sorted(rows(found.train) + rows(asked)) == sorted(rows(keyword.train))
    assert found.fingerprint != keyword.fingerprint and found == held_out(keyword, 0.25)
    assert held_out(keyword, 0.0) is keyword


def test_rows_cap_training_only_and_change_the_fingerprint(tmp_path: Path) -> None:
    lines = [f"{i}\ta {i}\tb {i}\t{'entailment' if i % 2 else 'not_entailment'}" for i in range(50)]
    write_both(tmp_path, "RTE", HEADERS["RTE"], *lines)
    (whole,), (few,), (again,) = (load(tmp_path, "RTE", rows=n).tasks for n in (None, 10, 10))
    assert (len(whole.train), len(few.train), len(few.tests["dev"])) == (50, 10, 50)
    assert few == again and few.fingerprint != whole.fingerprint
    assert set(few.train.first) < set(whole.train.first)
    kept = {text: (b, t) for text, b, t in zip(whole.train.first, whole.train.second or [], whole.train.targets)}  # noqa: B905
    for text, second, target in zip(few.train.first, few.train.second or [], few.train.targets, strict=True):
        assert kept[text] == (second, target)


def test_fingerprint_covers_every_text_and_target(tmp_path: Path) -> None:
    seen = set()
    for number, row in enumerate(("0\ta\tb\tentailment", "0\ta\tc\tentailment", "0\ta\tb\tnot_entailment")):
        folder = tmp_path / str(number)
        rte(folder)
        write(folder / "RTE" / "dev.tsv", HEADERS["RTE"], row)
        seen.add(load(folder, "RTE").tasks[0].fingerprint)
    assert len(seen) == 3
