"""Token ids of many lines, quickly: BERT's rules end every word at a space, so what stands between spaces is cut once.

Only for tokenizers of which that is certain (BERT's normaliser, pre-tokenizer and WordPiece); others go the plain way.
"""

import json
import re
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

KNOWN = ("BertNormalizer", "BertPreTokenizer", "WordPiece")
WORD = re.compile("[A-Za-z0-9]+|[^A-Za-z0-9]")  # of printable ASCII: every mark stands alone
MOST = 200_000  # stretches that are remembered; then memory is given back and it begins anew


class Quick:
    """`many(lines)` gives what the tokenizer gives."""

    def __init__(self, text: str) -> None:
        from tokenizers import Tokenizer

        self.tokenizer: PreTrainedTokenizerBase = Tokenizer.from_str(text)
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        plain = json.loads(text)
        kinds = tuple((plain[part] or {}).get("type") for part in ("normalizer", "pre_tokenizer", "model"))
        added = plain["added_tokens"]
        # Added tokens are looked for in the whole line, before anything is cut; those that are looked for in
        # normalised text could hide anywhere.
        self.by_stretch = kinds == KNOWN and not any(one["normalized"] for one in added)
        self.added = [one["content"] for one in added]
        self.lowers = self.by_stretch and plain["normalizer"]["lowercase"]
        self.pieces: dict[str, list[int]] = {}
        self.words: dict[str, list[int]] = {}  # parts of stretches in plain ASCII, of which there are far fewer

    def many(self, lines: Sequence[str]) -> list[list[int]]:
        """Ids of each line, without special tokens around it."""
        if not self.by_stretch:
            return self._plain(lines)
        odd = [i for i, line in enumerate(lines) if any(token in line for token in self.added)]
        found = self._stretches(lines)
        for i, ids in zip(odd, self._plain([lines[i] for i in odd]), strict=True):
            found[i] = ids
        return found

    def _stretches(self, lines: Sequence[str]) -> list[list[int]]:
        cut = [line.split(" ") for line in lines]
        if len(self.pieces) > MOST:
            self.pieces, self.words = {}, {}
        known = self.pieces
        self._learn(list({one: None for some in cut for one in some if one not in known}))
        return [list(chain.from_iterable(map(known.__getitem__, some))) for some in cut]

    def _learn(self, new: list[str]) -> None:
        """Ids of stretches: those in plain ASCII from their words and marks, the others from the tokenizer."""
        parts = {text: WORD.findall(text.lower() if self.lowers else text) for text in new if _is_simple(text)}
        words = list({word: None for some in parts.values() for word in some if word not in self.words})
        self.words.update(zip(words, self._plain(words), strict=True))
        odd = [text for text in new if text not in parts]
        self.pieces.update(zip(odd, self._plain(odd), strict=True))
        for text, some in parts.items():
            self.pieces[text] = list(chain.from_iterable(map(self.words.__getitem__, some)))

    def _plain(self, lines: Sequence[str]) -> list[list[int]]:
        return [one.ids for one in self.tokenizer.encode_batch_fast(list(lines), add_special_tokens=False)]


def _is_simple(stretch: str) -> bool:
    return stretch.isascii() and stretch.isprintable()
