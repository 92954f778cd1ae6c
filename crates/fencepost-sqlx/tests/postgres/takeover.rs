//! The pause that breaks a lock, at the resource: a holder that acts late, and a successor that must not be harmed.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, Ordering},
};

use fencepost_sqlx::{
    postgres::{admit, begin, fence},
    sqlx::Connection,
};

use crate::{
    Test,
    world::{World, done, pause, refused, send, stale, token, value},
};

pub(crate) const TESTS: &[Test] = &[
    ("takeover::a_stale_transaction_that_has_passed_ends_before_the_successor_reads", stalled_and_commits),
    ("takeover::a_stale_transaction_that_gives_up_changes_nothing", stalled_and_gives_up),
    ("takeover::the_late_write_is_refused", late_write),
    ("takeover::a_token_is_looked_at_again_after_the_wait", looked_at_again),
    ("takeover::a_busy_stale_holder_does_not_keep_its_successor_out", busy_holder),
    ("takeover::transactions_of_one_holder_do_not_wait_for_each_other", side_by_side),
    ("takeover::many_first_transactions_of_a_new_holder_all_pass", many_first),
];

const STOCK: &str =
    "CREATE TABLE stock (n int); INSERT INTO stock VALUES (100); SELECT fencepost_protect('stock', 'a')";

fn stalled_and_commits(world: World) {
    world.run(async {
        world.psql(STOCK);
        let pool = world.pool(4).await;
        let mut late = begin(&pool, "a", token(41)).await.unwrap();
        done(&mut late, "UPDATE stock SET n = n - 1").await;
        let (read, ()) = tokio::join!(
            async {
                let mut tx = begin(&pool, "a", token(42)).await.unwrap();
                let read = value(&mut tx, "SELECT n FROM stock").await;
                done(&mut tx, "UPDATE stock SET n = n - 1").await;
                tx.commit().await.unwrap();
                read
            },
            async {
                world.waiting(1).await;
                late.commit().await.unwrap();
            },
        );
        assert_eq!(read.as_deref(), Some("99"), "what the successor read");
        assert_eq!(world.psql("TABLE stock"), "98");
        stale(begin(&pool, "a", token(41)).await, 41, 42);
    });
}

fn stalled_and_gives_up(world: World) {
    world.run(async {
        world.psql(STOCK);
        let pool = world.pool(4).await;
        let mut late = begin(&pool, "a", token(41)).await.unwrap();
        done(&mut late, "UPDATE stock SET n = 0").await;
        let (tx, ()) = tokio::join!(begin(&pool, "a", token(42)), async {
            world.waiting(1).await;
            late.rollback().await.unwrap();
        });
        assert_eq!(value(&mut tx.unwrap(), "SELECT n FROM stock").await.as_deref(), Some("100"));
    });
}

fn late_write(world: World) {
    world.run(async {
        world.psql(STOCK);
        let (mut late, mut successor) = (world.connect().await, world.connect().await);
        let mut tx = late.begin().await.unwrap();
        assert_eq!(value(&mut tx, "SELECT n FROM stock").await.as_deref(), Some("100"));
        done(&mut successor, "BEGIN; SELECT fencepost_admit('a', 42); UPDATE stock SET n = 50; COMMIT").await;
        stale(admit(&mut tx, "a", token(41)).await, 41, 42);
        tx.rollback().await.unwrap();
        // Nor by going around.
        refused(
            send(&mut late, "UPDATE stock SET n = 99").await,
            "FP003",
            &["table=public.stock resource=a"],
        );
        assert_eq!(world.psql("TABLE stock"), "50");
    });
}

/// When it asks, it has the highest token that can be seen; a successor is about to commit.
fn looked_at_again(world: World) {
    world.run(async {
        let pool = world.pool(4).await;
        // Once by the statements that record it, and from then on by those that only ask.
        begin(&pool, "a", token(41)).await.unwrap().commit().await.unwrap();
        let mut successor = pool.begin().await.unwrap();
        admit(&mut successor, "a", token(42)).await.unwrap();
        let mut other = world.connect().await;
        let (admitted, fenced, ()) =
            tokio::join!(begin(&pool, "a", token(41)), fence(&mut other, "a", token(41)), async {
                world.waiting(2).await;
                successor.commit().await.unwrap();
            });
        stale(admitted, 41, 42);
        stale(fenced, 41, 42);
    });
}

/// Its transactions overlap: at no moment is there none that has passed.
fn busy_holder(world: World) {
    world.run(async {
        let pool = world.pool(8).await;
        fence(&mut pool.acquire().await.unwrap(), "a", token(41)).await.unwrap();
        let (passed, is_over) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
        let runtime = tokio::runtime::Handle::current();
        let workers: Vec<_> = (0..6)
            .map(|number| {
                let (pool, passed, is_over) = (pool.clone(), passed.clone(), is_over.clone());
                runtime.spawn(async move {
                    pause(number * 35).await;
                    loop {
                        let mut tx = match begin(&pool, "a", token(41)).await {
                            Ok(tx) => tx,
                            Err(error) => {
                                assert_eq!(
                                    error.stale().map(|stale| stale.highest),
                                    Some(token(42)),
                                    "{error}"
                                );
                                return;
                            }
                        };
                        passed.fetch_add(1, Ordering::Relaxed);
                        assert!(!is_over.load(Ordering::Relaxed), "passed after the successor");
                        done(&mut tx, "SELECT pg_sleep(0.2)").await;
                        tx.commit().await.unwrap();
                    }
                })
            })
            .collect();
        while passed.load(Ordering::Relaxed) < 20 {
            pause(5).await;
        }
        let mut successor = world.connect().await;
        done(&mut successor, "SET statement_timeout = '10s'").await;
        let before = AtomicU32::new(u32::MAX);
        let (fenced, ()) = tokio::join!(
            async {
                let fenced = fence(&mut successor, "a", token(42)).await;
                is_over.store(true, Ordering::Relaxed);
                fenced
            },
            async {
                // Nobody else has to wait before the successor does.
                world.waiting(1).await;
                before.store(passed.load(Ordering::Relaxed), Ordering::Relaxed);
            },
        );
        fenced.unwrap();
        // Those that had passed a moment before, and have not told yet.
        let later = passed.load(Ordering::Relaxed).saturating_sub(before.load(Ordering::Relaxed));
        assert!(later <= 6, "{later} transactions overtook the successor");
        for worker in workers {
            worker.await.unwrap();
        }
    });
}

fn side_by_side(world: World) {
    world.run(async {
        let pool = world.pool(3).await;
        fence(&mut pool.acquire().await.unwrap(), "a", token(41)).await.unwrap();
        let mut open = Vec::new();
        for _ in 0..3 {
            let mut tx = begin(&pool, "a", token(41)).await.unwrap();
            done(&mut tx, "SET LOCAL lock_timeout = '1ms'").await;
            fence(&mut tx, "a", token(41)).await.unwrap();
            open.push(tx);
        }
        for tx in open {
            tx.commit().await.unwrap();
        }
    });
}

fn many_first(world: World) {
    world.run(async {
        let pool = world.pool(16).await;
        for token_of_round in 41..49 {
            let runtime = tokio::runtime::Handle::current();
            let first: Vec<_> = (0..16)
                .map(|_| {
                    let pool = pool.clone();
                    runtime.spawn(async move {
                        begin(&pool, "a", token(token_of_round)).await.unwrap().commit().await.unwrap();
                    })
                })
                .collect();
            for one in first {
                one.await.unwrap();
            }
        }
    });
}
