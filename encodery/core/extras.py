"""How an extra is installed: every message about a missing package says it in these words."""


def install(extra: str) -> str:
    """The command, for a release and for a checkout."""
    return f"pip install 'encodery[{extra}]', or '.[{extra}]' in a checkout"
