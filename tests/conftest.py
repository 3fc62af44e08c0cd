"""Before any test: no hub, one thread, and hypothesis without a clock or dice (two cores are shared)."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from hypothesis import HealthCheck, settings

settings.register_profile("quiet", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("quiet")

FROM_OTHERS = ("`is_gradient_checkpointing`", "fan_in_fan_out", "Setting `save_embedding_layers`", "`lora_bias=True`", "Adapter 'default'")


def pytest_configure(config):
    for message in FROM_OTHERS:  # said by PEFT and transformers of models and adapters that tests make on purpose
        config.addinivalue_line("filterwarnings", f"ignore:.*{message}")


try:
    import torch
except ImportError:  # the parts without the engine are tested without torch too
    pass
else:
    torch.set_num_threads(1)
