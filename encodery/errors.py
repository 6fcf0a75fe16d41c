"""The four ways a command ends badly, each with its exit code (0 is done)."""

AFTER_ALARM = "see docs/after-an-alarm.md"  # what each alarm of a training means, and what to try


class EncoderyError(Exception):
    """Something a person can act on: shown as a sentence, never as a traceback."""

    exit_code = 1


class UserError(EncoderyError):
    """Bad configuration or input, or a refusal. The message names file, line or key, and what to do."""

    exit_code = 2


class RunFailed(EncoderyError):
    """The run itself failed: a NaN, a full disk, a crash."""

    exit_code = 1


class Stopped(EncoderyError):
    """Stopped on request with a checkpoint saved: the same command resumes."""

    exit_code = 3


class ProcessLost(EncoderyError):
    """Another process of the run is gone, or does not answer: a launcher may start all of them again."""

    exit_code = 4
