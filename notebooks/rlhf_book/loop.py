"""The whole path from text to gradient, as the chapter `from-zero` builds it: torch, a tiny Llama, nothing else.

Every later chapter shows its method as a change of these lines. A test holds them equal to the chapter's.
"""

import random

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM

# ---- text ----------------------------------------------------------------------------------------------------------

ALPHABET = "$0123456789+="  # a token is a character, its id the place here; "$" ends a completion
END = ALPHABET.index("$")
BUDGET = 5  # tokens of a completion: four digits and the end


def encode(texts: list[str]) -> Tensor:
    """[B, S] ids of texts of one length."""
    return torch.tensor([[ALPHABET.index(character) for character in text] for text in texts])


def decode(ids: Tensor) -> str:
    """The text of [T] ids, up to and including its end."""
    text = "".join(ALPHABET[i] for i in ids.tolist())
    return text.partition("$")[0] + "$" * ("$" in text)


# ---- the task ------------------------------------------------------------------------------------------------------


def make_prompt(rng: random.Random) -> str:
    """A question such as 128+345=."""
    return f"{rng.randrange(1000):03d}+{rng.randrange(1000):03d}="


def right_answer(prompt: str) -> str:
    """The sum, last digit first, so that the carry travels in the direction of writing: 128+345= is 3740$."""
    a, b = prompt[:-1].split("+")
    return f"{int(a) + int(b):04d}"[::-1] + "$"


def teacher(prompt: str, rng: random.Random) -> str:
    """An answer to imitate: one in five is right, in the others every carry is forgotten."""
    if rng.random() < 0.2:
        return right_answer(prompt)
    a, b = prompt[:-1].split("+")
    columns = zip(reversed(a), reversed(b), strict=True)
    return "".join(str((int(x) + int(y)) % 10) for x, y in columns) + "0$"


# ---- the model -----------------------------------------------------------------------------------------------------


def new_model(seed: int) -> LlamaForCausalLM:
    """A Llama with 83 000 weights, at random."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(ALPHABET),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=8,
        max_position_embeddings=64,
        initializer_range=0.12,  # 0.02 is for widths of thousands: so narrow a model would hardly wake up
        rope_parameters={"rope_type": "default", "rope_theta": 100.0},  # positions up to a dozen, not thousands
        tie_word_embeddings=True,
    )
    return LlamaForCausalLM(config)


def imitate(model: LlamaForCausalLM, steps: int = 1300, batch: int = 128, lr: float = 3e-3, seed: int = 0) -> float:
    """Cross-entropy on the teacher's answers; the loss of the last 50 steps, in nats a token."""
    rng = random.Random(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.0)
    losses = []
    for step in range(steps):
        prompts = [make_prompt(rng) for _ in range(batch)]
        ids = encode([prompt + teacher(prompt, rng) for prompt in prompts])  # [B, S + T]
        logits = model(ids).logits[:, -BUDGET - 1 : -1]  # [B, T, V], each reads what stands before its token
        loss = cross_entropy(logits.flatten(0, 1), ids[:, -BUDGET:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = lr * min(1.0, (step + 1) / 50, (steps - step) / steps)
        optimizer.step()
        losses.append(loss.item())
    return sum(losses[-50:]) / 50


# ---- sampling, and the log-probs of what was sampled -----------------------------------------------------------------


@torch.no_grad()
def sample(model: LlamaForCausalLM, prompts: Tensor, *, greedy: bool = False) -> Tensor:
    """[B, S] ids of prompts to [B, T] ids of completions; what stands behind an end is to be masked."""
    ids = prompts
    for _ in range(BUDGET):
        logits = model(ids).logits[:, -1]  # [B, V]
        token = logits.argmax(-1, keepdim=True) if greedy else torch.multinomial(logits.softmax(-1), 1)
        ids = torch.cat([ids, token], dim=1)
    return ids[:, prompts.shape[1] :]


def token_mask(completions: Tensor) -> Tensor:
    """[B, T]: 1.0 up to and including the first end, 0.0 behind it."""
    ended_before = (completions == END).cumsum(-1) - (completions == END).long()
    return (ended_before == 0).float()


def log_probs(model: LlamaForCausalLM, prompts: Tensor, completions: Tensor) -> Tensor:
    """[B, T] log-probability of each token of the completions, with its gradient."""
    ids = torch.cat([prompts, completions], dim=1)  # [B, S + T]
    logits = model(ids).logits[:, prompts.shape[1] - 1 : -1]  # [B, T, V]: the logits at a place are of the next token
    return logits.log_softmax(-1).gather(-1, completions.unsqueeze(-1)).squeeze(-1)


# ---- from rewards to a loss ------------------------------------------------------------------------------------------


def group_advantage(rewards: Tensor) -> Tensor:
    """[P, G] rewards to [P, G] advantages: how much better than its group was each completion?"""
    centred = rewards - rewards.mean(-1, keepdim=True)
    return centred / (rewards.std(-1, keepdim=True) + 1e-4)


def policy_loss(logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """GRPO without a KL term: a scalar to minimise, from [B, T] log-probs, [B] advantages and the [B, T] mask."""
    ratio = torch.exp(logp - old_logp)  # [B, T]
    A = advantages.unsqueeze(-1)
    objective = torch.minimum(ratio * A, ratio.clamp(0.8, 1.2) * A)
    return -((objective * mask).sum(-1) / mask.sum(-1)).mean()


# ---- the loop --------------------------------------------------------------------------------------------------------


def train(model: LlamaForCausalLM, *, steps: int = 60, prompts: int = 16, group: int = 16, lr: float = 8e-4,
          updates: int = 1, seed: int = 0, coin: bool = False) -> list[float]:
    """Steps of reinforcement learning; the share of right completions in each step."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.0)
    history = []
    for _ in range(steps):
        questions = [make_prompt(rng) for _ in range(prompts)]
        ids = encode(questions).repeat_interleave(group, dim=0)  # [B, S], B = prompts x group
        completions = sample(model, ids)
        mask = token_mask(completions)
        answers = [right_answer(question) for question in questions for _ in range(group)]
        right = torch.tensor([float(decode(c) == a) for c, a in zip(completions, answers, strict=True)])  # [B]
        rewards = torch.tensor([float(rng.random() < 0.5) for _ in right]) if coin else right
        advantages = group_advantage(rewards.view(prompts, group)).flatten()  # [B]
        old_logp = log_probs(model, ids, completions).detach()
        for _ in range(updates):
            loss = policy_loss(log_probs(model, ids, completions), old_logp, advantages, mask)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        history.append(right.mean().item())
    return history
