"""AUTOSEM's bandit on the ordinary trainer: what it drew before it used that, and a stop between two rounds."""

from pathlib import Path

import pytest

from encodery.config.load import Resolved, load
from encodery.core.progress import Progress
from encodery.errors import Stopped
from encodery.gradts import autosem
from encodery.gradts.config import Autosem

NAMES = ("toy/nli", "toy/paraphrase", "toy/sentiment")
ROUNDS = Autosem(rounds=7, steps=3, rows=40)


def base() -> Resolved:
    tasks = ", ".join(f"{{name: {name}, train_rows: 200, dev_rows: 60}}" for name in NAMES)
    recipe = Path(autosem.__file__).parents[1] / "recipes/toy/nli.yaml"
    return load(recipe, [f"--tasks=[{tasks}]", "--train.batch_size=8", "--device=cpu"])


@pytest.mark.slow
def test_a_bandit_draws_what_it_always_drew_and_resumes_after_a_signal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = autosem.utilities(base(), "toy/sentiment", ROUNDS, tmp_path / "straight", Progress(quiet=True))
    assert [one["arm"] for one in found.history] == ["toy/sentiment"] * 5 + ["toy/nli"] * 2
    assert [one["score"] for one in found.history] == pytest.approx([0.6, 0.6, 0.6, 0.525, 0.4, 0.4, 0.4])
    judged = autosem.Rounds.judged

    def stopped(self: autosem.Rounds) -> float:
        self.stop.requested = self.state.step == 9  # in the third round
        return judged(self)

    monkeypatch.setattr(autosem.Rounds, "judged", stopped)
    with pytest.raises(Stopped, match="stopped at step 9 of 21"):
        autosem.utilities(base(), "toy/sentiment", ROUNDS, tmp_path / "again", Progress(quiet=True))
    monkeypatch.setattr(autosem.Rounds, "judged", judged)
    again = autosem.utilities(base(), "toy/sentiment", ROUNDS, tmp_path / "again", Progress(quiet=True))
    assert again.history == found.history
    assert not list((tmp_path / "again" / "checkpoints").iterdir())
