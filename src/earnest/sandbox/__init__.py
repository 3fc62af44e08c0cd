"""Running code nobody trusts."""

from earnest.sandbox.find import find_sandbox
from earnest.sandbox.sandbox import Limits, Result, Sandbox

__all__ = ["Limits", "Result", "Sandbox", "find_sandbox"]
