"""A tokenizer for tests: a token per character."""

from collections.abc import Sequence


class Characters:
    """[CLS] = 1, [SEP] = 2; characters from 3."""

    def many(self, texts: Sequence[str]) -> list[list[int]]:
        return [[3 + ord(c) % 97 for c in text] for text in texts]

    def spelled(self, texts: Sequence[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        ids = [[3 + ord(c) % 97 for c in text if not c.isspace()] for text in texts]
        places = [[(i, i + 1) for i, c in enumerate(text) if not c.isspace()] for text in texts]
        return list(zip(ids, places, strict=True))

    def special(self, pair: bool) -> tuple[int, int, int]:
        return (1, 1, 1) if pair else (1, 0, 1)

    def join(self, a: Sequence[int], b: Sequence[int] | None, max_length: int) -> tuple[list[int], list[int]]:
        first, second = list(a), list(b or ())
        while len(first) + len(second) + (2 if b is None else 3) > max_length:
            (first if len(first) > len(second) else second).pop()
        ids, types = [1, *first, 2], [0] * (len(first) + 2)
        return (ids, types) if b is None else ([*ids, *second, 2], [*types, *[1] * (len(second) + 1)])
