"""Pictures: plain arrays in, matplotlib Axes out; and figures that move, a module each, on one kit."""

import re
from pathlib import Path

# How a figure names what it takes from the kit; the one import that a module may have, on lines of its own.
KIT = re.compile(r'^import \{[\w\s,]+\} from "\./kit\.mjs";\n', re.MULTILINE)


def joined(module: Path) -> str:
    """The text of a figure's module with the kit in the place of its import, so that it stands alone.

    Args:
        module: a figure's file; the kit, where it is named, lies beside it.

    Example:
        >>> text = joined(Path(__file__).parent / "clip_explorer.mjs")
        >>> "import" in text.split(), text.count("function picture(")
        (False, 1)
    """
    text = module.read_text(encoding="utf-8")
    if KIT.search(text) is None:
        return text
    kit = (module.parent / "kit.mjs").read_text(encoding="utf-8")
    kit = re.sub(r"^export (?=const |function )", "", kit, flags=re.MULTILINE)
    return KIT.sub(lambda _: kit, text, count=1)
