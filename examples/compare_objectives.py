# %% [markdown]
# # Which objective makes the better encoder, at equal compute?
#
# Two objectives, four seeds each, the same FLOPs for every run, on the text that comes with Python packages. Scores
# need no training: which of two held-out sentences does a model find more plausible, the original or one with a word
# replaced by another of like frequency? On two CPU cores this takes a few minutes; called again, it goes on where it
# stopped.

# %%
import workbench as wb

study = wb.run("ablation", objective=["bert-mlm", "electra-15"], seeds=4, tasks="pairs:replace", workers=2)
print(study.answer())

# %% [markdown]
# The same comparison as a value, by the rule that reports use, and every score behind it.

# %%
comparison = study.compare("electra-15", "bert-mlm")
print(comparison)
print(study.scores()[["arm", "seed", "task", "value"]])

# %% [markdown]
# The report is one HTML file; its tables stand beside it as CSV files.

# %%
print(study.report("reports/compare-objectives"))
