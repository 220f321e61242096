"""What this environment does, in a sentence.

A wrong answer gets one more turn. A right one ends the episode: with reward 1 in the first turn, `late` in the second.
Put replies of your own into `respond`.
"""

from tunebox import environment, setting


@environment
class SecondTry:
    """The fields are what people may set in `[environment]` of a run file."""

    late: float = setting(0.5, low=0.0, high=1.0, doc="The reward of an answer that is right in the second turn.")

    def respond(self, prompt: str, answer: str, turns: list[str]) -> str | float | None:
        """A text is the next message to the model; a number ends the episode with this reward, None without one."""
        if not answer:
            return None
        # Completions and messages alternate; the last one is a completion.
        is_first = len(turns) == 1
        if turns[-1].strip() == answer.strip():
            return 1.0 if is_first else self.late
        return "Wrong. Try again." if is_first else 0.0
