# %% [markdown]
# # An objective of one's own
#
# An objective is a module with three names: `Options`, `cost` and `Objective` (CONTRIBUTING.md, "An objective"). It is
# a file, since the file's hash is part of what a run is: an edited objective makes other runs. The one beside this
# script is BERT's, with half of the picked tokens masked and the other half kept.

# %%
from pathlib import Path

import workbench as wb

OBJECTIVE = Path(__file__).with_name("half_masked.py")
print(OBJECTIVE.read_text())

# %% [markdown]
# What would be run? Each run gets the FLOPs of the first, by the price that `cost` gives.

# %%
words = {"objective": ["bert-mlm", str(OBJECTIVE)], "tasks": "linear:next", "seeds": 3, "workers": 2}
print(wb.plan("ablation", **words)[["objective", "seed", "steps", "tokens"]])

# %%
study = wb.run("ablation", **words)
print(study.compare("half-masked", "bert-mlm"))
