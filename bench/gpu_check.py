"""On a machine with a GPU: does the engine give the same numbers there, and how fast is it? Under five minutes; skips where there is none.

python bench/gpu_check.py
"""

import sys
import time
from pathlib import Path

import torch
from work import triage

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

if not torch.cuda.is_available():
    print("No GPU here: nothing to check.")
    sys.exit(0)

import tiny  # the tests' tiny random models

from earnest.engine.models import load_model
from earnest.engine.policy import Policy, Trajectory
from earnest.engine.rollouts import answer, make_prompts
from earnest.engine.sampler import Sampling, sample


def tiny_policy(device: str) -> Policy:
    policy = tiny.make_policy(tiny.make("qwen3"))
    policy.peft.to(device)
    policy.changed()
    return policy


def gradients(policy: Policy, sequences: list[Trajectory]) -> list[torch.Tensor]:
    policy.log_probabilities(sequences).logp.sum().backward()
    return [p.grad.detach().cpu() for p in policy.trainable()]


def parity() -> None:
    """The tree on the GPU against the tree on the CPU and against the padded batch on the GPU, fp32."""
    torch.backends.cuda.matmul.allow_tf32 = False
    sequences = [Trajectory((1, 2, 3), tuple(range(4, 4 + n))) for n in (1, 5, 5, 9)] + [Trajectory((1, 7), (8,) * 6)]
    cpu, gpu, plain = tiny_policy("cpu"), tiny_policy("cuda"), tiny_policy("cuda")
    plain.exact_tree = False
    wanted = gradients(cpu, sequences)
    scale = max(float(g.abs().max()) for g in wanted)
    for name, policy in (("tree on GPU", gpu), ("padded batch on GPU", plain)):
        gap = max(float((a - b).abs().max()) for a, b in zip(gradients(policy, sequences), wanted, strict=True)) / scale
        print(f"{name}: largest gradient difference from the tree on the CPU, relative to the largest entry: {gap:.1e}")
        assert gap < 1e-4, name
    prompts, seeds = [(1, 2, 3), (1, 2, 4, 5)], [[0], [1]]
    runs = [sample(p.loaded, p.decoder(), prompts, seeds, 4, Sampling(1.0, max_tokens=24)) for p in (cpu, gpu)]
    same = sum(a.ids == b.ids for x, y in zip(*runs, strict=True) for a, b in zip(x, y, strict=True))
    print(f"sampling: {same} of 8 answers equal to the CPU's (rounding may part a few)")


def speed() -> None:
    """Sampling and one training pass of the real model in the precision of this GPU, and how far tree and padded batch are apart in it."""
    work = triage()
    policy = Policy(load_model("smollm2-135m"))
    print(f"{torch.cuda.get_device_name()}: {policy.model.dtype}")
    prompts = make_prompts(work.task, policy.loaded, work.rows[:16], False, 64)
    for size in (8, 32):
        for attempt in range(2):
            torch.cuda.synchronize()
            began = time.perf_counter()
            groups = answer(policy, work.task, prompts, size, Sampling(1.0, max_tokens=32), [attempt], False)
            torch.cuda.synchronize()
            middle = time.perf_counter()
            sequences = [Trajectory(p.ids, one.completion.ids) for p, group in zip(prompts, groups, strict=True) for one in group]
            policy.log_probabilities(sequences).logp.sum().backward()
            torch.cuda.synchronize()
            print(f"16 prompts x {size}: sampling {middle - began:.2f} s, forward and backward {time.perf_counter() - middle:.2f} s")
    with torch.no_grad():
        tree = policy.log_probabilities(sequences[:32])
        policy.exact_tree = False
        apart = (tree.logp - policy.log_probabilities(sequences[:32]).logp).abs()[tree.mask]
    print(
        f"log-probability gap between tree and padded batch: mean {float(apart.mean()):.1e}, peak memory "
        f"{torch.cuda.max_memory_allocated() / 2**30:.1f} GiB"
    )


if __name__ == "__main__":
    parity()
    speed()
