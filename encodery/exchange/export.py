"""A run's model as a folder of its own, verified against what the run says."""

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from encodery.core import files, remote_files
from encodery.core.files import require_new
from encodery.errors import RunFailed
from encodery.exchange.publish import make_public
from encodery.inference.answer_head import Head
from encodery.inference.classifier import Classifier, Text, logits, open_classifier
from encodery.inference.open_model import load_model
from encodery.models import locate
from encodery.models.encoder import quiet
from encodery.models.model import read_card
from encodery.models.pretrained import from_folder
from encodery.report.public_card import needs_import

TOLERANCE = 1e-5
SPECIAL = 4  # most special tokens around a pair
WORDS = "The small house by the river was sold last year, and nobody knows who lives there now."


@dataclass(frozen=True)
class Exported:
    """What lies in the folder."""

    folder: Path | str
    opens_with: str
    rows: int
    difference: float
    thresholds: Mapping[str, float] = field(default_factory=dict)  # in encodery.json; transformers knows of none
    scale_and_shift: tuple[float, float] | None = None  # likewise, of numbers that were learnt on another scale
    what: str = "the model"
    not_there: str | None = None  # what belongs to the run and was not exported


def export(source: str | Path, folder: Path, task: str | None = None) -> Exported:
    """Copy the model and check the copy on a few texts; nothing is left behind if it differs.

    Of a model with several heads that of one task is exported, as if it had been trained alone.
    """
    origin = locate.resolve(str(source), head=task).path
    require_new(folder)
    if pretrained := pretrained_class(origin):
        return export_pretrained(origin, folder, pretrained)
    ours = open_classifier(source, "cpu", head=task)
    origin = ours.folder or origin  # of the only head that answers people it may be another
    if ours.head.answer_kind not in ("single", "multilabel", "regression"):
        return export_other(ours, origin, folder)
    texts = probes(ours)
    with files.atomic_folder(folder) as beside:
        copy(origin, beside, ours)
        stock = ours.card["tasks"][ours.head.name]["head"] == "stock"
        theirs = stock_logits(beside, texts) if stock else logits(open_classifier(beside, "cpu"), texts)
        difference = float((theirs - logits(ours, texts)).abs().max())
        if not difference <= TOLERANCE:
            raise RunFailed(f"{folder}: the copy's outputs differ by {difference:.1e} from the run's; not exported")
    opens = f"transformers.AutoModelForSequenceClassification{after_import(folder)}" if stock else "encodery.load"
    thresholds = ours.head.thresholds if isinstance(ours.head, Head) else {}
    return Exported(folder, opens, len(texts), difference, thresholds, scale_and_shift(ours))


def scale_and_shift(model: Classifier) -> tuple[float, float] | None:
    """What a number that the network gives is multiplied with, and what is then added; None where it is the answer."""
    head = model.head
    found = (head.scale, head.shift) if isinstance(head, Head) and head.form == "regression" else (1.0, 0.0)
    return None if found == (1.0, 0.0) else found


def pretrained_class(origin: Path) -> str | None:
    """The class of transformers that a pretrained encoder of ours opens with; None for models that answer people."""
    card = read_card(origin) or {"tasks": {}}
    kinds = {about["objective"]["kind"] for about in card["tasks"].values()}
    if not kinds:
        return None
    return (
        "AutoModelForPreTraining"
        if kinds <= {"electra", "amos"}
        else "AutoModelForMaskedLM"
        if kinds == {"mlm"}
        else None
    )


def export_pretrained(origin: Path, folder: Path, name: str) -> Exported:
    """The encoder of a pretraining with its own head; the copy must give the same hidden states."""
    with files.atomic_folder(folder) as beside:
        shutil.copytree(origin, beside, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".*"))
        card = origin.parent / "README.md"
        if origin.name == "discriminator" and card.is_file():  # one card for both models of a run
            shutil.copy(card, beside / card.name)
        make_public(beside)
        ours, theirs = (hidden_states(path) for path in (origin, beside))
        difference = max(float((a - b).abs().max()) for a, b in zip(ours, theirs, strict=True))
        if not difference <= TOLERANCE:
            raise RunFailed(f"{folder}: the copy's outputs differ by {difference:.1e} from the run's; not exported")
    what = "discriminator" if origin.name == "discriminator" else "encoder with its masked language modelling head"
    after = after_import(folder)
    generator = origin.parent / "generator"
    beside_it = f"the generator, {generator}, stays where it is" if generator.is_dir() else None
    return Exported(
        folder, f"transformers.{name}{after}", len(ours), difference, what=f"the pretrained {what}", not_there=beside_it
    )


@torch.no_grad()
def hidden_states(folder: Path) -> list[torch.Tensor]:
    """What the encoder of a folder makes of a few texts, by transformers alone."""
    from transformers import AutoModel, AutoTokenizer

    with quiet():
        net = from_folder(AutoModel, folder, dtype=torch.float32).eval()
    tokenizer = from_folder(AutoTokenizer, folder)
    words = WORDS.split()
    texts = [" ".join(words[: 1 + 3 * i]) for i in range(4)]
    return [net(**tokenizer(text, return_tensors="pt")).last_hidden_state for text in texts]


def export_away(source: str | Path, address: str, task: str | None = None) -> Exported:
    """As `export`, with the verified folder copied to an address; nothing stays on this disk."""
    remote_files.check(address)
    with tempfile.TemporaryDirectory(prefix="encodery-") as folder:
        done = export(source, Path(folder) / "model", task)
        remote_files.put(Path(done.folder), address)
    return replace(done, folder=address)


def export_other(ours: Classifier, origin: Path, folder: Path) -> Exported:
    """A model for tags, spans or rankings: the copy must give the same answers to a few texts."""
    texts = probes(ours) if ours.head.answer_kind != "ranking" else [(WORDS, *WORDS.split(", "))]
    with files.atomic_folder(folder) as beside:
        copy(origin, beside, ours)
        if open_classifier(beside, "cpu")(texts) != ours(texts):
            raise RunFailed(f"{folder}: the copy's answers differ from the run's; not exported")
    opens = {"tagging": "TokenClassification", "span": "QuestionAnswering", "ranking": "SequenceClassification"}
    whole = not (folder / "heads").exists()  # encoder and head in one class of transformers, or of ours
    name = (
        f"transformers.AutoModelFor{opens[ours.head.answer_kind]}{after_import(folder)}" if whole else "encodery.load"
    )
    return Exported(folder, name, len(texts), 0.0)


def after_import(folder: Path) -> str:
    """What must be done before transformers knows the class of a folder."""
    return " (after import encodery)" if needs_import(folder) else ""


def copy(origin: Path, folder: Path, ours: Classifier) -> None:
    """The model's folder without local paths; of several heads the one that is meant, in a class of transformers."""
    if len(ours.card["tasks"]) == 1:
        shutil.copytree(origin, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".*"))
    else:
        model, tokenizer, card = load_model(origin, device="cpu", head=ours.head.name)
        model.save(folder, tokenizer, card)
    make_public(folder)


def probes(model: Classifier) -> list[Text]:
    """A few texts or pairs of different lengths, none so long that it would be cut."""
    words = WORDS.split()
    singles = [" ".join(words[: 1 + 3 * i]) for i in range(4)]
    found: list[Text] = list(zip(singles, reversed(singles), strict=True)) if model.head.texts == 2 else list(singles)
    fitting = [text for text in found if _length(model, text) <= model.head.max_length]
    return fitting or [("a", "b") if model.head.texts == 2 else "a"]


def _length(model: Classifier, text: Text) -> int:
    return sum(map(len, model.pieces.many([text] if isinstance(text, str) else list(text)))) + SPECIAL


@torch.no_grad()
def stock_logits(folder: Path, texts: Sequence[Text]) -> torch.Tensor:
    """What transformers alone makes of the folder."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    with quiet():
        net = from_folder(AutoModelForSequenceClassification, folder, dtype=torch.float32).eval()
    tokenizer = from_folder(AutoTokenizer, folder)
    rows = [
        net(**tokenizer(*([text] if isinstance(text, str) else text), return_tensors="pt")).logits for text in texts
    ]
    return torch.cat(rows)
