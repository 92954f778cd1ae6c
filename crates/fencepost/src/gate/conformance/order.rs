//! Why the mark is raised before anything is read: every order of two read-modify-writes.

use super::{Client, Stage, Verdict, ensure, equal, pass};
use crate::{conformance::Stop, error::ErrorKind};

/// One holder that adds its letter to the text, step by step.
struct Holder<'a> {
    client: &'a dyn Client,
    resource: &'a str,
    number: u64,
    letter: char,
    /// How it reads: past the gate, or under its pass.
    is_fencing: bool,
    seen: String,
    /// Whether its write was confirmed.
    is_confirmed: bool,
    is_over: bool,
}

#[derive(Clone, Copy)]
enum Step {
    Arrive,
    Read,
    Write,
}

impl Holder<'_> {
    fn go(&mut self, step: Step) -> Result<(), Stop> {
        if self.is_over {
            return Ok(());
        }
        let pass = pass(self.number);
        let done = match step {
            Step::Arrive if self.is_fencing => self.client.fence(self.resource, &pass),
            Step::Arrive => Ok(()),
            Step::Read if self.is_fencing => {
                self.client.read(self.resource, &pass).map(|text| self.seen = text)
            }
            Step::Read => self.client.peek(self.resource).map(|text| self.seen = text),
            Step::Write => {
                let text = format!("{}{}", self.seen, self.letter);
                self.client.write(self.resource, &pass, &text).map(|()| self.is_confirmed = true)
            }
        };
        match done {
            Err(error) if error.kind() == ErrorKind::Stale => self.is_over = true,
            done => done?,
        }
        Ok(())
    }
}

/// How many orders lose a confirmed update, of how many there are, when the old holder takes these steps and the new one
/// arrives, reads and writes.
fn losses(stage: &Stage<'_>, old_steps: &[Step], is_fencing: bool) -> Result<(u32, u32), Stop> {
    let (old_client, new_client) = (stage.connect()?, stage.connect()?);
    let new_steps = [Step::Arrive, Step::Read, Step::Write];
    let count = old_steps.len() + new_steps.len();
    let (mut lost, mut all) = (0, 0);
    for order in (0..1_u32 << count).filter(|order| order.count_ones() as usize == old_steps.len()) {
        let resource = format!("{}/{is_fencing}/{count}/{order}", stage.resource);
        let holder = |client, number, letter| {
            let (seen, resource) = (String::new(), resource.as_str());
            Holder { client, resource, number, letter, is_fencing, seen, is_confirmed: false, is_over: false }
        };
        let mut old = holder(&*old_client, 41, 'o');
        let mut new = holder(&*new_client, 42, 'n');
        let (mut olds, mut news) = (old_steps.iter(), new_steps.iter());
        for at in 0..count {
            let of_old = order >> at & 1 == 1;
            let (holder, step) = if of_old { (&mut old, olds.next()) } else { (&mut new, news.next()) };
            holder.go(*step.expect("as many as the order has"))?;
        }
        ensure(new.is_confirmed, format!("the new holder was refused in order {order:b}"))?;
        let text = old_client.peek(&resource)?;
        let is_lost = |holder: &Holder<'_>| holder.is_confirmed && !text.contains(holder.letter);
        lost += u32::from(is_lost(&old) || is_lost(&new));
        all += 1;
    }
    Ok((lost, all))
}

/// In none of the orders, however the steps of the two holders fall.
pub(super) fn fencing_before_reading_loses_no_update(stage: &Stage<'_>) -> Verdict {
    equal(&losses(stage, &[Step::Read, Step::Write], true)?, &(0, 10), "how many orders lose an update")?;
    let all = [Step::Arrive, Step::Read, Step::Write];
    equal(&losses(stage, &all, true)?, &(0, 20), "how many orders lose an update")
}

/// The control: the same gate, used for writes only. If it lost nothing, the case above would show nothing.
pub(super) fn a_gate_on_writes_alone_loses_three_of_ten(stage: &Stage<'_>) -> Verdict {
    equal(&losses(stage, &[Step::Read, Step::Write], false)?, &(3, 10), "how many orders lose an update")
}
