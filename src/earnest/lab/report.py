"""The report of a run: one self-contained HTML page that opens offline.

Only a run directory is read, whole or partial: what is there is shown, what is missing is named. Model text is hostile. It
reaches the page as escaped JSON in a data block and is put there as text nodes, and the page's policy lets no script run but its own.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import shlex
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup

from earnest.lab.browse import browsable, embedded
from earnest.lab.plots import NAMES, RL_STAGES, Curve, curve_svgs, require_run
from earnest.lab.trends import is_number, short
from earnest.rundir import plain, read_json, write_text

TEMPLATES = Path(__file__).parent / "templates"
# The comparison the verdict speaks of is the first of these that was made.
HEADLINES = (("sft", "sft_grpo"), ("base", "sft_grpo"), ("base", "grpo"), ("base", "sft"), ("grpo", "sft_grpo"))
ACCURACIES = ("accuracy", "correct", "test_accuracy", "dev_accuracy")
OPPONENTS = {"base": "the base model", "sft": "SFT alone", "grpo": "GRPO alone", "sft_grpo": "SFT then GRPO"}
DONE = ("done", "finished", "complete", "completed", "ok", "success")
NONE = "–"


def write_report(run: Path) -> Path:
    """Write RUN/report.html.

    Args:
        run: A run directory; it may be partial.

    Returns:
        The path of the page.

    Raises:
        UserError: The folder does not exist or is no run directory, or its files were changed by hand.
    """
    require_run(run)
    asked, summary, measured = (plain(read_json(run / name)) or {} for name in ("run.json", "summary.json", "difficulty.json"))
    difficulty = measured or summary.get("difficulty") or {}
    curves = curve_svgs(run)
    shown = browsable(run)
    models = summary.get("models") or []
    environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(percent=percent, points=points, number=number, seconds=duration)
    script = _source("cards.js") + _source("report.js")
    page = environment.get_template("report.html.j2").render(
        names=NAMES,
        style=Markup(_source("report.css")),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        task=_task_name(asked, summary),
        model=summary.get("model") or _text(asked.get("model")) or _config_value(asked, "model"),
        verdict=verdict(summary),
        caveats=_caveats(asked, summary),
        missing=_missing(run, summary, difficulty, curves, shown),
        when=_moment(asked.get("start")),
        took=_took(asked, summary),
        summary=summary,
        models=models,
        forest=forest(summary.get("comparisons") or []),
        breakdowns=_breakdowns(models),
        difficulty=difficulty,
        stages=[(stage, [_safe(curve) for curve in curves if curve.stage == stage]) for stage in (*RL_STAGES, "sft")],
        rollouts=Markup(embedded(shown)) if shown["rollouts"] or shown["answers"] else "",
        browser_title="Rollouts" if shown["rollouts"] else "Answers",
        left_out=shown["left_out"],
        disagreeing=sum(bool(row["pay"]) for row in shown["rollouts"]),
        asked=asked,
        command=_command(asked),
        config=list(_config(asked)),
    )
    path = run / "report.html"
    write_text(path, page)
    return path


def verdict(summary: Mapping[str, Any]) -> str:
    """The run in one honest sentence, computed from its comparisons; an interval that includes zero is said to show no gain."""
    chosen = _headline(summary.get("comparisons") or [])
    models = {model.get("name"): model for model in summary.get("models") or []}
    if chosen is None:
        best = [(model["test_accuracy"], name) for name, model in models.items() if is_number(model.get("test_accuracy"))]
        if not best:
            return "Nothing was evaluated yet, so this run says nothing about whether the model got better."
        accuracy, name = max(best)
        return f"{_upper(name)} answers {percent(accuracy)} of held-out rows right; nothing was compared, so no gain is claimed."
    accuracy, rows = _accuracy(models.get(chosen["b"], {}), chosen)
    difference, (low, high) = chosen["difference"], chosen["interval"]
    subject = f"{_upper(chosen['b'])} answers {accuracy} of {rows} right"
    against = f"{points(abs(difference))} points {'more' if difference > 0 else 'fewer'} than {OPPONENTS.get(chosen['a'], chosen['a'])}"
    if difference == 0:
        against = f"as many as {OPPONENTS.get(chosen['a'], chosen['a'])}"
    interval = f"95% interval {points(low)} to {points(high)} points"
    if low <= 0 <= high:
        return f"{subject}, {against} ({interval}): the interval includes zero, so this run does not show a gain."
    return f"{subject}, {against} ({interval})." if low > 0 else f"{subject}, {against} ({interval}): training made it worse."


def _headline(comparisons: list[dict[str, Any]]) -> dict[str, Any] | None:
    def order(one: Mapping[str, Any]) -> tuple[bool, bool, int]:
        pair = (one.get("a"), one.get("b"))
        return one.get("split") != "test", one.get("mode") == "sampled", HEADLINES.index(pair) if pair in HEADLINES else len(HEADLINES)

    usable = [one for one in comparisons if one.get("metric", "accuracy") in ACCURACIES and _whole(one)]
    return min(usable, key=order, default=None)


def _whole(comparison: Mapping[str, Any]) -> bool:
    interval = comparison.get("interval") or ()
    return is_number(comparison.get("difference")) and len(interval) == 2 and all(map(is_number, interval))


def _accuracy(model: Mapping[str, Any], comparison: Mapping[str, Any]) -> tuple[str, str]:
    if comparison.get("mode") == "sampled":
        return percent(model.get("sampled_accuracy")), "development rows, sampled,"
    if comparison.get("split") == "test":
        return percent(model.get("test_accuracy")), "held-out rows"
    return percent(model.get("dev_accuracy")), "development rows"


def forest(comparisons: list[dict[str, Any]]) -> dict[str, Any]:
    """The paired differences placed on one common axis, in percent of its width."""
    whole = [one for one in comparisons if _whole(one)]
    reach = max([abs(edge) for one in whole for edge in (*one["interval"], one["difference"])], default=0)
    step = next(step for step in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1) if reach / step <= 3 or step == 1)
    limit = step * max(1, math.ceil(reach / step - 1e-9))

    def place(value: float) -> float:
        return round(50 + 48 * value / limit, 2)

    rows = []
    for one in whole:
        low, high = one["interval"]
        tone = "gain" if low > 0 else "loss" if high < 0 else "open"
        metric, count = str(one.get("metric") or "").replace("_", " "), one.get("n")
        detail = ", ".join(part for part in (one.get("split"), one.get("mode"), metric, f"n = {count}" if count else "") if part)
        label = f"{_upper(one.get('b'))} against {NAMES.get(one.get('a'), one.get('a'))}"
        places = {"low": place(low), "high": place(high), "middle": place(one["difference"])}
        rows.append({**places, "label": label, "detail": detail, "tone": tone, "difference": one["difference"], "interval": (low, high)})
    ticks = [(place(at * step), points(at * step, sign=True)) for at in range(-round(limit / step), round(limit / step) + 1)]
    return {"rows": rows, "ticks": ticks}


def percent(value: Any, digits: int = 0) -> str:
    """A share as a percentage; "–" if it is missing. A share that is not quite none or all is never rounded to it."""
    if not is_number(value):
        return NONE
    if digits == 0 and 0 < value < 1 and f"{100 * value:.0f}" in ("0", "100"):
        digits = 1
    return f"{100 * value:.{digits}f}%"


def points(value: Any, sign: bool = False) -> str:
    """A difference of shares in percentage points, one decimal where it has one; "–" if it is missing."""
    if not is_number(value):
        return NONE
    text = f"{100 * value:{'+' if sign else ''}.1f}".removesuffix(".0")
    if text.strip("+-") == "0":
        # An edge just off zero decides the verdict, so it must not read as zero.
        text = f"{100 * value:{'+' if sign else ''}.1g}" if abs(value) > 1e-9 else "0"
    return text.replace("-", "−")


def number(value: Any) -> str:
    """A number for reading; "–" if it is missing."""
    return short(value) if is_number(value) else NONE


def duration(value: Any) -> str:
    """Seconds as a person would say them; "–" if they are missing."""
    if not is_number(value):
        return NONE
    if value < 60:
        return f"{value:.0f} s" if value >= 10 else f"{value:.1f} s"
    minutes = round(value / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _upper(name: Any) -> str:
    text = OPPONENTS["base"] if name == "base" else str(NAMES.get(name, name))
    return text[:1].upper() + text[1:]


def _caveats(asked: Mapping[str, Any], summary: Mapping[str, Any]) -> list[str]:
    caveats = []
    state = asked.get("state")
    if isinstance(state, str) and state.lower() not in DONE:
        caveats.append(f"The run is not complete: its state is “{state}”.")
    best = max((model["test_accuracy"] for model in summary.get("models") or [] if is_number(model.get("test_accuracy"))), default=None)
    for baseline in summary.get("baselines") or []:
        accuracy = baseline.get("test_accuracy")
        if best is not None and is_number(accuracy) and accuracy >= best:
            name = baseline.get("name")
            caveats.append(f"A baseline without a language model, {name}, answers {percent(accuracy)}: no model here beats it.")
    return caveats


def _missing(run: Path, summary: Any, difficulty: Any, curves: list[Curve], shown: Mapping[str, Any]) -> list[str]:
    trained = [stage for stage in (*RL_STAGES, "sft") if any(curve.stage == stage for curve in curves)]
    answered = sorted(path.stem for path in (run / "eval").glob("*.jsonl"))
    missing = [] if (run / "run.json").is_file() else ["There is no run.json, so how the run was made is unknown."]
    if not summary.get("models"):
        some = f" Answers are there for: {', '.join(NAMES.get(name, name) for name in answered)}." if answered else ""
        missing.append(f"There is no summary.json yet: no accuracy and no comparison.{some}")
    if not difficulty.get("before") and not difficulty.get("after"):
        missing.append("Difficulty was not measured.")
    if not trained:
        missing.append("No training step was recorded.")
    missing += [f"{NAMES[stage]} has no recorded step." for stage in ("sft", "grpo", "sft_grpo") if trained and stage not in trained]
    if not shown["rollouts"]:
        missing.append("There are no rollouts to browse.")
    return missing


def _breakdowns(models: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Accuracy by field and by each slice: one row a value, one cell a model."""
    fields = list(dict.fromkeys(name for model in models for name in model.get("fields") or {}))
    tables = [{"title": "field", "rows": [(name, None, [(model.get("fields") or {}).get(name) for model in models]) for name in fields]}]
    for name in dict.fromkeys(name for model in models for name in model.get("slices") or {}):
        slices = [(model.get("slices") or {}).get(name) or {} for model in models]
        values = sorted({value for one in slices for value in one})
        rows = []
        for value in values:
            counts = [one[value].get("n") for one in slices if value in one]
            rows.append((value, counts[0], [(one.get(value) or {}).get("accuracy") for one in slices]))
        tables.append({"title": name, "rows": rows})
    return [table for table in tables if table["rows"]]


def _safe(curve: Curve) -> dict[str, Any]:
    return {"title": curve.title, "sentence": curve.sentence, "svg": Markup(curve.svg)}


def _source(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _task_name(asked: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    return summary.get("task") or _text(asked.get("task")) or _config_value(asked, "task") or "a task"


def _config_value(asked: Mapping[str, Any], name: str) -> str:
    return next((value for key, value, _ in _config(asked) if key == name or key.endswith(f".{name}")), "")


def _config(asked: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Config as (dotted name, value, origin); a leaf is a plain value or {"value", "origin"}."""
    origins = asked.get("origins") or {}

    def walk(name: str, value: Any) -> Iterator[tuple[str, str, str]]:
        if isinstance(value, Mapping) and "value" in value and set(value) <= {"value", "origin"}:
            yield name, _shown(value["value"]), _text(value.get("origin"))
        elif isinstance(value, Mapping) and value:
            for key, item in value.items():
                yield from walk(f"{name}.{key}" if name else key, item)
        else:
            yield name, _shown(value), _text(origins.get(name))

    if asked.get("config"):
        yield from walk("", asked["config"])


def _shown(value: Any) -> str:
    return NONE if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _command(asked: Mapping[str, Any]) -> str:
    command = asked.get("command")
    return shlex.join(map(str, command)) if isinstance(command, list) else _text(command)


def _instant(value: Any) -> datetime | None:
    try:
        return datetime.fromtimestamp(value).astimezone() if is_number(value) else datetime.fromisoformat(value)
    except (TypeError, ValueError, OverflowError, OSError):
        return None


def _moment(value: Any) -> str:
    instant = _instant(value)
    return f"{instant.day} {instant:%B %Y, %H:%M}" if instant else ""


def _took(asked: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    start, end = _instant(asked.get("start")), _instant(asked.get("end"))
    if start and end and (start.tzinfo is None) == (end.tzinfo is None):
        return duration((end - start).total_seconds())
    spent = [value for value in (summary.get("seconds") or {}).values() if is_number(value)]
    return duration(sum(spent)) if spent else ""
