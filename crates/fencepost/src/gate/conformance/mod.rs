//! The promises that every gate keeps, as functions to run against a gate of your own (feature `conformance`).
//!
//! Write a [`Harness`] around your gate, and run every one of [`CASES`] with [`check`], each with a fresh store:
//!
//! ```no_run
//! # fn fresh_store() -> Box<dyn fencepost::gate::conformance::Harness> { unreachable!() }
//! use fencepost::{conformance::Stop, gate::conformance::{CASES, check}};
//!
//! for case in CASES {
//!     match check(case, &*fresh_store()) {
//!         Ok(()) => println!("{} kept", case.name),
//!         Err(Stop::NotApplicable(reason)) => println!("{} does not apply: {reason}", case.name),
//!         Err(Stop::Failed(why)) => panic!("{} broken: {why}", case.name),
//!     }
//! }
//! ```
//!
//! Everything here blocks, and cases that need company start threads: a gate with an async API brings a runtime of its own. Calls
//! that wait for another transaction need a limit of their own.

mod crashes;
mod harness;
mod lineages;
mod order;
mod races;
mod tokens;
mod transactions;

pub use harness::{Client, Crash, Harness, Transaction};

use super::pass::Pass;
use crate::{
    conformance::{Stop, Verdict, ensure, refused},
    error::{Error, ErrorKind},
    token::Token,
};

/// One promise.
pub struct Case {
    /// Its name, which is a sentence.
    pub name: &'static str,
    run: fn(&Stage<'_>) -> Verdict,
}

macro_rules! cases {
    ($($module:ident { $($name:ident,)* })*) => {
        /// Every promise, in reading order.
        pub const CASES: &[Case] = &[$($(Case { name: stringify!($name), run: $module::$name },)*)*];
    };
}

cases! {
    tokens {
        an_equal_token_is_accepted_again,
        a_higher_token_is_accepted_and_recorded,
        a_lower_token_is_rejected_with_both_numbers,
        a_rejection_changes_nothing,
        a_read_is_checked_too,
        the_smallest_and_the_largest_token_are_taken,
        each_resource_has_its_own_mark,
        a_mark_outlives_its_connections,
        a_mark_outlives_a_restart,
        the_highest_is_a_floor_that_heals,
        an_expired_holder_without_a_successor_is_accepted,
    }
    lineages {
        the_first_lineage_is_recorded,
        another_lineage_is_refused_until_a_rebind,
        a_rebind_may_begin_anew,
        a_pass_without_a_lineage_is_compared_by_its_number,
    }
    order {
        fencing_before_reading_loses_no_update,
        a_gate_on_writes_alone_loses_three_of_ten,
    }
    races {
        equal_tokens_are_accepted_side_by_side,
        of_two_writers_that_race_the_higher_wins,
        nothing_comes_between_the_check_and_the_write,
    }
    transactions {
        a_transaction_begun_before_the_takeover_is_rejected,
        a_takeover_waits_for_a_transaction_that_has_passed_or_stops_it,
        transactions_of_one_holder_run_side_by_side,
        a_transaction_that_is_given_up_changes_nothing,
    }
    crashes {
        a_crash_leaves_no_data_without_its_fence,
        a_crash_leaves_a_gate_that_works,
    }
}

/// Runs one case.
///
/// # Errors
///
/// [`Stop::NotApplicable`] with the reason if the store has no such thing; [`Stop::Failed`] if the promise is broken.
pub fn check(case: &Case, harness: &dyn Harness) -> Result<(), Stop> {
    (case.run)(&Stage { harness, resource: format!("conformance/{}", case.name) })
}

/// The scene of one case.
struct Stage<'a> {
    harness: &'a dyn Harness,
    /// The resource that the case is about.
    resource: String,
}

impl Stage<'_> {
    fn connect(&self) -> Result<Box<dyn Client>, Error> {
        self.harness.connect()
    }
}

/// A pass without a lineage.
fn pass(number: u64) -> Pass {
    token(number).into()
}

fn token(number: u64) -> Token {
    Token::new(number).expect("cases use no zero")
}

/// Fails the case unless this was refused as stale, with these numbers.
fn stale<T>(result: Result<T, Error>, what: &str, presented: u64, highest: u64) -> Verdict {
    let error = refused(result, what)?;
    ensure(error.kind() == ErrorKind::Stale, format!("{what} failed with {error:?}, and not as stale"))?;
    let numbers = error.stale().map(|stale| (stale.presented.get(), stale.highest.get()));
    let expected = (presented, highest);
    ensure(numbers == Some(expected), format!("{what} carries {numbers:?}, not {expected:?}"))
}

fn equal<T: PartialEq + std::fmt::Debug>(found: &T, expected: &T, what: &str) -> Verdict {
    ensure(found == expected, format!("{what} is {found:?}, not {expected:?}"))
}
