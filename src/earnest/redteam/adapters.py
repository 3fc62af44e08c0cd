"""From a reward and a file of rows to a task that can be audited: for rewards written elsewhere, without a task file.

What a task file would say is guessed and can be given: which column holds the right answer, which the question, and in what form the right
answer earns the most. The check is strict equality with the right answer in that form, written without a look at the reward.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from earnest.errors import UserError
from earnest.evidence import Case
from earnest.redteam.ask import Asker
from earnest.redteam.shapes import GOLDS, as_trl, gold_of, parts_of, shape_of
from earnest.rewards.json import parse_strict
from earnest.rows import load_rows
from earnest.score import missing_columns
from earnest.task import Answer, Message, RewardFunction, Row, Task, Verdict

__all__ = ["as_trl", "task_of"]

PROMPTS = ("prompt", "messages", "question", "problem", "input", "instruction", "query", "text", "user", "content", "task")
PROBED = 6  # rows on which forms are tried
# Barest first: where two earn the same, the first is taken.
FORMS = (
    "{}",
    "\\boxed{{}}",
    "<answer>{}</answer>",
    "<think></think><answer>{}</answer>",
    "<think>\nLet me see.\n</think>\n<answer>\n{}\n</answer>",
    "<reasoning>\nLet me see.\n</reasoning>\n<answer>\n{}\n</answer>\n",
    "<think>Let me see.</think>\\boxed{{}}",
    "#### {}",
    "The answer is {}.",
    '{"answer": {}}',
    "```python\n{}\n```",
)
_NUMBER = re.compile(r"[-+−]?(\d{1,3}(,\d{3})+|\d+)(\.\d+)?(e[-+]?\d{1,3})?", re.IGNORECASE)
BOX = "\\boxed{"
_HASHES = re.compile(r"####\s*(.+?)\s*\Z")


def task_of(
    where: str, rows: str | Path, gold: str | None = None, prompt: str | Sequence[str] | None = None, form: str | None = None
) -> Task:
    """A task of one reward, to audit it.

    Args:
        where: 'file.py:function' or 'package.module:function'; the name may be left out where one function looks like a reward.
        rows: A JSONL, CSV or Parquet file.
        gold: The column of the right answer, dotted if nested; guessed by its name when None.
        prompt: The column or columns of the question, text or messages; guessed when None.
        form: How a right answer is written, `{}` in place of the answer; the best paid of the usual ones when None.

    Raises:
        UserError: There is no such function, its shape is not known, a column cannot be guessed, or no form earns anything.
    """
    function, name = _function_at(where)
    source = load_rows(Task(str(Path(rows).resolve()), _nothing, [], _nothing))
    sample = [row for _, row in source.everything()]
    gold = gold or _gold_column(sample, function)
    if all(gold_of(row, gold) in (None, "") for row in sample):
        raise UserError(f"No row of '{rows}' has a right answer in the column '{gold}'. Name the column that has: --gold COLUMN.")
    parts = parts_of(function, gold)
    rewards, weights = [part for part, _ in parts], [weight for _, weight in parts]
    for reward in rewards:
        if lacking := missing_columns(reward, list(sample[0])):
            raise UserError(f"The reward '{name}' needs the column '{lacking[0]}', which '{rows}' does not have.")
    asked = _prompt_columns(sample[0], prompt, gold)
    reading = _reading([gold_of(row, gold) for row in sample])
    plain = Task(
        rows=str(Path(rows).resolve()),
        prompt=lambda row: _messages(row, asked),
        rewards=rewards,
        check=lambda text, row: False,
        oracle=lambda row: "",
        reward_weights=weights,
        name=f"{Path(where.partition(':')[0]).stem}:{name}",
    )
    way = Way(_sound(form), gold, reading) if form else _best_paid(plain, sample, gold, reading)
    return replace(plain, check=way.check, oracle=way.oracle)


@dataclass(frozen=True)
class Way:
    """How right answers are written, and judged.

    Attributes:
        form: With `{}` in place of the answer.
        gold: The column of the right answer.
        reading: Where in its value the answer stands: "hashes", "box", "first" of a list, "whole" of it as JSON, or "" for all of a text.
    """

    form: str
    gold: str
    reading: str

    def oracle(self, row: Row) -> Answer:
        """The right answer of a row, in the form; "" where it has none."""
        if gold_of(row, self.gold) in (None, "", []):
            return ""
        core = self.cores(row)[0]
        if self.is_json:
            return self.form.replace('"{}"', json.dumps(_text(core), ensure_ascii=False)).replace("{}", _dumped(core))
        before, after = self.around
        return before + _text(core) + after

    def check(self, text: Any, row: Row) -> Verdict:
        """Whether a text is a right answer in the form: equal but for white space and the writing of numbers."""
        said = text if isinstance(text, str) else str((text[-1] if text else {}).get("content") or "")
        core = self.core_of(said)
        golds = self.cores(row) if self.is_json or self.reading == "whole" else map(_text, self.cores(row))
        right = core is not None and any(_even(core) == _even(own) for own in golds)
        return Verdict(right, well_formed=core is not None)

    def cores(self, row: Row) -> list[Any]:
        """The answers of a row that count as right, the first the one to give."""
        value = gold_of(row, self.gold)
        if self.reading == "first":
            return list(value)
        return [_read(value, self.reading)]

    def core_of(self, text: str) -> Any:
        """What a text gives as its answer; None where the form is broken."""
        if self.is_json or (self.form == "{}" and self.reading == "whole"):
            found = parse_strict(text.strip())
            if found.value is None:
                return None
            pattern = json.loads(self.form.replace('"{}"', "{}").replace("{}", "null")) if self.is_json else None
            return _at_the_hole(pattern, found.value)
        before, after = (part.strip() for part in self.around)
        body, marked, opening = text.strip(), _marks(before), re.match(r"<\w+>", before)
        if (marked and body.count(marked) != 1) or (opening and opening.group() != marked and not body.startswith(opening.group())):
            return None
        inner = body[body.find(marked) + len(marked) :]
        if marked == BOX:  # of a box only what is in it counts, and words may follow it
            stop = _closed(inner)
            return inner[:stop].strip() if stop is not None and re.match(r"[\s.$,;:)]|\Z", inner[stop + 1 :]) else None
        # Reasoning may stand in front of the mark, unless the form opens with a tag; nothing may follow.
        return inner[: len(inner) - len(after)].strip() if inner.endswith(after) else None

    @property
    def is_json(self) -> bool:
        """Whether the form itself is JSON with a hole."""
        return self.form.lstrip().startswith(("{", "[")) and self.form.strip() != "{}"

    @property
    def around(self) -> tuple[str, str]:
        """What stands before and behind the answer."""
        form = self.form if "{{}}" in self.form else self.form.replace("\\boxed{}", "\\boxed{{}}")
        before, _, after = form.partition("{}")
        return before, after


def _nothing(*_: Any) -> Any:
    return None


def _sound(form: str) -> str:
    """A form that was given, refused if nothing can be put into it."""
    if "{}" not in form:
        raise UserError(f"The form {form!r} has no {{}} where the answer goes. Write it as in '<answer>{{}}</answer>'.")
    if form.lstrip().startswith(("{", "[")) and form.strip() != "{}":
        hollow = form.replace('"{}"', "{}").replace("{}", "null")
        if parse_strict(hollow).value is None:
            raise UserError(f"The form {form!r} starts like JSON and is none. Write it as in '{{\"answer\": {{}}}}'.")
    return form


def _marks(before: str) -> str:
    """The last mark of what stands before an answer: a tag, a box, hashes, or all of it."""
    tag = re.search(r"(<\w+>|\\boxed\{|####)\Z", before)
    return tag.group() if tag else before


def _at_the_hole(pattern: Any, value: Any) -> Any:
    """What stands where a pattern has its one null; None where the rest differs."""
    if pattern is None:
        return value
    if isinstance(pattern, dict) and isinstance(value, dict) and set(pattern) == set(value):
        holes = [_at_the_hole(pattern[key], value[key]) for key in pattern if pattern[key] != value[key]]
        return holes[0] if len(holes) == 1 else None
    if isinstance(pattern, list) and isinstance(value, list) and len(pattern) == len(value):
        holes = [_at_the_hole(a, b) for a, b in zip(pattern, value, strict=True) if a != b]
        return holes[0] if len(holes) == 1 else None
    return None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _dumped(value)


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _even(value: Any) -> Any:
    """A value with white space and the writing of numbers evened out; 1, 1.0 and "1" are equal, true is none of them."""
    if isinstance(value, bool) or value is None:
        return repr(value)
    if isinstance(value, Mapping):
        return {key: _even(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_even(item) for item in value]
    text = " ".join(str(value).split())
    number = text.replace("−", "-").replace(",", "") if _NUMBER.fullmatch(text) else ""
    try:
        return Decimal(number) if number else text
    except InvalidOperation:
        return text


def _reading(golds: Sequence[Any]) -> str:
    """How the answer stands in the golds, the same way for all."""
    known = [gold for gold in golds if gold not in (None, "")]
    if all(isinstance(gold, (list, tuple)) and gold and all(isinstance(one, str) for one in gold) for gold in known):
        return "first"
    if any(isinstance(gold, (Mapping, list, tuple)) for gold in known):
        return "whole"
    for reading in ("hashes", "box"):
        if all(isinstance(gold, str) and _read(gold, reading) != gold for gold in known):
            return reading
    if all(isinstance(gold, str) and isinstance(parse_strict(gold).value, (dict, list)) for gold in known):
        return "whole"
    return ""


def _read(value: Any, reading: str) -> Any:
    if reading == "whole" and isinstance(value, str):
        return parse_strict(value).value
    if reading == "hashes" and isinstance(value, str):
        found = _HASHES.search(value)
        return found.group(1) if found else value
    if reading == "box" and isinstance(value, str):
        return _boxed(value)
    return value


def _boxed(text: str) -> str:
    """What the last box of a text holds; the text itself where there is none."""
    _, found, inner = text.rpartition(BOX)
    stop = _closed(inner) if found else None
    return text if stop is None else inner[:stop]


def _closed(inner: str) -> int | None:
    """Where the brace that is open at the start closes."""
    depth = 0
    for index, letter in enumerate(inner):
        if letter == "}" and depth == 0:
            return index
        depth += {"{": 1, "}": -1}.get(letter, 0)
    return None


def _best_paid(task: Task, rows: Sequence[Row], gold: str, reading: str) -> Way:
    """The form in which right answers earn the most.

    Raises:
        UserError: None earns anything.
    """
    seen: dict[str, Row] = {}
    for row in rows:
        if gold_of(row, gold) not in (None, "", []):
            seen.setdefault(str(gold_of(row, gold)), row)
    cases = [Case("", "", row, task.prompt(row), None, "", None) for row in list(seen.values())[:PROBED]]
    bare, problem = Way("{}", gold, reading), ""
    with Asker(task, cases) as asker:  # a reward may hang or end the process on a form that is not its own
        nothing, _ = _earned(asker, ["" for _ in cases])
        best, most = None, nothing if nothing > -np.inf else 0.0
        for reading_ in (reading, *(["whole"] if reading == "first" else [])):
            for form in FORMS:
                way = Way(form, gold, reading_)
                earned, why = _earned(asker, [way.oracle(case.row) for case in cases])
                problem = problem or why
                if earned > most + 1e-9:
                    best, most = way, earned
        if best is None and nothing > 0 and _earned(asker, [bare.oracle(case.row) for case in cases])[0] >= nothing:
            best = bare  # a reward that pays an empty answer as well as the right one is one to audit
    if best is None:
        tried = ", ".join(repr(form) for form in FORMS)
        raise UserError(
            f"The right answers (column '{gold}') earn nothing in any form that was tried: {tried}. "
            + (f"The first trouble was: {problem} " if problem else "")
            + "Give the form your reward expects, such as --form '<answer>{}</answer>', or another --gold."
        )
    return best


def _earned(asker: Asker, answers: Sequence[Answer]) -> tuple[float, str]:
    """What answers earn on average (minus infinity where the reward breaks), and why it broke."""
    paid = asker.ask([(0, answers[0])])  # alone: one that hangs, hangs once
    if not paid[0].faults:
        paid = asker.ask(list(enumerate(answers)))
    broken = [f"The reward '{name}' {why}." if why[0].islower() else why for one in paid for name, (_, why) in one.faults.items()]
    if broken:
        return -np.inf, broken[0]
    known = [one.total for one in paid if one.total is not None]
    return (float(np.mean(known)) if known else -np.inf), ""


def _gold_column(rows: Sequence[Row], function: Any) -> str:
    """The one column that is named like a right answer; of several, the one the reward asks for."""
    row = rows[0]
    if isinstance(model := row.get("reward_model"), Mapping) and "ground_truth" in model:
        return "reward_model.ground_truth"
    named = [name for name in row if name.lower() in GOLDS and any(other.get(name) not in (None, "") for other in rows)]
    if len(named) > 1:
        try:
            wanted = [name for name in named if name in inspect.signature(function).parameters]
        except (TypeError, ValueError):
            wanted = []
        named = wanted if len(wanted) == 1 else named
    if len(named) == 1:
        return named[0]
    have = ", ".join(row)
    if not named:
        raise UserError(f"No column is named like a right answer; there are: {have}. Name it: --gold COLUMN.")
    raise UserError(f"Several columns may hold the right answer: {', '.join(named)}. Name the one that does: --gold COLUMN.")


def _prompt_columns(row: Row, given: str | Sequence[str] | None, gold: str) -> list[str]:
    if given:
        wanted = [given] if isinstance(given, str) else list(given)
    else:
        free = {name.lower(): name for name in row if name != gold.partition(".")[0]}
        wanted = [free[name] for name in PROMPTS if name in free][:1]
    if not wanted or any(name not in row for name in wanted):
        what = f"There is no column '{next(n for n in wanted if n not in row)}'" if wanted else "No column is named like a question"
        raise UserError(f"{what}; there are: {', '.join(row)}. Name the question's: --prompt-column COLUMN.")
    return wanted


def _messages(row: Row, columns: Sequence[str]) -> list[Message]:
    """The question as chat messages; those of a column of messages up to the last of the user."""
    value = row[columns[0]] if len(columns) == 1 else "\n\n".join(_text(row[name]) for name in columns)
    if isinstance(value, str) and value.lstrip().startswith('[{"'):  # messages in a CSV cell
        found = parse_strict(value).value
        value = found if isinstance(found, list) else value
    if isinstance(value, (list, tuple)) and value and all(isinstance(m, Mapping) and "role" in m for m in value):
        messages = [dict(message) for message in value]
        while len(messages) > 1 and messages[-1]["role"] == "assistant":
            messages.pop()
        return messages
    return [{"role": "user", "content": _text(value)}]


def _function_at(where: str) -> tuple[Any, str]:
    """The function that 'file.py:function' or 'package.module:function' names, and its name."""
    place, _, name = where.partition(":") if not Path(where).is_file() else (where, "", "")
    module = _module(place)
    if name:
        found: Any = module
        for step in name.split("."):
            if not hasattr(found, step):
                have = ", ".join(_candidates(module)) or "none"
                raise UserError(f"'{place}' has no '{name}'. Functions there that look like rewards: {have}.")
            found = getattr(found, step)
        return found, name
    likely = _candidates(module)
    if len(likely) > 1:
        likely = {n: f for n, f in likely.items() if re.search(r"reward|compute_score", n)} or likely
    if len(likely) != 1:
        said = f"There are several: {', '.join(likely)}" if likely else "None looks like a reward"
        raise UserError(f"Which function of '{place}' is the reward? {said}. Name it: '{place}:function'.")
    return next((f, n) for n, f in likely.items())


def _candidates(module: ModuleType) -> dict[str, RewardFunction]:
    """The functions of a module that look like rewards: of a known shape, and not of a single text, as many a helper is."""
    own = {n: f for n, f in vars(module).items() if not n.startswith("_") and inspect.isfunction(f) and f.__module__ == module.__name__}
    shapes = {n: shape_of(f) or ("inspect" if "Scorer" in str(f.__annotations__.get("return", "")) else "") for n, f in own.items()}
    return {n: f for n, f in own.items() if shapes[n] and (shapes[n] != "plain" or len(inspect.signature(f).parameters) > 1)}


def _module(place: str) -> ModuleType:
    from earnest.task import _add_to_path, _import_file  # what loads a task file loads a file of rewards

    try:
        if place.endswith(".py") or Path(place).is_file():
            return _import_file(Path(place))
        _add_to_path(Path(os.getcwd()))
        return importlib.import_module(place)
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        raise UserError(f"'{place}' could not be loaded: {type(error).__name__}: {error}. Give 'file.py:function'.") from error
