"""Should a masked language model begin as a causal one? Gisserot-Boukhlef et al. 2025, arXiv 2507.00994.

A share of the budget goes to causal language modelling, and the rest to masked language modelling, which starts from
the encoder of the first part, sees both sides, and has a head and a schedule of its own. The paper finds that this
order is best at a fixed compute.
"""

QUESTION = "At equal compute, should a masked language model begin as a causal one?"
SHARES = (0.25, 0.5, 0.75)


def begun_as_causal(share: float) -> dict[str, object]:
    """Return the settings of a masked language model that gives this share of its budget to a causal one."""
    parent = {"objective": "causal-lm"}
    return {"objective": "bert-mlm", "start.take": "encoder", "start.share": share, "start.parent": parent}


AXES = {"objective": ("bert-mlm", "causal-lm")}
VARIANTS = [begun_as_causal(share) for share in SHARES]
CONTRASTS = [
    *((begun_as_causal(share), {"objective": "bert-mlm"}, f"{share:.0%} of it causal, or none") for share in SHARES),
    ({"objective": "causal-lm"}, {"objective": "bert-mlm"}, "causal alone, or masked alone"),
]
