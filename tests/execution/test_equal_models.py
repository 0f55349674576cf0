"""Cells that would train one model are refused, or trained once. Nothing is trained here."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from workbench import objectives
from workbench.errors import InputError
from workbench.execution.equal_models import model_of
from workbench.execution.search import Search, search_job, tune_jobs
from workbench.execution.study import Job, job_of
from workbench.spec import presets
from workbench.spec.experiment import Experiment, grid, listing, space_of
from workbench.spec.run_spec import RunSpec

NANO = presets.resolve("nano", {"budget.steps": 100})  # of one layer
OWN = """
from workbench.models import flops
from workbench.models.heads import MlmHead
from workbench.spec.parts import Part
from workbench.tensors import StepLoss
from torch import nn

Options = Part

def cost(spec):
    return flops.encoder(spec.encoder, spec.data.length)

class Objective(nn.Module):
    def __init__(self, encoder, spec, options):
        super().__init__()
        self.encoder, self.spec = encoder, spec
        self.head = MlmHead(encoder, encoder.table)

    def forward(self, batch):
        states = self.encoder(batch.ids, batch.attention, batch.segments)
        loss = states.square().mean() * {used}
        return StepLoss(loss, {{"loss": loss}}, {{}})
"""


def swept(over: dict[str, str], words: list[str] | None = None, base: RunSpec = NANO, name: str | None = None) -> Job:
    return job_of(grid(name, space_of(over), None, base), base, 2, words or ["rtd"])


@pytest.mark.parametrize(
    ("name", "over", "words", "says"),
    [
        ("generator-size", {}, ["bert-mlm"], r"generator\.width, .* bert-mlm .* all 8 runs .*; vary another setting"),
        ("generator-size", {}, ["rtd", "bert-mlm"], r"all 8 runs .*; leave --objective bert-mlm out"),
        ("weight-tying", {}, ["bert-mlm"], "tying makes no difference to bert-mlm"),
        ("mask-rate", {}, ["causal-lm"], r"corruption\.rate makes no difference to causal-lm"),
        (None, {"corruption.mask": "0.8,0.9"}, ["rtd"], r"corruption\.mask makes no difference to rtd"),
        (None, {"head": "linear,dense"}, ["bert-mlm"], "head=linear and head=dense would train one model"),
        (None, {"optim.generator_lr": "1e-3,2e-3"}, ["bert-mlm"], r"optim\.generator_lr makes no difference"),
        (None, {"generator.depth": "0.5,1"}, ["rtd"], r"depth=0\.5 and generator\.depth=1 would .*; vary another"),
        (None, {"generator.depth": "0.5,1,2"}, ["rtd"], r"depth=0\.5 and generator\.depth=1 would .*; keep one"),
        (None, {"generator.depth": "0.5,1", "optim.lr": "1e-3,2e-3"}, ["rtd"], "depth makes .*; keep one of them"),
    ],
)  # fmt: skip
def test_a_setting_that_makes_no_difference_is_no_axis(
    name: str | None, over: dict[str, str], words: list[str], says: str
) -> None:
    with pytest.raises(InputError, match=says):
        swept(over, words, name=name)


@pytest.mark.parametrize(
    ("over", "base", "words"),
    [
        ({"generator.depth": "0.5,1"}, {"encoder.layers": 2}, "rtd"),
        ({"corruption.mask": "0.8,0.9"}, {}, "bert-mlm"),
        ({"corruption.generator_mask": "0.8,0.9"}, {}, "rtd"),
        ({"generator.temperature": "1,2"}, {"generator.kind": "unigram"}, "rtd"),
        ({"generator.kind": "unigram,uniform,ngram"}, {}, "rtd"),
        ({"tying": "none,embeddings,gdes"}, {}, "rtd"),
        ({"optim.generator_lr": "1e-3,2e-3"}, {}, "rtd"),
        ({"optim.lr": "1e-3,2e-3"}, {}, "bert-mlm"),
        ({"head": "linear,dense"}, {}, "rtd"),
        ({"options.weight": "1,2"}, {}, "rtd"),
    ],
)
def test_a_setting_that_makes_a_difference_is_an_axis(over: dict[str, str], base: dict[str, Any], words: str) -> None:
    job = swept(over, [words], NANO.changed(base))
    assert len(job.specs) == 2 * len(next(iter(space_of(over).values())))  # type: ignore[arg-type]


def test_a_generator_without_weights_has_none_to_share() -> None:
    with pytest.raises(InputError, match="tying makes no difference to rtd"):
        swept({"tying": "none,embeddings"}, base=NANO.changed({"generator.kind": "unigram"}))


def test_a_setting_that_the_cost_alone_reads_decides_how_long_a_run_trains(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    counted = "spec.data.length) + flops.lm_head(spec.encoder, spec.data.length, spec.picks)"
    path.write_text(OWN.format(used="1.0").replace("spec.data.length)", counted, 1))
    assert len(swept({"corruption.rate": "0.1,0.2"}, [str(path)]).specs) == 4


def test_a_run_that_several_cells_share_is_trained_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        job = swept({"generator.width": "0.25,0.5", "generator.kind": "transformer,unigram"})
    found = [(spec.generator.width, spec.generator.kind, spec.seed) for spec in job.specs]
    cells = [(0.25, "transformer"), (0.25, "unigram"), (0.5, "transformer")]
    assert found == [(*cell, seed) for seed in (0, 1) for cell in cells]
    [(cell, name)] = job.merged
    assert cell == {"generator.width": "0.5", "generator.kind": "unigram"} and name == job.specs[1].name
    (said,) = caplog.messages
    assert "width=0.5, generator.kind=unigram is the same model as generator.width=0.25, generator.kind=unigram" in said


def test_the_experiments_of_the_package_can_be_run_at_the_smallest_scale(caplog: pytest.LogCaptureFixture) -> None:
    """The generator of half the depth has the one layer of all the others there."""
    base = presets.resolve("nano")
    with caplog.at_level(logging.WARNING):
        for name, _, _ in listing():
            assert job_of(grid(name, {}, None, base), base, 1, []).several_arms, name
    said = [text for text in caplog.messages if "same model" in text]
    assert said == [
        "generator-size: generator.width=1.0, generator.depth=0.5 is the same model as generator.width=1.0 at these "
        "settings, so it is trained once, and shown by the second name"
    ]


def test_a_variant_with_an_objective_of_its_own_is_one_cell(caplog: pytest.LogCaptureFixture) -> None:
    found = Experiment("x", "?", {"objective": ("rtd", "bert-mlm")}, variants=({"objective": "electra-15"},))
    assert [spec.objective for spec in job_of(found, NANO, 1, []).specs] == ["rtd", "bert-mlm", "electra-15"]
    assert not caplog.messages


@pytest.mark.parametrize("used", [
    "1.0", "self.spec.generator.temperature", "self.spec.model_dump()['generator']['temperature']", "self.spec.picks",
    "undefined",
])  # fmt: skip
def test_a_file_of_ones_own_declares_nothing_of_what_it_reads(tmp_path: Path, used: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(OWN.format(used=used))
    over = {"generator.temperature": "1,2"} if "temp" in used else {"corruption.rate": "0.1,0.2"}
    if used == "1.0":
        with pytest.raises(InputError, match="no difference to mine"):
            swept(over, [str(path)])
    else:  # of a file that cannot be run, nothing is known
        assert len(swept(over, [str(path)]).specs) == 4


def test_a_search_needs_a_setting_that_makes_a_difference() -> None:
    base = NANO.changed({"tasks.names": ("linear:next",)})
    searched = Experiment("x", "?", {"objective": ("rtd", "bert-mlm")}, match="flops")
    idle = space_of({"generator.width": "0.25..0.5"})
    with pytest.raises(InputError, match=r"generator\.width makes no difference to bert-mlm .* all trials"):
        search_job(searched, base, Search(idle, 2), [])
    assert len(search_job(searched, base, Search(idle, 2), ["rtd"]).specs) == 1
    tuned = Search(idle | space_of({"optim.lr": "1e-4..1e-3"}), 2)
    assert len(tune_jobs(base, tuned, ["rtd", "bert-mlm"], "flops")[0].specs) == 2


def test_two_names_of_one_model_differ_in_what_is_not_read_alone() -> None:
    own = objectives.with_options(NANO.replace(objective="bert-mlm"))
    for key, value in {"generator.width": 0.5, "tying": "none", "optim.generator_lr": 1e-4}.items():
        other = own.changed({key: value})
        assert other.name != own.name and model_of(other) == model_of(own), key
    for key, value in {"optim.lr": 1e-4, "seed": 1, "data.length": 16, "budget.steps": 7, "encoder.layers": 2}.items():
        assert model_of(own.changed({key: value})) != model_of(own), key
