//! The broken engines, from faults that were reported of other lock libraries and traps met while building this one.

use super::{Edit, Mutant};

pub(crate) const MUTANTS: &[(&str, Mutant)] = &[
    (
        "deadline_from_the_reply",
        Mutant {
            story: "the lease is counted from the reply, not from the request (etcd's Go client, madelson)",
            edits: &[Edit {
                file: "engine/acquire.rs",
                right: "claim.lease().term().map(|term| deadline(sent, term))",
                broken: "claim.lease().term().map(|term| deadline(self.core.now(), term))",
            }],
        },
    ),
    (
        "no_margin",
        Mutant {
            story: "no allowance for two clocks that run at different rates",
            edits: &[Edit {
                file: "lease.rs",
                right: "let margin = term / 100 + Duration::from_millis(2);",
                broken: "let margin = Duration::ZERO;",
            }],
        },
    ),
    (
        "late_renewal_revives",
        Mutant {
            story: "a renewal's reply that comes after the deadline revives the hold",
            edits: &[Edit {
                file: "claim.rs",
                right: "hold.is_held_at(now).then_some(Hold { state: State::Held, deadline: later })",
                broken: "{ let _ = now; (!hold.is_over()).then_some(Hold { state: State::Held, deadline: later }) }",
            }],
        },
    ),
    (
        "renewal_counted_from_its_reply",
        Mutant {
            story: "a renewal's deadline is counted from its reply",
            edits: &[Edit {
                file: "engine/keepalive.rs",
                right: "if claim.extend(deadline(sent, term), now) && !lease.is_shared() {",
                broken: "if claim.extend(deadline(now, term), now) && !lease.is_shared() {",
            }],
        },
    ),
    (
        "dropped_acquire_forgets_its_claim",
        Mutant {
            story: "a cancelled acquire leaves its claim behind (redisson#2714, rslock, CURATOR-45, kazoo#732)",
            edits: &[Edit {
                file: "engine/reaper.rs",
                right: "self.core.reaper.take(self.core.driver.clone(), claim, at_once);",
                broken: "let _ = at_once;",
            }],
        },
    ),
    (
        "reaper_tries_once",
        Mutant {
            story: "an unconfirmed removal is not repeated (CURATOR-678)",
            edits: &[Edit {
                file: "engine/reaper.rs",
                right: "            None => term,\n        };",
                broken: "            None => term,\n        };\n        if failures == 1 { return; }",
            }],
        },
    ),
    (
        "unknown_enter_is_not_left_again",
        Mutant {
            story: "an enter that was still on its way when its claim was removed grants a ghost",
            edits: &[Edit {
                file: "engine/reaper.rs",
                right: "Ok(_) if !claim.unsure.load(Ordering::Relaxed) => return,",
                broken: "Ok(_) => return,",
            }],
        },
    ),
    (
        "late_enter_on_a_living_session",
        Mutant {
            story: "an enter that comes late is carried by a session that goes on, and nobody removes it (etcd)",
            edits: &[Edit {
                file: "engine/reaper.rs",
                right: "if !lease.keeps_alive(claim.now()) {",
                broken: "if true {",
            }],
        },
    ),
    (
        "leave_overtakes_enter",
        Mutant {
            story: "a leave is sent while the enter is still under way: zombies",
            edits: &[Edit {
                file: "engine/verb.rs",
                right: "let turn = claim.verbs.clone().lock_owned().await;",
                broken: "let turn = Arc::new(tokio::sync::Mutex::new(())).lock_owned().await;",
            }],
        },
    ),
    (
        "grant_after_loss",
        Mutant {
            story: "a grant is stored although the claim was lost meanwhile (etcd#11456: granted on a dead lease)",
            edits: &[Edit {
                file: "claim.rs",
                right: "(hold.state == State::Waiting).then_some(Hold { state: State::Held, deadline })",
                broken: "Some(Hold { state: State::Held, deadline: deadline.or(hold.deadline) })",
            }],
        },
    ),
    (
        "missing_is_not_lost",
        Mutant {
            story: "a renewal that finds nothing is not taken for a loss (python-redis-lock#85)",
            edits: &[Edit {
                file: "engine/keepalive.rs",
                right: "Renewed::Lost => claim.lose(Loss::Gone),",
                broken: "Renewed::Lost => claim.suspect(),",
            }],
        },
    ),
    (
        "session_loss_is_ignored",
        Mutant {
            story: "the end of a session is not told to the claims on it",
            edits: &[Edit { file: "lease.rs", right: "claim.lose(loss);", broken: "let _ = (claim, loss);" }],
        },
    ),
    (
        "held_after_the_deadline",
        Mutant {
            story: "a method says held after the deadline while a renewal hangs",
            edits: &[Edit {
                file: "claim.rs",
                right: "&& self.deadline.is_none_or(|end| now < end)",
                broken: "&& { let _ = now; true }",
            }],
        },
    ),
    (
        "wait_limit_ignored_while_a_request_hangs",
        Mutant {
            story: "one hung node stalls every acquire beyond the caller's limit (redsync PR #80, rslock)",
            edits: &[Edit {
                file: "engine/acquire.rs",
                right: "            answer = request => Ok(answer),\n            () = self.over() => Err(self.timeout()),",
                broken: "            answer = request => Ok(answer),",
            }],
        },
    ),
    (
        "renewed_too_late",
        Mutant {
            story: "renewal is planned for after the deadline",
            edits: &[Edit {
                file: "engine/keepalive.rs",
                right: "(now + term / 3).as_nanos()",
                broken: "(now + term).as_nanos()",
            }],
        },
    ),
    (
        "one_failed_renewal_is_a_loss",
        Mutant {
            story: "one failed renewal gives up a lock that is still held (rslock)",
            edits: &[Edit {
                file: "engine/keepalive.rs",
                right: "Renewed::Unknown => claim.suspect(),",
                broken: "Renewed::Unknown => claim.lose(Loss::Deadline),",
            }],
        },
    ),
    (
        "failed_renewal_is_not_repeated",
        Mutant {
            story: "after a failed renewal none follows before the deadline (RedLock.net#92)",
            edits: &[Edit {
                file: "engine/keepalive.rs",
                right: "lease.term().unwrap_or_default() / 6",
                broken: "lease.term().unwrap_or_default()",
            }],
        },
    ),
    (
        "not_renewed_after_contention",
        Mutant {
            story: "a lock that was waited for is not renewed (RedLock.net#97, redisson#3194)",
            edits: &[Edit {
                file: "engine/acquire.rs",
                right: "line.core.schedule.add(&claim);",
                broken: "if line.holder.is_none() && claim.lease().is_shared() { line.core.schedule.add(&claim); }",
            }],
        },
    ),
    (
        "late_grant_is_returned",
        Mutant {
            story: "a lock is returned with its time already over (node-redlock#296)",
            edits: &[
                Edit {
                    file: "engine/acquire.rs",
                    right: "if until.is_some_and(|until| now >= until) {",
                    broken: "if false {",
                },
                Edit {
                    file: "claim.rs",
                    right: "(term / 2).clamp(REQUEST_MIN, REQUEST_MAX)",
                    broken: "(term * 2).clamp(REQUEST_MIN, term * 2)",
                },
            ],
        },
    ),
    (
        "a_dead_claim_waits_on",
        Mutant {
            story: "a waiter does not notice that its own claim is gone (etcd#19597)",
            edits: &[Edit {
                file: "engine/acquire.rs",
                right: "Ok(Entered::Gone) => return Ok(None),",
                broken: "Ok(Entered::Gone) => Duration::from_millis(100),",
            }],
        },
    ),
    (
        "floor_ignored",
        Mutant {
            story: "the caller's floor is not passed on",
            edits: &[Edit {
                file: "engine/mod.rs",
                right: "Claim::new(lock, owner, floor, lease,",
                broken: "Claim::new(lock, owner, floor.and(None), lease,",
            }],
        },
    ),
    (
        "pokes_are_lost",
        Mutant {
            story: "a wake-up is not delivered and nothing asks again (redisson#1763)",
            edits: &[Edit {
                file: "engine/acquire.rs",
                right: "let again = self.core.now() + pause;",
                broken: "let again = self.core.now() + pause * 1000;",
            }],
        },
    ),
    (
        "leases_keep_their_driver",
        Mutant {
            story: "a task keeps the driver alive when its locker is gone",
            edits: &[Edit { file: "engine/mod.rs", right: "self.schedule.stop();", broken: "" }],
        },
    ),
];
