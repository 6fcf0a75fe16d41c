"""S15: what goes wrong outside of encodery is a sentence with advice and the right exit code, never "a bug"."""

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from encodery.core.system_errors import as_sentence
from tests.toolbox.faults import Ended, broken_disk, command
from tests.toolbox.runs import settings

FULL, READ_ONLY, DENIED = errno.ENOSPC, errno.EROFS, errno.EACCES
LONG = "n" * 60_000


@pytest.fixture
def train(tmp_path: Path) -> Callable[..., Ended]:
    """Trains a tiny run after something was broken."""
    (tmp_path / "c.yaml").write_text(json.dumps(settings(tmp_path, train={"max_steps": 3, "save": "1 steps"})))

    def run(before: Callable[[], object], *more: str) -> Ended:
        return command(["train", "c.yaml", "-o", "out", *more], tmp_path, before=before)

    return run


def sentence(ended: Ended, code: int, *words: str) -> None:
    assert not ended.is_bug, ended.output
    assert ended.code == code, ended.output
    for word in words:
        assert word in ended.output, ended.output


@pytest.mark.parametrize(
    ("number", "words"), [(FULL, "No space left"), (READ_ONLY, "Read-only"), (DENIED, "Permission")]
)
def test_S15_a_cache_that_cannot_be_written(number, words, train, tmp_path) -> None:
    def before() -> None:
        os.environ["ENCODERY_CACHE"] = str(tmp_path / "cache")
        broken_disk(tmp_path / "cache", number)

    ended = train(before)
    sentence(ended, ended.code, words)
    assert ended.code in (1, 2)


def test_S15_weights_that_cannot_be_saved(train) -> None:
    def before() -> None:
        import safetensors.torch
        from safetensors import SafetensorError

        def fail(*_: object, **__: object) -> None:
            raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

        import transformers.modeling_utils as theirs

        theirs.safe_save_file = safetensors.torch.save_file = fail  # type: ignore[assignment]

    sentence(train(before), 1, "No space left on device", "free some space")


def test_S15_a_lock_that_cannot_be_given_back(train) -> None:
    def before() -> None:
        from encodery.core.lock import RunLock

        inner = RunLock.release

        def fail(*_: object) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        def release(self: RunLock) -> None:
            os.ftruncate = fail  # only now: the holder's record is written by it too
            inner(self)

        RunLock.release = release  # type: ignore[method-assign]

    sentence(train(before), 0, "done: out")


@pytest.mark.parametrize("number", [READ_ONLY, DENIED])
def test_S15_a_sweep_in_a_folder_that_cannot_be_written(number, tmp_path) -> None:
    words = ["sweep", "run", "recipe:toy/nli", "--train.max_steps", "1", "-o", "out"]
    ended = command(words, tmp_path, before=lambda: broken_disk(tmp_path / "out", number))
    sentence(ended, ended.code, "out")
    assert ended.code in (1, 2)


def test_S15_a_run_directory_that_is_deleted_while_it_trains(train, tmp_path) -> None:
    def before() -> None:
        from encodery.training.session import Session

        inner = Session.after

        def after(self: Session, report: object) -> None:
            shutil.rmtree(tmp_path / "out")
            inner(self, report)  # type: ignore[arg-type]

        Session.after = after  # type: ignore[assignment, method-assign]

    sentence(train(before), 1, "out", "No such file")


@pytest.mark.parametrize("text", ["", "[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory"])
def test_S15_out_of_memory(text, train) -> None:
    def before() -> None:
        from encodery.training.session import Session

        def fail(*_: object) -> None:
            raise RuntimeError(text) if text else MemoryError

        Session.after = fail  # type: ignore[assignment, method-assign]

    sentence(train(before), 1, "out of memory", "train.token_budget")


LINES = [
    ["train", "C", "-o", LONG], ["train", LONG], ["predict", LONG, "--text", "a"], ["table", LONG], ["report", LONG],
    ["evaluate", LONG, "--on", "toy/nli"], ["config", LONG], ["sweep", "plan", LONG], ["inspect", LONG],
    ["watch", LONG], ["export", LONG, "out"], ["embed", "m", "--on", LONG], ["data", "check", LONG],
    ["heads", LONG, "--on", "toy/nli"], ["train", "recipe:" + LONG], ["train", "--model", LONG, "--tasks", "toy/nli"],
    ["score", LONG, "--on", "toy/nli"],
    ["train", "--model.new.kind", "bert", "--tasks", LONG], ["predict", "m", "--file", LONG],
]  # fmt: skip


@pytest.mark.parametrize("line", LINES, ids=lambda line: " ".join(word[:12] for word in line))
def test_S15_names_of_60_000_characters(line, tmp_path) -> None:
    (tmp_path / "C").write_text("model: {new: {}}\ntasks: toy/nli\n")
    ended = command(line, tmp_path)
    sentence(ended, ended.code)
    assert ended.code in (1, 2)
    assert len(ended.output) < 70_000


@pytest.mark.timeout(60)
@pytest.mark.parametrize("verb", ["predict", "evaluate", "export", "embed"])
def test_S15_the_root_of_the_disk_is_no_model_and_is_not_searched(verb, tmp_path) -> None:
    more = {
        "predict": ["--text", "a"],
        "evaluate": ["--on", "toy/nli"],
        "export": ["out"],
        "embed": ["--on", "toy/nli:dev"],
    }
    sentence(command([verb, "/", *more[verb]], tmp_path), 2, "/")


def test_S15_a_deleted_working_directory(tmp_path) -> None:
    def before() -> None:
        os.mkdir(tmp_path / "gone")
        os.chdir(tmp_path / "gone")
        os.rmdir(tmp_path / "gone")

    for words in (["tasks"], ["config", "--model", "m", "--tasks", "toy/nli"], ["table", "."]):
        sentence(command(words, tmp_path, before=before), 2, "was deleted")


def test_S15_what_only_a_programmer_can_act_on_stays_a_bug(tmp_path) -> None:
    def before() -> None:
        import encodery.cli.tasks as verb

        verb.run = lambda *_: {}["x"]  # type: ignore[assignment]

    ended = command(["tasks"], tmp_path, before=before)
    assert ended.is_bug
    assert as_sentence(KeyError("x")) is None
    assert as_sentence(RuntimeError("shapes differ")) is None
    assert as_sentence(OSError("without a number")) is None
