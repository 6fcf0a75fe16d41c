"""`python -m encodery` is the command `encodery`."""

import sys

from encodery.cli import main

sys.exit(main())
