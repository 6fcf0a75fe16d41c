import csv
import io
import json
import sys

import pytest

import encodery as en
from encodery.config.load import load
from encodery.training.run import train_run
from tests.toolbox.runs import config_for
from tests.toolbox.tasks import mood, sentences, write_csv


def stdin(monkeypatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


@pytest.mark.slow
def test_one_text(trained, encodery):
    said = encodery("predict", trained("single"), "--text", "the good cat")
    row = json.loads(said.out)
    want = en.load(trained("single"))("the good cat")
    assert said.code == 0
    assert (row["text"], row["prediction"]) == ("the good cat", want.label)
    assert row["probabilities"] == pytest.approx(dict(want.probabilities))


@pytest.mark.slow
def test_F71_several_texts_are_all_answered_in_order(trained, encodery):
    texts = ["the good cat", "a bad film", "the good cat"]
    words = [word for text in texts for word in ("--text", text)]
    rows = [json.loads(line) for line in encodery("predict", trained("single"), *words).out.splitlines()]
    assert [(row["id"], row["text"]) for row in rows] == list(zip("012", texts, strict=True))
    pairs = ["--text", "a cat", "--text2", "a dog", "--text", "a film", "--text2", "a bird"]
    rows = [json.loads(line) for line in encodery("predict", trained("pair"), *pairs).out.splitlines()]
    assert [(row["text"], row["text2"]) for row in rows] == [("a cat", "a dog"), ("a film", "a bird")]
    said = encodery("predict", trained("pair"), *pairs[:-2])
    assert said.code == 2
    assert "--text is given 2 times and --text2 1 times" in said.err


@pytest.mark.parametrize("name", ["b.csv", "b.jsonl", "-"])
def test_F70_ids_of_predictions_do_not_shift_after_skipped_rows(name, trained, tmp_path, encodery, monkeypatch):
    csv_text = b"text\ngood film 0\ncaf\xe9\ngood film 2\na,b\ngood film 4\n"
    jsonl = b'{"text": "good film 0"}\n{"text": \n{"text": "good film 2"}\n{"text": 3}\n{"text": "good film 4"}\n'
    if name == "-":
        stdin(monkeypatch, b"good film 0\ncaf\xe9\ngood film 2\n\xff\ngood film 4\n")
    else:
        (tmp_path / name).write_bytes(csv_text if name == "b.csv" else jsonl)
    file = name if name == "-" else tmp_path / name
    said = encodery("predict", trained("single"), "--file", file, "--skip-bad-rows")
    rows = [json.loads(line) for line in said.out.splitlines()]
    assert [(row["id"], row["text"]) for row in rows] == [(str(i), f"good film {i}") for i in (0, 2, 4)]
    assert "2 skipped rows:" in said.err
    assert [f"line {i + (name == 'b.csv')}" in said.err for i in (2, 4)] == [True, True]


@pytest.mark.slow
def test_formats_are_called_as_everywhere(trained, encodery):
    words = ["predict", trained("single"), "--text", "a | good film", "--text", "a bad film"]
    lines = [json.loads(line) for line in encodery(*words, "--format", "jsonl").out.splitlines()]
    assert json.loads(encodery(*words, "--format", "json").out) == lines
    assert len(lines) == 2
    header, rule, first, second = encodery(*words, "--format", "md").out.splitlines()
    assert header.startswith("| id | text | prediction | p_")
    assert set(rule) == {"|", "-"}
    assert f"| a \\| good film | {lines[0]['prediction']} |" in first
    assert f"| a bad film | {lines[1]['prediction']} |" in second
    assert encodery(*words, "--format", "csv").out.splitlines()[0] == header[2:-2].replace(" | ", ",")
    assert encodery(*words, "--format", "latex").code == 2


@pytest.mark.slow
def test_the_old_word_for_rich_works_with_a_line(trained, encodery):
    words = ["predict", trained("single"), "--text", "a good film", "--format"]
    old, new = encodery(*words, "table"), encodery(*words, "rich")
    assert (old.code, old.out) == (0, new.out)
    assert "--format table is called rich now; the old name works until the next release" in old.err
    assert "called rich now" not in new.err


@pytest.mark.slow
def test_a_pair_for_people(trained, encodery):
    said = encodery("predict", trained("pair"), "--text", "a cat", "--text2", "a\nlong " * 30, "--format", "rich")
    assert said.code == 0
    assert said.out.count("\n") == 1
    assert "a cat | a long a long" in said.out
    assert "…" in said.out
    said = encodery("predict", trained("regression"), "--text", "a cat", "--format", "rich")
    assert float(said.out.split()[0]) is not None
    assert encodery("predict", trained("multilabel"), "--text", "a cat", "--format", "rich").code == 0


@pytest.mark.slow
def test_a_nested_text_is_written_once_and_a_nested_id_has_a_column(tmp_path, encodery):
    lines = [{"meta": {"id": f"p{i}"}, "post": {"body": t}, "is": mood(t)} for i, t in enumerate(sentences(40))]
    file, answers = tmp_path / "new.jsonl", tmp_path / "answers.csv"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    task = {"kind": "table", "train": str(file), "text": "post.body", "label": "is", "id": "meta.id"}
    run = train_run(load(config_for(tmp_path, task)), tmp_path / "run")
    said = encodery("predict", run.path, "--file", file)
    rows = [json.loads(line) for line in said.out.splitlines()]
    assert list(rows[0]) == ["meta", "post", "is", "meta.id", "prediction", "probabilities"]
    assert [row["post"] for row in rows] == [line["post"] for line in lines]
    assert [row["meta.id"] for row in rows] == [line["meta"]["id"] for line in lines]
    assert encodery("predict", run.path, "--file", file, "-o", answers).code == 0
    assert encodery("score", answers, "--on", file, "--json").code == 0  # by the ids in meta.id


@pytest.mark.slow
def test_a_file_with_the_columns_of_training(trained, tmp_path, encodery):
    texts = sentences(5, 40)
    file = write_csv(tmp_path / "new.csv", ["premise", "hypothesis"], [(t, t) for t in texts])
    said = encodery("predict", trained("pair"), "--file", file)
    rows = [json.loads(line) for line in said.out.splitlines()]
    assert [row["premise"] for row in rows] == [row["hypothesis"] for row in rows] == texts
    assert [row["id"] for row in rows] == list("01234")
    assert "text" not in rows[0]


def test_a_file_with_other_columns_and_ids(trained, tmp_path, encodery):
    file = tmp_path / "new.jsonl"
    file.write_text('{"id": "x", "review": "good"}\n{"id": "y", "review": ""}\n')
    out = tmp_path / "answers.jsonl"
    said = encodery("predict", trained("single"), "--file", file, "--text-column", "review", "-o", out)
    assert (said.code, said.out) == (0, f"{out}: 2 predictions\n")
    assert [json.loads(line)["id"] for line in out.read_text().splitlines()] == ["x", "y"]


@pytest.mark.slow
def test_answers_as_csv_and_tsv(trained, tmp_path, encodery):
    file = write_csv(tmp_path / "new.csv", ["text"], [['a, "cat"'], ["b\nc\td"]])
    assert encodery("predict", trained("single"), "--file", file, "-o", tmp_path / "a.csv").code == 0
    rows = list(csv.DictReader((tmp_path / "a.csv").open(newline="")))
    assert [row["text"] for row in rows] == ['a, "cat"', "b\nc\td"]
    assert float(rows[0]["p_neg"]) + float(rows[0]["p_pos"]) == pytest.approx(1)
    assert encodery("predict", trained("single"), "--file", file, "-o", tmp_path / "a.tsv").code == 0
    lines = (tmp_path / "a.tsv").read_text().splitlines()
    assert [len(line.split("\t")) for line in lines] == [5, 5, 5]
    chance = rows[0]["p_neg"]
    assert float(chance) == float(f"{float(chance):.9g}")  # nine digits hold a float32


def test_a_format_given_beside_a_file_is_the_one_that_is_written(trained, tmp_path, encodery):
    words = ["predict", trained("single"), "--text", "a good film", "-o"]
    assert encodery(*words, tmp_path / "a.txt", "--format", "csv").code == 0
    assert (tmp_path / "a.txt").read_text().startswith("id,text,prediction,p_neg,p_pos\n")
    said = encodery(*words, tmp_path / "a.csv", "--format", "json")
    assert said.code == 2
    assert "--format json is for the screen; with -o use jsonl, csv, tsv" in said.err
    assert not (tmp_path / "a.csv").exists()


def test_score_reads_what_a_spreadsheet_saved(trained, tmp_path, encodery):
    gold = tmp_path / "gold.csv"
    gold.write_text("id;text;label\nk7;a good film;pos\nk8;a bad caf\xe9;neg\n", encoding="utf-8")
    answers = tmp_path / "answers.csv"
    answers.write_bytes("id;text;prediction\nk7;a good film;pos\nk8;a bad caf\xe9;pos\n".encode("cp1252"))
    said = encodery("score", answers, "--on", gold, "--json")
    (scores,) = json.loads(said.out).values()
    assert (said.code, scores["accuracy"]) == (0, 0.5)


@pytest.mark.slow
def test_stdin_lines_pairs_and_json(trained, encodery, monkeypatch):
    stdin(monkeypatch, b"ein Text\nzwei\n")
    said = encodery("predict", trained("single"), "--file", "-")
    assert [json.loads(line)["text"] for line in said.out.splitlines()] == ["ein Text", "zwei"]
    stdin(monkeypatch, b"a cat\ta dog\n")
    assert json.loads(encodery("predict", trained("pair"), "--file", "-").out)["text2"] == "a dog"
    stdin(monkeypatch, b'{"text": "a cat"}\n')
    assert json.loads(encodery("predict", trained("single"), "--file", "-").out)["text"] == "a cat"


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "nothing to read"),
        (b"good\n\xff\n", "stdin, line 2: byte 1 of the line (0xff) is not valid UTF-8"),
        (b'{"text": "a"}\n{"text": 3}\n', "stdin, line 2"),
        (b'{"text": "a"}\n{"text": \n', "stdin, line 2"),
    ],
)
def test_R11_bad_input_is_named(data, sentence, trained, encodery, monkeypatch):
    stdin(monkeypatch, data)
    said = encodery("predict", trained("single"), "--file", "-")
    assert said.code == 2
    assert sentence in said.err
    if data.startswith(b"{"):
        stdin(monkeypatch, data)
        assert encodery("predict", trained("single"), "--file", "-", "--skip-bad-rows").code == 0


@pytest.mark.slow
def test_refusals(trained, tmp_path, encodery, monkeypatch):
    file = write_csv(tmp_path / "new.csv", ["body"], [["a"]])

    def refused(form, *words):
        said = encodery("predict", trained(form), *words)
        assert (said.code, said.out) == (2, "")
        return said.err

    assert 'column "text"' in refused("single", "--file", file)
    assert "new.txt" in refused("single", "--file", tmp_path / "new.txt")
    assert "unknown kind of file" in refused("single", "--file", tmp_path / "new.docx")
    assert "reads pairs" in refused("pair", "--text", "a")
    assert "reads single texts" in refused("single", "--text", "a", "--text2", "b")
    assert "reads single texts" in refused("single", "--file", file, "--text-column", "body", "--text2-column", "x")
    assert "needs --text" in refused("single", "--file", file, "--text2", "b")
    assert "are written to .jsonl" in refused("single", "--text", "a", "-o", tmp_path / "a.xlsx")
    assert "does not exist" in refused("single", "--text", "a", "-o", tmp_path / "no" / "a.csv")
    assert "required" in refused("single")
    stdin(monkeypatch, b"only one text\n")
    assert "stdin, line 1: expected two texts" in refused("pair", "--file", "-")


@pytest.mark.parametrize("end", [".jsonl", ".csv"])
def test_ids_and_all_other_columns_are_kept(end, trained, tmp_path, encodery):
    (tmp_path / "new.csv").write_text("id;text;team;prediction\nk7;a good film;x;old\nk8;the cat sleeps;y;new\n")
    out = tmp_path / f"answers{end}"
    assert encodery("predict", trained("single"), "--file", tmp_path / "new.csv", "-o", out).code == 0
    text = out.read_text()
    rows = (
        list(csv.DictReader(io.StringIO(text), delimiter=";"))
        if end == ".csv"
        else [json.loads(line) for line in text.splitlines()]
    )
    assert [(row["id"], row["team"], row["input_prediction"]) for row in rows] == [
        ("k7", "x", "old"),
        ("k8", "y", "new"),
    ]
    assert {row["prediction"] for row in rows} <= {"pos", "neg"}
    assert list(rows[0])[:4] == ["id", "text", "team", "input_prediction"]  # in the order of the file


@pytest.mark.slow
def test_columns_keep_their_names_and_score_finds_the_ids(tmp_path, encodery):
    rows = [(f"T-{i}", text, "web", mood(text)) for i, text in enumerate(sentences(60))]
    header = ["ticket_id", "description", "channel", "team"]
    file = write_csv(tmp_path / "tickets.csv", header, rows)
    task = {"kind": "table", "train": str(file), "text": "description", "label": "team", "id": "ticket_id"}
    run = train_run(load(config_for(tmp_path, task)), tmp_path / "run")
    spelled = [(*row[:3], [row[3], row[3].title(), f"{row[3]} "][i % 3]) for i, row in enumerate(rows[:30])]
    gold, answers = write_csv(tmp_path / "gold.csv", header, spelled), tmp_path / "answers.csv"
    assert encodery("predict", run.path, "--file", gold, "-o", answers).code == 0
    first = next(csv.DictReader(answers.open(newline="")))
    assert list(first) == [*header, "prediction", "p_neg", "p_pos"]
    assert [first[name] for name in header] == list(spelled[0])
    said = encodery("evaluate", run.path, "--on", gold, "--json", "--quiet")
    accuracy = json.loads(said.out)["table/gold:test"]["scores"]["accuracy"]
    said = encodery("score", answers, "--on", gold, "--json")
    assert json.loads(said.out)["table/gold:test"]["accuracy"] == accuracy  # case and blanks of a label do not matter


@pytest.mark.slow
def test_a_file_in_another_encoding(trained, tmp_path, encodery):
    (tmp_path / "a.csv").write_bytes("text,note\na good film,schön\n".encode("utf-16"))
    assert json.loads(encodery("predict", trained("single"), "--file", tmp_path / "a.csv").out)["note"] == "schön"
    (tmp_path / "b.csv").write_bytes("text,note\na good film,schön\n".encode("cp1252"))
    assert "UTF-8" in encodery("predict", trained("single"), "--file", tmp_path / "b.csv").err
    said = encodery("predict", trained("single"), "--file", tmp_path / "b.csv", "--encoding", "cp1252")
    assert json.loads(said.out)["note"] == "schön"


@pytest.fixture(scope="module")
def mails(tmp_path_factory):
    """A run whose files have names of their own, and customers as ids."""
    folder = tmp_path_factory.mktemp("mails")
    rows = [(f"A{i}", text, mood(text)) for i, text in enumerate(sentences(40))]
    file = write_csv(folder / "mails.csv", ["customer", "message", "team"], rows)
    task = {"kind": "table", "train": str(file), "text": "message", "label": "team", "id": "customer"}
    return train_run(load(config_for(folder, task)), folder / "run").path


@pytest.mark.slow
@pytest.mark.parametrize("more", [[], ["--skip-bad-rows"]])
def test_a_customer_may_write_twice(more, mails, tmp_path, encodery):
    texts = ["the good cat", "a bad film", "a good film"]
    file = write_csv(tmp_path / "new.csv", ["customer", "message"], list(zip(["A1", "A1", "A2"], texts, strict=True)))
    said = encodery("predict", mails, "--file", file, *more)
    rows = [json.loads(line) for line in said.out.splitlines()]
    assert [(row["id"], row["customer"], row["message"]) for row in rows] == [
        ("0", "A1", texts[0]), ("1", "A1", texts[1]), ("2", "A2", texts[2]),
    ]  # fmt: skip
    model = en.load(mails)
    assert [row["prediction"] for row in rows] == [model(text).label for text in texts]
    assert "values of customer repeat, so rows are numbered" in said.err


@pytest.mark.slow
def test_a_text_column_is_found_by_its_usual_name_else_asked_for(mails, tmp_path, encodery):
    file = write_csv(tmp_path / "new.csv", ["text", "when"], [["the good cat", "now"]])
    assert encodery("predict", mails, "--file", file).code == 0
    assert list(en.predict(mails, file)["text"]) == ["the good cat"]
    said = encodery("predict", mails, "--file", write_csv(tmp_path / "b.csv", ["body", "when"], [["a", "now"]]))
    assert said.code == 2
    assert 'there is no column "message"' in said.err
    assert "--text-column" in said.err


@pytest.mark.slow
def test_bytes_of_windows_are_answered_with_the_flag(mails, tmp_path, encodery):
    (tmp_path / "new.csv").write_bytes("message;x\nsch\xf6n;1\ngut f\xfcr mich;2\n".encode("cp1252"))
    said = encodery("predict", mails, "--file", tmp_path / "new.csv")
    assert (said.code, "looks like cp1252: add --encoding cp1252" in said.err) == (2, True)
    assert encodery("predict", mails, "--file", tmp_path / "new.csv", "--encoding", "cp1252").code == 0


@pytest.fixture(scope="module")
def tagger(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tagger")
    sentences_ = "\n\n".join(f"{name} B-PER\nruns O" for name in ("Anna", "Zoe", "Ben", "Eva") * 4)
    (folder / "a.conll").write_text(sentences_ + "\n\n")
    task = {
        "kind": "table",
        "form": "tags",
        "name": "names",
        "train": str(folder / "a.conll"),
        "dev": str(folder / "a.conll"),
    }
    return en.train(config_for(folder, task), folder / "run").path


@pytest.mark.slow
def test_words_of_a_file_are_where_its_kind_has_them(tagger, tmp_path, encodery):
    (tmp_path / "a.conllu").write_text("1\tAnna\t_\tB-PER\n2-3\tdo\t_\t_\n2\truns\t_\tO\n\n")
    (tmp_path / "a.conll").write_text("Anna\nruns\n\n")
    (tmp_path / "a.txt").write_text("Anna O\nruns O\n\n" * 3)
    for name, count in (("a.conllu", 1), ("a.conll", 1), ("a.txt", 3)):
        rows = [json.loads(line) for line in encodery("predict", tagger, "--file", tmp_path / name).out.splitlines()]
        assert [row["words"] for row in rows] == [["Anna", "runs"]] * count
    assert "has no labels" in encodery("evaluate", tagger, "--on", tmp_path / "a.conll").out


@pytest.mark.slow
def test_tags_are_written_as_they_are_read_and_scored(tagger, trained, tmp_path, encodery):
    (tmp_path / "gold.conll").write_text("Anna B-PER\nruns O\n\nZoe B-PER\n\n")
    said = encodery("predict", tagger, "--file", tmp_path / "gold.conll", "-o", tmp_path / "answers.conll")
    assert said.code == 0
    lines = (tmp_path / "answers.conll").read_text().split("\n")
    assert [line.split("\t")[0] for line in lines] == ["Anna", "runs", "", "Zoe", "", ""]
    jsonl = encodery("predict", tagger, "--file", tmp_path / "gold.conll", "-o", tmp_path / "answers.jsonl")
    assert jsonl.code == 0
    scores = [
        encodery("score", tmp_path / f"answers.{form}", "--on", tmp_path / "gold.conll") for form in ("conll", "jsonl")
    ]
    assert [one.code for one in scores] == [0, 0]
    assert scores[0].out == scores[1].out
    assert encodery("predict", tagger, "--text", "Zoe", "--format", "conll").out.startswith("Zoe\t")
    (tmp_path / "answers.conll").write_text("Anna O\nwalks O\n\nZoe O\n\n")
    wrong = encodery("score", tmp_path / "answers.conll", "--on", tmp_path / "gold.conll")
    assert (wrong.code, "line 1: the words are not those of sentence" in wrong.err) == (2, True)
    (tmp_path / "answers.conll").write_text("Zoe O\n\n")
    short = encodery("score", tmp_path / "answers.conll", "--on", tmp_path / "gold.conll")
    assert (short.code, "has 1 sentence where there should be 2" in short.err) == (2, True)
    (tmp_path / "x.jsonl").write_text(json.dumps({"words": ["a b"], "text": ["a b"]}) + "\n")
    blank = encodery("predict", tagger, "--file", tmp_path / "x.jsonl", "-o", tmp_path / "x.conll")
    assert (blank.code, '"a b" is no word of such a file' in blank.err) == (2, True)
    other = encodery("predict", trained("single"), "--text", "good", "-o", tmp_path / "x.conll")
    assert (other.code, "the model gives no tags" in other.err) == (2, True)
    assert not (tmp_path / "x.conll").exists()


@pytest.mark.slow
def test_a_model_of_tags_takes_lists_of_words(tagger):
    import pandas as pd

    model = en.load(tagger)
    frame = pd.DataFrame({"tokens": [["Anna", "x y"], ["Zoe"]], "n": [1, 2]})
    answers = model(frame)
    assert [len(tags) for tags in answers["prediction"]] == [2, 1]
    assert [one.tags for one in model(frame["tokens"])] == [tuple(tags) for tags in answers["prediction"]]
    assert model([["Zoe"]])[0] == model(["Zoe"])[0]
    with pytest.raises(TypeError, match="row 1: 3 is not a word"):
        model([["Anna"], [3]])


@pytest.mark.slow
def test_words_in_a_table_are_one_json_list_whatever_they_hold(tagger, tmp_path, encodery):
    (tmp_path / "a.conll").write_text("a,b O\nc O\n\nd O\ne O\n\n[x O\n\n")
    said = encodery("predict", tagger, "--file", tmp_path / "a.conll", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(said.out)))
    assert [json.loads(row["words"]) for row in rows] == [["a,b", "c"], ["d", "e"], ["[x"]]
    assert all(len(row["prediction"].split(",")) == len(json.loads(row["words"])) for row in rows)


@pytest.mark.slow
def test_questions_in_squads_json_are_answered(tmp_path, encodery):
    places = ["Rome", "Oslo", "Bern", "Riga"]
    paragraphs = [
        {"context": f"The cat is in {where}.", "qas": [{"id": where, "question": "Where is the cat?",
         "answers": [{"text": where, "answer_start": 14}]}]} for where in places
    ]  # fmt: skip
    (tmp_path / "qa.json").write_text(json.dumps({"data": [{"title": "cats", "paragraphs": paragraphs}]}))
    task = {
        "kind": "table",
        "form": "spans",
        "name": "qa",
        "train": str(tmp_path / "qa.json"),
        "dev": str(tmp_path / "qa.json"),
    }
    run = en.train(config_for(tmp_path, task), tmp_path / "run").path
    for question in paragraphs:
        del question["qas"][0]["answers"]
    (tmp_path / "new.json").write_text(json.dumps({"data": [{"title": "cats", "paragraphs": paragraphs}]}))
    rows = [json.loads(line) for line in encodery("predict", run, "--file", tmp_path / "new.json").out.splitlines()]
    assert [(row["id"], row["question"]) for row in rows] == [
        (w, "Where is the cat?") for w in ("Rome", "Oslo", "Bern", "Riga")
    ]
    assert all(row["prediction"] in row["context"] for row in rows)
