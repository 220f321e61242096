import unittest

from passes_tests import PassesTests

TESTS = "double(2) == 4\ndouble('a') == 'aa'"


class Verdicts(unittest.TestCase):
    def verdict(self, completion: str, tests: str = TESTS, partial: bool = False) -> float | None:
        return PassesTests(partial=partial).verify("", completion, tests)

    def test_code_that_passes_all_tests_gets_the_reward(self) -> None:
        self.assertEqual(self.verdict("Here it is:\n```python\ndef double(x):\n    return x + x\n```\nDone."), 1.0)
        self.assertEqual(self.verdict("double = lambda x: x * 2"), 1.0)

    def test_some_passed_tests_count_only_if_asked_for(self) -> None:
        self.assertEqual(self.verdict("def double(x): return x + 2"), 0.0)
        self.assertEqual(self.verdict("def double(x): return x + 2", partial=True), 0.5)

    def test_a_record_without_tests_cannot_be_judged(self) -> None:
        self.assertIsNone(self.verdict("double = abs", ""))
        self.assertIsNone(self.verdict("double = abs", "double(2)"))

    def test_values_have_the_type_of_the_literal(self) -> None:
        self.assertEqual(self.verdict("f = lambda: 1", "f() == True"), 0.0)
        self.assertEqual(self.verdict("f = lambda: (1, {'a': [2.0]})", "f() == (1, {'a': [2.0]})"), 1.0)

    def test_ordinary_code_may_use_modules_and_classes(self) -> None:
        code = "import math\nfrom collections import Counter\nclass Box:\n    def __init__(self, x): self.x = x\n" \
               "def f(x): return math.isqrt(Box(x).x) + Counter('aa')['a']"
        self.assertEqual(self.verdict(code, "f(16) == 6"), 1.0)


if __name__ == "__main__":
    unittest.main()
