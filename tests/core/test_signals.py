"""R7: the first signal asks, a second Ctrl-C insists."""

import contextlib
import os
import signal
import threading

import pytest

from encodery.core.signals import StopRequest
from encodery.errors import Stopped


def send(number: int) -> None:
    os.kill(os.getpid(), number)
    signal.getsignal(number)  # the handler runs between two instructions


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_R7_first_signal_only_asks(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with StopRequest() as stop:
        assert not stop.requested
        send(number)
        assert stop.requested
        assert stop.signal_name == number.name
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
def test_R7_second_ctrl_c_stops_at_once(first: signal.Signals) -> None:
    before = signal.getsignal(signal.SIGINT)
    with StopRequest():
        send(first)
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_R7_repeated_sigterm_is_one_request() -> None:
    with StopRequest() as stop:
        send(signal.SIGTERM)
        send(signal.SIGTERM)
        assert stop.requested


def test_R7_other_threads_leave_handlers_alone() -> None:
    before, seen = signal.getsignal(signal.SIGINT), []

    def work() -> None:
        with StopRequest() as stop:
            seen.append((stop.requested, signal.getsignal(signal.SIGINT)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(False, before)]


def swallowed(raise_another: bool) -> None:
    """What libraries do that catch every exception while they are imported."""
    with StopRequest(early=True) as stop:
        with contextlib.suppress(Exception):
            send(signal.SIGTERM)
        if raise_another:
            raise ImportError("cannot load module")
        stop.begin()


@pytest.mark.parametrize("raise_another", [True, False])
def test_S13_what_a_library_makes_of_an_early_signal_is_still_a_stop(raise_another: bool) -> None:
    with pytest.raises(Stopped, match="before training began"):
        swallowed(raise_another)
