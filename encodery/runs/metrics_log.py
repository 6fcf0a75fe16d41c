"""metrics.jsonl: one JSON object per line, each with its step; tolerant of a line that a kill tore."""

import json
from pathlib import Path
from typing import Any

from encodery.core import files
from encodery.errors import UserError
from encodery.runs import json_schemas


class MetricsFile:
    """A file of records, in the order of their steps."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._whole = False  # whether the last line is known to be whole
        self._count: int | None = None  # whole lines, where this process knows

    def append(self, record: dict[str, Any]) -> None:
        """Add a record; NaN and infinities become null."""
        if not self._whole:
            files.cut_torn_line(self.path)
            self._whole = True
        files.append_line(self.path, files.plain_json(record))
        if self._count is not None:
            self._count += 1

    def count(self) -> int:
        """How many whole records there are."""
        if self._count is None:
            self._count = self.path.read_bytes().count(b"\n") if self.path.exists() else 0
        return self._count

    def read(self) -> list[dict[str, Any]]:
        return [record for _, record in self._pairs()]

    def last(self, most: int = 1 << 16) -> list[dict[str, Any]]:
        """The records in the last bytes: enough to see how a run stands, whatever it has behind it."""
        try:
            with open(self.path, "rb") as stream:
                start = max(0, self.path.stat().st_size - most)
                stream.seek(start)
                lines = stream.read().split(b"\n")[1 if start else 0 : -1]
        except FileNotFoundError:
            return []
        return [self._parse(line, number) for number, line in enumerate(lines, start=1)]

    def seconds(self, most: int | None = None) -> float | None:
        """Time spent in training steps: their number times the mean of those recorded (in the last bytes)."""
        records = self.read() if most is None else self.last(most)
        steps = [(record["step"], record["seconds"]) for record in records if record.get("seconds") is not None]
        if not steps:
            return None
        return float(sum(seconds for _, seconds in steps) / len(steps) * max(step for step, _ in steps))

    def rewind(self, step: int) -> int:
        """Keep the records up to the step, byte for byte; how many those are."""
        kept = [line for line, record in self._pairs() if record["step"] <= step]
        files.write_atomic(self.path, b"".join(line + b"\n" for line in kept))
        self._whole, self._count = True, len(kept)
        return len(kept)

    def _pairs(self) -> list[tuple[bytes, dict[str, Any]]]:
        """The whole lines and what they say. What follows the last line end was torn, or is being written."""
        data = self.path.read_bytes() if self.path.exists() else b""
        return [(line, self._parse(line, number)) for number, line in enumerate(data.split(b"\n")[:-1], start=1)]

    def _parse(self, line: bytes, number: int) -> dict[str, Any]:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict) or type(record.get("step")) is not int:
            raise UserError(f"{self.path} is damaged: line {number} is not a record with a step; delete that line")
        if mistake := json_schemas.mistake(record, json_schemas.RECORD):
            raise UserError(f"{self.path} is damaged: in line {number} {mistake}; delete that line")
        return record
