"""Tools for agents (Model Context Protocol): a few verbs of the operations, with answers of a size fit for a model."""
