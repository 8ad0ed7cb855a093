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
