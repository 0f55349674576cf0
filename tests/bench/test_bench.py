"""`workbench bench`: it measures the real training loop, its shares add up, and disturbances are reported."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import tracemalloc
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import workbench.models.corruption
from workbench import bench, objectives
from workbench.bench import machine, turns
from workbench.bench.step_parts import NAMES, Parts, Watched
from workbench.data.corpus import Corpus
from workbench.data.prepare import bind
from workbench.report import write_bench
from workbench.spec.host import Host
from workbench.spec.presets import resolve
from workbench.spec.run_spec import RunSpec
from workbench.spec.stages import BoundRun
from workbench.store.run_store import RunStore
from workbench.training.loop import train
from workbench.training.plan import plan

SMALL = {
    "encoder.hidden": 32, "encoder.layers": 1, "encoder.heads": 2, "encoder.vocab": 300, "encoder.positions": 32,
    "data.length": 32, "batch.size": 4, "generator.width": 0.5, "budget.steps": 10**6,
}  # fmt: skip
CPU = Host(device="cpu", precision="fp32", threads=1)


def small(objective: str = "rtd") -> RunSpec:
    return objectives.with_options(resolve("nano", SMALL).replace(objective=objective))


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


def test_an_objective_that_loads_no_corruption_is_measured() -> None:
    """As causal LM in a process of its own."""
    code = (
        "import sys; from workbench.bench.step_parts import NAMES, Parts; from workbench.spec.host import Host; "
        "parts = Parts(Host(device='cpu')); parts.start(); assert set(parts.stop()) == set(NAMES); "
        "assert 'workbench.models.corruption' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


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
     ("torch.nn.utils.get_total_norm", "optimizer"), ("workbench.tracking.Metrics.append", "logging")],
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


def test_cells_shrink_to_patience_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = objectives.with_options(resolve("small", {"budget.steps": 10**6}))
    whole = bench.fitted(spec, CPU, 1e15)
    assert (whole.rows, whole.skipped) == (128, "") or whole.rows < 128  # a machine of little memory
    slow = bench.fitted(spec, CPU, 1e10)
    assert 1 <= slow.rows < whole.rows
    monkeypatch.setattr(bench, "available_memory", lambda host: 2**20)
    tiny = bench.fitted(spec, CPU, 1e15)
    assert tiny.rows == 1
    assert "GiB" in tiny.skipped


def test_ten_billion_tokens_take_no_more_memory_than_a_million(tmp_path: Path) -> None:
    spec, peaks = small(), []
    for tokens in (10**6, 10**10):
        corpus = Corpus(turns.made_up(tmp_path / str(tokens), spec, tokens, sparse=True), spec.data.length, 0)
        assert corpus.rows == tokens // (spec.data.length - 2)
        corpus.batch(0, 32)
        tracemalloc.start()
        for place in range(0, 20 * 32, 32):
            assert corpus.batch(place, 32).ids.shape == (32, spec.data.length)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]


def test_a_busy_machine_is_said() -> None:
    quiet = machine.Quiet()
    assert quiet.notes() == []
    quiet.elapsed, quiet.others = 10.0, 0.01
    assert quiet.notes() == []
    quiet.others, quiet.stolen = 1e4, 1e4
    assert ["other processes" in quiet.notes()[0], "other machines" in quiet.notes()[1]] == [True, True]


def test_peak_memory_is_this_process_s() -> None:
    code = (
        "from workbench.memory import peak_memory; before = peak_memory('cpu'); x = b'x' * 2**28; "
        "print(peak_memory('cpu') - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 2**27 < int(done.stdout) < 2**29


ROW: dict[str, Any] = {
    "objective": "<b>mine</b>", "scale": "nano", "precision": "fp32", "device": "cpu", "compile": False, "rows": 32,
    "batch_size": 32, "length": 32, "parameters": 1000, "tokens_per_second": 40_000.0, "seconds_per_step": 0.0256,
    "seconds_spread": [0.025, 0.03], "steps": 300, "model_flops_utilisation": 0.4, "ceiling_flops_per_second": 2e11,
    "peak_memory_bytes": 3 * 2**28, "shares": {name: 1 / len(NAMES) for name in NAMES}, "notes": ["not quiet: <i>"],
    "skipped": None, "machine": {"cpu": "Some CPU", "cores": 2, "gpu": None}, "versions": {"torch": "2.13"},
    "workbench": "0", "git": None, "threads": 2, "started": "2026-11-21T08:00:00+00:00",
}  # fmt: skip


def test_the_page_stands_alone_and_escapes_names(tmp_path: Path) -> None:
    lacking = ROW | {"scale": "large", "skipped": "one row needs about 9.9 GiB"}
    lacking |= dict.fromkeys(("tokens_per_second", "seconds_per_step", "seconds_spread", "shares"))
    page = write_bench([ROW, ROW | {"objective": "rtd"}, lacking], tmp_path).read_text(encoding="utf-8")
    assert "<b>mine" not in page and "&lt;b&gt;mine" in page
    assert "one row needs about 9.9 GiB" in page and "40,000" in page
    assert "http://" not in page.replace("http://www.w3.org", "") and "style=" not in page
    assert page.count("<svg") == 2
    assert len(json.loads((tmp_path / "bench.json").read_text())) == 3


def test_the_command(tmp_path: Path) -> None:
    sets = [word for key, value in SMALL.items() if key != "budget.steps" for word in ("--set", f"{key}={value}")]
    done = subprocess.run(
        [sys.executable, "-m", "workbench", "bench", "--scale", "nano", "--objective", "rtd", "--steps", "2",
         "--repeats", "2", "--device", "cpu", "--threads", "1", "--json", "--out", str(tmp_path), *sets],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    assert (row["objective"], row["scale"], row["precision"]) == ("rtd", "nano", row["precision"])
    assert row["tokens_per_second"] == pytest.approx(4 * 32 / row["seconds_per_step"])
    assert row["steps"] == 4
    assert 0 < row["model_flops_utilisation"] < 1
    assert sum(row["shares"].values()) == pytest.approx(1)
    assert 100 * 2**20 < row["peak_memory_bytes"] < 4 * 2**30
    assert (tmp_path / "index.html").is_file()


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--scale", "tiny"], "unknown scale 'tiny'"), (["--objective", "rdt"], "did you mean 'rtd'"),
     (["--set", "encoder.hiden=3"], "hiden")],
)  # fmt: skip
def test_bad_words_are_refused(words: list[str], said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "workbench", "bench", *words], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 2
    assert said in done.stderr and "Traceback" not in done.stderr
