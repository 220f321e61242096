"""Direct preference optimization: preferred answers become likelier than rejected ones, measured from where
training began.

r = log π(y) − log π_ref(y) for each answer; the loss of a pair is a function of Δ = r(chosen) − r(rejected).
"""

from typing import Literal

from tunebox import Batch, Error, Pair, Tensor, add_metric, loss, method, backward, reference, setting


@method(
    shape="preference",
    metrics=["loss", "rewards-chosen", "rewards-rejected", "rewards-accuracies", "rewards-margins"],
    paper="arXiv:2305.18290",
)
class Preference:
    loss: Literal["sigmoid", "cdpo", "hinge", "ipo", "sigmoid-norm"] = setting("sigmoid", doc="The loss of a pair.")
    beta: float = setting(
        0.1, above=0.0, doc="How strongly the policy is held to the reference: higher is closer."
    )
    label_smoothing: float = setting(
        0.0, low=0.0, below=0.5, doc="The share of pairs whose order is taken to be wrong; for `cdpo`."
    )

    def __post_init__(self) -> None:
        if self.label_smoothing > 0.0 and self.loss != "cdpo":
            raise Error("`label-smoothing` acts in `cdpo`; take it, or leave the smoothing 0")

    def step(self, batch: Batch) -> None:
        rows = Pair.of(batch)
        policy = rows.score_for_learning().map(loss.sequence_logprob)  # [rows]
        frozen = rows.score(reference()).map(loss.sequence_logprob)  # [rows]
        ratios = policy.beside(frozen, lambda policy, frozen: policy - frozen)

        lengths = rows.map(lambda rows: rows.lengths())
        total = loss.row_mean(self.cost(ratios, lengths), batch.window_size())
        backward(total)

        add_metric("loss", total)
        ratios.map(lambda ratio: ratio * self.beta).report_rewards(batch)

    def cost(self, ratios: Pair, lengths: Pair) -> Tensor:
        """The loss of each pair: `[rows]`."""
        match self.loss:
            case "sigmoid":
                return -(ratios.difference() * self.beta).log_sigmoid()
            case "cdpo":
                return loss.smoothed_logistic(ratios.difference() * self.beta, self.label_smoothing)
            case "hinge":
                return (1.0 - ratios.difference() * self.beta).relu()
            case "ipo":
                return (self.a_token(ratios, lengths) - 0.5 / self.beta).square()
            case _:
                return -(self.a_token(ratios, lengths) * self.beta).log_sigmoid()

    def a_token(self, ratios: Pair, lengths: Pair) -> Tensor:
        """The difference of the mean scores of a token: `[rows]`."""
        return ratios.beside(lengths, lambda ratio, length: ratio / length).difference()
