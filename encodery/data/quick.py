"""Token ids of many lines, quickly: BERT's rules end every word at a space, so what stands between spaces is cut once.

Only for tokenizers of which that is certain (BERT's normaliser, pre-tokenizer and WordPiece); others go the plain way.
"""

import json
from collections.abc import Sequence
from itertools import chain
from typing import Any

KNOWN = ("BertNormalizer", "BertPreTokenizer", "WordPiece")
MOST = 200_000  # stretches that are remembered; then memory is given back and it begins anew


class Quick:
    """`many(lines)` gives what the tokenizer gives."""

    def __init__(self, text: str) -> None:
        from tokenizers import Tokenizer

        self.tokenizer: Any = Tokenizer.from_str(text)
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        plain = json.loads(text)
        kinds = tuple((plain[part] or {}).get("type") for part in ("normalizer", "pre_tokenizer", "model"))
        added = plain["added_tokens"]
        # Added tokens are looked for in the whole line, before anything is cut; those that are looked for in
        # normalised text could hide anywhere.
        self.by_stretch = kinds == KNOWN and not any(one["normalized"] for one in added)
        self.whole = [one["content"] for one in added]
        self.known: dict[str, list[int]] = {}

    def many(self, lines: Sequence[str]) -> list[list[int]]:
        """Ids of each line, without special tokens around it."""
        if not self.by_stretch:
            return self._plain(lines)
        odd = [i for i, line in enumerate(lines) if any(token in line for token in self.whole)]
        found = self._stretches(lines)
        for i, ids in zip(odd, self._plain([lines[i] for i in odd]), strict=True):
            found[i] = ids
        return found

    def _stretches(self, lines: Sequence[str]) -> list[list[int]]:
        cut = [line.split(" ") for line in lines]
        if len(self.known) > MOST:
            self.known = {}
        known = self.known
        new = list({one: None for some in cut for one in some if one not in known})
        known.update(zip(new, self._plain(new), strict=True))
        return [list(chain.from_iterable(map(known.__getitem__, some))) for some in cut]

    def _plain(self, lines: Sequence[str]) -> list[list[int]]:
        return [one.ids for one in self.tokenizer.encode_batch_fast(list(lines), add_special_tokens=False)]
