"""transformers' Trainer under the fault tests: what does it do when it is killed, the disk is full, a bit is flipped?

    python stories/faults_trainer.py --out runs/stories/faults_trainer [--cases 40]

A tiny BERT on the CPU, a toy table of 64 rows, 8 steps, a checkpoint every 2 steps, resumed with
`resume_from_checkpoint=True` as its documentation says. Every case runs in a forked process. It counts as held
if the end is bit-identical to the undisturbed training, or if an error names the damaged file or the row. The table is
printed and written as JSON. `make faults` does the same to encodery. The full disk is a real one: a small tmpfs, which
only root can mount; elsewhere that row is left out.
"""

import argparse
import io
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import transformers
from safetensors.torch import load_file
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

CHANGES = {"write", "pwrite", "fsync", "rename", "replace", "mkdir", "unlink", "rmdir", "truncate", "ftruncate"}
STEPS = 8
FULL = re.compile("No space left|disk is full|no room", re.IGNORECASE)
Training = Callable[[Path, bool], object]  # into a folder, resumed or not


class Rows(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Sixty-four rows of eight tokens; the label is whether the first is small."""

    def __init__(self, bad: Any = None) -> None:
        draw = torch.Generator().manual_seed(0)
        self.ids = torch.randint(5, 60, (64, 8), generator=draw)
        self.labels: list[Any] = [int(row[0] < 30) for row in self.ids]
        if bad is not None:
            self.labels[17] = bad

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {"input_ids": self.ids[i], "attention_mask": torch.ones(8, dtype=torch.long), "labels": self.labels[i]}


def train(out: Path, resume: bool = False, bad: Any = None, lr: float = 1e-3) -> None:
    """Fine-tune, and save the model at the end as the examples do."""
    torch.set_num_threads(1)
    set_seed(1)
    size = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    model = BertForSequenceClassification(BertConfig(vocab_size=60, max_position_embeddings=16, **size))
    given = TrainingArguments(
        str(out), max_steps=STEPS, per_device_train_batch_size=8, save_steps=2, learning_rate=lr, logging_steps=1,
        report_to=[], use_cpu=True, seed=1, disable_tqdm=True,
    )  # fmt: skip
    trainer = Trainer(model, given, train_dataset=Rows(bad))
    trainer.train(resume_from_checkpoint=True if resume and any(out.glob("checkpoint-*")) else None)
    trainer.save_model(str(out / "final"))


def weights(out: Path) -> dict[str, torch.Tensor] | None:
    """What came out, if anything did."""
    path = out / "final" / "model.safetensors"
    return load_file(path) if path.is_file() else None


def equal(a: dict[str, torch.Tensor] | None, b: dict[str, torch.Tensor] | None) -> bool:
    """The same bits."""
    return a is not None and b is not None and a.keys() == b.keys() and all(a[name].equal(b[name]) for name in b)


def in_child(action: Callable[[], object], log: Path) -> tuple[int, str]:
    """Do it in a forked process: its exit code, and what it said."""
    pid = os.fork()
    if pid == 0:
        code, said = 1, io.StringIO()
        with redirect_stdout(said), redirect_stderr(said):
            try:
                action()
                code = 0
            except BaseException:
                traceback.print_exc()
        log.write_text(said.getvalue())
        os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return code, log.read_text() if log.exists() else ""


def changes(called: Any) -> bool:
    """Whether a call of C code is one of the system that changes a disk."""
    return called.__name__ in CHANGES and called.__module__ == os.open.__module__


def watched(action: Callable[[], object], number: int, act: Callable[[], None], log: Path) -> tuple[int, str, int]:
    """Do it, acting instead of the n-th change of the disk; the exit code, what was said, how many there were."""
    counter = itertools.count()

    def watch(frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call" and changes(called) and next(counter) == number:
            act()

    def work() -> None:
        sys.setprofile(watch)
        try:
            action()
        finally:
            sys.setprofile(None)
        print(f"changes: {next(counter)}")

    code, said = in_child(work, log)
    found = re.search(r"changes: (\d+)", said)
    return code, said, int(found[1]) if found else 0


def die() -> None:
    """Gone without any clean-up."""
    os._exit(77)


class Faults:
    """The tests; each adds a row to the table."""

    def __init__(self, out: Path, cases: int) -> None:
        self.out, self.cases, self.table = out, cases, {}  # type: ignore[var-annotated]
        self.log = out / "log"
        code, said, self.total = watched(lambda: train(out / "calm"), -1, die, self.log)
        assert code == 0, said
        self.wanted = weights(out / "calm")

    def row(self, test: str, held: int, tried: int, seen: list[str]) -> None:
        """One line; `seen` are the ends that did not hold, each kind once."""
        self.table[test] = {"held": held, "of": tried, "seen": sorted(set(seen))}
        print(f"{test}: {held} of {tried} {sorted(set(seen))}", flush=True)

    def fresh(self, name: str = "run") -> Path:
        """A folder that is not there."""
        shutil.rmtree(self.out / name, ignore_errors=True)
        return self.out / name

    def interrupted(self, test: str, act: Callable[[], None]) -> None:
        """Act at changes of the disk all over the training; give the same command again."""
        held, seen, tried = 0, [], 0
        for number in range(0, self.total, -(-self.total // self.cases)):
            out = self.fresh()
            tried += 1
            watched(lambda out=out: train(out), number, act, self.log)
            code, said = in_child(lambda out=out: train(out, resume=True), self.log)
            good = code == 0 and equal(weights(out), self.wanted)
            held += good
            seen += [] if good else [last_line(said) if code else "another result without a word"]
        self.row(test, held, tried, seen)

    def full_disk(self, test: str, action: Training, sizes: int = 10) -> None:
        """Train on disks that are too small by more or less; make room, and give the same command again."""
        if os.geteuid() != 0:
            print(f"{test}: not measured, only root can mount a small disk", flush=True)
            return
        calm = self.fresh("calm-disk")
        assert in_child(lambda: action(calm, False), self.log)[0] == 0
        used, wanted = sum(path.stat().st_size for path in calm.rglob("*") if path.is_file()), model_of(calm)
        held, seen = 0, []
        for number in range(sizes):
            disk = self.fresh("disk")
            disk.mkdir()
            mount("-t", "tmpfs", "-o", f"size={used * (number + 1) // (sizes + 1)}", "tmpfs", disk)
            try:
                code, said = in_child(lambda disk=disk: action(disk / "run", False), self.log)
                mount("-o", "remount,size=1G", disk)
                again, more = in_child(lambda disk=disk: action(disk / "run", True), self.log)
                good = bool(code) and FULL.search(said) is not None and again == 0 and model_of(disk / "run") == wanted
                seen += [] if good else [last_line(more) if again else f"code {code}: {last_line(said)}"]
            finally:
                subprocess.run(["umount", disk], check=True)
            held += good
        self.row(test, held, sizes, seen)

    def damaged(self, test: str, harm: Callable[[bytes], bytes]) -> None:
        """Damage each file of the newest checkpoint of a half training, then resume."""
        half = self.fresh("half")
        shutil.copytree(self.out / "calm", half, ignore=shutil.ignore_patterns("final", "checkpoint-8"))
        newest = half / "checkpoint-6"
        held, seen, names = 0, [], sorted(path.name for path in newest.iterdir())
        for name in names:
            out = self.fresh()
            shutil.copytree(half, out)
            path = out / newest.name / name
            path.write_bytes(harm(path.read_bytes()))
            code, said = in_child(lambda out=out: train(out, resume=True), self.log)
            good = equal(weights(out), self.wanted) if code == 0 else name in said
            held += good
            seen += [] if good else [f"{name}: {last_line(said) if code else 'another result without a word'}"]
        self.row(test, held, len(names), seen)

    def final(self) -> None:
        """A bit of each file of a finished model that is loaded again."""
        held, seen, names = 0, [], sorted(path.name for path in (self.out / "calm" / "final").iterdir())
        for name in names:
            out = self.fresh()
            shutil.copytree(self.out / "calm" / "final", out)
            path = out / name
            path.write_bytes(flipped(path.read_bytes()))

            def load(out: Path = out) -> None:
                found = BertForSequenceClassification.from_pretrained(out).state_dict()
                assert equal(dict(found), self.wanted), "another model, no error"

            code, said = in_child(load, self.log)
            good = code == 0 or (name in said and "another model, no error" not in said)
            held += good
            seen += [] if good else [f"{name}: {last_line(said)}"]
        self.row("flipped bit in a finished model", held, len(names), seen)

    def not_a_number(self) -> None:
        """A learning rate of 1e30: does the training end, and does it say so?"""
        out = self.fresh()
        code, said = in_child(lambda: train(out, lr=1e30), self.log)
        good = code != 0 and "nan" in said.lower()
        self.row(
            "loss that is no number ends the training",
            int(good),
            1,
            [] if good else [f"exit code {code}: {losses(said)}"],
        )

    def bad_rows(self) -> None:
        """Labels that cannot be learnt: is row 17 named?"""
        held, seen, tried = 0, [], [7, -3, "x", "", 1.5, 10**30]
        for bad in tried:
            out = self.fresh()
            code, said = in_child(lambda out=out, bad=bad: train(out, bad=bad), self.log)
            good = code != 0 and re.search(r"\b17\b", last_line(said)) is not None
            held += good
            seen += [] if good else [f"label {bad!r}: {last_line(said) if code else 'trained without a word'}"]
        self.row("bad rows named", held, len(tried), seen)


def flipped(data: bytes) -> bytes:
    """One bit at seven tenths."""
    changed = bytearray(data)
    changed[int(len(data) * 0.7)] ^= 4
    return bytes(changed)


def model_of(out: Path) -> bytes | None:
    """The bytes of the saved model, if there is one."""
    found = [path for path in (out / "final/model.safetensors", out / "model/model.safetensors") if path.is_file()]
    return found[0].read_bytes() if found else None


def by_encodery(out: Path, _: bool) -> None:
    """A toy training of as many steps; the same command resumes it."""
    from encodery.cli import main as encodery

    words = ["--train.max_steps", str(STEPS), "--train.save", "2 steps", "--device", "cpu", "--threads", "1", "--quiet"]
    if code := encodery(["train", "recipe:toy/nli", *words, "-o", str(out)]):
        sys.exit(code)


def mount(*words: str | Path) -> None:
    """Only root may."""
    subprocess.run(["mount", *words], check=True)


def last_line(said: str) -> str:
    """The error without its traceback, short."""
    return next((line[:160] for line in reversed(said.strip().splitlines()) if line.strip()), "")


def losses(said: str) -> str:
    """The last loss that was logged."""
    found = re.findall(r"'loss': '?([\w.+-]+)", said)
    return f"last loss {found[-1]}" if found else last_line(said)


def main() -> int:
    """Run all tests and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/stories/faults_trainer"))
    parser.add_argument("--cases", type=int, default=40)
    args = parser.parse_args()
    shutil.rmtree(args.out, ignore_errors=True)
    args.out.mkdir(parents=True)
    faults = Faults(args.out, args.cases)
    print(f"transformers {transformers.__version__}, {faults.total} changes of the disk in a training", flush=True)
    faults.interrupted("kill at file operations of a training", die)
    faults.full_disk("full disk, then room and the same command again", train)
    faults.full_disk("the same with encodery", by_encodery)
    faults.damaged("torn file in the newest checkpoint", lambda data: data[: len(data) // 2])
    faults.damaged("flipped bit in the newest checkpoint", flipped)
    faults.final()
    faults.not_a_number()
    faults.bad_rows()
    (args.out / "table.json").write_text(json.dumps(faults.table, indent=2, ensure_ascii=False) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
