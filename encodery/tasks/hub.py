"""Published sets from the Hugging Face hub, through `datasets`, at a commit that is recorded."""

from typing import Any

from encodery.errors import UserError
from encodery.tasks.known import Known
from encodery.tasks.readers import Row, Sheet

USUAL = {
    "train": ("train",),
    "dev": ("validation",),
    "dev_mismatched": ("validation_mismatched",),
    "test": ("test",),
    "test_mismatched": ("test_mismatched",),
}
ADVICE = (
    "Put its files into a folder and name it with --data or ENCODERY_DATA (docs/glue.md, docs/own-data.md: layouts)."
)


def rows(known: Known, split: str, revision: str | None, missing: str) -> tuple[Sheet, str]:
    """The rows of a split and the commit they came from. `missing` opens the sentence if the hub cannot be reached."""
    commit = _commit(known, revision, missing)
    names = known.hub_splits.get(split, USUAL[split])
    sheet = Sheet(f"hub:{known.repository}/{known.configuration or ''}:{split}")
    for name in names:
        data = _load(known, name, commit, missing)
        sheet.columns = tuple(data.column_names)
        sheet.rows += [Row(i, dict(values)) for i, values in enumerate(data, len(sheet.rows) + 1)]
    return sheet, commit


def _commit(known: Known, revision: str | None, missing: str) -> str:
    """The commit that a branch or tag stands for now."""
    from huggingface_hub import HfApi

    try:
        info = HfApi().dataset_info(known.repository, revision=revision or known.hub_revision, timeout=10)
    except Exception as error:  # the hub's client raises a zoo: offline, DNS, time-out, proxy, 401, 404
        raise _sentence(known, missing, error) from error
    return str(info.sha)


def _load(known: Known, name: str, commit: str, missing: str) -> Any:
    from datasets import load_dataset

    try:
        return load_dataset(known.repository, known.configuration, split=name, revision=commit)
    except Exception as error:  # as above, and whatever a broken download gives
        raise _sentence(known, missing, error) from error


def _sentence(known: Known, missing: str, error: Exception) -> UserError:
    words = str(error).strip().splitlines() or [""]
    reason = f"{type(error).__name__}: {words[0][:200]}".rstrip(": ")
    return UserError(f"{missing}, and the hub ({known.repository}) could not give it ({reason}). {ADVICE}")
