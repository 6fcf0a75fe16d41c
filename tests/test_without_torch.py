"""Options can be read without torch, and nothing of that stays behind."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import encodery
from encodery.find import find, names

ROOT = Path(encodery.__file__).parents[1]
ROOMS = ["methods", "objectives", "weighting", "mix", "select"]
CODE = """
import json, sys
from encodery.find import find, names
from encodery.without_torch import placeholders

fields = {}
with placeholders():
    for room in ROOMS:
        for name in names(room):
            fields[f"{room}/{name}"] = find(room, name).model_json_schema()
assert not any(module.partition(".")[0] in ("torch", "transformers") for module in sys.modules)
print(json.dumps(fields))
if len(sys.argv) > 1:  # the real ones can still be imported
    from encodery.methods.freelb import FreeLB
    import torch
    from encodery.models.encoder import Encoder
    assert issubclass(Encoder, torch.nn.Module)
""".replace("ROOMS", repr(ROOMS))


def schemas(*more: str) -> dict[str, object]:
    done = subprocess.run([sys.executable, "-c", CODE, *more], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_every_component_has_the_same_options_without_torch() -> None:
    found = schemas("and really")
    assert found == {f"{room}/{name}": find(room, name).model_json_schema() for room in ROOMS for name in names(room)}


@pytest.mark.parametrize("room", ROOMS)
def test_where_torch_is_loaded_the_real_modules_are_used(room: str) -> None:
    import torch  # noqa: F401

    from encodery.without_torch import placeholders

    real = find(room, names(room)[0])
    with placeholders():
        assert find(room, names(room)[0]) is real
