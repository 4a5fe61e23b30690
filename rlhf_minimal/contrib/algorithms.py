r"""More rows of the table: what is run in 2026, in the same form as `rlhf_minimal.algorithms`.

Of these rows `opd` alone has a chapter of its own, that on distillation, in whose depth `sdpo` is derived. Of the
others, chapters derive and measure single cells; the docstring of a cell names its chapter.

They are rows like all others: `rlhf_minimal.ALGORITHMS` holds them, every test that is asked of a row is asked of them,
`train`, `diff` and `get_algorithm` take them by name. `table()` alone leaves them out, since a table is read at a
glance; `table(contrib.ALGORITHMS)` prints them.

Arguments in order: advantage, ratio, gate, aggregate. Numbers are the papers' own unless a comment says otherwise.
"""

from functools import partial

from ..functional import advantages, aggregation, corrections, filters, gates, ratios
from ..objective import KL, Algorithm
from .advantages import batch_std, best_minus_second, gae_by_length, gdpo, greedy_baseline, maxrl, opo, teacher_gap
from .aggregation import prompt_mean
from .corrections import masked_importance
from .gates import mask_weight, topr, vespo
from .ratios import product_token
from .trust import dppo_tv, high_entropy, off_policy_sequence

ALGORITHMS: dict[str, Algorithm] = {
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
        correct=partial(masked_importance, low=0.5, high=2.0),
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
        trust=partial(off_policy_sequence, delta=0.5),
    ),
    # DPPO, arXiv 2602.04879: the trust region is a difference of probabilities, not a band of ratios. With the squared
    # log-ratio of Kimi K2.5, whose coefficient of .001 is twice k2's, it is prime-rl's default of August 2026; verl's
    # form has no KL and caps the ratio at 20, gate=partial(gates.clip_weight, cap=20.0).
    "dppo": Algorithm(
        advantages.group_centered,
        ratios.token,
        gates.none,
        aggregation.token_mean,
        kl=(KL(0.002, "k2", against="old"),),
        trust=partial(dppo_tv, low=0.2, high=0.2),
    ),
    # Khatri et al., arXiv 2510.13786: CISPO's weight, the batch's std, a mean within each prompt, prompts with one
    # outcome left out. The paper tries caps from 4 to 8. (Not here: it stops asking prompts that are nearly solved.)
    "scalerl": Algorithm(
        batch_std, ratios.token, partial(gates.clip_weight, cap=5.0), prompt_mean, keep=filters.mixed_outcomes
    ),
    # Lite PPO, arXiv 2508.08221: PPO's clip without a critic, the group's mean, the batch's std, every token counts
    # alike. The clip range is TRL's default; the paper changes the two others only.
    "lite_ppo": Algorithm(batch_std, ratios.token, partial(gates.clip, low=0.2, high=0.2), aggregation.token_mean),
    # DRO, Richemond et al., arXiv 2405.19107, as libraries run it online: the squared loss of Kimi k1.5 token by token,
    # that of whole completions is `kimi_k2`. Beta is a choice (verl's default is .1), and the baseline is the group's
    # mean instead of a learned value.
    "dro": Algorithm(
        advantages.group_centered,
        ratios.on_policy,
        gates.none,
        aggregation.token_mean,
        kl=(KL(0.1, "k2", against="old"),),
    ),
    # LUSPO, arXiv 2602.05261: GSPO with each sequence's term times its length. The bounds are those that TRL gives for
    # it.
    "luspo": Algorithm(
        advantages.group_normalized,
        ratios.sequence,
        partial(gates.clip, low=2e-3, high=2.5e-3),
        aggregation.sequence_sum,
    ),
    # Olmo 3, arXiv 2512.13961: DAPO's clip and mean on centred rewards, the engine's weight capped at 2, prompts with
    # one outcome left out, no KL.
    "olmo3": Algorithm(
        advantages.group_centered,
        ratios.token,
        partial(gates.clip, low=0.2, high=0.272),
        aggregation.token_mean,
        keep=filters.mixed_outcomes,
        correct=partial(corrections.truncated_importance, cap=2.0),
    ),
    # Kimi K2.5, arXiv 2602.02276; K3 (2607.24653) keeps it. The report prints bounds and tau as symbols: .8 and 1.28
    # are DAPO's, tau = .01 (k2's coefficient is twice that) is a choice; prime-rl takes .001.
    "kimi_k25": Algorithm(
        advantages.group_centered,
        ratios.token,
        partial(mask_weight, low=0.2, high=0.28),
        aggregation.token_mean,
        kl=(KL(0.02, "k2", against="old"),),
    ),
    # TOPR, Le Roux et al., arXiv 2503.14286, with the ratio of each token, as libraries have it; the paper truncates
    # that of the whole sequence (product_token), and its rewards are +1 and -1. The baseline is Trinity-RFT's.
    "topr": Algorithm(advantages.group_centered, ratios.token, topr, aggregation.sequence_sum),
    # MaxRL, arXiv 2602.02710: the advantage is the paper's; what stands around it, DAPO's clip and mean, is a choice.
    "maxrl": Algorithm(maxrl, ratios.token, partial(gates.clip, low=0.2, high=0.28), aggregation.token_mean),
    # OPO, arXiv 2505.23585: exactly on-policy. Its baseline is derived for a sum over tokens.
    "opo": Algorithm(opo, ratios.on_policy, gates.none, aggregation.sequence_sum),
    # Tang et al., arXiv 2503.19595, a policy gradient of the best of G; the division by the std is verl's.
    "pass_at_k": Algorithm(best_minus_second, ratios.on_policy, gates.none, aggregation.sequence_sum),
    # SAO, arXiv 2607.07508 (the agents of GLM-5.2): one completion a prompt is enough, since a critic says what was to
    # be expected. The critic learns plain returns. The ratio is to the engine that sampled, which is what `old_logp` is
    # unless a row asks for both. The window is that of reimplementations; the mean is read as one over tokens. Not
    # here: the critic's attention is frozen.
    "sao": Algorithm(
        partial(gae_by_length, alpha=1.5),
        ratios.token,
        partial(mask_weight, low=0.3, high=5.0),
        aggregation.token_mean,
        targets=partial(advantages.gae, lam=1.0),
    ),
    # On-policy distillation, arXiv 2306.13649, as a policy gradient (Qwen3, arXiv 2505.09388; Lu, Thinking Machines,
    # 2025): the student samples, a teacher in the reference's place judges each token, and nothing else is paid. Other
    # libraries take current log-probs in the gap: no advantage then, and kl=KL(1, "k3", weighted=True).
    "opd": Algorithm(teacher_gap, ratios.token, gates.none, aggregation.token_mean),
    # SDPO, arXiv 2601.20802, at sampled tokens; SDFT, 2601.19897, is its relative with a demonstration. The teacher is
    # the policy itself with more in its prompt: a checker's words, or a right completion of the group. Nothing in the
    # loss knows that, so the row is `opd` with a mean by completion and TRL's cap of 2 on the ratio. A completion that
    # there is nothing to say about has the policy without more for its teacher, and a gap of 0.
    "sdpo": Algorithm(teacher_gap, ratios.token, partial(gates.clip_weight, cap=2.0), aggregation.sequence_mean),
    # ReMax, Li et al., arXiv 2310.10505: the greedy completion of the same prompt says what was to be expected. The
    # paper puts a KL into the reward; without one, as here, it is verl's `remax` in the loss of REINFORCE.
    "remax": Algorithm(greedy_baseline, ratios.on_policy, gates.none, aggregation.sequence_sum),
    # Wang et al., arXiv 2506.01939: DAPO on the fifth of the tokens with the highest entropy. The quantile is that of
    # the whole optimiser step, so it takes micro_batches=1; N still counts all tokens, as in TRL. (Not here: DAPO's
    # ramp before the budget.)
    "high_entropy": Algorithm(
        advantages.group_normalized,
        ratios.token,
        partial(gates.clip, low=0.2, high=0.28),
        aggregation.token_mean,
        keep=filters.mixed_outcomes,
        trust=partial(high_entropy, share=0.2),
    ),
    # GDPO, arXiv 2601.05242: each part of a reward compared within the group, then added, then whitened by tokens as in
    # verl; TRL's z-score over rows is normalize=zscore_rows. The clip is verl's default.
    "gdpo": Algorithm(
        gdpo, ratios.token, partial(gates.clip, low=0.2, high=0.2), aggregation.token_mean, normalize=advantages.whiten
    ),
    # VESPO, arXiv 2602.10693: the weight of a whole completion, without a root, tapered on both sides. Numbers are the
    # paper's; the advantage and the mean over tokens are TRL's.
    "vespo": Algorithm(advantages.group_normalized, product_token, vespo, aggregation.token_mean),
}
