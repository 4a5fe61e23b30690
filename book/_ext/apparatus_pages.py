"""Pages that are made of the book's data: the index of ideas, the interview questions, the list of exercises.

    ```{concept-index}
    ```

    ```{spoken-answers}
    ```
    ```{interview-questions}
    ```

    ```{generated} apparatus_pages:exercise_list
    ```

And, for every notebook: a cell that claims an idea, or has a tag that begins with "proof-", becomes an anchor of its
page, `#concept-group-advantage` or `#proof-loss-is-zero`, and so does an exercise, `#exercise-grpo-advantage`. What is
read and how it is checked: `apparatus.py`.
"""

import re
import sys
from html import escape
from pathlib import Path

import nbformat
from docutils import nodes
from docutils.statemachine import StringList
from sphinx import addnodes
from sphinx.util.docutils import SphinxDirective

sys.path.insert(0, str(Path(__file__).parent))
import apparatus
import numbering
from data_files import told_on_the_page

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


def html(text):
    return nodes.raw("", text, format="html")


def set_inline(text):
    """A heading's Markdown as a page has it: formulas and code set as such, all else as it is written."""
    said = nodes.inline()
    for piece in re.split(r"(\$[^$]+\$|`[^`]+`)", text):
        kind = {"$": nodes.math, "`": nodes.literal}.get(piece[:1])
        if kind and len(piece) > 2 and piece[0] == piece[-1]:
            said += kind(piece[1:-1], piece[1:-1])
        elif piece:
            said += nodes.Text(piece)
    return said


class Apparatus(SphinxDirective):
    """What the directives share. Their pages are read anew at every build: any page and any test may change them."""

    def parsed(self, text, match_titles=False):
        """The nodes of a Markdown text; with `match_titles` it may have headings."""
        box = nodes.Element()
        lines = StringList(text.splitlines(), source=self.env.docname)
        self.state.nested_parse(lines, self.content_offset, box, match_titles=match_titles)
        return box.children

    def test_link(self, test):
        """A test's name, as a link to its file where the repository has an address."""
        name = nodes.literal("", test, classes=["proof"])
        options = self.config.html_theme_options
        if not (address := options.get("repository_url")):
            return name
        branch = options.get("repository_branch") or "main"
        file = test.partition("::")[0]
        return nodes.reference("", "", name, refuri=f"{address.rstrip('/')}/blob/{branch}/{file}")

    def link(self, claim, text):
        """A link to a cell or, for Markdown, to its section; resolved when all pages have been read."""
        target = claim.name if claim.kind == "code" else f"section-{claim.heading_number}"
        return addnodes.pending_xref(
            "",
            set_inline(text),
            refdomain="std",
            reftype="ref",
            refexplicit=True,
            reftarget=f"{claim.page}#{target}",
            refdoc=self.env.docname,
            refwarn=True,
        )

    def answer(self, question, found):
        """All that is said once a question is opened: the answer, the wrong one, what may follow, and the proofs."""
        follow_ups = "\n".join(f"- *{asked}* {answer}" for asked, answer in question.follow_ups)
        text = (
            f"{question.answer}\n\n**Often said, and wrong.** {question.wrong}\n\n"
            f"**They may ask next.**\n\n{follow_ups}\n\n**Where it is proved.**"
        )
        proofs = nodes.bullet_list()
        for proof in question.proof:
            line = nodes.paragraph()
            if proof.test:
                said = apparatus.test_docstring(proof.test) or "A test of that name:"
                line += [nodes.Text(said + " "), self.test_link(proof.test)]
            else:
                claim = proof.claim(found)
                if claim is None:
                    raise self.error(f"{question.id}: {proof.problem(found)}")
                line += [nodes.Text("The asserting cell under "), self.link(claim, claim.heading)]
            proofs += nodes.list_item("", line)
        return [*self.parsed(text), proofs]


class ConceptIndex(Apparatus):
    @told_on_the_page
    def run(self):
        self.env.note_reread()
        found = {}
        for claim in apparatus.claims():
            found.setdefault(claim.concept, []).append(claim)
        ideas = apparatus.concepts()
        shown = [idea for idea in ideas.values() if idea.id in found]
        result = [nodes.paragraph("", f"The book grows: {len(shown)} of {len(ideas)} ideas have their place in it.")]
        for part in dict.fromkeys(idea.part for idea in shown):
            if part not in PARTS:
                raise ValueError(f"the part {part!r} of concepts.yml has no title in {Path(__file__).name}")
            result.append(nodes.rubric("", PARTS[part]))
            entries = nodes.definition_list(classes=["concepts"])
            for idea in (idea for idea in shown if idea.part == part):
                entries += self.entry(idea, found[idea.id])
            result.append(entries)
        return result

    def entry(self, idea, found):
        headline, rest = (idea.title, idea.idea) if idea.title else split_idea(idea.idea)
        term = nodes.term("", headline, ids=[f"idea-{idea.id}"])
        definition = nodes.definition("")
        if rest:
            definition += nodes.paragraph("", rest)
        if idea.doubt:
            definition += nodes.paragraph("", "", nodes.emphasis("", "Often put imprecisely: "), nodes.Text(idea.doubt))
        for claim in found:
            line = nodes.paragraph("", "", nodes.Text(f"{SHOWN[idea.show]} "), self.link(claim, claim.heading))
            line += nodes.Text(" (the cell that asserts it)" if claim.asserts else " (with its source)")
            definition += line
        definition += nodes.paragraph("", "", nodes.literal("", idea.id), classes=["idea-id"])
        return nodes.definition_list_item("", term, definition)


class InterviewQuestions(Apparatus):
    @told_on_the_page
    def run(self):
        self.env.note_reread()
        found, asked = apparatus.claims(), apparatus.questions().values()
        topics = sorted({topic for question in asked for topic in question.topics})
        levels = "".join(
            BOX.format(name="level", value=level, text=f"{level}: {words}") for level, words in apparatus.LEVELS.items()
        )
        boxes = "".join(BOX.format(name="topic", value=escape(topic), text=escape(topic)) for topic in topics)
        result = [html(FILTER.format(levels=levels, topics=boxes))]
        for question in sorted(asked, key=lambda question: question.level):
            result += self.question(question, found)
        return [*result, html(f"<script>\n{SCRIPT.read_text(encoding='utf-8')}</script>")]

    def question(self, question, found):
        names = [name for name, asked in apparatus.other_names().items() if asked == question.id]
        others = "".join(f'<span id="{name}"></span>' for name in names)  # a link to the idea opens it, too
        head = (
            f'<section class="question" id="{question.id}" data-level="{question.level}" '
            f'data-topics="{escape(" ".join(question.topics))}">\n{others}'
            f'<details><summary><span class="asked">{escape(question.question)}</span> '
            f'<span class="level">level {question.level}: {escape(", ".join(question.topics))}</span></summary>'
        )
        return [html(head), *self.answer(question, found), html("</details></section>")]


class SpokenAnswers(Apparatus):
    """The questions for two hours, numbered, each with what to say aloud and a link to its whole answer."""

    @told_on_the_page
    def run(self):
        self.env.note_reread()
        return [
            html(
                f'<section class="question spoken"><details><summary><span class="asked">{number}. '
                f"{escape(apparatus.questions()[name].question)}</span></summary>"
                f'<p>{escape(text)} <a href="#{name}">The whole answer</a></p></details></section>'
            )
            for number, (name, text) in enumerate(apparatus.spoken().items(), 1)
        ]


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
        title = numbering.numbered(apparatus.title_of(page), page)
        where = "In depth" if page.endswith("-in-depth") else "The chapter"
        text += ["", f"## {title.partition(': ')[0]}", "", f"[{where}](/{page}.ipynb), {hours}", ""]
        text += ["```{table}", ":class: exercises", ""]
        text += ["| | exercise | minutes | difficulty | hint and solution |", "|:-- |:-- | --:|:-- |:-- |"]
        for item in items:
            number = f"{{ref}}`{numbering.exercises()[item.id]} <{page}#exercise-{item.id}>`"
            solution = f"[`{item.id}`](/{apparatus.solutions_page(item.id)}.md#{item.id})"
            difficulty = "" if item.id in BUGS else item.difficulty
            text.append(f"| {number} | {title_of_task(item.id)} | {item.minutes} | {difficulty} | {solution} |")
        text.append("```")
    return "\n".join(text)


def anchor(app, doctree):
    """Give every claiming cell and every exercise an anchor, and every section a number, for claims in Markdown."""
    page = app.env.docname
    path = Path(app.env.doc2path(page))
    if path.suffix == ".ipynb":
        notebook = nbformat.read(path, as_version=4)
        found = apparatus.claims_of(page, notebook)
    else:
        notebook = None
        found = apparatus.claims_of_text(page, path.read_text(encoding="utf-8"))
    standard = app.env.get_domain("std")
    sections = list(doctree.findall(nodes.section))
    cells = {node["cell_index"]: node for node in doctree.findall(nodes.container) if "cell_index" in node}
    for claim in found:
        if claim.kind == "code" and claim.cell in cells:
            node = cells[claim.cell]
            if claim.name not in node["ids"]:
                node["ids"].append(claim.name)
            where = claim.name
            target = f"{page}#{claim.name}"
        elif claim.heading_number < len(sections):
            where = sections[claim.heading_number]["ids"][0]
            target = f"{page}#section-{claim.heading_number}"
        else:
            continue
        standard.anonlabels[target] = (page, where)
        standard.labels[target] = (page, where, claim.heading)
    for number, cell in enumerate(notebook.cells if notebook else ()):
        match str(cell.metadata.get("from", "")).split("/"):
            case [("exercise" | "bug" | "whiteboard"), name, ("stub" | "symptom")] if (
                number in cells and apparatus.pages_of_exercises().get(name) == page
            ):
                where = f"exercise-{name}"
                head_of_statement(cells[number])["ids"].append(where)
                if title := title_of_task(name):  # the search finds it by its title
                    entry = ("single", title, where, "main", None)
                    sections[0].insert(1, addnodes.index(entries=[entry]))
                    app.env.get_domain("index").entries.setdefault(page, []).append(entry)
                standard.anonlabels[f"{page}#{where}"] = (page, where)
                standard.labels[f"{page}#{where}"] = (page, where, name)


def title_of_task(name):
    """What an exercise or a bug is called, in the list of exercises and in the index; empty for another id."""
    from rlhf_book.exercises import BUGS, EXERCISES

    if name in BUGS:
        return f"Find the bug: {BUGS[name].title}"
    return EXERCISES[name].title[0].upper() + EXERCISES[name].title[1:] if name in EXERCISES else ""


def head_of_statement(cell):
    """The paragraph with which the statement above an exercise's code begins."""
    above = cell.parent.children[: cell.parent.index(cell)]
    for node in reversed(above):
        if isinstance(node, nodes.paragraph) and node.astext().startswith(("Exercise: ", "Find the bug: ")):
            return node
    return cell


def setup(app):
    app.add_css_file("apparatus.css")
    app.add_directive("concept-index", ConceptIndex)
    app.add_directive("interview-questions", InterviewQuestions)
    app.add_directive("spoken-answers", SpokenAnswers)
    app.connect("doctree-read", anchor, priority=900)  # after the notebook's own transforms
    return {"parallel_read_safe": True, "parallel_write_safe": True}
