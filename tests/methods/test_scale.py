"""Lengths relative to the encoder's tokens, and the line on what perturbations do before training."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from encodery.analysis.attack import Attack, under_attack
from encodery.config.load import load
from encodery.inference.classifier import open_classifier
from encodery.inference.task_argument import TaskSplit
from encodery.methods._perturbation import Perturbation
from encodery.methods._scale import token_norm
from encodery.methods.alum import Alum
from encodery.methods.fgm import FGM
from encodery.methods.fgsm import FGSM
from encodery.methods.freeat import FreeAT
from encodery.methods.freelb import FreeLB
from encodery.methods.pgd import PGD
from encodery.methods.r3f import R3F
from encodery.methods.r4f import R4F
from encodery.methods.sift import Sift
from encodery.methods.smart import Smart
from encodery.methods.vat import VAT
from encodery.methods.yopo import YOPO
from tests.methods.attacks import bench
from tests.toolbox.models import KINDS, small_encoder
from tests.toolbox.runs import run, settings, weights_of
from tests.training.test_session import stop_at

CASES: list[tuple[type[Perturbation], dict[str, Any]]] = [
    (FreeLB, {"adv_lr": 0.2, "init_mag": 0.1, "max_norm": 0.25}),
    (FreeLB, {"adv_lr": 0.2, "init_mag": 0.1, "max_norm": 0.25, "norm": "linf"}),
    (PGD, {"adv_lr": 0.2, "init_mag": 0.1, "max_norm": 0.25}),
    (FreeAT, {"adv_lr": 0.2, "init_mag": 0.1, "max_norm": 0.25}),
    (YOPO, {"adv_lr": 0.2, "init_mag": 0.1, "max_norm": None}),
    (FGM, {"epsilon": 0.5}),
    (FGM, {"epsilon": 0.5, "target": "matrix"}),
    (FGSM, {"epsilon": 0.5}),
    (VAT, {"epsilon": 0.5, "xi": 0.01}),
    (R3F, {"eps": 0.1}),
    (R4F, {"eps": 0.1, "noise": "normal"}),
    (Smart, {"adv_lr": 0.1, "init_mag": 0.1, "max_norm": 0.2, "norm": "l2"}),
    (Alum, {"adv_lr": 0.1, "init_mag": 0.1, "max_norm": 0.2}),
    (Sift, {"adv_lr": 0.1, "init_mag": 0.1, "max_norm": 0.2}),
]
OF_NUMBERS = {"eps"}  # whatever the norm


def word_norm(net: Any, pad: int) -> float:
    """The mean norm of all words but padding."""
    rows = net.get_input_embeddings().weight.tolist()
    norms = [sum(x * x for x in row) ** 0.5 for number, row in enumerate(rows) if number != pad]
    return sum(norms) / len(norms)


@pytest.mark.parametrize(("method", "lengths"), CASES)
def test_A30_a_relative_step_is_the_absolute_one(method: type[Perturbation], lengths: dict[str, Any]) -> None:
    made = bench(dropout=0.1)
    net, options = made.model.encoder.net, method(**lengths, scale="token_norm")
    width = net.get_input_embeddings().weight.shape[1]
    unit = width**0.5 if method is Sift else float(f"{word_norm(net, made.model.encoder.form.pad_id):.6g}")
    single = {key for key in lengths if options.norm == "linf" or key in OF_NUMBERS}
    single |= {"init_mag"} if method in (Smart, Alum, Sift) else set()
    sizes = {
        key: value * (unit / width**0.5 if key in single else unit) if isinstance(value, float) else value
        for key, value in lengths.items()
    }
    relative, absolute = (made.step(one.start(made.model))[0] for one in (options, method(**sizes)))
    assert all(torch.equal(grad, absolute[name]) for name, grad in relative.items())
    other = made.step(method(**lengths).start(made.model))[0]
    assert method is Sift or any(not torch.equal(grad, other[name]) for name, grad in relative.items())


def test_a_relative_method_is_not_called_without_start() -> None:
    made = bench()
    with pytest.raises(TypeError, match=r"start\(model\)"):
        made.step(FreeLB(scale="token_norm"))


@pytest.mark.parametrize("kind", KINDS)
def test_A30_after_the_embedding_layer_the_norm_is_that_of_its_output(kind: str) -> None:
    encoder = small_encoder(kind, "rows", dropout=0.1).train()
    found = token_norm(encoder, "embedding_output")
    encoder.eval()
    seen: list[float] = []
    handle = encoder.net.embeddings.register_forward_hook(
        lambda _m, _i, out: seen.extend(torch.linalg.vector_norm(out[:, 0], dim=1).tolist())
    )
    ids = torch.tensor([i for i in range(61) if i != encoder.form.pad_id])
    encoder.net(input_ids=ids[:, None], attention_mask=torch.ones(60, 1, dtype=torch.long))
    handle.remove()
    assert found == pytest.approx(float(np.mean(seen)), rel=1e-5)


def relative(folder: Path, **more: Any) -> dict[str, Any]:
    method = {"kind": "freelb", "scale": "token_norm", "adv_lr": 0.3, "init_mag": 0.2, "max_norm": 0.5, **more}
    return settings(folder, method=method, train={"save": "2 steps", "epochs": 1})


@pytest.mark.slow
def test_A31_a_resumed_run_has_the_same_radius_to_the_bit(tmp_path: Path) -> None:
    whole = run(relative(tmp_path), tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run(relative(tmp_path), tmp_path / "killed", watch=stop_at(5))
    killed = run(relative(tmp_path), tmp_path / "killed")
    assert all(torch.equal(value, weights_of(whole)[key]) for key, value in weights_of(killed).items())


@pytest.mark.slow
def test_A32_the_line_at_the_start_tells_and_changes_nothing(tmp_path: Path) -> None:
    told = run(relative(tmp_path), tmp_path / "told")
    silent = run(relative(tmp_path, log_attack=0), tmp_path / "silent")
    assert "take the loss before training from" in told.log_file.read_text()
    assert "before training" not in silent.log_file.read_text()
    assert all(torch.equal(value, weights_of(silent)[key]) for key, value in weights_of(told).items())
    about = told.info()["perturbation"]
    assert about["reach"] == pytest.approx(0.5 * about["unit"])
    assert about["loss_perturbed"] > about["loss"] > 0


def confident(made: Any) -> Any:
    """The micro-batch with the labels that the model gives, whose head is made sure of them: the loss is small."""
    with torch.no_grad():
        made.model.objective("t").head.out.weight.mul_(20)
        outputs, _ = made.model.eval()(made.micro[0])
    return replace(made.micro[0], targets={"label": outputs["logits"].argmax(1)})


def test_A32_a_ball_that_more_than_doubles_the_loss_is_warned_of() -> None:
    made = bench(head="linear", dropout=0.1)
    sure = confident(made)
    small, large = (FreeLB(adv_lr=r, init_mag=0.0, max_norm=r).preview(made.model, sure) for r in (1e-4, 10.0))
    assert small is not None
    assert large is not None
    assert not small.line().startswith("WARNING")
    assert large.worst > 2 * large.clean
    assert large.line().startswith("WARNING")
    assert all(parameter.grad is None for parameter in made.model.parameters())
    made.model.eval()
    _, terms = made.model(sure)
    assert small.clean == large.clean == pytest.approx(float(terms["t", "loss"].detach()) / len(sure))


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_A33_relative_radii_of_an_attack(norm: Any, trained: Any) -> None:
    model = open_classifier(trained("single"))
    asked = TaskSplit(load(trained("single")).tasks[0][0], "dev")
    encoder = model.model.encoder
    unit = float(f"{word_norm(encoder.net, encoder.form.pad_id):.6g}")
    unit /= encoder.width**0.5 if norm == "linf" else 1
    (found,) = under_attack(model, asked, [0.5], Attack("pgd", 2, norm, "token_norm"))
    (wanted,) = under_attack(model, asked, [0.5 * unit], Attack("pgd", 2, norm))
    assert found.radius == 0.5
    assert found.loss == wanted.loss


@pytest.mark.slow
def test_A33_the_command_says_what_radii_count_in(trained: Any, tmp_path: Path, capsys: Any) -> None:
    from encodery.cli import main

    run, out = str(trained("single")), str(tmp_path / "out")
    given = ["evaluate", run, "--on", run, "--attack", "fgsm", "-o", out]
    assert main([*given, "--radius", "0,0.5", "--radius-scale", "token_norm"]) == 0
    assert "in multiples of each model's mean token norm" in capsys.readouterr().out
    assert list((tmp_path / "out" / "attacks").glob("*-l2-token_norm.json"))
