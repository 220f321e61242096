"""What this method does, in a sentence.

L = −Σ log σ(±β r) / answers, + for a good answer and − for a bad one, with r = log π(y) − log π_ref(y) of an answer
y: good answers become likelier and bad ones less likely than before training. Put a loss of your own into `cost`.
"""

from tunebox import Batch, Tensor, add_metric, backward, loss, method, reference, score, score_for_learning, setting


@method(shape="unpaired", metrics=["loss", "accuracy"])
class Unpaired:
    """The fields are what people may set in `[method]` of a run file."""

    beta: float = setting(0.1, above=0.0, doc="How sharply the loss answers to r.")

    def step(self, batch: Batch) -> None:
        rows = batch.rows("example")
        sign = batch.column("label") * 2 - 1  # [rows], 1 for a good answer and -1 for a bad one
        # The answers of the whole update, so that the size of a micro-batch changes nothing.
        answers = batch.window_size()
        agreement = loss.log_ratio(score_for_learning(rows), score(reference(), rows)) * sign  # [rows]

        total = loss.row_mean(self.cost(agreement), answers)
        backward(total)

        add_metric("loss", total)
        add_metric("accuracy", (agreement > 0.0).count() / answers)

    def cost(self, agreement: Tensor) -> Tensor:
        """What every answer costs: `[rows]`. `agreement` is r for a good answer and −r for a bad one."""
        return -(agreement * self.beta).log_sigmoid()
