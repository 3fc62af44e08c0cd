"""The policy: a model with LoRA, and the log-probabilities of what it wrote.

`log_probabilities` runs a pack of sequences through the model once and returns the log-probability and the entropy of every
completion token. On an architecture the prefix tree represents exactly, the pack is one forward pass over distinct tokens; on any other
it is an ordinary right-padded batch. Both give the same numbers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from earnest.engine.attention import plan, tree_attention
from earnest.engine.decoder import Decoder, Stem
from earnest.engine.drafts import Drafts
from earnest.engine.kernels import exponentials, multiply
from earnest.engine.models import Loaded, give_back_memory
from earnest.engine.pool import Pool, PooledDecoder
from earnest.engine.trace import Trace, hidden_of, log_probability
from earnest.engine.transformer import Transformer, not_on_tree
from earnest.engine.tree import pack, sorted_tree
from earnest.errors import UserError

# Of these, fused kernels read the weights directly and would pass LoRA by; PEFT refuses them.
NOT_LINEAR = {family: ["out_proj", "conv1d"] for family in ("mamba", "mamba2", "falcon_mamba", "falcon_h1", "nemotron_h")}


@dataclass(frozen=True)
class Trajectory:
    """A prompt, of at least one token, and one completion of it, as token ids.

    Attributes:
        prompt: Its tokens.
        completion: What follows.
        own: Which of those the model wrote; empty where it wrote them all.
    """

    prompt: tuple[int, ...]
    completion: tuple[int, ...]
    own: tuple[bool, ...] = ()

    @property
    def written(self) -> tuple[bool, ...]:
        """Which tokens of the completion the model wrote."""
        return self.own or (True,) * len(self.completion)


@dataclass(frozen=True)
class TokenScores:
    """Of each completion token of n sequences, right-padded to the longest, T.

    Attributes:
        logp: float32 [n, T] log-probability under the policy at the sampling temperature; 0 on padding.
        mask: bool [n, T], False on padding and on what the model did not write.
    """

    logp: torch.Tensor
    mask: torch.Tensor


class Policy:
    """A causal language model with a trainable LoRA adapter.

    Args:
        loaded: Model and tokenizer; the LoRA layers are put into the model in place.
        rank: LoRA rank; alpha is twice the rank.
        adapter: Folder of an adapter to go on from, in place of a fresh one.
        seed: Seeds the fresh adapter.
    """

    def __init__(self, loaded: Loaded, rank: int = 16, adapter: Path | None = None, seed: int = 0) -> None:
        from peft import LoraConfig, get_peft_model

        self.loaded = loaded
        if adapter is not None:
            self.peft = _with_adapter(loaded.model, adapter)
        else:
            torch.manual_seed(seed)
            config = LoraConfig(
                r=rank,
                lora_alpha=2 * rank,
                lora_dropout=0.0,
                target_modules="all-linear",
                exclude_modules=NOT_LINEAR.get(loaded.model.config.model_type),
                task_type="CAUSAL_LM",
            )
            self.peft = get_peft_model(loaded.model, config)
        self.peft.eval()  # no dropout anywhere: ratios compare like with like
        self.model = self.peft.get_base_model()
        self.plain_because = not_on_tree(self.model.config) or ("" if _is_plain_lora(self.peft) else "the adapter is no plain LoRA")
        self.exact_tree = not self.plain_because
        self.drafts = Drafts()
        self._transformer: Transformer | None = None
        self._stem, self._pool = Stem(), Pool()
        self._trace: Trace | None = None  # kept from step to step: fresh memory costs as much as what is written to it
        if not self.trainable():
            raise UserError(
                "There are no trainable parameters: the adapter is empty or frozen. Give an adapter written by earnest or PEFT."
            )

    def trainable(self) -> list[torch.nn.Parameter]:
        """The adapter's parameters."""
        return [p for p in self.peft.parameters() if p.requires_grad]

    def transformer(self) -> Transformer:
        """The forward pass with the weights as they are now, for training. `changed` makes it stale."""
        if self._transformer is None:
            self._stem, self._pool = Stem(), self._pool if self._pool.trace else Pool()
            give_back_memory()  # what sampling held
            self._transformer = Transformer(self.model)
        return self._transformer

    def decoder(self, remember: int = 0) -> Decoder | PooledDecoder | None:
        """A decoder for the weights as they are now, which ends the one before; None where the tree is not exact.

        Args:
            remember: Of how many tokens training will find what it needs, so that it computes no forward pass of its own (`Trace`).
        """
        if not self.exact_tree:
            return None
        transformer = Transformer(self.model, packed=True)
        if not PooledDecoder.serves(transformer):
            return Decoder(transformer, self._stem)
        if not remember:
            self._trace = self._pool.trace = None
        elif self._pool.trace is None:
            if self._trace is None or self._trace.room != remember:
                self._trace = Trace(transformer, remember)
            # Of what was read before there is no trace; and of an evaluation's memory there may be too much to keep.
            self._pool = Pool(trace=self._trace) if self._pool.used else self._pool.emptied(self._trace)
        return PooledDecoder(transformer, self._pool)

    def changed(self) -> None:
        """To be called after every change of weights: nothing made of the old weights survives it, no decoder and no graph."""
        # With a trace, the memory of keys and values is kept as the trace's is.
        self._transformer, self._stem, self._pool = None, Stem(), self._pool.emptied() if self._pool.trace else Pool()
        if self._trace is not None:
            self._trace.clear()
        give_back_memory()

    def tidy(self) -> None:
        """To be called between steps that changed no weights: a trace that is half full is forgotten, with all that was read of it."""
        if (trace := self._pool.trace) and trace.used > trace.room // 2:
            trace.clear()
            self._pool = self._pool.emptied()

    def state(self) -> dict[str, torch.Tensor]:
        """A copy of the adapter's weights."""
        return {name: p.detach().clone() for name, p in self.peft.named_parameters() if p.requires_grad}

    @contextmanager
    def using(self, state: Mapping[str, torch.Tensor]) -> Iterator[None]:
        """The policy with other adapter weights, for a while: the reference of the KL term."""
        own = self.state()
        try:
            self._load(state)
            yield
        finally:
            self._load(own)

    def _load(self, state: Mapping[str, torch.Tensor]) -> None:
        with torch.no_grad():
            for name, parameter in self.peft.named_parameters():
                if name in state:
                    parameter.copy_(state[name])
        self.changed()

    def save(self, folder: Path) -> None:
        """Write the adapter, and prove that what was written is what is in memory.

        Raises:
            UserError: The disk is full, or the file does not hold the weights.
        """
        from peft import get_peft_model_state_dict
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        beside = folder.with_name(folder.name + ".part")
        try:
            # the base model's own embeddings stay out; left to "auto", PEFT would ask the hub about them at each save
            self.peft.save_pretrained(beside, save_embedding_layers=False)
            for file in beside.iterdir():  # whole or not at all: a run that dies here keeps the adapter it had
                folder.mkdir(parents=True, exist_ok=True)
                os.replace(file, folder / file.name)
            beside.rmdir()
            written = load_file(folder / "adapter_model.safetensors")
        except (OSError, SafetensorError) as error:  # safetensors wraps a full disk in an error of its own
            raise UserError(f"Cannot write the adapter to '{folder}': {error}. Make room or choose another --out.") from error
        own = get_peft_model_state_dict(self.peft, save_embedding_layers=False)
        if set(written) != set(own) or any(not torch.equal(written[name], own[name].cpu()) for name in own):
            raise UserError(f"The adapter in '{folder}' is not the one in memory. Choose another --out and save again.")

    def log_probabilities(self, sequences: Sequence[Trajectory], temperature: float = 1.0, budget: int = 2**62) -> TokenScores:
        """Log-probability of every completion token.

        Args:
            sequences: n sequences, of which each completion may be empty.
            temperature: Logits are divided by it, as in sampling, so that the ratio at unchanged weights is 1.
            budget: A pass over more distinct tokens keeps each layer's input alone for the way back, and computes the rest again. No
                pack has so many unless one sequence does (`packs_of`).
        """
        mask = np.zeros((len(sequences), max(len(s.completion) for s in sequences)), dtype=bool)
        for row, s in enumerate(sequences):
            mask[row, : len(s.completion)] = s.written
        mask = torch.from_numpy(mask).to(self.model.device)
        logp = torch.zeros(mask.shape, device=mask.device)
        if mask.any():
            every = self._on_tree(sequences, temperature, budget) if self.exact_tree else self._on_batch(sequences, temperature)
            logp = logp.masked_scatter(mask, every)
        return TokenScores(logp, mask)

    def _on_tree(self, sequences: Sequence[Trajectory], temperature: float, budget: int) -> torch.Tensor:
        """Of all tokens the model wrote, one sequence after another, from one pass over distinct tokens."""
        written = [s for s in sequences if any(s.written)]
        tree, paths = sorted_tree([(s.prompt + s.completion)[:-1] for s in written])  # nothing is predicted from a last token
        own = np.concatenate([s.written for s in written])
        before = np.concatenate([path[len(s.prompt) - 1 :] for path, s in zip(paths, written, strict=True)])[own]
        token = np.array([t for s in written for t in s.completion])[own]
        (nodes, tokens), where = np.unique(np.stack([before, token]), axis=1, return_inverse=True)
        transformer, device = self.transformer(), self.model.device
        planned = plan(tree, transformer.heads // transformer.kv_heads, transformer.head_dim, transformer.embedding)
        nodes, tokens, where = (torch.from_numpy(x).to(device) for x in (nodes, tokens, where))
        read, reading = nodes.unique(return_inverse=True)  # hidden states that predict something; several tokens may follow one node
        depths = torch.tensor(tree.depth, device=device)
        logp, kept, head = None, self._pool.kept(tree, read.cpu().numpy()), transformer.head_weight
        if kept is not None:
            hidden = hidden_of(transformer, kept, depths, planned, read)
            logp = log_probability(kept, hidden[reading], nodes, head, tokens, temperature)
        else:
            tokens_of = torch.tensor(tree.token, device=device)
            hidden = transformer.run(
                tokens_of, depths, lambda _, q, k, v: tree_attention(q, k, v, planned), keep=read, again=len(tree) > budget
            )
        return (HeadLogProbability.apply(hidden[reading], head, tokens, temperature) if logp is None else logp)[where]

    def _on_batch(self, sequences: Sequence[Trajectory], temperature: float) -> torch.Tensor:
        """Of all tokens the model wrote, one sequence after another, from an ordinary right-padded batch."""
        device = self.model.device
        width = max(len(s.prompt) + len(s.completion) for s in sequences)
        ids = torch.zeros((len(sequences), width), dtype=torch.long)
        attention = torch.zeros_like(ids)
        predicts = torch.zeros(ids.shape, dtype=torch.bool)
        for row, s in enumerate(sequences):
            length = len(s.prompt) + len(s.completion)
            ids[row, :length] = torch.tensor(s.prompt + s.completion)
            attention[row, :length] = 1
            predicts[row, len(s.prompt) - 1 : length - 1] = torch.tensor(s.written)
        logits = self.model(input_ids=ids.to(device), attention_mask=attention.to(device), use_cache=False).logits
        picked = logits[predicts.to(device)].float() / temperature
        written = [token for s in sequences for token, own in zip(s.completion, s.written, strict=True) if own]
        targets = torch.tensor(written, dtype=torch.long, device=device)
        return F.log_softmax(picked, dim=-1).gather(-1, targets[:, None])[:, 0]


def _with_adapter(model: Any, folder: Path) -> Any:
    """The model with the adapter of a folder, trainable."""
    from peft import PeftModel

    if not (folder / "adapter_config.json").is_file():
        raise UserError(f"There is no adapter in '{folder}': it holds no adapter_config.json. Give a folder written by earnest or PEFT.")
    try:
        return PeftModel.from_pretrained(model, folder, is_trainable=True)
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"The adapter in '{folder}' does not fit the model: {reason}. Load the model it was trained on.") from error


def _is_plain_lora(peft: Any) -> bool:
    """Whether the adapter is LoRA on the projections inside the layers and nothing else, which is all our own forward pass knows."""
    config = peft.active_peft_config
    if config.peft_type != "LORA" or config.use_dora or config.lora_bias:
        return False
    if any(getattr(module, "lora_variant", None) for module in peft.modules()):
        return False
    return all(".layers." in name and (".lora_A." in name or ".lora_B." in name) for name, p in peft.named_parameters() if p.requires_grad)


class HeadLogProbability(torch.autograd.Function):
    """Log-softmax of the frozen language-model head at one token a row, without ever holding all logits.

    The gradient of log p(token) to the hidden state h is (W[token] - sum_v p_v W[v]) / temperature. That vector is as small as h, so it is
    computed chunk by chunk on the way forward while the logits are at hand, and the way back is one multiplication.
    """

    ROOM = 2**23  # logits at a time, 32 MB: fewer are slower products, more fall out of the cache

    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, tokens: torch.Tensor, temperature: float) -> torch.Tensor:
        """Log-probability [K] of tokens [K] given hidden [K, H] and weight [V, H]."""
        rows = max(1, min(HeadLogProbability.ROOM // len(weight), len(hidden)))
        room = weight.new_empty((rows, len(weight)))  # one for all chunks: mapping fresh memory takes as long as the products
        wants, logp, slope = ctx.needs_input_grad[0], [], []
        for start in range(0, len(hidden), rows):
            part = slice(start, start + rows)
            wanted = tokens[part, None]
            logits = multiply(hidden[part], weight.T, into=room[: len(wanted)]).float()
            picked = logits.gather(-1, wanted)
            e = exponentials(logits, temperature, into=logits, mix=False)
            p, total = e.powers, e.total
            logp.append(((picked - e.most) / temperature - total.log())[:, 0])
            if wants:
                slope.append((weight[wanted[:, 0]] - multiply(p.to(weight.dtype), weight) / total.to(weight.dtype)) / temperature)
        if wants:
            ctx.save_for_backward(torch.cat(slope))
        return torch.cat(logp)

    @staticmethod
    def backward(ctx: Any, grad_logp: torch.Tensor) -> tuple:
        """The saved vectors times the incoming gradient."""
        (slope,) = ctx.saved_tensors
        return grad_logp[:, None].to(slope.dtype) * slope, None, None, None


def packs_of(policy: Policy, sequences: Sequence[Trajectory], budget: int, grouped: bool = True) -> list[list[int]]:
    """Indices of the sequences of each pass through the model, so that no pass holds more than `budget` tokens.

    On the tree the budget counts distinct tokens; on the plain path it counts padded ones.

    Args:
        policy: Whose passes.
        sequences: In order.
        budget: Tokens.
        grouped: Whether sequences with the same prompt should stay together (see `pack`).
    """
    if policy.exact_tree:
        return pack([s.prompt + s.completion for s in sequences], budget, [s.prompt for s in sequences] if grouped else None)
    packs: list[list[int]] = []
    width = 0
    for index, s in enumerate(sequences):
        length = len(s.prompt) + len(s.completion)
        width = max(width, length)
        if not packs or width * (len(packs[-1]) + 1) > budget:
            packs.append([])
            width = length
        packs[-1].append(index)
    return packs
