//! The checker keeps up with long histories.

use fencepost_lab::checker::{Rule, Rules, judge};
use fencepost_lab::history::Kind;

use crate::prng::Prng;
use crate::simulated;

/// A million events when optimised, a tenth of that otherwise.
const CLAIMS: u64 = if cfg!(debug_assertions) { 11_000 } else { 110_000 };

#[test]
fn one_lost_update_is_found_in_a_long_history() {
    let mut history = simulated::lock(CLAIMS, &mut Prng(1));
    history.returns(CLAIMS - 1, Kind::Renew).deadline_ns = Some(u64::MAX);
    history.state().remove(CLAIMS as usize / 2);
    let verdict = judge(&history.events, &Rules::all()).unwrap();
    assert_eq!(verdict.broken(), [Rule::Updates].into());
    assert_eq!((verdict.grants as u64, verdict.lost), (CLAIMS, 1));
}
