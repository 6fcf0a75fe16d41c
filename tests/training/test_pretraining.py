"""Whole pretraining runs: resume, kept models, going on, scores on held-out text, and ELECTRA's optimiser."""

import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from encodery.config.schema import OptimOptions
from encodery.core.progress import Progress
from encodery.data.corpus.blocks import BlockTable
from encodery.data.corpus.prepare import prepare
from encodery.data.tokenizer import TokenizerPieces
from encodery.errors import RunFailed, UserError
from encodery.inference.classifier import open_classifier
from encodery.models import flops, locate
from encodery.models.tokenizer import toy_tokenizer
from encodery.runs.directory import RunDir
from encodery.tasks.corpus import Corpus
from encodery.tasks.forms.pretraining_scores import ELECTRA, MLM, add_up, area, scores
from encodery.tasks.toy_grammar.corpus import documents
from encodery.training import optim
from encodery.training.build import build_parts, find_inputs
from encodery.training.run import train_run
from tests.toolbox.faults import kill_9, running, start_child
from tests.toolbox.runs import metrics_of, resolve, run

SMALL = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
ADAM = {"lr": 1e-3, "bias_correction": False, "warmup": 0.25, "warmup_style": "simultaneous"}


def settings(objective: dict[str, Any], kind: str = "electra", **sections: Any) -> dict[str, Any]:
    """A run of twelve steps on toy text."""
    fields = SMALL | ({"embedding_size": 16} if kind == "electra" else {})
    corpus = {"name": "toy/corpus", "documents": 60, "held_out": 0.2, "objective": objective}
    tree: dict[str, Any] = {
        "model": {"new": {"kind": kind, "config": fields}},
        "tasks": [corpus | sections.pop("task", {})],
        "optim": ADAM,
        "train": {"max_steps": 12, "batch_size": 8, "max_length": 48, "evaluate": "6 steps", "log": 1},
        "device": "cpu",
    }
    for name, section in sections.items():
        tree[name] = {**tree.get(name, {}), **section}
    return tree


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """All tensors of all model folders of a run, by file and name."""
    return {
        f"{file.relative_to(folder)}:{name}": tensor
        for file in sorted(folder.rglob("*.safetensors"))
        for name, tensor in load_file(file).items()
    }


def same(a: RunDir, b: RunDir) -> None:
    one, two = (weights(x.path / part) for x in (a, b) for part in ("model",))
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert metrics_of(a) == metrics_of(b)


@pytest.mark.slow
def test_a_moving_share_of_masked_words_is_recorded_step_by_step(tmp_path: Path) -> None:
    masking = {"probability": 0.4, "final_probability": 0.1, "final_step": 6}
    tree = settings({"kind": "mlm", "masking": masking}, train={"max_steps": 8, "evaluate": "never", "keep_at": []})
    lines = run(tree, tmp_path / "moving").metrics()
    shares = [line["masked"] for line in lines if "lr" in line]
    assert shares == pytest.approx([0.4, 0.35, 0.3, 0.25, 0.2, 0.15, 0.1, 0.1])
    fixed = run(settings({"kind": "mlm"}, train={"max_steps": 1, "evaluate": "never"}), tmp_path / "fixed").metrics()
    assert not any("masked" in line for line in fixed)


@pytest.mark.slow
@pytest.mark.parametrize("objective", [{"kind": "electra"}, {"kind": "mlm"}, {"kind": "amos"}], ids=str)
def test_P24_resume_is_bit_identical(objective: dict[str, Any], tmp_path: Path) -> None:
    tree = settings(objective, train={"save": "3 steps", "keep_at": []})
    whole = run(tree, tmp_path / "whole")

    def stop(report: Any) -> None:
        if report.step == 7:
            raise RunFailed("the power went")

    with pytest.raises(RunFailed):
        run(tree, tmp_path / "cut", watch=stop)
    cut = run(tree, tmp_path / "cut")
    assert "resuming at step 6" in cut.log_file.read_text()
    same(whole, cut)


@pytest.mark.slow
def test_P24_resume_after_kill_9_is_bit_identical(tmp_path: Path) -> None:
    tree = settings({"kind": "electra"}, train={"save": "1 step", "max_steps": 40})
    whole = run(tree, tmp_path / "whole")
    child = start_child(lambda: run(tree, tmp_path / "cut"))
    marker = tmp_path / "cut" / "checkpoints" / "step-00000009"
    while not marker.exists():
        assert running(child)
        time.sleep(0.02)
    kill_9(child)
    cut = run(tree, tmp_path / "cut")
    assert "resuming at step" in cut.log_file.read_text()
    same(whole, cut)


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """A finished ELECTRA run; only read from."""
    return run(settings({"kind": "electra"}), tmp_path_factory.mktemp("pretrained") / "run")


@pytest.mark.slow(0.5)
def test_a_pretrained_model_that_is_asked_for_answers_is_named(pretrained: RunDir) -> None:
    sentence = rf"{pretrained.path}: .* toy/corpus \(electra\) and has no prediction head; train it on a task first"
    with pytest.raises(UserError, match=sentence):
        open_classifier(pretrained.path)


@pytest.mark.slow
def test_held_out_text_is_scored_and_cost_is_recorded(pretrained: RunDir) -> None:
    found = pretrained.read_scores()["scores"]["toy/corpus:dev"]
    assert set(found) == set(ELECTRA)
    assert found["loss"] == pytest.approx(found["generator_loss"] + 50 * found["discriminator_loss"])
    steps = [line for line in pretrained.metrics() if "loss" in line]
    spent = [line["flops"] for line in steps]
    assert spent[0] > 0
    assert spent == sorted(spent)
    assert all("elapsed" in line for line in steps)
    assert len([line for line in pretrained.metrics() if "eval.auc" in line]) == 2
    assert not pretrained.predictions.exists()
    assert "encodery train --model" in pretrained.card.read_text()


@pytest.mark.slow(0.5)
def test_a_corpus_prepared_on_the_way_shows_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ENCODERY_CACHE", str(tmp_path / "cache"))
    tree = settings({"kind": "mlm"}, train={"max_steps": 1, "evaluate": "end", "keep_at": []})
    train_run(resolve(tree), tmp_path / "run", progress=Progress(every=0.0))
    assert "toy/corpus  100%" in capsys.readouterr().err
    train_run(resolve(tree), tmp_path / "again", progress=Progress(every=0.0))
    assert "toy/corpus  100%" not in capsys.readouterr().err  # it is in the cache


@pytest.mark.slow(0.5)
def test_P39_a_run_without_a_held_out_document_says_so_at_the_start_and_ends_well(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = settings({"kind": "electra", "generator_size": 0.5}, task={"documents": 12, "held_out": 1e-6})
    tree["train"] |= {"max_steps": 2, "keep_at": []}
    done = train_run(resolve(tree), tmp_path / "run", progress=Progress())
    told = capsys.readouterr().err
    sentence = "none of its 12 documents is held out, so there are no dev scores"
    assert sentence in told
    assert told.index(sentence) < told.index("step 2")
    assert done.read_scores()["scores"] == {}
    tree["tasks"][0]["evaluate_on"] = ["dev"]
    with pytest.raises(UserError, match=r"tasks\.evaluate_on: no document of toy/corpus is in dev; raise held_out"):
        run(tree, tmp_path / "asked")


def test_P39_a_model_cannot_be_scored_on_no_text() -> None:
    with pytest.raises(UserError, match="no text to score"):
        Corpus(part="toy").score({"all": {}}, ())


def test_a_run_tells_how_much_text_it_has_without_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.txt").write_text("\n\n".join(documents(0, 40)))
    pieces = TokenizerPieces(toy_tokenizer())
    corpus = Corpus.model_validate({"files": str(tmp_path / "a.txt"), "held_out": 0.2, "keep_overflow": True})
    prepare(tmp_path / "blocks", corpus, pieces, 48, workers=1)
    tree = settings({"kind": "mlm"}, train={"max_steps": 1, "evaluate": "end", "keep_at": []})
    tree["model"]["tokenizer"] = "toy"
    tree["tasks"] = [{"name": "corpus", "prepared": str(tmp_path / "blocks"), "objective": {"kind": "mlm"}}]
    train_run(resolve(tree), tmp_path / "run", progress=Progress())
    told = capsys.readouterr().err
    assert re.search(r"corpus: \d+ sequences to train on, [\d,]+ tokens; \d+ for dev, [\d,]+ tokens", told)
    assert "WARNING corpus" not in told


def test_P38_a_run_tells_how_much_text_it_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree = settings({"kind": "mlm"}, train={"max_steps": 1, "keep_at": [], "evaluate": "never"})
    train_run(resolve(tree), tmp_path / "run", progress=Progress())
    assert "overflowed their blocks and are lost; keep_overflow keeps them" in capsys.readouterr().err


def test_steps_of_pretraining_are_cut_finer_on_a_cpu_unless_asked() -> None:
    from encodery.tasks.toy import Toy
    from encodery.training.build import token_budget

    corpus = resolve(settings({"kind": "mlm"}))
    wanted = resolve(settings({"kind": "mlm"}, train={"token_budget": 16384}))
    cpu, gpu, text = torch.device("cpu"), torch.device("cuda"), corpus.tasks[0][0]
    assert [token_budget(corpus.config, [text], device) for device in (cpu, gpu)] == [4096, 16384]
    assert token_budget(wanted.config, [text], cpu) == 16384
    assert token_budget(corpus.config, [text, Toy(part="nli")], cpu) == 16384


def test_models_kept_on_the_way_can_be_named(pretrained: RunDir) -> None:
    assert sorted(entry.name for entry in pretrained.kept.iterdir()) == ["12.5", "25", "50", "6.25"]
    folders = {share: locate.resolve(f"{pretrained.path}@{share}%").path for share in ("6.25", "50", "100")}
    assert folders["6.25"] == pretrained.kept / "6.25" / "discriminator"
    assert folders["100"] == locate.resolve(str(pretrained.path)).path == pretrained.model / "discriminator"
    first, last = (load_file(folders[share] / "model.safetensors") for share in ("6.25", "100"))
    assert not torch.equal(*(x["discriminator_predictions.dense.weight"] for x in (first, last)))
    assert locate.resolve_tokenizer(f"{pretrained.path}@50%", Path()).path == folders["50"]
    with pytest.raises(UserError, match=r"kept no model at 30 %; it has 6.25 %, 12.5 %, 25 %, 50 %"):
        locate.resolve(f"{pretrained.path}@30%")
    with pytest.raises(UserError, match="there is no run nowhere"):
        locate.resolve("nowhere@30%")


@pytest.mark.slow
@pytest.mark.parametrize("share", ["", "@25%"])
def test_any_task_can_begin_from_a_pretraining(pretrained: RunDir, share: str, tmp_path: Path) -> None:
    tree = {
        "model": {"name": f"{pretrained.path}{share}"},
        "tasks": [{"name": "toy/sentiment", "train_rows": 40, "dev_rows": 20}],
        "train": {"max_steps": 2, "batch_size": 8, "max_length": 32},
    }
    done = run(tree, tmp_path / "tuned")
    assert done.read_scores()["scores"]["toy/sentiment:dev"]
    assert "left out: discriminator_predictions.dense" in done.log_file.read_text()


@pytest.mark.slow(0.5)
def test_P41_a_tokenizer_that_means_other_pieces_is_refused(pretrained: RunDir, tmp_path: Path) -> None:
    from transformers import AutoTokenizer, BertTokenizerFast

    own = AutoTokenizer.from_pretrained(locate.resolve(str(pretrained.path)).path).get_vocab()
    in_order = sorted(own, key=lambda piece: own[piece])
    turned = [*in_order[:5], *reversed(in_order[5:])]
    few = [*in_order[:-1], "zebra"]
    for name, pieces in (("turned", turned), ("few", few)):
        (tmp_path / f"{name}.txt").write_text("\n".join(pieces) + "\n")
        BertTokenizerFast(vocab=str(tmp_path / f"{name}.txt")).save_pretrained(tmp_path / name)
    tree: dict[str, Any] = {
        "model": {"name": str(pretrained.path), "tokenizer": str(tmp_path / "turned")},
        "tasks": [{"name": "toy/sentiment", "train_rows": 16, "dev_rows": 8}],
        "train": {"max_steps": 1, "batch_size": 8, "max_length": 32},
    }
    with pytest.raises(UserError, match=r"model\.tokenizer: it does not fit .* of its ids mean other tokens"):
        run(tree, tmp_path / "refused")
    tree["model"]["tokenizer"] = str(tmp_path / "few")
    assert "1 of its ids mean other tokens" in run(tree, tmp_path / "noted").log_file.read_text()
    tree["model"]["tokenizer"] = str(locate.resolve(str(pretrained.path)).path)
    assert "mean other tokens" not in run(tree, tmp_path / "own").log_file.read_text()


@pytest.mark.slow(0.5)
@pytest.mark.parametrize("objective", ["electra", "mlm"])
def test_P42_a_head_that_is_taken_over_is_not_called_left_out(
    pretrained: RunDir, tmp_path: Path, objective: str
) -> None:
    short = {"max_steps": 1, "keep_at": [], "evaluate": "never"}
    begin = (
        pretrained if objective == "electra" else run(settings({"kind": "mlm"}, "bert", train=short), tmp_path / "a")
    )
    tree = settings({"kind": objective}, train=short)
    tree["model"] = {"name": str(begin.path)}
    assert "left out" not in run(tree, tmp_path / "b").log_file.read_text()
    tree["tasks"][0]["objective"] = {"kind": "mlm"} if objective == "electra" else {"kind": "electra"}
    assert "left out: " in run(tree, tmp_path / "c").log_file.read_text()  # this time it is


@pytest.mark.slow(0.5)
def test_pretraining_goes_on_with_generator_and_head(pretrained: RunDir, tmp_path: Path) -> None:
    tree = settings({"kind": "electra"}, train={"max_steps": 1, "evaluate": "end"})
    tree["model"] = {"name": str(pretrained.path)}
    tree["optim"] = ADAM | {"warmup": 0.9}  # the first step moves nothing: what is scored is what was taken over
    again = run(tree, tmp_path / "again")
    before, after = (x.read_scores()["scores"]["toy/corpus:dev"] for x in (pretrained, again))
    assert after == pytest.approx(before, abs=1e-6)
    assert "is new" not in again.log_file.read_text()


def test_going_on_takes_the_rate_that_google_advises() -> None:
    """A new run has a schedule of its own, so no rate needs to be raised: it is wanted · (1 - t / ΔT)."""
    wanted, before, more = 2e-4, 1_000_000, 200_000
    theirs = optim.schedule(OptimOptions(warmup=10_000, warmup_style="simultaneous"), before + more)
    ours = optim.schedule(OptimOptions(warmup=0, warmup_style="simultaneous"), more)
    raised = wanted * (before + more) / more
    for t in (0, 1, 1000, 199_999):
        assert wanted * ours(t) == pytest.approx(raised * theirs(before + t), rel=1e-9)


@pytest.mark.slow(0.5)
def test_mlm_scores_and_full_blocks_of_a_modern_encoder(tmp_path: Path) -> None:
    tree = settings({"kind": "mlm", "masking": {"probability": 0.3}}, "modernbert", task={"blocks": "full"})
    tree["model"]["new"]["config"] |= {"max_position_embeddings": 64, "local_attention": 16}
    tree["optim"] = {"lr": 1e-3, "schedule": "wsd", "warmup": 0.2}
    done = run(tree, tmp_path / "m")
    found = done.read_scores()["scores"]["toy/corpus:dev"]
    assert set(found) == set(MLM)
    assert found["perplexity"] == pytest.approx(np.exp(found["loss"]))
    from transformers import AutoModelForMaskedLM

    _, report = AutoModelForMaskedLM.from_pretrained(done.model, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]


def test_full_blocks_are_read_text_by_text() -> None:
    from encodery.training.build import build, find_inputs

    tree = settings({"kind": "mlm"}, "bert", task={"blocks": "full"}, train={"layout": "rows"})
    resolved = resolve(tree)
    batches = build(resolved, find_inputs(resolved)).batches
    rows = batches.rows_at(0)
    micro = batches.at(0)
    read = batches.table.texts  # type: ignore[attr-defined]
    texts = read.of(rows)
    lengths = read.lengths[texts]
    assert len(texts) > len(rows)
    assert sorted(int(n) for batch in micro for n in batch.layout.lengths) == sorted(lengths.tolist())
    first = {int(batch.tokens(batch.inputs["input_ids"])[0]) for batch in micro}
    assert first == {2}  # every text begins with [CLS]
    assert sum(map(len, micro)) == len({int(i) for batch in micro for i in batch.ids})


@pytest.mark.slow(0.5)
@pytest.mark.parametrize("method", ["freelb", "rdrop", "sam"])
def test_methods_work_on_pretraining(method: str, tmp_path: Path) -> None:
    tree = settings(
        {"kind": "electra"}, method={"kind": method}, train={"max_steps": 2, "evaluate": "end", "keep_at": []}
    )
    assert np.isfinite(run(tree, tmp_path / "run").read_scores()["scores"]["toy/corpus:dev"]["loss"])


@pytest.mark.slow
def test_what_plain_text_cannot_do_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"with model\.tune: lora set it to \[\]"):
        run(settings({"kind": "mlm"}, model={"tune": "lora"}), tmp_path / "d")
    with pytest.raises(UserError, match="use held_out of the task"):
        run(settings({"kind": "mlm"}, train={"holdout": 0.1}), tmp_path / "a")
    with pytest.raises(UserError, match=r"train\.select: best needs scores"):
        run(settings({"kind": "mlm"}, task={"held_out": 0.0}, train={"select": "best"}), tmp_path / "b")
    with pytest.raises(UserError, match="electra works on electra, bert, amos, modernbert encoders, not on roberta"):
        run(settings({"kind": "electra"}, "roberta"), tmp_path / "c")


# Scores


def test_scores_are_means_of_sums() -> None:
    one = {"asked": 4.0, "mlm_loss": 8.0, "mlm_right": 1.0}
    one |= {"masked_asked": 3.0, "masked_mlm_loss": 8.0, "masked_mlm_right": 0.0}
    two = {"asked": 6.0, "mlm_loss": 2.0, "mlm_right": 4.0}
    two |= {"masked_asked": 1.0, "masked_mlm_loss": 1.0, "masked_mlm_right": 1.0}
    means = {"loss": 1.0, "perplexity": pytest.approx(2.718281828), "accuracy": 0.5}
    assert scores(add_up([one, two])) == means | {"masked_loss": 2.25, "masked_accuracy": 0.25}


def test_area_under_the_curve_equals_counting_pairs() -> None:
    rng = np.random.default_rng(0)
    no, yes = rng.integers(0, 5, 12).tolist(), rng.integers(0, 5, 12).tolist()
    pairs = [(i, j) for i, n in enumerate(no) for _ in range(n) for j, y in enumerate(yes) for _ in range(y)]
    assert area(no, yes) == pytest.approx(np.mean([1.0 if j > i else 0.5 if j == i else 0.0 for i, j in pairs]))
    assert area([0, 3], [0, 0]) == 0.5


# FLOPs (spec 4)

SIZES = {"small": (12, 256, 128, 0.25), "base": (12, 768, 768, 1 / 3), "large": (24, 1024, 1024, 0.25)}


def net(size: str, share: float = 1.0) -> flops.Net:
    layers, width, embedding, _ = SIZES[size]
    h = round(width * share)
    return flops.Net(h, 4 * h, embedding, 30522, (None,) * layers)


@pytest.mark.parametrize(
    ("size", "length", "ratio"),
    [
        ("small", 128, 1.32),
        ("small", 512, 1.31),
        ("base", 128, 1.30),
        ("base", 512, 1.31),
        ("large", 128, 1.15),
        ("large", 512, 1.16),
    ],
)
def test_cost_of_electra_beside_mlm_by_the_formula_of_the_reference(size: str, length: int, ratio: float) -> None:
    lengths, asked = np.array([length]), 0.15 * length
    one = flops.electra(net(size), net(size, SIZES[size][3]), lengths, asked, dense=True)
    assert one / flops.mlm(net(size), lengths, asked, dense=True) == pytest.approx(ratio, abs=0.011)


def test_local_attention_costs_less() -> None:
    lengths = np.array([100, 20])
    wide, narrow = (flops.Net(8, 16, 8, 50, (w,)).forward(lengths) for w in (None, 10))
    assert wide - narrow == 4 * 8 * (100 * 90 + 20 * 10)


COUNTED = [
    ("electra", {"kind": "electra", "generator_size": 0.5}),
    ("bert", {"kind": "electra", "generator_size": 0.5}),
    ("amos", {"kind": "electra", "generator_size": 1, "generator_layers": 0.5}),
    ("amos", {"kind": "amos", "reversal": 0}),
    ("electra", {"kind": "amos", "reversal": 0}),
    ("amos", {"kind": "mlm"}),
    ("electra", {"kind": "mlm"}),
    ("modernbert", {"kind": "mlm"}),
    ("albert", {"kind": "mlm"}),
]


@pytest.mark.parametrize(("kind", "objective"), COUNTED, ids=lambda one: one if isinstance(one, str) else one["kind"])
def test_P37_the_formula_counts_what_a_forward_pass_multiplies(kind: str, objective: dict[str, Any]) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    from encodery.training.build import build, find_inputs

    resolved = resolve(settings(objective, kind, train={"layout": "rows"}))
    made = build(resolved, find_inputs(resolved))
    question, batch = made.model.objective("toy/corpus"), made.batches.stream("toy/corpus").alone(0)  # no padding
    for net in [made.model.encoder.net, *(part.encoder.net for part in [getattr(question, "generator", None)] if part)]:
        net.set_attn_implementation("eager")  # products that the counter sees
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        question.eval()(made.model.encoder.eval(), batch)
    cost = flops.step(question, made.model.encoder.net.config, batch.layout.lengths.numpy())
    assert cost == flops.TRAINING * counter.get_total_flops()


# The optimiser


def test_P14_the_first_step_is_3_162_times_the_rate() -> None:
    p = nn.Parameter(torch.randn(50, 4, dtype=torch.float64))
    before = p.detach().clone()
    one = optim.Optimizer([optim.Param("p", p, None)], OptimOptions(lr=1e-3, bias_correction=False, weight_decay=0), 1)
    p.grad = torch.randn_like(p) + 0.5
    one.step(1.0)
    moved = ((p.detach() - before).abs() / 1e-3)[p.grad.abs() > 0.1]
    assert moved.numpy() == pytest.approx(3.1623, rel=1e-3)


def test_P15_rates_of_electra_small() -> None:
    tree = resolve({"extends": "recipe:pretrain/electra-small"}).config
    factor = optim.schedule(tree.optim, 1_000_000)
    found = [tree.optim.lr * factor(step) for step in (0, 5000, 10_000, 500_000)]
    assert found == pytest.approx([0.0, 2.4875e-4, 4.95e-4, 2.5e-4])


def test_P16_weight_decay_spares_biases_and_norms() -> None:
    from encodery.training.build import build, find_inputs, make_optimizer

    resolved = resolve(settings({"kind": "electra"}, optim={"lr": 0.1, "weight_decay": 0.5}))
    model = build(resolved, find_inputs(resolved)).model
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    make_optimizer(model, resolved.config).step(1.0)
    for name, p in model.named_parameters():
        spared = "LayerNorm" in name or name.endswith("bias")
        assert torch.equal(p, before[name] if spared else before[name] * (1 - 0.1 * 0.5)) or (
            not spared and torch.allclose(p, before[name] * 0.95, rtol=1e-6)
        ), name


def two_sources(tmp_path: Path, **options: Any) -> dict[str, Any]:
    """Many documents in one file, few in the other, drawn by shares."""
    (tmp_path / "many.txt").write_text("\n\n".join(documents(0, 90)))
    (tmp_path / "few.txt").write_text("\n\n".join(documents(1, 10)))
    tree = settings({"kind": "mlm"}, train={"max_steps": 30, "evaluate": "end", "keep_at": []})
    tree["model"]["tokenizer"] = "toy"
    files = [str(tmp_path / "many.txt"), str(tmp_path / "few.txt")]
    corpus: dict[str, Any] = {"name": "corpus", "files": files, "held_out": 0.1, "objective": {"kind": "mlm"}}
    tree["tasks"] = [corpus | options]
    return tree


def drawn_of_few(tree: dict[str, Any], steps: int = 30) -> float:
    """Share of the drawn blocks that are of the second file."""
    resolved = resolve(tree)
    parts = build_parts(resolved, find_inputs(resolved))
    table: Any = parts.tasks_data[0].train.table
    begin = table.sources()[1][0]
    rows = np.concatenate([parts.batches.stream("corpus").rows_at(step) for step in range(steps)])
    return float((rows >= begin).mean())


@pytest.mark.slow(0.5)
def test_sources_of_a_corpus_are_drawn_by_shares(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain, mixed = two_sources(tmp_path), two_sources(tmp_path, shares=[1, 1])
    assert drawn_of_few(plain) < 0.2
    assert drawn_of_few(mixed, 125) == pytest.approx(0.5, abs=0.01)  # 1000 places are one block
    done = train_run(resolve(mixed), tmp_path / "run", progress=Progress())
    assert "sources by shares, in an epoch: 50.0% of the blocks" in capsys.readouterr().err
    mixed["train"]["max_steps"] = 12
    again = train_run(resolve(mixed), tmp_path / "short", progress=Progress(quiet=True))
    assert metrics_of(done)[0] == metrics_of(again)[0]


@pytest.mark.slow
def test_shares_of_a_prepared_corpus_may_be_chosen_later(tmp_path: Path) -> None:
    tree = two_sources(tmp_path)
    corpus = Corpus.model_validate({"files": tree["tasks"][0]["files"], "held_out": 0.1, "keep_overflow": True})
    prepare(tmp_path / "blocks", corpus, TokenizerPieces(toy_tokenizer()), 48, workers=1)
    entry = {"name": "corpus", "prepared": str(tmp_path / "blocks"), "objective": {"kind": "mlm"}}
    tree["tasks"] = [entry | {"shares": [1, 3]}]
    assert drawn_of_few(tree, 125) == pytest.approx(0.75, abs=0.01)
    tree["tasks"] = [entry | {"shares": [1, 3, 2]}]
    with pytest.raises(UserError, match="3 numbers, and corpus has 2 sources"):
        drawn_of_few(tree)
    table = BlockTable(tmp_path / "blocks", "train")
    assert sum(table.about.pop("sources")) == 100
    with pytest.raises(UserError, match="does not record its sources; prepare it again"):
        table.sources()  # as of an earlier version


@pytest.mark.parametrize(("shares", "sentence"), [
    ([1], "two or more numbers above 0"),
    ([1, 0], "two or more numbers above 0"),
    ([1, 2, 3], "3 numbers for 2 entries of files"),
])  # fmt: skip
def test_shares_that_fit_no_corpus_are_refused(tmp_path: Path, shares: list[float], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        resolve(two_sources(tmp_path, shares=shares))
