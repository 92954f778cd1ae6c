//! A free lock, taken and given back by one thread.

use fencepost::{Locker, blocking};
use fencepost_lab::server::redis::Redis;
use tokio::runtime::Builder;

use super::{
    floor::{Bare, Scripts, VALUE},
    peers,
};
use crate::{outcome::Outcome, pairs::in_turn, table::Table};

/// How often each measurement repeats what it measures: some milliseconds' worth.
pub(super) const REPEATED: u32 = 50;

pub(super) const WHAT: &str = "acquire and release, redis";

pub(super) fn measure(table: &mut Table, server: &Redis, effort: usize) -> Outcome<()> {
    let pairs = 15 * effort;
    let scripts = Scripts::load(server)?;
    let locker = blocking::wait(Locker::connect(&server.url()))?;
    let ours = || {
        for _ in 0..REPEATED {
            let guard = blocking::wait(locker.lock("alone").acquire())?;
            blocking::wait(guard.release())?;
        }
        Ok(())
    };
    let bare = Bare::connect(server, &scripts)?;
    let floor = || {
        for _ in 0..REPEATED {
            blocking::wait(bare.compare("bare"))?;
            blocking::wait(bare.compare("bare"))?;
        }
        Ok(())
    };
    let same_client = in_turn(pairs, floor, ours)?.each_of(REPEATED);
    table.pairs(WHAT, "2 EVALSHA, the library's connection", &same_client, Some(1.2));

    // As most programs have it: the connections' tasks on threads of the runtime, the caller on its own.
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let client = redis::Client::open(server.url())?;
    let multiplexed = runtime.block_on(client.get_multiplexed_async_connection())?;
    let floor = || {
        runtime.block_on(async {
            let mut multiplexed = multiplexed.clone();
            for _ in 0..2 * REPEATED {
                let mut compare = redis::cmd("EVALSHA");
                compare.arg(&scripts.compare).arg(1).arg("bare").arg(VALUE);
                compare.query_async::<Option<bool>>(&mut multiplexed).await?;
            }
            Ok(())
        })
    };
    let crate_redis = in_turn(pairs, floor, ours)?.each_of(REPEATED);
    table.pairs(WHAT, "2 EVALSHA, the crate redis", &crate_redis, None);

    let one_thread = Builder::new_current_thread().enable_all().build()?;
    for (runtime, name, goal) in
        [(&runtime, "rslock", Some(1.2)), (&one_thread, "rslock, all on one thread", None)]
    {
        let manager = rslock::LockManager::new(vec![server.url()]);
        let floor = || {
            runtime.block_on(async {
                for _ in 0..REPEATED {
                    manager.lock("rslock", fencepost::DEFAULT_TTL).await?.release().await;
                }
                Ok(())
            })
        };
        let ours = || {
            runtime.block_on(async {
                for _ in 0..REPEATED {
                    locker.lock("alone").acquire().await?.release().await?;
                }
                Ok(())
            })
        };
        let rslock = in_turn(pairs, floor, ours)?.each_of(REPEATED);
        table.pairs(WHAT, name, &rslock, goal);
    }
    peers::measure(table, server, pairs, ours)
}
