-- Tables that refuse whoever was not admitted. To protect a table takes its owner, and no right at the gate.

-- Fires only for a write that was not admitted: the triggers' conditions see to that.
CREATE OR REPLACE FUNCTION fencepost.refuse_write() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    resource text := TG_ARGV[0];
BEGIN
    IF TG_ARGV[1] = 'rows' THEN
        IF TG_OP = 'TRUNCATE' THEN
            RAISE EXCEPTION USING ERRCODE = 'FP003',
                MESSAGE = format('the table is protected row by row and cannot be truncated: use DELETE, table=%s', TG_RELID::regclass),
                DETAIL = jsonb_build_object('resource', null, 'table', TG_RELID::regclass)::text;
        END IF;
        -- Which of an update's two rows it was does not matter to the reader: one of both is shown.
        resource := TG_ARGV[0] || (to_jsonb(CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END) ->> TG_ARGV[2]);
    END IF;
    RAISE EXCEPTION USING ERRCODE = 'FP003',
        MESSAGE = format('the write was not admitted: call fencepost_admit in the same transaction first, table=%s resource=%s',
                         TG_RELID::regclass, coalesce(resource, 'null')),
        DETAIL = jsonb_build_object('resource', resource, 'table', TG_RELID::regclass)::text,
        HINT = format('SELECT fencepost_admit(%L, <token>)', coalesce(resource, '<resource>'));
END
$function$;

-- The table and those that inherit from it, partitions above all. A trigger for rows on a partitioned table is
-- passed on to its partitions, also to later ones; one for TRUNCATE is not.
CREATE OR REPLACE FUNCTION fencepost.tree(target regclass) RETURNS TABLE (relation regclass, takes_row_triggers boolean)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $function$
    WITH RECURSIVE tree(relation) AS (
        SELECT target::oid UNION SELECT i.inhrelid FROM pg_inherits i JOIN tree ON i.inhparent = tree.relation
    )
    SELECT tree.relation::regclass, tree.relation = target OR NOT c.relispartition
    FROM tree JOIN pg_class c ON c.oid = tree.relation
$function$;

-- Creates the triggers, each with its condition. They look after the event, when no other trigger can change the row
-- any more.
CREATE OR REPLACE FUNCTION fencepost.protect(target regclass, conditions text[], arguments text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    kind "char" := (SELECT c.relkind FROM pg_class c WHERE c.oid = target);
    events text[] := ARRAY['INSERT', 'UPDATE', 'DELETE', 'TRUNCATE'];
    place record;
BEGIN
    IF kind NOT IN ('r', 'p') THEN
        RAISE EXCEPTION USING ERRCODE = 'wrong_object_type',
            MESSAGE = format('only tables can be protected: protect the tables below it, relation=%s', target);
    END IF;
    PERFORM public.fencepost_unprotect(target);
    FOR place IN SELECT * FROM fencepost.tree(target) LOOP
        FOR i IN 1 .. 4 LOOP
            CONTINUE WHEN events[i] <> 'TRUNCATE' AND NOT place.takes_row_triggers;
            EXECUTE format('CREATE TRIGGER %I %s %s ON %s FOR EACH %s WHEN (%s) EXECUTE FUNCTION fencepost.refuse_write(%s)',
                           'fencepost_' || lower(events[i]),
                           CASE events[i] WHEN 'TRUNCATE' THEN 'BEFORE' ELSE 'AFTER' END, events[i], place.relation,
                           CASE events[i] WHEN 'TRUNCATE' THEN 'STATEMENT' ELSE 'ROW' END, conditions[i], arguments);
        END LOOP;
    END LOOP;
END
$function$;

CREATE OR REPLACE FUNCTION public.fencepost_protect(target regclass, resource text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    condition text := format('fencepost.is_admitted(%L) IS NOT TRUE', resource);
BEGIN
    PERFORM fencepost.check_resource(resource);
    PERFORM fencepost.protect(target, array_fill(condition, ARRAY[4]), format('%L', resource));
END
$function$;

CREATE OR REPLACE FUNCTION public.fencepost_protect_rows(target regclass, resource_column name, prefix text DEFAULT '')
RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    inserted text := format('fencepost.is_admitted(%L || NEW.%I::text) IS NOT TRUE', prefix, resource_column);
    deleted text := format('fencepost.is_admitted(%L || OLD.%I::text) IS NOT TRUE', prefix, resource_column);
BEGIN
    PERFORM fencepost.protect(target, ARRAY[inserted, deleted || ' OR ' || inserted, deleted, 'true'],
                              format('%L, ''rows'', %L', prefix, resource_column));
END
$function$;

CREATE OR REPLACE FUNCTION public.fencepost_unprotect(target regclass) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    place record;
BEGIN
    FOR place IN
        SELECT t.tgname, tree.relation FROM fencepost.tree(target) tree JOIN pg_trigger t ON t.tgrelid = tree.relation
        WHERE t.tgfoid = 'fencepost.refuse_write'::regproc AND t.tgparentid = 0
    LOOP
        EXECUTE format('DROP TRIGGER %I ON %s', place.tgname, place.relation);
    END LOOP;
END
$function$;
