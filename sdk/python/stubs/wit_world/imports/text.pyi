"""Tokens as text. Granted only when the run asks for it by name. Both ways count against the bytes
that a step may read back.
"""

# Generated from `wit/text.wit` of tunebox.


def decode(ids: list[int]) -> str:
    """The text of token ids; special tokens are left out.
    Errors: `invalid-argument` past 65,536 ids, or for one that is not in the vocabulary.

    Raises `tunebox.Refused`.
    """


def encode(text: str) -> list[int]:
    """The token ids of text, without special tokens. Errors: `invalid-argument` past 1 MiB.

    Raises `tunebox.Refused`.
    """
