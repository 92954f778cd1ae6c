//! Equal, higher and lower.

use super::{Stage, Verdict, equal, pass, stale, token};
use crate::{conformance::Stop, gate::Mark};

/// A holder writes as often as it likes. The `<=` of many an article refuses its second write.
pub(super) fn an_equal_token_is_accepted_again(stage: &Stage<'_>) -> Verdict {
    let (holder, other) = (stage.connect()?, stage.connect()?);
    holder.fence(&stage.resource, &pass(42))?;
    holder.fence(&stage.resource, &pass(42))?;
    holder.write(&stage.resource, &pass(42), "one")?;
    other.write(&stage.resource, &pass(42), "two")?;
    equal(&holder.read(&stage.resource, &pass(42))?, &"two".into(), "the text")
}

/// By each of the ways through the gate.
pub(super) fn a_higher_token_is_accepted_and_recorded(stage: &Stage<'_>) -> Verdict {
    let client = stage.connect()?;
    equal(&client.mark(&stage.resource)?, &Mark::default(), "the mark of a new resource")?;
    let highest = |number| Mark { highest: Some(token(number)), lineage: None };
    client.fence(&stage.resource, &pass(41))?;
    equal(&client.mark(&stage.resource)?, &highest(41), "the mark after a fence")?;
    client.write(&stage.resource, &pass(43), "text")?;
    equal(&client.mark(&stage.resource)?, &highest(43), "the mark after a write")?;
    equal(&client.peek(&stage.resource)?, &"text".into(), "the text")?;
    equal(&client.read(&stage.resource, &pass(47))?, &"text".into(), "the text")?;
    equal(&client.mark(&stage.resource)?, &highest(47), "the mark after a read")
}

/// Also by a client that raised the gate itself, long ago.
pub(super) fn a_lower_token_is_rejected_with_both_numbers(stage: &Stage<'_>) -> Verdict {
    let (late, successor) = (stage.connect()?, stage.connect()?);
    late.write(&stage.resource, &pass(41), "early")?;
    successor.fence(&stage.resource, &pass(43))?;
    stale(late.write(&stage.resource, &pass(41), "late"), "a late write", 41, 43)?;
    stale(late.fence(&stage.resource, &pass(42)), "a late fence", 42, 43)?;
    successor.write(&stage.resource, &pass(44), "next")?;
    stale(late.write(&stage.resource, &pass(43), "late"), "a late write", 43, 44)
}

/// Neither the text nor the mark.
pub(super) fn a_rejection_changes_nothing(stage: &Stage<'_>) -> Verdict {
    let client = stage.connect()?;
    client.write(&stage.resource, &pass(42), "text")?;
    let mark = client.mark(&stage.resource)?;
    stale(client.write(&stage.resource, &pass(7), "late"), "a late write", 7, 42)?;
    equal(&client.peek(&stage.resource)?, &"text".into(), "the text")?;
    equal(&client.mark(&stage.resource)?, &mark, "the mark")?;
    client.write(&stage.resource, &pass(42), "more")?;
    equal(&client.peek(&stage.resource)?, &"more".into(), "the text")
}

/// So that a holder finds out before it has worked on what it read.
pub(super) fn a_read_is_checked_too(stage: &Stage<'_>) -> Verdict {
    let client = stage.connect()?;
    client.write(&stage.resource, &pass(41), "text")?;
    client.fence(&stage.resource, &pass(42))?;
    stale(client.read(&stage.resource, &pass(41)), "a late read", 41, 42)
}

/// Numbers are compared as numbers: not as text, and not as floating point.
pub(super) fn the_smallest_and_the_largest_token_are_taken(stage: &Stage<'_>) -> Verdict {
    let client = stage.connect()?;
    let largest = stage.harness.largest().get();
    let mut before = None;
    let precise = (1 << 53) + 1;
    for number in [1, 2, 9, 10, 99, 100, precise - 1, precise, largest - 1, largest] {
        client.write(&stage.resource, &pass(number), &number.to_string())?;
        equal(&client.mark(&stage.resource)?.highest, &Some(token(number)), "the highest")?;
        if let Some(before) = before {
            stale(client.write(&stage.resource, &pass(before), "late"), "a late write", before, number)?;
        }
        before = Some(number);
    }
    equal(&client.peek(&stage.resource)?, &largest.to_string(), "the text")
}

/// Whatever their names have in common.
pub(super) fn each_resource_has_its_own_mark(stage: &Stage<'_>) -> Verdict {
    let client = stage.connect()?;
    let names = ["", "0", "/a", "/A", "é", "e\u{301}", " ", "%", "_", "'", "{}", "*", ":", "\\"];
    let resources: Vec<String> = names.iter().map(|suffix| format!("{}{suffix}", stage.resource)).collect();
    // Falling, so that one mark for two of them would reject the second.
    let numbers = || (1..=200).rev();
    for (number, resource) in numbers().zip(&resources) {
        client.write(resource, &pass(number), resource)?;
    }
    for (number, resource) in numbers().zip(&resources) {
        equal(&client.mark(resource)?.highest, &Some(token(number)), "the highest")?;
        equal(&client.peek(resource)?, resource, "the text")?;
    }
    Ok(())
}

/// A gate that forgets lets everybody in.
pub(super) fn a_mark_outlives_its_connections(stage: &Stage<'_>) -> Verdict {
    let client = stage.connect()?;
    client.write(&stage.resource, &pass(42), "text")?;
    drop(client);
    remembers(stage)
}

/// Also right after the last write.
pub(super) fn a_mark_outlives_a_restart(stage: &Stage<'_>) -> Verdict {
    let client = stage.connect()?;
    client.write(&stage.resource, &pass(42), "text")?;
    drop(client);
    stage.harness.restart()?;
    remembers(stage)
}

fn remembers(stage: &Stage<'_>) -> Verdict {
    let client = stage.connect()?;
    stale(client.write(&stage.resource, &pass(41), "late"), "a late write", 41, 42)?;
    equal(&client.read(&stage.resource, &pass(42))?, &"text".into(), "the text")
}

/// A lock whose backend lost its tokens goes on above the number that the rejection carries.
pub(super) fn the_highest_is_a_floor_that_heals(stage: &Stage<'_>) -> Verdict {
    let client = stage.connect()?;
    client.write(&stage.resource, &pass(4_000_000), "text")?;
    let mut next = 1;
    let mut rejections = 0;
    while let Err(error) = client.write(&stage.resource, &pass(next), "healed") {
        let Some(stale) = error.stale() else { return Err(error.into()) };
        next = stale.highest.get() + 1;
        rejections += 1;
        if rejections > 1 {
            return Err(Stop::Failed(format!("a token above the floor was rejected: {error}")));
        }
    }
    equal(&client.peek(&stage.resource)?, &"healed".into(), "the text")
}

/// Stale means that a successor has raised the gate. Time alone makes nothing stale, and a gap in the numbers neither.
pub(super) fn an_expired_holder_without_a_successor_is_accepted(stage: &Stage<'_>) -> Verdict {
    let client = stage.connect()?;
    client.write(&stage.resource, &pass(41), "text")?;
    // A successor that has its token and has not come to the gate yet.
    client.write(&stage.resource, &pass(41), "in order")?;
    equal(&client.read(&stage.resource, &pass(42))?, &"in order".into(), "what the successor reads")?;
    stale(client.write(&stage.resource, &pass(41), "late"), "a late write", 41, 42)
}
