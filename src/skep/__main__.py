"""`python -m skep` is the command `skep`."""

import sys

from skep.cli import main

sys.exit(main())
