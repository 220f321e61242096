"""What this method does, in a sentence.

L = −Σ A · log π(y) / completions, with A = reward − mean reward of the completions of the prompt: completions that
beat the others of their prompt become likelier. Put an advantage of your own into `advantage`.
"""

from tunebox import Batch, Sampler, Tensor, add_metric, backward, generate, loss, method, policy, reward
from tunebox import score_for_learning, setting


@method(shape="prompts", metrics=["loss", "reward"])
class Rewarded:
    """The fields are what people may set in `[method]` of a run file."""

    completions: int = setting(4, low=2, high=256, doc="Completions of every prompt.")

    def step(self, batch: Batch) -> None:
        sampler = Sampler()
        sampler.completions(self.completions)
        written = generate(policy(), batch.rows("prompt"), sampler)
        # What the verifiers of the run say, by their weights; an answer that one cannot judge gets 0 from it.
        rewards = (reward.judge(batch, written).replace_non_finite(0.0) * reward.weights()).sum(1)  # [rows]
        # The completions of the whole update, so that the size of a micro-batch changes nothing.
        count = batch.window_size() * self.completions

        scores = score_for_learning(written.rows())
        total = -loss.row_mean(self.advantage(rewards) * loss.sequence_logprob(scores), count)
        backward(total)

        add_metric("loss", total)
        add_metric("reward", loss.row_mean(rewards, count))

    def advantage(self, rewards: Tensor) -> Tensor:
        """How much better each completion is than those of the same prompt: `[rows]`, like `rewards`."""
        rows = rewards.shape()[0]
        groups = rewards.reshape([rows // self.completions, self.completions])
        return (groups - groups.mean(1, keep=True)).reshape([rows])
