"""The export as a whole: runs that are left out, and folders that cannot be written."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from babylm_made import run_of

from workbench.errors import InputError
from workbench.execution.babylm_export import export, undamaged
from workbench.spec import presets
from workbench.spec.stages import BoundRun
from workbench.store.run_store import ExperimentRecord, RunStore


def test_damaged_and_unfinished_runs_are_named_and_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    good, bad = run_of(tmp_path, 1e6), run_of(tmp_path, 1e6, seed=1)
    begun = RunStore(tmp_path / "runs").open(BoundRun(presets.resolve("nano", {"seed": 2})))
    (bad.path / "encoder" / "model.safetensors").write_bytes(b"weighty")  # as many bytes
    assert undamaged([good, bad, begun], verify=True) == [good]
    assert f"{bad.path} is damaged and is left out: encoder/model.safetensors has changed" in caplog.text
    assert f"{begun.run_id} is not trained to its end" in caplog.text
    assert undamaged([good, bad, begun], verify=False) == [good]
    time.sleep(0.02)
    os.utime(bad.path / "done.json")  # as if the bytes had changed on the disk by themselves, before the run ended
    assert undamaged([good, bad, begun], verify=False) == [good, bad]
    assert undamaged([good, bad, begun], verify=True) == [good]


def test_a_place_that_holds_something_is_refused_before_the_store_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for place in (tmp_path, tmp_path / "file"):
        with pytest.raises(InputError, match="a file or a folder that is not empty; name a new folder"):
            export(RunStore(tmp_path / "runs"), "nothing", place)


def test_an_experiment_without_trained_runs_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs")
    begun = store.open(BoundRun(presets.resolve("nano")))
    store.extend_experiment(ExperimentRecord("x-1", runs=[begun.run_id]))
    with pytest.raises(InputError, match="x-1 has no trained run to export; run its command again"):
        export(store, "x-1", tmp_path / "out")
    assert not (tmp_path / "out").exists()
