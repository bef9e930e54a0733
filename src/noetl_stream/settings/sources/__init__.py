"""Where settings come from: the environment, files of settings, files of secrets."""
