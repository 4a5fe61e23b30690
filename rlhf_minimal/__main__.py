"""`python -m rlhf_minimal`: see `cli`."""

import sys

from rlhf_minimal.cli import main

sys.exit(main())
