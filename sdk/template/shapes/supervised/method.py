"""What this method does, in a sentence.

L = −Σ (1 − p)^focus · log p / targets: supervised fine-tuning in which a token counts the less the better the model
knows it already. With `focus = 0` all count alike. Put a loss of your own into `cost`.
"""

from tunebox import Batch, Scores, Taps, Tensor, add_metric, backward, loss, method, score_for_learning, setting


@method(shape="supervised", metrics=["loss", "accuracy"])
class Supervised:
    """The fields are what people may set in `[method]` of a run file."""

    focus: float = setting(
        0.0, low=0.0, high=10.0, doc="How much less a token counts the better the model knows it; 0 counts all alike."
    )

    def step(self, batch: Batch) -> None:
        rows = batch.rows("example")
        # Of the whole update, so that the size of a micro-batch changes nothing.
        targets = batch.window_targets("example")
        scores = score_for_learning(rows, Taps.TOP_ONE)

        total = loss.token_mean(self.cost(scores), targets)
        backward(total)

        add_metric("loss", total)
        add_metric("accuracy", loss.token_mean(scores.top_one(), targets))

    def cost(self, scores: Scores) -> Tensor:
        """What every target token costs: `[rows, width]`, 0 elsewhere."""
        logprob = scores.logprob()  # [rows, width], 0 off the targets
        unknown = (1.0 - logprob.exp()).clamp(low=0.0)  # [rows, width]
        return -((unknown**self.focus).detach() * logprob)
