"""How a request becomes an answer."""
