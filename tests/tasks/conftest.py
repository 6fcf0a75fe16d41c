import pytest


@pytest.fixture(autouse=True)
def no_data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests name their folders themselves; the hub is never asked by accident."""
    monkeypatch.delenv("ENCODERY_DATA", raising=False)
    monkeypatch.delenv("GLUE_DIR", raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
