"""The reward model: a language model's body with a head that gives one number, at the last token of the answer."""

import copy
from collections.abc import Sequence
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import AutoModelForSequenceClassification, PreTrainedModel

from rlhf_minimal.models.folder import load_model, save_vocabulary
from rlhf_minimal.models.forward import positions
from rlhf_minimal.models.vocabulary import AnyVocabulary
from rlhf_minimal.models.weights import check_loaded, check_numbers, check_place


def sequence_scores(
    model: PreTrainedModel, ids: Int[Tensor, "B L"], attention_mask: Int[Tensor, "B L"]
) -> Float[Tensor, " B"]:
    """The score of every sequence, taken at its last real token.

    The position of that token comes from the mask, never from the ids. The `forward` of transformers takes the last id
    that is not padding. If padding and end token share an id, as they often do, it would skip the end token and take
    the token before it. So the model's config has no padding token: transformers then refuses a batch instead of
    taking the wrong position, and for a single row it gives the same score as this function.

    Chapter: reward-models. Paper: arXiv 2203.02155, section 3.5 (the reward model is a language model "with the final
    unembedding layer removed", which gives a scalar).

    Args:
        model: A sequence-classification model of transformers with one label (its head is called `score`).
        ids: [B, L] tokens, padded on either side.
        attention_mask: [B, L], 1 for real tokens, 0 for padding.

    Returns:
        [B] scores, with gradient, in the units of the head.
    """
    hidden = model.base_model(
        input_ids=ids, attention_mask=attention_mask, position_ids=positions(attention_mask), use_cache=False
    ).last_hidden_state  # [B, L, H]
    last = (attention_mask * torch.arange(ids.shape[1], device=ids.device)).argmax(-1)  # [B]
    at_the_end = hidden[torch.arange(len(ids), device=ids.device), last]  # [B, H]
    return model.score(at_the_end).squeeze(-1)  # type: ignore[operator]


class RewardModel:
    """A model of people's preferences: it reads a prompt and an answer and gives the answer a score.

    A single score has no meaning: only differences between answers to the same prompt were learnt. But a KL coefficient
    depends on the scale of scores, and a value function on their level. So `normalize` shifts and scales them to mean 0
    and standard deviation 1 on given answers. InstructGPT shifted them by a bias before PPO. The two numbers are saved
    in the model's config.

    Chapter: reward-models. Paper: arXiv 2203.02155, section 3.5.

    Args:
        model: A sequence-classification model of transformers with one label.
        vocabulary: Its vocabulary, which must be the policy's (see `check_same_vocabulary`).

    Raises:
        ValueError: If the model has more than one label, or no head called `score`.

    Example:
        >>> from rlhf_minimal.models import Vocabulary, tiny_llama
        >>> vocabulary = Vocabulary("abc:")
        >>> reward_model = RewardModel.from_policy(tiny_llama(5, width=32, heads=2), vocabulary)
        >>> reward_model.score(["a:", "b:"], ["cab", ""]).shape
        torch.Size([2])
    """

    def __init__(self, model: PreTrainedModel, vocabulary: AnyVocabulary):
        if model.config.num_labels != 1 or not hasattr(model, "score"):
            raise ValueError(
                f"a reward model has one label and a head called score; got {type(model).__name__} with "
                f"{model.config.num_labels} labels"
            )
        self.model = model
        self.vocabulary = vocabulary

    @classmethod
    def from_policy(cls, policy: PreTrainedModel, vocabulary: AnyVocabulary, *, seed: int = 0) -> "RewardModel":
        """A reward model with a copy of the policy's body and a new head.

        The head starts small, as in Stiennon et al. (arXiv 2009.01325): normal, with variance 1 / (width + 1).

        Args:
            policy: A causal language model, usually the supervised one; it is copied, not shared.
            vocabulary: Its vocabulary.
            seed: Seed of the head's random weights.
        """
        config = copy.deepcopy(policy.config)
        # no padding id: with it, transformers may take the scores of a batch at the wrong position (sequence_scores)
        config.num_labels, config.pad_token_id, config.architectures = 1, None, None
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = AutoModelForSequenceClassification.from_config(config)
            torch.nn.init.normal_(model.score.weight, std=(config.get_text_config().hidden_size + 1) ** -0.5)
        model.base_model.load_state_dict(policy.base_model.state_dict())
        return cls(model.to(policy.device).eval(), vocabulary)

    @property
    def mean(self) -> float:
        """The number that is subtracted from a raw score; 0 unless the model is normalised."""
        return float(getattr(self.model.config, "score_mean", 0.0))

    @property
    def std(self) -> float:
        """The number by which a raw score is divided; 1 unless the model is normalised."""
        return float(getattr(self.model.config, "score_std", 1.0))

    @torch.no_grad()
    def score(self, prompts: Sequence[str], completions: Sequence[str]) -> Float[Tensor, " B"]:
        """The score of each answer. It does not depend on the other answers in the batch.

        Args:
            prompts: B texts, none of them empty, as the model reads them: of a chat model, with its template. Only the
                beginning-of-text token is put before them, if the tokenizer writes one.
            completions: B answers without their end token, which is added here; an empty answer is legal.

        Returns:
            [B] scores on the model's device, normalised if the model is.

        Raises:
            ValueError: If the lists differ in length, a prompt is empty, a text does not fit the vocabulary or the
                context, or a score is not a number.
        """
        if len(prompts) != len(completions):
            raise ValueError(f"one completion per prompt: got {len(prompts)} prompts, {len(completions)} completions")
        chunks = [self.raw_scores(prompts[i : i + 512], completions[i : i + 512]) for i in range(0, len(prompts), 512)]
        if not chunks:
            return torch.zeros(0, device=self.model.device)
        scores = (torch.cat(chunks) - self.mean) / self.std
        if not scores.isfinite().all():
            row = int((~scores.isfinite()).nonzero()[0])
            raise ValueError(
                f"the reward model scores row {row + 1} ({prompts[row]!r}, {completions[row]!r}) with "
                f"{scores[row].item()}: its training has gone wrong; train it again with a lower learning rate"
            )
        return scores

    def raw_scores(self, prompts: Sequence[str], completions: Sequence[str]) -> Float[Tensor, " B"]:
        """The scores before normalisation, with gradient, as the loss needs them."""
        rows = []
        limit = self.model.config.get_text_config().max_position_embeddings
        for number, (prompt, completion) in enumerate(zip(prompts, completions, strict=True), start=1):
            if not prompt:
                raise ValueError(f"row {number}: the prompt is empty; give the prompt that the completion answers")
            asked, answered = self.vocabulary.encode_beginning(prompt), self.vocabulary.encode(completion)
            rows.append([*asked, *answered, self.vocabulary.eos_id])
            if len(rows[-1]) > limit:
                raise ValueError(
                    f"row {number}: prompt and completion take {len(rows[-1])} tokens, and the reward model reads at "
                    f"most {limit}; shorten one of them"
                )
        lengths = torch.tensor([len(row) for row in rows])
        width = int(lengths.max())
        ids = torch.tensor([row + [self.vocabulary.pad_id] * (width - len(row)) for row in rows])
        mask = (torch.arange(width) < lengths[:, None]).long()  # [B, L], from lengths, so it includes the end token
        return sequence_scores(self.model, ids.to(self.model.device), mask.to(self.model.device))

    def normalize(self, prompts: Sequence[str], completions: Sequence[str]) -> None:
        """Shifts and scales all scores so that those of the given answers have mean 0 and standard deviation 1.

        Args:
            prompts: At least two texts.
            completions: Their answers, usually samples of the policy with which RL training will begin.

        Raises:
            ValueError: If there are fewer than two, or all have the same score.
        """
        self.model.config.score_mean, self.model.config.score_std = 0.0, 1.0
        scores = self.score(prompts, completions).double()
        if len(scores) < 2 or not scores.std() > 0:
            raise ValueError(f"to normalise, give at least two answers with different scores; got {len(scores)}")
        self.model.config.score_mean, self.model.config.score_std = scores.mean().item(), scores.std().item()

    def to(self, device: str | torch.device) -> "RewardModel":
        """Moves the model; returns itself."""
        self.model.to(device)  # type: ignore[arg-type]
        return self

    def save(self, folder: Path) -> None:
        """Writes config.json, model.safetensors and the vocabulary into an existing folder."""
        self.model.save_pretrained(folder)
        save_vocabulary(folder, self.vocabulary)


def load_reward_model(folder: str | Path, *, of_steps: bool = False) -> RewardModel:
    """Loads a reward model, in float32 on the CPU.

    Args:
        folder: What `RewardModel.save` wrote, or a run folder that holds it under `checkpoint/`.
        of_steps: Whether it is part of a step scorer (`load_step_scorer`), which is refused otherwise.

    Raises:
        ValueError: If it is missing, damaged, or not a reward model; the message says in one line which file and why.
            If a weight is missing, unknown, of another shape, not floating-point or stored in a pickle.
    """
    return RewardModel(*load_model(_read_reward_model, folder, of_steps=of_steps))


def _read_reward_model(folder: Path) -> PreTrainedModel:
    check_place(folder)
    # The files are transformers' own, whose names may differ from those in memory (a mixture of experts has one name
    # for each expert in the file). So transformers reads them, and what it only warns of is an error here.
    with torch.random.fork_rng(devices=[]):
        model, loading_info = AutoModelForSequenceClassification.from_pretrained(
            folder,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            dtype=torch.float32,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # check_loaded raises an error that names them
        )
    if model.config.num_labels != 1 or any(name.startswith("score.") for name in loading_info["missing_keys"]):
        raise ValueError(
            "it holds no reward model: there is no score head with one label; make one with "
            "`python -m rlhf_minimal reward`"
        )
    check_loaded(model, loading_info)
    check_numbers(model, folder)
    # In memory, loaded weights are aligned as they were in the file, perhaps badly. Sums over badly aligned numbers run
    # in another order and may differ in the last bit. A resumed run has to repeat every bit, so weights are copied.
    for parameter in model.parameters():
        parameter.data = parameter.data.clone()
    return model
