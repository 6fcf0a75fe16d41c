"""The base of everything that has options: frozen, strict, documented by its fields."""

from typing import Any

from pydantic import BaseModel, ConfigDict


class Options(BaseModel):
    """A thing with options: its fields are its config keys, its help and its defaults."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True, use_attribute_docstrings=True)

    def plain(self) -> dict[str, Any]:
        """The options as JSON-ready data."""
        return self.model_dump(mode="json")
