"""Rows: every shape that is accepted, and for every bad row an error that names it."""

import ast
import gzip
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

import rlhf_minimal
from rlhf_minimal.lab.questions import questions_of
from rlhf_minimal.lab.rows import TextRow, hold_out, read_rows, write_rows
from rlhf_minimal.models import TokenizerVocabulary, Vocabulary, character_tokenizer
from rlhf_minimal.tasks import CompletionRow, PairRow, get_task
from rlhf_minimal.tasks.base import normalised

EVEN = get_task("even")
CHARACTERS = Vocabulary("abc :?")
TOKENIZER = TokenizerVocabulary(character_tokenizer("abc :?"))
BOTH = pytest.mark.parametrize("vocabulary", [CHARACTERS, TOKENIZER], ids=["characters", "tokenizer"])


def read(rows, kind, vocabulary=CHARACTERS, max_length=12):
    return read_rows(rows, kind, vocabulary, max_length=max_length)


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


# --- shapes --------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize(
    ("raw", "row"),
    [
        ({"text": "a b"}, TextRow("a b")),
        ({"prompt": "a?", "completion": "b", "id": 7}, CompletionRow("a?", "b")),
        ({"messages": [user("a?"), assistant("b")]}, CompletionRow("a?", "b")),
        ({"messages": [user("a?"), assistant("b"), user("c?"), assistant("a")]}, CompletionRow("a?bc?", "a")),
        ({"prompt": [user("a?")], "completion": [assistant("b")]}, CompletionRow("a?", "b")),
        ({"prompt": "a?", "chosen": "b", "rejected": "c"}, PairRow("a?", "b", "c")),
        ({"chosen": "a? b", "rejected": "a? c"}, PairRow("a?", " b", " c")),
        ({"prompt": [user("a?")], "chosen": [assistant("b")], "rejected": [assistant("c")]}, PairRow("a?", "b", "c")),
        ({"chosen": [user("a?"), assistant("b")], "rejected": [user("a?"), assistant("c")]}, PairRow("a?", "b", "c")),
        (
            {"prompt": "a?", "chosen": "b", "rejected": "c", "score_chosen": 1, "score_rejected": -0.5},
            PairRow("a?", "b", "c", 1.0, -0.5),
        ),
    ],
)
def test_every_shape_of_the_ecosystem(vocabulary, raw, row):
    assert read([raw], type(row), vocabulary) == [row]


def test_the_same_rows_from_a_list_a_file_and_a_dataset(tmp_path):
    datasets = pytest.importorskip("datasets")
    rows = [PairRow("a?", "b", "c", 1.0, 0.0), PairRow("b?", "c ", "a", 0.5, 2.0)]
    write_rows(tmp_path / "pairs.jsonl", rows)
    assert read(tmp_path / "pairs.jsonl", PairRow) == rows
    assert read(str(tmp_path / "pairs.jsonl"), PairRow) == rows
    raw = [vars(row) for row in rows]
    assert read(raw, PairRow) == rows
    dataset = datasets.Dataset.from_list(raw)
    assert read(dataset, PairRow) == rows
    assert read(dataset.to_iterable_dataset(), PairRow) == rows


def test_scores_that_are_not_there_are_not_written(tmp_path):
    write_rows(tmp_path / "pairs.jsonl", [PairRow("a?", "b", "c")])
    line = (tmp_path / "pairs.jsonl").read_text()
    assert json.loads(line) == {"prompt": "a?", "chosen": "b", "rejected": "c"}


def test_a_models_own_template_writes_the_conversation_and_its_end_token_is_taken_off():
    tokenizer = character_tokenizer("abcU?A:")
    tokenizer.chat_template = (
        "{% for m in messages %}{{ 'U:' if m['role'] == 'user' else 'A:' }}{{ m['content'] + '<|end|>' }}{% endfor %}"
        "{% if add_generation_prompt %}A:{% endif %}"
    )
    vocabulary = TokenizerVocabulary(tokenizer)
    (row,) = read([{"messages": [user("a?"), assistant("b")]}], CompletionRow, vocabulary)
    assert row == CompletionRow("U:a?<|end|>A:", "b")
    (pair,) = read(
        [{"prompt": [user("a?")], "chosen": [assistant("b")], "rejected": [assistant("c")]}], PairRow, vocabulary
    )
    assert pair == PairRow("U:a?<|end|>A:", "b", "c")


def test_a_template_that_rewrites_the_prompt_is_refused():
    tokenizer = character_tokenizer("abc?")
    tokenizer.chat_template = "{% for m in messages | reverse %}{{ m['content'] }}{% endfor %}"
    with pytest.raises(ValueError, match="row 1: the tokenizer's chat template writes the prompt differently"):
        read([{"messages": [user("a?"), assistant("b")]}], CompletionRow, TokenizerVocabulary(tokenizer))
    tokenizer.chat_template = "{{ raise_exception('no such role') }}"
    with pytest.raises(
        ValueError, match="row 1: the tokenizer's chat template refuses this conversation: no such role"
    ):
        read([{"messages": [user("a?"), assistant("b")]}], CompletionRow, TokenizerVocabulary(tokenizer))


# --- bad data ------------------------------------------------------------------------------------------------------

GOOD = {
    TextRow: {"text": "a"},
    CompletionRow: {"prompt": "a?", "completion": "b"},
    PairRow: {"prompt": "a?", "chosen": "b", "rejected": "c"},
}


@BOTH
@pytest.mark.parametrize(
    ("kind", "bad", "message"),
    [
        (TextRow, {"text": ""}, "the text is empty"),
        (TextRow, {"text": "a" * 12}, "13 tokens in the text, the end included, and the model reads at most 12"),
        (TextRow, {"content": "a"}, "there is no column 'text', only 'content'"),
        (TextRow, {}, "only nothing"),
        (TextRow, {"text": 3}, "text is 3, and should be a text"),
        (CompletionRow, {"prompt": "", "completion": "b"}, "the prompt is empty"),
        (CompletionRow, {"prompt": " ", "completion": "b"}, "the prompt is empty"),
        (CompletionRow, {"prompt": "a?", "completion": ""}, "the completion is empty"),
        (CompletionRow, {"prompt": "a?", "completion": "b" * 10}, "13 tokens in prompt and completion"),
        (CompletionRow, {"prompt": "a?"}, "no column 'completion'"),
        (CompletionRow, {"prompt": [user("a")], "completion": "b"}, "completion is 'b', and should be a list"),
        (CompletionRow, {"messages": "a?"}, "messages is 'a[?]', and should be a list of messages"),
        (CompletionRow, {"messages": [user("a?")]}, "the last message is not the assistant's"),
        (CompletionRow, {"messages": []}, "the last message is not the assistant's"),
        (CompletionRow, {"messages": [assistant("a")]}, "the prompt has no message"),
        (CompletionRow, {"messages": [user("a?"), assistant("")]}, "the completion is empty"),
        (CompletionRow, {"messages": [{"role": "user"}, assistant("b")]}, "message 1 is {'role': 'user'}"),
        (
            CompletionRow,
            {"messages": [user("a") | {"role": ["user"]}, assistant("b")]},
            r"message 1 is {'role': \['user'\]",
        ),
        (CompletionRow, {"messages": [user("a") | {"role": 5}, assistant("b")]}, "message 1 is {'role': 5"),
        (PairRow, {"prompt": "a?", "chosen": "b", "rejected": "b"}, "chosen and rejected are equal"),
        (PairRow, {"chosen": "a? b", "rejected": "a? b"}, "chosen and rejected are equal"),
        (PairRow, {"chosen": "a b", "rejected": "c b"}, "the prompt is empty"),
        (PairRow, {"prompt": "", "chosen": "b", "rejected": "c"}, "the prompt is empty"),
        (PairRow, {"prompt": "a?", "chosen": "", "rejected": "c"}, "the chosen completion is empty"),
        (PairRow, {"prompt": "a?", "chosen": "b", "rejected": ""}, "the rejected completion is empty"),
        (PairRow, {"prompt": "a?", "chosen": "b", "rejected": "c" * 10}, "13 tokens in prompt and rejected"),
        (PairRow, {"prompt": "a?", "chosen": "b", "rejected": "c", "score_chosen": math.nan}, "score_chosen is nan"),
        (
            PairRow,
            {"prompt": "a?", "chosen": "b", "rejected": "c", "score_rejected": math.inf},
            "score_rejected is inf",
        ),
        (PairRow, {"prompt": "a?", "chosen": "b", "rejected": "c", "score_chosen": "1"}, "should be a finite number"),
        (
            PairRow,
            {"prompt": "a?", "chosen": [assistant("b")], "rejected": "c"},
            "rejected is 'c', and should be a list",
        ),
    ],
)
def test_a_bad_row_is_named_wherever_it_comes_from(tmp_path, vocabulary, kind, bad, message):
    rows = [GOOD[kind], GOOD[kind], bad]
    with pytest.raises(ValueError, match=f"^row 3: .*{message}"):
        read(rows, kind, vocabulary)
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(ValueError, match=f"rows.jsonl, row 3: .*{message}"):
        read(path, kind, vocabulary)


def test_what_the_vocabulary_cannot_write_is_named():
    bad = [GOOD[CompletionRow], {"prompt": "a?", "completion": "bxy"}]
    with pytest.raises(ValueError, match="row 2: characters x, y of 'bxy' are not in this model's alphabet"):
        read(bad, CompletionRow)
    with pytest.raises(ValueError, match="row 2: this model's tokenizer cannot write 'bxy'"):
        read(bad, CompletionRow, TOKENIZER)


def test_a_token_that_the_tokenizer_only_stands_in_for_is_named():
    tokenizer = character_tokenizer("abc?U")
    tokenizer.unk_token = "U"
    with pytest.raises(ValueError, match="row 1: something in prompt and completion is unknown to the tokenizer"):
        read([{"prompt": "a?", "completion": "bU"}], CompletionRow, TokenizerVocabulary(tokenizer))


def test_the_end_token_in_an_answer_is_refused_and_in_a_prompt_is_a_turn():
    with pytest.raises(ValueError, match="row 1: 'b<|end|>c' holds the end token itself"):
        read([{"prompt": "a?", "completion": "b<|end|>c"}], CompletionRow, TOKENIZER)
    assert len(read([{"prompt": "a?<|end|>", "completion": "b"}], CompletionRow, TOKENIZER)) == 1


def test_a_byte_order_mark_is_no_part_of_the_first_row(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"text": "a"}\n', encoding="utf-8-sig")
    assert read(tmp_path / "rows.jsonl", TextRow) == [TextRow("a")]


@pytest.mark.parametrize(
    ("content", "advice"),
    [
        (b"PAR1\x00\x00", r"rows.data is parquet, .*from_parquet\(FILE\).to_json\(NEW\)"),
        (b"ARROW1\x00\x00", r"rows.data is arrow, .*from_file\(FILE\).to_json\(NEW\)"),
        (b"BZh91AY", "packed by bzip2: unpack it with bunzip2"),
        (b"\xfd7zXZ\x00", "packed by xz: unpack it with unxz"),
        (b"\x28\xb5\x2f\xfd\x00", "packed by zstd: unpack it with unzstd"),
        (b"PK\x03\x04\x14", "a zip file: unpack it with unzip"),
        ('{"prompt": "a"}'.encode("utf-32"), "in UTF-32: save it in UTF-8"),
        (b'{"prompt": "\xe9"}', "rows.data: it is no text in UTF-8 .*save it as JSON lines in UTF-8"),
        (gzip.compress(b'{"text": "a"}', mtime=0), "rows.data is packed by gzip.*gunzip"),
        *(
            ('{"text": "a"}'.encode(f"utf-16{x}"), "rows.data is text in UTF-16: save it in UTF-8")
            for x in ("", "le", "be")
        ),
    ],
)
def test_files_in_another_form_are_named_with_what_to_do(tmp_path, content, advice):
    (tmp_path / "rows.data").write_bytes(content)
    with pytest.raises(ValueError, match=advice):
        read(tmp_path / "rows.data", TextRow)


def test_the_advice_for_parquet_works(tmp_path):
    datasets = pytest.importorskip("datasets")
    datasets.Dataset.from_list([{"text": "a"}, {"text": "b"}]).to_parquet(tmp_path / "rows.parquet")
    datasets.Dataset.from_parquet(str(tmp_path / "rows.parquet")).to_json(tmp_path / "rows.jsonl")
    assert read(tmp_path / "rows.jsonl", TextRow) == [TextRow("a"), TextRow("b")]


def test_the_advice_for_a_prompt_beside_whole_conversations_works():
    row = {"prompt": "a?", "chosen": [user("a?"), assistant("b")], "rejected": [user("a?"), assistant("c")]}
    with pytest.raises(ValueError, match="leave the column prompt out"):
        read([row], PairRow)
    assert read([{name: row[name] for name in ("chosen", "rejected")}], PairRow) == [PairRow("a?", "b", "c")]


# --- rows to measure on ----------------------------------------------------------------------------------------------

MAKE = {
    TextRow: lambda question, n: TextRow(question),
    CompletionRow: lambda question, n: CompletionRow(question, str(n)),
    PairRow: lambda question, n: PairRow(question, str(n), "worse"),
}


@pytest.mark.parametrize("kind", MAKE)
def test_no_question_is_on_both_sides(kind):
    asked = [f"question {i}" for i in range(300)]
    rows = [MAKE[kind](question, n) for n in range(2) for question in asked]
    rows += [MAKE[kind](question.replace(" ", "\u00a0 "), 3) for question in asked]
    sides = [{normalised(questions_of(row)[0]) for row in side} for side in hold_out(rows, 10**6, EVEN.identity)]
    assert not sides[0] & sides[1]
    assert sides[0] | sides[1] == set(asked)
    assert 15 <= len(sides[1]) <= 50  # one in ten
    assert sides[1] == {question for question in asked if EVEN.is_held_out(question)}  # as every task has it
    assert (
        hold_out(rows[::-1], 10**6, EVEN.identity)[1][::-1] == hold_out(rows, 10**6, EVEN.identity)[1]
    )  # a sorted file is no trouble


def test_a_row_that_stands_twice_counts_once_and_no_more_is_measured_than_asked_for():
    rows = [CompletionRow(f"question {i}", "yes") for i in range(200)]
    train, held_out = hold_out(rows * 3, 5)
    assert len(held_out) == len(set(held_out)) == 5
    assert len(train) == len(set(train))
    assert train == hold_out(rows, 1000)[0]  # what is too much to measure is not trained on
    with pytest.raises(ValueError, match="the data holds one row only"):
        hold_out(rows[:1] * 60, 5)
    with pytest.raises(ValueError, match="the data holds one row only"):
        hold_out([CompletionRow("a b", "yes"), CompletionRow("a  b", "no")], 5)


def test_something_is_measured_where_nothing_is_held_out_and_nothing_held_out_is_trained_on():
    asked = [TextRow(str(i)) for i in range(500)]
    assert all(hold_out([row for row in asked if not EVEN.is_held_out(row.text)][:3], 9, EVEN.identity))
    with pytest.raises(ValueError, match="none is left to train on: add rows"):
        hold_out([row for row in asked if EVEN.is_held_out(row.text)][:3], 9, EVEN.identity)


def test_files_that_are_none(tmp_path):
    with pytest.raises(ValueError, match="cannot read nowhere.jsonl: No such file"):
        read("nowhere.jsonl", TextRow)
    path = tmp_path / "rows.jsonl"
    path.write_text('{"text": "a"}\n\n{"text": "b"}\n')
    with pytest.raises(ValueError, match="row 2: this line is not JSON"):
        read(path, TextRow)
    path.write_text('{"text": "a"}\n"b"\n')
    with pytest.raises(ValueError, match="row 2: expected an object with named columns; got str"):
        read(path, TextRow)
    path.write_bytes(b'{"text": "\xff"}\n')
    with pytest.raises(ValueError, match="cannot read"):
        read(path, TextRow)
    path.write_text('{"prompt": "a?", "chosen": "b", "rejected": "c", "score_chosen": NaN}')
    with pytest.raises(ValueError, match="row 1: score_chosen is nan"):
        read(path, PairRow)
    with pytest.raises(ValueError, match="there is no row in the data"):
        read([], TextRow)


def test_prompt_and_answer_are_counted_as_they_are_trained():
    """Two encodings one after the other: a tokenizer that merges across the seam would count one token less."""

    class Merging(Vocabulary):
        def encode(self, text):
            return [1] * ((len(text) + 1) // 2)

    merging = Merging("ab")
    assert len(read([{"prompt": "aaa", "completion": "bbb"}], CompletionRow, merging, max_length=5)) == 1
    with pytest.raises(ValueError, match="5 tokens in prompt"):
        read([{"prompt": "aaa", "completion": "bbb"}], CompletionRow, merging, max_length=4)


# --- files ---------------------------------------------------------------------------------------------------------

WRITE = """
from pathlib import Path
from rlhf_minimal.lab.rows import TextRow, write_rows
write_rows(Path("rows.jsonl"), [TextRow("\\u00fc 1 \\u2212 1")])
"""


def test_rows_are_written_in_utf_8_whatever_the_system_prefers(tmp_path):
    """An English Windows prefers another encoding; here a system that prefers ASCII stands for it."""
    ascii = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    wrote = subprocess.run([sys.executable, "-c", WRITE], cwd=tmp_path, env=ascii, capture_output=True, text=True)
    assert wrote.returncode == 0, wrote.stderr
    assert read(tmp_path / "rows.jsonl", TextRow, Vocabulary("ü 1−")) == [TextRow("ü 1 − 1")]


def opened_without_encoding(source):
    """The lines of a program that open a file as text and leave its encoding to the system."""
    for call in ast.walk(ast.parse(source)):
        if isinstance(call, ast.Call) and not any(keyword.arg == "encoding" for keyword in call.keywords):
            name, modes = ast.unparse(call.func), {ast.unparse(word) for word in call.args}
            opens = name == "open" or (name.endswith(".open") and name != "os.open")
            if (opens and not modes & {"'rb'", "'wb'"}) or name.endswith((".read_text", ".write_text")):
                yield call.lineno


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("open(path)\nopen(path, 'rb')\nos.open(path, os.O_RDONLY)", [1]),
        ("path.open('w')\npath.open('w', encoding='utf-8')\n(folder / 'b').read_text()\npath.write_bytes(b'')", [1, 3]),
    ],
)
def test_what_leaves_its_encoding_to_the_system_is_found(source, lines):
    assert list(opened_without_encoding(source)) == lines


def test_every_text_file_of_the_library_has_its_encoding():
    package = Path(rlhf_minimal.__file__).parent
    found = {
        str(file.relative_to(package)): lines
        for file in package.rglob("*.py")
        if (lines := list(opened_without_encoding(file.read_text(encoding="utf-8"))))
    }
    assert not found
