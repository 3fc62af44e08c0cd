"""Tools that a task can offer: Python in the sandbox, and a search in documents.

Both are plain functions with typed arguments and a docstring, as TRL's `tools` wants them, and what they answer depends on the call alone:
no rollout can leave anything for another. Descriptions and answers are short on purpose: every rollout pays for them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from earnest.errors import UserError
from earnest.sandbox import Limits, Result, find_sandbox

SMALL = Limits(wall=2.0, cpu=2.0, memory=256 * 2**20, processes=8, output=64 * 2**10, file=2**20)  # arithmetic needs far less
LONGEST = 500  # characters of an answer
QUERY = 1_000  # characters of a query that are looked at
KEPT = 4_096  # answers that are kept

# Runs what stands on its standard input as a notebook runs a cell: a last line that is an expression shows its value.
CELL = """
import ast, sys
source = sys.stdin.buffer.read().decode("utf-8", "surrogatepass")
world = {"__name__": "__main__"}
try:
    tree = ast.parse(source, "<code>")
    last = ast.Expression(tree.body.pop().value) if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<code>", "exec"), world)
    value = None if last is None else eval(compile(last, "<code>", "eval"), world)
    if value is not None:
        print(value)
    sys.stdout.flush()
except BaseException as error:
    if not isinstance(error, SystemExit) or error.code not in (None, 0):
        sys.stdout.flush()
        told = " ".join(str(error).split())
        sys.stderr.write("\\n" + type(error).__name__ + (": " + told[:200] if told else ""))
        sys.stderr.flush()
        sys.exit(1)
"""

ENDED = {
    "timeout": "too slow: stopped after {wall:g} s",
    "memory": "too much memory",
    "output": "too much output",
    "killed": "the program was stopped",
    "infra_error": "the sandbox did not start; try again",
}


def python_tool(limits: Limits = SMALL, longest: int = LONGEST, packages: bool = False) -> Callable[[str], str | dict[str, str]]:
    """A tool named `python` that runs code in the sandbox and answers with what it prints.

    Each call is a program of its own: a variable of one call is unknown to the next. That keeps rollouts apart, and a call that is cut
    leaves nothing behind; a task that wants a session gives its environment a method that keeps one.

    As in a notebook, the value of a last line that is an expression is printed. What goes wrong is an answer too, `{"error": ...}` with
    the last line of the traceback, and so counts as a failed call. The same code is run once and its answer kept: samples of a group that
    make the same call read the same answer, and the tree goes on sharing what they have in common.

    Args:
        limits: What one call may use. `Task.limits.seconds` must leave room for it: while more programs run than there are cores, each
            is given more time.
        longest: Characters of an answer; of a longer one the middle is left out.
        packages: Whether code may import what is installed beside this, such as numpy; else the standard library only.

    Returns:
        The tool.

    Raises:
        UserError: The machine has no sandbox. Said when the tool is made, not when a model calls it.
    """
    sandbox = find_sandbox(packages=packages)
    kept: dict[str, str | dict[str, str]] = {}

    def python(code: str) -> str | dict[str, str]:
        """Run Python code and get what it prints.

        Args:
            code: The code.
        """
        if not isinstance(code, str):
            return {"error": "code must be text"}
        answer = kept.get(code)
        if answer is None:
            result = sandbox.run(CELL, stdin=code, limits=limits)
            answer = _answer(result, limits, longest)
            if result.status in ("ok", "nonzero"):  # in anything else a busy machine may have had a part
                if len(kept) >= KEPT:
                    kept.clear()
                answer = kept.setdefault(code, answer)  # that of whoever was first, where two ran it at once
        return dict(answer) if isinstance(answer, dict) else answer

    return python


def _answer(result: Result, limits: Limits, longest: int) -> str | dict[str, str]:
    """What became of a program, as the model reads it."""
    if result.status == "ok":
        return cut(result.stdout.strip(), longest) or "(no output: print the result)"
    if result.status == "nonzero":
        return {"error": cut(result.stderr.strip().rpartition("\n")[2], longest) or "the program failed"}
    return {"error": ENDED[result.status].format(wall=limits.wall)}


def cut(text: str, longest: int) -> str:
    """A text with its middle left out where it is too long; both ends tell more than one."""
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]} ...({len(text) - 2 * half} characters left out)... {text[len(text) - half :]}"


class BM25:
    """Documents, found by the words of a query: BM25 in Lucene's form, as `bm25s` computes it.

    score(q, d) = sum over the words t of q of log(1 + (N - n_t + 0.5) / (n_t + 0.5)) * f / (f + k1 (1 - b + b |d| / mean |d|))

    with k1 = 1.5, b = 0.75, f the times t stands in d, n_t the documents that have t, N all documents. Words are runs of letters and
    digits whatever their case; nothing is stemmed and no word is left out. Of equal scores the earlier document comes first.
    """

    def __init__(self, documents: Sequence[str]) -> None:
        """Index documents once; searching changes nothing, so any number of threads may share one index.

        Args:
            documents: Their texts.

        Raises:
            UserError: There is none with a word in it, or `bm25s` is missing.
        """
        try:
            import bm25s
        except ModuleNotFoundError as error:
            raise UserError("The search needs bm25s. Install it: pip install bm25s.") from error
        self.documents = tuple(documents)
        found = [words(text) for text in self.documents]
        if not any(found):
            raise UserError("There is no document with a word in it, so there is nothing to search. Give BM25 a list of texts.")
        self._known = {word for text in found for word in text}
        self._index = bm25s.BM25()
        self._index.index(found, show_progress=False)

    def search(self, query: str, k: int = 3) -> list[int]:
        """The places of the best documents, best first: at most k, and none without a word of the query.

        Args:
            query: Words, in any order.
            k: Most documents.
        """
        import numpy as np

        wanted = [word for word in words(query[:QUERY]) if word in self._known]
        if not wanted:
            return []
        scores = self._index.get_scores(wanted)
        return [int(place) for place in np.argsort(-scores, kind="stable")[:k] if scores[place] > 0]


def words(text: str) -> list[str]:
    """The words of a text, in small letters."""
    return re.findall(r"\w+", text.lower())


def search_tool(documents: Sequence[str | Mapping[str, str]], k: int = 2) -> Callable[[str], str]:
    """A tool named `search` that answers with the k best documents for a query, a line each.

    Args:
        documents: Texts, or objects with `text` and, if they have one, a `title`, which is searched too and stands before the text.
        k: Most documents of an answer.

    Returns:
        The tool.

    Raises:
        UserError: There is nothing to search, or `bm25s` is missing.
    """
    index = BM25([document if isinstance(document, str) else _with_title(document) for document in documents])

    def search(query: str) -> str:
        """Find documents by words.

        Args:
            query: The words.
        """
        found = index.search(str(query), k)
        return "\n".join(" ".join(index.documents[place].split()) for place in found) or "nothing found"

    return search


def _with_title(document: Mapping[str, str]) -> str:
    title = document.get("title")
    return f"{title}: {document['text']}" if title else document["text"]


def read_documents(path: str | Path) -> list[dict[str, str]]:
    """Documents of a JSONL file, one object a line, as `search_tool` takes them."""
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]
