"""Rewards written for other libraries, called as TRL calls its own.

The shape of a reward is told by its signature and its names alone, so none of those libraries need be installed. What each passes beside
the answer (a state, a parser, an observation) is stood in for by a minimal one that holds the row.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from earnest.errors import UserError
from earnest.redteam.standins import Action, Goal, Parser, Sample, inspect_state, observation_of, state_of
from earnest.task import RewardFunction

KNOWN = (
    "TRL: f(completions, **columns) -> list of numbers",
    "verl: compute_score(data_source, solution_str, ground_truth, extra_info=None)",
    "verifiers: f(completion, answer, state, info, ...), or a Rubric with funcs and weights",
    "OpenEnv: a Rubric with forward(action, observation)",
    "Inspect: score(state, target), or the @scorer function that returns it",
    "plain: f(response, reference), two texts",
)
# The names of columns that hold a right answer, the likeliest first.
GOLDS = tuple(
    word
    for line in (
        "answer gold label solution ground_truth target reference expected gold_answer correct_answer expected_answer reference_answer",
        "final_answer expected_output gt ref truth labels answers targets correct",
    )
    for word in line.split()
)
# The names of parameters that hold what the model wrote.
TEXTS = frozenset(
    word
    for line in (
        "completion response prediction pred predicted output generation generated generated_text text model_output model_response",
        "model_answer llm_output candidate hypothesis action student_answer predicted_answer solution_str response_str output_text",
    )
    for word in line.split()
)
EITHER = ("answer", "solution", "label")  # the answer to judge if another parameter is the right one, else the right one
WHOLE = frozenset({"row", "example", "sample", "item", "record", "doc", "metadata", "extra_info", "task_info", "data"})
TRL = frozenset({"completions", "prompts", "completion_ids"})
VERIFIERS = frozenset({"prompt", "completion", "answer", "state", "info", "task", "parser"})
OWN = frozenset({"completion_ids", "trainer_state", "log_extra", "log_metric"})  # of TRL's call, no columns
INSPECT = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0, "yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}


Ask = Callable[[Sample], Any]


def as_trl(function: Any, gold: str | None = None) -> RewardFunction:
    """A reward of any known shape, as one in TRL's calling convention.

    Args:
        function: A function, or an object such as a rubric. A TRL function is returned as it is.
        gold: The column of the right answer, dotted if nested (`reward_model.ground_truth`); guessed by its name when None.

    Raises:
        UserError: It has none of the known shapes.
    """
    parts = parts_of(function, gold)
    if len(parts) == 1 and parts[0][1] == 1:
        return parts[0][0]

    def total(**offered: Any) -> Any:
        values = [part(**offered) for part, _ in parts]
        if any(inspect.isawaitable(v) for v in values):
            return _added(values, [weight for _, weight in parts])
        return _sums(values, [weight for _, weight in parts])

    total.__name__ = _name(function)
    return total


def of_messages(function: Any, gold: str | None = None) -> RewardFunction | None:
    """A plain reward of a `completion` called with messages, as verifiers calls it; None for one that can only take a text."""
    names = _signature(function)[0] if shape_of(function) == "plain" else []
    annotated = str(getattr(function, "__annotations__", {}).get("completion", ""))
    return _adapted(function, gold, {}, "verifiers") if "completion" in names and annotated not in ("str", "<class 'str'>") else None


def parts_of(function: Any, gold: str | None = None) -> list[tuple[RewardFunction, float]]:
    """The same, a rubric of several functions as those functions and their weights.

    Raises:
        UserError: It has none of the known shapes.
    """
    function = _opened(function)
    if not _is_rubric(function):
        return [(_adapted(function, gold, {}), 1.0)]
    inner = getattr(function, "rubrics", None)
    if inner and not getattr(function, "funcs", None):  # a group of rubrics
        return [pair for rubric in inner for pair in parts_of(rubric, gold)]
    parser = getattr(function, "parser", None)
    objects = {**({"parser": parser} if parser is not None else {}), **(getattr(function, "class_objects", None) or {})}
    funcs = list(function.funcs)
    weights = getattr(function, "weights", None) or [1.0] * len(funcs)
    if not funcs or len(weights) != len(funcs):
        raise UserError(f"The rubric '{_name(function)}' has {len(funcs)} functions and {len(weights)} weights. Give it one weight each.")
    return [(_adapted(f, gold, objects, "verifiers"), float(w)) for f, w in zip(funcs, weights, strict=True)]


def textual(function: RewardFunction) -> RewardFunction:
    """The same reward of TRL's, called as TRL calls it where prompts are plain text: with texts in place of messages."""

    @functools.wraps(function)
    def reward(**offered: Any) -> Any:
        for name in ("completions", "prompts"):
            if name in offered:
                offered[name] = ["".join(str(m.get("content") or "") for m in list(messages)[-1:]) for messages in offered[name]]
        return function(**offered)

    reward.__name__ = _name(function)
    return reward


def shape_of(function: Any) -> str:
    """The library a reward was written for: trl, verl, verifiers, openenv, inspect, plain, or "" for none that is known."""
    if _is_rubric(function):
        return "verifiers"
    if not callable(function) and not callable(getattr(function, "forward", None)):
        return ""
    names, required, anything = _signature(function)
    if names[:2] == ["state", "target"]:
        return "inspect"
    if names[:2] == ["action", "observation"]:
        return "openenv"
    if set(names) & {"solution_str", "solution_strs"} and set(names) & {"ground_truth", "ground_truths"}:
        return "verl"
    if set(names) & TRL:
        return "verifiers" if set(names) & {"states", "infos"} else "trl"
    if anything and not names:
        return "trl"
    if set(names) & {"state", "info", "parser"} and required <= VERIFIERS:
        return "verifiers"
    roles = _roles(names, required)
    return "plain" if roles is not None and "text" in roles.values() else ""


def gold_of(row: Mapping[str, Any], column: str | None) -> Any:
    """The right answer of a row: by its column, dotted if nested, or by the first name that usually holds one.

    Of several columns, parted by commas, the object of them. A column that holds an object as text holds the object.
    """
    if column is None:
        column = guess_gold(row)
    if column and re.search("[,=]", column) and column not in row:
        return {name: _read(gold_of(row, own)) for name, own in columns_of(column).items()}
    value = _cell(row, column or "")
    return _read(value) if isinstance(value, str) and value.startswith("{") else value


def _handed(row: Mapping[str, Any], column: str | None) -> Any:
    """The right answer as a reward is handed it: a column as it stands, text that holds an object as text."""
    column = guess_gold(row) if column is None else column
    together = column and re.search("[,=]", column) and column not in row
    return gold_of(row, column) if together else _cell(row, column or "")


def _cell(row: Mapping[str, Any], column: str) -> Any:
    value: Any = row
    for step in column.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


def _read(value: Any) -> Any:
    if isinstance(value, str) and value.startswith(("{", "[")):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def columns_of(gold: str) -> dict[str, str]:
    """The fields of a right answer that stands in several columns, such as "category,urgent=is_urgent", and the column of each."""
    return {name: own or name for name, _, own in (part.partition("=") for part in gold.split(","))}


def guess_gold(row: Mapping[str, Any]) -> str | None:
    """The likeliest column of the right answer; None where none is named like one."""
    if isinstance(model := row.get("reward_model"), Mapping) and "ground_truth" in model:
        return "reward_model.ground_truth"
    return next((name for name in GOLDS if row.get(name) is not None), None)


def _opened(function: Any) -> Any:
    """What a class, an environment or a function without arguments stands for."""
    if shape_of(function) and not inspect.isclass(function):
        return function
    if not inspect.isclass(function) and hasattr(function, "rubric"):
        return _opened(function.rubric)
    if not callable(function) or _signature(function)[1]:
        return function
    made = function()  # `@scorer def exact(): ...` and `load_environment()` make what scores
    return function if made is None or made is function or inspect.iscoroutine(made) else _opened(made)


def _is_rubric(function: Any) -> bool:
    return not inspect.isclass(function) and isinstance(getattr(function, "funcs", getattr(function, "rubrics", None)), (list, tuple))


def _name(function: Any) -> str:
    named = getattr(function, "__qualname__", "") or type(function).__name__
    return named.split(".<locals>")[0].rpartition(".")[2] if "<locals>" in named else getattr(function, "__name__", named)


def _signature(function: Any) -> tuple[list[str], set[str], bool]:
    """Names of the parameters, those that must be given, and whether any keyword is taken."""
    called = function.forward if not inspect.isroutine(function) and callable(getattr(function, "forward", None)) else function
    if inspect.isclass(function):
        called = function
    try:
        parameters = inspect.signature(called).parameters.values()
    except (TypeError, ValueError):  # compiled functions do not say
        return [], {"?"}, False
    plain = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    return [p.name for p in plain], {p.name for p in plain if p.default is p.empty}, any(p.kind is p.VAR_KEYWORD for p in parameters)


def _adapted(function: Any, gold: str | None, objects: Mapping[str, Any], shape: str = "") -> RewardFunction:
    """One function in TRL's convention; of the shape that is given, where its place says more than its names."""
    shape = shape or shape_of(function)
    if shape == "trl":
        return function
    makers = {"verl": _verl, "verifiers": _verifiers, "openenv": _openenv, "inspect": _inspect, "plain": _plain}
    if shape not in makers:
        names, _, _ = _signature(function)
        raise UserError(
            f"'{_name(function)}' takes ({', '.join(names)}), which is no reward of a known shape. Known are:\n- " + "\n- ".join(KNOWN)
        )
    batched = set(_signature(function)[0]) & ({"solution_strs"} if shape == "verl" else {"completions", "states", "infos"})
    ask = makers[shape](function, objects) if not batched else None

    def reward(completions: Sequence[Any], prompts: Sequence[Any] = (), **columns: Any) -> Any:
        samples = _samples(prompts, completions, columns, gold)
        values = [ask(one) for one in samples] if ask else _of_batch(function, samples)
        if inspect.isawaitable(values) or any(inspect.isawaitable(v) for v in values):
            return _awaited(values, shape == "verifiers")
        return [_mark(value) for value in values]

    reward.__name__ = _name(function)
    return reward


def _samples(prompts: Sequence[Any], completions: Sequence[Any], columns: Mapping[str, Any], gold: str | None) -> list[Sample]:
    taken = {name: values for name, values in columns.items() if name not in OWN and isinstance(values, (list, tuple))}
    made = []
    for index, completion in enumerate(completions):
        messages = [{"role": "assistant", "content": completion}] if isinstance(completion, str) else list(completion)
        prompt = prompts[index] if index < len(prompts) else []
        prompt = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
        said = [m.get("content") for m in messages if m.get("role") == "assistant"]
        row = {name: values[index] for name, values in taken.items() if index < len(values)}
        made.append(Sample(prompt, messages, said[-1] if said and isinstance(said[-1], str) else "", row, _handed(row, gold)))
    return made


def _mark(value: Any) -> Any:
    """The number in what a reward returned, None for no verdict; anything else stays, for the caller to refuse."""
    if isinstance(value, Mapping):
        return _mark(value["score"] if "score" in value else value["reward"]) if {"score", "reward"} & set(value) else value
    if isinstance(value, tuple) and value:  # (score, reason)
        return _mark(value[0])
    for part in ("value", "reward", "score"):  # Inspect's Score, and results that are objects
        if hasattr(value, part) and not callable(getattr(value, part)):
            return _mark_of_inspect(getattr(value, part))
    return value


def _mark_of_inspect(value: Any) -> Any:
    if isinstance(value, str):
        return INSPECT.get(value, INSPECT.get(value.lower(), value))
    if isinstance(value, Mapping) and len(value) == 1:
        return _mark_of_inspect(next(iter(value.values())))
    return None if isinstance(value, float) and math.isnan(value) else value  # Inspect's word for "unscored"


async def _awaited(values: Any, forgiving: bool) -> list[Any]:
    """The marks of values of which some are still to come. What raises counts 0 where the library has it so."""
    if inspect.isawaitable(values):
        values = await values

    async def one(value: Any) -> Any:
        return await value if inspect.isawaitable(value) else value

    done = await asyncio.gather(*map(one, values), return_exceptions=True)
    for result in done:
        if isinstance(result, BaseException) and not (forgiving and isinstance(result, Exception)):
            raise result
    return [0.0 if isinstance(result, BaseException) else _mark(result) for result in done]


async def _added(values: Sequence[Any], weights: Sequence[float]) -> list[float | None]:
    return _sums([await v if inspect.isawaitable(v) else v for v in values], weights)


def _sums(columns: Sequence[Sequence[float | None]], weights: Sequence[float]) -> list[float | None]:
    """Weighted sums over what is a number; None where nothing is."""
    return [
        sum(w * v for v, w in zip(values, weights, strict=True) if v is not None) if any(v is not None for v in values) else None
        for values in zip(*columns, strict=True)
    ]


def _given(function: Any, offered: Mapping[str, Any]) -> dict[str, Any]:
    names, _, anything = _signature(function)
    return dict(offered) if anything else {name: offered[name] for name in names if name in offered}


def _verl(function: Any, _: Mapping[str, Any]) -> Ask:
    def ask(s: Sample) -> Any:
        offered = {
            "data_source": s.row.get("data_source", "unknown"),
            "solution_str": s.text,
            "ground_truth": s.gold,
            "extra_info": s.row.get("extra_info") or {},
        }
        return function(**_given(function, offered))

    return ask


def _of_batch(function: Any, samples: Sequence[Sample]) -> Any:
    """Functions of verl and verifiers that take a whole batch."""
    states = [state_of(s) for s in samples]
    offered = {
        "data_sources": [s.row.get("data_source", "unknown") for s in samples],
        "solution_strs": [s.text for s in samples],
        "ground_truths": [s.gold for s in samples],
        "extra_infos": [s.row.get("extra_info") or {} for s in samples],
        "prompts": [s.prompt for s in samples],
        "completions": [s.completion for s in samples],
        "answers": [s.gold for s in samples],
        "states": states,
        "infos": [state["info"] for state in states],
        "tasks": [state["task"] for state in states],
    }
    return function(**_given(function, offered))


def _verifiers(function: Any, objects: Mapping[str, Any]) -> Ask:
    """Messages in; an exception counts 0, as verifiers itself has it."""

    def ask(s: Sample) -> Any:
        state = state_of(s)
        offered = {
            "parser": Parser(),
            **objects,
            **{k: state[k] for k in ("prompt", "completion", "answer", "info", "task")},
            "state": state,
        }
        try:
            return function(**_given(function, s.row | offered))
        except Exception:
            return 0.0

    return ask


def _openenv(function: Any, _: Mapping[str, Any]) -> Ask:
    called = function if callable(function) else function.forward
    return lambda s: called(Action(s.text), observation_of(s))


def _inspect(function: Any, _: Mapping[str, Any]) -> Ask:
    def ask(s: Sample) -> Any:
        golds = s.gold if isinstance(s.gold, (list, tuple)) else [s.gold]
        return function(inspect_state(s), Goal(str(gold) for gold in golds))

    return ask


def _roles(names: Sequence[str], required: set[str]) -> dict[str, str] | None:
    """What each parameter of a plain function is: "text", "gold", "row" or "prompt"; None where a demanded one is none of these."""
    texts = [name for name in names if name in TEXTS]
    golds = [name for name in names if name in GOLDS]
    if not texts and len(golds) > 1:  # f(answer, gold)
        texts = [name for name in golds if name in EITHER][:1]
    roles = dict.fromkeys(texts[:1], "text")
    roles |= {name: "gold" for name in golds if name not in roles and (name in required or len(golds) == 1)}
    roles |= {name: "row" for name in names if name in WHOLE}
    roles |= {name: "prompt" for name in names if name in ("prompt", "question", "problem", "query", "input", "instruction")}
    return roles if required <= set(roles) else None


def _plain(function: Any, objects: Mapping[str, Any]) -> Ask:
    """Text in. Where `completion` may be messages as well, for want of a word about it, the first that works is taken from then on."""
    names, required, anything = _signature(function)
    roles = _roles(names, required) or {}
    annotated = str(getattr(function, "__annotations__", {}).get("completion", ""))
    ways = ["text", "messages"]
    if "completion" not in roles or annotated in ("str", "<class 'str'>"):
        ways = ["text"]
    elif annotated or inspect.iscoroutinefunction(function):
        return _verifiers(function, objects)
    forgiving = _verifiers(function, objects)

    def ask(s: Sample) -> Any:
        question = "\n".join(m["content"] for m in s.prompt if isinstance(m.get("content"), str))
        values = {"text": s.text, "gold": s.gold, "row": s.row, "prompt": question}
        own = {n: s.row[n] for n, role in roles.items() if role == "gold" and isinstance(s.row.get(n), Mapping)}  # a column it names itself
        own |= {n: value for n, value in s.row.items() if n not in roles} if anything else {}
        if ways == ["messages"]:
            return forgiving(s)
        try:
            value = function(**{name: values[role] for name, role in roles.items()} | own)
        except (TypeError, KeyError, IndexError, AttributeError) as error:
            if len(ways) == 1:
                raise
            try:
                value = function(**{**{n: values[r] for n, r in roles.items()}, **own, "completion": s.completion})
            except Exception:
                raise error from None
            ways[:] = ["messages"]
            return value
        if s.text:
            ways[:] = ["text"]
        return value

    return ask
