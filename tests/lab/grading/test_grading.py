from __future__ import annotations

import os
import subprocess
import sys
import threading
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cgr.errors import UsageError
from cgr.lab import grading
from cgr.lab.grading import FORMATS, check_many, clean_gold, is_right, is_valid
from cgr.records import AnswerFormat


@pytest.mark.parametrize(
    ("answer", "gold", "right"),
    [
        ("25", "25", True),
        (" 25\n", "25", True),
        ("025", "25", True),
        ("25", "025", True),
        ("+25", "25", True),
        ("000", "0", True),
        ("-0", "0", True),
        ("26", "25", False),
        ("-25", "25", False),
        ("2", "25", False),
        ("1000", "1,000", True),
        ("336", "336^\\circ", True),
        ("336", "336^{\\circ}", True),
        ("27", "27.0", True),
        ("9" * 5000, "25", False),
    ],
)
def test_integers_are_compared_exactly(answer: str, gold: str, right: bool) -> None:
    assert is_valid(answer, "integer")
    assert is_right(answer, gold, "integer") is right


@pytest.mark.parametrize(
    "answer",
    ["", " ", "25.0", "25.", "1,000", "336^\\circ", "\\text{25}", "$25$", "2 5", "２５", "²", "1_0", "0x19", "+", "x"],
)
def test_an_answer_that_is_not_an_integer_is_invalid_and_wrong(answer: str) -> None:
    assert not is_valid(answer, "integer")
    assert not any(is_right(answer, gold, "integer") for gold in ("25", "1000", "336", "2", "10", "0"))


@settings(deadline=None)
@given(st.integers(-2000, 2000), st.integers(-2000, 2000), st.integers(0, 4))
def test_equal_integers_are_correct(left: int, right: int, zeros: int) -> None:
    written = f"{'-' if left < 0 else ''}{'0' * zeros}{abs(left)}"
    assert is_right(written, str(right), "integer") is (left == right)


@pytest.mark.parametrize(
    ("answer", "gold", "right"),
    [
        ("2125", "2,125", True),
        ("2{,}125", "2125", True),
        ("2\\,125", "2125", True),
        ("2 125", "2125", True),
        ("1,450,000", "1450000", True),
        ("1,45", "145", False),
        ("27.0", "27", True),
        ("27.", "27", True),
        (".5", "0.50", True),
        ("1/2", "0.5", True),
        ("\\frac{1}{2}", "0.5", True),
        ("-\\dfrac{1}{2}", "-0.5", True),
        ("1/3", "0.333333", False),
        ("\u22123", "-3", True),
        ("\\$18", "18", True),
        ("$18.50$", "18.5", True),
        ("50%", "50", True),
        ("50\\%", "0.5", True),
        ("0.5", "50%", True),
        ("50\\%", "50%", True),
        ("50%", "5", False),
        ("0.5%", "50%", False),
        ("1000,99", "1000.99", True),
        ("1,000", "1.000", False),
        ("336^\\circ", "336", True),
        ("1/0", "1", False),
        ("2^{10}", "1024", True),
        ("\\sqrt{16}", "4", True),
        ("3\\sqrt{2", "3", False),
    ],
)
def test_numbers_are_compared_by_value(answer: str, gold: str, right: bool) -> None:
    assert is_right(answer, gold, "number") is right


@settings(deadline=None)
@given(st.fractions(), st.fractions())
def test_equal_fractions_are_correct(left: Fraction, right: Fraction) -> None:
    assert is_right(str(left), str(right), "number") is (left == right)
    assert is_right(str(left), str(left), "number")


@settings(deadline=None)
@given(st.integers(0, 10**12))
def test_thousands_may_have_commas(number: int) -> None:
    assert is_right(f"{number:,}", str(number), "number")
    assert clean_gold(f"{number:,}", "number") == str(number)


@pytest.mark.parametrize(
    ("answer", "letter"),
    [
        ("B", "B"),
        ("b", "B"),
        ("(B)", "B"),
        ("B.", "B"),
        ("\\text{B}", "B"),
        ("\\textbf{(B)}", "B"),
        ("$B$", "B"),
        ("B) because it is so", "B"),
        ("B: 12", "B"),
        ("", None),
        ("AB", None),
        ("a cat", None),
        ("7", None),
        ("Bad", None),
    ],
)
def test_choices_are_letters(answer: str, letter: str | None) -> None:
    assert is_valid(answer, "choice") is (letter is not None)
    assert is_right(answer, "B", "choice") is (letter == "B")
    assert not is_right(answer, "C", "choice")


@pytest.mark.parametrize(
    ("answer", "gold", "right"),
    [
        ("\\frac{14}{3}", "\\dfrac{14}{3}", True),
        ("\\left( 3, \\frac{\\pi}{2} \\right)", "(3,\\frac{\\pi}{2})", True),
        ("\\boxed{p-q}", "p - q", True),
        ("q+p", "p+q", True),
        ("q-p", "p-q", False),
        ("2\\sqrt{2}", "\\sqrt{8}", True),
        ("0.5", "\\frac12", True),
        ("x=5", "5", True),
        ("5 \\text{ cm}", "5", True),
        ("1, 2", "2, 1", True),
        ("\\text{even}", "even", True),
        ("7", "8", False),
        ("1 000", "0", False),
        ("1 2", "12", False),
        ("\\leftarrow", "\\rightarrow", False),
        ("The answer is $7$", "7", True),
        ("1 - \\frac{1}{\\mathrm{e}}", "1 - \\frac{1}{e}", True),
        ("1 + \\frac{1}{\\mathrm{e}}", "1 - \\frac{1}{\\mathrm{e}}", False),
        ("3\\sqrt{2", "3", False),
        ("\\$18.90", "\\frac{189}{10}", True),
        ("", "5", False),
        ("\u0000", "5", False),
        ("}{", "5", False),
    ],
)
def test_mathematical_answers_are_compared_by_meaning(answer: str, gold: str, right: bool) -> None:
    assert is_right(answer, gold, "math") is right


@pytest.mark.parametrize(
    ("answer", "gold", "right"),
    [
        ("4210_7", "4210_5", False),
        ("4210_{5}", "4210_5", True),
        ("4210_{\\text{five}}", "4210_5", True),
        ("4210\\text{ (base 5)}", "4210_5", True),
        ("$4210_5$", "4210_{(5)}", True),
        ("4211_5", "4210_5", False),
        ("-12_3", "12_3", False),
        ("11_2", "3_{10}", True),  # the same value
        ("1a3_{16}", "1A3_{16}", True),
        ("4289_7", "4289_5", False),  # digits that do not exist in these bases
        ("4289_7", "4289_{7}", True),
        ("4210", "4210_5", True),  # the question names the base
        ("a_3", "a_4", False),
    ],
)
def test_numbers_in_different_bases_are_different(answer: str, gold: str, right: bool) -> None:
    assert is_right(answer, gold, "math") is right


@pytest.mark.parametrize("gold", ["-1,2,-2", "-1, 2, -2", "\\{-1,2,-2\\}", "The roots are -1,2,-2", "x=-1,2,-2"])
def test_a_list_of_solutions_is_a_set(gold: str) -> None:
    for answer in ("-1,2,-2", "-2, -1, 2", "x=-1, x=2, x=-2", "\\{2, -1, -2\\}", "-1, \\pm 2"):
        assert is_right(answer, gold, "math"), answer
    for answer in ("2", "-1", "-1.2", "-1,2", "-1,2,3"):
        assert not is_right(answer, gold, "math"), answer


def test_thousands_in_a_sentence_are_not_a_list() -> None:
    assert is_right("1234", "There are exactly 1,234 of them", "math")


@settings(deadline=None)
@given(st.text(alphabet="0123456789.,%/-+ABab(){}\\ \u2028²", max_size=8), st.sampled_from(["integer", "choice"]))
def test_a_correct_answer_is_valid(answer: str, format: AnswerFormat) -> None:
    gold = "B" if format == "choice" else "12"
    assert is_valid(answer, format) or not is_right(answer, gold, format)


@pytest.mark.parametrize("format", FORMATS)
def test_an_empty_answer_is_never_correct(format: AnswerFormat) -> None:
    gold = "A" if format == "choice" else "7"
    assert not is_valid("  ", format)
    assert not is_right("  ", gold, format)


@pytest.mark.parametrize(
    ("gold", "format"),
    [("x", "integer"), ("2.5", "integer"), ("50%", "integer"), ("x", "number"), ("AB", "choice"), ("", "math")],
)
def test_a_gold_that_does_not_match_its_format_is_an_error(gold: str, format: AnswerFormat) -> None:
    assert clean_gold(gold, format) is None
    with pytest.raises(UsageError) as caught:
        is_right("7", gold, format)
    assert "integer, number, choice, math" in caught.value.hint


def test_check_many_keeps_the_order_and_checks_each_pair_once() -> None:
    grading._same_by_math_verify.cache_clear()
    pairs: list[tuple[str, str, AnswerFormat]] = [("b+a", "a+b", "math"), ("7", "8", "integer"), ("b+a", "a+b", "math")]
    assert check_many(iter(pairs * 10)) == [True, False, True] * 10
    info = grading._same_by_math_verify.cache_info()
    assert (info.hits, info.misses) == (0, 1)


def test_checking_works_off_the_main_thread() -> None:
    verdicts: list[bool] = []
    thread = threading.Thread(target=lambda: verdicts.append(is_right("(x+1)^2", "x^2+2x+1", "math")))
    thread.start()
    thread.join()
    assert verdicts == [True]


def test_the_worker_ends_with_its_parent() -> None:
    script = (
        "from cgr.lab import grading; grading.is_right('b+a', 'a+b', 'math'); print(grading.shared_worker()._process.pid)"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.stdout), 0)


def test_importing_grading_does_not_import_sympy() -> None:
    script = "import sys, cgr.lab.grading; print([name for name in ('sympy', 'math_verify') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
