"""What the fork server imports once for all test processes; nothing may be computed here."""

import tests.helpers  # noqa: F401
