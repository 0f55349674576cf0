"""The loop of a fine-tuning."""

from __future__ import annotations

import json
import math
import os
import signal
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from workbench.errors import Interrupted
from workbench.execution.published_runs import evaluate
from workbench.process import interrupting
from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.store import checkpoint
from workbench.store.run_directory import RunDir
from workbench.tasks.common.contract import Model, Score, Suite, score_name, take
from workbench.tasks.common.cost import step_count
from workbench.tasks.common.encoder_folders import Classifier
from workbench.tasks.common.examples import Task
from workbench.tasks.common.fine_tuning import Unfinished, layer_factor, layerwise_optimizer, recipe, setting
from workbench.training.optimizer import lr_factor
from workbench.training.plan import warmup_steps

SPEC = TasksSpec(lr=3e-3, layer_decay=0.9, length=32, dropout=0.1)

CPU = Host(device="cpu")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_that_got_lost_in_between_ends_it_at_the_next_step(encoder: Path, keyword: Task) -> None:
    class Loses:
        def __del__(self) -> None:  # what is raised in here is dropped
            os.kill(os.getpid(), signal.SIGTERM)
            for _ in range(100):
                pass

    def progress(step: int, steps: int) -> None:
        assert step == 1 < steps
        Loses()

    with interrupting(), pytest.raises(Interrupted):
        take(keyword, Model(encoder, SPEC, 0, progress), CPU)


@pytest.mark.parametrize(
    ("rows", "epochs", "steps"), [(64, 3.0, 6), (65, 3.0, 9), (33, 0.5, 1), (1, 0.1, 1), (320, 2.5, 25)]
)
def test_steps_are_those_of_the_epochs_with_a_last_batch_that_may_be_short(
    rows: int, epochs: float, steps: int
) -> None:
    assert step_count(rows, epochs, TasksSpec(batch=32)) == steps


def test_draws_are_a_function_of_task_and_seed_and_leave_those_outside_alone() -> None:
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    drawn = {}
    for task, seed in (("a", 0), ("a", 1), ("b", 0), ("a", 0)):
        with setting(task, seed, CPU) as where:
            drawn.setdefault((task, seed, where.order), []).append(torch.rand(3).tolist())
    assert torch.equal(torch.random.get_rng_state(), before)
    values = [tuple(each[0]) for each in drawn.values()]
    assert len(drawn) == 3 and len(set(values)) == 3
    assert drawn["a", 0, next(order for task, seed, order in drawn if (task, seed) == ("a", 0))][1] == list(values[0])


# ---- Learning rates of fine-tuning ----


def test_the_released_codes_numbers() -> None:
    """For 12 layers and a decay of .8 the released code prints .044, .055, .64 and 1.0 (docs/electra.md 5)."""
    spec = TasksSpec(layer_decay=0.8, extra_decay=True)
    found = [layer_factor(name, 12, spec) for name in ("embeddings.x", "layer.0.x", "layer.11.x")]
    assert [round(x, 3) for x in found] == [0.044, 0.055, 0.64]


def test_the_papers_one_power_a_layer() -> None:
    spec = TasksSpec(layer_decay=0.8)
    for place in range(12):  # the top layer is one below the head
        assert layer_factor(f"layer.{place}.x", 12, spec) == pytest.approx(0.8 ** (12 - place))
    assert layer_factor("embeddings.x", 12, spec) == pytest.approx(0.8**13)


FAMILIES: dict[str, dict[str, Any]] = {
    "electra": {"embedding_size": 8},
    "bert": {},
    "roberta": {},
    "albert": {"embedding_size": 8, "inner_group_num": 1},
    "deberta-v2": {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
    "mpnet": {},
    "modernbert": {"pad_token_id": 0, "cls_token_id": 1, "sep_token_id": 2, "bos_token_id": 1, "eos_token_id": 2},
}


@pytest.mark.parametrize("family", FAMILIES)
def test_depth_of_every_weight_of_a_family(family: str) -> None:
    from transformers import AutoConfig, AutoModel

    sizes = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2,
             "intermediate_size": 32}  # fmt: skip
    config = AutoConfig.for_model(family, **sizes, **FAMILIES[family])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        encoder = AutoModel.from_config(config)
    half = TasksSpec(layer_decay=0.5)
    found = {name: 4 + math.log2(layer_factor(name, 3, half)) for name, _ in encoder.named_parameters()}
    tables = [name for name in found if "embedding" in name]
    assert tables and all(found[name] == 0 for name in tables)
    if family == "albert":  # its layers are all one
        assert set(found.values()) == {0, 3}
    else:
        assert set(found.values()) == {0, 1, 2, 3}
        for name, place in found.items():
            for layer in range(3):
                if f".{layer}." in name and "layer" in name:
                    assert place == layer + 1, name
    spec = TasksSpec(layer_decay=0.5, weight_decay=0.1)
    model = Classifier(encoder, 2, 0.0)
    groups = layerwise_optimizer(model, spec).param_groups
    grouped = {id(p): (g["ratio"], g["decay"]) for g in groups for p in g["params"]}
    assert len(grouped) == len(list(model.parameters())) == sum(len(g["params"]) for g in groups)
    for name, parameter in model.named_parameters():
        inside = name.startswith("encoder.")
        factor = 0.5 ** (4 - found[name.removeprefix("encoder.")]) if inside else 1.0
        plain = name.endswith("bias") or "norm" in name.lower().rsplit(".", 2)[-2]
        assert grouped[id(parameter)] == (pytest.approx(factor), 0.0 if plain else 0.1), name


def factors(spec: TasksSpec, steps: int) -> list[float]:
    schedule = recipe(spec)[1]
    return [lr_factor(step, steps, warmup_steps(schedule, steps), schedule) for step in range(steps)]


def test_warm_up_is_a_tenth() -> None:
    rates = factors(TasksSpec(), 100)
    assert rates[10] == 1.0 and rates[0] == pytest.approx(1 / 11) and rates[55] == pytest.approx(0.5)
    both = factors(TasksSpec(overlap=True), 100)
    assert both[5] == pytest.approx(0.5 * 0.95) and both[10] == pytest.approx(0.9) and both[0] == 0.0


def test_norms_of_encoders_by_others_are_not_decayed_whatever_their_name() -> None:
    """GPT-2 calls them `ln_1`, `ln_2` and `ln_f`, which the released list of names does not have."""
    from transformers import GPT2Config, GPT2Model

    model = Classifier(GPT2Model(GPT2Config(vocab_size=40, n_embd=16, n_layer=2, n_head=2)), 2, 0.0)
    groups = layerwise_optimizer(model, TasksSpec(weight_decay=0.1)).param_groups
    decays = {id(p): g["decay"] for g in groups for p in g["params"]}
    found = {name: decays[id(p)] for name, p in model.named_parameters()}
    assert {name for name, decay in found.items() if not decay} == {
        name for name in found if ".ln_" in name or name.endswith("bias")
    }
    assert set(found.values()) == {0.0, 0.1}


# ---- A fine-tuning that was interrupted goes on exactly ----

SPEC_UNFINISHED = TasksSpec(lr=3e-3, layer_decay=0.9, length=32, dropout=0.1, seeds=1)
EVERY_STEP = Host(device="cpu", save_every=1)
NEVER = Host(device="cpu", save_seconds=float("inf"))
WEIGHTS = {"encoder": "0" * 16}


class Stop(Exception):
    """Stands for the end of the process: nothing of the fine-tuning runs after it."""


def stop_at(step: int) -> Callable[[int, int], None]:
    def progress(now: int, steps: int) -> None:
        if now == step:
            raise Stop

    return progress


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    (tmp_path / "run").mkdir()
    return RunDir(tmp_path / "run")


def same(score: Score, other: Score) -> bool:
    return replace(score, seconds=0.0) == replace(other, seconds=0.0)


def steps_of(run: RunDir) -> list[int]:
    return [step for folder in (run.path / "unfinished").glob("*") for step in checkpoint.steps(folder)]


def test_a_signal_saves_the_state_after_the_step(encoder: Path, keyword: Task, run: RunDir) -> None:
    state = Unfinished(run, "a.json", WEIGHTS)
    whole = take(keyword, Model(encoder, SPEC_UNFINISHED, 0), NEVER)

    def progress(step: int, steps: int) -> None:
        if step == 4:
            os.kill(os.getpid(), signal.SIGTERM)

    with interrupting(), pytest.raises(Interrupted):
        take(keyword, Model(encoder, SPEC_UNFINISHED, 0, progress, state), NEVER)
    assert steps_of(run) == [5]  # the signal arrives after step 4, and the step that it interrupts is completed
    score = take(keyword, Model(encoder, SPEC_UNFINISHED, 0, None, state), NEVER)
    assert same(score, whole)
    assert score.seconds > 0


def test_the_time_of_earlier_processes_is_counted(encoder: Path, keyword: Task, run: RunDir) -> None:
    state = Unfinished(run, "a.json", WEIGHTS)
    with pytest.raises(Stop):
        take(keyword, Model(encoder, SPEC_UNFINISHED, 0, stop_at(3), state), EVERY_STEP)
    file = next(path for path in (run.path / "unfinished" / "a").glob("step-*"))
    saved = checkpoint.newest(file.parent)
    assert saved is not None and 0 < saved.state["seconds"] < 60
    content = {**saved.state, "seconds": 5000.0}
    checkpoint.save(file.parent, 4, {g: saved.tensors(g) for g in ("model", "optimizer", "draws")}, content)
    assert 5000 < take(keyword, Model(encoder, SPEC_UNFINISHED, 0, None, state), NEVER).seconds < 5060


@pytest.mark.parametrize("fault", ["damaged", "other weights", "a-1.json", "b-0.json"])
def test_a_state_that_cannot_be_used_is_named_and_deleted(
    encoder: Path, keyword: Task, run: RunDir, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is damaged, belongs to other weights, or lies in the place of another score."""
    task, state = replace(keyword, epochs=1.0), Unfinished(run, "a-0.json", WEIGHTS)
    with pytest.raises(Stop):
        take(task, Model(encoder, SPEC_UNFINISHED, 0, stop_at(3), state), Host(device="cpu", save_every=2))
    folder = run.path / "unfinished" / "a-0"
    if fault == "damaged":
        weights = folder / "step-00000002" / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-1] + b"\1")
    elif fault == "other weights":
        state = Unfinished(run, "a-0.json", {"encoder": "1" * 16})
    else:
        state = Unfinished(run, fault, WEIGHTS)
        folder.rename(folder.with_name(Path(fault).stem))
    taken: list[int] = []
    score = take(task, Model(encoder, SPEC_UNFINISHED, 1, lambda step, steps: taken.append(step), state), NEVER)
    assert taken == list(range(1, 9))
    assert "unfinished" in caplog.text and "begins again" in caplog.text
    assert ("belongs to 'unfinished/a-0'" in caplog.text) == fault.endswith(".json")
    assert same(score, take(task, Model(encoder, SPEC_UNFINISHED, 1), NEVER))


def test_evaluation_goes_on_and_deletes_the_state_once_the_score_is_stored(
    encoder: Path, keyword: Task, run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workbench.execution import published_runs as evaluation

    monkeypatch.setattr(RunDir, "weight_digests", lambda self, place="": WEIGHTS)
    suite = Suite((replace(keyword, epochs=1.0),))
    with pytest.raises(Stop):
        display = Display(stop_at(6))
        monkeypatch.setattr(evaluation.progress, "measuring", lambda name, count: display)
        evaluate(encoder, suite, SPEC_UNFINISHED, "nano", EVERY_STEP, run)
    assert steps_of(run) == [5, 6]
    run.fail_score(score_name(suite.tasks[0], SPEC_UNFINISHED, 0), "keyword", 0, "diverged", "it diverged")
    display.each = taken = []  # type: ignore[assignment]
    evaluate(encoder, suite, SPEC_UNFINISHED, "nano", EVERY_STEP, run)
    assert taken == [7, 8]
    (file,) = (run.path / "scores").iterdir()
    assert json.loads(file.read_text())["steps"] == 8
    assert not any((run.path / "unfinished").iterdir()) and not run.failures()


class Display(nullcontext[Any]):
    """Stands for the progress bar; it hands each step to a function or keeps it in a list."""

    def __init__(self, each: Any) -> None:
        super().__init__(self)
        self.each = each

    def step(self, task: str, step: int, steps: int) -> None:
        if isinstance(self.each, list):
            self.each.append(step)
        else:
            self.each(step, steps)

    def scored(self, task: str, value: float | None) -> None:
        pass
