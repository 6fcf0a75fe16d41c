"""The tokenizer of AMOS base++ as a fast one: quotes and dashes in ASCII, punctuation apart, sentencepiece.

Theirs leaves out a lone `▁` before punctuation after the text is cut. A fast tokenizer cannot leave out what its model
found, so `▁p` becomes a piece of its own wherever theirs would find `▁` and `p`; its embedding is a copy of p's. Text
is so cut as theirs and means the same, at the price of a few rows more. Different are: a lone `▁` before punctuation
that no piece covers stays; pieces that are not in the dictionary, which theirs reads as unknown, are not used; a quote
at the end of a word does not go to an `s` behind the next blank; sentencepiece's normaliser runs before, not after
punctuation is set apart.
"""

import struct
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from encodery.errors import UserError
from encodery.importers.protobuf import fields

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Reads a sentencepiece model (`sp.model`, a protobuf file) without that library: pieces, scores and the normaliser.


PIECES, TRAINER, NORMALIZER = 1, 2, 3  # fields of the model
PIECE, SCORE, TYPE = 1, 2, 3  # of a piece
MODEL_TYPE = 3  # of the trainer
CHARSMAP, DUMMY_PREFIX, EXTRA_SPACES, ESCAPE = 2, 3, 4, 5  # of the normaliser
NORMAL, USER_DEFINED = 1, 4  # types of pieces that text is cut into
KINDS: dict[int, Literal["unigram", "bpe"]] = {1: "unigram", 2: "bpe"}


@dataclass(frozen=True)
class Pieces:
    """What text is cut into."""

    kind: Literal["unigram", "bpe"]
    scores: dict[str, float]
    charsmap: bytes  # the normaliser, as sentencepiece compiles it; may be empty


def read(path: Path) -> Pieces:
    """The pieces of a model file."""
    try:
        stored = list(fields(path.read_bytes()))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    except (IndexError, struct.error, ValueError):
        raise UserError(f"{path}: is not a sentencepiece model") from None
    scores = dict(_piece(raw) for number, raw in stored if number == PIECES and _is_text(raw))
    trainer, normalizer = (_sub(stored, number) for number in (TRAINER, NORMALIZER))
    kind = KINDS.get(trainer.get(MODEL_TYPE, 1))
    if not scores or kind is None:
        raise UserError(f"{path}: is not a sentencepiece model of pieces (unigram or BPE)")
    if not all(normalizer.get(flag, 1) for flag in (DUMMY_PREFIX, EXTRA_SPACES, ESCAPE)):
        raise UserError(f"{path}: keeps spaces in another way than AMOS's model does")
    return Pieces(kind, scores, normalizer.get(CHARSMAP, b""))


def _piece(raw: bytes) -> tuple[str, float]:
    piece = dict(fields(raw))
    return piece[PIECE].decode(), struct.unpack("<f", piece.get(SCORE, b"\0\0\0\0"))[0]


def _is_text(raw: bytes) -> bool:
    return dict(fields(raw)).get(TYPE, NORMAL) in (NORMAL, USER_DEFINED)


def _sub(found: list[tuple[int, Any]], number: int) -> dict[int, Any]:
    return dict(fields(next((raw for n, raw in found if n == number), b"")))


SPACE = "▁"
BOS, PAD, EOS, UNK, MASK = "<s>", "<pad>", "</s>", "<unk>", "<mask>"
SPECIAL = (BOS, PAD, EOS, UNK)  # the first ids of every fairseq dictionary
OVERWRITE = "#fairseq:overwrite"
NEVER = "\ue000"  # begins pieces that no text has
ASCII = dict(zip("‘’´“”—–", "'''\"\"--", strict=True))
PUNCTUATION = r"!-/:-@\[-`{-~\p{P}"
CLITIC = r"(?:[smdtSMDT]|ll|re|ve|LL|RE|VE)\b"
TINY = 1e-6  # so that `▁p` wins against `▁` and `p`


@dataclass(frozen=True)
class Built:
    """A tokenizer, and whose embeddings the rows beyond the model's own are copies of."""

    tokenizer: "PreTrainedTokenizerBase"
    copies: list[int]
    notes: list[str]


def build(model: Path, dictionary: Path, rows: int) -> Built:
    """The tokenizer for a model with so many embeddings."""
    pieces = read(model)
    order = read_dictionary(dictionary)
    if len(order) > rows:
        raise UserError(
            f"{dictionary}: {len(order):,} tokens with the special ones, but the model has {rows:,} embeddings"
        )
    vocab = [*unique(order), *(f"{NEVER}{i}" for i in range(len(order), rows))]
    index = {piece: i for i, piece in enumerate(vocab)}
    scores = {piece: score for piece, score in pieces.scores.items() if piece in index}
    if SPACE not in scores:
        raise UserError(f"{dictionary}: its tokens are not the pieces of {model.name} ({SPACE} is missing)")
    joined = before_punctuation(scores)
    for piece in joined:  # theirs never finds these; their names are now those of the copies
        if SPACE + piece in index:
            vocab[index[SPACE + piece]] = f"{NEVER}{SPACE}{piece}"
            scores.pop(SPACE + piece)
    copies = [index[piece] for piece in joined]
    inner = make(pieces, vocab, scores, joined)
    notes = [f"tokenizer: {pieces.kind}, {len(scores):,} pieces, {len(joined):,} of them once more with ▁ before"]
    if lost := [piece for piece in pieces.scores if piece not in index]:
        notes.append(f"tokenizer: {len(lost):,} pieces of the model are not in the dictionary and are not used")
    return Built(as_transformers(inner), copies, notes)


def read_dictionary(path: Path) -> list[str]:
    """All tokens in the order of their ids: fairseq's special ones, the file's lines, the mask token."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    tokens = []
    for number, line in enumerate(lines, start=1):
        token, _, count = line.removesuffix(f" {OVERWRITE}").rpartition(" ")
        if not token or not count.isdigit():
            raise UserError(f"{path}, line {number}: expected a token and its count, not {line!r}")
        tokens.append(token)
    return [*SPECIAL, *tokens, MASK]


def unique(order: list[str]) -> list[str]:
    """Every name once: of equal ones the last is meant, as in fairseq, but the special ones stay the first."""
    last = {token: i for i, token in enumerate(order)} | {token: i for i, token in enumerate(SPECIAL)}
    return [token if last[token] == i else f"{NEVER}{i}" for i, token in enumerate(order)]


def before_punctuation(scores: dict[str, float]) -> list[str]:
    """Pieces of punctuation before which theirs finds a lone `▁`: those that have no better piece with it."""
    lone = scores[SPACE]
    return [
        piece
        for piece, score in scores.items()
        if is_punctuation(piece[0]) and lone + score > scores.get(SPACE + piece, float("-inf"))
    ]


def is_punctuation(letter: str) -> bool:
    """Marks of ASCII, and whatever Unicode calls punctuation."""
    code = ord(letter)
    ascii_mark = 33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126
    return ascii_mark or unicodedata.category(letter).startswith("P")


def make(pieces: Pieces, vocab: list[str], scores: dict[str, float], joined: list[str]) -> Any:
    from tokenizers import Tokenizer, decoders, processors

    inner = Tokenizer(_unigram(vocab, scores, joined) if pieces.kind == "unigram" else _bpe(vocab, scores, joined))
    inner.normalizer = _normalizer(pieces.charsmap)
    inner.pre_tokenizer = _words()
    inner.decoder = decoders.Metaspace()
    inner.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A {EOS}",
        pair=f"{BOS} $A {EOS} {EOS} $B:0 {EOS}",
        special_tokens=[(BOS, vocab.index(BOS)), (EOS, vocab.index(EOS))],
    )
    return inner


def _unigram(vocab: list[str], scores: dict[str, float], joined: list[str]) -> Any:
    """A piece that only the dictionary has gets the lowest score; it would otherwise change that of the unknown."""
    from tokenizers import models

    lowest = min(scores.values())
    known = [(piece, 0.0 if piece in (*SPECIAL, MASK) else scores.get(piece, lowest)) for piece in vocab]
    more = [(SPACE + piece, scores[SPACE] + scores[piece] + TINY) for piece in joined]
    return models.Unigram(known + more, unk_id=SPECIAL.index(UNK))


def _bpe(vocab: list[str], scores: dict[str, float], joined: list[str]) -> Any:
    """Pairs are joined in the order of the scores of what they make; a `▁` that is left over goes last."""
    from tokenizers import models

    pairs = [
        (-score, (piece[:i], piece[i:]))
        for piece, score in scores.items()
        for i in range(1, len(piece))
        if piece[:i] in scores and piece[i:] in scores
    ]
    merges = [pair for _, pair in sorted(pairs, key=lambda one: one[0])] + [(SPACE, piece) for piece in joined]
    ids = {piece: i for i, piece in enumerate([*vocab, *(SPACE + piece for piece in joined)])}
    return models.BPE(ids, merges, unk_token=UNK, fuse_unk=True)


def _normalizer(charsmap: bytes) -> Any:
    """Quotes and dashes first, then sentencepiece's own rules; a quote that stands alone goes to its `s`."""
    from tokenizers import Regex, normalizers

    steps: list[Any] = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    steps += [normalizers.Replace(fancy, plain) for fancy, plain in ASCII.items()]
    steps.append(normalizers.Replace(Regex(rf"(?:(?<=\A')|(?<=\s'))\s+(?={CLITIC})"), ""))
    if charsmap:
        steps.append(normalizers.Precompiled(charsmap))
    return normalizers.Sequence(steps)


def _words() -> Any:
    """Words between blanks, without the punctuation before and after them; each begins with `▁`."""
    from tokenizers import Regex, pre_tokenizers

    before = rf"\A[{PUNCTUATION}]+(?=[^{PUNCTUATION}])(?!(?<='){CLITIC})"
    after = rf"(?<=[^{PUNCTUATION}])[{PUNCTUATION}]+\z"
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.WhitespaceSplit(),
            pre_tokenizers.Split(Regex(f"{before}|{after}"), "isolated"),
            pre_tokenizers.Metaspace(prepend_scheme="always"),
        ]
    )


def as_transformers(inner: Any) -> Any:
    """As a tokenizer folder wants it: no segments."""
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token=BOS, cls_token=BOS, eos_token=EOS, sep_token=EOS, unk_token=UNK,
        pad_token=PAD, mask_token=MASK, model_max_length=512, model_input_names=["input_ids", "attention_mask"],
    )  # fmt: skip
