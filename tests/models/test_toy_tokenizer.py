from pathlib import Path

from encodery.models.tokenizer import toy_tokenizer
from encodery.tasks.toy import Toy
from encodery.tasks.toy_grammar.words import vocabulary


def test_every_toy_word_is_one_token() -> None:
    tokenizer = toy_tokenizer()
    assert [tokenizer.tokenize(word) for word in vocabulary()] == [[word] for word in vocabulary()]
    tasks = [Toy.variant({"part": part})(part=part) for part in Toy.parts]
    texts = [text for task in tasks for e in task.examples("dev") for text in e.texts]
    assert all(tokenizer.unk_token_id not in ids for ids in tokenizer(texts)["input_ids"])


def test_pairs_have_types_like_berts() -> None:
    tokenizer = toy_tokenizer()
    pair = tokenizer("The teacher helps.", "The doctor.")
    tokens = " ".join(tokenizer.convert_ids_to_tokens(pair["input_ids"]))
    assert tokens == "[CLS] the teacher helps . [SEP] the doctor . [SEP]"
    assert pair["token_type_ids"] == [0] * 6 + [1] * 4
    assert (tokenizer.pad_token_id, tokenizer.model_max_length) == (0, 512)


def test_other_text_is_spelled() -> None:
    tokenizer = toy_tokenizer()
    assert tokenizer.tokenize("Café 42!") == ["c", "##a", "##f", "##e", "4", "##2", "!"]
    assert tokenizer.decode(tokenizer("Zebra helps", add_special_tokens=False)["input_ids"]) == "zebra helps"


def test_saved_and_loaded_it_is_the_same(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = toy_tokenizer()
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded("The plot was dull.", "zebra") == tokenizer("The plot was dull.", "zebra")
    assert loaded.get_vocab() == toy_tokenizer().get_vocab()
