"""Reading a run's files with suspicion: what is there, whole, ours, and of a format that we know."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench import files
from workbench.errors import InputError
from workbench.files import checked_name, loads, own_folder, read_bytes, read_object
from workbench.spec import digest, parse

FORMAT = 1

_NUMBER = (int, float)
_UNNUMBERED = ("plan.json", "env.json")  # facts of the day, read by people; all other files carry a format
_KINDS: dict[str, dict[str, Any]] = {
    "done.json": {"steps": int, "tokens": _NUMBER, "flops": dict, "seconds": _NUMBER, "final": dict},
    "error.json": {"kind": str, "message": str, "time": str},
    "wanted.json": {"scores": list},
    "scores": {"task": str, "metric": str, "seed": int, "value": (*_NUMBER, type(None))},
}
_EDGE = 1 << 16  # bytes read at either end of metrics.jsonl to see whether it is whole


def reason(error: Exception) -> str:
    """An exception in a few words."""
    if isinstance(error, FileNotFoundError):
        return f"{Path(str(error.filename)).name} is missing"
    if isinstance(error, OSError):
        return f"{Path(str(error.filename)).name} cannot be read: {error.strerror}"
    return str(error)


def read(path: Path, name: str) -> dict[str, Any]:
    """The object in file `name` of a run, checked for its format and fields. Raises ValueError or OSError."""
    value = read_object(path, format=None if name in _UNNUMBERED else FORMAT)
    check_fields(name, value, _KINDS.get(name.partition("/")[0], {}))
    return value


def check_fields(name: str, value: Mapping[str, Any], kinds: Mapping[str, Any]) -> None:
    """Raises ValueError where a field is missing or of another kind; a list must be one of words."""
    for key, kind in kinds.items():
        found = value.get(key, ...)
        if not isinstance(found, kind) or isinstance(found, bool):
            raise ValueError(f"{name} has no usable {key!r}")
        if isinstance(found, list) and not all(isinstance(item, str) for item in found):
            raise ValueError(f"{name} has no usable {key!r}")


def spec_record(folder: Path) -> dict[str, Any]:
    """What spec.json of a run holds. Raises ValueError unless it is what was written for this very folder."""
    raw = read(folder / "spec.json", "spec.json")
    if not isinstance(raw.get("spec"), dict) or not isinstance(raw.get("identity_sha"), str):
        raise ValueError("spec.json lacks the spec or its hash")
    if raw.get("run_id") != folder.name:
        raise ValueError(f"spec.json is of the run {ascii(raw.get('run_id'))[:80]}")
    if raw.get("spec_sha") != digest(raw["spec"], 64):
        raise ValueError("spec.json is not what was written there (its hash differs)")
    return raw


def score_names(folder: Path) -> list[str]:
    """File names of a run's scores."""
    if (folder / "scores").is_symlink():
        raise InputError("scores is a symbolic link")
    try:
        return sorted(name for name in os.listdir(folder / "scores") if name.endswith(".json") and name[0] != ".")
    except FileNotFoundError:
        return []


def fault(folder: Path) -> str | None:
    """What is wrong with a run's folder, or None. Never raises."""
    try:
        return _fault(folder)
    except (ValueError, OSError, ArithmeticError, TypeError) as error:
        return reason(error)


def _fault(folder: Path) -> str | None:
    checked_name(folder.name, "the name of a run")
    if not stat.S_ISDIR(os.lstat(folder).st_mode):
        return "is not a folder of its own but a link or a file"
    parse(spec_record(folder)["spec"])
    for name in ("checkpoints", "encoder", "scores", "wandb"):
        try:
            own_folder(folder / name)
        except InputError:
            return f"{name} is not a folder of its own but a link or a file"
    found = {}
    for name in ("plan.json", "env.json", "error.json", "wanted.json", "done.json"):
        with contextlib.suppress(FileNotFoundError):  # an owner may take one away while we look
            found[name] = read(folder / name, name)
    for name in found.get("wanted.json", {}).get("scores", ()):
        checked_name(name, "the name of a score")
    for name in score_names(folder):
        checked_name(name, "the name of a score")
        score = read(folder / "scores" / name, f"scores/{name}")
        check_fields(f"scores/{name}", {"values": {}, "baselines": {}} | score, {"values": dict, "baselines": dict})
        stated = [part[score["metric"]] for part in score.get("values", {}).values() if score["metric"] in part]
        if stated and score["value"] not in stated:
            return f"scores/{name} has a value that is not among its values"
    for name in ("lease", "metrics.jsonl"):
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISREG(os.lstat(folder / name).st_mode):
                return f"{name} is not a regular file"
    return _rows_fault(folder / "metrics.jsonl", found.get("done.json"))


def _rows_fault(path: Path, done: Mapping[str, Any] | None) -> str | None:
    """Both ends of the file are looked at; every line is when the rows are read."""
    steps = done["steps"] if done else 0
    if not os.path.lexists(path):
        return "metrics.jsonl is missing" if steps else None
    with path.open("rb") as file:
        head, whole, _ = file.readline(_EDGE).partition(b"\n")
        if whole and row(head) is None:
            return "metrics.jsonl is damaged in its first line"
        if not steps:
            return None
        file.seek(max(0, os.fstat(file.fileno()).st_size - _EDGE))
        *_, last, rest = [b"", *file.read().split(b"\n")]
        size = os.fstat(file.fileno()).st_size
    end = row(last)
    if end is None or rest:
        return "metrics.jsonl is damaged at its end"
    if done is not None and size != done.get("metrics_bytes", size):
        return f"metrics.jsonl has {size} bytes instead of {done['metrics_bytes']}"
    return None if end["step"] == steps else f"metrics.jsonl ends at step {end['step']} of {steps}"


def size(path: Path) -> int:
    """Bytes of a file, 0 where there is none."""
    return path.stat().st_size if path.exists() else 0


def sha256(path: Path) -> str:
    """Of a regular file, in hexadecimal. Raises InputError where it is none or cannot be read."""
    try:
        return files.sha256(path)
    except (ValueError, OSError) as error:
        raise InputError(f"{path} cannot be read: {reason(error)}; move the run's folder away") from None


def hashes(folder: Path) -> dict[str, str]:
    """SHA-256 of every file of a folder, by name; none where there is no folder."""
    return {path.name: sha256(path) for path in sorted(folder.iterdir())} if folder.is_dir() else {}


def row(line: bytes) -> dict[str, Any] | None:
    """A line of metrics.jsonl, if it is one."""
    try:
        value = loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) and type(value.get("step")) is int else None


def rows(path: Path) -> list[dict[str, Any]]:
    """Every row of a metrics.jsonl. A torn last line is none yet; any other damage is an InputError with its line."""
    try:
        lines = read_bytes(path, largest=1 << 40).split(b"\n")[:-1]
    except FileNotFoundError:
        return []
    except ValueError as error:
        raise InputError(f"{path} {error}") from None
    found = []
    for number, line in enumerate(lines, 1):
        value = row(line)
        if value is None:
            raise InputError(
                f"{path}, line {number}: is not a row of metrics; the file is damaged there, so move the run's folder "
                f"away and give the same command again"
            )
        found.append(value)
    return found
