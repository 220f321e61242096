"""What is claimed of the method, with a host of its own; `tunebox test examples/10-python` runs it."""

import unittest

from tunebox.bench import Bench, BenchError

import dpo_python  # noqa: F401  declares the method

PAIR = {"prompt": "The sea is", "chosen": " calm", "rejected": " loud"}


class TestDpo(unittest.TestCase):
    def test_the_loss_of_the_first_step_is_that_of_equal_answers(self) -> None:
        with Bench(records=[PAIR]) as run:
            self.assertAlmostEqual(run.step().metrics["loss"], 0.6931, places=3)

    def test_the_margin_grows(self) -> None:
        with Bench(records=[PAIR], set={"train.rate": 0.01}) as run:
            for _ in range(3):
                run.step()
            self.assertGreater(run.report.metrics["rewards-margins"], 0.0)

    def test_a_setting_out_of_range_is_refused(self) -> None:
        with self.assertRaisesRegex(BenchError, "beta"), Bench(records=[PAIR], settings={"beta": -1.0}):
            pass
