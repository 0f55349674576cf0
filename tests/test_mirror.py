"""`tests/` has the folders of `workbench/`, with a file for each module that holds logic."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "workbench"
MODULES = {
    str(path.relative_to(PACKAGE).with_suffix("")) for path in PACKAGE.rglob("*.py") if path.name != "__init__.py"
}

# Modules that hold no logic: they call, re-export or name what others do.
NO_LOGIC = {
    "__main__",
    "objectives/_former_names",
}

# Modules whose tests are still in files of other names. The set may only shrink.
STILL_MISSING = {
    "report/comparison/boards",
    "report/csv_tables",
    "report/figures/arm_styles",
    "report/figures/during_training",
    "report/figures/plots",
    "report/figures/tuned",
    "report/load/frames",
    "report/load/naming",
    "report/load/published_scores",
    "report/long_table",
    "report/page/advice",
    "report/page/answer",
    "report/page/by_convention",
    "report/page/checks",
    "report/page/crossings",
    "report/statistics/resampling",
    "report/statistics/sequential_power",
    "store/atomic",
    "store/manifest",
    "store/owner",
    "store/redact",
    "store/run_directory",
    "store/safetensors_writer",
    "store/validation",
    "store/verify",
    "tasks/embeddings/embedding_names",
    "tasks/embeddings/embedding_task",
    "tasks/embeddings/ranking",
    "tasks/embeddings/retrieval_files",
    "tasks/embeddings/tf_idf",
    "tasks/finetuning/classifier",
    "tasks/finetuning/fit",
    "tasks/finetuning/token_batches",
    "tasks/linear/datasets",
    "tasks/linear/problem",
    "tasks/linear/scores",
    "tasks/linear/word_baselines",
    "tasks/measures",
    "tasks/pieces",
    "tasks/price",
    "tasks/rows",
    "tasks/score",
    "tasks/squad/answers",
    "tasks/squad/overlap",
    "tasks/squad/questions",
    "tasks/squad/span_model",
    "tasks/squad/squad_names",
    "tasks/superglue/marked_spans",
    "tasks/superglue/own_questions",
    "tasks/superglue/questions_of_files",
    "tasks/superglue/span_pairs",
    "tasks/superglue/span_places",
    "tasks/tagging/tag_names",
    "tasks/tagging/tag_scores",
    "tasks/tagging/tag_sets",
    "tasks/tagging/tagging_task",
    "tasks/tagging/word_windows",
    "tasks/task",
    "tasks/zero_shot/blimp",
    "tasks/zero_shot/held_out_pairs",
    "tasks/zero_shot/preferences",
    "tasks/zero_shot/scorer",
    "tracking/__main__",
    "tracking/sidecar",
    "training/plan",
    "training/snapshots",
}


def mirrored(module: str) -> Path:
    """Return where the tests of a module belong."""
    path = ROOT / "tests" / module
    return path.with_name(f"test_{path.name.strip('_')}.py")


@pytest.mark.parametrize("module", sorted(MODULES - NO_LOGIC - STILL_MISSING))
def test_a_module_with_logic_has_tests_in_the_mirrored_folder(module: str) -> None:
    wanted = mirrored(module)
    assert wanted.is_file(), f"{wanted.relative_to(ROOT)} is missing; modules without logic are listed in NO_LOGIC"


def test_lists_of_exceptions_name_modules_that_have_no_tests_of_their_own() -> None:
    listed = NO_LOGIC | STILL_MISSING
    assert listed <= MODULES, f"no such module: {sorted(listed - MODULES)}"
    assert not NO_LOGIC & STILL_MISSING
    found = sorted(module for module in listed if mirrored(module).is_file())
    assert not found, f"these have tests now, take them off the list: {found}"
