//! The ZooKeeper driver with one rule broken.

use super::{Edit, Mutant};

pub(crate) const MUTANTS: &[(&str, Mutant)] = &[
    (
        "no_recovery",
        Mutant {
            story: "after a lost reply another node is made, behind the first (CURATOR-45)",
            edits: &[Edit {
                file: "drivers/zookeeper/enter.rs",
                right: "None if is_unsure => match place.recover().await? {",
                broken: "None if is_unsure && place.lock.is_empty() => match place.recover().await? {",
            }],
        },
    ),
    (
        "the_line_by_name",
        Mutant {
            story: "the line is in the order of the names, which begin with something random",
            edits: &[Edit {
                file: "drivers/zookeeper/names.rs",
                right: "place(a).cmp(&place(b)).then_with(|| a.name.cmp(&b.name))",
                broken: "a.name.cmp(&b.name).then_with(|| place(a).cmp(&place(b)))",
            }],
        },
    ),
];

/// What only three servers show.
pub(crate) const QUORUM: &[(&str, Mutant)] = &[(
    "renewed_by_a_read",
    Mutant {
        story: "a session is renewed by what one server answers, as other clients do it",
        edits: &[
            Edit {
                file: "drivers/zookeeper/mod.rs",
                right: "session.send(&[Request::Multi(vec![check])])",
                broken: "session.send(&[match check { Request::Check { path, .. } => Request::Exists { path, watch: false }, other => other }])",
            },
            Edit {
                file: "drivers/zookeeper/mod.rs",
                right: "match reply.steps(1) {",
                broken: "match reply.stat().map(drop).map_err(|code| (0, code)) {",
            },
        ],
    },
)];

/// What an operator's deletion shows.
pub(crate) const WATCHES: &[(&str, Mutant)] = &[(
    "a_waiter_does_not_watch_itself",
    Mutant {
        story: "a waiter whose node is gone waits on (etcd#19597)",
        edits: &[Edit {
            file: "drivers/zookeeper/enter.rs",
            right: "self.routes.add(&own_path, self.claim, What::Own);",
            broken: "",
        }],
    },
)];

/// What a backup that was restored shows.
pub(crate) const PAST: &[(&str, Mutant)] = &[(
    "any_past",
    Mutant {
        story: "a locker goes on with an ensemble that was put back, and repeats its tokens",
        edits: &[Edit {
            file: "drivers/zookeeper/operate.rs",
            right: "if seen >= highest {",
            broken: "if seen >= highest || seen < highest {",
        }],
    },
)];
