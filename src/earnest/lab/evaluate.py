"""Is it really better? Accuracy by the task's check with intervals, and every pair of models compared on the same rows.

Everything here reads the answers a run directory holds (`eval/MODEL.jsonl`); nothing reads a training reward.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from earnest.lab.statistics import paired_interval, share_interval
from earnest.rundir import read_jsonl

MODELS = ("base", "sft", "grpo", "sft_grpo")  # in the order of the table
NAMES = {"base": "base", "sft": "SFT", "grpo": "GRPO", "sft_grpo": "SFT then GRPO"}
Answers = Sequence[Mapping[str, Any]]


def all_fields(verdict: Mapping[str, Any]) -> bool:
    """Whether the headline and every field that has a gold are right."""
    return bool(verdict["correct"]) and all(ok for ok in verdict["fields"].values() if ok is not None)


def mean(values: Iterable[float | bool]) -> float | None:
    """The mean; None of nothing."""
    items = list(values)
    return sum(items) / len(items) if items else None


def load_answers(run: Path) -> dict[str, list[dict[str, Any]]]:
    """All answers of a run by model, in the order of the table."""
    found = {path.stem: read_jsonl(path) for path in sorted((run / "eval").glob("*.jsonl"))}
    order = [m for m in MODELS if m in found] + [m for m in found if m not in MODELS]
    return {model: found[model] for model in order if found[model]}


def select(answers: Answers, split: str, mode: str = "greedy") -> list[Mapping[str, Any]]:
    """The answers of one split and mode."""
    return [a for a in answers if a["split"] == split and a["mode"] == mode]


def describe(model: str, answers: Answers) -> dict[str, Any]:
    """A model's row of the table. Format, fields, length and hand-offs are of the test split, or of dev where there is no test."""
    entry: dict[str, Any] = {"name": model}
    for split in ("dev", "test"):
        own = select(answers, split)
        right = sum(a["verdict"]["correct"] for a in own)
        entry[f"n_{split}"] = len(own)
        entry[f"{split}_accuracy"] = right / len(own) if own else None
        entry[f"{split}_accuracy_interval"] = list(share_interval(right, len(own))) if own else None
    judged = select(answers, "test") or select(answers, "dev")
    whole = sum(all_fields(a["verdict"]) for a in judged)
    names = {name: None for a in judged for name in a["verdict"]["fields"]}
    return entry | {
        "json_valid_rate": mean(a["verdict"]["well_formed"] for a in judged if a["verdict"]["well_formed"] is not None),
        "all_fields_accuracy": whole / len(judged) if judged else None,
        "all_fields_interval": list(share_interval(whole, len(judged))) if judged else None,
        "mean_output_tokens": mean(a["tokens"] for a in judged),
        "truncated_rate": mean(not a["terminated"] for a in judged),
        "sampled_accuracy": mean(a["verdict"]["correct"] for a in select(answers, "dev", "sampled")),
        "fields": {n: mean(ok for a in judged if (ok := a["verdict"]["fields"].get(n)) is not None) for n in names},
        "hand_off_rate": mean(a["verdict"]["handed_off"] for a in judged if a["verdict"]["handed_off"] is not None),
        "hand_off_gold": mean(a["needs_human"] for a in judged if a.get("needs_human") is not None),
        "slices": _slices(judged),
        **_acting(judged),
    }


def _acting(answers: Answers) -> dict[str, Any]:
    """What rollouts with tools did, a rollout; nothing of answers without."""
    own = [a for a in answers if "tools" in a]
    if not own:
        return {}
    calls, failed = (sum(a["tools"][kind] for a in own) for kind in ("calls", "failed"))
    ended = Counter(a["ended"] for a in own)
    return {
        "acting": {
            "turns": mean(len(a["turns"]) for a in own),
            "calls": calls / len(own),
            "failed": failed / calls if calls else 0.0,
            "ended": {why: count / len(own) for why, count in ended.most_common()},
        }
    }


def _slices(answers: Answers) -> dict[str, dict[str, Any]]:
    groups: dict[str, dict[str, list[bool]]] = {}
    for a in answers:
        for name, value in a["slices"].items():
            groups.setdefault(name, {}).setdefault(value, []).append(a["verdict"]["correct"])
    return {name: {value: {"n": len(ok), "accuracy": mean(ok)} for value, ok in sorted(values.items())} for name, values in groups.items()}


def compare(answers: Mapping[str, Answers]) -> list[dict[str, Any]]:
    """Paired differences (b minus a) of every pair of models, over the rows both answered, with 95% bootstrap intervals over rows."""
    metrics = {"accuracy": lambda v: v["correct"], "all_fields": all_fields}
    cells = [
        ("test", "greedy", "accuracy"),
        ("test", "greedy", "all_fields"),
        ("dev", "greedy", "accuracy"),
        ("dev", "sampled", "accuracy"),
    ]
    found = []
    for split, mode, metric in cells:
        for a, b in combinations(answers, 2):
            left = _by_row(select(answers[a], split, mode), metrics[metric])
            right = _by_row(select(answers[b], split, mode), metrics[metric])
            rows = [i for i in left if i in right]
            if not rows:
                continue
            difference, interval = paired_interval([left[i] for i in rows], [right[i] for i in rows])
            found.append(
                {
                    "a": a,
                    "b": b,
                    "split": split,
                    "mode": mode,
                    "metric": metric,
                    "difference": difference,
                    "interval": list(interval),
                    "n": len(rows),
                }
            )
    return found


def _by_row(answers: Answers, metric: Any) -> dict[Any, float]:
    """Mean of a metric of each row, over its answers."""
    rows: dict[Any, list[float]] = {}
    for a in answers:
        rows.setdefault(a["id"], []).append(float(metric(a["verdict"])))
    return {row: sum(values) / len(values) for row, values in rows.items()}


def table(summary: Mapping[str, Any]) -> list[list[str]]:
    """The table as people read it: a head and one line a model, then the baselines. Without a test split, dev stands in its place."""
    models = summary["models"]
    split = "dev" if models and not any(m["n_test"] for m in models) else "test"
    acts = any("acting" in m for m in models)
    head = ["model", f"{split} accuracy (95%)", "dev", "dev sampled", "all fields", "strict JSON", "tokens", *(["calls"] if acts else [])]
    lines = [head]
    for m in models:
        interval = m[f"{split}_accuracy_interval"]
        lines.append(
            [
                NAMES.get(m["name"], m["name"]),
                f"{number(m[f'{split}_accuracy'])} ({number(interval[0])} to {number(interval[1])})" if interval else "–",
                number(m["dev_accuracy"]),
                number(m["sampled_accuracy"]),
                number(m["all_fields_accuracy"]),
                number(m["json_valid_rate"]),
                number(m["mean_output_tokens"], 1),
                *([number(m.get("acting", {}).get("calls"), 1)] if acts else []),
            ]
        )
    for b in summary.get("baselines", []):
        lines.append([b["name"], number(b[f"{split}_accuracy"]), number(b["dev_accuracy"]), *["–"] * (len(head) - 3)])
    return lines


def number(value: float | None, digits: int = 3) -> str:
    """A number, or a dash."""
    return "–" if value is None else f"{value:.{digits}f}"


def markdown(summary: Mapping[str, Any]) -> str:
    """The table in Markdown."""
    head, *lines = table(summary)
    rows = [head, ["---"] + ["--:"] * (len(head) - 1), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"
