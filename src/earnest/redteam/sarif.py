"""An audit for machines: plain JSON with all of it, and SARIF 2.1.0, which code hosts and editors show beside the line of the reward."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from earnest import __version__
from earnest.redteam.fold import grouped
from earnest.redteam.wording import Described, described, earned, hits, shown, visible, who
from earnest.task import Answer, Task

if TYPE_CHECKING:
    from earnest.redteam.audit import Audit
    from earnest.redteam.baseline import Comparison
    from earnest.redteam.findings import Finding

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
LONG = 4000  # characters up to which an example stands in JSON as it is


def audit_json(audit: Audit, compared: Comparison) -> dict[str, Any]:
    """All of an audit as JSON knows it, keys in a fixed order; `earnest.rundir.write_json` makes null of what is not finite."""
    held = {field.name: _plain(getattr(audit, field.name)) for field in dataclasses.fields(audit) if field.name != "findings"}
    findings = [
        {"fingerprint": f.fingerprint, "accepted": any(f is one for one in compared.accepted)} | _plain(f) | {"example": _example(f)}
        for f in audit.findings
    ]
    stale = [dataclasses.asdict(entry) for entry in compared.stale]
    return {"version": __version__, "exploitable": audit.exploitable, "fails": compared.fails, **held, "findings": findings, "stale": stale}


def _plain(value: Any) -> Any:
    """Records as mappings. `dataclasses.asdict` would copy answers deeply, and a hostile one may be deeper than that can go."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, (tuple, frozenset, set)):
        return [_plain(one) for one in value]
    return value


def _example(finding: Finding) -> Any:
    """The answer as it is, or as people can read it where it is longer than that, or deeper than JSON can be written."""
    try:
        if len(json.dumps(finding.example, default=repr)) <= LONG:
            return finding.example
    except (ValueError, TypeError, RecursionError):
        pass
    return _readable(finding.example)


def _readable(answer: Answer) -> str:
    return "\n".join(shown(answer, 14, 1200))


def sarif(audit: Audit, compared: Comparison, task: Task, root: Path | None = None) -> dict[str, Any]:
    """An audit as a SARIF 2.1.0 log of one run.

    Facts that fail the audit are errors, other facts and leads are warnings, questions are notes. Findings that show the same flaw are one
    result, which names them all. What the baseline holds is there, marked as suppressed.

    Args:
        audit: What was found.
        compared: The same beside a baseline.
        task: Whose reward functions are pointed at.
        root: Where relative paths start; the working directory when None.
    """
    functions = {function.name: function for function in described(task)}
    first = {finding.attack: finding for finding in reversed(audit.findings)}
    rules = [_rule(first[identity]) for identity in sorted(first)]
    numbers = {rule["id"]: index for index, rule in enumerate(rules)}
    base = (root or Path.cwd()).resolve()
    place = {id(finding): number for number, finding in enumerate(audit.findings)}
    both = ((compared.new, False), (compared.accepted, True))
    groups = [(first, others, accepted) for some, accepted in both for first, others in grouped(some)]
    results = []
    for finding, others, accepted in sorted(groups, key=lambda group: place[id(group[0])]):  # an alert an attack would bury the flaw
        those = [functions[name] for name in finding.rewards or functions if name in functions]
        locations = [location for function in those for location in _location(function, base)]
        results.append(_result(finding, others, numbers[finding.attack], locations, accepted))
    driver = {"name": "earnest redteam", "version": __version__, "semanticVersion": __version__, "rules": rules}
    run = {
        "tool": {"driver": driver},
        "automationDetails": {"id": f"earnest/redteam/{audit.task}"},
        "invocations": [{"executionSuccessful": True}],
        "columnKind": "unicodeCodePoints",
        "results": results,
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(finding: Finding) -> dict[str, Any]:
    return {
        "id": finding.attack,
        "shortDescription": {"text": visible(finding.flaw)},
        "help": {"text": visible(finding.fix)},
        "properties": {"tags": ["reward", finding.family], **({"source": finding.source} if finding.source else {})},
    }


def _result(finding: Finding, others: Sequence[Finding], rule: int, locations: Sequence[dict[str, Any]], accepted: bool) -> dict[str, Any]:
    kind = {"fact": finding.kind, "lead": f"possible {finding.kind}", "question": "question"}[finding.certainty]
    text = [f"{kind[0].upper()}{kind[1:]} in {who(finding)}: {finding.flaw}", f"The answer earns {earned(finding)}; on {hits(finding)}."]
    text += [f"Seen: {finding.detail}."] if finding.detail else []
    text += [f"Fix: {finding.fix}", f"Answer, at {finding.place}:", *shown(finding.example)]
    text += [f"The same is shown by {', '.join(f.attack for f in others)}."] if others else []
    result: dict[str, Any] = {
        "ruleId": finding.attack,
        "ruleIndex": rule,
        "level": level(finding),
        "message": {"text": visible("\n".join(text))},
        "locations": list(locations),
        "partialFingerprints": {"earnestFinding/v1": finding.fingerprint},
        "properties": {"certainty": finding.certainty, "kind": finding.kind, "answer": _readable(finding.example)},
    }
    if others:
        result["properties"]["also"] = [{"attack": f.attack, "flaw": visible(f.flaw), "fingerprint": f.fingerprint} for f in others]
    if accepted:
        result["suppressions"] = [{"kind": "external", "justification": "in the baseline"}]
    return result


def level(finding: Finding) -> str:
    """SARIF's level of a finding."""
    if finding.certainty == "fact":
        return "warning" if finding.kind == "false reject" else "error"
    return "warning" if finding.certainty == "lead" else "note"


def _location(function: Described, base: Path) -> list[dict[str, Any]]:
    """Where a function is written, none where nobody can tell: relative to the root, as code hosts ask for, if it lies within."""
    if function.file is None:
        return []
    file = function.file.resolve()
    if file.is_relative_to(base):
        artifact = {"uri": quote(file.relative_to(base).as_posix()), "uriBaseId": "%SRCROOT%"}
    else:
        artifact = {"uri": file.as_uri()}
    return [
        {
            "physicalLocation": {"artifactLocation": artifact, "region": {"startLine": function.line}},
            "logicalLocations": [{"name": function.name, "kind": "function"}],
        }
    ]
