"""The whole path from text to gradient, as the chapter `from-zero` builds it.

Torch, a tiny Llama, nothing else: characters to ids, a model that imitates a teacher,
samples and their log-probs, rewards to advantages to a loss, and the loop. It is for the
chapter's records, exercises and depth, and for records that were made with it; later
chapters train with `rlhf_minimal.train`. A test holds it equal to the chapter's, where
`train` begins with a simpler loss, `push_loss`, that has the same gradient at a batch's
first update.

    python -m rlhf_book.loop        imitates, then learns: about a minute on one core
"""

import random
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM

# ---- text ----------------------------------------------------------------------------

ALPHABET = "$0123456789+="  # a token is a character, its id is its place here
END = ALPHABET.index("$")  # ends a completion
BUDGET = 5  # tokens of a completion: four digits and the end


def encode(texts: list[str]) -> Tensor:
    """[B, S] ids of texts of one length."""
    return torch.tensor([[ALPHABET.index(c) for c in text] for text in texts])


def decode(ids: Tensor) -> str:
    """The text of [T] ids, up to and including its end."""
    text = "".join(ALPHABET[i] for i in ids.tolist())
    return text.partition("$")[0] + "$" * ("$" in text)


# ---- the task ------------------------------------------------------------------------


USES = ["test", "learn"] + ["imitate"] * 5  # of a question, by its number modulo 7


def make_prompt(rng: random.Random, use: str = "learn") -> str:
    """A question such as 128+345=, its number is 128345; none has two uses."""
    while True:
        number = rng.randrange(1_000_000)
        if USES[number % 7] == use:
            return f"{number // 1000:03d}+{number % 1000:03d}="


def right_answer(prompt: str) -> str:
    """The sum, last digit first, four digits and the end: for 128+345= it is 3740$."""
    a, b = prompt[:-1].split("+")
    return f"{int(a) + int(b):04d}"[::-1] + "$"


def teacher(prompt: str, rng: random.Random) -> str:
    """A completion to imitate: one in five is right, the others forget every carry."""
    if rng.random() < 0.2:
        return right_answer(prompt)
    a, b = prompt[:-1].split("+")
    columns = zip(reversed(a), reversed(b), strict=True)
    return "".join(str((int(x) + int(y)) % 10) for x, y in columns) + "0$"


def is_right(prompts: list[str], completions: Tensor) -> Tensor:
    """[B]: 1.0 where the completion is the right answer, else 0.0; nothing between."""
    pairs = zip(prompts, completions, strict=True)
    return torch.tensor([float(decode(ids) == right_answer(p)) for p, ids in pairs])


# ---- the model -----------------------------------------------------------------------


def new_model(seed: int) -> LlamaForCausalLM:
    """A Llama with 83 thousand weights, at random."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(ALPHABET),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=8,
        max_position_embeddings=64,
        initializer_range=0.12,  # the usual 0.02 is for widths of thousands
        rope_parameters={"rope_type": "default", "rope_theta": 100.0},
        tie_word_embeddings=True,
    )
    return LlamaForCausalLM(config)


def imitate(model: LlamaForCausalLM, steps: int = 1300, seed: int = 0) -> float:
    """Learn to write as the teacher does; the mean loss of the last 50 steps."""
    rng = random.Random(seed)
    lr = 3e-3
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.0)
    losses = []
    for step in range(steps):
        prompts = [make_prompt(rng, "imitate") for _ in range(128)]
        ids = encode([prompt + teacher(prompt, rng) for prompt in prompts])  # [B, S+T]
        logits = model(ids).logits[:, -BUDGET - 1 : -1]  # [B, T, V]
        loss = cross_entropy(logits.flatten(0, 1), ids[:, -BUDGET:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = lr * min(1.0, (step + 1) / 50, (steps - step) / steps)
        optimizer.step()
        losses.append(loss.item())
    return sum(losses[-50:]) / 50


# ---- sampling, and the log-probs of what was sampled ---------------------------------


@torch.no_grad()
def sample(model: LlamaForCausalLM, prompts: Tensor) -> Tensor:
    """[B, S] ids of prompts to [B, T] ids of completions, token by token."""
    ids = prompts
    for _ in range(BUDGET):
        p = model(ids).logits[:, -1].softmax(-1)  # [B, V], of the next token
        ids = torch.cat([ids, torch.multinomial(p, 1)], dim=1)
    return ids[:, prompts.shape[1] :]


def token_mask(completions: Tensor) -> Tensor:
    """[B, T]: 1.0 up to and including the first end, 0.0 after it."""
    is_end = (completions == END).long()
    ends_before = is_end.cumsum(-1) - is_end
    return (ends_before == 0).float()


def log_probs(model: LlamaForCausalLM, prompts: Tensor, completions: Tensor) -> Tensor:
    """[B, T]: the log-probability of each token of the completions."""
    ids = torch.cat([prompts, completions], dim=1)  # [B, S+T]
    logits = model(ids).logits[:, prompts.shape[1] - 1 : -1]  # [B, T, V]: the shift
    every = logits.log_softmax(-1)  # [B, T, V]
    return every.gather(-1, completions.unsqueeze(-1)).squeeze(-1)  # [B, T]


# ---- from rewards to a loss ----------------------------------------------------------


def group_advantage(rewards: Tensor) -> Tensor:
    """[P, G] rewards to [P, G]: how much better than its group was each completion?"""
    centred = rewards - rewards.mean(-1, keepdim=True)
    return centred / (rewards.std(-1, keepdim=True) + 1e-4)


def grpo_loss(logp: Tensor, old: Tensor, A: Tensor, mask: Tensor) -> Tensor:
    """[B, T] log-probs, new and old; [B] advantages; [B, T] mask: what is minimised."""
    ratio = torch.exp(logp - old)  # [B, T]
    A = A.unsqueeze(-1)  # [B, 1], one advantage for all tokens of a completion
    objective = torch.minimum(ratio * A, ratio.clamp(0.8, 1.2) * A)  # [B, T]
    return -((objective * mask).sum(-1) / mask.sum(-1)).mean()


# ---- the loop ------------------------------------------------------------------------


def train(
    model: LlamaForCausalLM,
    advantage: Callable[[Tensor], Tensor] = group_advantage,
    loss_of: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor] = grpo_loss,
    updates: int = 1,
    *,
    steps: int = 60,
    prompts: int = 16,
    group: int = 16,
    seed: int = 0,
    coin: bool = False,
) -> list[float]:
    """Reinforcement learning; the share of right completions in each step."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    tossing = torch.Generator().manual_seed(1000 + seed)  # shared with nothing else
    optimizer = torch.optim.AdamW(model.parameters(), lr=8e-4, weight_decay=0.0)
    history = []
    for _ in range(steps):
        questions = [make_prompt(rng) for _ in range(prompts)]
        asked = [question for question in questions for _ in range(group)]
        ids = encode(asked)  # [B, S], B = prompts x group
        completions = sample(model, ids)  # [B, T]
        mask = token_mask(completions)  # [B, T]
        right = is_right(asked, completions)  # [B]
        tosses = torch.randint(2, right.shape, generator=tossing).float()  # [B]
        rewards = tosses if coin else right  # [B]
        advantages = advantage(rewards.view(prompts, group)).flatten()  # [B]
        old_logp = log_probs(model, ids, completions).detach()  # [B, T]
        for _ in range(updates):
            logp = log_probs(model, ids, completions)  # [B, T]
            loss = loss_of(logp, old_logp, advantages, mask)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        history.append(right.mean().item())
    return history


# ---- replace these lines -------------------------------------------------------------


def raw_reward(rewards: Tensor) -> Tensor:
    """REINFORCE: the reward itself."""
    return rewards


def reinforce_loss(logp: Tensor, old: Tensor, A: Tensor, mask: Tensor) -> Tensor:
    """REINFORCE and RLOO: the log-probability of the whole completion, weighted."""
    return -(A * (logp * mask).sum(-1)).mean()


def leave_one_out(rewards: Tensor) -> Tensor:
    """RLOO: the reward minus the mean of the others in the group."""
    others = rewards.sum(-1, keepdim=True) - rewards
    return rewards - others / (rewards.shape[-1] - 1)


def centred(rewards: Tensor) -> Tensor:
    """Dr. GRPO: GRPO's advantage without its division."""
    return rewards - rewards.mean(-1, keepdim=True)


def dr_grpo_loss(logp: Tensor, old: Tensor, A: Tensor, mask: Tensor) -> Tensor:
    """Dr. GRPO: one divisor for all completions, however long."""
    ratio = torch.exp(logp - old)
    A = A.unsqueeze(-1)
    objective = torch.minimum(ratio * A, ratio.clamp(0.8, 1.2) * A)
    return -((objective * mask).sum(-1) / BUDGET).mean()


def gspo_loss(logp: Tensor, old: Tensor, A: Tensor, mask: Tensor) -> Tensor:
    """GSPO: one ratio per completion, the geometric mean of its tokens' ratios."""
    change = ((logp - old) * mask).sum(-1) / mask.sum(-1)  # [B]
    ratio = torch.exp(change)
    clipped = ratio.clamp(0.8, 1.2)
    return -torch.minimum(ratio * A, clipped * A).mean()


METHODS = {  # what replaces what: the advantage, the loss, the updates on each batch
    "GRPO": (group_advantage, grpo_loss, 1),
    "REINFORCE": (raw_reward, reinforce_loss, 1),
    "RLOO": (leave_one_out, reinforce_loss, 1),
    "Dr. GRPO": (centred, dr_grpo_loss, 1),
    "PPO's clip, 4 updates": (group_advantage, grpo_loss, 4),
    "GSPO, 4 updates": (group_advantage, gspo_loss, 4),
}


if __name__ == "__main__":
    torch.set_num_threads(1)
    imitator = new_model(seed=0)
    print(f"loss after imitation: {imitate(imitator):.3f} nats per token")
    right = train(imitator)
    for first in range(0, 60, 10):
        mean = sum(right[first : first + 10]) / 10
        print(f"steps {first + 1:2d} to {first + 10}: {mean:.2f} right")
