-- What a call makes in secret is made of the seed that its first attempt drew. Source: docs/adr/0007-the-gateway.md.

alter table noetl.idempotency add column seed bytea;
comment on column noetl.idempotency.seed is 'random, until the call is answered: a repeated attempt makes the same secret';
