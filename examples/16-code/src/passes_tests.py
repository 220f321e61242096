"""Runs the Python that a model wrote, and counts the tests of the record that it passes.

The sandbox keeps what this code does away from the machine, and `fresh` keeps it away from other verdicts. What is left is
this verdict: code that reaches the checker could give itself a reward. So it gets few builtins and modules, and no names
that lead from a value to the interpreter.
"""

import ast
import bisect
import collections
import functools
import heapq
import itertools
import math
import string
from types import CodeType, SimpleNamespace
from typing import Any

from tunebox import setting, verifier

BUILTINS = """abs all any bin bool chr complex dict divmod enumerate filter float frozenset hash hex int isinstance issubclass iter
len list map max min next object oct ord pow range repr reversed round set slice sorted str sum tuple zip super property
staticmethod classmethod type ArithmeticError AssertionError AttributeError Exception IndexError KeyError LookupError
NotImplementedError OverflowError RuntimeError StopIteration TypeError ValueError ZeroDivisionError __build_class__"""

#: Names of each module. Not all: `functools.update_wrapper`, say, copies attributes whose names are texts.
MODULES = {
    "bisect": (bisect, "bisect bisect_left bisect_right insort insort_left insort_right"),
    "collections": (collections, "Counter OrderedDict defaultdict deque"),
    "functools": (functools, "cache cmp_to_key lru_cache partial reduce"),
    "heapq": (heapq, "heapify heappop heappush heappushpop heapreplace merge nlargest nsmallest"),
    "itertools": (itertools, " ".join(name for name in dir(itertools) if not name.startswith("_"))),
    "math": (math, " ".join(name for name in dir(math) if not name.startswith("_"))),
    "string": (string, "ascii_letters ascii_lowercase ascii_uppercase digits hexdigits punctuation whitespace"),
}

#: Attributes that lead from a generator, a traceback or a function to frames and code, beside those with two underscores.
INNER = ("ag_", "co_", "cr_", "f_", "func_", "gi_", "tb_")


@verifier
class PassesTests:
    partial: bool = setting(False, doc="Whether code that passes some of the tests gets a part of the reward.")

    def verify(self, prompt: str, completion: str, answer: str) -> float | None:
        try:
            tests = [parse_test(line) for line in answer.splitlines() if line.strip()]
        except (SyntaxError, ValueError):
            return None
        if not tests:
            return None
        try:
            passed = count_passed(extract_code(completion), tests)
        except BaseException:  # noqa: BLE001  whatever the model's code raises
            return 0.0
        return passed / len(tests) if self.partial else float(passed == len(tests))


def parse_test(line: str) -> tuple[CodeType, Any]:
    """A test such as `double(2) == 4`: the code of the left side, and the value of the right one, a literal."""
    tree = ast.parse(line.strip(), mode="eval").body
    if not isinstance(tree, ast.Compare) or [type(one) for one in tree.ops] != [ast.Eq]:
        raise ValueError(line)
    return compile(ast.Expression(tree.left), "test", "eval"), ast.literal_eval(tree.comparators[0])


def extract_code(completion: str) -> str:
    """The last block between fences, or all of a completion without one."""
    parts = completion.split("```")
    if len(parts) < 3:
        return completion
    block = parts[len(parts) // 2 * 2 - 1]
    first, newline, rest = block.partition("\n")
    return rest if newline and first.strip() in ("python", "py", "") else block


def count_passed(code: str, tests: list[tuple[CodeType, Any]]) -> int:
    """Runs the code once, then the left side of each test in what it left; a test that raises is not passed."""
    tree = ast.parse(code)
    check(tree)
    names = {"__builtins__": builtins(), "__name__": "model"}
    exec(compile(tree, "model", "exec"), names)
    passed = 0
    for call, wanted in tests:
        try:
            passed += same(eval(call, names), wanted)
        except Exception:  # noqa: BLE001  the test fails, others go on
            continue
    return passed


def check(tree: ast.AST) -> None:
    """Raises `ValueError` at a name or attribute that leads into the interpreter."""
    for node in ast.walk(tree):
        names = [getattr(node, "id", None), getattr(node, "attr", None), *getattr(node, "kwd_attrs", [])]
        names += getattr(node, "names", []) if isinstance(node, ast.Global | ast.Nonlocal) else []
        for name in filter(None, names):
            if name.startswith("__") or name.startswith(INNER):
                raise ValueError(f"`{name}`")


def builtins() -> dict[str, Any]:
    """The builtins of the model's code, new ones for each run."""
    source = __builtins__ if isinstance(__builtins__, dict) else vars(__builtins__)
    modules = {name: SimpleNamespace(**{one: getattr(module, one) for one in names.split()}) for name, (module, names) in MODULES.items()}

    def find(name: str, *_: Any) -> SimpleNamespace:
        if name not in modules:
            raise ImportError(name)
        return modules[name]

    given = {name: source[name] for name in BUILTINS.split()}
    return given | {"__import__": find, "print": lambda *_, **__: None}


def same(found: Any, wanted: Any) -> bool:
    """Whether a value is the wanted literal. Types are compared first: a class of the model's may say that it equals
    everything."""
    if type(found) is not type(wanted):
        return False
    if isinstance(wanted, list | tuple):
        return len(found) == len(wanted) and all(map(same, found, wanted))
    if isinstance(wanted, set):
        return all(type(one) in (bool, float, int, str) for one in found) and found == wanted
    if isinstance(wanted, dict):
        return same(list(found), list(wanted)) and all(same(found[key], wanted[key]) for key in wanted)
    if isinstance(wanted, float):
        return math.isclose(found, wanted, rel_tol=1e-9, abs_tol=1e-9)
    return found == wanted
