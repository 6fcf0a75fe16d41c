"""What the pages say can be done: commands parse, recipes exist, links resolve, configs are legal. Nothing is run."""

import json
import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest

from encodery import recipes
from encodery.analysis.head_importance import HeadOptions
from encodery.cli.parsing import Parser, split
from encodery.cli.verbs import VERBS
from encodery.config import layers, load, reference
from encodery.config.schema import Config
from encodery.config.validate import options
from encodery.data.corpus.vocabulary import Vocabulary
from encodery.gradts.config import Autosem, GradTS
from encodery.runs.sweep_spec import RunSpec
from encodery.selection import select
from encodery.selection.curve import Curve
from encodery.sweep import command_line, plan, search_space, sweep_file
from tests.docs.pages import PAGES, ROOT, blocks, write_named

VERB = {verb.name: verb for verb in VERBS}
SHORT = [page.relative_to(ROOT).as_posix() for page in PAGES]
SOME_RUN = {"model": "some-encoder", "tasks": "glue/rte"}


def in_shell(page: Path) -> list[str]:
    """`encodery …` lines of shell blocks, joined over `\\`."""
    shell = "\n".join(block.text for block in blocks(page) if block.language in ("bash", "sh", "shell"))
    lines = shell.replace("\\\n", " ").splitlines()
    return [line.strip() for line in lines if line.strip().startswith("encodery ")]


def in_text(page: Path) -> list[str]:
    """Commands in the running text; there a verb alone is a mention."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return re.findall(r"`(encodery [^`\n]+)`", text)


# modules.md quotes first lines of files, which are not made to be copied.
MENTIONS = [(page, line) for page in PAGES if page.name != "modules.md" for line in in_text(page)]
EVERY = [(page, line) for page in PAGES for line in in_shell(page)] + MENTIONS


@pytest.mark.parametrize(("page", "line"), EVERY, ids=[f"{p.name}: {line}" for p, line in EVERY])
def test_commands_parse(page: Path, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = shlex.split(line, comments=True)[1:]
    if words[0] in ("train", "select", "sweep") and (data := [word for word in words if word.endswith(".csv")]):
        monkeypatch.chdir(tmp_path)  # where the data file is that the line names, and own code of the page
        if ".py:" in line:
            write_named(page, tmp_path)
        for name in data:
            rows = [f"{i},row {i} has some words,{'abc'[i % 3]},{i % 5},{'xy'[i % 2]},c{i % 9}" for i in range(60)]
            Path(name).write_text("\n".join(["id,review,team,stars,label,customer", *rows]) + "\n")
    if words[0].startswith("-") or words[0].isupper():  # --help, --version, `encodery VERB …`
        return
    assert words[0] in VERB, f"{page.name}: there is no verb {words[0]}"
    verb = VERB[words[0]]
    module = import_module(verb.module)
    parser = Parser(f"encodery {verb.name}", "")
    module.arguments(parser)
    if "--help" in words or (len(words) == 1 and (page, line) in MENTIONS):
        return
    known, rest = split(parser, words[1:]) if verb.overrides else (words[1:], [])
    args = parser.parse_args(known)
    if words[0] == "sweep":
        axes, fixed = command_line.split(rest)
        rest = [f"{key}={json.dumps(value)}" for key, value in fixed.items()]
        rest += [f"{key}={json.dumps(search_space.values(values)[-1])}" for key, values in axes.items()]
        check_settings(next(iter(args.what), None) if args.action in ("plan", "run") else "a folder", rest)
    elif verb.name == "tokenizer":
        load.load_beside_task(Vocabulary, "corpus", getattr(args, "config", None), rest)
    elif verb.name == "select" and not args.overlap:
        if args.config is None:
            select.load(None, rest)
    elif verb.name == "curve":
        assert args.config
        for above in layers.from_overrides(rest, layers.Location("command line", ROOT)):
            assert above.tree.keys() <= Curve.model_fields.keys() | Config.model_fields.keys()
            options(Curve, layers.Layer({k: v for k, v in above.tree.items() if k in Curve.model_fields}, above.places))
    elif verb.name == "gradts":
        for above in layers.from_overrides(rest, layers.Location("command line", ROOT)):
            assert above.tree.keys() <= GradTS.model_fields.keys() | Config.model_fields.keys()
            own = {k: v for k, v in above.tree.items() if k in GradTS.model_fields}
            options(GradTS, layers.Layer({"primary": "some/task"} | own, above.places))
    elif verb.overrides:
        check_settings(getattr(args, "config", None), rest)


def check_settings(source: str | None, overrides: list[str]) -> None:
    """The settings are legal: with the recipe, alone, or on top of some run where a file is named."""
    if source and (source.startswith("recipe:") or layers.is_data_file(source)):
        load.load(source, overrides)
    elif source is None and any(word.lstrip("-").startswith("model") for word in overrides):
        load.load(None, overrides)
    else:
        load.load(SOME_RUN, overrides)


@pytest.mark.parametrize("page", PAGES, ids=SHORT)
def test_recipes_that_are_named_exist(page: Path) -> None:
    for name in re.findall(r"recipe:([a-z0-9_][a-z0-9._/-]*[a-z0-9])", page.read_text(encoding="utf-8")):
        recipes.path(name)


@pytest.mark.parametrize("page", PAGES, ids=SHORT)
def test_relative_links_resolve(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        file, _, anchor = target.partition("#")
        if "://" in target:
            continue
        path = (page.parent / file) if file else page
        assert path.exists(), f"{page.name} links to {target}"
        if anchor:
            assert anchor in anchors(path), f"{page.name} links to {target}"


def anchors(page: Path) -> set[str]:
    """The anchors that a forge makes of the headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.slow(0.5)
def test_yaml_blocks_are_legal_sweeps(tmp_path: Path) -> None:
    counts = {path.name: len(sweep_runs(path)) for path in write_named(ROOT / "docs" / "sweeps.md", tmp_path)}
    assert counts == {"sweep.yaml": 18, "tasks.yaml": 30, "stages.yaml": 33, "random.yaml": 20, "tpe.yaml": 0}


def sweep_runs(path: Path) -> list[RunSpec]:
    file = sweep_file.read(str(path))
    return [] if file.sweep.search.kind == "tpe" else plan.Planner(file, path.parent / "out").specs()


@pytest.mark.parametrize("page", [p for p in PAGES if p.name != "sweeps.md"], ids=lambda page: page.name)
def test_yaml_blocks_are_legal_configs(page: Path, tmp_path: Path) -> None:
    written = write_named(page, tmp_path)
    for number, block in enumerate(blocks(page, "yaml")):
        path = tmp_path / (block.name or f"block-{number}.yaml")
        if path not in written:
            path.write_text(block.text, encoding="utf-8")
        load.load(path)


def test_the_keys_of_a_study_are_all_there() -> None:
    page = (ROOT / "docs" / "task-selection.md").read_text(encoding="utf-8")
    for kind in (GradTS, HeadOptions, Autosem):
        assert reference._table(kind).strip() in page


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 200


def test_the_changelog_is_dated() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    dates = [re.search(r"\d{4}-\d\d-\d\d$", line) for line in text.splitlines() if line.startswith("## ")]
    assert dates
    assert all(dates)
    assert [date[0] for date in dates if date] == sorted((date[0] for date in dates if date), reverse=True)


def test_every_page_is_in_the_menu_of_the_site() -> None:
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    named = set(re.findall(r"docs/[\w/-]+\.md", menu))
    assert named == {page.relative_to(ROOT).as_posix() for page in (ROOT / "docs").rglob("*.md")}
