"""The processes that train one model together: who they are, and the few things they say to each other.

torchrun, `accelerate launch` and `encodery train --processes` start them and tell each its number. With one process
every function here answers at once. Small things travel as JSON, so nothing is pickled; sums are made in the order of
the ranks, so all processes hold the same numbers, to the bit.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from encodery.core.text import first_line
from encodery.distributed import heartbeat
from encodery.errors import ProcessLost, RunFailed, UserError

# Others may wait while one of them tokenises a corpus or scores a large set. Dead and frozen processes are noticed
# by the launcher and by heartbeats, not by this.
LONGEST_WAIT = timedelta(hours=24)
BUCKET = 25 * 2**20  # bytes of gradients that travel at once
TABLE = 4096  # rows from which on a matrix may be a table of embeddings
ROWS_WHERE = {"cpu"}  # of tables the used rows travel; to know which they are, a host would wait for another device
LETTER = 2048  # bytes of a small thing that travel at once, the first of which say how long it is
LENGTH = 8

Number = float | list[float]

_talks = [0]  # how often the processes have spoken to each other


def launched() -> bool:
    """Whether somebody started this process as one of several."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1 and "RANK" in os.environ


def local_rank() -> int:
    """Number of this process on its machine: which device it takes."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def join() -> None:
    """Meet the others, if there are any; a second call changes nothing."""
    if not launched():
        return
    if not dist.is_initialized():
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo"
        with contact():
            dist.init_process_group(backend, timeout=LONGEST_WAIT)
    heartbeat.start(rank(), size())
    wait()


def end_run() -> None:
    """A run is over for all of them; another may follow."""
    if size() == 1:
        return
    wait()  # the first may have much to write
    heartbeat.stop()
    wait()  # nobody listens any more, so nobody is missed


def leave() -> None:
    """Part for good, after `end_run`."""
    if dist.is_initialized():
        dist.destroy_process_group()


def local_device(device: torch.device) -> torch.device:
    """The device of this process, where several share a machine with several devices."""
    if launched() and device.type == "cuda" and not dist.is_nccl_available():
        raise UserError(
            "several processes on GPUs exchange gradients through nccl, which this build of torch lacks: "
            "install a build with it (see pytorch.org), or train with one process, or with --device cpu"
        )
    if not launched() or device.type == "cpu" or ":" in str(device):  # cuda:1 is a wish
        return device
    if local_rank() >= torch.accelerator.device_count():
        raise UserError(
            f"at least {local_rank() + 1} processes, but only {torch.accelerator.device_count()} devices here"
        )
    torch.accelerator.set_device_index(local_rank())
    return torch.device(device.type, local_rank())


def size() -> int:
    """How many processes there are."""
    return dist.get_world_size() if dist.is_initialized() else 1


def rank() -> int:
    """The number of this one."""
    return dist.get_rank() if dist.is_initialized() else 0


def is_main() -> bool:
    """Whether this one writes the files: the only one that does."""
    return rank() == 0


@contextmanager
def contact() -> Iterator[None]:
    """What torch raises when another process is gone, as a sentence with an exit code of its own."""
    _talks[0] += 1
    try:
        yield
    except (RuntimeError, ValueError) as error:
        raise ProcessLost(
            f"rank {os.environ.get('RANK', 0)} lost the other processes ({first_line(error)[:200]})"
        ) from error


def collectives() -> int:
    """How often the processes have spoken: what was said cannot be begun again by one of them alone."""
    return _talks[0]


def wait() -> None:
    """Until everybody is here."""
    if size() > 1:
        gather(None)


@contextmanager
def one_by_one() -> Iterator[None]:
    """First one process of each machine, then its others: what the first leaves in a cache, they find whole."""
    if local_rank() > 0:
        wait()
    yield
    if local_rank() == 0:
        wait()


def gather(value: Any) -> list[Any]:
    """What everybody says, by rank."""
    if size() == 1:
        return [value]
    text = json.dumps(value).encode()
    with contact():
        said = gathered(_letter(len(text).to_bytes(LENGTH, "big") + text, LETTER)).numpy()
        lengths = [int.from_bytes(one[:LENGTH].tobytes(), "big") for one in said]
        if max(lengths) > LETTER - LENGTH:  # too long for one letter: again, with room for all of it
            said = gathered(_letter(bytes(LENGTH) + text, max(lengths) + LENGTH)).numpy()
    return [json.loads(one[LENGTH : LENGTH + n].tobytes()) for one, n in zip(said, lengths, strict=True)]


def _letter(text: bytes, room: int) -> Tensor:
    """So many bytes, cut or filled up."""
    return torch.frombuffer(bytearray(text[:room].ljust(room, b"\0")), dtype=torch.uint8)


def from_main(value: Any) -> Any:
    """What the first one says; what the others give does not matter."""
    return value if size() == 1 else gather(value if is_main() else None)[0]


def any_of(flag: bool) -> bool:
    """Whether it holds for anybody."""
    return flag if size() == 1 else any(gather(flag))


def add_up(numbers: Mapping[tuple[str, str], Number]) -> dict[tuple[str, str], Number]:
    """Sums over all processes; what only some of them have counts too."""
    return add_up_each([numbers])[0]


def add_up_each(several: Sequence[Mapping[tuple[str, str], Number]]) -> list[dict[tuple[str, str], Number]]:
    """The same for as many sets of numbers in all processes, in one message."""
    totals: list[dict[tuple[str, str], Number]] = [{} for _ in several]
    for said in gather([[[*key, value] for key, value in numbers.items()] for numbers in several]):
        for sums, numbers in zip(totals, said, strict=True):
            for first, second, value in numbers:
                known = sums.get((first, second))
                sums[first, second] = value if known is None else _plus(known, value)
    return totals


def _plus(a: Number, b: Number) -> Number:
    if isinstance(a, list) and isinstance(b, list):
        return [x + y for x, y in zip(a, b, strict=True)]
    assert isinstance(a, float | int)
    assert isinstance(b, float | int)
    return a + b


def add_terms(terms: Mapping[tuple[str, str], Tensor]) -> dict[tuple[str, str], Tensor]:
    """Loss sums and notes of the whole step."""
    return add_terms_each([terms])[0]


def add_terms_each(steps: Sequence[Mapping[tuple[str, str], Tensor]]) -> list[dict[tuple[str, str], Tensor]]:
    """The same of several steps, in one message."""
    if size() == 1:
        return [dict(terms) for terms in steps]
    sums = add_up_each([{key: value.double().tolist() for key, value in terms.items()} for terms in steps])
    return [{key: torch.tensor(value, dtype=torch.float64) for key, value in whole.items()} for whole in sums]


def sum_(tensor: Tensor) -> Tensor:
    """Add up over all processes, in place."""
    if size() > 1:
        with contact():
            dist.all_reduce(tensor)
    return tensor


def reduce_gradients(parameters: Iterable[torch.nn.Parameter]) -> None:
    """The gradient of the whole step, on every process: sums, since each loss was divided by the totals of all.

    A parameter that got none here but elsewhere becomes zeros; one that got none anywhere stays without, so that
    weight decay leaves it alone. Of large tables only the rows travel that somebody has used, where `ROWS_WHERE` says.
    """
    every = list(parameters)
    if size() == 1 or not every or isinstance(every[0], DTensor):  # FSDP has summed what it shards
        return
    with contact():
        rows = [used_rows(p.grad) if p.grad is not None else None for p in every]
        counts = gathered(torch.tensor([_count(p, some) for p, some in zip(every, rows, strict=True)]))
        dense = []
        for parameter, some, used in zip(every, rows, counts.T.tolist(), strict=True):
            if max(used) == UNUSED:
                continue
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            if sends_rows(parameter) and 2 * sum(max(one, 0) for one in used) < len(parameter):
                _reduce_rows(parameter.grad, some, [max(one, 0) for one in used])
            else:
                dense.append(parameter)
        for bucket in buckets(dense):
            _reduce(bucket)


UNUSED = -1  # in place of a count: no gradient at all


def sends_rows(tensor: Tensor) -> bool:
    """Whether a gradient may have many empty rows (that of word embeddings has), which need not travel."""
    return tensor.ndim == 2 and len(tensor) >= TABLE and tensor.device.type in ROWS_WHERE


def used_rows(grad: Tensor) -> Tensor | None:
    """The rows of a table's gradient that are not zero; None for others."""
    if not sends_rows(grad):
        return None
    used = (grad.amax(1) != 0) | (grad.amin(1) != 0)  # of NaN too; a norm takes four times as long
    return used.nonzero()[:, 0]


def _count(parameter: torch.nn.Parameter, rows: Tensor | None) -> int:
    if parameter.grad is None:
        return UNUSED
    return len(rows) if rows is not None else 0


def gathered(tensor: Tensor) -> Tensor:
    """One row for each process; equal shapes."""
    found = [torch.empty_like(tensor) for _ in range(size())]
    dist.all_gather(found, tensor)
    return torch.stack(found)


def _reduce_rows(grad: Tensor, rows: Tensor | None, counts: Sequence[int]) -> None:
    """Everybody's rows, added in the order of the ranks."""
    mine = rows if rows is not None else torch.zeros(0, dtype=torch.int64, device=grad.device)
    room = max(counts) - len(mine)
    ids = gathered(torch.nn.functional.pad(mine, (0, room)))
    values = gathered(torch.nn.functional.pad(grad[mine], (0, 0, 0, room)))
    grad[mine] = 0
    for number, count in enumerate(counts):
        grad.index_add_(0, ids[number, :count], values[number, :count])


def buckets(parameters: Sequence[torch.nn.Parameter]) -> Iterator[list[torch.nn.Parameter]]:
    """Parameters whose gradients are of one type, up to 25 MB together."""
    held: list[torch.nn.Parameter] = []
    room = 0
    for parameter in parameters:
        bytes_ = parameter.numel() * parameter.element_size()
        if held and (room + bytes_ > BUCKET or parameter.dtype != held[0].dtype or parameter.device != held[0].device):
            yield held
            held, room = [], 0
        held.append(parameter)
        room += bytes_
    if held:
        yield held


def _reduce(parameters: Sequence[torch.nn.Parameter]) -> None:
    """One message; the gradients become parts of it, which spares the way back."""
    grads = [one.grad for one in parameters if one.grad is not None]
    flat = torch.cat([grad.reshape(-1) for grad in grads]) if len(grads) > 1 else grads[0].reshape(-1)
    dist.all_reduce(flat)
    for one, part in zip(parameters, torch.split(flat, [grad.numel() for grad in grads]), strict=True):
        one.grad = part.view_as(one)


def require_equal(named: Iterable[tuple[str, Tensor]], what: str) -> None:
    """An error if the processes hold different numbers: other weights at the start, or a lost gradient."""
    if size() == 1:
        return
    sums = {name: [float(t.detach().double().sum()), float(t.detach().double().abs().sum())] for name, t in named}
    said = gather([[name, *map(repr, both)] for name, both in sums.items()])
    for other, theirs in enumerate(said):
        if theirs != said[0]:
            pairs = zip(said[0], theirs, strict=False)
            odd = next((a[0] for a, b in pairs if a != b), "the number of tensors")
            raise RunFailed(f"{what} differ between rank 0 and rank {other}: {odd}")
