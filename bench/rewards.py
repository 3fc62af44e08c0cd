"""Measure verifications a second, of every verifier and of open-source ones for the same job; print a table, write rewards.json.

    python bench/rewards.py                     two seconds each, on one core and on two
    python bench/rewards.py --seconds 0.5 math  only what has "math" in its name

Each measurement is a process of its own, pinned to its cores. Half of the answers are right, half wrong, no two are the same, and "agree"
is the share on which the verdict was the wanted one: speed that comes from not looking shows there. On two cores a verifier that waits
for processes runs as in training, many attempts at a time; anything else runs twice, once a core. What is not installed is skipped.
"""

import argparse
import asyncio
import contextlib
import importlib.metadata
import io
import itertools
import json
import os
import platform
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

HERE = Path(__file__).parent
BATCH = 32
Batch = Callable[[list[int]], list[float]]  # numbers of answers to what they scored; even numbers are right, odd ones wrong
LABELS = ("billing", "refund", "invoice", "account", "technical", "plan_change", "api", "other")
PROSE = "Each box holds twelve pens and the shop sold some of them on Monday, so we add what was left over from the week before. "


def earnest_json() -> Batch:
    from earnest.rewards.json import json_answer

    schema = {"type": "object", "required": ["category", "number"], "properties": {"number": {"type": "integer"}}}
    return _earnest(json_answer("gold", schema=schema), lambda n: json.dumps(_object(n + n % 2)), lambda n: {"gold": _object(n)})


def _object(n: int) -> dict:
    return {"category": LABELS[n % 8], "number": n, "needs_human": n % 3 == 0, "note": "a customer wrote in about an invoice"}


def earnest_label() -> Batch:
    from earnest.rewards.label import label

    return _earnest(label(LABELS, "gold"), lambda n: LABELS[n % 8] + "\n" * (n // 8 % 1000), _label_row)


def earnest_label_prose() -> Batch:
    from earnest.rewards.label import label

    return _earnest(label(LABELS, "gold", prose=True), lambda n: f"{PROSE}Ticket {n}: the label is {LABELS[n % 8]}.", _label_row)


def _label_row(n: int) -> dict:
    return {"gold": LABELS[(n + n % 2) % 8]}


def reasoning_gym_text() -> Batch:
    import reasoning_gym

    data = reasoning_gym.create_dataset("caesar_cipher", size=1)  # has the default score_answer
    return lambda numbers: [data.score_answer(LABELS[n % 8], {"answer": LABELS[(n + n % 2) % 8]}) for n in numbers]


def earnest_number() -> Batch:
    from earnest.rewards.number import number

    return _earnest(number("gold"), lambda n: f"{PROSE}The answer is {n + n % 2}.", lambda n: {"gold": n})


def reasoning_gym_number() -> Batch:
    import reasoning_gym

    data = reasoning_gym.create_dataset("gsm_symbolic", size=1)
    return lambda numbers: [data.score_answer(f"The answer is {n + n % 2}.", {"answer": str(n)}) for n in numbers]


def _fraction(n: int) -> str:
    return rf"\frac{{{n}}}{{7}}+\sqrt{{{n % 13 + 2}}}"


def _worked(n: int) -> str:
    return rf"{PROSE}The answer is $\boxed{{{_fraction(n + n % 2)}}}$."


def earnest_math() -> Batch:
    from earnest.rewards.math import math

    return _earnest(math("gold"), _worked, lambda n: {"gold": _fraction(n)})


def math_verify_itself() -> Batch:
    from math_verify import parse, verify

    return lambda numbers: [float(verify(parse(f"${_fraction(n)}$"), parse(_worked(n)))) for n in numbers]


def trl_accuracy() -> Batch:
    from trl.rewards import accuracy_reward

    def batch(numbers: list[int]) -> list[float]:
        completions = [[{"role": "assistant", "content": _worked(n)}] for n in numbers]
        return accuracy_reward(completions, [f"${_fraction(n)}$" for n in numbers])

    return batch


def verifiers_math() -> Batch:
    from verifiers.v1.utils.score import verify_boxed_math_answer

    return lambda numbers: [verify_boxed_math_answer(_worked(n), _fraction(n)) for n in numbers]


def earnest_function() -> Batch:
    from earnest.rewards.code import function_calls

    def row(n: int) -> dict:
        return {"tests": [{"args": [n], "expected": 2 * n + n % 2}], "entry_point": "double"}

    return _earnest(function_calls(), lambda n: f"def double(x):\n    # {n}\n    return 2 * x\n", lambda n: row(n) | {"number": n})


def earnest_sql() -> Batch:
    from earnest.rewards.sql import sql
    from earnest.rewards.sql_sqlite import from_script

    people = ", ".join(f"({i}, 'name {i}', {i * 7 % 60 + 18})" for i in range(200))
    image = from_script(f"CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT, age INTEGER); INSERT INTO people VALUES {people};")
    verifier = sql("gold", database=image)
    ages = (25, 35, 45, 55)  # four rows of data with many attempts each, as in training

    def text(n: int) -> str:
        return f"SELECT name FROM people WHERE age > {ages[n // 2 % 4] + 5 * (n % 2)} AND id >= -{n}"

    return _earnest(verifier, text, lambda n: {"gold": f"SELECT name FROM people WHERE age > {ages[n // 2 % 4]}"})


JOBS: dict[str, Callable[[], Batch]] = {
    "JSON object by schema and value: earnest": earnest_json,
    "label, whole text: earnest": earnest_label,
    "label, whole text: reasoning-gym": reasoning_gym_text,
    "label, in prose: earnest": earnest_label_prose,
    "number, in prose: earnest": earnest_number,
    "number, in prose: reasoning-gym": reasoning_gym_number,
    "mathematics: earnest": earnest_math,
    "mathematics: math-verify": math_verify_itself,
    "mathematics: TRL": trl_accuracy,
    "mathematics: verifiers": verifiers_math,
    "sandboxed function call: earnest": earnest_function,
    "SQL, four databases: earnest": earnest_sql,
}


def _earnest(verifier, text: Callable[[int], str], row: Callable[[int], dict]) -> Batch:
    """A batch through the reward function, as a trainer calls it."""
    from earnest.rewards.verifier import as_reward

    reward = as_reward(verifier)

    def batch(numbers: list[int]) -> list[float]:
        rows = [row(n) for n in numbers]
        columns = {name: [one[name] for one in rows] for name in rows[0]}
        values = reward(completions=[text(n) for n in numbers], **columns)
        return asyncio.run(values) if verifier.slow else values

    batch.slow = verifier.slow
    return batch


def measure(name: str, seconds: float, cores: list[int]) -> dict:
    """Verifications a second of one job in this process; `slow` says that it uses all its cores by itself."""
    os.sched_setaffinity(0, set(cores))
    warnings.filterwarnings("ignore")
    with contextlib.redirect_stderr(io.StringIO()):
        batch = JOBS[name]()
        numbers = itertools.count()
        batch(list(itertools.islice(numbers, BATCH)))  # starts workers, fills caches
        agreed = done = 0
        start = time.perf_counter()
        while (spent := time.perf_counter() - start) < seconds:
            asked = list(itertools.islice(numbers, BATCH))
            agreed += sum((value == 1) == (n % 2 == 0) for n, value in zip(asked, batch(asked), strict=True))
            done += BATCH
    return {"per_second": done / spent, "agree": agreed / done, "checked": done, "slow": getattr(batch, "slow", False)}


def processes(name: str, seconds: float, cores: list[list[int]]) -> list[dict] | str:
    """Measurements of the same job side by side, one a list of cores; or why there is none."""
    command = [sys.executable, __file__, "--one", name, "--seconds", str(seconds), "--cores"]
    started = [
        subprocess.Popen([*command, ",".join(map(str, some))], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for some in cores
    ]
    found = []
    for process in started:
        out, errors = process.communicate()
        if process.returncode:
            return (errors.strip().splitlines() or ["no message"])[-1]
        found.append(json.loads(out.strip().splitlines()[-1]))
    return found


def rows_of(names: list[str], seconds: float) -> Iterator[dict]:
    """One row a job and number of cores."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    for name in names:
        one = processes(name, seconds, [cores[:1]])
        if isinstance(one, str):
            yield {"job": name, "skipped": one}
            continue
        yield {"job": name, "cores": 1, **_summed(one)}
        if len(cores) > 1:
            two = processes(name, seconds, [cores] if one[0]["slow"] else [[core] for core in cores])
            yield {"job": name, "skipped": two} if isinstance(two, str) else {"job": name, "cores": 2, **_summed(two)}


def _summed(found: list[dict]) -> dict:
    checked = sum(one["checked"] for one in found)
    return {
        "per_second": round(sum(one["per_second"] for one in found), 1),
        "agree": round(sum(one["agree"] * one["checked"] for one in found) / checked, 4),
        "checked": checked,
    }


def versions() -> dict[str, str]:
    found = {}
    for package in ("earnest", "math-verify", "trl", "reasoning-gym", "verifiers"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", nargs="?", default="", help="only jobs with this in their name")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--out", type=Path, default=HERE / "rewards.json")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--cores", default="0", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one, options.seconds, [int(core) for core in options.cores.split(",")])))
        return
    rows = []
    print(f"{'':44} {'cores':>5} {'a second':>10} {'agree':>7}")
    for row in rows_of([name for name in JOBS if options.part in name], options.seconds):
        rows.append(row)
        if "skipped" in row:
            print(f"{row['job']:44} skipped: {row['skipped']}", flush=True)
        else:
            print(f"{row['job']:44} {row['cores']:>5} {row['per_second']:>10,.0f} {row['agree']:>7.1%}", flush=True)
    machine = {"python": platform.python_version(), "system": platform.platform(), "cores": os.cpu_count()}
    options.out.write_text(json.dumps({"machine": machine, "versions": versions(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
