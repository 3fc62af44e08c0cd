"""The curves of a run, each with one plain sentence on what it shows. Only a run directory is read.

The same drawing serves `curves.png` and the report: in the report's SVGs each colour of `PALETTE` becomes a CSS variable of the
same name, so one curve is right in light and dark.
"""

from __future__ import annotations

import io
import math
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from earnest.errors import UserError
from earnest.lab.trends import change_sentence, check_sentence, dead_sentence, is_number, last_fifth, short, trend
from earnest.rundir import read_jsonl

NAMES = {"base": "base", "sft": "SFT", "grpo": "GRPO", "sft_grpo": "SFT then GRPO"}
RL_STAGES = ("sft_grpo", "grpo")

PALETTE = {
    "ink": "#1d2327", "muted": "#666e75", "rule": "#d9dcdf",
    "base": "#8a929a", "sft": "#b07d2b", "grpo": "#7562a8", "sft_grpo": "#17756a",
    "right": "#2f8f6b", "wrong": "#bb5a46", "tied": "#8f98a1",
    "c1": "#2c6aa0", "c2": "#c2703d", "c3": "#5d8f3c", "c4": "#a34f8a", "c5": "#3a9aa5", "c6": "#a08a1f",
}  # fmt: skip
LINES = [PALETTE[f"c{number}"] for number in range(1, 7)]
STYLE = {
    "font.size": 9, "svg.fonttype": "none", "svg.hashsalt": "earnest", "text.parse_math": False, "text.color": PALETTE["ink"],
    "axes.edgecolor": PALETTE["rule"], "axes.labelcolor": PALETTE["muted"], "axes.spines.top": False, "axes.spines.right": False,
    "axes.grid": True, "axes.grid.axis": "y", "grid.color": PALETTE["rule"], "grid.linewidth": 0.5, "axes.axisbelow": True,
    "xtick.color": PALETTE["rule"], "ytick.color": PALETTE["rule"], "xtick.labelcolor": PALETTE["muted"],
    "ytick.labelcolor": PALETTE["muted"], "legend.frameon": False, "legend.fontsize": 8.5, "axes.formatter.useoffset": False,
}  # fmt: skip
ENDS = {  # of rollouts with tools: how a sentence says it, and a colour
    "answered": ("with an answer", "c3"), "done": ("because the environment was done", "c1"), "turn_limit": ("at the turn limit", "c6"),
    "call_limit": ("at the call limit", "c2"), "token_limit": ("at the token limit", "wrong"),
}  # fmt: skip
SHARE = re.compile(r"reward|check/|echo|tools/(?!call_)")  # metrics between 0 and 1
MAX_POINTS = 400  # raw points drawn in one line; more would only make the page heavy


@dataclass(frozen=True)
class Curve:
    """One drawn curve: its title, what it shows in this run, an inline SVG, and the stage it belongs to."""

    title: str
    sentence: str
    svg: str
    stage: str = ""


@dataclass(frozen=True)
class _Panel:
    stage: str
    title: str
    sentence: str
    draw: Callable[[Axes], None]


def curves_png(run: Path) -> Path:
    """Draw all curves of a run into RUN/curves.png."""
    panels = _panels(run)
    columns = min(3, max(1, len(panels)))
    lines = max(1, math.ceil(len(panels) / columns))
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(4.3 * columns, 2.7 * lines), layout="constrained", facecolor="white")
        FigureCanvasAgg(figure)
        for number, panel in enumerate(panels, 1):
            axes = figure.add_subplot(lines, columns, number)
            _draw(axes, panel)
            legend = axes.get_legend()
            names = [text.get_text() for text in legend.get_texts()] if legend else []
            above = 13 * math.ceil(len(names) / _legend_columns(names))
            axes.set_title(f"{panel.title} ({NAMES[panel.stage]})", loc="left", fontsize=10, pad=8 + above)
        if not panels:
            figure.text(0.5, 0.5, "No training steps yet.", ha="center")
        path, beside = run / "curves.png", run / "curves.png.part"
        figure.savefig(beside, dpi=150, format="png")
    os.replace(beside, path)
    return path


def curve_svgs(run: Path) -> list[Curve]:
    """Every curve of a run as an inline SVG, in reading order; none if no step was trained."""
    return [Curve(panel.title, panel.sentence, _svg(panel), panel.stage) for panel in _panels(run)]


def require_run(run: Path) -> None:
    """Refuse a folder that holds nothing of a run.

    Raises:
        UserError: The folder does not exist or is no run directory.
    """
    if not run.is_dir():
        raise UserError(f"There is no folder '{run}'; give the folder that a run wrote with --out.")
    parts = ("run.json", "summary.json", "difficulty.json", "sft/metrics.jsonl", "grpo/metrics.jsonl", "sft_grpo/metrics.jsonl")
    if not any((run / part).is_file() for part in parts):
        raise UserError(f"'{run}' is not a run directory: it holds no run.json, summary.json or metrics.jsonl; give the folder of a run.")


def _metrics(run: Path, stage: str) -> list[dict[str, Any]]:
    # A resumed run may write a step again; the later line counts.
    rows = {row["step"]: row for row in read_jsonl(run / stage / "metrics.jsonl") if is_number(row.get("step"))}
    return [rows[step] for step in sorted(rows)]


def _column(rows: list[dict[str, Any]], key: str) -> np.ndarray:
    return np.array([row[key] if is_number(row.get(key)) else math.nan for row in rows], dtype=float)


def _panels(run: Path) -> list[_Panel]:
    require_run(run)
    panels: list[_Panel] = []
    for stage in RL_STAGES:
        if rows := _metrics(run, stage):
            panels += _rl_panels(stage, rows)
    if rows := _metrics(run, "sft"):
        loss = _column(rows, "loss")
        panels.append(_line_panel("sft", "Loss", change_sentence("Loss", loss), rows, {"loss": "loss"}))
        panels.append(_gradient_panel("sft", rows))
    return [panel for panel in panels if panel.sentence]


def _rl_panels(stage: str, rows: list[dict[str, Any]]) -> list[_Panel]:
    reward, check, entropy, kl = (_column(rows, key) for key in ("reward", "check/accuracy", "entropy", "kl"))
    panels = [_line_panel(stage, "Reward", change_sentence("Reward", reward), rows, {"reward": "reward"}, band=_spread(rows))]
    if np.isfinite(check).any():
        both = {"reward": "reward", "check/accuracy": "check"}
        panels.append(_line_panel(stage, "Check against reward", check_sentence(reward, check), rows, both))
    keys = sorted({key for row in rows for key in row if re.fullmatch(r"rewards/.+/mean", key)})
    for first in range(0, len(keys), len(LINES)):
        some = {key: key.removeprefix("rewards/").removesuffix("/mean") for key in keys[first : first + len(LINES)]}
        title = "Reward functions" if not first else f"Reward functions, from {first + 1}"
        panels.append(_line_panel(stage, title, _functions_sentence(rows, some), rows, some))
    panels.append(_dead_panel(stage, rows))
    lengths = (_column(rows, "completions/min_length"), _column(rows, "completions/max_length"))
    panels.append(
        _line_panel(stage, "Length in tokens", _length_sentence(rows), rows, {"completions/mean_length": "mean length"}, band=lengths)
    )
    panels.append(_line_panel(stage, "Entropy", _entropy_sentence(entropy), rows, {"entropy": "entropy"}))
    if np.isfinite(kl).any():
        panels.append(_line_panel(stage, "KL to the reference", change_sentence("KL", kl), rows, {"kl": "kl"}))
    panels += _acting_panels(stage, rows)
    panels.append(_line_panel(stage, "Policy loss", _loss_sentence(_column(rows, "loss")), rows, {"loss": "loss"}))
    panels.append(_gradient_panel(stage, rows))
    return panels


def _spread(rows: list[dict[str, Any]]) -> tuple[np.ndarray, np.ndarray]:
    reward, std = _column(rows, "reward"), _column(rows, "reward_std")
    return reward - std, reward + std


def _line_panel(stage: str, title: str, sentence: str, rows: list[dict[str, Any]], keys: dict[str, str], band: Any = None) -> _Panel:
    steps = _column(rows, "step")
    columns = {label: _column(rows, key) for key, label in keys.items()}
    measured = any(np.isfinite(values).any() for values in columns.values())

    def draw(axes: Axes) -> None:
        colours = [PALETTE[stage]] if len(columns) == 1 else LINES
        if band is not None:
            low, high = (_smooth(edge) for edge in band)
            axes.fill_between(steps, low, high, color=colours[0], alpha=0.13, linewidth=0)
        for (label, values), colour in zip(columns.items(), colours, strict=False):
            seen = np.isfinite(values)
            thin = max(1, math.ceil(seen.sum() / MAX_POINTS))
            axes.plot(steps[seen][::thin], values[seen][::thin], "o", color=colour, alpha=0.3, markersize=2.6, markeredgewidth=0)
            axes.plot(steps[seen], _smooth(values[seen]), color=colour, linewidth=1.6, label=label)
        _honest_scale(axes, np.concatenate(list(columns.values())), share=any(SHARE.match(key) for key in keys))

    return _Panel(stage, title, sentence if measured else "", draw)


def _honest_scale(axes: Axes, values: np.ndarray, share: bool) -> None:
    """Shares are drawn from 0 to 1 and other sizes from 0, so that a small change looks small."""
    low, high = np.nanmin(values), np.nanmax(values)
    if low >= 0:
        axes.set_ylim(0, 1.03 if (share and high <= 1) or high == 0 else None)


def _smooth(values: np.ndarray) -> np.ndarray:
    """A centred mean over about an eighth of the steps; missing values are left out of it."""
    half = len(values) // 16
    windows = [values[max(0, at - half) : at + half + 1] for at in range(len(values))]
    means = [window[np.isfinite(window)].mean() if np.isfinite(window).any() else math.nan for window in windows]
    return np.array(means)


def _dead_panel(stage: str, rows: list[dict[str, Any]]) -> _Panel:
    steps, dead = _column(rows, "step"), _column(rows, "frac_reward_zero_std")
    parts = np.nan_to_num(np.array([_column(rows, f"groups/{cause}") for cause in ("all_right", "all_wrong", "tied")]))
    # The split is drawn as shares of the dead groups, so that counts and fractions read alike.
    total = parts.sum(axis=0)
    shares = parts * np.divide(np.nan_to_num(dead), total, out=np.zeros_like(total), where=total > 0)

    def draw(axes: Axes) -> None:
        colours = [PALETTE["right"], PALETTE["wrong"], PALETTE["tied"]]
        smooth = np.array([_smooth(part) for part in shares])
        axes.stackplot(steps, smooth, colors=colours, alpha=0.75, linewidth=0, labels=["all right", "all wrong", "tied"])
        seen = np.isfinite(dead)
        axes.plot(steps[seen], dead[seen], "o", color=PALETTE["ink"], alpha=0.3, markersize=2.6, markeredgewidth=0)
        axes.set_ylim(0, 1.02)

    sentence = dead_sentence(dead, shares.sum(axis=1)) if np.isfinite(dead).any() else ""
    return _Panel(stage, "Dead groups", sentence, draw)


def _acting_panels(stage: str, rows: list[dict[str, Any]]) -> list[_Panel]:
    """What rollouts did with their tools; nothing where there were none."""
    calls, failed, repeated, echo = (
        _column(rows, key) for key in ("tools/call_frequency", "tools/failure_frequency", "tools/repeated", "echo")
    )
    panels = []
    if np.isfinite(calls).any():
        both = {"tools/call_frequency": "calls", "turns/mean": "turns"}
        panels.append(_line_panel(stage, "Calls and turns", change_sentence("Calls a rollout", calls), rows, both))
    if np.isfinite(failed).any():
        said = change_sentence("The share of failed calls", failed) if np.nan_to_num(failed).any() else "No call failed."
        said += f" {change_sentence('That of repeated ones', repeated)}" if np.nan_to_num(repeated).any() else ""
        kinds = {f"tools/{kind}": kind for kind in ("malformed", "hung", "repeated") if np.nan_to_num(_column(rows, f"tools/{kind}")).any()}
        panels.append(_line_panel(stage, "Failed and repeated calls", said, rows, {"tools/failure_frequency": "failed", **kinds}))
    panels.append(_ended_panel(stage, rows))
    panels.append(_line_panel(stage, "Echo", _echo_sentence(echo), rows, {"echo": "echo"}))
    turns = {f"turns/{turn}_length": f"turn {turn}" for turn in range(1, len(LINES) + 1)}
    turns = {key: label for key, label in turns.items() if np.isfinite(_column(rows, key)).any()}
    lengths = [last_fifth(_column(rows, key)) for key in turns]
    said = f"In the last steps the turns have {', '.join(map(short, lengths))} tokens, from the first on." if turns else ""
    panels.append(_line_panel(stage, "Length by turn", said, rows, turns))
    return panels


def _ended_panel(stage: str, rows: list[dict[str, Any]]) -> _Panel:
    shares = {why: np.nan_to_num(_column(rows, f"ended/{why}")) for why in ENDS}
    shares = {why: values for why, values in shares.items() if values.any()}

    def draw(axes: Axes) -> None:
        names, colours = [why.replace("_", " ") for why in shares], [PALETTE[ENDS[why][1]] for why in shares]
        smooth = np.array([_smooth(values) for values in shares.values()])
        axes.stackplot(_column(rows, "step"), smooth, colors=colours, alpha=0.75, linewidth=0, labels=names)
        axes.set_ylim(0, 1.02)

    ends = sorted(((last_fifth(values), why) for why, values in shares.items()), reverse=True)
    said = [f"{100 * share:.0f}% {ENDS[why][0]}" for share, why in ends if share >= 0.005]
    return _Panel(stage, "How rollouts ended", f"In the last steps rollouts ended: {', '.join(said)}." if said else "", draw)


def _echo_sentence(echo: np.ndarray) -> str:
    if not np.nan_to_num(echo).any():
        return "No two rollouts of a step said the same."
    found = trend(echo)
    text = change_sentence("The share of rollouts that say the same as another", echo)
    return f"{text[:-1]}: they became alike." if found is not None and found.word == "rose" else text


def _functions_sentence(rows: list[dict[str, Any]], labels: dict[str, str]) -> str:
    found = {label: trend(_column(rows, key)) for key, label in labels.items()}
    found = {label: one for label, one in found.items() if one is not None}
    if not found:
        return ""
    flat = [name for name, one in found.items() if one.word == "flat"]
    moving = {name: one for name, one in found.items() if one.word != "flat"}
    if not moving:
        return "No reward function moved." if len(found) > 1 else f"{flat[0]} did not move."
    label, most = max(moving.items(), key=lambda item: abs(item[1].end - item[1].start))
    text = f"{label} moved most, from {short(most.start)} to {short(most.end)}"
    return f"{text}; flat: {', '.join(flat)}." if flat else f"{text}."


def _length_sentence(rows: list[dict[str, Any]]) -> str:
    found, clipped = trend(_column(rows, "completions/mean_length")), _column(rows, "completions/clipped_ratio")
    if found is None:
        return ""
    went = {"rose": "grew from", "fell": "shrank from", "flat": "kept their length,", "short": "went from"}
    text = f"Answers {went[found.word]} {short(found.start)} to {short(found.end)} tokens"
    if not np.isfinite(clipped).any():
        return f"{text}."
    share = float(np.nanmean(clipped))
    return f"{text}; none was cut off." if share == 0 else f"{text}; {max(100 * share, 0.1):.2g}% were cut off by the token limit."


def _entropy_sentence(entropy: np.ndarray) -> str:
    found = trend(entropy)
    text = change_sentence("Entropy", entropy)
    if found is None or found.word != "fell":
        return text
    gone = found.end < 0.1 * found.start
    return text[:-1] + (": below a tenth of its start, little exploration is left." if gone else ": answers became more alike.")


def _loss_sentence(loss: np.ndarray) -> str:
    seen = loss[np.isfinite(loss)]
    if not len(seen):
        return ""
    if not seen.any():
        return "It was exactly zero at every step."
    return f"It ranged from {short(seen.min())} to {short(seen.max())}; in GRPO it says little about progress."


def _gradient_panel(stage: str, rows: list[dict[str, Any]]) -> _Panel:
    norm, steps = _column(rows, "grad_norm"), _column(rows, "step")
    sentence = ""
    if np.isfinite(norm).any() and not np.nan_to_num(norm).any():
        sentence = "It was exactly zero at every step: nothing was learned."
    elif np.isfinite(norm).any():
        top = int(np.nanargmax(norm))
        zeros = int((norm == 0).sum())
        sentence = f"Median {short(float(np.nanmedian(norm)))}, largest {short(norm[top])} at step {steps[top]:.0f}"
        sentence += f"; exactly zero in {zeros} of {len(norm)} steps." if zeros else "."
    return _line_panel(stage, "Gradient norm", sentence, rows, {"grad_norm": "gradient norm"})


def _draw(axes: Axes, panel: _Panel) -> None:
    panel.draw(axes)
    axes.set_xlabel("step", fontsize=8.5)
    axes.xaxis.get_major_locator().set_params(integer=True, nbins=7)
    axes.yaxis.get_major_locator().set_params(nbins=5)
    axes.tick_params(length=0)
    axes.margins(x=0.02)
    handles, labels = axes.get_legend_handles_labels()
    if len(labels) > 1:
        axes.legend(handles, labels, loc="lower left", bbox_to_anchor=(-0.02, 0.98), ncols=_legend_columns(labels), handlelength=1.1)


def _legend_columns(names: Sequence[str]) -> int:
    """Three side by side, or two where their names are long."""
    return 3 if sum(len(name) for name in names) <= 30 else 2


def _svg(panel: _Panel) -> str:
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(3.9, 2.3), layout="constrained")
        FigureCanvasSVG(figure)
        _draw(figure.add_subplot(), panel)
        file = io.StringIO()
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    text = file.getvalue()
    text = text[text.index("<svg") :]
    # Inline in a page: no metadata or page-wide style, the page's font, ids that stay unique, no fixed size, themed colours.
    text = re.sub(r"<metadata>.*?</metadata>|<defs>\s*<style.*?</style>\s*</defs>", "", text, flags=re.DOTALL)
    text = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px", text)
    prefix = re.sub(r"\W+", "-", f"{panel.stage}-{panel.title}".lower())
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}-", text)
    text = re.sub(r'<svg[^>]*viewBox="([^"]*)"[^>]*>', r'<svg viewBox="\1" role="img" aria-hidden="true" focusable="false">', text, count=1)
    text = text.replace("xlink:href", "href")
    for name, colour in PALETTE.items():
        text = text.replace(colour, f"var(--{name})")
    return text.strip()
