//! Rows of characters.

/// A row of the picture, of a fixed number of columns.
pub(super) struct Row(Vec<(char, Ink)>);

/// What a piece of the picture is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    /// As the terminal is.
    Plain,
    /// For what stands aside.
    Dim,
    /// For headings.
    Bold,
    /// As it should be.
    Good,
    /// In doubt.
    Warn,
    /// Harm was done.
    Bad,
}

impl Ink {
    /// The text between the codes that switch the ink on and off. Source: ECMA-48, SGR.
    pub(super) fn around(self, text: &str) -> String {
        let code = match self {
            Self::Plain => return text.into(),
            Self::Dim => "2",
            Self::Bold => "1",
            Self::Good => "32",
            Self::Warn => "33",
            Self::Bad => "1;31",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

impl Row {
    pub(super) fn blank(columns: usize) -> Self {
        Self(vec![(' ', Ink::Plain); columns])
    }

    /// Puts a sign into a column; beyond the end, into the last one.
    pub(super) fn put(&mut self, column: usize, sign: char, ink: Ink) {
        let last = self.0.len() - 1;
        self.0[column.min(last)] = (sign, ink);
    }

    /// Puts a text there if it fits whole, with a blank on each side.
    pub(super) fn try_text(&mut self, column: usize, text: &str, ink: Ink) -> bool {
        let length = text.chars().count();
        let around = column.saturating_sub(1)..(column + length + 1).min(self.0.len());
        if column + length > self.0.len() || self.0[around].iter().any(|(sign, _)| *sign != ' ') {
            return false;
        }
        for (offset, sign) in text.chars().enumerate() {
            self.put(column + offset, sign, ink);
        }
        true
    }

    pub(super) fn render(&self, colour: bool) -> String {
        let end = self.0.iter().rposition(|(sign, _)| *sign != ' ').map_or(0, |last| last + 1);
        let runs = self.0[..end].chunk_by(|(_, one), (_, other)| one == other);
        runs.map(|run| {
            let text: String = run.iter().map(|(sign, _)| sign).collect();
            if colour { run[0].1.around(&text) } else { text }
        })
        .collect()
    }
}

/// Places texts at their columns, each in the first row that has room. One that would leave the picture ends at its edge.
pub(super) fn place(texts: impl Iterator<Item = (usize, String, Ink)>, columns: usize) -> Vec<Row> {
    let mut rows = vec![Row::blank(columns)];
    for (column, text, ink) in texts {
        let text: String = text.chars().take(columns).collect();
        let column = column.min(columns - text.chars().count());
        if !rows.iter_mut().any(|row| row.try_text(column, &text, ink)) {
            let mut row = Row::blank(columns);
            row.try_text(column, &text, ink);
            rows.push(row);
        }
    }
    rows
}

/// Breaks words into lines. A word that is too long has one of its own.
pub(super) fn wrap<'a>(words: impl Iterator<Item = &'a str>, between: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words {
        match lines.last_mut() {
            Some(line) if line.chars().count() + between.len() + word.chars().count() <= width => {
                line.push_str(between);
                line.push_str(word);
            }
            _ => lines.push(word.into()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(texts: &[(usize, &str)]) -> Vec<String> {
        let texts = texts.iter().map(|(column, text)| (*column, (*text).to_owned(), Ink::Plain));
        place(texts, 12).iter().map(|row| row.render(false)).collect()
    }

    #[test]
    fn texts_that_would_touch_stand_in_different_rows() {
        assert_eq!(placed(&[(0, "abc"), (4, "de"), (6, "f")]), ["abc de", "      f"]);
    }

    #[test]
    fn a_text_at_the_edge_ends_there_and_a_long_one_is_cut() {
        assert_eq!(placed(&[(11, "abc")]), ["         abc"]);
        assert_eq!(placed(&[(3, "0123456789abcdef")]), ["0123456789ab"]);
    }

    #[test]
    fn colours_surround_runs() {
        let mut row = Row::blank(4);
        row.put(0, 'a', Ink::Bad);
        row.put(1, 'b', Ink::Bad);
        row.put(2, 'c', Ink::Plain);
        assert_eq!(row.render(true), "\x1b[1;31mab\x1b[0mc");
        assert_eq!(row.render(false), "abc");
    }
}
