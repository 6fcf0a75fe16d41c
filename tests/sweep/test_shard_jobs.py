"""Shards that are made on other machines: the same bytes as here, nothing twice, nothing lost."""

import contextlib
import importlib.util
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from encodery.analysis import embed as embeddings
from encodery.analysis.embed import EmbedOptions, embed, open_all, remote_job
from encodery.core.progress import Progress
from encodery.data.corpus.prepare import prepare
from encodery.data.tokenizer import TokenizerPieces
from encodery.errors import RunFailed, UserError
from encodery.models.tokenizer import toy_tokenizer
from encodery.runs.directory import RunDir
from encodery.sweep.execute import execute
from encodery.sweep.shard_jobs import PLACE, OnRay, OnSlurm, do, pieces_elsewhere, shards_elsewhere
from encodery.sweep.sweep_file import Limits, Resources
from encodery.tasks.corpus import Corpus
from encodery.tasks.toy_grammar.corpus import documents
from tests.sweep.runs import Plan, command, states
from tests.sweep.slow_shard import slow_do


@pytest.fixture(scope="module")
def pieces() -> TokenizerPieces:
    return TokenizerPieces(toy_tokenizer())


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(documents(0, 60)))
    return Corpus.model_validate({"files": str(path), "shard_size": 2500, "held_out": 0.1})


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


class Here:
    """An engine that does a task when it is asked for it, the last one first."""

    def __init__(self, breaks_at: int | None = None) -> None:
        self.breaks_at, self.done = breaks_at, list[int]()

    def max_running(self) -> int:
        return 3

    def submit(self, text: str) -> str:
        return text

    def ended(self, tasks: Sequence[str]) -> list[str]:
        return [tasks[-1]]

    def answer(self, task: str) -> str:
        number = json.loads(task)["shard"]
        if number == self.breaks_at:
            raise RunFailed("its machine was lost")
        self.done.append(number)
        return do(task)

    def cancel(self, tasks: Sequence[Any]) -> None:
        pass


@pytest.mark.slow
def test_P21_shards_made_elsewhere_have_the_same_bytes(tmp_path: Path, pieces: TokenizerPieces, corpus: Corpus) -> None:
    prepare(tmp_path / "here", corpus, pieces, 32, workers=1)
    broken, engine = Here(breaks_at=4), Here()
    with pytest.raises(RunFailed, match="was lost"):
        prepare(tmp_path / "there", corpus, pieces, 32, workers=shards_elsewhere(lambda _: broken))
    prepare(tmp_path / "there", corpus, pieces, 32, workers=shards_elsewhere(lambda _: engine))
    assert content(tmp_path / "there") == content(tmp_path / "here")
    assert not (tmp_path / "there" / PLACE).exists()
    many = len(list((tmp_path / "here" / "shards").iterdir()))
    assert many > 4
    assert broken.done
    assert sorted(broken.done + engine.done) == list(range(many))  # it went on, and made nothing twice


def test_P21_a_relative_folder_is_the_same_for_workers_with_another_working_directory(
    tmp_path: Path, pieces: TokenizerPieces, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Elsewhere(Here):
        def answer(self, task: str) -> str:
            with contextlib.chdir("/"):  # as workers of Ray
                return super().answer(task)

    monkeypatch.chdir(tmp_path)
    prepare(Path("here"), corpus, pieces, 32, workers=1)
    prepare(Path("there"), corpus, pieces, 32, workers=shards_elsewhere(lambda _: Elsewhere()))
    assert content(tmp_path / "there") == content(tmp_path / "here")


def test_an_error_elsewhere_is_said_here(tmp_path: Path, pieces: TokenizerPieces, corpus: Corpus) -> None:
    class Empty(Here):
        def answer(self, task: str) -> str:
            Path(json.loads(task)["job"]).unlink(missing_ok=True)
            return super().answer(task)

    with pytest.raises(UserError, match=r"job\.json does not exist"):
        prepare(tmp_path / "there", corpus, pieces, 32, workers=shards_elsewhere(lambda _: Empty()))


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embeddings, "SHARD", 8)


@pytest.mark.slow
def test_D5_vectors_made_elsewhere_have_the_same_bytes(tmp_path: Path, trained: Any, small_shards: None) -> None:
    options, run = EmbedOptions(), str(trained("single"))
    on = f"{RunDir(run).info()['task']}:train"
    source, rows = open_all(run, on, None, "cpu", False)
    here = embed(source, rows, options, tmp_path / "here")
    elsewhere = pieces_elsewhere(lambda _: Here(), remote_job(run, on, None, options, "cpu"))
    there = embed(source, rows, options, tmp_path / "there", elsewhere=elsewhere)
    assert content(there.folder) == content(here.folder)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("submitit") is None, reason="submitit is not installed")
def test_P21_shards_made_through_submitit_have_the_same_bytes(
    tmp_path: Path, pieces: TokenizerPieces, corpus: Corpus
) -> None:
    few = corpus.model_copy(update={"shard_size": 10_000})
    prepare(tmp_path / "here", few, pieces, 32, workers=1)
    engine = shards_elsewhere(lambda folder: OnSlurm(folder, cluster="local"))
    prepare(tmp_path / "there", few, pieces, 32, workers=engine)
    assert content(tmp_path / "there") == content(tmp_path / "here")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("only_ray")
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
def test_P21_R13_a_ray_node_that_is_lost_is_replaced_by_the_other(
    tmp_path: Path, pieces: TokenizerPieces, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    from encodery.sweep.ray_cluster import _import

    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    ray = _import()
    from ray.cluster_utils import Cluster

    prepare(tmp_path / "here", corpus, pieces, 32, workers=1)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        second = cluster.add_node(num_cpus=1)
        ray.init(address=cluster.address, log_to_driver=False)
        told: list[int] = []

        def on_progress(share: float | None, characters: int) -> None:
            told.append(characters)
            if len(told) == 2:
                cluster.remove_node(second, allow_graceful=False)

        def engine(folder: Path) -> OnRay:
            made = OnRay()
            made.task = ray.remote(slow_do).options(num_cpus=1, max_retries=5)
            return made

        prepare(tmp_path / "there", corpus, pieces, 32, on_progress, shards_elsewhere(engine))
        assert content(tmp_path / "there") == content(tmp_path / "here")
        calls = Counter((tmp_path / "there.calls").read_text().split())
        assert set(calls) == {str(i) for i in range(len(told))}
        assert set(calls.values()) == {1}  # what the lost node had in hand was not finished there

        third = cluster.add_node(num_cpus=1)
        line = f'sleep 1; echo "$ENCODERY_RUN_DIR" >> {tmp_path}/ended'
        specs = [command(line, f"r{i}") for i in range(5)]
        plan = Plan(specs, lambda *_: False)
        ready = plan.ready

        def lose(ended: Any, started: Any, free: int) -> Any:
            if ended and third in cluster.worker_nodes:
                cluster.remove_node(third, allow_graceful=False)
            return ready(ended, started, free)

        monkeypatch.setattr(plan, "ready", lose)
        execute(tmp_path / "sweep", plan, Resources(devices="cpu:2"), Limits(grace="2s"), "ray", Progress(quiet=True))
        assert states(tmp_path / "sweep") == {f"r{i}": "done" for i in range(5)}
        assert set(Counter((tmp_path / "ended").read_text().split()).values()) == {1}
        assert third not in cluster.worker_nodes
    finally:
        ray.shutdown()
        cluster.shutdown()
