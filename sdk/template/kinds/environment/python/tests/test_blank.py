import unittest

from blank import SecondTry


class Replies(unittest.TestCase):
    def reply(self, turns: list[str], answer: str) -> str | float | None:
        return SecondTry(late=0.5).respond("What is 9 + 12?", answer, turns)

    def test_a_right_answer_ends_the_episode(self) -> None:
        self.assertEqual(self.reply(["21"], "21"), 1.0)

    def test_a_wrong_answer_gets_one_more_turn(self) -> None:
        message = self.reply(["20"], "21")
        assert isinstance(message, str)
        self.assertEqual(self.reply(["20", message, "21"], "21"), 0.5)
        self.assertEqual(self.reply(["20", message, "22"], "21"), 0.0)

    def test_a_record_without_an_answer_gets_no_verdict(self) -> None:
        self.assertIsNone(self.reply(["21"], ""))


if __name__ == "__main__":
    unittest.main()
