-- A write that a stale holder cannot make, from psql:
--
--   fencepost run orders/4821 -- sh -c \
--     'psql -X -v lock="$FENCEPOST_LOCK" -v token="$FENCEPOST_TOKEN" -f ship.sql "$DATABASE_URL"'
--
-- The database has the gate (`fencepost gate install`) and the table is protected, once:
--
--   CREATE TABLE orders (id int PRIMARY KEY, state text NOT NULL);
--   SELECT fencepost_protect_rows('orders', 'id', 'orders/');

\set ON_ERROR_STOP on
\set VERBOSITY verbose

BEGIN;
-- First of all: what is read below, no former holder changes any more.
SELECT fencepost_admit(:'lock', :'token');
UPDATE orders SET state = 'shipped' WHERE 'orders/' || id = :'lock' AND state = 'paid';
COMMIT;
