"""The contract of plug-ins, which all keep: built-in ones, templates, examples, and what is said of a broken one."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from task_data import ENCODED, options, write_data
from typer.testing import CliRunner

from workbench import cli, objectives
from workbench.errors import InputError
from workbench.execution import plug_checks
from workbench.execution.plug_checks import KINDS, Checks, Finding, check
from workbench.models.families import PLUGS as FAMILIES

ROOT = Path(__file__).parents[2]
BUILT_IN = [
    *(("objective", name) for name in objectives.names()), *(("encoder", name) for name in FAMILIES.built_in),
    *(("experiment", str(path)) for path in sorted((ROOT / "experiments").glob("[a-z]*.py"))),
    ("objective", str(ROOT / "examples/half_masked.py")),
]  # fmt: skip


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def faults(findings: list[Finding]) -> list[str]:
    return [f"{each.promise}: {each.fault}" for each in findings if each.fault]


@pytest.mark.parametrize(("kind", "word"), BUILT_IN, ids=lambda word: Path(word).stem)
def test_built_in_plug_ins_and_examples_keep_the_contract(kind: str, word: str) -> None:
    found, findings = check(word, kind)
    assert found == kind and len(findings) > 3 and faults(findings) == []


@pytest.mark.parametrize("kind", [*ENCODED, "minimal_pairs"])
def test_every_kind_of_task_keeps_the_contract(kind: str, here: Path) -> None:
    checks = Checks(kind)
    word = write_data(here)[kind]
    plug_checks.check_task(word, checks, options=options(word))
    assert faults(checks.findings) == [] and len(checks.findings) == 6


def invoke(*words: str) -> Any:
    return CliRunner().invoke(cli.app, list(words))


RUNS = {
    "objective": "run ablation --objective FILE --tasks none",
    "encoder": "run ablation --objective rtd --set encoder.family=FILE --set encoder.options.gated=true "
    "--tasks HERE/pairs,own.jsonl,linear:own.jsonl,similarity:similar.jsonl --set tasks.rows=40 --set tasks.seeds=1",
    "task": "run ablation --objective bert-mlm --tasks FILE",
    "tracker": "run ablation --objective bert-mlm --tasks none --track FILE",
    "experiment": "run FILE --tasks none",
}
SMALL = (
    "--corpus text.txt --budget steps=6 --threads 1 --device cpu --set encoder.hidden=32 --set encoder.vocab=200 "
    "--set data.length=16 --set batch.size=8 --json"
)


@pytest.mark.parametrize("kind", KINDS)
def test_a_template_is_checked_and_run_as_it_is_written(kind: str, here: Path) -> None:
    """`new`, `check` and a run of two steps, each by the command line; the file is never overwritten."""
    (here / "text.txt").write_text("\n\n".join(" ".join(f"word{n * k % 97}" for n in range(60)) for k in range(1, 90)))
    write_data(here)
    made = invoke("new", kind, f"Mine-{kind}")
    path = here / f"mine_{kind}.py"
    assert made.exit_code == 0, made.exception
    assert f"workbench check ./mine_{kind}.py" in made.stdout and "NAME" not in path.read_text()
    assert f"s.Mine {kind}" not in path.read_text(), "a name of Python is no title"
    checked = invoke("check", path.name)
    assert checked.exit_code == 0 and "WRONG" not in checked.stdout, checked.stdout
    assert f"./mine_{kind}.py" in path.read_text(), "its docstring has the commands"
    with pytest.raises(InputError, match=r"mine_\w+\.py exists and is not overwritten"):
        raised("new", kind, path.name)
    ran = invoke(*RUNS[kind].replace("FILE", f"./mine_{kind}.py").replace("HERE", str(here)).split(), *SMALL.split())
    assert ran.exit_code == 0, ran.exception
    outcome = json.loads(ran.stdout)
    assert {row["state"] for row in outcome["runs"]} == {"done"}
    assert (here / outcome["report"]).is_file()


def raised(*words: str) -> None:
    """Raise what a command of the command line raises."""
    result = invoke(*words)
    assert result.exception is not None, result.stdout
    raise result.exception


def broken(kind: str, here: Path, before: str, after: str) -> list[str]:
    """Return the faults that are found in a template in which some text is replaced."""
    path, _ = plug_checks.new(kind, "own")
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))
    return faults(check(str(path), kind)[1])


ENCODER_FAULTS = [
    ("def build(", "def make(", r"own\.py has no build; an encoder needs build, cost"),
    ("def build(config", "def build((config", r"own\.py, line \d+: SyntaxError"),
    ("    return model\n", "    return 3\n", r"build\(config, special\) returns 3, not a torch module"),
    ('TABLE = "tokens"', 'TABLE = "words"', r"the token table `words` of the module is missing"),
    ("nn.Embedding(config.vocab, config.embedding_width)", "nn.Embedding(9, config.hidden)", r"is of shape \(9, 32\)"),
    ("        return states\n", "        return states[:, 0]\n", r"returns states of shape \(4, 32\) for ids of shape"),
    ("        return states\n", "        return states, 1\n",
     r"the encoder returns a tuple for ids of shape \(4, 16\)"),
    ("        return states\n", "        return states / 0\n", r"the states are not all finite numbers"),
    ("        return states\n", "        return states + torch.rand(())\n", r"differ between two passes without drop"),
    ("        return states\n", "        return states.nothing\n", r"own\.py, line \d+: .*AttributeError: .*nothing"),
    ("attention[:, None, None].bool()", "None", r"states of a text change with the padding behind it"),
    ("self.segments(segments))", "self.segments.weight[0])", r"SEGMENTS is true, and segments change no state"),
    ("if self.causal:", "if False:", r"with config.causal, a position sees a later one"),
    ("if self.causal:", "if True:", r'no position sees a later one, for which CAUSAL must be "always"'),
    ('CAUSAL = "optional"', 'CAUSAL = "maybe"', r"CAUSAL is 'maybe', not one of never, optional, always"),
    ('LAYERS = "layers"', 'LAYERS = "blocks"', r"the module has no nn.ModuleList `blocks`; set LAYERS to the path"),
    ("class Options(Part):", "class Options:", r"Options must be a subclass of workbench.spec.parts.Part"),
    ("config, length, gated=", "config, length + 1, gated=",
     r"torch counts [\d,]+ FLOPs .* says [\d,]+ under .* \(\+\d\.\d %\)"),
    ("return flops.transformer(", "return str(", r"cost raised TypeError"),
    ("    return flops.transformer(config, length, gated=Options(**config.options).gated)", "    return 7",
     r"cost\(config, length\) returns 7, not a workbench.models.flops.Flops"),
    ("hidden = F.dropout(hidden, self.rate, self.training)", "hidden = hidden.detach()",
     r"no gradient reaches .*model\.tokens\.weight|no gradient reaches .*positions\.weight"),
    ("    initialise(model, config.init)", "    model.norm.bias.data += __import__('random').random()",
     r"the initial weights of .* differ between two builds with one seed"),
]  # fmt: skip


def test_an_encoder_whose_training_cannot_be_resumed(here: Path) -> None:
    after = "        self.calls = getattr(self, 'calls', 0) + 1\n        return states * self.calls"
    sentences = broken("encoder", here, "        return states\n", after + " ** self.training\n")
    assert any("a run that was stopped and goes on ends with other weights" in each for each in sentences), sentences


OBJECTIVE_FAULTS = [
    ("def cost(", "def price(", r"own\.py has no cost; an objective needs Options, cost, Objective"),
    ("length = spec.data.length", "length = spec.data.length - 1",
     r"torch counts [\d,]+ FLOPs in forward and backward"),
    ("    return flops.encoder", "    return 5 or flops.encoder", r"cost\(spec\) returns 5, not a .*Flops"),
    ('{"mlm_loss": loss}, metrics', '{"step": loss}, metrics', r"named 'step', which is a column of every row"),
    ("        loss = -weighted_mean(log_p", "        loss = -weighted_mean(log_p * float('nan')",
     r"must be one finite number"),
    ("        loss = -weighted_mean(log_p", "        loss = -weighted_mean(log_p * __import__('random').random()",
     r"the loss 'loss' of the same rows differs between two passes"),
    ("        loss = -weighted_mean(log_p", "        loss = -weighted_mean(log_p.detach()",
     r"the total loss has no gradient"),
    ("            self.head = MlmHead(encoder, encoder.table)",
     "            self.head = MlmHead(encoder, encoder.table)\n        self.idle = nn.Linear(3, 3)",
     r"no gradient reaches idle\.weight and 1 other weight;"),
    ('with seeded(spec.seed, "init", "head"):', "if True:",
     r"make them inside `with seeded\(spec\.seed, .init., NAME\):`"),
    ("shown: float = 0.1", "shown: float", r"options\.shown has no value and no default; give one"),
    ("        return pseudo_log_likelihood(self.encoder, self.head, ids, attention, self.spec.data.special)",
     "        return ids.float()", r"score\(ids, attention\) returns the shape \(4, 16\)"),
]  # fmt: skip


OTHER_FAULTS = [
    ("task", "return Cost(3", "return Cost(0", r"own: cost\(\) returns Cost\(flops=0.*needs FLOPs above 0"),
    ("task", '"chance": 100 / 3', '"chance": 1000', r"baselines\(\) are .*must be from -100 to 100"),
    ("task", 'name = suite = "own"', 'name = suite = "other"', r"a measure 'other', which names\(\) does not list"),
    ("task", '{"length": options.length}', '{"length": {1, 2}}',
     r"own: settings\(options\) returns \{'length': \{1, 2\}"),
    ("task", 'act = "comparing"', 'act = ""', r"without a text `act`"),
    ("task", "        right = 0", "        right = __import__('random').random()",
     r"two measurements of one encoder give"),
    ("task", "def load(", "def read(", r"own\.py has no load; a task needs names, load"),
    ("experiment", '"encoder.layers": (1', '"encoder.layer": (1', r"unknown key 'encoder\.layer' in AXES"),
    ("experiment", "(1, 2, 4)", "(0, 1, 2, 4)", r"encoder\.layers=0"),
    ("experiment", "[(1, 2), (2, 4)]", "[(1, 3)]", r"CONTRASTS"),
]  # fmt: skip


FAULTS = [
    *(("encoder", *fault) for fault in ENCODER_FAULTS), *(("objective", *fault) for fault in OBJECTIVE_FAULTS),
    *OTHER_FAULTS,
]  # fmt: skip


@pytest.mark.parametrize(("kind", "before", "after", "message"), FAULTS, ids=lambda text: text.strip()[:30])
def test_a_fault_of_a_file_is_named_in_a_sentence(kind: str, before: str, after: str, message: str, here: Path) -> None:
    sentences = broken(kind, here, before, after)
    assert any(re.search(message, each) for each in sentences), sentences
    assert not any("\n" in each for each in sentences)


def test_a_fault_ends_with_exit_code_1_and_is_in_the_json(here: Path) -> None:
    plug_checks.new("experiment", "own")
    path = here / "own.py"
    path.write_text(path.read_text().replace("[(1, 2), (2, 4)]", "[(1, 2)]").replace("(1, 2, 4)", "(1, 2, -4)"))
    text, document = invoke("check", "own.py"), invoke("check", "own.py", "--json")
    assert text.exit_code == document.exit_code == 1
    assert "own.py breaks the contract of an experiment in 1 point" in text.stdout
    found = json.loads(document.stdout)
    assert found["kind"] == "experiment" and any("encoder.layers=-4" in row["fault"] for row in found["checks"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("new", "objektive", "x"), r"new objektive: there is no such kind of plug-in; did you mean 'objective'\?"),
        (("new", "task", "3x"), r"new task 3x: a name begins with a letter"),
        (("new", "task", "nowhere/x"), r"new task nowhere/x: there is no folder nowhere"),
        (("check", "x.py"), r"check x\.py: there is no such file"),
        (("check", "."), r"check \.: this is a folder; name a file in it"),
        (("check", "empty.py"), r"check empty\.py: this is no plug-in, .*objective: Options, cost, Objective"),
        (("check", "bad.py"), r"bad\.py, line 1: SyntaxError"),
        (("check", "bytes.py"), r"check bytes\.py: this is no text in UTF-8"),
        (("check", "empty.py", "--kind", "encodr"), r"--kind encodr: .*did you mean 'encoder'\?"),
    ],
)
def test_what_cannot_be_written_or_checked_is_refused(words: tuple[str, ...], message: str, here: Path) -> None:
    (here / "empty.py").write_text("x = 1\n")
    (here / "bad.py").write_text("def build(:\n")
    (here / "bytes.py").write_bytes(b"# \xff\xfe\n")
    with pytest.raises(InputError, match=message):
        raised(*words)


def test_each_kind_has_a_template_and_a_recognisable_file(here: Path) -> None:
    for kind in KINDS:
        path, commands = plug_checks.new(kind, f"own_{kind}")
        assert plug_checks.kind_of(path) == kind and all(str(path) in command for command in commands)
    shutil.copy(ROOT / "examples/half_masked.py", here)
    assert plug_checks.kind_of(here / "half_masked.py") == "objective"
