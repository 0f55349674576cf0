"""How an objective is found: in the folder, in an installed package or in a file; and the messages if it is not."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest
from objective_oracle import NAMES, TINY, build, synthetic, tiny, tiny_of_file

from workbench import objectives, registry
from workbench.errors import InputError
from workbench.models import families
from workbench.models.encoder import build_encoder
from workbench.spec.presets import resolve
from workbench.spec.run_spec import RunSpec
from workbench.training.plan import plan

# An objective of a user: half of the picks are unchanged, and it has an option of its own.
IDEA = '''"""Half-masked: predict the picked tokens, of which every other one is shown as it is."""

from torch import nn

from workbench.models import flops
from workbench.models.corruption import mask_tokens
from workbench.models.heads import MlmHead
from workbench.models.losses import gather, share, weighted_mean
from workbench.spec.parts import Part
from workbench.tensors import StepLoss


class Options(Part):
    shown: float = 0.5


def cost(spec):
    head = flops.lm_head(spec.encoder, spec.data.length, spec.picks)
    return flops.encoder(spec.encoder, spec.data.length) + head


class Objective(nn.Module):
    def __init__(self, encoder, spec, options):
        super().__init__()
        self.encoder, self.spec, self.options = encoder, spec, options
        self.head = MlmHead(encoder, encoder.table)

    def forward(self, batch):
        masked = mask_tokens(batch, self.spec, 1 - self.options.shown)
        hidden = gather(self.encoder(masked.ids, batch.attention), masked.positions)
        likelihood, right = self.head.likelihood(hidden, masked.targets)
        loss = -weighted_mean(likelihood, masked.weights)
        return StepLoss(loss, {"mlm_loss": loss}, {"mlm_accuracy": share(right, masked.weights)})
'''


FAMILY = families.PLUGS.folder.joinpath("electra.py").read_text(encoding="utf-8")


def write(folder: Path, text: str = IDEA, name: str = "half_masked.py") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_the_folder_is_the_registry() -> None:
    entries = {entry.name: entry for entry in objectives.listing()}
    assert set(NAMES) <= set(entries) == set(objectives.names())
    for name in NAMES:
        file = Path(objectives.__file__).with_name(name.replace("-", "_") + ".py")
        assert file.is_file()
        assert entries[name].source == "built in"
        assert entries[name].summary and entries[name].summary in file.read_text(encoding="utf-8")
        assert "\n" not in entries[name].summary
        assert objectives.find(name) == (name, "")


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("rdt", "unknown objective 'rdt'; did you mean 'rtd'?"),
        ("bert-ml", "did you mean 'bert-mlm'?"),
        ("electra_15", "did you mean 'electra-15'?"),
        ("xyzzy", "there are adversarial, albert, all-tokens-mlm, bert, bert-mlm"),
        ("__init__", "unknown objective"),
        ("no/such.py", "no such file"),
        ("missing.py", "no such file"),
        ("no/such", "--objective no/such: there is no such file"),
        (
            "~nobody_of_this_name/rtd.py",
            "--objective ~nobody_of_this_name/rtd.py: ~nobody_of_this_name has no home folder",
        ),
    ],
)
def test_unknown_names(word: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        objectives.find(word)
    assert said in str(error.value) and "\n" not in str(error.value)
    if word == "rdt":
        with pytest.raises(InputError, match=str(error.value)):
            objectives.load(RunSpec(objective=word))


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"options.wieght": 3}, "unknown key 'options.wieght'; did you mean 'options.weight'?"),
        ({"options.weight": "heavy"}, "options.weight='heavy' cannot be used"),
        ({"options.weight": float("nan")}, "options.weight"),
    ],
)
def test_wrong_options(keys: dict[str, object], said: str) -> None:
    with pytest.raises(InputError) as error:
        tiny("rtd", keys)
    assert said in str(error.value)


def test_options_are_written_out_so_that_defaults_are_part_of_the_run() -> None:
    assert tiny("rtd").options == {"weight": 50.0}
    assert tiny("rtd").name == tiny("rtd", {"options.weight": "50"}).name
    assert tiny("rtd").name != tiny("rtd", {"options.weight": 49}).name


def test_the_parents_of_a_run_are_written_out_in_full(tmp_path: Path) -> None:
    """Their options and source hashes are included, so that another default or another file does not change a run."""
    trunk = {
        "schedule.kind": "constant",
        "options.weight": 7,
        "start": {"share": 0.5, "take": "encoder", "parent": {"seed": 4}},
    }
    keys = {"start.parent": trunk, "start.share": 0.8, "start.take": "encoder"}
    start = tiny("rtd", keys).start
    assert start is not None
    parent, grandparent = start.parent, start.parent["start"]["parent"]
    assert {key: parent[key] for key in parent if key != "start"} == {
        "schedule.kind": "constant", "options": {"weight": 7.0}, "source": "",
    }  # fmt: skip
    assert (parent["start"]["share"], start.share) == (0.5, 0.8)
    assert grandparent == {"seed": 4, "options": {"weight": 7.0}, "source": ""}

    name, source = objectives.find(str(write(tmp_path)))
    own = resolve("nano", TINY | {"objective": name, "source": source} | keys | {"start.parent": {"seed": 5}})
    start = objectives.with_options(own).start
    assert start is not None and start.parent == {"seed": 5, "options": {"shown": 0.5}, "source": source}
    others = {"start.parent": {"objective": "bert-mlm"}, "start.take": "encoder"}
    start = objectives.with_options(resolve("nano", TINY | {"objective": name, "source": source} | others)).start
    assert start is not None and start.parent == {"objective": "bert-mlm", "options": {}, "source": ""}


def test_a_file_is_an_objective(tmp_path: Path) -> None:
    path = write(tmp_path)
    spec = tiny_of_file(path, {"options.shown": "0.25"})
    assert spec.objective == "half-masked" and len(spec.source) == 16
    assert spec.options == {"shown": 0.25}
    assert objectives.PLUGS.file(spec.source) == path
    objective = build(spec)
    loss = objective(synthetic(spec))
    loss.total.backward()
    assert math.isfinite(loss.total)
    assert plan(spec.replace(budget={"steps": 3})).steps == 3


def test_another_source_text_is_another_run(tmp_path: Path) -> None:
    one = tiny_of_file(write(tmp_path))
    other = tiny_of_file(write(tmp_path, IDEA.replace("0.5", "0.4")))
    assert one.source != other.source and one.name != other.name
    assert objectives.load(other).Options().shown == 0.4
    (tmp_path / "copy").mkdir()
    moved = tiny_of_file(write(tmp_path / "copy", IDEA.replace("0.5", "0.4")))
    assert moved.name == other.name  # the same text in another folder is the same run


def test_a_file_may_have_the_name_of_a_built_in_objective(tmp_path: Path) -> None:
    spec = tiny_of_file(write(tmp_path, name="rtd.py"))
    assert spec.objective == "rtd" and spec.source
    assert "shown" in objectives.load(spec).Options.model_fields
    assert "weight" in objectives.load(tiny("rtd")).Options.model_fields


def test_a_file_that_was_not_named_in_this_process(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="give it with --objective FILE"):
        objectives.load(RunSpec(objective="half-masked", source="0123456789abcdef"))


@pytest.mark.parametrize("value", ["stranger_idea", "stranger_idea:Objective"])
def test_an_installed_package_adds_an_objective(value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, name="stranger_idea.py")
    installed(tmp_path, f"half-masked = {value}\nrtd = nothing.of_ours", monkeypatch)
    monkeypatch.delitem(sys.modules, "stranger_idea", raising=False)
    monkeypatch.setattr(registry, "_files", {})  # other tests have registered the same text as a file

    (entry,) = [entry for entry in objectives.listing() if entry.name == "half-masked"]
    assert entry.source == "stranger 1.2"
    assert entry.summary == "Half-masked: predict the picked tokens, of which every other one is shown as it is."
    assert [e.source for e in objectives.listing() if e.name == "rtd"] == ["built in"]  # no package replaces it

    name, source = objectives.find("half-masked")
    assert name == "half-masked" and len(source) == 16
    spec = objectives.with_options(resolve("nano", TINY | {"objective": name, "source": source}))
    assert math.isfinite(build(spec)(synthetic(spec)).total)
    assert objectives.PLUGS.file(spec.source) is None


def installed(folder: Path, points: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a package "stranger 1.2" with these entry points importable from a folder."""
    info = folder / "stranger-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.2\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[workbench.objectives]\n{points}\n", encoding="utf-8")
    monkeypatch.syspath_prepend(folder)


@pytest.mark.parametrize("value", ["no_such_module_anywhere", "no_such_package_anywhere.part:Objective"])
def test_an_installed_package_whose_module_is_missing(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path, f"half-masked = {value}", monkeypatch)
    assert [e.summary for e in objectives.listing() if e.name == "half-masked"] == [""]
    name, source = objectives.find("half-masked")
    with pytest.raises(InputError, match=f"^objective 'half-masked' of {value}: .*No module named"):
        objectives.load(RunSpec(objective=name, source=source))


def test_an_installed_folder_without_a_file_has_no_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A namespace package has no file whose text could be hashed."""
    (tmp_path / "stranger_folder").mkdir()
    installed(tmp_path, "folder = stranger_folder", monkeypatch)
    name, source = objectives.find("folder")
    assert (name, source) == ("folder", "folder")
    with pytest.raises(InputError, match=r"^stranger_folder has no Options and no cost and no Objective; "):
        objectives.load(RunSpec(objective=name, source=source))


def test_installed_objectives_are_listed_last_whatever_their_files_contain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stranger_silent.py").write_text("x = 1\n", encoding="utf-8")
    (tmp_path / "stranger_broken.py").write_text("def\n", encoding="utf-8")
    points = "bert-mlm = nothing.of_ours\nquiet = stranger_silent\nbroken = stranger_broken"
    installed(tmp_path, points, monkeypatch)
    listed = [(entry.name, entry.summary) for entry in objectives.listing() if entry.source == "stranger 1.2"]
    assert listed == [("broken", ""), ("quiet", "")]
    assert objectives.names()[-2:] == ["broken", "quiet"]


BODY = "    return flops.encoder(spec.encoder, spec.data.length) + head\n"
LINE = IDEA.partition(BODY)[0].count("\n") + 1  # of the end of `cost`
OPTIONS = "class Options(Part):\n    shown: float = 0.5\n"
NO_PART = ": Options must be a subclass of workbench.spec.parts.Part, as in `class Options(Part):`"
NO_MODULE = ": Objective(encoder, spec, options) must be a torch module that keeps the encoder as `self.encoder`"
TOO_LONG = "raised ValueError: Exceeds the limit"
FLOPS = "    from workbench.models.flops import Flops\n    return Flops"
MODULE = "class Objective(nn.Module):\n"
OPERATIONS = ": cost(spec) holds {}, not a number of operations"

REQUIRED = ("Options", "cost", "Objective")

# What is changed in IDEA, and how the sentence about it goes on after the name of the file.
FAULTS: dict[str, tuple[str, str, str]] = {
    **{
        f"no {part}": (f"{kind} {part}", f"{kind} Other", f" has no {part}; an objective needs {', '.join(REQUIRED)}")
        for kind, part in (("class", "Options"), ("def", "cost"), ("class", "Objective"))
    },
    "options of no type": ("class Options(Part):", "class Options:", NO_PART),
    "options that are a dict": ("class Options(Part):", "Options = {}\n\n\nclass Other(Part):", NO_PART),
    "options that raise": (OPTIONS, OPTIONS + "\n    def model_post_init(self, _):\n        1 / 0\n",
                           f", line {IDEA.partition(OPTIONS)[0].count(chr(10)) + 5}: Options raised ZeroDivisionError"),
    "another package": ("import nn", "import nn\nimport no_such_package", "No module named 'no_such_package'"),
    "no Python": ("class Options(Part):", "def broken(:", "SyntaxError"),
    "an error at import": ("class Options(Part):", "raise RuntimeError('on purpose')\n\n\nclass Options(Part):",
                           "RuntimeError: on purpose"),
    "no price": (BODY, "    return None\n", ": cost(spec) returns None, not a workbench.models.flops.Flops"),
    "a word as price": (BODY, FLOPS + "('many', 1, 1)\n", OPERATIONS.format("'many'")),
    "a price below 0": (BODY, FLOPS + "(1, 1, -1)\n", OPERATIONS.format("-1")),
    "a price beyond all": (BODY, FLOPS + "(1, 2e100, 1)\n", OPERATIONS.format("2e+100")),
    "no frozen part": (BODY, FLOPS + "(1, 1, 1, None)\n", OPERATIONS.format("None")),
    "half a frozen part": (BODY, FLOPS + "(1, 1, 1, (0, 0))\n", OPERATIONS.format("(0, 0)")),
    "a price of 0": (BODY, FLOPS + "(1, 1, 0)\n",
                     ": cost(spec) holds 0 operations under matmul, the convention of the budget"),
    "more frozen than all": (BODY, FLOPS + "(1, 2, 1, (0, 3, 0))\n",
                             ": cost(spec) holds 3 operations without a backward pass, more than all 2 operations"),
    "a price that fails": (BODY, "    return 1 / 0\n",
                           f", line {LINE}: cost(spec) raised ZeroDivisionError: division by zero"),
    "a price too long to show": (BODY, "    return 10**5000\n", f": cost(spec) {TOO_LONG}"),
    "options too long to show": ("class Options(Part):", "class Options(Part):\n    huge: int = 10**5000",
                                 f": Options {TOO_LONG}"),
    "CAUSAL too long to show": (MODULE, f"CAUSAL = 10**5000\n\n\n{MODULE}", f": CAUSAL or PAIRS {TOO_LONG}"),
    "PAIRS too long to show": (MODULE, f"PAIRS = 10**5000\n\n\n{MODULE}", f": CAUSAL or PAIRS {TOO_LONG}"),
    "CAUSAL as a word": (MODULE, f'CAUSAL = "no"\n\n\n{MODULE}', ": CAUSAL is 'no', not True or False"),
    "CAUSAL as None": (MODULE, f"CAUSAL = None\n\n\n{MODULE}", ": CAUSAL is None, not True or False"),
    "PAIRS of no kind": (MODULE, f'PAIRS = "never"\n\n\n{MODULE}', ": PAIRS is 'never', not one of next, order"),
    "PAIRS as a number": (MODULE, f"PAIRS = 3\n\n\n{MODULE}", ": PAIRS is 3, not one of next, order"),
    "no encoder": ("self.encoder, self.spec, self.options = encoder, spec, options",
                   "self.spec, self.body = spec, encoder", NO_MODULE),
    "no module": (MODULE, "class Objective:\n    def __new__(cls, *given):\n        return 1\n", NO_MODULE),
    "an encoder in no module": (
        MODULE, "class Objective:\n    def __new__(cls, encoder, *rest):\n        from types import SimpleNamespace\n"
        "        return SimpleNamespace(encoder=encoder)\n", NO_MODULE),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_file_with_a_fault_is_refused_in_a_sentence_that_names_it(fault: str, tmp_path: Path) -> None:
    before, after, message = FAULTS[fault]
    assert before in IDEA
    path = write(tmp_path, IDEA.replace(before, after))
    for _ in range(2):  # a failed import is not kept as a success
        with pytest.raises(InputError) as error:
            spec = tiny_of_file(path)
            objectives.cost(spec)
            objectives.build(spec, build_encoder(spec))
        told = str(error.value)
        if message.startswith((":", ",", " ")) and TOO_LONG not in message and "Options raised" not in message:
            assert told == f"{path}{message}"
        else:
            assert told.startswith(str(path)) and message in told and "\n" not in told


def test_the_largest_cost_is_accepted(tmp_path: Path) -> None:
    spec = tiny_of_file(write(tmp_path, IDEA.replace(BODY, FLOPS + "(1e100, 0, 1)\n")))
    assert objectives.cost(spec).paper == objectives.MOST


def test_no_compiled_copy_is_left_beside_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy of an objective is in the folder of its run, in which any other file counts as damage."""
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    objectives.load(tiny_of_file(write(tmp_path, IDEA + "# of this test alone, so that it is not loaded yet\n")))
    assert [path.name for path in tmp_path.iterdir()] == ["half_masked.py"]


def test_the_copy_beside_a_run_is_read_where_it_is_the_same_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = tiny_of_file(write(tmp_path))
    known = objectives.PLUGS.file(spec.source)
    run = tmp_path / "kept" / ".." / "run"
    (tmp_path / "kept").mkdir()
    objectives.keep_sources(spec, run)  # the copy does not exist yet
    run.mkdir()
    (run / "objective.py").write_text(IDEA)
    objectives.keep_sources(spec, run)
    assert objectives.PLUGS.file(spec.source) == known, "the file that was named here goes first"
    monkeypatch.setattr(registry, "_files", {})
    objectives.keep_sources(spec, tmp_path / "missing")
    (tmp_path / "other").mkdir()
    objectives.keep_sources(spec, write(tmp_path, IDEA + "\n", "other/objective.py").parent)
    assert objectives.PLUGS.file(spec.source) is None
    objectives.keep_sources(tiny("rtd"), run)  # a built-in objective has no source hash
    assert objectives.PLUGS.file("") is None
    objectives.keep_sources(spec, run)
    assert objectives.PLUGS.file(spec.source) == tmp_path / "run/objective.py"


def test_files_of_an_objective_and_a_family_are_known_by_their_names_in_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_files", {})
    files = {"objective.py": write(tmp_path), "encoder.py": write(tmp_path, FAMILY, "own_family.py")}
    plugs = {"objective.py": objectives.PLUGS, "encoder.py": families.PLUGS}
    found = {name: plugs[name].find(str(file)) for name, file in files.items()}
    (name, source), family = found.values()
    spec = tiny(name, {"source": source, "encoder.family": str(files["encoder.py"])})
    assert (spec.encoder.family, spec.encoder.source) == family
    assert objectives.source_files(spec) == files
    monkeypatch.setattr(registry, "_files", {})
    assert objectives.source_files(spec) == {}
    for each, file in files.items():
        objectives.find_file(each, str(file))
    assert objectives.source_files(spec) == files
    monkeypatch.setattr(registry, "_files", {})
    copies = {each: write(tmp_path, file.read_text(), each) for each, file in files.items()}
    objectives.keep_sources(spec, tmp_path)
    assert objectives.source_files(spec) == copies


@pytest.mark.parametrize(
    ("name", "option"), [("objective.py", "--objective "), ("encoder.py", "--set encoder.family=")]
)
def test_a_file_that_is_gone_is_told_with_its_option(name: str, option: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"^{option}{tmp_path}/gone.py: there is no such file"):
        objectives.find_file(name, str(tmp_path / "gone.py"))


def test_a_language_model_loss_needs_an_objective_that_predicts_the_next_token() -> None:
    with pytest.raises(
        InputError, match=r"tasks.lm_weight=0.5: bert-mlm does not learn to predict the next token; set"
    ):
        tiny("bert-mlm", tasks__lm_weight=0.5)
    assert tiny("causal-lm", tasks__lm_weight=0.5).tasks.lm_weight == 0.5
