"""What the fork server imports once for all test processes; nothing may be computed here."""

import tests.toolbox.runs  # noqa: F401
