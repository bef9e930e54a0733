"""Templates (LANGUAGE §2): compile once, render often. Pure and deterministic: no IO, clock or randomness."""

from noetl_stream.template.compile.compiler import compile_guard, compile_template, compile_text
from noetl_stream.template.compile.findings import Bindings
from noetl_stream.template.failures import ExpressionError, ReferenceNeeded, TemplateFinding, TemplateProblem
from noetl_stream.template.runtime.evaluation import Guard, Template, TemplateText, holds, render, render_number
from noetl_stream.template.runtime.meter import Budget, OverBudget
from noetl_stream.template.runtime.scope import ABSENT, ResultView, Scope

__all__ = [
    "ABSENT",
    "Bindings",
    "Budget",
    "ExpressionError",
    "Guard",
    "OverBudget",
    "ReferenceNeeded",
    "ResultView",
    "Scope",
    "Template",
    "TemplateFinding",
    "TemplateProblem",
    "TemplateText",
    "compile_guard",
    "compile_template",
    "compile_text",
    "holds",
    "render",
    "render_number",
]
