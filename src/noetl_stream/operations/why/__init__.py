"""``why``: the waits of an execution, or the reasons for its end."""
