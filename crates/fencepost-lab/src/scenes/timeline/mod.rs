//! A history as a plain-text picture: time runs to the right, a lane for faults, one for each client, one for the stock.
//!
//! ```text
//!            0 s       0.5       1.0       1.5       2.0       2.5       3.0
//!            ├─────────┼─────────┼─────────┼─────────┼─────────┼─────────┼──
//! faults               ▼ A stopped                               ▲ A goes on
//! worker A   ██████████▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒░░░░░░░░░░░░▞
//!            reads 100                               lease over  writes 99
//! worker B                ╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌██████████
//!                                                    reads 100 writes 99
//! stock      100                                               ● 99 (B)  ● 99 (A)
//! ```

mod axis;
mod picture;
mod row;

use std::time::Duration;

use crate::history::Event;
use axis::Scale;
use picture::{Bar, Client, Note, Picture};
pub use row::Ink;
use row::{Row, place};

/// How a picture looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// How many columns it may take. It takes at least [`NARROWEST`].
    pub width: usize,
    /// Whether it is coloured, with the codes of a terminal.
    pub colour: bool,
    /// Whether it may use more than ASCII.
    pub unicode: bool,
}

/// Below this width a picture would show nothing.
pub const NARROWEST: usize = 40;

/// Longer lines are hard to read.
const WIDEST_TEXT: usize = 100;

/// What stands left of the lanes.
const LABELS: usize = 11;

impl Style {
    /// Text in this ink, if the style is coloured.
    #[must_use]
    pub fn paint(&self, text: &str, ink: Ink) -> String {
        if self.colour { ink.around(text) } else { text.into() }
    }
}

/// Draws a history. `lease` is how long a lock lasts whose holder recorded no deadline.
#[must_use]
pub fn draw(events: &[Event], lease: Duration, style: &Style) -> String {
    let picture = Picture::of(events, lease);
    let columns = style.width.max(NARROWEST) - LABELS;
    let scale = Scale::new(picture.span, columns);
    let mut lines = Vec::new();
    for row in scale.axis(style.unicode) {
        lines.push(line("", &row, style));
    }
    lane("faults", notes(&picture.faults, &scale, style), style, &mut lines);
    for client in &picture.clients {
        let rows = [bars(client, &scale, style)].into_iter().chain(notes(&client.notes, &scale, style));
        lane(&format!("worker {}", client.name), rows.collect(), style, &mut lines);
    }
    lane("stock", notes(&picture.stock, &scale, style), style, &mut lines);
    lines.extend(legend(&picture, style));
    lines.join("\n")
}

fn lane(label: &str, rows: Vec<Row>, style: &Style, lines: &mut Vec<String>) {
    for (index, row) in rows.iter().enumerate() {
        lines.push(line(if index == 0 { label } else { "" }, row, style));
    }
}

fn line(label: &str, row: &Row, style: &Style) -> String {
    format!("{label:LABELS$}{}", row.render(style.colour)).trim_end().to_owned()
}

fn bars(client: &Client, scale: &Scale, style: &Style) -> Row {
    let mut row = Row::blank(scale.columns());
    for (from, to, bar) in &client.bars {
        let (first, end) = (scale.column(*from), scale.column(*to));
        // What is too short for the scale is still seen.
        for column in first..end.max(first + 1) {
            row.put(column, bar.sign(style.unicode), bar.ink());
        }
    }
    row
}

fn notes(notes: &[Note], scale: &Scale, style: &Style) -> Vec<Row> {
    let texts = notes.iter().map(|note| {
        let text = if style.unicode { note.text.clone() } else { ascii(&note.text) };
        (scale.column(note.at), text, note.ink)
    });
    place(texts, scale.columns())
}

/// What the signs mean, of those that occur.
fn legend(picture: &Picture, style: &Style) -> Vec<String> {
    let drawn =
        |bar: &Bar| picture.clients.iter().any(|client| client.bars.iter().any(|(.., other)| other == bar));
    let bars = Bar::ALL.iter().filter(|bar| drawn(bar));
    let mut words: Vec<String> =
        bars.map(|bar| format!("{} {}", bar.sign(style.unicode), bar.meaning())).collect();
    for (sign, meaning) in [(picture::ACCEPTED, "accepted"), (picture::REJECTED, "rejected")] {
        if picture.stock.iter().any(|note| note.text.starts_with(sign)) {
            let sign = sign.to_string();
            words.push(format!("{} {meaning}", if style.unicode { sign } else { ascii(&sign) }));
        }
    }
    let width = style.width.max(NARROWEST) - LABELS;
    let lines = row::wrap(words.iter().map(String::as_str), "   ", width);
    lines.into_iter().map(|line| format!("{:LABELS$}{}", "", style.paint(&line, Ink::Dim))).collect()
}

/// Breaks a text into lines of this style's width.
#[must_use]
pub fn wrap(text: &str, style: &Style) -> Vec<String> {
    row::wrap(text.split_whitespace(), " ", style.width.clamp(NARROWEST, WIDEST_TEXT))
}

/// The same without a sign that an old terminal lacks.
fn ascii(text: &str) -> String {
    text.chars()
        .map(|sign| match sign {
            '▼' => 'v',
            '▲' => '^',
            picture::ACCEPTED => 'o',
            picture::REJECTED => 'x',
            '…' => '~',
            sign => sign,
        })
        .collect()
}
