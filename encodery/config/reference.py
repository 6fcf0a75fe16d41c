"""All keys with their types, defaults and meanings: as JSON schema for editors, and as a page of Markdown."""

import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from encodery.config.components import find, names
from encodery.config.schema import DEFAULT_MODEL, DEFAULT_MODEL_SETTINGS, Config, Entry
from encodery.config.validate import KINDS
from encodery.core.options import Options
from encodery.core.text import markdown_table

_HEAD = """# Configuration

Every key of a run's config, with its type, default and meaning. This page is generated from the code
(`encodery config --reference`); `encodery config --schema` prints the same as a JSON schema for editors.

A config is a YAML file (with YAML 1.2 numbers: `2e-5` is a number). `extends:` names one or more files or recipes
(`recipe:NAME`) to build on; in a list, later ones override earlier ones. On the command line, write a setting as
`--optim.lr 1e-5`, `--optim.lr=1e-5` or `optim.lr=1e-5`. The command line overrides the file, the file overrides what it
extends, and that overrides the defaults. Mappings are merged, lists are replaced. If you change a `kind`, the keys of
the old kind are dropped, with a note.

Short forms: `model: roberta-base` means `model: {name: roberta-base}`; `method: freelb` means `method: {kind: freelb}`,
and likewise for `mix` and `weighting`; `tasks: glue/rte` means `tasks: [{name: glue/rte}]`; `seed: 3` means
`seed: {init: 3, data: 3}`. If a run has one task, `tasks` may be a mapping that changes its entry, so
`tasks.fraction=0.1` works.

Your own code: `kind: mine.py:Mine` is the class `Mine` in a file next to the config. It runs if you name the config
yourself. Code in another person's run directory runs only with `--allow-code`, and only if it has not changed.
"""


def schema() -> dict[str, Any]:
    """The JSON schema of a config, short forms and all components included."""
    tree = Config.model_json_schema()
    tasks = [
        _component(tree, one, _called(name, kind), Entry)
        for name, kind in _kinds("tasks").items()
        for one in (kind, *_variants(kind).values())
    ]
    keys = tree["properties"]
    text = {"type": "string"}
    for section, (package, _) in KINDS.items():
        kinds = [_component(tree, kind, {"kind": {"const": name}}) for name, kind in _kinds(package).items()]
        keys[section]["anyOf"] = [text, *kinds]
    entry = {"anyOf": [text, *tasks]}
    keys["tasks"] = {
        "description": keys["tasks"]["description"],
        "anyOf": [*entry["anyOf"], {"type": "array", "items": entry}],
    }
    for name, short in (("model", text), ("seed", {"type": "integer"})):
        keys[name] = {"description": keys[name].get("description", ""), "anyOf": [short, {"$ref": keys[name]["$ref"]}]}
    keys["extends"] = {
        "description": "Files or recipes that this one builds on.",
        "anyOf": [text, {"type": "array", "items": text}],
    }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **tree}


def _kinds(package: str) -> dict[str, type[Options]]:
    return {name: find(package, name) for name in names(package)}


def _variants(kind: type[Options]) -> Mapping[str, type[Options]]:
    """Classes with keys of their own that stand under the same name."""
    return getattr(kind, "variants", {})


def _called(name: str, kind: type[Options]) -> dict[str, Any]:
    parts = getattr(kind, "parts", {})
    part = kind.model_fields.get("part")
    alone = [name] if "" in parts or (part and parts and not part.is_required()) else []
    named = [*alone, *(f"{name}/{one}" for one in parts if one)]
    return {"name": {"enum": named}} if parts else {"kind": {"const": name}}


def _component(
    tree: dict[str, Any], kind: type[Options], called: Mapping[str, Any], *more: type[Options]
) -> dict[str, Any]:
    """One component's schema; its named parts move up to the whole."""
    keys: dict[str, Any] = dict(called)
    needed = list(called) if "name" in called or "kind" in called else []
    for part in (kind, *more):
        own = part.model_json_schema()
        tree.setdefault("$defs", {}).update(own.pop("$defs", {}))
        keys |= {key: value for key, value in own.get("properties", {}).items() if key != "part" and key not in called}
        needed += [key for key in own.get("required", []) if key != "part"]
    about = (kind.__doc__ or "").strip()
    return {
        "type": "object",
        "description": about,
        "properties": keys,
        "required": needed,
        "additionalProperties": False,
    }


def reference() -> str:
    sections: dict[str, Any] = {name: part.annotation for name, part in Config.model_fields.items()}
    sections = {name: kind for name, kind in sections.items() if _is_section(kind)}
    plain = [name for name in Config.model_fields if name not in sections]
    blocks = [_HEAD, "## Top-level keys\n", _table(Config, plain)]
    for name, kind in sections.items():
        blocks += [f"## {name}\n", _about(kind), _table(kind, own=DEFAULT_MODEL_SETTINGS.get(name, {}))]
        blocks += _inner(f"### {name}.", kind)
    blocks += _inner("## ", Config, plain)
    blocks += ["## tasks: keys of every entry\n", _about(Entry), _table(Entry)]
    for name, kind in _kinds("tasks").items():
        parts = ", ".join(f"`{name}/{part}`" if part else f"`{name}`" for part in getattr(kind, "parts", {}))
        blocks += [
            f"### tasks: {name}\n",
            _about(kind),
            f"Names: {parts}\n" if parts else f"`kind: {name}`\n",
            _table(kind),
        ]
        for form, variant in _variants(kind).items():
            blocks += [f"### tasks: {name}, {form}\n", _about(variant), _table(variant)]
    for section, (package, _) in KINDS.items():
        for name, kind in _kinds(package).items():
            blocks += [f"### {section}: {name}\n", _about(kind), _table(kind)]
    for name, kind in _kinds("objectives").items():
        blocks += [f"### tasks.objective: {name}\n", _about(kind), _table(kind)]
        blocks += _inner(f"#### tasks.objective: {name}, ", kind)
    for name, kind in _kinds("select").items():
        blocks += [f"### selector: {name}\n", _about(kind), _table(kind)]
    return "\n".join(block for block in blocks if block).rstrip() + "\n"


def _is_section(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _about(kind: type[BaseModel]) -> str:
    return " ".join((kind.__doc__ or "").split()) + "\n"


def _inner(title: str, kind: type[BaseModel], only: list[str] | None = None) -> list[str]:
    """Mappings with keys of their own inside another one, such as model.new."""
    blocks: list[str] = []
    for key in kind.model_fields if only is None else only:
        annotation = kind.model_fields[key].annotation
        for inner in (annotation, *getattr(annotation, "__args__", ())):
            if _is_section(inner):
                blocks += [f"{title}{key}\n", _about(inner), _table(inner)]
    return blocks


def _table(kind: type[BaseModel], only: list[str] | None = None, own: Mapping[str, Any] | None = None) -> str:
    """A line for each key; `own` holds the defaults that our own encoder has instead."""
    keys = {key: value for key, value in kind.model_json_schema().get("properties", {}).items() if key != "part"}
    rows = [_row(key, value, own or {}) for key, value in keys.items() if only is None or key in only]
    return markdown_table(["key", "type", "default", "meaning"], rows) + "\n" if rows else "No keys.\n"


def _row(key: str, value: Mapping[str, Any], own: Mapping[str, Any]) -> list[str]:
    default = f"`{json.dumps(value['default'])}`" if "default" in value else "required"
    default += f"; with {DEFAULT_MODEL} `{json.dumps(own[key])}`" if key in own else ""
    return [f"`{key}`", _words(value), default, " ".join(value.get("description", "").split())]


def _words(value: Mapping[str, Any]) -> str:
    """A JSON schema type in YAML's words, with its limits."""
    if "$ref" in value or "allOf" in value:
        return "mapping"
    if "enum" in value:
        return ", ".join(f"`{item}`" for item in value["enum"])
    if "const" in value:
        return f"`{value['const']}`"
    if "anyOf" in value:
        return " or ".join(_words(one) for one in value["anyOf"])
    word = {"array": "list", "object": "mapping"}.get(value.get("type", "any"), value.get("type", "any"))
    limits = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    said = [f"{sign} {value[limit]:g}" for limit, sign in limits.items() if limit in value]
    return f"{word} {', '.join(said)}" if said else word
