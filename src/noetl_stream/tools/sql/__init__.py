"""What the SQL kinds share."""
