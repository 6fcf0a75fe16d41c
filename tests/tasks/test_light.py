import subprocess
import sys

HEAVY = {"torch", "transformers", "sklearn", "scipy", "datasets", "pyarrow", "pandas"}


def test_the_list_of_tasks_score_and_submit_import_nothing_heavy():
    code = (
        "import sys, encodery.scoring.prediction_files, encodery.scoring.glue_submission;"
        "import encodery.tasks.sources.check_folder, encodery.tasks as t; t.catalogue();"
        f"print(*sorted({HEAVY!r} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
