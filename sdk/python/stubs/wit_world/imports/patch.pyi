"""Changes to activations, declared once and active in everything that is asked of the policy from
then on (scores, gradients, completions, captures), in the order in which they were made, until
the handle is dropped. The weights, the reference and every snapshot stay as they are.

Common errors: `invalid-argument` for a layer that is not there or named twice, a vector of
another width or with numbers that are not finite, a direction without length;
`out-of-budget` past 256 active patches. A patch lasts no longer than the handle: a resumed run
makes its patches again.
"""

# Generated from `wit/patch.wit` of tunebox.

from typing import Self

from . import hidden, tensor


class Patch:
    """An active change. Dropping it takes the change back."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...


def add(layers: list[int], site: hidden.Site, vector: tensor.Tensor, coefficient: float, answers_only: bool) -> Patch:
    """Adds `coefficient` · `vector` (`[dimension]`) to the activations of the layers at the site.
    `answers-only` leaves every token alone that is not a target, or, while writing, not written.

    Raises `tunebox.Refused`.
    """


def ablate(layers: list[int], site: hidden.Site, direction: tensor.Tensor) -> Patch:
    """Removes the component along `direction` (`[dimension]`, normalised by the host).

    Raises `tunebox.Refused`.
    """


def project(layers: list[int], site: hidden.Site, direction: tensor.Tensor, value: float) -> Patch:
    """Sets the component along `direction` to `value`.

    Raises `tunebox.Refused`.
    """
