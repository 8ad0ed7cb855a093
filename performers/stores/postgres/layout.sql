-- Sessions, their entries, leases and checkpoints. Names are bytes of UTF-8: text holds no nul, and bytes are
-- ordered as the names are, in any locale.

create sequence stamps;

create table sessions (
    session bytea primary key,
    id bigint generated always as identity,
    incarnation text not null,
    length bigint not null,
    created double precision not null,
    updated double precision not null,
    -- In which order the sessions were written: the one with the highest last.
    stamp bigint not null,
    -- The transaction that wrote last. Stamps are taken in another order than transactions end in, so `news`
    -- asks for those that had not ended when it was asked before.
    writer xid8 not null,
    about bytea not null
) with (fillfactor = 70);

create index sessions_by_stamp on sessions (stamp);
create index sessions_by_writer on sessions (writer);

-- The *token* is that of the append: one of which no answer came is known by it again.
create table entries (
    id bigint not null, -- of the session
    number bigint not null,
    token bigint not null,
    body bytea not null,
    primary key (id, number)
);

-- By name and not by id: a lease is taken before a session has its first entry.
create table leases (session bytea primary key, body bytea not null);

create table checkpoints (
    id bigint not null, -- of the session
    position bigint not null,
    body bytea not null,
    primary key (id, position)
);

-- By bytes, as sessions are. They outlive the sessions.
create table meters (name bytea primary key, body bytea not null);

-- The transactions that deleted sessions; the latest at least.
create table deletions (writer xid8 not null);


-- Appends to several sessions: for each the name, the incarnation (empty for any), the length that is
-- expected, how many of the *bodies* are added, and the summary. *kept* says whether that was done; *there* and
-- *actual* are the incarnation and the length then. One that is refused changes nothing and spoils no other.
create function append(
    names bytea[], known text[], expected bigint[], counts bigint[], summaries bytea[], bodies bytea[], tokens bigint[]
) returns table (place bigint, kept boolean, there text, actual bigint) language plpgsql as $$
declare
    ends bigint[] := array(
        select sum(u.count) over (order by u.nth) from unnest(counts) with ordinality as u (count, nth)
    );
    at double precision;
    owner bigint;
begin
    -- By name, so that processes that append to the same sessions wait for each other in one order.
    for place in select u.nth from unnest(names) with ordinality as u (name, nth) order by u.name, u.nth loop
        loop
            at := extract(epoch from clock_timestamp());
            if counts[place] = 0 then
                update sessions as s set about = coalesce(summaries[place], s.about)
                where s.session = names[place] and s.length = expected[place]
                    and known[place] in ('', s.incarnation)
                returning s.id, s.incarnation, s.length into owner, there, actual;
            else
                update sessions as s set
                    length = s.length + counts[place],
                    updated = greatest(at, s.updated),
                    stamp = nextval('stamps'),
                    writer = pg_current_xact_id(),
                    about = coalesce(summaries[place], s.about)
                where s.session = names[place] and s.length = expected[place]
                    and known[place] in ('', s.incarnation)
                returning s.id, s.incarnation, s.length into owner, there, actual;
                if not found and expected[place] = 0 and known[place] = '' then
                    insert into sessions (session, incarnation, length, created, updated, stamp, writer, about)
                    values (
                        names[place], replace(gen_random_uuid()::text, '-', ''), counts[place], at, at,
                        nextval('stamps'), pg_current_xact_id(), coalesce(summaries[place], '')
                    ) on conflict do nothing
                    returning id, incarnation, length into owner, there, actual;
                end if;
            end if;
            kept := found;
            if kept then
                insert into entries
                select owner, expected[place] + u.nth - 1, tokens[place], u.body
                from unnest(bodies[ends[place] - counts[place] + 1:ends[place]])
                    with ordinality as u (body, nth);
                exit;
            end if;
            select s.id, s.incarnation, s.length into owner, there, actual
            from sessions as s where s.session = names[place];
            there := coalesce(there, '');
            actual := coalesce(actual, 0);
            -- Sent once more, since no answer came: the first time it was done.
            kept := exists (
                select from entries as e
                where e.id = owner and e.number = expected[place] and e.token = tokens[place] and counts[place] > 0
            );
            exit when kept or actual <> expected[place] or known[place] not in ('', there) or counts[place] = 0;
            -- The one that was in the way was deleted meanwhile.
        end loop;
        return next;
    end loop;
end
$$;

create function forget(name bytea, known text) returns table (deleted boolean, there text) language plpgsql as $$
declare
    owner bigint;
begin
    select s.id, s.incarnation into owner, there from sessions as s where s.session = name for update;
    there := coalesce(there, '');
    deleted := owner is not null and known in ('', there);
    if deleted then
        delete from sessions where session = name;
        delete from entries where id = owner;
        delete from checkpoints where id = owner;
        insert into deletions values (pg_current_xact_id());
        -- Where this one is known, those before it are. One that another process is about to delete stays.
        delete from deletions where ctid in (
            select ctid from deletions where writer < pg_current_xact_id() for update skip locked
        );
    end if;
    if deleted or known = '' then
        -- Also of a session without entries: a lease is taken before the first one is written.
        delete from leases where session = name;
    end if;
    return next;
end
$$;

-- The incarnation of a session, empty for none, which is not deleted before the transaction ends.
create function incarnation_of(name bytea) returns text language sql as $$
    select coalesce((select incarnation from sessions where session = name for key share), '')
$$;

create function lease(name bytea, held bytea, wanted bytea, known text)
returns table (body bytea, there text) language plpgsql as $$
begin
    -- A lease may be lost with the power: what ends all processes at once ends their leases, too.
    perform set_config('synchronous_commit', 'off', true);
    if known <> '' then
        there := incarnation_of(name);
        if there <> known then
            return next;
            return;
        end if;
    end if;
    if held is not distinct from wanted then
        select l.body into body from leases as l where l.session = name;
    elsif held is null then
        insert into leases values (name, wanted) on conflict do nothing;
        select l.body into body from leases as l where l.session = name;
    elsif wanted is null then
        delete from leases as l where l.session = name and l.body = held;
        select l.body into body from leases as l where l.session = name;
    else
        update leases as l set body = wanted where l.session = name and l.body = held;
        select l.body into body from leases as l where l.session = name;
    end if;
    return next;
end
$$;

-- The places of those that were refused.
create function renew(names bytea[], held bytea[], wanted bytea[]) returns setof bigint language sql as $$
    select u.nth
    from (
        select * from unnest(names, held, wanted) with ordinality as u (name, held, wanted, nth) order by name
    ) as u
    cross join lateral lease(u.name, u.held, u.wanted, '') as l
    where l.body is distinct from u.wanted
$$;

-- What was there before, and the time.
create function meter(label bytea, held bytea, wanted bytea)
returns table (body bytea, at double precision) language plpgsql as $$
begin
    -- As of a lease.
    perform set_config('synchronous_commit', 'off', true);
    loop
        select m.body into body from meters as m where m.name = label for update;
        exit when body is distinct from held or held is not distinct from wanted;
        if wanted is null then
            delete from meters as m where m.name = label;
            exit;
        elsif held is not null then
            update meters as m set body = wanted where m.name = label;
            exit;
        end if;
        insert into meters values (label, wanted) on conflict do nothing;
        exit when found;
        -- Another process was faster: it is looked at again.
    end loop;
    at := extract(epoch from clock_timestamp());
    return next;
end
$$;

create function keep_checkpoint(name bytea, place bigint, made bytea, first bigint, known text)
returns table (there text) language plpgsql as $$
declare
    owner bigint;
begin
    -- It can be made again.
    perform set_config('synchronous_commit', 'off', true);
    select s.id, s.incarnation into owner, there from sessions as s where s.session = name for key share;
    there := coalesce(there, '');
    if owner is not null and known in ('', there) then
        delete from checkpoints where id = owner and not (position >= first and position < place);
        insert into checkpoints values (owner, place, made)
        on conflict (id, position) do update set body = excluded.body;
    end if;
    return next;
end
$$;

-- When a process is wanted for a session, in seconds since the epoch.
create table deadlines (
    session bytea primary key references sessions on delete cascade,
    due double precision not null
);

create index deadlines_by_due on deadlines (due);

-- Keeps *due* as the deadline of a session that is there, null for none; *there* is its incarnation.
create function set_deadline(name bytea, moment double precision, known text) returns table (there text)
language plpgsql as $$
begin
    there := incarnation_of(name);
    if there = '' or known not in ('', there) then
        return next;
        return;
    end if;
    if moment is null then
        delete from deadlines where session = name;
    else
        insert into deadlines values (name, moment) on conflict (session) do update set due = excluded.due;
    end if;
    return next;
end
$$;
