"""Requests to a hub: where its server is out of order (5xx) it is asked again, after a pause."""

import time
from collections.abc import Callable
from typing import TypeVar

Answer = TypeVar("Answer")
PAUSES = (1.0, 4.0, 15.0)  # seconds before it is asked again
ADVICE = f"also after {len(PAUSES)} more attempts; run the same command later"


def asked_again(request: Callable[[], Answer]) -> Answer:
    """What a request gives, if need be at the last attempt."""
    for pause in PAUSES:
        try:
            return request()
        except Exception as error:
            if not out_of_order(error):
                raise
            time.sleep(pause)
    return request()


def out_of_order(error: BaseException | None) -> bool:
    """Whether it is the server's fault; libraries wrap what the hub's client raised."""
    seen = set[int]()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if getattr(getattr(error, "response", None), "status_code", 0) >= 500:
            return True
        error = error.__cause__ or error.__context__
    return False
