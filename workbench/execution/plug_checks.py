"""The contract of plug-ins as checks of one file: `workbench check FILE`, and `workbench new`, which writes a template.

Built-in plug-ins pass the same checks (`tests/contract/`). Encoders and objectives are checked at a small size, on
made-up text, so that a check takes seconds. `KINDS` has a row for each kind of plug-in.

B rows, L positions, D width.
"""

from __future__ import annotations

import ast
import functools
import json
import math
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from workbench.errors import InputError, blaming, is_memory, plural, suggest
from workbench.execution.equal_models import SIZES, batch_of
from workbench.registry import is_path
from workbench.spec.host import Host
from workbench.spec.parts import EncoderSpec, TasksSpec
from workbench.spec.presets import resolve
from workbench.spec.stages import BoundRun, ResolvedSpec
from workbench.store.atomic import user_path

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from workbench.tensors import Batch

T = TypeVar("T")
TEMPLATES = Path(__file__).parents[1] / "templates"
HOST = Host(device="cpu", threads=1, precision="fp32", save_every=2)


class Wrong(InputError):
    """What is wrong with a plug-in, in one sentence."""


@dataclass(frozen=True)
class Finding:
    """One promise of a contract, and the sentence about what is wrong; "" if the plug-in keeps it."""

    promise: str
    fault: str = ""


@dataclass
class Checks:
    """The checks of one plug-in: each is carried out once, and its result is kept in `findings`."""

    file: str
    findings: list[Finding] = field(default_factory=list)

    def that(self, promise: str, act: Callable[[], T]) -> T | None:
        """Carry out a check, which raises Wrong or any error of the plug-in's own code; return its result or None."""
        try:
            with blaming(self.file, "raised"):
                result = act()
        except InputError as error:
            if error.__cause__ is not None and is_memory(error.__cause__):
                raise
            self.findings.append(Finding(promise, str(error)))
            return None
        self.findings.append(Finding(promise))
        return result

    @property
    def kept(self) -> bool:
        """Whether everything that was checked so far is as promised."""
        return not any(each.fault for each in self.findings)


@dataclass(frozen=True)
class Kind:
    """A kind of plug-in: the names by which its files are recognised, its checks, and a command that tries one."""

    parts: tuple[str, ...]
    check: Callable[[str, Checks], None]
    tries: str


def kind_of(path: Path) -> str:
    """Return the kind of plug-in whose names a file defines, or most of them. Raises InputError if there is none."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError(f"check {path}: this is no text in UTF-8, as a Python file is") from None
    with blaming(str(path)):
        tree = ast.parse(text, str(path))
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
    shares = {kind: len(names & {*row.parts}) / len(row.parts) for kind, row in KINDS.items()}
    kind = max(shares, key=shares.__getitem__)
    if not shares[kind]:
        known = "; ".join(f"{name}: {', '.join(row.parts)}" for name, row in KINDS.items())
        raise InputError(f"check {path}: this is no plug-in, which defines the names of its kind ({known})")
    return kind


def check(word: str, kind: str | None = None) -> tuple[str, list[Finding]]:
    """Return the kind of the plug-in in a file, and what its checks found. Raises InputError if there is no such file.

    A built-in plug-in may be given by its name, together with its kind.
    """
    if kind is not None and kind not in KINDS:
        raise InputError(f"--kind {kind}: there is no such kind of plug-in{suggest(kind, KINDS)}")
    if kind is None or is_path(word):
        path = user_path(word, "check")
        if not path.is_file():
            what = "this is a folder; name a file in it" if path.is_dir() else "there is no such file"
            raise InputError(f"check {word}: {what}")
        kind = kind or kind_of(path)
        word = _place(path)
    checks = Checks(word)
    KINDS[kind].check(word, checks)
    return kind, checks.findings


def new(kind: str, name: str) -> tuple[Path, list[str]]:
    """Write the template of a kind of plug-in to `name`.py; return its path and what to do next. Raises InputError."""
    if kind not in KINDS:
        raise InputError(f"new {kind}: there is no such kind of plug-in{suggest(kind, KINDS)}")
    path = user_path(name if name.endswith(".py") else f"{name}.py", "new")
    stem = path.stem.replace("-", "_")
    if not stem.isidentifier() or not stem.isascii() or not stem[0].isalpha():
        raise InputError(
            f"new {kind} {name}: a name begins with a letter from a to z, and has such letters, digits and _ alone"
        )
    path = path.with_name(f"{stem.lower()}.py")
    if not path.parent.is_dir():
        raise InputError(f"new {kind} {name}: there is no folder {path.parent}")
    place = _place(path)
    text = (TEMPLATES / f"{kind}.py").read_text(encoding="utf-8")
    title = stem.replace("_", " ")
    text = text.replace("NAME_", stem.lower()).replace("NAME", title[:1].upper() + title[1:]).replace("FILE", place)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InputError(f"new {kind} {name}: {path} exists and is not overwritten; choose another name") from None
    return path, [f"workbench check {shlex.quote(place)}", KINDS[kind].tries.format(file=shlex.quote(place))]


def _place(path: Path) -> str:
    """Return a path as commands take it: with a slash, so that it is not read as a name."""
    return str(path) if "/" in str(path) else f"./{path}"


# ---- parts of several checks ----


def _spec(keys: Mapping[str, Any]) -> ResolvedSpec:
    from workbench import objectives

    return objectives.with_options(resolve("nano", SIZES | dict(keys)))


def _same_initial_weights(make: Callable[[], nn.Module], advice: str) -> None:
    import torch

    one, other = dict(make().named_parameters()), dict(make().named_parameters())
    if different := [name for name in one if name not in other or not torch.equal(one[name], other[name])]:
        raise Wrong(f"the initial weights of {different[0]} differ between two builds with one seed; {advice}")


def _gradients(objective: nn.Module, batch: Batch) -> None:
    objective(batch).total.backward()
    weights = [(name, weight) for name, weight in objective.named_parameters() if weight.requires_grad]
    idle = [name for name, weight in weights if weight.grad is None or not bool((weight.grad != 0).any())]
    if idle:
        raise Wrong(f"no gradient reaches {_named(idle)}; use each weight, or set its requires_grad to false")


def _named(names: list[str]) -> str:
    others = len(names) - 1
    return f"{names[0]} and {plural(others, 'other weight')}" if others else names[0]


def _shaken(objective: nn.Module) -> nn.Module:
    """Return the objective with weights far from where they start, so that none is at a neutral value."""
    import torch

    numbers = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in objective.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=numbers))
    return objective


def _counted(act: Callable[[], Tensor]) -> int:
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        act().backward()
    return int(counter.get_total_flops())


def _compare_flops(counted: float, cost: float, what: str) -> None:
    if counted != cost:
        raise Wrong(
            f"torch counts {counted:,.0f} FLOPs in forward and backward pass over a row, and {what} says {cost:,.0f} "
            f"under the convention matmul ({100 * (cost / counted - 1):+.1f} %)" if counted else
            f"torch counts no FLOPs, and {what} says {cost:,.0f}"
        )  # fmt: skip


def _trained(spec: ResolvedSpec) -> None:
    """Raise Wrong if a run that is stopped after half of its steps does not end with the bits of a whole one."""
    import torch

    from workbench.bench.turns import made_up
    from workbench.data.corpus import corpus_of
    from workbench.store.run_store import RunStore
    from workbench.training import loop
    from workbench.training.plan import plan

    spec = spec.changed({"encoder.dropout": 0.1, "encoder.attention_dropout": 0.1})  # whose draws are repeated as well
    with tempfile.TemporaryDirectory(prefix="workbench-") as folder:
        prepared = made_up(Path(folder) / "data", spec, tokens=2000)
        run, corpus = RunStore(Path(folder) / "runs").open(BoundRun(spec)), corpus_of(prepared, spec)

        def weights() -> dict[str, torch.Tensor]:
            with run.lease():
                model = loop.train(run, spec, plan(spec), corpus, HOST)
            return {name: weight.detach().clone() for name, weight in model.named_parameters()}

        whole = weights()
        shutil.rmtree(run.path / "checkpoints" / f"step-{4:08d}")
        again = weights()
        if different := [name for name, weight in whole.items() if not torch.equal(again[name], weight)]:
            raise Wrong(
                f"a run that was stopped and goes on ends with other weights, in {_named(different)}; keep what "
                f"training changes in parameters or buffers, and draw by the keys of the rows (workbench.rng.uniform)"
            )


# ---- objectives ----


def check_objective(word: str, checks: Checks) -> None:
    """Check an objective: losses, gradients, cost, resuming, and what a run keeps of it."""
    from workbench import objectives
    from workbench.training.loop import build, plainly
    from workbench.training.plan import count_parameters

    def load() -> ResolvedSpec:
        name, source = objectives.find(word)
        return objectives.with_options(resolve("nano", SIZES).replace(objective=name, source=source))

    spec = checks.that("the file loads, and its options have defaults", load)
    if spec is None:
        return
    batch = batch_of(spec)
    cost = checks.that("cost(spec) returns FLOPs", lambda: objectives.cost(spec))
    if checks.that("Objective(encoder, spec, options) builds a module", lambda: build(spec)) is None or cost is None:
        return

    def loss_of() -> None:
        import torch

        objective = build(spec)
        loss, again = objective(batch), objective(batch)
        loss.check_names(objectives.file_of(objectives.load(spec)))
        for name, value in loss.values().items():
            if value.shape != () or not torch.isfinite(value):
                raise Wrong(f"the loss {name!r} is {value!r:.60}, and must be one finite number")
            if not torch.equal(value, again.values()[name]):
                raise Wrong(
                    f"the loss {name!r} of the same rows differs between two passes; draw by the keys of the rows "
                    f"(workbench.rng.uniform)"
                )
        if not loss.values()["loss"].requires_grad:
            raise Wrong("the total loss has no gradient")

    checks.that("losses are finite numbers that depend on nothing but the rows", loss_of)
    if not checks.kept:
        return
    checks.that("initial weights depend on the seed alone", lambda: _same_initial_weights(
        lambda: build(spec), 'make them inside `with seeded(spec.seed, "init", NAME):`'
    ))  # fmt: skip
    checks.that("gradients reach all weights", lambda: _gradients(_shaken(build(spec)), batch))
    checks.that("cost(spec) agrees with torch's counter", lambda: _compare_flops(
        _counted(lambda: plainly(build(spec))(batch).total) / len(batch.ids), float(cost.train("matmul")), "cost(spec)"
    ))  # fmt: skip
    checks.that("the model can be planned without weights", lambda: count_parameters(spec))
    checks.that("a run that is stopped goes on and ends with the same bits", lambda: _trained(spec))
    checks.that("exported weights give the same losses", lambda: _reloaded(spec, batch))


def _reloaded(spec: ResolvedSpec, batch: Batch) -> None:
    """Raise Wrong if an objective with the weights that a run keeps computes another loss."""
    import torch

    from workbench.models.export import export_heads
    from workbench.tasks.common.sentence_scorers import fill
    from workbench.training.loop import build

    trained: Any = _shaken(build(spec)).eval()
    with tempfile.TemporaryDirectory(prefix="workbench-") as folder:
        encoder, heads = Path(folder) / "encoder", Path(folder) / "heads"
        encoder.mkdir()
        heads.mkdir()
        trained.encoder.save(encoder)
        export_heads(trained, heads)
        again: Any = build(spec.replace(seed=1)).eval()
        fill(again, encoder, heads, spec)
    with torch.no_grad():
        one, other = trained(batch).total.item(), again(batch).total.item()
    if not math.isclose(one, other, rel_tol=1e-5):
        raise Wrong(
            f"with the weights that a run keeps, the loss is {other:.6g} instead of {one:.6g}; keep all that is "
            f"learned in parameters"
        )
    if callable(getattr(again, "score", None)):
        scores = again.score(batch.ids, None)
        if scores.shape != (len(batch.ids),):
            raise Wrong(f"score(ids, attention) returns the shape {tuple(scores.shape)}, not one number for each row")


# ---- encoders ----


def check_encoder(word: str, checks: Checks) -> None:
    """Check a family of encoders: states, gradients, cost, resuming, export, and the tasks' interface."""
    import torch

    from workbench.models import families, flops
    from workbench.models.encoder import Encoder, seeded
    from workbench.training.loop import build
    from workbench.training.plan import count_parameters

    config = checks.that(
        "the file loads, and its options have defaults", lambda: families.resolved(EncoderSpec(family=word))
    )
    if config is None:
        return
    family = families.family_of(config)
    objective = "causal-lm" if family.CAUSAL == "always" else "bert" if family.SEGMENTS else "bert-mlm"
    keys = {"objective": objective, "encoder.family": config.family, "encoder.source": config.source}

    def made(**sizes: Any) -> Any:
        spec = _spec(keys | {f"encoder.{name}": value for name, value in sizes.items()})
        with seeded(0, "check"):
            return Encoder(spec.encoder, spec.data.special)

    if checks.that("build(config, special) returns a module with a token table", made) is None:
        return
    spec = _spec(keys)
    batch = batch_of(spec)
    ids = batch.ids

    @torch.no_grad()
    def states(encoder: Any, *given: Any) -> Tensor:
        hidden: Tensor = encoder.eval()(*given)
        if not torch.isfinite(hidden).all():
            raise Wrong("the states are not all finite numbers")
        return hidden

    def shapes() -> None:
        encoder = made()
        if not torch.equal(states(encoder, ids), states(encoder, ids)):
            raise Wrong("the states of the same rows differ between two passes without dropout")
        states(encoder, ids[:1, :5])

    checks.that("states are (B, L, D), and depend on nothing but the rows", shapes)
    if not checks.kept:
        return

    def padding() -> None:
        real = torch.arange(ids.shape[1]) < ids.shape[1] - 5
        padded = ids.masked_fill(~real, spec.data.special.pad)
        with_padding = states(encoder := _shaken(made()), padded, real.expand(len(ids), -1))
        if not torch.allclose(with_padding[:, real], states(encoder, ids[:, real]), rtol=1e-4, atol=1e-5):
            raise Wrong("states of a text change with the padding behind it; attention (B, L) is false at padding")

    checks.that("padding changes nothing", padding)

    def segments() -> None:
        second = (torch.arange(ids.shape[1]) > 8).long().expand(len(ids), -1)
        if torch.equal(states(encoder := _shaken(made()), ids), states(encoder, ids, None, second)):
            raise Wrong("SEGMENTS is true, and segments change no state")

    if family.SEGMENTS:
        checks.that("segments change the states", segments)

    def order(causal: bool) -> None:
        other = ids.clone()
        other[:, -1] = 5 + (other[:, -1] + 1) % 10
        encoder = _shaken(made(causal=True) if causal and family.CAUSAL == "optional" else made())
        same = torch.allclose(states(encoder, ids)[:, :-1], states(encoder, other)[:, :-1], rtol=1e-4, atol=1e-5)
        if causal and not same:
            raise Wrong("with config.causal, a position sees a later one")
        if not causal and same:
            raise Wrong('no position sees a later one, for which CAUSAL must be "always"')

    if family.CAUSAL != "never":
        checks.that("no position sees a later one if config.causal is true", lambda: order(causal=True))
    if family.CAUSAL != "always":
        checks.that("positions see later ones if config.causal is not true", lambda: order(causal=False))
    checks.that("initial weights depend on the seed alone", lambda: _same_initial_weights(
        made, "draw them with torch's functions alone"
    ))  # fmt: skip
    checks.that("gradients reach all weights", lambda: _gradients(_shaken(build(spec)), batch))

    def priced() -> None:
        encoder, wide = made(), batch_of(spec, rows=8)  # what is computed once for a batch is no part of a row's cost

        def total(given: Batch) -> Tensor:
            states: Tensor = encoder(given.ids)
            return states.sum()

        of_rows = [_counted(functools.partial(total, given)) for given in (batch, wide)]
        cost = float(flops.encoder(spec.encoder, spec.data.length).train("matmul"))
        _compare_flops((of_rows[1] - of_rows[0]) / 4, cost, "cost(config, length)")

    checks.that("cost(config, length) agrees with torch's counter", priced)
    checks.that("the model can be planned without weights", lambda: count_parameters(spec))
    checks.that("a run that is stopped goes on and ends with the same bits", lambda: _trained(spec))
    checks.that("an exported encoder computes the same states, layer by layer", lambda: _exported(made, ids, states))


def _exported(made: Callable[..., Any], ids: Tensor, states: Callable[..., Tensor]) -> None:
    """Raise Wrong if an encoder that was written to a folder and read again has other states."""
    import torch

    from workbench.tasks.common.encoder_folders import load_encoder

    encoder: Any = _shaken(made())
    expected = states(encoder, ids)
    with tempfile.TemporaryDirectory(prefix="workbench-") as folder:
        encoder.save(Path(folder))
        again: Any = load_encoder(Path(folder), 0.0).eval()
        with torch.no_grad():
            output = again(input_ids=ids)
        if not torch.allclose(output.last_hidden_state, expected, rtol=1e-4, atol=1e-5):
            raise Wrong("an encoder that was written to a folder and read again has other states")
        if encoder.family.LAYERS:
            from workbench.tasks._linear_readout import states_of_layers

            layers = states_of_layers(again, {"input_ids": ids})
            if any(state.shape != expected.shape[:2] + state.shape[2:] for state in layers):
                raise Wrong(f"the layers at LAYERS={encoder.family.LAYERS!r} do not return states (B, L, D)")
        if encoder.family.source and encoder.family.to_hub is not None:
            from workbench.data import hugging_face
            from workbench.tasks.common.encoder_folders import load_hugging_face

            files = hugging_face.check_encoder_folder(Path(folder))
            with torch.no_grad():
                hub = load_hugging_face(files, 0.0).eval()(input_ids=ids).last_hidden_state
            if not torch.allclose(hub, expected, rtol=1e-4, atol=1e-5):
                raise Wrong("AutoModel of Hugging Face computes other states from what to_hub wrote")


# ---- tasks ----


def check_task(word: str, checks: Checks, options: TasksSpec | None = None) -> None:
    """Check a kind of task: its names, settings, price and baselines, and a measurement of a small encoder."""
    from workbench import tasks
    from workbench.tasks.common.contract import FINE_TUNING, Cost, Measure, Model, Suite, expected, score_digest, take

    given = (options or TasksSpec(length=16, batch=8, epochs=1, rows=40, seeds=1)).model_copy(update={"names": (word,)})
    if tasks_of_text := checks.that("the file loads, and has names", lambda: [tasks.of_corpus(given)]):
        if tasks_of_text[0]:
            return  # such a task needs a prepared corpus, which a check does not have
    else:
        return
    measures = checks.that("load(names, options, text) returns measures", lambda: tasks.read(given).tasks)
    if not measures:
        return

    def loads_alike() -> None:
        for one, other in zip(measures, tasks.read(given).tasks, strict=True):
            if score_digest(one, given) != score_digest(other, given):
                raise Wrong(f"{one.name}: loading twice gives other settings or another fingerprint")

    def settings(measure: Measure) -> None:
        values = dict(measure.settings(given))
        try:
            json.dumps(values)
        except (TypeError, ValueError):
            raise Wrong(
                f"{measure.name}: settings(options) returns {values!r:.80}, and must hold texts, numbers and "
                f"lists of these alone"
            ) from None
        if not measure.seeds(given) >= 1:
            raise Wrong(f"{measure.name}: seeds(options) returns {measure.seeds(given)}")
        if len({name for *_, name in expected(Suite((measure,)), given)}) != measure.seeds(given):
            raise Wrong(f"{measure.name}: two scores have one name")
        if not all(-100 <= value <= 100 for value in measure.baselines().values()):
            raise Wrong(f"{measure.name}: baselines() are {dict(measure.baselines())}, and must be from -100 to 100")
        if measure.act != FINE_TUNING and tasks.fine_tuned_only(given).chosen:
            raise Wrong(f"{measure.name}: the file says trains = True, and act is {measure.act!r}")

    checks.that("loading twice gives the same scores", loads_alike)
    for measure in measures:
        promise = f"{measure.name}: settings, seeds and baselines are as in the contract"
        checks.that(promise, functools.partial(settings, measure))
    if not checks.kept:
        return
    with tempfile.TemporaryDirectory(prefix="workbench-") as folder:
        encoder, spec = _small_encoder(Path(folder)), resolve("nano", {"encoder.positions": 48})

        def price(measure: Measure) -> None:
            cost = measure.cost(spec, given, encoder)
            if not isinstance(cost, Cost) or cost.flops <= 0 or (cost.steps > 0) != (measure.act == FINE_TUNING):
                raise Wrong(
                    f"{measure.name}: cost() returns {cost!r:.80}, and needs FLOPs above 0, with steps if it trains"
                )

        def score(measure: Measure) -> None:
            one, other = (take(measure, Model(encoder, given), HOST) for _ in range(2))
            if one.value != other.value:
                raise Wrong(f"{measure.name}: two measurements of one encoder give {one.value} and {other.value}")
            if not -100 <= one.value <= 100:
                raise Wrong(f"{measure.name}: the score is {one.value}, and must be from -100 to 100")
            json.dumps(one.to_json())

        for measure in measures:
            checks.that(f"{measure.name}: cost() is a price", functools.partial(price, measure))
            checks.that(f"{measure.name}: two measurements give the same score", functools.partial(score, measure))


def _small_encoder(folder: Path) -> Path:
    """Write a finished run of BERT MLM with random weights and a vocabulary of English words; return its encoder."""
    from workbench.data import tokenizer
    from workbench.models.export import export, export_heads
    from workbench.store.run_store import RunStore
    from workbench.training.loop import build

    texts, words = [path.read_text(encoding="utf-8") for path in sorted(TEMPLATES.glob("*.py"))], folder / "words"
    words.mkdir()
    trained = tokenizer.train(texts, 300)
    tokenizer.save(trained, words, True)
    vocab, special = tokenizer.size(trained), tokenizer.special(words)
    spec = _spec({"objective": "bert-mlm", "encoder.vocab": vocab, "data.special": special.model_dump()})
    model: Any = _shaken(build(spec))
    run, facts = RunStore(folder / "runs").open(BoundRun(spec)), {"steps": 0, "tokens": 0, "flops": {"paper": 0}}
    with run.staged("encoder") as place:
        export(model.encoder, words, place, spec, facts)
    with run.staged("heads") as place:
        export_heads(model, place)
    run.finish(facts)
    return run.path / "encoder"


# ---- experiments ----


def check_experiment(word: str, checks: Checks) -> None:
    """Check an experiment: its file, and the plan of its runs at the scale nano."""
    from workbench.execution.study import job_of
    from workbench.spec import experiment

    loaded = checks.that("the file loads, with a question and axes", lambda: experiment.load(word))
    if loaded is not None:
        job = checks.that("its runs can be made", lambda: job_of(loaded, resolve("nano"), 1, ()))
        if job is not None:
            checks.that("its runs can be planned", lambda: job.priced)
            checks.that("its contrasts are among its runs", lambda: _contrasts(job.left_out))


def _contrasts(left_out: Iterable[str]) -> None:
    for contrast in left_out:
        raise Wrong(f"CONTRASTS declares {contrast}, and no runs have both arms")


def check_tracker(word: str, checks: Checks) -> None:
    """Check a tracker: copies of a made-up run before and after it is resumed, and of one without rows."""
    from workbench import trackers

    checks.that("it copies a run, again when the run is resumed, and one without rows", lambda: trackers.check(word))


KINDS: dict[str, Kind] = {
    "objective": Kind(
        ("Options", "cost", "Objective"), check_objective,
        "workbench run ablation --objective bert-mlm --objective {file} --tasks pairs:replace",
    ),
    "encoder": Kind(
        ("build", "cost"), check_encoder,
        "workbench sweep --objective rtd --over encoder.family=electra,{file} --tasks pairs:replace",
    ),
    "task": Kind(("names", "load"), check_task, "workbench run ablation --objective rtd --tasks {file}"),
    "tracker": Kind(("available", "open"), check_tracker, "workbench run ablation --track {file}"),
    "experiment": Kind(("QUESTION", "AXES"), check_experiment, "workbench run {file} --dry-run"),
}  # fmt: skip


def lines(kind: str, word: str, findings: Iterable[Finding]) -> Iterator[str]:
    """Yield the result of a check as lines of text: one for each promise, and one that sums up."""
    faults = 0
    for each in findings:
        faults += bool(each.fault)
        yield f"WRONG  {each.promise}: {each.fault}" if each.fault else f"ok     {each.promise}"
    article = "an" if kind[0] in "aeiou" else "a"
    kept = f"{word} keeps the contract of {article} {kind}"
    yield f"{word} breaks the contract of {article} {kind} in {plural(faults, 'point')}" if faults else kept
