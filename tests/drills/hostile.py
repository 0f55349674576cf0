"""Drills on what others made: folders and files that want to run code, or to be read for ever."""

from __future__ import annotations

import json
import os
import pickle
import random
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from tests.helpers.refused import refused_sentence as refused
from workbench.data import formats, sources, tokenizer
from workbench.errors import InputError
from workbench.spec import experiment
from workbench.spec.parts import DataSpec, TasksSpec
from workbench.store import atomic, checkpoint
from workbench.tasks import table
from workbench.tasks.common.encoder_folders import load_encoder
from workbench.tasks.common.examples import Examples, Task
from workbench.tasks.common.token_rows import encode

from .disk import some
from .small import limit


class Bomb:
    """Makes a folder when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (str(self.mark),))


def pickles(folder: Path, count: int) -> str:
    """Goal 22: checkpoints, encoders, tokenizers and data sets that hold code are refused without running it."""
    tried = 0
    for number in range(count):
        here, mark = folder / str(number), folder / f"ran-{number}"
        here.mkdir()
        cases = list(_malicious(here, mark))
        name, attempt = cases[number % len(cases)]
        said = refused(attempt)
        assert not mark.exists(), f"{name}: code was run"
        assert str(here) in said, f"{name}: {said}"
        tried += 1
    return f"{tried} of {tried} refused in a sentence, code never run"


def _malicious(here: Path, mark: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    bomb = pickle.dumps(Bomb(mark))
    code = f"import os\nos.mkdir({str(mark)!r})\n"
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    config = {"model_type": "electra", "vocab_size": 50, **sizes}

    def checkpointed(name: str) -> Callable[[], object]:
        place = here / "checkpoints"
        path = checkpoint.save(place, 1, some(1), {})
        (path / name).write_bytes(bomb)
        return lambda: checkpoint.newest(place)

    def encoder(settings: dict[str, Any], **content: bytes | str) -> Callable[[], object]:
        path = here / "encoder"
        path.mkdir()
        (path / "config.json").write_text(json.dumps(settings))
        for name, data in content.items():
            file = path / name.replace("__", ".")
            file.write_bytes(data if isinstance(data, bytes) else data.encode())
        return lambda: load_encoder(path, 0.0)

    def tokens(settings: dict[str, Any], **content: str) -> Path:
        path = here / "tokens"
        path.mkdir()
        (path / "tokenizer_config.json").write_text(json.dumps(settings))
        for name, data in content.items():
            (path / name.replace("__", ".")).write_text(data)
        return path

    remote = {"auto_map": {"AutoConfig": "mine.Config", "AutoModel": "mine.Model"}, "model_type": "mine"}
    words = {"tokenizer_class": "Mine", "auto_map": {"AutoTokenizer": ["mine.Mine", None]}}
    torch_file = here / "weights.pt"
    torch.save({"w": torch.ones(1), "x": Bomb(mark)}, torch_file)
    task = Task(
        name="x", suite="table", metric="accuracy", metrics=("accuracy",), labels=("a", "b"), epochs=1.0,
        train=Examples(["a"], None, [0]), tests={"test": Examples(["b"], None, [1])},
    )  # fmt: skip
    builders: list[tuple[str, Callable[[], Callable[[], object]]]] = [
        ("model.safetensors of a checkpoint", lambda: checkpointed("model.safetensors")),
        ("optimizer of a checkpoint", lambda: checkpointed("optimizer.safetensors")),
        ("state of a checkpoint", lambda: checkpointed("state.json")),
        ("manifest of a checkpoint", lambda: checkpointed("manifest.json")),
        ("pytorch_model.bin", lambda: encoder(config, pytorch_model__bin=torch_file.read_bytes())),
        ("plain pickle as weights", lambda: encoder(config, pytorch_model__bin=bomb)),
        ("pickle called safetensors", lambda: encoder(config, model__safetensors=bomb)),
        ("auto_map of a model", lambda: encoder(remote, mine__py=code, model__safetensors=bomb)),
        ("auto_map of a known kind", lambda: encoder({**config, **remote, "model_type": "electra"}, mine__py=code)),
        ("config.json too deep", lambda: encoder({}, config__json="[" * 200_000)),
        ("auto_map of a tokenizer", lambda: _tokenizer(tokens(words, mine__py=code, vocab__txt="a\n"), here)),
        ("auto_map of an encoder's tokenizer",
         lambda: _encoded(tokens(words, mine__py=code, tokenizer__json="{}"), task)),
        ("tokenizer.json too deep", lambda: _tokenizer(tokens({}, tokenizer__json="[" * 200_000), here)),
        ("tokenizer.json that is none", lambda: _encoded(tokens({}, tokenizer__json='{"model": 3}'), task)),
        ("dataset script", lambda: _corpus(here, "set.py", code.encode())),
        ("pickled data set", lambda: _corpus(here, "set.pkl", bomb)),
        ("pickle as parquet", lambda: _corpus(here, "set.parquet", bomb)),
        ("pickle as table", lambda: _table(here / "table.parquet", bomb)),
    ]  # fmt: skip
    for name, build in builders:
        yield name, lambda build=build: build()()  # type: ignore[misc]


def _tokenizer(path: Path, here: Path) -> Callable[[], object]:
    return lambda: tokenizer.train_or_load(DataSpec(tokenizer=str(path)), 0, [], cache=here / "cache")


def _encoded(path: Path, task: Task) -> Callable[[], object]:
    return lambda: encode(path, task, 16)


def _corpus(here: Path, name: str, content: bytes) -> Callable[[], object]:
    folder = here / "set"
    folder.mkdir()
    (folder / name).write_bytes(content)
    return lambda: list(sources.documents(DataSpec(corpus=(str(folder),))))


def _table(path: Path, content: bytes) -> Callable[[], object]:
    path.write_bytes(content)
    return lambda: table.read(path, TasksSpec())


def endless(folder: Path, count: int) -> str:
    """Goal 23: YAML is read nowhere; JSON, tables and experiment files that are deep, huge or no files are refused."""
    slowest = 0.0
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(count):
        here = folder / str(number)
        here.mkdir()
        cases = list(_unreadable(here, random.Random(number)))
        name, attempt = cases[number % len(cases)]
        begun = time.monotonic()
        refused(attempt)
        took = time.monotonic() - begun
        slowest = max(slowest, took)
        assert took < limit(2), f"{name}: {took:.1f} s"
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown < 200, f"{grown:.0f} MB"
    return f"{count} of {count} refused, the slowest after {slowest:.2f} s, with {grown:.0f} MB more memory"


def _unreadable(here: Path, draw: random.Random) -> Iterator[tuple[str, Callable[[], object]]]:
    def file(name: str, content: str | bytes = "", size: int = 0) -> Path:
        path = here / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        if size:
            os.truncate(path, size)
        return path

    def strict(path: Path) -> object:
        try:
            return atomic.read_object(path, format=1)
        except ValueError as error:
            raise InputError(str(error)) from None

    deep = "[" * draw.randrange(5_000, 300_000)
    lines = '{"text": ' + deep + "\n"
    bombs = "a: &a [x,x]\nb: &b [*a,*a]\nc: !!python/object/apply:os.system [id]\n_target_: os.system\n"
    yield "deep JSON", lambda: strict(file("x.json", deep))
    yield "huge JSON", lambda: strict(file("x.json", "{", 100 << 20))
    yield "YAML as JSON", lambda: strict(file("x.json", bombs))
    yield "YAML experiment", lambda: experiment.load(str(file("x.yaml", bombs)))
    yield "YAML called Python", lambda: experiment.load(str(file("y.py", bombs)))
    yield "huge experiment", lambda: experiment.load(str(file("z.py", "#", 100 << 20)))
    yield "deep JSON Lines", lambda: list(formats.read(file("x.jsonl", lines), "text"))
    yield "deep table", lambda: table.read(file("t.jsonl", lines), TasksSpec())
    yield "huge number", lambda: list(formats.read(file("n.jsonl", '{"text": ' + "9" * 100_000 + "}\n"), "text"))
    yield "YAML corpus", lambda: sources.resolve(DataSpec(corpus=(str(file("c.yaml", bombs)),)))
    yield "a pipe as corpus", lambda: _pipe(here / "pipe.txt")


def _pipe(path: Path) -> object:
    os.mkfifo(path)
    return list(sources.documents(DataSpec(corpus=(str(path),))))
