import pytest

from encodery import recipes
from encodery.config.load import load
from encodery.errors import UserError

pytestmark = pytest.mark.usefixtures("small_components")

GLUE = ["cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli"]
ENCODERS = [
    *("electra-small", "electra-base", "electra-large", "amos-base", "amos-base-huggingface", "bert-base"),
    *("roberta-base", "roberta-large", "albert-base-v1", "albert-base-v2", "deberta-v3-base", "modernbert-base"),
    *("minilm-l6", "minilm-l3"),
]


def settings(name):
    return load(f"recipe:{name}").config


def test_every_task_has_a_recipe_for_every_encoder():
    assert {f"glue/{task}/{encoder}" for task in GLUE for encoder in ENCODERS} <= set(recipes.names())


STUDIES = [name for name in recipes.names() if name.startswith("gradts/")]  # they have keys of their own


@pytest.mark.parametrize("name", [name for name in recipes.names() if name not in STUDIES])
def test_recipe_resolves_and_names_its_source(name):
    got = load(f"recipe:{name}")
    about = recipes.describe(name)
    assert about.source
    assert about.deviations
    assert got.notes == []
    if name.startswith("glue/"):
        assert [task.name for task, _ in got.tasks] == [name.rpartition("/")[0]]
    assert got.name == name.replace("/", "-").rstrip("+")


def test_shared_parts_are_not_listed_but_can_be_extended():
    assert not [name for name in recipes.names() if "_" in name.split("/")[1]]
    assert recipes.path("glue/_base/electra-small").is_file()


@pytest.mark.parametrize(
    "name", ["glue/rte/electra-smal", "../config", "/etc/passwd", "glue", "glue/../glue/rte/bert-base", ""]
)
def test_S4_unknown_recipe_is_refused(name):
    with pytest.raises(UserError, match="There is no recipe"):
        recipes.path(name)


# From the fine-tuning specification, section 2.
ELECTRA = {"small": (3e-4, 0.8), "base": (1e-4, 0.8), "large": (5e-5, 0.9)}


@pytest.mark.parametrize("size", ELECTRA)
@pytest.mark.parametrize("task", GLUE)
def test_electra_recipes_are_the_published_ones(size, task):
    got = settings(f"glue/{task}/electra-{size}")
    lr, decay = ELECTRA[size]
    assert got.model.name == f"google/electra-{size}-discriminator"
    assert (got.model.head, got.model.head_dropout) == ("linear", 0.1)
    optim = got.optim
    assert (optim.lr, optim.layer_decay, optim.layer_decay_compat) == (lr, decay, True)
    assert (optim.betas, optim.eps, optim.bias_correction) == ((0.9, 0.999), 1e-6, False)
    assert (optim.weight_decay, optim.clip) == (0, 1.0)
    assert (optim.schedule, optim.warmup, optim.warmup_style) == ("linear", 0.1, "simultaneous")
    assert (got.train.batch_size, got.train.max_length) == (32, 128)
    assert got.train.epochs == (10 if task in ("rte", "stsb") else 3)
    assert (got.train.loss_reduction, got.train.select) == ("mean", "last")
    assert got.tasks[0]["double_unordered"] is (task in ("mrpc", "stsb"))


# From the fine-tuning specification, section 3: batch, lr, epochs, warm-up.
AMOS = {
    "amos-base": {
        "mnli": (32, 1e-5, 3, 1 / 16),
        "qqp": (32, 2e-5, 5, 1 / 16),
        "qnli": (32, 2e-5, 3, 1 / 16),
        "sst2": (32, 1e-5, 5, 1 / 16),
        "cola": (32, 2e-5, 10, 1 / 10),
        "rte": (32, 4e-5, 5, 1 / 10),
        "mrpc": (32, 4e-5, 10, 1 / 16),
        "stsb": (16, 4e-5, 10, 1 / 16),
    },
    "amos-base-huggingface": {
        "mnli": (32, 1e-5, 2, 0.0625),
        "qqp": (32, 2e-5, 5, 0.0625),
        "qnli": (32, 1e-5, 3, 0.0625),
        "sst2": (32, 1e-5, 5, 0.0625),
        "cola": (16, 2e-5, 10, 0.1),
        "rte": (16, 2e-5, 10, 0.0625),
        "mrpc": (32, 5e-5, 5, 0.1),
        "stsb": (16, 3e-5, 5, 0.0625),
    },
}
STYLE = {
    "amos-base": ("mlp_tanh", "all", "1/2 epoch", 5.0),
    "amos-base-huggingface": ("mlp_gelu", "matrices", "1 epoch", 1.0),
}


@pytest.mark.parametrize(("recipe", "task"), [(recipe, task) for recipe, rows in AMOS.items() for task in rows])
def test_amos_recipes_are_the_published_ones(recipe, task):
    got = settings(f"glue/{task}/{recipe}")
    optim, train, model = got.optim, got.train, got.model
    assert (train.batch_size, optim.lr, train.epochs, optim.warmup) == AMOS[recipe][task]
    assert (optim.betas, optim.eps, optim.bias_correction) == ((0.9, 0.98), 1e-6, True)
    assert (optim.weight_decay, optim.clip, optim.layer_decay, optim.warmup_style) == (0.01, 0, 1, "sequential")
    assert (model.head_dropout, model.dropout, model.attention_dropout) == (0.1, 0.1, 0.1)
    assert (train.max_length, train.select, train.loss_reduction) == (512, "best", "mean")
    scale = got.tasks[0]["target_scale"] if task == "stsb" else STYLE[recipe][3]
    assert (model.head, optim.decay, train.evaluate, scale) == STYLE[recipe]
    assert "encodery import amos" in recipes.describe(f"glue/{task}/{recipe}").deviations


def test_what_comes_from_memory_says_so():
    for encoder in (
        "bert-base",
        "roberta-base",
        "roberta-large",
        "albert-base-v1",
        "deberta-v3-base",
        "modernbert-base",
    ):
        assert "from memory" in recipes.describe(f"glue/rte/{encoder}").source
    assert "remembered" in recipes.describe("glue/rte/electra-small").source


def test_recipe_can_be_extended_and_changed(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("extends: recipe:glue/stsb/electra-small\ntasks: {fraction: 0.1}\noptim: {lr: 1e-4}\n")
    got = load(path, ["train.epochs=1"])
    assert got.tasks[0][1].double_unordered
    assert got.tasks[0][1].fraction == 0.1
    assert (got.config.optim.lr, got.config.train.epochs, got.config.optim.layer_decay) == (1e-4, 1, 0.8)
    assert got.origins["optim.layer_decay"].startswith("recipe:glue/_base/electra-small:")


@pytest.mark.parametrize("name", STUDIES)
def test_studies_resolve_and_name_their_source(name, tmp_path):
    from encodery.gradts.plan import load as load_study

    plan = load_study(f"recipe:{name}", [], tmp_path)
    about = recipes.describe(name)
    assert about.source
    assert about.deviations
    assert plan.base.notes == []
    assert set(plan.primaries) <= set(plan.tasks)


def test_gradts_recipes_have_the_released_settings(tmp_path):
    from encodery.gradts.plan import load as load_study

    plan = load_study("recipe:gradts/bert-base-cased-released", [], tmp_path)
    tasks = {f"glue/{part}" for part in ("cola", "mrpc", "mnli", "qnli", "qqp", "rte", "sst2", "wnli")}
    assert set(plan.tasks) == tasks
    got, study = plan.base.config, plan.gradts
    assert (got.optim.kind, got.optim.lr, got.optim.warmup, got.optim.clip) == ("adamax", 5e-5, 0.1, 1.0)
    assert (got.train.epochs, got.train.batch_size, got.mix["per_step"], got.train.max_length) == (7, 4, 4, 512)
    assert study.finetune == {"train.epochs": 3, "train.batch_size": 4}
    assert (study.importance.estimator, study.importance.dropout) == ("kv_weight_released", True)
    assert (study.threshold, study.fg_threshold, study.rule, study.seed_list) == (0.6, 0.62, "released", [2018])
