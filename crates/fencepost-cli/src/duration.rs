//! Durations as people write them: `250ms`, `30s`, `5m`, `2h`, `1d`.

use std::time::Duration;

const UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Reads a duration; the error says how to write one.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let millis = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, millis)| millis);
    match (number.parse::<u64>(), millis) {
        (Ok(number), Some(millis)) => Ok(Duration::from_millis(number.saturating_mul(*millis))),
        (Ok(number), None) if unit.is_empty() => {
            Err(format!("it has no unit; write, for example, {number}s or {number}ms"))
        }
        _ if text.starts_with('-') => Err("it is negative; write, for example, 30s".into()),
        _ => Err("write a whole number and a unit, such as 250ms, 30s, 5m, 2h or 1d".into()),
    }
}

/// As [`parse`], for durations of which nothing would be left at zero.
pub(crate) fn positive(text: &str) -> Result<Duration, String> {
    match parse(text)? {
        Duration::ZERO => Err("it is zero; write, for example, 30s".into()),
        duration => Ok(duration),
    }
}

/// A duration for people, to the second, or to the millisecond below ten.
pub(crate) fn show(duration: Duration) -> String {
    let coarse = if duration < Duration::from_secs(10) {
        Duration::from_millis(duration.as_millis() as u64)
    } else {
        Duration::from_secs(duration.as_secs())
    };
    humantime::format_duration(coarse).to_string()
}

/// A duration as [`parse`] reads it, in the largest unit that leaves nothing out.
pub(crate) fn exact(duration: Duration) -> String {
    let millis = duration.as_millis();
    let fits = |(_, unit): &&(&str, u64)| millis.is_multiple_of(u128::from(*unit));
    let (name, unit) = UNITS.iter().rev().find(fits).unwrap_or(&UNITS[0]);
    format!("{}{name}", millis / u128::from(*unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit() {
        assert_eq!(parse("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse("0s"), Ok(Duration::ZERO));
        assert_eq!(parse("2h"), Ok(Duration::from_secs(7200)));
        assert!(parse("18446744073709551615d").is_ok());
    }

    #[test]
    fn what_is_written_exactly_can_be_read() {
        for text in ["250ms", "1500ms", "30s", "90s", "5m", "2h", "1d"] {
            assert_eq!(exact(parse(text).unwrap()), text);
        }
        assert_eq!(exact(Duration::from_secs(3600)), "1h");
    }

    #[test]
    fn other_texts_say_what_to_write() {
        for (text, part) in [
            ("30", "30s"),
            ("0", "no unit"),
            ("", "whole number"),
            ("-5s", "negative"),
            ("1ns", "whole number"),
            ("1.5s", "whole number"),
            ("400y", "whole number"),
            ("400 years", "whole number"),
            ("99999999999999999999s", "whole number"),
            ("s", "whole number"),
        ] {
            assert!(parse(text).unwrap_err().contains(part), "{text}");
        }
        assert!(positive("0ms").unwrap_err().contains("zero"));
    }
}
