"""What a model reads before it answers: the same in training as in sampling, for every kind of tokenizer.

A row holds the text of its prompt as the model reads it, with chat template and instruction. When it is encoded, only
the beginning-of-text token is put before it, where the tokenizer writes one.
"""

import json
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import pytest
import torch
from tokenizers.processors import TemplateProcessing

from rlhf_minimal import ALGORITHMS
from rlhf_minimal.cli import main
from rlhf_minimal.config import Config
from rlhf_minimal.fit import FitConfig, imitate, language_loss, supervised_loss, teacher_rows
from rlhf_minimal.lab.process_reward import StepScorer, sample_steps, scored_steps, weigh_steps
from rlhf_minimal.lab.rows import StepRow, TextRow, read_rows
from rlhf_minimal.lab.sampled_rows import sample_pairs, write_completions
from rlhf_minimal.lab.train_pairs import encode_pairs
from rlhf_minimal.models import RewardModel, TokenizerVocabulary, load_pretrained, tiny_llama
from rlhf_minimal.tasks import CompletionRow, PairRow, Problem, get_task, model_reward
from rlhf_minimal.train import Recipe, roll_out
from tests.chat_model import tokenizer

INSTRUCTION = "Answer with the number only."
BEGIN = "<|endoftext|>"


def with_beginning():
    """The tokenizer of a base model that begins every text with a token."""
    own = tokenizer(template=None, bos_token=BEGIN)
    own.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{BEGIN} $A", special_tokens=[(BEGIN, own.bos_token_id)]
    )
    return own


KINDS = {
    "base": TokenizerVocabulary(tokenizer(template=None)),
    "base that begins": TokenizerVocabulary(with_beginning()),
    "chat": TokenizerVocabulary(tokenizer()),
}
every_kind = pytest.mark.parametrize("vocabulary", KINDS.values(), ids=KINDS)

EVEN = replace(get_task("even"), instruction=INSTRUCTION, teacher=lambda problem, rng: "2")


def mark_steps(text, problem):
    return [(end, 1.0) for end in range(1, len(text) + 1, 2)]


MARKED = replace(EVEN, steps=mark_steps)


def model_of(vocabulary):
    return tiny_llama(len(vocabulary), width=16, heads=2, max_length=128)


@contextmanager
def reading(model):
    """What the model reads in its first forward: the ids of every row, without padding."""
    seen = []

    def note(module, args, named):
        if not seen:
            ids, mask = named["input_ids"], named["attention_mask"]
            seen.extend(row[kept != 0].tolist() for row, kept in zip(ids, mask, strict=True))

    hook = model.base_model.register_forward_pre_hook(note, with_kwargs=True)
    try:
        yield seen
    finally:
        hook.remove()


def beginnings(vocabulary, problems, task=EVEN):
    """What `roll_out` asks."""
    policy, recipe = model_of(vocabulary), Recipe(ALGORITHMS["grpo"], task, Config(max_new_tokens=1))
    with reading(policy) as seen:
        roll_out(policy, vocabulary, problems, recipe)
    return seen


def check(seen, expected):
    """Each row begins with what the sampler asks, and with nothing twice."""
    assert len(seen) == len(expected)
    for ids, asked in zip(seen, expected, strict=True):
        assert ids[: len(asked)] == asked
        assert ids[len(asked) : 2 * len(asked)] != asked


@every_kind
def test_fine_tuning_reads_what_the_sampler_reads(vocabulary):
    policy = model_of(vocabulary)
    problems = EVEN.problems("train", 4, seed="imitate/0/1")
    expected = beginnings(vocabulary, problems)
    rows = teacher_rows(EVEN, vocabulary, 1, 4, 0)
    with reading(policy) as seen:
        supervised_loss(policy, vocabulary, [row.prompt for row in rows], [row.completion for row in rows])
    check(seen, expected)
    with reading(policy) as seen:
        imitate(policy, vocabulary, EVEN, FitConfig(steps=1, batch_size=4))
    check(seen, expected)


@every_kind
def test_a_conversation_in_a_file_gets_its_template_once(vocabulary):
    policy, problems = model_of(vocabulary), [Problem("12:", "2")]
    asked = {"role": "user", "content": "12:"}
    said, other = ({"role": "assistant", "content": text} for text in ("2", "3"))
    plain = replace(EVEN, instruction="")
    expected = beginnings(vocabulary, problems, plain)
    read = partial(read_rows, vocabulary=vocabulary, max_length=128)
    (row,) = read([{"messages": [asked, said]}], CompletionRow)
    with reading(policy) as seen:
        supervised_loss(policy, vocabulary, [row.prompt], [row.completion])
    check(seen, expected)
    pairs = read([{"prompt": [asked], "chosen": [said], "rejected": [other]}], PairRow)
    assert encode_pairs(pairs, vocabulary)[0].prompt == expected[0]
    reward_model = RewardModel.from_policy(policy, vocabulary)
    with reading(reward_model.model) as seen:
        reward_model.score([pairs[0].prompt], [pairs[0].chosen])
    check(seen, expected)
    (steps,) = read([{"prompt": [asked], "completion": [said], "steps": [[1, 1.0]]}], StepRow)
    for head in ("ratio", "scalar"):
        scorer = StepScorer.from_policy(policy, vocabulary, head)
        with reading(scorer.model) as seen:
            scorer.logits([steps])
        check(seen, expected)


@every_kind
def test_pairs_are_asked_as_the_sampler_asks_and_say_so(vocabulary):
    policy = model_of(vocabulary)
    problems = EVEN.problems("train", 6, seed="pairs/train/0/0")
    expected = beginnings(vocabulary, problems)
    with reading(policy) as seen:
        rows = sample_pairs(policy, vocabulary, EVEN, 1, batch_size=6)
    assert seen == expected
    texts = [vocabulary.prompt_text(problem.prompt, system=INSTRUCTION) for problem in problems]
    assert rows[0].prompt in texts
    assert encode_pairs(rows, vocabulary)[0].prompt == expected[texts.index(rows[0].prompt)]
    with reading(policy) as seen:
        write_completions(policy, vocabulary, ["12:"], group_size=1, max_new_tokens=1, seed="", system=INSTRUCTION)
    assert seen == beginnings(vocabulary, [Problem("12:", "")])


@every_kind
def test_a_scorer_of_steps_reads_what_the_policy_read(vocabulary):
    policy = model_of(vocabulary)
    recipe = Recipe(ALGORITHMS["grpo"], MARKED)
    rows = sample_steps(policy, vocabulary, recipe, 3, labels="program")
    problems = MARKED.problems("train", 3, seed="steps/0")
    expected = beginnings(vocabulary, problems)
    scorer = StepScorer.from_policy(policy, vocabulary)
    with reading(scorer.model) as seen:
        scorer.logits(rows)
    check(seen, expected[: len(seen)])
    columns = {"prompts": [problem.prompt for problem in problems], "completions": ["24"] * 3, "problem": problems}
    for use in (scored_steps(scorer, MARKED), weigh_steps(scorer, MARKED)):
        with reading(scorer.model) as seen:
            use(**columns)
        check(seen, expected)


@every_kind
def test_a_reward_model_reads_what_the_policy_read(vocabulary):
    reward_model = RewardModel.from_policy(model_of(vocabulary), vocabulary)
    reward = model_reward(reward_model, partial(vocabulary.prompt_text, system=INSTRUCTION))
    with reading(reward_model.model) as seen:
        reward(prompts=["12:", "345:"], completions=["2", "4"])
    check(seen, beginnings(vocabulary, [Problem("12:", ""), Problem("345:", "")]))
    with reading(reward_model.model) as seen:
        model_reward(reward_model)(prompts=["12:"], completions=["2"])
    assert seen[0][: len(vocabulary.encode_prompt("12:"))] == vocabulary.encode_prompt("12:")


def test_texts_begin_with_the_token_that_begins_texts():
    vocabulary = KINDS["base that begins"]
    begin, policy = vocabulary.tokenizer.bos_token_id, model_of(vocabulary)
    with reading(policy) as seen:
        loss = language_loss(policy, vocabulary, ["12:"])
    assert seen[0] == [begin, *vocabulary.encode("12:"), vocabulary.eos_id]
    ids = torch.tensor(seen)
    logp = torch.log_softmax(policy(ids).logits[0, :-1], -1)
    by_hand = -logp.gather(-1, ids[0, 1:, None]).mean()  # the first letter counts: the beginning stands before it
    assert loss.item() == pytest.approx(by_hand.item(), rel=1e-5)


def test_the_beginning_is_written_once_and_only_at_the_beginning():
    vocabulary = KINDS["base that begins"]
    begin = vocabulary.tokenizer.bos_token_id
    assert vocabulary.encode_beginning("12:") == [begin, *vocabulary.encode("12:")]
    assert vocabulary.encode_beginning(f"{BEGIN}12:") == [begin, *vocabulary.encode("12:")]
    assert vocabulary.encode("12:")[0] != begin
    for other in (KINDS["base"], KINDS["chat"], TokenizerVocabulary(with_beginning(), chat=False)):
        assert other.encode_prompt("12:") == other.encode_beginning(other.prompt_text("12:"))


def test_the_beginning_counts_towards_the_length_of_a_row():
    vocabulary = KINDS["base that begins"]
    long = len(vocabulary.encode("12:")) + len(vocabulary.encode("2")) + 2  # the beginning and the end
    for kind, raw in ((CompletionRow, {"prompt": "12:", "completion": "2"}), (TextRow, {"text": "12:2"})):
        assert read_rows([raw], kind, vocabulary, max_length=long)
        with pytest.raises(ValueError, match=f"row 1: {long} tokens in"):
            read_rows([raw], kind, vocabulary, max_length=long - 1)


# --- the commands --------------------------------------------------------------------------------------------------


def test_the_commands_train_a_chat_model_on_what_it_will_be_asked(chat_model, tmp_path, monkeypatch):
    """`sft`, `prefer` and `reward` write rows with the template; `train` asks their reward model in the same words."""
    monkeypatch.chdir(tmp_path)
    vocabulary = load_pretrained(str(chat_model))[1]
    few = ["--model", str(chat_model), "--steps", "1", "--batch-size", "4", "--rows", "8", "--held-out", "4"]
    before, after = vocabulary.prompt_text("?").split("?")
    for command in (["sft", "--task", "addition2"], ["prefer", "dpo", "--task", "addition2"], ["reward"]):
        assert main([*command, *few, "--out", command[0]]) == 0
        prompts = [json.loads(line)["prompt"] for line in (tmp_path / command[0] / "rows.jsonl").open()]
        assert all(prompt.startswith(before) and prompt.endswith(after) for prompt in prompts)
        assert all(prompt.count(before) == 1 for prompt in prompts)

    asked, score = [], RewardModel.score

    def note(self, prompts, completions):
        asked.extend(prompts)
        return score(self, prompts, completions)

    monkeypatch.setattr(RewardModel, "score", note)
    tiny = ["--prompts", "2", "--group-size", "2", "--steps", "1", "--max-new-tokens", "4", "--held-out", "4"]
    train = ["train", "grpo", "--model", str(chat_model), "--task", "reviews", "--reward-model", "reward"]
    assert main([*train, *tiny, "--system", INSTRUCTION, "--out", "run"]) == 0
    assert asked
    assert all(prompt.startswith(vocabulary.prompt_text("", system=INSTRUCTION).split(after)[0]) for prompt in asked)
