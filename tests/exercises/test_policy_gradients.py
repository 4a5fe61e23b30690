"""What is peculiar to the exercises on policy gradients: solutions against enumeration, bugs against the library."""

import itertools

import pytest
import torch

from rlhf_book.exercises import BUGS, EXERCISES
from rlhf_book.exercises.policy_gradients.action_baseline import my_bias
from rlhf_book.exercises.policy_gradients.length_push import my_length_push
from rlhf_book.exercises.policy_gradients.samples import my_samples
from rlhf_book.exercises.policy_gradients.score_norm import my_score_norm
from rlhf_book.tabular import Tree
from rlhf_minimal import ALGORITHMS, Batch, policy_loss
from rlhf_minimal.functional import advantages

IDS = ["pg-samples", "pg-action-baseline", "pg-length-push", "pg-score-norm", "pg-position-baseline"]


def test_they_stand_in_the_order_of_the_chapter_and_its_depth():
    assert [name for name in EXERCISES if name.startswith("pg-")] == IDS


def scores_of(logits):
    """Chances, and the gradient of the log-probability of each token, by autograd."""
    logits = logits.clone().requires_grad_()
    logp = logits.log_softmax(-1)
    return logp.exp().detach(), torch.stack([torch.autograd.grad(x, logits, retain_graph=True)[0] for x in logp])


def test_the_bias_of_a_baseline_that_looks_at_the_token():
    generator = torch.Generator().manual_seed(0)
    p, scores = scores_of(torch.randn(5, generator=generator, dtype=torch.float64))
    R, b = torch.randn(2, 5, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(p @ ((R - b)[:, None] * scores) - p @ (R[:, None] * scores), my_bias(p, b))


def test_many_samples_without_a_baseline_have_the_noise_of_one_with():
    """Sampled: the mean over n of them, n rounded, scatters as one sample with the baseline does."""
    generator = torch.Generator().manual_seed(0)
    p, scores = scores_of(torch.tensor([0.3, -0.4, 0.1], dtype=torch.float64))
    R, b = torch.tensor([4.0, 3.0, 2.5], dtype=torch.float64), 3.0
    n = round(my_samples(p, R, scores, b).item())
    assert n > 5

    def scatter(baseline, size):
        k = torch.multinomial(p, 40_000 * size, replacement=True, generator=generator)
        x = ((R[k] - baseline)[:, None] * scores[k]).view(40_000, size, 3).mean(1)
        return (x - x.mean(0)).square().sum(1).mean().item()

    assert scatter(0.0, n) == pytest.approx(scatter(b, 1), rel=0.1)


def test_the_push_of_a_mean_over_tokens_is_that_of_a_real_policy():
    """A first token that ends or begins a chain of certain ones, averaged by the library's sequence_mean."""
    row = ALGORITHMS["grpo"]
    short, long, R, b = 1, 4, 1.0, 0.25
    x = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)
    total = torch.zeros((), dtype=torch.float64)
    for length, chance in ((short, x.sigmoid()), (long, 1 - x.sigmoid())):
        first = chance.log()[None]
        logp = torch.cat([first, torch.zeros(long - 1, dtype=torch.float64)])[None]  # the others are certain
        mask = (torch.arange(long) < length)[None].double()
        A = torch.full_like(mask, R - b)
        free = row.__class__(row.advantage, ALGORITHMS["reinforce"].ratio, ALGORITHMS["reinforce"].gate, row.aggregate)
        loss = policy_loss(free, Batch(logp, logp.detach(), mask, torch.zeros(1), 1, advantages=A))
        total = total + chance.detach() * torch.autograd.grad(-loss, x, retain_graph=True)[0]
    assert total.item() == pytest.approx(my_length_push(x.sigmoid().item(), short, long, R, b))


def test_the_mean_squared_score_over_every_completion():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 4, generator=generator, dtype=torch.float64).requires_grad_()
    total = 0.0
    for tokens in itertools.product(range(4), repeat=3):
        logp = logits.log_softmax(-1)[range(3), tokens].sum()
        total += logp.exp().item() * torch.autograd.grad(logp, logits)[0].square().sum().item()
    assert total == pytest.approx(my_score_norm(logits.softmax(-1)).item())


def test_a_reward_that_was_paid_before_a_token_drops_out_on_average():
    """What the chapter says of returns-to-go, held to the library's cell on every completion of a tree."""
    tree = Tree()
    theta = tree.random_logits(3).requires_grad_()
    generator = torch.Generator().manual_seed(3)
    pay = torch.rand(theta.shape, generator=generator, dtype=torch.float64)
    r = pay[tree.node, tree.tokens] * tree.mask
    A = advantages.returns_to_go(r, tree.mask)
    p = tree.probs(theta).detach()
    estimate = tree.grad((p[:, None] * A * tree.logp(theta)).sum(), theta)
    torch.testing.assert_close(estimate, tree.policy_gradient(theta, r.sum(1)))


def test_the_mended_bugs_are_the_librarys():
    generator = torch.Generator().manual_seed(0)
    logp = -torch.rand(4, 3, generator=generator) - 0.1
    mask = torch.tensor([[1.0, 1, 1], [1, 0, 0], [1, 1, 0], [1, 1, 1]])
    rewards = torch.tensor([1.0, 0.0, 0.5, 0.0])
    found = []
    for loss in (
        lambda x: BUGS["pg-broadcast"].mended(x, mask, rewards[:, None]),
        lambda x: policy_loss(
            ALGORITHMS["reinforce"], Batch(x, x.detach(), mask, rewards - rewards.mean(), group_size=1)
        ),
    ):
        x = logp.clone().requires_grad_()
        loss(x).backward()
        found.append(x.grad)
    torch.testing.assert_close(*found)
