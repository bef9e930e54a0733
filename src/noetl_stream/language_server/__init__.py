"""``noetl-stream lsp``: the language server protocol around :mod:`noetl_stream.playbook.editing`."""
