"""earnest: rewards that are earned."""

from typing import TYPE_CHECKING, Any

from earnest.errors import UserError
from earnest.task import Limits, Task, Verdict

if TYPE_CHECKING:
    from earnest.environment import load_task

__all__ = ["Limits", "Task", "UserError", "Verdict", "load_task"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """`load_task` only when it is asked for: it needs NumPy, and pytest loads this module in every project that has earnest."""
    if name == "load_task":
        from earnest.environment import load_task

        return load_task
    raise AttributeError(f"module 'earnest' has no attribute '{name}'")
