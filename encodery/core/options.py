"""The base of everything that has options: frozen, strict, documented by its fields."""

from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from pydantic import GetJsonSchemaHandler
    from pydantic_core import CoreSchema


class Options(BaseModel):
    """A thing with options: its fields are its config keys, its help and its defaults."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)

    def to_dict(self) -> dict[str, Any]:
        """The options as JSON-ready data."""
        return self.model_dump(mode="json")

    @classmethod
    def documented(cls) -> dict[str, str]:
        """Field -> the docstring under it.

        Read from the source when somebody asks: pydantic would do it at every import, which costs `encodery tasks`
        a quarter of its time.
        """
        found: dict[str, str] = {}
        for base in reversed([c for c in cls.__mro__ if issubclass(c, Options)]):
            found |= _docstrings(base)
        return {name: text for name, text in found.items() if name in cls.model_fields}

    @classmethod
    def __get_pydantic_json_schema__(cls, core: "CoreSchema", handler: "GetJsonSchemaHandler") -> dict[str, Any]:
        """Put the docstrings into the JSON schema."""
        reference = handler(core)
        properties = handler.resolve_ref_schema(reference).get("properties", {})
        for name, text in cls.documented().items():
            key = cls.model_fields[name].alias or name
            if key in properties:
                properties[key]["description"] = text
        return reference


@cache
def _docstrings(kind: type) -> dict[str, str]:
    """What stands below the fields of this very class; finding its source takes longer than everything else."""
    import ast
    import inspect
    import textwrap

    texts: dict[str, str] = {}
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(body, ast.ClassDef)
    for field, text in zip(body.body, body.body[1:], strict=False):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            texts[field.target.id] = inspect.cleandoc(str(text.value.value))
    return texts
