"""A data file in place of a config, and what goes with it."""

import pytest

from encodery.config.load import load
from encodery.errors import UserError
from tests.toolbox.tasks import write_csv


@pytest.mark.parametrize(
    "overrides",
    [
        ["--tasks", "other.csv"], ["--tasks.file", "other.csv"], ["--tasks.name", "glue/rte"], ["tasks=glue/rte"],
        ["--tasks", "[other.csv, glue/rte]"], {"tasks": "other.csv"},
    ],
)  # fmt: skip
def test_a_data_file_is_not_dropped_where_other_tasks_are_named(tmp_path, overrides):
    file = write_csv(tmp_path / "given.csv", ["text", "label"], [("a text", "x"), ("another", "y")] * 8)
    said = rf"given.csv and tasks (other.csv|glue/rte).*config, such as `tasks: \[{file}, (other.csv|glue/rte)"
    with pytest.raises(UserError, match=said):
        load(str(file), overrides)


def test_keys_of_the_task_go_with_a_data_file(tmp_path):
    columns = ["text", "label", "team"]
    file = write_csv(tmp_path / "given.csv", columns, [("a text", "x", "b"), ("another", "y", "a")] * 8)
    for overrides in (
        ["--tasks.label", "team", "--tasks.name", "table/mine"],
        ["--tasks", str(file), "--tasks.label=team"],
    ):
        ((task, _),) = load(str(file), overrides).tasks
        assert task.to_dict()["label"] == "team"
    both = load(str(file), ["--tasks", f"[{file}, {{file: {file}, name: two, label: team}}]"])
    assert [task.name for task, _ in both.tasks] == ["table/given", "table/two"]
