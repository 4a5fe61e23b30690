"""What the book needs beside the library: exercises, checkers, bugs to find, figures, plots, a policy one can list.

- `exercises/`: a folder a chapter, with checkers; `museum*`: bugs that no chapter sets; `whiteboard`: functions with a clock.
- `figures/`: figures that move, `.mjs` modules and `widgets`; `plotting`: the style of those that do not.
- `tabular`, `chain`, `turn_tree`: policies that can be listed, and exact expectations; `tongues`: a task with two languages.
- `loop`, `two_stages`: what `from-zero` and `language-models` build; `diseases`: runs with a bug put in.
- `records`, `benchmark`, `sampling`, `entries`: recorded runs; `comparison`: what they separate; `choosing*`: the tree.
- `facts`: what the book says of a row; `factors`: what a token's weight is made of; `course/`: sheets and grading.
"""
