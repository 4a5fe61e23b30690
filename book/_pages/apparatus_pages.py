"""Pages that are made of the book's data: the index of ideas, the interview questions, the list of exercises."""

import re
from html import escape
from pathlib import Path

import apparatus
import errata
import numbering
from data_files import title_of
from printing import box, flat

PARTS = {
    "foundations": "Foundations",
    "ppo": "PPO",
    "grpo": "GRPO",
    "rloo": "RLOO",
    "dapo": "DAPO",
    "drgrpo": "Dr. GRPO",
    "gspo": "GSPO",
    "variants": "Other gates and ratios",
    "reasoning": "Reasoning",
    "choice": "Choosing",
    "speed": "Time and memory",
    "scale": "Scaling up",
    "interview": "Interview questions",
}
SHOWN = {
    "derive": "Derived under",
    "compute": "Computed under",
    "train": "Trained under",
    "cite": "Stated with its source under",
    "discuss": "Discussed under",
}

FILTER = """\
<form class="question-filter" hidden aria-label="Choose questions">
<fieldset><legend>Level</legend>{levels}</fieldset>
<fieldset><legend>Topic</legend>{topics}</fieldset>
<p><output role="status"></output> <button type="button" class="open">Open all answers</button>
<button type="button" class="close">Close all</button></p>
</form>
"""
BOX = '<label><input type="checkbox" name="{name}" value="{value}"> {text}</label>'

# Without it all questions are there to read, in <details> that the browser opens by itself.
SCRIPT = Path(__file__).with_name("question_filter.js")


def split_idea(text):
    """The question with which an idea begins, which can stand as its title, and what follows it."""
    match = re.match(r"(.{20,}?[.?;:])(?:\s+|$)(.*)", text, re.DOTALL)
    headline, rest = (match[1].rstrip(".;:"), match[2]) if match else (text, "")
    if headline.split()[0] in ("What", "How", "Why", "When", "Which", "Where") and not headline.endswith("?"):
        headline += "?"
    return headline[0].upper() + headline[1:], rest[:1].upper() + rest[1:]


def test_link(test):
    """A test's name, as a link to its file where the repository has an address."""
    name, address = f"`{test}`{{.proof}}", errata.repository().rstrip("/")
    return f"[{name}]({address}/blob/HEAD/{test.partition('::')[0]})" if address else name


def concept_index():
    """Every idea that has its place in the book, part by part, with the cells that show it."""
    found = {}
    for claim in apparatus.claims():
        found.setdefault(claim.concept, []).append(claim)
    ideas = apparatus.concepts()
    shown = [idea for idea in ideas.values() if idea.id in found]
    text = [f"The book grows: {len(shown)} of {len(ideas)} ideas have their place in it."]
    for part in dict.fromkeys(idea.part for idea in shown):
        if part not in PARTS:
            raise ValueError(f"the part {part!r} of concepts.yml has no title in {Path(__file__).name}")
        entries = [entry(idea, found[idea.id]) for idea in shown if idea.part == part]
        text += [f"```{{rubric}} {PARTS[part]}\n```", box("concepts", "\n\n".join(entries))]
    return "\n\n".join(text)


def entry(idea, found):
    """An idea as an entry of a list of definitions, with links to the cells that show it."""
    headline, rest = (idea.title, idea.idea) if idea.title else split_idea(idea.idea)
    lines = [rest.replace("*", "\\*")] * bool(rest)  # a product, and no emphasis
    lines += [f"*Often put imprecisely:* {idea.doubt}"] * bool(idea.doubt)
    for claim in found:
        how = "(the cell that asserts it)" if claim.asserts else "(with its source)"
        lines.append(f"{SHOWN[idea.show]} {claim.link} {how}")
    lines.append(f"`{idea.id}`{{.idea-id}}")
    return f'<span id="idea-{idea.id}"></span>{headline}\n\n: ' + "\n\n  ".join(map(flat, lines))


def answer(question, found):
    """All that is said once a question is opened: the answer, the wrong one, what may follow, and the proofs."""
    lines = []
    for proof in question.proof:
        if proof.test:
            lines.append(f"- {apparatus.test_docstring(proof.test) or 'A test of that name:'} {test_link(proof.test)}")
        else:
            claim = proof.claim(found)
            if claim is None:
                raise ValueError(f"{question.id}: {proof.problem(found)}")
            lines.append(f"- The asserting cell under {claim.link}")
    return apparatus.answer_markdown(question, "\n\n" + "\n".join(lines))


def interview_questions():
    """All questions, by level, behind a form that chooses among them."""
    found, asked = apparatus.claims(), apparatus.questions().values()
    topics = sorted({topic for question in asked for topic in question.topics})
    levels = {value: f"{value}: {words}" for value, words in apparatus.LEVELS.items()}
    boxes = [
        "".join(BOX.format(name=name, value=escape(str(value)), text=escape(text)) for value, text in known.items())
        for name, known in (("level", levels), ("topic", dict(zip(topics, topics, strict=True))))
    ]
    text = [FILTER.format(levels=boxes[0], topics=boxes[1])]
    for question in sorted(asked, key=lambda question: question.level):
        text += [question_head(question), answer(question, found), "</details></section>"]
    return "\n\n".join([*text, f"<script>\n{SCRIPT.read_text(encoding='utf-8')}</script>"])


def question_head(question):
    """What is seen of a question before it is opened."""
    names = [name for name, asked in apparatus.other_names().items() if asked == question.id]
    others = "".join(f'<span id="{name}"></span>' for name in names)  # a link to the idea opens it, too
    return (
        f'<section class="question" id="{question.id}" data-level="{question.level}" '
        f'data-topics="{escape(" ".join(question.topics))}">\n{others}'
        f'<details><summary><span class="asked">{escape(question.question)}</span> '
        f'<span class="level">level {question.level}: {escape(", ".join(question.topics))}</span></summary>'
    )


def spoken_answers():
    """The questions for two hours, numbered, each with what to say aloud and a link to its whole answer."""
    return "\n\n".join(
        f'<section class="question spoken"><details><summary><span class="asked">{number}. '
        f"{escape(apparatus.questions()[name].question)}</span></summary>"
        f'<p>{escape(text)} <a href="#{name}">The whole answer</a></p></details></section>'
        for number, (name, text) in enumerate(apparatus.spoken().items(), 1)
    )


def exercise_list():
    """What every chapter sets, a table a chapter; an exercise that no chapter prints is an error."""
    from rlhf_book.exercises import BUGS, EXERCISES

    known, places, text = {**EXERCISES, **BUGS}, apparatus.pages_of_exercises(), []
    if unknown := places.keys() - known.keys():
        raise ValueError(f"set in a chapter, and no exercise: {', '.join(sorted(unknown))}")
    if left := known.keys() - places.keys():
        raise ValueError(f"printed in no chapter: {', '.join(sorted(left))}")
    for page in dict.fromkeys(places.values()):
        items = [known[name] for name in places if places[name] == page]
        hours = f"{sum(item.minutes for item in items)} minutes in all"
        title = numbering.numbered(title_of(page), page)
        where = "In depth" if page.endswith("-in-depth") else "The chapter"
        text += ["", f"## {title.partition(': ')[0]}", "", f"[{where}](/{page}.ipynb), {hours}", ""]
        text += ["```{table}", ":class: exercises", ""]
        text += ["| | exercise | minutes | difficulty | hint and solution |", "|:-- |:-- | --:|:-- |:-- |"]
        for item in items:
            number = f"{{ref}}`{numbering.exercises()[item.id]} <exercise-{item.id}>`"
            solution = f"[`{item.id}`](/{apparatus.solutions_page(item.id)}.md#{item.id})"
            difficulty = "" if item.id in BUGS else item.difficulty
            text.append(f"| {number} | {title_of_task(item.id)} | {item.minutes} | {difficulty} | {solution} |")
        text.append("```")
    return "\n".join(text)


def title_of_task(name):
    """What an exercise or a bug is called, in the list of exercises and in the index; empty for another id."""
    from rlhf_book.exercises import BUGS, EXERCISES

    if name in BUGS:
        return f"Find the bug: {BUGS[name].title}"
    return EXERCISES[name].title[0].upper() + EXERCISES[name].title[1:] if name in EXERCISES else ""
