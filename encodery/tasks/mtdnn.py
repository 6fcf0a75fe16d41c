"""Tasks in MT-DNN's own files: `tasks: mtdnn:experiments/glue/glue_task_def.yml#rte`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from encodery.tasks._mtdnn import TYPES, MtdnnLabels, MtdnnRank, read_definition
from encodery.tasks._mtdnn_spans import MtdnnSpans
from encodery.tasks._mtdnn_tags import MtdnnTags
from encodery.tasks.base import Task


class Mtdnn(MtdnnLabels):
    """A task of an MT-DNN task definition, with its canonical TSV or tokenised JSON."""

    parts: ClassVar[Mapping[str, str]] = {}
    variants: ClassVar[Mapping[str, type[Task]]] = {"tags": MtdnnTags, "spans": MtdnnSpans, "ranking": MtdnnRank}

    @classmethod
    def variant(cls, options: Mapping[str, Any]) -> type[Task]:
        """Ranking, sequence labelling and questions are classes of their own."""
        path = Path(str(options.get("root") or "")).expanduser() / Path(str(options.get("definition"))).expanduser()
        if not path.is_file():
            return cls  # its own check says it better
        form = TYPES[read_definition(path, str(options.get("task")))["task_type"]]
        return cls.variants.get(form, cls)
