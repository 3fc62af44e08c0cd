"""One measurement in a process of its own: training steps of one engine, or greedy evaluation. Prints one JSON line.

A process each, so that peak memory is that engine's own and neither inherits the other's warm caches.
"""

import argparse
import contextlib
import itertools
import json
import resource
import statistics
import tempfile
import time
import warnings
from collections import defaultdict
from pathlib import Path

import torch
from work import WORK

from earnest.config import SftConfig, TrainConfig
from earnest.engine import decoder, pool, rollouts, sampler
from earnest.engine import policy as policies
from earnest.engine.models import load_model
from earnest.engine.policy import Policy
from earnest.engine.rollouts import answer, make_prompts
from earnest.engine.sampler import Sampling
from earnest.engine.sft import sft
from earnest.engine.train import train
from earnest.engine.tree import PrefixTree

warnings.filterwarnings("ignore")
MODEL, RANK, RATE = "smollm2-135m", 16, 2e-4


def peak_gib() -> float:
    """Most memory this process ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def matrix_rate() -> float:
    """GFLOP/s of a large fp32 product: what this machine can do."""
    a, b = torch.randn(2048, 2048), torch.randn(2048, 2048)
    times = []
    for _ in range(8):
        began = time.perf_counter()
        a @ b
        times.append(time.perf_counter() - began)
    return 2 * 2048**3 / statistics.median(times[2:]) / 1e9


class Watch:
    """Seconds by stage, and the arithmetic of the steps, by wrapping the engine's own functions.

    `flops` is what sampling, a forward and a backward pass over distinct tokens take, however they are done; `spared` what of it was not
    computed, because training found it in the trace of sampling.
    """

    def __init__(self, policy: Policy) -> None:
        t = policy.transformer()
        self.policy, self.seconds = policy, defaultdict(float)
        self.inner = sum(p.weight.numel() for layer in t.layers for p in layer.projections)
        made_again = sum(layer.up.weight.numel() + t.heads * t.head_dim * t.embedding.shape[1] for layer in t.layers)
        self.lora, self.head = sum(p.numel() for p in policy.trainable()), t.head.weight.numel()
        self.per_pair = 4 * t.heads * t.head_dim * len(t.layers)  # a query and a key: one product for the score, one for the value
        policy.changed()  # in a run nothing made for training is there while it samples
        self.flops, self.spared, self.trained = 0.0, 0.0, []

        def went_back(result, t, kept, depths, *rest) -> None:
            self.spared += 2 * (self.inner - made_again) * len(depths) + self.per_pair * int(depths.sum() + len(depths))

        def took(result, kept, hidden, nodes, *rest) -> None:  # the mean was made while sampling, in place of here; logits are not again
            self.spared += 2 * self.head * len(nodes.unique()) if result is not None else 0

        for kind in (decoder.Decoder, pool.PooledDecoder):  # the second where the kernels serve
            self._wrap(kind, "prefill", "prefill")
            self._wrap(kind, "step", "decode")
        self._wrap(sampler, "draw", "draw")
        self._wrap(torch.Tensor, "backward", "backward")
        self._wrap(Policy, "log_probabilities", "forward", lambda result, _, sequences, *rest: self.trained.extend(sequences))
        self._wrap(policies, "hidden_of", None, went_back)
        self._wrap(policies, "log_probability", None, took)
        self._wrap(pool.PooledDecoder, "drawn", "means of the head")
        self._wrap(rollouts, "sample", None, lambda result, _l, _d, prompts, *rest: self._sampled(prompts, result))

    def _wrap(self, owner, name, stage, then=None) -> None:
        function = getattr(owner, name)

        def timed(*args, **kwargs):
            began = time.perf_counter()
            result = function(*args, **kwargs)
            if stage:
                self.seconds[stage] += time.perf_counter() - began
            if then:
                then(result, *args)
            return result

        setattr(owner, name, timed)

    def _sampled(self, prompts, groups) -> None:
        """Every distinct token that something was drawn after goes through the model once, and through the head."""
        tree, drawn = PrefixTree(), set()
        for prompt, group in zip(prompts, groups, strict=True):
            tree.add(prompt)
            for one in group:
                path = tree.add((*prompt, *one.ids[:-1]))
                drawn.update(path[len(prompt) - 1 :].tolist())
        pairs = sum(tree.depth) + len(tree)
        self.flops += 2 * self.inner * len(tree) + 2 * self.head * len(drawn) + self.per_pair * pairs

    def step_done(self) -> None:
        """Forward, and backward to the inputs of every frozen matrix and to A and B, over distinct tokens."""
        tree, read = PrefixTree(), set()
        for s in self.trained:
            path = tree.add((*s.prompt, *s.completion[:-1]))
            read.update(path[len(s.prompt) - 1 :].tolist())
        pairs = sum(tree.depth) + len(tree)
        self.flops += (4 * self.inner + 4 * self.lora) * len(tree) + 4 * self.head * len(read) + 3 * self.per_pair * pairs
        self.trained.clear()


def adapter_of(work, folder: Path) -> Path | None:
    """The SFT adapter the triage work starts from, trained once; maths starts from the model as it is."""
    if work.task.name != "triage":
        return None
    done = folder / "sft-48-steps-at-5e-4"
    if not done.is_dir():
        loaded = load_model(MODEL, "cpu")
        prompts = make_prompts(work.task, loaded, work.rows, False, 0)
        config = SftConfig(steps=48, rows=384, learning_rate=5e-4)
        with tempfile.TemporaryDirectory(dir=folder) as half_done:
            sft(Policy(loaded, RANK), work.task, prompts, config, Path(half_done), 0, lambda row: None)
            Path(half_done, "adapter").rename(done)
    return done


def earnest_steps(work, adapter, args) -> dict:
    policy = Policy(load_model(MODEL, "cpu"), RANK, adapter)
    prompts = make_prompts(work.task, policy.loaded, work.rows[: args.prompts * 3], False, work.max_completion_length)
    config = TrainConfig(
        steps=args.steps + args.warmup,
        num_prompts=args.prompts,
        num_generations=args.generations,
        max_completion_length=work.max_completion_length,
        learning_rate=RATE,
        max_dead_steps=0,
        save_steps=0,
    )
    watch, rows, ends = Watch(policy), [], [time.perf_counter()]

    def report(row):
        watch.step_done()
        ends.append(time.perf_counter())
        rows.append(row | {"flops": watch.flops, "done": watch.flops - watch.spared, "stages": dict(watch.seconds)})
        watch.flops = watch.spared = 0.0
        watch.seconds.clear()

    with tempfile.TemporaryDirectory() as folder:
        train(policy, work.task, prompts, config, Path(folder), 0, False, report)
    rate = matrix_rate()
    seconds = [b - a for a, b in itertools.pairwise(ends)][args.warmup :]
    rows = rows[args.warmup :]
    tokens = sum(r["completions/mean_length"] for r in rows) * args.prompts * args.generations
    return {
        "seconds": seconds,
        "matrix_gflops": rate,
        "matrix_rate_share": sum(r["flops"] for r in rows) / sum(seconds) / rate / 1e9,
        "matrix_rate_done": sum(r["done"] for r in rows) / sum(seconds) / rate / 1e9,
        "sample_tokens_per_second": tokens / sum(r["time/sample"] for r in rows),
        "train_tokens_per_second": sum(r["tokens/trained"] for r in rows) / sum(r["time/train"] for r in rows),
        "mean_length": statistics.mean(r["completions/mean_length"] for r in rows),
        "distinct_share": sum(r["tokens/distinct"] for r in rows) / sum(r["tokens/total"] for r in rows),
        "dead_groups": statistics.mean(r["frac_reward_zero_std"] for r in rows),
        "stages": {k: sum(r["stages"].get(k, 0.0) for r in rows) / len(rows) for k in rows[0]["stages"]},
    }


def trl_steps(work, adapter, args) -> dict:
    from datasets import Dataset
    from peft import LoraConfig, PeftModel
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    loaded = load_model(MODEL, "cpu")
    whole = args.prompts * args.generations
    micro = min(args.micro or whole, whole)
    options = {"gradient_checkpointing": False} if args.fast else {}
    if args.continuous:
        options["use_transformers_continuous_batching"] = True
    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder,
            per_device_train_batch_size=micro,
            gradient_accumulation_steps=whole // micro,
            num_generations=args.generations,
            max_completion_length=work.max_completion_length,
            learning_rate=RATE,
            lr_scheduler_type="constant",
            max_steps=args.steps + args.warmup,
            use_cpu=True,
            bf16=False,
            report_to="none",
            save_strategy="no",
            logging_steps=1,
            disable_tqdm=True,
            **options,
        )
        marks, lengths = [], []

        class Clock(TrainerCallback):
            def on_step_begin(self, *_, **__):
                marks.append(time.perf_counter())

            def on_step_end(self, *_, **__):
                marks.append(time.perf_counter())

            def on_log(self, _args, _state, _control, logs=None, **__):
                lengths.append((logs or {}).get("completions/mean_length"))

        model = PeftModel.from_pretrained(loaded.model, adapter, is_trainable=True) if adapter else loaded.model
        lora = None if adapter else LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules="all-linear", task_type="CAUSAL_LM")
        if loaded.tokenizer.pad_token is None:
            loaded.tokenizer.pad_token = loaded.tokenizer.eos_token
        rows = [
            {k: v for k, v in row.items() if k != "prompt"} | {"prompt": work.task.prompt(row)} for row in work.rows[: args.prompts * 3]
        ]
        trainer = GRPOTrainer(
            model=model,
            reward_funcs=list(work.task.rewards),
            args=config,
            train_dataset=Dataset.from_list(rows),
            processing_class=loaded.tokenizer,
            peft_config=lora,
            callbacks=[Clock()],
        )
        with contextlib.redirect_stdout(None):
            trainer.train()
    seconds = [end - begin for begin, end in zip(marks[::2], marks[1::2], strict=True)][args.warmup :]
    return {
        "seconds": seconds,
        "mean_length": statistics.mean(x for x in lengths[args.warmup :] if x is not None),
        "matrix_gflops": matrix_rate(),
    }


def earnest_eval(work, adapter, args) -> dict:
    policy = Policy(load_model(MODEL, "cpu"), RANK, adapter)
    prompts = make_prompts(work.task, policy.loaded, work.rows[: args.rows], False, 40)
    answer(policy, work.task, prompts[:4], 1, Sampling(temperature=0, max_tokens=4), [0], False)
    began = time.perf_counter()
    groups = answer(policy, work.task, prompts, 1, Sampling(temperature=0, max_tokens=40), [0], False)
    return {"seconds": [time.perf_counter() - began], "texts": [group[0].answer.content for group in groups]}


def generate_eval(work, adapter, args) -> dict:
    from peft import PeftModel

    loaded = load_model(MODEL, "cpu")
    model = PeftModel.from_pretrained(loaded.model, adapter).merge_and_unload()
    prompts = [list(p.ids) for p in make_prompts(work.task, loaded, work.rows[: args.rows], False, 40)]
    texts = []
    with torch.inference_mode():
        model.generate(input_ids=torch.tensor([prompts[0]]), max_new_tokens=4, do_sample=False, pad_token_id=0)
        began = time.perf_counter()
        for start in range(0, len(prompts), 16):
            batch = prompts[start : start + 16]
            width = max(map(len, batch))
            ids = torch.tensor([[0] * (width - len(p)) + p for p in batch])
            mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in batch])
            out = model.generate(
                input_ids=ids, attention_mask=mask, max_new_tokens=40, do_sample=False, eos_token_id=sorted(loaded.stops), pad_token_id=0
            )
            texts += [loaded.tokenizer.decode(row[width:], skip_special_tokens=True) for row in out]
        seconds = time.perf_counter() - began
    return {"seconds": [seconds], "texts": texts}


def adapter_alone(work, adapter, args) -> dict:
    """The adapter made by a process of its own, so that no engine's peak holds what SFT took."""
    return {"adapter": str(adapter)}


KINDS = {"adapter": adapter_alone, "earnest": earnest_steps, "trl": trl_steps, "earnest-eval": earnest_eval, "generate-eval": generate_eval}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("work", choices=WORK)
    parser.add_argument("--adapter-folder", type=Path, required=True)
    parser.add_argument("--generations", type=int, default=8)
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--warmup", type=int, default=1, help="steps before those that are measured")
    parser.add_argument("--rows", type=int, default=250)
    parser.add_argument("--fast", action="store_true", help="TRL without activation checkpointing")
    parser.add_argument("--micro", type=int, default=0, help="TRL's sequences a batch; 0 for the whole step")
    parser.add_argument("--continuous", action="store_true", help="TRL with transformers' continuous batching")
    args = parser.parse_args()
    args.adapter_folder.mkdir(parents=True, exist_ok=True)
    work = WORK[args.work]()
    result = KINDS[args.kind](work, adapter_of(work, args.adapter_folder), args)
    print(json.dumps(result | {"peak_gib": peak_gib()}))


if __name__ == "__main__":
    main()
