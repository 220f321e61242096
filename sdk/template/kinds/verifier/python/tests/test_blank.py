import unittest

from blank import Mentions


class Verdicts(unittest.TestCase):
    def verdict(self, completion: str, answer: str) -> float | None:
        return Mentions(partial=0.5).verify("What is 9 + 12?", completion, answer)

    def test_the_answer_alone_gets_the_whole_reward(self) -> None:
        self.assertEqual(self.verdict(" 21\n", "21"), 1.0)

    def test_the_answer_among_other_words_gets_a_part(self) -> None:
        self.assertEqual(self.verdict("It is 21.", "21"), 0.5)
        self.assertEqual(self.verdict("It is 210.", "21"), 0.0)

    def test_a_record_without_an_answer_gets_no_verdict(self) -> None:
        self.assertIsNone(self.verdict("21", ""))


if __name__ == "__main__":
    unittest.main()
