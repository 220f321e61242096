"""What the host calls of an environment. Runs inside the component only."""

from wit_world import exports
from wit_world.exports import respond

from tunebox import isolated
from tunebox.isolated import load as load


class Respond(exports.Respond):
    """The export `respond`."""

    def init(self, given) -> None:
        isolated.begin(given)

    def respond(self, prompt: str, answer: str, turns: list[respond.Turn]) -> respond.Reply:
        reply = isolated.call("respond", prompt, answer, [turn.value for turn in turns])
        if isinstance(reply, str):
            return respond.Reply_Message(reply)
        return respond.Reply_End(isolated.reward(reply, "respond"))
