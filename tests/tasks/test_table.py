import json
import math
import statistics

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import encodery as en
from encodery.cli import main
from encodery.config import load
from encodery.errors import UserError
from encodery.tasks.sources.labels import spelling_warning
from encodery.tasks.table import Table
from tests.toolbox.runs import config_for
from tests.toolbox.tokenizers import Characters


def jsonl(folder, name, rows):
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return name


def table(folder, **options):
    return Table.model_validate({"root": str(folder), **options})


def many(n=20, labels="ab"):
    return [{"text": f"t{i}", "label": labels[i % len(labels)]} for i in range(n)]


def test_single_texts_with_an_automatic_dev_split(tmp_path):
    task = table(tmp_path, train=jsonl(tmp_path, "reviews.jsonl", many(40)))
    assert task.name == "table/reviews"
    assert task.labels == ("a", "b")
    assert task.splits() == ("train", "dev")
    train, dev = task.examples("train"), task.examples("dev")
    assert len(train) == 36
    assert sorted(e.label for e in dev) == ["a", "a", "b", "b"]
    assert sorted([*train, *dev], key=lambda e: int(e.id)) == [
        *sorted([*train, *dev], key=lambda e: int(e.texts[0][1:]))
    ]
    assert "set aside" in task.origin("dev").note
    assert task.origin("train").digest != task.origin("dev").digest


def test_the_split_depends_on_the_seed_alone(tmp_path):
    jsonl(tmp_path, "a.jsonl", many(100))
    ids = [[e.id for e in table(tmp_path, train="a.jsonl", split_seed=s).examples("dev")] for s in (0, 0, 1)]
    assert ids[0] == ids[1] != ids[2]


def test_groups_that_cannot_be_parted_are_counted(tmp_path):
    rows = [row | {"author": "same"} for row in many(30)]
    task = table(tmp_path, train=jsonl(tmp_path, "a.jsonl", rows), group="author")
    with pytest.raises(UserError, match=r"30 rows in 1 group \(.*\), which stay on one side, are too few to set 0.1"):
        task.examples("train")


def test_groups_stay_together(tmp_path):
    rows = [row | {"author": i // 5} for i, row in enumerate(many(100))]
    task = table(tmp_path, train=jsonl(tmp_path, "a.jsonl", rows), group="author", dev_fraction=0.2)
    train, dev = ({e.group for e in task.examples(split)} for split in ("train", "dev"))
    assert not train & dev
    assert len(task.examples("dev")) == 20


@pytest.mark.slow
@given(st.lists(st.sampled_from("aaaaaab"), min_size=20, max_size=200), st.sampled_from([0.05, 0.1, 0.3, 0.5]))
@settings(max_examples=40)
def test_every_label_gives_its_share(tmp_path_factory, labels, fraction):
    folder = tmp_path_factory.mktemp("t")
    rows = [{"text": f"x{i}", "label": label} for i, label in enumerate([*labels, "b"])]
    task = table(folder, train=jsonl(folder, "a.jsonl", rows), dev_fraction=fraction)
    if set(labels) == {"b"}:
        return
    for label in "ab":
        here = sum(e.label == label for e in task.examples("dev"))
        assert abs(here - fraction * sum(row["label"] == label for row in rows)) <= 1
    assert len(task.examples("dev")) + len(task.examples("train")) == len(rows)


def test_too_few_rows_to_set_aside(tmp_path):
    with pytest.raises(UserError, match="too few"):
        table(tmp_path, train=jsonl(tmp_path, "a.jsonl", many(3))).examples("dev")


def test_pairs_from_csv_with_own_column_names(tmp_path):
    (tmp_path / "a.csv").write_text('q,a,good,key\n"one, two",5" disk,yes,k1\n"say ""hi""",N/A,no,k2\n')
    (tmp_path / "t.csv").write_text("q,a,key\nnull,x,k3\n")
    task = table(
        tmp_path, form="pair", train="a.csv", dev="a.csv", test="t.csv", text="q", text2="a", label="good", id="key"
    )
    assert [(e.id, e.texts, e.label) for e in task.examples("train")] == [
        ("k1", ("one, two", '5" disk'), "yes"),
        ("k2", ('say "hi"', "N/A"), "no"),
    ]
    assert task.examples("test")[0].texts == ("null", "x")
    assert task.examples("test")[0].label is None
    assert task.labels == ("no", "yes")
    assert [f.targets["label"] for f in task.encode(task.examples("train"), Characters(), 12)] == [1, 0]


def test_a_second_text_without_a_form_is_a_pair(tmp_path):
    (tmp_path / "a.csv").write_text("q,a,label\n" + "who,me,yes\nwhere,here,no\n" * 10)
    task = table(tmp_path, train="a.csv", dev="a.csv", text="q", text2="a")
    assert task.form == "pair"
    assert task.examples("train")[0].texts == ("who", "me")
    assert table(tmp_path, train="a.csv", text="q", text2="a", form="regression").form == "regression"


def test_numbers_as_labels_keep_their_order(tmp_path):
    rows = [{"text": f"x{i}", "label": i % 12} for i in range(48)]
    assert table(tmp_path, train=jsonl(tmp_path, "a.jsonl", rows)).labels == tuple(map(str, range(12)))


def test_labels_may_be_given(tmp_path):
    jsonl(tmp_path, "a.jsonl", many(20))
    task = table(tmp_path, train="a.jsonl", labels=["b", "c", "a"], name="mine")
    assert task.labels == ("b", "c", "a")
    assert task.name == "table/mine"
    assert Table.model_validate(task.to_dict()).to_dict() == task.to_dict()
    with pytest.raises(UserError, match='"b" is not a label of this task; there are "a", "c"'):
        table(tmp_path, train="a.jsonl", labels=["a", "c"]).examples("train")
    with pytest.raises(UserError, match='"b" is not a label of this task; there is only "a"'):
        table(tmp_path, train="a.jsonl", labels=["a"]).examples("train")


def test_multilabel(tmp_path):
    rows = [{"text": f"t{i}", "label": names} for i, names in enumerate([["b"], ["a", "b"], [], ["c"]] * 5)]
    task = table(tmp_path, form="multilabel", train=jsonl(tmp_path, "a.jsonl", rows))
    assert task.labels == ("a", "b", "c")
    assert task.objective() == {"kind": "classification", "form": "multilabel", "labels": ["a", "b", "c"]}
    examples = sorted(task.examples("train"), key=lambda e: int(e.id))
    targets = {
        e.label: f.targets["label"] for e, f in zip(examples, task.encode(examples, Characters(), 9), strict=True)
    }
    assert targets[("a", "b")] == [1.0, 1.0, 0.0]
    assert targets[()] == [0.0, 0.0, 0.0]
    found = task.decode([{"id": "0", "logits": [3.0, -1.0, 0.5]}])["0"]
    assert found["prediction"] == ["a", "c"]
    assert found["probabilities"]["b"] == pytest.approx(1 / (1 + math.e))
    gold = {e.id: {"prediction": list(e.label)} for e in examples}
    assert task.score(gold, examples) == {"micro_f1": 1.0, "macro_f1": 1.0, "subset_accuracy": 1.0}
    assert task.main_metric == "micro_f1"


@pytest.mark.parametrize(("separator", "cell"), [(None, '"red, blue"'), ("|", "red|blue"), (" ", "red blue")])
def test_multilabel_in_csv(tmp_path, separator, cell):
    (tmp_path / "a.csv").write_text(f"text,label\nx,{cell}\ny,\nz,red\n")
    task = table(tmp_path, form="multilabel", train="a.csv", dev="a.csv", label_separator=separator)
    assert [e.label for e in task.examples("train")] == [("red", "blue"), (), ("red",)]


@given(st.lists(st.integers(-(10**7), 10**7).map(lambda n: n / 8), min_size=2, max_size=20, unique=True))
def test_numbers_are_learnt_standardised_and_answered_on_their_own_scale(tmp_path_factory, numbers):
    folder = tmp_path_factory.mktemp("numbers")
    rows = [{"text": f"text {i}", "label": number} for i, number in enumerate(numbers)]
    settings = {"form": "regression", "dev_fraction": 0, "train": jsonl(folder, "a.jsonl", rows)}
    plain, task = table(folder, **settings), table(folder, **settings, standardise=True)
    assert (plain.scale, plain.shift) == (1.0, 0.0)
    examples = task.examples("train")
    assert task.shift == pytest.approx(statistics.fmean(numbers), abs=1e-6)
    assert task.scale == pytest.approx(statistics.pstdev(numbers), rel=1e-9)
    targets = [task.target(e.label, {}) for e in examples]
    assert statistics.fmean(targets) == pytest.approx(0, abs=1e-6)
    assert statistics.pstdev(targets) == pytest.approx(1, rel=1e-6)
    answers = task.decode([{"id": e.id, "logits": [x]} for e, x in zip(examples, targets, strict=True)])
    assert [answers[e.id]["prediction"] for e in examples] == pytest.approx(numbers, rel=1e-9, abs=1e-3)
    assert task.score(answers, examples)["rmse"] == pytest.approx(0, abs=1e-3)


def test_equal_numbers_are_not_divided_by_nothing(tmp_path):
    rows = [{"text": f"text {i}", "label": 7e5} for i in range(4)]
    task = table(tmp_path, form="regression", standardise=True, dev_fraction=0, train=jsonl(tmp_path, "a.jsonl", rows))
    assert (task.scale, task.shift) == (1.0, 7e5)
    with pytest.raises(ValueError, match="standardise: is for form regression"):
        table(tmp_path, standardise=True, train="a.jsonl")


@pytest.mark.slow(2)
def test_a_model_of_large_numbers_answers_them_wherever_it_is_opened(tmp_path, capsys):
    rows = [{"text": f"{'good' if i % 2 else 'dull'} cat {i}", "label": 3e5 if i % 2 else 1e5} for i in range(40)]
    task = {"kind": "table", "form": "regression", "standardise": True, "root": str(tmp_path)}
    task["train"] = jsonl(tmp_path, "a.jsonl", rows)
    run = en.train(config_for(tmp_path, task, train={"max_steps": 60}, optim={"lr": 3e-3}), tmp_path / "run")
    assert run.scores["table/a:dev"]["rmse"] < 5e4  # the mean of train has 1e5
    stored = run.predictions("table/a:dev")
    model = en.load(run)
    texts = {example.id: example.texts[0] for example in load.load(run.path).tasks[0][0].examples("dev")}
    told = [model(texts[id]).value for id in stored["id"]]
    assert told == pytest.approx(list(stored["prediction"]), rel=1e-4)
    gold = jsonl(tmp_path, "gold.jsonl", [row | {"text": row["text"] + " again"} for row in rows])
    assert en.evaluate(run, tmp_path / gold)["table/gold:test"]["rmse"] < 1e5
    assert main(["export", str(run.path), str(tmp_path / "out")]) == 0
    card = json.loads((tmp_path / "out/encodery.json").read_text())["tasks"]["table/a"]
    formula = f"{card['scale']:.6g} · logit + {card['shift']:.6g}"
    assert formula in capsys.readouterr().out
    assert main(["publish", str(run.path), "-o", str(tmp_path / "parcel")]) == 0
    assert formula in (tmp_path / "parcel/README.md").read_text()
    assert en.load(tmp_path / "out")(texts[stored["id"][0]]).value == pytest.approx(told[0], rel=1e-4)


def test_regression(tmp_path):
    rows = [{"text": f"t{i}", "label": i / 2} for i in range(40)]
    task = table(tmp_path, form="regression", train=jsonl(tmp_path, "a.jsonl", rows))
    assert task.labels == ()
    dev = task.examples("dev")
    assert len(dev) == 4
    assert max(e.label for e in dev) - min(e.label for e in dev) > 10
    assert task.score({e.id: {"prediction": e.label} for e in dev}, dev)["spearman"] == 1.0
    assert task.objective() == {"kind": "classification", "form": "regression", "labels": []}


FAULTS = [
    ({"text": 3, "label": "a"}, "text", "3 is not text"),
    ({"text": None, "label": "a"}, "text", "null is not text"),
    ({"text": ["x"], "label": "a"}, "text", "is not text"),
    ({"label": "a"}, "text", "is missing"),
    ({"text": "\ud800", "label": "a"}, "text", "a lone surrogate"),
    ({"text": "x"}, "label", "there is no label"),
    ({"text": "x", "label": None}, "label", "there is no label"),
    ({"text": "x", "label": ""}, "label", "there is no label"),
    ({"text": "x", "label": 1.5}, "label", "is not a label"),
    ({"text": "x", "label": {"a": 1}}, "label", "is not a label"),
]


@pytest.mark.parametrize(("row", "column", "why"), FAULTS)
def test_R11_every_fault_is_named_by_file_line_and_column(tmp_path, row, column, why):
    jsonl(tmp_path, "a.jsonl", [*many(20), row, *many(2)])
    with pytest.raises(UserError) as error:
        table(tmp_path, train="a.jsonl").examples("train")
    assert f'a.jsonl, line 21, column "{column}": ' in str(error.value)
    assert why in str(error.value)
    assert str(error.value).startswith("1 bad row:")
    assert error.value.exit_code == 2


def test_R11_bad_rows_of_all_files_at_once_and_skipping_them(tmp_path):
    jsonl(tmp_path, "a.jsonl", [*many(20), *(fault for fault, _, _ in FAULTS)])
    jsonl(tmp_path, "d.jsonl", [{"text": "x", "label": "new"}, {"text": "x", "label": "a"}])
    options = {"train": "a.jsonl", "dev": "d.jsonl"}
    with pytest.raises(UserError) as error:
        print(table(tmp_path, **options).labels)
    assert str(error.value).startswith("11 bad rows:")
    assert 'd.jsonl, line 1, column "label": "new" is not a label of this task' in str(error.value)
    task = table(tmp_path, **options, skip_bad_rows=True)
    assert len(task.examples("train")) == 20
    assert len(task.bad_rows("train")) == 10
    assert json.loads(task.bad_rows("dev")[0].raw) == {"text": "x", "label": "new"}
    assert task.origin("train").note == "10 bad rows skipped"
    assert task.labels == ("a", "b")


def test_R11_ids_must_be_unique_and_present(tmp_path):
    rows = [{"text": "x", "label": "a", "id": key} for key in ("1", 1, None, "", "3")]
    with pytest.raises(UserError) as error:
        table(tmp_path, train=jsonl(tmp_path, "a.jsonl", rows), id="id").examples("train")
    for words in ('line 2, column "id": the id "1" occurs twice, first in 1', 'line 3, column "id"', "line 4"):
        assert words in str(error.value)


@pytest.mark.parametrize("cell", ["nan", "inf", "1_0", "one", "1,5,2", "0x1"])
def test_R11_numbers_that_are_none(tmp_path, cell):
    (tmp_path / "a.tsv").write_text(f"text\tlabel\nx\t{cell}\ny\t-1.5e1\n")
    with pytest.raises(UserError, match=r'line 2, column "label": .* is not a finite number'):
        table(tmp_path, form="regression", train="a.tsv", dev="a.tsv").examples("train")


@pytest.mark.parametrize("value", [["a", "a"], [""], [None], "a", 3, {"a": 1}])
def test_R11_lists_of_labels_that_are_none(tmp_path, value):
    rows = [{"text": "x", "label": ["a"]}, {"text": "y", "label": value}]
    with pytest.raises(UserError, match='line 2, column "label"'):
        table(tmp_path, form="multilabel", train=jsonl(tmp_path, "a.jsonl", rows), dev="a.jsonl").examples("train")


def test_a_missing_column_names_what_there_is_and_the_nearest(tmp_path):
    jsonl(tmp_path, "a.jsonl", [{"sentence": "x", "lable": "a"}])
    with pytest.raises(UserError, match=r'no column "label" \(did you mean "lable"\?\); it has sentence, lable'):
        table(tmp_path, train="a.jsonl", text="sentence").examples("train")
    with pytest.raises(UserError, match='no column "text"; it has sentence, lable') as refused:
        table(tmp_path, train="a.jsonl").examples("train")
    assert "Write text: COLUMN, or file: a.jsonl in place of kind and train" in str(refused.value)
    with pytest.raises(UserError, match=r"Write label: COLUMN, or file: a.jsonl in place of"):
        table(tmp_path, train="a.jsonl", text="sentence").examples("train")
    with pytest.raises(UserError, match=r'no column "words"; it has sentence, lable$'):
        table(tmp_path, train="a.jsonl", text="words").examples("train")


def test_one_label_is_no_task(tmp_path):
    with pytest.raises(UserError, match='only "a"'):
        table(tmp_path, train=jsonl(tmp_path, "a.jsonl", many(20, "a"))).examples("train")


def test_a_file_that_is_not_here_matters_only_when_asked_for(tmp_path):
    jsonl(tmp_path, "t.jsonl", [{"text": "x"}])
    task = table(tmp_path, train="gone.jsonl", test="t.jsonl", labels=["a", "b"])
    assert len(task.examples("test")) == 1
    with pytest.raises(UserError, match=r"gone\.jsonl, does not exist"):
        task.examples("train")
    with pytest.raises(UserError, match='has no split "dev_mismatched"'):
        task.examples("dev_mismatched")


def test_parquet_lists_and_nulls(tmp_path):
    pq.write_table(pa.table({"text": ["x", "y"], "label": [["a"], None], "rest": [1, 2]}), tmp_path / "a.parquet")
    with pytest.raises(UserError, match='row 2, column "label": there is no label'):
        table(tmp_path, form="multilabel", train="a.parquet", dev="a.parquet").examples("train")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "needs a file"),
        ({"train": "a.csv", "form": "pair"}, "needs text2"),
        ({"train": "a.csv", "form": "single", "text2": "b"}, "write form: pair"),
        ({"train": "a.csv", "form": "regression", "labels": ["a"]}, "has no labels"),
        ({"train": "a.csv", "name": "../x"}, "name"),
        ({"train": "a.csv", "colour": 1}, "colour"),
    ],
)
def test_options_that_do_not_fit(options, words):
    with pytest.raises(ValueError, match=words):
        Table.model_validate(options)


SPELLED = ["Positive", "positive", " Positive ", "negative", "Negative"]


def spelled(folder, name="a.jsonl", labels=SPELLED):
    return jsonl(folder, name, [{"text": f"t{i}", "label": label} for i, label in enumerate(labels * 4)])


def test_F72_a_list_of_labels_takes_rows_that_differ_in_case_or_blanks(tmp_path):
    task = table(tmp_path, train=spelled(tmp_path), dev="a.jsonl", labels=["negative", "positive"])
    assert task.labels == ("negative", "positive")
    assert [e.label for e in task.examples("train")][:5] == ["positive"] * 3 + ["negative"] * 2


@pytest.mark.parametrize(
    ("rows", "names", "labels"),
    [
        ([0, 1, 2], {0: "entailment", 1: "neutral"}, ("entailment", "neutral", "2")),
        (["0", "1", "2"], {0: "no", 1: "yes", 2: "yes"}, ("no", "yes")),
        (["spam", "Junk", "ham"], {"Junk": "spam"}, ("spam", "ham")),
    ],
)
def test_F72_labels_rename_and_merge(tmp_path, rows, names, labels):
    task = table(tmp_path, train=spelled(tmp_path, labels=rows), dev="a.jsonl", labels=names)
    assert task.labels == labels
    assert {e.label for e in task.examples("dev")} == set(labels)
    again = table(tmp_path, **{key: value for key, value in task.to_dict().items() if key != "kind"})
    assert again.labels == labels


def test_F72_several_labels_that_become_one_are_one(tmp_path):
    file = jsonl(tmp_path, "m.jsonl", [{"text": "x", "label": ["a", "A"]}, {"text": "y", "label": ["b"]}])
    task = table(tmp_path, form="multilabel", train=file, dev=file, labels={"A": "a"})
    assert [e.label for e in task.examples("train")] == [("a",), ("b",)]


def test_F72_labels_that_are_probably_one_are_named():
    warning = spelling_warning("table/a", ["Negative", "negative", "Positive", " positive", "mixed"])
    assert '"Negative", "negative"; "Positive", " positive"' in warning
    assert "labels: [Negative, Positive, mixed]" in warning
    assert spelling_warning("table/a", ["a", "b"]) is None


@pytest.mark.parametrize("ending", ["parquet", "jsonl"])
def test_whole_floats_are_labels(tmp_path, ending):
    rows = [{"text": f"some text number {i}", "label": float(i % 3 + 1)} for i in range(30)]
    if ending == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    else:
        jsonl(tmp_path, "a.jsonl", rows)
    options, _ = Table.of_file(f"a.{ending}", tmp_path, {})
    assert options["form"] == "single"
    task = table(tmp_path, **{key: value for key, value in options.items() if key != "kind"})
    assert task.labels == ("1", "2", "3")
    assert {e.label for e in task.examples("train")} == {"1", "2", "3"}


def test_a_float_without_a_label_is_a_missing_label(tmp_path):
    rows = [*({"text": f"t{i}", "label": float(i % 2)} for i in range(20)), {"text": "x", "label": math.nan}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    with pytest.raises(UserError, match='row 21, column "label": there is no label'):
        table(tmp_path, train="a.parquet").examples("train")


def test_floats_with_a_fraction_are_a_quantity(tmp_path):
    rows = [{"text": f"some text number {i}", "label": 0.5 * (i % 2)} for i in range(30)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    assert Table.of_file("a.parquet", tmp_path, {})[0]["form"] == "regression"


def test_a_file_with_1_answers_a_model_that_was_trained_on_1_0(tmp_path):
    (tmp_path / "a.csv").write_text("text,label\n" + "".join(f"t{i},{i % 2}.0\n" for i in range(20)))
    (tmp_path / "gold.csv").write_text("text,label\nx,1\ny,0.0\n")
    task = table(tmp_path, train="a.csv", test="gold.csv")
    assert task.labels == ("0.0", "1.0")
    assert [e.label for e in task.examples("test")] == ["1.0", "0.0"]


@pytest.mark.parametrize(
    ("options", "rows", "why"),
    [
        (
            {"form": "single", "labels": ["a", "b"]},
            [{"text": "x", "label": "a"}, {"text": "y", "label": ""}],
            "no label",
        ),
        ({"form": "regression"}, [{"text": "x", "label": 0.5}, {"text": "y", "label": None}], "no label"),
        ({"form": "multilabel", "labels": ["a"]}, [{"text": "x", "label": []}, {"text": "y"}], "no label"),
        ({"form": "tags", "labels": ["O", "B"]}, [{"tokens": ["x"], "tags": ["O"]}, {"tokens": ["y"]}], "no tags"),
        (
            {"form": "ranking"},
            [{"text": "x", "candidates": ["a", "b"], "label": 1}, {"text": "y", "candidates": ["a", "b"]}],
            "correct candidate is not given",
        ),
    ],
)
def test_in_a_test_file_all_labels_are_absent_or_none(tmp_path, options, rows, why):
    kind = Table.variant(options)
    test = str(tmp_path / jsonl(tmp_path, "t.jsonl", rows))
    with pytest.raises(UserError, match=rf"1 bad row:\n.*line 2.*{why}"):
        kind.model_validate({**options, "test": test}).examples("test")
    kept = kind.model_validate({**options, "test": test, "skip_bad_rows": True})
    assert [e.label is None for e in kept.examples("test")] == [False]
    jsonl(tmp_path, "t.jsonl", [rows[1], rows[1]])
    hidden = kind.model_validate({**options, "test": test})
    assert [e.label for e in hidden.examples("test")] == [None, None]


def test_without_a_dev_part_all_rows_are_trained_on(tmp_path):
    jsonl(tmp_path, "all.jsonl", many())
    task = table(tmp_path, train="all.jsonl", dev_fraction=0)
    assert task.splits() == ("train",)
    assert len(task.examples("train")) == 20
    with pytest.raises(UserError, match='has no split "dev"'):
        task.examples("dev")


def test_a_misspelt_key_is_named_before_the_columns_are_asked_for(tmp_path):
    rows = [(f"some text of row {i}", "ab"[i % 2], "xy"[i // 2 % 2]) for i in range(20)]
    file = jsonl(tmp_path, "all.jsonl", [dict(zip(("text", "one", "two"), row, strict=True)) for row in rows])
    with pytest.raises(UserError, match=r"--tasks\.lable: unknown key of task table; did you mean --tasks\.label\?"):
        Table.of_file(str(file), tmp_path, {"lable": "two"})


def test_a_dev_file_without_labels_is_told_row_by_row(tmp_path):
    jsonl(tmp_path, "train.jsonl", many())
    jsonl(tmp_path, "dev.jsonl", [{"text": "t", "label": None}, {"text": "u", "label": ""}])
    with pytest.raises(UserError, match=r'dev\.jsonl, line 1, column "label": there is no label'):
        table(tmp_path, train="train.jsonl", dev="dev.jsonl").examples("dev")
    jsonl(tmp_path, "dev.jsonl", [{"text": "t", "label": "x"}, {"text": "u", "label": "y"}])
    with pytest.raises(UserError, match=r"dev\.jsonl, lines 1 to 2, .* say which is which \(labels: {x: …, y: …}\)"):
        table(tmp_path, train="train.jsonl", dev="dev.jsonl").examples("dev")
