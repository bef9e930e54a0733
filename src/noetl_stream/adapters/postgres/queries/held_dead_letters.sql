select count(*), coalesce(sum(octet_length(body)), 0)::bigint from noetl.dead_letter
