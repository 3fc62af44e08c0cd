"""Sending a run's metrics to trackio, TensorBoard or Weights & Biases, through their own libraries.

The run directory is written in any case; a tracker is a second reader of the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from earnest.config import Tracker
from earnest.errors import UserError

Log = Callable[[str, Mapping[str, Any]], None]


def open_tracker(name: Tracker, run: Path, config: Mapping[str, Any]) -> tuple[Log, Callable[[], None]]:
    """A function that logs one metrics row of a stage, and one that closes the tracker.

    Raises:
        UserError: The library is not installed, or refuses to start.
    """
    if name == "none":
        return (lambda stage, row: None), (lambda: None)
    try:
        return _tensorboard(run) if name == "tensorboard" else _wandb_like(name, run, config)
    except ImportError as error:
        raise UserError(f"--report-to {name} needs the package '{name}'. Install it: pip install {name}.") from error
    except Exception as error:  # no key, no network: the library's own words say which
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"--report-to {name} could not start: {reason}. Mend that, or leave --report-to out.") from error


def _tensorboard(run: Path) -> tuple[Log, Callable[[], None]]:
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(run / "tensorboard"))

    def log(stage: str, row: Mapping[str, Any]) -> None:
        for key, value in _numbers(row).items():
            writer.add_scalar(f"{stage}/{key}", value, row["step"])

    return log, writer.close


def _wandb_like(name: str, run: Path, config: Mapping[str, Any]) -> tuple[Log, Callable[[], None]]:
    import importlib

    library = importlib.import_module(name)  # trackio keeps wandb's interface
    library.init(project="earnest", name=run.name, config=dict(config))

    def log(stage: str, row: Mapping[str, Any]) -> None:
        library.log({f"{stage}/{key}": value for key, value in _numbers(row).items()} | {f"{stage}/step": row["step"]})

    return log, library.finish


def _numbers(row: Mapping[str, Any]) -> dict[str, float]:
    return {key: float(value) for key, value in row.items() if key != "step" and isinstance(value, (int, float))}
