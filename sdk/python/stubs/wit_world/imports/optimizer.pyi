"""Trained parameters: their values, gradients and named state, and updates by the method itself.

A method whose manifest says `"update": "method"` updates the parameters itself: the host makes no optimizer and
keeps no moments. It does so when its gradient is complete (`batch.ends-window`), through the handles below, and then
calls `done`. Where the manifest says nothing, the host updates the parameters that the run trains; the functions that
change those are `unsupported`, and all others work.

Values and state are `f32`. Common errors: `shape-mismatch`, `dtype-mismatch`; `invalid-argument` for a number that
is not finite, a name that is empty or too long, and for any change while a perturbation is active.
State, extra parameters and perturbations count in the run's limit `activation-bytes`; what checkpoints save of them,
the state and the extra parameters, also counts in `parameter-state-bytes`.
"""

# Generated from `wit/optimizer.wit` of tunebox.

from typing import Self

from . import tensor


class Parameter:
    """A trained parameter: a matrix or vector of the adapter (of the model, if all weights are trained), all of them as
    one vector, or an extra parameter of the method's own.
    """

    def name(self) -> str:
        """Its name, such as `model.layers.0.self_attn.q_proj.lora_A.weight`: as in the adapter's file, without PEFT's prefix
        `base_model.model.`; `*` for all parameters as one vector; the given name of an extra one.
        """

    def role(self) -> str:
        """What it is: `lora-a`, `lora-b`, `magnitude`, `weight`, `bias`, `all` or `extra`. A later version may add roles."""

    def layer(self) -> int | None:
        """The block that it belongs to, from 0; none outside of the blocks."""

    def shape(self) -> list[int]:
        """The length of each axis."""

    def value(self) -> tensor.Tensor:
        """A copy of the value. For an extra parameter it is differentiable: `learn.backward` adds to its gradient.

        Raises `tunebox.Refused`.
        """

    def gradient(self) -> tensor.Tensor:
        """A copy of the gradient that has accumulated; zeros if none has.

        Raises `tunebox.Refused`.
        """

    def state(self, name: str) -> tensor.Tensor:
        """State of this name, which the run keeps and saves in its checkpoints; zeros in the shape of the parameter
        before `set-state`. A state that is never zero, such as a count of updates, tells whether it was set.

        Raises `tunebox.Refused`.
        """

    def set_state(self, name: str, value: tensor.Tensor) -> None:
        """Replaces the state of this name by a tensor of any shape. Errors: `out-of-budget` past 16 names a parameter.

        Raises `tunebox.Refused`.
        """

    def assign(self, value: tensor.Tensor) -> None:
        """Replaces the value. Scores made before take no gradient afterwards.

        Raises `tunebox.Refused`.
        """

    def subtract(self, change: tensor.Tensor) -> None:
        """value ← value − `change`. Scores made before take no gradient afterwards.

        Raises `tunebox.Refused`.
        """

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...


class Perturbation:
    """A change of all parameters that the run trains, which dropping the handle takes back, bit for bit."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...


def parameters() -> list[Parameter]:
    """Every parameter that the run trains, in the order of `all`; without extra ones."""


def all() -> Parameter:
    """All parameters that the run trains as one vector: one after another, each in row-major order."""


def extra(name: str, initial: tensor.Tensor) -> Parameter:
    """An extra parameter of the method's own, such as a value head: made with the given value (`f32`, any shape) when the
    name is new, else as it is. In a run that continues an adapter, a new one begins with the value that was saved beside
    the adapter under its name, if there is one. It is saved in checkpoints and in the artifact. The method updates it
    through its handle, also where the host updates the others; its gradient is cleared with theirs, and at the end
    of the accumulation window.
    Errors: `shape-mismatch` for a known name with another shape; `out-of-budget` past 64 extra parameters.

    Raises `tunebox.Refused`.
    """


def done() -> float:
    """Counts the changes since the last call as one update, and clears all gradients. Returns the norm of the gradient
    that was cleared, extra parameters not counted.
    Errors: `unsupported` where the host updates the parameters; `invalid-argument` for a batch that does not end its
    accumulation window (`batch.ends-window`).

    Raises `tunebox.Refused`.
    """


def clear_gradients() -> None:
    """Sets all gradients to zero without counting an update: for methods that compute several gradients for one update.
    Rows may then get a gradient again.

    Raises `tunebox.Refused`.
    """


def perturb(sequence: str, number: int, scale: float) -> Perturbation:
    """Adds `scale` · z to all parameters that the run trains until the handle is dropped. z are independent standard normal
    numbers that depend on (run seed, `sequence`, `number`) alone; `scale` may be negative. Scores and completions of the
    policy see the perturbation. At most one is active at a time, and none longer than the call of the method.
    Needs the memory of a copy of the parameters.

    Raises `tunebox.Refused`.
    """


def add_noise(sequence: str, number: int, scale: float) -> None:
    """value ← value + `scale` · z for all parameters that the run trains, with the z of `perturb`: an update from a seed
    and a number. Errors: `unsupported` where the host updates the parameters.

    Raises `tunebox.Refused`.
    """
