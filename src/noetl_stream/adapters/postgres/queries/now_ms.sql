select (extract(epoch from clock_timestamp()) * 1000)::bigint
