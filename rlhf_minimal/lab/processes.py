"""Several processes on one run: which rows each of them reads, and how their results are combined.

Data parallelism needs nothing new of the objective. Micro-batches carry their minibatch's denominators, so that their
losses and gradients add up to its own; here different processes compute them at the same time, and gradients are added
up between processes. So two processes have the gradient of one, for every row of the table, whatever its weights and
totals are.

    roll_out      each process writes the completions of its share of the problems; all get all of them
    prepare_batch each reads its share of the rows; all get all log-probs and values, and prepare the same batch
    update        each reads its share of every minibatch; gradients and what is watched are added up

The package accelerate starts the processes and sends data between them.
"""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from jaxtyping import Int, Shaped
from torch import Tensor, nn

from rlhf_minimal.sample import TENSORS, Rollout, join
from rlhf_minimal.tasks import Problem
from rlhf_minimal.train_state import ALONE, Processes

Result = TypeVar("Result")


@dataclass(frozen=True)
class Several(Processes):
    """One process's place among those that share a run.

    Args:
        rank: Which one this is, from 0.
        count: How many there are.

    Example:
        >>> [Several(rank, 2).share(5) for rank in (0, 1)]
        [slice(0, 3, None), slice(3, 5, None)]
    """

    rank: int
    count: int

    @property
    def is_main(self) -> bool:
        """Whether this is the process that writes files and prints."""
        return self.rank == 0

    def share(self, n: int) -> slice:
        """This process's part of `n` rows: consecutive, so that the completions of a prompt mostly stay together."""
        least, more = divmod(n, self.count)  # the first `more` processes have one row more than the others
        start = self.rank * least + min(self.rank, more)
        return slice(start, start + least + (self.rank < more))

    def local_rows(self, x: Shaped[Tensor, "n ..."]) -> Int[Tensor, " m"]:
        """The numbers of this process's share of the rows of `x`."""
        return torch.arange(len(x), device=x.device)[self.share(len(x))]

    def roll_out(
        self, rollout_fn: Callable[..., Rollout], problems: list[Problem], *, group_size: int, seed: str
    ) -> Rollout:
        """Each process samples and scores the completions of its share of the problems, with a seed of its own.

        Raises:
            ValueError: If there are fewer problems than processes.
        """
        if len(problems) < self.count:
            raise ValueError(f"{len(problems)} problems cannot be shared by {self.count} processes: raise --prompts")
        seed = f"{seed}/process {self.rank}"
        share = rollout_fn(problems[self.share(len(problems))], group_size=group_size, seed=seed)
        # A task may put anything into its problems, and every process has them already: they are not sent.
        whole = join(self.all_gather_object(_to_device(replace(share, problems=[]), "cpu")))
        rows = [problem for problem in problems for _ in range(group_size)]
        return _to_device(replace(whole, problems=rows), share.mask.device)

    def all_gather(self, x: Shaped[Tensor, "m ..."]) -> Shaped[Tensor, "n ..."]:
        """All rows in order, from each process's share of them, of the same shape except for their number."""
        return torch.cat(self.all_gather_object(x.cpu())).to(x.device)

    def all_gather_object(self, x: Result) -> list[Result]:
        """What each of several processes gives here, in the order of their ranks.

        Args:
            x: Anything that can be pickled. Tensors have to be on the CPU: a device is one process's own.
        """
        from accelerate.utils import gather_object

        gathered: list[Result] = gather_object([x])
        return gathered

    def all_reduce_sum(self, x: Tensor) -> Tensor:
        """The sum over all processes."""
        return self._reduced(x).sum(0)

    def all_reduce_max(self, x: Tensor) -> Tensor:
        """The largest of all processes, entry by entry."""
        return self._reduced(x).amax(0)

    def all_reduce_any(self, x: bool) -> bool:
        """Whether the value is true in any process: the same result in all."""
        return bool(self.all_reduce_max(torch.tensor([x], dtype=torch.long)).item())

    def all_reduce_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Every gradient becomes the sum of all processes' gradients; one that a process does not have counts as 0."""
        from accelerate.utils import reduce

        for parameter in parameters:
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            parameter.grad = reduce(gradient, reduction="sum")

    def barrier(self) -> None:
        """Waits until every process has called this."""
        from accelerate import PartialState

        PartialState().wait_for_everyone()

    def close(self) -> None:
        """Closes the connection that `launched` made."""
        from accelerate import PartialState

        PartialState().destroy_process_group()

    def _reduced(self, x: Tensor) -> Tensor:
        """[count, ...] the tensors of all processes."""
        return self.all_gather(x[None])


def _to_device(rollout: Rollout, device: str | torch.device) -> Rollout:
    return replace(rollout, **{name: getattr(rollout, name).to(device) for name in TENSORS})


def launched(device: torch.device) -> tuple[Processes, torch.device]:
    """This process's place among those that `accelerate launch` (or torchrun) started, and the device it is to use.

    Args:
        device: Its type decides how the processes communicate: gloo on the CPU, NCCL on CUDA.

    Returns:
        `ALONE` and the given device if only one process was launched.

    Raises:
        ValueError: If several were launched and accelerate is missing, cannot connect them, or was told to shard
            the model: the loop here keeps a whole model in every process.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        return ALONE, device
    try:
        from accelerate import PartialState
    except ImportError as error:
        raise ValueError("several processes need the package accelerate: pip install accelerate") from error
    for name, words in (("FSDP", "FSDP"), ("DEEPSPEED", "DeepSpeed"), ("MEGATRON_LM", "Megatron-LM")):
        if os.environ.get(f"ACCELERATE_USE_{name}", "false").lower() == "true":
            raise ValueError(
                f"{words} shards a model over processes, and this loop keeps a whole one in each: launch it with plain "
                "data parallelism, or export the run to a library that shards (export --to trl)"
            )
    state = PartialState(cpu=device.type == "cpu")
    return Several(state.process_index, state.num_processes), device if device.type == "cpu" else state.device
