"""What linear probes are made of: files, folders, tasks and pairs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from toy_probes import SPEC, conllu, tagger, toy_pair_set

from workbench import tasks
from workbench.errors import InputError
from workbench.spec.parts import TasksSpec
from workbench.tasks import _linear_readout as linear_readout
from workbench.tasks import linear_probe
from workbench.tasks.common.examples import Examples, Tagged, Task
from workbench.tasks.linear_probe import fingerprinted


def test_files_folders_and_parts(tmp_path: Path) -> None:
    for seed, part in enumerate(("train", "dev", "test")):
        conllu(tmp_path / f"xx_toy-ud-{part}.conllu", 20 + seed, seed)
    for name in (tmp_path, tmp_path / "xx_toy-ud-train.conllu", tmp_path / "xx_toy-ud-test.conllu"):
        probe = linear_probe.of_tagged(str(name))
        assert probe.name == "linear:xx_toy-ud-pos" and len(probe.train) == 20
        assert [(part, len(rows)) for part, rows in probe.tests.items()] == [("test", 22), ("dev", 21)]
    (tmp_path / "xx_toy-ud-train.conllu").unlink()
    probe = linear_probe.of_tagged(str(tmp_path))
    assert len(probe.train) == 21 and list(probe.tests) == ["test"]
    alone = tmp_path / "alone"
    alone.mkdir()
    conllu(alone / "some.conllu", 100, 9)
    probe = linear_probe.of_tagged(str(alone / "some.conllu"))
    assert probe.name == "linear:some-pos" and 5 < len(probe.tests["test"]) < 40
    assert len(probe.train) + len(probe.tests["test"]) == 100


def test_what_cannot_be_probed_is_said_in_a_sentence(tmp_path: Path) -> None:
    conllu(tmp_path / "a-train.conllu", 5, 0)
    conllu(tmp_path / "b-test.conllu", 5, 1)
    with pytest.raises(InputError, match="holds several sets"):
        linear_probe.of_tagged(str(tmp_path))
    with pytest.raises(InputError, match="there is no such file"):
        linear_probe.of_tagged(str(tmp_path / "no.conllu"))
    (tmp_path / "one.iob2").write_text("a\tO\n\nb\tO\n\n" * 40, encoding="utf-8")
    with pytest.raises(InputError, match="every training word has the tag 'O'"):
        linear_probe.of_tagged(str(tmp_path / "one.iob2"))
    with pytest.raises(InputError, match="2 paradigms, and at least 3 are needed"):
        linear_probe.of_pairs(toy_pair_set(2))
    number = Task("n", "table", (), "spearman", ("spearman",), 1.0, Examples(["a"], None, [1.0]), {})
    with pytest.raises(InputError, match="linear probes classify"):
        linear_probe.of_task(number)
    for name, message in (("linear:nosuch", "no linear probe 'nosuch'"), ("linear:", "no linear probe ''"),
                          ("linear:packge", "did you mean 'package'")):  # fmt: skip
        with pytest.raises(InputError, match=message):
            tasks.load(TasksSpec(names=(name,)))
    few = fingerprinted(replace(tagger(), train=Tagged([["bada"]], [[0]])), SPEC)
    with pytest.raises(InputError, match="1 rows to train on are too few or too alike"):
        linear_readout.read_out(np.zeros((1, 2)), np.zeros(1), np.array(linear_probe.held(few)), [])
