//! Tokens of two sources never compare.

use super::{Pass, Stage, Verdict, ensure, equal, pass, refused, stale, token};
use crate::{
    error::{Error, ErrorKind},
    gate::Mark,
    token::Lineage,
};

fn of(lineage: &str, number: u64) -> Pass {
    pass(number).with_lineage(Lineage::new(lineage))
}

fn mark(lineage: &str, highest: Option<u64>) -> Mark {
    Mark { highest: highest.map(token), lineage: Some(Lineage::new(lineage)) }
}

fn is_other<T>(result: Result<T, Error>, what: &str, presented: &str, recorded: &str) -> Verdict {
    let error = refused(result, what)?;
    let kind = error.kind();
    ensure(
        kind == ErrorKind::OtherLineage,
        format!("{what} failed with {error:?}, and not for its lineage"),
    )?;
    let both = error.other_lineage().map(|other| (other.presented.as_str(), other.recorded.as_str()));
    equal(&both, &Some((presented, recorded)), "the pair of lineages in the error")
}

/// Also where the gate had only seen passes without one.
pub(super) fn the_first_lineage_is_recorded(stage: &Stage<'_>) -> Verdict {
    let client = stage.connect()?;
    client.write(&stage.resource, &pass(41), "unnamed")?;
    // The number is the same, and still there is something to record.
    client.fence(&stage.resource, &of("a", 41))?;
    equal(&client.mark(&stage.resource)?, &mark("a", Some(41)), "the mark")?;
    client.write(&stage.resource, &of("a", 42), "named")?;
    equal(&client.mark(&stage.resource)?, &mark("a", Some(42)), "the mark")
}

/// Whether its number is higher or lower says nothing.
pub(super) fn another_lineage_is_refused_until_a_rebind(stage: &Stage<'_>) -> Verdict {
    let client = stage.connect()?;
    client.write(&stage.resource, &of("a", 42), "text")?;
    for number in [41, 42, 43] {
        is_other(client.fence(&stage.resource, &of("b", number)), "a fence", "b", "a")?;
        is_other(client.write(&stage.resource, &of("b", number), "other"), "a write", "b", "a")?;
        is_other(client.read(&stage.resource, &of("b", number)), "a read", "b", "a")?;
    }
    equal(&client.peek(&stage.resource)?, &"text".into(), "the text")?;
    client.rebind(&stage.resource, &mark("b", Some(7)))?;
    equal(&client.mark(&stage.resource)?, &mark("b", Some(7)), "the mark")?;
    is_other(client.write(&stage.resource, &of("a", 43), "late"), "a write of the old source", "a", "b")?;
    stale(client.write(&stage.resource, &of("b", 6), "late"), "a late write", 6, 7)?;
    client.write(&stage.resource, &of("b", 8), "other")?;
    equal(&client.peek(&stage.resource)?, &"other".into(), "the text")
}

/// With a lineage and no number yet, or with neither.
pub(super) fn a_rebind_may_begin_anew(stage: &Stage<'_>) -> Verdict {
    let client = stage.connect()?;
    client.write(&stage.resource, &of("a", 42), "text")?;
    client.rebind(&stage.resource, &mark("b", None))?;
    equal(&client.mark(&stage.resource)?, &mark("b", None), "the mark")?;
    is_other(client.write(&stage.resource, &of("a", 43), "late"), "a write of the old source", "a", "b")?;
    client.write(&stage.resource, &of("b", 1), "first")?;
    equal(&client.mark(&stage.resource)?, &mark("b", Some(1)), "the mark")?;
    client.rebind(&stage.resource, &Mark::default())?;
    equal(&client.mark(&stage.resource)?, &Mark::default(), "the mark")?;
    client.write(&stage.resource, &of("c", 1), "anew")?;
    equal(&client.mark(&stage.resource)?, &mark("c", Some(1)), "the mark")?;
    // A resource that no token was ever shown for is bound in advance.
    let other = format!("{}/other", stage.resource);
    client.rebind(&other, &mark("a", Some(5)))?;
    stale(client.write(&other, &of("a", 4), "late"), "a late write", 4, 5)
}

/// A caller in another language may know nothing else.
pub(super) fn a_pass_without_a_lineage_is_compared_by_its_number(stage: &Stage<'_>) -> Verdict {
    let client = stage.connect()?;
    client.write(&stage.resource, &of("a", 42), "text")?;
    client.write(&stage.resource, &pass(42), "equal")?;
    stale(client.write(&stage.resource, &pass(41), "late"), "a late write", 41, 42)?;
    client.write(&stage.resource, &pass(43), "higher")?;
    equal(&client.mark(&stage.resource)?, &mark("a", Some(43)), "the mark")
}
