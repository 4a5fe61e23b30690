"""The lecturer's key to the variants: what a student would hand in, each convention from its words, in loops.

`course.py --answers` prints from it; the tests hold it against the references, which were written apart from it.
"""

GROUPS = """
def my_group_advantage(rewards, group_size, eps=1e-4):
    answer = []
    for start in range(0, len(rewards), group_size):
        group = rewards[start : start + group_size]
        mean = sum(group) / group_size
        if all(r == group[0] for r in group):
            answer += [0.0 * group[0]] * group_size
            continue
        spread = {spread}
        answer += [(r - mean) / (spread + eps) for r in group]
    return torch.stack(answer)
"""
CLIPPED = """
def my_clipped_loss(logp, old_logp, advantages, mask, low=0.2, high=0.2):
    rows, tokens = [], 0
    for i in range(len(logp)):
        total, length = 0.0, 0
        for t in range(logp.shape[1]):
            if mask[i, t]:
                w, A = (logp[i, t] - old_logp[i, t]).exp(), advantages[i]
                held = w.clamp(min=1 - low, max=1 + high)
                total = total + (w * A if w * A < held * A else held * A)
                length += 1
        tokens += length
        rows.append((total, length))
    return -({average})
"""
K3 = """
def my_k3_penalty(logp, ref_logp, mask):
    rows, tokens = [], 0
    for i in range(len(logp)):
        total, length = 0.0, 0
        for t in range(logp.shape[1]):
            if mask[i, t]:
                log_r = ref_logp[i, t] - logp[i, t]
                total = total + ({estimate})
                length += 1
        tokens += length
        rows.append((total, length))
    return {average}
"""
TOKENS = "sum(total for total, _ in rows) / tokens"
SUMS = "sum(total for total, _ in rows) / len(rows)"
ROOTS = "sum(total / length**0.5 for total, length in rows) / len(rows)"
MEANS = "sum(total / length for total, length in rows) / len(rows)"
RIVAL = """
def my_leave_one_out(rewards, group_size):
    answer = []
    for i, r in enumerate(rewards.tolist()):
        start = i - i % group_size
        others = [rewards[j].item() for j in range(start, start + group_size) if j != i]
        answer.append(r - {rival}(others))
    return torch.tensor(answer)
"""
DEAD = """
def my_dead_share(p, group_size):
    total = 0.0
    for q in p.tolist():
        for right in range(group_size + 1):
            chance = math.comb(group_size, right) * q**right * (1 - q) ** (group_size - right)
            total += chance * ({counts})
    return total / len(p)
"""
GAE = """
def my_gae(rewards, values, mask, gamma, lam):
    answer = torch.zeros_like(rewards)
    for i in range(len(rewards)):
        kept = [t for t in range(rewards.shape[1]) if mask[i, t]]
        V = [values[i, t] for t in kept] + [{after} if kept else 0.0]
        delta = [rewards[i, t] + gamma * V[k + 1] - V[k] for k, t in enumerate(kept)]
        for k, t in enumerate(kept):
            later = [(gamma * lam) ** (n - k) * delta[n] for n in range(k, len(kept))]
            answer[i, t] = sum(later) {plus}
    return answer
"""
VALUES = """
def my_value_loss(values, old_values, returns, mask, clip):
    total = count = 0.0
    for v, old, target, m in zip(values.flatten(), old_values.flatten(), returns.flatten(), mask.flatten()):
        if m:
            near = old + (v - old).clamp(-clip, clip)
            a, b = {error}
            total, count = total + torch.stack([a, b]).{pick}(), count + 1
    return {factor} * total / count
"""
N_STEP = """
def my_n_step(rewards, values, n):
    T, answer = len(rewards), []
    for t in range(T):
        total, factor = 0.0, 1.0
        for s in range(t, t + n):
            total, factor = total + factor * (rewards[s] if s < T else 0.0), factor * {gamma}
        answer.append(total + factor * (values[t + n] if t + n < T else 0.0) - values[t])
    return torch.stack(answer)
"""
RATIO = """
def my_sequence_ratio(logp, old_logp, mask):
    answer = []
    for i in range(len(logp)):
        kept = [t for t in range(logp.shape[1]) if mask[i, t]]
        drift = sum(logp[i, t] - old_logp[i, t] for t in kept)
        answer.append((drift / {length}).exp())
    return torch.stack(answer)
"""
GSPO = (
    RATIO
    + """

def my_gspo_loss(logp, old_logp, advantages, mask, low=3e-4, high=4e-4):
    total = 0.0
    for s, A in zip(my_sequence_ratio(logp, old_logp, mask), advantages):
        held = s.clamp(1 - low, 1 + high)
        total = total + (s * A if s * A < held * A else held * A)
    return -total / len(logp)
"""
)
REWARD = """
def my_reward_loss(chosen, rejected):
    lead = chosen - rejected - {margin}
    return torch.nn.functional.softplus(-lead).mean()
"""
DPO = """
def my_dpo_loss(chosen, rejected, ref_chosen, ref_rejected, beta):
    softplus = torch.nn.functional.softplus
    lead = beta * (chosen - ref_chosen - rejected + ref_rejected)
    return (softplus(-lead) + {flip} * (softplus(lead) - softplus(-lead))).mean()
"""
LOGPROBS = """
def my_logprobs(logits, ids, temperature):
    rows = []
    for i in range(len(ids)):
        row = []
        for t in range(ids.shape[1] - 1):
            scaled = logits[i, t] / temperature
            logp = scaled.log_softmax(0)[ids[i, t + 1]]
            share = torch.tensor({share}, dtype=logp.dtype)
            both = torch.stack([logp + (1 - share).log(), (share / len(scaled)).log()])
            row.append(both.logsumexp(0))
        rows.append(torch.stack(row))
    return torch.stack(rows)
"""
MEAN = """
def my_masked_mean(x, mask):
    kept = [x[i, t] for i in range(len(x)) for t in range(x.shape[1]) if mask[i, t]]
    return {average}
"""
DR_GRPO = """
def my_dr_grpo_loss(logp, old_logp, rewards, mask, group_size, budget):
    total = 0.0
    for i in range(len(logp)):
        start = i - i % group_size
        A = rewards[i] - sum(rewards[start : start + group_size]) / group_size
        for t in range(logp.shape[1]):
            if mask[i, t]:
                w = (logp[i, t] - old_logp[i, t]).exp()
                held = w.clamp(1 - {low}, 1 + {high})
                total = total + (w * A if w * A < held * A else held * A)
    return -total / (len(logp) * budget)
"""
CORRECTED = """
def my_corrected_loss(logp, sampler_logp, advantages, mask, cap):
    total = count = 0.0
    for i in range(len(logp)):
        for t in range(logp.shape[1]):
            if mask[i, t]:
                w = math.exp(logp[i, t].item() - sampler_logp[i, t].item())
                total = total - {weight} * advantages[i] * logp[i, t]
                count += 1
    return total / count
"""
LORA = """
def my_lora(x, weight, down, up, alpha):
    return x @ (weight + {scale} * up @ down).T
"""
ERRORS = {"smaller": "(v - target) ** 2, (near - target) ** 2", "absolute": "(v - target).abs(), (near - target).abs()"}
LENGTHS = {"root": "len(kept) ** 0.5", "eighth": "8"}

ANSWERS = {
    ("grpo-advantage", "population"): GROUPS.format(spread="(sum((r - mean) ** 2 for r in group) / group_size) ** 0.5"),
    ("grpo-advantage", "absolute deviation"): GROUPS.format(spread="sum(abs(r - mean) for r in group) / group_size"),
    ("grpo-advantage", "range"): GROUPS.format(spread="max(group) - min(group)"),
    ("grpo-clipped-loss", "tokens"): CLIPPED.format(average=TOKENS),
    ("grpo-clipped-loss", "sums"): CLIPPED.format(average=SUMS),
    ("grpo-clipped-loss", "root lengths"): CLIPPED.format(average=ROOTS),
    ("grpo-k3", "tokens"): K3.format(estimate="log_r.exp() - 1 - log_r", average=TOKENS),
    ("grpo-k3", "sums"): K3.format(estimate="log_r.exp() - 1 - log_r", average=SUMS),
    ("grpo-k3", "k2"): K3.format(estimate="log_r * log_r / 2", average=MEANS),
    ("grpo-leave-one-out", "largest"): RIVAL.format(rival="max"),
    ("grpo-leave-one-out", "smallest"): RIVAL.format(rival="min"),
    ("grpo-dead-groups", "live"): DEAD.format(counts="0 < right < group_size"),
    ("grpo-dead-groups", "at most one"): DEAD.format(counts="right in (0, 1, group_size)"),
    ("gae-recursion", "cut off"): GAE.format(after="values[i, kept[-1]]", plus=""),
    ("gae-recursion", "returns"): GAE.format(after="0.0", plus="+ values[i, t]"),
    ("gae-value-loss", "smaller"): VALUES.format(error=ERRORS["smaller"], pick="amin", factor="0.5"),
    ("gae-value-loss", "absolute"): VALUES.format(error=ERRORS["absolute"], pick="amax", factor="1"),
    **{("gae-n-step", f"gamma {gamma}"): N_STEP.format(gamma=gamma) for gamma in (0.8, 0.9, 0.95)},
    **{("board-gspo-ratio", name): RATIO.format(length=length) for name, length in LENGTHS.items()},
    **{("gspo-loss", name): GSPO.format(length=length) for name, length in LENGTHS.items()},
    **{("board-reward-loss", f"margin {m:g}"): REWARD.format(margin=m) for m in (0.5, 1.0, 2.0)},
    **{("board-dpo", f"smoothing {flip}"): DPO.format(flip=flip) for flip in (0.05, 0.1, 0.2)},
    **{("board-logprobs", f"mixture {share}"): LOGPROBS.format(share=share) for share in (0.05, 0.1, 0.25)},
    ("board-masked-mean", "squares"): MEAN.format(average="sum(x * x for x in kept) / len(kept)"),
    ("board-masked-mean", "row sums"): MEAN.format(average="sum(kept) / len(x)"),
    ("dr-grpo-loss", "clip 0.1/0.1"): DR_GRPO.format(low=0.1, high=0.1),
    ("dr-grpo-loss", "clip 0.2/0.4"): DR_GRPO.format(low=0.2, high=0.4),
    ("scale-truncated", "dropped"): CORRECTED.format(weight="(w if w <= cap else 0.0)"),
    ("scale-truncated", "floored"): CORRECTED.format(weight="min(max(w, 1 / cap), cap)"),
    ("scale-lora", "root rank"): LORA.format(scale="alpha / len(down) ** 0.5"),
    ("scale-lora", "alpha"): LORA.format(scale="alpha"),
}
IMPORTS = "import math\n\nimport torch\n"


def answer(name: str, convention: str) -> str:
    """The code of one convention, without imports."""
    return ANSWERS[name, convention].strip()
