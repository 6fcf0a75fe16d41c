"""The model card that goes out into the world: data, recipe, scores over seeds, limits, citations; nothing local.

It is written from named fields alone. What a person typed (paths, commands) and where it ran stays at home.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from encodery.core import files
from encodery.core.environment import version
from encodery.core.text import are, counted, markdown_table
from encodery.report.groups import Row
from encodery.report.run_card import (
    checkpoint_limits,
    chosen_lines,
    hub_task,
    labelled,
    pipeline,
    rows_of,
    threshold_lines,
    thresholds_of,
)
from encodery.report.stats import wilson
from encodery.runs.directory import RunDir, of_task, task_and_split
from encodery.tasks.forms.metric_table import spelled

# Whom to cite: the sets, methods and ways of pretraining that have a name here.


GLUE = "Wang et al. 2019. GLUE: A Multi-Task Benchmark and Analysis Platform for Natural Language Understanding. ICLR."
SQUAD = "Rajpurkar et al. 2016. SQuAD: 100,000+ Questions for Machine Comprehension of Text. EMNLP."
R3F = "Aghajanyan et al. 2021. Better Fine-Tuning by Reducing Representational Collapse. ICLR."

TASKS: Mapping[str, tuple[str, ...]] = {
    "glue/cola": ("Warstadt, Singh, Bowman 2019. Neural Network Acceptability Judgments. TACL 7.", GLUE),
    "glue/sst2": (
        "Socher et al. 2013. Recursive Deep Models for Semantic Compositionality Over a Sentiment Treebank. EMNLP.",
        GLUE,
    ),
    "glue/mrpc": ("Dolan, Brockett 2005. Automatically Constructing a Corpus of Sentential Paraphrases. IWP.", GLUE),
    "glue/stsb": ("Cer et al. 2017. SemEval-2017 Task 1: Semantic Textual Similarity. SemEval.", GLUE),
    "glue/qqp": ("Iyer, Dandekar, Csernai 2017. First Quora Dataset Release: Question Pairs.", GLUE),
    "glue/mnli": (
        "Williams, Nangia, Bowman 2018. A Broad-Coverage Challenge Corpus for Sentence Understanding through "
        "Inference. NAACL.",
        GLUE,
    ),
    "glue/qnli": (SQUAD, GLUE),
    "glue/rte": (
        "Dagan, Glickman, Magnini 2006; Bar-Haim et al. 2006; Giampiccolo et al. 2007; Bentivogli et al. 2009. "
        "The PASCAL Recognising Textual Entailment Challenges.",
        GLUE,
    ),
    "glue/wnli": ("Levesque, Davis, Morgenstern 2012. The Winograd Schema Challenge. KR.", GLUE),
    "glue/ax": (GLUE,),
    "squad/v1": (SQUAD,),
    "squad/v2": ("Rajpurkar, Jia, Liang 2018. Know What You Don't Know: Unanswerable Questions for SQuAD. ACL.",),
    "hans": ("McCoy, Pavlick, Linzen 2019. Right for the Wrong Reasons. ACL.",),
    "nli/snli": ("Bowman et al. 2015. A large annotated corpus for learning natural language inference. EMNLP.",),
    "nli/anli": ("Nie et al. 2020. Adversarial NLI: A New Benchmark for Natural Language Understanding. ACL.",),
    "nli/sick": ("Marelli et al. 2014. A SICK cure for the evaluation of compositional semantic models. LREC.",),
    "nli/scitail": ("Khot, Sabharwal, Clark 2018. SciTail: A Textual Entailment Dataset from Science QA. AAAI.",),
    "nli/paws": ("Zhang, Baldridge, He 2019. PAWS: Paraphrase Adversaries from Word Scrambling. NAACL.",),
}

METHODS: Mapping[str, str] = {
    "alum": "Liu et al. 2020. Adversarial Training for Large Neural Language Models. arXiv:2004.08994.",
    "awp": "Wu, Xia, Wang 2020. Adversarial Weight Perturbation Helps Robust Generalization. NeurIPS.",
    "fgm": "Miyato, Dai, Goodfellow 2017. Adversarial Training Methods for Semi-Supervised Text Classification. ICLR.",
    "fgsm": "Goodfellow, Shlens, Szegedy 2015. Explaining and Harnessing Adversarial Examples. ICLR.",
    "freeat": "Shafahi et al. 2019. Adversarial Training for Free! NeurIPS.",
    "freelb": "Zhu et al. 2020. FreeLB: Enhanced Adversarial Training for Natural Language Understanding. ICLR.",
    "importance": "Katharopoulos, Fleuret 2018. Not All Samples Are Created Equal: Deep Learning with Importance "
    "Sampling. ICML.",
    "pgd": "Madry et al. 2018. Towards Deep Learning Models Resistant to Adversarial Attacks. ICLR.",
    "r3f": R3F,
    "r4f": R3F,
    "rdrop": "Liang et al. 2021. R-Drop: Regularized Dropout for Neural Networks. NeurIPS.",
    "sam": "Foret et al. 2021. Sharpness-Aware Minimization for Efficiently Improving Generalization. ICLR.",
    "sift": "He et al. 2021. DeBERTa: Decoding-enhanced BERT with Disentangled Attention. ICLR.",
    "smart": "Jiang et al. 2020. SMART: Robust and Efficient Fine-Tuning for Pre-trained Natural Language Models "
    "through Principled Regularized Optimization. ACL.",
    "vat": "Miyato et al. 2018. Virtual Adversarial Training. TPAMI.",
    "yopo": "Zhang et al. 2019. You Only Propagate Once: Accelerating Adversarial Training via Maximal Principle. "
    "NeurIPS.",
}

OBJECTIVES: Mapping[str, str] = {
    "mlm": "Devlin et al. 2019. BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding. "
    "NAACL.",
    "electra": "Clark et al. 2020. ELECTRA: Pre-training Text Encoders as Discriminators Rather Than Generators. ICLR.",
    "amos": "Meng et al. 2022. Pretraining Text Encoders with Adversarial Mixture of Training Signal Generators. ICLR.",
}

TRANSFORMERS = "Wolf et al. 2020. Transformers: State-of-the-Art Natural Language Processing. EMNLP: Demonstrations."


def citations(config: Mapping[str, Any], scored: Mapping[str, Any]) -> list[str]:
    """What a run is built on, each once: its sets, those it was scored on, its method, its way of pretraining."""
    return list(dict.fromkeys([*_of_tasks(config, scored), *_of_training(config), TRANSFORMERS]))


def _of_tasks(config: Mapping[str, Any], scored: Mapping[str, Any]) -> Iterator[str]:
    names = [str(entry.get("name") or "") for entry in config["tasks"]]
    for name in [*names, *(task_and_split(key)[0] or key for key in scored)]:
        yield from TASKS.get(name, ())


def _of_training(config: Mapping[str, Any]) -> Iterator[str]:
    method = str(config["method"].get("kind"))
    kinds = [str((entry.get("objective") or {}).get("kind")) for entry in config["tasks"]]
    yield from (METHODS[kind] for kind in [method] if kind in METHODS)
    yield from (OBJECTIVES[kind] for kind in kinds if kind in OBJECTIVES)


SHARES = frozenset({"accuracy", "exact"})  # means of 0 and 1 over examples
RECIPE = (
    ("method", "method.kind"), ("learning rate", "optim.lr"), ("schedule", "optim.schedule"),
    ("warm-up", "optim.warmup"), ("weight decay", "optim.weight_decay"), ("layer decay", "optim.layer_decay"),
    ("clipping", "optim.clip"),
    ("batch size", "train.batch_size"), ("epochs", "train.epochs"), ("steps", "train.max_steps"),
    ("longest sequence", "train.max_length"), ("precision", "train.precision"), ("checkpoint", "train.select"),
    ("head", "model.head"), ("pooling", "model.pooling"), ("tuned", "model.tune"), ("seed", "seed.init"),
)  # fmt: skip
PACKAGES = ("torch", "transformers", "tokenizers", "encodery")


def public_card(
    run: RunDir,
    config: Mapping[str, Any],
    rows: Mapping[str, Row],
    name: str | None = None,
    license: str | None = None,
    head: str | None = None,
    folder: Path | None = None,
) -> str:
    """README.md for the hub. `config` is free of local paths; `rows` holds the seeds of this very configuration.

    `head`: the one that is published alone; the scores of others are not of these weights. `folder` is what is
    published; default: the run's model.
    """
    info, result = run.info(), run.read_scores()
    if head:
        result, rows = of_task(result, head), {key: row for key, row in rows.items() if task_and_split(key)[0] == head}
    base = config["model"].get("name") or "a new encoder"
    called = name or run.path.resolve().name
    parts = [
        front_matter(run, config, result, called, license, head),
        f"# {called}\n\n{tasks_line(run, head)} with {base}, trained by encodery {version()}.",
        section("Scores", score_lines(run, result, rows)),
        *filter(None, ["\n".join(threshold_lines(run, head)).rstrip()]),
        section("Data", data_lines(run, config)),
        section("Recipe", recipe_lines(info, config)),
        section("Use", use_lines(run, folder or run.model, name or "the-folder-of-this-page", head)),
        section("Limits", limit_lines(run, result, rows, config)),
        section("Citations", [f"- {line}" for line in citations(config, result["scores"])]),
    ]
    return "\n\n".join(parts) + "\n"


def tasks_line(run: RunDir, head: str | None) -> str:
    """The tasks that it answers; those that it only learnt from are named beside them."""
    if head is None:
        return ", ".join(run.task_names())
    others = ", ".join(name for name in run.task_names() if name != head)
    return head + (f" (learnt together with {others})" if others else "")


def section(title: str, lines: Sequence[str]) -> str:
    """A heading and what stands under it."""
    return "\n".join([f"## {title}", "", *lines])


def front_matter(
    run: RunDir,
    config: Mapping[str, Any],
    result: Mapping[str, Any],
    called: str,
    license: str | None,
    head: str | None = None,
) -> str:
    """What the hub reads: YAML between two lines of dashes."""
    tag = hub_task(run, head) if head else pipeline(run)
    about: dict[str, Any] = {"library_name": "transformers", "tags": ["encodery", tag], "pipeline_tag": tag}
    if license:
        about["license"] = license
    base = config["model"].get("name")
    if base and "/" in base:
        about["base_model"] = base
    about["model-index"] = [{"name": called, "results": list(index_entries(run, result))}]
    return "---\n" + yaml.safe_dump(about, sort_keys=False, allow_unicode=True) + "---"


def index_entries(run: RunDir, result: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The main score on each data set, as the hub wants it."""
    for key, scores in result["scores"].items():
        data, split = task_and_split(key)
        metric = result["main"][key]
        on = thresholds_of(run).get(data, {}).get("chosen_on")
        marks = labelled(run, key).removeprefix(key) + (f" (threshold chosen on {on})" if on == split else "")
        dataset = {"name": data + marks, "type": data, "split": split}
        if metric in scores:
            yield {
                "task": {"type": hub_task(run, data)},
                "dataset": dataset,
                "metrics": [{"type": metric, "value": scores[metric]}],
            }


# Scores


def score_lines(run: RunDir, result: Mapping[str, Any], rows: Mapping[str, Row]) -> list[str]:
    """A line for each metric; seeds and the choice of rows stand beside the main one."""
    header = ["data", "metric", "this model", "95 % over examples", "all seeds: mean ± sd (n)", "without a model"]
    lines = []
    for key, scores in result["scores"].items():
        task, split = task_and_split(key)
        rows_of_split = run.rows_of(task, split).get("rows")
        for metric, value in scores.items():
            easy = result["majority"].get(key, {}).get(metric)
            seeds = spread(rows[key]) if key in rows and rows[key].metric == metric else ""
            interval = wilson_text(metric, value, rows_of_split)
            lines.append([labelled(run, key), metric, f"{value:.4f}", interval, seeds, number(easy)])
    note = ["", "`without a model`: what the commonest answer of the training set gives."]
    return [markdown_table(header, lines), *note, *(f"\n**Alarm:** {sentence}" for sentence in result["alarms"])]


def spread(row: Row) -> str:
    """`0.8123 ± 0.0045 (5)`; one seed has no spread."""
    found = row.summary
    if found.mean is None or found.sd is None:
        return "one seed only"
    return f"{found.mean:.4f} ± {found.sd:.4f} ({found.n})"


def number(value: float | None) -> str:
    """Four digits, or nothing."""
    return "" if value is None else f"{value:.4f}"


def wilson_text(metric: str, value: float, rows: int | None) -> str:
    """The interval of a share of `rows` examples."""
    if spelled(metric) not in SHARES or not rows:
        return ""
    low, high = wilson(value, rows)
    return f"{low:.4f} to {high:.4f}"


# Data, recipe, use


def data_lines(run: RunDir, config: Mapping[str, Any]) -> list[str]:
    """Each split of each task: rows, where from, what a reader must know."""
    info, lines = run.info(), []
    every = info.get("data_of") or {run.task_names()[0]: info["data"]}
    for task, splits in every.items():
        lines += [f"- {task}:{split}: {origin_words(origin)}" for split, origin in splits.items()]
    return lines + chosen_lines(config)


def origin_words(origin: Mapping[str, Any]) -> str:
    """Rows, where from, what a reader must know, and a digest of the content."""
    where = {"folder": "files on disk", "hub": "the hub", "toy": "encodery's own grammar"}
    words = [f"{rows_of(origin)} from {where.get(origin['source'], origin['source'])}"]
    words += [f"revision {origin['revision']}"] if origin.get("revision") else []
    words += [str(origin[part]) for part in ("part", "note") if origin.get(part)]
    return "; ".join([*words, f"content {str(origin['digest'])[:16]}"])


def recipe_lines(info: Mapping[str, Any], config: Mapping[str, Any]) -> list[str]:
    """The settings that people ask for first; the file has all."""
    rows = []
    for label, key in RECIPE:
        section_, _, name = key.partition(".")
        value = config[section_].get(name) if isinstance(config.get(section_), Mapping) else None
        if label == "pooling":  # what auto meant; nothing where no head reads one vector
            value = ", ".join(sorted(set(info.get("pooling", {}).values()))) or None
        rows += [[label, value]] if value is not None else []
    versions = info.get("environment", {}).get("packages", {})
    made = ", ".join(f"{name} {versions[name]}" for name in PACKAGES if name in versions)
    again = "`config.yaml` has every setting; `encodery train config.yaml` trains it again."
    if changed := [one for one in info.get("changes", []) if one["step"] > 0]:
        told = "; ".join(f"after step {one['step']:,}: {one['text']}" for one in changed)
        again = f"**The settings changed while it was trained** ({told}): `config.yaml` has the last ones alone."
    table = markdown_table(["setting", "value"], rows)
    return [table, "", again + (f" Made with {made}." if made else "") + f" Identity {info['identity'][:16]}."]


def use_lines(run: RunDir, folder: Path, name: str, head: str | None = None) -> list[str]:
    """How to open it."""
    if pipeline(run) == "fill-mask":
        return [
            "```python",
            "from transformers import AutoModel",
            f"encoder = AutoModel.from_pretrained({name!r})",
            "```",
        ]
    which = f", head={run.task_names()[0]!r}" if len(run.task_names()) > 1 and not head else ""
    lines = ["```python", "import encodery as en", "", f"model = en.load({name!r}{which})"]
    return [*lines, "```", "", *auto_lines(folder)]


def auto_lines(folder: Path) -> list[str]:
    """What transformers opens of a model folder."""
    after = ", after `import encodery`" if needs_import(folder) else ""
    if not (beside := len(list((folder / "heads").glob("*.safetensors")))):
        return [f"The folder is a transformers folder: its Auto classes open it too{after}.{answers_line(folder)}"]
    lost = "AutoModelForSequenceClassification and the like would put a new, random head on it."
    return [f"With transformers{after}: {heads_beside(beside)}. {lost}"]


def answers_line(folder: Path) -> str:
    """How a number that transformers gives becomes the answer, where it was learnt on another scale."""
    card = folder / "encodery.json"
    tasks = files.read_json(card)["tasks"].values() if card.is_file() else ()
    learnt = [(about.get("scale", 1.0), about.get("shift", 0.0)) for about in tasks]
    if len(learnt) != 1 or learnt[0] == (1.0, 0.0):
        return ""
    return (
        f" They give a logit; the answer is {learnt[0][0]:.6g} · logit + {learnt[0][1]:.6g}, which `en.load` computes."
    )


def heads_beside(heads: int = 1) -> str:
    """Where the heads of a folder are that no class of transformers can hold with the encoder."""
    several = "the heads are in heads/, because a class of transformers has one only"
    one = "the head is in heads/, because transformers has no class for it"
    return f"AutoModel opens the encoder in it; {several if heads > 1 else one}"


def needs_import(folder: Path) -> bool:
    """Whether `import encodery` must come first, since the class of a folder is encodery's own."""
    kind = str(files.read_json(folder / "config.json").get("model_type", ""))
    return kind == "amos" or kind.startswith("encodery-")


# Limits


def limit_lines(
    run: RunDir, result: Mapping[str, Any], rows: Mapping[str, Row], config: Mapping[str, Any]
) -> list[str]:
    """What the numbers do not say."""
    info = run.info()
    lines = [line for key, row in rows.items() for line in seed_limits(info, key, row)]
    lines += threshold_limits(run, rows)
    lines += [f"{sentence}: its scores are optimistic." for sentence in checkpoint_limits(run, result)]
    if any(name.startswith("toy/") for name in run.task_names()):
        lines.append("Toy data from a grammar: do not quote these scores.")
    if config["model"].get("name"):
        lines.append("Whether the texts were in the pretraining data of the encoder was not checked.")
    if ".py:" in str(config["method"]) + str(config["tasks"]):
        lines.append("Trained with custom components, whose code is not part of this folder.")
    lines.append("Nothing was measured on other texts, languages or groups of people than the data above.")
    return [f"- {line}" for line in dict.fromkeys(lines)]


def seed_limits(info: Mapping[str, Any], key: str, row: Row) -> Iterator[str]:
    """One seed, failed seeds, and a seed that was picked because it was the best."""
    summary = row.summary
    if summary.n < 2:
        yield "One seed: on small sets other seeds differ by several points."
        return
    mine = row.values.get(seed_of(info))
    if mine is not None and mine == summary.best and summary.mean != mine:
        yield f"{key}: this is the best of {summary.n} seeds on these very rows; expect the mean instead."
    if row.failed:
        yield f"{counted(len(row.failed), 'more seed')} failed and {are(len(row.failed))} not in the means."


def threshold_limits(run: RunDir, rows: Mapping[str, Row]) -> Iterator[str]:
    """Scores, and their mean over seeds, on the rows that thresholds were chosen on."""
    found = thresholds_of(run)
    for key, row in rows.items():
        task, split = task_and_split(key)
        if found.get(task, {}).get("chosen_on") == split:
            every = (
                f", and so is the mean: each of the {row.summary.n} seeds chose its own" if row.summary.n > 1 else ""
            )
            yield f"{key}: the threshold was chosen on these very rows: the score is optimistic{every}."


def seed_of(info: Mapping[str, Any]) -> int | str:
    """As tables write it: one number, or `1/2` where init and data differ."""
    seed = info["seed"]
    if not isinstance(seed, Mapping):
        return int(seed)
    return int(seed["init"]) if seed["init"] == seed["data"] else f"{seed['init']}/{seed['data']}"
