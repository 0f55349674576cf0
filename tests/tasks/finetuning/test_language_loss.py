"""The auxiliary language-model loss of fine-tuning against Hugging Face's, and the encoders that have none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from objective_oracle import tiny

from workbench import objectives
from workbench.errors import InputError
from workbench.models.export import export_heads
from workbench.spec.host import Host
from workbench.spec.stages import BoundRun
from workbench.store.run_store import RunStore
from workbench.tasks.common import classification as module
from workbench.tasks.common.classification import LanguageLoss
from workbench.tasks.common.contract import Model, score_digest, take
from workbench.tasks.common.encoder_folders import load_encoder
from workbench.tasks.common.examples import Examples, Task
from workbench.training.loop import build

CPU = Host(device="cpu", precision="fp32")
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


def finished(folder: Path, name: str, **keys: Any) -> Any:
    """Return a finished run with random weights, and its objective."""
    spec = tiny(name, **keys)
    model: Any = build(spec).eval()
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape) * 0.2)
    run = RunStore(folder).open(BoundRun(spec))
    with run.staged("encoder") as place:
        model.encoder.save(place)
    with run.staged("heads") as place:
        export_heads(model, place)
    run.finish({"steps": 0, "tokens": 0, "flops": dict.fromkeys(("paper", "paper-sparse", "matmul"), 0)})
    return run, model


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


def test_a_run_of_ours_goes_on_with_its_own_head(tmp_path: Path) -> None:
    run, model = finished(tmp_path, "causal-lm")
    each = []
    for row in ROWS:
        ids = torch.tensor([row])
        with torch.no_grad():
            log_p = model.head(model.encoder(ids)).log_softmax(-1)[0, :-1]
        each.append(-float(log_p.gather(1, ids[0, 1:, None]).mean()))
    assert float(loss_of(run.path / "encoder")) == pytest.approx(sum(each) / len(each), rel=1e-4)


def test_its_head_and_the_encoder_are_trained_by_it(tmp_path: Path) -> None:
    run, _ = finished(tmp_path, "causal-lm")
    encoder: Any = load_encoder(run.path / "encoder", 0.0)
    loss = LanguageLoss(encoder, run.path / "encoder")
    inputs = {"input_ids": IDS, "attention_mask": MASK}
    loss(encoder(**inputs).last_hidden_state, inputs).backward()
    assert [name for name, weight in loss.named_parameters() if weight.grad is None or not weight.grad.any()] == []
    assert encoder.encoder.layer[0].attention.self.query.weight.grad.any()


def test_encoders_without_such_a_head_are_refused(tmp_path: Path, electra: Callable[..., Path]) -> None:
    masked, _ = finished(tmp_path / "runs", "bert-mlm", encoder__causal=True)
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
    spec = module.TasksSpec(lr=1e-2, layer_decay=1.0, length=32, dropout=0.0, epochs=1, lm_weight=0.5, sum_loss=total)
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
    with_it = take(keyword, Model(folder, spec, 0), CPU)
    assert len(losses) == with_it.steps and sum(losses[-3:]) < 0.8 * sum(losses[:3])
    assert totals == pytest.approx([one + 0.5 * other for one, other in zip(tasks, losses, strict=True)], rel=1e-5)
    assert with_it.finetune["lm_weight"] == 0.5
    without = take(keyword, Model(folder, spec.model_copy(update={"lm_weight": 0.0}), 0), CPU)
    assert len(losses) == with_it.steps and "lm_weight" not in without.finetune


def test_the_weight_is_part_of_a_score_unless_it_is_0(keyword: Task) -> None:
    none, some = module.TasksSpec(), module.TasksSpec(lm_weight=0.5)
    assert score_digest(keyword, none) != score_digest(keyword, some)
    one = Task("keyword", "table", ("a", "b"), "accuracy", ("accuracy",), 3.0, Examples(["a"], None, [0]), {})
    assert score_digest(replace(one, fingerprint="f"), none) == "9cf016ea"  # as before there was such a weight
