//! Tables that refuse writes of transactions that were not admitted.

use fencepost::ErrorKind;
use fencepost_sqlx::sqlx::PgConnection;

use crate::{
    Test,
    world::{World, done, refused, send},
};

pub(crate) const TESTS: &[Test] = &[
    ("protect::every_way_to_write_is_refused_without_admission", every_way),
    ("protect::another_resource_admits_nothing", another_resource),
    ("protect::each_row_has_its_own_resource", rows),
    ("protect::partitions_are_protected_too", partitions),
    ("protect::children_are_protected_too", children),
    ("protect::a_child_of_two_parents_is_refused", two_parents),
    ("protect::a_partition_is_protected_with_its_table", one_partition),
    ("protect::a_column_names_resources_by_text_that_stays", columns),
    ("protect::a_cascade_is_a_write", cascade),
    ("protect::no_trigger_changes_the_row_after_the_look", other_triggers),
    ("protect::protecting_again_replaces_and_unprotecting_ends_it", again),
    ("protect::what_is_no_table_is_refused", no_table),
];

const STOCK: &str = "CREATE TABLE stock (id int PRIMARY KEY, n int); INSERT INTO stock VALUES (1, 100); SELECT fencepost_protect('stock', 'a')";

/// Runs a statement in a transaction that was admitted for each of the resources.
async fn admitted(
    connection: &mut PgConnection,
    resources: &[&str],
    sql: &str,
) -> Result<(), fencepost_sqlx::sqlx::Error> {
    let admit: String =
        resources.iter().map(|name| format!("SELECT fencepost_admit('{name}', 1);")).collect();
    send(connection, &format!("{admit} {sql}")).await
}

fn every_way(world: World) {
    world.run(async {
        world.psql(STOCK);
        let connection = &mut world.connect().await;
        let writes = [
            "INSERT INTO stock VALUES (2, 1)",
            "INSERT INTO stock VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET n = 0",
            "UPDATE stock SET n = 0",
            "DELETE FROM stock",
            "TRUNCATE stock",
            "WITH gone AS (DELETE FROM stock RETURNING *) SELECT * FROM gone",
            "MERGE INTO stock USING (VALUES (1)) v(id) ON stock.id = v.id WHEN MATCHED THEN UPDATE SET n = 0",
            "DO $$BEGIN UPDATE stock SET n = 0; END$$",
        ];
        for write in writes {
            let error = refused(send(connection, write).await, "FP003", &["call fencepost_admit", "table=public.stock resource=a"]);
            assert_eq!(error.kind(), ErrorKind::Denied);
            assert!(error.to_string().ends_with("resource=a"), "{error}");
        }
        let mut copy = connection.copy_in_raw("COPY stock FROM STDIN").await.unwrap();
        copy.send("3\t7\n".as_bytes()).await.unwrap();
        refused(copy.finish().await, "FP003", &["resource=a"]);
        assert_eq!(world.psql("TABLE stock"), "1|100", "nothing was written");

        for write in writes {
            admitted(connection, &["a"], write).await.unwrap_or_else(|error| panic!("{error}: {write}"));
            world.psql("SELECT fencepost_unprotect('stock'); TRUNCATE stock; INSERT INTO stock VALUES (1, 100); SELECT fencepost_protect('stock', 'a')");
        }
        done(connection, "BEGIN; SELECT fencepost_admit('a', 1)").await;
        let mut copy = connection.copy_in_raw("COPY stock FROM STDIN").await.unwrap();
        copy.send("3\t7\n".as_bytes()).await.unwrap();
        assert_eq!(copy.finish().await.unwrap(), 1);
        done(connection, "COMMIT").await;
        // A fence says that somebody is there, and not that this transaction writes.
        done(connection, "BEGIN; SELECT fencepost_fence('a', 1)").await;
        refused(send(connection, "DELETE FROM stock").await, "FP003", &[]);
    });
}

fn another_resource(world: World) {
    world.run(async {
        world.psql(STOCK);
        let connection = &mut world.connect().await;
        for other in ["b", "a/b", "aa", "A"] {
            refused(admitted(connection, &[other], "DELETE FROM stock").await, "FP003", &["resource=a"]);
        }
        admitted(connection, &["b", "a", "c"], "DELETE FROM stock").await.unwrap();
    });
}

fn rows(world: World) {
    world.run(async {
        world.psql("CREATE TABLE orders (id text, state text); SELECT fencepost_protect_rows('orders', 'id', 'orders/')");
        let connection = &mut world.connect().await;
        let both = ["orders/1", "orders/2"];
        admitted(connection, &both, "INSERT INTO orders VALUES ('1', 'new'), ('2', 'new')").await.unwrap();
        for (admit, write, row) in [
            (&both[..1], "INSERT INTO orders VALUES ('2', 'new')", "orders/2"),
            (&both[..1], "UPDATE orders SET state = 'old'", "orders/2"),
            (&both[..1], "DELETE FROM orders WHERE id = '2'", "orders/2"),
            // A row that leaves its resource, and one that enters it.
            (&both[..1], "UPDATE orders SET id = '3' WHERE id = '1'", "orders/3"),
            (&both[..1], "UPDATE orders SET id = '1' WHERE id = '2'", "orders/"),
            (&both[..1], "INSERT INTO orders VALUES (NULL, 'new')", "null"),
            (&both, "INSERT INTO orders VALUES (E'1\\norders/2', 'new')", "orders/1"),
            (&[], "DELETE FROM orders WHERE id = '1'", "orders/1"),
        ] {
            refused(admitted(connection, admit, write).await, "FP003", &["table=public.orders", row]);
        }
        refused(admitted(connection, &both, "TRUNCATE orders").await, "FP003", &["use DELETE", "table=public.orders"]);
        admitted(connection, &both[..1], "UPDATE orders SET state = 'sent' WHERE id = '1'").await.unwrap();
        // A column that was renamed is the same one.
        world.psql("ALTER TABLE orders RENAME id TO number");
        let renamed = admitted(connection, &both[..1], "DELETE FROM orders").await;
        refused(renamed, "FP003", &["table=public.orders resource=orders/2"]);
        admitted(connection, &both, "DELETE FROM orders").await.unwrap();
    });
}

fn partitions(world: World) {
    world.run(async {
        world.psql(
            "CREATE TABLE log (day int, line text) PARTITION BY RANGE (day);
             CREATE TABLE log_1 PARTITION OF log FOR VALUES FROM (1) TO (2);
             SELECT fencepost_protect('log', 'a');
             CREATE TABLE log_2 PARTITION OF log FOR VALUES FROM (2) TO (3);",
        );
        let connection = &mut world.connect().await;
        for write in [
            "INSERT INTO log VALUES (1, 'x')",
            "INSERT INTO log_1 VALUES (1, 'x')",
            "INSERT INTO log_2 VALUES (2, 'x')",
            "TRUNCATE log",
            "TRUNCATE log_1",
        ] {
            refused(send(connection, write).await, "FP003", &["resource=a"]);
            admitted(connection, &["a"], write).await.unwrap();
        }
        // The triggers of a new partition come with it, except the one for TRUNCATE: that takes another call.
        world.psql("SELECT fencepost_protect('log', 'a')");
        refused(send(connection, "TRUNCATE log_2").await, "FP003", &[]);
        world.psql("SELECT fencepost_unprotect('log')");
        done(connection, "INSERT INTO log_1 VALUES (1, 'x'); TRUNCATE log_2; TRUNCATE log").await;
    });
}

fn children(world: World) {
    world.run(async {
        world.psql("CREATE TABLE base (n int); CREATE TABLE child () INHERITS (base); INSERT INTO child VALUES (1); SELECT fencepost_protect('base', 'a')");
        let connection = &mut world.connect().await;
        for write in ["INSERT INTO child VALUES (1)", "UPDATE base SET n = 2", "TRUNCATE child", "TRUNCATE base"] {
            refused(send(connection, write).await, "FP003", &["resource=a"]);
        }
        world.psql("SELECT fencepost_unprotect('base')");
        done(connection, "UPDATE base SET n = 2; TRUNCATE base").await;
    });
}

/// It has one set of triggers, and would lose one resource's for the other's.
fn two_parents(world: World) {
    world.run(async {
        world.psql("CREATE TABLE one (n int); CREATE TABLE two (n int); CREATE TABLE child () INHERITS (one, two); SELECT fencepost_protect('one', 'a')");
        let connection = &mut world.connect().await;
        let second = send(connection, "SELECT fencepost_protect('two', 'b')").await;
        refused(second, "0A000", &["relation=public.child parent=public.one"]);
        refused(send(connection, "INSERT INTO child VALUES (1)").await, "FP003", &["resource=a"]);
        done(connection, "SELECT fencepost_protect('one', 'c'); INSERT INTO two VALUES (1)").await;
        world.psql("SELECT fencepost_unprotect('one'); SELECT fencepost_protect('two', 'b')");
    });
}

fn one_partition(world: World) {
    world.run(async {
        world.psql(
            "CREATE TABLE log (day int, line text) PARTITION BY RANGE (day);
             CREATE TABLE log_1 PARTITION OF log FOR VALUES FROM (1) TO (2);
             SELECT fencepost_protect_rows('log', 'line'); ALTER TABLE log RENAME line TO word;
             CREATE TABLE log_2 (day int, word text); SELECT fencepost_protect('log_2', 'a')",
        );
        let connection = &mut world.connect().await;
        for call in ["unprotect('log_1')", "protect('log_1', 'a')"] {
            let alone = send(connection, &format!("SELECT fencepost_{call}")).await;
            refused(alone, "55000", &["relation=public.log_1 table=public.log"]);
        }
        refused(send(connection, "TRUNCATE log_1").await, "FP003", &[]);
        refused(send(connection, "INSERT INTO log VALUES (1, 'x')").await, "FP003", &["resource=x"]);
        let attach = "ALTER TABLE log ATTACH PARTITION log_2 FOR VALUES FROM (2) TO (3)";
        let error = refused(send(connection, attach).await, "42710", &[]);
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("call fencepost_unprotect for it first"), "{error}");
        done(connection, &format!("SELECT fencepost_unprotect('log_2'); {attach}")).await;
        refused(send(connection, "INSERT INTO log_2 VALUES (2, 'x')").await, "FP003", &["resource=x"]);
    });
}

fn columns(world: World) {
    world.run(async {
        world.psql(
            "CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
             CREATE DOMAIN number AS int; CREATE DOMAIN day AS date;
             CREATE TABLE stock (t text COLLATE ci, v varchar(9), i int, b bigint, u uuid, n number,
                                 d date, z timestamptz, f float8, m numeric, y day)",
        );
        let connection = &mut world.connect().await;
        let protect = |column: &str| format!("SELECT fencepost_protect_rows('stock', '{column}')");
        for unfit in ["d", "z", "f", "m", "y"] {
            refused(
                send(connection, &protect(unfit)).await,
                "42809",
                &["text, whole numbers or uuids", unfit],
            );
        }
        let id = "00000000-0000-0000-0000-00000000000a";
        for (column, resource) in [("v", "x"), ("i", "7"), ("b", "7"), ("u", id), ("n", "7"), ("t", "x")] {
            world.psql(&protect(column));
            let insert = format!("INSERT INTO stock ({column}) VALUES ('{resource}')");
            refused(send(connection, &insert).await, "FP003", &[&format!("resource={resource}")]);
            admitted(connection, &[resource], &insert).await.unwrap();
        }
        // To the gate names differ that the collation takes for one.
        refused(
            admitted(connection, &["X"], "DELETE FROM stock WHERE t = 'x'").await,
            "FP003",
            &["resource=x"],
        );
    });
}

fn cascade(world: World) {
    world.run(async {
        world.psql(
            "CREATE TABLE customer (id int PRIMARY KEY); CREATE TABLE stock (id int REFERENCES customer ON DELETE CASCADE);
             INSERT INTO customer VALUES (1); INSERT INTO stock VALUES (1); SELECT fencepost_protect('stock', 'a')",
        );
        let connection = &mut world.connect().await;
        refused(send(connection, "DELETE FROM customer").await, "FP003", &["table=public.stock"]);
        refused(send(connection, "TRUNCATE customer CASCADE").await, "FP003", &["table=public.stock"]);
        admitted(connection, &["a"], "DELETE FROM customer").await.unwrap();
    });
}

fn other_triggers(world: World) {
    world.run(async {
        world.psql(
            "CREATE TABLE orders (id text);
             SELECT fencepost_protect_rows('orders', 'id');
             CREATE FUNCTION zz() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN NEW.id := 'other'; RETURN NEW; END$$;
             CREATE TRIGGER zz BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION zz()",
        );
        let connection = &mut world.connect().await;
        refused(admitted(connection, &["a"], "INSERT INTO orders VALUES ('a')").await, "FP003", &["resource=other"]);
        admitted(connection, &["other"], "INSERT INTO orders VALUES ('a')").await.unwrap();
    });
}

fn again(world: World) {
    world.run(async {
        world.psql(STOCK);
        let connection = &mut world.connect().await;
        world.psql("SELECT fencepost_protect('stock', 'b')");
        refused(admitted(connection, &["a"], "DELETE FROM stock").await, "FP003", &["resource=b"]);
        world.psql("SELECT fencepost_protect_rows('stock', 'id', 'stock/')");
        refused(admitted(connection, &["b"], "DELETE FROM stock").await, "FP003", &["resource=stock/1"]);
        assert_eq!(world.psql("SELECT count(*) FROM pg_trigger WHERE tgrelid = 'stock'::regclass"), "4");
        world.psql("SELECT fencepost_unprotect('stock')");
        done(connection, "TRUNCATE stock").await;
    });
}

fn no_table(world: World) {
    world.run(async {
        world.psql("CREATE TABLE stock (n int); CREATE VIEW seen AS TABLE stock");
        let connection = &mut world.connect().await;
        let protect = |what: &str| format!("SELECT fencepost_protect({what})");
        refused(send(connection, &protect("'seen', 'a'")).await, "42809", &["relation=public.seen"]);
        refused(send(connection, &protect("'nothing', 'a'")).await, "42P01", &["nothing"]);
        refused(send(connection, &protect("'stock', ''")).await, "22023", &["invalid resource"]);
        let column = "SELECT fencepost_protect_rows('stock', 'nothing')";
        refused(send(connection, column).await, "42703", &["nothing"]);
        // Quoted names are one name.
        world.psql("CREATE TABLE \"o'dd \"\"table\" (\"a b'\" text); SELECT fencepost_protect_rows('\"o''dd \"\"table\"', 'a b''')");
        refused(send(connection, "INSERT INTO \"o'dd \"\"table\" VALUES ('a')").await, "FP003", &["resource=a"]);
    });
}
