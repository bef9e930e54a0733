"""What operations show of an execution, from its row and its journal."""
