"""Builds SkyRL's configuration from each line of stdin, RANK and the JSON of --backend-config, as its Tinker server does
when a model is created. Needs skyrl with its extra fsdp but for vllm and flash-attn, and no GPU."""
import json
import sys

from skyrl.backends.skyrl_train_backend import FSDPBackendOverrides, _build_skyrl_train_config
from skyrl.tinker import types

for line in sys.stdin:
    rank, backend = line.split(" ", 1)
    wanted = json.loads(backend)
    lora = types.LoraConfig(rank=int(rank), alpha=32, seed=1)
    built = _build_skyrl_train_config("Qwen/Qwen3-8B", FSDPBackendOverrides(**wanted), lora)
    for key, value in wanted.items():
        at = built
        for name in key.split("."):
            at = getattr(at, name)
        assert at == value, f"{key} is {at}, want {value}"
