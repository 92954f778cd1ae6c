//! The decisions of a waiting claim, as functions of what it sees.

use std::time::Duration;

use crate::host::Moment;

/// A ticket that may take the lock and does not is passed over after this time: its owner is stopped.
const STOPPED_AFTER: Duration = Duration::from_secs(1);

/// The longest time between two looks: events tell the rest, and the looks of a long line must stay cheap.
const FAR: Duration = Duration::from_secs(10);

/// So many in front look at the shortest interval: a stopped one among them must be noticed soon.
const NEAR: u64 = 8;

/// After a hint that the ticket in front was closed its lock may live on for some microseconds.
const GLANCES: [Duration; 3] =
    [Duration::from_micros(100), Duration::from_millis(1), Duration::from_millis(10)];

/// What one claim remembers between two looks at its line.
#[derive(Default)]
pub(super) struct Patience {
    /// The ticket that was seen free to take the lock, and since when.
    idle: Option<(u64, Moment)>,
    glances: usize,
}

impl Patience {
    /// The lowest live ticket, `number`, has not taken the lock although nothing is before it. True once that has gone
    /// on for long enough.
    pub(super) fn is_over(&mut self, number: u64, now: Moment) -> bool {
        match self.idle {
            Some((seen, since)) if seen == number => now.since(since) >= STOPPED_AFTER,
            _ => {
                self.idle = Some((number, now));
                false
            }
        }
    }

    /// The lowest live ticket holds the lock.
    pub(super) fn renew(&mut self) {
        self.idle = None;
    }

    /// The ticket in front was closed, yet looks alive: look again very soon, a few times.
    pub(super) fn hint(&mut self) {
        self.glances = GLANCES.len();
    }

    /// When to look again without being told. `places` counts from the lowest ticket: 1 is next in line.
    pub(super) fn recheck(&mut self, number: u64, places: u64, told: Told) -> Duration {
        if self.glances > 0 {
            self.glances -= 1;
            return GLANCES[GLANCES.len() - 1 - self.glances];
        }
        let step = match told {
            Told::ByEvents => Duration::from_secs(1),
            Told::ByNobody => Duration::from_millis(50),
        };
        if self.idle.is_some() {
            return step;
        }
        let wait = u32::try_from(places / NEAR).map_or(FAR, |steps| step.saturating_mul(steps.max(1)));
        // Claims that came as one must not look as one: a few seconds apart, by number.
        if wait < FAR { wait } else { FAR + Duration::from_millis(number % 4096) }
    }
}

/// How a claim learns that the ticket in front changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    ByEvents,
    /// The kernel gave no inotify instance or watch.
    ByNobody,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn an_idle_ticket_is_passed_over_a_second_after_it_was_first_seen() {
        let mut patience = Patience::default();
        assert!(!patience.is_over(7, at(0)));
        assert!(!patience.is_over(7, at(999)));
        assert!(!patience.is_over(8, at(1000)), "another ticket has its own second");
        assert!(!patience.is_over(8, at(1999)));
        assert!(patience.is_over(8, at(2000)));
        patience.renew();
        assert!(!patience.is_over(8, at(3000)), "it held the lock in between");
    }

    #[test]
    fn those_in_front_look_often_and_the_others_seldom() {
        let mut patience = Patience::default();
        assert_eq!(patience.recheck(5, 1, Told::ByEvents), Duration::from_secs(1));
        assert_eq!(patience.recheck(5, 1, Told::ByNobody), Duration::from_millis(50));
        assert_eq!(patience.recheck(5, 8, Told::ByEvents), Duration::from_secs(1));
        assert_eq!(patience.recheck(5, 16, Told::ByEvents), Duration::from_secs(2));
        assert_eq!(patience.recheck(5, 160, Told::ByNobody), Duration::from_secs(1));
        assert_eq!(patience.recheck(5, u64::MAX, Told::ByEvents), FAR + Duration::from_millis(5));
        patience.is_over(1, at(0));
        assert_eq!(patience.recheck(5, 9999, Told::ByEvents), Duration::from_secs(1));
    }

    #[test]
    fn a_hint_is_followed_by_three_quick_glances() {
        let mut patience = Patience::default();
        patience.hint();
        let looks: Vec<_> = (0..4).map(|_| patience.recheck(1, 1, Told::ByEvents)).collect();
        assert_eq!(looks[..3], GLANCES);
        assert_eq!(looks[3], Duration::from_secs(1));
    }
}
