"""What the exercises and bugs on making it fast say, held to the library."""

import torch

from rlhf_book.exercises import BUGS
from rlhf_book.exercises.making_it_fast.cut import my_least_cost
from rlhf_minimal.functional.aggregation import token_mean
from rlhf_minimal.lab.fast import pieces_by_length
from rlhf_minimal.objective import Totals


def test_the_library_finds_no_dearer_pieces_than_the_exercise():
    """It may cut more often than once; where it cuts once or not at all, the costs are the same."""
    generator, same = torch.Generator().manual_seed(0), 0
    for _ in range(200):
        lengths = torch.randint(1, 30, (8,), generator=generator)
        overhead = int(torch.randint(1, 60, (), generator=generator))
        pieces = pieces_by_length(lengths, overhead=overhead)
        cost = sum(len(rows) * int(lengths[rows].max()) + overhead for rows in pieces)
        assert cost <= my_least_cost(lengths, overhead)
        if len(pieces) <= 2:
            same += 1
            assert cost == my_least_cost(lengths, overhead)
    assert same > 50


def test_the_mended_loss_is_the_librarys():
    generator = torch.Generator().manual_seed(0)
    logp, mask = torch.randn(4, 3, generator=generator), torch.ones(4, 3)
    advantages = torch.tensor([1.0, -1.0, 0.0, 0.0])
    totals = Totals(4, 12, None)
    found = BUGS["thrifty-loss"].mended(logp, advantages, mask)
    torch.testing.assert_close(found, -token_mean(logp * advantages[:, None], mask, totals=totals))
