-- Fencepost's gate for PostgreSQL 13 and later, version 1.
--
-- `fencepost gate install` runs this, protect.sql and rights.sql in one transaction; so does `fencepost gate install --print | psql -1 -f -`.
-- Running it again upgrades. The role that runs it owns the gate. It needs CREATE on the database and on the schema public.
--
-- What applications call is in the schema public and begins with `fencepost_`; the rest is in the schema fencepost:
--
--   fencepost_fence(resource, token [, lineage])    raise the gate; call it before you read
--   fencepost_admit(resource, token [, lineage])    the same, and let this transaction write to what is protected
--   CALL fencepost_admit_recorded(resource, token [, lineage])  admit a token that is recorded, and raise nothing
--   fencepost_highest(resource)                     the highest token so far, null if there was none
--   fencepost_protect(table, resource)              refuse writes to the table by transactions that were not admitted
--   fencepost_protect_rows(table, column [, prefix])  the same for each row, whose resource is the prefix and the column
--   fencepost_unprotect(table)
--   fencepost_rebind(resource, lineage [, highest]) for the owner: set what the gate has recorded
--
-- SQLSTATEs of our own: FP001 stale, FP002 another lineage, FP003 not admitted, FP004 not recorded. DETAIL has the facts as JSON.

SET LOCAL client_min_messages = warning;
SET LOCAL search_path = pg_catalog, pg_temp;

DO $check$
DECLARE
    owner name := (SELECT pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname = 'fencepost');
    installed int;
BEGIN
    IF current_setting('server_version_num')::int < 130000 THEN
        RAISE EXCEPTION USING ERRCODE = 'feature_not_supported',
            MESSAGE = format('the gate needs PostgreSQL 13 or later, this is %s',
                                        current_setting('server_version'));
    END IF;
    -- Two installations at a time would meet in the catalog, with an error that nobody understands.
    PERFORM pg_advisory_xact_lock(5073410938432513);
    -- Whoever owns the schema can replace what is in it.
    IF owner <> current_user THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = format('the schema fencepost belongs to the role %s; install as that role', owner);
    END IF;
    IF to_regprocedure('fencepost.version()') IS NOT NULL THEN
        installed := fencepost.version();
    END IF;
    IF installed > 1 THEN
        RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = format('the gate has version %s and this is version 1; use a newer fencepost', installed);
    END IF;
END
$check$;

CREATE SCHEMA IF NOT EXISTS fencepost;

CREATE OR REPLACE FUNCTION fencepost.version() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 1';

-- One row a resource, for ever: a mark that was removed would let every old token in.
CREATE TABLE IF NOT EXISTS fencepost.guard (
    resource text COLLATE "C" PRIMARY KEY,
    highest bigint CHECK (highest > 0),
    lineage text
)
-- Raising changes no indexed column, so with room in its page it needs no new index entry.
WITH (fillfactor = 70);

-- Judges a pass and raises the mark. Afterwards the caller's transaction holds a lock until it ends: a shared one if the
-- token was the highest already, so that a holder's transactions run side by side and write nothing here; otherwise an
-- exclusive one. So a transaction that has passed ends before a successor's fence returns.
--
-- The lock is an advisory one and not the row's, for two reasons. Those who wait for a row's lock are overtaken by
-- everybody who shares it: a stale holder that is busy would keep its successor out for ever, while the queue for an
-- advisory lock is fair. And many sharers of one row's lock use up multixact members, which the server then has to
-- vacuum away.
--
-- Like all functions of this schema it is called only where the search path is safe.
CREATE OR REPLACE FUNCTION fencepost.pass(resource text, token numeric, lineage text) RETURNS void
LANGUAGE plpgsql
AS $function$
DECLARE
    snapshot_is_fixed boolean := fencepost.snapshot_is_fixed();
    shared boolean := false;
    mark record;
BEGIN
    PERFORM fencepost.check_resource(pass.resource);
    IF pg_is_in_recovery() THEN
        RAISE EXCEPTION USING ERRCODE = 'read_only_sql_transaction',
            MESSAGE = 'this server is a replica, whose gate lags behind: show the token to the primary';
    END IF;
    PERFORM fencepost.check_token(pass.token);
    LOOP
        -- Each statement has a snapshot of its own, unless the transaction's isolation says otherwise. Then it has to be
        -- asked of the row whether somebody has changed it since: that fails with 40001, and the retry will see it.
        IF shared AND snapshot_is_fixed THEN
            SELECT g.highest, g.lineage INTO mark FROM fencepost.guard g WHERE g.resource = pass.resource FOR SHARE;
        ELSE
            SELECT g.highest, g.lineage INTO mark FROM fencepost.guard g WHERE g.resource = pass.resource;
        END IF;
        PERFORM fencepost.refuse(pass.resource, pass.token, pass.lineage, mark.highest, mark.lineage);
        IF mark.highest = pass.token AND (pass.lineage IS NULL OR mark.lineage IS NOT NULL) THEN
            IF shared THEN
                RETURN;
            END IF;
            PERFORM pg_advisory_xact_lock_shared(fencepost.key(pass.resource));
            shared := true;
            CONTINUE;
        END IF;
        -- The exclusive lock waits for the former holder's last transaction, whose writes a snapshot from before cannot
        -- show.
        IF snapshot_is_fixed THEN
            -- If somebody has raised it since the snapshot, perhaps for this very token, this fails with 40001: the retry
            -- will see it. Otherwise it is undone by the error below.
            INSERT INTO fencepost.guard AS g VALUES (pass.resource, pass.token, pass.lineage)
            ON CONFLICT ON CONSTRAINT guard_pkey DO UPDATE SET highest = g.highest;
            RAISE EXCEPTION USING ERRCODE = 'feature_not_supported',
                MESSAGE = format('the gate cannot be raised in a %s transaction: call fencepost_fence in a READ COMMITTED one first, token=%s resource=%s',
                                 upper(current_setting('transaction_isolation')), trunc(pass.token), pass.resource),
                DETAIL = 'What this transaction reads may be older than the last write of the former holder.';
        END IF;
        PERFORM pg_advisory_xact_lock(fencepost.key(pass.resource));
        INSERT INTO fencepost.guard AS g VALUES (pass.resource, pass.token, pass.lineage)
        ON CONFLICT ON CONSTRAINT guard_pkey DO UPDATE
            SET highest = excluded.highest, lineage = coalesce(g.lineage, excluded.lineage)
            WHERE (g.highest <= excluded.highest) IS NOT FALSE AND (g.lineage = excluded.lineage) IS NOT FALSE;
        IF FOUND THEN
            PERFORM fencepost.keep();
            RETURN;
        END IF;
    END LOOP;
END
$function$;

-- A transaction that has changed a mark is durable once it has committed, whatever its session does without: after a crash
-- that loses the mark, a stale token would pass.
CREATE OR REPLACE FUNCTION fencepost.keep() RETURNS void LANGUAGE sql
AS $$SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'$$;

CREATE OR REPLACE FUNCTION fencepost.snapshot_is_fixed() RETURNS boolean LANGUAGE sql STABLE
AS $$SELECT current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted')$$;

CREATE OR REPLACE FUNCTION fencepost.key(resource text) RETURNS bigint LANGUAGE sql IMMUTABLE
AS 'SELECT pg_catalog.hashtextextended(resource, 5073410938432513)';

-- Fails if this mark does not let this pass through.
CREATE OR REPLACE FUNCTION fencepost.refuse(resource text, token numeric, lineage text, highest bigint, recorded text)
RETURNS void
LANGUAGE plpgsql
AS $function$
BEGIN
    IF recorded <> lineage THEN
        RAISE EXCEPTION USING ERRCODE = 'FP002',
            MESSAGE = format('the token is of another lineage than those that the gate compares, presented=%s recorded=%s resource=%s',
                             lineage, recorded, resource),
            DETAIL = jsonb_build_object('resource', resource, 'presented', lineage, 'recorded', recorded)::text,
            HINT = 'Lock with the backend that the others use, or after a move to this one call fencepost_rebind as the gate''s owner.';
    END IF;
    IF highest > token THEN
        RAISE EXCEPTION USING ERRCODE = 'FP001',
            MESSAGE = format('the token is stale: a later holder has raised the gate, presented=%s highest=%s resource=%s',
                             trunc(token), highest, resource),
            DETAIL = jsonb_build_object('resource', resource, 'presented', trunc(token)::text, 'highest', highest::text)::text,
            HINT = 'Abandon this work. If new holders are refused too, the lock''s backend has lost its tokens: take the lock above the highest one (--above), or call fencepost_rebind as the gate''s owner.';
    END IF;
END
$function$;

CREATE OR REPLACE FUNCTION fencepost.check_token(token numeric) RETURNS void
LANGUAGE plpgsql IMMUTABLE
AS $function$
BEGIN
    IF token IS NULL OR token = 'NaN' OR token <> trunc(token) OR token NOT BETWEEN 1 AND 9223372036854775807 THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = format(
            'invalid token: give a whole number from 1 to 9223372036854775807, token=%s', coalesce(token::text, 'null'));
    END IF;
END
$function$;

-- The rules of a lock's name, so that whatever is recorded here can be named everywhere.
CREATE OR REPLACE FUNCTION fencepost.check_resource(resource text) RETURNS void
LANGUAGE plpgsql IMMUTABLE
AS $function$
BEGIN
    IF resource IS NULL OR resource = '' OR octet_length(resource) > 255 OR resource ~ '[[:cntrl:]]' THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = format(
            'invalid resource: give 1 to 255 bytes without control characters, such as orders/4821, resource=%L', resource);
    END IF;
    IF string_to_array(resource, '/') && ARRAY['', '.', '..'] THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = format(
            'invalid resource: between its slashes there is nothing, "." or "..": give a name such as orders/4821, resource=%L', resource);
    END IF;
END
$function$;

-- A lock belongs to the statement that took it until that statement has ended: a cursor that called this function, went
-- on and failed behind a savepoint would take the lock with it and leave the admission. A block with an EXCEPTION is a
-- subtransaction, which leaves its locks to the transaction around it. FP000 is raised by nobody.
CREATE OR REPLACE FUNCTION public.fencepost_fence(resource text, token numeric, lineage text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    PERFORM fencepost.pass(resource, token, lineage);
EXCEPTION WHEN SQLSTATE 'FP000' THEN
    RAISE;
END
$function$;

-- Simple enough for the planner to put it in place of its call: it is asked for each row that is written. The collation is
-- named since a column may have one that knows no substrings.
CREATE OR REPLACE FUNCTION fencepost.is_admitted(resource text) RETURNS boolean
LANGUAGE sql STABLE
AS $function$
    SELECT pg_catalog.strpos(pg_catalog.current_setting('fencepost.admitted', true) COLLATE pg_catalog."C", E'\n' OPERATOR(pg_catalog.||) resource OPERATOR(pg_catalog.||) E'\n') OPERATOR(pg_catalog.>) 0
       AND pg_catalog.strpos(resource COLLATE pg_catalog."C", E'\n') OPERATOR(pg_catalog.=) 0
       AND pg_catalog.starts_with(pg_catalog.current_setting('fencepost.admitted', true),
                                  pg_catalog.pg_current_xact_id_if_assigned()::pg_catalog.text OPERATOR(pg_catalog.||) E'\n')
$function$;

-- Notes the admission in a setting that is local to the transaction: it goes with it, and with a savepoint that is rolled
-- back, as the lock does; a pooler that gives each transaction another session is no hindrance, and nothing is
-- written. It begins with the transaction's id, so that a setting of the session does not open the gate. A role that
-- may call this function needs no forgery: it could show the highest token as well.
CREATE OR REPLACE FUNCTION fencepost.note(resource text) RETURNS text
LANGUAGE sql
AS $function$
    SELECT CASE WHEN fencepost.is_admitted(resource) THEN NULL ELSE
        set_config('fencepost.admitted',
                   CASE WHEN starts_with(current_setting('fencepost.admitted', true), pg_current_xact_id()::text || E'\n')
                        THEN current_setting('fencepost.admitted') ELSE pg_current_xact_id()::text || E'\n' END
                   || resource || E'\n', true) END
$function$;

CREATE OR REPLACE FUNCTION public.fencepost_admit(resource text, token numeric, lineage text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $function$
#variable_conflict use_variable
BEGIN
    -- What nearly every transaction asks, in two statements: if this is the highest token, share the lock; and if it
    -- still is, the transaction is admitted.
    PERFORM pg_advisory_xact_lock_shared(fencepost.key(resource)) FROM fencepost.guard g
    WHERE g.resource = resource AND g.highest = token AND (lineage IS NULL OR g.lineage = lineage);
    IF FOUND THEN
        PERFORM fencepost.note(resource) FROM fencepost.guard g
        WHERE g.resource = resource AND g.highest = token AND (lineage IS NULL OR g.lineage = lineage)
          AND NOT fencepost.snapshot_is_fixed();
        IF FOUND THEN
            RETURN;
        END IF;
    END IF;
    PERFORM fencepost.pass(resource, token, lineage);
    PERFORM fencepost.note(resource);
EXCEPTION WHEN SQLSTATE 'FP000' THEN
    -- For the sake of the lock, as above.
    RAISE;
END
$function$;

-- As fencepost_admit for a token that is recorded already, in a transaction of its own: it raises nothing, so no rollback takes
-- back what a caller relies on. Since it needs no exclusive lock afterwards it takes the shared one first, and looks once.
--
-- It is in the way of every transaction, and so saves what it can: a call needs no plan; the lock is taken by an expression,
-- not by a statement; and there is no search path to set, since each name is whole, as in is_admitted.
CREATE OR REPLACE PROCEDURE public.fencepost_admit_recorded(resource text, token numeric, lineage text DEFAULT NULL)
LANGUAGE plpgsql SECURITY DEFINER
AS $function$
#variable_conflict use_variable
DECLARE
    transaction text;
    admitted text;
BEGIN
    IF pg_catalog.pg_advisory_xact_lock_shared(fencepost.key(resource)) IS NULL THEN
        PERFORM fencepost.check_resource(resource);
    END IF;
    PERFORM FROM fencepost.guard g
    WHERE g.resource OPERATOR(pg_catalog.=) resource AND g.highest OPERATOR(pg_catalog.=) token
      AND (lineage IS NULL OR g.lineage OPERATOR(pg_catalog.=) lineage)
      AND pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.=) 'read committed';
    IF NOT FOUND THEN
        PERFORM fencepost.pass_recorded(resource, token, lineage);
        RETURN;
    END IF;
    -- As fencepost.note, which is for those that are admitted twice.
    transaction := pg_catalog.pg_current_xact_id()::pg_catalog.text OPERATOR(pg_catalog.||) E'\n';
    admitted := pg_catalog.current_setting('fencepost.admitted', true);
    IF pg_catalog.starts_with(admitted, transaction) THEN
        PERFORM fencepost.pass_recorded(resource, token, lineage);
    ELSE
        admitted := pg_catalog.set_config('fencepost.admitted', transaction OPERATOR(pg_catalog.||) resource OPERATOR(pg_catalog.||) E'\n', true);
    END IF;
EXCEPTION WHEN SQLSTATE 'FP000' THEN
    -- For the sake of the lock, as above.
    RAISE;
END
$function$;

-- The rest of it, for whatever is not what nearly every transaction asks.
CREATE OR REPLACE FUNCTION fencepost.pass_recorded(resource text, token numeric, lineage text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $function$
#variable_conflict use_variable
BEGIN
    PERFORM FROM fencepost.guard g
    WHERE g.resource = resource AND g.highest = token AND (lineage IS NULL OR g.lineage = lineage);
    IF FOUND THEN
        -- In a fixed snapshot. Whether this is still so has to be asked of the row.
        PERFORM fencepost.pass(resource, token, lineage);
        PERFORM fencepost.note(resource);
        RETURN;
    END IF;
    PERFORM fencepost.check_resource(resource);
    PERFORM fencepost.check_token(token);
    PERFORM fencepost.refuse(resource, token, lineage, g.highest, g.lineage)
    FROM fencepost.guard g WHERE g.resource = resource;
    RAISE EXCEPTION USING ERRCODE = 'FP004',
        MESSAGE = format('the token is not recorded: call fencepost_fence in a transaction of its own first, presented=%s resource=%s',
                         trunc(token), resource),
        DETAIL = jsonb_build_object('resource', resource, 'presented', trunc(token)::text)::text;
END
$function$;

CREATE OR REPLACE FUNCTION public.fencepost_highest(resource text) RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'SELECT g.highest FROM fencepost.guard g WHERE g.resource = $1';

-- Waits for the transactions that were admitted, as a fence does. Returns what was recorded before.
CREATE OR REPLACE FUNCTION public.fencepost_rebind(
    resource text, lineage text, highest numeric DEFAULT NULL, OUT highest_before bigint, OUT lineage_before text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    PERFORM fencepost.check_resource(fencepost_rebind.resource);
    IF fencepost_rebind.highest IS NOT NULL THEN
        PERFORM fencepost.check_token(fencepost_rebind.highest);
    END IF;
    PERFORM pg_advisory_xact_lock(fencepost.key(fencepost_rebind.resource));
    SELECT g.highest, g.lineage INTO highest_before, lineage_before
    FROM fencepost.guard g WHERE g.resource = fencepost_rebind.resource;
    INSERT INTO fencepost.guard VALUES (fencepost_rebind.resource, fencepost_rebind.highest, fencepost_rebind.lineage)
    ON CONFLICT ON CONSTRAINT guard_pkey DO UPDATE SET highest = excluded.highest, lineage = excluded.lineage;
    PERFORM fencepost.keep();
EXCEPTION WHEN SQLSTATE 'FP000' THEN
    -- For the sake of the lock, as in fencepost_fence.
    RAISE;
END
$function$;
