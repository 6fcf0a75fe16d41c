"""Pictures that are drawn with matplotlib."""

import warnings

import pytest

from encodery.report import figures

LEVELS = [{"radius": 0.0, "accuracy": 0.9, "loss": 0.3}, {"radius": 0.1, "accuracy": 0.5, "loss": 1.1}]


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["runs/rte"], ["rte"]),
        (["runs/a/seed-1", "runs/b/seed-1"], ["a/seed-1", "b/seed-1"]),
        (["seed-1", "b/seed-1"], ["seed-1", "b/seed-1"]),
        (["/data/" + "x" * 60], ["x" * 19 + "…" + "x" * 20]),
        (["/a/" + "x" * 60, "/b/" + "x" * 60], ["a/" + "x" * 17 + "…" + "x" * 20, "b/" + "x" * 17 + "…" + "x" * 20]),
    ],
)
def test_a_legend_names_folders_by_what_tells_them_apart(paths, names):
    assert figures.legend_names(paths) == names


def test_names_that_are_equal_after_the_cut_are_numbered():
    first, second = figures.legend_names(["a" * 20 + "1" + "b" * 40, "a" * 20 + "2" + "b" * 40])
    assert (first[:3], second[:3]) == ("1: ", "2: ")


def test_a_long_path_leaves_room_for_the_curves_of_an_attack():
    long = "/home/somebody/projects/encoders/runs/stories/freelb/cd0213e7-sick-plain-kind-plain-epochs-5.0-seed-5"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        picture = figures.robustness({long: LEVELS, long.replace("seed-5", "seed-6"): LEVELS}, "accuracy", "PGD")
    assert b"<svg" in picture
