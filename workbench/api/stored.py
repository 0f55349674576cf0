"""Access to a run store: its runs and experiments as tables, and trained encoders as transformers objects."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.store.run_directory import RunDir
from workbench.store.run_store import RunStore

if TYPE_CHECKING:
    import pandas as pd

    from workbench.api.studies import Study
    from workbench.spec.run_spec import RunSpec


class Run:
    """One run of a store."""

    def __init__(self, folder: RunDir) -> None:
        self._folder = folder

    def __repr__(self) -> str:
        return f"<Run {self.run_id}: {self.state}>"

    @property
    def run_id(self) -> str:
        """The name of the run, which is also the name of its directory."""
        return self._folder.run_id

    @property
    def path(self) -> Path:
        """The run's directory."""
        return self._folder.path

    @property
    def spec(self) -> RunSpec:
        """The run's spec: every setting that decides what it computes. Raises InputError if it cannot be read."""
        return self._folder.spec()

    @property
    def state(self) -> str:
        """The state: new, running, interrupted, trained, done, failed, diverged or damaged."""
        return self._folder.state

    def metrics(self) -> pd.DataFrame:
        """Return metrics.jsonl, a row per logged step: losses, learning rate, tokens and FLOPs so far, and seconds."""
        import pandas as pd

        return pd.DataFrame(self._folder.metrics())

    def scores(self) -> pd.DataFrame:
        """Return the scores at the end of training, with a row for each task and fine-tuning seed."""
        import pandas as pd

        columns = ("task", "suite", "metric", "seed", "value")
        rows = [{key: score.get(key) for key in columns} for score in self._folder.scores().values()]
        return pd.DataFrame(rows, columns=list(columns)).rename(columns={"seed": "fine_tuning_seed"})

    def encoder(self) -> tuple[Any, Any]:
        """Return the trained encoder and its tokenizer, as transformers loads them from the run's directory.

        Raises InputError if the run has no encoder yet, or if its files have changed since they were written.
        """
        from transformers import AutoModel, AutoTokenizer

        from workbench.errors import InputError

        folder = self.path / "encoder"
        if not folder.is_dir():
            raise InputError(f"{self.run_id} is {self.state} and has no encoder; train it to its end first")
        self._folder.check_encoder()
        return AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)


class Store:
    """A store of runs: the folder that `--runs` names. Raises InputError if there is none; nothing is written."""

    def __init__(self, root: Path | str = "runs") -> None:
        self._store = RunStore.existing(root)

    def __repr__(self) -> str:
        return f"<Store {self._store.root}: {len(self._store.runs())} runs>"

    @property
    def root(self) -> Path:
        """The folder of the store."""
        return self._store.root

    def run(self, name: str) -> Run:
        """Return a run by its name, or by a part that no other name has. Raises InputError if there is no such run."""
        from workbench.report.load.runs_table import find_run

        return Run(find_run(self._store, name))

    def runs(self, where: Sequence[str] = (), sort: str | None = None) -> pd.DataFrame:
        """Return a table with a row for each run: state, settings by dotted key, compute spent, and mean scores.

        `where` has conditions as in `workbench runs --where` ("objective=rtd", "seed<3"). `sort` is a column,
        with a minus before it for the largest first. Raises InputError for a condition that no run can meet.
        """
        import pandas as pd

        from workbench.report.load import runs_table

        return pd.DataFrame(runs_table.filtered(runs_table.rows(self._store), where, sort))

    def studies(self) -> list[str]:
        """Return the names of the experiments' records, the last updated one first."""
        return [
            record.name for record in sorted(self._store.experiments(), key=lambda each: each.updated, reverse=True)
        ]

    def study(self, name: str) -> Study:
        """Return an experiment by its name, or by the name of its record. Raises InputError if there is none."""
        from workbench.api.studies import Study
        from workbench.report import find_record

        return Study(self._store, find_record(self._store, name))

    def view(self, host: str = "127.0.0.1", port: int | None = None, browser: bool = True) -> None:
        """Serve the pages of `workbench view` until Ctrl-C, and print their address.

        Raises InputError if the address cannot be used.
        """
        from workbench.view import view

        view(self._store, host, port, browser)
