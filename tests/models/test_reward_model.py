"""The reward model: read at the answer's end whatever is around, a real transformers checkpoint, hard to misuse."""

import json

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForSequenceClassification, AutoTokenizer, MixtralConfig, MixtralForCausalLM

from rlhf_minimal.cli.starts import check_same_vocabulary
from rlhf_minimal.models import (
    RewardModel,
    TokenizerVocabulary,
    Vocabulary,
    _sequence_scores,
    character_tokenizer,
    load_reward_model,
    tiny_llama,
)
from rlhf_minimal.tasks import Problem, model_reward, score_all
from rlhf_minimal.training import load_policy, save_policy, write_folder

VOCABULARY = Vocabulary("abcdef")
PROMPTS = ["ab", "c", "defab"]
ANSWERS = ["cd", "", "e"]


@pytest.fixture
def policy():
    return tiny_llama(7, width=16, heads=2, seed=1)


@pytest.fixture
def reward_model(policy):
    return RewardModel.from_policy(policy, VOCABULARY, seed=2)


def by_hand(reward_model, prompt, answer):
    """One row alone, no padding: the body's last state times the head."""
    ids = torch.tensor([[*VOCABULARY.encode(prompt), *VOCABULARY.encode(answer), 0]])
    hidden = reward_model.model.model(ids).last_hidden_state
    return (hidden[0, -1] @ reward_model.model.score.weight[0]).item()


def test_a_score_is_the_head_at_the_end_token(reward_model):
    expected = [by_hand(reward_model, p, a) for p, a in zip(PROMPTS, ANSWERS, strict=True)]
    assert reward_model.score(PROMPTS, ANSWERS).tolist() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("side", ["left", "right", "both"])
def test_padding_of_any_kind_on_either_side_changes_nothing(reward_model, side):
    """The padding is the end token, an ordinary token, or another: the mask alone says what is real."""
    expected = by_hand(reward_model, "ab", "cd")
    left, right = 3 * (side != "right"), 2 * (side != "left")
    full = torch.ones(left + 5 + right, dtype=torch.long)  # a second row without any padding
    for filler in (0, 3):
        ids = torch.tensor([filler] * left + [*VOCABULARY.encode("abcd"), 0] + [filler] * right)
        mask = torch.tensor([0] * left + [1] * 5 + [0] * right)
        scores = _sequence_scores(reward_model.model, torch.stack([ids, full]), torch.stack([mask, full]))
        assert scores[0].item() == pytest.approx(expected, abs=1e-5)


def test_what_else_is_in_the_batch_does_not_matter(reward_model):
    together = reward_model.score(PROMPTS, ANSWERS)
    alone = torch.cat([reward_model.score([p], [a]) for p, a in zip(PROMPTS, ANSWERS, strict=True)])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-5)
    backwards = reward_model.score(PROMPTS[::-1], ANSWERS[::-1]).flip(0)
    torch.testing.assert_close(together, backwards, rtol=0, atol=1e-5)
    many = reward_model.score(PROMPTS * 400, ANSWERS * 400)  # more than one forward holds
    torch.testing.assert_close(many, together.repeat(400), rtol=0, atol=1e-5)


def test_where_padding_is_the_end_transformers_own_reading_would_miss_the_end(reward_model):
    """Why the config names no padding token: with one, a padded row would be read a token too early, without a word."""
    ids = torch.tensor([[1, 2, 3, 0, 0, 0], [1, 2, 3, 4, 5, 0]])  # "abc" and "abcde" with their ends
    mask = torch.tensor([[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]])
    ours = _sequence_scores(reward_model.model, ids, mask)
    with pytest.raises(ValueError, match="no padding token"):
        reward_model.model(ids, attention_mask=mask)
    reward_model.model.config.pad_token_id = 0
    theirs = reward_model.model(ids, attention_mask=mask).logits[:, 0]
    too_early = _sequence_scores(reward_model.model, ids, torch.tensor([[1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 0]]))
    torch.testing.assert_close(theirs, too_early, rtol=0, atol=1e-5)
    assert (ours - theirs).abs().min() > 1e-3


def test_it_begins_with_the_policys_body_and_shares_nothing_with_it(policy, reward_model):
    body = reward_model.model.base_model.state_dict()
    assert all(torch.equal(value, body[name]) for name, value in policy.base_model.state_dict().items())
    reward_model.raw_scores(PROMPTS, ANSWERS).sum().backward()
    assert all(p.grad is None for p in policy.parameters())
    assert all(p.grad is not None for p in reward_model.model.parameters())
    assert policy.config.num_labels == 2  # transformers' default: the policy's config was copied


def test_the_head_is_seeded_and_small_and_leaves_the_global_generator_alone(policy):
    before = torch.random.get_rng_state()
    one, same, other = (RewardModel.from_policy(policy, VOCABULARY, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(before, torch.random.get_rng_state())
    weights = [m.model.score.weight for m in (one, same, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    wide = RewardModel.from_policy(tiny_llama(7, width=512, layers=1, heads=2), VOCABULARY)
    assert wide.model.score.weight.std().item() == pytest.approx(513**-0.5, rel=0.15)


# --- saved and loaded ----------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, reward_model):
    reward_model.normalize(PROMPTS, ANSWERS)
    write_folder(tmp_path / "checkpoint", reward_model.save)
    return tmp_path / "checkpoint"


def test_it_comes_back_with_its_normalisation(folder, reward_model):
    before = torch.random.get_rng_state()
    loaded = load_reward_model(folder)
    assert torch.equal(before, torch.random.get_rng_state())
    assert torch.equal(loaded.score(PROMPTS, ANSWERS), reward_model.score(PROMPTS, ANSWERS))
    assert (loaded.mean, loaded.std) == (reward_model.mean, reward_model.std)
    assert torch.equal(load_reward_model(folder.parent).score(["a"], ["b"]), reward_model.score(["a"], ["b"]))
    assert not loaded.model.training


def test_transformers_reads_the_folder_without_us(folder, reward_model):
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer("abcd" + tokenizer.eos_token, return_tensors="pt")["input_ids"]
    raw = (model(ids).logits.item() - model.config.score_mean) / model.config.score_std
    assert raw == pytest.approx(reward_model.score(["ab"], ["cd"]).item(), abs=1e-5)
    assert {path.suffix for path in folder.iterdir()} == {".json", ".safetensors"}


def test_a_mixture_of_experts_comes_back_from_a_file_with_other_names(tmp_path):
    """transformers keeps the experts of a layer in one tensor, and writes every expert by itself."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "num_key_value_heads": 2}
    tokens = {"vocab_size": 7, "eos_token_id": 0, "bos_token_id": None, "pad_token_id": None}
    config = MixtralConfig(num_hidden_layers=1, num_local_experts=2, max_position_embeddings=64, **sizes, **tokens)
    reward_model = RewardModel.from_policy(MixtralForCausalLM(config).eval(), VOCABULARY)
    reward_model.save(tmp_path)
    with safe_open(tmp_path / "model.safetensors", framework="pt") as tensors:
        assert set(tensors.keys()) != set(reward_model.model.state_dict())
    assert torch.equal(load_reward_model(tmp_path).score(PROMPTS, ANSWERS), reward_model.score(PROMPTS, ANSWERS))


def test_normalised_scores_have_mean_0_and_deviation_1_and_raw_ones_stay(reward_model):
    raw = reward_model.raw_scores(PROMPTS, ANSWERS).detach()
    assert torch.equal(reward_model.score(PROMPTS, ANSWERS), raw)
    for _ in range(2):  # the second time over does not compound
        reward_model.normalize(PROMPTS, ANSWERS)
    scores = reward_model.score(PROMPTS, ANSWERS)
    assert scores.mean().item() == pytest.approx(0, abs=1e-5)
    assert scores.std().item() == pytest.approx(1, abs=1e-5)
    assert torch.equal(reward_model.raw_scores(PROMPTS, ANSWERS), raw)


@pytest.mark.parametrize(("prompts", "answers"), [(["a"], ["b"]), (["a", "a"], ["b", "b"])])
def test_normalising_needs_answers_that_differ(reward_model, prompts, answers):
    with pytest.raises(ValueError, match="at least two answers with different scores"):
        reward_model.normalize(prompts, answers)


def test_a_policy_is_no_reward_model_and_the_other_way_round(tmp_path, policy, folder):
    write_folder(tmp_path / "policy", lambda new: save_policy(new, policy, VOCABULARY))
    with pytest.raises(ValueError, match="holds no reward model"):
        load_reward_model(tmp_path / "policy")
    with pytest.raises(ValueError, match="holds a reward model, and a policy is needed"):
        load_policy(folder)


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("model.safetensors", lambda path: path.unlink()),
        ("model.safetensors", lambda path: path.write_bytes(path.read_bytes()[:-100])),
        ("model.safetensors", lambda path: path.write_text("no tensor")),
        ("config.json", lambda path: path.write_text("{")),
        ("vocabulary.json", lambda path: path.write_text('{"alphabet": "ab"}')),
        ("vocabulary.json", lambda path: path.write_text("{}")),
    ],
)
def test_a_damaged_folder_is_one_clear_line(folder, file, damage):
    damage(folder / file)
    with pytest.raises(ValueError, match="checkpoint") as error:
        load_reward_model(folder)
    assert "\n" not in str(error.value)


def test_two_labels_are_no_reward(policy):
    config = json.loads(policy.config.to_json_string())
    model = AutoModelForSequenceClassification.from_config(type(policy.config)(**{**config, "num_labels": 2}))
    with pytest.raises(ValueError, match="one label and a head called score"):
        RewardModel(model, VOCABULARY)


# --- errors --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompts", "answers", "message"),
    [
        (["a"], ["b", "c"], "got 1 prompts, 2 completions"),
        (["a", ""], ["b", "c"], "row 2: the prompt is empty"),
        (["a", "b" * 60], ["b", "c" * 10], "row 2: prompt and completion take 71 tokens, and the reward model reads"),
        (["a"], ["xyz"], "characters x, y, z"),
    ],
)
def test_texts_that_cannot_be_scored(reward_model, prompts, answers, message):
    with pytest.raises(ValueError, match=message):
        reward_model.score(prompts, answers)


def test_no_text_has_no_score(reward_model):
    assert reward_model.score([], []).shape == (0,)


def test_a_score_that_is_not_a_number_names_the_row(reward_model):
    with torch.no_grad():
        reward_model.model.base_model.embed_tokens.weight[5] = float("nan")
    with pytest.raises(ValueError, match=r"scores row 2 \('a', 'e'\) with nan: its training has gone wrong"):
        reward_model.score(["a", "a"], ["b", "e"])


def test_another_vocabulary_is_refused():
    same = TokenizerVocabulary(character_tokenizer("abcdef"))
    check_same_vocabulary(VOCABULARY, same)
    check_same_vocabulary(same, VOCABULARY)
    for other in ("abcdeg", "abcde", "abcdfe"):
        with pytest.raises(ValueError, match="the reward model has another vocabulary than the policy"):
            check_same_vocabulary(VOCABULARY, Vocabulary(other))
        with pytest.raises(ValueError, match="differ in 'e', 'f'|differ in 'f', 'g'|differ in 'f'"):
            check_same_vocabulary(same, TokenizerVocabulary(character_tokenizer(other)))


# --- as a reward function, and the tokenizer beside it ---------------------------------------------------------------


def test_as_a_reward_function_it_reads_prompts_and_completions(reward_model):
    problems = [Problem(prompt, "") for prompt in PROMPTS]
    found = score_all(model_reward(reward_model), problems, ANSWERS, step=1)
    assert found.values == reward_model.score(PROMPTS, ANSWERS).tolist()


def test_the_character_tokenizer_is_the_vocabulary(tmp_path):
    alphabet = "0123456789+= ?"
    vocabulary, tokenizer = Vocabulary(alphabet), character_tokenizer(alphabet)
    tokenizer.save_pretrained(tmp_path)
    for one in (tokenizer, AutoTokenizer.from_pretrained(tmp_path)):
        wrapped = TokenizerVocabulary(one)
        assert len(wrapped) == len(vocabulary)
        assert (wrapped.eos_id, wrapped.pad_id) == (vocabulary.eos_id, vocabulary.pad_id)
        for text in ("", "1+2=", " 12  ? ", "?"):
            assert wrapped.encode(text) == vocabulary.encode(text)
            assert wrapped.decode([*vocabulary.encode(text), 0, 5]) == text
        chat = [{"role": "user", "content": "1+1="}, {"role": "assistant", "content": "2"}]
        assert one.apply_chat_template(chat, tokenize=False) == "1+1=2"
    with pytest.raises(ValueError, match="cannot write '1-2'"):
        TokenizerVocabulary(tokenizer).encode("1-2")
