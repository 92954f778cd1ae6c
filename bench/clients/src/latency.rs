//! One round trip at a time.

use std::rc::Rc;

use fencepost_lab::clock::now_ns;

use crate::{Outcome, candidates::Candidate, table::median};

/// Calls in a row, long enough that a thread which went to sleep between the turns does not count.
const TURN: usize = 20;

/// The median of each candidate, and the median over the turns of its ratio to the first.
pub(crate) async fn measure(candidates: &[Rc<Candidate>], turns: usize) -> Outcome<Vec<(f64, f64)>> {
    let mut times = vec![Vec::new(); candidates.len()];
    let mut ratios = vec![Vec::new(); candidates.len()];
    for _ in 0..turns {
        let mut first = None;
        for (at, candidate) in candidates.iter().enumerate() {
            let mut turn = Vec::with_capacity(TURN);
            for _ in 0..TURN {
                let start = now_ns();
                (candidate.call)("latency").await?;
                turn.push((now_ns() - start) as f64 / 1e3);
            }
            times[at].extend_from_slice(&turn);
            let turn = median(turn);
            ratios[at].push(turn / *first.get_or_insert(turn));
        }
    }
    Ok(times.into_iter().map(median).zip(ratios.into_iter().map(median)).collect())
}
