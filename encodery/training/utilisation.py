"""How well a GPU is used: the share of its peak rate that the model's arithmetic makes up (MFU), and peak memory.

The arithmetic is that of models/flops.py, the rates are the makers' for dense products. Nothing here waits.
"""

from dataclasses import dataclass, field

import torch

from encodery.training.loop import TrainState

# TFLOP/s of dense products in half precision, TF32 and single precision, by the first name that a device's has in it.
PEAKS: dict[str, tuple[float, float, float]] = {
    "B200": (2250, 1100, 75), "GH200": (989, 494, 67), "H200": (989, 494, 67), "H100 PCIe": (756, 378, 51),
    "H100 NVL": (835, 417, 60), "H100": (989, 494, 67), "H20": (148, 74, 44), "A100": (312, 156, 19.5),
    "A800": (312, 156, 19.5), "A40": (150, 75, 37), "A30": (165, 82, 10.3), "A10G": (70, 35, 35), "A10": (125, 62, 31),
    "L40S": (362, 183, 91), "L40": (181, 90, 90), "L4": (121, 60, 30), "RTX 6000 Ada": (364, 182, 91),
    "RTX A6000": (155, 77, 39), "RTX 5090": (210, 105, 105), "RTX 4090": (165, 83, 83), "RTX 4080": (97, 49, 49),
    "RTX 3090": (71, 36, 36), "V100": (125, 15.7, 15.7), "T4": (65, 8.1, 8.1), "MI300X": (1307, 653, 163),
    "MI250X": (192, 48, 48),
}  # fmt: skip


def peak_of(device: torch.device, precision: str, tf32: bool) -> float | None:
    """FLOP/s of one device at this precision; None where it is not in the table."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    found = next((rates for known, rates in PEAKS.items() if known in name), None)
    if found is None:
        return None
    return found[0 if precision != "fp32" else 1 if tf32 else 2] * 1e12


@dataclass
class Meter:
    """What is logged beside losses on a GPU."""

    device: torch.device
    peak: float | None  # FLOP/s of all devices together; None: not known, or the arithmetic of a step is not
    before: tuple[float, float] = (0.0, 0.0)  # FLOPs and seconds at the last look
    latest: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, state: TrainState, device: torch.device, peak: float | None) -> "Meter":
        """From where a run stands."""
        return cls(device, peak, (state.flops, state.elapsed))

    def measure(self, state: TrainState) -> dict[str, float]:
        """{"memory": peak in bytes, "mfu": share of the peak rate since the last look}, as far as they are known."""
        figures: dict[str, float] = {}
        if self.device.type == "cuda":
            figures["memory"] = int(torch.cuda.max_memory_allocated(self.device))
        spent, seconds = state.flops - self.before[0], state.elapsed - self.before[1]
        self.before = state.flops, state.elapsed
        if self.peak and spent > 0 and seconds > 0:
            figures["mfu"] = round(spent / seconds / self.peak, 4)
        self.latest = figures
        return figures

    def words(self) -> str:
        """For the progress line: `41 % MFU  12.3 GB`."""
        share = f"{self.latest['mfu']:.0%} MFU" if "mfu" in self.latest else ""
        memory = f"{self.latest['memory'] / 1e9:.1f} GB" if "memory" in self.latest else ""
        return "  ".join(filter(None, (share, memory)))
