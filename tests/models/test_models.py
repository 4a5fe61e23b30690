"""Policies, critic and vocabulary: what padding may not change, what the future may not reach."""

import json

import pytest
import torch

from rlhf_minimal.models import (
    Critic,
    TokenizerVocabulary,
    Vocabulary,
    critic_values,
    load_pretrained,
    policy_logits,
    positions,
    save_policy,
    tiny_llama,
)
from rlhf_minimal.runs import save_learner


def test_vocabulary_reads_back_what_it_wrote():
    vocabulary = Vocabulary("0123456789+=")
    assert vocabulary.decode(vocabulary.encode("12+34=")) == "12+34="
    assert len({*vocabulary.encode("0123456789+="), vocabulary.eos_id}) == len(vocabulary) == 13


@pytest.mark.parametrize("alphabet", ["", "abca"])
def test_vocabulary_refuses_an_alphabet_it_could_not_read_back(alphabet):
    with pytest.raises(ValueError, match="alphabet"):
        Vocabulary(alphabet)


def test_vocabulary_names_the_character_it_does_not_have():
    with pytest.raises(ValueError, match="characters x of .* alphabet ab;"):
        Vocabulary("ab").encode("abx")


def test_tiny_llama_is_small_seeded_and_leaves_the_global_generator_alone():
    before = torch.random.get_rng_state()
    first, again, other = tiny_llama(13, seed=3), tiny_llama(13, seed=3), tiny_llama(13, seed=4)
    assert torch.equal(before, torch.random.get_rng_state())
    assert sum(p.numel() for p in first.parameters()) < 1_000_000
    pairs = list(zip(first.parameters(), again.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b in pairs)
    assert any(not torch.equal(a, b) for a, b in zip(first.parameters(), other.parameters(), strict=True))


def test_tiny_llama_refuses_a_width_that_rotary_positions_cannot_halve():
    with pytest.raises(ValueError, match="multiple of 2 x heads"):
        tiny_llama(13, width=36, heads=4)


@pytest.fixture
def policy():
    return tiny_llama(7, width=16, heads=2, seed=1)


def test_positions_start_at_the_first_real_token():
    assert positions(torch.tensor([[0, 1, 1], [1, 1, 1]])).tolist() == [[0, 0, 1], [0, 1, 2]]


@pytest.mark.parametrize("reader", ["policy", "critic"])
def test_padding_on_either_side_changes_nothing(policy, reader):
    critic = Critic(policy)
    torch.nn.init.normal_(critic.head.weight)

    def read(prompts, mask, completions):
        with torch.no_grad():
            if reader == "policy":
                return policy_logits(policy, prompts, mask, completions)
            return critic_values(critic, prompts, mask, completions)

    prompts, completions = torch.tensor([[2, 3, 4]]), torch.tensor([[5, 1]])
    bare = read(prompts, torch.ones(1, 3, dtype=torch.long), completions)
    padded = read(torch.tensor([[6, 6, 2, 3, 4]]), torch.tensor([[0, 0, 1, 1, 1]]), torch.tensor([[5, 1, 6, 6]]))
    torch.testing.assert_close(padded[:, :2], bare, rtol=1e-5, atol=1e-5)


def test_a_prediction_sees_the_past_and_never_its_own_token(policy):
    critic = Critic(policy)
    torch.nn.init.normal_(critic.head.weight)
    prompts, mask = torch.tensor([[2, 3]]), torch.ones(1, 2, dtype=torch.long)
    one, two = torch.tensor([[4, 5, 1]]), torch.tensor([[4, 6, 2]])  # they part at token 1
    for read in (
        lambda c: policy_logits(policy, prompts, mask, c),
        lambda c: critic_values(critic, prompts, mask, c).unsqueeze(-1),
    ):
        a, b = read(one), read(two)
        torch.testing.assert_close(a[:, :2], b[:, :2])  # tokens 0 and 1 were predicted from the same past
        assert not torch.allclose(a[:, 2], b[:, 2])


def test_the_critic_expects_nothing_at_first_and_shares_nothing_with_the_policy(policy):
    critic = Critic(policy)
    prompts, mask, completions = torch.tensor([[2, 3]]), torch.ones(1, 2, dtype=torch.long), torch.tensor([[4, 5]])
    values = critic_values(critic, prompts, mask, completions)
    assert torch.equal(values, torch.zeros(1, 2))
    ((values - 1) ** 2).sum().backward()
    assert critic.head.bias.grad is not None
    assert all(p.grad is None for p in policy.parameters())


def test_a_real_checkpoint_with_a_tokenizer_loads(tmp_path, policy):
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Split
    from transformers import PreTrainedTokenizerFast

    words = {"<end>": 0} | {character: i for i, character in enumerate("abcdef", start=1)}
    backend = Tokenizer(WordLevel(words, unk_token="a"))
    backend.pre_tokenizer = Split("", "isolated")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<end>")
    save_policy(tmp_path, policy, TokenizerVocabulary(tokenizer))

    model, vocabulary = load_pretrained(str(tmp_path))
    assert vocabulary.encode("fad") == [6, 1, 4]
    assert vocabulary.eos_id == vocabulary.pad_id == 0
    assert vocabulary.decode([6, 1, 4, 0, 5]).replace(" ", "") == "fad"
    ids = torch.tensor([[1, 2]])
    torch.testing.assert_close(model(ids).logits, policy(ids).logits)
    assert next(model.parameters()).dtype == torch.float32


def test_a_model_with_a_tokenizer_trains_and_comes_back(tmp_path, policy):
    """The loop does not care whether a character vocabulary or a tokenizer speaks for the model."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Split
    from transformers import PreTrainedTokenizerFast

    from rlhf_minimal import ALGORITHMS
    from rlhf_minimal.config import Config
    from rlhf_minimal.tasks import get_task
    from rlhf_minimal.train import Recipe, train
    from rlhf_minimal.train_state import Learner
    from rlhf_minimal.training import load_policy

    words = {"<end>": 0} | {character: i for i, character in enumerate("0123456789:", start=1)}
    backend = Tokenizer(WordLevel(words, unk_token=":"))
    backend.pre_tokenizer = Split("", "isolated")
    vocabulary = TokenizerVocabulary(PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<end>"))
    recipe = Recipe(ALGORITHMS["grpo"], get_task("even"), Config(steps=1, prompts=4, group_size=4))
    learner = Learner.begin(tiny_llama(12, width=16, heads=2), vocabulary, recipe.algorithm, recipe.config)
    train(learner, recipe)
    save_learner(learner, tmp_path / "checkpoint", {})
    loaded, again = load_policy(tmp_path)
    assert again.encode("12:") == vocabulary.encode("12:") == [2, 3, 11]
    ids = torch.tensor([[2, 3, 11]])
    assert torch.equal(loaded(ids).logits, learner.policy(ids).logits)


def test_a_model_that_is_not_there_is_one_clear_line(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    with pytest.raises(ValueError, match="cannot load the model") as error:
        load_pretrained(str(tmp_path))
    assert "\n" not in str(error.value)


def test_a_tokenizer_that_cannot_end_an_answer_is_refused():
    class Endless:
        eos_token_id = None

    with pytest.raises(ValueError, match="end-of-sequence"):
        TokenizerVocabulary(Endless())
