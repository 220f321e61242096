"""What the host calls of a verifier. Runs inside the component only."""

from wit_world import exports

from tunebox import isolated
from tunebox.isolated import load as load


class Verify(exports.Verify):
    """The export `verify`."""

    def init(self, given) -> None:
        isolated.begin(given)

    def verify(self, prompt: str, completion: str, answer: str) -> float | None:
        return isolated.reward(isolated.call("verify", prompt, completion, answer), "verify")
