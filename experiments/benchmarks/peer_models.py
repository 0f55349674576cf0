"""The other side of `peers.py`: each contender as its users write it, run as a child process that takes turns."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from transformers import (
    AlbertConfig,
    AlbertForPreTraining,
    BertConfig,
    BertForMaskedLM,
    BertForPreTraining,
    ElectraConfig,
    ElectraForMaskedLM,
    ElectraForPreTraining,
    GPT2Config,
    GPT2LMHeadModel,
    XLNetConfig,
    XLNetLMHeadModel,
)  # fmt: skip

from workbench.bench.turns import Enough, Turns, made_up
from workbench.data.corpus import corpus_of
from workbench.data.prepare import bind
from workbench.models.corruption import pick_spans, visible_in_order
from workbench.rng import row_keys
from workbench.spec.host import Host
from workbench.spec.parts import EncoderSpec
from workbench.spec.run_spec import RunSpec, parse
from workbench.tensors import Batch

RATE, WEIGHT, CLIP = 0.15, 50.0, 1.0
ROWS = 4096  # rows of text that an epoch of the peers has, in memory


def config(sizes: EncoderSpec) -> dict[str, Any]:
    return {
        "vocab_size": sizes.vocab, "hidden_size": sizes.hidden, "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.head_count, "intermediate_size": sizes.ffn_width,
        "max_position_embeddings": sizes.positions, "hidden_dropout_prob": sizes.dropout,
        "attention_probs_dropout_prob": sizes.attention_dropout,
    }  # fmt: skip


def electra(sizes: EncoderSpec) -> ElectraConfig:
    return ElectraConfig(**config(sizes), embedding_size=sizes.embedding_width)


def masked(ids: Tensor, mask_id: int) -> tuple[Tensor, Tensor]:
    """Inputs and labels (-100 where nothing is predicted) of a masked language model, all picks as [MASK]."""
    picks = torch.rand(ids.shape, device=ids.device) < RATE
    picks[:, 0] = picks[:, -1] = False
    return ids.masked_fill(picks, mask_id), ids.masked_fill(~picks, -100)


def corrupted(ids: Tensor, mask_id: int, vocab: int) -> tuple[Tensor, Tensor]:
    """What `masked` returns, with picks corrupted as in BERT: 80 % [MASK], 10 % a random word, 10 % unchanged."""
    inputs, labels = masked(ids, mask_id)
    coin, picks = torch.rand(ids.shape, device=ids.device), labels != -100
    words = torch.randint_like(ids, vocab)
    return torch.where(picks & (coin > 0.8), torch.where(coin > 0.9, ids, words), inputs), labels


class Pair(nn.Module):
    """Generator and discriminator from Hugging Face with shared embeddings; the loss as tutorials write it."""

    def __init__(self, generator: Any, discriminator: Any, mask_id: int) -> None:
        super().__init__()
        self.generator: Any = generator
        self.discriminator: Any = discriminator
        self.mask_id = mask_id
        discriminator.electra.embeddings = generator.electra.embeddings

    def forward(self, input_ids: Tensor, attention_mask: Tensor, **_: Any) -> dict[str, Tensor]:
        inputs, labels = masked(input_ids, self.mask_id)
        said = self.generator(inputs, attention_mask=attention_mask, labels=labels)
        picks = labels != -100
        with torch.no_grad():
            chances = said.logits[picks].float().softmax(-1)
            samples = torch.multinomial(chances, 1).squeeze(-1)
        fake = input_ids.clone()
        fake[picks] = samples
        replaced = (fake != input_ids).long()
        found = self.discriminator(fake, attention_mask=attention_mask, labels=replaced)
        return {"loss": said.loss + WEIGHT * found.loss}

    def take(self, ours: Any) -> None:
        """The weights of our RTD objective with a dense head."""
        self.generator.electra.load_state_dict(ours.generator.body.model.state_dict())
        self.discriminator.electra.load_state_dict(ours.encoder.model.state_dict())
        head, words = ours.generator.head, self.generator.generator_predictions
        words.dense.load_state_dict(head.dense.state_dict())
        words.LayerNorm.load_state_dict(head.norm.state_dict())
        self.generator.generator_lm_head.weight.copy_(head.table.weight)
        self.generator.generator_lm_head.bias.copy_(head.bias)
        self.discriminator.discriminator_predictions.dense.load_state_dict(ours.head.dense.state_dict())
        self.discriminator.discriminator_predictions.dense_prediction.load_state_dict(ours.head.out.state_dict())


class AllTokens(Pair):
    """All-Tokens MLM with logits at every position, which is what the models' own heads give."""

    def __init__(self, generator: nn.Module, main: nn.Module, mask_id: int, width: int) -> None:
        super().__init__(generator, main, mask_id)
        self.gate = nn.Linear(width, 1)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, **_: Any) -> dict[str, Tensor]:
        inputs, labels = masked(input_ids, self.mask_id)
        said = self.generator(inputs, attention_mask=attention_mask, labels=labels)
        picks = labels != -100
        with torch.no_grad():
            samples = torch.multinomial(said.logits[picks].float().softmax(-1), 1).squeeze(-1)
        fake = input_ids.clone()
        fake[picks] = samples
        hidden = self.discriminator.electra(fake, attention_mask=attention_mask).last_hidden_state
        logits = self.discriminator.generator_lm_head(self.discriminator.generator_predictions(hidden))
        words = -F.cross_entropy(logits.float().flatten(0, 1), input_ids.flatten(), reduction="none").view_as(input_ids)
        gate = self.gate(hidden).squeeze(-1).float()
        copy, write = F.logsigmoid(gate), F.logsigmoid(-gate) + words
        loss = -torch.where(fake == input_ids, torch.logaddexp(copy, write), write).mean()
        return {"loss": said.loss + loss}


class Logits(nn.Module):
    """What electra-pytorch takes for a model: ids to logits."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.electra, self.model = model.electra, model

    def forward(self, ids: Tensor, **more: Any) -> Tensor:
        logits: Tensor = self.model(ids, **more).logits
        return logits


def electra_pair(spec: RunSpec) -> Pair:
    generator = ElectraForMaskedLM(electra(spec.generator_encoder))
    return Pair(generator, ElectraForPreTraining(electra(spec.encoder)), spec.data.special.mask)


class Package(nn.Module):
    """The loss of electra-pytorch around the same pair."""

    def __init__(self, spec: RunSpec) -> None:
        super().__init__()
        from electra_pytorch import Electra

        pair, special = electra_pair(spec), spec.data.special
        self.electra = Electra(
            Logits(pair.generator), Logits(pair.discriminator), num_tokens=spec.encoder.vocab, mask_prob=RATE,
            mask_token_id=special.mask, pad_token_id=special.pad, mask_ignore_token_ids=[special.cls, special.sep],
        )  # fmt: skip

    def forward(self, input_ids: Tensor, attention_mask: Tensor, **_: Any) -> dict[str, Tensor]:
        return {"loss": self.electra(input_ids, attention_mask=attention_mask).loss}


class Bert(nn.Module):
    """BERT MLM, logits at every position. Its tables are as wide as it."""

    def __init__(self, spec: RunSpec) -> None:
        super().__init__()
        self.model = BertForMaskedLM(BertConfig(**config(spec.encoder)))
        self.mask_id, self.vocab = spec.data.special.mask, spec.encoder.vocab

    def forward(self, input_ids: Tensor, attention_mask: Tensor, **_: Any) -> dict[str, Tensor]:
        inputs, labels = corrupted(input_ids, self.mask_id, self.vocab)
        return {"loss": self.model(inputs, attention_mask=attention_mask, labels=labels).loss}


class Segments(nn.Module):
    """BERT or ALBERT with both losses, as `BertForPreTraining` and `AlbertForPreTraining` compute them.

    Both keep the logits at every position. ALBERT picks single tokens here, which takes less time than spans.
    """

    def __init__(self, spec: RunSpec) -> None:
        super().__init__()
        self.albert = spec.encoder.family == "albert"
        self.model: Any = (
            AlbertForPreTraining(AlbertConfig(
                **config(spec.encoder), embedding_size=spec.encoder.embedding_width, hidden_act="gelu"
            ))
            if self.albert else BertForPreTraining(BertConfig(**config(spec.encoder)))
        )  # fmt: skip
        self.mask_id, self.vocab = spec.data.special.mask, spec.encoder.vocab

    def forward(self, input_ids: Tensor, broken: Tensor, **more: Tensor) -> dict[str, Tensor]:
        inputs, labels = corrupted(input_ids, self.mask_id, self.vocab)
        return {"loss": self.loss(inputs, labels, broken, **more)}

    def loss(self, ids: Tensor, labels: Tensor, broken: Tensor, **more: Tensor) -> Tensor:
        """The sum of both losses of ids (B, L), whose labels (B, L) are -100 where nothing is predicted."""
        name = "sentence_order_label" if self.albert else "next_sentence_label"
        found: Tensor = self.model(ids, labels=labels, **{name: broken.long()}, **more).loss
        return found

    def take(self, ours: Any) -> None:
        """The weights of our objective."""
        words, pairs, model = ours.head, ours.pair_head, self.model
        base = model.albert if self.albert else model.bert
        base.load_state_dict(ours.encoder.model.state_dict(), strict=False)
        pooler = base.pooler if self.albert else base.pooler.dense
        last = model.sop_classifier.classifier if self.albert else model.cls.seq_relationship
        predictions = model.predictions if self.albert else model.cls.predictions
        transform = predictions if self.albert else predictions.transform
        for target, source in (
            (pooler, pairs.dense), (last, pairs.out), (transform.dense, words.dense), (transform.LayerNorm, words.norm),
        ):  # fmt: skip
            target.load_state_dict(source.state_dict())
        predictions.decoder.bias.copy_(words.bias)


def gpt2(spec: RunSpec) -> GPT2LMHeadModel:
    sizes = spec.encoder
    return GPT2LMHeadModel(GPT2Config(
        vocab_size=sizes.vocab, n_embd=sizes.hidden, n_layer=sizes.layers, n_head=sizes.head_count,
        n_inner=sizes.ffn_width, n_positions=sizes.positions, resid_pdrop=sizes.dropout, embd_pdrop=sizes.dropout,
        attn_pdrop=sizes.attention_dropout, use_cache=False, bos_token_id=None, eos_token_id=None,
    ))  # fmt: skip


class Causal(nn.Module):
    """GPT-2 with the next token at every position as its own loss has it, which keeps all logits."""

    def __init__(self, spec: RunSpec) -> None:
        super().__init__()
        self.model: Any = gpt2(spec)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, **_: Any) -> dict[str, Tensor]:
        return {"loss": self.model(input_ids, attention_mask=attention_mask, labels=input_ids).loss}


def xlnet(spec: RunSpec) -> XLNetLMHeadModel:
    sizes = spec.encoder
    return XLNetLMHeadModel(XLNetConfig(
        vocab_size=sizes.vocab, d_model=sizes.hidden, n_layer=sizes.layers, n_head=sizes.head_count,
        d_inner=sizes.ffn_width, dropout=sizes.dropout, use_mems_eval=False, mem_len=None, pad_token_id=0,
    ))  # fmt: skip


class Permuted(nn.Module):
    """XLNet with true masks and slots for the predicted positions, which are picked as ours are."""

    def __init__(self, spec: RunSpec) -> None:
        super().__init__()
        self.model: Any = xlnet(spec)
        self.special, self.step = spec.data.special, 0

    def forward(self, input_ids: Tensor, **_: Any) -> dict[str, Tensor]:
        self.step += 1
        keys = row_keys(self.step, torch.arange(len(input_ids), device=input_ids.device))
        return {"loss": self.loss(Batch(input_ids, keys))}

    def loss(self, batch: Batch) -> Tensor:
        """The loss of a batch in which every slot counts."""
        places, weights = pick_spans(batch, self.special, 6, 5)
        hidden = ~visible_in_order(batch, self.special, places, weights)
        mapping = F.one_hot(places, batch.ids.shape[1]).float()
        labels = batch.ids.gather(1, places)
        found: Tensor = self.model(batch.ids, perm_mask=hidden.float(), target_mapping=mapping, labels=labels).loss
        return found


def model_of(peer: str, spec: RunSpec) -> nn.Module:
    if peer in ("hf-naive", "hf-trainer"):
        return electra_pair(spec)
    if peer == "electra-pytorch":
        return Package(spec)
    if peer == "bert-mlm-trainer":
        return Bert(spec)
    if peer in ("bert-hf", "albert-hf"):
        return Segments(spec)
    if peer == "gpt2-hf":
        return Causal(spec)
    if peer == "xlnet-hf":
        return Permuted(spec)
    generator = ElectraForMaskedLM(electra(spec.generator_encoder))
    main = ElectraForMaskedLM(electra(spec.encoder))
    return AllTokens(generator, main, spec.data.special.mask, spec.encoder.hidden)


def rows(spec: RunSpec) -> dict[str, Tensor]:
    """Inputs of ROWS rows, (ROWS, L) and for `broken` (ROWS,), from what our own benchmark makes up."""
    with tempfile.TemporaryDirectory() as folder:
        prepared = made_up(Path(folder) / "data", spec, ROWS * spec.data.length)
        corpus = corpus_of(prepared, bind(spec, prepared))
        return inputs_of(corpus.batch(0, min(ROWS, corpus.rows)))


def inputs_of(batch: Batch) -> dict[str, Tensor]:
    """A batch under the names that Hugging Face's models give it; `broken` is the label of a pair."""
    attention = torch.ones_like(batch.ids) if batch.attention is None else batch.attention.long()
    inputs = {"input_ids": batch.ids, "attention_mask": attention}
    if batch.segments is not None and batch.broken is not None:
        inputs |= {"token_type_ids": batch.segments, "broken": batch.broken}
    return inputs


def loop(model: nn.Module, spec: RunSpec, host: Host, every: int, held: Callable[..., None]) -> None:
    """A plain training loop."""
    model.to(host.device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=spec.optim.lr, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 10_000))
    autocast = torch.autocast(host.device.partition(":")[0], torch.bfloat16, enabled=host.precision == "bf16")
    for step, inputs in enumerate(batches(rows(spec), spec.batch.size), 1):
        with autocast:
            loss = model(**{name: value.to(host.device) for name, value in inputs.items()})["loss"]
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % every == 0:
            loss.item()
            held(step, 0, {})


def batches(inputs: dict[str, Tensor], size: int) -> Iterator[dict[str, Tensor]]:
    count = len(inputs["input_ids"])
    while True:
        order = torch.randperm(count)
        for start in range(0, count - size + 1, size):
            yield {name: value[order[start : start + size]] for name, value in inputs.items()}


def trainer(model: nn.Module, spec: RunSpec, host: Host, every: int, held: Callable[..., None]) -> None:
    """Hugging Face's Trainer with its defaults, but for what has to be the same on both sides."""
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Hold(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step % every == 0:
                held(state.global_step, 0, {})

    inputs = rows(spec)
    data = [{name: value[row] for name, value in inputs.items()} for row in range(len(inputs["input_ids"]))]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder, max_steps=10**6, per_device_train_batch_size=spec.batch.size,
            learning_rate=spec.optim.lr,
            weight_decay=0.01, max_grad_norm=CLIP, warmup_steps=10_000, logging_steps=every, save_strategy="no",
            report_to=[], disable_tqdm=True, bf16=host.precision == "bf16", use_cpu=host.device == "cpu",
            remove_unused_columns=False, log_level="error",
        )  # fmt: skip
        Trainer(model=model, args=arguments, train_dataset=data, callbacks=[Hold()]).train()


def main() -> None:
    protocol, sys.stdout = sys.stdout, sys.stderr  # what libraries print must not get between our lines
    hello = json.loads(sys.stdin.readline())
    host, spec = Host(**hello["host"]), parse(hello["spec"])
    if host.threads:
        torch.set_num_threads(host.threads)
    turns = Turns(spec, host, hello["seconds"])

    def held(*seen: Any) -> None:
        sys.stdout = protocol
        try:
            turns(*seen)
        finally:
            sys.stdout = sys.stderr

    run = trainer if hello["name"].endswith("-trainer") else loop
    with suppress(Enough):
        run(model_of(hello["name"], spec), spec, host, hello["every"], held)


if __name__ == "__main__":
    main()
