//! The embedded engine under the suite, in a directory of its own. There is no server to break and no lease to run out.

use std::{sync::Arc, time::Duration};

use fencepost::{
    Error, ErrorKind, Locker, blocking,
    conformance::{Harness, HolderProcess, Hook, NotApplicable, Path, Verb},
    driver::{Driver, Fut},
};
use tempfile::TempDir;

use crate::holder::Holder;
