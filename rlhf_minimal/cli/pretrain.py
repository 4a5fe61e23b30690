"""`pretrain`: next-token prediction on texts, or imitation of a task's teacher."""

import argparse
import dataclasses
import random
from typing import Any, ClassVar

from torch import Tensor

from rlhf_minimal.algorithms import ALGORITHMS
from rlhf_minimal.cli.console import measure_of
from rlhf_minimal.cli.fitting import Job, Rows, settings_for
from rlhf_minimal.cli.programs import find_task
from rlhf_minimal.cli.settings import Setting
from rlhf_minimal.cli.sft import Sft
from rlhf_minimal.cli.starts import DEFAULT_TASK
from rlhf_minimal.evaluate import evaluate
from rlhf_minimal.tasks import Task, TextRow
from rlhf_minimal.tasks.base import Split
from rlhf_minimal.train import Recipe
from rlhf_minimal.training.supervised import IMITATION, language_loss, teacher_rows

ABOUT_ACCEPT = "Largest training loss with which a start is accepted, where a teacher is imitated."
TEXTS = [
    *settings_for("text", start="untrained", task=DEFAULT_TASK, steps=300),
    Setting("accept", float, 0.14, ABOUT_ACCEPT),
]
TEACHER = [dataclasses.replace(s, default=vars(IMITATION).get(s.name, s.default)) for s in TEXTS]


class Pretrain(Job):
    """Trains next-token prediction on texts."""

    ABOUT = (
        "Train next-token prediction on the task's texts or on those of a file. If the task has no texts, the model "
        "imitates its teacher, including the mistakes; the result is a start for train."
    )
    SETTINGS: ClassVar = [
        text if text == other else dataclasses.replace(text, said=f"{other.default}, on texts {text.default}")
        for text, other in zip(TEXTS, TEACHER, strict=True)
    ]
    OUT = "a new one under runs/, or runs/start-TASK where a teacher is imitated"
    MAY_CHANGE = ("device", "accept")
    row = TextRow

    @classmethod
    def declared(cls, args: argparse.Namespace) -> list[Setting]:
        """Other defaults where a teacher is imitated, and another folder."""
        if args.resume or args.data is not None:  # the run, or the file, has decided
            return TEXTS
        task = find_task({"task": args.task or DEFAULT_TASK, "programs": {}}, args.task)
        if task.corpus:
            return TEXTS
        if args.rows is not None:
            raise ValueError(f"--rows is for texts, and {task.name} has none: give --data, or use sft")
        args.out = args.out or f"runs/start-{task.start or task.name}"
        return TEACHER

    @classmethod
    def for_task(cls, task: Task, settings: dict[str, Any]) -> type[Job]:
        """`Imitate`, if there are neither texts nor a file."""
        return cls if task.corpus or settings["data"] is not None else Imitate

    def own_rows(self, split: Split, n: int, seed: int) -> Rows:
        """Pages of the task's corpus."""
        assert self.task.corpus is not None
        rng = random.Random(f"pretrain/{split}/{seed}")
        return [TextRow(self.task.corpus(rng)) for _ in range(n)]

    def loss(self, rows: Rows) -> Tensor:
        """Cross-entropy of whole texts."""
        return language_loss(self.model, self.vocabulary, [row.text for row in rows])


class Imitate(Sft):
    """Imitates the task's teacher on new problems at every step; see `training.imitate`."""

    def new_rows(self) -> tuple[Rows, Rows]:
        """No rows to train on, since each step makes its own; the teacher's completions of held-out problems."""
        return [], self.made("held_out", self.settings["held_out"])

    def kept_rows(self) -> tuple[Rows, Rows]:
        """The held-out rows of a resumed run; it has no others."""
        return [], self.kept_file(self.row_files[1])

    def batch(self, rows: Rows, step: int) -> Rows:
        """The problems of one step."""
        return teacher_rows(self.task, self.vocabulary, step, self.settings["batch_size"], self.settings["seed"])

    def finish(self, rows: Rows, held_out: Rows) -> tuple[dict[str, Any], str]:
        """Losses, and accuracies on held-out problems.

        Raises:
            ValueError: If the training loss says that the start is not worth training from.
        """
        measured, text = self.measure(held_out)
        last = [row["loss"] for row in self.folder.history()[-50:]]
        loss, most = sum(last) / len(last), self.settings["accept"]
        if not loss <= most:
            raise ValueError(
                f"the start is not accepted: its training loss is {loss:.3f}, and should be at most {most:g} (RL from "
                "a start that imitates its teacher badly makes no progress); try another --seed or more --steps, or "
                f"take what is in {self.folder.path} with --resume --accept {loss + 0.01:.2f}"
            )
        any_row = Recipe(ALGORITHMS["reinforce"], self.task)  # only its task is used to evaluate
        result = evaluate(self.model, self.vocabulary, any_row, n=self.settings["held_out"])
        text += f"\ntraining loss of the last steps: {loss:.4f}"
        text += "\nheld-out {}: sampled {}, greedy {}".format(measure_of(self.task), *result.in_words)
        return {**measured, "training_loss": loss, **result.as_json()}, text
