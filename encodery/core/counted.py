"""Numbers with their noun: `1 run`, `3 runs`, `1,024 rows`."""


def counted(number: int, noun: str) -> str:
    """The number and the noun, in the singular where it is one; thousands are separated."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def each(number: int, noun: str) -> str:
    """All of them: `the only row`, `both rows`, `all 12 rows`."""
    if number == 1:
        return f"the only {noun}"
    return f"both {noun}s" if number == 2 else f"all {counted(number, noun)}"


def are(number: int) -> str:
    """The verb that goes with the number."""
    return "is" if number == 1 else "are"
