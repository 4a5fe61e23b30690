"""The numbers of a run: what stays the same from its first step to its last."""

import math
import operator
from dataclasses import dataclass
from typing import Literal, get_args, get_type_hints

import torch

from rlhf_minimal.functional.checks import check_temperature
from rlhf_minimal.objective import Algorithm


def check_numbers(config: object, above_0: str = "", at_least_0: str = "", at_least_1: str = "") -> None:
    """Checks the numbers of a config: they are finite and in range, and a generator takes the seed.

    Args:
        config: A dataclass of numbers; None is in every range.
        above_0: Names of fields, separated by spaces.
        at_least_0: Likewise.
        at_least_1: Likewise.

    Raises:
        ValueError: Naming the first that is not.
    """
    kinds = get_type_hints(type(config))
    ranges = ((above_0, "above 0", operator.gt, 0), (at_least_0, "at least 0", operator.ge, 0))
    for names, words, holds, bound in (*ranges, (at_least_1, "at least 1", operator.ge, 1)):
        for name in names.split():
            value = getattr(config, name)
            if value is not None and math.isfinite(value) and not holds(value, bound):
                optional = ", or None" if type(None) in get_args(kinds[name]) else ""
                raise ValueError(f"{name} must be {words}{optional}; got {value}")
    for name, value in vars(config).items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{name} must be a finite number; got {value}")
        if name == "seed" and not -(2**63) <= value < 2**63:
            raise ValueError(f"seed must fit in 64 bits; got {value}")


@dataclass(frozen=True)
class Config:
    """Settings of the online loop.

    With the defaults, GRPO takes the shipped start of addition to 90 % right completions in under a minute.

    Args:
        steps: Training steps: each samples once and updates `epochs` x `minibatches` times.
        prompts: Problems per step, P.
        group_size: Completions per problem, G.
        epochs: Passes over a step's samples.
        minibatches: Optimiser steps per pass.
        micro_batches: Forward-backward pieces per optimiser step; more of them save memory and do not change the
            result.
        lr: AdamW's learning rate for the policy; 2.5e-3 destroys the tiny model, 1e-6 is usual at a billion.
        value_lr: AdamW's learning rate for the critic, where the algorithm needs one.
        value_clip: Clip range of the value loss; None: no clip.
        critic: Where values come from: a network of their own (`"separate"`), or a value head on the policy's
            body (`"shared"`), which then has one optimiser, with the policy's learning rate.
        value_coef: Weight of the value loss beside the policy's, with a shared trunk; 0.1 in OpenAI's first RLHF.
        value_head_init: First weights of the critic's head: `"zero"`, `"normal"`, `"orthogonal"` (see `models.Critic`).
        value_warm_up: Steps at the beginning of a run in which the critic alone is trained and the policy stays as it
            is.
        value_epochs: The critic's passes over a step's samples. With a number here or in `value_minibatches`,
            `target_kl` no longer ends the critic's updates with the policy's; None: those of the policy.
        value_minibatches: The critic's optimiser steps per pass; None: those of the policy.
        value_layers: Layers of a critic with a new body, a small Llama (`models.tiny_llama`) with random weights; None:
            a copy of the policy's body, or 2 layers if `value_width` is given.
        value_width: Width of the same body, a multiple of 16; None: a copy of the policy's body, or 64 if
            `value_layers` is given.
        adam_eps: Epsilon of every optimiser; 1e-8 is torch's, 1e-5 OpenAI's for PPO in games.
        grad_clip: Largest norm of the gradient; a larger one is scaled down to it.
        temperature: Sampling temperature; the trained log-probs include it. Evaluations sample at 1 whatever it is.
        max_new_tokens: Token budget of a completion; None: the task's.
        score_scaling: How rewards are scaled before training: not at all (`"none"`), standardised over the step's
            batch (`"batch"`), or by the mean and standard deviation of all rewards so far (`"running"`).
        score_clip: After the scaling, rewards are clipped to plus or minus this; None: no clip.
        missing_eos_penalty: Subtracted, last of all, from completions that ran into the token budget; 1 is usual.
        reference: What KL terms are measured against: the start (`"frozen"`); the policy as it was at the last
            multiple of `refresh_every` steps (`"refresh"`, iterative GRPO); or its moving average (`"ema"`).
        refresh_every: Steps between refreshes.
        ema_decay: Weight of the past in the moving average, per step.
        kl_control: Whether the coefficient of the KL penalty against the reference stays that of the row (`"fixed"`),
            or is adapted by a controller that begins there (`"adaptive"`, see `kl_control`).
        kl_control_target: The KL that the controller aims at, in nats per completion; 6 is Ziegler et al.'s.
        kl_control_horizon: Number of completions in which the controller can change the coefficient by about a fifth;
            must be above a fifth of the completions of a step.
        target_kl: The step's remaining updates are left out once the KL from the policy that sampled is above this,
            in nats per token, 0.01 to 0.05 as a rule; None: all updates are made.
        baseline: For algorithms that need a baseline from outside: the mean of past rewards (`"ema"`), or the reward of
            the greedy completion of the same prompt (`"greedy"`).
        baseline_decay: Weight of the past in the mean of `baseline="ema"`, per step.
        verifier_timeout: Seconds that the verifier or the reward function may take for one completion; after that the
            completion gets 0.
        max_refills: Extra rounds of sampling to replace groups that the algorithm filters out.
        watch_kl: Whether the distance from the start is measured (the metrics `kl` and `kl_sequence`); where no KL
            penalty needs the start, `"off"` saves its memory and its forward. Training itself is the same.
        precision: Precision of the forward and backward passes. `"bfloat16"` computes matrix products in it (autocast),
            while weights, gradients and moments stay float32: an update of 1e-6 is lost in a bfloat16 weight of 1.
        gradient_checkpointing: Whether the forward keeps only the input of each layer, and the rest is computed again
            in the backward: about a third more time, activations of one layer in place of all. No prompt is then shared
            between completions.
        lora_rank: Train a low-rank correction of this rank for every linear layer (LoRA, through peft) instead of the
            weights: optimiser state of about a hundredth of the size, no copy of the start; None: the weights.
        lora_alpha: The correction of LoRA is multiplied by `lora_alpha / lora_rank`.
        seed: Seed of everything random: problems, samples, the order of minibatches.

    Raises:
        ValueError: If a number is out of its range; the message names it.
    """

    steps: int = 200
    prompts: int = 32
    group_size: int = 16
    epochs: int = 1
    minibatches: int = 1
    micro_batches: int = 1
    lr: float = 8e-4
    value_lr: float = 8e-4
    value_clip: float | None = None
    critic: Literal["separate", "shared"] = "separate"
    value_coef: float = 0.1
    value_head_init: Literal["zero", "normal", "orthogonal"] = "zero"
    value_warm_up: int = 0
    value_epochs: int | None = None
    value_minibatches: int | None = None
    value_layers: int | None = None
    value_width: int | None = None
    adam_eps: float = 1e-8
    grad_clip: float = 1.0
    temperature: float = 1.0
    max_new_tokens: int | None = None
    score_scaling: Literal["none", "batch", "running"] = "none"
    score_clip: float | None = None
    missing_eos_penalty: float = 0.0
    reference: Literal["frozen", "refresh", "ema"] = "frozen"
    refresh_every: int = 50
    ema_decay: float = 0.95
    kl_control: Literal["fixed", "adaptive"] = "fixed"
    kl_control_target: float = 6.0
    kl_control_horizon: int = 10_000
    target_kl: float | None = None
    baseline: Literal["ema", "greedy"] = "ema"
    baseline_decay: float = 0.9
    verifier_timeout: float = 10.0
    max_refills: int = 8
    watch_kl: Literal["on", "off"] = "on"
    precision: Literal["float32", "bfloat16"] = "float32"
    gradient_checkpointing: Literal["off", "on"] = "off"
    lora_rank: int | None = None
    lora_alpha: float = 32.0
    seed: int = 0

    def __post_init__(self) -> None:
        check_numbers(
            self,
            above_0="lr value_lr value_coef adam_eps grad_clip temperature kl_control_target lora_alpha "
            "verifier_timeout value_clip score_clip target_kl",
            at_least_0="max_refills missing_eos_penalty value_warm_up",
            at_least_1="steps prompts group_size epochs minibatches micro_batches refresh_every max_new_tokens "
            "lora_rank value_epochs value_minibatches value_layers value_width",
        )
        check_temperature(self.temperature)
        for name in ("ema_decay", "baseline_decay"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 0 and below 1; got {getattr(self, name)}")
        for name, kind in get_type_hints(type(self)).items():
            choices = [choice for choice in get_args(kind) if isinstance(choice, str)]
            if choices and getattr(self, name) not in choices:
                given = repr(getattr(self, name))
                raise ValueError(f"{name} must be {', '.join(choices[:-1])} or {choices[-1]}; got {given}")
        rows = self.prompts * self.group_size
        for minibatches in (self.minibatches, self.value_minibatches or 1):
            if minibatches * self.micro_batches > rows:
                raise ValueError(
                    f"{rows} completions a step cannot be cut into {minibatches} minibatches x {self.micro_batches} "
                    "micro-batches"
                )
        if self.value_width is not None and self.value_width % 16:
            raise ValueError(f"value_width must be a multiple of 16, two for each of 8 heads; got {self.value_width}")
        if self.kl_control == "adaptive" and not self.kl_control_horizon > rows / 5:
            raise ValueError(
                f"kl_control_horizon must be above a fifth of a step's {rows} completions, or one step could make the "
                f"coefficient negative; got {self.kl_control_horizon}"
            )

    def autocast(self, device: torch.device, *, keep_copies: bool = True) -> torch.autocast:
        """The context in which a model's forward computes at `precision`.

        Args:
            device: The model's.
            keep_copies: Whether rounded weights are kept until the context ends, which saves time over many forwards.
        """
        half = self.precision == "bfloat16"
        return torch.autocast(device.type, dtype=torch.bfloat16, enabled=half, cache_enabled=keep_copies)

    @property
    def changes_scores(self) -> bool:
        """Whether rewards are scaled, clipped or penalised before they are trained for."""
        return self.score_scaling != "none" or self.score_clip is not None or self.missing_eos_penalty > 0

    def check_fits(self, algorithm: Algorithm) -> None:
        """Refuses settings that ask of an algorithm what it does not have.

        Raises:
            ValueError: If scores are scaled, clipped or penalised for an algorithm that reads the parts of a reward; if
                an optimiser step is cut for one that has to see all of it; if a critic is shared that the algorithm
                does not have; if settings are given for a critic of its own where there is none or a shared one; if a
                controller is given for an algorithm without KL penalty; if scores are scaled from which the algorithm
                subtracts an unscaled baseline.
        """
        if "reward_parts" in algorithm.needs and self.changes_scores:
            raise ValueError(
                "score_scaling, score_clip and missing_eos_penalty change a reward, but this algorithm reads its "
                "parts: leave them out"
            )
        if algorithm.needs_whole_step and self.micro_batches > 1:
            raise ValueError(
                "this algorithm chooses its tokens among all those of an optimiser step: set micro_batches=1, and "
                "lower prompts or raise minibatches if memory is short"
            )
        if self.critic == "shared" and "values" not in algorithm.needs:
            raise ValueError(
                'critic="shared" asks for a value head, but this algorithm has no critic (its advantage reads no '
                "values): leave critic out, or take one with a critic, such as ppo"
            )
        own = ("value_warm_up", "value_epochs", "value_minibatches", "value_layers", "value_width")
        named = ", ".join(name for name in own if getattr(self, name))  # each asks for a body and an optimiser
        if named and "values" not in algorithm.needs:
            raise ValueError(
                f"{named} is for a critic, but this algorithm has none (its advantage reads no values): leave it out, "
                "or take one with a critic, such as ppo"
            )
        if named and self.critic == "shared":
            raise ValueError(
                f'{named} asks for a critic with a body and an optimiser of its own, and critic="shared" has neither: '
                "leave one of the two out"
            )
        if self.kl_control == "adaptive" and not any(kl.coef and kl.against == "reference" for kl in algorithm.kl):
            raise ValueError(
                'kl_control="adaptive" moves the coefficient of a KL against the reference, but this algorithm has '
                "none above 0: take one that has, or replace(algorithm, kl=(KL(...),))"
            )
        if {"baseline", "greedy_rewards"} & algorithm.needs and (
            self.score_scaling != "none" or self.score_clip is not None
        ):
            raise ValueError(
                "score_scaling and score_clip change the unit of the rewards, but this algorithm subtracts a given "
                "baseline in the unit of the rewards as they are: leave them out"
            )
