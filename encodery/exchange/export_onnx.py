"""A run's model as ONNX files, compared with torch before anybody gets them."""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from encodery.config.schema import ModelOptions
from encodery.core import files
from encodery.core.files import require_new
from encodery.data.layouts import Reduce
from encodery.data.layouts import Rows as Layout
from encodery.errors import RunFailed, UserError
from encodery.exchange.export import WORDS
from encodery.inference.open_model import load_model
from encodery.models import locate
from encodery.models.encoder import inner_config, input_form, load_encoder, quiet
from encodery.models.model import Model, read_card
from encodery.models.onnx import file
from encodery.models.pretrained import from_folder

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TOLERANCE = 1e-4  # largest difference to torch in float32
NEAR = 0.99  # lowest cosine of the 8-bit outputs to the exact ones
PLAIN, INT8 = "model.onnx", "model_int8.onnx"
LEFT_OUT = ("*.safetensors", "*.safetensors.index.json", "heads", "README.md", ".*")
OUTPUTS = {
    "ForSequenceClassification": ("AutoModelForSequenceClassification", ["logits"]),
    "ForTokenClassification": ("AutoModelForTokenClassification", ["logits"]),
    "ForQuestionAnswering": ("AutoModelForQuestionAnswering", ["start_logits", "end_logits"]),
}


@dataclass(frozen=True)
class Compared:
    """One ONNX file, and how far it is from torch on a few texts."""

    path: Path
    outputs: tuple[str, ...]
    rows: int
    difference: float  # the largest
    cosine: float  # of all outputs together


class OneHead(nn.Module):
    """An encoder and a head for which transformers has no class."""

    def __init__(self, model: Model, task: str):
        super().__init__()
        self.net = model.encoder.net
        self.head = model.objective(task).head

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Any:
        """Logits [rows, outputs]."""
        more = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        hidden = self.net(input_ids=input_ids, attention_mask=attention_mask, **more).last_hidden_state
        return self.head(hidden, Rows(attention_mask))


class Rows:
    """All that such a head asks of a batch: one vector for each row."""

    def __init__(self, mask: Tensor):
        self.layout = Layout(mask.bool())

    def first(self, hidden: Tensor) -> Tensor:
        """The vectors of the first tokens."""
        return self.layout.first(hidden)

    def per_sequence(self, hidden: Tensor, how: Reduce) -> Tensor:
        """Mean or maximum over the tokens of each row."""
        return self.layout.per_sequence(hidden, how)


def export_onnx(source: str | Path, folder: Path, int8: bool = False, tolerance: float = TOLERANCE) -> list[Compared]:
    """Write model.onnx (and model_int8.onnx) with tokenizer and config; nothing is left behind if outputs differ."""
    from transformers import AutoTokenizer

    file.require_packages()
    origin = locate.resolve(str(source)).path
    require_new(folder)
    module, outputs = open_module(origin)
    net: Any = module.net
    config = inner_config(net.config)
    types = input_form(config).types
    texts = examples(from_folder(AutoTokenizer, origin), types, config)
    compared = []
    with files.atomic_folder(folder) as beside:
        shutil.copytree(origin, beside, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*LEFT_OUT))
        file.write(module, types, outputs, beside / PLAIN)
        compared.append(compare(module, beside / PLAIN, outputs, texts))
        require(compared[0].difference <= tolerance, folder, f"differ by {compared[0].difference:.1e} from torch's")
        if int8:
            file.quantise(beside / PLAIN, beside / INT8, config.vocab_size)
            compared.append(compare(module, beside / INT8, outputs, texts))
            require(compared[1].cosine >= NEAR, folder, f"have cosine {compared[1].cosine:.4f} to torch's in 8 bits")
        note = {one.path.name: {"max_difference": one.difference, "cosine": one.cosine} for one in compared}
        (beside / "onnx.json").write_text(json.dumps({"outputs": outputs, "against_torch": note}, indent=1) + "\n")
    return compared


def require(holds: bool, folder: Path, what: str) -> None:
    """Parity, or no export."""
    if not holds:
        raise RunFailed(f"{folder}: the outputs of the ONNX file {what}; not exported")


def open_module(origin: Path) -> tuple[nn.Module, list[str]]:
    """The model as tensors in and out: with its head where it has one, else the encoder alone."""
    import transformers

    architecture = (json.loads((origin / "config.json").read_text()).get("architectures") or [""])[0]
    card = read_card(origin)
    if (origin / "heads").is_dir():
        return with_head(origin, card or {})
    kind = next((ending for ending in OUTPUTS if architecture.endswith(ending)), None)
    if kind is None:
        encoder, _ = load_encoder(origin, ModelOptions(name=str(origin)), "rows")
        return file.Named(encoder.net, ["last_hidden_state"]).eval(), ["last_hidden_state"]
    auto, outputs = OUTPUTS[kind]
    with quiet():
        net = from_folder(getattr(transformers, auto), origin, dtype=torch.float32)
    return file.Named(net, outputs).eval(), outputs


def with_head(origin: Path, card: Mapping[str, Any]) -> tuple[nn.Module, list[str]]:
    """One classification head beside the encoder; other such heads have no form in ONNX."""
    tasks = card.get("tasks", {})
    kinds = [about["objective"]["kind"] for about in tasks.values()]
    if kinds != ["classification"]:
        raise UserError(f"{origin}: --onnx takes one classification head beside the encoder, not {', '.join(kinds)}")
    model, _, _ = load_model(origin, layout="rows", device="cpu")
    return OneHead(model, next(iter(tasks))).eval(), ["logits"]


def examples(tokenizer: "PreTrainedTokenizerBase", types: bool, config: Any) -> list[dict[str, Tensor]]:
    """Texts of different lengths in two batches of different shapes, alone and in pairs."""
    words = WORDS.split()
    singles = [" ".join(words[: 1 + 3 * i]) for i in range(5)]
    length = min(tokenizer.model_max_length, config.max_position_embeddings - input_form(config).first_position)
    given = [(singles,), (singles[:3], singles[2:])]
    return [plain_inputs(tokenizer, texts, types, length) for texts in given]


def plain_inputs(
    tokenizer: "PreTrainedTokenizerBase", texts: Sequence[Sequence[str]], types: bool, length: int
) -> dict[str, Tensor]:
    """What the tokenizer makes of them, as the file wants it."""
    found = tokenizer(*texts, padding=True, truncation=True, max_length=length, return_tensors="pt")
    more = {"token_type_ids": torch.zeros_like(found["input_ids"])} if types else {}
    return {name: {**more, **found}[name] for name in file.input_names(types)}


@torch.no_grad()
def compare(module: nn.Module, path: Path, outputs: Sequence[str], texts: Sequence[dict[str, Tensor]]) -> Compared:
    """Torch against the file; what stands at padding does not count."""
    session = file.session(path)
    ours: list[np.ndarray] = []
    theirs: list[np.ndarray] = []
    for given in texts:
        exact = module(*given.values())
        found = session.run(None, {name: value.numpy() for name, value in given.items()})
        shown = given["attention_mask"].bool().numpy()
        for a, b in zip(exact if isinstance(exact, tuple) else (exact,), found, strict=True):
            keep = shown if a.shape[:2] == shown.shape else slice(None)
            ours.append(a.numpy()[keep].ravel())
            theirs.append(b[keep].ravel())
    x, y = np.concatenate(ours), np.concatenate(theirs)
    cosine = float((x * y).sum() / max(float(np.linalg.norm(x) * np.linalg.norm(y)), 1e-30))
    rows = sum(len(given["input_ids"]) for given in texts)
    return Compared(path, tuple(outputs), rows, float(np.abs(x - y).max()), cosine)
