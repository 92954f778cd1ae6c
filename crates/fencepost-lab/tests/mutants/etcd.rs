//! The etcd driver with one rule of its protocol broken.

use super::{Edit, Mutant};

/// Caught by the conformance suite.
pub(crate) const MUTANTS: &[(&str, Mutant)] = &[
    (
        "granted_without_its_key",
        Mutant {
            story: "a waiter is granted although its own lease died while it waited (etcd#11456, Jepsen)",
            edits: &[Edit {
                file: "drivers/etcd/enter.rs",
                right: "        if !reply.succeeded {\n            self.watches.forget(key, claim);",
                broken: "        if false {\n            self.watches.forget(key, claim);",
            }],
        },
    ),
    (
        "the_left_are_not_marked",
        Mutant {
            story: "an enter that arrives after its claim was given up stands in line for nobody",
            edits: &[Edit {
                file: "drivers/etcd/mod.rs",
                right: "let marks_the_left = source.is_some();",
                broken: "let marks_the_left = false;",
            }],
        },
    ),
    (
        "the_cluster_is_the_lineage",
        Mutant {
            story: "a cluster that is made anew with the same flags repeats its tokens in one lineage",
            edits: &[Edit {
                file: "drivers/etcd/mod.rs",
                right: "format!(\"etcd-{cluster:x}-{source}\")",
                broken: "format!(\"etcd-{cluster:x}-{}\", source.len())",
            }],
        },
    ),
    (
        "a_line_without_an_end",
        Mutant {
            story: "a lock waits for every lock whose name begins with its own",
            edits: &[Edit {
                file: "drivers/etcd/keys.rs",
                right: "format!(\"{}{}/\", self.prefix, self.escape(lock.as_str())).into_bytes()",
                broken: "format!(\"{}{}\", self.prefix, self.escape(lock.as_str())).into_bytes()",
            }],
        },
    ),
    (
        "the_token_of_the_answer",
        Mutant {
            story: "the token is the revision of the answer, not of the key, as etcdctl exports it",
            edits: &[Edit {
                file: "drivers/etcd/enter.rs",
                right: "Ok(Entered::Granted { token: token(created)? })",
                broken: "Ok(Entered::Granted { token: token(now)? })",
            }],
        },
    ),
    (
        "leave_by_the_line",
        Mutant {
            story: "a release frees the lock for whoever holds it (etcd#22082)",
            edits: &[Edit {
                file: "drivers/etcd/keys.rs",
                right: "    format!(\"{:x}-{}\", lease_id(claim.lease()), &claim.id().to_hex()[..16])",
                broken: "    format!(\"{:x}\", lease_id(claim.lease()))",
            }],
        },
    ),
];

/// Caught on three members.
pub(crate) const OF_THE_CLUSTER: &[(&str, Mutant)] = &[(
    "a_deposed_leader_is_believed",
    Mutant {
        story: "a renewal is believed from a leader that was deposed while it stood still (etcd#15247)",
        edits: &[Edit {
            file: "etcd/api.rs",
            right: "if read.raft_term != raft_term {",
            broken: "if false {",
        }],
    },
)];
