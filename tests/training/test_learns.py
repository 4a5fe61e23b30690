"""Every row of the table learns a trivial task from three seeds, with one and the same config; a coin teaches nothing.

Untrained, the policy begins 47 to 49 of 100 answers with an even digit. Measured when this was written: 94 to 99 of
100 after 20 steps with the verifier, in all 39 runs. Under a coin the share walks at random, and single seeds walk
far (17 to 79 of 100), so the control is judged by its mean over the seeds: there it moved by -44 to +10 points. (The
-44 are DAPO's: its length penalty is a reward that no coin decides, and it teaches to stop at once.)
"""

import pytest

from rlhf_minimal import ALGORITHMS
from rlhf_minimal.models import Vocabulary, tiny_llama
from rlhf_minimal.tasks import get_task, random_reward
from rlhf_minimal.training import Config, Learner, Recipe, evaluate, train

TASK = get_task("even")
SEEDS = (0, 1, 2)


def before_and_after(name, seed, *, coin):
    vocabulary = Vocabulary(TASK.alphabet)
    policy = tiny_llama(len(vocabulary), width=32, layers=1, heads=2, seed=seed)
    config = Config(steps=20, prompts=16, group_size=8, lr=3e-3, seed=seed)
    recipe = Recipe(ALGORITHMS[name], TASK, config, random_reward(seed) if coin else None)
    learner = Learner.begin(policy, vocabulary, recipe.algorithm, config)
    before = evaluate(policy, vocabulary, recipe, n=500).sampled.share
    train(learner, recipe)
    return before, evaluate(policy, vocabulary, recipe, n=500).sampled.share


@pytest.mark.parametrize("name", ALGORITHMS)
def test_learns_from_the_verifier(name):
    for seed in SEEDS:
        before, after = before_and_after(name, seed, coin=False)
        assert after > before + 0.35, (seed, before, after)
        assert after > 0.88, (seed, before, after)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_does_not_learn_from_a_coin(name):
    runs = [before_and_after(name, seed, coin=True) for seed in SEEDS]
    gain = sum(after - before for before, after in runs) / len(runs)
    assert gain < 0.2, runs
    assert min(after for _, after in runs) < 0.7, runs
