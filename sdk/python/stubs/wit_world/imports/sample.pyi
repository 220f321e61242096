"""Sampling completions from the model."""

# Generated from `wit/sample.wit` of tunebox.

from typing import Self

from . import data, model, tensor


class Sampler:
    """How to sample. Every setter checks its range and returns `invalid-argument` outside it."""

    def __init__(self) -> None:
        """Temperature 1, no top-k, top-p 1, no min-p, 1 completion, 256 new tokens or the run's own limit if that is less."""

    def temperature(self, value: float) -> None:
        """Divides the logits by `value`; 0 takes the likeliest token.

        Raises `tunebox.Refused`.
        """

    def top_k(self, value: int) -> None:
        """Samples among the k likeliest tokens only; 0 for all.

        Raises `tunebox.Refused`.
        """

    def top_p(self, value: float) -> None:
        """Samples among the likeliest tokens that hold this share of the probability; in (0, 1].

        Raises `tunebox.Refused`.
        """

    def min_p(self, value: float) -> None:
        """Samples among tokens with at least this share of the likeliest token's probability; in [0, 1].

        Raises `tunebox.Refused`.
        """

    def max_tokens(self, value: int) -> None:
        """The largest number of new tokens per completion, end tokens included; messages of an environment do not count.

        Raises `tunebox.Refused`.
        """

    def completions(self, value: int) -> None:
        """The number of completions per prompt.

        Raises `tunebox.Refused`.
        """

    def stop(self, text: str) -> None:
        """Adds a text that ends a completion as soon as the completion contains it; its tokens stay in the completion,
        which then counts as finished. A model without a tokenizer cannot be sampled from with stop texts. Errors:
        `invalid-argument` for an empty text, one of more than 64 bytes, or a ninth text.

        Raises `tunebox.Refused`.
        """

    def allow_tokens(self, ids: list[int]) -> None:
        """Samples among these tokens only; the other settings apply to what they leave. A second list replaces the first.
        End tokens end a completion only if they are in the list (see `end-tokens`).
        Errors: `invalid-argument` for an empty list, one longer than the vocabulary, or a token that is not in it.

        Raises `tunebox.Refused`.
        """

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...


class Completions:
    """Sampled completions; those of one prompt are contiguous."""

    def rows(self) -> data.Rows:
        """Prompt and completion as rows whose mask marks what the model wrote, end tokens included. Messages of an
        environment stand between, unmarked.
        """

    def logprob(self) -> tensor.Tensor:
        """Log-probabilities under the distribution that was sampled from, `[rows, width]`, `f32`.

        Raises `tunebox.Refused`.
        """

    def finished(self) -> tensor.Tensor:
        """1 where a completion ended by itself, or where an environment ended it; 0 where it was cut: `[rows]`, `f32`.

        Raises `tunebox.Refused`.
        """

    def group(self) -> tensor.Tensor:
        """The number of the prompt that a row continues: `[rows]`, `u32`.

        Raises `tunebox.Refused`.
        """

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...


def end_tokens() -> list[int]:
    """The tokens that end a completion, in ascending order; none if the model has none. They are those of the model under
    training, whatever view is sampled from.
    """


def generate(view: model.View, prompts: data.Rows, sampler: Sampler) -> Completions:
    """Samples completions. Random numbers depend on (run seed, update, prompt, completion) alone, so the
    result does not depend on how the host batches the work. If the run has an environment and the prompts are those
    of the batch, each completion that ends by itself is answered: it goes on after the message, until the environment
    ends the episode. Cost: one pass per new token, and one answer per turn.

    Raises `tunebox.Refused`.
    """
