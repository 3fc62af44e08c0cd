"""Tiny random models and a byte-level tokenizer, made in memory: every architecture, no download."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
from transformers.models.gemma import GemmaConfig
from transformers.models.gemma3 import Gemma3TextConfig
from transformers.models.gpt2 import GPT2Config
from transformers.models.llama import LlamaConfig
from transformers.models.mamba import MambaConfig
from transformers.models.qwen2 import Qwen2Config
from transformers.models.qwen3 import Qwen3Config
from transformers.models.qwen3_5 import Qwen3_5TextConfig

from earnest import text
from earnest.engine.models import Loaded
from earnest.engine.policy import Policy

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# As Qwen3: with thinking off the template closes an empty block itself.
THINKING = CHATML.replace(
    "<|im_start|>assistant\n{% endif %}",
    "<|im_start|>assistant\n{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}",
)
# As QwQ: with thinking on the template opens the block itself.
OPENING = THINKING.replace("</think>\n\n{% endif %}", "</think>\n\n{% else %}<think>\n{% endif %}")

PAD, START, END, THINK, UNTHINK = 256, 257, 258, 259, 260  # ids above the 256 bytes
VOCABULARY = 261

_BASE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.25,  # far from uniform, so that mistakes show
    "bos_token_id": None,
    "eos_token_id": END,
    "pad_token_id": None,
}
_SCALED = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
CONFIGS = {
    "llama": (LlamaConfig, {}),
    "llama-biased": (LlamaConfig, {"attention_bias": True, "mlp_bias": True, "head_dim": 16, "num_key_value_heads": 4}),
    "llama-scaled": (LlamaConfig, {"rope_parameters": {**_SCALED, "original_max_position_embeddings": 16}, "tie_word_embeddings": True}),
    "qwen2": (Qwen2Config, {}),
    "qwen2-tied": (Qwen2Config, {"tie_word_embeddings": True, "num_key_value_heads": 1}),
    "qwen3": (Qwen3Config, {"head_dim": 16}),
    "gemma": (GemmaConfig, {"head_dim": 8, "num_key_value_heads": 1, "initializer_range": 0.1}),
    "gemma3": (
        Gemma3TextConfig,
        {"head_dim": 8, "sliding_window": 8, "initializer_range": 0.1, "layer_types": ["sliding_attention", "full_attention"]},
    ),
    "qwen2-sliding": (Qwen2Config, {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}),
    "llama-dynamic": (LlamaConfig, {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}}),
    "gpt2": (GPT2Config, {}),
    "qwen3.5": (
        Qwen3_5TextConfig,
        {
            "head_dim": 16,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "layer_types": ["linear_attention", "full_attention"],
        },
    ),
    "mamba": (MambaConfig, {"state_size": 8, "initializer_range": 0.1}),
}
EXACT = ("llama", "llama-biased", "llama-scaled", "qwen2", "qwen2-tied", "qwen3")
PLAIN = ("gemma", "gemma3", "qwen2-sliding", "gpt2", "qwen3.5", "mamba")


def make_tokenizer(template: str | None = CHATML, eos: str = "<|im_end|>", pad: str = "<|endoftext|>") -> PreTrainedTokenizerFast:
    """One token a byte, and the five of ChatML with thinking."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={character: index for index, character in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")])
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in ("<think>", "</think>")])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=eos, pad_token=pad)
    fast.chat_template = template
    return fast


def make(
    family: str = "llama",
    seed: int = 0,
    *,
    attention: str = "sdpa",
    tokenizer: PreTrainedTokenizerFast | None = None,
    stops: frozenset[int] | None = None,
    **options,
) -> Loaded:
    """A random model: new each time, since a policy changes it in place."""
    kind, own = CONFIGS[family]
    attention = "eager" if family == "mamba" else attention  # it has no attention, and transformers refuses to implement that in SDPA
    config = kind(**{**_BASE, **own, **options})
    if family == "gpt2":
        config = kind(
            vocab_size=config.vocab_size, n_embd=32, n_layer=2, n_head=4, n_positions=512, initializer_range=0.25, eos_token_id=END
        )
        config.bos_token_id = None
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation=attention).eval()
    with torch.no_grad():  # norms and biases start at their neutral value: move them too
        for name, parameter in model.named_parameters():
            if "norm" in name or name.endswith("bias"):
                parameter.add_(0.1 * torch.randn_like(parameter))
    tokenizer = tokenizer or make_tokenizer()
    return Loaded(model, tokenizer, text.stop_ids(tokenizer, model.generation_config) if stops is None else stops, f"tiny-{family}")


def make_policy(loaded: Loaded, seed: int = 0, rank: int = 4, **options) -> Policy:
    """A policy whose adapter does something: LoRA B starts at zero, which would hide every mistake with it."""
    policy = Policy(loaded, rank=rank, seed=seed, **options)
    disturb(policy, seed)
    return policy


def disturb(policy: Policy, seed: int = 0, size: float = 0.05) -> None:
    """Move every adapter weight at random."""
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for parameter in policy.trainable():
            parameter.add_(size * torch.randn(parameter.shape, generator=generator))
    policy.changed()


def save(loaded: Loaded, folder: Path) -> Path:
    """An ordinary model folder."""
    loaded.model.save_pretrained(folder)
    loaded.tokenizer.save_pretrained(folder)
    return folder
