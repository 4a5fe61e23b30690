"""The playground's engine computes what the library and torch compute.

It runs under Node here; tests/browser trains with it in Chromium.
"""

import random

import pytest
import torch

from rlhf_book.figures.playground import kernel, weights
from rlhf_book.figures.wat import assemble
from tests.viz.engine import ROOT, ROWS, in_engine, recorded, script

# ---- the numbers are those of the library ------------------------------------------------------------------------

# The recorded batch in the engine; `use` puts other log-probs of the sampler in, `of` reads a table of [B][T].
BATCH = """
const flat = (table) => Float64Array.from(table.flat());
function loaded(options) {
  const trainer = make({ prompts: 4, group: 4 }, options);
  const batch = rollout(trainer.machine, trainer.policy, trainer.tree, trainer.machine.main, D.prompts, D.group,
    given(D.completions), options.shared);
  return { trainer, batch, now: trainer.logProbs(batch, trainer.machine.main) };
}
const kept = (x, batch) => Array.from({ length: batch.B }, (_, i) => [...x.slice(i * BUDGET,
  i * BUDGET + batch.length[i])]);
"""


def kept(table, mask):
    return [[x for x, m in zip(*pair, strict=True) if m] for pair in zip(table, mask, strict=True)]


def test_log_probs_advantages_losses_and_slopes_of_every_row_are_the_librarys():
    numbers = recorded("playground_numbers")
    assert set(numbers["rows"]) == set(ROWS)
    found = in_engine(
        BATCH
        + """
        const { batch, now } = loaded({}), exact = flat(D.logp), found = { logp: kept(now, batch), rows: {} };
        for (const [name, row] of Object.entries(ROWS)) {
          found.rows[name] = {};
          for (const [variant, old, kl] of [["first", D.logp, 0], ["later", D.old, 0], ["penalised", D.old, D.beta]]) {
            batch.logp.set(flat(old));
            const advantages = prepare(row, batch, D.rewards, kl, flat(D.ref));
            const { loss, slope } = policyLoss(row, batch, advantages, exact, kl, flat(D.ref));
            found.rows[name][variant] = { loss, advantages: kept(advantages, batch), slope: kept(slope, batch) };
          }
        }
        say(found);
        """,
        D=numbers,
    )
    mask = numbers["mask"]
    for mine, theirs in zip(found["logp"], kept(numbers["logp"], mask), strict=True):
        assert mine == pytest.approx(theirs, abs=2e-5)
    for name, variants in found["rows"].items():
        for variant, mine in variants.items():
            theirs = numbers["rows"][name][variant]
            # A surrogate's value at ratio 1 is not -A log pi; the engine has the library's, for every row.
            assert mine["loss"] == pytest.approx(theirs["loss"], rel=1e-6, abs=1e-8), (name, variant)
            for what in ("advantages", "slope"):
                for one, other in zip(mine[what], kept(theirs[what], mask), strict=True):
                    assert one == pytest.approx(other, rel=1e-6, abs=1e-8), (name, variant, what)


def test_the_numbers_are_those_of_the_library_as_it_is_now():
    made = script("playground_numbers")
    numbers = recorded("playground_numbers")
    table = {key: torch.tensor(numbers[key], dtype=torch.float64) for key in ("logp", "old", "mask", "rewards", "ref")}
    batch = tuple(table[key] for key in ("logp", "old", "mask", "rewards", "ref"))
    for name in ROWS:
        for variant, kl in (("later", 0.0), ("penalised", numbers["beta"])):
            now, was = made.of_row(name, batch, kl), numbers["rows"][name][variant]
            assert now["loss"] == pytest.approx(was["loss"], rel=1e-6, abs=1e-8), (name, variant)
            assert torch.tensor(now["slope"]).numpy() == pytest.approx(torch.tensor(was["slope"]).numpy(), abs=1e-7)


@pytest.mark.parametrize("wasm", [True, False])
@pytest.mark.parametrize("shared", [True, False])
def test_the_gradient_of_all_weights_and_a_clipped_step_are_torchs(wasm, shared):
    numbers = recorded("playground_numbers")
    found = in_engine(
        BATCH
        + """
        const found = {};
        for (const [name, row] of Object.entries(ROWS)) {
          const { trainer, batch, now } = loaded(O), { machine, policy } = trainer;
          batch.logp.set(flat(D.old));
          const advantages = prepare(row, batch, D.rewards, D.beta, flat(D.ref));
          trainer.spread(batch, policyLoss(row, batch, advantages, now, D.beta, flat(D.ref)).slope);
          machine.backward(policy, trainer.tree);
          const gradient = Float64Array.from(machine.gradient), before = Float64Array.from(policy.weights);
          const norm = trainer.optimiser.step(policy.weights, machine.gradient, { lr: D.lr });
          found[name] = { norm, gradient: {}, step: {} };
          for (const [tensor, rows, columns] of SHAPES) {
            const size = (tensor === "embed" ? VOCABULARY : rows) * columns, o = PLACE[tensor];
            const g = gradient.subarray(o, o + size), moved = g.map((_, i) => policy.weights[o + i] - before[o + i]);
            const dot = (x, y) => x.reduce((sum, one, i) => sum + one * y(i), 0), length = (x) => Math.sqrt(dot(x,
              (i) => x[i]));
            found[name].gradient[tensor] = [length(g), dot(g, (i) => Math.cos(0.37 * i)), dot(g, (i) =>
              Math.cos(0.0113 * i))];
            found[name].step[tensor] = [length(moved), dot(moved, (i) => g[i])];
          }
        }
        say(found);
        """,
        D=numbers,
        O={"wasm": wasm, "shared": shared},
    )
    clipped = 0
    for name, mine in found.items():
        theirs = numbers["rows"][name]["model"]
        assert mine["norm"] == pytest.approx(theirs["norm"], rel=1e-5)
        clipped += theirs["norm"] > 1
        for tensor, wanted in theirs["gradient"].items():
            assert mine["gradient"][tensor] == pytest.approx(wanted, abs=1e-4 * wanted[0]), (name, tensor)
            # The first step of AdamW is nearly the gradient's sign, which a weight with hardly a gradient may change.
            assert mine["step"][tensor] == pytest.approx(theirs["step"][tensor], rel=2e-3), (name, tensor)
    assert 0 < clipped  # the norm's bound was at work


def test_adamw_is_torchs():
    for case in recorded("playground_numbers")["adamw"]:
        found = in_engine(
            "const adam = new AdamW(10), w = Float32Array.from({ length: 10 }, (_, i) => Math.cos(i));"
            "say(C.steps.map(({ gradient }) => ({ norm: adam.step(w, gradient, { lr: C.lr, decay: C.decay }), "
            "weights: [...w] })))",
            C=case,
        )
        for mine, theirs in zip(found, case["steps"], strict=True):
            assert mine["norm"] == pytest.approx(theirs["norm"], rel=1e-6)
            assert mine["weights"] == pytest.approx(theirs["weights"], abs=2e-7)
        assert {one["norm"] > 1 for one in found} == {True, False}


# ---- the engine agrees with itself -------------------------------------------------------------------------------


RUN = (
    "const run = (o, n, s) => { const t = make(s, o), found = []; for (let i = 0; i < n; i++) { const { kept, "
    "...one } = t.step(); found.push(one); } return { found, weights: [...t.policy.weights] }; };"
)
SMALL = {"prompts": 4, "group": 8, "updates": 2, "kl": 0.1}


def test_the_tree_is_exact_and_both_kernels_agree():
    found = in_engine(
        RUN + "say([{}, { shared: false }, { wasm: false }].map((o) => run(o, 6, S)))", S=SMALL | {"row": "dapo"}
    )
    tree, dense, plain = found
    assert max(one["rows"] for one in tree["found"]) < min(one["rows"] for one in dense["found"]) / 3
    for other in (dense, plain):
        assert [one["right"] for one in other["found"]] == [one["right"] for one in tree["found"]]
        # AdamW takes a whole step where a gradient is hardly one: single weights part, their mean does not.
        apart = [abs(a - b) for a, b in zip(tree["weights"], other["weights"], strict=True)]
        assert sum(apart) / len(apart) < 1e-5


def test_the_same_seed_is_the_same_run_to_the_last_bit():
    once, twice, other = in_engine(
        RUN + "say([S, S, { ...S, seed: 1 }].map((s) => run({}, 4, s)))", S=SMALL | {"row": "gspo", "verdict": "noisy"}
    )
    assert once == twice
    assert once["weights"] != other["weights"]


def test_the_kernel_multiplies_and_writes_nowhere_else():
    """Against plain sums in doubles, by rows and by columns, added or not; and what lies around it stays."""
    found = in_engine(
        """
        const random = randomNumbers(1), found = [];
        for (const wasm of [KERNEL, null]) for (const [M, N, K, turned, add] of [[4, 8, 5, 0, 0], [7, 16, 3, 0, 1],
          [12, 24, 9, 1, 1], [1, 8, 1, 0, 0]]) {
          const { buffer, multiply } = makeMemory(65536, wasm), f = new Float32Array(buffer);
          for (let i = 0; i < f.length; i++) f[i] = random() - 0.5;
          const A = 64, B = 2048, C = 4096, was = Float32Array.from(f), tall = Math.ceil(M / 4) * 4;
          const a = (m, k) => was[A + (turned ? k * tall + m : m * K + k)];
          multiply(M, N, K, 4 * A, turned ? 4 : 4 * K, turned ? 4 * tall : 4, 4 * B, 4 * N, 4 * C, 4 * N, add);
          let worst = 0, elsewhere = 0;
          for (let i = 0; i < f.length; i++) if ((i < C || i >= C + tall * N) && f[i] !== was[i]) elsewhere += 1;
          for (let m = 0; m < M; m++) for (let n = 0; n < N; n++) {
            let sum = add ? was[C + m * N + n] : 0;
            for (let k = 0; k < K; k++) sum += a(m, k) * was[B + k * N + n];
            worst = Math.max(worst, Math.abs(sum - f[C + m * N + n]));
          }
          found.push([worst, elsewhere]);
        }
        say(found);
        """
    )
    assert len(found) == 8
    assert max(worst for worst, _ in found) < 1e-6
    assert {elsewhere for _, elsewhere in found} == {0}


def test_the_kernels_bytes_are_its_sources():
    """The page has what the text assembles to; the assembler's bytes are those that the format's standard asks for."""
    assert len(kernel()) < 1000
    text = (
        '(module (import "m" "n" (memory 1)) (func (export "f") (param $p i32) (local $v v128) '
        "(loop $l (if (local.get $p) (then (local.set $v (v128.load offset=16 (local.get $p)))) "
        "(else (v128.store (local.get $p) (f32x4.add (local.get $v) (v128.load32_splat (local.get $p)))))) "
        "(br_if $l (i32.lt_u (local.get $p) (i32.const -129))))))"
    )
    wanted = (
        "0061736d01000000 01050160017f00 02080 1016d016e020001 030201 00 070501 0166 0000 0a33 01 31 01017b"
        "0340 2000 0440 2000fd000410 2101 05 2000 2001 2000fd090200 fde401 fd0b0400 0b 2000 41ff7e 49 0d00 0b 0b"
    ).replace(" ", "")
    assert assemble(text).hex()[:70] == wanted[:70]
    assert wanted[96:-4] in assemble(text).hex()
    assert in_engine(
        "say([WebAssembly.validate(KERNEL), WebAssembly.validate(bytesOf(T))])", T=b64(assemble(text))
    ) == [True, True]


def b64(data):
    import base64

    return base64.b64encode(data).decode()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("(module", "1 brackets are not closed"),
        ("(module))", "closed that was not opened"),
        ("(module)", "one module with an import and a function"),
        ('(module (import "a" "b" (table 1)) (func))', "is a table, expected a memory"),
        ('(module (import "a" "b" (memory 1)) (func (i64.add)))', "i64.add is no instruction"),
    ],
)
def test_the_assembler_refuses_what_it_does_not_know(text, words):
    with pytest.raises(ValueError, match=words):
        assemble(text)


def test_the_weights_are_the_shipped_ones():
    from safetensors.torch import load_file

    stored = load_file(ROOT / "rlhf_minimal" / "assets" / "addition" / "model.safetensors")
    floats = torch.frombuffer(bytearray(weights()), dtype=torch.float16)
    assert floats[: 13 * 64].equal(stored["lm_head.weight"].half().flatten())
    assert set(floats[13 * 64 : 16 * 64].tolist()) == {0.0}
    assert len(floats) - 3 * 64 == sum(tensor.numel() for tensor in stored.values()) == 83_072
    assert in_engine("say([WEIGHTS, START.length, [...START.slice(0, 832)]])") == [
        len(floats),
        len(floats),
        floats[:832].float().tolist(),
    ]


def test_the_task_is_that_of_the_first_chapter():
    from rlhf_book import loop

    rng = random.Random(1)
    prompts = [loop.make_prompt(rng, use) for use in ("test", "learn", "imitate") for _ in range(50)]
    found = in_engine(
        "say([P.map(rightAnswer), Array.from({ length: 300 }, ((r) => () => makePrompt(r))(randomNumbers(3))), "
        "testQuestions, ALPHABET, USES,"
        " ['checked', 'form'].map((v) => ['3740$', '0473$', '37$', '37401', '3$740'].map((t) => VERDICTS[v](t, "
        "'128+345=')))])",
        P=prompts,
    )
    answers, asked, held_out, alphabet, uses, verdicts = found
    assert answers == [loop.right_answer(prompt) for prompt in prompts]
    assert (alphabet, uses) == (loop.ALPHABET, loop.USES)
    numbers = [int(prompt[:3] + prompt[4:7]) for prompt in asked]
    assert {loop.USES[number % 7] for number in numbers} == {"learn"}
    assert min(numbers) < 100_000 < 900_000 < max(numbers)
    assert {loop.USES[int(p[:3] + p[4:7]) % 7] for p in held_out} == {"test"}
    assert len(set(held_out)) == 64
    assert verdicts == [[True, False, False, False, False], [True, True, False, False, False]]


def test_a_coin_and_a_checker_that_errs_are_what_they_say():
    coin, wrong = in_engine(
        "const r = randomNumbers(7), n = 20000, count = (call) => { let sum = 0; for (let i = 0; i < n; "
        "i++) sum += call(); return sum / n; };"
        "say([count(() => VERDICTS.coin('', '128+345=', r)), count(() => !VERDICTS.noisy('3740$', '128+345=', r))])"
    )
    assert coin == pytest.approx(0.5, abs=0.015)
    assert wrong == pytest.approx(0.1, abs=0.01)


def test_there_is_one_loop_however_often_it_is_started():
    """Fifty starts and pauses before anything that was put off has run; then one turn at a time."""
    found = in_engine(
        """
        const waiting = [];
        let worked = 0, most = 0;
        const loop = new Loop(() => { worked += 1; return 0; }, (call) => waiting.push(call));
        for (let i = 0; i < 50; i++) { loop.start(); if (i % 3) loop.stop(); }
        loop.start();
        for (let round = 0; round < 20; round++) { worked = 0; for (const call of waiting.splice(0)) call();
          most = Math.max(most, worked); }
        const alive = waiting.length;
        loop.stop();
        worked = 0;
        for (const call of waiting.splice(0)) call();
        const ending = new Loop(() => false, (call) => waiting.push(call));
        ending.start();
        for (const call of waiting.splice(0)) call();
        say({ most, alive, after: worked, running: loop.running, ended: [ending.running, waiting.length] });
        """
    )
    assert found == {"most": 1, "alive": 1, "after": 0, "running": False, "ended": [False, 0]}


def test_a_thousand_steps_leave_no_memory_behind():
    before, after = in_engine(
        "const t = make({ prompts: 2, group: 4 }), used = () => { gc(); const { heapUsed, "
        "arrayBuffers } = process.memoryUsage(); return heapUsed + arrayBuffers; };"
        "for (let i = 0; i < 50; i++) t.step(); const before = used(); t.test = () => 0; for (let i = 0; i < 1000; "
        "i++) t.step(); say([before, used()]);"
    )
    assert after - before < 2_000_000


def test_what_is_kept_of_a_step_is_what_happened():
    """Pushes of a group sum to the row's; a kept update has the probabilities of its own beginning."""
    found = in_engine(
        """
        const t = make({ row: "grpo", updates: 4, prompts: 8 });
        const { kept } = t.step({ keep: true }), p = mixedGroup(kept), [first, last] = [groupOf(kept, p, false),
          groupOf(kept, p, true)];
        say({ first, last, own: kept.right.slice(16 * p, 16 * p + 16), before: kept.right.slice(0, 16 * p) });
        """
    )
    first, last = found["first"], found["last"]
    assert (first["update"], last["update"]) == (1, 4)
    assert set(found["own"]) == {0, 1}
    groups = [found["before"][i : i + 16] for i in range(0, len(found["before"]), 16)]
    assert all(len(set(group)) == 1 for group in groups)  # the first such group
    for one in first["completions"]:
        assert one["right"] == int(one["text"] == first["wanted"])
        for a, push in zip(one["advantage"], one["push"], strict=True):
            assert push == pytest.approx(a / len(one["text"]), rel=1e-6)  # ratio 1: A over the length
    assert sum(one["push"][0] for one in first["completions"]) == pytest.approx(0, abs=1e-5)
    moved = [
        abs(a - b)
        for one, other in zip(first["completions"], last["completions"], strict=True)
        for a, b in zip(one["prob"], other["prob"], strict=True)
    ]
    assert max(moved) > 0.001
