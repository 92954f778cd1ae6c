//! What the server says that it did.

use std::collections::HashMap;

use fencepost_lab::server::redis::Redis;

use crate::outcome::Outcome;

/// For each command how often it ran and how many microseconds it took, since the last [`reset`]. What a script calls is
/// counted under its own name too.
pub(super) struct Stats(HashMap<String, (f64, f64)>);

pub(super) fn reset(server: &Redis) -> Outcome<()> {
    Ok(server.command(&["CONFIG", "RESETSTAT"])?)
}

impl Stats {
    pub(super) fn read(server: &Redis) -> Outcome<Self> {
        let info: String = server.command(&["INFO", "commandstats"])?;
        let line = |line: &str| {
            let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(':')?;
            let number = |key: &str| rest.split(',').find_map(|part| part.strip_prefix(key)?.parse().ok());
            Some((name.to_owned(), (number("calls=")?, number("usec=")?)))
        };
        Ok(Self(info.lines().filter_map(line).collect()))
    }

    pub(super) fn calls(&self, commands: &[&str]) -> f64 {
        commands.iter().filter_map(|command| self.0.get(*command)).map(|(calls, _)| calls).sum()
    }

    pub(super) fn micros(&self, commands: &[&str]) -> f64 {
        commands.iter().filter_map(|command| self.0.get(*command)).map(|(_, micros)| micros).sum()
    }
}

/// The commands that hold scripts; what a script calls is part of its time.
pub(super) const SCRIPTS: &[&str] = &["evalsha", "eval"];
