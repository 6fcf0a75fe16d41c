"""Starts the processes of a run on this machine through torchrun's own agent, and starts them again when one dies."""

import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from encodery.errors import EncoderyError, ProcessLost, RunFailed, Stopped, UserError

NODES = "ENCODERY_NODES"  # set for an agent of several machines: `2 host:port`, where they meet
OURS = "ENCODERY_LAUNCHED"  # in the environment of processes that this page started
PATIENCE = "ENCODERY_PATIENCE"  # seconds in which processes that are asked to end may save, if it is not GRACE
GRACE = 25
MEETING = 300  # seconds in which agents on other machines may begin


def launched_by_us() -> bool:
    """Whether this is one of the processes, and not the command that starts them."""
    return OURS in os.environ


def launch(words: Sequence[str], processes: int, restarts: int, say: Callable[[str], None]) -> None:
    """Run `encodery WORDS` in so many processes; a dead one ends all, and they restart from the last checkpoint."""
    if processes < 1 or restarts < 0:
        raise UserError("--processes must be at least 1, --restarts at least 0")
    if "RANK" in os.environ:
        raise UserError("--processes starts torchrun itself; omit it under torchrun or `accelerate launch`")
    if NODES in os.environ:  # machines must begin again together: torchrun's agents agree on that
        together, restarts = restarts, 0
    else:
        together = 0
    for left in range(restarts, -1, -1):
        failure = attempt(words, processes, together)
        if failure is None:
            return
        if not failure.again or left == 0:
            raise failure.error()
        tries = f"{left} {'restart' if left == 1 else 'restarts'} left"
        say(f"{failure.sentence}; all {processes} restart from the last checkpoint ({tries})")


@dataclass(frozen=True)
class Failure:
    """How the processes ended: the exit codes of those that failed, by rank; negative ones are signals."""

    codes: Mapping[int, int]

    @property
    def first(self) -> tuple[int, int]:
        """The rank that is to blame: one that a signal ended, else one that did not merely lose the others.

        SIGTERM is what the launcher sends to all others when the first one has ended, so it says little.
        """
        late = (-signal.SIGTERM, ProcessLost.exit_code)
        return min(self.codes.items(), key=lambda one: (one[1] in late, one[1] >= 0, one[0]))

    @property
    def again(self) -> bool:
        """Whether another attempt may go better: a process was killed or lost, and nobody has said why not."""
        return self.first[1] < 0 or self.first[1] == ProcessLost.exit_code

    @property
    def sentence(self) -> str:
        """Rank and signal, or exit code."""
        rank, code = self.first
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return f"rank {rank} {how}"

    def error(self) -> EncoderyError:
        """With the exit code that one process alone would have had."""
        for kind in (UserError, Stopped, RunFailed):
            if self.first[1] == kind.exit_code:
                return kind(f"{self.sentence} (see above)")
        return ProcessLost(f"{self.sentence}; run the same command to resume from the last checkpoint")


def meeting() -> dict[str, Any]:
    """Where the agents meet: here, or at the first of several machines."""
    if NODES not in os.environ:
        return {"min_nodes": 1, "max_nodes": 1, "rdzv_endpoint": "127.0.0.1:0", "local_addr": "127.0.0.1"}
    nodes, place = os.environ[NODES].split()
    patient = {"read_timeout": MEETING}
    return {"min_nodes": int(nodes), "max_nodes": int(nodes), "rdzv_endpoint": place, "rdzv_configs": patient}


def attempt(words: Sequence[str], processes: int, restarts: int = 0) -> Failure | None:
    """All processes, to their end; None if that was a good one."""
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous import RendezvousError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    config = LaunchConfig(
        **meeting(), nproc_per_node=processes, run_id="encodery", rdzv_backend="c10d", max_restarts=restarts,
        monitor_interval=0.1, shutdown_timeout=int(os.environ.get(PATIENCE, GRACE)),
    )  # fmt: skip
    with environment():
        try:
            elastic_launch(config, sys.executable)("-m", "encodery", *words)
        except ChildFailedError as error:
            return Failure({rank: one.exitcode for rank, one in error.failures.items()})
        except SignalException as stopped:
            name = signal.Signals(stopped.sigval).name
            raise Stopped(f"stopped ({name}); run the same command to resume from the last checkpoint") from None
        except RendezvousError as error:
            where = meeting()["rdzv_endpoint"]
            raise ProcessLost(
                f"the machines of this run could not connect at {where} ({error}): one of them ended, or its network "
                "does not reach that address; run the same command to resume from the last checkpoint"
            ) from None
    return None


class environment:
    """What the processes inherit while this block lasts: one thread each unless somebody says otherwise."""

    def __enter__(self) -> None:
        self.before = dict(os.environ)
        os.environ[OURS] = "1"
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        if sys.platform == "linux" and NODES not in os.environ:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # nobody else needs to reach them

    def __exit__(self, *_: Any) -> None:
        os.environ.clear()
        os.environ.update(self.before)
