"""Changes to activations. A patch acts on every later pass of the policy (scores, gradients, completions,
captures) until its handle is dropped; patches apply in the order in which they were made. The weights,
the reference and every snapshot stay as they are.

Common errors: `invalid-argument` for a layer that is not there or named twice, a vector of
another width or with numbers that are not finite, a direction without length;
`out-of-budget` past 256 active patches. A patch lasts no longer than the handle: a resumed run
makes its patches again. Validation, and the answers that a report shows, are without patches.
"""

# Generated from `wit/patch.wit` of tunebox.

from typing import Self

from . import hidden, tensor


class Patch:
    """An active change. Dropping it removes the change."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...


def add(layers: list[int], site: hidden.Site, vector: tensor.Tensor, coefficient: float, answers_only: bool) -> Patch:
    """Adds `coefficient` · `vector` (`[dimension]`) to the activations of the layers at the site.
    `answers-only` changes target tokens only, and while sampling the new tokens only.

    Raises `tunebox.Refused`.
    """


def ablate(layers: list[int], site: hidden.Site, direction: tensor.Tensor) -> Patch:
    """Removes the component along `direction` (`[dimension]`, normalized by the host).

    Raises `tunebox.Refused`.
    """


def project(layers: list[int], site: hidden.Site, direction: tensor.Tensor, value: float) -> Patch:
    """Sets the component along `direction` to `value`.

    Raises `tunebox.Refused`.
    """
