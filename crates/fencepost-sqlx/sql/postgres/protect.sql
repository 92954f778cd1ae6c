-- Tables that refuse whoever was not admitted. To protect a table takes its owner, and no right at the gate.

-- The column that such a trigger looks at, by its name of today: the server keeps it in the condition's dependencies. A
-- partition's trigger has none of its own, but its column has the name that it has in the table above.
CREATE OR REPLACE FUNCTION fencepost.resource_column(relation oid, name name) RETURNS name
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $function$
    WITH RECURSIVE above(trigger, relation, parent) AS (
        SELECT t.oid, t.tgrelid, t.tgparentid FROM pg_trigger t WHERE t.tgrelid = $1 AND t.tgname = $2
        UNION ALL
        SELECT t.oid, t.tgrelid, t.tgparentid FROM pg_trigger t JOIN above ON t.oid = above.parent
    )
    SELECT a.attname FROM above
    JOIN pg_depend d ON d.classid = 'pg_trigger'::regclass AND d.objid = above.trigger
                    AND d.refclassid = 'pg_class'::regclass AND d.refobjid = above.relation AND d.refobjsubid > 0
    JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
    LIMIT 1
$function$;

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
        resource := TG_ARGV[0] || (to_jsonb(CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END) ->> fencepost.resource_column(TG_RELID, TG_NAME));
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

CREATE OR REPLACE FUNCTION fencepost.is_protected(relation oid) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$SELECT EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = $1 AND t.tgfoid = 'fencepost.refuse_write'::regproc)$$;

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
    -- One table has one set of triggers: with those of one parent it would lose those of the other.
    SELECT tree.relation, i.inhparent::regclass AS parent INTO place
    FROM fencepost.tree(target) tree JOIN pg_inherits i ON i.inhrelid = tree.relation
    WHERE tree.relation <> target AND i.inhparent NOT IN (SELECT t.relation FROM fencepost.tree(target) t)
      AND fencepost.is_protected(i.inhparent)
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'feature_not_supported',
            MESSAGE = format('a table that inherits from it is protected through another parent: let it inherit from one, relation=%s parent=%s',
                             place.relation, place.parent);
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
    unfit text;
BEGIN
    -- A date or a floating-point number has other text with other settings of the session, and so another resource.
    WITH RECURSIVE type(oid) AS (
        SELECT a.atttypid FROM pg_attribute a WHERE a.attrelid = target AND a.attname = resource_column
        UNION ALL
        SELECT t.typbasetype FROM pg_type t JOIN type ON t.oid = type.oid WHERE t.typbasetype <> 0
    )
    SELECT format_type(t.oid, NULL) INTO unfit FROM pg_type t JOIN type ON t.oid = type.oid
    WHERE t.typtype <> 'd' AND t.typcategory <> 'S'
      AND t.oid NOT IN ('int2'::regtype, 'int4'::regtype, 'int8'::regtype, 'uuid'::regtype);
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'wrong_object_type',
            MESSAGE = format('the column cannot name a resource: take one of text, whole numbers or uuids, column=%s type=%s',
                             resource_column, unfit);
    END IF;
    PERFORM fencepost.protect(target, ARRAY[inserted, deleted || ' OR ' || inserted, deleted, 'true'],
                              format('%L, ''rows''', prefix));
END
$function$;

CREATE OR REPLACE FUNCTION public.fencepost_unprotect(target regclass) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    place record;
BEGIN
    SELECT i.inhparent::regclass AS parent INTO place
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhrelid = target AND c.relispartition AND fencepost.is_protected(i.inhparent);
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = format('the partition is protected with its table: name that one, relation=%s table=%s', target, place.parent);
    END IF;
    FOR place IN
        SELECT t.tgname, tree.relation FROM fencepost.tree(target) tree JOIN pg_trigger t ON t.tgrelid = tree.relation
        WHERE t.tgfoid = 'fencepost.refuse_write'::regproc AND t.tgparentid = 0
    LOOP
        EXECUTE format('DROP TRIGGER %I ON %s', place.tgname, place.relation);
    END LOOP;
END
$function$;
