import pytest

import encodery as en
from encodery.errors import UserError
from tests.toolbox.runs import config_for
from tests.toolbox.tasks import single_task


@pytest.mark.slow
def test_a_vocabulary_with_doubles_gets_an_embedding_for_every_id(tmp_path):
    config = config_for(tmp_path, single_task(tmp_path))
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text(vocabulary.read_text() + "cat\nlast\n")  # `last` has the highest id, above the count
    run = en.train(config, tmp_path / "run")
    assert en.load(run)("the last cat").label in ("neg", "pos")


def test_a_tokenizer_of_another_model_is_refused(trained, tmp_path):
    config = config_for(tmp_path, single_task(tmp_path))
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text(vocabulary.read_text() + "one\ntwo\n")
    config["model"] = {"name": str(trained("single")), "tokenizer": str(vocabulary)}
    with pytest.raises(UserError, match="use the model's own tokenizer"):
        en.train(config, tmp_path / "run")
