"""Rankings of tasks by their heads: which places chance may have decided."""

from pathlib import Path

import numpy as np

from encodery.core import files
from encodery.gradts.ranking import Correlations, uncertain
from encodery.runs.head_matrices import Importance

ABOUT = {"estimator": "mask", "dropout": False, "base": "b", "layers": 2, "heads": 6}


def heads(folder: Path, name: str, seed: int, matrix: np.ndarray, rows: int = 200, noise: float = 0.0) -> Importance:
    """The importance of a task's heads: examples that differ from their mean by a little."""
    place = folder / f"{name}-{seed}"
    place.mkdir()
    draw = np.random.default_rng([seed, len(name)])
    instances = (matrix + noise * draw.standard_normal((rows, *matrix.shape))).astype(np.float32)
    np.save(place / "instances.npy", instances)
    np.save(place / "task.npy", instances.mean(0, dtype=np.float64))
    files.write_json(place / "meta.json", {**ABOUT, "task": name})
    return Importance(place)


def swapped(matrix: np.ndarray, times: int) -> np.ndarray:
    """The same numbers with some neighbours exchanged, so that the correlation falls step by step."""
    flat = matrix.reshape(-1).copy()
    for place in range(times):
        flat[[2 * place, 2 * place + 1]] = flat[[2 * place + 1, 2 * place]]
    return flat.reshape(matrix.shape)


def ranking(folder: Path, swaps: dict[str, list[int]]) -> Correlations:
    """A primary and candidates; so many exchanges for each seed."""
    main = np.linspace(1.0, 2.0, 12).reshape(2, 6)
    found = {
        seed: {name: heads(folder, name, seed, swapped(main, many[seed]), noise=0.001) for name, many in swaps.items()}
        for seed in range(len(next(iter(swaps.values()))))
    }
    return Correlations(found, "kendall", "none")


def test_G34_a_place_that_another_fine_tuning_may_change_is_within_noise(tmp_path: Path) -> None:
    swaps = {"main": [0, 0, 0], "near": [1, 1, 2], "moody": [0, 5, 2], "far": [6, 6, 6]}
    found = {one.name: one for one in ranking(tmp_path, swaps).ranking("main", list(swaps))}
    assert list(found) == ["near", "moody", "far"]
    assert found["near"].unsure  # ahead on average, but not in every fine-tuning
    low, high = found["moody"].interval
    assert low < min(found["moody"].values.values())
    assert high > found["moody"].mean
    tight = found["far"].interval
    assert tight[1] - tight[0] < (high - low) / 10


def test_G34_a_place_that_all_fine_tunings_agree_on_is_sure(tmp_path: Path) -> None:
    swaps = {"main": [0, 0, 0], "near": [1, 1, 1], "far": [6, 5, 6]}
    found = ranking(tmp_path, swaps).ranking("main", list(swaps))
    assert [(one.name, one.unsure) for one in found] == [("near", False), ("far", False)]


def test_G34_the_interval_holds_the_truth_under_both_kinds_of_noise() -> None:
    """A true correlation of 0.4, examples that move all fine-tunings together, and each fine-tuning by itself."""
    draw, held, alone = np.random.default_rng(0), 0, 0
    for _ in range(2000):
        by_examples = draw.normal(0, 0.05)
        seeds = 0.4 + by_examples + draw.normal(0, 0.08, 3)
        drawn = seeds.mean() + draw.normal(0, 0.05, 200)
        low, high = uncertain(seeds.tolist(), drawn)
        held += low <= 0.4 <= high
        low, high = np.quantile(drawn, [0.025, 0.975])
        alone += low <= 0.4 <= high
    assert held / 2000 >= 0.94
    assert alone / 2000 < 0.9  # over examples alone, as with one fine-tuning


def test_G37_the_most_important_heads_go_by_the_normalisation(tmp_path: Path) -> None:
    matrix = np.array([[1.0, 1.1, 1.2, 1.3, 1.4, 5.0], [60.0, 61.0, 62.0, 63.0, 64.0, 65.0]])
    found = heads(tmp_path, "main", 0, matrix)
    assert found.order("none")[0] == (1, 5)  # the layer of large numbers
    assert found.order("l1")[0] == (0, 5)  # the head that stands out in its layer
    assert found.order("l2")[0] == (0, 5)
