"""The keys of a run: every section of a config file, with its defaults and its meaning.

Sections whose keys depend on a `kind` (method, each task, an objective) are checked by the class that the kind names;
here they are plain mappings. `config.py` reads and checks; this page only says what there is.
"""

import math
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from encodery.core.options import Options

Percent = Annotated[float, Field(gt=0, le=100)]
Pooling = Literal["first", "mean", "max"]
AnyPooling = Literal["auto", "first", "mean", "max"]
Dynamics = Annotated[str, Field(pattern=r"^(train|eval|[1-9][0-9]* steps?)$")]


def percent(given: Any) -> Any:
    """`30%` as 0.3; everything else as it is."""
    if isinstance(given, str) and re.fullmatch(r"[0-9]+(\.[0-9]+)?%", given):
        return float(Decimal(given[:-1]) / 100)
    return given


# Of a new encoder: layers, width, heads, feed-forward, embedding width (for those that factorise it).
SIZES = {
    "tiny": (2, 128, 2, 512, 128),
    "mini": (4, 256, 4, 1024, 128),
    "small": (12, 256, 4, 1024, 128),
    "base": (12, 768, 12, 3072, 768),
    "large": (24, 1024, 16, 4096, 1024),
}
TOKEN_BUDGET = 16384  # tokens of a micro-batch where nobody asks for a number
TOKEN_BUDGET_OF_TEXT = 4096  # in pretraining on a CPU: steps are large there, and smaller pieces are as quick
# Fields of transformers' configs that count something: the least and the most that make sense.
_COUNTS = {
    "num_hidden_layers": (1, 1000), "n_layers": (1, 1000), "num_attention_heads": (1, 1024), "n_heads": (1, 1024),
    "hidden_size": (1, 65_536), "dim": (1, 65_536), "embedding_size": (1, 65_536), "intermediate_size": (1, 1 << 20),
    "hidden_dim": (1, 1 << 20), "vocab_size": (1, 10_000_000), "max_position_embeddings": (4, 10_000_000),
    "type_vocab_size": (0, 1024),
}  # fmt: skip


class NewModel(Options):
    """An encoder with random weights."""

    kind: Literal[
        "bert", "roberta", "xlm-roberta", "electra", "albert", "distilbert", "deberta-v2", "modernbert", "mpnet", "amos"
    ] = "bert"
    """Architecture. amos: AMOS's encoder, with a relative position bias shared by all layers."""
    size: Literal["tiny", "mini", "small", "base", "large"] = "tiny"
    """Layers × hidden size: tiny 2 × 128, mini 4 × 256, small 12 × 256, base 12 × 768, large 24 × 1024."""
    init: Literal["hf", "google"] = "hf"
    """Initialisation. hf: as in transformers; google: as in Google's ELECTRA (truncated normal, Glorot for the
    projections)."""
    config: dict[str, Any] = {}
    """Other fields of the transformers config class, such as {num_hidden_layers: 3}."""

    @field_validator("config")
    @classmethod
    def _possible(cls, given: dict[str, Any]) -> dict[str, Any]:
        for name, value in given.items():
            least, most = _COUNTS.get(name, (None, None))
            whole = isinstance(value, int) and not isinstance(value, bool)
            if least is not None and most is not None and not (whole and least <= value <= most):
                raise ValueError(f"{name}: expected a whole number from {least:,} to {most:,}, not {value}")
            rate = "dropout" in name and value is not None
            if rate and (isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1):
                raise ValueError(f"{name}: expected a number from 0 to below 1, not {value}")
        return given

    @model_validator(mode="after")
    def _divisible(self) -> Self:
        _, width, heads, _, _ = SIZES[self.size]
        width = self.config.get("hidden_size", self.config.get("dim", width))
        heads = self.config.get("num_attention_heads", self.config.get("n_heads", heads))
        if width % heads:
            raise ValueError(
                f"a width of {width} cannot be split into {heads} heads; it must be a multiple of the number of heads"
            )
        return self


class Lora(Options):
    """Low-rank adapters through peft (extra `lora`)."""

    rank: int = Field(default=8, ge=1)
    """Rank of the update."""
    alpha: float = 16.0
    """Scale of the update, which is multiplied by alpha / rank."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout on the input of the adapter."""
    target: str | list[str] = "all-linear"
    """Modules to adapt, as in peft's target_modules."""


DEFAULT_MODEL = "petit"  # comes with encodery, so it is there without a network
# Rate and length that suit an encoder of its size; the general ones are for encoders of BERT's size.
DEFAULT_MODEL_SETTINGS: dict[str, dict[str, float]] = {"optim": {"lr": 5e-4}, "train": {"epochs": 5}}


class ModelOptions(Options):
    """The encoder, and which of its weights are trained."""

    name: str | None = None
    """Hub name, folder or run directory. Default, if `new` is not set either: `petit`, the small encoder that comes
    with encodery."""
    new: NewModel | None = None
    """Build an encoder with random weights instead of loading one."""
    revision: str | None = None
    """Commit, tag or branch on the hub. The run records the commit that it resolved to."""
    tokenizer: str | None = None
    """Tokenizer: a folder, a hub name, a vocab.txt, or `toy`. Default: the model's own, or `toy` for a new model on toy
    tasks."""
    head: Literal["stock", "linear", "mlp_tanh", "mlp_gelu"] = "stock"
    """Architecture of the head. stock: the model's own class in transformers; linear: as in ELECTRA; mlp_tanh: as in
    AMOS; mlp_gelu: as in AMOS's transformers port."""
    pooling: AnyPooling = "auto"
    """How classification, regression and ranking heads pool the tokens into one vector: the first token, or the mean or
    maximum over all tokens, including [CLS] and [SEP]. auto: the pooling recorded in a sentence-transformers folder
    (1_Pooling), in ModernBERT's classifier_pooling or in an earlier run, else first."""
    head_dropout: float | None = Field(default=None, ge=0, lt=1)
    """Dropout of the head. Default: the value in the model's config for the stock head, 0.1 for the others."""
    dropout: float | None = Field(default=None, ge=0, lt=1)
    """Dropout of the encoder's hidden layers. Default: the value in the checkpoint."""
    attention_dropout: float | None = Field(default=None, ge=0, lt=1)
    """Dropout of the attention probabilities. Default: the value in the checkpoint."""
    tune: str = Field(default="full", pattern=r"^(full|head|lora|top:[0-9]+)$")
    """Which weights are trained. full: all of them; head: the head only, with the encoder frozen; top:N: the top N
    layers and the head; lora: low-rank adapters."""
    lora: Lora = Lora()
    """Options for `tune: lora`."""
    generator: str | None = None
    """For continued ELECTRA pretraining: folder or hub name of the generator. A run of encodery already contains its
    generator."""
    init_from: str | None = None
    """Run whose encoder is the starting point, such as an MNLI run for RTE. Its heads are used only with
    `heads: true`."""
    heads: bool = False
    """Also load the heads of the run that the encoder comes from, matched by task name. Tasks without a match get a new
    head."""


class OptimOptions(Options):
    """The optimiser and the learning rate schedule."""

    kind: Literal["adamw", "adamax", "stableadamw", "muon"] = "adamw"
    """Update rule. stableadamw: lowers the learning rate of a tensor whose update is too large (use with `clip: 0`).
    muon: Muon for the weight matrices of the layers and AdamW for everything else, both at `lr` (Muon's update is
    scaled to the size of AdamW's)."""
    lr: float = Field(default=2e-5, gt=0)
    """Peak learning rate."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Decay rates of the first and second moment, each in [0, 1)."""
    momentum: float = Field(default=0.95, ge=0, lt=1)
    """muon: Nesterov momentum of the weight matrices."""
    eps: float = Field(default=1e-6, gt=0)
    """Added to the square root of the second moment, for numerical stability."""
    bias_correction: bool = True
    """Correct the bias of the moments. false: as in the code of BERT and ELECTRA."""
    weight_decay: float = Field(default=0.01, ge=0)
    """Decoupled weight decay coefficient."""
    decay: Literal["matrices", "all"] = "matrices"
    """Which parameters decay. matrices: all but biases and layer norms; all: every parameter, as in fairseq."""
    clip: float = Field(default=1.0, ge=0)
    """Clip the global gradient norm at this value. 0: no clipping."""
    schedule: Literal["linear", "cosine", "constant", "wsd"] = "linear"
    """Learning rate after warm-up: linear or cosine decay to zero, constant, or constant with a decay at the end (wsd:
    warmup-stable-decay)."""
    warmup: float = Field(default=0.1, ge=0)
    """Length of the warm-up. Below 1: a fraction of all steps; 1 or more: a number of steps."""
    warmup_style: Literal["sequential", "simultaneous"] = "sequential"
    """sequential: the decay begins after the warm-up. simultaneous: the warm-up factor multiplies a decay that begins
    at step 0, as in ELECTRA; with 10 % warm-up the rate peaks at 0.9 lr."""
    decay_share: float = Field(default=0.1, gt=0, le=1)
    """wsd: fraction of all steps over which the rate decays."""
    decay_shape: Literal["linear", "sqrt"] = "linear"
    """wsd: shape of the decay. linear, or sqrt: 1 - √(fraction of the decay done), which falls steeply at first."""
    floor: float = Field(default=0.0, ge=0, lt=1)
    """Decay to this fraction of the peak rate instead of zero. Refused with `schedule: constant`, which does not
    decay."""
    schedule_steps: int | None = Field(default=None, ge=1)
    """Length of the schedule in steps. Default: the length of the run. A run that is shorter than its schedule ends
    before the rate reaches zero."""
    layer_decay: float = Field(default=1.0, gt=0, le=1)
    """Layer-wise learning rate decay: each layer gets this factor times the rate of the layer above it. 1: off."""
    layer_decay_compat: bool = True
    """true: reproduce a quirk of the published ELECTRA code, where the top layer gets d² instead of d."""

    @field_validator("betas")
    @classmethod
    def _decays(cls, given: tuple[float, float]) -> tuple[float, float]:
        if not all(0 <= beta < 1 for beta in given):
            raise ValueError(f"expected two numbers from 0 to below 1, not {list(given)}")
        return given


OF_WSD = ("decay_share", "decay_shape")


def idle_settings(options: OptimOptions) -> list[str]:
    """A sentence for each setting that the schedule has no use for.

    Notes and no errors: a sweep over schedules sets them for all its runs, and a recipe's stay when its schedule is
    replaced on the command line.
    """
    if options.schedule == "wsd":
        return []
    values = {key: getattr(options, key) for key in OF_WSD}
    own = {key: value for key, value in values.items() if value != OptimOptions.model_fields[key].default}
    return [
        f"optim.{key}: {value} has no effect with optim.schedule `{options.schedule}`; it belongs to wsd."
        for key, value in own.items()
    ]


def idle_fraction(fraction: float, count: int | None, prefix: str = "") -> list[str]:
    """A sentence where both say how many rows are taken; a note, since a recipe's fraction stays below a count."""
    if count is None or fraction == 1.0:
        return []
    return [f"{prefix}fraction: {fraction:g} has no effect beside {prefix}count: {count}"]


class TrainOptions(Options):
    """Length of the training, batches, precision, evaluation and checkpoints."""

    epochs: float = Field(default=3, gt=0, le=1_000_000)
    """Passes over the training set. Fractions are allowed."""
    max_steps: int | None = Field(default=None, ge=1, le=10**10)
    """Length of the training in steps. Overrides epochs."""
    batch_size: int = Field(default=32, ge=1)
    """Examples per optimiser step. A step is split into micro-batches that fit on the device."""
    max_length: int = Field(default=128, ge=4)
    """Maximum sequence length in tokens. Longer texts are truncated."""
    token_budget: int | None = Field(default=None, ge=16)
    """Maximum number of tokens in a micro-batch, including padding. Default: 16384, or 4096 for pretraining on a
    CPU."""
    micro_batch: int | None = Field(default=None, ge=1)
    """Maximum number of sequences in a micro-batch. Default: limited by token_budget only."""
    layout: Literal["auto", "packed", "rows", "padded"] = "auto"
    """How a micro-batch is laid out. packed: sequences are concatenated, without padding; rows: sequences are sorted by
    length, with little padding; padded: every batch is padded as it comes, for comparison."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """Numerical precision. auto: bf16 on GPUs that support it, else fp32."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: saves memory and takes about a third more time."""
    tf32: bool = False
    """Use TF32 for fp32 matrix products on a GPU: several times faster, but with a 10-bit mantissa."""
    compile: bool = False
    """Compile the layers of the encoder with torch.compile. Worthwhile on GPUs only. Recompilations are logged."""
    shard: bool = False
    """Shard weights, gradients and optimiser state over all processes (FSDP2). Only for plain training on one task."""
    check_processes: bool = False
    """Compare the weights of all processes after each step. Slow; use it to find a faulty machine."""
    loss_reduction: Literal["mean", "sum"] = "mean"
    """mean: average the loss over the batch. sum: add it up, as in Google's ELECTRA; with clipping, nearly every
    gradient then has norm 1."""
    evaluate: str = Field(
        default="1 epoch", pattern=r"^(end|never|[1-9][0-9]* steps?|[1-9][0-9]*(/[1-9][0-9]*)? epochs?)$"
    )
    """How often to evaluate on dev: `500 steps`, `1/2 epoch`, `end`, `never`."""
    save: str = Field(
        default="10 min",
        pattern=r"^(end|[1-9][0-9]* steps?|[1-9][0-9]*(/[1-9][0-9]*)? epochs?|[1-9][0-9]* min)$",
    )
    """How often to write a checkpoint: `500 steps`, `1/2 epoch`, `10 min`, `end`."""
    log: int = Field(default=10, ge=1)
    """Write a record to metrics.jsonl every N steps."""
    select: Literal["last", "best", "each"] = "last"
    """Which weights become the model. last: those of the last step; best: the best on dev (tables mark such runs);
    each: as best, but every task is scored with its own best weights, which are kept in best/TASK of the run and
    answer for this task."""
    select_metric: str | None = None
    """Metric that select and patience use. Default: the task's main metric."""
    select_on: str | None = None
    """With several tasks: the task whose score select and patience use. Default: the mean over all tasks."""
    holdout: float = Field(default=0.0, ge=0, le=0.9)
    """Fraction of train to hold out and use for select and patience instead of dev, so that dev stays unseen."""
    patience: int | None = Field(default=None, ge=1)
    """Stop after this many evaluations without improvement. train.evaluate sets how often the run evaluates."""
    keep_at: list[Percent] | None = None
    """Keep the model at these percentages of the steps, as RUN@25% and so on. Default in pretraining: 6.25, 12.5, 25,
    50."""
    dynamics: bool | Dynamics = False
    """Record the logits of every training row, for data selection. true or train: once per epoch, during the training
    steps, with dropout; eval: in a separate pass after each epoch, without dropout; `200 steps`: in such a pass every
    200 steps."""
    keep_checkpoints: bool = False
    """Keep the last checkpoints when the run has finished, so that it can be trained for more steps later
    (--allow-change). Default: keep model/ only."""

    @model_validator(mode="after")
    def _evaluates(self) -> Self:
        if self.patience is not None and self.evaluate in ("end", "never"):
            raise ValueError(f"train.patience: needs earlier evaluations, but train.evaluate is `{self.evaluate}`")
        return self


class Seed(Options):
    """Random seeds. `seed: 3` sets both."""

    init: int = Field(default=1, ge=0)
    """Seed for new layers and dropout."""
    data: int = Field(default=1, ge=0)
    """Seed for the order of the data, for splits and for sampling."""


class Entry(Options):
    """Keys that every entry of `tasks` accepts, in addition to the options of its task."""

    weight: float = Field(default=1.0, gt=0)
    """Weight of the task's loss."""
    batch_size: int | None = Field(default=None, ge=1)
    """Batch size for this task. Default: train.batch_size."""
    lr_scale: float = Field(default=1.0, gt=0)
    """Factor on the learning rate of the task's head, and of the encoder in steps on this task (the mean of the factors
    if a step has several tasks)."""
    subset: str | None = None
    """A selection written by `encodery select`. The run trains on its first rows, as many as fraction or count says."""
    fraction: float = Field(default=1.0, gt=0, le=1)
    """Fraction of the training set to train on, such as 0.3 or 30%: the first rows of subset, else random rows that
    depend on the data seed only. A smaller fraction is contained in a larger one."""
    count: int | None = Field(default=None, ge=1)
    """Number of rows to train on, instead of a fraction."""
    sampling: Literal["uniform", "balanced"] = "uniform"
    """uniform: every row once per epoch. balanced: every class equally often, so rows of rare classes repeat; the
    number of steps per epoch does not change. In multi-label data a row counts for each of its labels, and a row
    without labels for a class of its own."""
    sample_by: str | None = None
    """A selection written by `encodery select`, used for importance sampling: rows are drawn with replacement, in
    proportion to their scores, and weighted so that the expected gradient stays the same."""
    sample_smoothing: float = Field(default=0.1, gt=0)
    """Fraction of the mean score to add to every score. It limits the weight of a row to 1 + 1 / sample_smoothing."""
    max_length: int | None = Field(default=None, ge=4)
    """Maximum sequence length for this task. Default: train.max_length."""
    double_unordered: bool = False
    """Train on every pair in both orders (ELECTRA on MRPC and STS-B)."""
    evaluate_on: list[str] | None = None
    """Splits to score at the end. Default: all dev splits. holdout: the rows of train.holdout, for a sweep that chooses
    on them."""
    teacher: str | list[str] | None = None
    """Knowledge distillation: a run or model whose predictions on the training rows are learnt in addition to the
    labels. With several, their probabilities are averaged. tasks.objective.distill sets the loss."""
    objective: dict[str, Any] = {}
    """Options of the task's training objective, such as {label_smoothing: 0.1, class_weights: balanced}."""

    @property
    def teachers(self) -> list[str]:
        return [self.teacher] if isinstance(self.teacher, str) else self.teacher or []

    @field_validator("fraction", mode="before")
    @classmethod
    def _percent(cls, given: Any) -> Any:
        """`30%` is 0.3."""
        return percent(given)


class ProbeOptions(Options):
    """Linear probes on frozen features during pretraining."""

    tasks: list[str] = Field(min_length=1)
    """Labelled tasks, such as [glue/sst2]. A linear model is fitted on each train split and scored on dev."""
    every: int | None = Field(default=None, ge=1)
    """Probe every N steps. Kept models and the last step are always probed."""
    train_rows: int = Field(default=2000, ge=8)
    """Maximum number of rows to fit a probe on."""
    max_length: int = Field(default=128, ge=4)
    """Maximum sequence length in tokens."""
    pairs: Literal["joined", "apart"] = "joined"
    """Text pairs. joined: both texts in one sequence; apart: each text on its own, with the features u, v and |u -
    v|."""


class Config(Options):
    """The config of a run."""

    model: ModelOptions
    """The encoder."""
    tasks: list[dict[str, Any]]
    """The tasks to train on. Each entry takes the keys below and the options of its task."""
    method: dict[str, Any] = {"kind": "plain"}
    """Training method: how a batch becomes a gradient. The keys depend on the kind."""
    mix: dict[str, Any] = {"kind": "shuffled"}
    """With several tasks: the order in which their batches come. The keys depend on the kind."""
    weighting: dict[str, Any] = {"kind": "constant"}
    """With several tasks: how their losses or gradients are combined. The keys depend on the kind."""
    optim: OptimOptions = OptimOptions()
    """The optimiser."""
    train: TrainOptions = TrainOptions()
    """The training loop."""
    seed: Seed = Seed()
    """Random seeds."""
    probe: ProbeOptions | None = None
    """Probe the encoder during pretraining."""
    data: str | None = None
    """Folder with the data sets. Default: ENCODERY_DATA, then GLUE_DIR, then the hub."""
    device: str = "auto"
    """Device: auto, cpu, cuda, cuda:1, mps. May change when a run resumes."""
    threads: int | None = Field(default=None, ge=1, le=1024)
    """Number of CPU threads. Default: chosen by torch. May change when a run resumes; the number is recorded."""

    @model_validator(mode="after")
    def _rises(self) -> Self:
        if self.train.max_steps is not None and self.optim.warmup > max(self.train.max_steps, 1):
            raise ValueError(
                f"optim.warmup: {self.optim.warmup:g} steps are more than train.max_steps, {self.train.max_steps}; the "
                "rate would never reach its peak. Below 1 it is a share of all steps"
            )
        return self

    @model_validator(mode="after")
    def _falls(self) -> Self:
        # Here and not in OptimOptions: as a function of the step the two are no contradiction, as settings they are.
        if self.optim.floor and self.optim.schedule == "constant":
            raise ValueError(
                f"optim.floor: {self.optim.floor:g} has no effect with optim.schedule `constant`, whose rate does not "
                "decay; leave it out, or choose linear, cosine or wsd"
            )
        return self


# When something is due: `500 steps`, `1/2 epoch`, `10 min`, `end`, `never`.


@dataclass
class Every:
    """Says after which steps something is due. Steps and epochs depend on the step alone; minutes on the clock."""

    steps: Fraction | None = None
    seconds: float | None = None
    last: float = field(default_factory=time.monotonic)

    def due(self, step: int) -> bool:
        """Whether it is due after this many steps."""
        if self.steps is not None:
            return int(step / self.steps) > int((step - 1) / self.steps)
        if self.seconds is not None and time.monotonic() - self.last >= self.seconds:
            self.last = time.monotonic()
            return True
        return False


def interval(text: str, steps_per_epoch: int) -> Every:
    """Read an interval; its key has checked its form. `end` and `never` are due nowhere on the way."""
    match = re.match(r"^(\d+)(?:/(\d+))? (step|epoch|min)", text)
    if not match:
        return Every()
    amount = Fraction(int(match[1]), int(match[2] or 1))
    if match[3] == "min":
        return Every(seconds=float(amount) * 60)
    return Every(steps=max(amount * (steps_per_epoch if match[3] == "epoch" else 1), Fraction(1)))


def steps_of_shares(shares: Sequence[float], total: int) -> dict[int, str]:
    """After which step which share (in per cent) of all steps is done; of shares on one step the largest."""
    return {math.ceil(total * share / 100): f"{share:g}" for share in sorted(shares) if share < 100}
