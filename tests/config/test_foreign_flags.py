"""People who come from run_glue and Trainer are told what to write here."""

from pathlib import Path

import pytest

from encodery.config.foreign_flags import _ADVICE, _BARE, advice, ours
from encodery.config.load import load
from encodery.config.schema import Config
from encodery.config.validate import _sub_fields
from encodery.errors import UserError


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--batch-size", "8"], r"did you mean train\.batch_size\?"),
        (["--model_name_or_path", "x"], r"did you mean model\.name\?"),
        (["--learning_rate", "1e-5"], r"did you mean optim\.lr\?"),
        (["--output_dir", "out"], "-o DIR names the run directory"),
        (["--do_train"], "--do_train is not a setting; leave it out: `encodery train` trains"),
        (["--do_train", "--do_eval"], "--do_train is not a setting"),
        (["--overwrite_output_dir"], "--fresh starts over"),
        (["--train_file", "a.csv"], "give the data file itself: `encodery train FILE`"),
        (["--validation-file", "a.csv"], r"did you mean tasks\.dev\?"),
        (["--label", "stars"], r"did you mean tasks\.label\?"),
        (["--text", "review"], r"did you mean tasks\.text\?"),
        (["--dev", "dev.csv"], r"did you mean tasks\.dev\?"),
        (["--sep", ";"], r"did you mean tasks\.delimiter\?"),
        (["--max_train_samples", "10"], r"did you mean tasks\.count\?"),
        (["--objective", "mlm"], r"did you mean tasks\.objective\.kind\?"),
        (["--objective.kind", "mlm"], r"did you mean tasks\.objective\.kind\?"),
        (["--objective.masking.probability", "0.3"], r"did you mean tasks\.objective\.masking\.probability\?"),
        (["--nonsense"], "--nonsense needs a value"),
    ],
)
def test_a_flag_of_theirs_is_answered_with_ours(words: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        load({"model": "some-encoder", "tasks": "toy/nli"}, words)


def test_all_flags_of_theirs_are_answered_at_once() -> None:
    words = "--do_train --do_eval --fp16 --overwrite_output_dir --learning_rate 2e-5 --train.epochs 2 --output_dir out"
    with pytest.raises(UserError) as error:
        load({"model": "some-encoder", "tasks": "toy/nli"}, [*words.split(), "--nonsense", "--no-cuda"])
    assert str(error.value).splitlines() == [
        "command line: --do_train is not a setting; leave it out: `encodery train` trains and scores on dev.",
        "command line: --do_eval is not a setting; leave it out: `encodery train` trains and scores on dev.",
        "command line: --fp16 is not a setting; did you mean --train.precision fp16?",
        "command line: --overwrite_output_dir is not a setting; --fresh starts over.",
        "command line: --learning_rate is not a setting; did you mean optim.lr?",
        "command line: --output_dir is not a setting; -o DIR names the run directory.",
        "command line: --nonsense needs a value; write --key value, --key=value or key=value.",
        "command line: --no-cuda is not a setting; did you mean --device cpu?",
    ]


@pytest.mark.parametrize("meant", _BARE.values())
def test_what_a_bare_flag_becomes_is_a_setting(meant: str) -> None:
    load({"model": {"new": {}}, "tasks": "toy/nli"}, meant.split())


def test_no_word_has_two_answers() -> None:
    sections = [key for part in Config.model_fields.values() for key in _sub_fields(part.annotation)]
    words = [word for group in _ADVICE.values() for word in group.split()]
    assert len(words) == len(set(words)) > 20
    assert not [word for word in words if ours(word) or word in Config.model_fields or word in sections]
    assert advice("nonsense") is None


@pytest.mark.parametrize(("typed", "meant"), [("rte", "'glue/rte'"), ("SST-2", "'glue/sst2'"), ("ner", "'tag/ner' or")])
def test_a_task_without_its_collection(typed: str, meant: str) -> None:
    with pytest.raises(UserError, match=f"Did you mean {meant}"):
        load({"model": "x", "tasks": typed})


def test_a_workbook_where_a_config_is_expected(tmp_path: Path) -> None:
    (tmp_path / "reviews.xlsx").write_bytes(b"PK\x03\x04")
    with pytest.raises(
        UserError, match=r"workbooks are not read; save the sheet as CSV \(UTF-8\) and give `reviews.csv`"
    ):
        load(tmp_path / "reviews.xlsx")


def test_a_misspelt_form_names_all_forms() -> None:
    forms = 'expected single, pair, multilabel, regression, tags, spans or ranking, not "singel"'
    with pytest.raises(UserError, match=forms):
        load({"model": "x", "tasks": {"kind": "table", "train": "a.csv", "form": "singel"}})


@pytest.mark.parametrize("name", ["reviews.dat", "reviews"])
def test_data_where_a_config_is_expected(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("text,label\nsome words,good\nother words,bad\n")
    with pytest.raises(UserError, match=r"is data, not a config. `encodery train \S*reviews.csv` trains on a table"):
        load(tmp_path / name)


@pytest.mark.parametrize("text", ["model: a,b\ntasks: c,d\n", "# a,b\nmodel: x\n", "model: {name: x, head: linear}\n"])
def test_a_config_with_commas_is_no_data(text: str, tmp_path: Path) -> None:
    (tmp_path / "run.conf").write_text(text)
    with pytest.raises(UserError) as error:
        load(tmp_path / "run.conf")
    assert "is data" not in str(error.value)
