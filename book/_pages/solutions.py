"""The pages of solutions: a chapter's exercises and bugs, each with its hint, its source and the way back.

    ```{generated} solutions:chapter grpo
    ```

What a notebook shows by `solution("id")` stands here, made of the same text.
"""

from apparatus import pages_of_exercises
from apparatus_pages import title_of_task
from printing import folded


def chapter(name: str) -> str:
    """All solutions of one folder of exercises, in the order in which its list has them.

    Raises:
        ValueError: a folder that does not exist, or an exercise that no page sets.
    """
    from rlhf_book.exercises import CHAPTERS

    chapters = {chapter.__name__.rpartition(".")[2].replace("_", "-"): chapter for chapter in CHAPTERS}
    if name not in chapters:
        raise ValueError(f"there are no exercises for {name!r}; there are some for {', '.join(chapters)}")
    places, parts = pages_of_exercises(), []
    for item in (*chapters[name].EXERCISES, *chapters[name].BUGS):
        if item.id not in places:
            raise ValueError(f"no chapter sets {item.id!r}")
        title = title_of_task(item.id)
        title += "" if title.endswith("?") else "."
        parts += [
            f"## `{item.id}`",
            f"{title} {{ref}}`Back to the exercise <exercise-{item.id}>`.",
            f"**Hint.** {item.hint}",
            *(folded(f"Hint {k} of {len(item.hints)}", text) for k, text in enumerate(item.hints[1:], start=2)),
            folded("Solution", item.solution_markdown),
        ]
    return "\n\n".join(parts)
