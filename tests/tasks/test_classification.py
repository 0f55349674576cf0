"""Fine-tuning: it learns, it repeats itself exactly, and what it reports is what the model answers."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import scipy.stats
import sklearn.metrics
import torch
from objective_oracle import tiny

from workbench import objectives
from workbench.errors import Diverged, InputError
from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.store.run_directory import RunDir
from workbench.tasks import glue
from workbench.tasks.common import classification as module
from workbench.tasks.common.classification import LanguageLoss, task_loss
from workbench.tasks.common.contract import Model, take
from workbench.tasks.common.encoder_folders import Classifier, load_encoder
from workbench.tasks.common.examples import Task, limited
from workbench.tasks.common.sentence_scorers import put_together
from workbench.tasks.common.token_rows import encode

SPEC = TasksSpec(lr=3e-3, layer_decay=0.9, length=32, dropout=0.1)
CPU = Host(device="cpu")


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[tuple[np.ndarray, np.ndarray]]:
    """(predicted, true) of every test part that is measured."""
    seen: list[tuple[np.ndarray, np.ndarray]] = []
    judged = module.judged

    def spy(kind: str, names: Any, outputs: Any, true: Any, *more: Any) -> dict[str, float]:
        seen.append((outputs[:, 0] if kind == "regression" else outputs.argmax(1), np.array(true)))
        return judged(kind, names, outputs, true, *more)

    monkeypatch.setattr(module, "judged", spy)
    return seen


def test_it_learns_and_reports_what_it_answers(encoder: Path, keyword: Task, answers: list[Any]) -> None:
    score = take(keyword, Model(encoder, SPEC, 0), CPU)
    (dev, dev_true), (test, test_true) = answers
    assert dev_true.tolist() == keyword.tests["dev"].targets and test_true.tolist() == keyword.tests["test"].targets
    assert score.value == score.values["dev"]["accuracy"]
    assert score.values["dev"]["accuracy"] == pytest.approx(100 * sklearn.metrics.accuracy_score(dev_true, dev))
    assert score.values["test"]["matthews"] == pytest.approx(100 * sklearn.metrics.matthews_corrcoef(test_true, test))
    assert score.value > 85
    assert score.details["items"] == "".join("-+"[bool(a == b)] for a, b in zip(dev, dev_true, strict=True))
    assert (score.train_rows, score.test_rows, score.steps) == (256, 101, 6 * 8)
    assert score.baselines == keyword.baselines()


def test_regression_learns_in_its_own_unit(encoder: Path, lengths: Task, answers: list[Any]) -> None:
    score = take(lengths, Model(encoder, SPEC, 0), CPU)
    ((predicted, true),) = answers
    assert score.values["dev"]["spearman"] == pytest.approx(100 * scipy.stats.spearmanr(predicted, true).statistic)
    assert score.values["dev"]["pearson"] == pytest.approx(100 * scipy.stats.pearsonr(predicted, true).statistic)
    assert score.value > 50
    assert -0.5 < predicted.mean() < 1.5 and true.max() == 11  # trained on 0 to 1, measured against the raw numbers


def test_the_encoder_folder_is_left_alone(encoder: Path, keyword: Task) -> None:
    before = {path.name: path.read_bytes() for path in encoder.iterdir()}
    take(replace(keyword, epochs=0.2), Model(encoder, SPEC, 0), CPU)
    assert before == {path.name: path.read_bytes() for path in encoder.iterdir()}


def test_padding_and_batching_change_no_answer(encoder: Path, lengths: Task) -> None:
    """Batched predictions equal those of each row alone, in the order of the data."""
    torch.manual_seed(0)
    model = Classifier(load_encoder(encoder, 0.1), 3, 0.1).eval()
    data = encode(encoder, lengths, 32)["dev"]
    together = module.predict(model, data, "cpu")
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(encoder)
    with torch.no_grad():
        for row, pair in enumerate(lengths.tests["dev"].pairs()):
            alone = model(dict(tokenizer(*pair, return_tensors="pt", truncation=True, max_length=32)))
            assert np.allclose(alone.numpy()[0], together[row], atol=1e-5)


def test_losses() -> None:
    outputs = torch.tensor([[1.0, -1.0], [0.5, 2.0], [0.0, 0.0]])
    targets = torch.tensor([0, 0, 1])
    task = Task("t", "table", ("a", "b"), "accuracy", ("accuracy",), 3.0, None, {})  # type: ignore[arg-type]
    logs = [np.log(np.exp(row).sum()) - row[t] for row, t in zip(outputs.numpy(), targets, strict=True)]
    assert task_loss(outputs, targets, task, False).item() == pytest.approx(np.mean(logs))
    assert task_loss(outputs, targets, task, True).item() == pytest.approx(np.sum(logs))
    regression = replace(task, labels=(), span=(0.0, 5.0))
    errors = [(o - t / 5) ** 2 for o, t in zip((1.0, 0.5, 0.0), (5.0, 0.0, 2.5), strict=True)]
    numbers = torch.tensor([5.0, 0.0, 2.5])
    assert task_loss(outputs[:, :1], numbers, regression, False).item() == pytest.approx(np.mean(errors))
    assert task_loss(outputs[:, :1], numbers, regression, True).item() == pytest.approx(np.sum(errors))


@pytest.mark.parametrize("flag", ["sum_loss", "overlap", "extra_decay", "bias_correction"])
def test_released_ways_change_the_outcome(encoder: Path, lengths: Task, flag: str, answers: list[Any]) -> None:
    short = SPEC.model_copy(update={"epochs": 1.0, "clip": 1e9, "warmup": 0.5})
    for spec in (short, short.model_copy(update={flag: not getattr(short, flag)})):
        take(lengths, Model(encoder, spec, 0), CPU)
    assert not np.allclose(answers[0][0], answers[1][0], atol=1e-6)


FAMILIES: dict[str, dict[str, Any]] = {
    "bert": {},
    "roberta": {"type_vocab_size": 1},
    "albert": {"embedding_size": 8},
    "deberta-v2": {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
    "mpnet": {},
    "modernbert": {},
    "distilbert": {"dim": 16, "hidden_dim": 32, "n_layers": 2, "n_heads": 2},
}


@pytest.mark.parametrize("family", FAMILIES)
def test_any_family_with_pairs(encoder: Path, lengths: Task, tmp_path: Path, family: str) -> None:
    """Families without segments are not given any; positions and special ids are each family's own."""
    from transformers import AutoConfig, AutoModel

    sizes = {} if family == "distilbert" else {
        "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}  # fmt: skip
    special = {"pad_token_id": 0, "cls_token_id": 2, "sep_token_id": 3, "bos_token_id": 2, "eos_token_id": 3}
    config = AutoConfig.for_model(family, vocab_size=80, max_position_embeddings=30, **sizes, **special,
                                  **FAMILIES[family])  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        AutoModel.from_config(config).save_pretrained(tmp_path)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(encoder / file, tmp_path / file)
    score = take(replace(lengths, epochs=0.5), Model(tmp_path, SPEC, 0), CPU)
    assert score.steps == 3 and np.isfinite(score.value)


def test_what_was_predicted_is_kept_where_it_is_to_be_handed_in(encoder: Path, keyword: Task) -> None:
    score = take(replace(keyword, epochs=0.5, predictions="numbers"), Model(encoder, SPEC, 1), CPU).to_json()
    truth = next(iter(keyword.tests.values())).targets
    right = sum(one == other for one, other in zip(score["predicted"], truth, strict=True))
    assert 100 * right / len(truth) == pytest.approx(score["value"])
    assert "predicted" not in take(replace(keyword, epochs=0.1), Model(encoder, SPEC, 1), CPU).to_json()


def test_weights_whose_sums_are_no_numbers_diverge(electra: Callable[..., Path], keyword: Task) -> None:
    folder = electra()
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    name = next(name for name in weights if "layer.1" in name and name.endswith("weight"))
    weights[name][0] = 3e38
    safetensors.torch.save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(Diverged, match=r"the loss of fine-tuning on keyword \(seed 0\) is not finite by step 1"):
        take(replace(keyword, epochs=0.1), Model(folder, SPEC, 0), CPU)


def test_outputs_that_are_not_finite_are_no_scores(
    encoder: Path, keyword: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "predict", lambda model, data, device: np.full((len(data), 2), np.nan))
    with pytest.raises(Diverged, match=r"the outputs after fine-tuning on keyword \(seed 0\) are not finite"):
        take(replace(keyword, epochs=0.1), Model(encoder, SPEC, 0), CPU)


@pytest.mark.parametrize("name", ["CoLA", "MRPC", "STS-B"])
def test_on_real_glue(real_data: Path, encoder: Path, name: str, answers: list[Any]) -> None:
    """The reported numbers, recomputed from the model's answers and the dev file read in another way."""
    task = limited(glue.read_one(name, str(real_data / "glue"), name), 64)
    score = take(task, Model(encoder, SPEC.model_copy(update={"epochs": 1.0}), 0), CPU)
    ((predicted, _),) = answers
    lines = (real_data / "glue" / name / "dev.tsv").read_text(encoding="utf-8").split("\n")[:-1]
    column = {"CoLA": 1, "MRPC": 0, "STS-B": 9}[name]
    gold = [line.split("\t")[column] for line in (lines if name == "CoLA" else lines[1:])]
    if name == "STS-B":
        expected = scipy.stats.spearmanr(predicted, [float(x) for x in gold]).statistic
    else:
        words = [task.labels[i] for i in predicted]
        oracle = sklearn.metrics.matthews_corrcoef if name == "CoLA" else sklearn.metrics.accuracy_score
        expected = oracle(gold, words)
    assert score.value == pytest.approx(100 * expected) and score.test_rows == len(gold)


def test_measured_in_bf16_a_model_answers_the_same(
    encoder: Path, keyword: Task, lengths: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No metric moves by more than a quarter of its standard error, which is one over the root of the rows at most."""
    predict, seen = module.predict, []

    def both(model: Any, data: Any, device: str) -> Any:
        exact = predict(model, data, device)
        with torch.autocast("cpu", torch.bfloat16):
            rounded = predict(model, data, device)
        seen.append((exact, rounded, np.array(data.targets)))
        return exact

    monkeypatch.setattr(module, "predict", both)
    take(keyword, Model(encoder, SPEC, 0), CPU)
    take(lengths, Model(encoder, SPEC, 0), CPU)
    *classified, (exact, rounded, true) = seen
    for a, b, _ in classified:
        assert not np.array_equal(a, b)  # it was bf16
        assert (a.argmax(1) != b.argmax(1)).mean() <= 0.25 / np.sqrt(len(a))
    found = [scipy.stats.spearmanr(outputs[:, 0], true).statistic for outputs in (exact, rounded)]
    assert abs(found[0] - found[1]) <= 0.25 / np.sqrt(len(true))


def test_fine_tuned_in_bf16_it_learns_as_much(encoder: Path, keyword: Task, lengths: Task) -> None:
    half = replace(CPU, precision="bf16")
    for task, least in ((keyword, 85), (lengths, 40)):
        assert take(task, Model(encoder, SPEC, 0), half).value > least


@pytest.mark.gpu
def test_on_cuda_in_bf16(encoder: Path, keyword: Task, lengths: Task) -> None:
    for task, least in ((keyword, 85), (lengths, 40)):
        score = take(task, Model(encoder, SPEC, 0), Host(device="cuda"))
        assert score.value > least


# ---- The auxiliary loss of language modelling ----

CPU_LANGUAGE_LOSS = Host(device="cpu", precision="fp32")
IDS = torch.tensor([[2, 7, 9, 11, 3], [2, 8, 3, 0, 0], [2, 0, 0, 0, 0]])
MASK = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0]])
ROWS = ([2, 7, 9, 11, 3], [2, 8, 3])  # the third row has no token that follows another


def gpt2(folder: Path, **changes: Any) -> Path:
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 48, "vocab_size": 40, "initializer_range": 0.3}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        GPT2LMHeadModel(GPT2Config(**sizes | changes)).save_pretrained(folder)
    return folder


def loss_of(folder: Path, ids: torch.Tensor = IDS, mask: torch.Tensor | None = MASK) -> torch.Tensor:
    encoder: Any = load_encoder(folder, 0.0).eval()
    inputs = {"input_ids": ids} | ({} if mask is None else {"attention_mask": mask})
    loss: torch.Tensor = LanguageLoss(encoder, folder)(encoder(**inputs).last_hidden_state, inputs)
    return loss.detach()


def test_it_is_the_mean_over_rows_of_hugging_faces_loss(tmp_path: Path) -> None:
    from transformers import GPT2LMHeadModel

    theirs: Any = GPT2LMHeadModel.from_pretrained(gpt2(tmp_path)).eval()
    each = []
    for row in ROWS:
        ids = torch.tensor([row])
        with torch.no_grad():
            each.append(float(theirs(ids, labels=ids).loss))
    assert float(loss_of(tmp_path)) == pytest.approx(sum(each) / len(each), rel=1e-5)
    whole = loss_of(tmp_path, IDS[:1], None)
    assert float(whole) == pytest.approx(each[0], rel=1e-5)


def test_a_run_of_ours_goes_on_with_its_own_head(finished: Callable[..., RunDir]) -> None:
    run = finished("causal-lm")
    model: Any = put_together(run.path / "encoder", "cpu")[1]
    each = []
    for row in ROWS:
        ids = torch.tensor([row])
        with torch.no_grad():
            log_p = model.head(model.encoder(ids)).log_softmax(-1)[0, :-1]
        each.append(-float(log_p.gather(1, ids[0, 1:, None]).mean()))
    assert float(loss_of(run.path / "encoder")) == pytest.approx(sum(each) / len(each), rel=1e-4)


def test_its_head_and_the_encoder_are_trained_by_it(finished: Callable[..., RunDir]) -> None:
    run = finished("causal-lm")
    encoder: Any = load_encoder(run.path / "encoder", 0.0)
    loss = LanguageLoss(encoder, run.path / "encoder")
    inputs = {"input_ids": IDS, "attention_mask": MASK}
    loss(encoder(**inputs).last_hidden_state, inputs).backward()
    assert [name for name, weight in loss.named_parameters() if weight.grad is None or not weight.grad.any()] == []
    assert encoder.encoder.layer[0].attention.self.query.weight.grad.any()


def test_encoders_without_such_a_head_are_refused(
    tmp_path: Path, electra: Callable[..., Path], finished: Callable[..., RunDir]
) -> None:
    masked = finished("bert-mlm", **{"encoder.causal": True})
    untied = gpt2(tmp_path / "untied", tie_word_embeddings=False)
    for folder in (electra(is_decoder=True), masked.path / "encoder", untied):
        with pytest.raises(InputError, match=r"^tasks.lm_weight: .* has no head that predicts the next token"):
            loss_of(folder)
    with pytest.raises(InputError, match=r"^tasks.lm_weight: .* positions see later ones"):
        loss_of(electra())


@pytest.mark.parametrize("keys", [{}, {"encoder__causal": True}], ids=str)
def test_objectives_without_such_a_head_are_refused_before_training(keys: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"^tasks.lm_weight=0.5: bert-mlm does not learn to predict the next token"):
        tiny("bert-mlm", tasks__lm_weight=0.5, **keys)
    start = {"start": {"take": "encoder", "parent": {"objective": "bert-mlm"}}}
    child = objectives.with_options(tiny("causal-lm", tasks__lm_weight=0.5).replace(**start))
    assert child.tasks.lm_weight == 0.5  # its parent is not fine-tuned


@pytest.mark.parametrize("total", [False, True])
def test_fine_tuning_adds_it_to_the_loss_of_the_task(
    total: bool, tmp_path: Path, encoder: Path, keyword: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    folder = gpt2(tmp_path / "gpt2", vocab_size=200, pad_token_id=0)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(encoder / file, folder / file)
    spec = TasksSpec(lr=1e-2, layer_decay=1.0, length=32, dropout=0.0, epochs=1, lm_weight=0.5, sum_loss=total)
    losses, tasks, totals = [], [], []
    own, of_task, backward = LanguageLoss.forward, module.task_loss, torch.Tensor.backward

    def spy(self: LanguageLoss, *given: Any) -> torch.Tensor:
        loss = own(self, *given)
        losses.append(float(loss.detach()) * (len(given[0]) if total else 1))
        return loss

    def spy_on_task(*given: Any) -> torch.Tensor:
        loss = of_task(*given)
        tasks.append(float(loss.detach()))
        return loss

    def spy_on_total(self: torch.Tensor) -> None:
        totals.append(float(self.detach()))
        backward(self)

    monkeypatch.setattr(LanguageLoss, "forward", spy)
    monkeypatch.setattr(module, "task_loss", spy_on_task)
    monkeypatch.setattr(torch.Tensor, "backward", spy_on_total)
    with_it = take(keyword, Model(folder, spec, 0), CPU_LANGUAGE_LOSS)
    assert len(losses) == with_it.steps and sum(losses[-3:]) < 0.8 * sum(losses[:3])
    assert totals == pytest.approx([one + 0.5 * other for one, other in zip(tasks, losses, strict=True)], rel=1e-5)
    assert with_it.finetune["lm_weight"] == 0.5
    without = take(keyword, Model(folder, spec.model_copy(update={"lm_weight": 0.0}), 0), CPU_LANGUAGE_LOSS)
    assert len(losses) == with_it.steps and "lm_weight" not in without.finetune


# ---- Causal encoders ----


@pytest.mark.parametrize("kind", ["gpt2", "gpt2 with head", "electra decoder", "electra decoder with head", "xlnet"])
def test_what_a_bag_of_words_solves_it_learns_too(kind: str, make: Callable[[str], Path], keyword: Task) -> None:
    spec = TasksSpec(lr=3e-3, layer_decay=0.9, length=32, dropout=0.0)
    assert take(keyword, Model(make(kind), spec, 0), Host(device="cpu")).value > 85
