"""Bugs of the museum that stand around the loss, in an optimiser, between ranks, in prompts and transcripts.

All look well in every log. They are written down as those of `museum.py`, which lists them.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from .exercises.bug import Bug


def suspect_policy_loss(
    logp: Tensor, old_logp: Tensor, advantages: Tensor, level: str | None = None
) -> Tensor:
    """The mean of minus ratio times advantage; logp and old_logp [B, T], advantages [B]."""
    log_ratio = logp - logp
    if level == "token":
        log_ratio = logp - old_logp
    elif level == "sequence":
        log_ratio = (logp - old_logp).mean(dim=1, keepdim=True).expand_as(logp)
    return -(torch.exp(log_ratio) * advantages[:, None]).mean()


def what_the_optimiser_gets(loss: Callable[..., Tensor]) -> None:
    """One group of two completions, by default and with a level, at the first update."""
    advantages = torch.tensor([1.0, -0.5])
    for options in ({}, {"level": "token"}, {"level": "sequence"}):
        logp = torch.full((2, 3), -1.0, requires_grad=True)
        value = loss(logp, torch.full((2, 3), -1.0), advantages, **options)
        (pulls,) = torch.autograd.grad(value, logp)
        size = pulls.norm().item()
        name = options.get("level", "default")
        print(f"{name:8s}: loss {value.item():+.3f}, norm of the gradient {size:.3f}")


def good_tokens_are_pushed_up(loss: Callable[..., Tensor]) -> None:
    """Whatever is chosen, a token with a positive advantage has a negative gradient of the loss."""
    for options in ({}, {"level": "token"}, {"level": "sequence"}):
        logp = torch.full((2, 3), -1.0, requires_grad=True)
        value = loss(
            logp, torch.full((2, 3), -1.0), torch.tensor([1.0, -1.0]), **options
        )
        (pulls,) = torch.autograd.grad(value, logp)
        assert bool((pulls[0] < 0).all()), (
            f"with {options or 'no options'} the tokens of a good completion get {pulls}"
        )


def mended_policy_loss(
    logp: Tensor, old_logp: Tensor, advantages: Tensor, level: str | None = None
) -> Tensor:
    """The mean of minus ratio times advantage; logp and old_logp [B, T], advantages [B]."""
    log_ratio = logp - logp.detach()
    if level == "token":
        log_ratio = logp - old_logp
    elif level == "sequence":
        log_ratio = (logp - old_logp).mean(dim=1, keepdim=True).expand_as(logp)
    return -(torch.exp(log_ratio) * advantages[:, None]).mean()


CONSTANT = Bug(
    id="constant-ratio",
    title="an adapter that is saved on time",
    concept="token-surrogate-first-order",
    minutes=4,
    statement="""
    GRPO runs with its default settings. Rewards have a mean and a spread, the loss has plausible values, the adapter is saved every hundred
    steps. After a day the model answers, word for word, as it did before. The cell prints the loss and what the optimiser gets.
    """,
    wrong=suspect_policy_loss,
    symptom=what_the_optimiser_gets,
    reveals=good_tokens_are_pushed_up,
    mended=mended_policy_loss,
    moral="""
    "No importance weight" was written as the constant 1, and a constant has no gradient. The value of a ratio at the first update is 1; its gradient is
    that of the log-prob, and that is all there is. With a KL penalty the weights even move, towards the reference. The habit: print the norm of
    the gradient for the default settings, and compare the weights of the first and the last checkpoint.
    """,
)


def suspect_update(weights: Tensor, x: Tensor, y: Tensor, rate: float = 0.1) -> Tensor:
    """A step of R copies of a linear model: weights [R, D], x [R, B, D], y [R, B]."""
    error = torch.einsum("rbd,rd->rb", x, weights) - y
    gradients = torch.einsum("rb,rbd->rd", error, x) / x.shape[1]
    return weights - rate * gradients


def four_ranks(update: Callable[..., Tensor]) -> None:
    """Four ranks with other data each, from one start; rank 0 is the one that logs and saves."""
    generator = torch.Generator().manual_seed(0)
    truth, weights = torch.tensor([1.0, -2.0, 0.5]), torch.zeros(4, 3)
    for step in (1, 10, 100):
        for _ in range(step - step // 10):
            x = torch.randn(4, 8, 3, generator=generator)
            y = x @ truth + torch.randn(4, 8, generator=generator)
            weights = update(weights, x, y)
        apart = (weights - weights[0]).abs().max().item()
        away = (weights[0] - truth).norm().item()
        print(
            f"after {step:3d} steps: rank 0 is {away:.2f} off, the ranks {apart:.2f} apart"
        )


def copies_stay_copies(update: Callable[..., Tensor]) -> None:
    """All ranks have the same weights after a step, and those of one rank with all the data."""
    generator = torch.Generator().manual_seed(1)
    x, y = (
        torch.randn(2, 5, 3, generator=generator),
        torch.randn(2, 5, generator=generator),
    )
    found = update(torch.zeros(2, 3), x, y)
    whole = update(torch.zeros(1, 3), x.flatten(0, 1)[None], y.flatten()[None])
    assert torch.allclose(found, whole.expand_as(found), atol=1e-6), (
        f"two ranks end at {found[0].tolist()} and {found[1].tolist()}, one with all the data at {whole[0].tolist()}"
    )


def mended_update(weights: Tensor, x: Tensor, y: Tensor, rate: float = 0.1) -> Tensor:
    """A step of R copies of a linear model: weights [R, D], x [R, B, D], y [R, B]."""
    error = torch.einsum("rbd,rd->rb", x, weights) - y
    gradients = torch.einsum("rb,rbd->rd", error, x) / x.shape[1]
    return weights - rate * gradients.mean(dim=0)


ALONE = Bug(
    id="lonely-ranks",
    title="eight GPUs that learn like one",
    concept="data-parallel",
    minutes=5,
    statement="""
    A run on eight GPUs takes eight times the samples of a run on one and learns no better than it. Nothing fails, and the log, which rank 0 writes, looks like that
    of a run on one. The cell has four ranks with a linear model in the place of the policy.
    """,
    wrong=suspect_update,
    symptom=four_ranks,
    reveals=copies_stay_copies,
    mended=mended_update,
    moral="""
    No rank hears of the gradients of the others. In PyTorch the averaging is armed by the forward of `DistributedDataParallel`; a loss that calls the module inside it
    (`model.module`, or an unwrapped model for a fused kernel) never arms it, and the backward averages nothing. Each rank trains alone, and all but one are
    thrown away. The habit: after one step with other data on each rank, compare a checksum of the weights across ranks.
    """,
)


def suspect_row_loss(row: dict[str, Tensor], distil: float) -> Tensor:
    """Policy gradient, and `distil` times the KL to a teacher's log-probs at the sampled tokens [T]."""
    batch = {name: row[name] for name in ("logp", "mask", "advantages")}
    tokens = batch["mask"].sum()
    loss = -(batch["advantages"] * batch["logp"] * batch["mask"]).sum() / tokens
    if "teacher_logp" in batch:
        gap = (batch["logp"] - batch["teacher_logp"]).detach()
        loss = loss + distil * (gap * batch["logp"] * batch["mask"]).sum() / tokens
    return loss


def any_weight_will_do(loss: Callable[..., Tensor]) -> None:
    """The same row with the teacher's part weighed by 0, 1 and 100."""
    row = {
        "logp": torch.tensor([-1.0, -2.0, -3.0]),
        "mask": torch.ones(3),
        "advantages": torch.tensor([1.0, 1.0, 1.0]),
        "teacher_logp": torch.tensor([-0.5, -4.0, -1.0]),
    }
    for distil in (0.0, 1.0, 100.0):
        print(f"weight {distil:5.1f}: loss {loss(row, distil).item():8.3f}")


def the_teacher_is_heard(loss: Callable[..., Tensor]) -> None:
    """Another teacher gives another loss, and the weight 0 gives that of a row without one."""
    row = {
        "logp": torch.tensor([-1.0, -2.0]),
        "mask": torch.ones(2),
        "advantages": torch.zeros(2),
    }
    taught = [
        row | {"teacher_logp": torch.tensor(x)} for x in ([-1.0, -1.0], [-3.0, -1.0])
    ]
    one, other = (loss(x, 1.0).item() for x in taught)
    assert one != other, f"two teachers that disagree give the same loss, {one:.2f}"
    assert loss(taught[0], 0.0).item() == loss(row, 1.0).item(), (
        "a weight of 0 is no silence"
    )


def mended_row_loss(row: dict[str, Tensor], distil: float) -> Tensor:
    """Policy gradient, and `distil` times the KL to a teacher's log-probs at the sampled tokens [T]."""
    fields = ("logp", "mask", "advantages", "teacher_logp")
    batch = {name: row[name] for name in fields if name in row}
    tokens = batch["mask"].sum()
    loss = -(batch["advantages"] * batch["logp"] * batch["mask"]).sum() / tokens
    if "teacher_logp" in batch:
        gap = (batch["logp"] - batch["teacher_logp"]).detach()
        loss = loss + distil * (gap * batch["logp"] * batch["mask"]).sum() / tokens
    return loss


UNHEARD = Bug(
    id="unheard-teacher",
    title="a teacher on its own GPU",
    concept="on-policy-distillation",
    minutes=3,
    statement="""
    A teacher reads every completion, on a GPU of its own, and its log-probs arrive with the rows. The weight of the distillation was tuned over three orders of
    magnitude, and all runs with one seed are equal to the last digit. The cell prints the loss of one row.
    """,
    wrong=suspect_row_loss,
    symptom=any_weight_will_do,
    reveals=the_teacher_is_heard,
    mended=mended_row_loss,
    moral="""
    What makes the batch copies the fields that it knows, and what reads it takes a missing field for a method without a teacher. Each is reasonable alone. An
    option that is switched on and finds nothing should fail. The habit: for every option, one test that turning it changes the loss.
    """,
)


def suspect_prompts(questions: list[str | list[dict[str, str]]]) -> list[str]:
    """What the model reads: each question in its template, up to where its own turn begins."""
    prompts = []
    for question in questions:
        if isinstance(question, str):
            prompts.append(question)
            continue
        turns = [f"<{turn['role']}>{turn['content']}</>" for turn in question]
        prompts.append("".join(turns) + "<assistant>")
    return prompts


def what_the_model_reads(prompts: Callable[..., list[str]]) -> None:
    """The same question in the two forms that a data set may have."""
    question = "What is 2 + 2?"
    for name, form in (
        ("text", question),
        ("messages", [{"role": "user", "content": question}]),
    ):
        print(f"{name:8s}: {prompts([form])[0]}")


def the_turn_is_the_models(prompts: Callable[..., list[str]]) -> None:
    """Both forms of a question are the same prompt, and it ends where the model's turn begins."""
    text, messages = prompts(["2 + 2?", [{"role": "user", "content": "2 + 2?"}]])
    for prompt in (text, messages):
        assert prompt.endswith("<assistant>"), f"{prompt!r} is no place for an answer"
    assert text == messages, f"{text!r} and {messages!r} ask the same"


def mended_prompts(questions: list[str | list[dict[str, str]]]) -> list[str]:
    """What the model reads: each question in its template, up to where its own turn begins."""
    prompts = []
    for question in questions:
        if isinstance(question, str):
            question = [{"role": "user", "content": question}]
        turns = [f"<{turn['role']}>{turn['content']}</>" for turn in question]
        prompts.append("".join(turns) + "<assistant>")
    return prompts


UNASKED = Bug(
    id="unasked-model",
    title="a chat model that never stops",
    concept="chat-template",
    minutes=3,
    statement="""
    A chat model that answers well by hand gets a reward of 0 from the first step on. Every completion has exactly as many tokens as the budget, none has an
    end, the gradient is 0. No error, no warning. The cell prints what the model reads, from two forms of one data set.
    """,
    wrong=suspect_prompts,
    symptom=what_the_model_reads,
    reveals=the_turn_is_the_models,
    mended=mended_prompts,
    moral="""
    The template is put around lists of messages alone, and a plain text goes to the model as it is: a text to be continued, in which nobody is to answer and nothing ends. A trainer that
    takes both forms has to: a text may be meant as a text. The habit: print the first prompt as the model reads it, and look at the share of
    completions that are cut before you look at the reward.
    """,
)


def suspect_transcript(
    turns: list[tuple[int, list[int] | str]], words: list[str]
) -> tuple[list[int], list[int]]:
    """Ids and mask of turns: (1, ids that the policy sampled) and (0, text of a tool)."""
    ids: list[int] = []
    mask: list[int] = []
    for own, said in turns:
        text = said if isinstance(said, str) else "".join(words[i] for i in said)
        while text:
            word = max((w for w in words if text.startswith(w)), key=len)
            ids, mask = [*ids, words.index(word)], [*mask, own]
            text = text[len(word) :]
    return ids, mask


def before_any_update(transcript: Callable[..., tuple[list[int], list[int]]]) -> None:
    """The sampler's log-prob of the call "12?" and the trainer's, with the same weights."""
    words = ["1", "2", "12", "?"]
    logp = torch.tensor([0.4, 0.3, 0.1, 0.2]).log()
    for call in ([2, 3], [0, 1, 3]):
        ids, mask = transcript([(1, call), (0, "21")], words)
        own = [i for i, wrote in zip(ids, mask, strict=True) if wrote]
        sampled, trained = logp[call].sum().item(), logp[own].sum().item()
        print(f"sampler {sampled:6.2f}, trainer {trained:6.2f}")


def what_was_sampled_is_kept(
    transcript: Callable[..., tuple[list[int], list[int]]],
) -> None:
    """The policy's tokens of a transcript are those that it sampled, whatever it sampled."""
    words = ["1", "2", "12", "?"]
    for one in range(4):
        for other in range(4):
            ids, mask = transcript([(1, [one, other]), (0, "12"), (1, [3])], words)
            own = [i for i, wrote in zip(ids, mask, strict=True) if wrote]
            assert own == [one, other, 3], (
                f"{[one, other]} and [3] were sampled, and {own} is trained"
            )


def mended_transcript(
    turns: list[tuple[int, list[int] | str]], words: list[str]
) -> tuple[list[int], list[int]]:
    """Ids and mask of turns: (1, ids that the policy sampled) and (0, text of a tool)."""
    ids: list[int] = []
    mask: list[int] = []
    for own, said in turns:
        if not isinstance(said, str):
            ids, mask = [*ids, *said], [*mask, *[own] * len(said)]
            continue
        text = said
        while text:
            word = max((w for w in words if text.startswith(w)), key=len)
            ids, mask = [*ids, words.index(word)], [*mask, own]
            text = text[len(word) :]
    return ids, mask


REREAD = Bug(
    id="reread-history",
    title="the same words, another probability",
    concept="token-mdp",
    minutes=5,
    statement="""
    An agent's history is kept as a conversation, as every service wants it. Now and then a ratio is far from 1 before the first update, with
    the same weights on both sides and the same text on the screen. The cell has a vocabulary of four words, one call written in
    two ways, and the log-probs of both sides.
    """,
    wrong=suspect_transcript,
    symptom=before_any_update,
    reveals=what_was_sampled_is_kept,
    mended=mended_transcript,
    moral="""
    The policy wrote "1" and "2"; the text of both was encoded again and came back as "12". Many rows of ids have one text, and encoding
    gives one of them. The update then moves tokens that nobody sampled, and the stored log-probs belong to others. What the policy wrote
    stays as ids; only what a tool wrote is encoded, once. The habit: assert that the ids of a turn are, one by one, the beginning of
    what the next turn reads.
    """,
)
