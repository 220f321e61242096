"""The position of the run, and the metrics and log lines of the method."""

# Generated from `wit/run.wit` of tunebox.

from . import tensor


def position() -> int:
    """The number of finished steps of the run, each an accumulation window; 0 in the first. Updates that a method
    makes itself do not count. Cost: one crossing.
    """


def planned() -> int:
    """The number of steps that the run plans."""


def metric(name: str, value: float) -> None:
    """Reports a number for this step under a name of the manifest's metric list.

    Values of the micro-batches of one update are summed when the name was reported by
    `add-metric`, and averaged when it was reported by `metric`.
    Errors: `invalid-argument` for a name that the manifest does not list;
    `out-of-budget` past 256 values a step.

    Raises `tunebox.Refused`.
    """


def metric_of(name: str, value: tensor.Tensor) -> None:
    """Reports a metric from a one-element tensor, which stays on the device until the step ends. Errors as in `metric`.

    Raises `tunebox.Refused`.
    """


def add_metric(name: str, value: float) -> None:
    """Reports a metric that is summed over the micro-batches of an update: for terms that the method has divided
    by the window's denominator already. Errors as in `metric`.

    Raises `tunebox.Refused`.
    """


def add_metric_of(name: str, value: tensor.Tensor) -> None:
    """Reports a summed metric from a one-element tensor. Errors as in `metric`.

    Raises `tunebox.Refused`.
    """


def log(line: str) -> None:
    """Writes a line to the run's log. Control characters are escaped. Lines past 100 a step,
    or 1,024 bytes a line, are counted and dropped, never an error.
    """


def fault(message: str, file: str, line: int, column: int) -> None:
    """Reports why the method is about to trap, with the location in its source; the SDK calls it
    from its panic hook. The host shows it with the trap that follows.
    """
