select to_regclass('noetl.migration') is not null
