"""The playground trains in a page opened from disk: by keyboard, on a phone, in the dark, and one loop at a time."""

import json

import pytest

from tests.browser.chromium import draw, go, prefer
from tests.browser.explorers import contrast, press, unnamed
from tests.browser.tiny_book import with_the_playground

FIGURE = "document.querySelector('.playground')"
SAID = f"{FIGURE}.querySelector('.said').textContent"
GO = f"{FIGURE}.querySelector('.bar .go')"
COUNT = f"{FIGURE}.querySelector('.count').textContent"
NODES = f"{FIGURE}.querySelectorAll('svg.tree .node')"
# What the worker says is kept for the tests, and a page that asks for it gets no WebAssembly.
LISTEN = """
window.said = [];
const Before = Worker;
window.Worker = class extends Before {
  constructor(...all) { super(...all); this.addEventListener("message", ({ data }) => window.said.push(data)); }
  postMessage(message) { super.postMessage(location.search === "?js" && message.kind === "start" ? { ...message,
    kernel: null } : message); }
};
"""
STEPS = "window.said.filter((m) => m.kind === 'steps').flatMap((m) => m.items.map((i) => ({ ...i, number: m.number })))"


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    return with_the_playground(tmp_path_factory.mktemp("playground") / "book")


@pytest.fixture
def playground(opened, book):
    """Opens the page, or another one, with a tail to its address, once its worker is there."""

    def playground(tail="", name="playground", **look):
        page = opened("about:blank", **look)
        page.add_init_script(LISTEN)
        go(page, (book / f"{name}.html").as_uri() + tail)
        wait(page, f"{FIGURE}?.dataset.engine")
        return page

    return playground


def wait(page, condition):
    """Until it holds on the page; a busy machine may take its time."""
    page.wait_for_function(condition, timeout=300_000, polling=50)
    draw(page)


def stands(page, width):
    """Nothing leaves the page or its own box, but where the box scrolls."""
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    sticking = page.evaluate(
        f"(() => {{ const right = {FIGURE}.getBoundingClientRect().right + 1; "
        f"return [...{FIGURE}.querySelectorAll('*')].filter((e) => "
        "!e.closest('pre, .scroll, defs') && e.getBoundingClientRect().right > right).map((e) => "
        "e.outerHTML.slice(0, 80)); })()"
    )
    assert sticking == []


def test_it_trains_from_disk_by_keyboard(playground):
    page = playground()
    assert page.evaluate(f"{FIGURE}.dataset.engine") == "WebAssembly"
    first = f"{FIGURE}.querySelector('button, select, input, a')"
    assert page.evaluate(f"{first} === {GO}")
    press(page.locator(".playground .bar .go"), "Enter")
    wait(page, f"{SAID} === 'Done: 120 steps.'")
    steps = page.evaluate(STEPS)
    assert [step["step"] for step in steps] == list(range(1, 121))
    right = [step["right"] for step in steps]
    assert sum(right[100:]) / 20 > 0.85 > 0.6 > sum(right[:20]) / 20
    assert (page.evaluate(COUNT), page.evaluate(f"{GO}.textContent")) == ("step 120 of 120", "Train again")
    assert int(page.locator(".playground .arms output").first.text_content().split()[0]) > 85
    assert "Right answers" in page.evaluate(f"{FIGURE}.querySelector('.chart').ariaLabel")
    stands(page, 1400)
    # The slider goes back to the first steps, in which right and wrong part; the tree says what stands where.
    press(page.locator(".playground input[type=range]").first, "Home")
    wait(page, f"{FIGURE}.textContent.includes('step 1: group')")
    page.evaluate(f"{NODES}[0].focus()")
    page.keyboard.press("Enter")
    assert "completions go this way" in page.evaluate(f"{FIGURE}.querySelector('.about').textContent")
    before = page.evaluate("document.activeElement.dataset.text")
    page.keyboard.press("ArrowRight")
    after = page.evaluate("document.activeElement.dataset.text")
    assert (len(after), after[: len(before)]) == (len(before) + 1, before)
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("document.activeElement.dataset.text") == before
    # The same seed again is the same run.
    page.evaluate("window.said = []")
    press(page.locator(".playground .bar .go"), "Space")
    wait(page, f"{STEPS}.length >= 20")
    assert [step["right"] for step in page.evaluate(STEPS)][:20] == right[:20]


def test_fifty_times_pause_and_train_leave_one_loop(playground):
    page = playground("#play=grpo,prompts=4,group=4;steps=60")
    page.evaluate(
        f"(async () => {{ for (let i = 0; i < 101; i++) {{ {GO}.click(); if (i % 7 === 0) await new Promise((r) => "
        f"setTimeout(r, 5)); }} }})()"
    )
    wait(page, f"{SAID} === 'Done: 60 steps.'")
    steps = page.evaluate(STEPS)
    assert [step["step"] for step in steps] == list(range(1, 61))


def test_one_step_is_one_step_of_every_arm_and_never_passes_the_end(playground):
    page = playground("#play=grpo,prompts=4,group=2;rloo,prompts=4,group=2,seeds=2;steps=60")
    one = f"[...{FIGURE}.querySelectorAll('.bar button')].find((b) => b.textContent === 'One step')"
    for n in (1, 2, 3):
        page.evaluate(f"{one}.click()")
        wait(page, f"{COUNT} === 'step {n} of 60' && {GO}.textContent === 'Continue'")
    assert sorted([s["arm"], s["seed"], s["step"]] for s in page.evaluate(STEPS)) == [
        [arm, seed, n] for arm, seed in ((0, 0), (1, 0), (1, 1)) for n in (1, 2, 3)
    ]
    page.evaluate(f"{GO}.click()")
    wait(page, f"{SAID} === 'Done: 60 steps.'")
    assert page.evaluate(f"{one}.disabled")
    assert max(step["step"] for step in page.evaluate(STEPS)) == 60


def test_without_webassembly_javascript_computes_the_same(playground):
    tail, right = "#play=grpo,prompts=4,group=8,updates=2", []
    for search in ("", "?js"):
        page = playground(search + tail)
        assert page.evaluate(f"{FIGURE}.dataset.engine") == ("JavaScript" if search else "WebAssembly")
        page.evaluate(f"{GO}.click()")
        wait(page, f"{STEPS}.length >= 6")
        right.append([step["right"] for step in page.evaluate(STEPS)][:6])
    assert right[0] == right[1]


def test_a_question_is_predicted_run_and_explained(playground):
    page = playground("#groups-of-two")
    assert page.evaluate("scrollY") > 0 or page.evaluate(f"{FIGURE}.getBoundingClientRect().top") < 900
    chosen = f"{FIGURE}.querySelector('.challenge')"
    assert page.evaluate(f"{chosen}.querySelector('h3').textContent") == "Groups of two"
    assert page.evaluate(f"{FIGURE}.querySelectorAll('.arms .arm').length") == 3
    run = f"{chosen}.querySelector('.go')"
    assert page.evaluate(f"{run}.disabled"), "predict first"
    page.evaluate(f"{chosen}.querySelectorAll('input')[0].focus()")
    page.keyboard.press("Space")
    assert not page.evaluate(f"{run}.disabled")
    page.evaluate(f"{run}.focus()")
    page.keyboard.press("Enter")
    wait(page, f"{SAID} === 'Done: 120 steps.'")
    verdict = f"{FIGURE}.querySelector('.verdict')"
    text = page.evaluate(f"{verdict}.textContent")
    assert "It came out otherwise" in text
    marks = page.evaluate(f"[...{verdict}.querySelectorAll('.claims li')].map((e) => e.dataset.mark)")
    assert marks == ["\u2713"] * 4, "two of the five claims are one sentence"
    assert page.evaluate(f"{verdict}.querySelectorAll('.claims li')[2].textContent.match(/\\d+ %/g).length") >= 3
    assert page.evaluate(f"{FIGURE}.querySelector('.arms [aria-pressed=true]').dataset.arm") == "pick0"
    show = f"[...{verdict}.querySelectorAll('button')].find((b) => b.textContent.startsWith('See '))"
    page.evaluate(f"{show}.click()")
    wait(page, f"{FIGURE}.querySelector('.arms [aria-pressed=true]').dataset.arm === 'pick1'")
    wait(page, f"{FIGURE}.textContent.includes('groups of 2, step 1: group')")
    link = page.evaluate(f"{verdict}.querySelector('a').href")
    assert link.endswith("/notebooks/grpo.html")
    stands(page, 1400)


def test_it_answers_a_readers_question(playground):
    page = playground()
    field, ask = (f"{FIGURE}.querySelector('.ask {tag}')" for tag in ("input", "button"))
    answer = f"{FIGURE}.querySelector('.answers').textContent"
    page.evaluate(f"{field}.value = '7 + 5'")
    page.evaluate(f"{field}.focus()")
    page.keyboard.press("Enter")
    wait(page, f"{answer}.includes('greedy')")
    assert page.evaluate(f"{field}.value") == "007+005="
    assert "0012" in page.evaluate(answer)
    for bad in ("", "1234+5", "<b>x</b>", "12-3"):
        page.evaluate(f"{field}.value = {json.dumps(bad)}; {ask}.click()")
        said = page.evaluate(f"{FIGURE}.querySelector('.ask').nextElementSibling.textContent")
        assert "is no question that the model can read" in said


@pytest.mark.parametrize("width", [320, 390, 1280, 1920])
def test_it_stands_at_every_width(playground, width):
    """Four arms, a tree, an answer, and the lines of code, light and dark."""
    tail = "#play=grpo;gspo,updates=2,seeds=2;cispo,low=0.1;kimi_k2,values=10/11,verdict=form"
    page = playground(tail, width=width)
    page.evaluate(f"{FIGURE}.querySelector('.ask button').click()")
    page.evaluate(f"[...{FIGURE}.querySelectorAll('.bar button')].find((b) => b.textContent === 'One step').click()")
    wait(page, f"{NODES}.length > 5 && {FIGURE}.querySelectorAll('.answers tr').length === 4")
    for details in ("The numbers as a table", "The group as a table", "What the settings mean"):
        found = f"[...{FIGURE}.querySelectorAll('summary')].find((s) => s.textContent === '{details}')"
        page.evaluate(f"{found}.click()")
    assert unnamed(page.locator(".playground")) == 0
    for dark in (False, True):
        prefer(page, dark=dark)
        stands(page, width)
        # Letters stand out from what lies behind them, and a branch's colour is seen: WCAG's 4.5 to 1 and 3 to 1.
        ink, ground = page.evaluate(f"((s) => [s.color, s.backgroundColor])(getComputedStyle({GO}))")
        assert contrast(ink, ground) > 4.5
        page_ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        for arm in page.evaluate(
            f"[...{FIGURE}.querySelectorAll('.arms path')].map((e) => getComputedStyle(e).stroke)"
        ):
            assert contrast(arm, page_ground) > 3


def test_settings_go_into_the_address_and_come_back(playground):
    page = playground()
    press(page.locator(".playground .settings select").first, "ArrowDown")  # from GRPO to the next row
    assert page.evaluate("location.hash") == "#play=dr_grpo"
    add = f"{FIGURE}.querySelector('.arms .add')"
    page.evaluate(f"{add}.focus()")
    page.keyboard.press("Enter")
    assert page.evaluate("location.hash") == "#play=dr_grpo;dr_grpo"
    seed = f"{FIGURE}.querySelector('.settings input[type=number]')"
    page.evaluate(
        f"(() => {{ const e = {seed}; e.value = '1000'; e.dispatchEvent(new Event('change', {{ bubbles: true }})); "
        f"}})()"
    )
    assert "is not between 0 and 999" in page.evaluate(SAID)
    page.evaluate(
        f"(() => {{ const e = {seed}; e.value = '07'; e.dispatchEvent(new Event('change', {{ bubbles: true }})); }})()"
    )
    draw(page)
    address = page.evaluate("location.hash")
    assert address == "#play=dr_grpo;dr_grpo,seed=7"
    assert page.evaluate(f"{FIGURE}.querySelector('.link').value").endswith(address)
    again = playground(address)
    assert again.evaluate(f"[...{FIGURE}.querySelectorAll('.arms .name')].map((e) => e.textContent)") == [
        "Dr. GRPO",
        "Dr. GRPO, seed 7",
    ]
    # A broken or hostile address: the usual arm, and words.
    for tail in ("#play=%E0%A4%A", "#play=<img src=x onerror=alert(1)>,__proto__=1", "#play=grpo,lr=1e9;steps=1e9"):
        page = playground(tail)
        assert page.evaluate(f"[...{FIGURE}.querySelectorAll('.arms .name')].map((e) => e.textContent)") == ["GRPO"]
        assert page.evaluate(SAID).startswith("Of the address something was left out")
        assert page.evaluate(f"{FIGURE}.querySelectorAll('img').length") == 0


def test_a_run_is_downloaded_whole(playground):
    page = playground("#play=grpo,prompts=4,group=2,seeds=2")
    page.evaluate(
        "URL.createObjectURL = (blob) => { blob.text().then((text) => { window.saved = text; }); "
        "return 'blob:none'; }; HTMLAnchorElement.prototype.click = () => {};"
    )
    page.evaluate(f"[...{FIGURE}.querySelectorAll('.bar button')].find((b) => b.textContent === 'One step').click()")
    wait(page, f"{COUNT} === 'step 1 of 120' && {GO}.textContent === 'Continue'")
    page.evaluate(f"[...{FIGURE}.querySelectorAll('button')].find((b) => b.textContent.startsWith('Download')).click()")
    wait(page, "window.saved")
    saved = json.loads(page.evaluate("window.saved"))
    assert saved["address"] == "#play=grpo,prompts=4,group=2,seeds=2"
    assert [run["seed"] for run in saved["arms"][0]["runs"]] == [0, 1]
    for run in saved["arms"][0]["runs"]:
        assert {"step", "right", "entropy", "clipped", "norm", "kl", "greedy"} <= set(run["steps"][0])


def test_nothing_moves_for_those_who_want_it_so(playground):
    page = playground()
    page.emulate_media(reduced_motion="reduce")
    moving = (
        f"[...{FIGURE}.querySelectorAll('*')].filter((e) => "
        "getComputedStyle(e).animationName !== 'none' || parseFloat(getComputedStyle(e).transitionDuration) > 0).length"
    )
    assert page.evaluate(moving) == 0


@pytest.mark.parametrize("width", [390, 1400])
def test_the_front_page_puts_the_recorded_picture_away_and_trains(playground, width):
    page = playground(name="front", width=width)
    assert page.evaluate("document.querySelector('.learning-picture').hidden")
    press(page.locator(".playground .bar .go"), "Enter")
    wait(page, f"{STEPS}.length >= 40")
    page.evaluate(f"{GO}.click()")
    means = [[step["right"] for step in page.evaluate(STEPS) if step["arm"] == arm][10:] for arm in (0, 1)]
    assert sum(means[0]) / len(means[0]) > sum(means[1]) / len(means[1]) + 0.1
    stands(page, width)
    assert unnamed(page.locator(".playground")) == 0


def test_without_javascript_the_recorded_picture_stands_there(opened, book):
    page = opened(book / "front.html", java_script_enabled=False)
    assert page.locator("#fig-live").bounding_box() is None
    assert page.locator(".learning-picture").bounding_box()["height"] > 0
