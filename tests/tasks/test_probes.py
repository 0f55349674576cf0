"""Probes are balanced and the same everywhere, and their answers are true."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from workbench import tasks
from workbench.data import built_in_text
from workbench.data.built_in_text import Entry
from workbench.errors import InputError
from workbench.spec.parts import TasksSpec
from workbench.tasks import probes
from workbench.tasks.common.examples import Examples, Task

NOUNS = [f"{a}{b}" for a in "bdfgklmnprst" for b in ("ane", "olt", "ira", "ux", "eem", "ost", "aff", "igo")]


@functools.cache
def made(modules: int = 12, each: int = 12) -> list[Entry]:
    """Return entries of every package whose sentences name where they come from, so that answers can be checked."""
    random = np.random.default_rng(0)
    found = []
    for package in built_in_text.PACKAGES:
        for m in range(modules):
            for n in range(each):
                tag = f"{package[:2]}x{m}x{n}"
                rest = [" ".join(random.choice(NOUNS, size=7)) for _ in range(3)]
                text = f"Compute {tag} in {package} from {rest[0]}. Then {tag} is {rest[1]}.\nAt last {tag} {rest[2]}."
                found.append(Entry(package, f"{package}.m{m}", f"f{n}", f"f{n}(a, {tag}=None)", text))
    return found


def parts(task: Task) -> list[Examples]:
    return [task.train, *task.tests.values()]


def sides(split: str) -> list[Entry]:
    """Return made-up entries of the pre-training side or of the held-out side, which share no text."""
    return [e for e in made(24) if (int(e.module.split(".m")[1]) < 12) == (split == "train")]


def read_all() -> dict[str, Task]:
    return {task.name: task for task in probes.read(probes.PROBES)}


def use_made_text(patch: pytest.MonkeyPatch, cache: Path) -> None:
    patch.setattr(built_in_text, "entries", sides)
    patch.setattr(probes, "cache_root", lambda: cache)
    patch.setattr(probes, "TRAIN_SHARE", 1.0)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def suite(cache: Path) -> dict[str, Task]:
    with pytest.MonkeyPatch.context() as patch:
        use_made_text(patch, cache)
        return read_all()


real = pytest.fixture(scope="module", name="real")(read_all)


def tag(text: str) -> str:
    return re.findall(r"\w\wx\d+x\d+", text)[0]


def test_halves_are_whole_modules_of_every_package() -> None:
    entries = made()
    train, test = probes.halves(entries)
    assert sorted(map(repr, train + test)) == sorted(map(repr, entries))
    assert not {(e.package, e.module) for e in train} & {(e.package, e.module) for e in test}
    for package in built_in_text.PACKAGES:
        weights = [sum(len(e.text) for e in half if e.package == package) for half in (train, test)]
        assert 0.9 < weights[0] / weights[1] < 1.1


def test_settings_are_chosen_on_other_modules_than_probes_are_tested_on(suite: dict[str, Task]) -> None:
    tested = {f"{e.package[:2]}x{e.module.split('.m')[1]}" for e in probes.halves(sides("test"))[1]}
    for task in suite.values():
        assert {"x".join(tag(text).split("x")[:2]) for text in task.tests["test"].first} <= tested


def test_classes_are_balanced(suite: dict[str, Task], real: dict[str, Task]) -> None:
    for task in (*suite.values(), *real.values()):
        for part in parts(task):
            counts = Counter(part.targets)
            assert set(counts) == set(range(len(task.labels)))
            assert max(counts.values()) - min(counts.values()) == 0


def test_packages_are_told_by_more_than_their_names(suite: dict[str, Task], real: dict[str, Task]) -> None:
    assert suite["package"].labels == built_in_text.PACKAGES
    for part in parts(suite["package"]):
        for text, target in zip(part.first, part.targets, strict=True):
            assert tag(text)[:2] == built_in_text.PACKAGES[int(target)][:2]
    given = re.compile(r"numpy|pandas|matplotlib|scipy|torch|python", re.IGNORECASE)
    for task in (suite["package"], real["package"]):
        assert not [text for part in parts(task) for text in part.first if given.search(text)]
    assert any(f" {probes.MASKED} " in text for text in real["package"].train.first)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("NumPy and np.array, PyTorch's torch.nn, pd.NA", "L and L.array, L's L.nn, L.NA"),
        ("an input of inplace plots, tpd", "an input of inplace plots, tpd"),
        ("torchelastic and IPython", "Lelastic and IL"),
        ("matplotlib.pyplot (plt) in CPython", "L.L (L) in L"),
    ],
)
def test_names_are_written_over_as_words(text: str, expected: str) -> None:
    assert probes.NAME.sub("L", text) == expected


def test_order_is_disturbed_or_intact_and_never_both(suite: dict[str, Task]) -> None:
    known = {" ".join(sorted(s.text.split())): s.text for s in probes.sentences(made(24))}
    seen = Counter()
    for part in parts(suite["order"]):
        for text, target in zip(part.first, part.targets, strict=True):
            original = known[" ".join(sorted(text.split()))]
            seen[original] += 1
            assert (text == original) == (suite["order"].labels[int(target)] == "intact")
            assert (text.split()[0], text.split()[-1]) == (original.split()[0], original.split()[-1])
    assert set(seen.values()) == {1}


def test_disturbing_moves_several_words_or_gives_up() -> None:
    text = "One two three four five six seven eight nine ten."
    mixed = probes.disturbed(text)
    assert mixed == probes.disturbed(text) and mixed is not None
    moved = sum(a != b for a, b in zip(mixed.split(), text.split(), strict=True))
    assert moved >= 3 and sorted(mixed.split()) == sorted(text.split())
    assert probes.disturbed("The same same same same same end.") is None
    assert probes.disturbed("Too short.") is None


def test_next_pairs_are_what_they_say(suite: dict[str, Task]) -> None:
    follows = {s.text: s.following for s in probes.sentences(made(24)) if s.following}
    for part in parts(suite["next"]):
        assert part.second is not None
        for first, second, target in zip(part.first, part.second, part.targets, strict=True):
            assert (follows[first] == second) == bool(target) == (tag(first) == tag(second))
        assert len(set(part.first)) == len(part.first) and len(set(part.second)) == len(part.second)


def test_signatures_are_what_they_say(suite: dict[str, Task]) -> None:
    for part in parts(suite["signature"]):
        assert part.second is not None
        for first, second, target in zip(part.first, part.second, part.targets, strict=True):
            assert (tag(first) == tag(second)) == bool(target)
        assert len(set(part.second)) == len(part.second)


def test_the_two_halves_of_a_probe_share_no_text(suite: dict[str, Task], real: dict[str, Task]) -> None:
    for task in (*suite.values(), *real.values()):
        sides = [
            {" ".join(built_in_text.words(t)) for t in [*part.first, *(part.second or [])]} for part in parts(task)
        ]
        assert not sides[0] & sides[1], task.name


def test_a_torn_cache_is_made_again(suite: dict[str, Task], cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_made_text(monkeypatch, cache)
    files = sorted((cache / "probes").iterdir())
    assert len(files) == 4
    for file, text in zip(files, ("", "{", '{"labels": []}', '{"labels": [], "train": 1, "test": {}}'), strict=True):
        file.write_text(text)
    assert read_all() == suite
    before = [file.read_bytes() for file in files]
    assert read_all() == suite
    assert [file.read_bytes() for file in files] == before


def test_the_same_on_every_machine_and_in_every_order(suite: dict[str, Task], tmp_path: Path) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import test_probes as t;"
        "from workbench.tasks import probes;"
        "from workbench.data import built_in_text; built_in_text.entries = t.sides; probes.TRAIN_SHARE = 1.0;"
        "probes.cache_root = lambda: t.Path(sys.argv[2]);"
        "print(*(task.fingerprint for task in probes.read(probes.PROBES)))"
    )
    command = [sys.executable, "-c", code, str(Path(__file__).parent), str(tmp_path / "other")]
    environment = {**os.environ, "PYTHONHASHSEED": "77"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split() == [suite[name].fingerprint for name in probes.PROBES]


def test_rows_cap_a_probes_training(suite: dict[str, Task], cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_made_text(monkeypatch, cache)
    (task,) = probes.read(["next"], 40)
    assert len(task.train) == 40 and len(task.tests["test"]) > 40


def test_too_little_text_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_made_text(monkeypatch, tmp_path)
    monkeypatch.setattr(built_in_text, "entries", lambda split: [e for e in sides(split) if e.package == "python"][:30])
    for name in probes.PROBES:
        with pytest.raises(InputError, match=f"the probe '{name}' finds too little text"):
            probes.read([name])


def test_probes_come_with_baselines_that_leave_room(tmp_path: Path) -> None:
    suite = tasks.load(TasksSpec(names="probes"), tmp_path)
    assert [task.name for task in suite.tasks] == ["package", "order", "next", "signature"]
    for task in suite.tasks:
        chance = 0.0 if task.metric == "matthews" else 100 / len(task.labels)
        found = task.baselines(tmp_path)
        assert found["majority"] == pytest.approx(chance)
        assert found["majority"] - 6 < found["bag-of-words"] < chance + 45  # 40 on `order`: bigrams
