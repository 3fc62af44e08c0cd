"""earnest: rewards that are earned."""

from earnest.environment import load_task
from earnest.errors import UserError
from earnest.task import Task, Verdict

__all__ = ["Task", "UserError", "Verdict", "load_task"]
__version__ = "0.1.0"
