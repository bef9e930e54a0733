select noetl.make_months(:ahead)
