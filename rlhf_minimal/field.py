r"""More rows of the table: what is run in 2026, in the same form as `algorithms.py`. No chapter derives them yet.

They are rows like all others: `ALGORITHMS` holds them, every test that is asked of a row is asked of them, `train`,
`diff` and `get_algorithm` take them by name. `table()` alone leaves them out, since a table is read at a glance;
`table(FIELD)` prints them. A row moves to `algorithms.py` together with its chapter.

Arguments in order: advantage, ratio, gate, aggregate. Numbers are the papers' own unless a comment says otherwise.
"""

from functools import partial

from .functional import advantages, aggregation, corrections, filters, gates, ratios, trust
from .objective import KL, Algorithm

FIELD: dict[str, Algorithm] = {
    # Hu et al., arXiv 2501.03262: centred by prompt, scaled by batch. Whitening is weighted by tokens. The paper leaves
    # the KL's form open: k2 in the loss with beta .001 is verl's; others subtract k1 from the advantage.
    "reinforce_pp_baseline": Algorithm(
        advantages.group_centered,
        ratios.token,
        partial(gates.clip, low=0.2, high=0.2),
        aggregation.token_mean,
        kl=(KL(0.001, "k2"),),
        normalize=advantages.whiten,
    ),
    # IcePop, arXiv 2510.18855; GLM-5, arXiv 2602.15763, eq. 1, with the band [1/2, 2] between the trainer's old policy
    # and the engine that sampled. Where they disagree by more, the token is left out; where by less, it is weighed.
    "icepop": Algorithm(
        advantages.group_normalized,
        ratios.token,
        partial(gates.clip, low=0.2, high=0.28),
        aggregation.sequence_mean,
        correct=partial(corrections.masked_importance, low=0.5, high=2.0),
    ),
    # DeepSeek-V3.2, arXiv 2512.02556: bad completions that the policy has left behind are forgotten, and k3 is weighted
    # by the ratio, which makes its gradient that of KL(pi || ref). The paper gives neither delta nor beta; .5 and .001
    # are TRL's. No part of the loss, and not here: its mixture of experts routes as it did while sampling, and its
    # log-probs are renormalised over the tokens that top-p had left.
    "deepseek_v32": Algorithm(
        advantages.group_centered,
        ratios.token,
        partial(gates.clip, low=0.2, high=0.2),
        aggregation.sequence_mean,
        kl=(KL(0.001, "k3", weighted=True),),
        trust=partial(trust.off_policy_sequence, delta=0.5),
    ),
    # DPPO, arXiv 2602.04879: the trust region is a difference of probabilities, not a band of ratios. With the squared
    # log-ratio of Kimi K2.5, whose coefficient of .001 is twice k2's, it is prime-rl's default loss; verl's form has no
    # KL and caps the ratio at 20, gate=partial(gates.clip_weight, cap=20.0).
    "dppo": Algorithm(
        advantages.group_centered,
        ratios.token,
        gates.none,
        aggregation.token_mean,
        kl=(KL(0.002, "k2", against="old"),),
        trust=partial(trust.dppo_tv, low=0.2, high=0.2),
    ),
    # Khatri et al., arXiv 2510.13786: CISPO's weight, the batch's std, a mean within each prompt, prompts with one
    # outcome left out. The paper tries caps from 4 to 8. (Not here: it stops asking prompts that are nearly solved.)
    "scalerl": Algorithm(
        advantages.batch_std,
        ratios.token,
        partial(gates.clip_weight, cap=5.0),
        aggregation.prompt_mean,
        keep=filters.mixed_outcomes,
    ),
}
