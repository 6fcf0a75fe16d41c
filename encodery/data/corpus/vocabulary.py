"""A vocabulary of one's own: WordPiece, BPE or Unigram, trained on a corpus, as a transformers tokenizer."""

import json
import string
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, model_validator

from encodery.core.options import Options
from encodery.errors import UserError
from encodery.tasks.corpus import Corpus

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

ROLES = ("pad", "unk", "cls", "sep", "mask")
CHUNK = 1000  # lines handed over at once
DECIMALS = 6  # of unigram scores
STEP = 1e-4  # by which the unigram trainer tells rare characters apart


class Vocabulary(Options):
    """How text is split into tokens."""

    kind: Literal["wordpiece", "bpe", "unigram"] = "wordpiece"
    """wordpiece: as in BERT and ELECTRA; bpe: byte-level, as in RoBERTa and ModernBERT; unigram: as in
    SentencePiece."""
    vocab_size: int = Field(default=30522, ge=16)
    """Size of the vocabulary, including special tokens. Smaller if the corpus does not yield as many."""
    lowercase: bool = True
    """Convert text to lower case first."""
    strip_accents: bool | None = None
    """Remove accents (é becomes e). Default: the value of lowercase. Set to false for languages that need accents."""
    special_tokens: list[str] = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    """Names of the padding, unknown, first, separator and mask token, in this order. They get the ids 0 to 4."""
    more_tokens: list[str] = []
    """Additional tokens that are never split, such as [URL]. Their ids come next."""
    min_frequency: int = Field(default=2, ge=1)
    """wordpiece, bpe: merge a pair of tokens only if it occurs at least this often."""
    alphabet: int = Field(default=1000, ge=26)
    """wordpiece: maximum number of single characters in the vocabulary; the most frequent are kept."""
    max_length: int = Field(default=512, ge=4)
    """Maximum sequence length, as recorded in the tokenizer folder."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        named = [*self.special_tokens, *self.more_tokens]
        if len(self.special_tokens) != len(ROLES):
            raise ValueError(f"special_tokens are {len(ROLES)}: {', '.join(ROLES)}")
        if len(set(named)) != len(named) or not all(named):
            raise ValueError("special tokens must differ and not be empty")
        if self.vocab_size <= len(named):
            raise ValueError(f"vocab_size {self.vocab_size} leaves no room beside {len(named)} special tokens")
        return self


def train(options: Vocabulary, corpus: Corpus) -> Any:
    """A PreTrainedTokenizerFast over the corpus; the same for equal text and options."""
    tokenizer, trainer = _parts(options, corpus)
    tokenizer.train_from_iterator(_chunks(corpus), trainer)
    tokenizer = _settled(tokenizer, options)
    if tokenizer.get_vocab_size() <= len(options.special_tokens) + len(options.more_tokens):
        raise UserError(f"{corpus.name}: it contains no text to train a vocabulary on")
    return _as_transformers(tokenizer, options)


def _settled(tokenizer: "PreTrainedTokenizerBase", options: Vocabulary) -> Any:
    """Without what changes from run to run: the library walks through hash tables whose order is random.

    WordPiece: single continuations were given as special tokens, so that their ids are ours; they are none.
    Unigram: scores differ in the last bits; rounded, they also give the order. Rare characters get theirs by chance.
    """
    from tokenizers import Tokenizer

    plain = json.loads(tokenizer.to_str())
    special = [*options.special_tokens, *options.more_tokens]
    plain["added_tokens"] = [entry for entry in plain["added_tokens"] if entry["content"] in special]
    if options.kind == "unigram":
        scores = {piece: round(score, DECIMALS) for piece, score in plain["model"]["vocab"]}
        scores |= _rare_in_order({piece: score for piece, score in scores.items() if piece not in special})
        rest = sorted((piece for piece in scores if piece not in special), key=lambda entry: (-scores[entry], entry))
        plain["model"]["vocab"] = [[piece, scores[piece]] for piece in [*special, *rest]]
    return Tokenizer.from_str(json.dumps(plain))


def _rare_in_order(scores: dict[str, float]) -> dict[str, float]:
    """Characters that earned no score: the trainer gives them the lowest one and steps above it, in random order."""
    if not scores:
        return {}
    least = min(scores.values())
    steps = {piece: (score - least) / STEP for piece, score in scores.items() if len(piece) == 1}
    rare = sorted(piece for piece, step in steps.items() if step < len(steps) and abs(step - round(step)) < 0.02)
    return dict(zip(rare, sorted(scores[piece] for piece in rare), strict=True))


def _chunks(corpus: Corpus) -> Iterator[list[str]]:
    """Lines of the training part, many at once."""
    held: list[str] = []
    for document in corpus.good():
        lines = corpus.lines(document.text)
        if lines and (not corpus.held_out or corpus.split_of("\n".join(lines)) == "train"):
            held += lines
        if len(held) >= CHUNK:
            yield held
            held = []
    yield held


def _parts(options: Vocabulary, corpus: Corpus) -> tuple[Any, Any]:
    """An empty tokenizer and its trainer."""
    make = {"wordpiece": _wordpiece, "bpe": _bpe, "unigram": _unigram}[options.kind]
    special = [*options.special_tokens, *options.more_tokens]
    common: dict[str, Any] = {
        "vocab_size": options.vocab_size,
        "special_tokens": special,
        "show_progress": False,
    }
    return make(options, corpus, common)


def _wordpiece(options: Vocabulary, corpus: Corpus, common: dict[str, Any]) -> tuple[Any, Any]:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.WordPiece(unk_token=options.special_tokens[1]))
    tokenizer.normalizer = _normalizer(options)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    letters, inside = _letters(tokenizer, corpus, options.alphabet)
    common["special_tokens"] += inside
    limits: dict[str, Any] = {"initial_alphabet": letters, "limit_alphabet": len(letters)}
    return tokenizer, trainers.WordPieceTrainer(**common, **limits, min_frequency=options.min_frequency)


def _bpe(options: Vocabulary, corpus: Corpus, common: dict[str, Any]) -> tuple[Any, Any]:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = _normalizer(options)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    return tokenizer, trainers.BpeTrainer(**common, initial_alphabet=letters, min_frequency=options.min_frequency)


def _unigram(options: Vocabulary, corpus: Corpus, common: dict[str, Any]) -> tuple[Any, Any]:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), _normalizer(options)])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer, trainers.UnigramTrainer(**common, unk_token=options.special_tokens[1])


def _normalizer(options: Vocabulary) -> Any:
    from tokenizers import normalizers

    strip = options.lowercase if options.strip_accents is None else options.strip_accents
    if options.kind == "wordpiece":
        return normalizers.BertNormalizer(lowercase=options.lowercase, strip_accents=strip)
    steps = [normalizers.NFD(), normalizers.StripAccents()] if strip else []
    return normalizers.Sequence([*steps, *([normalizers.Lowercase()] if options.lowercase else []), normalizers.NFC()])


def _letters(tokenizer: "PreTrainedTokenizerBase", corpus: Corpus, most: int) -> tuple[list[str], list[str]]:
    """The most frequent characters, and those of them that stand inside words, as continuations."""
    counts: Counter[str] = Counter()
    neighbours: set[tuple[str, str]] = set()
    for lines in _chunks(corpus):
        for line in lines:
            text = tokenizer.normalizer.normalize_str(line)
            counts.update(text)
            neighbours.update(pairwise(text))
    order = sorted((letter for letter in counts if not letter.isspace()), key=lambda one: (-counts[one], one))
    letters = sorted(order[:most])
    inside = {second for first, second in neighbours if not _is_apart(first) and not _is_apart(second)}
    return letters, [f"##{letter}" for letter in letters if letter in inside]


def _is_apart(letter: str) -> bool:
    """Whether BERT's rules end a word here."""
    return letter.isspace() or letter in string.punctuation or unicodedata.category(letter).startswith("P")


def _as_transformers(tokenizer: "PreTrainedTokenizerBase", options: Vocabulary) -> Any:
    from tokenizers import processors
    from transformers import PreTrainedTokenizerFast

    _, _, first, separator, _ = options.special_tokens
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{first}:0 $A:0 {separator}:0",
        pair=f"{first}:0 $A:0 {separator}:0 $B:1 {separator}:1",
        special_tokens=[(one, tokenizer.token_to_id(one)) for one in (first, separator)],
    )
    names = {f"{role}_token": one for role, one in zip(ROLES, options.special_tokens, strict=True)}
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=options.max_length,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        additional_special_tokens=options.more_tokens,
        **names,
    )


def summary(tokenizer: "PreTrainedTokenizerBase", texts: Sequence[str]) -> str:
    """Pieces per word and unknown pieces on some text."""
    found = tokenizer.backend_tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
    ids = [one for encoding in found for one in encoding.ids]
    words = sum(len(text.split()) for text in texts)
    unknown = sum(one == tokenizer.unk_token_id for one in ids)
    return (
        f"{len(tokenizer):,} tokens; {len(ids) / max(words, 1):.2f} tokens per word, "
        f"{unknown / max(len(ids), 1):.2%} of them unknown, on {len(texts):,} lines of the corpus"
    )
