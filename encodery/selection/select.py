"""From a config to a selection: reads it, gathers what the selector needs, and writes the ordered ids."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from encodery.config import layers
from encodery.config.layers import Layer
from encodery.config.own_code import Code, of_class
from encodery.config.schema import DEFAULT_MODEL, idle_fraction, percent
from encodery.config.validate import check_beside_task, options
from encodery.core import files
from encodery.core.environment import version
from encodery.core.options import Options
from encodery.data import label_mix
from encodery.data.embeddings import Embeddings, EmbedOptions
from encodery.data.out_of_fold import OutOfFold
from encodery.data.provenance import Provenance
from encodery.data.row_dynamics import Dynamics
from encodery.data.subset import Subset, share
from encodery.errors import UserError
from encodery.inference.file_task import SPLIT, unlabelled
from encodery.inference.task_argument import TaskSplit
from encodery.runs.directory import RunDir
from encodery.selectors.base import Pool, Ranked, Selector
from encodery.tasks.base import Task
from encodery.tasks.sources.infer_table import infer
from encodery.tasks.sources.own_files import WHOLE, Own

Say = Callable[[str], None]


class EmbedWith(EmbedOptions):
    """The model that computes the embeddings."""

    model: str = DEFAULT_MODEL
    """Run directory, model folder or hub name; `petit` comes with encodery."""


class Selection(Options):
    """What to select, from which rows, and how."""

    selector: dict[str, Any] = {"kind": "random"}
    """Kind and options of the selector, or its kind alone."""
    split: str = "train"
    """The split to select from. With out-of-fold predictions (confident) and a file that is split automatically, the
    default is `whole`: all its rows."""
    embed: EmbedWith | None = None
    """Embeddings, computed now or read from the cache: {model: runs/mnli, site: cls}."""
    embeddings: str | None = None
    """A folder written by `encodery embed`, instead of embed."""
    runs: list[str] = []
    """Runs trained with train.dynamics, models (for grand), or folders of `train --folds` (for confident)."""
    fraction: float = Field(default=1.0, gt=0, le=1)
    """Fraction of the rows to select. The rest is left out."""
    count: int | None = Field(default=None, ge=1)
    """Number of rows to select, instead of a fraction."""
    seed: int = Field(default=1, ge=0)
    """Seed for random orders, ties and clusters."""
    data: str | None = None
    """Folder with the data sets. Default: ENCODERY_DATA, then GLUE_DIR, then the hub."""
    device: str = "auto"
    """Device that computes the embeddings."""

    @field_validator("selector", mode="before")
    @classmethod
    def _named(cls, given: Any) -> Any:
        return {"kind": given} if isinstance(given, str) else given

    @field_validator("runs", mode="before")
    @classmethod
    def _one_or_more(cls, given: Any) -> Any:
        """`a,b` is what people type for [a, b]."""
        return given.split(",") if isinstance(given, str) else given

    @field_validator("seed", mode="before")
    @classmethod
    def _one_seed(cls, given: Any) -> Any:
        """Configs know two seeds; a selection has one."""
        return given.get("data") if isinstance(given, dict) else given

    @field_validator("fraction", mode="before")
    @classmethod
    def _percent(cls, given: Any) -> Any:
        return percent(given)


@dataclass(frozen=True)
class Asking:
    """A checked config: its options, the pool's task, the selector, and where relative paths begin."""

    options: Selection
    task: Task
    selector: Selector
    folder: Path
    notes: tuple[str, ...] = ()
    code: Mapping[str, str] = field(default_factory=dict)  # own Python file of the selector -> sha256


def load(source: str | Path | None, overrides: Sequence[str] = (), allow_code: bool = False) -> Asking:
    """A config file and what the command line says; the pool stands under `pool`."""
    folder = Path(source).resolve().parent if source else Path.cwd()
    layer = layers.with_overrides(layers.from_source(str(source), Path()) if source else Layer(), overrides)
    if "pool" not in layer.tree:
        raise UserError(f"{source or 'command line'}: pool: is required, such as glue/mnli")
    if isinstance(layer.tree.get("selector"), str):
        layer.tree["selector"] = {"kind": layer.tree["selector"]}
    notes = _without_labels(layer, folder)
    chosen, task = check_beside_task(layer, Selection, "pool", Code(allow_code))
    code = Code(allow_code)
    selector = selector_of(chosen.selector, layer, folder, code)
    if "split" not in chosen.model_fields_set and _asks_all_rows(selector, task):
        chosen = chosen.model_copy(update={"split": WHOLE})
    notes += tuple(idle_fraction(chosen.fraction, chosen.count))
    return Asking(chosen, task, selector, folder, notes, digests_of(code))


def _asks_all_rows(selector: Selector, task: Task) -> bool:
    """Whether rows that are set aside as dev belong to the pool: `train --folds` has answered those too."""
    needs = selector.needs
    return "predictions" in needs and "dynamics" not in needs and isinstance(task, Own) and task.divided


def _without_labels(layer: Layer, folder: Path) -> tuple[str, ...]:
    """A pool that lacks the label column of the run that embeds it is read without labels, and all of it.

    So is one with `label: none`.
    """
    pool, embed = layer.tree["pool"], layer.tree.get("embed")
    entry = {"file": pool} if isinstance(pool, str) and layers.is_data_file(pool) else pool
    model = embed.get("model") if isinstance(embed, dict) else None
    if not isinstance(entry, dict) or not isinstance(entry.get("file"), str):
        return ()
    file = folder / Path(entry["file"]).expanduser()
    own = {key: value for key, value in entry.items() if key != "file"}
    if own.get("label", "") in (None, "none") and file.is_file():
        del own["label"]
        found = infer(file, own, labelled=False, flag="--pool.{}").options
        layer.tree |= {"pool": {"kind": "table", SPLIT: str(file.absolute()), **found}, "split": SPLIT}
        return (f"pool: {file.name} is read without labels; all its rows are the pool",)
    runs = [path for path in (folder / model, Path(model)) if files.is_run(path)] if isinstance(model, str) else []
    if not runs or not file.is_file() or {"label", "split"} & {*entry, *layer.tree}:
        return ()
    run = runs[0]
    settings = unlabelled(file, RunDir.open(run), own, "--pool.{}")
    if settings is None:
        return ()
    layer.tree |= {"pool": settings, "split": SPLIT}
    return (f"pool: {file.name} has no labels (the run has them in {settings['label']}); all its rows are the pool",)


def from_plain(plain: Mapping[str, Any], task: Task, folder: Path, allow_code: bool = False) -> Asking:
    """The same from data."""
    chosen, code = options(Selection, Layer(dict(plain))), Code(allow_code)
    selector = selector_of(chosen.selector, Layer({"selector": chosen.selector}), folder, code)
    return Asking(chosen, task, selector, folder, code=digests_of(code))


def digests_of(code: Code) -> dict[str, str]:
    """The own files that were used, and what they were."""
    return {file: digest for file, (_, digest) in code.used.items()}


def selector_of(plain: Mapping[str, Any], layer: Layer, folder: Path, code: Code) -> Selector:
    """The selector that is named, with its options checked; own files (`mine.py:Mine`) lie relative to the folder."""
    kind = code.find("select", str(plain.get("kind", "random")), folder)
    own = {key: value for key, value in plain.items() if key != "kind"}
    places = {key[1:]: place for key, place in layer.places.items() if key[:1] == ("selector",) and len(key) > 1}
    return of_class(options(kind, Layer(own, places)), Selector, "selector")


def pool_of(asking: Asking, say: Say) -> Pool:
    """The pool with what the selector needs, and nothing else."""
    chosen, task = asking.options, asking.task
    needs = asking.selector.needs
    if not task.labelled:
        raise UserError(f"pool: {task.name} is plain text and has no examples to select")
    for note in asking.notes:
        say(note)
    names = runs_of(asking)
    examples = task.examples(chosen.split)
    if isinstance(task, Own) and chosen.split in ("train", WHOLE) and task.divided:
        say(f"pool: {_about_the_file(task, chosen.split)}")
    made_from = Provenance.of(task.name, chosen.split, examples)
    return Pool(
        examples,
        task.labels,
        chosen.seed,
        (lambda: vectors_of(asking, made_from, say)) if chosen.embed or chosen.embeddings else None,
        [dynamics_of(name, made_from, say) for name in names] if "dynamics" in needs else (),
        names if "models" in needs else (),
        made_from,
        [OutOfFold.open(name) for name in names] if "predictions" in needs else (),
        task.examples,
        asking.folder,
    )


def _about_the_file(task: Own, split: str) -> str:
    """How many rows of a file are the pool, and what becomes of those that training sets aside."""
    count, aside, file = len(task.examples(split)), len(task.examples("dev")), task.file_name("train")
    if split == WHOLE:
        return f"all {count:,} rows of {file}, with the {aside:,} that are set aside as dev in training"
    return f"{count:,} rows of {file}; {aside:,} others are set aside as dev"


def runs_of(asking: Asking) -> list[str]:
    """The runs that are named, from the config's folder where they are there."""
    runs, folder = asking.options.runs, asking.folder
    return [str(folder / run) if (folder / run).exists() else run for run in runs]


def dynamics_of(run: str, pool: Provenance, say: Say) -> Dynamics:
    """What a run recorded, if that was of the pool's rows; of part of them only if the ids say so later."""
    dynamics = Dynamics.open(run)
    part = dynamics.made_from.rows is not None and pool.rows is not None and dynamics.made_from.rows < pool.rows
    if part and (dynamics.made_from.task, dynamics.made_from.split) == (pool.task, pool.split):
        return dynamics  # `aligned` names a row that the run was not trained on
    if warning := dynamics.made_from.require_fit(str(dynamics.path), pool):
        say(f"WARNING {warning}")
    return dynamics


def vectors_of(asking: Asking, pool: Provenance, say: Say) -> tuple[Sequence[str], Any]:
    """Ids and vectors of the pool."""
    chosen = asking.options
    if chosen.embeddings:
        vectors = Embeddings.open(asking.folder / chosen.embeddings)
        fits = _of_the_whole_file(vectors, asking)
        if not fits and (warning := vectors.made_from.require_fit(str(vectors.folder), pool, labels=False)):
            say(f"WARNING {warning}")
    else:
        from encodery.analysis.embed import embed, open_source

        assert chosen.embed is not None
        say(f"embedding {asking.task.name}:{chosen.split} with {chosen.embed.model}")
        source = open_source(chosen.embed.model, chosen.device, asking.folder, "rows" if chosen.embed.int8 else "auto")
        plain = EmbedOptions(**chosen.embed.model_dump(exclude={"model"}))
        vectors = embed(source, TaskSplit(asking.task, chosen.split), plain)
    return vectors.ids, vectors.vectors


def _of_the_whole_file(vectors: Embeddings, asking: Asking) -> bool:
    """Whether the vectors are those of a file of which the pool is what an automatic split left for train."""
    task = asking.task
    if not (isinstance(task, Own) and asking.options.split == "train" and task.divided):
        return False
    return vectors.made_from.texts == Provenance.of(task.name, WHOLE, task.examples(WHOLE)).texts


def choose(asking: Asking, say: Say = lambda _: None, pool: Pool | None = None) -> Subset:
    """Order the pool; the first rows, as many as are asked for."""
    pool, chosen = pool or pool_of(asking, say), asking.options
    wanted = chosen.count if chosen.count is not None else share(len(pool), chosen.fraction)
    if not 1 <= wanted <= len(pool):
        raise UserError(f"select: cannot take {wanted:,} of {len(pool):,} rows")
    ranked = asking.selector(pool, wanted)
    for note in ranked.notes:
        say(f"note: {note}")
    order = ranked.order[:wanted]
    if not len(order):
        kind = chosen.selector.get("kind", "random")
        raise UserError(f"select: {kind} selects none of {wanted:,} rows; ask for more, or change its options")
    labels = label_mix.labels_of(pool.examples)
    both = [label_mix.shares_of(labels[id] for id in ids if id in labels) for ids in (pool.ids, _at(pool, order))]
    if sentence := label_mix.about(*both):
        say(sentence)
    meta = about(asking, pool, ranked) | label_mix.meta(*both) | ({"short": True} if len(order) < wanted else {})
    scores, weights, clusters = (
        None if values is None else values[order].tolist()
        for values in (ranked.scores, ranked.weights, ranked.clusters)
    )
    return Subset(_at(pool, order), meta, scores, weights, clusters)


def _at(pool: Pool, order: Any) -> list[str]:
    return [pool.ids[i] for i in order]


def about(asking: Asking, pool: Pool, ranked: Ranked) -> dict[str, Any]:
    """Everything that somebody needs to know who uses the selection, or who wants to make it again."""
    chosen, task = asking.options, asking.task
    meta: dict[str, Any] = {
        "selector": {"kind": chosen.selector.get("kind", "random"), **asking.selector.to_dict()},
        "seed": chosen.seed, "task": task.name, "split": chosen.split, "pool": len(pool),
        "fingerprint": pool.made_from.answers, "notes": list(ranked.notes), "encodery": version(),
        **ranked.about,
    }  # fmt: skip
    if chosen.embeddings:
        meta["embeddings"] = Embeddings.open(asking.folder / chosen.embeddings).meta
    elif chosen.embed and "embeddings" in asking.selector.needs:
        from encodery.models import locate

        meta["embed"] = chosen.embed.to_dict() | {
            "digest": locate.resolve(chosen.embed.model, near=asking.folder).digest()
        }
    if chosen.runs:
        meta["runs"] = list(chosen.runs)
    return meta | ({"code": dict(asking.code)} if asking.code else {})
