"""Models of others as runs: their names, what is stated of their training, and who measures them."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.data.hugging_face import PUBLISHED
from workbench.errors import InputError
from workbench.execution import published_runs
from workbench.execution.published_runs import Model
from workbench.spec.host import Host
from workbench.spec.parts import PublishedSpec
from workbench.store.run_store import RunStore


def test_a_model_is_known_by_its_name_on_the_hub_or_that_of_its_folder(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    known = PUBLISHED[0].name
    assert Model(known.upper(), tmp_path).known_as == known
    assert Model(str(tmp_path / "mine" / "."), tmp_path / "mine").known_as == "mine"
    assert Model(str(tmp_path / "mine"), tmp_path / "converted" / "mine-0f0f0f").known_as == "mine"
    assert Model("someone/else", tmp_path).known_as == "someone/else"


def test_flops_that_are_given_come_before_those_that_are_stated(tmp_path: Path) -> None:
    stated = next(model for model in PUBLISHED if model.flops is not None)
    silent = next(model for model in PUBLISHED if model.flops is None)
    assert published_runs.stated_flops(Model(stated.name, tmp_path), 5.0) == (5.0, "--flops")
    amount, source = published_runs.stated_flops(Model(stated.name, tmp_path), None)
    assert amount == stated.flops and source in (stated.flops_source, stated.source)
    for name in (silent.name, "someone/else"):
        assert published_runs.stated_flops(Model(name, tmp_path), None) == (None, "not stated")


def test_a_run_of_a_model_depends_on_its_files_and_not_on_its_name() -> None:
    one = published_runs._bound(PublishedSpec(name="a/b", files="0" * 64))
    assert one.spec.budget.steps == 0 and one.spec.published is not None and one.spec.published.name == "a/b"
    same, other = PublishedSpec(name="copy-of-b", files="0" * 64), PublishedSpec(name="a/b", files="1" * 64)
    assert published_runs._bound(same).run_id == one.run_id != published_runs._bound(other).run_id


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published_runs, "_hashes", lambda folder: {"config.json": "a" * 64})


@pytest.mark.usefixtures("files")
def test_what_is_stated_later_replaces_what_was_not(tmp_path: Path) -> None:
    store, model, host = RunStore(tmp_path / "runs"), Model("a/b", tmp_path), Host(device="cpu")
    with published_runs.opened(store.root, model, host, None) as run:
        assert run.read_json("done.json")["flops"] == {}
    with published_runs.opened(store.root, model, host, 3e18) as run:
        done = run.read_json("done.json")
        assert (done["flops"], done["flops_source"]) == ({"paper": 3e18}, "--flops")
    with published_runs.opened(store.root, model, host, None) as run:
        assert run.read_json("done.json")["flops"] == {"paper": 3e18}  # nothing was stated, so nothing is changed
    assert len(store.runs()) == 1


@pytest.mark.usefixtures("files")
def test_a_model_is_measured_by_one_process_at_a_time(tmp_path: Path) -> None:
    store, model, host = RunStore(tmp_path / "runs"), Model("a/b", tmp_path), Host(device="cpu")
    with (
        published_runs.opened(store.root, model, host, None),
        pytest.raises(InputError, match="is being measured by another process; give the same command again later"),
        published_runs.opened(tmp_path / "runs", model, host, None),
    ):
        pass


def test_other_files_than_those_that_were_measured_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published_runs, "_hashes", lambda folder: {"config.json": "a" * 64})
    monkeypatch.setattr(published_runs, "models", lambda names, allow_bin: [Model(names[0], tmp_path)])
    same = published_runs.digest({"config.json": "a" * 64}, 64)
    assert published_runs.folder_of(PublishedSpec(name="a/b", files=same)) == tmp_path
    with pytest.raises(InputError, match="holds other files than those of a/b that were measured"):
        published_runs.folder_of(PublishedSpec(name="a/b", files="0" * 64))


def test_a_folder_that_is_elsewhere_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"scores of mine, and no folder of this name is here; .* where mine is"):
        published_runs.folder_of(PublishedSpec(name="mine", files="0" * 64))
