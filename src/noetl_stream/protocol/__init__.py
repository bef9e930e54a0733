"""What is on the wire and in the tables: subjects, rows, signatures, and who may use which subject (PROTOCOL)."""
