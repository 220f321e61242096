"""The run's verifiers, weighted and listed in `run.toml`; the method never sees text."""

# Generated from `wit/reward.wit` of tunebox.

from . import data, sample, tensor


def verifiers() -> list[str]:
    """The names of the run's verifiers, in the order of the columns of `judge`. The environment of a run that has one
    counts as its last verifier.
    """


def weights() -> tensor.Tensor:
    """The weights of the run's verifiers, `[verifiers]`, `f32`: the factors of their verdicts in a reward. The weights of
    the model are in the interface `weights`. Errors: `unsupported` when the run lists no verifier.

    Raises `tunebox.Refused`.
    """


def judge(batch: data.Batch, completions: sample.Completions) -> tensor.Tensor:
    """Judges completions of the batch's prompts: `[rows, verifiers]`, `f32`, NaN where a
    verifier could not judge. In a run with an environment, verifiers get what the model wrote last, and the last column
    has the rewards of the episodes. Cost: one verifier call per entry.

    Raises `tunebox.Refused`.
    """
