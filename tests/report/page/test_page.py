"""What the page says, without a browser."""

import json
import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encodery.cli import main
from encodery.cli.report import _state
from encodery.core.redact import without_paths
from encodery.errors import UserError
from encodery.report.examples import task_of
from encodery.report.page import build, print_figures, references
from encodery.report.page.chart import Chart, Heat, Series, plain, short, spread, thin
from encodery.report.page.data import PageData, gather
from encodery.report.page.html import embedded, join, tag
from encodery.report.page.references import number, published
from encodery.report.page.sections import answers, heads, pretraining, summary
from encodery.runs.directory import RunDir
from encodery.tasks.toy import Toy
from tests.report import runs
from tests.report.page import folder as made


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made.whole(tmp_path_factory.mktemp("source") / "all")


@pytest.fixture(scope="module")
def found(source: Path) -> PageData:
    return gather([source])


@pytest.fixture(scope="module")
def page(found: PageData) -> str:
    return build.page(found, build.sections(found), "Everything")


@pytest.mark.slow(0.5)
def test_every_section_is_there(found: PageData, page: str) -> None:
    titles = re.findall(r"<h2[^>]*>([^<]+)</h2>", page)
    assert [title for title in build.SECTIONS if title not in titles] == []
    assert not [line for line in found.remarks if "could not be made" in line]


@pytest.mark.slow
def test_probes_stand_over_the_compute(found: PageData) -> None:
    section = pretraining.section(found)
    assert section is not None
    (probes,) = [chart for chart in section.pictures if chart.id == "pretraining-probes"]
    assert isinstance(probes, Chart)
    assert probes.x == "TFLOPs"
    assert [(list(one.x), list(one.y)) for one in probes.series] == [([pytest.approx(600)], [0.7])]


def test_precision_of_tags_is_no_discriminator_s(tmp_path: Path) -> None:
    runs.run(tmp_path / "ner", 0.9, task="tag/ner")
    RunDir(tmp_path / "ner").record(20, split="dev", **{"eval.precision": 0.9, "eval.recall": 0.8})
    assert pretraining.section(gather([tmp_path])) is None


def test_a_perfect_model_is_not_called_no_better_than_the_majority(tmp_path: Path) -> None:
    for name, score in (("easy", 1.0), ("hard", 0.5)):
        path = runs.run(tmp_path / name, score, task=f"toy/{name}")
        result = RunDir(path).read_scores() | {"majority": {f"toy/{name}:dev": {"accuracy": score}}}
        (path / "scores.json").write_text(json.dumps(result))
        (path / "DONE").unlink()
        RunDir(path).mark_done()
    found = gather([tmp_path])
    page = build.page(found, build.sections(found), "Both")
    assert "toy/hard:dev: the model is no better than the majority" in page
    assert "toy/easy:dev: the model is no better" not in page


def test_one_seed_below_the_majority_is_among_what_went_wrong(tmp_path: Path) -> None:
    for seed, score in ((1, 0.8), (2, 0.4)):
        path = runs.run(tmp_path / f"seed-{seed}", score, seed=seed)
        (path / "scores.json").write_text(
            json.dumps(RunDir(path).read_scores() | {"majority": {"toy/nli:dev": {"accuracy": 0.5}}})
        )
        (path / "DONE").unlink()
        RunDir(path).mark_done()
    section = summary.section(gather([tmp_path]))
    assert section is not None
    assert "1 of 2 runs is not better than the majority baseline (seed-2: 40.00 against 50.00)" in section.body


@pytest.mark.slow
def test_damaged_and_unfinished_runs_appear_as_such(page: str) -> None:
    for words in ("failed: failed – loss is NaN", "killed: unfinished", "torn: damaged", "rubbish: damaged"):
        assert words in page
    assert "attacks/torn.json is damaged" in page
    assert "Alarm in 10 runs: loss 0.19 is near ln 3" in page, "alarms that differ in their numbers are told once"


def test_the_summary_says_what_is_best_and_whether_it_means_anything(page: str) -> None:
    assert "15 runs in 7 configurations of 3 encoders on toy/nli, table/hostile, toy/corpus: 11 done" in page
    assert re.search(
        r"toy/nli:dev: best of 2: freelb[^.]*, accuracy [\d.]+ ± [\d.]+ over 3 seeds; \+[\d.]+ against plain",
        page,
    )
    assert "(p &lt;0.001, Holm)" in page or re.search(r"\(p 0\.\d+, Holm\)", page)


def test_folds_are_one_model_with_the_answers_of_all_rows(tmp_path: Path) -> None:
    entry = {key: value for key, value in made.hostile_task(tmp_path).items() if key != "dev"}
    for fold in (1, 2):
        config = runs.tree("table/hostile", 1, tasks=[{**entry, "folds": 2, "fold": fold}])
        made.run(tmp_path / "folds" / f"fold-{fold}", config, 0.6, fold)
    found = gather([tmp_path / "folds"])
    row = found.table.rows[0]
    section = summary.section(found)
    assert section is not None
    mean = f"{100 * sum(row.values.values()) / 2:.2f}"
    assert f"<dt>mean accuracy of 2 folds, table/hostile:dev</dt><dd>{mean}</dd>" in section.body
    assert "best of" not in section.body
    assert f"accuracy {mean} ±" in section.body
    assert "over 2 folds" in section.body
    one = answers.answered(found, row)
    assert one is not None
    assert len(one.answers) == 1
    assert sorted(e.id for e in one.rows.examples) == sorted(map(str, range(31)))
    assert answers.matrix(found, "m", one).title == "table/hostile:dev · 2 folds together"


@pytest.mark.parametrize("text", [True, False])
def test_W41_the_page_of_a_curve_has_no_absolute_paths(tmp_path: Path, text: bool) -> None:
    """Each point of a curve names a selection by its absolute path, and the sweep's charts show all settings."""
    for name in ("random", "stream", "el2n"):
        for share in (0.1, 0.5):
            subset = str(tmp_path / "selections" / name)
            more = {"tasks__0__fraction": share, "model__name": str(tmp_path / "models" / "encoder")}
            runs.run(tmp_path / "runs" / f"{name}-{share}", 0.5 + share / 3, tasks__0__subset=subset, **more)
    point = {"method": "random", "match": "epochs", "fraction": 1.0, "seed": 1, "steps": 3, "rows": 9, "asked": 1.0}
    point["scores"] = {"toy/nli:dev": {"accuracy": 0.5}}
    curve = {"points": [point], "about": [f"pool {tmp_path}/pool.csv"]}
    curve["curves"] = [{"data": "toy/nli:dev", "metric": "accuracy"}]
    (tmp_path / "runs" / "curve.json").write_text(json.dumps(curve))
    found = gather([tmp_path / "runs"], text=text)
    page = build.page(found, build.sections(found), "Curve")
    assert str(tmp_path) not in page
    assert "stream" in page


def test_the_page_says_nothing_of_the_machine(page: str, source: Path) -> None:
    assert str(source.parent) not in page
    assert str(Path.home()) + "/" not in page
    assert without_paths("model.name /a/b/c.d: no; see http://x.y/z and a/b, toy/nli:dev") == (
        "model.name …/c.d: no; see http://x.y/z and a/b, toy/nli:dev"
    )


@pytest.mark.slow(0.5)
def test_without_text_no_sentence_is_left(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    assert main(["report", str(source), "-o", str(out), "--no-text"]) == 0
    text = out.read_text()
    assert "number 7" not in text
    assert made.NEEDLE not in text
    sentences = {words for part in ("nli", "sentiment") for e in Toy(part=part).examples("dev") for words in e.texts}
    assert not [words for words in sentences if words in text]
    assert "no&lt;/script&gt;" in text, "labels stay"


@pytest.mark.slow(0.5)
@given(
    st.recursive(
        st.text() | st.integers() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_S5_embedded_data_come_out_again_and_cannot_leave_their_element(data: object) -> None:
    text = embedded(data)
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == data


@given(st.text(), st.text())
def test_S5_texts_and_attributes_are_escaped(text: str, value: str) -> None:
    made_of = tag("p", text, join(text), title=value)
    assert made_of.count("<") == 2
    assert made_of.count('"') == 2


def test_S5_the_policy_allows_two_scripts_by_their_hash_and_no_eval(page: str) -> None:
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy[1].replace("&#x27;", "'").split(";"))
    assert rules["default-src"] == "'none'"
    assert len(re.findall(r"'sha256-[\w+/=]+'", rules["script-src"])) == 2
    assert "unsafe" not in rules["script-src"]
    assert "connect-src" not in rules
    assert re.findall(r'(?:src|href)="(?!#)[^"]*"', re.sub(r"<script>.*?</script>", "", page, flags=re.S)) == []


@pytest.mark.slow
def test_figures_are_three_files_each_and_repeatable(source: Path, tmp_path: Path) -> None:
    line = Series("a <b> $x$ line", [1, 2, 3], [1.0, None, 2.0], low=(0.5, 1, 1.5), high=(1.5, 2, 2.5))
    bars = Series("bars", ["one", "two"], [0.2, 0.4], kind="bars", low=(0.1, 0.3), high=(0.3, 0.5))
    pictures = [
        Chart("lines", "Lines", "x", "y", [line]),
        Chart("bars", "Bars", "", "y", [bars], rules=[(0.5, "half")]),
        Chart("points", "Points", "", "", [Series("p", [1], [2], kind="points")], bare=True, diagonal=True),
        Heat("heat", "Heat", ["r"], ["c", "d"], [[0.1, None]], [["0.1", ""]]),
    ]
    first = {path: path.read_bytes() for path in print_figures.write(pictures, tmp_path)}
    assert sorted({path.suffix for path in first}) == [".pdf", ".png", ".svg"]
    assert len(first) == 12
    again = {path: path.read_bytes() for path in print_figures.write(pictures[:1], tmp_path)}
    assert again.items() <= first.items()
    width = re.search(rb"/MediaBox \[ 0 0 ([\d.]+) ", (tmp_path / "lines.pdf").read_bytes())
    assert width is not None
    assert float(width[1]) == pytest.approx(print_figures.WIDTH * 72)


@pytest.mark.slow(0.5)
@given(st.lists(st.floats(-10, 10), min_size=1, max_size=900), st.integers(2, 300))
def test_thinned_lines_keep_their_mean_and_their_last_step(values: list[float], most: int) -> None:
    x, y = thin(list(range(len(values))), values, most)
    assert len(x) == len(y) == min(len(values), most)
    assert x[-1] == len(values) - 1
    assert min(values) - 1e-9 <= min(y)
    assert max(y) <= max(values) + 1e-9
    kept = spread(values, most)
    assert (kept[0], kept[-1], len(kept)) == (values[0], values[-1], min(len(values), most))


def test_what_is_no_number_is_a_gap() -> None:
    assert [short(v) for v in (float("nan"), float("inf"), None, 3, 1.2345678)] == [None, None, None, 3, 1.2346]
    assert json.loads(embedded(plain(Chart("i", "t", "x", "y", [Series("n", [1], [float("nan")])]))))["series"][0][
        "y"
    ] == [None]


def test_published_numbers_are_read_from_recipes(tmp_path: Path) -> None:
    assert number("accuracy 84.6 matched, 83.4 mismatched on dev", "accuracy", "dev") == 84.6
    assert number("accuracy 84.6 matched, 83.4 mismatched on dev", "accuracy", "dev_mismatched") == 83.4
    assert number("matthews 57.0 on dev", "mcc", "dev") == 57.0
    assert number("mean of pearson and spearman 91.6 on dev", "pearson", "dev") is None
    assert number("F1 88.9 on the test set", "f1", "dev") == 88.9
    runs.seeds(tmp_path, [0.6, 0.7], task="glue/rte", model__name="google/electra-small-discriminator")
    (row,) = gather([tmp_path]).table.rows
    one = published(row)
    assert one is not None
    assert (one.value, one.recipe, one.on_test) == (66.7, "glue/rte/electra-small", False)


def test_reference_curves_are_drawn_and_bad_ones_named(tmp_path: Path) -> None:
    runs.run(tmp_path / "run", 0.5)
    good, bad = tmp_path / "theirs.csv", tmp_path / "bad.csv"
    good.write_text("step,loss,other\n1,2.5,x\n2,,y\n3,1.5,z\n")
    assert references.read(good).curves == {"loss": ([1.0, 3.0], [2.5, 1.5])}
    bad.write_text("step,loss\n1,2\n2,much\n")
    with pytest.raises(UserError, match=r"bad\.csv, line 3: '2' or 'much' is not a number"):
        references.read(bad)
    out = tmp_path / "page.html"
    assert main(["report", str(tmp_path / "run"), "-o", str(out), "--reference", str(good)]) == 0
    assert '"name":"theirs"' in out.read_text()


def test_watching_notices_a_new_line(tmp_path: Path) -> None:
    runs.run(tmp_path / "run", 0.5)
    before = _state([str(tmp_path)])
    assert _state([str(tmp_path)]) == before
    with open(tmp_path / "run" / "metrics.jsonl", "a") as stream:
        stream.write("\n")
    assert _state([str(tmp_path)]) != before


def test_nothing_to_report_and_a_folder_as_file_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path), "-o", str(tmp_path / "page.html")]) == 2
    assert "nothing to report" in capsys.readouterr().err
    assert main(["report", str(tmp_path), "-o", str(tmp_path)]) == 2
    assert not (tmp_path / "page.html").exists()


@pytest.mark.slow
def test_five_hundred_runs_and_a_hundred_thousand_predictions(tmp_path: Path) -> None:
    """In less than 30 s and 15 MB. Time of this process, for the machine may be busy with other tests."""
    source = made.many(tmp_path, count=500, rows=200)
    begin = time.process_time()
    out = tmp_path / "page.html"
    assert main(["report", str(source), "-o", str(out)]) == 0
    assert time.process_time() - begin < 30
    assert out.stat().st_size < 15e6
    assert "500 runs" in out.read_text()


def test_head_maps_have_names_and_those_over_the_limit_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made._heads(tmp_path / "heads")
    said: list[str] = []
    found: Any = SimpleNamespace(folders=[tmp_path], remark=said.append)
    assert len(heads.section(found).pictures) == 3
    assert said == []
    monkeypatch.setattr(heads, "MAPS", 1)
    assert "h0: in % of the most important head." in heads.section(found).body
    assert said == ["Heads: the first 1 of 2 maps are drawn; give fewer folders to see the others"]


def test_W42_the_page_counts_and_names_things_as_people_do(tmp_path: Path) -> None:
    runs.run(tmp_path / "a", 0.7, seed=1)
    runs.run(tmp_path / "b", None, seed=2, state="failed")
    runs.run(tmp_path / "c", None, seed=3, state="stopped")
    found = gather([tmp_path])
    page = build.page(found, build.sections(found), "Two went wrong")
    tiles = dict(re.findall(r"<dt>([^<]+)</dt><dd>([^<]+)</dd>", page))
    assert (tiles["failed"], tiles["stopped"]) == ("1", "1")
    assert "All 1 rows" not in page
    assert "One row" in page


def test_W42_a_task_that_cannot_be_opened_is_named_in_plain_words(tmp_path: Path) -> None:
    runs.run(tmp_path / "a", 0.7, task="table/mails")
    config = runs.tree("table/mails")
    with pytest.raises(UserError, match=r"does not say where the rows of table/mails are|needs a file"):
        task_of(config)
    config["tasks"] = [{"kind": "table", "train": "a.csv", "folds": "many"}]
    with pytest.raises(UserError, match="the run's config does not say where the rows of table are"):
        task_of(config)
