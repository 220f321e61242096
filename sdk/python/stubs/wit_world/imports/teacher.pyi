"""The run's teachers: frozen models beside the one under training, from which it can learn."""

# Generated from `wit/teacher.wit` of tunebox.

from . import model


def names() -> list[str]:
    """The names of the run's teachers, in alphabetical order."""


def open(name: str) -> model.View:
    """The weights of a teacher, to score, to sample and to capture with, and as the other side of a divergence. They have
    the vocabulary of the policy. No gradient goes through them.
    Errors: `invalid-argument` for a name that the run does not have.

    Raises `tunebox.Refused`.
    """
