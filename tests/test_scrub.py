"""S6: secrets are hidden, and nothing else is."""

import pytest

from encodery.environment import environment, versions
from encodery.scrub import HIDDEN, is_secret_key, scrub, scrub_arguments, scrub_data, scrub_yaml


@pytest.mark.parametrize(
    "key", ["token", "hf_token", "HF_TOKEN", "--hub.token", "api_key", "WANDB_API_KEY", "db-password"]
)
def test_S6_telling_keys(key: str) -> None:
    assert is_secret_key(key)


@pytest.mark.parametrize(
    "key", ["tokenizer", "mask_token", "pad_token", "tokens", "token_budget", "key", "PWD", "seed"]
)
def test_S6_innocent_keys(key: str) -> None:
    assert not is_secret_key(key)


@pytest.mark.parametrize(
    "text",
    ["hf_abcdefghijklmnop", "ghp_" + "a" * 36, "sk-" + "b" * 40, "AKIA" + "A" * 16, "http://u:p@host/"],
)
def test_S6_tokens_are_known_by_their_shape(text: str) -> None:
    assert HIDDEN in scrub(f"at {text}, and on")


CONFIG = """\
model: {name: bert, tokenizer: toy}  # loss per token: 3
optim:
  lr: 2e-5
  mask_token: "[MASK]"
token: null
max_tokens: 4096
tasks:
  - name: glue/rte
    note: "hf_x and a token: yes"
"""


def test_S6_an_innocent_config_is_not_touched() -> None:
    assert scrub_yaml(CONFIG) == CONFIG


@pytest.mark.parametrize(
    "line",
    [
        "token: abc",
        "  - api_key: 'abc'",
        '"hf_token": "abc"   # why',
        "x: {a: 1, secret: abc}",
        "{password: abc, b: 2}",
    ],
)
def test_S6_config_values_under_telling_keys_are_hidden(line: str) -> None:
    assert "abc" not in scrub_yaml(f"seed: 1\n{line}\nlr: 1\n")
    assert scrub_yaml(f"seed: 1\n{line}\nlr: 1\n").startswith("seed: 1\n")
    assert scrub_yaml(f"seed: 1\n{line}\nlr: 1\n").endswith("\nlr: 1\n")


def test_S6_command_lines() -> None:
    given = ["train", "--token", "abc", "--token=abc", "hub.token=abc", "--tokenizer", "toy", "--token", "--seed", "1"]
    wanted = [
        "train",
        "--token",
        HIDDEN,
        f"--token={HIDDEN}",
        f"hub.token={HIDDEN}",
        "--tokenizer",
        "toy",
        "--token",
        "--seed",
        "1",
    ]
    assert scrub_arguments(given) == wanted


def test_S6_data_by_key_and_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SECRET", "long-enough-to-tell")
    monkeypatch.setenv("SHORT_TOKEN", "none")
    data = {"token": "abc", "n_token": 3, "list": ["long-enough-to-tell here", 1.5, None], "short": "none"}
    hidden = {"token": HIDDEN, "n_token": 3, "list": [f"{HIDDEN} here", 1.5, None], "short": "none"}
    assert scrub_data(data) == hidden


def test_environment_names_versions() -> None:
    assert "torch" in versions()
    assert {"command", "python", "platform", "cpus", "packages", "revision"} <= set(environment())
