"""One run's folder: its files, who writes them, and what state they are in. The folder is the only record of a run."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from workbench.errors import DamagedRun, InputError
from workbench.spec.run_spec import parse
from workbench.spec.stages import ResolvedSpec
from workbench.store import checkpoint, manifest, validation
from workbench.store.atomic import (
    checked_name,
    discard,
    disk_errors,
    draft_in,
    place,
    sealed,
    sync_tree,
    write_atomic,
)
from workbench.store.lease import Lease, acquire
from workbench.store.owner import BEAT, GRACE, alive, read
from workbench.store.redact import redact
from workbench.store.validation import FORMAT

State = Literal["new", "running", "interrupted", "trained", "done", "failed", "diverged", "damaged"]
_RUNNING_TOTALS = ("step", "tokens", "flops", "seconds")


def now() -> str:
    """UTC, to the second, in ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class RunDir:
    """A run on disk. Reading needs nothing; who trains holds the `lease`, and every write is checked against it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.run_id = path.name
        self.owner: Lease | None = None  # the lease, while this process holds it

    def __repr__(self) -> str:
        return f"RunDir({str(self.path)!r})"

    def spec(self) -> ResolvedSpec:
        """What the run is. Raises InputError when spec.json is missing, damaged or of another format."""
        return self._spec

    @functools.cached_property
    def _spec(self) -> ResolvedSpec:
        try:
            self.file("spec.json")
            return ResolvedSpec(parse(validation.spec_record(self.path)[0]["spec"]))
        except (ValueError, OSError) as error:
            raise DamagedRun(f"{self.path}: {validation.reason(error)}") from None

    # -- files

    def file(self, name: str) -> Path:
        """The path of a file or folder of this run, such as "scores/CoLA.json". Raises InputError for any other."""
        path = self.path
        for part in name.split("/"):
            if path.is_symlink():
                raise InputError(f"{path} is a symbolic link; a run's folder holds its files itself")
            path = path / checked_name(part, "the name of a file of a run")
        return path

    def read_json(self, name: str) -> dict[str, Any]:
        """The object in a file of the run. Raises InputError when it is missing, damaged or of another format."""
        try:
            self.file(name)
            return validation.read(self.path, name)
        except (ValueError, OSError) as error:
            raise DamagedRun(f"{self.path}: {validation.reason(error)}") from None

    def write_json(self, name: str, value: Mapping[str, Any]) -> Path:
        """Replace a file in one step; it says of which run it is, and carries a hash of itself.

        Raises LeaseLost when this process's lease was taken over, or OSError.
        """
        return self.write(name, sealed({**value, "run_id": self.run_id}))

    def write(self, name: str, data: bytes) -> Path:
        """The same with any content, as it is. The manifest of a finished run follows."""
        listed = self._listed(name)
        if listed is not None and name in listed:
            del listed[name]
            self._list(listed)
        path = self._put(name, data)
        if listed is not None:
            self._list(listed | {name: manifest.entry(data)})
        return path

    def _put(self, name: str, data: bytes) -> Path:
        path = self.file(name)
        with self._guarded() as stage:
            path.parent.mkdir(exist_ok=True)
            write_atomic(path, data, stage, self.check)
        return path

    def _list(self, files: manifest.Entries) -> None:
        """Replace the manifest."""
        self._put(manifest.NAME, sealed(manifest.content(self.run_id, files)))

    def _listed(self, name: str) -> manifest.Entries | None:
        """Return the manifest where the run is finished, has one, and `name` belongs there."""
        if not manifest.covers(name) or not self.trained:
            return None
        try:
            return manifest.read(self.path)
        except (ValueError, OSError) as error:
            raise DamagedRun(f"{self.path}: {validation.reason(error)}; move that folder away") from None

    @contextlib.contextmanager
    def staged(self, name: str) -> Iterator[Path]:
        """A new folder that takes the place of `name`, such as "encoder", when the block ends well."""
        target = self.file(name)
        with self._guarded() as stage:
            target.parent.mkdir(exist_ok=True)
            draft = draft_in(stage or self.path)
            try:
                with disk_errors(target):
                    draft.mkdir()
                    yield draft
                    sync_tree(draft)
                place(draft, target, self.check, stage)
            finally:
                with contextlib.suppress(OSError):
                    discard(draft, stage)

    def remove(self, name: str) -> None:
        """Take away a file of this run, if it is there."""
        path = self.file(name)
        listed = self._listed(name)
        if listed is not None and name in listed:
            del listed[name]
            self._list(listed)
        with self._guarded() as stage:
            if os.path.lexists(path):
                discard(path, stage)

    # -- ownership

    @contextlib.contextmanager
    def lease(self, patience: float | None = None, beat: float = BEAT, grace: float = GRACE) -> Iterator[Lease]:
        """Own the run inside the block. Raises LeaseHeld when another process does (see `lease.acquire`)."""
        self.file("lease")
        lease = acquire(self.path, patience, beat, grace)
        self.owner = lease
        try:
            yield lease
        finally:
            lease.release()
            self.owner = None

    def check(self) -> None:
        """Raises LeaseLost when this process took a lease on the run and no longer holds it."""
        if self.owner is not None:
            self.owner.check()

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[Path | None]:
        """The owner's staging folder. That it is gone means that the lease is."""
        self.check()
        try:
            yield self.owner.stage if self.owner else None
        except FileNotFoundError:
            self.check()
            raise

    # -- results

    def finish(self, facts: Mapping[str, Any]) -> None:
        """Training is done: `facts` are steps, tokens and flops, and what else is to be kept.

        Time spent and last metrics are those logged. The manifest is written first, with the size and SHA-256 of every
        file, so that later damage is seen.
        Raises InputError when the log lacks a step: then something was lost, and the run is not done.
        """
        steps = int(facts["steps"])
        first = self.read_json("plan.json").get("first", 0) if self._has("plan.json") else 0
        rows = self.rows_to(steps, first)
        last = rows[-1] if rows else {}
        tail = [row for row in rows if row["step"] > steps - max(1, round(0.05 * steps))]
        record = {
            "format": FORMAT,
            **facts,
            "seconds": last.get("seconds") or 0.0,
            "finished": now(),
            "metrics_bytes": validation.size(self.path / "metrics.jsonl"),
            "encoder": validation.hashes(self.path / "encoder"),
            "heads": validation.hashes(self.path / "heads"),
            "final": {key: _mean(row.get(key) for row in tail) for key in last if key not in _RUNNING_TOTALS},
            "manifest": manifest.NAME,
            "run_id": self.run_id,
        }
        done = sealed(record)
        try:
            files = manifest.entries(self.path)
        except (ValueError, OSError) as error:
            raise DamagedRun(f"{self.path}: {validation.reason(error)}; move that folder away") from None
        self._list(files | {"done.json": manifest.entry(done)})
        self._put("done.json", done)

    def fail(
        self,
        kind: Literal["diverged", "failed"],
        message: str,
        step: int | None = None,
        where: str = "",
        trace: str = "",
    ) -> None:
        """Write down why the run stopped; a traceback goes to error.log. Secrets are taken out of both."""
        if trace:
            with self._guarded() as stage:
                write_atomic(self.file("error.log"), redact(trace).encode(errors="replace"), stage, self.check)
        log = "error.log" if trace else None
        record = {"kind": kind, "message": redact(message), "step": step, "where": where, "log": log, "time": now()}
        self.write_json("error.json", {"format": FORMAT, **record})

    def error(self) -> dict[str, Any] | None:
        """Why the run stopped, as `fail` wrote it; None where it did not."""
        return self.read_json("error.json") if self._has("error.json") else None

    def clear_error(self) -> None:
        """A failed run is tried again."""
        self.remove("error.json")
        self.remove("error.log")

    def want(self, scores: Iterable[str]) -> None:
        """Name score files that this run is to have; it is `done` when all that were ever asked for are there.

        A score of a point is named with its place, such as "points/00000100/CoLA-1a2b3c4d-0.json".
        """
        named = set(scores)
        for name in named:
            validation.check_score_name(name)
        if not named <= (before := _wanted(self.read_json("wanted.json") if self._has("wanted.json") else {})):
            every = sorted(named | before)
            listed = {"scores": [name for name in every if "/" not in name]}
            later = {"points": found} if (found := [name for name in every if "/" in name]) else {}
            self.write_json("wanted.json", {"format": FORMAT, **listed, **later})

    def points(self) -> list[str]:
        """Return the places at which training kept its weights, such as "points/00000100/", in order."""
        return validation.points(self.path)

    def scores(self, place: str = "") -> dict[str, dict[str, Any]]:
        """Return file name and content of every score, of the run's end or of the point at `place`.

        Raises InputError naming the first damaged one.
        """
        return {name: self.read_json(f"{place}scores/{name}") for name in validation.score_names(self.path / place)}

    def has_weights(self, place: str = "") -> bool:
        """Return whether encoder and heads are still there, which may be deleted as whole folders."""
        return all((self.path / place / part).is_dir() for part in ("encoder", "heads"))

    def fail_score(
        self, name: str, task: str, seed: int, kind: str, message: str, trace: str = "", act: str = "fine-tuning"
    ) -> None:
        """Write down why a measurement ended without a score; a traceback goes to a file beside it."""
        if trace:
            self.write(self.failure_log(name), redact(trace).encode(errors="replace"))
        told = {"task": task, "seed": seed, "kind": kind, "message": redact(message), "time": now(), "act": act}
        self.write_json(validation.inside("failures", name), {"format": FORMAT, **told})

    @staticmethod
    def failure_log(name: str) -> str:
        """Return the file for the traceback of a measurement that failed."""
        return f"{validation.inside('failures', name).removesuffix('.json')}.log"

    def failure(self, name: str) -> dict[str, Any] | None:
        """Return why the last measurement for this score failed, as `fail_score` wrote it; None where none did."""
        file = validation.inside("failures", name)
        return self.read_json(file) if self._has(file) else None

    def clear_failure(self, name: str) -> None:
        """A failed measurement is tried again, or did end well."""
        self.remove(validation.inside("failures", name))
        self.remove(self.failure_log(name))

    def failures(self) -> dict[str, str]:
        """Return the names of scores whose last measurement failed, each with a sentence that says why."""
        told = {}
        for name in [*validation.failure_names(self.path), *validation.point_names(self.path, "failures")]:
            with contextlib.suppress(InputError):  # an owner may take one away while we look
                found = self.read_json(validation.inside("failures", name))
                act = found.get("act", "fine-tuning")  # older versions measured in no other way
                told[name] = f"{act} on {found['task']} (seed {found['seed']}) {found['kind']}: {found['message']}"
        return told

    def metrics(self) -> list[dict[str, Any]]:
        """All rows logged so far. A torn last line is no row yet; any other damage is an InputError with its line."""
        return validation.rows(self.file("metrics.jsonl"))

    def rows_to(self, step: int, after: int = 0) -> list[dict[str, Any]]:
        """All rows, those of the steps past `after` up to `step`. Raises InputError when one of them is missing."""
        rows = self.metrics()
        for wanted, row in itertools.zip_longest(range(after + 1, step + 1), rows):
            if row is None or row["step"] != wanted:
                wrong = f"lacks the row of step {wanted}" if wanted else f"goes on after step {step}"
                raise DamagedRun(
                    f"{self.path / 'metrics.jsonl'} {wrong}, so the run is not gone on with; "
                    f"move its folder away and give the same command again"
                )
        return rows

    def progress_damage(self) -> str | None:
        """Return what is wrong with an unfinished run's checkpoints, or with its log up to the newest whole one."""
        try:
            found = checkpoint.newest(self.path / "checkpoints")
        except InputError as error:
            return str(error)
        if found is None:
            return None
        if found.state.get("run_id") != self.run_id:
            return f"{found.path.name} is a checkpoint of the run {ascii(found.state.get('run_id'))[:80]}"
        said = found.state.get("log")
        return (
            None
            if said is None or said == self._log_content(said)
            else f"metrics.jsonl changed before {found.path.name}"
        )

    def _log_content(self, said: Mapping[str, Any]) -> dict[str, Any]:
        """Return size and SHA-256 of as many bytes of the log as there were then."""
        try:
            with open(self.file("metrics.jsonl"), "rb") as file:
                return manifest.entry(file.read(int(said["bytes"])))
        except (OSError, ValueError, TypeError, KeyError):
            return {}

    def check_encoder(self, place: str = "") -> None:
        """Raises InputError when a file of the encoder is not as it was when training ended, or another is there.

        `place` is that of a point, whose weights were kept earlier.
        """
        self._check_weights("encoder", place)

    def check_heads(self, place: str = "") -> None:
        """Raises the same for the heads."""
        self._check_weights("heads", place)

    def _weights_record(self, place: str) -> dict[str, Any]:
        """Return the record that holds the hashes of the weights at the run's end, or at a point."""
        return self.read_json(f"{place}point.json" if place else "done.json")

    def _check_weights(self, part: str, place: str) -> None:
        stated = self._weights_record(place).get(part, {})
        found = validation.hashes(self.path / place / part)
        for name in sorted(stated.keys() | found.keys()):
            if stated.get(name) != found.get(name):
                how = "was not there when training ended" if name not in stated else "has changed since it was written"
                raise DamagedRun(
                    f"{self.path / place / part / name} {how if name in found else 'is missing'}; "
                    f"move the run's folder away and give the same command again"
                )

    def weight_digests(self, place: str = "") -> dict[str, str]:
        """Return the hashes that scores carry: over the encoder's files, and over the heads' where there are any."""
        done = self._weights_record(place)
        parts = ("encoder", "heads") if "heads" in done else ("encoder",)  # older versions kept no heads
        return {part: validation.weights_digest(done, part) for part in parts}

    # -- state, read from the files each time

    @property
    def state(self) -> State:
        """What the files say now. Nothing anywhere stores this word."""
        return self._look()[0]

    @property
    def note(self) -> str:
        """What a person wants to know beside the state: the damage, the error, or who is at work."""
        return self._look()[1]

    def summary(self, full: bool = False) -> dict[str, Any]:
        """One row of `workbench status`. With `full` every file is compared with its hash."""
        state, note = self._look(full)
        return {"run_id": self.run_id, "state": state, "note": note, "path": str(self.path)}

    def _look(self, full: bool = False) -> tuple[State, str]:
        damage, found = validation.look(self.path, full)
        if damage:
            return "damaged", damage
        if alive(self.path):
            return "running", f"by {holder}" if (holder := read(self.path)) else ""
        done, error = found.get("done.json"), found.get("error.json")
        if full and done is None and (damage := self.progress_damage()):
            return "damaged", damage
        if done is not None:  # what failed after that is a score, not the run
            told = [*self.failures().values(), *_warnings(done)]
            return "done" if self._scored(found.get("wanted.json")) else "trained", "; ".join(told)
        if error is not None:
            return "diverged" if error["kind"] == "diverged" else "failed", error["message"]
        begun = any(map(self._has, ("metrics.jsonl", "checkpoints", "plan.json", "env.json", "lease")))
        return "interrupted" if begun else "new", ""

    @property
    def damage(self) -> str | None:
        """What is wrong with the folder in a few words, or None. Never raises."""
        return validation.fault(self.path)

    @property
    def covered(self) -> bool:
        """Whether a manifest tells what the files of this finished run are to be. Older versions wrote none."""
        return self._has(manifest.NAME)

    @property
    def trained(self) -> bool:
        """Whether training is over; scores may still be missing."""
        return self._has("done.json")

    def warnings(self) -> list[str]:
        """Return what a reader of a trained run's results must know, as it was written down when training ended."""
        return _warnings(self.read_json("done.json"))

    def _has(self, name: str) -> bool:
        return os.path.lexists(self.path / name)

    def _scored(self, wanted: Mapping[str, Any] | None) -> bool:
        """Return whether all scores that were ever asked for are there; `wanted` is what wanted.json holds."""
        there = {*validation.score_names(self.path), *validation.point_names(self.path, "scores")}
        if wanted and wanted["scores"]:
            return _wanted(wanted) <= there
        return bool(there) or self.spec().tasks.names in ((), ("none",))


def home_of(encoder: Path) -> tuple[RunDir, str]:
    """Return the run whose encoder is in this folder, and the place of its point, "" for the end of training."""
    home = encoder.parent
    if home.parent.name == "points" and validation.POINT.fullmatch(home.name):
        return RunDir(home.parent.parent), f"points/{home.name}/"
    return RunDir(home), ""


def _wanted(record: Mapping[str, Any]) -> set[str]:
    """Return the names of the scores that a run is to have, those of its points included."""
    return {*record.get("scores", ()), *record.get("points", ())}


def _warnings(done: Mapping[str, Any]) -> list[str]:
    told = done.get("warnings", [])
    return [str(each) for each in told] if isinstance(told, list) else []


def _mean(values: Iterable[Any]) -> float | None:
    """Of the numbers among them; None if there are none."""
    numbers = [value for value in values if isinstance(value, (int, float))]
    return sum(numbers) / len(numbers) if numbers else None
