"""The engine: prefix tree, sampler, policy (model and LoRA), GRPO maths, rollouts, SFT and GRPO loops."""
