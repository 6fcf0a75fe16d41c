"""Checkpoints: what is saved comes back to the bit, and what is damaged is never used."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor

from encodery.core import files
from encodery.errors import RunFailed, UserError
from encodery.training import checkpoint

KINDS = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint8, torch.bool,
]  # fmt: skip
FILES = ["manifest.json", "state.json", "model.safetensors", "optimizer.safetensors"]


def save(folder: Path, step: int) -> Path:
    """A small checkpoint whose content tells its step."""
    generator = torch.Generator().manual_seed(step)
    groups = {
        "model": {"a": torch.randn(3, 5, generator=generator), "b": torch.randn(7, generator=generator)},
        "optimizer": {"a": torch.tensor(step), "b": torch.randn(2, dtype=torch.float64, generator=generator)},
    }
    return checkpoint.save(folder, step, groups, {"step": step, "loss": step / 3})


def bits(tensor: Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


@pytest.mark.slow
@settings(max_examples=30)
@given(
    shape=st.lists(st.integers(0, 4), max_size=3),
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=4),
    transposed=st.booleans(),
    seed=st.integers(0, 99),
)
def test_R1_tensors_come_back_to_the_bit(
    tmp_path_factory: pytest.TempPathFactory, shape: list[int], kinds: list[torch.dtype], transposed: bool, seed: int
) -> None:
    noise = torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 3
    noise = noise.transpose(0, -1) if transposed and shape else noise
    given = {f"{number} {kind}": noise.to(kind) for number, kind in enumerate(kinds)}
    path = checkpoint.save(tmp_path_factory.mktemp("bits"), 1, {"model": given}, {})
    found = checkpoint.load(path).tensors("model")
    assert set(found) == set(given)
    for name, tensor in given.items():
        assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape)
        assert bits(found[name]) == bits(tensor)
        assert found[name].data_ptr() % 64 == 0 or not tensor.numel()


def test_R1_nan_and_minus_zero_keep_their_bits(tmp_path: Path) -> None:
    odd = torch.tensor([float("nan"), -0.0, float("inf"), 1e-45])
    found = checkpoint.load(checkpoint.save(tmp_path, 1, {"g": {"odd": odd}}, {"best": float("-inf"), "x": 0.1}))
    assert bits(found.tensors("g")["odd"]) == bits(odd)
    assert found.state == {"best": float("-inf"), "x": 0.1}


def test_tied_tensors_are_stored_once_and_tied_again(tmp_path: Path) -> None:
    embedding = torch.randn(4, 4)
    named = {
        "embedding": embedding,
        "head": torch.nn.Parameter(embedding),
        "turned": embedding.t(),
        "half": embedding[:2],
    }
    path = checkpoint.save(tmp_path, 1, {"model": named, "empty": {}}, {})
    assert set(load_file(path / "model.safetensors")) == {"embedding", "turned", "half"}
    found = checkpoint.load(path)
    tensors = found.tensors("model")
    assert tensors["head"] is tensors["embedding"]
    assert all(torch.equal(tensors[name], named[name]) for name in named)
    assert found.tensors("empty") == {}
    assert found.groups == ("model", "empty")


def test_R2_files_are_on_the_disk_before_the_name_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    sync, sync_folder, replace = files.sync, files.sync_folder, files.replace_folder
    monkeypatch.setattr(files, "sync", lambda stream: (events.append(Path(stream.name).name), sync(stream)))
    monkeypatch.setattr(
        files, "sync_folder", lambda path: (events.append(f"folder {path.name[:5]}"), sync_folder(path))
    )
    monkeypatch.setattr(files, "replace_folder", lambda new, path: (events.append("rename"), replace(new, path)))
    save(tmp_path / "ckpts", 7)
    assert sorted(events[:3]) == sorted(FILES[1:])
    assert events[3:] == ["manifest.json", "folder .step", "rename", "folder ckpts"]


def damaged_copy(template: Path, folder: Path, damage: Callable[[Path], None]) -> tuple[int, list[str]]:
    shutil.copytree(template, folder)
    damage(folder / "step-00000020")
    found, skipped = checkpoint.newest_intact(folder)
    assert found is not None
    assert found.state["step"] == found.step
    return found.step, skipped


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with checkpoints 10 and 20."""
    folder = tmp_path_factory.mktemp("two")
    save(folder, 10)
    save(folder, 20)
    return folder


@pytest.mark.slow
@settings(max_examples=50)
@given(name=st.sampled_from(FILES), place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_R3_flipped_bit_is_noticed(
    two: Path, tmp_path_factory: pytest.TempPathFactory, name: str, place: float, bit: int
) -> None:
    def flip(path: Path) -> None:
        data = bytearray((path / name).read_bytes())
        data[int(place * len(data))] ^= 1 << bit
        (path / name).write_bytes(data)

    step, skipped = damaged_copy(two, tmp_path_factory.mktemp("flip") / "x", flip)
    assert (step, len(skipped)) == (10, 1)
    assert "step 20 skipped" in skipped[0]
    assert name in skipped[0] or name == "manifest.json"


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_R3_every_single_bit_is_noticed(two: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(two, tmp_path / "x")
    path = tmp_path / "x/step-00000020"
    data = (path / name).read_bytes()
    for place in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[place // 8] ^= 1 << place % 8
        (path / name).write_bytes(flipped)
        with pytest.raises(checkpoint.Damaged):
            checkpoint.load(path)


@settings(max_examples=50)
@given(name=st.sampled_from(FILES), part=st.floats(0, 1, exclude_max=True))
def test_R3_truncated_file_is_noticed(
    two: Path, tmp_path_factory: pytest.TempPathFactory, name: str, part: float
) -> None:
    def cut(path: Path) -> None:
        data = (path / name).read_bytes()
        (path / name).write_bytes(data[: int(part * len(data))])

    step, skipped = damaged_copy(two, tmp_path_factory.mktemp("cut") / "x", cut)
    assert (step, len(skipped)) == (10, 1)
    assert name in skipped[0]


@pytest.mark.parametrize("name", FILES)
def test_R3_missing_file_is_noticed(two: Path, tmp_path: Path, name: str) -> None:
    step, skipped = damaged_copy(two, tmp_path / "x", lambda path: (path / name).unlink())
    assert (step, len(skipped)) == (10, 1)
    assert f"{name} is missing" in skipped[0]


def test_R3_unreadable_and_misplaced_ones_are_skipped(two: Path, tmp_path: Path) -> None:
    shutil.copytree(two, tmp_path / "x")
    shutil.copytree(two / "step-00000010", tmp_path / "x/step-00000030")  # another step's content
    (tmp_path / "x/step-00000040").mkdir()
    (tmp_path / "x/step-00000050").touch()
    found, skipped = checkpoint.newest_intact(tmp_path / "x")
    assert found is not None
    assert found.step == 20
    assert [sentence.split(" skipped")[0] for sentence in skipped] == [f"checkpoint of step {n}" for n in (50, 40, 30)]


def test_R3_nothing_intact_is_nothing(tmp_path: Path) -> None:
    assert checkpoint.newest_intact(tmp_path / "none") == (None, [])
    (save(tmp_path, 1) / "state.json").unlink()
    found, skipped = checkpoint.newest_intact(tmp_path)
    assert found is None
    assert len(skipped) == 1
    with pytest.raises(RunFailed, match=r"state\.json is missing"):
        checkpoint.load(tmp_path / "step-00000001")


def test_R3_damaged_checkpoint_is_replaced_when_its_step_comes_again(two: Path, tmp_path: Path) -> None:
    shutil.copytree(two, tmp_path / "x")
    (tmp_path / "x/step-00000020/state.json").write_text("{}")
    save(tmp_path / "x", 20)
    found, skipped = checkpoint.newest_intact(tmp_path / "x")
    assert found is not None
    assert (found.step, skipped) == (20, [])
    assert sorted(path.name for path in (tmp_path / "x").iterdir()) == ["step-00000010", "step-00000020"]


def test_intact_checkpoint_of_the_same_step_is_kept(tmp_path: Path) -> None:
    before = (save(tmp_path, 5) / "manifest.json").stat().st_ino
    assert (save(tmp_path, 5) / "manifest.json").stat().st_ino == before


def test_prune_keeps_what_it_is_told(tmp_path: Path) -> None:
    for step in (1, 2, 3, 100_000_000):
        save(tmp_path, step)
    checkpoint.prune(tmp_path, {2, 100_000_000})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000002", "step-100000000"]
    found, _ = checkpoint.newest_intact(tmp_path)
    assert found is not None
    assert found.step == 100_000_000


def test_R3_damaged_later_checkpoints_do_not_push_out_good_ones(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        save(tmp_path, step)
    for step in (20, 30):
        (tmp_path / f"step-{step:08d}/state.json").unlink()
    save(tmp_path, 15)  # resumed at 10
    checkpoint.prune(tmp_path, checkpoint.last_steps(tmp_path, 2, until=15))
    assert checkpoint.steps(tmp_path) == {10, 15}


@pytest.mark.parametrize("state", [{1: 2}, {"a": {"b": {3: 1}}}, {"a": [torch.ones(1)]}, {"a": {1, 2}}])
def test_state_that_json_would_change_is_refused(tmp_path: Path, state: dict) -> None:
    with pytest.raises(TypeError, match="state"):
        checkpoint.save(tmp_path, 1, {}, state)
    assert list(tmp_path.iterdir()) == []


def test_S4_group_names_are_safe(tmp_path: Path) -> None:
    with pytest.raises(UserError):
        checkpoint.save(tmp_path, 1, {"../x": {}}, {})


def test_S1_unknown_kinds_of_tensors_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="complex64"):
        checkpoint.save(tmp_path, 1, {"g": {"c": torch.zeros(1, dtype=torch.complex64)}}, {})
    assert list(tmp_path.iterdir()) == []
