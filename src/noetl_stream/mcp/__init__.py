"""Tools for agents (Model Context Protocol): few verbs of the operations, in answers that a model can hold."""
