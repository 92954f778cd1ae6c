//! Gates with one fault each, all of them made somewhere before. The suite must catch every one, by the case that is about
//! it; that the same gate without a fault passes is a row of the matrix.

use fencepost::{
    conformance::Stop,
    gate::conformance::{CASES, Harness, check},
};
use libtest_mimic::{Completion, Failed, Trial};

use crate::{file, toy::Toy};

macro_rules! faults {
    ($($(#[$doc:meta])* $fault:ident: $case:ident,)*) => {
        /// What a gate can get wrong.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Fault {
            $($(#[$doc])* $fault,)*
        }

        /// Each with the case that must catch it.
        const FAULTS: &[(Fault, &str)] = &[$((Fault::$fault, stringify!($case)),)*];
    };
}

faults! {
    NothingIsChecked: a_lower_token_is_rejected_with_both_numbers,
    /// The `<=` of the article.
    EqualIsRefused: an_equal_token_is_accepted_again,
    NumberIsComparedAsText: the_smallest_and_the_largest_token_are_taken,
    NumbersAreSwapped: a_lower_token_is_rejected_with_both_numbers,
    ARejectionRecords: a_rejection_changes_nothing,
    /// Fencing on writes alone.
    TheMarkIsRaisedByWritesOnly: fencing_before_reading_loses_no_update,
    ReadsAreNotChecked: a_read_is_checked_too,
    OneMarkForAll: each_resource_has_its_own_mark,
    /// A mark in the memory of the client.
    AMarkEndsWithItsConnections: a_mark_outlives_its_connections,
    AMarkIsNotDurable: a_mark_outlives_a_restart,
    LineageIsIgnored: another_lineage_is_refused_until_a_rebind,
    ARebindNeverLowers: a_rebind_may_begin_anew,
    /// A check in a connection beside the one that writes.
    TheWriteIsAnotherStep: nothing_comes_between_the_check_and_the_write,
    /// A check by a read of the snapshot.
    TheSnapshotIsChecked: a_transaction_begun_before_the_takeover_is_rejected,
    /// A check without a lock to the commit.
    ATakeoverDoesNotWait: a_takeover_waits_for_a_transaction_that_has_passed_or_stops_it,
    TransactionsOfOneHolderWait: transactions_of_one_holder_run_side_by_side,
    WritesDoNotWaitForTheCommit: a_transaction_that_is_given_up_changes_nothing,
    TheFenceComesAfterTheData: a_crash_leaves_no_data_without_its_fence,
    ACrashLeavesItsLock: a_crash_leaves_a_gate_that_works,
    ACrashLeavesItsDraft: a_crash_leaves_a_gate_that_works,
}

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |(fault, case): &(Fault, &'static str)| {
        let (fault, case) = (*fault, *case);
        Trial::ignorable_test(format!("broken::{fault:?}_is_caught"), move || {
            is_caught(&Toy::broken(fault), case)
        })
    };
    let mut trials: Vec<Trial> = FAULTS.iter().map(trial).collect();
    // The same fault as one above, in real processes that are really killed.
    trials.push(Trial::ignorable_test("broken::AFileBeforeItsFence_is_caught", || {
        is_caught(&*file::broken()?, "a_crash_leaves_no_data_without_its_fence")
    }));
    trials
}

fn is_caught(harness: &dyn Harness, by: &str) -> Result<Completion, Failed> {
    let case = CASES.iter().find(|case| case.name == by).ok_or("no such case")?;
    match check(case, harness) {
        Err(Stop::Failed(_)) => Ok(Completion::Completed),
        Err(Stop::NotApplicable(reason)) => Ok(Completion::ignored_with(reason)),
        Ok(()) => Err(format!("{by} finds nothing wrong with it").into()),
    }
}
