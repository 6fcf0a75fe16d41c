"""HANS: the reader, the folding of three labels into two, McCoy's figures, the alarm."""

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import encodery as en
from encodery.cli import main
from encodery.errors import UserError
from encodery.inference.evaluate import collapsed_run
from encodery.inference.task_argument import default_splits, named
from encodery.scoring.prediction_files import answers_of
from encodery.tasks import catalogue
from encodery.tasks.forms.hans_figures import NO, YES, together
from encodery.tasks.hans import Hans, to_examples
from encodery.tasks.sources.readers import Row, Sheet
from encodery.tasks.toy import ToyHans
from tests.scoring.scored import score_file

HEURISTICS = ("lexical_overlap", "subsequence", "constituent")
COLUMNS = (
    "gold_label", "sentence1_binary_parse", "sentence2_binary_parse", "sentence1_parse", "sentence2_parse",
    "sentence1", "sentence2", "pairID", "heuristic", "subcase", "template",
)  # fmt: skip


def rows(each: int = 2) -> list[dict[str, str]]:
    """A small HANS: three heuristics, two labels, five subcases each; quotes and commas are text."""
    found = []
    for h, heuristic in enumerate(HEURISTICS):
        for label in (NO, YES):
            for case in range(5):
                for _ in range(each):
                    text = f'The "doctor {len(found)}, saw the lawyer .'
                    where = {"heuristic": heuristic, "subcase": f"{heuristic[0]}{label[0]}_{case}/x"}
                    values = [label, "( p )", "( p )", "(P)", "(P)", text, "The doctor ."]
                    values += [f"ex{len(found)}", *where.values(), f"temp{h * 3 + case % 3}"]
                    found.append(dict(zip(COLUMNS, values, strict=True)))
    return found


def write(folder: Path, name: str = "other.txt", each: int = 2, edit=None) -> Path:
    found = rows(each)
    if edit:
        edit(found)
    lines = ["\t".join(COLUMNS), *("\t".join(row.values()) for row in found)]
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text("\n".join(lines) + "\n" if name.endswith("txt") else "".join(json.dumps(r) + "\n" for r in found))
    return path


@pytest.fixture
def small(tmp_path):
    """Under another name than the official one: it is not refused for its counts."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist(rows()), tmp_path / "hans_dev.parquet")
    return Hans(data=str(tmp_path))


def reference(path: Path, examples) -> str:
    """McCoy's scorer as his README describes it, written down independently."""
    guess = {}
    for line in path.read_text().split("\n")[1:]:
        if line.strip():
            guess[line.strip().split(",")[0]] = line.strip().split(",")[1]
    names = {
        kind: list(dict.fromkeys(e.extra[kind] for e in examples)) for kind in ("heuristic", "subcase", "template")
    }

    def rate(kind, name, label=None):
        own = [e for e in examples if e.extra[kind] == name and label in (None, e.label)]
        right = sum(("entailment" if guess[e.id] == "entailment" else "non-entailment") == e.label for e in own)
        return f"{name}: {right * 1.0 / len(own)}"

    parts = [["Heuristic entailed results:", *(rate("heuristic", n, YES) for n in names["heuristic"])]]
    parts += [["Heuristic non-entailed results:", *(rate("heuristic", n, NO) for n in names["heuristic"])]]
    parts += [["Subcase results:", *(rate("subcase", n) for n in names["subcase"])]]
    parts += [["Template results:", *(rate("template", n) for n in names["template"])]]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def predictions(folder: Path, labels) -> Path:
    path = folder / "preds.txt"
    path.write_text("anything at all\n" + "".join(f"ex{i},{label}\n" for i, label in enumerate(labels)))
    return path


@pytest.mark.slow
@given(st.lists(st.sampled_from(["entailment", "neutral", "contradiction", "non-entailment", "Entailment", "x y", ""]),
                min_size=60, max_size=60))  # fmt: skip
def test_D16_the_report_equals_a_reference_scorer(tmp_path_factory, labels):
    folder = tmp_path_factory.mktemp("d16")
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist(rows()), folder / "hans_dev.parquet")
    task = Hans(data=str(folder))
    path = predictions(folder, labels)
    answers, examples = answers_of(path, task, "dev")
    assert task.pages(answers, examples)["report.txt"] == reference(path, examples)


@pytest.mark.parametrize("label", ["entailment", "non-entailment", "neutral"])
def test_D16_D17_constant_answers(small, tmp_path, label):
    path = predictions(tmp_path, [label] * 60)
    answers, examples = answers_of(path, small, "dev")
    assert small.pages(answers, examples)["report.txt"] == reference(path, examples)
    scores, yes = score_file(path, small, "dev"), float(label == "entailment")
    assert scores["accuracy"] == 0.5
    assert {scores[f"entailed_{h}"] for h in HEURISTICS} == {yes}
    assert {scores[f"non_entailed_{h}"] for h in HEURISTICS} == {1 - yes}
    assert {scores[f"mean_{h}"] for h in HEURISTICS} == {0.5}
    assert scores["predicted_entailment"] == yes


def test_D20_the_alarm_names_the_two_usual_causes(small, tmp_path):
    def alarms(labels):
        return small.alarms(*answers_of(predictions(tmp_path, labels), small, "dev"))

    gold = [row["gold_label"] for row in rows()]
    turned = [YES if label == NO else NO for label in gold]
    assert alarms(gold) == []
    for labels in (turned, [YES] * 60, [NO] * 60):
        (sentence,) = alarms(labels)
        assert "segment ids" in sentence
        assert "order of the model's labels" in sentence
    half = [YES if label == YES or i % 2 else NO for i, label in enumerate(gold)]
    assert alarms(half) == []


PUBLISHED = {  # right answers of McCoy's models: entailed, then non-entailed
    "ESIM": ((0.98, 1.0, 0.99), (0.01, 0.02, 0.01)),
    "decomposable attention": ((0.99, 1.0, 0.97), (0.01, 0.02, 0.03)),
    "SPINN": ((0.96, 0.96, 0.93), (0.02, 0.06, 0.11)),
    "BERT": ((0.95, 0.99, 0.98), (0.16, 0.04, 0.16)),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_W39_no_alarm_on_published_models_that_go_by_word_overlap(tmp_path, name):
    import pyarrow as pa
    import pyarrow.parquet as pq

    found = rows(each=20)
    pq.write_table(pa.Table.from_pylist(found), tmp_path / "hans_dev.parquet")
    labels, seen = [], Counter()
    for row in found:
        cell = (row["gold_label"], row["heuristic"])
        rates = PUBLISHED[name][row["gold_label"] == NO]
        right = seen[cell] < round(100 * rates[HEURISTICS.index(row["heuristic"])])
        seen[cell] += 1
        labels.append(row["gold_label"] if right else YES if row["gold_label"] == NO else NO)
    task = Hans(data=str(tmp_path))
    assert set(seen.values()) == {100}
    assert task.alarms(*answers_of(predictions(tmp_path, labels), task, "dev")) == []


def test_W39_a_run_that_has_collapsed_is_said_to_have_collapsed(small, tmp_path):
    why = "glue/mnli:dev accuracy 0.354, where the commonest answer gets 0.354"
    for labels in (["neutral"] * 60, [YES] * 60, [YES] * 59 + [NO]):
        (sentence,) = small.alarms(*answers_of(predictions(tmp_path, labels), small, "dev"), why)
        assert f"The run has collapsed on its own data ({why})" in sentence
        assert "segment ids" not in sentence
        assert "order" not in sentence
    gold = [row["gold_label"] for row in rows()]
    assert small.alarms(*answers_of(predictions(tmp_path, gold), small, "dev"), why) == []


@pytest.mark.slow
def test_W39_evaluation_asks_the_run_whether_it_has_collapsed(tmp_path, capsys):
    config = {
        "model": {"new": {"kind": "bert", "size": "tiny"}, "tokenizer": "toy"},
        "tasks": {"name": "toy/nli", "train_rows": 32, "dev_rows": 60},
        "train": {"max_steps": 1, "max_length": 32},
        "optim": {"lr": 1e-9},
        "device": "cpu",
    }
    run = en.train(config, tmp_path / "run")
    said = run.directory.read_scores()
    assert collapsed_run(str(run.path))  # nothing was learnt
    assert main(["evaluate", str(run.path), "--on", "toy/hans", "--quiet"]) == 0
    stored = run.directory.read_scores()["evaluations"]["toy/hans:dev"]
    yes = stored["scores"]["predicted_entailment"]
    if not 0.02 < yes < 0.98:
        assert "The run has collapsed on its own data" in stored["alarms"][0]
    said["alarms"], said["majority"] = [], {"toy/nli:dev": {"accuracy": 0.1}}
    said["scores"]["toy/nli:dev"]["accuracy"] = 0.9
    run.directory.write_scores(said)
    assert collapsed_run(str(run.path)) is None
    assert collapsed_run("somebody/model") is None
    capsys.readouterr()


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_W38_score_says_that_a_file_is_regenerated(tmp_path, capsys, form):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist(rows()), tmp_path / "hans_eval_regenerated.parquet")
    path = predictions(tmp_path, [YES] * 59 + [NO])
    assert main(["score", str(path), "--on", "hans", "--data", str(tmp_path), *form]) == 0
    said = capsys.readouterr().out
    if form:
        assert "NOT the published file" in json.loads(said)["hans:dev"]["note"]
    else:
        assert said.splitlines()[-1].startswith("hans:dev (regenerated, not the published HANS)  accuracy 0.")


def test_D22_missing_and_repeated_ids_are_listed_and_others_are_left_alone(small, tmp_path):
    path = predictions(tmp_path, [YES] * 58)
    with pytest.raises(UserError, match=r"no prediction for 2 ids \(ex58, ex59\)"):
        score_file(path, small, "dev")
    path.write_text(predictions(tmp_path, [YES] * 60).read_text() + "ex3,neutral\n")
    with pytest.raises(UserError, match=r"1 id \(ex3\) appears more than once"):
        score_file(path, small, "dev")
    path.write_text(predictions(tmp_path, [YES] * 60).read_text() + "ex99999,neutral\n")
    assert score_file(path, small, "dev")["accuracy"] == 0.5
    path.write_text("header\nex0 entailment\n")
    with pytest.raises(UserError, match="line 2"):
        score_file(path, small, "dev")


def chances():
    return st.lists(st.integers(0, 100), min_size=3, max_size=3).filter(sum).map(lambda x: [v / sum(x) for v in x])


@pytest.mark.slow
@given(st.lists(chances(), min_size=1, max_size=20))
def test_D21_sum_never_has_fewer_non_entailments(rows_of_chances):
    labels = (YES, "neutral", "contradiction")
    for chance in rows_of_chances:
        for order in (labels, labels[::-1]):
            named_chances = dict(zip(order, chance, strict=True))
            answer = {"prediction": max(order, key=named_chances.__getitem__), "probabilities": named_chances}
            plain, summed = Hans().fold(answer), Hans(collapse="sum").fold(answer)
            assert plain["prediction"] == (YES if answer["prediction"] == YES else NO)
            assert (summed["prediction"] == NO) >= (plain["prediction"] == NO)
            rest = named_chances["neutral"] + named_chances["contradiction"]
            assert summed["prediction"] == NO or rest <= named_chances[YES]


@pytest.mark.slow
def test_D15_the_official_file_must_have_its_counts(tmp_path):
    write(tmp_path / "a", "heuristics_evaluation_set.txt", each=1000)
    task = Hans(data=str(tmp_path / "a"))
    examples = task.examples("dev")
    assert len(examples) == 30000
    assert Counter(e.label for e in examples) == {YES: 15000, NO: 15000}
    assert set(Counter(e.extra["subcase"] for e in examples).values()) == {1000}
    assert examples[7].texts == ('The "doctor 7, saw the lawyer .', "The doctor .")
    assert task.origin("dev").note is None
    write(tmp_path / "b", "heuristics_evaluation_set.txt", each=3)
    with pytest.raises(UserError, match="not the published HANS: 90 rows instead of 30,000"):
        Hans(data=str(tmp_path / "b")).examples("dev")


def test_D15_other_files_get_a_notice_and_bad_rows_are_named(small, tmp_path):
    assert "60 rows instead of 30,000" in str(small.origin("dev").note)
    folder = tmp_path / "c"
    write(folder, "heuristics_evaluation_set.jsonl", each=2, edit=lambda found: found[4].update(gold_label="maybe"))
    with pytest.raises(UserError, match=r'line 5, column "gold_label": "maybe"'):
        Hans(data=str(folder)).examples("dev")


@pytest.mark.real
def test_D15_the_regenerated_set(real_data):
    task = Hans(data=str(real_data))
    examples = task.examples("dev")
    cells = Counter((e.extra["heuristic"], e.label) for e in examples)
    assert len(examples) == 30000
    assert set(cells.values()) == {5000}
    assert {e.extra["subcase"][1] for e in examples if e.label == YES} == {"e"}
    assert len({e.extra["subcase"] for e in examples}) == 30
    assert "regenerated HANS" in str(task.origin("dev").note)
    assert "instead of" not in str(task.origin("dev").note)


def test_the_hubs_copy_has_numbers_for_labels_and_no_ids():
    values = {"premise": "a", "hypothesis": "b", "heuristic": "subsequence", "subcase": "sn_NP/S", "template": "temp1"}
    sheet = Sheet("hub:x", (*values, "label"), [Row(i + 1, {**values, "label": i}) for i in range(2)])
    assert [(e.id, e.label) for e in to_examples(sheet)] == [("ex0", YES), ("ex1", NO)]
    sheet.rows[0].values["label"] = 2
    assert len(to_examples(sheet)) == 1
    assert sheet.bad[0].column == "label"


def test_names_and_toy_twin():
    names = {entry.name: entry for entry in catalogue()}
    assert names["hans"].splits == ("train", "dev")
    assert names["toy/hans"].splits == ("dev",)
    toy = named("toy/hans")
    assert isinstance(toy, ToyHans)
    assert default_splits(toy) == ["dev"]
    examples = toy.examples("dev")
    scores = toy.score({e.id: {"prediction": YES} for e in examples}, examples)
    assert scores["accuracy"] == pytest.approx(0.5, abs=0.01)
    with pytest.raises(UserError, match="evaluation only"):
        toy.examples("train")
    with pytest.raises(UserError, match="hans has no parts"):
        named("hans/x")


def test_seeds_are_put_together():
    found = together([{"accuracy": 0.5}, {"accuracy": 0.7}])
    assert found["accuracy"] == pytest.approx({"mean": 0.6, "sd": 0.02**0.5, "low": 0.5, "high": 0.7})
