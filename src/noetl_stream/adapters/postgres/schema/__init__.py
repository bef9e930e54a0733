"""The schema ``noetl``: its migrations, its roles and their grants."""
