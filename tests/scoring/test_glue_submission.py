import json
import zipfile

import pytest

from encodery.errors import UserError
from encodery.scoring.glue_submission import FILES, check_submission, write_submission
from encodery.tasks.glue import TABLE


def answers(part, split, rows=None):
    known = TABLE[part]
    guess = (lambda i: i / 100 - 1) if known.bounds else (lambda i: known.labels[i % len(known.labels)])
    return {str(i): {"prediction": guess(i)} for i in range(rows or known.counts[split])}


@pytest.fixture(scope="module")
def everything():
    return {f"glue/{file.part}:{file.split}": answers(file.part, file.split) for file in FILES.values()}


@pytest.fixture(scope="module")
def submission(everything, tmp_path_factory):
    path = tmp_path_factory.mktemp("s") / "glue.zip"
    write_submission(everything, path)
    return path


def texts(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


def changed(path, out, **files):
    with zipfile.ZipFile(out, "w") as archive:
        for name, text in (texts(path) | files).items():
            if text is not None:
                archive.writestr(name, text)
    return out


ROWS = {
    "CoLA.tsv": 1063,
    "SST-2.tsv": 1821,
    "MRPC.tsv": 1725,
    "QQP.tsv": 390965,
    "WNLI.tsv": 146,
    "STS-B.tsv": 1379,
    "MNLI-m.tsv": 9796,
    "MNLI-mm.tsv": 9847,
    "AX.tsv": 1104,
    "QNLI.tsv": 5463,
    "RTE.tsv": 3000,
}


@pytest.mark.slow
def test_F11_eleven_files_with_header_rows_indices_and_labels(submission):
    found = texts(submission)
    assert {name: text.count("\n") - 1 for name, text in found.items()} == ROWS
    for name, text in found.items():
        lines = text.split("\n")
        assert lines[0] == "index\tprediction"
        assert [line.split("\t")[0] for line in lines[1:-1]] == [str(i) for i in range(ROWS[name])]
        assert all(line.count("\t") == 1 for line in lines[:-1])
    scores = [line.split("\t")[1] for line in found["STS-B.tsv"].split("\n")[1:-1]]
    assert (scores[0], scores[150], scores[-1]) == ("0.000", "0.500", "5.000")
    labels = {line.split("\t")[1] for line in found["AX.tsv"].split("\n")[1:-1]}
    assert labels == {"entailment", "neutral", "contradiction"}


@pytest.mark.slow
def test_F11_the_same_answers_give_the_same_bytes(submission, everything, tmp_path):
    write_submission(everything, tmp_path / "b.zip")
    assert (tmp_path / "b.zip").read_bytes() == submission.read_bytes()


@pytest.mark.slow
def test_F11_what_is_missing_is_named_or_filled_and_marked(tmp_path):
    some = {"glue/rte:test": answers("rte", "test"), "mnli:test_matched": answers("mnli", "test")}
    with pytest.raises(
        UserError, match=r"no test answers for CoLA\.tsv, .*MNLI-mm\.tsv, QNLI\.tsv, WNLI\.tsv, AX\.tsv"
    ):
        write_submission(some, tmp_path / "a.zip")
    assert not list(tmp_path.iterdir())
    report = write_submission(some, tmp_path / "a.zip", fill="majority")
    assert sorted(set(ROWS) - set(report["filled"])) == ["MNLI-m.tsv", "RTE.tsv"]
    assert json.loads((tmp_path / "a.zip.json").read_text())["filled"] == report["filled"]
    assert set(texts(tmp_path / "a.zip")) == set(ROWS)
    assert set(texts(tmp_path / "a.zip")["WNLI.tsv"].split("\n")[1:-1]) == {f"{i}\t0" for i in range(146)}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"glue/rte:test": answers("rte", "test", 2999)},
            "2,999 answers for 3,000 test rows; the first missing is 2999",
        ),
        ({"glue/rte:test": answers("rte", "test", 3001)}, "index 3000 is not in the test set"),
        ({"glue/rte:test": answers("wnli", "test", 3000)}, 'the answer to 0 is "0", not one of entailment'),
        ({"glue/rte:dev": {}}, 'glue/rte:dev" is not a GLUE test set'),
        ({"toy/nli:test": {}}, "is not a GLUE test set"),
        (
            {"glue/stsb:test": answers("stsb", "test") | {"5": {"prediction": float("nan")}}},
            "answer to 5 is not a number",
        ),
    ],
)
def test_F11_answers_that_do_not_fit_are_refused(tmp_path, given, words):
    with pytest.raises(UserError, match=words):
        write_submission(given, tmp_path / "a.zip", fill="majority")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("RTE.tsv", None, "RTE.tsv is missing"),
        ("extra.txt", "x", "extra.txt does not belong there"),
        ("RTE.tsv", "id\tprediction\n", "RTE.tsv must begin with the line"),
        ("RTE.tsv", "index\tprediction\n0\tentailment\n", "RTE.tsv has 1 row instead of 3,000"),
        ("RTE.tsv", "index\tprediction\n1\tentailment\n", "line 2 must have the index 0"),
        ("RTE.tsv", "index\tprediction\n0\t1\n", "line 2 has an illegal prediction"),
        ("RTE.tsv", "index\tprediction\n0\tentailment\tx\n", "line 2 has an illegal prediction"),
        ("STS-B.tsv", "index\tprediction\n0\t5.001\n", "line 2 has an illegal prediction"),
        ("STS-B.tsv", "index\tprediction\n0\tnan\n", "line 2 has an illegal prediction"),
        ("RTE.tsv", "index\tprediction\r\n0\tentailment\r\n", "must begin"),
    ],
)
def test_F11_any_zip_is_checked(submission, tmp_path, name, text, words):
    path = changed(submission, tmp_path / "a.zip", **{name: text})
    with pytest.raises(UserError, match=words):
        check_submission(path)


@pytest.mark.slow
def test_F11_a_good_zip_passes_and_no_zip_is_named(submission, tmp_path):
    check_submission(submission)
    for path in (tmp_path / "gone.zip", tmp_path):
        with pytest.raises(UserError, match="not a readable zip"):
            check_submission(path)
