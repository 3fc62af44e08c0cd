"""What training climbs: the right category in the right format, and no rambling.

TRL's contract: completions are lists of messages, columns of the rows come as lists, one number (or None) a completion.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from earnest.rewards.json import parse_strict

CATEGORIES = ("billing", "refund", "invoice", "account", "technical", "plan_change", "api", "other")
URGENCIES = ("low", "medium", "high")
FIELDS = ("category", "needs_account_data", "needs_human", "urgency")


def format_reward(completions: Sequence[Any], **kwargs: Any) -> list[float]:
    """0.2 for one strict JSON object of exactly the four fields with allowed values, else 0."""
    return [0.0 if _answer(completion) is None else 0.2 for completion in completions]


def category_reward(completions: Sequence[Any], gold: Sequence[Any], **kwargs: Any) -> list[float | None]:
    """1.0 for a well-formed answer with an acceptable category, else 0; None where the row has no usable gold."""
    return [_category(completion, _labels(accepted)) for completion, accepted in zip(completions, gold, strict=True)]


def length_penalty(completions: Sequence[Any], **kwargs: Any) -> list[float]:
    """0 up to 200 characters, then straight down to -0.5 at 400 and beyond. A right answer has about 100."""
    return [max(-0.5, min(0.0, (200 - len(_text(completion))) / 400)) for completion in completions]


def _category(completion: Any, accepted: Sequence[str]) -> float | None:
    if not accepted:
        return None
    answer = _answer(completion)
    return float(answer is not None and answer["category"] in accepted)


def _labels(gold: Any) -> list[str]:
    """The row's acceptable categories; none at all when any of them is not one of the eight."""
    labels = [gold] if isinstance(gold, str) else gold
    if not isinstance(labels, (list, tuple)) or not all(_is_one_of(label, CATEGORIES) for label in labels):
        return []
    return list(labels)


def _answer(completion: Any) -> dict[str, Any] | None:
    """The four fields of a well-formed answer."""
    value = parse_strict(_text(completion)).value
    if not isinstance(value, dict) or set(value) != set(FIELDS):
        return None
    good = (
        _is_one_of(value["category"], CATEGORIES)
        and isinstance(value["needs_account_data"], bool)
        and isinstance(value["needs_human"], bool)
        and _is_one_of(value["urgency"], URGENCIES)
    )
    return value if good else None


def _is_one_of(value: Any, allowed: Sequence[str]) -> bool:
    return isinstance(value, str) and value in allowed


def _text(completion: Any) -> str:
    """What the model wrote last; "" when there is no text, so that a broken completion is wrong and not a crash."""
    try:
        content = completion[-1]["content"]
    except (TypeError, LookupError):
        return ""
    return content if isinstance(content, str) else ""
