//! The linear axis of time.

use super::row::{Ink, Row};

/// The steps that a tick may have, in milliseconds.
const STEPS: [u64; 13] = [10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 60_000, 600_000];

/// The fewest columns from one tick to the next, so that their labels do not touch.
const APART: u64 = 8;

/// From moments to columns.
pub(super) struct Scale {
    origin: u64,
    length: u64,
    columns: usize,
}

impl Scale {
    pub(super) fn new((origin, end): (u64, u64), columns: usize) -> Self {
        Self { origin, length: end.saturating_sub(origin).max(1), columns }
    }

    pub(super) fn columns(&self) -> usize {
        self.columns
    }

    pub(super) fn column(&self, at_ns: u64) -> usize {
        let passed = at_ns.saturating_sub(self.origin).min(self.length);
        let column = u128::from(passed) * self.columns as u128 / (u128::from(self.length) + 1);
        column as usize
    }

    /// The labels, and the line with a tick below each.
    pub(super) fn axis(&self, unicode: bool) -> [Row; 2] {
        let (mut labels, mut line) = (Row::blank(self.columns), Row::blank(self.columns));
        let [plain, tick] = if unicode { ['─', '┼'] } else { ['-', '+'] };
        (0..self.columns).for_each(|column| line.put(column, plain, Ink::Dim));
        let step = self.step();
        for number in 0..=self.length / (step * 1_000_000) {
            let millis = number * step;
            let column = self.column(self.origin + millis * 1_000_000);
            line.put(column, tick, Ink::Dim);
            labels.try_text(column, &label(millis, step), Ink::Dim);
        }
        [labels, line]
    }

    fn step(&self) -> u64 {
        let columns_of =
            |step: &u64| u128::from(*step) * 1_000_000 * self.columns as u128 / u128::from(self.length);
        let fits = STEPS.into_iter().find(|step| columns_of(step) >= u128::from(APART));
        fits.unwrap_or(self.length / 1_000_000)
    }
}

fn label(millis: u64, step: u64) -> String {
    let decimals = match step {
        step if step % 1000 == 0 => 0,
        step if step % 100 == 0 => 1,
        _ => 2,
    };
    let unit = if millis == 0 { " s" } else { "" };
    let decimals = if millis == 0 { 0 } else { decimals };
    format!("{:.decimals$}{unit}", millis as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_axis_is_linear() {
        let scale = Scale::new((1000, 1000 + 4_000_000_000), 80);
        let columns = [0, 1, 2, 3].map(|second| scale.column(1000 + second * 1_000_000_000));
        assert_eq!(columns, [0, 19, 39, 59]);
        assert_eq!((scale.column(0), scale.column(u64::MAX)), (0, 79));
    }

    #[test]
    fn ticks_stand_below_their_labels() {
        let scale = Scale::new((0, 2_000_000_000), 40);
        let [labels, line] = scale.axis(false).map(|row| row.render(false));
        assert_eq!(labels, "0 s      0.5       1.0       1.5");
        assert_eq!(line, "+--------+---------+---------+---------+");
    }

    #[test]
    fn every_length_has_an_axis() {
        for length in [0, 1, 999, 1_000_000, 3_000_000_000, 7_200_000_000_000, u64::MAX / 2] {
            let [_, line] = Scale::new((5, 5 + length), 29).axis(true).map(|row| row.render(false));
            assert_eq!(line.chars().count(), 29);
        }
    }
}
