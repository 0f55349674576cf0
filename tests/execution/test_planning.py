"""Planning thousands of runs: a model is built once for each of its sizes, whatever else the runs differ in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from workbench import objectives
from workbench.errors import InputError
from workbench.execution import auto_seeds, run_list
from workbench.execution.auto_seeds import Limit
from workbench.execution.request import refuse_epochs
from workbench.execution.run_list import job_of, plans
from workbench.spec import presets
from workbench.spec.experiment import load
from workbench.spec.host import Host
from workbench.spec.parts import Budget
from workbench.spec.run_spec import RunSpec
from workbench.spec.stages import ResolvedSpec
from workbench.training import plan


def made(name: str, **changes: Any) -> RunSpec:
    source = objectives.find(name)[1]
    base = presets.resolve("nano", {key.replace("__", "."): value for key, value in changes.items()})
    return objectives.with_options(base.replace(objective=name.split("/")[-1].removesuffix(".py"), source=source))


def options_of(name: str) -> dict[str, Any]:
    """Another value for every option of an objective."""
    given = made(name).options
    return {key: (not value if isinstance(value, bool) else value + 1) for key, value in given.items()}


ELSEWHERE = {
    "seed": 5, "optim__lr": 1e-3, "corruption__rate": 0.3, "encoder__dropout": 0.3, "batch__size": 8,
    "data__length": 64, "budget__steps": 10, "schedule__warmup": 1,
}  # fmt: skip
SIZES = {"encoder__hidden": 128, "encoder__layers": 3, "encoder__vocab": 777, "generator__width": 0.5, "tying": "none"}


@pytest.mark.parametrize("name", objectives.names())
def test_parameters_are_counted_once_for_what_they_do_not_depend_on(name: str) -> None:
    first, other = made(name), made(name, **ELSEWHERE).replace(options=options_of(name))
    assert plan._sizes(first) == plan._sizes(other)
    assert plan._count(first) == plan._count(other) == plan.count_parameters(other)


@pytest.mark.parametrize("key", SIZES)
def test_parameters_are_counted_anew_for_what_they_depend_on(key: str) -> None:
    first, other = made("rtd"), made("rtd", **{key: SIZES[key]})
    assert plan.count_parameters(first) != plan.count_parameters(other) == plan._count(other)


def test_options_of_an_objective_of_others_may_be_sizes(tmp_path: Path) -> None:
    path = tmp_path / "wide.py"
    text = (
        Path(objectives.__file__).with_name("rtd.py").read_text().replace("weight: float = 50.0", "weight: float = 5")
    )
    path.write_text(text.replace("BinaryHead(encoder, spec.head)", "nn.Linear(3, int(options.weight))"))
    counts = [
        plan.count_parameters(spec.replace(options={"weight": weight}))["head"]
        for spec in [made(str(path)).replace(objective="wide")]
        for weight in (5, 9)
    ]
    assert counts == [20, 36]


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[RunSpec]:
    """The specs that are planned from here on, one after the other; more than a hundred are an error."""
    found: list[RunSpec] = []

    def counted(spec: ResolvedSpec) -> plan.Plan:
        found.append(spec)
        assert len(found) <= 100, "planning goes on and on"
        return plan.plan(spec)

    monkeypatch.setattr(run_list, "plan", counted)
    return found


def test_the_plans_of_a_command_are_made_once(planned: list[RunSpec]) -> None:
    words = {"data.words": 1000, "data.tokens": 1500}  # of text whose words are counted epochs are checked
    base = presets.resolve("nano", {"budget.flops": 1e9, "tasks.names": "none"} | words)
    job = job_of(load("ablation"), base, 12, ["rtd", "bert-mlm"])
    refuse_epochs(job, 1e6)
    assert auto_seeds.most_seeds(job, Limit(12, Budget(flops=1e12)), Host(), 1) == 12
    job = auto_seeds.whole(job, Limit(12), Host(), 1)
    assert len(plans(job)[0]) == len(planned) == 24


def test_a_gate_that_nothing_trains_is_refused_while_it_is_planned() -> None:
    with pytest.raises(InputError, match=r"^options\.stop_gradient leaves the copy gate untrained"):
        objectives.with_options(made("all-tokens-mlm").replace(options={"stop_gradient": True}))
