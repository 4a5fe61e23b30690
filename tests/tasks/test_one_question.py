"""The wall between training and held-out questions stands whatever form a file has them in."""

import html
import json
import time
from functools import partial

import pytest

from rlhf_minimal.cli import main
from rlhf_minimal.lab.questions import containing, folded, same_question
from rlhf_minimal.lab.rows import TextRow, asked_in, hold_out, read_rows
from rlhf_minimal.models import TokenizerVocabulary, Vocabulary
from rlhf_minimal.tasks import CompletionRow, PairRow, get_task
from rlhf_minimal.tasks.base import Problem, Task, normalised, question_core
from tests.chat_model import TEMPLATE, tokenizer, write_chat_model
from tests.tasks.spellings import DIFFERENT, SAME

TEMPLATES = {
    "chatml": TEMPLATE,
    "chatml with a system message of its own": "{% if messages[0]['role'] != 'system' %}<|im_start|>system\nYou help."
    "<|im_end|>\n{% endif %}" + TEMPLATE,
    "with a date": "Today: {{ strftime_now('%d %B %Y') }}\n\n" + TEMPLATE,
    "a model speaks, and nothing else may": "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no') }}"
    "{% endif %}{% for m in messages %}<start>{{ 'model' if m['role'] == 'assistant' else m['role'] }}\n"
    "{{ m['content'] | trim }}<end>\n{% endfor %}{% if add_generation_prompt %}<start>model\n{% endif %}",
    "instructions": "{% for m in messages %}{% if m['role'] == 'system' %}{{ m['content'] + '\n\n' }}"
    "{% elif m['role'] == 'user' %}[INST] {{ m['content'] }} [/INST]{% else %} {{ m['content'] }}<|im_end|>"
    "{% endif %}{% endfor %}",
    "a system message within": "{% if messages[0]['role'] == 'system' %}{% set s = messages[0]['content'] %}"
    "{% set rest = messages[1:] %}{% else %}{% set s = '' %}{% set rest = messages %}{% endif %}{% for m in rest %}"
    "{% if m['role'] == 'user' %}[INST] {% if loop.first and s %}<<SYS>>\n{{ s }}\n<</SYS>>\n\n{% endif %}"
    "{{ m['content'] }} [/INST]{% else %} {{ m['content'] }} <|im_end|>{% endif %}{% endfor %}",
}
VOCABULARIES = {name: TokenizerVocabulary(tokenizer(template)) for name, template in TEMPLATES.items()}
PLAIN = {
    "no template": TokenizerVocabulary(tokenizer(None)),
    "characters": Vocabulary("".join(map(chr, range(9, 161)))),
}
every = pytest.mark.parametrize("name", [*VOCABULARIES, *PLAIN])


def fewer(questions):
    """All that are held out, a tenth, and every fourth of the others."""
    return [q for i, q in enumerate(questions) if i % 4 == 0 or get_task("even").is_held_out(q)]


EVERY = [f"What is {i} + {i * i % 89}?\nIt is small." if i % 3 else f"add {i} and 7" for i in range(160)]
QUESTIONS = fewer(EVERY)
HELD_OUT = {q for q in QUESTIONS if get_task("even").is_held_out(q)}


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


SYSTEM = {"role": "system", "content": "Answer with the number only."}
YES, NO = assistant("It is 42."), assistant("It is 40.")

COMPLETIONS = {
    "messages": lambda q, v: {"messages": [user(q), YES]},
    "messages, with a system message": lambda q, v: {"messages": [SYSTEM, user(q), YES]},
    "messages, other blanks": lambda q, v: {"messages": [user(f"\u00a0{q}\n"), YES]},
    "several turns": lambda q, v: {"messages": [user("Hello!"), assistant("Hi."), user(q), YES]},
    "several turns, asked first": lambda q, v: {"messages": [user(q), YES, user("Sure?"), assistant("Yes.")]},
    "prompt and completion": lambda q, v: {"prompt": [user(q)], "completion": [YES]},
    "prompt and completion as texts": lambda q, v: {"prompt": q, "completion": "42"},
    "rendered": lambda q, v: {"prompt": v.prompt_text(q), "completion": "42"},
    "rendered, with a system message": lambda q, v: {
        "prompt": v.prompt_text(q, system="Be brief."),
        "completion": "42",
    },
    "rendered, nobody is to answer": lambda q, v: {
        "prompt": v.render([user(q)], ask=False).strip(),
        "completion": "42",
    },
    "named speakers": lambda q, v: {"prompt": f"Q: {q}\nA:", "completion": " 42"},
    "headings in a prompt": lambda q, v: {"prompt": f"### Instruction:\n{q}\n\n### Response:\n", "completion": "42"},
}


def alike(both, chosen="42", rejected="7"):
    """A pair without a prompt: how both texts begin, with {q} for the question, and how each goes on."""
    return lambda q, v: {"chosen": both.format(q=q) + chosen, "rejected": both.format(q=q) + rejected}


PAIRS = {
    "prompt": lambda q, v: {"prompt": q, "chosen": "It is 42.", "rejected": "It is 40."},
    "prompt as messages": lambda q, v: {"prompt": [user(q)], "chosen": [YES], "rejected": [NO]},
    "rendered prompt": lambda q, v: {"prompt": v.prompt_text(q), "chosen": "It is 42.", "rejected": "It is 40."},
    "messages without a prompt": lambda q, v: {"chosen": [user(q), YES], "rejected": [user(q), NO]},
    "system message without a prompt": lambda q, v: {
        "chosen": [SYSTEM, user(q), YES],
        "rejected": [SYSTEM, user(q), NO],
    },
    "texts without a prompt": alike("{q} "),
    "number begins alike": alike("{q} 4", "2", "0"),
    "sentence begins alike": alike("{q} It is 4", "2.", "0."),
    "one is the other's beginning": alike("{q} maybe", "", " not"),
    "lines": alike("{q}\nIt is ", "42.", "7."),
    "question and answer": alike("{q}\nA: maybe", "", " not"),
    "speakers": alike("\n\nHuman: {q}\n\nAssistant: "),
    "short speakers": alike("Q: {q}\nA: 4", "2", "3"),
    "headings": alike("### Instruction:\n{q}\n\n### Response:\n"),
    "bold speakers": alike("**Customer:** {q}\n**Agent:** "),
    "tags": alike("<|user|>\n{q}</s>\n<|assistant|>\n"),
    "an answer of sentences": alike("{q} Let me think. First, I add. So it is 4", "2.", "1."),
    "speakers, two turns": alike("Human: {q}\n\nAssistant: 42\n\nHuman: Sure?\n\nAssistant: ", "Yes", "No"),
    "rendered whole": lambda q, v: {
        "chosen": v.prompt_text(q) + "It is 42.",
        "rejected": v.prompt_text(q) + "It is 40.",
    },
}
FORMS = [(CompletionRow, form) for form in COMPLETIONS] + [(PairRow, form) for form in PAIRS]


def leaked(kind, form, vocabulary):
    """How many questions that the task holds out are in a row to train on; and how many rows are trained on."""
    task, make = get_task("even"), (COMPLETIONS if kind is CompletionRow else PAIRS)[form]
    raw = [make(question, vocabulary) for question in QUESTIONS]
    rows = read_rows(raw, kind, vocabulary, max_length=10**6)
    train, measured = hold_out(rows, 10**6, task.identity)
    question_of = dict(zip(rows, QUESTIONS, strict=True))
    assert not {task.identity(question_of[row]) for row in train} & {
        task.identity(question_of[row]) for row in measured
    }
    return sum(question_of[row] in HELD_OUT for row in train), len(train), len(measured)


@every
@pytest.mark.parametrize(("kind", "form"), FORMS, ids=[form for _, form in FORMS])
def test_no_held_out_question_is_trained_on(name, kind, form):
    vocabulary = (VOCABULARIES | PLAIN)[name]
    if "system" in form and name == "a model speaks, and nothing else may":
        pytest.skip("this template refuses a system message")
    if "rendered" in form and "system" in form and name in PLAIN:
        pytest.skip("without a template the system message is a line of the prompt; see the test of instructions")
    found, trained, measured = leaked(kind, form, vocabulary)
    assert found == 0
    assert trained + measured <= len(QUESTIONS)
    exact, free = form not in LOOSE, len(QUESTIONS) - len(HELD_OUT)
    assert trained == free if exact else trained > free / 3
    assert measured > 9 or not exact


# Where nothing says where the question ends, or the whole prompt may be one, too, rows that may hold another question
# are left out as well.
LOOSE = [
    "named speakers",
    "headings in a prompt",
    "an answer of sentences",
    "texts without a prompt",
    "number begins alike",
    "sentence begins alike",
    "one is the other's beginning",
    "lines",
    "question and answer",
    "rendered whole",
]


@every
def test_the_tasks_instruction_is_no_part_of_the_question(name):
    """`sample --rows` writes prompts with it: as a system message, or as a line where there is no template."""
    vocabulary = (VOCABULARIES | PLAIN)[name]
    task = Task("t", "", "", 9, lambda rng: Problem("", ""), instruction="Think.\nThen answer.")
    try:
        rows = [CompletionRow(vocabulary.prompt_text(q, system=task.instruction), "42") for q in QUESTIONS]
    except ValueError:
        pytest.skip("this template refuses a system message")
    rows = read_rows(map(vars, rows), CompletionRow, vocabulary, max_length=10**6)
    train, measured = hold_out(rows, 10**6, task.identity)
    held_out = {vocabulary.prompt_text(q, system=task.instruction) for q in QUESTIONS if task.is_held_out(q)}
    assert {row.prompt for row in measured} == held_out
    assert not {row.prompt for row in train} & held_out


def test_the_family_of_the_task_decides():
    addition = get_task("addition")
    prompts = [f"{a}+{b}=" for a in range(30) for b in range(30)]
    rows = read_rows(
        [{"prompt": p, "completion": "1"} for p in prompts], CompletionRow, Vocabulary("0123456789+="), max_length=20
    )
    train, measured = hold_out(rows, 10**6, addition.identity)
    assert [addition.is_held_out(row.prompt) for row in train] == [False] * len(train)
    assert [addition.is_held_out(row.prompt) for row in measured] == [True] * len(measured)
    assert len(train) + len(measured) == len(prompts)


def test_a_task_splits_by_what_a_reader_sees():
    task = Task("t", "", "", 9, lambda rng: Problem(f"{rng.randrange(500)}  +\n1", ""))
    for split in ("train", "held_out"):
        for problem in task.problems(split, 50, seed=0):
            assert (
                task.is_held_out(normalised(problem.prompt)) == task.is_held_out(problem.prompt) == (split != "train")
            )


@pytest.mark.parametrize("first", [0x00, 0x7F, 0x2060, 0xFE00, 0xFFF0, 0xE0000, 0xE0100, 0xE0FF0])
def test_what_nobody_sees_makes_no_other_question(first):
    for code in range(first, first + 9):
        between = " " if chr(code).isspace() else ""
        assert normalised(f"a{chr(code)}b") == f"a{between}b", hex(code)


def test_what_a_template_wrote_on_another_day_is_the_same_question():
    vocabulary = VOCABULARIES["with a date"]
    today = vocabulary.prompt_text("6 * 7")
    assert asked_in("Today: 01 January 1970\n\n" + today.partition("\n\n")[2], vocabulary) == ("6 * 7",)
    assert asked_in("6 * 7", vocabulary) == ()


@pytest.mark.parametrize(
    ("chosen", "rejected", "prompt"),
    [
        ("Q\nA: maybe", "Q\nA: maybe not", "Q\nA:"),
        ("Q\nA: maybe not", "Q\nA: maybe", "Q\nA:"),
        ("Q\nA: maybe.", "Q\nA: maybe. No", "Q\nA:"),
        ("Well? yes", "Well? yellow", "Well?"),
        ("6*7? 42", "6*7? 40", "6*7?"),
        ("2+2=4", "2+2=44", "2+2="),
        ("12+34=46", "12+34=47", "12+34="),
        ("Caf\u00e9 ouvert? oui", "Caf\u00e9 ouvert? ou\u0300", "Caf\u00e9 ouvert?"),
        ("\u7b54\u6848\u662f\u56db", "\u7b54\u6848\u662f\u4e94", "\u7b54\u6848\u662f"),  # no words to cut at
        ("a? b", "a? c", "a?"),
    ],
)
def test_a_prompt_that_is_not_given_ends_with_a_whole_word(chosen, rejected, prompt):
    (row,) = read_rows([{"chosen": chosen, "rejected": rejected}], PairRow, PLAIN["no template"], max_length=200)
    assert row.prompt == prompt
    assert (row.prompt + row.chosen, row.prompt + row.rejected) == (chosen, rejected)
    assert row.chosen
    assert row.rejected


def test_conversations_of_which_one_is_the_others_beginning():
    read = partial(read_rows, kind=PairRow, vocabulary=PLAIN["no template"], max_length=200)
    (row,) = read([{"chosen": [user("6 * 7"), YES], "rejected": [user("6 * 7"), YES, user("Sure?"), NO]}])
    assert (row.prompt, row.chosen, row.rejected) == ("6 * 7", "It is 42.", "It is 42.Sure?It is 40.")


def test_what_many_conversations_say_decides_nothing_and_a_question_does():
    """Of [greeting, question, "Go on"] the question decides, on whichever side the other two fall."""
    vocabulary = PLAIN["no template"]
    for greeting, go_on in (("Hello!", "Go on."), *zip(sorted(HELD_OUT)[:2], sorted(HELD_OUT)[2:4], strict=True)):
        talk = [user(greeting), assistant("Hi."), user("?"), YES, user(go_on), NO]
        raw = [{"messages": [*talk[:2], user(q), *talk[3:]]} for q in QUESTIONS]
        rows = read_rows(raw, CompletionRow, vocabulary, max_length=10**6)
        both = hold_out(rows, 10**6, get_task("even").identity)
        sides = ({row.asked[1] for row in side} - {greeting, go_on} for side in both)
        assert [*sides] == [{*QUESTIONS} - HELD_OUT, HELD_OUT - {greeting, go_on}]
    # a question that many conversations go on from is a question all the same
    few = [*sorted(HELD_OUT)[:2], *(q for q in QUESTIONS if q not in HELD_OUT)][:10]
    raw = [{"messages": [user(q), YES, user(f"And {i}?"), NO]} for q in few for i in range(30)]
    rows = read_rows(raw, CompletionRow, vocabulary, max_length=10**6)
    train, _ = hold_out(rows, 10**6, get_task("even").identity)
    assert train
    assert not {row.asked[0] for row in train} & HELD_OUT


def test_rows_that_are_all_held_out_are_refused():
    rows = [CompletionRow(question, "42") for question in sorted(HELD_OUT)]
    with pytest.raises(ValueError, match="none is left to train on: add rows"):
        hold_out(rows, 9, get_task("even").identity)


def test_the_commands_hold_the_wall_and_say_what_is_not_learnt(tmp_path, capsys):
    """The report's own example: questions as messages for `sft`, and as `exact:` for `evaluate`."""
    start = write_chat_model(tmp_path / "start")
    several = [{"messages": [user("Hello!"), assistant("Hi."), user(q), YES]} for q in EVERY[:15]]
    rows = [{"messages": [user(q), YES]} for q in EVERY[15:]]
    (tmp_path / "chats.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*several, *rows]))
    run = tmp_path / "run"
    flags = ["--start", str(start), "--data", str(tmp_path / "chats.jsonl"), "--steps", "1", "--batch-size", "2"]
    assert main(["sft", *flags, "--out", str(run)]) == 0
    said = capsys.readouterr().out
    assert f"15 of {len(EVERY)} rows are conversations with earlier turns of the assistant" in said
    trained = (run / "rows.jsonl").read_text()
    (tmp_path / "q.jsonl").write_text("".join(json.dumps({"prompt": q, "answer": "42"}) + "\n" for q in EVERY))
    held_out = [q for q in EVERY if get_task(f"exact:{tmp_path / 'q.jsonl'}").is_held_out(q)]
    assert len(held_out) > 9
    assert not [q for q in held_out if json.dumps(q)[1:-1] + "<|im_end|>" in trained]
    kept = [json.loads(line) for line in (run / "rows.jsonl").read_text().splitlines()]
    assert all(set(row) == {"prompt", "completion"} for row in kept)


def test_a_long_text_without_marks_keeps_its_first_and_its_last_places_only():
    shared = "word " * 2000 + "x" * 100_000  # one word of so many letters takes minutes if every letter is tried
    raw = [{"chosen": f"{shared} yes", "rejected": f"{shared} no"}]
    (row,) = read_rows(raw, PairRow, Vocabulary("words xyen"), max_length=10**6)
    assert len(row.asked) == 32
    assert row.asked[0] == "word"
    assert row.asked[-1] == row.prompt == shared


def test_a_text_of_ascii_is_seen_as_it_is_among_others():
    text = "".join(map(chr, range(128)))
    assert normalised(text) == normalised(f"{text}\u00e9").removesuffix("\u00e9")


# What other models' templates write, heads, and instructions around a question.
AROUND = [
    "<bos><start_of_turn>user\n{q}<end_of_turn>\n<start_of_turn>model\n",
    (
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nYou are "
        "helpful.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n{q}<|eot_id|><|start_header_id|>assistant"
        "<|end_header_id|>\n\n"
    ),
    "<s>[INST] <<SYS>>\nBe good.\n<</SYS>>\n\n{q} [/INST]",
    "[INST] {q} [/INST]",
    "<|im_start|>system\nHello<|im_end|>\n<|im_start|>user\n{q}<|im_end|>\n<|im_start|>assistant\n",
    "<|user|>\n{q}<|end|>\n<|assistant|>\n",
    "<｜begin▁of▁sentence｜><｜User｜>{q}<｜Assistant｜>",
    "<|start_of_role|>user<|end_of_role|>{q}<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>",
    "<|start|>user<|message|>{q}<|end|><|start|>assistant",
    "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>{q}<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
    "<|im_user|>user<|im_middle|>{q}<|im_end|><|im_assistant|>assistant<|im_middle|>",
    "[gMASK]<sop><|user|>\n{q}<|assistant|>",
    "A chat between a curious user and an assistant. USER: {q} ASSISTANT:",
    "GPT4 Correct User: {q}<|end_of_turn|>GPT4 Correct Assistant:",
    "<|user|>\n{q}</s>\n<|assistant|>\n",
    "<bos><|turn>user\n{q}<turn|>\n<|turn>model\n",
    "<extra_id_0>System\n\n<extra_id_1>User\n{q}\n<extra_id_1>Assistant\n",
    "<s>[SYSTEM_PROMPT]Hi[/SYSTEM_PROMPT][INST]{q}[/INST]",
    "### Question\n{q}",
    "### Question\n{q}\n\n### Answer\n",
    "User: {q}",
    "Frage: {q}",
    "Problem: {q}",
    "Task: {q}",
    "Instruction:\n{q}",
    (
        "Below is an instruction that describes a task. Write a response that appropriately completes the "
        "request.\n\n### Instruction:\n{q}\n\n### Response:\n"
    ),
    "{q} Let's think step by step.",
    "{q}\nPlease reason step by step, and put your final answer within \\boxed{{}}.",
    (
        "<|im_start|>user\n{q}\nPlease reason step by step, and put your final answer within "
        "\\boxed{{}}.<|im_end|>\n<|im_start|>assistant\n"
    ),
    (
        "Solve the following math problem step by step. The last line of your response should be of the form "
        "Answer: $Answer (without quotes) where $Answer is the answer to the problem.\n\n{q}\n\nRemember to put "
        'your answer on its own line after "Answer:".'
    ),
    (
        "A conversation between User and Assistant. The user asks a question, and the Assistant solves it. User: "
        "{q} Assistant: <think>"
    ),
    "{q} Show your work.",
    "{q} Think hard before you answer.",
    "**Question:** {q}\n\n**Answer:**",
    "12. {q}",
    "{q} Denke Schritt für Schritt.",
    "Q: {q}\nA:",
    "Question : {q}\nRéponse :",
    "Pregunta: {q}\nRespuesta:",
    "Q: What is 1000 + 1?\nA: 1001\n\nQ: {q}\nA:",
    "<question>{q}</question>",
    '"{q}"',
    "<user>{q}</user><assistant>",
    "Please answer: {q}",
    "{q}\nYou must answer with only a number.",
]
# Nothing in these says where the question is: it is found where the task's questions are known.
ANYHOW = [
    '{{"question": "{q}"}}',
    "Solve this. {q}",
    "{q} Good luck!",
]
ASKED = fewer(
    f"What is {i} + {i * i % 89}?" if i % 3 else f"Ann has {i} apples and eats 7. How many?" for i in range(160)
)
EVERY_LETTER = Vocabulary("".join(map(chr, range(9, 0x3000))) + "\uff5c")
KINDS = {
    "completion": (CompletionRow, lambda text: {"prompt": text, "completion": "42"}),
    "pair": (PairRow, lambda text: {"prompt": text, "chosen": "42", "rejected": "41"}),
    "text": (TextRow, lambda text: {"text": f"{text} 42"}),
    "text, two lines": (TextRow, lambda text: {"text": f"{text}\n42"}),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("around", [*AROUND, *ANYHOW])
def test_whatever_stands_around_a_question_it_is_the_same(around, kind):
    task, (row, make) = get_task("even"), KINDS[kind]
    held_out = {question for question in ASKED if task.is_held_out(question)}
    rows = read_rows([make(around.format(q=question)) for question in ASKED], row, EVERY_LETTER, max_length=10**6)
    question_of = dict(zip(rows, ASKED, strict=True))
    for known in (held_out,) if around in ANYHOW or row is TextRow and around in LOOSE_TEXTS else ((), held_out):
        train, _ = hold_out(rows, 10**6, task.identity, known)
        assert not {question_of[row] for row in train} & held_out
        assert len(train) > (len(ASKED) - len(held_out)) / 2


LOOSE_TEXTS = [around for around in AROUND if around.startswith(("<question>", '"'))]


def test_a_short_question_is_found_where_it_is_all_that_is_asked():
    rows = [
        CompletionRow(prompt, "46") for prompt in ("12+34=", "Q: 12+34=\nA:", "Is 12+34= a question?", "5+5=", "6+6=")
    ]
    train, _ = hold_out(rows, 9, known=["12+34=", "What did the cat on the mat say?"])
    assert "Is 12+34= a question?" in {row.prompt for row in train}
    assert question_core(rows[1].prompt) == "12+34="


SOLD = (
    'Ann\'s "friend" sold {} clips in April, and then she sold half as many in May for $7 each. How much money did the '
    "friend's clips earn altogether in 1,{} days?"
)
LONG = fewer(SOLD.format(i, 100 + i) for i in range(160))


def in_two(question, between):
    return question.replace(". How", f".{between}How")


# One question as other files spell it: quotes, escapes, marks before lines, a break.
SPELT = {
    "curly quotes": lambda q: q.replace("'", "\u2019").replace(' "', " \u201c").replace('"', "\u201d"),
    "backquotes": lambda q: q.replace("'", "`"),
    "upper case": str.upper,
    "full width": lambda q: "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in q),
    "html": html.escape,
    "named entities": lambda q: q.replace("'", "&rsquo;").replace(" ", "&nbsp;"),
    "JSON": lambda q: json.dumps(q.replace("'", "\u2019")),
    "escaped apostrophe": lambda q: q.replace("'", "\\u0027"),
    "line written out": lambda q: in_two(q, "\\n"),
    "quoted": lambda q: "> " + in_two(q, "\n> "),
    "bullets": lambda q: "- " + in_two(q, "\n- "),
    "bold": lambda q: q.replace("April", "**April**").replace("$7", "$**7**"),
    "tags": lambda q: in_two(q, "<br/><p>").replace("April", "<b>April</b>"),
    "no thousands": lambda q: q.replace("1,", "1"),
    "thousands in LaTeX": lambda q: q.replace("1,", "1{,}"),
    "blanks before marks": lambda q: q.replace("?", " ?").replace(",", " ,").replace("'", " '"),
    "dashes": lambda q: q.replace(", and", " \u2014 and"),
    "end of a line": lambda q: q.replace("money", "mo-\nney"),
    "glued": lambda q: f"Question#7->{q}",
    "glued word": lambda q: f"xxx{q}",
    "with a remark": lambda q: q.replace("May", "May (think!)"),
}


@pytest.mark.parametrize("spelling", SPELT)
@pytest.mark.parametrize("kind", ["completion", "pair", "text"])
def test_a_question_in_another_spelling_is_the_same(kind, spelling):
    task, (row, make) = get_task("even"), KINDS[kind]
    held_out = {question for question in LONG if task.is_held_out(question)}
    raw = [make(f"Solve this. {SPELT[spelling](question)}") for question in LONG]
    rows = read_rows(raw, row, TokenizerVocabulary(tokenizer(None)), max_length=10**6)
    train, _ = hold_out(rows, 10**6, task.identity, held_out)
    trained = {question for question, row in zip(LONG, rows, strict=True) if row in set(train)}
    assert not trained & held_out
    assert len(trained) > (len(LONG) - len(held_out)) * 2 / 3


@every
@pytest.mark.parametrize("between", ["ok", "Go on.", None])
def test_a_question_in_two_messages_is_the_same(name, between):
    if between is None and name in ("a model speaks, and nothing else may", "a system message within"):
        between = "Yes?"
    held_out = {question for question in LONG if get_task("even").is_held_out(question)}
    parts = [question.rpartition(". ") for question in LONG]
    raw = [
        {"messages": [user(one + "."), *([assistant(between)] if between else []), user(other), YES]}
        for one, _, other in parts
    ]
    rows = read_rows(raw, CompletionRow, (VOCABULARIES | PLAIN)[name], max_length=10**6)
    train, _ = hold_out(rows, 10**6, get_task("even").identity, held_out)
    assert not {question for question, row in zip(LONG, rows, strict=True) if row in set(train)} & held_out
    assert len(train) > (len(LONG) - len(held_out)) * 2 / 3


@pytest.mark.parametrize(
    ("known", "other"),
    [
        (SOLD.format(12, 100), SOLD.format(112, 100)),
        (SOLD.format(12, 100), SOLD.format(123, 100)),
        (SOLD.format(12, 100), SOLD.format(12, 1000)),
        (SOLD.format(12, 100), SOLD.format(1, 100) + " 12"),
        (SOLD.format(12, 100), SOLD.format(12, 100).replace("May", "the next month, June")),
        ("What is 3 + 4?", "What is 3 * 4?"),
        ("What is 3 + 4?", "What is 3 - 4?"),
        ("What is 3 + 4?", "What is 3 + 45?"),
        ("What is 1 + 23?", "What is 12 + 3?"),
        ("What is 1.5 + 2?", "What is 1 5 + 2?"),
        ("What is 3 + 4?", "What is 3 of the 5 and 3 + 4?"),
        ("12+34=", "Is 12+34= so?"),
    ],
)
def test_another_question_is_another(known, other):
    rows = [CompletionRow(f"{{ {text} }}", "42") for text in (known, other)]
    found = containing(rows, [known])
    assert found == ({rows[0]} if len(known) > 9 else set())


def test_fifty_thousand_rows_take_seconds():
    text = (
        "Natalia sold clips to {} of her friends in April, and then half as many in May. How many did she sell in all?"
    )
    rows = [CompletionRow(f"Solve this. {text.format(i)}", "It is so.") for i in range(50_000)]
    began = time.process_time()
    train, _ = hold_out(rows, 1000, known=[text.format(i) for i in range(0, 50_000, 50)])
    assert time.process_time() - began < 60
    assert not {row.prompt for row in train} & {f"Solve this. {text.format(i)}" for i in range(0, 50_000, 50)}
    assert len(train) > 40_000


@pytest.mark.parametrize(
    ("written", "also"),
    [
        ("3/4 cup", "\u00be cup"),
        (r"\frac{3}{4} cup", "3/4 cup"),
        (r"\dfrac34 cup", "3/4 cup"),
        (r"f\left(x\right)=2", "f(x)=2"),
        ("2 \u00d7 3", r"2 \times 3"),
        ("2 * 3", "2 \u00d7 3"),
        ('<span class="n">12</span> eggs', "12 eggs"),
    ],
)
def test_formulas_are_compared_however_they_are_written(written, also):
    assert folded(written) == folded(also) != folded(written.replace("3", "5").replace("2", "5"))


@pytest.mark.parametrize(("one", "other"), SAME)
def test_a_question_that_is_spelt_in_another_way_is_the_same(one, other):
    """By its checksum, which every command knows, and, however short it is, where it is known to be held out."""
    assert same_question(one) == same_question(other)
    assert len(containing([CompletionRow(other, "so"), CompletionRow("What else?", "so")], [question_core(one)])) == 1


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_a_question_with_another_operator_number_or_word_is_another(one, other):
    assert same_question(one) != same_question(other)
    assert not containing([CompletionRow(other, "so")], [question_core(one)])


def test_a_file_in_another_spelling_has_the_same_questions_held_out(tmp_path):
    """`sft --data` knows nothing of the file that `evaluate` takes: the checksums divide both alike."""
    ways = [
        r"Compute $\frac{{{0}}}{{7}} \cdot 1{{,}}0{1}$.",
        "\uff23ompute {0}/7\u00d71 0{1}",
        "compute {0}/7 * 1,0{1}",
    ]
    files = []
    for n, way in enumerate(ways):
        files.append(tmp_path / f"{n}.jsonl")
        rows = [{"prompt": way.format(i, 10 + i % 90), "answer": "1"} for i in range(300)]
        files[-1].write_text("".join(json.dumps(row) + "\n" for row in rows))
    first, *others = (get_task(f"exact:{file}") for file in files)
    held_out = [first.is_held_out(problem.prompt) for problem in first.listed]
    assert 10 < sum(held_out) < 60
    for task in others:
        assert [task.is_held_out(problem.prompt) for problem in task.listed] == held_out
        rows = [CompletionRow(problem.prompt, "1") for problem in task.listed]
        train, _ = hold_out(rows, 10**6)
        assert [row not in train for row in rows] == held_out


def test_one_question_in_two_spellings_is_on_one_side():
    """Also where a task divides by the prompt itself, and where one question is moved to measure on."""
    both = [("What is 3 * 4?", r"What is $3 \cdot 4$?"), ("What is \u00bd of 6?", "what is 1/2 of 6")]
    rows = [CompletionRow(prompt, "so") for pair in both for prompt in pair]
    for identity in (same_question, get_task("even").identity):
        train, measured = hold_out(rows, 9, identity)
        assert {same_question(row.prompt) for row in train}.isdisjoint(same_question(row.prompt) for row in measured)
        assert train
        assert measured
