"""Templates (LANGUAGE §2): compile once, render often. Pure and deterministic: no IO, clock or randomness.

Modules that need Jinja are imported when they are first used: reading a journal does not need it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from noetl_stream.template.failures import (
    ExpressionError,
    ReferenceNeeded,
    TemplateFinding,
    TemplateProblem,
    ValueNeeded,
)
from noetl_stream.template.runtime.meter import Budget, OverBudget
from noetl_stream.template.runtime.scope import ABSENT, ResultView, Scope

if TYPE_CHECKING:
    from noetl_stream.template.compile.compiler import compile_guard, compile_template, compile_text
    from noetl_stream.template.compile.parsing import Bindings
    from noetl_stream.template.runtime.evaluation import (
        Guard,
        Template,
        TemplateText,
        holds,
        render,
        render_each,
        render_number,
    )
else:
    _LATER = {
        **dict.fromkeys(("compile_guard", "compile_template", "compile_text"), "compile.compiler"),
        "Bindings": "compile.parsing",
        **dict.fromkeys(
            ("Guard", "Template", "TemplateText", "holds", "render", "render_each", "render_number"),
            "runtime.evaluation",
        ),
    }

    def __getattr__(name: str) -> Any:
        module = _LATER.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"{__name__}.{module}"), name)
        return value


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
    "ValueNeeded",
    "compile_guard",
    "compile_template",
    "compile_text",
    "holds",
    "render",
    "render_each",
    "render_number",
]
