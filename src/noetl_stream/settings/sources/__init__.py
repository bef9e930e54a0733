"""The sources of settings: the environment, settings files, files of secrets."""
