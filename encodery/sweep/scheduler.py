"""The scheduler: fills the slots of this machine, waits for something to happen, and writes down what did.

It holds nothing that is not in the files: kill it at any moment and start it again. It sleeps until a run ends, a
signal comes or a second has passed; then it looks at deadlines, at requests to stop and at other schedulers.
"""

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from encodery.core.lock import BEAT
from encodery.core.progress import Progress, duration
from encodery.errors import EncoderyError
from encodery.runs.directory import RunDir
from encodery.runs.sweep_spec import Outcome, RunSpec, Source, State
from encodery.sweep import outcome, processes, state
from encodery.sweep.fixed_plan import OPEN, blocked
from encodery.sweep.launch import Launcher
from encodery.sweep.processes import Child
from encodery.sweep.slots import Slot, free_memory, has_room
from encodery.sweep.state import FINAL, Claim, RunStatus
from encodery.sweep.sweep_file import Limits

# Signals that wake a sleeping scheduler: SIGINT, SIGTERM and a terminal that is closed ask it to stop.


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Alarm:
    """`with Alarm() as alarm:` its handle becomes readable when a signal came; outside the main thread none does."""

    def __init__(self) -> None:
        self.asked = self.insisted = False
        self.handle, self._ring = os.pipe()
        os.set_blocking(self.handle, False)
        os.set_blocking(self._ring, False)
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Alarm":
        if threading.current_thread() is threading.main_thread():
            wanted = [s for s in _SIGNALS if s != signal.SIGHUP or signal.getsignal(s) == signal.SIG_DFL]  # not nohup's
            self._before = {number: signal.signal(number, self._receive) for number in wanted}
        return self

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.insisted = self.insisted or (self.asked and number == signal.SIGINT)
        self.asked = True
        self._wake()

    def ring(self) -> None:
        """Ask it to stop from another place of this process."""
        self.asked = True
        self._wake()

    def _wake(self) -> None:
        try:
            os.write(self._ring, b"!")
        except BlockingIOError:
            return  # it is ringing already

    def drain(self) -> None:
        """Be quiet until the next signal."""
        try:
            os.read(self.handle, 4096)
        except BlockingIOError:
            return

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        os.close(self.handle)
        os.close(self._ring)


TICK = 1.0  # seconds between two looks at what no handle tells
MOMENT = 0.05  # while the last processes of a run are going
Score = Callable[[RunSpec, Path], float | None]


@dataclass
class Running:
    """A run at work."""

    spec: RunSpec
    status: RunStatus
    claim: Claim
    child: Child
    slot: Slot
    deadline: float | None = None
    asked: State | None = None  # why it was told to stop
    kill_at: float | None = None
    kills: int | None = None  # processes the kernel had killed for want of memory when it began
    seen: tuple[float, int] = (0.0, 0)  # time and size of its metrics when they were last judged


class Scheduler:
    """Runs what a source offers, each run in a slot."""

    def __init__(
        self,
        folder: Path,
        source: Source,
        slots: Sequence[Slot],
        limits: Limits | None = None,
        progress: Progress | None = None,
        *,
        free_bytes: float = 0.0,
        warm: bool = True,
        share: bool = True,
        score: Score | None = None,
    ) -> None:
        self.folder, self.source, self.slots, self.limits = folder, source, list(slots), limits or Limits()
        self.progress, self.free_bytes = progress or Progress(quiet=True), free_bytes
        self.share = share  # go on with what earlier schedulers have left, and wait for what others are doing
        self.score = score
        self.launcher = Launcher(folder, warm)
        self.running: dict[str, Running] = {}
        self.elsewhere: dict[str, RunSpec] = {}
        self.waiting: deque[RunSpec] = deque()
        self.started: set[str] = set()
        self.ended: dict[str, Outcome] = {}
        self.unwritten: dict[str, RunStatus] = {}
        self.took: list[float] = []  # seconds of the runs that were done here
        self.stopping = False
        self.next_tick = self.next_beat = self.next_memory = 0.0
        self.memory: dict[str, float] = {}
        self.stop_seen = state.stop_requested(folder)
        self.alarm = Alarm()

    def run(self) -> list[Outcome]:
        """Everything, to the end; also how earlier runs of this folder ended. A second Ctrl-C kills and raises."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.alarm:
            try:
                if self.share:
                    self.recover()
                self.show()
                self.loop()
            except BaseException:
                self.abandon()
                raise
            finally:
                self.progress.stop()
                self.launcher.close()
                self.write_late()
        if self.alarm.insisted:
            raise KeyboardInterrupt
        return list(self.ended.values())

    def loop(self) -> None:
        """Until nothing is left to do."""
        while not self.finished():
            self.fill()
            if self.finished():
                return
            self.wait()
            self.heed_signals()
            for one in list(self.running.values()):
                self.attend(one)
            if time.monotonic() >= self.next_tick:
                self.next_tick = time.monotonic() + TICK
                self.tick()

    def finished(self) -> bool:
        """Whether no run is at work and none will come."""
        if self.running:
            return False
        if self.stopping:
            return True
        return not (self.elsewhere or self.waiting) and self.source.exhausted(self.ended, self.started)

    # Beginning

    def recover(self) -> None:
        """What earlier schedulers have left: finished runs count, living orphans are adopted."""
        for status in state.status(self.folder):
            if status.state in FINAL:
                self.note(status)
                self.settle(status)
            elif status.alive and (spec := state.read_spec(self.folder, status.name)):
                self.take(spec)

    def note(self, status: RunStatus) -> None:
        """A run that ended while nobody watched: its file should say so too."""
        path = state.run_path(self.folder, status.name)
        if state.read(path) != status and (held := state.claim(path)):
            self.write(status)
            held.release()

    def fill(self) -> None:
        """Start runs while there are free slots."""
        while not self.stopping and (free := self.free_slots()):
            if not self.waiting:
                self.waiting.extend(self.source.ready(self.ended, self.started, len(free)))
                self.started.update(spec.id for spec in self.waiting)
            if not self.waiting:
                return
            self.take(self.waiting.popleft(), free[0])

    def free_slots(self) -> list[Slot]:
        """Slots without a run, on devices with enough memory."""
        taken = {one.slot.number for one in self.running.values()}
        free = [slot for slot in self.slots if slot.number not in taken]
        if not free or self.free_bytes <= 0:
            return free
        if time.monotonic() >= self.next_memory:  # asking takes the driver a while
            self.memory, self.next_memory = free_memory(), time.monotonic() + 10 * TICK
        return [slot for slot in free if has_room(slot, self.free_bytes, self.memory)]

    def take(self, spec: RunSpec, slot: Slot | None = None) -> None:
        """Start a run, adopt it, or leave it to whoever has it."""
        self.started.add(spec.id)
        try:
            held = state.claim(state.run_path(self.folder, spec.name))
            if held is None:
                self.elsewhere[spec.id] = spec
                return
            try:
                self.take_claimed(spec, held, slot)
            except BaseException:
                held.release()
                raise
        except (EncoderyError, OSError) as error:  # a full disk, or no process left: this run's failure, not ours
            self.report(RunStatus(spec.id, spec.name, "failed", ended=time.time(), error=str(error)))

    def take_claimed(self, spec: RunSpec, held: Claim, slot: Slot | None) -> None:
        before = self.unwritten.get(spec.id) or state.status_of(state.run_path(self.folder, spec.name))
        if before.state in FINAL:
            held.release()
            self.settle(before)
        elif before.alive:
            self.adopt(spec, before, held)
        elif slot is not None:
            self.start(spec, before, held, slot)
        else:
            held.release()
            self.waiting.append(spec)

    def start(self, spec: RunSpec, before: RunStatus | None, held: Claim, slot: Slot) -> None:
        """A new attempt in a slot."""
        kills = outcome.kills_by_memory()
        status, process = self.launcher.start(spec, before, slot)
        one = Running(spec, status, held, process, slot, kills=kills)
        one.deadline = self.deadline(status)
        self.running[spec.id] = one
        attempt = f", attempt {status.attempt}" if status.attempt > 1 else ""
        self.progress.say(f"{spec.name}  started on {slot.label}{attempt}")

    def adopt(self, spec: RunSpec, status: RunStatus, held: Claim) -> None:
        """A run whose scheduler has died goes on under this one, in its old slot if that is free."""
        assert status.pid is not None
        free = self.free_slots() or self.slots  # better one too many for a while than a run started twice
        slot = next((slot for slot in free if slot.number == status.slot), free[0])
        process = processes.Watched(status.pid, status.token, status.mark)
        self.running[spec.id] = Running(spec, status, held, process, slot, self.deadline(status))
        self.progress.say(f"{spec.name}  is still running as process {status.pid}: adopted")

    def deadline(self, status: RunStatus) -> float | None:
        """When its time is over, by the clock that never jumps."""
        limit = self.limits.timeout_seconds
        return None if limit is None else time.monotonic() + limit - (time.time() - (status.started or time.time()))

    # Waiting

    def wait(self) -> None:
        """Sleep until something happens, or until the next deadline."""
        now, handles, pause = time.monotonic(), [self.alarm.handle], self.next_tick - time.monotonic()
        for job in self.running.values():
            own = job.child.handles()
            if job.child.ended() or not own:  # its last processes are going, or the system has no handles
                pause = min(pause, MOMENT)
            else:
                handles += own
            pause = min([pause, *(at - now for at in (job.deadline, job.kill_at) if at is not None)])
        processes.readable(handles, max(pause, 0.0))

    def heed_signals(self) -> None:
        """Ctrl-C or SIGTERM: stop; a second Ctrl-C: kill."""
        self.alarm.drain()
        if self.alarm.insisted:
            self.stop(now=True)
        elif self.alarm.asked and not self.stopping:
            self.progress.say("stopping: every run saves a checkpoint first (Ctrl-C again kills them)")
            self.stop()

    def tick(self) -> None:
        """What no handle tells: requests to stop, early stopping, other schedulers, full disks."""
        request = state.stop_requested(self.folder)
        if request is not None and request != self.stop_seen:
            self.stop_seen = request
            self.stop(now=request[1])
        for job in list(self.running.values()):
            self.judge_metrics(job)
        for spec in list(self.elsewhere.values()):
            self.look_elsewhere(spec)
        self.write_late()
        self.show()
        if time.monotonic() >= self.next_beat:
            self.next_beat = time.monotonic() + BEAT
            for job in self.running.values():
                job.claim.touch()

    def judge_metrics(self, job: Running) -> None:
        """Early stopping, asked again whenever there are new records."""
        metrics = state.run_path(self.folder, job.spec.name) / "metrics.jsonl"
        try:
            now = metrics.stat()
        except OSError:
            return
        seen = (now.st_mtime, now.st_size)
        if seen != job.seen and job.asked is None:
            job.seen = seen
            try:
                hopeless = self.source.should_stop(job.spec, metrics)
            except EncoderyError as error:  # metrics that cannot be read: no reason to end a run
                self.progress.say(str(error))
                return
            if hopeless:
                self.ask(job, "pruned")

    def look_elsewhere(self, spec: RunSpec) -> None:
        """A run that another scheduler had: has it ended, or was it left?"""
        path = state.run_path(self.folder, spec.name)
        status = state.read(path)
        if status is not None and status.state in FINAL:
            del self.elsewhere[spec.id]
            self.settle(status)
        elif not self.share:
            del self.elsewhere[spec.id]
            self.ended[spec.id] = Outcome(spec.id, "running")
        elif not state.is_claimed(path):
            del self.elsewhere[spec.id]
            self.waiting.append(spec)

    # Ending

    def stop(self, now: bool = False) -> None:
        """Start nothing more; ask every run to save and stop, or kill it."""
        self.stopping = True
        for one in self.running.values():
            self.ask(one, "stopped")
            if now:
                one.kill_at = 0.0

    def ask(self, job: Running, why: State) -> None:
        """SIGTERM to all its processes now, SIGKILL after the grace."""
        if job.asked is None and not job.child.ended():
            job.asked, job.kill_at = why, time.monotonic() + self.limits.grace_seconds
            job.child.send(signal.SIGTERM)

    def attend(self, job: Running) -> None:
        """Has it ended, is its time over, must it be killed?"""
        now = time.monotonic()
        if job.child.ended():
            if job.child.gone():
                self.finish(job)
                return
            if job.kill_at is None:  # processes that it left behind would hold its device
                job.child.send(signal.SIGTERM)
                job.kill_at = now + min(self.limits.grace_seconds, 5.0)
        elif job.deadline is not None and now >= job.deadline:
            self.ask(job, "timeout")
        if job.kill_at is not None and now >= job.kill_at:
            job.child.send(signal.SIGKILL)
            job.kill_at = now + TICK

    def finish(self, job: Running) -> None:
        """All its processes are gone: write down how it ended, and try again if that may help."""
        run, status = state.run_path(self.folder, job.spec.name), job.status
        code = job.child.code()
        code = state.exit_code(run, status.attempt) if code is None else code
        job.child.close()
        del self.running[job.spec.id]
        ended = outcome.ending(job.spec, run, code, job.asked, job.kills)
        error = outcome.complaint(run, code) if ended not in ("done", "pruned", "stopped") else None
        status = replace(status, state=ended, exit_code=code, ended=time.time(), error=error)
        if not self.stopping and outcome.again(job.spec, status, self.limits):
            changed = outcome.smaller(job.spec, status.changed) if ended == "oom" else status.changed
            self.write(replace(status, state="queued", failures=status.failures + 1, changed=changed))
            self.progress.say(f"{job.spec.name}  {spoken(status)}: retrying")
            self.waiting.appendleft(job.spec)
        else:
            self.report(status)
        if ended == "done" and job.spec.command is None:
            self.tidy(run)
        job.claim.release()

    def tidy(self, run: Path) -> None:
        """A run that was killed behind its DONE could not remove its checkpoints."""
        try:
            RunDir(run).drop_left_checkpoints()
        except (EncoderyError, OSError) as error:  # a finished run with too much in it is still finished
            self.progress.say(str(error))

    def report(self, status: RunStatus) -> None:
        """A run has ended for good, or was stopped."""
        self.write(status)
        self.settle(status)
        if status.state == "done" and status.started and status.ended:
            self.took.append(status.ended - status.started)
        self.progress.say("  ".join(filter(None, (status.name, spoken(status), self.standing()))))

    @property
    def specs(self) -> list[RunSpec] | None:
        """All runs of the sweep, where the source knows them from the start."""
        specs = getattr(self.source, "specs", None)
        return specs if isinstance(specs, list) else None

    def show(self) -> None:
        """At a terminal a bar that moves while runs work. A log gets lines for what happens alone."""
        self.progress.open("sweep", len(self.specs) if self.specs is not None else None, transient=True)
        if self.progress.bar is not None:
            seconds = self.seconds_left()
            time_left = f", about {duration(seconds)} left" if seconds is not None else ""
            so_far = duration(time.monotonic() - self.progress.begin)
            self.progress.show(self.done(), f"{len(self.running)} running, {so_far} so far{time_left}", str)

    def done(self) -> int:
        """How many runs are done; those of older plans do not count."""
        ended = (
            self.ended.values() if self.specs is None
            else [self.ended[spec.id] for spec in self.specs if spec.id in self.ended]
        )  # fmt: skip
        return sum(one.state == "done" for one in ended)

    def seconds_left(self) -> float | None:
        """By what the runs took that were done here; None before the first was, and where nobody knows what comes."""
        if not self.took or self.stopping or self.specs is None:
            return None
        states = {id: one.state for id, one in self.ended.items()}
        waiting = blocked(self.specs, states)
        left = sum(spec.id not in waiting and states.get(spec.id, "queued") in OPEN for spec in self.specs)
        if not left:
            return None
        each = sum(self.took) / len(self.took)
        behind = sum(min(time.time() - (job.status.started or time.time()), each) for job in self.running.values())
        return max(left * each - behind, 0.0) / min(len(self.slots), left)

    def standing(self) -> str:
        """`3 of 6 done, about 1:20 left`, where the source knows all its runs from the start."""
        if self.specs is None or len(self.specs) < 2:
            return ""
        seconds = self.seconds_left()
        time_left = f", about {duration(seconds)} left" if seconds is not None else ""
        return f"[{self.done()} of {len(self.specs)} done{time_left}]"

    def settle(self, status: RunStatus) -> None:
        self.ended[status.id] = scored(self.folder, status, self.score, self.progress)

    def write(self, status: RunStatus) -> None:
        """Store a status; where the disk is full it is kept and written as soon as there is room."""
        try:
            state.write(self.folder, status)
            self.unwritten.pop(status.id, None)
        except EncoderyError as error:
            if status.id not in self.unwritten:
                self.progress.say(str(error))
            self.unwritten[status.id] = status

    def write_late(self) -> None:
        for status in list(self.unwritten.values()):
            if status.id not in self.running:
                self.write(status)

    def abandon(self) -> None:
        """After a failure of our own: leave no process behind."""
        self.stop(now=True)
        end = time.monotonic() + 10
        while self.running and time.monotonic() < end:
            for job in list(self.running.values()):
                self.attend(job)
            time.sleep(MOMENT)
        for job in self.running.values():
            job.claim.release()


def scored(folder: Path, status: RunStatus, score: Score | None, progress: Progress) -> Outcome:
    """How a run ended, with the sweep's metric where it is done and has one."""
    spec = state.read_spec(folder, status.name) if score and status.state == "done" else None
    if score is None or spec is None:
        return status.outcome
    try:
        return replace(status.outcome, score=score(spec, state.run_path(folder, status.name)))
    except EncoderyError as error:  # the others must not suffer
        progress.say(str(error))
        return status.outcome


def spoken(status: RunStatus) -> str:
    """`done (12 s)`, `failed (3 s): the last line that it wrote`."""
    seconds = duration((status.ended or 0) - status.started) if status.started else ""
    last = status.error.strip().splitlines()[-2:] if status.error else []
    return f"{status.state}{f' ({seconds})' if seconds else ''}{': ' if last else ''}{', '.join(last)}"
