"""What this method does, in a sentence.

L = −Σ log σ(β (r₊ − r₋)) / pairs, with r = log π(y) − log π_ref(y) of an answer y: the better answer of a pair gains
on the worse one, measured from the model before training. Put a loss of your own into `cost`.
"""

from tunebox import Batch, Tensor, add_metric, backward, loss, method, reference, score, score_for_learning, setting


@method(shape="preference", metrics=["loss", "accuracy"])
class Preference:
    """The fields are what people may set in `[method]` of a run file."""

    beta: float = setting(0.1, above=0.0, doc="How sharply the loss answers to a difference between the answers.")

    def step(self, batch: Batch) -> None:
        better, worse = self.reward(batch, "chosen"), self.reward(batch, "rejected")
        # The pairs of the whole update, so that the size of a micro-batch changes nothing.
        pairs = batch.window_size()

        total = loss.row_mean(self.cost(better, worse), pairs)
        backward(total)

        add_metric("loss", total)
        add_metric("accuracy", (better > worse).count() / pairs)

    def reward(self, batch: Batch, side: str) -> Tensor:
        """β r of one side's answers: `[rows]`."""
        rows = batch.rows(side)
        return loss.log_ratio(score_for_learning(rows), score(reference(), rows)) * self.beta

    def cost(self, better: Tensor, worse: Tensor) -> Tensor:
        """What every pair costs: `[rows]`."""
        return -(better - worse).log_sigmoid()
