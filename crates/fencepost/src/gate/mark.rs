//! The one decision of every gate.

use serde::{Deserialize, Serialize};

use super::{
    pass::Pass,
    refusal::{OtherLineage, Refusal, Stale},
};
use crate::token::{Lineage, Token};

/// What a gate has recorded about one resource; nothing by default.
///
/// In JSON, as the file gate keeps it: `{"highest":"42","lineage":"…"}`, and what is not there is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mark {
    /// The highest token that was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub highest: Option<Token>,
    /// The lineage of that token: the first one that the gate was shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lineage: Option<Lineage>,
}

/// What a gate does with a pass that it accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The mark is already as it must be; there is nothing to record.
    Admit,
    /// This mark must be recorded, in the step that accepts the pass.
    Record(Mark),
}

impl Mark {
    /// Judges a pass. Pure: a gate that keeps its mark elsewhere compares in one atomic step with what it read, and
    /// records the new mark in that step.
    ///
    /// A pass without a lineage is compared by its number alone.
    ///
    /// # Errors
    ///
    /// [`Refusal::OtherLineage`] or [`Refusal::Stale`]. The mark stays as it is.
    pub fn decide(&self, pass: &Pass) -> Result<Decision, Refusal> {
        if let (Some(recorded), Some(presented)) = (&self.lineage, &pass.lineage)
            && recorded != presented
        {
            let (recorded, presented) = (recorded.clone(), presented.clone());
            return Err(OtherLineage { presented, recorded }.into());
        }
        if let Some(highest) = self.highest
            && pass.token < highest
        {
            return Err(Stale { presented: pass.token, highest }.into());
        }
        let lineage = self.lineage.clone().or_else(|| pass.lineage.clone());
        let next = Self { highest: Some(pass.token), lineage };
        Ok(if next == *self { Decision::Admit } else { Decision::Record(next) })
    }

    /// [Decides](Self::decide), and takes the new mark where there is one.
    ///
    /// # Errors
    ///
    /// As [`decide`](Self::decide).
    pub fn raise(&mut self, pass: &Pass) -> Result<(), Refusal> {
        if let Decision::Record(next) = self.decide(pass)? {
            *self = next;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn token() -> impl Strategy<Value = Token> {
        prop_oneof![1..6_u64, (u64::MAX - 2)..=u64::MAX].prop_map(|number| Token::new(number).unwrap())
    }

    fn lineage() -> impl Strategy<Value = Option<Lineage>> {
        proptest::option::of(prop_oneof!["a", "b"].prop_map(|id: String| Lineage::new(id)))
    }

    fn mark() -> impl Strategy<Value = Mark> {
        (proptest::option::of(token()), lineage()).prop_map(|(highest, lineage)| Mark { highest, lineage })
    }

    fn pass() -> impl Strategy<Value = Pass> {
        (token(), lineage()).prop_map(|(token, lineage)| Pass { token, lineage })
    }

    proptest! {
        #[test]
        fn a_decision_is_by_lineage_first_and_then_by_number(mark in mark(), pass in pass()) {
            let apart = mark.lineage.is_some() && pass.lineage.is_some() && mark.lineage != pass.lineage;
            match mark.decide(&pass) {
                Err(Refusal::OtherLineage(other)) => {
                    prop_assert!(apart);
                    prop_assert_eq!(Some(other.presented), pass.lineage);
                    prop_assert_eq!(Some(other.recorded), mark.lineage);
                }
                Err(Refusal::Stale(stale)) => {
                    prop_assert!(!apart && stale.presented < stale.highest);
                    prop_assert_eq!(stale.presented, pass.token);
                    prop_assert_eq!(Some(stale.highest), mark.highest);
                }
                Err(other) => prop_assert!(false, "{other:?}"),
                Ok(decision) => {
                    prop_assert!(!apart && mark.highest <= Some(pass.token));
                    let next = match decision {
                        Decision::Admit => mark.clone(),
                        Decision::Record(next) => {
                            prop_assert_ne!(&next, &mark);
                            next
                        }
                    };
                    prop_assert_eq!(next.highest, Some(pass.token));
                    prop_assert_eq!(next.lineage, mark.lineage.or(pass.lineage));
                }
            }
        }

        #[test]
        fn a_mark_is_never_lowered_and_its_lineage_never_changes(passes in proptest::collection::vec(pass(), 0..40)) {
            let mut mark = Mark::default();
            for pass in passes {
                let before = mark.clone();
                let accepted = mark.raise(&pass).is_ok();
                prop_assert!(mark.highest >= before.highest);
                prop_assert!(before.lineage.is_none() || mark.lineage == before.lineage);
                prop_assert!(accepted || mark == before);
                // What was accepted is accepted again: a holder writes more than once.
                prop_assert!(!accepted || mark.decide(&pass) == Ok(Decision::Admit));
            }
        }
    }
}
