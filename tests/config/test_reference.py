from pathlib import Path

import pytest

from encodery.config.reference import reference, schema
from encodery.config.schema import Config, Entry, OptimOptions

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


@pytest.mark.slow
def test_the_committed_page_is_current():
    if not PAGE.exists():
        pytest.skip("no docs folder beside the tests")
    hint = "run `encodery config --reference > docs/configuration.md`"
    assert PAGE.read_text(encoding="utf-8") == reference(), hint


@pytest.mark.slow
def test_every_key_is_on_the_page_with_a_meaning():
    page = reference()
    for kind in (Config, OptimOptions, Entry):
        assert all(f"`{key}`" in page or f"## {key}" in page for key in kind.model_fields)
    assert " |  |" not in page


@pytest.mark.slow
def test_defaults_of_petit_stand_beside_the_general_ones():
    page = reference()
    assert "| `lr` | number > 0 | `2e-05`; with petit `0.0005` | Peak learning rate. |" in page
    assert "`3`; with petit `5` | Passes over the training set." in page


@pytest.mark.slow
def test_mappings_with_keys_of_their_own_have_a_table():
    page = reference()
    assert "## probe\n" in page
    assert "`train_rows` | integer ≥ 8 | `2000` |" in page
    for objective, key, row in (
        ("electra", "masking", "| `mask` | number ≥ 0, ≤ 1 | `0.85` |"),
        ("mlm", "masking", "| `mask` | number ≥ 0, ≤ 1 | `0.8` |"),
        ("classification", "distill", '| `loss` | `kl`, `mse` | `"kl"` |'),
    ):
        table = page.split(f"#### tasks.objective: {objective}, {key}\n")[1].split("\n#")[0]
        assert row in table


@pytest.mark.slow
def test_schema_knows_components_and_short_forms():
    got = schema()
    method = got["properties"]["method"]["anyOf"]
    assert {"type": "string"} in method
    assert "plain" in [one["properties"]["kind"]["const"] for one in method if "properties" in one]
    entries = got["properties"]["tasks"]["anyOf"]
    glue = next(one for one in entries if "glue/rte" in one.get("properties", {}).get("name", {}).get("enum", []))
    assert {"fraction", "weight"} <= set(glue["properties"])
    assert got["properties"]["optim"]["description"]
    assert got["$defs"]["OptimOptions"]["properties"]["lr"]["description"] == "Peak learning rate."
    refs = {part.split('"')[0] for part in str(got).replace("'", '"').split("#/$defs/")[1:]}
    assert refs <= set(got["$defs"])
