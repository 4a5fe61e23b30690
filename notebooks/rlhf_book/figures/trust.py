"""The numbers that the trust explorer shows, computed here: the page's module holds no row and no formula."""

from dataclasses import replace

import torch

from rlhf_minimal import ALGORITHMS, Batch, policy_loss

# A token's probability now and when it was sampled, as logits; both lie on one lattice, so that "not moved" is in it.
NOW = torch.arange(-80, 51, dtype=torch.float64) / 10
SAMPLED = torch.tensor([-7, -5, -3, -2, -1, 0, 1, 3], dtype=torch.float64)
OLD = (
    "sampler",
    "own",
)  # whose log-probs are the old ones: the sampler's, or the trainer's own, read anew

# Rows that decide alike share a line, under the first one's name.
ROWS = {
    "reinforce": "no ratio",
    "grpo": "clip 0.2 / 0.2",
    "dapo": "clip 0.2 / 0.28",
    "sapo": "soft gate",
    "cispo": "weight at most 5",
    "topr": "bad tokens: weight at most 1",
    "kimi_k25": "window 0.8 to 1.28",
    "sao": "window 0.7 to 6",
    "dppo": "probability moved 0.2 at most",
    "olmo3": "clip, times pi/mu at most 2",
    "icepop": "clip, times pi/mu in 0.5 to 2",
    "deepseek_v32": "clip; bad tokens: at most 0.5 nats lost",
}


def weights(
    name: str, now: torch.Tensor, sampled: torch.Tensor, old: str, sign: int
) -> torch.Tensor:
    """[K] probabilities now and when sampled -> [K]: what multiplies the score of each token, by autograd.

    Each token is a completion of its own, so that means over a completion are the token itself. KL terms are left out.

    Args:
        name: a row.
        now: probabilities under the policy that is trained.
        sampled: probabilities under the engine that sampled.
        old: "sampler" if old log-probs are the sampler's, "own" if the trainer has just read them.
        sign: of the advantage.
    """
    row = replace(ALGORITHMS[name], kl=(), keep=None)
    logp = now.log()[:, None].requires_grad_()
    mu = sampled.log()[:, None]
    batch = Batch(
        logp,
        mu if old == "sampler" else logp.detach(),
        torch.ones_like(mu),
        torch.zeros(len(now), dtype=torch.float64),
        1,
        advantages=torch.full((len(now),), float(sign), dtype=torch.float64),
        sampler_logp=mu,
    )
    (gradient,) = torch.autograd.grad(policy_loss(row, batch), logp)
    return -len(now) * gradient[:, 0]


def nearest(now: float, sampled: float) -> dict[str, int]:
    """Where two probabilities stand on the lattice.

    Raises:
        ValueError: a probability that is not between 0 and 1.

    Example:
        >>> at = nearest(0.5, 0.5)
        >>> NOW[at["now"]].item(), SAMPLED[at["sampled"]].item()
        (0.0, 0.0)
    """
    found = {}
    for name, p, lattice in (("now", now, NOW), ("sampled", sampled, SAMPLED)):
        if not 0 < p < 1:
            raise ValueError(f"{name} is {p}, expected a probability between 0 and 1")
        logit = torch.tensor(p, dtype=torch.float64).logit()
        found[name] = int((lattice - logit).abs().argmin())
    return found


def trust_table() -> dict:
    """Every weight that the explorer can show.

    Returns:
        `table`, with `now` and `sampled`, probabilities; `rows`, each with its name and what decides in it; `curves`,
        each a list by sampled probability of a list by probability now; `curve`, the number of the curve by
        "old/sign/row".

    Example:
        >>> table = trust_table()["table"]
        >>> table["rows"][1]
        {'name': 'grpo', 'what': 'clip 0.2 / 0.2'}
        >>> curve = table["curves"][table["curve"]["own/1/grpo"]]
        >>> set(curve[0])
        {1.0}
    """
    now, sampled = (
        x.flatten()
        for x in torch.meshgrid(NOW.sigmoid(), SAMPLED.sigmoid(), indexing="ij")
    )
    curves: list[list[list[float]]] = []
    number = {}
    for old in OLD:
        for sign in (1, -1):
            for name in ROWS:
                found = weights(name, now, sampled, old, sign)
                by_sampled = found.view(len(NOW), len(SAMPLED)).T.tolist()
                curve = [[float(f"{w:.4g}") + 0.0 for w in line] for line in by_sampled]
                if curve not in curves:
                    curves.append(curve)
                number[f"{old}/{sign}/{name}"] = curves.index(curve)
    return {
        "table": {
            "now": [float(f"{p:.4g}") for p in NOW.sigmoid().tolist()],
            "sampled": [float(f"{p:.4g}") for p in SAMPLED.sigmoid().tolist()],
            "rows": [{"name": name, "what": what} for name, what in ROWS.items()],
            "curves": curves,
            "curve": number,
        }
    }
