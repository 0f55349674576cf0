"""The cost of a fine-tuning against what the fine-tuner makes of its task."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from priced_tasks import LENGTH, WORDS, sentences, spec_of
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig

from workbench import tasks
from workbench.data import tokenizer
from workbench.models import flops
from workbench.models.heads import Sentences
from workbench.spec import presets
from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.spec.presets import resolve
from workbench.tasks._squad_model import limits, windows
from workbench.tasks._tagger import word_windows
from workbench.tasks.common import cost
from workbench.tasks.common.contract import Cost, Measure, Model, Suite, take
from workbench.tasks.common.examples import Examples, Tagged, Task
from workbench.tasks.common.token_rows import encode, open_splitter
from workbench.tasks.embeddings import Embedding
from workbench.tasks.linear_probe import LinearProbe
from workbench.tasks.minimal_pairs import PairSet
from workbench.tasks.squad import Question, Questions, Squad
from workbench.tasks.tagging import Tagging
from workbench.training.loop import build
from workbench.training.plan import plan

SPEC = TasksSpec(lr=3e-3, length=32, batch=8, seeds=2)
SIZES = resolve("nano", {"encoder.positions": 48})


def cost_of(measure: Measure, tokenizer: Path, spec: TasksSpec = SPEC) -> Cost:
    return measure.cost(SIZES, spec, tokenizer)


def forward(lengths: Any) -> float:
    """FLOPs of reading rows of these lengths."""
    return float(sum(flops.encoder(SIZES.encoder, int(length)).matmul for length in lengths))


def test_rows_of_texts_are_those_that_are_encoded(encoder: Path, keyword: Task) -> None:
    found, parts = cost_of(keyword, encoder), encode(encoder, keyword, 32)
    train, tests = parts["train"].lengths, [*parts["dev"].lengths, *parts["test"].lengths]
    assert sorted(found.lengths) == sorted(train.tolist())
    assert (found.steps, found.passes) == (6 * 256 // 8, 1)
    assert found.flops == pytest.approx(found.steps * 8 * 3 * forward(train) / len(train) + forward(tests))
    assert cost_of(keyword, encoder, SPEC.model_copy(update={"epochs": 0.5})).steps == 16


def test_folds_and_doubled_pairs_are_counted(encoder: Path, keyword: Task, lengths: Any) -> None:
    folds = tuple(tuple(range(part, 256, 4)) for part in range(4))
    assert cost_of(replace(keyword, folds=folds), encoder).steps == 4 * 6 * 192 // 8
    twice = cost_of(lengths, encoder, SPEC.model_copy(update={"doubled": True}))
    assert twice.steps == 2 * cost_of(lengths, encoder).steps


def test_a_choice_counts_questions_with_all_their_answers(encoder: Path) -> None:
    rows = Examples(["bada"] * 30, ["keda kefe"] * 30, [1, 0, 0] * 10, [n // 3 for n in range(30)])
    choice = Task("c", "table", ("a", "b"), "accuracy", ("accuracy",), 10.0, rows, {"dev": rows}, choice=True)
    found = cost_of(choice, encoder)
    assert found.steps == 10 * 2 and len(found.lengths) == 30
    whole = forward(found.lengths)
    assert found.flops == pytest.approx(found.steps * 8 * 3 * whole / 10 + whole)


def test_long_sentences_are_counted_in_windows(encoder: Path) -> None:
    words = [["bada"] * count for count in (1, 5, 60, 23)]
    tagging = Tagging("t", ("A", "B"), 2, "", Tagged(words, [[0] * len(each) for each in words]), {})
    found = cost_of(tagging, encoder)
    rows = word_windows(open_splitter(encoder, 32, "tagging"), words, False).rows
    assert abs(len(found.lengths) - len(rows)) <= 1
    assert sum(found.lengths) == pytest.approx(sum(rows.lengths), rel=0.1)


def test_questions_are_counted_in_windows(encoder: Path) -> None:
    paragraphs = [" ".join(["bada"] * count) for count in (5, 200)]
    asked = [Question(f"q{n}", "kefe lofe", n % 2, (("bada", 0),), False, "x") for n in range(6)]
    squad = Squad("squad1", False, Questions(paragraphs, asked), {"dev": Questions(paragraphs, asked)})
    spec = SPEC.model_copy(update={"squad_length": 40})
    found = cost_of(squad, encoder, spec)
    config = AutoConfig.from_pretrained(encoder)
    made = windows(encoder, config, {"train": squad.train}, limits(encoder, config, spec))["train"]
    assert abs(len(found.lengths) - len(made)) <= 3
    assert sum(found.lengths) == pytest.approx(sum(made.lengths), rel=0.15)


def test_contrastive_pairs_have_two_rows_and_tests_are_read_twice(encoder: Path) -> None:
    part = Examples(("bada",) * 20, ("keda kefe",) * 20, tuple(map(float, range(20))))
    found = cost_of(Embedding("e", "similarity", {"dev": part}, train=part), encoder)
    assert len(found.lengths) == 40 and found.steps == 9 and found.passes == 2
    whole = forward(found.lengths)
    assert found.flops == pytest.approx(found.steps * 8 * 3 * whole / 20 + 2 * whole)


# ---- The cost of a measure, by which points during training are chosen ----


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("words")
    tokenizer.save(tokenizer.train([" ".join(WORDS)] * 300, 80), folder, True)
    return folder


@pytest.fixture(scope="module")
def pairs() -> PairSet:
    return PairSet("toy", "pairs", sentences(50), sentences(50, 400), {"kind": ["a"] * 50})


@pytest.fixture(scope="module")
def probe() -> LinearProbe:
    rows = Examples(sentences(40), None, [i % 2 for i in range(40)])
    return LinearProbe("linear:x", "texts", ("a", "b"), "accuracy", ("accuracy",), rows, {"t": rows})


@pytest.mark.parametrize("name", ["bert-mlm", "rtd", "replace-mlm", "all-tokens-mlm", "electra-15"])
def test_pairs_cost_no_more_than_their_price_whoever_scores(name: str, words: Path, pairs: PairSet) -> None:
    """Compared with torch's own counter for both usual scorers of every objective, at real sizes."""
    spec = spec_of(name, encoder__attention="eager", encoder__vocab=8192)
    model: Any = build(spec).eval()
    tokens = LENGTH + 2
    ids = torch.randint(5, 8000, (10, tokens))
    ids[:, 0], ids[:, -1] = spec.data.special.cls, spec.data.special.sep
    text = Sentences(ids, None, torch.arange(tokens).repeat(10, 1))
    usual = list(model.scorers().items())
    own, beside = usual[0][1], dict(usual).get("generator-pll")
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        for scorer in (own, *([beside] if beside else [])):
            scorer(text)
    stated = pairs.cost(spec, spec.tasks, words).flops / len({*pairs.good, *pairs.bad}) * 10
    assert 0 < counter.get_total_flops() <= stated
    if name == "bert-mlm":
        assert counter.get_total_flops() > 0.4 * stated, "an upper bound, but no empty one"


def test_the_price_is_the_same_for_every_objective(words: Path, pairs: PairSet, probe: LinearProbe) -> None:
    for measure in (pairs, probe):
        found = {
            measure.cost(spec_of(name), spec_of().tasks, words).flops for name in ("bert-mlm", "rtd", "electra-15")
        }
        assert len(found) == 1


def test_a_word_more_costs_the_square(words: Path) -> None:
    def of(length: int) -> float:
        texts = [" ".join(text.split()[:length]) for text in sentences(10)]
        made = PairSet("toy", "pairs", texts, texts, {"kind": ["a"] * 10})
        return made.cost(spec_of(), spec_of().tasks, words).flops / len(set(texts))

    assert of(6) / of(3) == pytest.approx((7 * 8) / (4 * 5), rel=0.15)


# ---- Scores during training: what they cost, and how many points `auto` chooses ----


@pytest.mark.parametrize("steps", [3, 100, 300, 1000, 3000, 10_000, 100_000])
def test_auto_stays_below_five_per_cent(steps: int, words: Path, pairs: PairSet, probe: LinearProbe) -> None:
    spec = spec_of(steps=steps)
    found = cost.series(spec, plan(spec), spec.tasks, Suite((pairs, probe)), words)
    assert sum(one.share for one in found) < 0.05
    assert [one.each for one in found] == sorted(one.each for one in found)
    assert all(len(one.points) <= 6 for one in found)
    if steps == 100_000:
        assert [len(one.points) for one in found] == [6, 6]


def test_cheaper_suites_come_first_and_points_are_shared(words: Path, pairs: PairSet, probe: LinearProbe) -> None:
    suite = Suite((pairs, probe))
    some = [
        cost.series(spec, plan(spec), spec.tasks, suite, words)
        for spec in (spec_of(steps=steps) for steps in (*range(3, 20), *range(20, 4000, 20)))
    ]
    counts = {tuple(len(one.points) for one in found) for found in some}
    assert counts >= {(6, 0), (6, 3), (6, 6)}
    for first, second in some:
        assert set(second.points) <= set(first.points) or len(second.points) > len(first.points)
        assert second.share == 0 or first.points


def test_what_is_asked_for_is_taken_whatever_it_costs(words: Path, pairs: PairSet) -> None:
    spec = spec_of(steps=100, tasks__at="log:4")
    (found,) = cost.series(spec, plan(spec), spec.tasks, Suite((pairs,)), words)
    assert len(found.points) == 4 and found.share > 0.05
    for setting in ({"tasks__at": "none"}, {"tasks__held_out": 0.2}, {"steps": 0}):
        other = spec_of(**({"tasks__at": "log:4"} | setting))  # type: ignore[arg-type]
        assert cost.series(other, plan(other), other.tasks, Suite((pairs,)), words) == []


def test_the_plan_says_how_many_points_and_what_they_cost(words: Path, pairs: PairSet, probe: LinearProbe) -> None:
    spec = spec_of(steps=900)
    runs = [cost.series(spec, plan(spec), spec.tasks, Suite((pairs, probe)), words)]
    told = cost.schedule_sentence(cost.schedule_rows(runs), "auto")
    each = [
        f"{one.suite} at {len(one.points)} points (at most {100 * one.share:.2g} % of a run's compute)"
        for one in runs[0]
    ]
    assert told == f"scores during training: {each[0]}, {each[1]}"
    assert cost.schedule_sentence([], "auto") == ""
    one_point = {"suite": "blimp", "least_points": 1, "most_points": 1, "all_points": 0.02, "one_point": 0.02}
    assert cost.schedule_sentence([one_point], "words").endswith("blimp at 1 point (at most 2 % of a run's compute)")


# ---- The time that fine-tuning takes, from its workload ----

CPU = Host(device="cpu", threads=1, precision="fp32")


@pytest.mark.slow
def test_the_time_is_that_of_the_fine_tuner(
    electra: Callable[..., Path], keyword: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By processor time on one thread, so that other work on the machine matters little."""
    sizes = {"hidden_size": 64, "num_hidden_layers": 4, "intermediate_size": 256}
    folder = electra(**sizes)
    base = presets.resolve("nano", {
        "encoder.hidden": 64, "encoder.layers": 4, "encoder.embedding": 16, "encoder.vocab": 80, "encoder.heads": 2,
        "encoder.positions": 48,
    })  # fmt: skip
    spec = SPEC.model_copy(update={"batch": 32, "epochs": 40.0})  # so long that loading the encoder matters little
    monkeypatch.setattr(cost.time, "perf_counter", time.process_time)
    stated = keyword.cost(base, spec, folder)
    (told,) = cost.tuning_seconds(base, [stated], spec, CPU)
    begun = time.process_time()
    score = take(keyword, Model(folder, spec, 0), CPU)
    taken = time.process_time() - begun
    assert score.steps == stated.steps and 0.5 < told / taken < 2


def test_seconds_follow_from_products_and_steps(monkeypatch: pytest.MonkeyPatch, keyword: Task) -> None:
    base = presets.resolve("nano")
    monkeypatch.setattr(cost, "_timed", lambda spec, tasks, host, rows, length: 0.5 + length / 16)
    forward = flops.encoder(base.encoder, 16).matmul
    tuning = Cost(10 * 32 * 3 * forward, 10, lengths=(16,))
    (seconds,) = cost.tuning_seconds(base, [tuning], TasksSpec(batch=32), CPU)
    assert seconds == pytest.approx(10 * 1.5, rel=0.02)
    tested = replace(tuning, flops=tuning.flops + 320 * forward)
    (more,) = cost.tuning_seconds(base, [tested], TasksSpec(batch=32), CPU)
    assert more - seconds == pytest.approx(10 * 1.0 / 3, rel=0.1)  # a forward pass is a third of a step


def test_the_plan_counts_encoders_seeds_and_workers(
    encoder: Path, keyword: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cost, "tuning_seconds", lambda spec, works, tasks, host: [60.0 for _ in works])
    specs = [presets.resolve("nano", {"seed": seed}) for seed in range(3)]
    suite = Suite((keyword, replace(keyword, name="other")), {"CoLA": "no folder"})
    sentence, rows = cost.planned_time(specs, suite, SPEC, encoder, CPU, 1)
    assert sentence.startswith("fine-tuning time for 3 encoders, untrained ones included: about 12 min")
    assert sentence.endswith("(a few steps timed; one fine-tuning takes keyword 1 min 0 s, other 1 min 0 s); without "
                             "CoLA, which are not there")  # fmt: skip
    assert [(row["task"], row["times"], row["seconds"]) for row in rows] == [("keyword", 6, 60.0), ("other", 6, 60.0)]
    assert "about 6 min" in cost.planned_time(specs, suite, SPEC, encoder, CPU, 2)[0]


def test_only_names_that_train_an_encoder_are_priced(tmp_path: Path) -> None:
    names = ("linear", "similarity:STS-B", "probes", "RTE", "pairs", f"tag:{tmp_path}")
    assert tasks.fine_tuned_only(TasksSpec(names=names)).names == ("probes", "RTE", f"tag:{tmp_path}")
    contrastive = tasks.fine_tuned_only(TasksSpec(names=names, embeddings="contrastive"))
    assert contrastive.names == ("similarity:STS-B", "probes", "RTE", f"tag:{tmp_path}")
    assert not tasks.fine_tuned_only(TasksSpec(names=("pairs",))).chosen
