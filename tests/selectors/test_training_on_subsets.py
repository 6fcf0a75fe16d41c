"""From a pool to a run: dynamics are recorded, selections are written, training takes their first rows."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from encodery.cli import main
from encodery.data.provenance import fingerprint
from encodery.data.row_dynamics import Dynamics
from encodery.data.subset import Subset
from encodery.errors import Stopped, UserError
from encodery.inference import open_model
from encodery.inference.task_argument import named
from encodery.runs.directory import RunDir
from encodery.selection.select import choose, from_plain, load
from encodery.training import build
from tests.toolbox.runs import metrics_of, resolve, run, settings, weights_of

ROWS = 96


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    settings(folder)
    return folder


@pytest.fixture(scope="module")
def recorded(home) -> RunDir:
    return run(settings(home, train={"dynamics": True, "epochs": 3}), home / "recorded")


def task_of(home: Path):
    return resolve(settings(home)).tasks[0][0]


def selection(home: Path, name: str, **plain) -> Path:
    asking = from_plain(plain, task_of(home), home)
    return choose(asking).write(home / name).parent


@pytest.mark.slow
def test_dynamics_are_what_the_steps_saw(home, recorded):
    found = Dynamics.open(recorded.path)
    assert found.logits.shape == (3, ROWS, 2)
    assert np.isfinite(found.logits).all()
    examples = task_of(home).examples("train")
    assert sorted(found.ids) == sorted(e.id for e in examples)
    labels = np.array([found.labels.index(e.label) for e in examples])
    logits = torch.tensor(found.aligned([e.id for e in examples], found.labels)[2])
    mean = float(torch.nn.functional.cross_entropy(logits, torch.tensor(labels)))
    losses = [line["loss"] for line in metrics_of(recorded) if "norm" in line]
    assert len(losses) == 18
    assert mean == pytest.approx(np.mean(losses[-6:]), abs=1e-4)


@pytest.mark.slow
def test_recording_changes_nothing_and_resumes_to_the_bit(home, recorded, tmp_path):
    plain = run(settings(home, train={"epochs": 3}), tmp_path / "plain")
    assert all(torch.equal(a, weights_of(recorded)[name]) for name, a in weights_of(plain).items())
    tree = settings(home, train={"dynamics": True, "epochs": 3, "save": "4 steps"})

    def die(report):
        if report.step == 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tree, tmp_path / "killed", watch=die)
    again = run(tree, tmp_path / "killed")
    assert np.array_equal(Dynamics.open(again.path).logits, Dynamics.open(recorded.path).logits)


@pytest.mark.slow
def test_eval_dynamics_have_no_dropout_and_finish_after_a_stop(home, tmp_path, monkeypatch):
    from encodery.training.dynamics_recorder import Recorder

    tree = settings(home, train={"dynamics": "eval", "max_steps": 9, "save": "2 steps"})
    whole = run(tree, tmp_path / "whole")
    found = Dynamics.open(whole.path)
    assert found.logits.shape == (2, ROWS, 2)  # after the first epoch of six steps, and at the end
    model = open_model.load_model(whole.model, device="cpu")[0]
    resolved = resolve(tree)
    built = build.build(resolved, build.find_inputs(resolved))
    batch = built.batches.alone(5)
    with torch.no_grad():
        expected = model.objective(batch.task)(model.encoder, batch)["logits"][0]
    assert torch.allclose(torch.tensor(np.array(found.logits[1, 5])), expected, atol=1e-5)

    real, calls = Recorder.record_rows, []

    def interrupted(self, step, batcher, on_progress):
        calls.append(step)
        if len(calls) == 1:
            left = iter([None, Stopped("enough")])

            def ticking(rows):
                if error := next(left):
                    raise error

            return real(self, step, batcher, ticking)
        return real(self, step, batcher, on_progress)

    monkeypatch.setattr(Recorder, "record_rows", interrupted)
    monkeypatch.setattr("encodery.training.dynamics_recorder.CHUNK", 16)

    # The stop leaves rows of epoch one unseen; the checkpoint at step 6 is there, and resuming looks at the rest.
    session_stop = RunDir(tmp_path / "part")
    from encodery.training.session import Session

    loop = Session.loop

    def until_six(self, watch=None):
        for report in self.steps():
            self.after(report)
            if report.step == 6:
                raise Stopped("stopped at step 6")

    monkeypatch.setattr(Session, "loop", until_six)
    with pytest.raises(Stopped):
        run(tree, session_stop.path)
    half = np.load(session_stop.path / "dynamics" / "logits.npy")
    assert 0 < np.isnan(half[0]).any(1).sum() < ROWS
    monkeypatch.setattr(Session, "loop", loop)
    again = Dynamics.open(run(tree, session_stop.path).path)
    assert np.allclose(again.logits, found.logits, atol=1e-5)


@pytest.mark.slow
def test_dynamics_every_so_many_steps(home, tmp_path):
    found = Dynamics.open(run(settings(home, train={"dynamics": "2 steps", "max_steps": 3}), tmp_path / "run").path)
    assert found.logits.shape == (2, ROWS, 2)  # after two steps and at the end, though no epoch is whole
    assert np.isfinite(found.logits).all()
    assert not np.allclose(found.logits[0], found.logits[1])


def test_dynamics_need_one_label(tmp_path):
    from tests.toolbox.runs import config_for
    from tests.toolbox.tasks import regression_task

    tree = config_for(tmp_path, regression_task(tmp_path), train={"dynamics": True})
    with pytest.raises(UserError, match="not have exactly one label per text"):
        run(tree, tmp_path / "out")
    with pytest.raises(UserError, match=r"has no dynamics; train it with train\.dynamics"):
        Dynamics.open(tmp_path)
    for seed in (1, 2):
        (tmp_path / "runs" / f"seed-{seed}" / "dynamics").mkdir(parents=True)
        (tmp_path / "runs" / f"seed-{seed}" / "dynamics" / "meta.json").write_text("{}")
    with pytest.raises(UserError, match=r"runs: is a folder of runs; .*: \S*runs/seed-1,\S*runs/seed-2$"):
        Dynamics.open(tmp_path / "runs")
    with pytest.raises(UserError, match="runs/gone: there is no such run"):
        Dynamics.open("runs/gone")


@pytest.mark.slow
def test_D4_everything_chosen_trains_as_without_a_selection(home, tmp_path):
    chosen = selection(home, "all", selector={"kind": "random"})
    plain = run(settings(home), tmp_path / "plain")
    subset = run(settings(home, task={"subset": str(chosen)}), tmp_path / "subset")
    assert metrics_of(plain) == metrics_of(subset)
    assert all(torch.equal(a, weights_of(subset)[name]) for name, a in weights_of(plain).items())


@pytest.mark.slow
def test_a_run_takes_the_first_rows_and_its_identity_follows_the_file(home):
    chosen = selection(home, "random", selector={"kind": "random"})
    ids = [json.loads(line)["id"] for line in (chosen / "selection.jsonl").read_text().splitlines()]
    meta = json.loads((chosen / "selection.meta.json").read_text())
    assert meta["pool"] == meta["count"] == len(ids) == ROWS
    assert meta["selector"] == {"kind": "random", "stratify": []}
    assert meta["fingerprint"] == fingerprint(task_of(home).examples("train"))

    def parts(**entry):
        resolved = resolve(settings(home, task={"subset": str(chosen), **entry}))
        inputs = build.find_inputs(resolved)
        return build.build(resolved, inputs), inputs.digests["tasks.0.subset"]

    built, digest = parts(fraction="25%")
    examples = task_of(home).examples("train")
    assert sorted(examples[row].id for row in built.batches.rows) == sorted(ids[:24])
    assert [examples[row].id for row in parts(count=3)[0].batches.rows] == sorted(ids[:3], key=int)
    selection(home, "random", selector={"kind": "random"}, seed=2)
    assert parts(fraction=0.25)[1] != digest


def test_the_card_of_a_run_says_how_many_rows_it_was_trained_on(home, tmp_path):
    """And a run whose only step belongs to the warm-up says that it learnt nothing."""
    chosen = selection(home, "quarter", selector={"kind": "random"}, fraction=0.25)
    part = run(settings(home, task={"subset": str(chosen), "fraction": 0.125}, train={"max_steps": 1}), tmp_path / "a")
    assert part.info()["data"]["train"]["used"] == 12
    text = (part.path / "README.md").read_text()
    assert f"- train: 12 of {ROWS} rows from " in text
    assert "- trained on a part of train: fraction 0.125" in text
    assert str(home) not in text
    assert part.metrics()[0]["lr"] == 0
    assert part.read_scores()["notes"] == [
        "the only step has a rate of 0, with which a warm-up begins: nothing was trained"
    ]
    assert "WARNING the run has one step, at a rate of 0" in part.log_file.read_text()
    whole = run(settings(home, train={"max_steps": 2}), tmp_path / "b")
    assert "used" not in whole.info()["data"]["train"]
    assert f"- train: {ROWS} rows from " in (whole.path / "README.md").read_text()
    assert "notes" not in whole.read_scores()


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"fraction": 0.5}, "48 rows are requested, but 24 of 96 were chosen"),
        ({"fraction": 0.001}, "less than one row"),
        ({"subset": "nowhere"}, "there is no such selection"),
    ],
)
def test_what_does_not_fit_is_refused(home, entry, message):
    chosen = selection(home, "quarter", selector={"kind": "random"}, fraction=0.25)
    resolved = resolve(settings(home, task={"subset": str(chosen), **entry}))
    with pytest.raises(UserError, match=message):
        build.build(resolved, build.find_inputs(resolved))


def test_a_selector_that_chooses_less_gives_what_it_has(home):
    examples = task_of(home).examples("train")
    ids = [e.id for e in examples][:10]
    meta = {"pool": ROWS, "fingerprint": fingerprint(examples)}
    assert len(Subset(ids, {**meta, "short": True}).first(0.5, None).ids) == 10
    assert len(Subset(ids, meta).first(1.0, None).ids) == 10
    with pytest.raises(UserError, match="48 rows are requested, but 10 of 96"):
        Subset(ids, meta).first(0.5, None)


def test_a_selection_of_other_rows_or_with_changed_lines_is_refused(home, tmp_path):
    chosen = selection(home, "other", selector={"kind": "random"})
    meta = json.loads((chosen / "selection.meta.json").read_text())
    (chosen / "selection.meta.json").write_text(json.dumps(meta | {"fingerprint": "0" * 64}))
    with pytest.raises(UserError, match="chosen from other rows"):
        Subset.read(chosen).require_rows("other", task_of(home).examples("train"), "table/train")
    lines = (chosen / "selection.jsonl").read_text().splitlines()
    (chosen / "selection.jsonl").write_text("\n".join(lines[1:]) + "\n")
    with pytest.raises(UserError, match="was changed after it was chosen"):
        Subset.read(chosen)
    free = tmp_path / "mine.jsonl"
    free.write_text('{"id": "1"}\n{"id": "1"}\n')
    with pytest.raises(UserError, match="more than once"):
        Subset.read(free)
    free.write_text('{"id": "1"}\nnonsense\n')
    with pytest.raises(UserError, match="line 2"):
        Subset.read(free)


def test_D1_fractions_above_one_and_of_nothing_are_refused(home):
    for wrong in (0, 30, "130%", -0.1):
        with pytest.raises(UserError, match=r"tasks\.fraction"):
            resolve(settings(home, task={"fraction": wrong}))
    assert resolve(settings(home, task={"fraction": "30%"})).tasks[0][1].fraction == 0.3


def test_weights_reach_the_loss(home):
    examples = task_of(home).examples("train")
    weights = [2.0 if i % 2 else 1.0 for i in range(ROWS)]
    meta = {"pool": ROWS, "fingerprint": fingerprint(examples)}
    path = Subset([e.id for e in examples], meta, weights=weights).write(home / "weighted")
    resolved = resolve(settings(home, task={"subset": str(path)}))
    batches = build.build(resolved, build.find_inputs(resolved)).batches
    for batch in batches.at(0):
        assert batch.weights.tolist() == [2.0 if row % 2 else 1.0 for row in batch.ids.tolist()]


@pytest.mark.slow
def test_the_verb_with_dynamics_and_embeddings(home, recorded, capsys):
    task = settings(home)["tasks"][0]
    config = {"pool": task, "selector": {"kind": "el2n", "epoch": 2, "during": True}, "runs": ["recorded"], "seed": 3}
    (home / "el2n.yaml").write_text(yaml.safe_dump(config))
    assert main(["select", str(home / "el2n.yaml"), "-o", str(home / "el2n")]) == 0
    assert "96 of 96 rows by el2n" in capsys.readouterr().out
    lines = [json.loads(line) for line in (home / "el2n" / "selection.jsonl").read_text().splitlines()]
    scores = [line["score"] for line in lines]
    assert scores == sorted(scores, reverse=True)
    stream = ["select", str(home / "el2n.yaml"), "--selector.kind", "clusters", "--selector.k", "4", "--runs", "[]"]
    stream += ["--embed.model", str(recorded.path), "--embed.site", "mean", "-o", str(home / "stream")]
    wrong = ["select", str(home / "el2n.yaml"), "--selector.epock", "4"]
    assert main(wrong) == 2
    assert "did you mean epoch" in capsys.readouterr().err
    asking = load(home / "el2n.yaml", ["--selector.epoch=3"])
    assert (asking.selector.epoch, asking.options.seed) == (3, 3)
    (home / "stream.yaml").write_text(yaml.safe_dump({"pool": task, "selector": {"kind": "clusters", "k": 4}}))
    stream[1] = str(home / "stream.yaml")
    assert main(stream[:2] + stream[8:]) == 0
    rows = [json.loads(line) for line in (home / "stream" / "selection.jsonl").read_text().splitlines()]
    assert {row["cluster"] for row in rows[:4]} == {0, 1, 2, 3}
    meta = json.loads((home / "stream" / "selection.meta.json").read_text())
    assert len(meta["embed"]["digest"]) == 64
    assert main(["select", str(home / "stream.yaml"), "-o", str(home / "x")]) == 2
    assert "needs vectors" in capsys.readouterr().err


@pytest.mark.slow
def test_a_selection_is_not_replaced_by_another(tmp_path, capsys):
    words = ["select", "--pool", "toy/sentiment", "--selector", "random", "-o", str(tmp_path / "chosen"), "--quiet"]
    assert main(words) == 0
    before = (tmp_path / "chosen" / "selection.jsonl").read_bytes()
    assert main(words) == 0
    assert main([*words, "--seed", "2"]) == 2
    assert "seed: 1 there, 2 now" in capsys.readouterr().err
    assert (tmp_path / "chosen" / "selection.jsonl").read_bytes() == before


def test_a_missing_file_is_called_so(tmp_path):
    with pytest.raises(UserError, match="there is no such file"):
        named("news.txt")


def test_D29_every_selection_prints_its_labels_beside_those_of_the_pool(home, capsys):
    task = settings(home)["tasks"][0]
    (home / "mix.yaml").write_text(yaml.safe_dump({"pool": task, "selector": "random", "fraction": 0.1}))
    assert main(["select", str(home / "mix.yaml"), "-o", str(home / "mix")]) == 0
    printed = capsys.readouterr()
    ids = set(Subset.read(home / "mix").ids)
    pool = task_of(home).examples("train")
    whole = sum(e.label == "bad" for e in pool) / ROWS
    mine = sum(e.label == "bad" for e in pool if e.id in ids) / len(ids)
    assert len(ids) == 9
    assert f"labels: bad {100 * mine:.1f} % (pool {100 * whole:.1f} %), good " in printed.err
    meta = json.loads((home / "mix" / "selection.meta.json").read_text())
    assert meta["labels"]["chosen"]["bad"] == pytest.approx(mine)
    assert meta["labels"]["pool"]["bad"] == pytest.approx(whole)


def test_a_selector_that_takes_nothing_says_so(home, recorded):
    plain = {"selector": {"kind": "clusters", "k": 1, "pick": "whole"}, "fraction": 0.5}
    with pytest.raises(UserError, match="clusters selects none of 48 rows"):
        selection(home, "none", **plain, embed={"model": str(recorded.path)})


def test_a_fraction_beside_a_count_is_noted():
    words = ["--pool", "toy/nli", "--fraction", "0.5"]
    assert load(None, [*words, "--count", "10"]).notes == ("fraction: 0.5 has no effect beside count: 10",)
    assert load(None, words).notes == ()
