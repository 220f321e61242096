"""The reward of the GRPO question: a trivial function of the text, the same as the verifier `overlong` counts words."""

# Words from which on the penalty is whole.
WORDS = 100


def of(text):
    """0 for an empty completion, falling to -1 at `WORDS` words."""
    return -min(len(text.split()) / WORDS, 1.0)
