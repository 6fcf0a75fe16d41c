import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from encodery.config import load as config_load
from encodery.config.load import differences, dump, find, keep_code, load, loads
from encodery.config.schema import _COUNTS
from encodery.errors import UserError
from encodery.runs.identity import identity_of_config as identity

pytestmark = pytest.mark.usefixtures("small_components")

BASE = {"model": "bert", "tasks": "fake/rte"}


@pytest.fixture
def write(tmp_path):
    def file(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return file


def refusal(source, overrides=(), **more) -> str:
    with pytest.raises(UserError) as error:
        load(source, overrides, **more)
    assert error.value.exit_code == 2
    return str(error.value)


# --- W1-W7 ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["2e-5", "1E5", ".5", "1", "+1.5e+3"])
def test_W1_numbers_of_yaml_1_2_are_floats(write, text):
    assert load(write("c.yaml", f"model: bert\ntasks: fake/rte\noptim: {{lr: {text}}}")).config.optim.lr == float(text)
    assert load(BASE, [f"optim.lr={text}"]).config.optim.lr == float(text)


@pytest.mark.parametrize("text", ["1_000", "no", "on", "1:30", "1e", "0x"])
def test_W1_other_words_stay_text_and_are_type_errors(write, text):
    path = write("c.yaml", f"model: bert\ntasks: fake/rte\noptim: {{lr: {text}, bias_correction: {text}}}")
    message = refusal(path)
    assert "c.yaml:3: optim.lr: expected a number" in message
    assert "optim.bias_correction: expected a boolean (true or false)" in message
    assert load(BASE, [f"model.revision={text}"]).config.model.revision == text


def test_W1_null_is_none():
    assert load(BASE, ["method=freelb", "method.max_norm=null"]).method.max_norm is None


def test_W2_unknown_key_names_place_and_nearest(write, tmp_path):
    path = write("c.yaml", "model: bert\ntasks: fake/rte\nmethod: {kind: freelb}\noptim:\n  lt: 1\n")
    before = sorted(tmp_path.iterdir())
    message = refusal(path, ["method.adv_1r=1", "lr=3", "tasks.fractoin=1", "tasks.hart=true", "zzz=1"])
    assert "c.yaml:5: optim.lt: unknown key; did you mean lr?" in message
    assert "command line: method.adv_1r: unknown key of method freelb; did you mean adv_lr?" in message
    assert "command line: lr: unknown key; did you mean optim.lr?" in message
    assert "tasks.fractoin: unknown key of task fake/rte; did you mean fraction?" in message
    assert "tasks.hart: unknown key of task fake/rte; did you mean hard?" in message
    assert "zzz: unknown key; there are: model, tasks, method" in message
    assert sorted(tmp_path.iterdir()) == before


def test_W3_types_are_strict():
    assert load(BASE, ["optim.lr=1"]).config.optim.lr == 1.0
    assert isinstance(load(BASE, ["optim.lr=1"]).config.optim.lr, float)
    assert load(BASE, ["optim.betas=[0, 0.99]"]).config.optim.betas == (0.0, 0.99)
    assert load(BASE, ["train.compile=true"]).config.train.compile is True
    for wrong in [
        "optim.lr=abc",
        "train.compile=1",
        "train.compile=yes",
        "train.batch_size=1.5",
        "train.batch_size=true",
    ]:
        assert wrong.partition("=")[0] + ": expected" in refusal(BASE, [wrong])
    assert "'stableadamw' or 'muon', not \"sgd\"" in refusal(BASE, ["optim.kind=sgd"])
    assert "optim.lr: expected a number greater than 0, not -1" in refusal(BASE, ["--optim.lr", "-1"])
    assert "expected a finite number" in refusal(BASE, ["optim.lr=.inf"])
    assert "model.lora.target" in refusal(BASE, ["model.lora.target=1"])


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("data", "a=b c=d", "a=b c=d"),
        ("data", "--x y", "--x y"),
        ("data", "-1 is text", "-1 is text"),
        ("data", "# not a comment", "# not a comment"),
        ("data", "'5'", "5"),
        ("data", "a: b", "a: b"),
        ("model.new.config", "{a: -1, b: [x, 2e-5]}", {"a": -1, "b": ["x", 2e-5]}),
        ("tasks.evaluate_on", "[dev, test]", ["dev", "test"]),
    ],
)
def test_W4_three_styles_are_equal(key, text, value):
    source = {"model": {"new": {}}, "tasks": "fake/rte"}
    styles = [[f"--{key}={text}"], [f"{key}={text}"]] + ([] if text.startswith("--") else [[f"--{key}", text]])
    all_of_them = [load(source, words) for words in styles]
    assert all(one == all_of_them[0] for one in all_of_them)
    dotted = key.replace("tasks.", "tasks.0.")
    plain = all_of_them[0].config.to_dict()
    assert (config_load.flat(plain).get(dotted) or plain["model"]["new"]["config"]) == value


def test_W4_negative_numbers_survive():
    for words in (["--model.new.config.x", "-1.5"], ["--model.new.config.x=-1.5"], ["model.new.config.x=-1.5"]):
        assert load({"model": {"new": {}}, "tasks": "fake/rte"}, words).config.model.new.config == {"x": -1.5}


@pytest.mark.parametrize("words", [["x"], ["--optim.lr"], ["--optim.lr", "--train.epochs", "1"], ["-x=1"], ["a..b=1"]])
def test_W4_what_is_no_override_is_refused(words):
    assert "write --key value, --key=value or key=value" in refusal(BASE, words)


@pytest.mark.slow
@settings(deadline=None, max_examples=50)
@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cs"])))
def test_W4_any_text_arrives_equally_in_all_styles(text):
    def outcome(words):
        try:
            return load(BASE, words).config.data
        except UserError as error:
            return str(error)

    one, two = outcome([f"data={text}"]), outcome([f"--data={text}"])
    assert one == two
    if not text.startswith("--"):
        assert outcome(["--data", text]) == one


def test_W5_precedence_and_lists_replace(write):
    write("low.yaml", "model: {name: low, head: linear}\ntasks: [fake/rte, fake/mnli]\noptim: {lr: 1, betas: [.1, .2]}")
    write("mid.yaml", "optim: {lr: 2, eps: 2}\nmodel: mid")
    path = write("top.yaml", "extends: [low.yaml, mid.yaml]\noptim: {eps: 3, betas: [.3, .4]}\ntasks: fake/mrpc")
    got = load(path, ["optim.eps=4", "optim.eps=5"])
    assert (got.config.model.name, got.config.model.head) == ("mid", "linear")
    assert (got.config.optim.lr, got.config.optim.eps, got.config.optim.betas) == (2, 5, (0.3, 0.4))
    assert [task.name for task, _ in got.tasks] == ["fake/mrpc"]
    assert got.origins["model.name"].endswith("mid.yaml:2")
    assert got.origins["model.head"].endswith("low.yaml:1")
    assert got.origins["optim.eps"] == "command line"
    assert got.origins["optim.betas"].endswith("top.yaml:2")
    assert got.origins["optim.kind"] == "default"
    assert got.origins["tasks.0.name"].endswith("top.yaml:3")


def test_W6_code_in_a_value_is_data(tmp_path):
    text = f"__import__('os').system('touch {tmp_path}/x')"
    assert load(BASE, [f"data={text}"]).config.data == text
    assert not list(tmp_path.iterdir())


def test_W7_dump_loads_back():
    got = load(BASE, ["method=freelb", "optim.lr=3e-05", "data=2e-5 ", "data='2e-5'", "tasks.hard=true", "seed=7"])
    assert got.config.data == "2e-5"
    again = loads(dump(got))
    assert again == got
    assert dump(again) == dump(got)


WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=30)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.slow(0.5)
@settings(deadline=None, max_examples=30)
@given(
    extra=st.dictionaries(WORDS.filter(lambda key: key not in _COUNTS and "dropout" not in key), PLAIN, max_size=4),
    data=WORDS,
    lr=st.floats(1e-9, 1e9),
    columns=st.lists(WORDS, max_size=3),
    betas=st.tuples(st.floats(0, 1, exclude_max=True), st.floats(0, 1, exclude_max=True)),
)
def test_W7_load_undoes_dump(extra, data, lr, columns, betas):
    source = {
        "model": {"new": {"config": extra}},
        "tasks": [{"kind": "whole", "columns": columns}],
        "optim": {"lr": lr, "betas": betas},
        "data": data,
    }
    got = load(source)
    assert loads(dump(got)) == got
    assert identity(loads(dump(got)), {}) == identity(got, {})


def test_W7_identity_ignores_form_and_place(write):
    one = load(write("a.yaml", "model: bert\ntasks: fake/rte\noptim: {lr: 0.1, warmup: 1}\n"))
    two = load(
        write(
            "b.yaml",
            "# why\noptim: {warmup: 1.0, lr: 1e-1}\ntasks: [{name: fake/rte, fraction: 1}]\nmodel: {name: bert}\n",
        )
    )
    assert identity(one, {}) == identity(two, {})
    assert len(identity(one, {})) == 64
    moved = [
        "data=elsewhere",
        "device=cuda",
        "threads=3",
        "train.log=1",
        "train.save=end",
        "train.keep_checkpoints=true",
    ]
    assert identity(load(BASE, ["tasks.data=x", *moved]), {}) == identity(load(BASE), {})


@pytest.mark.parametrize(
    "change",
    ["seed=2", "seed.data=2", "optim.lr=3e-5", "method=freelb", "tasks.fraction=.5", "tasks.hard=true", "model=b"],
)
def test_W7_identity_sees_every_effective_change(change):
    assert identity(load(BASE, [change]), {}) != identity(load(BASE), {})


def test_W7_identity_takes_paths_by_content():
    a, b = load(BASE, ["model=/a/model"]), load(BASE, ["model=/b/model"])
    assert identity(a, {}) != identity(b, {})
    assert identity(a, {"model.name": "d1"}) == identity(b, {"model.name": "d1"}) != identity(b, {"model.name": "d2"})
    assert identity(a, {"tasks.0.data": "d1"}) != identity(a, {"tasks.0.data": "d2"})


def test_W7_own_files_count_by_content_not_by_name():
    def one(**keys):
        return load({"model": "m", "tasks": [{"kind": "table", **keys}]})

    a, b = one(train="a.csv"), one(train="copy/b.csv", root="/elsewhere")
    assert identity(a, {}) != identity(b, {})
    assert identity(a, {"tasks.0.data": "d"}) == identity(b, {"tasks.0.data": "d"})
    assert identity(a, {"tasks.0.data": "d"}) != identity(one(train="a.csv", text="t"), {"tasks.0.data": "d"})


# --- layers -----------------------------------------------------------------------------------------------------------


def test_short_forms():
    got = load(
        {"model": "m", "tasks": ["fake/rte", {"name": "fake/mnli", "weight": 2}], "method": "smart-reg", "seed": 3}
    )
    assert got.config.model.name == "m"
    assert [(t.name, e.weight) for t, e in got.tasks] == [("fake/rte", 1), ("fake/mnli", 2)]
    assert type(got.method).__name__ == "Smart"
    assert (got.config.seed.init, got.config.seed.data) == (3, 3)
    assert got.origins["seed.init"] == "given"
    assert got.name == "fake-rte-and-1-more-m"


def test_dotted_key_after_a_short_form_merges():
    got = load(None, ["--model", "m", "--model.head", "linear", "--tasks", "whole", "--seed=2", "seed.data=5"])
    assert (got.config.model.name, got.config.model.head) == ("m", "linear")
    assert (got.config.seed.init, got.config.seed.data) == (2, 5)
    assert got.name == "whole-m"
    assert got.origins["model.head"] == "command line"


def test_keys_below_tasks_go_to_the_one_entry():
    got = load(BASE, ["tasks.fraction=0.1", "tasks.hard=true", "tasks.objective.label_smoothing=0.1"])
    ((task, entry),) = got.tasks
    assert (task.hard, entry.fraction, entry.objective) == (True, 0.1, {"label_smoothing": 0.1})
    assert got.origins["tasks.0.fraction"] == "command line"
    assert got.origins["tasks.0.name"] == "given"
    wrong = refusal(BASE, ["tasks.objective={label_smothing: 0.1, label_smoothing: x}"])
    assert "tasks.objective.label_smothing: unknown key of objective of fake/rte; did you mean label_smoothing" in wrong
    assert "tasks.objective.label_smoothing: expected a number" in wrong
    quoted = refusal({**BASE, "optim": {"eps": "1e-6"}})
    assert 'optim.eps: expected a number, not "1e-6", which is text in quotes (PyYAML reads 1e-6 so' in quoted
    assert '"8", which is text in quotes.' in refusal({**BASE, "train": {"batch_size": "8"}})
    both = {"model": "m", "tasks": ["fake/rte", "fake/mnli"]}
    assert "tasks.fraction needs exactly one task" in refusal(both, ["tasks.fraction=0.1"])


def test_tasks_get_the_data_folder_and_the_folder_of_their_config(write, tmp_path):
    write("low/low.yaml", "model: m\ntasks: {kind: whole}\ndata: here")
    got = load(write("top.yaml", "extends: low/low.yaml"))
    assert (got.tasks[0][0].data, got.config.tasks[0]["data"]) == ("here", None)
    assert got.tasks[0][0].root == str((tmp_path / "low").resolve())
    assert loads(dump(got)) == got
    assert load(write("top.yaml", "extends: low/low.yaml"), ["tasks.data=there"]).tasks[0][0].data == "there"


def test_changed_kind_drops_the_old_keys_with_a_note(write):
    write("low.yaml", "model: m\ntasks: [{name: fake/rte, hard: true, fraction: .5}]\nmethod: {kind: freelb, steps: 4}")
    got = load(write("top.yaml", "extends: low.yaml"), ["method=smart_reg", "tasks.kind=whole"])
    assert type(got.method).__name__ == "Smart"
    assert got.notes == ["method changed its kind: dropped steps.", "tasks changed its kind: dropped hard."]
    assert got.tasks[0][1].fraction == 0.5
    same = load(write("top.yaml", "extends: low.yaml"), ["method.kind=freelb", "method.adv_lr=.2"])
    assert (same.method.steps, same.notes) == (4, [])


def test_a_key_that_is_set_anew_is_not_called_dropped():
    got = load("recipe:pretrain/mlm-nano", ["tasks.name=corpus", "tasks.files=a.txt", "tasks.held_out=0.05"])
    assert got.config.tasks[0]["held_out"] == 0.05
    assert got.notes == []
    recipe = ["--model", "owner/x", "--model.tokenizer", "t"]
    assert load("recipe:pretrain/electra-small", recipe).notes == []


def test_name_and_new_replace_each_other():
    got = load({"model": {"new": {"size": "mini"}}, "tasks": "fake/rte"}, ["model=bert"])
    assert (got.config.model.name, got.config.model.new) == ("bert", None)
    back = load(BASE, ["model.new.size=mini"])
    assert (back.config.model.name, back.config.model.new.size) == (None, "mini")
    assert load(BASE, ["optim.kind=adamax", "optim.lr=1"]).config.optim.lr == 1


def test_P41_a_model_over_a_recipe_for_a_new_one_brings_its_own_tokenizer():
    recipe, over = "recipe:pretrain/electra-small", ["--model", "owner/x"]
    got = load(recipe, over)
    assert (got.config.model.name, got.config.model.new, got.config.model.tokenizer) == ("owner/x", None, None)
    assert got.notes == ["model changed its kind: dropped tokenizer."]
    for words in ([*over, "--model.tokenizer", "t"], ["--model.tokenizer", "t", *over]):  # named by the same hand
        assert load(recipe, words).config.model.tokenizer == "t"
    assert load(recipe).config.model.tokenizer == "google/electra-small-discriminator"


@pytest.mark.parametrize(
    ("recipe", "words", "message"),
    [
        (
            "mlm-nano",
            ["--model.new.size", "small"],
            r"model\.new\.size: recipe:pretrain/_nano:\d+ sets hidden_size, .*tiny",
        ),
        (
            "mlm-nano",
            ["--model.new.kind", "bert"],
            r"model\.new\.kind: .* relative_initializer_range by number, for amos",
        ),
        ("modernbert-base", ["--model.new.kind", "bert"], "sets max_position_embeddings by number, for modernbert"),
    ],
)
def test_P41_a_size_or_kind_that_numbers_would_overrule_is_refused(recipe, words, message):
    with pytest.raises(UserError, match=message):
        load(f"recipe:pretrain/{recipe}", words)


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        ("mlm-nano", ["--model.new.size", "tiny"]),  # what it is already
        ("modernbert-base", ["--model.new.size", "small"]),  # its number is none of a size
        ("electra-small", ["--model.new.size", "tiny", "--model.new.config.num_hidden_layers", "3"]),
        ("electra-small", ["--model.new.config.num_hidden_layers", "3", "--model.new.size", "tiny"]),
    ],
)
def test_P41_a_size_that_counts_is_taken(recipe, words):
    new = load(f"recipe:pretrain/{recipe}", words).config.model.new
    assert new is not None
    assert new.size == words[words.index("--model.new.size") + 1]


def test_extends_in_circles_is_refused(write):
    write("a.yaml", "extends: b.yaml")
    assert "extends itself: b.yaml -> a.yaml -> b.yaml" in refusal(write("b.yaml", "extends: a.yaml"))
    assert "there is no such config file" in refusal(write("c.yaml", "extends: nowhere.yaml"))
    assert "extends: expected a file" in refusal(write("c.yaml", "extends: {a: 1}"))
    assert "There is no recipe 'glue/nope'" in refusal(write("c.yaml", "extends: recipe:glue/nope"))


def test_paths_in_extends_are_relative_to_their_file(write):
    write("deep/base.yaml", "model: m\nextends: more/tasks.yaml")
    write("deep/more/tasks.yaml", "tasks: fake/rte")
    assert load(write("top.yaml", "extends: deep/base.yaml")).tasks[0][0].name == "fake/rte"


def test_all_errors_at_once(write):
    path = write(
        "bad.yaml",
        "model: {tokenizer: x}\ntasks:\n  - name: fake/xyz\n  - {name: nope}\n  - {fraction: 2}\n  - 5\nmethod: fleeb",
    )
    message = refusal(path)
    assert "bad.yaml:1: model: give a name" in message
    assert (
        "bad.yaml:3: tasks.0.name: fake/xyz: the part after '/' is wrong: expected 'rte', 'mnli' or 'mrpc'" in message
    )
    assert "bad.yaml:4: tasks.1.name: there is no 'nope' in tasks" in message
    assert "bad.yaml:5: tasks.2.fraction: expected a number less than or equal to 1, not 2" in message
    assert "tasks.2: a task needs a name" in message
    assert "bad.yaml:6: tasks.3: expected a mapping" in message
    assert "bad.yaml:7: method.kind: there is no 'fleeb' in methods. Did you mean 'freelb'?" in message
    assert "model: give a name" in refusal({"model": {"tokenizer": "words"}, "tasks": "fake/rte"})
    assert "tasks: is required" in refusal({"model": "m"})
    assert "tasks: expected at least one" in refusal({"model": "m", "tasks": []})
    assert "whole has no parts" in refusal({"model": "m", "tasks": "whole/x"})
    assert "tasks.part: is required" in refusal({"model": "m", "tasks": "fake"})
    named = refusal({"model": "m", "tasks": {"name": "mine.csv"}})
    assert "tasks.name: mine.csv is a file: write `file: mine.csv`." in named
    assert "expected" in refusal({"model": 3, "tasks": {"name": "fake/rte"}, "method": [1], "seed": True})


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("train.dynamics=sometimes", "train.dynamics: expected another form (Record the logits of every training row"),
        ("train.evaluate=often", "(How often to evaluate on dev: `500 steps`, `1/2 epoch`, `end`, `never`.)"),
        ("train.batch_size=3.5", "train.batch_size: expected an integer"),
        ("train.keep_at=25", "train.keep_at: expected a list, not 25"),
        ("tasks.evaluate_on=dev", "evaluate_on: expected a list, such as [dev]"),
        ("probe.tasks=glue/sst2", "probe.tasks: expected a list, such as [glue/sst2]"),
        ("probe.tasks=[]", "probe.tasks: expected at least 1 entry, not 0."),
        ("mix.kind=explicit mix.shares={}", "mix.shares: expected at least 1 entry, not 0."),
    ],
)
def test_what_is_expected_is_said_as_people_say_it(words, said):
    with pytest.raises(UserError) as error:
        load({"model": "x", "tasks": "toy/nli"}, words.split())
    assert said in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def test_not_a_config(write):
    assert "a config is a mapping" in refusal(write("c.yaml", "- a"))
    assert "tasks: is required" in refusal(write("c.yaml", ""))
    assert "not a Path" not in refusal({"data": object(), "model": "m", "tasks": "fake/rte"})


def test_differences():
    a, b = load(BASE).config.to_dict(), load(BASE, ["optim.lr=1", "tasks.fraction=.5"]).config.to_dict()
    assert differences(a, b) == [("tasks.0.fraction", 1.0, 0.5), ("optim.lr", 2e-5, 1.0)]
    assert differences(a, a) == []


# --- find and own code ------------------------------------------------------------------------------------------------

OWN = """
from encodery.core.options import Options

class Mine(Options):
    '''Mine.'''
    strength: float = 1.0
"""


def test_find_lists_the_room_on_a_miss():
    assert find("methods", "smart-reg").__name__ == "Smart"
    with pytest.raises(
        UserError, match=r"there is no 'freelbb' in methods. Did you mean 'freelb'\? There are: .*plain"
    ):
        find("methods", "freelbb")
    assert "base" not in config_load.names("tasks")


def test_own_file_is_relative_to_the_config_that_names_it(write, tmp_path):
    write("lib/mine.py", OWN)
    write("lib/base.yaml", "method: {kind: 'mine.py:Mine', strength: 2}")
    got = load(write("top.yaml", "extends: lib/base.yaml\nmodel: m\ntasks: fake/rte"))
    assert got.method.strength == 2
    assert got.config.method == {"kind": "mine.py:Mine", "strength": 2.0}
    assert got.code["mine.py"][0] == (tmp_path / "lib/mine.py").resolve()
    with_other_code = write("lib/mine.py", OWN + "\n# changed").parent.parent / "top.yaml"
    assert identity(load(with_other_code), {}) != identity(got, {})


def test_own_file_errors_are_sentences(write):
    text = "model: m\ntasks: fake/rte\nmethod: {}"
    path = write("c.yaml", text.format("{kind: 'mine.py:Mine'}"))
    assert "c.yaml:3: method.kind: there is no file" in refusal(path)
    write("mine.py", OWN)
    assert "has no class Other" in refusal(path, ["method.kind=" + str(path.parent / "mine.py") + ":Other"])
    write("mine.py", "x = 1\nraise ValueError('oh')")
    assert "mine.py:2: ValueError: oh" in refusal(path)
    write("mine.py", "x = (")
    assert "mine.py:1: SyntaxError" in refusal(path)


def test_code_of_a_run_directory_needs_permission_and_its_hash(write, tmp_path):
    write("mine.py", OWN)
    got = load(write("c.yaml", "model: m\ntasks: fake/rte\nmethod: mine.py:Mine"))
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.yaml").write_text(dump(got))
    (run / "run.json").write_text("{}")
    keep_code(got, run)
    assert "--allow-code" in refusal(run)
    assert "--allow-code" in refusal(run / "config.yaml")
    assert identity(load(run, allow_code=True), {}) == identity(got, {})
    (run / "mine.py").write_text(OWN)
    (run / "run.json").unlink()
    assert "--allow-code" in refusal(run)
    copy = next((run / "code").glob("*.py"))
    copy.write_text(OWN + "\nimport os")
    assert "is not the file that the run was made with" in refusal(run, allow_code=True)
    copy.unlink()
    assert "is missing" in refusal(run, allow_code=True)
    (run / "code/files.json").write_text(json.dumps({"mine.py": ["../../mine.py", "x"]}))
    assert "points outside" in refusal(run, allow_code=True)


# --- S6 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["token", "hf_token", "optim.api_key", "model.new.config.password", "tasks.secret"])
def test_S6_secrets_are_refused_and_not_shown(key):
    message = refusal({"model": {"new": {}}, "tasks": "fake/rte"}, [f"{key}=verysecretvalue"])
    assert "verysecretvalue" not in message
    assert key.rpartition(".")[2] in message


def test_S6_token_as_a_value_is_refused():
    for word in ["data=hf_AbCdEfGhIjKlMnOp", "optim.lr=hf_AbCdEfGhIjKlMnOp", "model=https://x:ghp_1234567890ab@host"]:
        message = refusal(BASE, [word])
        assert "looks like a secret" in message
        assert "AbCdEfGh" not in message
        assert "1234567890ab" not in message
    assert load(BASE, ["model.tokenizer=toy", "train.token_budget=64"]).config.train.token_budget == 64


def test_not_finite_numbers_in_python_are_refused():
    assert "finite" in refusal({**BASE, "optim": {"lr": math.nan}})


def test_an_override_of_a_task_does_not_move_the_files_that_the_config_names(tmp_path, monkeypatch):
    """Paths start where they are written: those of a file in its folder, those of the command line where it runs."""
    home, here = tmp_path / "home", tmp_path / "here"
    home.mkdir(), here.mkdir()
    for path in (home / "a.csv", here / "b.csv"):
        path.write_text("text,label\n" + "".join(f"t{i},{'xy'[i % 2]}\n" for i in range(20)))
    (home / "a.yaml").write_text("model: m\ntasks: {kind: table, train: a.csv}\n")
    monkeypatch.chdir(here)
    task = load(home / "a.yaml", ["tasks.skip_bad_rows=true", "tasks.dev=b.csv"]).tasks[0][0]
    assert task.skip_bad_rows
    assert len(task.examples("train")) == len(task.examples("dev")) == 20


def test_a_key_of_another_method_says_which_methods_have_it():
    with pytest.raises(UserError, match=r"method\.epsilon: unknown key of method freelb; fgm, .*and vat have it\.$"):
        load(None, ["tasks=toy/nli", "method=freelb", "method.epsilon=1"])
    with pytest.raises(UserError, match=r"unknown key of method plain; .*freelb, .* have it: add --method freelb\.$"):
        load(None, ["tasks=toy/nli", "method.adv_lr=0.1"])


def test_a_floor_of_a_rate_that_does_not_decay_is_refused():
    """It was ignored without a word, and the run's config said otherwise."""
    message = refusal(BASE, ["optim.schedule=constant", "optim.floor=0.1"])
    assert "optim.floor: 0.1 has no effect with optim.schedule `constant`" in message
    assert "leave it out, or choose linear, cosine or wsd" in message
    assert load(BASE, ["optim.schedule=constant", "optim.floor=0"]).config.optim.floor == 0
    assert load(BASE, ["optim.schedule=wsd", "optim.floor=0.1"]).notes == []


def test_a_fraction_beside_a_count_is_noted():
    """No error: a recipe's fraction stays where a count is added on the command line."""
    assert load(BASE, ["tasks.fraction=0.5", "tasks.count=10"]).notes == [
        "tasks.fraction: 0.5 has no effect beside tasks.count: 10"
    ]
    assert load(BASE, ["tasks.fraction=0.5"]).notes == load(BASE, ["tasks.count=10"]).notes == []


def test_a_setting_of_wsd_alone_is_noted_where_the_schedule_has_no_use_for_it():
    """No error: a sweep over schedules sets it for all of its runs."""
    got = load({**BASE, "optim": {"schedule": "wsd", "decay_share": 0.2}}, ["optim.schedule=cosine"])
    assert got.notes == ["optim.decay_share: 0.2 has no effect with optim.schedule `cosine`; it belongs to wsd."]
    assert "optim.decay_shape: sqrt" in "".join(load(BASE, ["optim.decay_shape=sqrt"]).notes)
    assert load(BASE, ["optim.schedule=wsd", "optim.decay_shape=sqrt", "optim.decay_share=0.2"]).notes == []
    assert loads(dump(load(BASE))).notes == []
