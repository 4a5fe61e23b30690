"""Started twice by `test_processes.py`: a command that ends well, and then one whose end is the program's."""

import json
import sys

from rlhf_minimal.cli import main

if __name__ == "__main__":
    first, second = map(json.loads, sys.argv[1:])
    assert main(first) == 0
    sys.exit(main(second))
