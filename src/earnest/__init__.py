"""earnest: rewards that are earned."""

from earnest.errors import UserError
from earnest.task import Task, Verdict, load_task

__all__ = ["Task", "UserError", "Verdict", "load_task"]
__version__ = "0.1.0"
