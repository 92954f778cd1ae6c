//! Elections: terms in order, one leader, and a value that only the leader can change.

use super::stage::{Stage, Stop, Verdict, beside, ensure, needs_expiry, now, refused};
use crate::{
    election::{Election, Leaders},
    error::ErrorKind,
    locker::Locker,
};

fn election(stage: &Stage<'_>, locker: &Locker) -> Election {
    locker.election(&stage.name).ttl(stage.ttl).wait(stage.ttl * 8)
}

/// The next leader's value; no leader is the empty text.
async fn told(leaders: &mut Leaders) -> Result<String, Stop> {
    let leader = leaders.next().await?;
    Ok(leader.as_ref().and_then(|leader| leader.value()).unwrap_or_default().to_owned())
}

/// Observers are told who leads and what it says, also when it says something else in the same term.
pub(super) async fn observers_are_told_what_a_leader_says(stage: &Stage<'_>) -> Verdict {
    let (locker, looker) = (stage.subject().await?, stage.rival().await?);
    let mut leaders = election(stage, &looker).observe()?;
    ensure(told(&mut leaders).await?.is_empty(), "somebody leads before the first campaign")?;
    let leadership = election(stage, &locker).value("one").campaign().await?;
    ensure(told(&mut leaders).await? == "one", "the candidate's value is not told")?;
    for value in ["a longer value with \"quotes\", a \\ and an \u{e9}", "2", ""] {
        leadership.proclaim(value).await?;
        let said = told(&mut leaders).await?;
        ensure(said == value, format!("proclaimed {value:?}, and told {said:?}"))?;
        let leader = election(stage, &looker).leader().await?;
        let term = leader.and_then(|leader| leader.term);
        ensure(term == Some(leadership.term()), format!("the term became {term:?}"))?;
    }
    let longest = "\"".repeat(crate::MAX_VALUE_BYTES);
    leadership.proclaim(longest.as_str()).await?;
    ensure(told(&mut leaders).await? == longest, "the longest value is not told")?;
    for wrong in ["x".repeat(crate::MAX_VALUE_BYTES + 1), "a\nb".into()] {
        let error = refused(leadership.proclaim(wrong).await, "a value that is too long or of two lines")?;
        ensure(error.kind() == ErrorKind::Invalid, format!("told as {error:?}"))?;
    }
    leadership.resign().await?;
    ensure(told(&mut leaders).await?.is_empty(), "the resignation is not told")
}

/// Each term has a larger number than the one before, also where a lock of that name was held between.
pub(super) async fn terms_are_ordered(stage: &Stage<'_>) -> Verdict {
    let (one, other) = (stage.subject().await?, stage.rival().await?);
    let first = election(stage, &one).campaign().await?;
    let next = beside({
        let election = election(stage, &other);
        async move { election.campaign().await }
    });
    stage.until_waiting(&other, 1).await?;
    let before = first.term();
    first.resign().await?;
    let second = next.done().await??;
    let between = second.term();
    second.resign().await?;
    let guard = stage.lock(&one).acquire().await?;
    let lock = guard.token();
    guard.release().await?;
    let last = election(stage, &one).campaign().await?;
    let rises = before < between && between < lock && lock < last.term();
    ensure(rises, format!("{before}, {between}, {lock}, {}", last.term()))?;
    last.resign().await?;
    Ok(())
}

/// Who no longer leads cannot proclaim: neither is anything created, nor the next leader's value touched.
pub(super) async fn a_former_leader_proclaims_nothing(stage: &Stage<'_>) -> Verdict {
    let (locker, other) = (stage.subject().await?, stage.rival().await?);
    let former = election(stage, &locker).value("former").campaign().await?;
    stage.harness.delete_holder(&stage.name)?;
    let error = refused(former.proclaim("ghost").await, "a proclamation without an office")?;
    ensure(error.kind() == ErrorKind::Lost, format!("told as {error:?}"))?;
    ensure(!former.is_leader(), "it was refused, and believes that it leads")?;
    let nobody = election(stage, &other).leader().await?;
    ensure(nobody.is_none(), format!("created out of nothing: {nobody:?}"))?;

    let former = election(stage, &locker).value("former").campaign().await?;
    stage.harness.delete_holder(&stage.name)?;
    let present = election(stage, &other).value("present").campaign().await?;
    let error = refused(former.proclaim("ghost").await, "a proclamation over the next leader's")?;
    ensure(error.kind() == ErrorKind::Lost, format!("told as {error:?}"))?;
    let leader = election(stage, &other).leader().await?;
    let value = leader.as_ref().and_then(|leader| leader.value());
    ensure(value == Some("present"), format!("the present leader says {value:?}"))?;
    let resigned = refused(former.resign().await, "the resignation of a lost term")?;
    ensure(resigned.kind() == ErrorKind::Lost, format!("told as {resigned:?}"))?;
    ensure(present.is_leader(), "the former leader's resignation ended the present one's term")?;
    present.resign().await?;
    Ok(())
}

/// A leader's lease is its own: a candidate with a shorter one does not come into office before the leader's is over.
pub(super) async fn a_candidates_lease_is_not_the_leaders(stage: &Stage<'_>) -> Verdict {
    let (locker, other) = (stage.subject().await?, stage.rival().await?);
    needs_expiry(&locker)?;
    let leader = election(stage, &locker).ttl(stage.ttl * 2).campaign().await?;
    let candidate = beside({
        let election = election(stage, &other);
        async move { (election.campaign().await, now()) }
    });
    stage.until_waiting(&other, 1).await?;
    let cut = now();
    stage.harness.cut()?;
    leader.lost().await;
    let deadline = leader.guard().deadline().ok_or_else(|| Stop::Failed("no deadline".into()))?;
    let (elected, at) = candidate.done().await?;
    stage.harness.heal()?;
    ensure(deadline < at, format!("elected at {at:?}, before the leader's deadline {deadline:?}"))?;
    let early = at.since(cut) < stage.ttl;
    ensure(!early, "elected by the candidate's own lease")?;
    elected?.resign().await?;
    Ok(())
}

/// Work does not outlive its term, and a candidate that leads again does it anew, in a later term.
pub(super) async fn work_is_done_in_terms(stage: &Stage<'_>) -> Verdict {
    let locker = stage.subject().await?;
    let (mut terms, election) = (Vec::new(), election(stage, &locker));
    let last = election.lead(|leadership| {
        terms.push(leadership.term());
        let ends = terms.len() < 3;
        async move {
            if ends {
                stage.harness.delete_holder(&stage.name)?;
                std::future::pending::<()>().await;
            }
            Ok::<_, Stop>(leadership.term())
        }
    });
    let last = last.await??;
    let rises = terms.windows(2).all(|pair| pair[0] < pair[1]);
    ensure(rises && terms.len() == 3 && terms[2] == last, format!("terms {terms:?}, at last {last}"))?;
    let left = election.leader().await?;
    ensure(left.is_none(), format!("still in office: {left:?}"))
}
