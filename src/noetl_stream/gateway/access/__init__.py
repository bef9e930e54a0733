"""Authentication, authorization and the audit of calls."""
