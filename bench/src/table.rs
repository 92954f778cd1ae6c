//! The one table.

use std::time::Duration;

use crate::{pairs::Pairs, places::Place};

pub(crate) struct Table {
    head: Vec<String>,
    rows: Vec<[String; 6]>,
    /// A table of its own below, whose first row is its head.
    aside: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(places: &[&Place]) -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let kinds: Vec<_> = places.iter().map(|place| place.kind.as_str()).collect();
        let mut head = vec![
            format!("processors: {cpus}; file systems: {}", kinds.join(", ")),
            "each figure is a median; ratios are medians of pairs taken in turn".into(),
        ];
        if cfg!(debug_assertions) {
            head.push("a debug build: say --release, or no figure below means anything".into());
        }
        let titles = ["what", "floor", "", "measured", "ratio", "goal"].map(str::to_owned);
        Self { head, rows: vec![titles], aside: Vec::new() }
    }

    /// A line above the table.
    pub(crate) fn note(&mut self, text: String) {
        self.head.push(text);
    }

    /// Something of ours beside its floor, and how many times the floor it may take.
    pub(crate) fn pairs(&mut self, what: &str, floor: &str, pairs: &Pairs, goal: Option<f64>) {
        self.rows.push([
            what.into(),
            floor.into(),
            show(pairs.floor),
            show(pairs.ours),
            format!("{:.2}", pairs.ratio),
            goal.map_or(String::new(), |goal| {
                let met = if pairs.ratio <= goal { "met" } else { "not met" };
                format!("at most {goal}: {met}")
            }),
        ]);
    }

    /// Something that has no floor.
    pub(crate) fn plain(&mut self, what: &str, measured: impl Into<String>) {
        let none = String::new;
        self.rows.push([what.into(), none(), none(), measured.into(), none(), none()]);
    }

    pub(crate) fn row(&mut self, row: [String; 6]) {
        self.rows.push(row);
    }

    /// A row of the table below.
    pub(crate) fn aside(&mut self, row: Vec<String>) {
        self.aside.push(row);
    }

    pub(crate) fn print(&self) {
        for line in &self.head {
            println!("{line}");
        }
        println!();
        let widths: Vec<_> =
            (0..6).map(|at| self.rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0)).collect();
        for row in &self.rows {
            let cells = row.iter().zip(&widths).enumerate().map(|(at, (cell, &width))| match at {
                // Names to the left, numbers to the right.
                2..=4 => format!("{cell:>width$}"),
                _ => format!("{cell:<width$}"),
            });
            println!("{}", cells.collect::<Vec<_>>().join("  ").trim_end());
        }
        let columns = self.aside.first().map_or(0, Vec::len);
        let width = |at: usize| self.aside.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
        let widths: Vec<_> = (0..columns).map(width).collect();
        for (number, row) in self.aside.iter().enumerate() {
            let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}"));
            let gap = if number == 0 { "\n" } else { "" };
            println!("{gap}{}", cells.collect::<Vec<_>>().join("  ").trim_end());
        }
    }
}

/// A duration with three digits.
pub(crate) fn show(time: Duration) -> String {
    let micros = time.as_secs_f64() * 1e6;
    match micros {
        ..1000.0 => format!("{micros:.1} µs"),
        ..1e6 => format!("{:.2} ms", micros / 1e3),
        _ => format!("{:.2} s", micros / 1e6),
    }
}
