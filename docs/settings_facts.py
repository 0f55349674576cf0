"""What the page of settings says besides the code: the unit of each number, and where a setting comes from.

Sources that are named by section, table or appendix alone are of the ELECTRA paper.
"""

from __future__ import annotations

TOKENS, WORDS, ROWS, SHARE, WIDTH, NONE = "tokens", "words", "rows", "share", "hidden units", "no unit"
LOSS = "factor of the loss"

UNITS = {
    "seed": NONE,
    "encoder.hidden": WIDTH, "encoder.layers": "layers", "encoder.heads": "attention heads", "encoder.ffn": WIDTH,
    "encoder.embedding": WIDTH, "encoder.vocab": "entries", "encoder.positions": TOKENS,
    "encoder.dropout": SHARE, "encoder.attention_dropout": SHARE, "encoder.init": "standard deviation",
    "generator.width": "share of the encoder's width", "generator.depth": "share of the encoder's layers",
    "generator.heads": "attention heads", "generator.temperature": NONE,
    "data.length": TOKENS, "data.held_out": "share of the text", "data.min_words": WORDS, "data.max_words": WORDS,
    "data.near_duplicates": "Jaccard similarity", "data.copies": "copies", "data.words": WORDS, "data.tokens": TOKENS,
    "data.special": "ids",
    "corruption.rate": "share of positions", "corruption.generator_mask": "share of picks",
    "corruption.generator_random": "share of picks", "corruption.mask": "share of picks",
    "corruption.random": "share of picks",
    "batch.size": ROWS,
    "optim.lr": NONE, "optim.generator_lr": NONE, "optim.beta1": NONE, "optim.beta2": NONE, "optim.eps": NONE,
    "optim.weight_decay": NONE, "optim.clip": "Euclidean norm",
    "schedule.warmup": "share of the run below 1, else steps", "schedule.decay": "share of the run",
    "schedule.floor": "share of the peak", "schedule.until": "share of the schedule",
    "budget.steps": "steps", "budget.tokens": TOKENS, "budget.words": WORDS, "budget.flops": "FLOPs",
    "budget.seconds": "seconds",
    "start.share": "share of the budget",
    "tasks.seeds": "seeds", "tasks.lr": NONE, "tasks.layer_decay": "factor for each layer", "tasks.weight_decay": NONE,
    "tasks.warmup": "share of the steps", "tasks.batch": ROWS, "tasks.epochs": "epochs", "tasks.length": TOKENS,
    "tasks.dropout": SHARE, "tasks.clip": "Euclidean norm", "tasks.rows": ROWS,
    "tasks.held_out": "share of the training rows", "tasks.lm_weight": LOSS, "tasks.folds": "folds",
    "tasks.squad_length": TOKENS, "tasks.squad_stride": TOKENS,
    "options.weight": LOSS, "options.reward": LOSS, "options.baseline": LOSS, "options.copy_loss": LOSS,
    "options.selection": LOSS, "options.tokens": "candidates", "options.others": "samples",
    "options.alpha": TOKENS, "options.longest": TOKENS,
}  # fmt: skip

TABLE_6, TABLE_7, CODE = "table 6", "table 7", "released code"
SOURCES = {
    "objective": "section 3.4; see Objectives",
    "encoder.hidden": TABLE_6, "encoder.layers": TABLE_6, "encoder.heads": TABLE_6, "encoder.ffn": TABLE_6,
    "encoder.embedding": TABLE_6, "encoder.vocab": "BERT's vocabulary", "encoder.positions": CODE,
    "encoder.dropout": TABLE_6, "encoder.attention_dropout": TABLE_6, "encoder.init": CODE,
    "encoder.position_init": "Vaswani et al. 2017, section 3.5; own measurements (log)",
    "encoder.causal": "Radford et al. 2018, section 3.1",
    "generator.kind": "section 3.2; Feng et al. 2020, section 3.3", "generator.width": f"section 3.2, {TABLE_6}",
    "generator.depth": "section 3.2", "generator.heads": CODE, "generator.temperature": CODE,
    "tying": "section 3.2",
    "data.pairs": "Devlin et al. 2019, section 3.1; Lan et al. 2020, section 3.1",
    "data.copies": "BERT's released code",
    "data.length": TABLE_6,
    "corruption.rate": TABLE_6, "corruption.picks": f"appendix A; {CODE}", "corruption.generator_mask": CODE,
    "corruption.mask": "Devlin et al. 2019, section 3.1", "corruption.random": "Devlin et al. 2019, section 3.1",
    "batch.size": TABLE_6,
    "optim.kind": "You et al. 2020; Jordan et al. 2024", "optim.lr": TABLE_6, "optim.beta1": TABLE_6,
    "optim.beta2": TABLE_6, "optim.eps": TABLE_6, "optim.weight_decay": TABLE_6, "optim.clip": CODE,
    "optim.bias_correction": CODE,
    "schedule.kind": f"{TABLE_6}; Loshchilov and Hutter 2017; Vaswani et al. 2017, equation 3",
    "schedule.warmup": TABLE_6, "schedule.overlap": CODE,
    "schedule.floor": "Radford et al. 2018, section 4.1; Brown et al. 2020, appendix B",
    "budget.flops": "appendix (counting FLOPs)",
    "budget.convention": "appendix (counting FLOPs); own measurements (log)",
    "start.share": "section 3.2, two-stage training", "start.take": "section 3.2, two-stage training",
    "start.freeze_generator": "section 3.2, two-stage training",
    "tasks.lr": TABLE_7, "tasks.layer_decay": TABLE_7, "tasks.extra_decay": CODE, "tasks.weight_decay": TABLE_7,
    "tasks.warmup": TABLE_7, "tasks.batch": TABLE_7, "tasks.epochs": TABLE_7, "tasks.dropout": TABLE_7,
    "tasks.clip": CODE, "tasks.length": CODE, "tasks.doubled": CODE, "tasks.sum_loss": CODE, "tasks.overlap": CODE,
    "tasks.bias_correction": CODE, "tasks.control": "Hewitt and Liang 2019",
    "tasks.scorers": "Salazar et al. 2020; Kauf and Ivanova 2023; Clark et al. 2020, Electric",
    "tasks.at": "BabyLM's schedule of checkpoints (`words`)", "tasks.lm_weight": "Radford et al. 2018, section 3.2",
    "tasks.statistic": "section 3.1 (median)", "tasks.squad_head": CODE, "tasks.squad_length": CODE,
    "tasks.squad_stride": CODE,
}  # fmt: skip
