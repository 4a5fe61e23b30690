"""Random and hostile input: a clear error or a valid result, never a traceback, in bounded time."""

import json
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rlhf_minimal.lab.math_answers import same_answer
from rlhf_minimal.lab.rows import TextRow, read_rows
from rlhf_minimal.models import TokenizerVocabulary, Vocabulary, character_tokenizer
from rlhf_minimal.tasks import TASKS, CompletionRow, PairRow, get_task
from rlhf_minimal.tasks.scoring import call_with_timeout
from rlhf_minimal.training.checkpoints import FORMAT
from rlhf_minimal.training.run_folder import RunFolder
from rlhf_minimal.vocabulary import END

HOSTILE = [
    "",
    " ",
    "\0",
    "\n\r\t\v\f",
    "\x1b[2J\x07",  # a terminal's control codes
    "9" * 5000,  # more digits than Python turns into an int
    "-" * 1000,
    "1e999",
    "nan",
    "٣٤",  # digits, and none of ours
    "\ud800",  # half a character
    "\u202e321+123=",  # written from right to left
    "a\u0301" * 500,
    "😀" * 300,
    "a" * 30 + "!",
    "(" * 3000,
    "yum " * 2000,
    END,
    "{{ 7 * 7 }}",
    "{% for a in range(9) %}{% endfor %}",
    "'; DROP TABLE answers; --",
    "__import__('os').abort()",
]
TEXT = st.text(max_size=60) | st.text(st.characters(codec=None), max_size=20) | st.sampled_from(HOSTILE)
many = settings(max_examples=100)


def hostile(test):
    """Every example of the list, besides the drawn ones."""
    for text in HOSTILE:
        test = example(text)(test)
    return test


@pytest.mark.parametrize(
    "name", [*TASKS, "stack", "reasoning-gym:chain_sum", "reasoning-gym:countdown", "reasoning-gym:n_queens"]
)
@many
@hostile
@given(TEXT)
def test_a_verifier_gives_every_text_a_finite_number(name, text):
    task = get_task(name)
    began = time.monotonic()
    for problem in task.problems("train", 3, seed=0):
        for answer in (text, problem.answer + text, text + problem.answer):
            value = float(task.verify(answer, problem))
            assert abs(value) < 1e9
    task.is_held_out(text.encode(errors="replace").decode())
    assert time.monotonic() - began < 1


@many
@hostile
@given(TEXT | st.text("0123456789+-*/^().,$\\{}[]=<>|xy frac", max_size=30))
def test_any_text_is_a_formula_or_none(text):
    for answer in ("7", r"\frac{x}{2}"):
        for completion in (text, f"${text}$", rf"\boxed{{{text}}}", f"{answer} {text}"):
            try:
                assert call_with_timeout(lambda c=completion, a=answer: same_answer(c, a), 2) in (True, False)
            except TimeoutError:
                pass  # 9^9^9^9 may be drawn


VOCABULARY = Vocabulary(TASKS["reviews"].alphabet)
VOCABULARIES = {"characters": VOCABULARY, "tokenizer": TokenizerVocabulary(character_tokenizer(VOCABULARY.alphabet))}


@pytest.mark.parametrize("name", VOCABULARIES)
@many
@hostile
@given(TEXT)
def test_a_vocabulary_writes_a_text_or_says_why_not(name, text):
    vocabulary = VOCABULARIES[name]
    try:
        ids = vocabulary.encode(text)
    except ValueError:
        assert set(text) - set(VOCABULARY.alphabet)
    else:
        assert END in text or vocabulary.decode(ids) == text


@pytest.mark.parametrize("name", VOCABULARIES)
@many
@given(st.lists(st.integers(0, len(VOCABULARY) - 1), max_size=30))
def test_a_vocabulary_reads_whatever_a_model_writes(name, ids):
    text = VOCABULARIES[name].decode(ids)
    assert VOCABULARIES[name].encode(text) == (ids[: ids.index(0)] if 0 in ids else ids)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "content", "prompt", "completion", "chosen", "rejected", "messages", "text"])
            | st.text(max_size=5),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)
COLUMNS = st.dictionaries(
    st.sampled_from(["text", "prompt", "completion", "messages", "chosen", "rejected", "score_chosen"]),
    JSON
    | st.just("yum tea")
    | st.just([{"role": "user", "content": "mia tea?"}, {"role": "assistant", "content": "wow"}]),
    max_size=4,
)


def accepts_or_says(read):
    """Nothing but a ValueError may come of it."""
    try:
        return read()
    except ValueError:
        return None


@pytest.mark.parametrize("kind", [TextRow, CompletionRow, PairRow])
@pytest.mark.parametrize("name", VOCABULARIES)
@many
@example([{"messages": [None]}])
@given(st.lists(COLUMNS, max_size=2))
def test_rows_are_read_or_refused(kind, name, rows):
    found = accepts_or_says(lambda: read_rows(rows, kind, VOCABULARIES[name], max_length=30))
    assert found is None or len(found) == len(rows) > 0


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


BYTES = st.binary(max_size=200) | TEXT.map(lambda text: text.encode(errors="surrogatepass"))
DEEP = b"[" * 100_000


@many
@example(DEEP)
@example(b'{"text": ' + b"9" * 5000 + b"}")
@example(b'{"text": "yum"}\n\xff')
@given(BYTES | st.lists(JSON, max_size=3).map(lambda rows: "\n".join(map(json.dumps, rows)).encode()))
def test_a_file_of_rows_is_read_or_refused(place, content):
    (place / "rows.jsonl").write_bytes(content)
    for kind in (TextRow, CompletionRow, PairRow):
        accepts_or_says(lambda kind=kind: read_rows(str(place / "rows.jsonl"), kind, VOCABULARY, max_length=30))


@many
@example(DEEP)
@example(b'{"format": 1, "steps": ' + b"9" * 5000 + b"}")
@given(BYTES | st.dictionaries(st.text(max_size=9) | st.just("format"), JSON).map(lambda d: json.dumps(d).encode()))
def test_a_run_folders_files_are_read_or_refused(place, content):
    for name in ("config.json", "metrics.jsonl"):
        (place / name).write_bytes(content)
    run = RunFolder(place)
    settings = accepts_or_says(lambda: run.settings("train", {"steps": int}))
    assert settings is None or settings["format"] == FORMAT
    rows = accepts_or_says(run.history)
    assert rows is None or all(isinstance(row["step"], int) for row in rows)
