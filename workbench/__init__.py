"""Which pre-training objective, generator size and weight tying make the best text encoder?

`run`, `sweep`, `evaluate` and `submit` do what the commands of these names do, `plan` is their --dry-run; `Store`,
`Study` and `Run` read what they leave on disk. Nothing heavy is loaded before one of them is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workbench.api.stored import Run, Store
    from workbench.api.studies import Comparison, Study, evaluate, plan, run, submit, sweep
    from workbench.errors import InputError

__version__ = "0.1.0"
__all__ = ["Comparison", "InputError", "Run", "Store", "Study", "evaluate", "plan", "run", "submit", "sweep"]
_HOMES = {
    "workbench.api.stored": ("Run", "Store"),
    "workbench.api.studies": ("Comparison", "Study", "evaluate", "plan", "run", "submit", "sweep"),
    "workbench.errors": ("InputError",),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'workbench' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
