"""Facts and orders: the values every other part exchanges. Nothing here does IO or knows a clock."""
