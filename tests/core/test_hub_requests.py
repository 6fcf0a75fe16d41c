"""A hub whose server is out of order is asked again; who is refused is not."""

import pytest

from encodery.core import hub_requests


class Answer:
    def __init__(self, status_code: int) -> None:
        self.status_code = status_code


class Refused(Exception):
    def __init__(self, status_code: int) -> None:
        self.response = Answer(status_code)


def fails(codes: list[int], wrapped: bool = False) -> str:
    """A request that is answered with these codes, one after the other."""
    if not codes:
        return "here"
    code = codes.pop(0)
    if not wrapped:
        raise Refused(code)
    try:
        raise Refused(code)
    except Refused as error:
        raise FileNotFoundError("not in the cache either") from error


@pytest.mark.parametrize("wrapped", [False, True])
def test_it_is_asked_again_while_it_is_out_of_order(wrapped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses, codes = list[float](), [500, 503]
    monkeypatch.setattr(hub_requests.time, "sleep", pauses.append)
    assert hub_requests.asked_again(lambda: fails(codes, wrapped)) == "here"
    assert pauses == list(hub_requests.PAUSES[:2])
    kind = FileNotFoundError if wrapped else Refused
    with pytest.raises(kind) as caught:
        hub_requests.asked_again(lambda: fails([503], wrapped))
    assert hub_requests.out_of_order(caught.value)
    assert len(pauses) == 2 + len(hub_requests.PAUSES)


def test_a_refusal_is_final(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_requests.time, "sleep", lambda _: pytest.fail("asked again"))
    with pytest.raises(Refused):
        hub_requests.asked_again(lambda: fails([404, 404]))
    assert not hub_requests.out_of_order(ValueError("other"))
