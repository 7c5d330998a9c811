"""Validation errors as sentences: the kinds of error that a file can cause."""

from __future__ import annotations

from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cgr.lab.validation import sentence, shown


class Sample(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    count: Annotated[int, Field(ge=1)] = 1
    share: Annotated[float, Field(le=1)] = 0.0
    word: str = ""
    flag: bool = False
    choice: Literal["a", "b"] = "a"
    pair: tuple[int, int] = (0, 0)
    required: int


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", "the field 'required' is missing."),
        ('{"required": 1, "extra": 2}', "there is no field 'extra'."),
        ('{"required": "1"}', "required must be a whole number, not '1'."),
        ('{"required": 1, "count": 0}', "count must be 1 or more, not 0."),
        ('{"required": 1, "share": 1.5}', "share must be at most 1, not 1.5."),
        ('{"required": 1, "share": NaN}', "share must be a finite number, not nan."),
        ('{"required": 1, "word": 3}', "word must be text, not 3."),
        ('{"required": 1, "flag": 1}', "flag must be true or false, not 1."),
        ('{"required": 1, "choice": "c"}', "choice must be 'a' or 'b', not 'c'."),
        ('{"required": 1, "pair": 1}', "pair must be a list, not 1."),
        ('{"required": 1, "pair": [1]}', "pair lacks a value."),
        ('{"required": 1, "pair": [1, 2, 3]}', "pair must be a list of 2, not [1, 2, 3]."),
    ],
)
def test_each_kind_of_error_is_one_sentence(text: str, expected: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Sample.model_validate_json(text)
    (problem,) = caught.value.errors()
    assert sentence(problem, str(problem["loc"][0])) == expected


def test_a_long_value_is_shortened() -> None:
    assert shown("x" * 100) == "'" + "x" * 36 + "..."
