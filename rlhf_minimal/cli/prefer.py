"""`prefer`: learn from preferences without a reward model."""

import argparse
import dataclasses
import math
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from rlhf_minimal.cli.fitting import Job, Rows, demonstrations, settings_for
from rlhf_minimal.cli.settings import Setting
from rlhf_minimal.pairs import PAIRWISE, pairwise_loss
from rlhf_minimal.tasks import CompletionRow, PairRow, Task
from rlhf_minimal.tasks.base import Split
from rlhf_minimal.training import load_policy, pairwise, write_folder
from rlhf_minimal.training.preferences import sample_pairs

BY_POLICY = [name for name, row in PAIRWISE.items() if row.reference]  # the rows that train a policy
COLUMNS = "prompt, chosen and rejected, or for spin prompt and completion"


def _rejects_own(settings: dict[str, Any]) -> bool:
    """Whether the rejected completions are samples of the reference."""
    return PAIRWISE[settings["algorithm"]].rejected == "own"


class Prefer(Job):
    """Trains a policy on pairs, with its start as the reference: DPO, IPO and one iteration of SPIN.

    The reference's log-probs are computed once, before the first step. The run folder keeps the reference under
    `reference/`, from where a resumed run loads it.
    """

    ABOUT = (
        "Train a policy on preferences without a reward model. The policy before training is the reference, kept in "
        "reference/. The row spin prefers the completions of the data to samples of the reference. One run is one "
        "iteration; start the next run from its result."
    )
    SETTINGS: ClassVar = [
        Setting("algorithm", str, None),
        Setting("beta", float | None, None, "Strength of the KL penalty against the start.", "the row's"),
        *settings_for(COLUMNS, steps=300, lr=2e-4),
    ]
    watched = ("loss", "accuracy", "gap")
    compares = True

    @classmethod
    def add_arguments(cls, sub: argparse.ArgumentParser) -> None:
        """The command's flags."""
        sub.add_argument("algorithm", choices=BY_POLICY, help="A row of the second table (table --pairs).")
        super().add_arguments(sub)

    @classmethod
    def missing(cls, task: Task, settings: dict[str, Any]) -> str | None:
        """The row spin needs a teacher; the others need nothing."""
        beta = settings["beta"]
        if beta is not None and not 0 < beta < math.inf:
            raise ValueError(f"--beta must be above 0; got {beta}")
        return "teacher to imitate" if _rejects_own(settings) and not task.teacher else None

    def begin(self, start: str, resumed: bool) -> None:
        """Loads the policy and the reference, which are the same model unless the run is resumed."""
        super().begin(start, resumed)
        self.algorithm = PAIRWISE[self.settings["algorithm"]]
        if self.settings["beta"] is not None:
            loss = partial(self.algorithm.loss, beta=self.settings["beta"])
            self.algorithm = dataclasses.replace(self.algorithm, loss=loss)
        self.row = CompletionRow if _rejects_own(self.settings) else PairRow
        self.reference = load_policy(self.start)[0] if resumed else self.model

    @property
    def start(self) -> Path:
        """The folder of the policy before the first step."""
        return self.folder.reference

    def keep(self) -> None:
        """Writes the reference."""
        write_folder(self.start, self.write)

    def own_rows(self, split: Split, n: int, seed: int) -> Rows:
        """Pairs of the policy's samples with noisy labels; for the row spin, completions of the teacher."""
        if _rejects_own(self.settings):
            return demonstrations(self.task, self.vocabulary, split, n, seed)
        return sample_pairs(self.model, self.vocabulary, self.task, n, split=split, seed=seed)

    def prepared(self, rows: Rows, split: Split) -> list[pairwise.Example]:
        """Token ids of both completions, with the reference's log-probs."""
        self.reference.to(self.model.device)  # type: ignore[arg-type]
        own = _rejects_own(self.settings)
        examples = pairwise.encode(rows, self.vocabulary, own=own)
        if own:
            budget = self.task.max_new_tokens if self.settings["data"] is None else None
            seed = f"{self.settings['seed']}/{split}"
            examples = pairwise.sample_rejected(examples, self.reference, self.vocabulary, budget, seed=seed)
        return pairwise.read_reference(examples, self.reference, self.vocabulary)

    def loss(self, rows: Rows) -> Tensor:
        """The loss of the algorithm."""
        pairs = pairwise.make_pairs(self.algorithm, self.model, self.vocabulary, rows)
        self.seen = pairwise.describe(self.algorithm, pairs)
        return pairwise_loss(self.algorithm, pairs)

    def measure(self, held_out: Rows) -> tuple[dict[str, Any], str]:
        """How the policy ranks held-out pairs, by the score of the algorithm."""
        quality = pairwise.evaluate_examples(self.algorithm, self.model, self.vocabulary, held_out)
        lines = [
            f"{len(held_out)} pairs held out: accuracy {quality['accuracy']:.3f}, loss {quality['loss']:.3f}",
            f"log-ratio to the start in nats: chosen {quality['chosen']:.3f}, rejected {quality['rejected']:.3f}, "
            f"gap {quality['gap']:.3f}",
        ]
        return {"held_out": len(held_out), **quality}, "\n".join(lines)

    def finish(self, rows: Rows, held_out: Rows) -> tuple[dict[str, Any], str]:
        """The same, and the verifier's scores of samples before and after training."""
        measured, text = self.measure(held_out)
        lines = [text]
        if self.settings["data"] is None:
            for when, policy in (("before", load_policy(self.start)[0]), ("after", self.model)):
                measured[when], text, some = self.samples(policy)
                lines.append(f"{when + ':':<8}{text}")
            lines += some
        return measured, "\n".join(lines)
