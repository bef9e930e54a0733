select noetl.drop_empty_months()
