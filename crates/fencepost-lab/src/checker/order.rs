//! The question that a lock's tokens and a gate's decisions share: did a token come after a higher one?

/// Something that happened between two moments and has a token.
pub(super) trait Stamped: Copy {
    fn token(self) -> u64;
    fn invoked(self) -> u64;
    fn returned(self) -> u64;
}

/// Each item that was invoked after one with a higher token had returned, behind the highest such one. One pass over
/// time. If there are none, there is an order of all items in which tokens never fall.
pub(super) fn after_a_higher<T: Stamped>(items: impl Iterator<Item = T>) -> Vec<(T, T)> {
    let mut invoked: Vec<T> = items.collect();
    let mut returned = invoked.clone();
    invoked.sort_by_key(|item| item.invoked());
    returned.sort_by_key(|item| item.returned());
    let mut returned = returned.into_iter().peekable();
    let mut highest: Option<T> = None;
    let mut found = Vec::new();
    for item in invoked {
        while let Some(earlier) = returned.next_if(|earlier| earlier.returned() < item.invoked()) {
            highest = highest.filter(|best| best.token() >= earlier.token()).or(Some(earlier));
        }
        found.extend(highest.filter(|best| best.token() > item.token()).map(|best| (best, item)));
    }
    found
}
