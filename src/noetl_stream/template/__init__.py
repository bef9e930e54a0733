"""Templates (LANGUAGE §2): compile once, render often. Pure and deterministic: no IO, clock or randomness."""

from noetl_stream.template.compile.compiler import compile_guard, compile_template
from noetl_stream.template.compile.findings import Bindings
from noetl_stream.template.failures import ExpressionError, ReferenceNeeded, TemplateFinding, TemplateProblem
from noetl_stream.template.runtime.evaluation import Guard, Template, holds, render
from noetl_stream.template.runtime.scope import ABSENT, ResultView, Scope

__all__ = [
    "ABSENT",
    "Bindings",
    "ExpressionError",
    "Guard",
    "ReferenceNeeded",
    "ResultView",
    "Scope",
    "Template",
    "TemplateFinding",
    "TemplateProblem",
    "compile_guard",
    "compile_template",
    "holds",
    "render",
]
