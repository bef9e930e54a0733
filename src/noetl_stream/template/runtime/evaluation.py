"""Evaluates one text, and turns failures into errors that quote it."""

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
"""Raised by Jinja's code, its filters and Python's operators for unsuitable values."""

_WRONG_CALL: Final = re.compile(r"^(?:\w+\.)*_?(?:sync_)?(?:do_|test_|is_|or_)?(\w+)\(\) (?=missing|takes|got)")
"""Python's message for a call with wrong arguments; the group is the name that templates use."""


class Expression:
    """A text and the function that evaluates it.

    Args:
        text: The text as written, for error messages.
        evaluate: Returns its value, which may not be plain JSON.
    """

    __slots__ = ("_evaluate", "text")

    def __init__(self, text: str, evaluate: Evaluate) -> None:
        self.text: Final = text
        self._evaluate: Final = evaluate

    def value(self, scope: Scope, meter: Meter) -> JSON:
        """The value as plain JSON.

        Raises:
            ExpressionError: The text cannot be evaluated.
            ReferenceNeeded: A value that it reads must be loaded first.
        """
        try:
            return plain(self._evaluate(scope, meter), scope.references, meter)
        except EvaluationFailure as failure:
            raise ExpressionError(failure.message, expression=self.text, hint=failure.hint) from None
        except _RAISED_BY_EXPRESSIONS as error:
            raise ExpressionError(_message_of(error), expression=self.text) from error

    def truth(self, scope: Scope, meter: Meter) -> bool:
        """Whether the value is true.

        Raises:
            ExpressionError: The text cannot be evaluated, or its value is text: ``"false"`` would be true.
            ReferenceNeeded: A value that it reads must be loaded first.
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
            raise ExpressionError(_message_of(error), expression=self.text) from error
        hint = "compare it, as in `== 'yes'`"
        raise ExpressionError("the guard is text, which is neither true nor false", expression=self.text, hint=hint)


def _message_of(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "the value or the template is nested too deeply"
    if isinstance(error, MemoryError):
        return "not enough memory for the value"
    if isinstance(error, ZeroDivisionError):
        return "division by zero"
    message = (str(error) or type(error).__name__).rstrip(".")
    return _WRONG_CALL.sub(r"`\1` ", message) if isinstance(error, TypeError) else message
