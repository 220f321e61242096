"""Where the run stands, and what the method tells people about it."""

# Generated from `wit/run.wit` of tunebox.

from . import tensor


def position() -> int:
    """The number of finished weight updates; 0 in the first step. Cost: one crossing."""


def planned() -> int:
    """The number of weight updates that the run plans."""


def metric(name: str, value: float) -> None:
    """Reports a number for this step under a name of the manifest's metric list.

    Values of the micro-batches of one update are summed when the name was reported by
    `add-metric`, and averaged when it was reported by `metric`.
    Errors: `invalid-argument` for a name that the manifest does not list;
    `out-of-budget` past 256 values a step.

    Raises `tunebox.Refused`.
    """


def metric_of(name: str, value: tensor.Tensor) -> None:
    """Like `metric`, from a one-element tensor, which stays on the device until the step ends.

    Raises `tunebox.Refused`.
    """


def add_metric(name: str, value: float) -> None:
    """Like `metric`, summed over the micro-batches of an update instead of averaged: for
    terms that the method has divided by the window's denominator already.

    Raises `tunebox.Refused`.
    """


def add_metric_of(name: str, value: tensor.Tensor) -> None:
    """Like `add-metric`, from a one-element tensor.

    Raises `tunebox.Refused`.
    """


def log(line: str) -> None:
    """Writes a line to the run's log. Control characters are escaped. Lines past 100 a step,
    or 1,024 bytes a line, are counted and dropped, never an error.
    """


def fault(message: str, file: str, line: int, column: int) -> None:
    """Says why the method is about to trap, with the place in its source; the SDK calls it
    from its panic hook. The host shows it with the trap that follows.
    """
