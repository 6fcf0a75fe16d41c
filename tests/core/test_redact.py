"""S6: secrets are hidden, and nothing else is."""

from pathlib import Path

import pytest

from encodery.core.environment import environment, versions
from encodery.core.redact import HIDDEN, is_secret_key, scrub, scrub_arguments, scrub_data, scrub_yaml


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


NAMES = [
    "PGPASSWORD", "MYSQL_PWD", "DB_PASS", "AZURE_STORAGE_KEY", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
    "SLACK_WEBHOOK", "SLACK_WEBHOOK_URL", "REDIS_AUTH", "SENTRY_DSN", "DATABASE_URL", "OPENAI_APIKEY", "HF_TOKEN_READ",
    "SSH_KEY_PASSPHRASE", "COMET_API_KEY", "SESSION_COOKIE", "AZURE_STORAGE_CONNECTION_STRING",
    "GOOGLE_CREDENTIALS_JSON",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_S6_values_of_telling_variables_are_hidden_everywhere(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "s3cret-Value-99")
    assert "s3cret" not in scrub("with s3cret-Value-99 inside")
    assert "s3cret" not in str(scrub_data({"note": ["s3cret-Value-99"]}))


@pytest.mark.parametrize(
    ("name", "value"),
    [("PWD", "/home/somewhere"), ("TOKENIZERS_PARALLELISM", "sometimes"), ("SORT_KEY", "timestamp"),
     ("HOME", "/root1234"),
     ("KEYBOARD_LAYOUT", "pc105-us-intl"), ("COMPASS_SIZE", "123456789"), ("OLDPWD", "/home/elsewhere")],
)  # fmt: skip
def test_S6_values_of_innocent_variables_stay(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    assert scrub(f"at {value} there") == f"at {value} there"


def test_S6_a_path_in_a_telling_variable_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path))
    assert str(tmp_path) in scrub(f"read from {tmp_path}")


@pytest.mark.parametrize(
    "text",
    [
        "https://hooks.slack.com/services/T000/B000/abcdefgh", "https://discord.com/api/webhooks/123/abc_defghijk",
        "DefaultEndpointsProtocol=https;AccountKey=abcdefgh12345678==;x", "https://x/y?sv=1&sig=abcdefgh12345678%3D",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc_def", "AIza" + "a" * 35, "ASIA" + "A" * 16, "sk_live_" + "a" * 24,
        "postgres://:secretword@host/db", "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----",
    ],
)  # fmt: skip
def test_S6_more_kinds_of_secrets_are_known_by_their_shape(text: str) -> None:
    assert HIDDEN in scrub(f"at {text} and on")
    assert scrub(f"at {text} and on").endswith("and on")
