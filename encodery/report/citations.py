"""Whom to cite: the sets, methods and ways of pretraining that have a name here."""

from collections.abc import Iterator, Mapping
from typing import Any

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
    for name in [*names, *(key.rpartition(":")[0] or key for key in scored)]:
        yield from TASKS.get(name, ())


def _of_training(config: Mapping[str, Any]) -> Iterator[str]:
    method = str(config["method"].get("kind"))
    questions = [str((entry.get("objective") or {}).get("kind")) for entry in config["tasks"]]
    yield from (METHODS[kind] for kind in [method] if kind in METHODS)
    yield from (OBJECTIVES[kind] for kind in questions if kind in OBJECTIVES)
