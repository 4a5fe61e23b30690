"""The recorded runs on test-time scaling: many completions of each problem, with and without training.

    python notebooks/results/sampling_runs.py                 runs what is not yet recorded (ten minutes of one core)
    python notebooks/results/sampling_runs.py trained coin    only the arms named

Writes notebooks/results/sampling-runs.json, a line a run. All of it is on the task clock, from its shipped start, and on
the same held-out problems, no two of one family. The record holds completions, not shares: the chapter computes
everything from them. Of every completion there is one letter, its final answer: a capital if the answer is right and
every move of the problem is written before it and right, otherwise small. A dot means no answer. Arms:

    start     the shipped start, 128 completions of each problem at temperature 1
    trained   what 60 steps of RL make of it (the arm "growth" of clock_runs.py, row dr_grpo), 64 completions
    outcome   a scorer of the start's completions: one number at the end, trained on the outcomes of 3200 others
    process   a scorer of moves: a log-ratio, trained on the checker's marks of the moves of 3000 completions
    forced    8 completions of the start: the answer held back for so many tokens, or forced after so many
    heat      64 completions of the start at other temperatures
    held      64 completions of the start, whose answer cannot begin before the fifth token
    search    beam search over moves of the start, by that scorer of moves
    checked   the same by the checker of the task
    heated    as heat, for the trained policy of that seed
    coin      as trained, with a coin for a reward: the control

"outcome" also scores completions of the trained policy of its seed. For that, for "process", and for all arms of other
temperatures, held or forced answers ("held" excepted) the problems are the first 100, for search the first 60. Seeds were
fixed beforehand and all are recorded: 0 to 4 for what is trained by RL, 0 to 2 for scorers of outcomes. The start is one
model; its seed names the draw of its samples, and it has one, as have the scorer of moves, the searches, "heated" and
"coin". Seed 100 was used before that, to see how long a run takes.
"""

import math
import string
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.resources import as_file, files
from typing import Any

import torch
from recording import SEEDS as SEEDS
from recording import record
from torch import Tensor
from transformers import PreTrainedModel

from rlhf_minimal import ALGORITHMS
from rlhf_minimal.config import Config
from rlhf_minimal.fit import FitConfig, fit
from rlhf_minimal.functional.masked import last_token
from rlhf_minimal.lab.fast import fast
from rlhf_minimal.lab.forced_tokens import force, roll_out_from_prefixes
from rlhf_minimal.lab.process_reward import (
    StepScorer,
    sample_steps,
    step_ends,
    step_loss,
)
from rlhf_minimal.lab.rows import StepRow
from rlhf_minimal.models import Vocabulary
from rlhf_minimal.sample import Rollout, decode_with_cache, sample
from rlhf_minimal.tasks import Problem, get_task, random_reward
from rlhf_minimal.tasks import Step as Mark
from rlhf_minimal.train import Recipe, roll_out, train
from rlhf_minimal.train_state import Learner
from rlhf_minimal.training import load_policy

TASK = get_task("clock")
ROW = ALGORITHMS["dr_grpo"]
LOOP = Config(steps=60, prompts=32, group_size=8, lr=2e-4, watch_kl="off")
SAMPLING = fast(Recipe(ROW, TASK, LOOP))
PROBLEMS, HALF, SEARCHED = 200, 100, 60
MANY, SOME, FEW = 128, 64, 8
HEATS = (0.25, 0.5, 1.5, 2.0)
HELD = (0, 4, 8, 12, 16, 20, 24, 28)  # tokens before which no answer may begin
CUTS = (3, 7, 11, 15, 19, 23, 27, 31, 35)  # tokens after which one is forced
BEAMS = ((1, 4), (2, 4), (4, 4))  # texts kept, and new steps of each
OUTCOME = FitConfig(steps=250, batch_size=64, lr=1e-3)
PROCESS = FitConfig(steps=100, batch_size=64, lr=1e-3)
ARMS = (
    "start",
    "trained",
    "outcome",
    "process",
    "forced",
    "held",
    "heat",
    "checked",
    "search",
    "heated",
    "coin",
)
ONCE = (
    "start",
    "process",
    "forced",
    "held",
    "heat",
    "checked",
    "search",
    "heated",
    "coin",
)  # one seed
FEWER = dict.fromkeys(ONCE, 1) | {"outcome": 3}
LEARNED = ("trained", "heated", "coin")
DIGITS = string.digits + string.ascii_letters + "!#$%&()*+-./:;<=>?@[]^_{|}~"


def start() -> tuple[PreTrainedModel, Any]:
    """The shipped start of the task."""
    with as_file(files("rlhf_minimal") / "assets" / "clock") as folder:
        return load_policy(folder)


@cache
def problems() -> list[Problem]:
    """The held-out problems of all arms."""
    return TASK.problems("held_out", PROBLEMS, seed="sampling", distinct=True)


@cache
def learned(seed: int, *, coin: bool = False, steps: int = LOOP.steps) -> Learner:
    """A policy after its run."""
    plan = replace(SAMPLING, config=replace(LOOP, seed=seed, steps=steps))
    if coin:
        plan = replace(plan, reward=random_reward(seed))
    learner = Learner.begin(*start(), ROW, plan.config)
    train(learner, plan)
    return learner


def policy_of(arm: str, seed: int) -> tuple[PreTrainedModel, Any]:
    """The policy that an arm samples, and its vocabulary."""
    if arm in LEARNED:
        learner = learned(seed, coin=arm == "coin")
        return learner.policy, learner.vocabulary
    return start()


def write(
    policy: PreTrainedModel,
    vocabulary: Vocabulary,
    draws: int,
    seed: str,
    asked: Sequence[Problem] | None = None,
    sampling: Recipe = SAMPLING,
    how: Callable[..., Rollout] = roll_out,
    **options: Any,
) -> Iterable[Rollout]:
    """Completions of the problems, 25 problems at a time."""
    asked = problems() if asked is None else asked
    for i in range(0, len(asked), 25):
        some = list(asked[i : i + 25])
        draw = f"sampling/{seed}/{i}"
        yield how(
            policy, vocabulary, some, sampling, group_size=draws, seed=draw, **options
        )


def letter(text: str, problem: Problem) -> str:
    """The final answer; a capital if it is right, and all the problem's moves stand before it and are right."""
    answer = text.partition("=")[2]
    if len(answer) != 1 or answer not in string.ascii_lowercase:
        return "."
    assert TASK.steps is not None
    marks = [mark for _, mark in TASK.steps(text, problem)]
    sound = len(marks) >= problem.prompt.count("+") and all(marks)
    return answer.upper() if sound and answer == problem.answer else answer


def table(rollouts: Iterable[Rollout], draws: int) -> dict[str, list[str]]:
    """Of every problem its completions, a character each: the answers, and the numbers of tokens."""
    answers, lengths = [], []
    for rollout in rollouts:
        tokens = rollout.mask.sum(1).int().tolist()
        rows = list(zip(rollout.texts, rollout.problems, tokens, strict=True))
        for i in range(0, len(rows), draws):
            own = rows[i : i + draws]
            answers.append("".join(letter(*row[:2]) for row in own))
            lengths.append("".join(DIGITS[n] for _, _, n in own))
    return {"answers": answers, "lengths": lengths}


def packed(score: float) -> str:
    """A score as two characters: hundredths, from -39 to 39."""
    place = round(100 * min(39.0, max(-39.0, score))) + 3900
    return DIGITS[place // len(DIGITS)] + DIGITS[place % len(DIGITS)]


# --- scorers ---


@cache
def scorer_of(arm: str, seed: int, steps: int | None = None) -> StepScorer:
    """A trained scorer of outcomes, or of steps."""
    policy, vocabulary = start()
    config = replace(OUTCOME if arm == "outcome" else PROCESS, seed=seed)
    if arm == "outcome":
        scorer = StepScorer.from_policy(policy, vocabulary, "scalar")
        rows = sample_steps(
            policy, vocabulary, SAMPLING, 3200, labels="outcome", seed=seed
        )
    else:
        scorer = StepScorer.from_policy(policy, vocabulary, "ratio", 10.0)
        rows = sample_steps(
            policy, vocabulary, SAMPLING, 3000, labels="program", seed=seed
        )

    last = steps or config.steps
    fit(
        scorer.model,
        rows,
        partial(step_loss, scorer),
        config,
        on_step=lambda metrics: metrics["step"] < last,
    )
    return scorer


def scores_of(arm: str, seed: int) -> dict[str, list[str]]:
    """The scores of completions, `packed`: of the outcome, or the least and the product of the steps.

    They are the completions of the arm "start", for a scorer of moves those of the first problems. A scorer of outcomes
    scores those of the arm "trained" with this seed as well, again of the first problems.
    """
    scorer = scorer_of(arm, seed)
    names = ("sum",) if arm == "outcome" else ("min", "product")
    found: dict[str, list[str]] = {}
    some = problems()[:HALF]
    asked = problems() if arm == "outcome" else some
    written = [("", write(*start(), MANY, "start/0", asked), MANY)]
    if arm == "outcome":
        policy, vocabulary = policy_of("trained", seed)
        trained = write(policy, vocabulary, SOME, f"trained/{seed}", some)
        written.append(("trained ", trained, SOME))
    for whose, rollouts, draws in written:
        for rollout in rollouts:
            rows = [
                unmarked(arm, problem, text)
                for text, problem in zip(rollout.texts, rollout.problems, strict=True)
            ]
            scores = scorer.score(rows)
            for name in names:
                own = [packed(together(name, one)) for one in scores]
                found.setdefault(whose + name, []).extend(
                    "".join(own[i : i + draws]) for i in range(0, len(own), draws)
                )
    return found


def unmarked(arm: str, problem: Problem, text: str) -> StepRow:
    """A completion as one step, or as its steps, to be scored."""
    ends = [len(text)] if arm == "outcome" else step_ends(TASK, text, problem)
    return StepRow(problem.prompt, text, tuple(Mark(end, 0.0) for end in ends))


def together(name: str, scores: Tensor) -> float:
    """The scores of steps as one log-odds, or for the product a log-probability."""
    if name == "min":
        return scores.min().item()
    if name == "sum":
        return scores.sum().item()
    return torch.nn.functional.logsigmoid(scores).sum().item()


# --- search ---


@dataclass
class Beam:
    """A text so far: whether it has ended, and its scores."""

    text: str
    ended: bool
    worth: float = 0.0


def search(
    policy: PreTrainedModel,
    vocabulary: Vocabulary,
    scorer: StepScorer | None,
    asked: Sequence[Problem],
    *,
    keep: int,
    new: int,
    order: str,
    seed: str,
) -> dict[str, Any]:
    """Beam search over steps of two tokens; of every problem the answer, as `letter`, and the tokens it cost."""
    beams = [[Beam("", False)] for _ in asked]
    tokens = [0] * len(asked)
    for level in range(TASK.max_new_tokens // 2):
        live = [
            (i, beam) for i, own in enumerate(beams) for beam in own if not beam.ended
        ]
        if not live:
            break
        sampling = replace(SAMPLING, config=replace(LOOP, max_new_tokens=2 * level + 2))
        prefixes = [vocabulary.encode(beam.text) for _, beam in live] if level else None
        group = new if level else keep * new
        begin = (
            roll_out
            if prefixes is None
            else partial(roll_out_from_prefixes, prefixes=prefixes)
        )
        rows = begin(
            policy,
            vocabulary,
            [asked[i] for i, _ in live],
            sampling,
            group_size=group,
            seed=f"search/{seed}/{level}",
        )
        for n, (i, _) in enumerate(live):
            own = slice(n * group, (n + 1) * group)
            tokens[i] += int(rows.mask[own].sum())
            fresh = {
                text: Beam(text, "=" in text or len(text) < 2 * level + 2)
                for text in rows.texts[own]
            }
            beams[i] = [
                one for one in beams[i] if one.ended or one.text != live[n][1].text
            ]
            known = {one.text for one in beams[i]}
            beams[i] += [one for text, one in fresh.items() if text not in known]
        weigh(scorer, asked, beams, order)
        beams = [sorted(own, key=lambda one: -one.worth)[:keep] for own in beams]
    best = [own[0].text for own in beams]
    letters = [letter(text, problem) for text, problem in zip(best, asked, strict=True)]
    return {"answers": "".join(letters), "tokens": tokens}


def weigh(
    scorer: StepScorer | None,
    asked: Sequence[Problem],
    beams: list[list[Beam]],
    order: str,
) -> None:
    """What every text is worth; by the checker, if there is no scorer: its moves, or 0 if one of them is wrong."""
    each = [(asked[i], beam) for i, own in enumerate(beams) for beam in own]
    if scorer is None:
        assert TASK.steps is not None
        for problem, beam in each:
            marks = [mark for _, mark in TASK.steps(beam.text, problem)]
            moves = min(len(marks), problem.prompt.count("+"))
            beam.worth = all(marks) * (moves + beam.ended / 2)
        return
    rows = []
    for problem, beam in each:
        ends = step_ends(TASK, beam.text, problem)
        # A text that goes on must not be scored as if it ended here.
        text = beam.text if beam.ended else f"{beam.text}="
        steps = tuple(Mark(end, 0.0) for end in ends)
        rows.append(StepRow(problem.prompt, text, steps))
    for (_, beam), scores in zip(each, scorer.score(rows), strict=True):
        beam.worth = together(order, scores)


# --- longer and shorter ---


def held_back(until: int, closing: Sequence[int]) -> Callable[..., Any]:
    """Reads as the library does; a completion cannot begin its answer, nor end, before so many tokens."""

    def read(*given: Any) -> Any:
        logits, following = decode_with_cache(*given)
        if until:
            logits[:, list(closing)] = -math.inf

        def step(tokens: Tensor, rows: Tensor, t: int) -> Tensor:
            logits = following(tokens, rows, t)
            if t + 1 < until:
                logits[:, list(closing)] = -math.inf
            return logits

        return logits, step

    return read


def holding(until: int, vocabulary: Any) -> Recipe:
    """How completions are sampled whose answer is held back."""
    closing = [*vocabulary.encode("="), vocabulary.eos_id]
    return replace(SAMPLING, sample=partial(sample, decode=held_back(until, closing)))


def longer_and_shorter(
    policy: PreTrainedModel,
    vocabulary: Any,
    seed: str,
) -> dict[str, Any]:
    """Completions of half of the problems: their answer held back, sampled and greedy; or forced early."""
    asked = problems()[:HALF]
    found: dict[str, Any] = {"held": [], "greedy": [], "cut": []}
    for until in HELD:
        sampling = holding(until, vocabulary)
        for name, draws, heat in (("held", FEW, 1.0), ("greedy", 1, 0.0)):
            rollouts = write(
                policy,
                vocabulary,
                draws,
                seed,
                asked,
                sampling,
                temperature=heat,
            )
            found[name].append(counted(rollouts, draws))
    for cut in CUTS:
        rollouts = write(
            policy,
            vocabulary,
            FEW,
            seed,
            asked,
            how=partial(force, at=cut, text="="),
        )
        found["cut"].append(counted(rollouts, FEW))
    return found


def counted(rollouts: Iterable[Rollout], draws: int) -> dict[str, Any]:
    """Of every problem its right completions, and those that are right by work, a character each; mean tokens."""
    right, sound, tokens = [], [], []
    for rollout in rollouts:
        # Forced tokens have no mask, and are counted.
        written = (last_token(rollout.mask).argmax(-1) + 1).tolist()
        rows = zip(rollout.texts, rollout.problems, strict=True)
        letters = [letter(text, problem) for text, problem in rows]
        asked = [problem.answer for problem in rollout.problems]
        for i in range(0, len(letters), draws):
            own, answer = letters[i : i + draws], asked[i]
            right.append(sum(one.lower() == answer for one in own))
            sound.append(sum(one.isupper() for one in own))
        tokens += written
    return {
        "right": "".join(DIGITS[n] for n in right),
        "sound": "".join(DIGITS[n] for n in sound),
        "tokens": round(sum(tokens) / len(tokens), 3),
    }


def searched(arm: str, seed: int) -> dict[str, Any]:
    """The answers of all beam searches of an arm."""
    policy, vocabulary = policy_of(arm, seed)
    scorer = None if arm == "checked" else scorer_of("process", seed)
    found = {}
    for keep, new in BEAMS:
        for order in ("min", "product") if arm == "search" and keep > 2 else ("min",):
            found[f"{order} {keep}x{new}"] = search(
                policy,
                vocabulary,
                scorer,
                problems()[:SEARCHED],
                keep=keep,
                new=new,
                order=order,
                seed=f"{arm}/{seed}",
            )
    return found


def run(arm: str, seed: int) -> dict[str, Any]:
    """One arm and seed."""
    began = time.process_time()
    found: dict[str, Any] = {}
    policy, vocabulary = policy_of(arm, seed)
    if arm in ("outcome", "process"):
        found = scores_of(arm, seed)
    elif arm in ("search", "checked"):
        found = searched(arm, seed)
    elif arm == "forced":
        found = longer_and_shorter(policy, vocabulary, f"{arm}/{seed}")
    elif arm in ("heat", "heated"):
        for heat in HEATS:
            draw = f"{arm}/{seed}/{heat}"
            asked = problems()[:HALF]
            rollouts = write(policy, vocabulary, SOME, draw, asked, temperature=heat)
            found[str(heat)] = counted(rollouts, SOME)
    else:
        draws = MANY if arm == "start" else SOME
        sampling = holding(HELD[1], vocabulary) if arm == "held" else SAMPLING
        rollouts = write(policy, vocabulary, draws, f"{arm}/{seed}", sampling=sampling)
        found = table(rollouts, draws)
    return {**found, "seconds": round(time.process_time() - began, 1)}


if __name__ == "__main__":
    record(
        __file__,
        ARMS,
        run,
        fewer=FEWER,
        answers="".join(problem.answer for problem in problems()),
        moves=[problem.prompt.count("+") for problem in problems()],
        digits=DIGITS,
        heats=HEATS,
        held=HELD,
        cuts=CUTS,
    )
