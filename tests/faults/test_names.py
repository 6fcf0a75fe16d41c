"""S11: a data file may have any name, and own data any `name:`; files of the run are named safely."""

import json
from pathlib import Path

import pytest

from encodery.config.load import load
from encodery.core.files import check_name, file_name
from encodery.errors import UserError
from encodery.models.model import module_name
from encodery.runs.directory import RunDir
from tests.toolbox.faults import command
from tests.toolbox.runs import settings

EVERYWHERE = ["my data", "données+ [1]"]  # with these every verb is tried that reads a run
STEMS = [
    *EVERYWHERE, "a+b (2)", "-x", "x'y\"z", "日本語", "a:dev", "x" * 200, "50%", "tab\tand\nline",
]  # fmt: skip


@pytest.mark.parametrize("stem", STEMS)
def test_S11_a_data_file_of_any_name_trains_to_the_end(stem, tmp_path) -> None:
    tree = settings(tmp_path, train={"max_steps": 2}, task={"train": f"{stem}.csv"})
    (tmp_path / "train.csv").rename(tmp_path / f"{stem}.csv")
    (tmp_path / "c.yaml").write_text(json.dumps(tree))
    ended = command(["train", "c.yaml", "-o", "out"], tmp_path)
    assert ended.code == 0, ended.output
    run = RunDir(tmp_path / "out")
    name = run.task_names()[0]
    assert [check_name(path.name) for path in run.predictions.iterdir()]
    assert run.predictions_path(name, "dev").is_file()
    if stem not in EVERYWHERE:
        return
    for words in (["predict", "out", "--text", "w1 w2"], ["evaluate", "out", "--on", f"{name}:dev"], ["table", "out"],
                  ["report", "out", "-o", "out.html"], ["export", "out", "exported"]):  # fmt: skip
        done = command(words, tmp_path)
        assert done.code == 0, f"{words}\n{done.output}"


@pytest.mark.parametrize("name", ["Kritik: Filme (2024)", "données+", "[1]", "a/b"])
def test_S11_own_data_may_have_any_name(name, tmp_path) -> None:
    tree = settings(tmp_path, task={"name": name})
    assert load(tree).tasks[0][0].name == f"table/{name}"


@pytest.mark.parametrize("name", ["", "a\nb", "a\0b", "x" * 60_000, "table/", "  "])
def test_S11_names_that_cannot_be_printed_are_refused_before_training(name, tmp_path) -> None:
    with pytest.raises(UserError, match=r"tasks\.name"):
        load(settings(tmp_path, task={"name": name}))


@pytest.mark.parametrize("key", ["train", "name"])
def test_S11_names_that_are_no_utf8_are_refused_before_training(key, tmp_path) -> None:
    with pytest.raises(UserError, match=rf"tasks\.{key}: contains a lone surrogate"):
        load(settings(tmp_path, task={key: "a\udcff.csv"}))


def test_S11_names_of_files_are_safe_short_and_different() -> None:
    names = [file_name(f"table/{stem}") for stem in [*STEMS, "a b", "a+b", "a_b", "A b"]]
    assert len(set(names)) == len(names)
    for name in names:
        assert check_name(name) == name
        assert len(Path(name).name) <= 150
    assert file_name("glue/rte") == "glue-rte"
    assert module_name("corpus/wiki.en") == "corpus-wiki_en"
