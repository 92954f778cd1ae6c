//! The promises that every driver keeps, as functions to run against a driver of your own (feature `conformance`).
//!
//! Write a [`Harness`] that can connect to your backend and break it, and run every one of [`CASES`] with [`check`]:
//!
//! ```no_run
//! # fn fresh_backend() -> Box<dyn fencepost::conformance::Harness> { unreachable!() }
//! use fencepost::{blocking, conformance::{CASES, Stop, check}};
//!
//! for case in CASES {
//!     match blocking::wait(check(case, &*fresh_backend())) {
//!         Ok(()) => println!("{} kept", case.name),
//!         Err(Stop::NotApplicable(reason)) => println!("{} does not apply: {reason}", case.name),
//!         Err(Stop::Failed(why)) => panic!("{} broken: {why}", case.name),
//!     }
//! }
//! ```
//!
//! Cases judge by stamps that they take themselves, never by when something was scheduled: a busy machine makes them
//! slower, not wrong. Each has a deadline of its own, so that a hang is a failure with a name.

mod elections;
mod exclusion;
mod harness;
mod limits;
mod loss;
mod operators;
mod processes;
mod renewal;
mod stage;
mod tokens;
mod unknown;
mod waiting;

use std::time::Duration;

pub use harness::{Harness, HolderProcess, Hook, LossReport, NotApplicable, Path, Verb};
pub use stage::Stop;
pub(crate) use stage::{Verdict, ensure, refused};

use crate::driver::Fut;

/// One promise.
pub struct Case {
    /// Its name, which is a sentence.
    pub name: &'static str,
    /// Within how many TTLs of the harness, and some seconds, it must come to an end.
    ttls: u32,
    run: for<'a> fn(&'a stage::Stage<'a>) -> Fut<'a, Result<(), Stop>>,
}

macro_rules! cases {
    ($($module:ident { $($name:ident: $ttls:literal,)* })*) => {
        /// Every promise, in reading order.
        pub const CASES: &[Case] = &[$($(Case {
            name: stringify!($name),
            ttls: $ttls,
            run: |stage| Box::pin($module::$name(stage)),
        },)*)*];
    };
}

cases! {
    exclusion {
        there_is_at_most_one_holder: 20,
        the_same_name_twice_in_one_process_excludes_itself: 5,
        two_names_are_two_locks: 5,
        a_try_leaves_nothing_behind: 5,
        a_try_tells_the_holder: 5,
        a_dropped_guard_frees_the_lock: 5,
        a_dropped_release_goes_on: 5,
    }
    tokens {
        tokens_rise_over_releases: 5,
        tokens_rise_over_a_crash: 10,
        tokens_rise_over_a_restart: 10,
        a_wipe_starts_another_lineage: 10,
        a_token_is_stable_under_renewal: 10,
        a_floor_is_exceeded_or_refused: 5,
    }
    waiting {
        those_who_wait_are_served_in_order: 10,
        a_release_wakes_the_next: 10,
        a_wait_ends_at_its_limit: 5,
        a_wait_ends_at_its_limit_while_the_backend_is_frozen: 10,
        patience_ends_while_the_backend_is_frozen: 10,
        an_acquire_dropped_in_line_leaves_nothing: 10,
        an_acquire_dropped_with_its_reply_on_the_way_leaves_nothing: 10,
        a_waiter_that_was_dropped_from_the_line_enters_again: 10,
        a_waiter_is_not_granted_on_a_lease_that_ended_unseen: 10,
        a_lock_got_after_a_wait_is_renewed: 15,
    }
    unknown {
        a_lost_reply_to_enter_grants_once: 10,
        a_lost_reply_to_enter_while_held_stands_in_line_once: 10,
        a_repeated_enter_grants_once: 10,
        a_late_enter_grants_nobody: 10,
        a_lost_reply_to_release_is_no_loss: 10,
        a_late_release_leaves_the_next_holder_alone: 10,
        a_release_during_a_cut_is_made_good: 10,
        a_loss_after_an_unknown_enter_is_told: 5,
    }
    renewal {
        renewal_keeps_a_lock_for_many_terms: 15,
        renewal_never_creates_what_is_missing: 10,
        a_lock_deleted_behind_its_back_is_told: 10,
        a_lost_reply_to_renewal_is_no_loss: 10,
        a_released_lock_is_not_renewed: 10,
        one_lost_lock_leaves_the_others_held: 10,
    }
    loss {
        a_frozen_backend_means_suspect_then_lost: 10,
        a_late_renewal_revives_nothing: 10,
        a_short_cut_is_healed: 10,
        a_deadline_lies_before_the_backends_expiry: 10,
        an_expired_lock_passes_on_and_is_told: 10,
        force_unlock_tells_the_holder_and_lets_the_next_run: 10,
        a_release_after_a_loss_says_so: 10,
        work_is_stopped_by_a_loss: 10,
    }
    processes {
        a_killed_holders_lock_passes_on: 10,
        a_paused_holder_finds_out_on_resume: 10,
        a_killed_waiter_blocks_nobody_for_long: 10,
    }
    operators {
        inspect_shows_who_holds_and_who_waits: 5,
        list_finds_by_prefix_and_in_order: 5,
        observe_tells_changes: 5,
    }
    elections {
        observers_are_told_what_a_leader_says: 10,
        terms_are_ordered: 5,
        a_former_leader_proclaims_nothing: 10,
        a_candidates_lease_is_not_the_leaders: 15,
        work_is_done_in_terms: 15,
    }
    limits {
        a_blocked_runtime_does_not_lose_the_lock: 10,
        the_blocking_api_keeps_the_same_promises: 10,
        strange_durations_are_answered: 10,
        strange_names_are_locks_of_their_own: 5,
        close_waits_until_nothing_is_left: 5,
        nothing_keeps_a_dropped_driver_alive: 10,
    }
}

/// Runs one case; it fails, with its name, if it does not end within its deadline.
///
/// # Errors
///
/// [`Stop::NotApplicable`] with the reason if the backend cannot be broken in the way that the case needs, or does not
/// promise this; [`Stop::Failed`] if the promise is broken.
pub async fn check(case: &Case, harness: &dyn Harness) -> Result<(), Stop> {
    let stage = stage::Stage::new(case.name, harness);
    let limit = harness.ttl() * case.ttls + Duration::from_secs(10);
    tokio::select! {
        biased;
        verdict = (case.run)(&stage) => verdict,
        () = stage::pause(limit) => Err(Stop::Failed(format!("no end within {limit:?}"))),
    }
}
