"""`sft`: supervised fine-tuning."""

from typing import Any, ClassVar

from torch import Tensor

from rlhf_minimal.cli.fitting import Job, Rows, demonstrations, settings_for
from rlhf_minimal.tasks import CompletionRow, Task
from rlhf_minimal.tasks.base import Split
from rlhf_minimal.training.supervised import completion_loss


class Sft(Job):
    """Trains on prompts with completions to imitate."""

    ABOUT = "Fine-tune on demonstrations, with the loss on the completion only."
    SETTINGS: ClassVar = settings_for("prompt and completion, or messages", start="untrained", steps=700)
    row = CompletionRow

    @classmethod
    def missing(cls, task: Task, settings: dict[str, Any]) -> str | None:
        """A teacher, if the task has none."""
        return None if task.teacher else "teacher to imitate"

    def own_rows(self, split: Split, n: int, seed: int) -> Rows:
        """Completions of the task's teacher."""
        return demonstrations(self.task, self.vocabulary, split, n, seed)

    def loss(self, rows: Rows) -> Tensor:
        """Cross-entropy of the completions; prompt tokens carry no loss."""
        return completion_loss(self.model, self.vocabulary, rows)

    def finish(self, rows: Rows, held_out: Rows) -> tuple[dict[str, Any], str]:
        """The loss, and the verifier's scores of samples."""
        measured, text = super().finish(rows, held_out)
        if self.settings["data"] is not None:
            return measured, text  # rows of a file need not belong to the task
        score, said, some = self.samples(self.model)
        return {**measured, "score": score}, "\n".join([text, said, *some])
