-- Who owns what was installed, and who may use it.

-- CREATE OR REPLACE leaves a function to whoever made it before, who could give it another body later. Asked at the end,
-- when nobody can make one any more that is then replaced.
DO $owners$
DECLARE
    foreign_one record;
BEGIN
    SELECT p.oid::regprocedure AS signature, pg_get_userbyid(p.proowner) AS owner INTO foreign_one
    FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
    WHERE (n.nspname = 'fencepost' OR n.nspname = 'public' AND starts_with(p.proname, 'fencepost_'))
      AND pg_get_userbyid(p.proowner) <> current_user
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = format('the function %s belongs to another role, which could change what it does: drop it, and REVOKE CREATE ON SCHEMA public FROM PUBLIC, owner=%s',
                             foreign_one.signature, foreign_one.owner);
    END IF;
    IF EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
               WHERE n.nspname = 'fencepost' AND pg_get_userbyid(c.relowner) <> current_user) THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = 'a relation in the schema fencepost belongs to another role, which could change what it holds: drop it';
    END IF;
END
$owners$;

-- Takes back what default privileges have given, except what `fencepost gate install --grant` gives: to show tokens and to
-- look at the marks. Whoever can raise a gate can lock everybody out, so nobody may by default.
DO $rights$
DECLARE
    given record;
BEGIN
    FOR given IN
        SELECT 'SCHEMA fencepost' AS place, a.* FROM pg_namespace n, aclexplode(n.nspacl) a
        WHERE n.nspname = 'fencepost' AND a.grantee <> n.nspowner
        UNION ALL
        SELECT format('TABLE %s', c.oid::regclass), a.* FROM pg_class c, aclexplode(c.relacl) a
        WHERE c.oid = 'fencepost.guard'::regclass AND a.grantee <> c.relowner
          AND (a.privilege_type <> 'SELECT' OR a.grantee = 0)
        UNION ALL
        SELECT format('ROUTINE %s', p.oid::regprocedure), a.*
        FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace,
             aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
        WHERE (n.nspname = 'fencepost' OR n.nspname = 'public' AND starts_with(p.proname, 'fencepost_'))
          AND a.grantee <> p.proowner
          AND (a.grantee = 0 OR p.proname NOT IN ('fencepost_fence', 'fencepost_admit', 'fencepost_admit_recorded', 'fencepost_highest'))
    LOOP
        EXECUTE format('REVOKE %s ON %s FROM %s CASCADE', given.privilege_type, given.place,
                       CASE given.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(given.grantee)) END);
    END LOOP;
END
$rights$;

-- To protect a table takes its owner, and to write to one no right at the gate.
GRANT USAGE ON SCHEMA fencepost TO PUBLIC;
GRANT EXECUTE ON FUNCTION
    fencepost.version, fencepost.check_resource, fencepost.is_admitted, fencepost.refuse_write, fencepost.tree,
    fencepost.resource_column, fencepost.is_protected, fencepost.protect, public.fencepost_protect, public.fencepost_protect_rows, public.fencepost_unprotect
    TO PUBLIC;
