"""Which recipes a model gets."""

import pytest

from encodery.cli.glue import family_of
from encodery.errors import UserError


def test_a_family_s_name_and_its_model_s_hub_name_mean_the_same_recipes() -> None:
    assert family_of("roberta-base", "bert-base") == ("roberta-base", [])
    assert family_of("FacebookAI/roberta-base", "bert-base") == ("roberta-base", [])


def test_a_model_without_recipes_takes_those_of_another() -> None:
    assert family_of("./mine", "electra-small") == ("electra-small", ["model.name=./mine"])
    with pytest.raises(UserError, match="there is no recipe family nobody"):
        family_of("./mine", "nobody")
