"""Measure earnest against TRL's GRPOTrainer on this machine, in one run, alternating; write results.json, results.md and a plot.

    python bench/run.py           everything (half an hour to an hour and a half: TRL takes minutes a step)
    python bench/run.py --quick   triage at G = 8, and evaluation: under ten minutes

The first step of a process is its warm-up, save of TRL from G = 16 on, where only the first is measured, to save time. Of earnest's the
next three are measured: what they cost depends on how many groups are dead, and the second of a run writes a trace for the first time,
in memory that all later ones find, so the median is of steps as nearly all of a run are. Of TRL's the second step is measured, and the
third too on long text in its defaults. Both engines start from the same adapter and the same twelve rows, with the same hyperparameters;
answers get as long as they get. Seconds are of the whole step: sampling, scoring, training.
Engines take turns, and medians are reported.
"""

import argparse
import json
import platform
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ENGINES = {
    "earnest": ("earnest",),
    "TRL, defaults": ("trl", "--micro", "8"),
    "TRL, no activation checkpointing, 32 a batch": ("trl", "--fast", "--micro", "32"),
    "TRL, no activation checkpointing, 8 a batch": ("trl", "--fast", "--micro", "8"),
    "TRL, continuous batching, no checkpointing, 32 a batch": ("trl", "--fast", "--micro", "32", "--continuous"),
}
EARNEST, DEFAULTS, FAST, FAST_8, CONTINUOUS = ENGINES
# The figures this project set itself: step_ratio against TRL's defaults and against its fastest configuration.
WANTED = {("triage", 8): (12, 8), ("triage", 32): (25, 16), ("maths", 8): (4, 3)}


def measure(kind: tuple[str, ...], work: str, cache: Path, failed: list[str], timeout: int = 2400, **options) -> dict | None:
    """One process; None, with the reason in `failed`, where it could not do it."""
    command = [sys.executable, str(HERE / "measure.py"), kind[0], work, "--adapter-folder", str(cache), *kind[1:]]
    for name, value in options.items():
        command += [f"--{name}", str(value)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, cwd=HERE)
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1] if done.returncode else ""
        if done.returncode < 0:
            reason = f"killed by signal {-done.returncode}: out of memory?"
    except subprocess.TimeoutExpired:
        reason = f"no result in {timeout} s"
    if reason:
        failed.append(f"{' '.join(kind)}, {work}, {options}: {reason}")
        print(f"  {failed[-1]}", flush=True)
        return None
    return json.loads(done.stdout.strip().splitlines()[-1])


def steps(work: str, size: int, turns: list[str], cache: Path, failed: list[str]) -> list[dict]:
    """Steps of each engine at a group size, in turns; one row an engine."""
    found: dict[str, list[dict]] = {}
    for engine in turns:
        count = 3 if engine == EARNEST else 2 if (engine, work) == (DEFAULTS, "maths") else 1
        # The first step of a run of ours computes all of it twice, to compare; later ones do not (engine/trace.py).
        warmup = 0 if engine != EARNEST and size >= 16 else 1
        result = measure(ENGINES[engine], work, cache, failed, generations=size, steps=count, warmup=warmup)
        if result:
            found.setdefault(engine, []).append(result)
            took = ", ".join(f"{s:.1f}" for s in result["seconds"])
            print(f"  {work} G = {size}, {engine}: {took} s, {result['peak_gib']:.1f} GiB", flush=True)
    rows = []
    for engine, results in found.items():
        seconds = [s for r in results for s in r["seconds"]]
        usual = {k: statistics.median(r[k] for r in results) for k, v in results[0].items() if isinstance(v, (int, float))}
        stages = {k: statistics.median(r["stages"][k] for r in results) for k in results[0].get("stages", {})}
        row = {"work": work, "generations": size, "engine": engine, "seconds": seconds, "median": statistics.median(seconds)}
        rows.append(row | usual | {"stages": stages, "peak_gib": max(r["peak_gib"] for r in results)})
    return rows


def ratios(rows: list[dict]) -> list[dict]:
    """TRL's time over ours, against its defaults and against the fastest of what was measured."""
    out = []
    for work, size in dict.fromkeys((r["work"], r["generations"]) for r in rows):
        by = {r["engine"]: r for r in rows if (r["work"], r["generations"]) == (work, size)}
        others = {engine: r["median"] for engine, r in by.items() if engine != EARNEST}
        if EARNEST not in by or not others:
            continue
        ours, fastest = by[EARNEST], min(others, key=others.get)
        out.append(
            {
                "work": work,
                "generations": size,
                "against_defaults": others.get(DEFAULTS, float("nan")) / ours["median"],
                "against_fastest": others[fastest] / ours["median"],
                "fastest": fastest,
                "memory_share": ours["peak_gib"] / min(r["peak_gib"] for e, r in by.items() if e != EARNEST),
                "wanted": WANTED.get((work, size)),
            }
        )
    return out


def evaluation(rounds: int, cache: Path, failed: list[str], count: int = 250) -> dict | None:
    """Greedy answers to `count` rows: ours, and transformers' generate in batches of 16."""
    pairs = []
    for _ in range(rounds):
        ours = measure(("earnest-eval",), "triage", cache, failed, rows=count)
        theirs = measure(("generate-eval",), "triage", cache, failed, rows=count)
        if ours and theirs:
            pairs.append((ours, theirs))
            print(f"  evaluation of {count} rows: earnest {ours['seconds'][0]:.1f} s, generate {theirs['seconds'][0]:.1f} s", flush=True)
    if not pairs:
        return None
    ours, theirs = ([p[i]["seconds"][0] for p in pairs] for i in (0, 1))
    same = statistics.mean(a == b for a, b in zip(pairs[-1][0]["texts"], pairs[-1][1]["texts"], strict=True))
    return {
        "rows": count,
        "earnest": ours,
        "generate": theirs,
        "ratio": statistics.median(theirs) / statistics.median(ours),
        "same_text": same,
    }


def table(head: str, rows: list[list[str]]) -> list[str]:
    """A Markdown table with a blank line before it."""
    return ["", f"| {head} |", "|---" * len(head.split(" | ")) + "|", *(f"| {' | '.join(map(str, row))} |" for row in rows)]


def markdown(results: dict) -> str:
    """The results as a page."""
    quick = " --quick" if results["quick"] else ""
    lines = [
        "# Benchmark",
        "",
        f"{results['machine']}. SmolLM2-135M-Instruct, LoRA r = 16, fp32, 4 prompts a step. `python bench/run.py{quick}`.",
    ]
    lines += table(
        "work | G | engine | seconds a step (all measured) | median | peak GiB | tokens an answer",
        [
            [
                r["work"],
                r["generations"],
                r["engine"],
                ", ".join(f"{s:.1f}" for s in r["seconds"]),
                f"{r['median']:.1f}",
                f"{r['peak_gib']:.1f}",
                f"{r['mean_length']:.0f}",
            ]
            for r in results["steps"]
        ],
    )
    lines += table(
        "work | G | step_ratio, TRL's defaults | TRL's fastest | wanted | which is the fastest | memory, share of TRL's least",
        [
            [
                r["work"],
                r["generations"],
                f"{r['against_defaults']:.1f}",
                f"{r['against_fastest']:.1f}",
                " / ".join(map(str, r["wanted"] or ())),
                r["fastest"],
                f"{r['memory_share']:.2f}",
            ]
            for r in results["ratios"]
        ],
    )
    lines += table(
        "earnest | G | matrix_rate_share | done | sampled tokens / s | trained tokens / s | distinct | dead groups | seconds by stage",
        [
            [
                r["work"],
                r["generations"],
                f"{r['matrix_rate_share']:.2f} of {r['matrix_gflops']:.0f} GFLOP/s",
                f"{r['matrix_rate_done']:.2f}",
                f"{r['sample_tokens_per_second']:.0f}",
                f"{r['train_tokens_per_second']:.0f}",
                f"{r['distinct_share']:.2f}",
                f"{r['dead_groups']:.2f}",
                ", ".join(f"{k} {v:.2f}" for k, v in r["stages"].items()),
            ]
            for r in results["steps"]
            if r["engine"] == EARNEST
        ],
    )
    lines += [
        "",
        "matrix_rate_share counts what sampling, a forward and a backward pass over distinct tokens take. From its second step on a run "
        "goes back through what sampling computed, without a forward pass of its own through the layers; the next column counts only what "
        "is computed.",
    ]
    lines += ["", *(f"Failed: {what}" for what in results["failed"])]
    if e := results["evaluation"]:
        ours, theirs = statistics.median(e["earnest"]), statistics.median(e["generate"])
        lines += [
            "",
            f"Greedy evaluation of {e['rows']} rows: earnest {ours:.1f} s, `generate` in batches of 16 {theirs:.1f} s, "
            f"ratio {e['ratio']:.1f}; the same text on {e['same_text']:.1%} of the rows.",
        ]
    return "\n".join(lines) + "\n"


def plot(results: dict, path: Path) -> None:
    """Seconds a step against group size, one line an engine."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = [r for r in results["steps"] if r["work"] == "triage"]
    figure, axes = plt.subplots(figsize=(10, 4))
    for engine in ENGINES:
        points = sorted((r["generations"], r["median"]) for r in rows if r["engine"] == engine)
        if points:
            axes.plot(*zip(*points, strict=True), marker="o", label=engine)
    axes.set(
        xscale="log", yscale="log", xlabel="G, samples a prompt", ylabel="seconds a step", title="Triage: how a step grows with the group"
    )
    sizes = sorted({r["generations"] for r in rows})
    axes.set_xticks(sizes, [str(s) for s in sizes])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))  # beside the lines, not on them
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def machine() -> str:
    """What it ran on."""
    import os

    import torch

    cores, kind = len(os.sched_getaffinity(0)), torch.backends.cpu.get_cpu_capability()
    return f"{cores} CPU cores, {kind}, Python {platform.python_version()}, torch {torch.__version__}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=HERE)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    cache = (HERE / ".cache").resolve()
    results = {"machine": machine(), "quick": args.quick, "steps": [], "ratios": [], "evaluation": None, "failed": []}

    def keep() -> None:
        results["ratios"] = ratios(results["steps"])
        (args.out / "results.json").write_text(json.dumps(results, indent=1))
        (args.out / "results.md").write_text(markdown(results))

    turns = [EARNEST, DEFAULTS, EARNEST, FAST, EARNEST]
    plan = [("triage", 8, turns)]
    if not args.quick:  # 32 long answers in one batch, nothing recomputed, need more than 24 GB
        plan = [
            ("triage", 8, [*turns, CONTINUOUS, EARNEST]),
            ("maths", 8, [EARNEST, DEFAULTS, EARNEST, FAST_8, EARNEST]),
            ("triage", 32, turns),
            ("triage", 16, turns),
            ("triage", 4, turns),
        ]
    measure(("adapter",), "triage", cache, results["failed"])
    for number, (work, size, order) in enumerate(plan):
        results["steps"] += steps(work, size, order, cache, results["failed"])
        keep()  # a run that is stopped keeps what it has
        if number == min(1, len(plan) - 1):
            results["evaluation"] = evaluation(1 if args.quick else 2, cache, results["failed"])
            keep()
    plot(results, args.out / "results.png")
    print((args.out / "results.md").read_text())


if __name__ == "__main__":
    main()
