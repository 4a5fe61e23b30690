"""Tasks that answer while the policy writes: what is sampled, what is read, what is trained, and who refuses."""

import copy
import dataclasses
import functools
import random

import pytest
import torch

from rlhf_minimal import ALGORITHMS
from rlhf_minimal.config import Config
from rlhf_minimal.fit import FitConfig, completion_loss, imitate, supervised_loss, teacher_rows
from rlhf_minimal.functional.masked import completion_mask
from rlhf_minimal.lab.compiled import sample_compiled
from rlhf_minimal.lab.fast import Fast
from rlhf_minimal.lab.forced_tokens import force, roll_out_from_prefixes
from rlhf_minimal.lab.ledger import calls, paid_per_call
from rlhf_minimal.lab.processes import Several
from rlhf_minimal.lab.sampled_rows import sample_completions, sample_ids, sample_pairs
from rlhf_minimal.lab.votes import evaluate_votes
from rlhf_minimal.models import TokenizerVocabulary, Vocabulary, policy_logits, tiny_llama
from rlhf_minimal.sample import Samples, pad_left, sample
from rlhf_minimal.tasks import Problem, ReplyRow, get_task
from rlhf_minimal.train import Recipe, prepare_batch, roll_out, train_step
from rlhf_minimal.train_state import Learner
from rlhf_minimal.vocabulary import character_tokenizer
from tests.training.reading import Plain, logp_of, read_by

LEDGER = get_task("ledger")
VOCABULARY = Vocabulary(LEDGER.alphabet)
PROBLEMS = LEDGER.problems("train", 24, seed=0)
CONFIG = Config(prompts=24, group_size=4, lr=1e-3, steps=2)


def start():
    """A policy that has just begun to imitate: it asks, calculates and answers, mostly wrongly."""
    policy = tiny_llama(len(VOCABULARY), width=32, layers=1, heads=2, max_length=64)
    imitate(policy, VOCABULARY, LEDGER, FitConfig(steps=120, batch_size=64, lr=1e-2, warm_up=10))
    return policy


POLICY = start()


def recipe(row="dr_grpo", reading=None, task=LEDGER, config=CONFIG, **options):
    return read_by(Recipe(ALGORITHMS[row], task, config, **options), reading)


def of_slow_loop(policy, problem, text):
    """The log-prob of every own token of a text, one forward a token, and which tokens are own: nothing is shared."""
    ids = [*VOCABULARY.encode_prompt(problem.prompt)]
    logp, own = [], []
    reply, so_far = "", ""
    for character in [*text, None]:
        token = VOCABULARY.eos_id if character is None else VOCABULARY.encode(character)[0]
        if reply:
            assert character == reply[0]  # the environment is heard, letter by letter
            reply, mine = reply[1:], False
        else:
            mine = True
        with torch.no_grad():
            scores = policy(torch.tensor([ids])).logits[0, -1].log_softmax(-1)
        logp.append(float(scores[token]) if mine else 0.0)
        own.append(float(mine))
        ids.append(token)
        so_far += character or ""
        if mine and character is not None:
            reply = LEDGER.reply(so_far, problem) or ""
    return logp, own


def test_log_probs_and_masks_are_those_of_a_slow_loop_row_by_row():
    written = roll_out(POLICY, VOCABULARY, PROBLEMS, recipe(), group_size=4, seed="slow")
    turns = []
    for row, (problem, text) in enumerate(zip(written.problems, written.texts, strict=True)):
        logp, own = of_slow_loop(POLICY, problem, text)
        n = len(text) if written.truncated[row] else len(text) + 1
        assert written.mask[row].tolist() == own[:n] + [0.0] * (written.mask.shape[1] - n)
        want = torch.tensor(logp[:n] + [0.0] * (written.mask.shape[1] - n))
        torch.testing.assert_close(written.logp[row], want, atol=2e-5, rtol=0)
        turns.append(len(LEDGER.replies(text, problem)))
    assert {0, 1, 2} <= set(turns)  # rows at different turns, side by side


def test_holes_are_where_playing_again_finds_replies():
    written = roll_out(POLICY, VOCABULARY, PROBLEMS, recipe(), group_size=4, seed="holes")
    for row, (problem, text) in enumerate(zip(written.problems, written.texts, strict=True)):
        spans = LEDGER.replies(text, problem)
        heard = {place for first, end in spans for place in range(first, end)}
        holes = {place for place in range(len(text)) if written.mask[row, place] == 0}
        assert holes == heard
        assert all(text[first:end] == LEDGER.reply(text[:first], problem)[: end - first] for first, end in spans)


@pytest.mark.parametrize("reading", [Plain(), Fast()])
def test_both_readings_give_the_samplers_log_probs_around_the_holes(reading):
    plan = recipe(reading=reading)
    written = roll_out(POLICY, VOCABULARY, PROBLEMS, plan, group_size=4, seed="read")
    read = logp_of(reading, POLICY, written, CONFIG)
    own = written.mask != 0
    assert (~own).any()
    torch.testing.assert_close(read[own], written.logp[own], atol=2e-5, rtol=0)


@pytest.mark.parametrize("row", ["dr_grpo", "grpo", "ppo", "dapo", "gspo", "rloo", "reinforce"])
def test_a_step_does_not_depend_on_what_was_said_under_the_holes(row):
    """With the replies' places put into the mask, the same loss would change with the log-probs of replies."""
    plan = recipe(row, config=dataclasses.replace(CONFIG, max_refills=0))
    learner = Learner.begin(copy.deepcopy(POLICY), VOCABULARY, plan.algorithm, plan.config)
    written = roll_out(POLICY, VOCABULARY, PROBLEMS, plan, group_size=4, seed="step")
    batch, _ = prepare_batch(learner, plan, written, 1)
    noisy = dataclasses.replace(written, logp=torch.where(written.mask != 0, written.logp, torch.tensor(-7.0)))
    again, _ = prepare_batch(learner, plan, noisy, 1)
    own = written.mask != 0
    torch.testing.assert_close(again.advantages[own], batch.advantages[own])
    assert torch.isfinite(batch.advantages[own]).all()
    metrics = train_step(learner, plan)
    assert metrics["grad_norm"] > 0


def test_a_row_that_ends_is_answered_and_goes_on():
    """A chat model's turn ends with its end token; the sampler lets the caller answer that, too."""
    end = VOCABULARY.eos_id
    prompts = [VOCABULARY.encode("a+b:")] * 6
    said = VOCABULARY.encode("12") + [end]  # a template may write end tokens itself
    answered = set()

    def reply(row, ids):
        if ids[-1] == end and row % 2 == 0 and row not in answered:
            answered.add(row)
            return said
        return []

    draws = torch.Generator().manual_seed(0)
    samples = sample_ids(POLICY, VOCABULARY, prompts, max_new_tokens=60, generator=draws, reply=reply)
    for row, (ids, mask) in enumerate(zip(samples.completions.tolist(), samples.mask.tolist(), strict=True)):
        ends = [place for place, token in enumerate(ids) if token == end and mask[place]]
        first = ends[0]
        if row % 2:
            assert sum(mask) == first + 1
        else:
            assert ids[first + 1 : first + 4] == said
            assert mask[first + 1 : first + 4] == [0.0] * 3
            assert mask[first + 4] == 1.0


def test_without_a_reply_nothing_changes():
    """The mask is recorded and no longer derived: it is the same."""
    ids, mask = pad_left([VOCABULARY.encode("a+b:")] * 32, VOCABULARY.pad_id)
    options = {"max_new_tokens": 12, "eos_id": 0, "pad_id": 0}
    both = [
        sample(POLICY, ids, mask, generator=torch.Generator().manual_seed(1), reply=reply, **options)
        for reply in (None, lambda row, ids: [])
    ]
    assert torch.equal(both[0].completions, both[1].completions)
    assert torch.equal(both[0].logp, both[1].logp)
    for samples in both:
        assert torch.equal(samples.mask, completion_mask(samples.completions, 0))
        assert torch.equal(samples.truncated, (samples.completions != 0).all(-1))


def test_the_budget_may_end_inside_a_reply():
    short = recipe(config=dataclasses.replace(CONFIG, max_new_tokens=3), task=get_task("ledger:2"))
    asks = tiny_llama(len(VOCABULARY), width=16, layers=1, heads=2, max_length=64)
    wanted = VOCABULARY.encode("?a")

    def always_asks(policy, prompts, prompt_mask, *, reply, **options):
        rows = len(prompts) * options["group_size"]
        ids = torch.tensor([[*wanted, reply(row, wanted)[0]] for row in range(rows)])
        mask = torch.tensor([[1.0, 1.0, 0.0]] * rows)
        return Samples(ids, -mask, mask, torch.ones(rows, dtype=torch.bool))

    problems = short.task.problems("train", 2, seed=0)
    written = roll_out(asks, VOCABULARY, problems, dataclasses.replace(short, sample=always_asks), group_size=2)
    assert [short.task.replies(text, written.problems[0]) for text in written.texts[:2]] == [[(2, 3)]] * 2


# ---- imitation -------------------------------------------------------------------------------------------------------


def test_imitation_leaves_replies_out_of_its_loss():
    rows = teacher_rows(LEDGER, VOCABULARY, 1, 64, seed=0)
    assert all(isinstance(row, ReplyRow) for row in rows)
    assert any(row.replies for row in rows)
    total = count = 0.0
    for row in rows:
        ids = torch.tensor([[*VOCABULARY.encode(row.completion), 0]])
        prompt = torch.tensor([VOCABULARY.encode(row.prompt)])
        logp = policy_logits(POLICY, prompt, torch.ones_like(prompt), ids).log_softmax(-1)
        logp = logp.gather(-1, ids[..., None])[0, :, 0]
        own = [place for place in range(ids.shape[1]) if not any(a <= place < b for a, b in row.replies)]
        total, count = total + float(logp[own].sum().detach()), count + len(own)
    loss = completion_loss(POLICY, VOCABULARY, rows)
    torch.testing.assert_close(loss.detach(), torch.tensor(-total / count), atol=1e-5, rtol=0)
    with_replies = supervised_loss(POLICY, VOCABULARY, [r.prompt for r in rows], [r.completion for r in rows])
    assert abs(float((loss - with_replies).detach())) > 0.05


def test_a_token_of_several_characters_is_left_out_whole():
    class Pairs(Vocabulary):
        """Two characters a token."""

        def encode(self, text):
            text += ":" * (len(text) % 2)
            return [1 + (ord(text[i]) * 7 + ord(text[i + 1])) % 8 for i in range(0, len(text), 2)]

        def token_of(self, ids, end):
            return (end - 1) // 2

    seen = {}
    spied = Pairs(LEDGER.alphabet)
    policy = tiny_llama(len(spied), width=16, layers=1, heads=2, max_length=64)
    for name, replies in (("none", ()), ("one", [[(2, 3)]])):
        seen[name] = float(supervised_loss(policy, spied, ["a+b:"], ["?k4=40"], replies).detach())
    ids = spied.encode("?k4=40") + [0]
    prompt = torch.tensor([spied.encode("a+b:")])
    logp = policy_logits(policy, prompt, torch.ones_like(prompt), torch.tensor([ids])).log_softmax(-1)[0]
    each = [float(logp[t, token].detach()) for t, token in enumerate(ids)]
    assert seen["none"] == pytest.approx(-sum(each) / 4, abs=1e-5)
    assert seen["one"] == pytest.approx(-(each[0] + each[2] + each[3]) / 3, abs=1e-5)  # "4=" holds the reply


# ---- every other way of sampling -------------------------------------------------------------------------------------


def test_the_compiled_sampler_hears_replies():
    def uncompiled(*args, **options):
        return sample_compiled(*args, compiled=False, **options)

    usual = roll_out(POLICY, VOCABULARY, PROBLEMS, recipe(), temperature=0.0)
    other = roll_out(POLICY, VOCABULARY, PROBLEMS, recipe(sample=uncompiled), temperature=0.0)
    assert usual.texts == other.texts
    assert torch.equal(usual.mask, other.mask)
    assert (usual.mask == 0).any()


def test_a_resumed_run_hears_the_same():
    plan = recipe(reward=paid_per_call(calculate=0.1))
    whole = Learner.begin(copy.deepcopy(POLICY), VOCABULARY, plan.algorithm, plan.config)
    heard = []
    for _ in range(2):
        train_step(whole, plan, on_rollout=lambda step, out: heard.append(out.texts))
    first = Learner.begin(copy.deepcopy(POLICY), VOCABULARY, plan.algorithm, plan.config)
    train_step(first, plan)
    resumed = Learner.begin(copy.deepcopy(POLICY), VOCABULARY, plan.algorithm, plan.config)
    resumed.policy.load_state_dict(first.policy.state_dict())
    resumed.optimizer.load_state_dict(first.optimizer.state_dict())
    resumed.step = first.step
    again = []
    train_step(resumed, plan, on_rollout=lambda step, out: again.append(out.texts))
    assert again == heard[1:]


def test_votes_count_final_answers_of_completions_with_replies():
    found = evaluate_votes(POLICY, VOCABULARY, recipe(), samples=4, n=20)
    assert (found.samples.mask == 0).any()
    assert 0 <= found.majority[4].share <= 1


@pytest.mark.parametrize("of", ["prefix", "force", "rows", "pairs", "chat"])
def test_what_cannot_hear_replies_refuses_in_one_line(of):
    plan = recipe()
    told = TokenizerVocabulary(character_tokenizer(LEDGER.alphabet))
    attempts = {
        "prefix": lambda: roll_out_from_prefixes(POLICY, VOCABULARY, PROBLEMS[:1], plan, prefixes=[[1]]),
        "force": lambda: force(POLICY, VOCABULARY, PROBLEMS[:8], plan, at=1, text="=", group_size=2),
        "rows": lambda: sample_completions(POLICY, VOCABULARY, plan, problems=2),
        "pairs": lambda: sample_pairs(POLICY, VOCABULARY, LEDGER, 2),
        "chat": lambda: roll_out(POLICY, told, PROBLEMS[:1], plan),
    }
    with pytest.raises(ValueError, match=r"repl|answers after a character") as caught:
        attempts[of]()
    assert "\n" not in str(caught.value)


# ---- the task --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ledger", "ledger:2"])
def test_what_the_teacher_writes_is_what_the_environment_would_have_said(name):
    task, rng, seen = get_task(name), random.Random(0), set()
    for problem in task.problems("train", 400, seed=1):
        text = task.teacher(problem, rng)
        for first, end in task.replies(text, problem):
            assert text[first:end] == task.reply(text[:first], problem)
        used = calls(text)
        seen.add((used["?"], used["!"]))
        assert len(task.replies(text, problem)) == sum(used.values())
        assert len(text) < task.max_new_tokens
        if used["!"]:
            assert task.verify(text, problem) == 1.0
    assert seen == {(0, 0), (1, 0), (2, 0), (2, 1)}


def test_the_answer_stands_behind_the_first_equals_sign_and_is_nowhere_else():
    problem = Problem("a+b:", "11", tuple([4, 7] + [0] * 24))
    assert LEDGER.verify("?a4?b7!4711=11", problem) == 1.0
    assert LEDGER.verify("?a4?b7!4711", problem) == 0.0
    assert LEDGER.verify("!4711=01=11", problem) == 0.0
    assert LEDGER.reply("=?a", problem) is None
    assert LEDGER.reply("?a4?b", problem) == "7"
    assert get_task("ledger:2").reply("!4799", Problem("a+b:", "", (0,) * 26)) == "641"


def test_prices_are_taken_off_for_calls_before_the_answer():
    problem = Problem("a+b:", "11", (4, 7))
    reward = paid_per_call(ask=0.2, calculate=0.1)
    assert reward(["?a4?b7!4711=11", "=11", "?a4=?b"], problem=[problem] * 3) == pytest.approx([0.5, 1.0, -0.2])


def test_a_prompt_of_ones_own_has_no_ledger():
    with pytest.raises(ValueError, match="has no ledger behind it"):
        LEDGER.reply("?k", Problem("k+q:", ""))
    with pytest.raises(ValueError, match="choose ledger or ledger:2"):
        get_task("ledger:3")


class TwoOfThem(Several):
    """The first of two processes; what the other would send is a copy of its own share."""

    def all_gather_object(self, own):
        return [own, own]


def test_several_processes_hear_the_replies_of_their_own_share():
    write = functools.partial(roll_out, POLICY, VOCABULARY, recipe=recipe())
    together = TwoOfThem(0, 2).roll_out(write, PROBLEMS, group_size=2, seed="s")
    alone = roll_out(POLICY, VOCABULARY, PROBLEMS[:12], recipe(), group_size=2, seed="s/process 0")
    assert (alone.mask[:, :-1] == 0).any()
    assert torch.equal(together.mask, alone.mask.repeat(2, 1))
    assert together.texts == alone.texts * 2
