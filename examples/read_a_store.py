# %% [markdown]
# # Reading a store with pandas
#
# A store is a folder of run directories. Nothing but these files stands behind it: copy it, read it, delete it.

# %%
import matplotlib.pyplot as plt

import workbench as wb

wb.run("ablation", objective=["bert-mlm", "electra-15"], seeds=2, tasks="pairs:replace", workers=2)  # if not done yet
store = wb.Store("runs")
runs = store.runs(["kind=pre-training", "state=done"], sort="-score")
print(runs[["run_id", "objective", "seed", "optim.lr", "spent.tokens", "score"]])

# %% [markdown]
# The log of a run has a row for each step; a figure of one's own takes three lines.

# %%
figure, axes = plt.subplots()
for run_id in runs["run_id"]:
    run = store.run(run_id)
    metrics = run.metrics()
    axes.plot(metrics["tokens"], metrics["loss"], label=f"{run.spec.objective}, seed {run.spec.seed}")
axes.set_xlabel("tokens of training")
axes.set_ylabel("loss (nats)")
axes.legend()
figure.savefig("losses.svg")

# %% [markdown]
# A trained encoder is a transformers model with its tokenizer.

# %%
encoder, tokenizer = store.run(runs["run_id"].iloc[0]).encoder()
print(encoder(**tokenizer("Return a sorted list.", return_tensors="pt")).last_hidden_state.shape)
