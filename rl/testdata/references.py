"""Runs the loss functions of verl, SkyRL, slime and TRL from their sources on random batches, and prints what they say as
JSON.

    python references.py VERL SKYRL SLIME TRL > references.json

The arguments are checkouts; torch is needed and nothing else, because only the functions themselves are executed, with the
configuration that each reads. Advantages, logprobs and gradients are float64.
"""
import ast, json, sys
from collections import defaultdict
from types import SimpleNamespace

import numpy as np
import torch

torch.set_default_dtype(torch.float64)


class Config(SimpleNamespace):
    def get(self, key, default=None):
        return getattr(self, key, default)


class Anything:
    """Stands for names that occur in annotations only."""

    def __getitem__(self, _):
        return self

    def __or__(self, _):
        return self

    __ror__ = __or__


def functions(path, names, within=None, **more):
    """The functions of a file, or of a class in it, without their decorators and annotations."""
    tree = ast.parse(open(path).read())
    if within:
        tree = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == within)
    space = {"torch": torch, "np": np, "defaultdict": defaultdict, **more}
    found = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name in names]
    assert {n.name for n in found} == set(names), path
    for n in found:
        n.decorator_list, n.returns = [], None
        for a in n.args.args + n.args.kwonlyargs + [n.args.kwarg or ast.arg("_")]:
            a.annotation = None
    exec(compile(ast.Module(found, []), path, "exec"), space)
    return space


verl, skyrl, slime, trl = sys.argv[1:]
verl_F = SimpleNamespace(**functions(verl + "/verl/utils/torch_functional.py", ["masked_sum", "masked_mean"]))
V = functions(
    verl + "/verl/trainer/ppo/core_algos.py",
    ["agg_loss", "compute_policy_loss_vanilla", "compute_policy_loss_gspo", "compute_policy_loss_sapo",
     "compute_policy_loss_cispo", "compute_grpo_outcome_advantage", "compute_rloo_outcome_advantage"],
    verl_F=verl_F, ActorConfig=Config, AlgoConfig=Anything)
base = skyrl + "/skyrl/backends/skyrl_train/utils/"
S = functions(base + "torch_utils.py", ["masked_mean", "safe_exp_delta"])
S = functions(
    base + "off_policy_correction_utils.py",
    ["off_policy_correction_enabled", "compute_tis_ratio", "compute_outlier_token_mask", "compute_token_mask",
     "compute_sequence_mask", "compute_off_policy_correction", "apply_off_policy_correction"], **S)
S = functions(
    base + "ppo_utils.py",
    ["ppo_policy_loss", "sapo_policy_loss", "gspo_policy_loss", "compute_policy_loss_cispo", "rollout_is_policy_loss",
     "dppo_policy_loss", "importance_sampling_loss", "reduce_loss", "compute_maxrl_advantage",
     "compute_grpo_outcome_advantage"], **S)
T = functions(trl + "/trl/trainer/utils.py", ["nanmin", "nanmax"])
T = functions(trl + "/trl/trainer/grpo_trainer.py", ["_compute_loss"], within="GRPOTrainer", **T)
L = functions(slime + "/slime/utils/ppo_utils.py", ["compute_gspo_kl", "compute_policy_loss", "compute_cispo_loss"])

no = dict(tis_ratio_type=None, sequence_mask_metric=None, outlier_token_is_threshold_low=None,
          outlier_token_is_threshold_high=None, token_mask_is_threshold_low=None, token_mask_is_threshold_high=None,
          token_tis_ratio_clip_high=2, sequence_tis_ratio_clip_high=5, geo_mask_low=0.95, geo_mask_high=1.05,
          product_mask_low=0.5, product_mask_high=2)


def by_verl(name, mode, **config):
    def loss(b):
        c = Config(clip_ratio=0.2, clip_ratio_low=0.2, clip_ratio_high=0.28, global_batch_info={}, **config)
        return V["compute_policy_loss_" + name](b.old, b.current, b.advantages, b.mask, mode, c)[0]
    return loss


def by_skyrl(name, correction={}, mode="token_mean", rollout=True, **config):
    def loss(b):
        c = Config(policy_loss_type="regular", eps_clip_low=0.2, eps_clip_high=0.28, clip_ratio_c=3, loss_reduction=mode,
                   off_policy_correction=Config(**{**no, **correction}), **config)
        shares = b.advantages / b.mask.sum()
        if mode == "sequence_mean":
            shares = b.advantages / (len(b.mask) * b.mask.sum(-1, keepdim=True))
        old = b.sampler if name == "importance_sampling_loss" else b.old
        return S[name](b.current, old, shares, c, b.mask, b.sampler if rollout else None)[0]
    return loss


def by_slime(b, loss):
    return (loss(b) * b.mask).sum() / b.mask.sum()


def slime_gspo(b):
    kl = L["compute_gspo_kl"](list(b.current), list(b.old), list(b.current), list(b.mask)).reshape(b.mask.shape)
    return L["compute_policy_loss"](kl, b.rows, 0.2, 0.28)[0]


def by_trl(kind, level="token", high=0.28, delta=None, truncate=None):
    """The loss of a trainer on one process that takes the batch in one step."""
    def loss(b):
        alone = Config(num_processes=1, gather=lambda x: x, reduce=lambda x, reduction: x, sync_gradients=True)
        trainer = Config(
            loss_type=kind, importance_sampling_level=level, epsilon_low=0.2, epsilon_high=high, beta=0.0,
            args=Config(delta=delta, sapo_temperature_pos=1.0, sapo_temperature_neg=1.05, steps_per_generation=1),
            use_vllm=truncate is not None, vllm_importance_sampling_correction=True, aux_loss_enabled=False,
            top_entropy_quantile=1.0, off_policy_mask_threshold=None, _entropy_bonus_enabled=False, accelerator=alone,
            current_gradient_accumulation_steps=1, model=Config(training=True),
            _metrics={"train": defaultdict(list)},
            _get_per_token_logps_and_entropies=lambda *_, **__: (b.current, torch.zeros_like(b.current), None))
        nothing = torch.zeros(len(b.mask), 0)
        inputs = dict(prompt_ids=nothing, prompt_mask=nothing, completion_ids=b.mask, completion_mask=b.mask,
                      advantages=b.rows if level == "sequence" else b.advantages, old_per_token_logps=b.old,
                      num_items_in_batch=b.mask.sum())
        if truncate is not None:
            inputs["importance_sampling_ratio"] = torch.exp(b.old - b.sampler).clamp(max=truncate)
        return T["_compute_loss"](trainer, None, inputs)
    return loss


dppo = dict(delta_low=0.1, delta_high=0.15)
cispo = dict(cispo_eps_clip_low=0.3, cispo_eps_clip_high=0.5)
cases = {
    "verl vanilla": by_verl("vanilla", "token-mean", clip_ratio_c=1.5),
    "verl vanilla, rows": by_verl("vanilla", "seq-mean-token-mean", clip_ratio_c=1e9),
    "verl gspo": by_verl("gspo", "seq-mean-token-mean"),
    "verl sapo": by_verl("sapo", "seq-mean-token-mean", tau_pos=1.0, tau_neg=1.05),
    "verl cispo": by_verl("cispo", "token-mean"),
    "SkyRL regular": by_skyrl("ppo_policy_loss"),
    "SkyRL gspo": by_skyrl("gspo_policy_loss", mode="sequence_mean"),
    "SkyRL sapo": by_skyrl("sapo_policy_loss", mode="sequence_mean", sapo=Config(tau_pos=1.0, tau_neg=1.05)),
    "SkyRL cispo": by_skyrl("compute_policy_loss_cispo", cispo=Config(cispo_anchor="old", **cispo)),
    "SkyRL cispo, sampler": by_skyrl("compute_policy_loss_cispo", cispo=Config(cispo_anchor="rollout", **cispo)),
    "SkyRL dppo tv": by_skyrl("dppo_policy_loss", dppo=Config(dppo_type="binary_tv", **dppo)),
    "SkyRL dppo kl": by_skyrl("dppo_policy_loss", dppo=Config(dppo_type="binary_kl", delta_low=.02, delta_high=.03)),
    "SkyRL importance sampling": by_skyrl("importance_sampling_loss"),
    "SkyRL rollout_is": by_skyrl("rollout_is_policy_loss"),
    "SkyRL tis, tokens": by_skyrl("ppo_policy_loss", dict(tis_ratio_type="token")),
    "SkyRL tis, rows": by_skyrl("ppo_policy_loss", dict(tis_ratio_type="sequence")),
    "SkyRL geometric": by_skyrl("ppo_policy_loss", dict(sequence_mask_metric="geometric")),
    "SkyRL product": by_skyrl("ppo_policy_loss", dict(sequence_mask_metric="product")),
    "SkyRL outliers": by_skyrl("ppo_policy_loss", dict(outlier_token_is_threshold_low=.6,
                                                         outlier_token_is_threshold_high=1.8)),
    "SkyRL icepop": by_skyrl("ppo_policy_loss", dict(tis_ratio_type="token", token_mask_is_threshold_low=.7,
                                                       token_mask_is_threshold_high=2)),
    "slime ppo": lambda b: by_slime(b, lambda b: L["compute_policy_loss"](b.old - b.current, b.advantages, .2, .28, 3.0)[0]),
    "slime cispo": lambda b: by_slime(b, lambda b: L["compute_cispo_loss"](
        b.old - b.current, b.current, b.advantages, 1.0, 0.5)[0]),
    "slime gspo, rows": lambda b: by_slime(b, slime_gspo),
    "TRL grpo": by_trl("grpo"),
    "TRL dapo": by_trl("dapo"),
    "TRL two-sided": by_trl("dapo", delta=1.5),
    "TRL tis, tokens": by_trl("dapo", truncate=2.0),
    "TRL gspo, rows": by_trl("grpo", level="sequence"),
    "TRL sapo": by_trl("sapo"),
    "TRL cispo": by_trl("cispo", high=1.28),
}

rng = np.random.default_rng(7)
batches, losses = [], []
for _ in range(4):
    n, length = 6, 7
    mask = (rng.random((n, length)) < 0.7) * 1.0
    mask[:, 1] = 1
    sampler = np.log(rng.uniform(0.05, 0.98, (n, length)))
    old = np.minimum(sampler + 0.3 * rng.normal(size=mask.shape), -1e-3)
    current = np.minimum(old + 0.3 * rng.normal(size=mask.shape), -1e-3)
    advantages = rng.normal(size=mask.shape)
    raw = dict(mask=mask, sampler=sampler, old=old, current=current, advantages=advantages)
    raw = {k: np.round(v, 4) for k, v in raw.items()}
    raw["rows"] = raw["advantages"][:, 1:2].repeat(length, 1)
    batches.append({k: v.astype(int if k == "mask" else float).tolist() for k, v in raw.items()})
    results = {}
    for name, loss in cases.items():
        b = SimpleNamespace(**{k: torch.tensor(v) for k, v in raw.items()})
        b.current.requires_grad_(True)
        value = loss(b)
        value.backward()
        results[name] = dict(loss=round(value.item(), 12), gradient=np.round(b.current.grad.numpy(), 12).tolist())
    losses.append(results)

groups = []
for rewards in ([1, 0, 0, 0], [1, 1, 0, 1, 0, 0, 0, 1], np.round(rng.random(5), 3).tolist()):
    n = len(rewards)

    def take(f, **more):
        got = f(torch.tensor(rewards)[:, None] * 1.0, torch.ones(n, 1), np.zeros(n, int), **more)[0]
        return np.round(got[:, 0].numpy(), 12).tolist()

    grpo = V["compute_grpo_outcome_advantage"]
    groups.append(dict(rewards=rewards, advantages={
        "verl grpo": take(grpo), "verl dr-grpo": take(grpo, norm_adv_by_std_in_grpo=False),
        "verl rloo": take(V["compute_rloo_outcome_advantage"]), "SkyRL grpo": take(S["compute_grpo_outcome_advantage"]),
        "SkyRL maxrl": take(S["compute_maxrl_advantage"]),
    }))
print(json.dumps(dict(batches=batches, losses=losses, groups=groups), separators=(",", ":")))
