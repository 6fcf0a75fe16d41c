"""Options can be read without torch, and nothing of that stays behind."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import encodery
from encodery.config.components import find, names

ROOT = Path(encodery.__file__).parents[1]
TOY = "model: {new: {kind: bert, size: tiny}}\ntasks: {name: toy/nli, train_rows: 8, dev_rows: 4}\n"
ROOMS = ["tasks", "methods", "objectives", "weighting", "mix", "select"]
CODE = """
import json, sys
from encodery.config.components import find, names
from encodery.config.without_torch import placeholders

fields = {}
with placeholders():
    for room in ROOMS:
        for name in names(room):
            fields[f"{room}/{name}"] = find(room, name).model_json_schema()
assert not any(module.partition(".")[0] in ("torch", "transformers") for module in sys.modules)
print(json.dumps(fields))
""".replace("ROOMS", repr(ROOMS))


@pytest.mark.slow(0.5)
def test_every_component_has_the_same_options_without_torch() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    assert found == {f"{room}/{name}": find(room, name).model_json_schema() for room in ROOMS for name in names(room)}


@pytest.mark.parametrize("room", ROOMS)
def test_where_torch_is_loaded_the_real_modules_are_used(room: str) -> None:
    import torch  # noqa: F401

    from encodery.config.without_torch import placeholders

    real = find(room, names(room)[0])
    with placeholders():
        assert find(room, names(room)[0]) is real


# --- commands that read options alone ---------------------------------------------------------------------------------

CALL = """
import sys
from encodery.cli import main
code = main(sys.argv[1:])
print(*[name for name in ("torch", "transformers", "numpy") if name in sys.modules], file=sys.stderr)
sys.exit(code)
"""


def call(folder: Path, *words: str) -> tuple[int, str, list[str]]:
    """Exit code, standard output, and the lines of standard error; the last one names the heavy packages."""
    done = subprocess.run(
        [sys.executable, "-c", CALL, *words], capture_output=True, text=True, cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr.split("\n")[:-1]


@pytest.mark.slow(0.5)
def test_config_prints_a_recipe_without_torch(tmp_path: Path) -> None:
    code, out, said = call(tmp_path, "config", "recipe:glue/rte/electra-small", "method.kind=freelb")
    assert (code, said) == (0, [""])
    assert "adv_lr" in out
    assert "recipe:glue/rte/electra-small" in out


@pytest.mark.slow(0.5)
def test_config_names_a_wrong_key_without_torch(tmp_path: Path) -> None:
    code, _, said = call(tmp_path, "config", "recipe:glue/rte/electra-small", "method.kind=freelb", "method.adv_l=1")
    assert (code, said[-1]) == (2, "")
    assert "adv_lr" in said[0]


@pytest.mark.slow(0.5)
def test_train_names_wrong_settings_and_undecided_columns_without_torch(tmp_path: Path) -> None:
    code, _, said = call(tmp_path, "train", "--tasks", "rte", "--batch-size", "8")
    assert (code, said[-1]) == (2, "")
    assert "did you mean train.batch_size?" in said[0]
    assert "Did you mean 'glue/rte'?" in said[1]
    rows = "".join(f"the cat number {i} sleeps here,{'ab'[i % 2]},{'xyz'[i % 3]}\n" for i in range(30))
    (tmp_path / "tickets.csv").write_text(f"text,desk,channel\n{rows}")
    code, _, said = call(tmp_path, "train", "tickets.csv")
    assert (code, said[-1]) == (2, "")
    assert "  --tasks.label desk     (2 values: a, b)" in said
    code, _, said = call(tmp_path, "train", "tickets.csv", "--tasks.label", "desc")
    assert (code, said[-1]) == (2, "")
    assert said[0] == 'tickets.csv: there is no column "desc" (did you mean "desk"?); it has text, desk, channel'


@pytest.mark.slow(0.5)
def test_undecided_columns_of_parquet_are_named_without_torch(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = [f"the cat number {i} sleeps here" for i in range(30)]
    desks, channels = ["ab"[i % 2] for i in range(30)], ["xyz"[i % 3] for i in range(30)]
    pq.write_table(pa.table({"text": texts, "desk": desks, "channel": channels}), tmp_path / "tickets.parquet")
    code, _, said = call(tmp_path, "train", "tickets.parquet")
    assert (code, said[-1]) == (2, "numpy")
    assert "  --tasks.label desk     (2 values: a, b)" in said
    code, out, said = call(tmp_path, "config", "tickets.parquet", "--tasks.label", "desk")
    assert (code, said[-1]) == (0, "numpy")
    assert "label: desk" in out


def test_recipes_are_listed_without_torch(tmp_path: Path) -> None:
    code, out, said = call(tmp_path, "recipes")
    assert (code, said) == (0, [""])
    assert "glue/rte/electra-small" in out


@pytest.mark.slow(0.5)
def test_a_sweep_is_planned_without_torch_and_as_with_it(tmp_path: Path) -> None:
    from encodery.sweep import command_line, sweep_file
    from encodery.sweep.plan import Planner

    (tmp_path / "toy.yaml").write_text(TOY)
    axes = ["--method.kind", "plain,freelb", "--optim.lr", "1e-4,2e-4"]
    code, out, said = call(tmp_path, "sweep", "plan", "toy.yaml", *axes)
    assert (code, said) == (0, [""])
    file = command_line.apply(sweep_file.read(str(tmp_path / "toy.yaml")), axes)
    assert out.splitlines()[:-1] == [spec.name for spec in Planner(file, tmp_path / "runs").specs()]


@pytest.mark.slow
def test_the_reference_is_the_same_without_torch(tmp_path: Path) -> None:
    code, out, said = call(tmp_path, "config", "--reference")
    assert (code, said) == (0, [""])
    assert out == (ROOT / "docs/configuration.md").read_text()


MINE = """
import torch
from encodery.components import Method
LIMIT = torch.ones(3).sum().item()

class Mine(Method):
    height: float = LIMIT
"""


@pytest.mark.slow
def test_own_files_run_with_the_real_torch(tmp_path: Path) -> None:
    (tmp_path / "toy.yaml").write_text(TOY + "method: {kind: 'mine.py:Mine'}\n")
    (tmp_path / "mine.py").write_text(MINE)
    code, out, said = call(tmp_path, "config", "toy.yaml")
    assert (code, said[-1]) == (0, "torch transformers numpy")
    assert "height: 3.0" in out


LATER = """
from pathlib import Path
from encodery.config.load import load
from encodery.config.without_torch import light
from encodery.runs.identity import identity_of_config

light(lambda: identity_of_config(load("toy.yaml", ["method.kind=freelb"]), {}))
assert "torch" not in sys.modules
shown = light(lambda: load("toy.yaml", ["method.kind=freelb"]))
assert "torch" not in sys.modules

resolved = load("toy.yaml", ["method.kind=freelb", "train.max_steps=1"])
from encodery.methods.freelb import FreeLB
import torch
from encodery.models.encoder import Encoder
from encodery.training.run import train_run
assert issubclass(Encoder, torch.nn.Module)
assert type(resolved.method) is FreeLB and type(shown.method) is not FreeLB
assert train_run(resolved, "out").is_done
"""


@pytest.mark.slow
def test_a_run_in_the_same_process_has_the_real_classes(tmp_path: Path) -> None:
    """After every component was read without torch."""
    (tmp_path / "toy.yaml").write_text(TOY)
    done = subprocess.run(
        [sys.executable, "-c", CODE + LATER], capture_output=True, text=True, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


AGAIN = """
import sys
from encodery.config.without_torch import light

calls = []
def work():
    import numpy
    calls.append(hasattr(numpy, "__version__"))
    return int(numpy.ones(3).sum())
assert light(work) == 3 and calls == [False, True]
"""


@pytest.mark.slow
def test_work_that_needs_a_heavy_package_is_done_again_with_the_real_one() -> None:
    done = subprocess.run([sys.executable, "-c", AGAIN], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
