"""Started twice by `test_processes.py`: every row of the table, updated by two processes together and by one alone."""

import copy
import sys

import torch

from rlhf_minimal import ALGORITHMS
from rlhf_minimal.cli.starts import ASSETS
from rlhf_minimal.config import Config
from rlhf_minimal.lab.processes import launched
from rlhf_minimal.models import tiny_llama
from rlhf_minimal.tasks import get_task
from rlhf_minimal.train import Recipe, collect, prepare_batch, update
from rlhf_minimal.train_state import ALONE, Learner
from rlhf_minimal.training import load_policy


def learner_of(recipe, processes):
    policy, vocabulary = load_policy(ASSETS / "addition")
    teacher = None
    if recipe.algorithm.needs_teacher:
        teacher = tiny_llama(len(vocabulary), seed=1).double()
    learner = Learner.begin(policy.double(), vocabulary, recipe.algorithm, recipe.config, teacher=teacher)
    # AdamW's first step has the gradient's sign only; this one is the gradient.
    learner.optimizer = torch.optim.SGD(learner.policy.parameters(), lr=1e-2)
    if learner.critic is not None:
        learner.critic.double()
        learner.critic_optimizer = torch.optim.SGD(learner.critic.parameters(), lr=1e-2)
    learner.processes = processes
    return learner


def graded(completions, **columns):
    """Shares of a reward that differ within most groups, so that every row has something to learn."""
    return [sum(map(ord, text)) % 97 / 97 for text in completions]


def moved(learner):
    models = [learner.policy] + ([] if learner.critic is None else [learner.critic])
    return torch.cat([weight.detach().flatten() for model in models for weight in model.parameters()])


def main():
    processes, _ = launched(torch.device("cpu"))
    assert processes.count == 2
    for name, algorithm in ALGORITHMS.items():
        if algorithm.needs_whole_step:
            continue  # refused: no process sees the whole of a step
        # 5 problems and 15 completions: shares of different sizes, and a minibatch that cuts a group.
        config = Config(prompts=5, group_size=3, minibatches=2, micro_batches=2, grad_clip=1e9, max_refills=1, seed=3)
        recipe = Recipe(algorithm, get_task("addition"), config, graded)
        together, alone = learner_of(recipe, processes), learner_of(recipe, ALONE)
        before = moved(alone)
        groups, sampled = collect(together.policy, together.vocabulary, recipe, 1, processes)
        assert len(sampled[0].texts) == 15
        if groups is None:
            print(f"{name}: nothing kept", file=sys.stderr)
            continue
        right = [recipe.task.verify(*pair) for pair in zip(groups.texts, groups.problems, strict=True)]
        assert groups.correct.tolist() == right, "texts and scores belong to each other"
        watched = []
        for learner in (together, alone):
            batch, distance = prepare_batch(learner, recipe, copy.deepcopy(groups), 1)
            watched.append({**distance, **update(learner, recipe, groups, batch, 1)})
        step = (moved(alone) - before).abs().max().item()
        apart = (moved(alone) - moved(together)).abs().max().item()
        # a prompt whose completions are shared out is read by both
        numbers = max(abs(watched[0][key] - watched[1][key]) for key in watched[1].keys() - {"tokens_read"})
        if processes.is_main:
            print(name, step, apart, numbers)
    processes.close()


if __name__ == "__main__":
    main()
