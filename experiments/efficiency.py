"""What does more compute buy? Clark et al. 2020, table 1: the score after 1/16, 1/8, 1/4, 1/2 and all of a budget.

Each budget is measured twice: by a run of its own that decays over all of it, and by a branch off one trunk, which
warms up, stays at its rate, and from which a last fifth decays at each budget. The trunk is trained once for all its
branches. The paper does not say whether its points are runs of their own or checkpoints of one.
"""

QUESTION = "What score does each share of the budget buy, and do branches of one trunk say the same as whole runs?"
SHARES = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
DECAY = 0.2


def trunk(halvings: int) -> dict[str, object]:
    """A run at a constant rate, which goes on from a trunk of half its length, and so on."""
    before = {"start.share": 0.5, "start.take": "all", "start.parent": trunk(halvings - 1)} if halvings else {}
    return {"schedule.kind": "constant", **before}


AXES = {"budget.share": SHARES, "objective": ("rtd",)}
VARIANTS = [
    {
        "budget.share": share,
        "schedule.kind": "wsd",
        "schedule.decay": DECAY,
        "start.take": "all",
        "start.share": 1 - DECAY,
        "start.parent": trunk(halvings),
    }
    for halvings, share in enumerate(SHARES)
]
