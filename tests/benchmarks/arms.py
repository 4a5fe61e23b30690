"""What is measured: one policy, one task and one configuration, given to this library and to TRL alike."""

import copy
import os
import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

import torch
from transformers import PreTrainedModel, TrainerCallback

from rlhf_minimal import ALGORITHMS
from rlhf_minimal.config import Config
from rlhf_minimal.lab.fast import Fast, fast
from rlhf_minimal.models import Vocabulary, character_tokenizer, tiny_llama
from rlhf_minimal.sample import Rollout
from rlhf_minimal.tasks import Problem, Task, get_task
from rlhf_minimal.train import Recipe, collect, prepare_batch, train_step, update
from rlhf_minimal.train_state import Learner
from rlhf_minimal.training import load_policy

OFF: dict[str, Any] = {"shared_prefix": False, "sort_lengths": False, "skip_idle": False, "logit_chunk": None}
GRPO = replace(ALGORITHMS["grpo"], kl=())  # TRL's default: no reference


def share_of_even(completion: str) -> float:
    """A reward that differs within nearly every group: the share of even digits."""
    return sum(character in "02468" for character in completion) / max(len(completion), 1)


def free_writing(budget: int, *, digits: int = 7) -> Task:
    """Digits after a prompt of two more characters than it has digits, as many as the policy likes."""
    return Task(
        name=f"writing{budget}after{digits}",
        about="anything at all",
        alphabet="0123456789+=",
        max_new_tokens=budget,
        make=lambda rng: Problem(f"{rng.randrange(1000):03d}+{rng.randrange(10 ** (digits - 3)):0{digits - 3}d}=", ""),
        verify=lambda completion, problem: share_of_even(completion),
    )


@dataclass(frozen=True)
class Case:
    """One comparison: which start, which task, which numbers."""

    name: str
    task: Task
    config: Config
    start: Callable[[], PreTrainedModel]
    reading: Fast | None = None

    @property
    def recipe(self) -> Recipe:
        """GRPO without a reference, as TRL has it by default."""
        return fast(Recipe(GRPO, self.task, self.config), self.reading or Fast())

    @property
    def vocabulary(self) -> Vocabulary:
        """Of the task and the start alike."""
        return Vocabulary(self.task.alphabet)

    def describe(self) -> dict[str, Any]:
        """What both sides are given."""
        numbers = ("prompts", "group_size", "lr", "grad_clip", "temperature")
        found = {name: getattr(self.config, name) for name in numbers}
        return {"start": (self.start.__doc__ or "").splitlines()[0], "budget": self.recipe.budget, **found}

    def learner(self) -> Learner:
        """A fresh one at the start."""
        return Learner.begin(self.start(), self.vocabulary, GRPO, self.config)


def half_million() -> PreTrainedModel:
    """A Llama of 0.49 M parameters, not trained: its answers end at any token with a chance near one in twenty."""
    return tiny_llama(13, width=128, layers=3, heads=4, max_length=128, seed=0)


def shipped() -> PreTrainedModel:
    """The shipped start for addition, 83 000 parameters."""
    from rlhf_minimal.cli.starts import ASSETS

    return load_policy(ASSETS / "addition")[0]


# A learning rate at which the policy, and so the lengths, stay what they are while they are measured.
# TRL reports no distance from the start, so it is not computed here either.
STILL = Config(lr=1e-7, grad_clip=1.0, watch_kl="off")
CASES = {
    "short": Case("short", free_writing(4), STILL, half_million),
    "short, prompts of 48": Case("short, prompts of 48", free_writing(4, digits=46), STILL, half_million),
    "long": Case("long", free_writing(64), STILL, half_million),
    "addition": Case("addition", get_task("addition"), Config(watch_kl="off"), shipped),
}


# --- TRL -----------------------------------------------------------------------------------------------------------


def problems_of(case: Case, steps: int) -> list[Problem]:
    """The problems of that many steps, as the loop itself would draw them."""
    P, seed = case.config.prompts, case.config.seed
    return [p for step in range(1, steps + 1) for p in case.task.problems("train", P, seed=f"{seed}/{step}/0")]


def trl_trainer(
    case: Case,
    steps: int,
    *,
    batch: int | None = None,
    callback: TrainerCallback | None = None,
    lr: float | None = None,
) -> Any:
    """TRL's GRPOTrainer with the same model, prompts, group size, optimiser, loss and numbers.

    Args:
        case: What to train.
        steps: Optimiser steps.
        batch: Completions per forward and backward; the step's completions are accumulated from such batches.
        callback: Of the transformers Trainer.
        lr: Default: the case's.
    """
    import datasets
    from trl import GRPOConfig, GRPOTrainer

    config = case.config
    rows = config.prompts * config.group_size
    batch = batch or rows
    problems = problems_of(case, steps)
    data = datasets.Dataset.from_dict({"prompt": [p.prompt for p in problems], "answer": [p.answer for p in problems]})

    def reward(prompts: list[str], completions: list[str], answer: list[str], **others: Any) -> list[float]:
        given = zip(completions, prompts, answer, strict=True)
        return [float(case.task.verify(text, Problem(prompt, right))) for text, prompt, right in given]

    arguments = GRPOConfig(
        output_dir=tempfile.mkdtemp(prefix="bench-"),
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=rows // batch,
        num_generations=config.group_size,
        max_completion_length=case.recipe.budget,
        max_steps=steps,
        learning_rate=config.lr if lr is None else lr,
        lr_scheduler_type="constant",
        weight_decay=0.0,
        adam_epsilon=config.adam_eps,
        max_grad_norm=config.grad_clip,
        loss_type="grpo",
        beta=0.0,
        epsilon=0.2,
        scale_rewards="group",
        num_iterations=1,
        temperature=config.temperature,
        top_k=0,
        top_p=1.0,
        shuffle_dataset=False,
        gradient_checkpointing=False,
        bf16=False,
        fp16=False,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        seed=0,
    )
    trainer = GRPOTrainer(
        model=case.start().train(),
        reward_funcs=reward,
        args=arguments,
        train_dataset=data,
        processing_class=character_tokenizer(case.task.alphabet),
        callbacks=[callback] if callback is not None else None,
    )
    return trainer


class Between(TrainerCallback):
    """Calls a function after each of TRL's steps and keeps the seconds of the steps themselves."""

    def __init__(self, after: Callable[[int], bool]):
        self.after, self.seconds = after, []
        self.began = 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.began = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.seconds.append(time.perf_counter() - self.began)
        if self.after(state.global_step) is False:
            control.should_training_stop = True
        self.began = time.perf_counter()


@torch.no_grad()
def logp_of(policy: Any, groups: Any, config: Config) -> torch.Tensor:
    """[B, T] a policy's log-probs of what was sampled."""
    return Fast().read(policy, groups, torch.arange(len(groups.mask)), config).logp


def assert_equal_gradients(case: Case) -> float:
    """Ours and TRL's gradient on one rollout of TRL's, before anything is timed; returns the largest difference.

    Raises:
        AssertionError: They differ by more than single precision explains.
    """
    trainer = trl_trainer(case, 1)
    trainer.model.train()
    problems = problems_of(case, 1)
    G = case.config.group_size
    rows = [p for p in problems for _ in range(G)]
    batch = trainer._generate_and_score_completions([{"prompt": p.prompt, "answer": p.answer} for p in rows])
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.zero_grad()
    trainer._compute_loss(trainer.model, batch).backward()
    theirs = torch.cat([p.grad.flatten() for p in trainer.model.parameters()])

    learner, recipe = case.learner(), replace(case.recipe, config=replace(case.config, grad_clip=1e9))
    completions, mask = batch["completion_ids"], batch["completion_mask"].float()
    texts = [case.vocabulary.decode(ids) for ids in completions.tolist()]
    rewards = torch.tensor([float(case.task.verify(t, p)) for t, p in zip(texts, rows, strict=True)])
    truncated = ~((completions == 0) & (mask == 1)).any(-1)
    groups = Rollout(
        problems=rows,
        texts=texts,
        prompts=batch["prompt_ids"],
        prompt_mask=batch["prompt_mask"],
        completions=completions,
        logp=torch.zeros_like(mask),
        mask=mask,
        truncated=truncated,
        rewards=rewards,
        correct=rewards,
        failed=torch.zeros(len(rows), dtype=torch.bool),
    )
    groups = replace(groups, logp=logp_of(learner.policy, groups, case.config))
    prepared, _ = prepare_batch(learner, recipe, groups, 1)
    before = copy.deepcopy(learner.policy)
    learner.optimizer = torch.optim.SGD(learner.policy.parameters(), lr=1.0)
    update(learner, recipe, groups, prepared, 1)
    pairs = zip(before.parameters(), learner.policy.parameters(), strict=True)
    ours = torch.cat([(a - b).detach().flatten() for a, b in pairs])
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=2e-5 * float(theirs.abs().max() + 1))
    return float((ours - theirs).abs().max() / theirs.abs().max())


# --- ours ----------------------------------------------------------------------------------------------------------


def one_step(learner: Learner, recipe: Recipe) -> float:
    """Seconds of a step of ours."""
    began = time.perf_counter()
    train_step(learner, recipe)
    return time.perf_counter() - began


def a_rollout(case: Case, *, rewards: str = "as they are") -> tuple[Learner, Recipe, Rollout]:
    """One rollout of the case; rewards may be thinned out until half of the groups are dead."""
    learner, recipe = case.learner(), case.recipe
    groups, _ = collect(learner.policy, learner.vocabulary, recipe, 1)
    assert groups is not None
    if rewards == "half dead":
        G = case.config.group_size
        dead = torch.arange(len(groups.rewards)) // G % 2 == 0
        groups = replace(groups, rewards=torch.where(dead, 1.0, groups.rewards))
    return learner, recipe, groups


def seed_everything(seed: int) -> None:
    """For TRL, which draws from the global generators."""
    random.seed(seed)
    torch.manual_seed(seed)
