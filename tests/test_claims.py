"""Statements that the book once made too broadly, and where they stop: exact, by enumeration, or from its own runs."""

import dataclasses
import itertools
import math

import pytest
import torch

from rlhf_book.benchmark import read_groups
from rlhf_book.chain import Way, at_chosen_rate
from rlhf_book.chain import train as train_chain
from rlhf_book.records import read_record
from rlhf_book.sampling import truth, voted
from rlhf_book.tabular import Tree
from rlhf_minimal.algorithms import get_algorithm
from rlhf_minimal.config import Config
from rlhf_minimal.models import Vocabulary, tiny_llama
from rlhf_minimal.tasks import get_task
from rlhf_minimal.train import Recipe, train_step
from rlhf_minimal.train_state import Learner

TREE = Tree(vocab=3, length=3)


def cosine(one, other):
    return (torch.dot(one.flatten(), other.flatten()) / (one.norm() * other.norm())).item()


def gradient(weight, theta):
    """Of the sum of weight [15] times the log-probability of each completion."""
    return TREE.grad((weight.detach() * TREE.sequence_logp(theta)).sum(), theta)


def test_the_total_weight_of_a_hard_prompt_is_smaller_in_a_real_group():
    def total(s, n=16):
        """E of the sum of |A| over n, with A the z-score (divisor n) of rewards 0 and 1."""
        found = 0.0
        for k in range(n + 1):
            chance = math.comb(n, k) * s**k * (1 - s) ** (n - k)
            rewards = torch.tensor([1.0] * k + [0.0] * (n - k), dtype=torch.float64)
            std = rewards.std(correction=0)
            if std > 0:
                found += chance * ((rewards - rewards.mean()) / std).abs().mean().item() / 2
        return found

    closed = sum(math.comb(16, k) * 0.01**k * 0.99 ** (16 - k) * math.sqrt(k * (16 - k)) / 16 for k in range(17))
    assert total(0.01) == pytest.approx(closed)
    assert closed == pytest.approx(0.037, abs=5e-4)
    assert math.sqrt(0.01 * 0.99) > 2.6 * closed  # what the limit of large groups would say
    assert total(0.9) == pytest.approx(total(0.1))
    assert total(0.5) == pytest.approx(0.4835, abs=5e-5)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_kept_tokens_as_a_divisor_turn_the_expected_step(seed):
    theta = TREE.random_logits(seed).requires_grad_()
    chance = TREE.probs(theta).detach()
    right = torch.tensor([TREE.text(k).count("a") == 1 for k in range(len(TREE))]).double()
    truth = TREE.policy_gradient(theta, right)
    by_completions, by_tokens = torch.zeros(15).double(), torch.zeros(15).double()
    for pair in itertools.product(range(15), repeat=2):
        kept = [k for k in pair if right[k]]
        both = chance[list(pair)].prod()
        for k in kept:
            by_completions[k] += both / len(kept)
            by_tokens[k] += both / sum(TREE.lengths[j].item() for j in kept)
    assert cosine(gradient(by_completions, theta), truth) == pytest.approx(1.0, abs=1e-9)
    assert cosine(gradient(by_tokens, theta), truth) < 0.998


def test_a_class_that_holds_the_data_may_still_stand_still():
    def log_likelihood_slope(at, data):
        t = torch.tensor(float(at), dtype=torch.float64, requires_grad=True)
        p = torch.sigmoid(t**3 - 3 * t)
        value = data * p.log() + (1 - data) * (1 - p).log()
        return torch.autograd.grad(value, t)[0].item(), p.item()

    data = log_likelihood_slope(2.0, 0.5)[1]  # representable: the policy at t = 2
    slope, p = log_likelihood_slope(1.0, data)
    assert slope == 0.0
    assert abs(p - data) > 0.7
    assert log_likelihood_slope(2.0, data)[0] == pytest.approx(0.0, abs=1e-12)


def test_raw_rewards_by_a_coin_push_on_length_under_a_token_mean():
    for seed in (0, 1):
        theta = TREE.random_logits(seed).requires_grad_()
        chance = TREE.probs(theta).detach()
        summed = gradient(0.5 * chance, theta)
        averaged = gradient(0.5 * chance / TREE.lengths, theta)
        by_length = TREE.grad((0.5 * TREE.probs(theta) / TREE.lengths).sum(), theta)
        assert summed.norm() < 1e-12
        torch.testing.assert_close(averaged, by_length)
        assert averaged.norm() > 0.01


@pytest.mark.parametrize("divisor", ["tokens of the prompt's group", "tokens of the batch", "constant"])
def test_the_filter_turns_nothing_with_a_divisor_of_one_prompt(divisor):
    """Two prompts of different lengths, groups of two, batches of two groups: with the filter and without."""
    thetas = [TREE.random_logits(0).requires_grad_(), (3 * TREE.random_logits(1)).requires_grad_()]
    right = torch.tensor([TREE.text(k).count("a") == 1 for k in range(len(TREE))]).double()
    long = torch.tensor([TREE.text(k).startswith("b") for k in range(len(TREE))]).double()
    rewards, chances = [right, long], [TREE.probs(theta).detach() for theta in thetas]
    groups = list(itertools.product(range(15), repeat=2))
    alike = []  # of each prompt: (chance of the group, its completions, tokens, advantages)
    for reward, chance in zip(rewards, chances, strict=True):
        alike.append(
            [(chance[a] * chance[b], (a, b), TREE.lengths[[a, b]].sum().item(), _z(reward, a, b)) for a, b in groups]
        )

    def step(filtered):
        """Expected step of each prompt's policy when batches hold one group of either prompt, drawn by lot."""
        kept = [[g for g in one if not filtered or g[3][0] != 0] for one in alike]
        pool = [(q, g, g[0].item() / 2) for q in (0, 1) for g in kept[q]]
        whole = sum(chance for *_, chance in pool)
        by_tokens = {}  # the other group's law of tokens
        for _, (_, _, tokens, _), chance in pool:
            by_tokens[tokens] = by_tokens.get(tokens, 0.0) + chance / whole
        found = []
        for q, theta in enumerate(thetas):
            weight = torch.zeros(15, dtype=torch.float64)
            for own, (_, pair, tokens, (first, second)), chance in pool:
                if own != q:
                    continue
                if divisor == "constant":
                    scale = 1.0
                elif divisor == "tokens of the batch":
                    scale = sum(p / (tokens + other) for other, p in by_tokens.items())
                else:
                    scale = 1 / tokens
                weight[pair[0]] += chance / whole * first * scale
                weight[pair[1]] += chance / whole * second * scale
            found.append(gradient(weight, theta).flatten())
        return torch.cat(found)

    turned = 1 - cosine(step(filtered=False), step(filtered=True))
    if divisor == "tokens of the batch":
        assert 1e-12 < turned < 1e-2
    else:
        assert turned < 1e-12


def _z(reward, a, b):
    gap = (reward[a] - reward[b]).item() / 2
    return (0.0, 0.0) if gap == 0 else (math.copysign(1.0, gap), -math.copysign(1.0, gap))


def test_noise_shortens_the_mean_of_a_clipped_step():
    generator = torch.Generator().manual_seed(0)
    mean = torch.zeros(50, dtype=torch.float64)
    mean[0] = 2.0
    lengths = []
    for noise in (0.1, 0.5, 1.0):
        drawn = mean + noise * torch.randn(4000, 50, generator=generator, dtype=torch.float64)
        clipped = drawn / drawn.norm(dim=1, keepdim=True).clamp(min=1.0)
        assert drawn.mean(0)[0] == pytest.approx(2.0, abs=0.06)  # the same mean before the clip
        lengths.append(clipped.mean(0)[0].item())
    assert lengths[0] > 1.2 * lengths[1] * 0.9 > lengths[2] * 1.2


def test_a_critic_with_lambda_1_is_level_at_another_step():
    rates = [0.125 * 2 ** (k / 2) for k in range(11)]

    def above_the_group(way):
        scores = at_chosen_rate(train_chain(way, range(200, 220), rates))[0].double()
        d = scores - group
        return (d.mean() / d.std() * 20**0.5).item()

    group = at_chosen_rate(train_chain(Way(subtract="mean"), range(200, 220), rates))[0].double()
    assert above_the_group(Way(1.0, "critic")) < -2.09  # at the step of the chapter
    assert abs(above_the_group(Way(1.0, "critic", critic_step=1.0))) < 2.09
    assert above_the_group(Way(0.8, "critic", critic_step=1.0)) > 2.09


def test_the_value_usually_has_less_than_twice_the_least_noise_of_a_potential():
    pay = torch.rand(len(TREE), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    at = torch.nn.functional.one_hot(TREE.node, len(TREE.prefixes)).double()

    def noise_over_the_least(seed):
        """The noise of one sample, reward minus a number of each prefix: with the value, and with 0."""
        theta = TREE.random_logits(seed)
        chance, p = TREE.probs(theta), TREE.logp(theta).exp()  # [15], [15, 3]: p of the token
        same = theta.softmax(-1).square().sum(-1)[TREE.node]  # sum of the squared probabilities
        square = (1 - 2 * p + same) * TREE.mask  # length of the score, squared
        weigh = chance[:, None] * square

        def mean_reward(weight):  # of the completions through each prefix
            mass = torch.einsum("kt,ktn->n", weight, at)
            return torch.einsum("kt,k,ktn->n", weight, pay, at) / mass.clamp(min=1e-300)

        value = mean_reward(chance[:, None] * TREE.mask)
        gradient = TREE.policy_gradient(theta.requires_grad_(), pay).square().sum()
        least, of_value, none = (
            (weigh * (pay[:, None] - b[TREE.node]) ** 2).sum() - gradient
            for b in (mean_reward(weigh), value, torch.zeros_like(value))
        )
        return (of_value / least).item(), (none / least).item()

    found = [noise_over_the_least(seed) for seed in range(60)]
    assert found[0] == pytest.approx((1.09, 5.45), abs=5e-3)  # as the chapter prints it
    of_value, none = zip(*found, strict=True)
    assert min(of_value) >= 1
    assert sum(x < 2 for x in of_value) == 58
    assert f"{max(of_value):.1f}" == "4.6"
    assert min(none) > 3
    assert max(none) < 13
    assert all(nothing > with_value for with_value, nothing in found)


def test_repeated_text_falls_below_the_entropy_that_new_text_cannot():
    """Eight pairs whose answers are uniform noise: on the same eight the loss goes to 0, on new ones above log 8."""
    draw = torch.Generator().manual_seed(0)
    asked, answers = torch.arange(8), torch.randint(8, (8,), generator=draw)
    logits = torch.zeros(8, 8, dtype=torch.float64, requires_grad=True)
    for _ in range(400):
        loss = torch.nn.functional.cross_entropy(logits[asked], answers)
        (slope,) = torch.autograd.grad(loss, logits)
        logits = (logits - 8 * slope).detach().requires_grad_()
    assert loss.item() < 0.03 < math.log(8)
    expected = -logits.log_softmax(-1).mean().item()  # each answer is as likely
    assert expected > math.log(8)


def noise_to_signal(sizes, solved, filtered):
    """Of RLOO's step for prompts with one logit each: the standard deviation by the length of the mean, exactly.

    Without the filter each prompt is asked once. With it prompts are drawn at random for as many completions in all,
    and only groups with both outcomes count, each once.
    """
    mixed, mean, square = [], [], []
    for n, p in zip(sizes, solved, strict=True):
        chances = [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]
        steps = [k * (n - k) / (n * (n - 1)) for k in range(n + 1)]
        mixed.append(sum(chances[1:-1]))
        mean.append(sum(c * x for c, x in zip(chances, steps, strict=True)))
        square.append(sum(c * x * x for c, x in zip(chances, steps, strict=True)))
    if not filtered:
        return math.sqrt(sum(s - m * m for s, m in zip(square, mean, strict=True))) / sum(mean)
    one = [m / sum(mixed) for m in mean]  # of one kept group
    kept = len(solved) * sum(mixed) / len(solved)  # groups
    variance = sum(square) / sum(mixed) - sum(m * m for m in one)
    return math.sqrt(variance / kept) / math.hypot(*one)


def test_sizes_of_groups_lie_closer_in_a_loop_with_the_filter():
    solved = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
    rules = {"equal": [8] * 8, "hard": [11, 11, 10, 9, 8, 7, 5, 3], "root": [4, 6, 7, 9, 10, 11, 10, 7]}
    once, in_a_loop = (
        {name: noise_to_signal(sizes, solved, filtered) for name, sizes in rules.items()} for filtered in (False, True)
    )
    assert once == pytest.approx({"equal": 0.195, "hard": 0.227, "root": 0.198}, abs=5e-4)
    assert once["hard"] / once["equal"] == pytest.approx(7 / 6, abs=0.005)
    assert in_a_loop == pytest.approx({"equal": 1.02, "hard": 1.06, "root": 1.02}, abs=5e-3)


def test_the_noise_of_an_evaluation_is_less_if_problems_differ():
    """All runs have the same problems, so a run's own spread is the mean of p(1 - p), below that of the mean p."""
    draws = torch.Generator().manual_seed(0)
    shares = torch.rand(1000, generator=draws, dtype=torch.float64)  # each problem's chance to be solved
    own, said = (shares * (1 - shares)).mean().item(), (shares.mean() * (1 - shares.mean())).item()
    right = torch.rand(2000, 1000, generator=draws, dtype=torch.float64) < shares
    assert right.double().mean(1).var().item() == pytest.approx(own / 1000, rel=0.1)
    assert own < 0.7 * said


def test_greedy_accuracy_is_near_its_ceiling_where_no_pair_is_separated_in_it():
    groups = read_groups()
    for name in ("addition-1", "clock-1"):
        ends = [sum(x) / len(x) for x in groups[name].results("greedy").values()]
        assert min(ends) > 0.9, (name, ends)
        assert not any(pair.separated for pair in groups[name].pairs("greedy").values())


class AllAlike:
    """A verifier that pays every completion the same."""

    def __init__(self, pay):
        self.pay = pay

    def __call__(self, completion, problem):
        return self.pay


@pytest.mark.parametrize("pay", [0.0, 0.3, 1.0])
def test_rounding_alone_moves_the_rows_with_a_penalty_in_the_reward(pay):
    """Nothing is to be learnt, and the policy is its own reference (book/troubleshooting.md)."""

    def moved(name):
        row, config = get_algorithm(name), Config(prompts=4, group_size=4, lr=1e-3)
        task = dataclasses.replace(get_task("addition"), verify=AllAlike(pay), score_range=(0.0, 1.0))
        vocabulary = Vocabulary(task.alphabet)
        learner = Learner.begin(tiny_llama(len(vocabulary)), vocabulary, row, config)
        before = [x.detach().clone() for x in learner.policy.parameters()]
        metrics = train_step(learner, Recipe(row, task, config))
        pairs = zip(learner.policy.parameters(), before, strict=True)
        return metrics, max((x - y).abs().max().item() for x, y in pairs)

    metrics, most = moved("rloo")
    assert abs(metrics["kl"]) < 1e-5  # nats of a completion
    assert 1e-4 < most < 1.1e-3  # up to nearly the learning rate
    assert all(moved(name)[1] == 0 for name in ("grpo", "dr_grpo", "gspo"))


@pytest.mark.parametrize(("weight", "elected"), [(torch.sigmoid, 0.0), (lambda s: (5 * s).exp(), 1.0)])
def test_one_overrated_completion_decides_a_vote_whose_weights_have_no_bound(weight, elected):
    """Of 32 completions 20 have the right answer, 11 have none, and one has another and a score that is far off."""
    right = truth()[:5]
    wrong = (right + 1) % 26
    answers = torch.cat([right[:, None].expand(5, 20), torch.full((5, 11), -1), wrong[:, None]], 1)
    scores = torch.zeros(5, 32)
    scores[:, -1] = 4.0
    assert (1 - voted(32, answers, weight(scores))).tolist() == [elected] * 5


def test_sixteen_attempts_leave_much_or_nothing_of_what_training_gained():
    """Runs minus the start at temperature 0.75, problems drawn anew: from a loss to more than a tenth."""
    real = read_record("scaling-cpu")

    def found(counts):
        return torch.tensor([1.0 - (c == 0) for c in counts], dtype=torch.float64)  # of 16, one is right

    after = torch.stack([found(run["tries"]["after"]) for run in real["learn"]]).mean(0)
    gain, which = after - found(real["temperature"]["0.75"]), torch.tensor(real["tried"])
    problems = int(which.max()) + 1
    total, times = torch.zeros(2, problems, dtype=torch.float64)
    total.index_add_(0, which, gain)
    times.index_add_(0, which, torch.ones_like(gain))
    draws = torch.randint(problems, (4000, problems), generator=torch.Generator().manual_seed(1))
    means = total[draws].sum(1) / times[draws].sum(1)
    low, high = means.quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    assert low < -0.03 < 0.08 < high


@pytest.mark.parametrize("how", ["sampled", "greedy"])
def test_an_interval_by_problem_is_wider_than_one_by_evaluation(how):
    """200 evaluations of 108 problems, as if they were 200 problems (Wilson): the interval that once was printed."""
    start = read_record("scaling-cpu")["learn"][0]["before"][how]
    p, n, z = start["share"], 200, 1.96
    wilson = 2 * z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    assert wilson == pytest.approx({"sampled": 0.184 - 0.090, "greedy": 0.544 - 0.407}[how], abs=2e-3)
    assert start["high"] - start["low"] > 1.7 * wilson


def test_from_few_samples_the_natural_gradient_may_still_be_ahead():
    """Three actions, eight samples, each way in which they can fall: both steps are followed to one KL."""
    theta = torch.tensor([-2.0, 0.5, 0.0], dtype=torch.float64)
    p = theta.softmax(0)
    A = torch.tensor([3.0, 2.0, 1.0], dtype=torch.float64)
    A = A - p @ A
    fisher = torch.diag(p[:2]) - torch.outer(p[:2], p[:2])

    def gain(x, delta=0.01):
        x, low, high = torch.cat([x, x.new_zeros(1)]) / x.norm(), 0.0, 50.0
        for _ in range(60):
            middle = (low + high) / 2
            inside = (p * (p.log() - (theta + middle * x).log_softmax(0))).sum() < delta
            low, high = (middle, high) if inside else (low, middle)
        return ((theta + low * x).softmax(0) - p) @ A

    def mean_gains(n):
        chances, gains = [], []
        for a, b in itertools.product(range(n + 1), repeat=2):
            if a + b <= n:
                counts = torch.tensor([a, b, n - a - b], dtype=torch.float64)
                ways = math.factorial(n) / math.prod(math.factorial(int(c)) for c in counts)
                chances.append(ways * (p**counts).prod())
                weight = counts / n * A
                plain = weight[:2] - weight.sum() * p[:2]
                gains.append(torch.stack([gain(plain), gain(torch.linalg.solve(fisher, plain))]))
        chances = torch.stack(chances)
        assert chances.sum() == pytest.approx(1)
        return chances @ torch.stack(gains)

    for n in (2, 8):
        plain, natural = mean_gains(n)
        assert 0 < plain < natural
    assert plain == pytest.approx(0.0575, abs=2e-3)
    assert natural == pytest.approx(0.0669, abs=2e-3)


def test_errors_that_scatter_help_greedy_decoding_and_no_samples():
    """A teacher who is right in two of five, with six errors of one in ten: what a perfect imitator does."""
    teacher = torch.tensor([0.4, *[0.1] * 6], dtype=torch.float64)
    logits = teacher.log().requires_grad_()
    loss = -(teacher * logits.log_softmax(0)).sum()
    assert torch.autograd.grad(loss, logits)[0].abs().max() < 1e-12  # nothing is left to imitate
    student = logits.detach().softmax(0)
    assert student[0].item() == pytest.approx(0.4)  # sampled: as often right as the teacher
    assert student.argmax() == 0  # greedy: always right


def test_a_cap_below_one_is_seen_in_the_curve():
    runs = {(run["arm"], run["seed"]): run for run in read_record("gate-runs")["runs"]}
    for seed in range(5):
        assert runs["cispo-0.2", seed]["sampled"] < runs["cispo", seed]["sampled"] - 0.1
