-- Removes Fencepost's gate from PostgreSQL, with every mark and with the triggers of protected tables.

SET LOCAL client_min_messages = warning;

DROP SCHEMA fencepost CASCADE;
DROP FUNCTION IF EXISTS
    public.fencepost_fence(text, numeric, text),
    public.fencepost_admit(text, numeric, text),
    public.fencepost_highest(text),
    public.fencepost_rebind(text, text, numeric),
    public.fencepost_protect(regclass, text),
    public.fencepost_protect_rows(regclass, name, text),
    public.fencepost_unprotect(regclass);
DROP PROCEDURE IF EXISTS public.fencepost_admit_recorded(text, numeric, text);
