"""What people mean by --on."""

import pytest

from encodery.errors import UserError
from encodery.inference.task_argument import resolve_split
from encodery.runs.directory import RunDir
from encodery.tasks.corpus import Corpus


@pytest.fixture
def pretrained(tmp_path):
    """A run on the toy corpus, as far as its task goes."""
    run = RunDir.create(tmp_path / "run")
    tasks = "tasks: [{name: toy/corpus, documents: 30, held_out: 0.5}]"
    run.write_config(f"model: {{new: {{kind: bert}}}}\n{tasks}\n")
    run.update_info(task="toy/corpus")
    return run


@pytest.mark.parametrize("word", ["toy/corpus", "corpus/toy", "corpus"])
def test_the_text_of_a_run_by_any_of_its_names(pretrained, word):
    (found,) = resolve_split(word, runs=[pretrained])
    assert isinstance(found.task, Corpus)
    assert (found.key, found.task.documents) == ("toy/corpus:dev", 30)


def test_a_corpus_without_a_run():
    assert resolve_split("toy/corpus:train")[0].task == resolve_split("corpus/toy:train")[0].task
    with pytest.raises(UserError, match="own text has no task name; give the text file, a prepared folder, or a run"):
        resolve_split("corpus")
