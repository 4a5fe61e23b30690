"""What a model that is paid by a judge writes in the end, and what the judge says of it.

python notebooks/results/self_play_winner.py              runs what is not yet recorded
python notebooks/results/self_play_winner.py frozen       only the arms named
Writes notebooks/results/self-play-winner.json, a line a run. The runs are the arms "dose-0" (paid by the present weights)
and "frozen" (paid by the start's) of self_play_runs.py, at 8e-4, with the same seeds; 13 s each. After the last step each
model writes its most probable completion for 400 held-out problems. Then two judges, the weights of the start and those of
the end, read the right sum and what the model wrote. A judge pays 1 where its yes is more probable than its no.

A line keeps, over the 400 problems, the share right; how often each judge pays the right sum, and what the model wrote;
and for the problems whose last completion is wrong, how many the start's judge pays for neither, for the right sum alone,
for the wrong one alone, and for both. `shown` are the first three problems of which it pays the wrong one alone.
tests/results/test_self_play_winner.py holds what is said here and in the chapter to the record.
"""

from typing import Any

import torch
from recording import SEEDS as SEEDS
from recording import record
from self_play_runs import RECIPE, TASK, begin, judgements, train
from torch import Tensor

from rlhf_minimal.train import roll_out

ARMS, ASKED, SHOWN = ("dose-0", "frozen"), 400, 3


def run(arm: str, seed: int, *, steps: int = 100) -> dict[str, Any]:
    """One run, as it is recorded."""
    start, vocabulary = begin()
    end, _ = train(arm, seed, steps=steps)
    problems = TASK.problems("held_out", ASKED, seed="winner", distinct=True)
    prompts = [p.prompt for p in problems]
    texts = {"sum": [p.answer for p in problems]}
    for name, model in (("first", start), ("last", end)):
        out = roll_out(
            model, vocabulary, problems, RECIPE, temperature=0.0, seed="winner"
        )
        texts[name] = out.texts
    says: dict[str, dict[str, Tensor]] = {
        who: {
            name: judgements(judge, vocabulary, prompts, said)
            for name, said in texts.items()
        }
        for who, judge in (("start", start), ("end", end))
    }
    wrong = torch.tensor(
        [a != b for a, b in zip(texts["last"], texts["sum"], strict=True)]
    )
    pays = {name: said > 0.5 for name, said in says["start"].items()}
    cases = {
        "neither": ~pays["sum"] & ~pays["last"],
        "sum": pays["sum"] & ~pays["last"],
        "wrong": ~pays["sum"] & pays["last"],
        "both": pays["sum"] & pays["last"],
    }
    picked = (wrong & cases["wrong"]).nonzero().flatten().tolist()[:SHOWN]
    return {
        "right": round(1 - wrong.float().mean().item(), 4),
        "pays": {
            who: {
                name: round((said > 0.5).float().mean().item(), 4)
                for name, said in table.items()
            }
            for who, table in says.items()
        },
        "cases": {name: int((rows & wrong).sum()) for name, rows in cases.items()},
        "shown": [
            {
                "prompt": prompts[i],
                **{name: said[i] for name, said in texts.items()},
                "yes": {
                    who: {
                        name: round(said[i].item(), 3) for name, said in table.items()
                    }
                    for who, table in says.items()
                },
            }
            for i in picked
        ],
    }


if __name__ == "__main__":
    record(__file__, ARMS, run, steps=100, problems=ASKED)
