"""Tags, spans, rankings and long texts through every verb: train, load, evaluate, predict, score."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import encodery as en
from encodery.cli import main
from encodery.errors import UserError
from encodery.inference.answer_head import SpanHead
from tests.toolbox.runs import config_for
from tests.toolbox.tasks import sentences
from tests.toolbox.vocabulary import ENGLISH

SENTENCES = sentences(40)


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def tags(folder: Path) -> dict[str, Any]:
    kinds = {"cat": "B-animal", "dog": "B-animal", "bird": "B-animal"}
    rows = [{"tokens": t.split(), "tags": [kinds.get(w, "O") for w in t.split()]} for t in SENTENCES]
    return {"kind": "table", "form": "tags", "name": "animals", "train": write_jsonl(folder / "tags.jsonl", rows)}


def spans(folder: Path, head: str = "simple") -> dict[str, Any]:
    rows = []
    for i, text in enumerate(SENTENCES):
        word = text.split()[-1]
        row = {"id": f"q{i}", "title": f"t{i // 4}", "context": text, "question": "very good"}
        answer = {"answer_text": [word], "answer_start": [len(text) - len(word)], "is_impossible": False}
        none: dict[str, Any] = {"answer_text": [], "answer_start": [], "is_impossible": True}
        rows.append({**row, **(answer if i % 3 else none)})
    path = write_jsonl(folder / "spans.jsonl", rows)
    return {"kind": "table", "form": "spans", "name": "last", "train": path, "head": head, "stride": 4}


def ranking(folder: Path) -> dict[str, Any]:
    rows = [
        {"text": t, "candidates": [t, *SENTENCES[i % 5 : i % 5 + 1 + i % 2]], "label": t}
        for i, t in enumerate(SENTENCES[8:])
    ]
    return {"kind": "table", "form": "ranking", "name": "same", "train": write_jsonl(folder / "rank.jsonl", rows)}


def long_texts(folder: Path) -> dict[str, Any]:
    rows = [{"text": " ".join(SENTENCES[i : i + 4]), "label": "ab"[i % 2]} for i in range(30)]
    path = write_jsonl(folder / "long.jsonl", rows)
    return {"kind": "table", "name": "long", "train": path, "window_stride": 6}


FORMS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "tags": tags, "spans": spans, "joint": lambda f: spans(f, "joint"), "ranking": ranking, "long": long_texts,
}  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    found: dict[str, Path] = {}

    def get(name: str) -> Path:
        if name not in found:
            folder = tmp_path_factory.mktemp(name)
            settings = config_for(folder, FORMS[name](folder), train={"max_length": 14, "max_steps": 3})
            found[name] = en.train(settings, folder / "run").path
        return found[name]

    return get


def only_key(run: Path) -> str:
    return next(iter(json.loads((run / "scores.json").read_text())["scores"]))


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_evaluating_the_saved_model_gives_the_scores_of_the_run(
    form: str, runs: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run = runs(form)
    key = only_key(run)
    before = en.api.Run(run).scores[key]
    assert main(["evaluate", str(run), "--on", key, "--json", "--quiet"]) == 0
    found = json.loads(capsys.readouterr().out)[key]["scores"]
    assert found == pytest.approx(before, abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_the_run_s_own_predictions_score_the_same(
    form: str, runs: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run = runs(form)
    key = only_key(run)
    (file,) = (run / "predictions").glob("*.jsonl")
    assert main(["score", str(file), "--on", f"{run}:dev", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)[key]
    found.pop("note", None)  # a sentence about data that are not official, beside the figures
    scores = en.api.Run(run).scores[key]
    assert {name: scores[name] for name in found} == pytest.approx(found, abs=1e-6)


def test_squad_s_own_files_score_the_same(runs: Callable[[str], Path], capsys: pytest.CaptureFixture[str]) -> None:
    run = runs("joint")
    key, folder = only_key(run), runs("joint") / "predictions"
    scores = en.api.Run(run).scores[key]
    stem = str(folder / "table-last-dev")
    assert main(["score", f"{stem}.predictions.json", "--on", f"{run}:dev", "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)[key]
    plain.pop("note", None)  # says that the rows are an unofficial part
    assert plain == pytest.approx({name: scores[name] for name in plain})
    words = ["score", f"{stem}.texts.json", "--null-odds", f"{stem}.null_odds.json", "--on", f"{run}:dev", "--json"]
    assert main(words) == 0
    best = json.loads(capsys.readouterr().out)[key]
    for name in ("best_exact", "best_exact_threshold", "best_f1", "best_f1_threshold"):
        assert best[name] == pytest.approx(scores[name])
    nbest = json.loads(Path(f"{stem}.nbest.json").read_text())
    texts = json.loads(Path(f"{stem}.texts.json").read_text())
    assert all(texts[id] == (listed[0]["text"] if listed else "") for id, listed in nbest.items())


@pytest.mark.slow
def test_words_in_tags_out(runs: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = runs("tags")
    assert len(en.load(run)("the cat sleeps here").tags) == 4
    rows = write_jsonl(tmp_path / "in.jsonl", [{"tokens": ["the", "cat"]}, {"tokens": ["a", "very", "good", "dog"]}])
    (tmp_path / "in.conll").write_text("the\tO\ncat\tX\n\na\tO\nvery\tO\ngood\tO\ndog\tX\n")
    found = []
    for file in (rows, str(tmp_path / "in.conll")):
        assert main(["predict", str(run), "--file", file, "--quiet", "--format", "jsonl"]) == 0
        found.append([json.loads(line) for line in capsys.readouterr().out.splitlines()])
    assert [(r["words"], r["prediction"]) for r in found[0]] == [(r["words"], r["prediction"]) for r in found[1]]
    assert [len(row["prediction"]) for row in found[0]] == [2, 4]
    assert main(["predict", str(run), "--text", "the cat", "--format", "table"]) == 0
    assert capsys.readouterr().out.count("/") == 2


@pytest.mark.slow
@pytest.mark.parametrize("form", ["spans", "joint"])
def test_question_and_context_in_answer_out(
    form: str, runs: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = runs(form)
    context = " ".join(ENGLISH)
    answer = en.load(run)(("very good", context))
    assert answer.text is not None
    assert answer.text == (context[answer.start : answer.start + len(answer.text)] if answer.text else "")
    file = write_jsonl(tmp_path / "in.jsonl", [{"question": "very good", "context": context}])
    assert main(["predict", str(run), "--file", file, "--quiet", "--format", "jsonl"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert row["text"] in context
    assert row["prediction"] == answer.text
    assert main(["predict", str(run), "--text", "very good", "--text2", context, "--quiet", "--format", "jsonl"]) == 0
    typed = json.loads(capsys.readouterr().out)
    assert (typed["input_text"], typed["text2"]) == ("very good", context)
    assert (typed["text"], typed["prediction"]) == (answer.text, answer.text)
    assert typed["start"] == answer.start
    assert main(["predict", str(run), "--text", "very good", "--text2", context, "--quiet", "--format", "rich"]) == 0
    assert "very good | " in capsys.readouterr().out


def test_no_answer_has_no_text_where_people_read_it() -> None:
    head = SpanHead(called="squad", max_length=32)
    best = {"text": "Rome", "start": 9, "null_odds": 2.0, "nbest": [{"text": "Rome", "score": 1.0, "start": 9}]}
    assert head.told({"prediction": "", **best}) == {"prediction": "", "text": "", "start": None, "null_odds": 2.0}
    assert head.told({"prediction": "Rome", **best}) == {
        "prediction": "Rome", "text": "Rome", "start": 9, "null_odds": 2.0,
    }  # fmt: skip


@pytest.mark.slow
def test_candidates_in_choice_out(
    runs: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = runs("ranking")
    choice = en.load(run)(("the cat", "a dog", "the cat", "here"))
    assert set(choice.probabilities) == {"0", "1", "2"}
    with pytest.raises(UserError, match="at least two candidates"):
        en.load(run)("the cat")
    file = write_jsonl(tmp_path / "in.jsonl", [{"text": "the cat", "candidates": ["a dog", "the cat", "here"]}])
    assert main(["predict", str(run), "--file", file, "--quiet", "--format", "jsonl"]) == 0
    assert json.loads(capsys.readouterr().out)["prediction"] == choice.label


def test_long_texts_are_read_to_their_end(runs: Callable[[str], Path]) -> None:
    model = en.load(runs("long"))
    start = " ".join(SENTENCES[:4])
    assert model(start) != model(start + " awful awful awful")


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_a_model_beside_itself_says_what_it_says_alone(
    form: str, runs: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = runs(form)
    key = only_key(run)
    words = ["--on", key, "--json", "--quiet", "-o", str(tmp_path / "both")]
    assert main(["evaluate", str(run), str(run), *words]) == 0
    found = json.loads(capsys.readouterr().out)[key]["scores"]
    assert found == pytest.approx(en.api.Run(run).scores[key], abs=1e-5)
    (both,) = (tmp_path / "both" / "predictions").glob("*.jsonl")
    (alone,) = (run / "predictions").glob("*.jsonl")
    said = [[json.loads(line) for line in path.read_text().splitlines()] for path in (alone, both)]
    assert [row["prediction"] for row in said[0]] == [row["prediction"] for row in said[1]]
    assert all(set(one) == set(two) for one, two in zip(*said, strict=True))


@pytest.mark.slow(0.5)
def test_predict_takes_several_models(
    runs: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_jsonl(tmp_path / "in.jsonl", [{"tokens": ["the", "cat"]}, {"tokens": ["dog"]}])
    run, rows = str(runs("tags")), []
    for models in ([run], [run, run]):
        assert main(["predict", *models, "--file", file, "--quiet", "--format", "jsonl"]) == 0
        rows.append([json.loads(line) for line in capsys.readouterr().out.splitlines()])
    assert [row["prediction"] for row in rows[0]] == [row["prediction"] for row in rows[1]]
    assert rows[1][0]["confidence"] == pytest.approx(rows[0][0]["confidence"])
    assert main(["predict", run, str(runs("ranking")), "--file", file, "--quiet"]) == 2
    assert "no head fits table/animals" in capsys.readouterr().err


@pytest.mark.slow
def test_a_head_for_whole_texts_is_refused(tmp_path: Path) -> None:
    for form in ("tags", "spans"):
        settings = config_for(tmp_path, FORMS[form](tmp_path))
        settings["model"]["head"] = "linear"
        with pytest.raises(UserError, match=r"model\.head"):
            en.train(settings, tmp_path / form)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "name"),
    [
        ("tags", "TokenClassification"),
        ("spans", "QuestionAnswering"),
        ("joint", "QuestionAnswering (after import encodery)"),
        ("ranking", "Seq"),
    ],
)
def test_an_exported_model_says_the_same(form: str, name: str, runs: Callable[[str], Path], tmp_path: Path) -> None:
    from encodery.exchange.export import export

    done = export(runs(form), tmp_path / "out")
    assert f"AutoModelFor{name}" in done.opens_with


OPENED = """
import sys
sys.path.insert(0, {root!r})
{imports}
import torch
from transformers import AutoConfig, AutoModelForTokenClassification, AutoTokenizer
net = AutoModelForQuestionAnswering.from_pretrained({folder!r}, dtype=torch.float32).eval()
assert AutoConfig.from_pretrained({folder!r}).model_type == "encodery-joint-span"
assert type(net).__name__ == "JointSpanForQuestionAnswering"
given = AutoTokenizer.from_pretrained({folder!r})("very good", "the cat sleeps here", return_tensors="pt")
found = net(**given)
print(found.null_logits.item(), found.start_top_index[0, 0].item(), found.start_top_log_probs[0, 0].item(),
      found.end_top_index[0, 0, 0].item(), found.end_top_log_probs[0, 0, 0].item())
small = AutoConfig.for_model("amos", num_hidden_layers=1, hidden_size=16, num_attention_heads=2, vocab_size=20)
assert type(small).__module__ == "encodery.models.amos_config"
assert type(AutoModelForTokenClassification.from_config(small)).__name__.startswith("Amos")
"""
LIGHT = "assert not {'transformers', 'torch'} & set(sys.modules)"


@pytest.mark.parametrize(
    "imports",
    [
        f"import encodery\n{LIGHT}\nfrom transformers import AutoModelForQuestionAnswering",
        "from transformers import AutoModelForQuestionAnswering\nimport encodery",
    ],
)
@pytest.mark.slow
def test_the_joint_head_and_amos_open_with_the_auto_classes(imports: str, runs: Callable[[str], Path]) -> None:
    """In a new process each, because the order of the imports must not matter."""
    import subprocess
    import sys

    from encodery.tasks.base import Example

    folder, root = str(runs("joint") / "model"), str(Path(en.__file__).parents[1])
    code = OPENED.format(imports=imports, folder=folder, root=root)
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    (row,) = en.load(runs("joint")).outputs([Example("q", ("very good", "the cat sleeps here"))])
    best = [row["null"], row["starts"][0], row["start_scores"][0], row["ends"][0][0], row["end_scores"][0][0]]
    assert [float(word) for word in said.stdout.split()] == pytest.approx(best, abs=1e-5)


def test_the_joint_head_says_where_the_text_begins(runs: Callable[[str], Path]) -> None:
    """Without token types, as of RoBERTa, p_mask says it; without either nothing can be known."""
    import torch
    from transformers import AutoModelForQuestionAnswering

    net = AutoModelForQuestionAnswering.from_pretrained(runs("joint") / "model", dtype=torch.float32).eval()
    ids, types = torch.arange(5, 12)[None], torch.tensor([[0, 0, 0, 1, 1, 1, 1]])
    mask = torch.ones_like(ids)
    typed = net(ids, mask, types)
    assert torch.equal(net(ids, mask, types, p_mask=1 - types).start_logits, typed.start_logits)
    assert (typed.start_logits.softmax(1)[0, 1:3] == 0).all()
    with pytest.raises(ValueError, match="where the question ends"):
        net(ids, mask)


def test_a_joint_head_of_another_width_is_refused(runs: Callable[[str], Path], tmp_path: Path) -> None:
    import shutil

    shutil.copytree(runs("joint") / "model", tmp_path / "model")
    card = json.loads((tmp_path / "model/encodery.json").read_text())
    next(iter(card["tasks"].values()))["objective"]["inner"] = 8
    (tmp_path / "model/encodery.json").write_text(json.dumps(card))
    with pytest.raises(UserError, match="has no joint span head that fits"):
        en.load(tmp_path / "model")


@pytest.mark.slow
def test_the_encoder_of_a_joint_run_begins_another_run(runs: Callable[[str], Path], tmp_path: Path) -> None:
    settings = config_for(tmp_path, tags(tmp_path), train={"max_length": 14, "max_steps": 1})
    settings["model"] = {"name": str(runs("joint"))}
    run = en.train(settings, tmp_path / "run")
    assert "left out: joint" in (run.path / "log.txt").read_text()


@pytest.mark.parametrize("form", ["tags", "spans"])
def test_models_of_others_are_evaluated_too(
    form: str, runs: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import shutil

    run = runs(form)
    shutil.copytree(run / "model", tmp_path / "theirs")
    (tmp_path / "theirs" / "encodery.json").unlink()  # as transformers alone would have saved it
    assert main(["evaluate", str(tmp_path / "theirs"), "--on", f"{run}:dev", "--json", "--quiet"]) == 0
    found = next(iter(json.loads(capsys.readouterr().out).values()))["scores"]
    assert set(found) == set(en.api.Run(run).scores[only_key(run)])


def test_the_card_says_what_kind_of_model_it_is(runs: Callable[[str], Path]) -> None:
    assert "token-classification" in (runs("tags") / "README.md").read_text()
    assert "question-answering" in (runs("joint") / "README.md").read_text()
    assert "text-classification" in (runs("long") / "README.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("head", ["simple", "joint"])
def test_spans_are_learned(head: str, tmp_path: Path) -> None:
    """The answer is the word after `very`, wherever that stands; without `very` there is none."""
    import random

    rng = random.Random(1)
    words = [word for word in ENGLISH if word not in ("very", "a", "the")]  # an article alone counts as no answer
    rows = []
    for i in range(400):
        before, after = ([rng.choice(words) for _ in range(rng.randint(1, 5))] for _ in range(2))
        start = len(" ".join([*before, "very "]))
        there = i % 4 > 0
        text = " ".join([*before, *(["very"] if there else []), *after])
        answer = {"answer_text": [after[0]] if there else [], "answer_start": [start] if there else []}
        rows.append({"id": f"q{i}", "context": text, "question": "here", "is_impossible": not there, **answer})
    task = {"kind": "table", "form": "spans", "train": write_jsonl(tmp_path / "a.jsonl", rows), "head": head}
    settings = config_for(tmp_path, task, train={"max_steps": 160, "batch_size": 32}, optim={"lr": 5e-3})
    (scores,) = en.train(settings, tmp_path / "run").scores.values()
    assert min(scores["exact"], scores["has_answer_exact"], scores["best_exact"]) > 0.9
