"""Scores of other rows, or of another objective, are neither compared nor ranked with each other."""

from pathlib import Path
from typing import Any

from encodery.report import records, table
from encodery.report.page.data import PageData
from encodery.report.page.sections import summary
from encodery.runs.directory import RunDir
from tests.report.runs import run

NOT_ALL = "not all configurations were scored on the same rows"


def scored(folder: Path, score: float, rows: str, task: str = "table/mine", **settings: Any) -> None:
    """A finished run whose dev rows have this digest."""
    run(folder, score, task, origins={"dev": {"digest": rows, "rows": 3}}, **settings)


def test_other_rows_of_one_name_give_no_difference(tmp_path: Path) -> None:
    scored(tmp_path / "plain", 0.4, "first")
    scored(tmp_path / "fast", 0.5, "first", optim__lr=3e-5)
    scored(tmp_path / "elsewhere", 0.9, "second", optim__lr=4e-5)
    made = table.table([tmp_path], baseline="plain")
    differences = {row.settings["optim.lr"]: row.more["difference"] for row in made.rows}
    assert differences["3e-05"] is not None
    assert differences["4e-05"] is None
    assert any(remark.startswith(f"table/mine:dev: {NOT_ALL};") for remark in made.remarks)


def test_equal_rows_are_compared_without_a_word(tmp_path: Path) -> None:
    scored(tmp_path / "plain", 0.4, "first")
    scored(tmp_path / "fast", 0.5, "first", optim__lr=3e-5)
    scored(tmp_path / "older", 0.6, "", optim__lr=4e-5)  # a run that does not say which rows
    made = table.table([tmp_path], baseline="plain")
    assert sum(row.more["difference"] is not None for row in made.rows) == 2
    assert not any(NOT_ALL in remark for remark in made.remarks)


def test_losses_of_other_objectives_or_words_are_no_rivals(tmp_path: Path) -> None:
    for name, objective, words in (("a", "mlm", "words"), ("b", "electra", "words"), ("c", "mlm", "pieces")):
        for count in range(3):
            lr = {"optim__lr": 1e-5 * (count + 1)}
            about = {"tasks__0__objective__kind": objective, "model__tokenizer": words}
            scored(tmp_path / f"{name}{count}", 1.0 + count, "text", "corpus", **about, **lr)
    made = table.table([tmp_path])
    told = [remark for remark in made.remarks if remark.startswith("corpus:dev")]
    assert f"corpus:dev: {NOT_ALL} with the same objective and tokenizer; only those that were are compared" in told
    assert not any("best of 9" in remark for remark in told)


def test_a_text_that_was_scored_later_is_no_rival_either(tmp_path: Path) -> None:
    for objective in ("mlm", "electra"):
        folder, about = tmp_path / objective, {"tasks__0__objective__kind": objective}
        scored(folder, 1.0, "text", "corpus", **about)
        made = RunDir.open(folder)
        later = {"scores": {"loss": 2.0}, "main": "loss", "task": {"kind": "corpus"}, "digest": "news"}
        made.write_scores(made.read_scores() | {"evaluations": {"news.txt:train": later}})
    told = table.table([tmp_path]).remarks
    assert any(remark.startswith(f"news.txt:train: {NOT_ALL} with the same objective") for remark in told)


def test_the_page_has_a_sentence_for_each_set_of_rows(tmp_path: Path) -> None:
    scored(tmp_path / "plain", 0.4, "first")
    scored(tmp_path / "fast", 0.5, "first", optim__lr=3e-5)
    scored(tmp_path / "elsewhere", 0.9, "second", optim__lr=4e-5)
    lines = summary.results(PageData([tmp_path], records.read([tmp_path])[0], table.table([tmp_path]), None))
    assert len(lines) == 2
    assert "best of 2" in "".join(lines)
    assert any("4e-05, accuracy 90.00" in line for line in lines)


def test_a_table_over_columns_keeps_runs_on_other_rows(tmp_path: Path) -> None:
    for number, rows in enumerate(("first", "second")):
        for lr in (1e-5, 2e-5):
            scored(tmp_path / f"{rows}{lr}", 0.5 + number / 10, rows, optim__lr=lr)
    text = table.markdown(table.table([tmp_path]), "optim.lr")
    assert all(f"| {score}.00 (1) | {score}.00 (1) |" in text for score in (50, 60))


def test_bold_follows_the_seeds_that_both_have(tmp_path: Path) -> None:
    for seed, score in ((1, 0.5), (2, 0.1)):
        scored(tmp_path / f"plain{seed}", score, "rows", seed=seed)
    scored(tmp_path / "fast", 0.5, "rows", optim__lr=3e-5, method__kind="plain")
    made = table.table([tmp_path], baseline="optim.lr=2e-5")
    assert table.table([tmp_path], baseline="lr=2e-5").to_dict() == made.to_dict()
    row = next(row for row in made.rows if row.settings["optim.lr"] == "3e-05")
    assert (row.more["difference"], row.more["better"]) == (0.0, False)
    assert "difference over the 1 seed that both have" in row.notes


def test_only_what_was_compared_with_a_baseline_counts_for_it(tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        for size, gap in ((16, 0.1), (32, 0.001)):
            about = {"seed": seed, "train__batch_size": size}
            scored(tmp_path / f"plain{size}-{seed}", 0.8 - size / 100, "rows", **about)
            method = {"method__kind": "fgm"}
            scored(tmp_path / f"fgm{size}-{seed}", 0.8 - size / 100 - gap - seed / 1e4, "rows", **about, **method)
    made = table.table([tmp_path], baseline="method.kind=plain")
    page = PageData([tmp_path], records.read([tmp_path])[0], made, "method.kind=plain")
    line = summary.judged(page, page.rows_of("table/mine:dev")[0])
    assert "of 1 others" in line  # the other baseline's rival is not its own


def test_seeds_with_different_alarms_are_not_said_to_have_the_first(tmp_path: Path) -> None:
    for seed, label in ((1, "yes"), (2, "no")):
        run(tmp_path / str(seed), 0.5, seed=seed, alarms=[f"toy/nli:dev: every prediction is '{label}'"])
    notes = table.table([tmp_path]).rows[0].notes
    assert any(note.startswith("ALARM in 2 of 2 seeds, such as: ") for note in notes), notes
