//! Where a scene is shown: the page on stdout, and on a terminal a line that says what is happening.

use std::{
    cell::Cell,
    env,
    io::{IsTerminal, Write, stderr, stdout},
};

use fencepost_lab::scenes::timeline::Style;

use crate::{args::Global, report, sys};

/// The width where there is no terminal, and the greatest one: in a wider picture lanes and labels are far apart.
const WIDTH: usize = 80;
const WIDEST: usize = 120;

pub(super) struct Screen {
    pub(super) style: Style,
    quiet: bool,
    verbose: bool,
    /// Whether what happens is shown in a line that is drawn again and again.
    live: bool,
    drawn: Cell<bool>,
}

impl Screen {
    pub(super) fn new(global: &Global) -> Self {
        let named = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        let terminal = stdout().is_terminal();
        let can_redraw = named("TERM").is_some_and(|name| name != "dumb");
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(named).unwrap_or_default();
        let locale = locale.to_ascii_lowercase();
        let style = Style {
            width: if terminal { sys::columns().map_or(WIDTH, |columns| columns.min(WIDEST)) } else { WIDTH },
            colour: terminal && can_redraw && named("NO_COLOR").is_none(),
            unicode: locale.contains("utf-8") || locale.contains("utf8"),
        };
        let live = terminal && stderr().is_terminal() && can_redraw && !global.quiet && !global.verbose;
        Self { style, quiet: global.quiet, verbose: global.verbose, live, drawn: Cell::new(false) }
    }

    /// Adds to the page. A reader that has gone away, as `head` does, changes nothing about what comes out.
    pub(super) fn print(&self, text: &str) {
        self.clear();
        if !self.quiet {
            let _ = writeln!(stdout(), "{text}");
        }
    }

    /// Says what is happening.
    pub(super) fn tell(&self, text: &str) {
        if self.verbose {
            report::note(text);
        }
        if self.live {
            let _ = write!(stderr(), "\r\x1b[K\x1b[?7l  {text} …\x1b[?7h");
            self.drawn.set(true);
        }
    }

    /// Takes the live line away.
    pub(super) fn clear(&self) {
        if self.drawn.replace(false) {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}
