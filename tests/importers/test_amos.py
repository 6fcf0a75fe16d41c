"""Microsoft's AMOS files become folders of ours: same outputs from fused projections, a negated head, same pieces."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForPreTraining, AutoTokenizer

from encodery.cli import main
from encodery.errors import UserError
from encodery.importers import amos, amos_tokenizer
from encodery.importers import amos_tokenizer as importers_amos_tokenizer
from encodery.importers.electra import Heads
from encodery.models.amos import buckets
from tests.importers.amos_files import (
    FAIRSEQ,
    HUGGINGFACE,
    SCORES,
    SIZES,
    write_fairseq,
    write_huggingface,
    write_tokenizer,
)

IDS = torch.tensor([[0, 7, 9, 11, 5, 2]])


def theirs(state: dict[str, Any], prefix: str, names: dict[str, str], layers: int) -> torch.Tensor:
    """Their forward pass on IDS, from their tensors: one projection for query, key and value."""

    def of(name: str, last: str = "") -> torch.Tensor:
        return state[prefix + names[name] + last]

    def norm(x: torch.Tensor, name: str, block: str = "") -> torch.Tensor:
        weight, bias = (state[f"{prefix}{block}{names[name]}.{last}"] for last in ("weight", "bias"))
        return F.layer_norm(x, (SIZES["width"],), weight, bias, 1e-5)

    def linear(x: torch.Tensor, name: str, block: str) -> torch.Tensor:
        return F.linear(x, *(state[f"{prefix}{block}{names[name]}.{last}"] for last in ("weight", "bias")))

    length, heads = IDS.shape[1], SIZES["heads"]
    x = norm(of("words")[IDS[0]] + of("positions")[:length], "norm")
    bias = of("bias")[buckets(length, SIZES["bins"], 12)].permute(2, 0, 1)
    for n in range(layers):
        block = names["block"].format(n)
        q, k, v = (y.view(length, heads, -1).transpose(0, 1) for y in linear(x, "in", block).chunk(3, -1))
        scores = q * q.shape[-1] ** -0.5 @ k.transpose(1, 2) + bias
        mixed = (scores.softmax(-1) @ v).transpose(0, 1).reshape(length, -1)
        x = norm(x + linear(mixed, "out", block), "norm1", block)
        x = norm(x + linear(F.gelu(linear(x, "up", block)), "down", block), "norm2", block)
    return x


@pytest.mark.slow
def test_P25_a_fairseq_file_gives_the_probability_of_a_replaced_token(tmp_path: Path) -> None:
    order = write_tokenizer(tmp_path)
    file, state = write_fairseq(tmp_path, len(order))
    said = amos.convert(file, tmp_path / "out", Heads(), None)
    hidden = theirs(state, "encoder.sentence_encoder.", FAIRSEQ, SIZES["layers"])
    head = (state["encoder.binary_head.out_proj.weight"], state["encoder.binary_head.out_proj.bias"])
    original = F.linear(hidden, *head)[:, 0].sigmoid()
    model, report = AutoModelForPreTraining.from_pretrained(tmp_path / "out/discriminator", output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    with torch.no_grad():
        torch.testing.assert_close(model.eval()(IDS).logits[0].sigmoid(), 1 - original, atol=1e-5, rtol=0)
    assert "2 layers of width 16, 2 heads, 8 bins" in said[0]


@pytest.mark.slow
def test_the_generator_of_a_fairseq_file_comes_with_its_mixture(tmp_path: Path) -> None:
    order = write_tokenizer(tmp_path)
    file, state = write_fairseq(tmp_path, len(order))
    amos.convert(file, tmp_path / "out", Heads(), None)
    hidden = theirs(state, "auxiliary.sentence_encoder.", FAIRSEQ, 3)
    get = {name.removeprefix("auxiliary.lm_head."): value for name, value in state.items() if "lm_head" in name}
    t = F.gelu(F.linear(hidden, get["dense.weight"], get["dense.bias"]))
    t = F.layer_norm(t, (SIZES["width"],), get["layer_norm.weight"], get["layer_norm.bias"], 1e-5)
    wanted = F.linear(t, get["weight"], get["bias"])
    model, report = AutoModelForMaskedLM.from_pretrained(tmp_path / "out/generator", output_loading_info=True)
    assert not report["missing_keys"]
    with torch.no_grad():
        found = model.eval()(IDS).logits[0]
    torch.testing.assert_close(found[:, : len(order)], wanted, atol=1e-4, rtol=1e-4)
    assert found[:, len(order) :].max() < -1000  # copies are never guessed
    from safetensors.torch import load_file

    mixture = load_file(tmp_path / "out/generator/mixture.safetensors")["mixture"]
    assert torch.equal(mixture, get["layer_mixture.weight"][0])


@pytest.mark.parametrize("head", [True, False])
def test_their_transformers_folder(head: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    order = write_tokenizer(tmp_path)
    folder, state = write_huggingface(tmp_path, len(order) + 3, head)  # a few rows that no token has
    assert main(["import", "amos", str(folder), str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert ("the encoder alone" in said) != head
    model, report = AutoModel.from_pretrained(tmp_path / "out/discriminator", output_loading_info=True)
    assert not report["missing_keys"]
    with torch.no_grad():
        found = model.eval()(IDS).last_hidden_state[0]
    torch.testing.assert_close(found, theirs(state, "amos.", HUGGINGFACE, SIZES["layers"]), atol=1e-5, rtol=0)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out/discriminator")
    assert tokenizer.is_fast
    assert len(tokenizer) == model.config.vocab_size


# The tokenizer


def mark(letter: str) -> bool:
    return amos_tokenizer.is_punctuation(letter)


def words_of(text: str) -> list[str]:
    """Words as the specification says: marks before and after a word apart, clitics with their quote."""
    text = text.replace("``", '"').replace("''", '"')
    text = text.translate(str.maketrans("‘’´“”—–", "'''\"\"--"))
    found: list[str] = []
    for word in re.sub(r"(?:(?<=^')|(?<=\s'))\s+(?=[smdt]\b)", "", text).split():
        begin = next((i for i, letter in enumerate(word) if not mark(letter)), None)
        if begin is None:
            found.append(word)
            continue
        end = next(i for i in range(len(word), 0, -1) if not mark(word[i - 1]))
        first, inner, last = word[:begin], word[begin:end], word[end:]
        if first.endswith("'") and is_clitic(inner):
            first, inner = "", first + inner
        found += [part for part in (first, inner, last) if part]
    return found


def is_clitic(text: str) -> bool:
    for one in (*"smdtSMDT", "ll", "re", "ve", "LL", "RE", "VE"):
        rest = text.removeprefix(one)
        if rest != text and not (rest[:1].isalnum() or rest[:1] == "_"):
            return True
    return False


def unigram(word: str, scores: dict[str, float]) -> list[str]:
    """The best cut of `▁word`, unknown letters together; then without a lone `▁` before a mark."""
    text, unknown = "▁" + word, min(scores.values()) - 10
    best: list[tuple[float, list[str]]] = [(0.0, [])]
    for end in range(1, len(text) + 1):
        options = []
        for begin in range(end):
            part = text[begin:end]
            if part in scores:
                options.append((best[begin][0] + scores[part], [*best[begin][1], part]))
            elif len(part) == 1:
                options.append((best[begin][0] + unknown, [*best[begin][1], "<unk>"]))
        best.append(max(options, key=lambda one: one[0]))
    pieces = best[-1][1]
    if pieces[0] == "▁" and mark(text[1]) and len(pieces) > 1 and pieces[1] != "<unk>":
        pieces = pieces[1:]
    return [p for i, p in enumerate(pieces) if p != "<unk>" or i == 0 or pieces[i - 1] != "<unk>"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, list[str], list[int]]:
    folder = tmp_path_factory.mktemp("tokenizer")
    order = write_tokenizer(folder)
    made = amos_tokenizer.build(folder / "sp.model", folder / "dict.txt", len(order))
    return made.tokenizer, order, made.copies


def pieces_of(tokenizer: Any, order: list[str], copies: list[int], text: str) -> list[str]:
    """Their names of the pieces: a copy has the name of what it copies."""
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    return [order[i] if i < len(order) else order[copies[i - len(order)]] for i in ids]


ALPHABET = "the dogsab1-.,'!?()\"%…é’“—_ "


@settings(max_examples=80, deadline=None)
@given(st.text(alphabet=ALPHABET, max_size=24))
def test_text_is_cut_as_theirs(built: tuple[Any, list[str], list[int]], text: str) -> None:
    assume(not re.search(r"\S['‘’´]\s+[smdt]\b", text))  # said to be different
    wanted = [piece for word in words_of(text) for piece in unigram(word, SCORES)]
    assert pieces_of(*built, text) == wanted


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("the dogs.", ["▁the", "▁dog", "s", "▁."]),
        ("It's", ["▁It", "'", "s"]),  # inside a word nothing is parted
        ("'s", ["▁'s"]),
        ("the ' s", ["▁the", "▁'s"]),
        ("“a”", ['▁"', "▁a", '▁"']),
        ("1,000", ["▁1", ",", "000"]),
        ("a...", ["▁a", "..."]),  # `▁` and `...`, without the lone `▁`
        ("%%", ["%%"]),  # there is `▁%%`, but `▁` and `%%` are likelier
        ("!", ["!"]),
    ],
)
def test_some_texts(built: tuple[Any, list[str], list[int]], text: str, pieces: list[str]) -> None:
    assert pieces_of(*built, text) == pieces


def test_ids_are_fairseqs_and_templates_roberta_like(built: tuple[Any, list[str], list[int]]) -> None:
    tokenizer, order, copies = built
    ids = tokenizer("the dog", "a")["input_ids"]
    assert [order[i] for i in ids] == ["<s>", "▁the", "▁dog", "</s>", "</s>", "▁a", "</s>"]
    assert (tokenizer.cls_token_id, tokenizer.pad_token_id, tokenizer.sep_token_id, tokenizer.unk_token_id) == (
        0,
        1,
        2,
        3,
    )
    assert tokenizer.mask_token_id == len(order) - 1
    assert "token_type_ids" not in tokenizer("a")
    assert all(mark(order[i][0]) for i in copies)
    assert tokenizer.decode(tokenizer("the dogs", add_special_tokens=False)["input_ids"]) == "the dogs"


def test_a_bpe_model_joins_by_score(tmp_path: Path) -> None:
    scores = {piece: -float(i) for i, piece in enumerate(["▁t", "he", "▁the", "..", "▁", "t", "h", "e", "."])}
    order = write_tokenizer(tmp_path, kind=2, scores=scores)
    made = amos_tokenizer.build(tmp_path / "sp.model", tmp_path / "dict.txt", len(order))
    assert pieces_of(made.tokenizer, order, made.copies, "the...") == ["▁the", "..", "."]


def test_pieces_without_a_place_are_told(tmp_path: Path) -> None:
    order = write_tokenizer(tmp_path, lost="▁dog")
    made = amos_tokenizer.build(tmp_path / "sp.model", tmp_path / "dict.txt", len(order))
    assert "1 pieces of the model are not in the dictionary" in made.notes[1]
    assert pieces_of(made.tokenizer, order, made.copies, "dog")[0] == "▁"


def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    order = write_tokenizer(tmp_path)
    file, state = write_fairseq(tmp_path, len(order))
    with pytest.raises(UserError, match="tokens with the special ones, but the model has 9"):
        amos_tokenizer.build(tmp_path / "sp.model", tmp_path / "dict.txt", 9)
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad/dict.txt").write_text("nonsense\n")
    with pytest.raises(UserError, match=r"dict\.txt, line 1: expected a token and its count"):
        amos_tokenizer.read_dictionary(tmp_path / "bad/dict.txt")
    for content in (b"", b"\xff\xff\xff", b"plain text"):
        (tmp_path / "bad/sp.model").write_bytes(content)
        with pytest.raises(UserError, match="is not a sentencepiece model"):
            importers_amos_tokenizer.read(tmp_path / "bad/sp.model")
    torch.save({"model": state | {"encoder.sentence_encoder.extra.weight": torch.ones(1)}}, file)
    with pytest.raises(UserError, match=r"the tensor extra\.weight is not part of AMOS's encoder"):
        amos.convert(file, tmp_path / "out", Heads(), None)
    torch.save({"model": {"decoder.x": torch.ones(1)}}, file)
    with pytest.raises(UserError, match="is this an AMOS checkpoint"):
        amos.convert(file, tmp_path / "out", Heads(), None)
    with pytest.raises(UserError, match=r"name the folder of sp\.model and dict\.txt with --vocab"):
        amos.convert(write_huggingface(tmp_path / "bad", 50)[0], tmp_path / "out", Heads(), tmp_path / "nowhere")
    assert not (tmp_path / "out").exists()
