//! A writer that is killed at every step of its way.

use super::{Client, Crash, Stage, Verdict, ensure, equal, pass, stale, token};
use crate::{conformance::Stop, gate::Mark};

/// More steps than any store takes: a write that does not end is broken.
const MOST: usize = 2000;

/// Kills a writer with token 42 at each of its steps, where token 41 wrote before, and calls `then` after each.
fn at_every_step(stage: &Stage<'_>, then: impl Fn(&dyn Client, &str, Crash) -> Verdict) -> Verdict {
    let client = stage.connect()?;
    for step in 0..MOST {
        let resource = format!("{}/{step}", stage.resource);
        client.write(&resource, &pass(41), "old")?;
        let crash = stage.harness.crash(&resource, &pass(42), "new", step)?;
        let named = |stop| match stop {
            Stop::Failed(why) => Stop::Failed(format!("{why}, after {crash:?} at step {step}")),
            other => other,
        };
        then(&*client, &resource, crash).map_err(named)?;
        if crash == Crash::Ended {
            return ensure(step > 0, "the writer was not killed once");
        }
    }
    Err(Stop::Failed(format!("a write takes more than {MOST} steps")))
}

/// The fence may be raised without the data. The data is never there without the fence, and never in part.
pub(super) fn a_crash_leaves_no_data_without_its_fence(stage: &Stage<'_>) -> Verdict {
    at_every_step(stage, |client, resource, crash| {
        let (text, mark) = (client.peek(resource)?, client.mark(resource)?);
        ensure(["old", "new"].contains(&text.as_str()), format!("the text is {text:?}"))?;
        let raised = Mark { highest: Some(token(42)), lineage: None };
        if text == "new" || crash == Crash::Ended {
            equal(&mark, &raised, &format!("the mark beside the text {text:?}"))?;
        }
        ensure(crash == Crash::Killed || text == "new", "a write that ended left the old text")?;
        if mark == raised {
            stale(client.write(resource, &pass(41), "late"), "a late write", 41, 42)?;
        }
        Ok(())
    })
}

/// The holder goes on, and so does its successor; and nothing is left of what was begun.
pub(super) fn a_crash_leaves_a_gate_that_works(stage: &Stage<'_>) -> Verdict {
    at_every_step(stage, |client, resource, _| {
        client.write(resource, &pass(42), "again")?;
        equal(&client.read(resource, &pass(42))?, &"again".into(), "the text")?;
        client.write(resource, &pass(43), "next")?;
        stale(client.write(resource, &pass(42), "late"), "a late write", 42, 43)?;
        equal(&client.peek(resource)?, &"next".into(), "the text")?;
        equal(&stage.harness.residue(), &Vec::new(), "what is left over")
    })
}
