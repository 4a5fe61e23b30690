"""Links between equations, functions, chapters, rows and tests: the line under an equation, and the table of all.

What belongs to an equation is found in `equation_index.py`.
"""

import equation_index as index
from printing import box, code, table

SOURCE = '<a class="reference internal" href="../_modules/{}.html#{}">source</a>'  # which viewcode writes


def links(label):
    """The line under an equation: function, source, chapter, rows, tests."""
    functions = index.by_label().get(label)
    if not functions:
        raise ValueError(f"no docstring of the library carries :eq:`{label}`")
    parts = []
    for function in functions:
        line = f"{reference(function)} ({SOURCE.format(function.module.replace('.', '/'), function.name)})"
        if function.chapters:
            line += f" · derived in {chapters(function)}"
        if rows := index.rows_with(function):
            line += f" · used by {', '.join(map(code, rows))}"
        parts += [box("equation-links", line), tests(function)]
    return "\n\n".join(parts)


def reference(function):
    """A link to the function's entry among the API pages."""
    return f"{{py:obj}}`{function.short} <{function.path}>`"


def chapters(function):
    """Links to the chapters that derive what it computes; one that does not exist yet is named."""
    pages = {name: index.chapter_page(name) for name in function.chapters}
    return ", ".join(f"[{name}](/{page}.ipynb)" if page else f"*{name}*" for name, page in pages.items())


def tests(function):
    """How many tests hold a function, and behind the line which."""
    files = {}
    for test in index.tests_of(function):
        files.setdefault(test.file, []).append(f"<code>{test.name}</code>")
    rows, count = index.rows_with(function), sum(map(len, files.values()))
    if not count and not rows:
        return box("equation-links", "no test yet")
    words = [f"{count} test{'s' * (count > 1)} by name"] * bool(count)
    words += ["the transcription of its row" if len(rows) == 1 else "the transcriptions of its rows"] * bool(rows)
    lines = [f"<li><code>{file}</code>: {', '.join(names)}</li>" for file, names in files.items()]
    lines += [f"<li><code>tests/transcriptions/{row}.py</code>, written from the paper</li>" for row in rows]
    return (
        f'<details class="equation-tests"><summary>Held by {" and ".join(words)}</summary>'
        f"<ul>{''.join(lines)}</ul></details>"
    )


def equation_table():
    """Equation, function, chapter, rows, tests: one line each, in the order of the page."""
    lines = []
    for label in index.printed():
        for function in index.by_label().get(label, ()):
            rows, count = index.rows_with(function), len(index.tests_of(function))
            counted = [f"{count} by name"] * bool(count)
            counted += [f"{len(rows)} transcription{'s' * (len(rows) > 1)}"] * bool(rows)
            title = f"{{eq}}`{label}` {index.titles()[label]}"
            held = ", ".join(counted)
            lines.append([title, reference(function), chapters(function), ", ".join(map(code, rows)), held])
    return table(["equation", "function", "chapter", "rows", "tests"], lines)
