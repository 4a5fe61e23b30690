"""What is no verifier's fault is still an error."""

import pytest

from rlhf_minimal.tasks import Problem, get_task, verify_all


def test_one_completion_per_problem():
    with pytest.raises(ValueError, match="got 1 problems, 2 completions"):
        verify_all(get_task("even"), [Problem("1:", "")], ["2", "4"])
