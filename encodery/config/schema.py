"""The keys of a run: every section of a config file, with its defaults and its meaning.

Sections whose keys depend on a `kind` (method, each task, an objective) are checked by the class that the kind names;
here they are plain mappings. `config.py` reads and checks; this page only says what there is.
"""

import re
from decimal import Decimal
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
# Fields of transformers' configs that count something: the least and the most that make sense.
_COUNTS = {
    "num_hidden_layers": (1, 1000), "n_layers": (1, 1000), "num_attention_heads": (1, 1024), "n_heads": (1, 1024),
    "hidden_size": (1, 65_536), "dim": (1, 65_536), "embedding_size": (1, 65_536), "intermediate_size": (1, 1 << 20),
    "hidden_dim": (1, 1 << 20), "vocab_size": (1, 10_000_000), "max_position_embeddings": (4, 10_000_000),
    "type_vocab_size": (0, 1024),
}  # fmt: skip


class NewModel(Options):
    """An encoder with fresh weights."""

    kind: Literal[
        "bert", "roberta", "xlm-roberta", "electra", "albert", "distilbert", "deberta-v2", "modernbert", "mpnet", "amos"
    ] = "bert"
    """Architecture; amos: AMOS's encoder, with a bias by distance shared by the layers."""
    size: Literal["tiny", "mini", "small", "base", "large"] = "tiny"
    """tiny 2 layers of width 128, mini 4 × 256, small 12 × 256, base 12 × 768, large 24 × 1024."""
    init: Literal["hf", "google"] = "hf"
    """First weights: as transformers makes them, or as Google's ELECTRA (truncated normal, projections Glorot)."""
    config: dict[str, Any] = {}
    """Further fields of the transformers config class, such as {num_hidden_layers: 3}."""

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
            raise ValueError(f"a width of {width} cannot be cut into {heads} heads; width must be a multiple of heads")
        return self


class Lora(Options):
    """Low-rank adapters through peft (extra `lora`)."""

    rank: int = Field(default=8, ge=1)
    """Rank of the update."""
    alpha: float = 16.0
    """Scale numerator: the update is multiplied by alpha / rank."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout before the adapter."""
    target: str | list[str] = "all-linear"
    """Modules to adapt, as peft names them."""


DEFAULT_MODEL = "petit"  # comes with encodery, so it is there without a network
# Rate and length that suit an encoder of its size; the general ones are for encoders of BERT's size.
DEFAULT_MODEL_SETTINGS: dict[str, dict[str, float]] = {"optim": {"lr": 5e-4}, "train": {"epochs": 5}}


class ModelOptions(Options):
    """Which encoder, and how much of it is trained."""

    name: str | None = None
    """Hub name, folder, or run directory. Without name and new it is `petit`, the small encoder that comes with
    encodery."""
    new: NewModel | None = None
    """Fresh weights instead of a checkpoint."""
    revision: str | None = None
    """Commit, tag or branch on the hub; what was used is recorded as a commit."""
    tokenizer: str | None = None
    """Tokenizer folder, hub name, a vocab.txt, or `toy`; default: the model's own (new models on toy tasks: toy)."""
    head: Literal["stock", "linear", "mlp_tanh", "mlp_gelu"] = "stock"
    """stock: the architecture's own class in transformers; linear: ELECTRA's; mlp_tanh: AMOS's."""
    pooling: AnyPooling = "auto"
    """The vector that heads for labels, numbers and rankings read: that of the first token, or the mean or maximum of
    all tokens, [CLS] and [SEP] included. auto: what a sentence-transformers folder (1_Pooling), ModernBERT's
    classifier_pooling or an earlier run says, else first."""
    head_dropout: float | None = Field(default=None, ge=0, lt=1)
    """Dropout of the head; default: what the architecture's config says (stock), 0.1 (the others)."""
    dropout: float | None = Field(default=None, ge=0, lt=1)
    """Hidden dropout of the encoder; default: the checkpoint's."""
    attention_dropout: float | None = Field(default=None, ge=0, lt=1)
    """Dropout of attention probabilities; default: the checkpoint's."""
    tune: str = Field(default="full", pattern=r"^(full|head|lora|top:[0-9]+)$")
    """full, head (encoder frozen), top:N (the N upper layers and the head), lora."""
    lora: Lora = Lora()
    """Options of tune: lora."""
    generator: str | None = None
    """Continued ELECTRA pretraining: folder or hub name of the generator; a run of encodery has its own."""
    init_from: str | None = None
    """Run whose encoder (never its head) is the start, such as an MNLI run for RTE."""
    heads: bool = False
    """Also take over the heads of the run that is the start, by the names of their tasks; other tasks get new ones."""


class OptimOptions(Options):
    """The optimiser and its rate over time."""

    kind: Literal["adamw", "adamax", "stableadamw", "muon"] = "adamw"
    """Update rule. stableadamw: the rate of a tensor is cut when its update is too large (then `clip: 0`). muon: Muon
    for the matrices of the layers, AdamW for the rest, both at `lr` (Muon's step is scaled to AdamW's size)."""
    lr: float = Field(default=2e-5, gt=0)
    """Peak learning rate."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Decay of the first and second moment; each from 0 to below 1."""
    momentum: float = Field(default=0.95, ge=0, lt=1)
    """muon: momentum of the matrices (Nesterov's)."""
    eps: float = Field(default=1e-6, gt=0)
    """Added to the root of the second moment."""
    bias_correction: bool = True
    """False: Adam as in BERT's and ELECTRA's code."""
    weight_decay: float = Field(default=0.01, ge=0)
    """Decoupled weight decay."""
    decay: Literal["matrices", "all"] = "matrices"
    """matrices: biases and layer norms are exempt; all: every parameter decays (fairseq)."""
    clip: float = Field(default=1.0, ge=0)
    """Global gradient norm; 0: no clipping."""
    schedule: Literal["linear", "cosine", "constant", "wsd"] = "linear"
    """After warm-up: to zero linearly, by a cosine, constant, or stable and then decaying (wsd)."""
    warmup: float = Field(default=0.1, ge=0)
    """Below 1: a share of all steps; 1 or more: steps."""
    warmup_style: Literal["sequential", "simultaneous"] = "sequential"
    """simultaneous: warm-up multiplies a decay that already runs (ELECTRA): the peak is then 0.9 lr at 10 %."""
    decay_share: float = Field(default=0.1, gt=0, le=1)
    """wsd: the share of all steps in which the rate falls."""
    decay_shape: Literal["linear", "sqrt"] = "linear"
    """wsd: how it falls: linearly, or as 1 - √(share of the fall), which is steep first."""
    floor: float = Field(default=0.0, ge=0, lt=1)
    """The rate falls to this share of its peak instead of zero (not with `schedule: constant`)."""
    schedule_steps: int | None = Field(default=None, ge=1)
    """Steps that the schedule is made for; default: those of the run. A run that ends before does not reach 0."""
    layer_decay: float = Field(default=1.0, gt=0, le=1)
    """Each layer below gets this times the rate of the one above; 1: off."""
    layer_decay_compat: bool = True
    """True: ELECTRA's published quirk, the top block gets d² instead of d."""

    @field_validator("betas")
    @classmethod
    def _decays(cls, given: tuple[float, float]) -> tuple[float, float]:
        if not all(0 <= beta < 1 for beta in given):
            raise ValueError(f"expected two numbers from 0 to below 1, not {list(given)}")
        return given


class TrainOptions(Options):
    """How long, how big, how often."""

    epochs: float = Field(default=3, gt=0, le=1_000_000)
    """Passes over the training set; parts are allowed."""
    max_steps: int | None = Field(default=None, ge=1, le=10**10)
    """Steps instead of epochs."""
    batch_size: int = Field(default=32, ge=1)
    """Examples in an optimiser step, whatever the device holds at once."""
    max_length: int = Field(default=128, ge=4)
    """Longest sequence in tokens; longer texts are cut."""
    token_budget: int | None = Field(default=None, ge=16)
    """Most tokens of a micro-batch, padding included; default 16384, and 4096 for pretraining on a CPU."""
    micro_batch: int | None = Field(default=None, ge=1)
    """Most sequences in a micro-batch; default: only the token budget counts."""
    layout: Literal["auto", "packed", "rows", "padded"] = "auto"
    """packed: no padding at all; rows: sorted, little padding; padded: the plain way, for comparison."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """auto: bf16 on GPUs that have it, else fp32."""
    gradient_checkpointing: bool = False
    """Less memory for about a third more time."""
    tf32: bool = False
    """Products of fp32 numbers on a GPU with the 10-bit mantissa of TF32: several times faster, less exact."""
    compile: bool = False
    """torch.compile for the layers of the encoder; pays on GPUs only. Later compilations are logged."""
    shard: bool = False
    """Spread weights, gradients and moments over all processes (FSDP2); plain training of one task only."""
    check_processes: bool = False
    """Compare the weights of all processes after each step: slow, to find a broken machine."""
    loss_reduction: Literal["mean", "sum"] = "mean"
    """sum: as in Google's ELECTRA; with clipping nearly every step has norm 1."""
    evaluate: str = Field(
        default="1 epoch", pattern=r"^(end|never|[1-9][0-9]* steps?|[1-9][0-9]*(/[1-9][0-9]*)? epochs?)$"
    )
    """How often the dev set is scored: `500 steps`, `1/2 epoch`, `end`, `never`."""
    save: str = Field(
        default="10 min",
        pattern=r"^(end|[1-9][0-9]* steps?|[1-9][0-9]*(/[1-9][0-9]*)? epochs?|[1-9][0-9]* min)$",
    )
    """How often a checkpoint is written: `500 steps`, `1/2 epoch`, `10 min`, `end`."""
    log: int = Field(default=10, ge=1)
    """Steps between two records in metrics.jsonl."""
    select: Literal["last", "best", "each"] = "last"
    """Which checkpoint becomes the model: the last one, or the best on dev (tables then say so). each: as best, and
    every task is scored with its own best weights, which are kept as best/TASK of the run."""
    select_metric: str | None = None
    """Metric for select and patience; default: the task's main one."""
    select_on: str | None = None
    """Task that decides for select and patience where there are several; default: the mean over all of them."""
    holdout: float = Field(default=0.0, ge=0, le=0.9)
    """Part of train that is held out and used for the choice instead of dev; at most 0.9."""
    patience: int | None = Field(default=None, ge=1)
    """Stop after this many evaluations without improvement; train.evaluate sets how often."""
    keep_at: list[Percent] | None = None
    """Percent of the steps at which the model is kept as RUN@25%; default: 6.25, 12.5, 25, 50 in pretraining."""
    dynamics: bool | Dynamics = False
    """Record the model's output for each training row in each epoch, for choosing data: true or train as the steps see
    it, dropout on; eval in a pass of its own after each epoch; `200 steps` in such a pass every 200 steps."""
    keep_checkpoints: bool = False
    """Keep the last checkpoints after the run is done (default: only model/ stays): with them it can be trained for
    more steps later (--allow-change)."""

    @model_validator(mode="after")
    def _evaluates(self) -> Self:
        if self.patience is not None and self.evaluate in ("end", "never"):
            raise ValueError(f"train.patience: needs earlier evaluations, but train.evaluate is `{self.evaluate}`")
        return self


class Seed(Options):
    """Separate seeds; `seed: 3` sets both."""

    init: int = Field(default=1, ge=0)
    """Weights of new layers and dropout."""
    data: int = Field(default=1, ge=0)
    """Order of the data, splits and draws."""


class Entry(Options):
    """What every entry of `tasks` may carry besides its task's own options."""

    weight: float = Field(default=1.0, gt=0)
    """Weight of the task's loss."""
    batch_size: int | None = Field(default=None, ge=1)
    """Instead of train.batch_size."""
    lr_scale: float = Field(default=1.0, gt=0)
    """Factor of the learning rate: of the task's head, and of the encoder in its steps (of several in a step the
    mean)."""
    subset: str | None = None
    """Selection (of `encodery select`) whose first rows are trained on: as many as fraction or count say."""
    fraction: float = Field(default=1.0, gt=0, le=1)
    """Part of the training set, such as 0.3 or 30%: of a subset the first rows, else random ones, the same for equal
    data seeds. Smaller parts are contained in larger ones."""
    count: int | None = Field(default=None, ge=1)
    """Number of training rows, instead of a fraction."""
    sampling: Literal["uniform", "balanced"] = "uniform"
    """uniform: every row once in an epoch. balanced: all classes equally often, rare rows repeatedly; an epoch has
    as many steps as before. With several labels a row belongs to each of its labels, or to the class without any."""
    sample_by: str | None = None
    """Selection (of `encodery select`) whose scores say how often each row is drawn: with replacement, those with a
    high score more often, with weights that keep the expected gradient."""
    sample_smoothing: float = Field(default=0.1, gt=0)
    """This share of the mean score is added to every score; no row weighs more than 1 + 1 / sample_smoothing."""
    max_length: int | None = Field(default=None, ge=4)
    """Instead of train.max_length."""
    double_unordered: bool = False
    """Train on every pair in both orders (ELECTRA on MRPC and STS-B)."""
    evaluate_on: list[str] | None = None
    """Splits scored at the end; default: all dev splits that exist."""
    teacher: str | list[str] | None = None
    """Run or model (of several the mean of their probabilities) whose answers to the training rows are learnt too;
    objective.distill says how."""
    objective: dict[str, Any] = {}
    """Options of the task's objective, such as {label_smoothing: 0.1, class_weights: balanced}."""

    @property
    def teachers(self) -> list[str]:
        return [self.teacher] if isinstance(self.teacher, str) else self.teacher or []

    @field_validator("fraction", mode="before")
    @classmethod
    def _percent(cls, given: Any) -> Any:
        """`30%` is 0.3."""
        return percent(given)


class ProbeOptions(Options):
    """A linear probe on frozen features while an encoder is pretrained."""

    tasks: list[str] = Field(min_length=1)
    """Tasks with labels, such as [glue/sst2]: a linear model is fitted on their train split and scored on dev."""
    every: int | None = Field(default=None, ge=1)
    """Steps between two probes; kept models and the last step are probed in any case."""
    train_rows: int = Field(default=2000, ge=8)
    """Most rows that a probe is fitted on."""
    max_length: int = Field(default=128, ge=4)
    """Longest sequence in tokens."""
    pairs: Literal["joined", "apart"] = "joined"
    """Pairs of texts: one sequence for both, or each text alone, with the features u, v and |u - v|."""


class Config(Options):
    """A run, whole."""

    model: ModelOptions
    """The encoder."""
    tasks: list[dict[str, Any]]
    """Entries: a task's own options (checked by its class) and those of Entry."""
    method: dict[str, Any] = {"kind": "plain"}
    """How a batch becomes a gradient; the keys depend on the kind."""
    mix: dict[str, Any] = {"kind": "shuffled"}
    """Which task comes when, where there are several; the keys depend on the kind."""
    weighting: dict[str, Any] = {"kind": "constant"}
    """How the gradients of several tasks become one; the keys depend on the kind."""
    optim: OptimOptions = OptimOptions()
    """The optimiser."""
    train: TrainOptions = TrainOptions()
    """The loop."""
    seed: Seed = Seed()
    """Randomness."""
    probe: ProbeOptions | None = None
    """Probes of the encoder during pretraining."""
    data: str | None = None
    """Folder with data sets; else ENCODERY_DATA, GLUE_DIR, the hub."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1, mps. Not part of the run's identity."""
    threads: int | None = Field(default=None, ge=1, le=1024)
    """CPU threads; default: torch's choice. Not part of the run's identity, but recorded."""

    @model_validator(mode="after")
    def _rises(self) -> Self:
        if self.train.max_steps is not None and self.optim.warmup > max(self.train.max_steps, 1):
            raise ValueError(
                f"optim.warmup: {self.optim.warmup:g} steps are more than train.max_steps, {self.train.max_steps}; the "
                "rate would never reach its peak. Below 1 it is a share of all steps"
            )
        return self
