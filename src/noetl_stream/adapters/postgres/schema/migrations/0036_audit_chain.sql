-- The audit is chained: each row has the hash of the one before it. Source: docs/reference/access.md "Audit".
--
-- Each partition has chains of its own, so that what is trimmed is always a whole chain up to an anchor. It has eight for
-- each table: a row goes to a chain that nobody is adding to at the moment, so writers need not wait for each other.

-- Rows that were there have the position 0; others get theirs from the trigger.
alter table noetl.audit
    add column lane smallint default 0,
    add column position bigint default 0,
    add column previous bytea default '';
alter table noetl.audit alter column lane drop default, alter column position drop default, alter column previous drop default;
alter table noetl.audit_answer
    add column lane smallint default 0,
    add column position bigint default 0,
    add column previous bytea default '';
alter table noetl.audit_answer
    alter column lane drop default, alter column position drop default, alter column previous drop default;
comment on column noetl.audit.lane is 'which chain of its partition it is in';
comment on column noetl.audit.position is 'its place in the chain, from 1; 0: written before there were chains';
comment on column noetl.audit.previous is 'the hash of the row before it in the chain';
create index audit_chained on noetl.audit (lane, position);
create index audit_answer_chained on noetl.audit_answer (lane, position);

create table noetl.audit_chain (
    entries          text collate "C" not null check (entries in ('call', 'answer')),
    slot             smallint not null,
    lane             smallint not null,
    position         bigint not null default 0,
    hash             bytea not null default '',
    anchor_position  bigint not null default 0,
    anchor_hash      bytea not null default '',
    unchained        bigint not null,
    primary key (entries, slot, lane)
) with (fillfactor = 20, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);
comment on table noetl.audit_chain is 'the chains of the audit: where each ends, and where it begins since entries were trimmed';
comment on column noetl.audit_chain.slot is 'the partition, audit_<slot> or audit_answer_<slot>';
comment on column noetl.audit_chain.unchained is 'the last number of entries from before there were chains';
insert into noetl.audit_chain (entries, slot, lane, unchained)
select entries, slot, lane, (select coalesce(max(number), 0) from noetl.audit)
from unnest(array['call', 'answer']) as entries, generate_series(0, 15) as slot, generate_series(0, 7) as lane;

create function noetl.audit_hash(entry noetl.audit) returns bytea language sql stable as $$
    select sha256(convert_to(jsonb_build_array(
        encode(entry.previous, 'hex'), entry.lane, entry.position, entry.number, entry.at_ms, entry.principal,
        entry.role, entry.method, entry.operation, entry.target, entry.correlation_id, entry.remote,
        entry.idempotency_key
    )::text, 'UTF8'))
$$;
create function noetl.audit_hash(entry noetl.audit_answer) returns bytea language sql stable as $$
    select sha256(convert_to(jsonb_build_array(
        encode(entry.previous, 'hex'), entry.lane, entry.position, entry.number, entry.at_ms, entry.status,
        entry.reason, entry.made, entry.left_out
    )::text, 'UTF8'))
$$;

create function noetl.chain_audit() returns trigger
language plpgsql security definer set search_path = noetl, pg_temp as $$
declare
    head audit_chain;
begin
    select * into head from audit_chain as chain
    where chain.entries = tg_argv[0] and chain.slot = (new.at_ms / 2592000000) % 16
    order by chain.lane limit 1 for update skip locked;
    if not found then -- somebody adds to each of them: wait for one
        select * into head from audit_chain as chain
        where chain.entries = tg_argv[0] and chain.slot = (new.at_ms / 2592000000) % 16
            and chain.lane = pg_backend_pid() % 8
        for update;
    end if;
    new.lane := head.lane;
    new.position := head.position + 1;
    new.previous := head.hash;
    update audit_chain as chain set position = new.position, hash = audit_hash(new)
    where chain.entries = head.entries and chain.slot = head.slot and chain.lane = head.lane;
    return new;
end $$;
comment on function noetl.chain_audit is 'adds a new row of the audit to a chain';
-- A backup that is restored brings the chains along.
create trigger chained before insert on noetl.audit
    for each row when (new.position is null) execute function noetl.chain_audit('call');
create trigger chained before insert on noetl.audit_answer
    for each row when (new.position is null) execute function noetl.chain_audit('answer');

create or replace function noetl.trim_audit(before_ms bigint) returns void
language plpgsql security definer set search_path = noetl, pg_temp set lock_timeout = '5s' as $$
declare
    period_ms constant bigint := 2592000000;
    now_ms constant bigint := extract(epoch from now()) * 1000;
    newest_ms bigint;
begin
    for trimmed in 0..15 loop
        execute format('select at_ms from noetl.audit_%s order by number desc limit 1', trimmed) into newest_ms;
        if (newest_ms / period_ms + 1) * period_ms <= least(before_ms, now_ms - period_ms) then
            begin
                execute format('truncate noetl.audit_%s, noetl.audit_answer_%s', trimmed, trimmed);
                update audit_chain set anchor_position = position, anchor_hash = hash where slot = trimmed;
            exception when lock_not_available then
                null; -- somebody reads it for long: next time
            end;
        end if;
    end loop;
end $$;
