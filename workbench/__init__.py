"""Which pre-training objective, generator size and weight tying make the best text encoder?

`run`, `sweep`, `evaluate` and `submit` do what the commands of these names do, `plan` is their --dry-run; `Store`,
`Study` and `Run` read what they leave on disk. Nothing heavy is loaded before one of them is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workbench.api import Comparison, Run, Store, Study, evaluate, plan, run, submit, sweep
    from workbench.errors import InputError

__version__ = "0.1.0"
__all__ = ["Comparison", "InputError", "Run", "Store", "Study", "evaluate", "plan", "run", "submit", "sweep"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("workbench.errors" if name == "InputError" else "workbench.api"), name)
    raise AttributeError(f"module 'workbench' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
