"""Import paths of earlier versions, so that objectives written for them still load and their runs can be resumed."""

from __future__ import annotations

import importlib
import sys

MOVED = {
    "workbench.corruption": "workbench.models.corruption",
    "workbench.detection": "workbench.models.detection",
    "workbench.draws": "workbench.rng",
    "workbench.flops": "workbench.models.flops",
    "workbench.frequencies": "workbench.models.frequencies",
    "workbench.losses": "workbench.models.losses",
    "workbench.models.unigram": "workbench.models.ngram_generators",
    "workbench.parts": "workbench.spec.parts",
    "workbench.plausibility": "workbench.models.sentence_scores",
    "workbench.unigram": "workbench.models.ngram_generators",
}


def make_importable() -> None:
    """Make the former import paths work, those of `Part` and `RunSpec` in `workbench.spec` included."""
    from workbench import spec
    from workbench.spec.parts import Part
    from workbench.spec.run_spec import RunSpec

    for name, value in {"Part": Part, "RunSpec": RunSpec}.items():
        setattr(spec, name, value)
    for before, now in MOVED.items():
        sys.modules.setdefault(before, importlib.import_module(now))
