//! Many commands at once over one connection.

use std::rc::Rc;

use fencepost_lab::clock::now_ns;
use rustix::time::{ClockId, clock_gettime};
use tokio::task::LocalSet;

use crate::{Outcome, candidates::Candidate, table::median};

const TASKS: usize = 64;
const PIPELINE: usize = 256;

/// What one candidate did.
pub(crate) struct Crowd {
    pub(crate) name: &'static str,
    /// Commands a second.
    pub(crate) rate: f64,
    /// Processor time of this process, in microseconds a command.
    pub(crate) cpu: f64,
    /// The rate in turns of that of the first candidate.
    pub(crate) ratio: f64,
}

/// Tasks that each run one command after the other.
pub(crate) async fn tasks(candidates: &[Rc<Candidate>], turns: usize, each: usize) -> Outcome<Vec<Crowd>> {
    compare(candidates, turns, async |candidate: &Rc<Candidate>| {
        let local = LocalSet::new();
        let crowd: Vec<_> = (0..TASKS)
            .map(|_| {
                let candidate = Rc::clone(candidate);
                local.spawn_local(async move {
                    for _ in 0..each {
                        (candidate.call)("crowd").await?;
                    }
                    Outcome::Ok(())
                })
            })
            .collect();
        local.await;
        for member in crowd {
            member.await??;
        }
        Ok(TASKS * each)
    })
    .await
}

/// Pipelines, one after the other, as one process renews many locks.
pub(crate) async fn pipelines(
    candidates: &[Rc<Candidate>],
    turns: usize,
    each: usize,
) -> Outcome<Vec<Crowd>> {
    compare(candidates, turns, async |candidate: &Rc<Candidate>| {
        let batch = candidate.batch.as_ref().ok_or("it has no pipelines")?;
        let mut done = 0;
        for _ in 0..each {
            done += batch("pipeline", PIPELINE).await?;
        }
        Ok(done)
    })
    .await
}

async fn compare(
    candidates: &[Rc<Candidate>],
    turns: usize,
    run: impl AsyncFn(&Rc<Candidate>) -> Outcome<usize>,
) -> Outcome<Vec<Crowd>> {
    let candidates: Vec<_> = candidates.iter().filter(|candidate| candidate.batch.is_some()).collect();
    let mut seen: Vec<_> = candidates.iter().map(|_| Turns::default()).collect();
    for _ in 0..turns {
        let mut first = None;
        for (candidate, turns) in candidates.iter().zip(&mut seen) {
            let (start, used) = (now_ns(), cpu_ns());
            let commands = run(candidate).await? as f64;
            let rate = commands / ((now_ns() - start) as f64 / 1e9);
            turns.cpus.push((cpu_ns() - used) as f64 / 1e3 / commands);
            turns.rates.push(rate);
            turns.ratios.push(rate / *first.get_or_insert(rate));
        }
    }
    let crowds = candidates.iter().zip(seen).map(|(candidate, turns)| Crowd {
        name: candidate.name,
        rate: median(turns.rates),
        cpu: median(turns.cpus),
        ratio: median(turns.ratios),
    });
    Ok(crowds.collect())
}

#[derive(Default)]
struct Turns {
    rates: Vec<f64>,
    cpus: Vec<f64>,
    ratios: Vec<f64>,
}

fn cpu_ns() -> u64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    used.tv_sec as u64 * 1_000_000_000 + used.tv_nsec as u64
}
