"""The playground computes what the library and torch compute, and says what was measured.

The engine runs under Node here; tests/browser trains with it in Chromium.
"""

import importlib.util
import json
import random
import re
from functools import cache
from pathlib import Path

import pytest
import torch

from rlhf_book.figures.playground import ENGINE, front, kernel, playground, rows, weights
from rlhf_book.figures.wat import assemble
from rlhf_minimal import ALGORITHMS, Batch, policy_loss
from tests.viz.engine import challenges, in_engine
from tests.viz.node import run_in_node

ROOT = Path(__file__).resolve().parents[2]
MODULE = ENGINE.parent / "playground.mjs"
PAGE = (ROOT / "book" / "playground.md").read_text(encoding="utf-8")
ROWS = rows()
CODE = json.loads((ENGINE / "code.json").read_text(encoding="utf-8"))


@cache
def script(name):
    """A script that has made a file of tests/data."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "tests" / "data" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def recorded(name):
    return json.loads((ROOT / "tests" / "data" / f"{name}.json").read_text(encoding="utf-8"))


def in_page(script, **given):
    constants = "".join(f"const {name} = {json.dumps(value)};\n" for name, value in given.items())
    return run_in_node(MODULE, f"const rows = {json.dumps(ROWS)};\n{constants}{script}")


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


# ---- rows and lines of code are the library's --------------------------------------------------------------------


def test_the_rows_are_the_librarys():
    made = script("playground_numbers")
    for name, row in ROWS.items():
        algorithm = made.algorithm(name)
        for column in ("advantage", "ratio", "gate", "aggregate"):
            cell = getattr(algorithm, column)
            assert getattr(cell, "func", cell).__name__ == row[column], (name, column)
        assert (algorithm.normalize.__name__ if algorithm.normalize else None) == row.get("normalize")
        assert row["bounds"] == pytest.approx(getattr(algorithm.gate, "keywords", {}))
        assert row.get("tau") == (algorithm.kl[0].coef if algorithm.kl else None)
        penalties = [term for term in ALGORITHMS[row["from"]].kl if term.against == "reference"]
        if penalties:
            assert [(term.place, term.estimator) for term in penalties] == [
                (row["kl"], {"reward": "k1", "loss": "k3"}[row["kl"]])
            ]
        assert set(row.get("changed", ())) <= {"advantage", "shape", "keep"}
        assert (ROOT / "notebooks" / f"{row['chapter']}.ipynb").is_file()
    # What is missing of the core's rows is said on the page.
    core = list(ALGORITHMS)[:13]
    assert set(core) - {row["from"] for row in ROWS.values()} == {"ppo", "gspo_token"}
    assert "`ppo` needs a critic" in PAGE
    assert "`gspo_token` is left out" in PAGE


CASES = [
    *({"row": name, "kl": kl} for name in ROWS for kl in ("0", "0.3")),
    {"row": "grpo", "low": "none", "high": "none"},
    {"row": "dapo", "low": "0.1", "high": "none"},
    {"row": "gspo", "low": "none", "high": "0.03"},
]


@cache
def lines():
    return in_page(
        "console.log(JSON.stringify(cases.map((arm) => maths.code({ ...maths.DEFAULT, ...arm }, rows, code))))",
        cases=CASES,
        code=CODE,
    )


@pytest.mark.parametrize("case", range(len(CASES)), ids=lambda i: ",".join(CASES[i].values()))
def test_the_lines_of_code_compute_the_librarys_loss_and_gradient(case):
    made, arm, numbers = script("playground_numbers"), CASES[case], recorded("playground_numbers")
    logp, old, ref, mask, rewards = (
        torch.tensor(numbers[key], dtype=torch.float64) for key in ("logp", "old", "ref", "mask", "rewards")
    )
    algorithm = made.algorithm(arm["row"], float(arm.get("kl", 0)))
    if "low" in arm:
        low, high = (1e9 if arm[side] == "none" else float(arm[side]) for side in ("low", "high"))
        algorithm = made.bounded(arm["row"], low, high)
    leaf, own = (logp.clone().requires_grad_() for _ in range(2))
    wanted = policy_loss(algorithm, Batch(leaf, old, mask, rewards, 4, ref_logp=ref, budget=5))
    names = {name: getattr(torch, name) for name in ("exp", "log", "minimum", "sigmoid", "where")}
    names |= {"logp": own, "old": old, "ref": ref, "mask": mask, "rewards": rewards, "group": 4, "budget": 5}
    code = lines()[case]
    assert len({line["cell"] for line in code}) >= 4
    assert max(len(line["text"]) for line in code) <= 72
    exec("\n".join(line["text"] for line in code), names)
    loss = names["loss"]
    loss.backward()
    wanted.backward()
    assert loss.item() == pytest.approx(wanted.item(), rel=1e-4, abs=1e-6)  # bounds are shown with four decimals
    assert (own.grad * mask).numpy() == pytest.approx((leaf.grad * mask).numpy(), rel=2e-4, abs=1e-6)


def test_only_lines_that_differ_are_marked():
    found = in_page(
        "const of = (arm) => maths.code({ ...maths.DEFAULT, ...arm }, rows, code);"
        "const pair = (a, b) => maths.differing(of(a), of(b)).map((mark, i) => mark && of(a)[i].cell).filter(Boolean);"
        "console.log(JSON.stringify([pair({}, {}), pair({}, { row: 'dr_grpo' }), pair({ high: '0.28' }, {}), "
        "pair({}, { lr: '1e-4' })]))",
        code=CODE,
    )
    assert found[0] == found[3] == []
    assert set(found[1]) == {"advantage: group_normalized", "aggregate: sequence_mean"}
    assert found[2] == ["gate: clip"]


# ---- what the page says of its runs ------------------------------------------------------------------------------


def test_every_sentence_of_every_explanation_holds_for_three_seeds():
    """On the recorded runs, seed by seed; the record's first steps are run again below."""
    runs, made = recorded("playground_challenges")["runs"], script("playground_challenges")
    found = in_page(
        """
        const found = [];
        for (const { id, arms, claims } of all) for (const shift of shifts) {
          const history = arms.map((given) => {
            const run = runs[maths.address([{ ...maths.DEFAULT, ...given,
              seed: String(Number(given.seed ?? 0) + shift) }])];
            return [[{ step: 10, ...run["1-20"] }, { step: 110, ...run["101-120"] }]];
          });
          for (const claim of claims) found.push([id, shift, claim.say, maths.holds(history, claim)]);
        }
        console.log(JSON.stringify(found));
        """,
        all=challenges(),
        runs=runs,
        shifts=list(made.SHIFTS),
    )
    assert len(found) == 3 * sum(len(challenge["claims"]) for challenge in challenges())
    assert [case for case in found if not case[3]] == []


def test_claims_speak_of_what_was_recorded():
    made = script("playground_challenges")
    for challenge in challenges():
        for claim in challenge["claims"]:
            sides = [side for side in (claim["left"], claim["right"]) if isinstance(side, dict)]
            assert {(side["from"], side["to"]) for side in sides} <= set(made.WINDOWS.values())
            assert {side["of"] for side in sides} <= set(made.MEASURES)
            assert {side["arm"] for side in sides} <= set(range(len(challenge["arms"])))
            assert claim["is"] in (">", "<")
        assert {
            side["arm"]
            for claim in challenge["claims"]
            for side in (claim["left"], claim["right"])
            if isinstance(side, dict)
        } == set(range(len(challenge["arms"])))
        assert 0 <= challenge["answer"] < len(challenge["options"])


def test_the_recorded_runs_begin_as_the_engine_does_now():
    made = script("playground_challenges")
    runs = recorded("playground_challenges")["runs"]
    chosen = made.runs()
    assert set(chosen) == set(runs)
    now = made.measure({name: chosen[name] for name in list(chosen)[::3]}, made.FIRST)
    for name, run in now.items():
        assert run["first"] == [pytest.approx(step, rel=1e-4, abs=1e-6) for step in runs[name]["first"]], name


def test_a_whole_run_ends_where_the_record_says():
    made = script("playground_challenges")
    name = "#play=grpo,seed=1"
    now = made.measure({name: made.runs()[name]}, 120)[name]
    was = recorded("playground_challenges")["runs"][name]
    for window in made.WINDOWS:
        assert now[window]["right"] == pytest.approx(was[window]["right"], abs=0.03)
    assert now["101-120"]["right"] > 0.85


def test_a_sentence_that_goes_on_is_read_with_what_it_goes_on_from():
    history = [[[{"step": step, "right": right}] for _ in range(1)] for step, right in ((1, 0.9), (1, 0.2))]
    side = [{"arm": arm, "of": "right", "from": 1, "to": 20} for arm in (0, 1)]
    claims = [
        {"say": "The first ends above 85 %,", "left": side[0], "is": ">", "right": 0.85},
        {"say": "and above the second.", "left": side[0], "is": ">", "right": side[1]},
        {"say": "The second ends above 30 %.", "left": side[1], "is": ">", "right": 0.3},
    ]
    found = in_page("console.log(JSON.stringify(maths.sentences(H, C)))", H=history, C=claims)
    assert found == [
        {
            "text": "The first ends above 85 %, and above the second.",
            "own": ["90 %", "90 % against 20 %"],
            "holds": True,
        },
        {"text": "The second ends above 30 %.", "own": ["20 %"], "holds": False},
    ]


def test_every_explanation_says_why_and_where_it_is_seen():
    for challenge in challenges():
        assert challenge["why"].endswith(".")
        assert 20 <= len(challenge["why"].split()) <= 75
        look = challenge.get("look", {"arm": 0, "step": 1, "last": False, "words": "See"})
        assert look["arm"] < len(challenge["arms"])
        assert 1 <= look["step"] <= 120
        row = ROWS[challenge["arms"][look["arm"]].get("row", "grpo")]
        assert not look["last"] or int(challenge["arms"][look["arm"]].get("updates", row["updates"])) > 1


def test_what_an_explanation_points_at_is_there():
    """The steps of the tree to which the buttons under an explanation lead, on the page's own runs."""
    found = in_engine(
        """
        const five = (settings) => { const run = make(settings); let kept;
          for (let i = 0; i < 5; i++) ({ kept } = run.step({ keep: true })); return kept; };
        const [plain] = [make({ row: "reinforce", values: [10, 11] }).step({ keep: true }).kept];
        const pairs = make({ group: 2 }).step({ keep: true }).kept;
        const clip = five({ updates: 8 }).updates.at(-1), gspo = five({ row: "gspo" });
        const of = (bound, i, text) => new Set([...text].map((_, t) => Number(bound[i * 5 + t])));
        const { bound } = gspo.updates.at(-1);
        say({ pushes: [...plain.updates[0].push].filter((x) => x !== 0).map(Math.sign), right: plain.right,
          pairs: pairs.right.map((r, i) => [r, pairs.right[i ^ 1], pairs.advantages[i * 5]]),
          clipped: [...clip.bound].filter(Boolean).length, update: clip.update,
          whole: gspo.texts.map((text, i) => of(bound, i, text).size), stopped: [...bound].filter(Boolean).length });
        """
    )
    assert set(found["pushes"]) == {1}, "wrong completions are pushed up, too"
    assert 0 in found["right"]
    assert {(r, other) for r, other, _ in found["pairs"]} == {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert all((advantage != 0) == (r != other) for r, other, advantage in found["pairs"])
    assert found["clipped"] > 0
    assert found["update"] == 8
    assert set(found["whole"]) == {1}, "GSPO stops all tokens of a completion or none"
    assert found["stopped"] > 0


def slug(title):
    return re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")


def test_every_question_is_a_heading_that_chapters_can_link_to():
    headings = re.findall(r"^### (.*)$", PAGE, re.MULTILINE)
    assert headings == [challenge["title"] for challenge in challenges()]
    for challenge in challenges():
        assert slug(challenge["title"]) == challenge["id"]
        assert f"{challenge['question']} [{challenge['chapterTitle']}](../{challenge['chapter']}.ipynb)" in PAGE
        assert (ROOT / f"{challenge['chapter']}.ipynb").is_file()


LINKS = ["from-zero", "policy-gradients", "grpo", "rloo", "ppo-clip", "dr-grpo", "gspo", "kl-divergence"]


@pytest.mark.parametrize("chapter", LINKS)
def test_chapters_link_into_it_with_their_own_settings(chapter):
    import nbformat

    notebook = nbformat.read(ROOT / "notebooks" / f"{chapter}.ipynb", as_version=4)
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    links = re.findall(r"\(\.\./book/playground\.md#([a-z0-9-]+)\)", text)
    assert len(links) == 1
    (found,) = [challenge for challenge in challenges() if challenge["id"] == links[0]]
    of = {ROWS[arm.get("row", "grpo")]["chapter"] for arm in found["arms"]} | {
        found["chapter"].removeprefix("notebooks/")
    }
    assert chapter in of


# ---- the address, curves, the tree: what the page computes -------------------------------------------------------


def test_the_address_holds_the_settings():
    rng, arms = random.Random(0), []
    fields = in_page("console.log(JSON.stringify(maths.FIELDS.map(([name]) => [name, maths.valuesOf(name, rows)])))")
    default = in_page("console.log(JSON.stringify(maths.DEFAULT))")
    for _ in range(300):
        arm = {name: rng.choice(values) if values else str(rng.randrange(1000)) for name, values in fields}
        arms.append({name: rng.choice([value, default[name]]) for name, value in arm.items()})
    found = in_page(
        "console.log(JSON.stringify(arms.map((_, i) => { const four = arms.slice(i, i + 1 + i % 4), { arms: back, "
        "limit, problems } = maths.parse(maths.address(four, ['60', '120', '240'][i % 3]), rows);"
        "return [JSON.stringify(back) === JSON.stringify(four), limit === ['60', '120', '240'][i % 3], problems]; })))",
        arms=arms,
    )
    assert len(found) == 300
    assert all(one == [True, True, []] for one in found)


HOSTILE = [
    ("#play=", None),
    ("#play=%E0%A4%A", "it is not well formed"),
    ("#play=nothing", "“nothing” is no row"),
    ("#play=__proto__", "is no row"),
    ("#play=constructor,toString=1", "is no setting"),
    ("#play=grpo,__proto__=1", "is no setting"),
    ("#play=grpo,row=dapo", "is no setting"),
    ("#play=grpo,lr=1e9", "is no setting"),
    ("#play=grpo,seed=-1", "is no setting"),
    ("#play=grpo,seed=1e2", "is no setting"),
    ("#play=grpo,seeds=50", "is no setting"),
    ("#play=grpo,lr", "is no setting"),
    ("#play=grpo;steps=1000000", "is no number of steps"),
    ("#play=<img src=x onerror=alert(1)>", "is no row"),
    ("#play=grpo;grpo;grpo;grpo;grpo", "more than 4 arms"),
    ("#play=" + ";" * 1000, None),
    ("#play=grpo," + "x=" * 5000, "is no setting"),
]


def test_a_broken_or_hostile_address_falls_back_and_says_so():
    found = in_page(
        "console.log(JSON.stringify(H.map((h) => maths.parse(h, rows))))", H=[address for address, _ in HOSTILE]
    )
    allowed = in_page(
        "console.log(JSON.stringify(F.map(({ arms }) => arms.every((arm) => Object.keys(arm).length === 12 && "
        "Object.entries(arm).every(([name, value]) => maths.allowed(name, value, rows))))))",
        F=found,
    )
    assert set(allowed) == {True}
    for (address, words), one in zip(HOSTILE, found, strict=True):
        assert 1 <= len(one["arms"]) <= 4
        assert one["limit"] == "120"
        said = "; ".join(one["problems"])
        assert (words in said) if words else (said == ""), address
        assert len(said) < 100


def test_at_random_addresses_never_break_it():
    rng = random.Random(2)
    bits = [
        "#play=",
        "grpo",
        "gspo",
        ",",
        ";",
        "=",
        "lr",
        "8e-4",
        "seed",
        "7",
        "%",
        "steps=",
        "60",
        "\u2603",
        "__proto__",
        "none",
        "low",
    ]
    made = ["#play=" + "".join(rng.choices(bits, k=rng.randrange(12))) for _ in range(2000)]
    found = in_page(
        "console.log(JSON.stringify(M.map((m) => { const { arms, limit } = maths.parse(m, rows); "
        "return maths.parse(maths.address(arms, limit), rows).problems.length + (arms.length < 1); })))",
        M=made,
    )
    assert set(found) == {0}


def test_the_tree_sums_what_is_shared():
    group = [
        {"text": "12$", "prob": [0.6, 0.5, 1.0], "push": [0.5, 0.5, 0.5], "bound": [0, 0, 0]},
        {"text": "12$", "prob": [0.6, 0.5, 1.0], "push": [0.5, 0.5, 0.5], "bound": [0, 1, 0]},
        {"text": "13$", "prob": [0.6, 0.4, 1.0], "push": [-1.0, -1.0, -1.0], "bound": [0, 0, 0]},
    ]
    found = in_page(
        "const { nodes, leaves, most } = maths.tree(group);"
        "console.log(JSON.stringify({ nodes: nodes.map(({ text, count, push, bound, line }) => [text, count, push, "
        "bound, line]), leaves: leaves.length, most,"
        "words: maths.words(nodes[0], '128+345=', 3), fork: maths.words(nodes[1], '128+345=', 3) }))",
        group=group,
    )
    assert found["nodes"] == [
        ["1", 3, 0, 0, 0.5],
        ["12", 2, 1, 1, 0],
        ["12$", 2, 1, 0, 0],
        ["13", 1, -1, 0, 1],
        ["13$", 1, -1, 0, 1],
    ]
    assert (found["leaves"], found["most"]) == (2, 1)
    assert found["words"].endswith("3 of 3 completions go this way. Pushes of +1.00 and \u22121.00 leave 0.")
    assert found["fork"].endswith(
        "The pushes on it add up to +1.00. In 1 of the 2 its probability has moved beyond a bound."
    )


def test_curves_are_means_of_the_last_ten_points():
    found = in_page(
        "const run = Array.from({ length: 20 }, (_, i) => ({ step: i + 1, right: i, ...(i % 10 ? {} : { "
        "greedy: i / 10 }) }));"
        "console.log(JSON.stringify([maths.smooth(maths.points(run, 'right')).at(-1), "
        "maths.smooth(maths.points(run, 'right'))[1], maths.points(run, 'greedy'),"
        "maths.average([[[1, 0], [2, 1]], [[1, 1]]]), maths.ticks(1), maths.ticks(0.37), maths.ticks(26)]))"
    )
    assert found[:4] == [[20, 14.5], [2, 0.5], [[1, 0], [11, 1]], [[1, 0.5]]]
    for ticks, top in zip(found[4:], (1, 0.37, 26), strict=True):
        assert ticks[0] == 0
        assert 3 <= len(ticks) <= 6
        assert top * 0.7 < ticks[-1] <= top + 1e-9


def test_no_two_arms_of_a_question_are_called_the_same():
    found = in_page(
        "console.log(JSON.stringify(all.map(({ arms }) => arms.map((arm) => maths.nameOf({ ...maths.DEFAULT, "
        "...arm }, rows)))))",
        all=challenges(),
    )
    for names in found:
        assert len(set(names)) == len(names)
    assert found[0][1] == "GRPO, reward from a coin"
    titles = in_page(
        "console.log(JSON.stringify(Object.keys(rows).map((row) => maths.nameOf({ ...maths.DEFAULT, row }, rows))))"
    )
    assert len(set(titles)) == len(ROWS)


def test_all_of_it_is_small_and_needs_no_network():
    everything = json.dumps(playground()) + MODULE.read_text(encoding="utf-8")
    assert len(everything.encode()) < 400_000
    assert set(front()) == {"engine", "kernel", "weights", "rows", "small"}
    assert "http" not in everything.replace("http://www.w3.org/2000/svg", "")
    for words in ("fetch(", "XMLHttpRequest", "importScripts", "eval(", "new Function", "innerHTML"):
        assert words not in everything
