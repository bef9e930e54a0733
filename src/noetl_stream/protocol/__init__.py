"""The formats on the wire and in the tables: subjects, rows, signatures, and permissions for subjects (PROTOCOL)."""
