"""``noetl-stream lsp``: the language server protocol around what :mod:`noetl_stream.playbook.editing` answers."""
