"""One text at work: evaluates it, and says in its own terms what failed."""

from __future__ import annotations

import re
from typing import Final

from jinja2 import TemplateError

from noetl_stream.template.compile.sandboxed import Evaluate
from noetl_stream.template.failures import EvaluationFailure, ExpressionError
from noetl_stream.template.runtime.access import plain
from noetl_stream.template.runtime.meter import Meter
from noetl_stream.template.runtime.scope import JSON, Scope

_RAISED_BY_EXPRESSIONS: Final = (
    TemplateError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    NameError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What Jinja's code, its filters and Python's operators raise for values that do not fit."""

_WRONG_CALL: Final = re.compile(r"^(?:\w+\.)*_?(?:sync_)?(?:do_|test_|is_|or_)?(\w+)\(\) (?=missing|takes|got)")
"""How Python says that a function was given other arguments than it takes; a template knows it by a shorter name."""


class Expression:
    """A text and what evaluates it.

    Args:
        text: As written; error messages show it.
        evaluate: Gives its value, not yet plain.
    """

    __slots__ = ("_evaluate", "text")

    def __init__(self, text: str, evaluate: Evaluate) -> None:
        self.text: Final = text
        self._evaluate: Final = evaluate

    def value(self, scope: Scope, meter: Meter) -> JSON:
        """Its value as plain JSON.

        Raises:
            ExpressionError: if it cannot be evaluated.
            ReferenceNeeded: if a value it reads must be loaded first.
        """
        try:
            return plain(self._evaluate(scope, meter), scope.references, meter)
        except EvaluationFailure as failure:
            raise ExpressionError(failure.message, expression=self.text, hint=failure.hint) from None
        except _RAISED_BY_EXPRESSIONS as error:
            raise ExpressionError(_in_our_words(error), expression=self.text) from error

    def truth(self, scope: Scope, meter: Meter) -> bool:
        """Whether it holds.

        Raises:
            ExpressionError: if it cannot be evaluated, or gives text: ``"false"`` would be true.
            ReferenceNeeded: if a value it reads must be loaded first.
        """
        try:
            result = self._evaluate(scope, meter)
            if result is True or result is False:
                return result is True
            if not isinstance(result, str):
                return bool(plain(result, scope.references, meter))
        except EvaluationFailure as failure:
            raise ExpressionError(failure.message, expression=self.text, hint=failure.hint) from None
        except _RAISED_BY_EXPRESSIONS as error:
            raise ExpressionError(_in_our_words(error), expression=self.text) from error
        hint = "compare it, as in `== 'yes'`"
        raise ExpressionError("a guard gave text, which is neither true nor false", expression=self.text, hint=hint)


def _in_our_words(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "the value or the template nests too deeply"
    if isinstance(error, MemoryError):
        return "there is not enough memory for the value"
    if isinstance(error, ZeroDivisionError):
        return "division by zero"
    said = (str(error) or type(error).__name__).rstrip(".")
    return _WRONG_CALL.sub(r"`\1` ", said) if isinstance(error, TypeError) else said
