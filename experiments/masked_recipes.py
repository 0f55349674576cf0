"""Which recipe of masked language modelling gives the best encoder at equal compute: BERT's, RoBERTa's or ALBERT's?

BERT (Devlin et al. 2019): pairs of segments, next-sentence prediction, ten copies of the text with picks of their own
(google-research/bert, `create_pretraining_data.py`). RoBERTa (Liu et al. 2019): rows full of text, no pairs, new picks
in each epoch, and the optimizer's settings of fairseq, `examples/roberta/config/pretraining/base.yaml`. ALBERT (Lan et
al. 2020): spans of words, the order of sentences, layers that share their weights, and LAMB without bias correction
(google-research/albert, `lamb_optimizer.py`), which needs the extra `lamb`. Learning rates and batches are those of the
scale, since the published ones (batches of 256, 2048 and 4096 rows) are for other sizes.
"""

from typing import Any

QUESTION = "At equal compute, which recipe of masked language modelling gives the best encoder?"
BERT: dict[str, Any] = {"objective": "bert", "data.copies": 10}
ROBERTA: dict[str, Any] = {
    "objective": "bert-mlm", "optim.beta1": 0.9, "optim.beta2": 0.98, "optim.eps": 1e-6, "optim.weight_decay": 0.01,
    "optim.clip": 0.0,
}  # fmt: skip
ALBERT: dict[str, Any] = {
    "objective": "albert", "encoder.family": "albert", "optim.kind": "lamb", "optim.bias_correction": False,
}  # fmt: skip
AXES = {"objective": ("bert-mlm",)}
VARIANTS = [BERT, ROBERTA, ALBERT]
CONTRASTS = [
    (BERT, {"objective": "bert-mlm"}, "with next sentences and ten copies, or without"),
    (ROBERTA, BERT, "RoBERTa's recipe, or BERT's"),
    (ALBERT, BERT, "ALBERT's recipe, or BERT's"),
]
