"""`evaluate`: the accuracy of a checkpoint on held-out problems, and what many completions of one are worth."""

import argparse
from functools import partial

from rlhf_minimal.cli import checkpoint, user_code
from rlhf_minimal.cli.console import at_least_1, printable
from rlhf_minimal.cli.python_file import Function, is_program, load
from rlhf_minimal.evaluate import HELD_OUT, evaluate
from rlhf_minimal.lab.forced_tokens import force
from rlhf_minimal.lab.process_reward import AGGREGATES, weigh_steps
from rlhf_minimal.lab.votes import evaluate_votes, verified_steps
from rlhf_minimal.tasks import RewardFunction, Task
from rlhf_minimal.tasks.base import whole
from rlhf_minimal.train import roll_out

OOM_HINT = "lower -n"


def add_arguments(sub: argparse.ArgumentParser) -> None:
    """The command's flags."""
    checkpoint.add_arguments(sub)
    sub.add_argument("-n", type=int, default=HELD_OUT, help="Held-out problems (default %(default)s).")
    sub.add_argument(
        "--samples", type=int, help="Completions to sample for each problem, to report pass@n and the majority's vote."
    )
    sub.add_argument(
        "--scorer",
        metavar="steps|FOLDER|FILE.py:NAME",
        help="Weigh the votes as well: steps, by the steps that the task's checker finds right, a folder as reward "
        "--label-steps writes one, or a reward function.",
    )
    sub.add_argument(
        "--aggregate",
        choices=AGGREGATES,
        help="With --scorer FOLDER: what the scores of a completion's steps are worth together (default min).",
    )
    where = "If a completion has not ended after N tokens, append --force-text and go on."
    sub.add_argument("--force-at", type=int, metavar="N", help=where)
    sub.add_argument("--force-text", metavar="TEXT", help="What is appended, such as the sign before a final answer.")


def run(args: argparse.Namespace) -> int:
    """Prints the accuracy of sampled and of greedy completions, or their mean scores; or a table of votes."""
    at_least_1(vars(args), "n", "samples", "force_at")
    if (args.force_at is None) != (args.force_text is None):
        raise ValueError("--force-at and --force-text go together: give both")
    if args.scorer is not None and args.samples is None:
        raise ValueError("--scorer changes nothing by itself: give --samples N as well")
    if args.aggregate is not None and (args.scorer in (None, "steps") or is_program(args.scorer)):
        raise ValueError("--aggregate changes nothing by itself: give --scorer FOLDER as well")
    policy, vocabulary, recipe = checkpoint.load(args)
    write = roll_out
    if args.force_at is not None:
        write = partial(force, at=args.force_at, text=args.force_text)
    options = {"n": args.n, "seed": str(args.seed), "rollout_fn": write}
    if args.samples is None:
        result = evaluate(policy, vocabulary, recipe, **options)
        print(f"{printable(recipe.task.about)}, held out: {result.about}")
        print("sampled  {}\ngreedy   {}".format(*result.in_words))
        _print_unanswered(recipe.task, sampled=result.samples.texts, greedy=result.greedy_samples.texts)
        return 0
    scorer = None if args.scorer is None else _scorer(args, recipe.task)
    votes = evaluate_votes(policy, vocabulary, recipe, samples=args.samples, scorer=scorer, **options)
    count = len(votes.samples.texts) // args.samples
    each = f"{count} distinct problems, {args.samples} completions of each"
    print(f"{printable(recipe.task.about)}, held out: {each}, 95 % interval")
    rows = {"pass@n": votes.passed, "majority": votes.majority, "weighted": votes.weighted, "best": votes.best}
    print(f"{'n':<9}" + "".join(f"{n:<22}" for n in votes.passed).rstrip())
    for name, found in rows.items():
        if found:
            print(f"{name:<9}" + "".join(f"{found[n]!s:<22}" for n in found).rstrip())
    print(f"{'ties':<9}" + "".join(f"{share:<22.1%}" for share in votes.ties.values()).rstrip())
    _print_unanswered(recipe.task, sampled=votes.samples.texts)
    return 0


def _print_unanswered(task: Task, **written: list[str]) -> None:
    """How many completions hold no answer, where the task reads one in plain language; they count as wrong."""
    if not task.alphabet and task.final is not whole:
        counts = (f"{k} {sum(task.final(text) is None for text in v)} of {len(v)}" for k, v in written.items())
        print("without an answer: " + ", ".join(counts))


def _scorer(args: argparse.Namespace, task: Task) -> RewardFunction:
    """What weighs the votes."""
    if args.scorer == "steps":
        return verified_steps(task)
    if not is_program(args.scorer):
        return weigh_steps(user_code.find_scorer(args.scorer, task, args.device), task, args.aggregate or "min")
    weigh: RewardFunction = load(args.scorer, Function)
    return weigh
