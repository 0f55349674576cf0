"""What a sweep is made of: cells, equal amounts, and the words of `--over`. Nothing is trained here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jobs import OBJECTIVES, rates, run_job

from workbench import objectives, progress
from workbench.errors import InputError
from workbench.execution import sequential_seeds, study
from workbench.execution.search import Search, tune_jobs
from workbench.execution.sequential_seeds import Limit
from workbench.execution.study import Job, check_epochs, equal, flops_ratio, is_equal, job_of
from workbench.spec import experiment, presets
from workbench.spec.experiment import Experiment, grid, load, space_of
from workbench.spec.host import Host
from workbench.spec.parts import Budget
from workbench.spec.run_spec import RunSpec
from workbench.spec.stages import ResolvedSpec
from workbench.training import plan as planning
from workbench.training.plan import plan

NANO = presets.resolve("nano", {"budget.steps": 100})


def plan_job(name: str, base: RunSpec, seeds: int, words: list[str]) -> Job:
    return job_of(experiment.load(name), base, seeds, words)


# ---- cells ----


def test_options_of_objectives_are_axes() -> None:
    job = plan_job("lambda", NANO, 1, [])
    assert [spec.options["weight"] for spec in job.specs] == [1, 10, 20, 50, 100]
    with pytest.raises(InputError, match=r"options\.wieght"):
        job_of(grid(None, space_of({"options.wieght": "1,2"}), None, NANO), NANO, 1, [])


def test_a_scale_may_prefer_another_weight_and_gives_way_to_what_is_asked_for() -> None:
    """nano and mini have weights of their own from a search, small has the paper's 50."""
    words = ["electra-15", "rtd", "bert-mlm"]
    by_name = {spec.objective: spec.options for spec in plan_job("ablation", NANO, 1, words).specs}
    assert by_name["electra-15"] == {"weight": 12.1} and by_name["rtd"]["weight"] == 3.79
    assert "weight" not in by_name["bert-mlm"]
    asked = presets.resolve("nano", {"budget.steps": 100, "options.weight": 7.0})
    assert [spec.options["weight"] for spec in plan_job("ablation", asked, 1, words[:2]).specs] == [7.0, 7.0]
    mini = presets.resolve("mini", {"budget.steps": 100})
    assert [spec.options["weight"] for spec in plan_job("ablation", mini, 1, words[:2]).specs] == [7.71, 7.0]
    small = presets.resolve("small", {"budget.steps": 100})
    assert [spec.options["weight"] for spec in plan_job("ablation", small, 1, words[:2]).specs] == [50.0, 50.0]


def test_an_objective_has_its_scales_settings_but_for_its_own_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presets, "OBJECTIVES", OBJECTIVES)
    words = ["rtd", "bert-mlm", "electra-15"]
    found = experiment.load("ablation")
    job = job_of(found, NANO, 2, words)
    assert rates(job) == {"rtd": 3e-3, "bert-mlm": 2e-3, "electra-15": NANO.optim.lr}
    assert [spec.options.get("weight") for spec in job.specs[:3]] == [7.0, None, 50.0]


def test_what_is_set_for_all_or_varies_overrules_the_objectives_own_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it is set to the very value that the scale has."""
    monkeypatch.setattr(presets, "OBJECTIVES", OBJECTIVES)
    words = ["rtd", "bert-mlm"]
    found = experiment.load("ablation")
    alike = job_of(found, NANO, 1, words, {"optim.lr"})
    assert rates(alike) == dict.fromkeys(words, NANO.optim.lr)
    varied = job_of(grid(None, space_of({"optim.lr": "1e-3"}), None, NANO, words), NANO, 1, words)
    assert rates(varied) == dict.fromkeys(words, 1e-3)


# ---- equal amounts ----


def test_what_one_variant_sets_leaves_the_rows_of_other_arms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(presets.OBJECTIVES, "nano", {"rtd": {"optim.lr": 3e-3}, "bert-mlm": {"optim.lr": 5e-3}})
    base = presets.resolve("nano", {"budget.steps": 3})
    variant = {"objective": "rtd", "optim.lr": 1e-3, "generator.width": 0.5}
    swept = Experiment("own", "Which rate?", {"objective": ("rtd", "bert-mlm")}, variants=(variant,))
    for seeds in (1, 2):
        found = [(spec.objective, spec.seed, spec.optim.lr) for spec in job_of(swept, base, seeds, []).specs]
        rates = [("rtd", 3e-3), ("bert-mlm", 5e-3), ("rtd", 1e-3)]
        assert found == [(name, seed, rate) for seed in range(seeds) for name, rate in rates]


@given(steps=st.integers(1, 2_000_000), unit=st.sampled_from(["flops", "tokens", "steps"]),
       convention=st.sampled_from(["paper", "paper-sparse", "matmul"]))  # fmt: skip
@settings(deadline=None, max_examples=40)
def test_the_first_cell_keeps_its_steps_and_the_others_get_what_it_spends(
    steps: int, unit: str, convention: str
) -> None:
    base = presets.resolve("nano", {"budget.steps": steps, "budget.convention": convention})
    found = Experiment("x", "?", {"generator.width": (0.5, 0.125)}, match=unit)
    (first, second), (match,) = equal(found, list(found.runs(base, 1)))
    assert first.budget == second.budget and first.budget.unit == unit
    one, other = plan(first), plan(second)
    assert one.steps == steps
    if unit == "flops":
        assert match.amount == pytest.approx(one.flops[convention], rel=1e-12)
        assert other.flops[convention] <= match.amount * (1 + 1e-12) < other.flops[convention] * (1 + 1 / other.steps)
        assert other.steps >= steps  # the smaller generator affords more
    else:
        assert other.steps == steps


def test_without_a_match_budgets_stay_as_given() -> None:
    job = plan_job("ablation", NANO, 1, [])
    assert equal(job.experiment, job.specs) == (list(job.specs), [])
    assert {plan(spec).steps for spec in job.specs} == {100}


@pytest.mark.parametrize(
    ("scale", "budget"),
    [
        ("nano", {"budget.flops": 5e12}),
        ("nano", {"budget.tokens": 2e7}),
        ("nano", {"budget.steps": 5_000}),
        ("small", {}),
    ],
)
def test_run_matches_flops_whatever_the_unit_of_the_budget(scale: str, budget: dict[str, float]) -> None:
    base = presets.resolve(scale, budget)
    priced, _ = run_job("ablation", base).priced
    assert is_equal(flops_ratio(priced)) and len({found.steps for _, found in priced}) == 5
    if base.budget.unit == "steps":
        assert priced[0][1].steps == base.budget.steps, "the first objective keeps the steps it was given"
    priced, matches = run_job("ablation", base, match="none").priced
    assert not matches and {spec.budget for spec, _ in priced} == {base.budget}
    assert is_equal(flops_ratio(priced)) == (base.budget.unit == "flops")


def test_a_single_arm_keeps_its_budget_as_it_was_given() -> None:
    assert {spec.budget for spec, _ in run_job("ablation", NANO, ["rtd"], seeds=3).priced[0]} == {NANO.budget}
    assert {spec.budget.unit for spec, _ in run_job("ablation", NANO, ["rtd", "bert-mlm"]).priced[0]} == {"flops"}


def test_a_plan_says_where_an_amount_comes_from_unless_it_was_given() -> None:
    def sentence(budget: dict[str, float]) -> str:
        return run_job("ablation", NANO.replace(budget=budget), ["bert-mlm", "rtd"]).priced[1][0].sentence()

    assert sentence({"flops": 1e12}) == "every run gets 1e+12 FLOPs (paper convention)"
    assert sentence({"steps": 100}).endswith("which objective=bert-mlm spends in steps=100")

    search = Search({"optim.lr": ("1e-3", "2e-3"), "options.weight": ("1", "2")}, 2)
    searching, _ = tune_jobs(NANO.replace(budget={"steps": 100}), search, ["bert-mlm", "rtd"], "flops")
    told = searching.priced[1][0].sentence()
    assert "objective=bert-mlm, optim.lr=" in told and "options" not in told, "BERT MLM has no weight"


def test_no_steps_stay_no_steps() -> None:
    assert {found.steps for _, found in run_job("ablation", NANO.replace(budget={"steps": 0})).priced[0]} == {0}


def test_a_budget_that_is_too_small_for_another_arm_says_what_was_matched() -> None:
    with pytest.raises(InputError, match=r"less than one step.*objective=bert-mlm spends in steps=1"):
        _ = run_job("ablation", NANO.replace(budget={"steps": 1})).priced


def test_parts_of_a_budget_are_matched_each_on_its_own() -> None:
    found = grid(None, space_of({"budget.share": "0.25,1", "generator.width": "0.5,0.25"}), "flops", NANO)
    specs, matches = equal(found, job_of(found, NANO, 1, []).specs)
    assert [match.given for match in matches] == ["steps=25", "steps=100"]
    assert [plan(spec).steps for spec in specs if spec.generator.width == 0.5] == [25, 100]
    assert found.axis == "generator.width"


# The official script's total of each arm, from its own run (None: the script has no such model). It has no head for
# pairs of segments, which our BERT and ALBERT have and we count, and XLNet's is a constant that was measured.
FIGURE_1 = {
    "small": 1.293743798272e18, "base": 6.424541834277683e19, "large": 7.117606040895488e20,
    "bert-small": 1.4187399146496e18, "gpt-1": 3.968752230785352e19, "bert-base": 6.428335104e19,
    "bert-large": 1.91720905883648e20, "roberta-large": 3.187221435776e21, "albert-xxlarge": 3.113923955392512e22,
    "xlnet-large": 3.856582065028608e21,
}  # fmt: skip
HEADS = {"bert-base": 2e-5, "bert-large": 2e-5, "albert-xxlarge": 2e-5, "xlnet-large": 0.07}


def test_the_arms_of_figure_1_cost_what_the_official_script_says() -> None:
    priced, matches = run_job("paper-figure-1", presets.resolve("nano")).priced
    assert not matches and is_equal(flops_ratio(priced)) is False
    assert [spec.scale for spec, _ in priced] == ["small", "base", "large", *list(FIGURE_1)[3:8], "xlnet-large",
                                                  "albert-xxlarge"]  # fmt: skip
    for spec, found in priced:
        expected, apart = FIGURE_1[spec.scale], HEADS.get(spec.scale, 0)
        assert found.steps == presets.resolve(spec.scale).budget.steps
        assert found.flops["paper"] == pytest.approx(expected, rel=max(apart, 1e-15)), spec.scale
        assert not apart or found.flops["paper"] != expected


def test_scales_with_equal_numbers_of_steps_are_not_matched_with_each_other() -> None:
    """Both have a million steps, and one spends three times the FLOPs of the other."""
    axes = {"objective": ("bert-mlm", "rtd"), "scale": ("bert-base", "bert-large")}
    found = Experiment("x", "?", axes, match="flops")
    specs, matches = equal(found, job_of(found, NANO, 1, []).specs)
    assert [match.amount for match in matches] == pytest.approx([6.428335104e19, 1.91720905883648e20])
    assert {plan(spec).steps for spec in specs if spec.objective == "bert-mlm"} == {1_000_000}
    assert {(spec.scale, spec.budget.flops) for spec in specs} == {
        ("bert-base", matches[0].amount), ("bert-large", matches[1].amount)
    }  # fmt: skip


def test_seconds_are_matched_in_seconds_alone() -> None:
    base = presets.resolve("nano", {"budget.seconds": 60})
    assert grid("generator-size", {}, None, base).match == "seconds"
    with pytest.raises(InputError, match="--match seconds"):
        equal(found := grid("generator-size", {}, "flops", base), list(found.runs(base, 1)))


def swept(key: str, count: int) -> Job:
    base = presets.resolve("nano", {})
    return job_of(
        grid(
            None,
            space_of({key: f"{','.join(str(1 + i) for i in range(count))}"}),
            None,
            base,
        ),
        base,
        1,
        [],
    )


@pytest.mark.parametrize(("key", "most"), [("optim.lr", 1), ("options.weight", 1)])
def test_a_long_axis_builds_each_model_once(key: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[RunSpec] = []
    outline = planning.outline
    monkeypatch.setattr(planning, "outline", lambda spec: (built.append(spec), outline(spec))[1])
    monkeypatch.setattr(planning, "_counted", {})
    priced, _ = swept(key, 300).priced
    assert len(priced) == 300 and len(built) == most


def test_a_long_axis_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.0)
    _ = swept("optim.lr", 3).priced
    assert capsys.readouterr().err.splitlines() == [f"planning runs: {done} of 3" for done in range(3)]


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[RunSpec]:
    """The specs that are planned from here on, one after the other; more than a hundred are an error."""
    found: list[RunSpec] = []

    def counted(spec: ResolvedSpec) -> planning.Plan:
        found.append(spec)
        assert len(found) <= 100, "planning goes on and on"
        return planning.spending(spec)

    monkeypatch.setattr(study, "spending", counted)
    return found


def test_a_parent_cheaper_than_its_run_can_be_matched(planned: list[RunSpec]) -> None:
    """Its share of a budget is another number of steps in another unit, which no rounding of the amount can change."""
    keys = {"budget.tokens": 2e5, "start.take": "encoder", "start.share": 0.25, "start.parent.objective": "bert-mlm"}
    base = presets.resolve("nano", keys)
    priced, (match,) = job_of(grid("ablation", {}, None, base), base, 1, ["rtd", "electra-15"]).priced
    assert match.unit == "flops" and len(planned) == 4
    assert all(0 <= match.amount - found.flops["matmul"] < found.flops_per_step["matmul"] for _, found in priced)


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


def counted_anew(spec: RunSpec) -> dict[str, int]:
    planning._counted.clear()
    return planning.count_parameters(spec)


@pytest.mark.parametrize("name", objectives.names())
def test_parameters_are_counted_once_for_what_they_do_not_depend_on(name: str) -> None:
    first, other = made(name), made(name, **ELSEWHERE).replace(options=options_of(name))
    assert planning._sizes(first) == planning._sizes(other)
    assert counted_anew(first) == counted_anew(other) == planning.count_parameters(other)


@pytest.mark.parametrize("key", SIZES)
def test_parameters_are_counted_anew_for_what_they_depend_on(key: str) -> None:
    first, other = made("rtd"), made("rtd", **{key: SIZES[key]})
    assert planning.count_parameters(first) != planning.count_parameters(other) == counted_anew(other)


def test_options_of_an_objective_of_others_may_be_sizes(tmp_path: Path) -> None:
    path = tmp_path / "wide.py"
    text = (
        Path(objectives.__file__).with_name("rtd.py").read_text().replace("weight: float = 50.0", "weight: float = 5")
    )
    path.write_text(text.replace("BinaryHead(encoder, spec.head)", "nn.Linear(3, int(options.weight))"))
    counts = [
        planning.count_parameters(spec.replace(options={"weight": weight}))["head"]
        for spec in [made(str(path)).replace(objective="wide")]
        for weight in (5, 9)
    ]
    assert counts == [20, 36]


def test_the_plans_of_a_command_are_made_once(planned: list[RunSpec]) -> None:
    words = {"data.words": 1000, "data.tokens": 1500}  # of text whose words are counted epochs are checked
    base = presets.resolve("nano", {"budget.flops": 1e9, "tasks.names": "none"} | words)
    job = job_of(load("ablation"), base, 12, ["rtd", "bert-mlm"])
    check_epochs(job, 1e6)
    assert sequential_seeds.most_seeds(job, Limit(12, Budget(flops=1e12)), Host(), 1) == 12
    job = sequential_seeds.whole(job, Limit(12), Host(), 1)
    assert len(job.priced[0]) == len(planned) == 24


def test_a_gate_that_nothing_trains_is_refused_while_it_is_planned() -> None:
    with pytest.raises(InputError, match=r"^options\.stop_gradient leaves the copy gate untrained"):
        objectives.with_options(made("all-tokens-mlm").replace(options={"stop_gradient": True}))
