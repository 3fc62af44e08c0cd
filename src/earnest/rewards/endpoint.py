"""Asking a model for a verdict: one question, one of a few words back, kept in a file so that nothing is asked twice."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import sqlite3
import threading
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from earnest.errors import UserError
from earnest.rewards.json import parse_strict

_CONTROL = re.compile(r"\[(?=/?[A-Z_]+\])")  # beside <, how chat templates begin their control tokens
# Statuses that say nothing about what was asked: key, model, time, conflict, pace. Other 4xx may be a text that the endpoint will not take.
_NOT_THE_TEXT = (401, 404, 407, 408, 409, 429)
_PASSING = (408, 409, 429)  # and 5xx: worth another try
_SLOW = (504, 524)  # a proxy gave up waiting for the answer
_LONGEST_PAUSE = 8.0  # seconds before another try


class EndpointError(Exception):
    """The endpoint failed, whatever it was asked."""


class FormError(Exception):
    """The model answered, but not in form or not in time, or the endpoint would not take the request: the text may be the reason."""


@dataclass(frozen=True)
class Endpoint:
    """An OpenAI-compatible endpoint, and how hard it may be used.

    Attributes:
        model: Name of the model there.
        base_url: Where it is; None for OpenAI's own.
        api_key: Its key; `OPENAI_API_KEY` when None.
        timeout: Seconds of one request. A text can make a model slow, so an answer that took longer counts as one out of form.
        retries: Times a failed request (rate limit, server error, no connection) is sent again, after a growing pause; and times a
            model that does not answer in form is asked again, while that takes no longer than `timeout`. A slow one is asked again once.
        per_minute: Requests a minute; None for no limit.
        options: Further fields of the request, such as `{"reasoning_effort": "low"}`; they may replace `temperature` and `max_tokens`.
    """

    model: str
    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    timeout: float = 30.0
    retries: int = 3
    per_minute: float | None = None
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        if not self.timeout > 0 or self.retries < 0 or (self.per_minute is not None and not self.per_minute > 0):
            raise UserError(
                f"Endpoint '{self.model}': timeout={self.timeout}, retries={self.retries}, per_minute={self.per_minute}. Give a timeout "
                "and a pace above 0, and no negative number of retries."
            )


@dataclass(frozen=True)
class Question:
    """What is asked.

    Attributes:
        system: What the model is told, with {mark} where the mark of a request goes.
        words: The verdicts it may give.
        sections: Title and text of what it is to look at, in order.
    """

    system: str
    words: tuple[str, ...]
    sections: tuple[tuple[str, str], ...]


def verdict(endpoint: Endpoint, question: Question, store: Path | None) -> dict[str, Any]:
    """The model's `verdict` and `reason`, and whether they came from the file (`cached`).

    Args:
        endpoint: Whom to ask.
        question: What.
        store: SQLite file of verdicts; None neither reads nor keeps any.

    Raises:
        EndpointError: The endpoint failed.
        FormError: No answer in form and in time, however often it was asked.
        UserError: The client is not installed, there is no key, or the file is no file of verdicts.
    """
    key = content_hash([endpoint.base_url, endpoint.model, dict(endpoint.options), question.system, question.words, question.sections])
    known = _recall(store, key) if store is not None else None
    if known is not None and known[0] in question.words:
        return {"verdict": known[0], "reason": known[1], "cached": True}
    trouble, start = "", time.monotonic()
    for _ in range(endpoint.retries + 1):  # each time with another mark, so that the model has another text before it
        parsed = parse_strict(_complete(endpoint, question))
        answer = parsed.value
        if isinstance(answer, dict) and set(answer) == {"reason", "verdict"} and answer["verdict"] in question.words:
            word, reason = answer["verdict"], str(answer["reason"])[:300]
            if store is not None:
                _remember(store, key, word, reason)
            return {"verdict": word, "reason": reason, "cached": False}
        trouble = parsed.reason or "another value"
        if time.monotonic() - start > endpoint.timeout:
            break
    raise FormError(f"the judge's answer is out of form ({trouble})")


def content_hash(content: Any) -> str:
    """SHA-256 of anything that goes into JSON."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=repr).encode()).hexdigest()


def default_cache() -> Path:
    """Where verdicts are kept: `EARNEST_CACHE`, else `earnest` in the user's cache folder."""
    base = os.environ.get("EARNEST_CACHE")
    return (Path(base) if base else Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "earnest") / "judge.sqlite"


def _complete(endpoint: Endpoint, question: Question) -> str:
    """What the model says, after as many tries as it may have; "" where it said nothing, or would not.

    The client's own retries are not used: to them, an answer that takes too long is a failure like any other.

    Raises:
        EndpointError: The endpoint failed.
        FormError: It would not take the request, or the answer took too long.
    """
    openai = _openai()
    slow = 0
    for tried in range(endpoint.retries + 1):
        last = tried == endpoint.retries
        _wait_for_turn(endpoint)
        try:
            return _asked(endpoint, question)
        except openai.APIStatusError as error:
            status = error.status_code
            slow += status in _SLOW
            if last or slow > 1 or not (status in _PASSING or status >= 500):
                refused = status in _SLOW or (400 <= status < 500 and status not in _NOT_THE_TEXT)
                raise (FormError if refused else EndpointError)(f"the endpoint answers with status {status}") from error
            pause = _told_pause(error.response.headers)
        except openai.APIConnectionError as error:
            late = type(error.__cause__).__name__ == "ReadTimeout"  # of httpx: it was connected, and the answer did not come
            slow += late
            if last or slow > 1:
                trouble = f"no answer within {endpoint.timeout:g} s" if late else f"the endpoint failed with {type(error).__name__}"
                raise (FormError if late else EndpointError)(trouble) from error
            pause = None
        except (openai.OpenAIError, ValueError, TypeError, LookupError, AttributeError) as error:  # the last four: not that protocol
            raise EndpointError(f"the endpoint failed with {type(error).__name__}") from error
        time.sleep(min(_LONGEST_PAUSE, 0.5 * 2**tried) if pause is None else pause)
    raise AssertionError("the last try returns or raises")


def _asked(endpoint: Endpoint, question: Question) -> str:
    """One request."""
    mark = _mark(question)
    body = "".join(f"{mark} {title}\n{_defused(text)}\n" for title, text in question.sections) + f"{mark} end"
    # the verdict before the reason: a text that asks for a long reason shall not keep the verdict away
    properties = {"verdict": {"type": "string", "enum": list(question.words)}, "reason": {"type": "string"}}
    schema = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    fields: dict[str, Any] = {"temperature": 0, "max_tokens": 1024} | dict(endpoint.options)
    if "max_completion_tokens" in fields:
        del fields["max_tokens"]
    client = _client(endpoint.base_url, endpoint.api_key, endpoint.timeout, os.getpid())
    done = client.chat.completions.create(
        model=endpoint.model,
        messages=[{"role": "system", "content": question.system.replace("{mark}", mark)}, {"role": "user", "content": body}],
        response_format={"type": "json_schema", "json_schema": {"name": "verdict", "strict": True, "schema": schema}},
        extra_body=fields,
    )
    content = done.choices[0].message.content
    return content if isinstance(content, str) else ""


def _told_pause(headers: Mapping[str, str]) -> float | None:
    """Seconds that the endpoint asks to wait, at most a minute; None where it does not say."""
    for name, unit in (("retry-after-ms", 1000), ("retry-after", 1)):
        try:
            seconds = float(headers[name]) / unit
        except (KeyError, ValueError):
            continue
        if 0 <= seconds <= 60:
            return seconds
    return None


def _defused(text: str) -> str:
    """The text without what a server could take for a control token of the chat template, and without what is no Unicode."""
    return _CONTROL.sub("⁅", text.replace("<", "‹")).encode("utf-8", "backslashreplace").decode()


def _mark(question: Question) -> str:
    """A mark that nobody can have written."""
    while True:
        mark = f"={secrets.token_hex(8)}="
        if not any(mark in text for _, text in question.sections):
            return mark


def _openai() -> Any:
    try:
        import openai
    except ModuleNotFoundError as error:
        raise UserError("A model as judge needs the openai client. Install it: pip install 'earnest[judge]'.") from error
    return openai


@cache
def _client(base_url: str | None, api_key: str | None, timeout: float, process: int) -> Any:
    """One client for all that is asked of an endpoint; a forked child needs its own, hence the process id."""
    key = api_key or os.environ.get("OPENAI_API_KEY") or ("none" if base_url else None)
    if key is None:
        raise UserError("The judge has no key. Set OPENAI_API_KEY, or give Endpoint(..., base_url=...) for an endpoint of your own.")
    return _openai().OpenAI(base_url=base_url, api_key=key, timeout=timeout, max_retries=0)


_turns: dict[tuple[str | None, str], float] = {}
_turns_lock = threading.Lock()


def _wait_for_turn(endpoint: Endpoint) -> None:
    """Wait until the next request may go out; all judges of one endpoint stand in one queue."""
    if endpoint.per_minute is None:
        return
    place = (endpoint.base_url, endpoint.model)
    with _turns_lock:
        turn = max(time.monotonic(), _turns.get(place, 0.0))
        _turns[place] = turn + 60 / endpoint.per_minute
    time.sleep(max(0.0, turn - time.monotonic()))


def _recall(store: Path, key: str) -> tuple[str, str] | None:
    return _with(store, lambda db: db.execute("SELECT verdict, reason FROM verdicts WHERE key = ?", (key,)).fetchone())


def _remember(store: Path, key: str, word: str, reason: str) -> None:
    _with(store, lambda db: db.execute("INSERT OR REPLACE INTO verdicts VALUES (?, ?, ?)", (key, word, reason)))


def _with(store: Path, do: Any) -> Any:
    """Do something with the file of verdicts; nothing at all when others keep it busy for long.

    A connection for each call: SQLite's are not for many threads, and opening one is nothing beside asking a model.
    """
    try:
        store.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(store, timeout=10)) as db, db:
            db.execute("CREATE TABLE IF NOT EXISTS verdicts (key TEXT PRIMARY KEY, verdict TEXT NOT NULL, reason TEXT NOT NULL)")
            return do(db)
    except (sqlite3.Error, OSError) as error:
        if getattr(error, "sqlite_errorcode", None) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return None
        raise UserError(f"'{store}' cannot keep verdicts ({error}). Delete it, or give another cache_file.") from error
