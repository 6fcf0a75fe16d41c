"""FreeLB and PGD: the statements A1 to A26 that concern them, over architectures and layouts."""

import math
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from encodery.config import load
from encodery.data.batches import Batch
from encodery.data.layouts import Rows
from encodery.errors import UserError
from encodery.methods._perturbation import Space
from encodery.methods.base import losses_of, notes_of
from encodery.methods.freelb import FreeLB
from encodery.methods.pgd import PGD
from encodery.models.kernels.dropout import Draws
from tests.methods.attacks import KINDS, PLACES, Bench, bench, lengthened
from tests.toolbox.models import furthest, small_encoder

places = pytest.mark.parametrize(("kind", "layout"), PLACES)
layouts = pytest.mark.parametrize("layout", ["packed", "rows"])
BOTH = [FreeLB, PGD]


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@places
def test_A1_one_clean_pass_is_plain_training_to_the_bit(kind: str, layout: str) -> None:
    made = bench(kind, layout, dropout=0.1)
    assert same(made.step(FreeLB(steps=1, init_mag=0.0, adv_lr=7.0))[0], made.plain())


@places
def test_A2_A11_three_passes_at_one_point_give_the_mean_gradient(kind: str, layout: str) -> None:
    made = bench(kind, layout, dropout=0.1)
    plain = made.plain()
    options: dict[str, Any] = {"steps": 3, "adv_lr": 0.0, "init_mag": 0.0}
    assert furthest(made.step(FreeLB(**options))[0], plain) < 1e-6
    assert furthest(made.step(FreeLB(**options, consistent_dropout=False))[0], plain) > 1e-4


@places
def test_A11_passes_that_share_their_draws_are_those_that_draw_anew(
    kind: str, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = bench(kind, layout, dropout=0.1)
    shared = made.step(FreeLB())[0]
    monkeypatch.setattr(Draws, "shared", lambda _: nullcontext())
    assert same(shared, made.step(FreeLB())[0])


STARTS = [(48, [16] * 40), (48, [64] * 10), (48, [3, 30] * 20), (8, [40] * 60), (200, [3, 30] * 20)]


@layouts
@pytest.mark.parametrize(("width", "lengths"), STARTS)
def test_A3_the_random_start_has_norm_init_mag_by_root_3(layout: str, width: int, lengths: list[int]) -> None:
    made = bench("albert", layout, lengths=lengths, more={"embedding_size": width, "max_position_embeddings": 80})
    norms = torch.cat([made.norms(made.trace(FreeLB(steps=1, init_mag=0.2))[0])])
    assert float(norms.mean()) == pytest.approx(0.2 / math.sqrt(3), rel=0.01)
    assert float(norms.max()) <= 0.2


@pytest.mark.slow(0.5)
@given(
    st.integers(1, 100), st.lists(st.integers(1, 30), min_size=1, max_size=20), st.floats(1e-3, 10), st.integers(0, 99)
)
def test_A3_every_number_is_uniform_within_its_share_of_init_mag(
    width: int, lengths: list[int], size: float, noise: int
) -> None:
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    batch = Batch("t", {}, {}, torch.arange(len(lengths)), Rows(mask), noise=noise)
    drawn = Space(batch, torch.ones(sum(lengths), dtype=torch.bool), width, "l2", "example").draw(size)
    tokens = torch.tensor(lengths).repeat_interleave(torch.tensor(lengths))
    units = drawn.double() * (tokens * width).sqrt()[:, None] / size
    assert units.shape == (sum(lengths), width)
    assert float(units.abs().max()) <= 1 + 1e-6
    assert abs(float(units.square().mean()) - 1 / 3) < 6 * math.sqrt(4 / 45 / units.numel())


def test_A3_without_special_tokens_the_size_is_the_same() -> None:
    made = bench("albert", lengths=[40] * 20, more={"embedding_size": 48})
    made.model.encoder.special_ids = (0,)  # the tables here begin with id 0
    (delta,) = made.trace(FreeLB(steps=1, init_mag=0.2, perturb_special_tokens=False))
    assert not delta[:, 0].any()
    assert delta[:, 1:].abs().amin() > 0
    assert float(made.norms(delta).mean()) == pytest.approx(0.2 / math.sqrt(3), rel=0.01)


def test_special_tokens_that_nobody_knows_are_an_error() -> None:
    with pytest.raises(UserError, match="special"):
        bench().step(FreeLB(perturb_special_tokens=False))


@places
def test_A4_A6_A19_perturbations_stay_in_the_ball_and_off_the_padding(kind: str, layout: str) -> None:
    made = bench(kind, layout)
    seen = made.trace(FreeLB(steps=4, adv_lr=0.3, init_mag=0.1, max_norm=0.35))
    assert len(seen) == 4
    assert {one.shape[2] for one in seen} == {made.model.encoder.net.get_input_embeddings().weight.shape[1]}
    assert all(float(made.norms(one).max()) <= 0.35 * (1 + 1e-5) for one in seen[1:])
    assert float(made.norms(seen[3]).max()) > 0.34
    if layout == "rows":
        assert all(not one[made.micro[0].inputs["attention_mask"] == 0].any() for one in seen)


@pytest.mark.parametrize("kind", ["albert", "electra"])
def test_A19_small_embeddings_get_small_perturbations(kind: str) -> None:
    for site in ("word", "embedding_output"):
        made = bench(kind, more={"embedding_size": 8, "hidden_size": 16})
        assert {one.shape[2] for one in made.trace(FreeLB(site=site))} == {8}


def test_A4_without_a_limit_nothing_is_scaled() -> None:
    made = bench()
    for limit in (None, 0.0):
        seen = made.trace(FreeLB(steps=4, adv_lr=0.5, init_mag=0.0, max_norm=limit))
        assert float(made.norms(seen[3]).max()) > 1.2


@layouts
def test_A5_norms_grow_by_adv_lr_at_most(layout: str) -> None:
    made = bench(layout=layout)
    seen = made.trace(FreeLB(steps=4, adv_lr=0.2, init_mag=0.0, max_norm=None))
    for k, one in enumerate(seen):
        assert float(made.norms(one).max()) <= k * 0.2 * (1 + 1e-5)
    assert torch.allclose(made.norms(seen[1]), torch.tensor(0.2, dtype=torch.float64), rtol=1e-5)


@pytest.mark.parametrize("pad", [0, 1, 3])
@pytest.mark.parametrize("method", BOTH)
def test_A6_padding_is_never_perturbed_whatever_its_id(pad: int, method: Any) -> None:
    made = bench(more={"pad_token_id": pad})
    assert made.model.encoder.form.pad_id == pad
    for one in made.trace(method(adv_lr=1.0, init_mag=1.0)):
        padding = made.micro[0].inputs["attention_mask"] == 0
        assert padding.any()
        assert not one[padding].any()
        assert one[~padding].any(1).all()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_A7_more_padding_changes_nothing(kind: str) -> None:
    made = bench(kind)
    longer = lengthened(made, 20)
    options: dict[str, Any] = {"steps": 3, "adv_lr": 0.1, "init_mag": 0.2}
    (one, terms), (two, others) = made.step(FreeLB(**options)), longer.step(FreeLB(**options))
    assert furthest(one, two) < 1e-5
    assert furthest(losses_of(terms), losses_of(others)) < 1e-5
    a, b = made.trace(FreeLB(**options)), longer.trace(FreeLB(**options))
    assert torch.equal(a[0], b[0][:, : a[0].shape[1]])


@pytest.mark.slow(0.5)
def test_A7_packed_and_rows_perturb_alike() -> None:
    for kind in ("bert", "roberta", "electra"):
        one, two = bench(kind, "packed"), bench(kind, "rows")
        assert furthest(one.step(FreeLB())[0], two.step(FreeLB())[0]) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("method", BOTH)
def test_A8_A12_examples_are_independent_of_order_and_micro_batches(method: Any) -> None:
    made, cut = bench(), bench(most=3)
    assert len(cut.micro) == 3
    batch = made.micro[0]
    order = torch.tensor([3, 0, 7, 1, 6, 2, 5, 4])
    inputs = {name: values[order] for name, values in batch.inputs.items()}
    layout = Rows(batch.layout.mask[order])  # type: ignore[union-attr]
    turned = replace(
        batch, inputs=inputs, targets={"label": batch.targets["label"][order]}, ids=batch.ids[order], layout=layout
    )
    options: dict[str, Any] = {"steps": 3, "adv_lr": 0.2, "init_mag": 0.2}
    for one, two in zip(
        made.trace(method(**options)), Bench(made.model, [turned]).trace(method(**options)), strict=True
    ):
        assert torch.allclose(one[order], two, atol=1e-5)
    whole = made.step(method(**options))[0]
    assert furthest(whole, Bench(made.model, [turned]).step(method(**options))[0]) < 1e-5
    assert furthest(whole, cut.step(method(**options))[0]) < 1e-5


@pytest.mark.slow
@places
def test_A12_two_micro_batches_are_one_batch(kind: str, layout: str) -> None:
    lengths = [5, 9] * 8
    whole, cut = bench(kind, layout, lengths=lengths), bench(kind, layout, lengths=lengths, most=8)
    assert [len(batch) for batch in cut.micro] == [8, 8]
    assert furthest(whole.step(FreeLB(adv_lr=0.0))[0], cut.step(FreeLB(adv_lr=0.0))[0]) < 1e-6


@pytest.mark.parametrize("method", BOTH)
@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("scope", ["example", "token"])
def test_A9_an_example_without_gradient_stays_finite(method: Any, norm: str, scope: str) -> None:
    made = bench()
    made.micro = [replace(made.micro[0], weights=torch.tensor([0.0] + [1.0] * 7))]
    seen = made.trace(method(norm=norm, norm_scope=scope, init_mag=0.0))
    assert all(torch.isfinite(one).all() for one in seen)
    assert not seen[2][0].any()
    assert seen[2][1].any()


@pytest.mark.slow
@pytest.mark.parametrize("method", BOTH)
def test_A10_a_scaled_loss_climbs_the_same_way(method: Any) -> None:
    made = bench()
    for one, two in zip(made.trace(method()), made.trace(method(), scale=1024.0), strict=True):
        assert torch.allclose(one, two, rtol=1e-3, atol=1e-7)
    tiny = made.trace(method(), scale=1e-25)
    assert torch.allclose(made.trace(method())[2], tiny[2], rtol=1e-3, atol=1e-7)


@places
def test_A15_no_hook_remains_and_evaluation_is_untouched(kind: str, layout: str) -> None:
    made = bench(kind, layout)
    model = made.model.eval()
    before = model.outputs(made.micro[0])["logits"]
    for site in ("word", "embedding_output"):
        made.step(FreeLB(site=site))
        model.eval()
        assert torch.equal(model.outputs(made.micro[0])["logits"], before)
        assert not [name for name, part in model.named_modules() if part._forward_hooks]


def test_A15_a_perturbation_of_another_shape_is_refused_and_leaves_no_hook() -> None:
    made = bench()
    with pytest.raises(RuntimeError, match="perturbation"), made.model.encoder.perturbed(torch.zeros(1, 1, 16)):
        made.model(made.micro[0])
    assert made.model.encoder.delta is None
    assert not made.model.encoder.net.get_input_embeddings()._forward_hooks


@places
def test_A16_the_embedding_table_is_trained(kind: str, layout: str) -> None:
    made = bench(kind, layout)
    table = made.model.encoder.net.get_input_embeddings().weight
    made.step(FreeLB())
    assert table.grad is not None
    assert table.grad.abs().max() > 0


@pytest.mark.slow(0.5)
@pytest.mark.parametrize("method", BOTH)
def test_A18_the_same_seed_gives_the_same_perturbations(method: Any) -> None:
    one, two, other = bench(dropout=0.1), bench(dropout=0.1), bench(dropout=0.1, step=1)
    assert all(torch.equal(a, b) for a, b in zip(one.trace(method()), two.trace(method()), strict=True))
    assert same(one.step(method())[0], two.step(method())[0])
    assert not torch.equal(one.trace(method())[0][:, :3], other.trace(method())[0][:, :3])


@pytest.mark.parametrize("kind", KINDS)
def test_A20_left_padding_is_no_trouble(kind: str) -> None:
    encoder = small_encoder(kind, "rows")
    mask = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
    ids = torch.tensor([[1, 1, 0, 9, 7], [0, 5, 8, 30, 6]])
    batch = Batch("t", {"input_ids": ids, "attention_mask": mask}, {}, torch.arange(2), Rows(mask.bool()))
    plain = encoder(batch)
    width = encoder.site_width("word")
    with encoder.perturbed(torch.zeros(2, 5, width)):
        assert torch.equal(encoder(batch), plain)
    with encoder.perturbed(torch.arange(10.0 * width).view(2, 5, width).sin()):
        assert not torch.allclose(encoder(batch), plain)


@layouts
@pytest.mark.parametrize("method", BOTH)
def test_A21_linf_moves_the_largest_number_by_adv_lr(layout: str, method: Any) -> None:
    made = bench(layout=layout)
    seen = made.trace(method(steps=2, adv_lr=0.25, init_mag=0.0, max_norm=None, norm="linf"))
    largest = made.micro[0].per_sequence(seen[1].abs().amax(2), "max")
    assert torch.equal(largest, torch.full_like(largest, 0.25))
    seen = made.trace(method(steps=3, adv_lr=0.25, init_mag=0.1, max_norm=0.3, norm="linf"))
    assert float(seen[0].abs().max()) <= 0.1
    assert float(seen[2].abs().max()) == pytest.approx(0.3)


def test_norms_per_token_limit_every_token() -> None:
    made = bench()
    seen = made.trace(FreeLB(steps=3, adv_lr=0.2, init_mag=0.1, max_norm=0.25, norm_scope="token"))
    sizes = [one.norm(dim=2)[made.micro[0].inputs["attention_mask"] == 1] for one in seen]
    assert float(sizes[0].max()) <= 0.1
    assert float(sizes[0].mean()) == pytest.approx(0.1 / math.sqrt(3), rel=0.05)
    assert float(sizes[2].max()) <= 0.25 * (1 + 1e-5)
    assert float(sizes[2].min()) > 0.1


@places
def test_A22_pgd_without_ascents_is_plain_and_uses_the_last_point_only(kind: str, layout: str) -> None:
    made = bench(kind, layout, dropout=0.1)
    assert same(made.step(PGD(steps=1, init_mag=0.0))[0], made.plain())
    with made.spied() as seen:
        got = made.step(PGD(steps=3, adv_lr=0.3))[0]
    with made.model.encoder.perturbed(seen[2]):
        assert same(got, made.plain())


@pytest.mark.parametrize("method", BOTH)
def test_A23_ascent_steps_is_steps_less_one(method: Any) -> None:
    assert method.model_validate({"ascent_steps": 2}) == method(steps=3)
    assert method.model_validate_json('{"ascent_steps": 0}').steps == 1
    for wrong in ({"ascent_steps": 2, "steps": 3}, {"ascent_steps": -1}, {"ascent_steps": 1.5}):
        with pytest.raises(ValidationError, match="ascent"):
            method.model_validate(wrong)


def test_A23_the_config_says_so_in_a_sentence() -> None:
    tree: dict[str, Any] = {"model": "some", "tasks": "toy/nli"}
    one = load.load({**tree, "method": {"kind": "freelb", "ascent_steps": 2}})
    assert one.config.method == load.load({**tree, "method": {"kind": "freelb", "steps": 3}}).config.method
    with pytest.raises(UserError, match=r"method: give steps \(all passes\) or ascent_steps \(one less\), not both\.$"):
        load.load({**tree, "method": {"kind": "freelb", "ascent_steps": 2, "steps": 3}})


@places
def test_A26_the_loss_climbs(kind: str, layout: str) -> None:
    made = bench(kind, layout)
    terms = made.step(PGD(steps=2, adv_lr=1e-2, init_mag=0.0, log_attack=1))[1]
    notes = notes_of(terms)
    assert notes["loss_adv"] > notes["loss_clean"]
    assert notes["loss_1"] == pytest.approx(notes["loss_clean"])


@pytest.mark.slow
def test_the_log_has_what_was_promised() -> None:
    made = bench(most=3)
    notes = notes_of(made.step(FreeLB(log_attack=1))[1])
    free = {"loss_1", "loss_2", "loss_adv", "delta_1", "delta_2", "delta_3", "grad_1", "grad_2"}
    costly = {"loss_clean", "delta_per_embedding_norm", "delta_per_neighbour_distance"}
    assert set(notes) == free | costly
    assert set(notes_of(made.step(FreeLB(log_attack=0))[1])) == free
    assert notes["delta_1"] == pytest.approx(0.1 / math.sqrt(3), rel=0.1)
    whole = notes_of(bench().step(FreeLB(log_attack=1))[1])
    assert all(notes[name] == pytest.approx(whole[name], rel=1e-4) for name in notes)


def test_a_clean_pass_weighs_what_was_asked() -> None:
    made = bench()
    plain, hard = made.plain(), made.step(PGD(log_attack=0))[0]
    got, terms = made.step(PGD(clean_weight=3.0, log_attack=0))
    want = {name: 0.75 * plain[name] + 0.25 * hard[name] for name in plain}
    assert furthest(got, want) < 1e-6
    notes = notes_of(terms)
    (loss,) = losses_of(terms).values()
    assert float(loss) / 8 == pytest.approx(0.75 * notes["loss_clean"] + 0.25 * notes["loss_adv"], rel=1e-5)


@pytest.mark.parametrize("method", BOTH)
def test_before_its_first_step_it_is_plain_training(method: Any) -> None:
    early, late = bench(step=1), bench(step=2)
    assert same(early.step(method(start_step=2))[0], early.plain())
    assert not same(late.step(method(start_step=2))[0], late.plain())


@pytest.mark.parametrize("method", BOTH)
@pytest.mark.parametrize("form", ["regression", "multilabel"])
def test_A25_other_heads_work(method: Any, form: str) -> None:
    made = bench(form=form)
    got = made.step(method())[0]
    assert all(torch.isfinite(one).all() for one in got.values())
    assert furthest(got, made.plain()) > 1e-4


@pytest.mark.parametrize("method", BOTH)
def test_half_precision_works(method: Any) -> None:
    made = bench(layout="packed")
    made.model.autocast_to = torch.bfloat16
    got = made.step(method())[0]
    assert all(torch.isfinite(one).all() for one in got.values())
    assert same(made.step(method(steps=1, init_mag=0.0))[0], made.plain())


@pytest.mark.parametrize("method", BOTH)
def test_frozen_embeddings_are_perturbed_all_the_same(method: Any) -> None:
    made = bench()
    for parameter in made.model.encoder.parameters():
        parameter.requires_grad_(False)
    seen = made.trace(method())
    assert float(made.norms(seen[2]).max()) > 0.1
    got = made.step(method())[0]
    assert got.keys() == made.plain().keys()
    assert furthest(got, made.plain()) > 1e-5


@pytest.mark.parametrize("method", BOTH)
def test_gradient_checkpointing_changes_nothing(method: Any) -> None:
    made = bench(dropout=0.1)
    wanted = made.step(method())[0]
    made.model.encoder.net.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    assert furthest(made.step(method())[0], wanted) < 1e-6
