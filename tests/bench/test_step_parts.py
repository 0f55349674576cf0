"""Where the time of a step goes: the shares add up, and what is slowed down is found."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import CPU, small

import workbench.models.corruption
from workbench import objectives
from workbench.bench import turns
from workbench.bench.turns import NAMES, Parts, Watched
from workbench.data.corpus import Corpus
from workbench.data.prepare import bind
from workbench.spec.run_spec import RunSpec
from workbench.spec.stages import BoundRun
from workbench.store.run_store import RunStore
from workbench.training.loop import train
from workbench.training.plan import plan


def shares_of(spec: RunSpec, folder: Path, corpus_type: type[Watched] = Watched) -> dict[str, float]:
    """Return the shares of the parts of a step, over a few steps of the real trainer."""
    prepared = turns.made_up(folder / "data", spec, 10_000)
    spec = bind(spec, prepared)
    run = RunStore(folder / "runs").open(BoundRun(spec))
    host = replace(CPU, log_every=3, save_seconds=float("inf"))
    parts = Parts(host)
    found: dict[str, float] = {}

    def progress(step: int, steps: int, row: dict[str, Any]) -> None:
        if step == 3:
            parts.start()
        if step == 9:
            found.update(parts.stop())
            raise turns.Enough

    corpus = corpus_type(Corpus(prepared, spec.data.length, spec.seed, spec.data.pairs), parts)
    with run.lease(), suppress(turns.Enough):
        train(run, spec, plan(spec), corpus, host, run.check, progress)
    return found


@pytest.mark.parametrize("name", objectives.names())
def test_every_objective_has_shares_that_add_up(name: str, tmp_path: Path) -> None:
    before = {key: getattr(workbench.models.corruption, key) for key in ("mask_tokens", "sample_tokens")}
    shares = shares_of(small(name), tmp_path)
    assert tuple(shares) == NAMES
    assert sum(shares.values()) == pytest.approx(1)
    generator = name not in ("albert", "bert", "bert-mlm", "causal-lm", "permutation-lm")
    expected = set(NAMES) - (set() if generator else {"generator"}) - ({"sampling"} if name == "causal-lm" else set())
    assert {part for part, share in shares.items() if share > 0} >= expected
    assert shares["generator"] > 0 if generator else shares["generator"] == 0
    assert {key: getattr(workbench.models.corruption, key) for key in before} == before, "the marks were left in"


class SlowCorpus(Watched):
    def batch(self, position: int, rows: int, device: Any = "cpu") -> Any:
        if self.parts.running:
            self.parts.push("data")
            time.sleep(0.2)
            self.parts.pop()
        return super().batch(position, rows, device)


def test_a_slow_corpus_is_charged_to_data(tmp_path: Path) -> None:
    assert shares_of(small(), tmp_path / "slow", SlowCorpus)["data"] > 0.5


@pytest.mark.parametrize(
    ("place", "part"),
    [("workbench.models.corruption.mask_tokens", "sampling"), ("workbench.models.heads.BinaryHead.forward", "heads"),
     ("torch.nn.utils.get_total_norm", "optimizer"), ("workbench.store.checkpoint.Metrics.append", "logging")],
)  # fmt: skip
def test_what_is_slowed_down_is_found(place: str, part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    holder, _, name = place.rpartition(".")
    owner = _resolve(holder)
    plain = getattr(owner, name)

    def slow(*args: Any, **kwargs: Any) -> Any:
        time.sleep(0.2)
        return plain(*args, **kwargs)

    monkeypatch.setattr(owner, name, slow)
    shares = shares_of(small(), tmp_path)
    assert shares[part] == max(shares.values()), shares


def _resolve(dotted: str) -> Any:
    import importlib

    with suppress(ModuleNotFoundError):
        return importlib.import_module(dotted)
    holder, _, name = dotted.rpartition(".")
    return getattr(_resolve(holder), name)
