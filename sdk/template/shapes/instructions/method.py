"""What this method does, in a sentence.

d = mean(a of harmful texts) − mean(a of harmless texts), with a the activations at the output of a layer,
at the last token. The run writes d as a steering vector; the weights stay as they are. Put a direction of your
own into `direction`.
"""

from tunebox import Batch, Error, Tensor, hidden, method, metric, policy, setting

SITE = hidden.Site.RESIDUAL_AFTER
TOKEN = hidden.Token_FromEnd(0)


@method(shape="instructions", metrics=["norm"])
class Instructions:
    """The fields are what people may set in `[method]` of a run file."""

    layers: list[int] = setting(
        [], low=0, doc="The layers that get a direction, counted from 0; empty for the middle one."
    )

    def __post_init__(self) -> None:
        self.layers = self.layers or [hidden.layers() // 2]
        #: Sum and number of the vectors of each side.
        self.sums: dict[str, tuple[Tensor, int]] = {}

    def step(self, batch: Batch) -> None:
        for side in ("harmful", "harmless"):
            rows = batch.rows(side)
            if rows.count() > 0:
                found = hidden.capture(policy(), rows, self.layers, SITE, TOKEN).sum(1)  # [layers, dimension]
                before = self.sums.get(side)
                total = found if before is None else before[0] + found
                self.sums[side] = total, rows.count() + (before[1] if before else 0)

    def finish(self) -> None:
        if len(self.sums) < 2:
            raise Error("texts of both sides are needed; a run that was resumed has to start anew")
        means = {side: total / count for side, (total, count) in self.sums.items()}
        directions = self.direction(means["harmful"], means["harmless"])
        for place, layer in enumerate(self.layers):
            hidden.publish(layer, SITE, TOKEN, directions.slice(0, place, 1).squeeze(0), 1.0)
        metric("norm", directions.norm(1).mean())

    def direction(self, harmful: Tensor, harmless: Tensor) -> Tensor:
        """The direction of each layer from the means of both sides, all of them `[layers, dimension]`."""
        return harmful - harmless
