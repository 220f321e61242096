"""What this verifier does, in a sentence.

1 where the completion is the answer, `partial` where the answer is one of its words, else 0. Put a rule of your own
into `verify`.
"""

import string

from tunebox import setting, verifier


@verifier
class Mentions:
    """The fields are what people may set in `[[verifier]]` of a run file."""

    partial: float = setting(
        0.5, low=0.0, high=1.0, doc="The reward of a completion that has the answer among other words."
    )

    def verify(self, prompt: str, completion: str, answer: str) -> float | None:
        answer = answer.strip()
        if not answer:
            return None  # no verdict: the other verifiers of the run decide
        if completion.strip() == answer:
            return 1.0
        words = [word.strip(string.punctuation) for word in completion.split()]
        return self.partial if answer in words else 0.0
