"""Reading a run's files with suspicion: what is there, whole, ours, and of a format that we know."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.errors import DamagedRun, InputError
from workbench.spec.run_spec import digest, parse
from workbench.spec.scoring import score_file
from workbench.store import atomic, manifest
from workbench.store.atomic import checked_name, loads, own_folder, read_bytes, read_sealed

FORMAT = 1

_NUMBER = (int, float)
_UNNUMBERED = ("plan.json", "env.json")  # facts of the day, read by people; all other files carry a format
_KINDS: dict[str, dict[str, Any]] = {
    "done.json": {"steps": int, "tokens": _NUMBER, "flops": dict, "seconds": _NUMBER, "final": dict},
    "error.json": {"kind": str, "message": str, "time": str},
    "wanted.json": {"scores": list},
    "point.json": {"step": int, "mark": str, "tokens": _NUMBER, "flops": dict, "encoder": dict, "heads": dict},
    "scores": {"task": str, "metric": str, "seed": int, "value": (*_NUMBER, type(None))},
    "failures": {"task": str, "seed": int, "kind": str, "message": str, "time": str},
}
_FACTS: dict[str, dict[str, Any]] = {  # which tell these files from others of the run
    "plan.json": {"steps": _NUMBER, "tokens": _NUMBER, "flops": dict},
    "env.json": {"versions": dict, "machine": dict},
}
_SPEC_KEYS = {"format", "run_id", "identity_sha", "spec_sha", "spec"}
LOOKS = 5  # at a run whose manifest is being replaced meanwhile
POINT = re.compile(r"\d{8,}")  # the folder of a point: its step
_EDGE = 1 << 16  # bytes read at either end of metrics.jsonl to see whether it is whole


def reason(error: Exception) -> str:
    """An exception in a few words."""
    if isinstance(error, FileNotFoundError):
        return f"{Path(str(error.filename)).name} is missing"
    if isinstance(error, OSError):
        return f"{Path(str(error.filename)).name} cannot be read: {error.strerror}"
    return str(error)


def read(folder: Path, name: str, must: bool = False) -> dict[str, Any]:
    """Return the object in file `name` of a run, checked for its hash, run, format and fields.

    Files of older versions carry neither hash nor run; with `must` they are refused. Raises ValueError or OSError.
    """
    value, has_seal = read_sealed(folder / name, format=None if name in _UNNUMBERED else FORMAT)
    if has_seal and name != "spec.json" and (owner := value.pop("run_id", None)) != folder.name:
        raise ValueError(f"{name} is of the run {ascii(owner)[:80]}")
    check_fields(name, value, _KINDS.get(_kind(name), {}))
    if must and not has_seal:
        raise ValueError(f"{name} is not what was written there (it lacks the hash of itself)")
    return value


def _kind(name: str) -> str:
    """Return which kind of file this is: its own name, or that of the folder it is in; points have the same kinds."""
    parts = name.split("/")
    inner = parts[2:] if parts[0] == "points" else parts
    return inner[0] if inner else ""


def check_fields(name: str, value: Mapping[str, Any], kinds: Mapping[str, Any]) -> None:
    """Raises ValueError where a field is missing or of another kind; a list must be one of words."""
    for key, kind in kinds.items():
        found = value.get(key, ...)
        if not isinstance(found, kind) or isinstance(found, bool):
            raise ValueError(f"{name} has no usable {key!r}")
        if isinstance(found, list) and not all(isinstance(item, str) for item in found):
            raise ValueError(f"{name} has no usable {key!r}")


def spec_record(folder: Path) -> tuple[dict[str, Any], bool]:
    """Return what spec.json of a run holds, and whether the run's files carry hashes of themselves.

    Raises ValueError unless it is what was written for this very folder.
    """
    raw, has_seal = read_sealed(folder / "spec.json", format=FORMAT)
    if not isinstance(raw.get("spec"), dict) or not isinstance(raw.get("identity_sha"), str):
        raise ValueError("spec.json lacks the spec or its hash")
    if raw.get("run_id") != folder.name:
        raise ValueError(f"spec.json is of the run {ascii(raw.get('run_id'))[:80]}")
    if raw.get("spec_sha") != digest(raw["spec"], 64) or not (has_seal or raw.keys() <= _SPEC_KEYS):
        raise ValueError("spec.json is not what was written there (its hash differs)")
    return raw, has_seal


def score_names(folder: Path) -> list[str]:
    """File names of a run's scores."""
    return _json_names(folder, "scores")


def failure_names(folder: Path) -> list[str]:
    """Return the names of the scores whose last measurement failed."""
    return _json_names(folder, "failures")


def points(folder: Path) -> list[str]:
    """Return the points of a run as prefixes of the names of their files, such as "points/00000100/", in order."""
    try:
        names = sorted((name for name in os.listdir(folder / "points") if POINT.fullmatch(name)), key=int)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [f"points/{name}/" for name in names]


def point_names(folder: Path, inner: str) -> list[str]:
    """Return the names of the files in a folder of every point, such as "points/00000100/CoLA.json" of `scores`."""
    return [place + name for place in points(folder) for name in _json_names(folder / place, inner)]


def check_score_name(name: str) -> None:
    """Raise InputError where this can be the name of no score: neither of the run's end nor of a point."""
    place, _, file = name.rpartition("/")
    at_point = place.startswith("points/") and POINT.fullmatch(place.removeprefix("points/"))
    checked_name(file if at_point else name, "the name of a score")


def inside(inner: str, name: str) -> str:
    """Return where the file of a score lies: "scores/CoLA.json", or "points/00000100/scores/CoLA.json"."""
    place, slash, file = name.rpartition("/")
    return f"{place}{slash}{inner}/{file}"


def _json_names(folder: Path, inner: str) -> list[str]:
    if (folder / inner).is_symlink():
        raise InputError(f"{inner} is a symbolic link")
    try:
        return sorted(name for name in os.listdir(folder / inner) if name.endswith(".json") and name[0] != ".")
    except FileNotFoundError:
        return []


def weights_digest(done: Mapping[str, Any], part: str) -> str:
    """Return one hash over the files of a run's "encoder" or "heads", which its scores carry."""
    return digest(done.get(part, {}), 64)


def fault(folder: Path, full: bool = False) -> str | None:
    """What is wrong with a run's folder, or None. Never raises.

    Every JSON file is compared with its own hash and the others with their size in the manifest; with `full` all files
    are compared with their hashes there.
    """
    return look(folder, full)[0]


def look(folder: Path, full: bool = False) -> tuple[str | None, dict[str, dict[str, Any]]]:
    """Return the same, and the content of the JSON files that were read on the way, by name."""
    for _ in range(LOOKS):
        before = stamp(folder / manifest.NAME)
        found: dict[str, dict[str, Any]] = {}
        try:
            told = _fault(folder, full, found)
        except (ValueError, OSError, ArithmeticError, TypeError) as error:
            told = reason(error)
        if told is None or before == stamp(folder / manifest.NAME):
            break
    return told, found


def stamp(path: Path) -> tuple[int, int] | None:
    """Return what differs once a file has been replaced."""
    try:
        info = os.lstat(path)
    except OSError:
        return None
    return info.st_mtime_ns, info.st_ino


def _fault(folder: Path, full: bool, found: dict[str, dict[str, Any]]) -> str | None:
    """Return what is wrong, and put the JSON files that were read into `found`."""
    checked_name(folder.name, "the name of a run")
    if not stat.S_ISDIR(os.lstat(folder).st_mode):
        return "is not a folder of its own but a link or a file"
    record, must = spec_record(folder)
    parse(record["spec"])
    for name in ("checkpoints", "encoder", "failures", "heads", "points", "scores", "wandb"):
        try:
            own_folder(folder / name)
        except InputError:
            return f"{name} is not a folder of its own but a link or a file"
    for name in ("plan.json", "env.json", "error.json", "wanted.json", "done.json"):
        with contextlib.suppress(FileNotFoundError):  # an owner may take one away while we look
            found[name] = read(folder, name, must)
            check_fields(name, found[name], _FACTS.get(name, {}))
    wanted = found.get("wanted.json", {})
    for name in (*wanted.get("scores", ()), *wanted.get("points", ())):
        check_score_name(name)
    done = found.get("done.json")
    listed = manifest.read(folder) if done is not None else None
    for name in score_names(folder):
        if told := _score_fault(folder, name, done, must or listed is not None):
            return told
    for name in failure_names(folder):
        checked_name(name, "the name of a score")
        read(folder, f"failures/{name}", must)
    for place in points(folder):
        try:
            told = _point_fault(folder, place, must or listed is not None)
        except (ValueError, OSError) as error:
            told = reason(error)
        if told:
            return told if place in told else place + told
    for name in ("lease", "metrics.jsonl"):
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISREG(os.lstat(folder / name).st_mode):
                return f"{name} is not a regular file"
    if done is None and score_names(folder) and os.path.lexists(folder / manifest.NAME):
        return "done.json is missing"
    lost = next((name for name in ("plan.json", "env.json") if name not in found), None)
    if done is None and lost and _saved(folder):
        return f"{lost} is missing"
    if done is not None and done.get("manifest") and listed is None:
        return f"{manifest.NAME} is missing"
    told = _manifest_fault(folder, listed, full) if listed is not None else None
    return told or _rows_fault(folder / "metrics.jsonl", done)


def _point_fault(folder: Path, place: str, must: bool) -> str | None:
    """Return what is wrong with a point of a run: its record, or a score that was measured there."""
    for name in ("", "encoder", "heads", "scores", "failures"):
        try:
            own_folder(folder / place / name)
        except InputError:
            return f"{place}{name} is not a folder of its own but a link or a file"
    point = read(folder, f"{place}point.json", must=True)
    for name in _json_names(folder / place, "scores"):
        if told := _score_fault(folder, name, point, must, place):
            return told
    for name in _json_names(folder / place, "failures"):
        checked_name(name, "the name of a score")
        read(folder, f"{place}failures/{name}", must)
    return None


def weights_fault(folder: Path, place: str) -> str | None:
    """Return how the weights of a point differ from what its record says; None where they do not. Never raises."""
    try:
        point = read(folder, f"{place}point.json", must=True)
        for part in ("encoder", "heads"):
            if hashes(folder / place / part) != point[part]:
                return f"{place}{part} has changed since it was written"
    except (ValueError, OSError) as error:
        return reason(error)
    return None


def _saved(folder: Path) -> bool:
    """Return whether a run has a checkpoint, which is never written before its plan and its environment are."""
    try:
        return any(name.startswith("step-") for name in os.listdir(folder / "checkpoints"))
    except OSError:
        return False


def _score_fault(folder: Path, name: str, done: Mapping[str, Any] | None, must: bool, place: str = "") -> str | None:
    """Return what is wrong with a score: its content, its place, or the encoder that it was measured on.

    `done` is the record of that encoder, that of the run's end or of the point at `place`.
    """
    checked_name(name, "the name of a score")
    path = f"{place}scores/{name}"
    score = read(folder, path, must)
    check_fields(path, {"values": {}, "baselines": {}} | score, {"values": dict, "baselines": dict})
    stated = [part[score["metric"]] for part in score.get("values", {}).values() if score["metric"] in part]
    if stated and score["value"] not in stated:
        return f"{path} has a value that is not among its values"
    if isinstance(sha := score.get("digest"), str) and name != score_file(score["task"], sha, score["seed"]):
        return f"{path} is the score of {ascii(score['task'])[:80]} with seed {score['seed']}"
    if done is not None and (must or "encoder" in score) and score.get("encoder") != weights_digest(done, "encoder"):
        return f"{path} is of another encoder"
    if done is not None and "heads" in score and score["heads"] != weights_digest(done, "heads"):
        return f"{path} is of other heads"
    return None


def _manifest_fault(folder: Path, listed: manifest.Entries, full: bool) -> str | None:
    """Return the first difference between a finished run and its manifest."""
    told = (found.what for found in manifest.differences(folder, listed, full) if found.kind != "spared")
    return next(told, None)


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
        return atomic.sha256(path)
    except (ValueError, OSError) as error:
        raise DamagedRun(f"{path} cannot be read: {reason(error)}; move the run's folder away") from None


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
        raise DamagedRun(f"{path} {error}") from None
    found = []
    for number, line in enumerate(lines, 1):
        value = row(line)
        if value is None:
            raise DamagedRun(
                f"{path}, line {number}: is not a row of metrics; the file is damaged there, so move the run's folder "
                f"away and give the same command again"
            )
        found.append(value)
    return found
