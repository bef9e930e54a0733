"""The evaluation of templates in separate processes."""
