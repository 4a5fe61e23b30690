"""The playground's page: its rows and lines of code are the library's, and it says what was measured."""

import json
import random
import re
from functools import cache

import pytest
import torch

from rlhf_book.figures.playground import ENGINE, front, playground
from rlhf_minimal import ALGORITHMS, Batch, policy_loss
from tests.viz.engine import MODULE, ROOT, ROWS, challenges, in_engine, in_page, recorded, script

PAGE = (ROOT / "book" / "playground.md").read_text(encoding="utf-8")
CODE = json.loads((ENGINE / "code.json").read_text(encoding="utf-8"))


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
