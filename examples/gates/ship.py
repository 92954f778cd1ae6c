#!/usr/bin/env python3
"""A write that a stale holder cannot make, from Python with psycopg 3.

    fencepost run orders/4821 -- python3 ship.py "$DATABASE_URL"

The database has the gate (`fencepost gate install`) and the table is protected, once:

    CREATE TABLE orders (id int PRIMARY KEY, state text NOT NULL);
    SELECT fencepost_protect_rows('orders', 'id', 'orders/');
"""

import json
import os
import sys

import psycopg

# The exit statuses of the fencepost command.
STALE, RETRY = 79, 75


def ship(connection, lock, token):
    with connection.transaction():
        # First of all: what is read below, no former holder changes any more.
        connection.execute("SELECT fencepost_admit(%s, %s)", [lock, token])
        order = lock.removeprefix("orders/")
        (state,) = connection.execute("SELECT state FROM orders WHERE id = %s", [order]).fetchone()
        if state == "paid":
            connection.execute("UPDATE orders SET state = 'shipped' WHERE id = %s", [order])


def main():
    lock, token = os.environ["FENCEPOST_LOCK"], os.environ["FENCEPOST_TOKEN"]
    # Without prepared statements, so that it also works through a pooler that gives each transaction another session.
    with psycopg.connect(sys.argv[1], autocommit=True, prepare_threshold=None) as connection:
        try:
            ship(connection, lock, token)
        except (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected):
            return RETRY
        except psycopg.Error as error:
            if error.sqlstate != "FP001":
                raise
            facts = json.loads(error.diag.message_detail)
            print(f"stale: presented={facts['presented']} highest={facts['highest']}", file=sys.stderr)
            return STALE
    return 0


if __name__ == "__main__":
    sys.exit(main())
