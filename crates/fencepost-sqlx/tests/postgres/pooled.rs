//! Through PgBouncer, which gives each transaction another session.

use fencepost_lab::server::pgbouncer::{self, Options, PgBouncer};
use fencepost_sqlx::{
    postgres::{admit, begin, fence, grant, install, mark, rebind},
    sqlx::{
        PgPool,
        postgres::{PgConnectOptions, PgPoolOptions},
    },
};

use crate::{
    Test,
    world::{World, done, refused, send, stale, token, value},
};

pub(crate) const TESTS: &[Test] = &[
    ("pooled::nothing_depends_on_the_session", no_session),
    ("pooled::a_takeover_waits_across_sessions", takeover),
    ("pooled::it_is_installed_through_the_pooler", installed),
];

/// A pooler with two sessions, and a client with many connections to it.
async fn pooled(world: &World, size: u32) -> (PgBouncer, PgPool) {
    let bouncer = PgBouncer::start(&world.server, &Options::default()).expect("it starts");
    let url = bouncer.url(&world.database);
    // It refuses a parameter that sqlx sends unasked. (Prepared statements, which it does not know before 1.21 either, are
    // none here.)
    let options = url.parse::<PgConnectOptions>().expect("a url").extra_float_digits(None);
    let pool = PgPoolOptions::new().max_connections(size).connect_with(options).await.expect("it listens");
    (bouncer, pool)
}

fn no_session(world: World) {
    world.run(async {
        world.psql("CREATE TABLE stock (n int); INSERT INTO stock VALUES (0); SELECT fencepost_protect('stock', 'a')");
        let (_bouncer, pool) = pooled(&world, 8).await;
        let runtime = tokio::runtime::Handle::current();
        let workers: Vec<_> = (0..8)
            .map(|_| {
                let pool = pool.clone();
                runtime.spawn(async move {
                    for _ in 0..40 {
                        let mut tx = begin(&pool, "a", token(42)).await.unwrap();
                        done(&mut tx, "UPDATE stock SET n = n + 1").await;
                        tx.commit().await.unwrap();
                        stale(begin(&pool, "a", token(41)).await, 41, 42);
                        // On whichever session: nobody was admitted outside of a transaction.
                        let connection = &mut *pool.acquire().await.unwrap();
                        refused(send(connection, "UPDATE stock SET n = 0").await, "FP003", &[]);
                        fence(connection, "a", token(42)).await.unwrap();
                        assert_eq!(mark(connection, "a").await.unwrap().highest, Some(token(42)));
                    }
                })
            })
            .collect();
        // The first of them raises the gate: the others wait or share it.
        for worker in workers {
            worker.await.unwrap();
        }
        assert_eq!(world.psql("TABLE stock"), "320");
        let connection = &mut *pool.acquire().await.unwrap();
        let before = rebind(connection, "a", &Default::default()).await.unwrap();
        assert_eq!(before.highest, Some(token(42)));
    });
}

fn takeover(world: World) {
    world.run(async {
        let (_bouncer, pool) = pooled(&world, 4).await;
        let mut late = begin(&pool, "a", token(41)).await.unwrap();
        let (successor, ()) = tokio::join!(begin(&pool, "a", token(42)), async {
            world.waiting(1).await;
            admit(&mut late, "a", token(41)).await.unwrap();
            late.commit().await.unwrap();
        });
        successor.unwrap().commit().await.unwrap();
        stale(begin(&pool, "a", token(41)).await, 41, 42);
        let connection = &mut *pool.acquire().await.unwrap();
        assert_eq!(value(connection, "pg_current_xact_id_if_assigned()").await, None);
    });
}

fn installed(world: World) {
    world.run_empty(async {
        let (_bouncer, pool) = pooled(&world, 1).await;
        let connection = &mut *pool.acquire().await.unwrap();
        install(connection).await.unwrap();
        install(connection).await.unwrap();
        grant(connection, "postgres").await.unwrap();
        fence(connection, "a", token(1)).await.unwrap();
    });
}

/// Whether there is a PgBouncer on this machine.
pub(crate) fn missing() -> bool {
    fencepost_lab::server::ignored(&pgbouncer::installed())
}
