"""Where the run stands, and what the method tells people about it (`wit/run.wit`)."""

from wit_world.imports import run as contract
from wit_world.imports.run import add_metric_of, fault, log, metric_of, planned, position

from tunebox.tensor import Tensor

__all__ = ["add_metric", "add_metric_of", "fault", "log", "metric", "metric_of", "planned", "position"]


def metric(name: str, value: Tensor | float) -> None:
    """Reports a number under a name of the method's metrics; the micro-batches of an update are averaged."""
    if isinstance(value, Tensor):
        metric_of(name, value)
    else:
        contract.metric(name, value)


def add_metric(name: str, value: Tensor | float) -> None:
    """Reports a number that is summed over the micro-batches of an update: for terms divided by the window's size."""
    if isinstance(value, Tensor):
        add_metric_of(name, value)
    else:
        contract.add_metric(name, value)
