"""`encodery serve` as its clients see it: real processes, real HTTP."""

import json
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

from encodery.cli import main
from encodery.errors import UserError
from encodery.inference.classifier import open_classifier
from encodery.serve.batching import Batcher, Full
from encodery.serve.predictor import open_predictor
from encodery.serve.server import Address, is_loopback, read_token, require_token
from encodery.tasks.base import Answer, Example
from tests.serve.serving import Served, served, train
from tests.toolbox.tasks import pair_task, sentences, single_task

TEXTS = ["a great film", "the dog sleeps here", "very dull and bad", "a bird sings"]
TOKEN = "0123456789abcdef0123"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("served")
    return {"single": train(folder, single_task(folder), "single"), "pair": train(folder, pair_task(folder), "pair")}


@pytest.fixture(scope="module")
def single(runs: dict[str, Path]) -> Iterator[Served]:
    with served(runs["single"], "--max-texts", "20", "--max-characters", "300") as server:
        yield server


def close(found: Any, wanted: Any, run: Path) -> None:
    """Probabilities equal those of the model when it is asked in Python."""
    expected = open_classifier(run, "cpu")(wanted)
    assert [one["prediction"] for one in found] == [one.label for one in expected]
    for one, other in zip(found, expected, strict=True):
        assert one["probabilities"] == pytest.approx(dict(other.probabilities), abs=1e-5)


@pytest.mark.slow(0.5)
def test_one_text_and_many_texts_get_the_models_own_answers(single: Served, runs: dict[str, Path]) -> None:
    status, one = single.ask("/predict", {"text": TEXTS[0]})
    assert status == 200
    close(one["predictions"], TEXTS[:1], runs["single"])
    status, many = single.ask("/predict", {"texts": TEXTS})
    assert status == 200
    close(many["predictions"], TEXTS, runs["single"])
    assert single.ask("/predict", {"texts": []}) == (200, {"predictions": []})


@pytest.mark.slow(0.5)
def test_pairs_and_one_pair(runs: dict[str, Path]) -> None:
    pairs = [(TEXTS[0], TEXTS[1]), (TEXTS[2], TEXTS[3])]
    with served(runs["pair"]) as server:
        status, many = server.ask("/predict", {"pairs": pairs})
        assert status == 200
        close(many["predictions"], pairs, runs["pair"])
        _, one = server.ask("/predict", {"text": pairs[0][0], "text2": pairs[0][1]})
        assert one["predictions"][0]["prediction"] == many["predictions"][0]["prediction"]
        status, wrong = server.ask("/predict", {"text": "alone"})
        assert (status, "reads pairs of texts" in wrong["error"]) == (422, True)


@pytest.mark.slow
def test_health_version_model_and_schema(single: Served, runs: dict[str, Path]) -> None:
    assert single.ask("/health") == (200, {"status": "ok"})
    assert set(single.ask("/version")[1]) == {"encodery", "model"}
    about = single.ask("/model")[1]
    assert (about["name"], about["task"], about["labels"], about["texts"]) == (
        "single",
        "table/moods",
        ["neg", "pos"],
        1,
    )
    assert about["scores"]["scores"]["table/moods:dev"]["accuracy"] >= 0
    assert str(runs["single"].parent) not in json.dumps(about)
    status, schema = single.ask("/openapi.json")
    assert status == 200
    assert {"/predict", "/health", "/version", "/model"} == set(schema["paths"])
    assert set(schema["components"]["schemas"]["PredictRequest"]["properties"]) == {
        "text", "text2", "candidates", "texts", "pairs",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"texts": ["a"] * 21}, 413, "21 texts in one request; the limit is 20"),
        ({"text": "x" * 301}, 413, "301 characters; the limit is 300"),
        ({}, 422, "exactly one of text, texts and pairs"),
        ({"text": "a", "texts": ["b"]}, 422, "exactly one of"),
        ({"texts": ["a"], "text2": "b"}, 422, "go with text"),
        ({"text": 3}, 422, "text: expected a text"),
        ({"txt": "a"}, 422, "unknown key txt; did you mean text?"),
        ({"pairs": [["a", "b"]]}, 422, "reads single texts"),
        ({"pairs": [["a"]]}, 422, "pairs.0.1: is missing"),
        ({"text": "a\ud800"}, 422, r"text: a lone surrogate (\ud800) at position 2, which is no text"),
        ({"texts": ["a", "\udfff"]}, 422, r"texts.1: a lone surrogate (\udfff) at position 1"),
        ({"pairs": [["a", "\ud800"]]}, 422, "pairs.0.1: a lone surrogate"),
        ({"text": "a", "candidates": ["b", "\ud800"]}, 422, "candidates.1: a lone surrogate"),
        ({"text": "a", "candidates": []}, 422, "give at least 2 candidates"),
        ({"text": "a", "candidates": ["b"]}, 422, "give at least 2 candidates"),
        ([], 422, "the body must be a JSON object with text, text2, candidates, texts, pairs"),
        ("a", 422, "the body must be a JSON object with"),
    ],
)
def test_what_cannot_be_answered_is_a_sentence(single: Served, body: Any, status: int, words: str) -> None:
    found, answer = single.ask("/predict", body)
    assert found == status
    assert words in answer["error"]
    assert "Value error" not in answer["error"]


def test_bodies_are_limited_and_must_be_json(single: Served) -> None:
    assert single.ask("/predict", raw=b"{}", headers={"Content-Type": "text/plain"})[0] == 415
    assert single.ask("/predict", raw=b"{", headers={}) == (
        422, {"error": "the body is not valid JSON (character 1)"},
    )  # fmt: skip
    connection = socket.create_connection(("127.0.0.1", single.port), timeout=30)
    head = "POST /predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    connection.sendall(f"{head}Content-Length: 9000000\r\n\r\n".encode())
    assert connection.recv(100).startswith(b"HTTP/1.1 413")
    connection.close()
    assert single.ask("/predict", {"text": "a"}, headers={"Content-Type": "APPLICATION/JSON; charset=UTF-8"})[0] == 200
    assert single.ask("/health") == (200, {"status": "ok"})


def test_the_page_of_serving_lists_every_status_of_a_refusal(single: Served) -> None:
    no_length = b"POST /predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\r\n"
    asked = {
        400: lambda: single.ask("/predict", raw=b'{"text": "\xff"}')[0],
        404: lambda: single.ask("/nothing")[0],
        405: lambda: single.ask("/predict")[0],
        411: lambda: raw_status(single, no_length),
        415: lambda: single.ask("/predict", raw=b"{}", headers={"Content-Type": "text/plain"})[0],
        421: lambda: single.ask("/health", headers={"Host": "evil.example"})[0],
        422: lambda: single.ask("/predict", {})[0],
    }
    assert {code: ask() for code, ask in asked.items()} == {code: code for code in asked}
    assert raw_status(single, b"no HTTP\r\n\r\n") == 400
    text = (Path(__file__).parents[2] / "docs" / "serving.md").read_text()
    table = text.partition("| status |")[2].partition("\n\n")[0]
    assert [int(row.split("|")[1]) for row in table.splitlines()[2:]] == sorted([*asked, 401, 413, 500, 503])


def raw_status(server: Served, request: bytes) -> int:
    """The status of an answer to these bytes."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        connection.sendall(request)
        return int(connection.recv(100).split()[1])


def test_pages_of_other_sites_cannot_ask_a_server_without_a_token(single: Served) -> None:
    """DNS that leads a foreign name to loopback is how they would try."""
    status, answer = single.ask("/model", headers={"Host": "evil.example"})
    assert status == 421
    assert "own address" in answer["error"]


@pytest.mark.slow(0.5)
def test_many_clients_at_once_get_their_own_answers(single: Served, runs: dict[str, Path]) -> None:
    wanted = {text: open_classifier(runs["single"], "cpu")(text).probabilities["pos"] for text in sentences(24)}
    wrong: list[str] = []

    def client(texts: list[str]) -> None:
        for text in texts:
            status, found = single.ask("/predict", {"texts": [text, texts[0]]})
            chance = found["predictions"][0]["probabilities"]["pos"]
            if status != 200 or abs(chance - wanted[text]) > 1e-5:
                wrong.append(text)

    names = list(wanted)
    threads = [threading.Thread(target=client, args=(names[i::6],)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly(runs: dict[str, Path], number: int) -> None:
    with served(runs["single"], fresh=number == signal.SIGINT) as server:  # each fresh one costs seconds of imports
        assert server.ask("/predict", {"text": "a film"})[0] == 200
        assert server.stop(number) == 0
        server.process.wait()
    assert any("Stopped after 1 request with 1 text." in line for line in server.lines)
    assert not any("Traceback" in line for line in server.lines)


@pytest.mark.slow(0.5)
def test_a_token_is_asked_of_everything_but_the_page_and_health(runs: dict[str, Path]) -> None:
    with served(runs["single"], "--host", "0.0.0.0", ENCODERY_SERVE_TOKEN=TOKEN) as server:
        assert server.ask("/health")[0] == 200
        assert server.ask("/")[0] == 200
        for path in ("/model", "/version", "/openapi.json"):
            assert server.ask(path)[0] == 401
        assert server.ask("/predict", {"text": "a film"})[0] == 401
        assert server.ask("/predict", {"text": "a film"}, headers={"Authorization": "Bearer wrong"})[0] == 401
        given = {"Authorization": f"Bearer {TOKEN}"}
        assert server.ask("/predict", {"text": "a film"}, headers=given)[0] == 200
        assert server.ask("/model", headers=given)[0] == 200
        assert server.ask("/model", headers={"Authorization": f"bearer {TOKEN}"})[0] == 200
        assert server.ask("/model", headers={"Authorization": "bearer wrong"})[0] == 401
        server.stop()
    assert not any(TOKEN in line for line in server.lines)


def test_S7_other_hosts_need_a_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ENCODERY_SERVE_TOKEN", raising=False)
    for host in ("0.0.0.0", "::", "192.168.1.7", "example.org", ""):
        assert not is_loopback(host)
        with pytest.raises(UserError, match="a token is required"):
            require_token(Address(host, 0, None))
    for host in ("127.0.0.1", "localhost", "::1", "127.8.8.8"):
        require_token(Address(host, 0, None))
    (tmp_path / "token").write_text("short\n")
    with pytest.raises(UserError, match="has 5 characters; it needs at least 16"):
        read_token(str(tmp_path / "token"))
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    assert read_token(str(tmp_path / "token")) == TOKEN
    assert read_token(None) is None


def test_mistakes_are_known_before_the_model_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["serve", "no/such/run", "--port", port]) == 2
    assert "cannot listen there" in capsys.readouterr().err
    assert main(["serve", "no/such/run", "--host", "0.0.0.0"]) == 2
    assert "a token is required" in capsys.readouterr().err
    assert main(["serve", "no/such/run", "--batch", "0"]) == 2
    assert "--batch: 0 is not a positive number" in capsys.readouterr().err


# Batching


def test_requests_that_wait_are_answered_together_and_one_at_once_is_not_kept() -> None:
    gate, sizes = threading.Event(), []

    def answer(examples: Any) -> list[Answer]:
        sizes.append(len(examples))
        gate.wait(30)
        return [{"prediction": example.texts[0]} for example in examples]

    batcher = Batcher(answer, batch=6, waiting=5)
    first = batcher.submit([Example("x", ("a",))])
    while not sizes:
        pass
    later = [batcher.submit([Example("x", (f"{i}",)), Example("y", (f"{i}!",))]) for i in range(5)]
    with pytest.raises(Full):
        batcher.submit([Example("x", ("b",))])
    gate.set()
    assert [one["prediction"] for one in first.result(30)] == ["a"]
    assert [[one["prediction"] for one in future.result(30)] for future in later] == [
        [f"{i}", f"{i}!"] for i in range(5)
    ]
    assert sizes == [1, 6, 4]
    batcher.close()
    assert not batcher.thread.is_alive()


def test_a_request_that_fails_does_not_spoil_its_neighbours() -> None:
    gate, seen = threading.Event(), []

    def answer(examples: Any) -> list[Answer]:
        seen.append(1)
        gate.wait(30)
        if any(example.texts[0] == "bad" for example in examples):
            raise ValueError("secret")
        return [{"prediction": "ok"} for _ in examples]

    batcher = Batcher(answer)
    batcher.submit([Example("x", ("a",))])
    while not seen:
        pass
    good, bad = batcher.submit([Example("x", ("a",))]), batcher.submit([Example("x", ("bad",))])
    gate.set()
    assert good.result(30) == [{"prediction": "ok"}]
    with pytest.raises(Exception, match="could not answer this request") as error:
        bad.result(30)
    assert "secret" not in str(error.value)
    batcher.close()


# ONNX


@pytest.mark.slow
def test_onnx_with_8_bits_answers_nearly_the_same(runs: dict[str, Path]) -> None:
    pytest.importorskip("onnxruntime")
    with served(runs["pair"], "--onnx") as server:
        assert server.ask("/model")[1]["runtime"] == "ONNX Runtime, int8"
        pairs = [(TEXTS[0], TEXTS[1]), (TEXTS[2], TEXTS[3])]
        status, found = server.ask("/predict", {"pairs": pairs})
    assert status == 200
    expected = open_classifier(runs["pair"], "cpu")(pairs)
    for one, other in zip(found["predictions"], expected, strict=True):
        assert one["probabilities"] == pytest.approx(dict(other.probabilities), abs=0.05)


@pytest.mark.slow
def test_onnx_in_float32_answers_the_same(runs: dict[str, Path]) -> None:
    pytest.importorskip("onnxruntime")
    with served(runs["single"], "--onnx", "fp32") as server:
        status, found = server.ask("/predict", {"texts": TEXTS})
    assert status == 200
    close(found["predictions"], TEXTS, runs["single"])


# Precision


@pytest.mark.slow
def test_a_lower_precision_is_served_and_told(runs: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    served = open_predictor(str(runs["single"]), "cpu", precision="bf16")
    assert served.about()["runtime"] == "PyTorch, bf16"
    exact, rounded = (
        one([Example("0", (TEXTS[0],))])[0]["probabilities"] for one in (open_predictor(str(runs["single"])), served)
    )
    assert exact != rounded
    assert exact == pytest.approx(rounded, abs=0.02)
    assert main(["serve", str(runs["single"]), "--onnx", "--precision", "bf16"]) == 2
    assert "is for PyTorch" in capsys.readouterr().err
