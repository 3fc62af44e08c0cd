"""The red team beside other tools that attack a reward without a model, on rewards known to be broken or sound.

Each tool gets the same specimens and the best chance that a small adapter can give it: rows and prompts of the task, the right answer in
the form that earns full marks, one function from a text to the weighted sum of the rewards, and half of the way from wrong to right as the
mark from which on an answer counts as paid. Prints a table; `make bench-redteam` installs the tools and runs it. See bench/redteam.md.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import resource
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from earnest.errors import UserError
from earnest.evidence import Case, cases_of
from earnest.redteam.audit import audit
from earnest.redteam.form import Form, forms_of, prompt_text
from earnest.redteam.targets import spread_by_gold
from earnest.redteam.zoo import SPECIMENS, Specimen
from earnest.redteam.zoo.selftest import PATIENCE
from earnest.rows import load_rows
from earnest.score import score, weighted_total
from earnest.task import messages_of

ROWS = 16  # what the red team attacks, for all
LIMIT = 300.0  # seconds a tool may take over a specimen


@dataclass(frozen=True)
class Bench:
    """A specimen as the other tools see it."""

    specimen: Specimen
    cases: list[Case]
    forms: list[Form]

    def answer(self, index: int) -> str:
        """The right answer of a row; a trajectory as JSON, since the other tools know texts alone."""
        oracle = self.cases[index].oracle
        return oracle if isinstance(oracle, str) else json.dumps(oracle)

    def pay(self, text: str, index: int, **columns: Any) -> float:
        """The weighted sum of the rewards for a text."""
        case = self.cases[index]
        task = self.specimen.task
        row = {**case.row, **columns}
        values = score(task.rewards, task.weights, [case.prompt], [messages_of(_trajectory(text))], [row]).values
        return float(weighted_total(values, task.weights)[0])

    def mark(self) -> float:
        """Half of the way from the right answers of other rows to the right one."""
        right = [self.pay(self.answer(i), i) for i in range(len(self.cases))]
        wrong = [self.pay(self.answer(i - 1), i) for i in range(len(self.cases)) if self.answer(i - 1) != self.answer(i)]
        return (max(right) + min(wrong, default=0.0)) / 2


def _trajectory(text: str) -> Any:
    with contextlib.suppress(ValueError, RecursionError):
        value = json.loads(text)
        if isinstance(value, list) and value and all(isinstance(one, dict) and "role" in one for one in value):
            return value
    return text


def bench_of(specimen: Specimen) -> Bench:
    """A specimen with the rows that are to be attacked."""
    cases = [c for c in cases_of(specimen.task, load_rows(specimen.task)) if not c.prompt_problem and not c.gold_problem]
    chosen = spread_by_gold(cases, ROWS)
    forms = forms_of(cases)
    return Bench(specimen, [cases[i] for i in chosen], [forms[i] for i in chosen])


def earnest(specimen: Specimen, search_calls: int = 4000) -> list[str]:
    """Facts of the kind that the specimen is about; of a sound one, all facts."""
    deadline = PATIENCE[specimen.expect == "clean"]
    try:
        found = audit(specimen.task, load_rows(specimen.task), search_calls=search_calls, deadline=deadline).findings
    except UserError:
        return []
    return [f.attack for f in found if f.certainty == "fact" and specimen.expect in ("clean", f.kind)]


def reward_doctor(specimen: Specimen) -> list[str]:
    """Its cases that must be refused, as they are and about the task's own answers, bare and in the task's wrapping."""
    from reward_doctor import audit as doctor
    from reward_doctor import corpus

    bench = bench_of(specimen)
    threshold = bench.mark()
    found = []
    for index, form in enumerate(bench.forms):
        gold = _gold_column(bench.cases[index], form)
        for case in corpus.load(categories=["exploit", "distinction"]):
            columns = {}
            if case.category == "exploit":
                case = replace(case, completion=case.completion.replace(case.reference, form.core))
            elif gold and index == 0 and (cast := _like(bench.cases[0].row[gold], case.reference)) is not None:
                columns = {gold: cast}
                if not _pays(bench, form.wrap(case.reference), columns, threshold):
                    continue  # the task knows no such right answer
            else:
                continue
            for text in dict.fromkeys((case.completion, form.wrap(case.completion))):

                def reward(completion: str, reference: str, index: int = index, columns: dict[str, Any] = columns) -> float:
                    return bench.pay(completion, index, **columns)

                result = doctor(reward, cases=[replace(case, completion=text)], threshold=threshold)
                found += [o.case.id for o in result.false_positives] if specimen.expect != "fault" else []
                found += [f"{o.case.id} {o.error}" for o in result.errors] if specimen.expect in ("fault", "clean") else []
    return found


def _pays(bench: Bench, text: str, columns: dict[str, Any], threshold: float) -> bool:
    try:
        return bench.pay(text, 0, **columns) > threshold
    except UserError:
        return False


def _gold_column(case: Case, form: Form) -> str:
    return next((name for name, value in case.row.items() if str(value) == form.core), "")


def _like(value: Any, text: str) -> Any:
    """A text as the type of a value; None where it is none."""
    if isinstance(value, str):
        return text
    try:
        return type(value)(text)
    except (TypeError, ValueError):
        return None


def envdoctor(specimen: Specimen) -> list[str]:
    """A scan of all its policies; medium counts too, since crashes are medium."""
    from envdoctor import Case as Row
    from envdoctor import FunctionTarget, run_checks, scan

    bench = bench_of(specimen)
    rows = [Row(id=str(i), prompt=prompt_text(case), answer=bench.answer(i)) for i, case in enumerate(bench.cases)]
    target = FunctionTarget(lambda completion, case: bench.pay(completion, int(case.id)), rows, name=specimen.name)
    report = run_checks(scan(target, n_cases=len(rows), score_timeout=PATIENCE[specimen.expect == "clean"]))
    faults = {"grader_crash", "invalid_reward", "slow_grader", "nondeterministic_reward"}
    found = [f for f in report.findings if f.severity in ("medium", "high", "critical")]
    if isinstance(bench.cases[0].oracle, list):  # another digit somewhere in a trajectory makes it no wrong one
        found = [f for f in found if f.check != "grader_accepts_wrong"]
    return [f"{f.check} ({f.severity})" for f in found if specimen.expect == "clean" or (f.check in faults) == (specimen.expect == "fault")]


def gradecheck(specimen: Specimen) -> list[str]:
    """Its attacks on completions, through an object of the shape of an environment of `verifiers`."""
    from gradecheck.completion_attacks import run_all
    from gradecheck.verifiers_env import VerifiersEnv

    bench = bench_of(specimen)
    data = [{"prompt": list(case.prompt), "answer": bench.answer(i), "info": {"index": i}} for i, case in enumerate(bench.cases)]
    environment = SimpleNamespace(
        message_type="completion",
        pass_threshold=bench.mark(),
        parser=SimpleNamespace(answer_field="answer", format=lambda answer: bench.forms[0].wrap(answer)),
        rubric=SimpleNamespace(funcs=[lambda completion, info: bench.pay(completion, info["index"])], weights=[1.0]),
        get_dataset=lambda: data,
    )
    if specimen.expect == "fault":
        return []  # what a reward raises is counted as 0 there
    return [f.attack for f in run_all(VerifiersEnv(environment, sample=ROWS)) if f.verdict == "fooled"]


TOOLS: dict[str, Callable[[Specimen], list[str]]] = {
    "earnest": earnest,
    "reward-doctor": reward_doctor,
    "rl-envdoctor": envdoctor,
    "gradecheck": gradecheck,
}


def examined(tool: Callable[[Specimen], list[str]], specimen: Specimen) -> tuple[list[str] | str, float]:
    """What a tool reports and the processor seconds it took, in a process of its own; a text where it did not finish."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=_report, args=(theirs, tool, specimen))
    process.start()
    theirs.close()
    try:
        reply = ours.recv() if ours.poll(LIMIT) else ("did not finish", LIMIT)
    except EOFError:
        reply = "died", 0.0
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.join()
    return reply


def _report(pipe: Any, tool: Callable[[Specimen], list[str]], specimen: Specimen) -> None:
    os.setpgid(0, 0)
    sink = os.open(os.devnull, os.O_RDWR)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    try:
        found: list[str] | str = tool(specimen)
    except BaseException as error:
        found = f"{type(error).__name__}: {error}"
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    pipe.send((found, sum(u.ru_utime + u.ru_stime for u in used)))


def table(results: dict[tuple[str, str], tuple[list[str] | str, float]], specimens: list[Specimen], tools: list[str]) -> str:
    """Found by family, false alarms, unfinished and processor seconds, as Markdown."""
    lines = [f"| | rewards | {' | '.join(tools)} |", f"| --- | --: |{' --: |' * len(tools)}"]

    def hits(tool: str, some: list[Specimen]) -> int:
        return sum(isinstance(results[tool, s.name][0], list) and bool(results[tool, s.name][0]) for s in some)

    broken = [s for s in specimens if s.expect != "clean"]
    families = {family: [s for s in broken if s.family == family] for family in dict.fromkeys(s.family for s in specimens)}
    for title, some in [*families.items(), ("**defective, found**", broken)]:
        lines.append(f"| {title} | {len(some)} | {' | '.join(str(hits(tool, some)) for tool in tools)} |")
    sound = [s for s in specimens if s.expect == "clean"]
    lines.append(f"| **sound, accused** | {len(sound)} | {' | '.join(str(hits(tool, sound)) for tool in tools)} |")
    unfinished = [str(sum(isinstance(results[tool, s.name][0], str) for s in specimens)) for tool in tools]
    lines.append(f"| did not finish | {len(specimens)} | {' | '.join(unfinished)} |")
    seconds = [f"{sum(results[tool, s.name][1] for s in specimens):.0f}" for tool in tools]
    lines.append(f"| processor seconds | | {' | '.join(seconds)} |")
    return "\n".join(lines)


def main() -> None:
    """Run all tools on the zoo."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tools", type=Path, help="folder the other tools were installed into, with pip install --target")
    parser.add_argument("--only", nargs="*", choices=list(TOOLS), default=list(TOOLS))
    parser.add_argument("--search-calls", type=int, default=4000, help="of earnest's searcher")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--details", action="store_true", help="print what each tool says of each reward")
    options = parser.parse_args()
    if options.tools:
        sys.path.append(str(options.tools))
    tools = {**TOOLS, "earnest": partial(earnest, search_calls=options.search_calls)}
    for half in ("seen", "unseen") if "EARNEST_ZOO_UNSEEN" in os.environ else ("seen",):
        specimens = [s for s in SPECIMENS if s.half == half]
        pairs = [(tool, s) for s in specimens for tool in options.only]
        with ThreadPoolExecutor(options.jobs) as pool:
            results = {
                (tool, s.name): got for (tool, s), got in zip(pairs, pool.map(lambda p: examined(tools[p[0]], p[1]), pairs), strict=True)
            }
        print(f"\n{half} half\n\n{table(results, specimens, options.only)}", flush=True)
        for tool, specimen in pairs if options.details else ():
            found, seconds = results[tool, specimen.name]
            says = found if isinstance(found, str) else ", ".join(dict.fromkeys(found)) or "nothing"
            print(f"{tool:15} {specimen.name:40} {specimen.expect:12} {seconds:5.1f} s  {says[:120]}")


if __name__ == "__main__":
    main()
