//! Faults that are aimed at the next request of a kind.

use super::wire::{Ask, Fault, Kind};

/// The faults that are armed.
#[derive(Debug, Default)]
pub(super) struct Armed(Vec<(Kind, Fault)>);

impl Armed {
    pub(super) fn arm(&mut self, kind: Kind, fault: Fault) {
        self.0.push((kind, fault));
    }

    /// The oldest fault that is armed for such a request; it is used up.
    pub(super) fn take(&mut self, ask: &Ask) -> Option<Fault> {
        let kind = kind(ask)?;
        let at = self.0.iter().position(|(armed, _)| *armed == kind)?;
        Some(self.0.remove(at).1)
    }
}

fn kind(ask: &Ask) -> Option<Kind> {
    match ask {
        Ask::Open { .. } => Some(Kind::Open),
        Ask::Enter(_) => Some(Kind::Enter),
        Ask::Renew { .. } => Some(Kind::Renew),
        Ask::Leave { .. } => Some(Kind::Leave),
        _ => None,
    }
}
