"""What is broken, and which tests are asked about it: the one place to add a file to."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Exact and independent numbers, properties, identities, bad input: a minute and a half in all.
EXACT = (
    *("tests/transcriptions", "tests/test_golden.py", "tests/test_pitfalls.py", "tests/identities"),
    *("tests/test_anatomy.py", "tests/test_properties.py", "tests/errors/test_functional.py"),
    *("tests/errors/test_checks.py", "tests/errors/test_objective.py", "tests/test_defaults.py"),
    *("tests/test_pairwise.py", "tests/errors/test_pairwise.py", "tests/errors/test_contracts.py"),
    *("tests/test_golden_field.py", "tests/test_step_advantages.py", "tests/training/test_teacher.py"),
    *("tests/test_bounds.py", "tests/test_corners.py", "tests/test_score_centering.py"),
    *("tests/errors/test_score_centering.py", "tests/errors/test_cells_of_contrib.py", "tests/test_contrib_pairs.py"),
)
# The fast paths, held to the plain one.
FAST = ("tests/training/test_fast_paths.py", "tests/training/test_fast_choices.py", "tests/models/test_models.py")

# A file of the library, or a pattern of files, and its tests: files or folders. A pattern that fits no file is an
# error, so that a file which moves is not forgotten here.
ASKED: dict[str, tuple[str, ...]] = {
    "rlhf_minimal/functional/[!l]*.py": EXACT,
    "rlhf_minimal/functional/l*.py": (*EXACT, *FAST),
    "rlhf_minimal/contrib/*.py": EXACT,
    "rlhf_minimal/contracts.py": EXACT,
    "rlhf_minimal/objective.py": EXACT,
    "rlhf_minimal/pairs.py": EXACT,
    "rlhf_minimal/lab/chunked.py": (*EXACT, *FAST),  # log-probabilities a chunk at a time
    "rlhf_minimal/lab/fast.py": FAST,
}


def tests_of_sources() -> dict[Path, tuple[Path, ...]]:
    """Every source with the files of its tests."""
    found: dict[Path, tuple[Path, ...]] = {}
    for pattern, names in ASKED.items():
        sources = sorted(ROOT.glob(pattern))
        if not sources:
            raise FileNotFoundError(f"tests/mutation/sources.py names {pattern}, and no such file exists")
        tests = []
        for path in (ROOT / name for name in names):
            if not path.exists():
                raise FileNotFoundError(f"tests/mutation/sources.py asks {path}, which does not exist")
            tests += sorted(path.glob("test_*.py")) if path.is_dir() else [path]
        found |= dict.fromkeys(sources, tuple(tests))
    return found
