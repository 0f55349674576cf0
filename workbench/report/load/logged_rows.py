"""The rows of the training curves of all runs of a report, kept as one array for each run instead of dictionaries."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pandas as pd

COUNTS = ("first_step", "last_step", "rows")  # columns of integers, which every row has
STRETCH = ("run_id", "step", *COUNTS)


class LoggedRows(Mapping[str, list[dict[str, Any]]]):
    """A mapping from a run id to the rows of its training curve; the dictionaries are made when they are asked for.

    Every row has the columns STRETCH, and those metrics that the run logged there.
    """

    def __init__(self) -> None:
        self._names: dict[str, tuple[str, ...]] = {}  # run id -> columns of its array
        self._values: dict[str, npt.NDArray[np.float64]] = {}  # run id -> (rows, columns), NaN where there is none
        self._shared: dict[tuple[str, ...], tuple[str, ...]] = {}

    def add(self, run_id: str, rows: Sequence[Mapping[str, float]]) -> None:
        """Keep the rows of a run, of finite numbers; a run without rows is not kept."""
        import numpy as np

        if not rows:
            return
        names = tuple(dict.fromkeys(name for row in rows for name in row))
        self._names[run_id] = self._shared.setdefault(names, names)
        self._values[run_id] = np.array([[row.get(name, math.nan) for name in names] for row in rows])

    def __getitem__(self, run_id: str) -> list[dict[str, Any]]:
        names = self._names[run_id]
        return [
            {"run_id": run_id, **{n: int(v) if n in COUNTS else v for n, v in zip(names, row, strict=True) if v == v}}
            for row in self._values[run_id].tolist()
        ]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def frame(self) -> pd.DataFrame:
        """Return all rows as one table, with a column for each metric that any run logged."""
        import numpy as np
        import pandas as pd

        if not self._names:
            return pd.DataFrame(columns=list(STRETCH))
        names = list(dict.fromkeys(name for columns in self._shared for name in columns))
        place = {name: number for number, name in enumerate(names)}
        at = {columns: [place[name] for name in columns] for columns in self._shared}
        table = np.full((sum(map(len, self._values.values())), len(names)), math.nan)
        start = 0
        for run_id, values in self._values.items():
            table[start : start + len(values), at[self._names[run_id]]] = values
            start += len(values)
        run_ids = [run_id for run_id, values in self._values.items() for _ in range(len(values))]
        columns = {name: table[:, number] for name, number in place.items()}
        columns |= {name: columns[name].astype(np.int64) for name in COUNTS}
        return pd.DataFrame({"run_id": run_ids, **columns})
