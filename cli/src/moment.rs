//! A moment of a filter's past on the command line, and the option for it.

use crate::time_forms::Extent;
use crate::times::TimeReader;
use clap::Args;
use ebbtide::Timestamp;
use ebbtide::history::At;

/// The option of commands that can look at the past.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct Past {
    /// Answer as the filter did at a moment of its past, from the log that is kept (--keep-log).
    /// lsn:N is the moment after record N; stat and digest print the LSN of the next record.
    /// position:SOURCE=N is the moment before the position of this source, a number that a program
    /// stores with its keys, passed N. A time, such as 2026-11-24T10:00:00Z, is the moment before
    /// the first operation that is later.
    #[arg(long, value_name = "MOMENT", value_parser = parse_moment)]
    pub at: Option<At>,
}

/// Parses the value of `--at`.
pub fn parse_moment(text: &str) -> Result<At, String> {
    let moment = match text.split_once(':') {
        Some(("lsn", number)) => number.parse().ok().map(At::Lsn),
        Some(("position", place)) => position(place),
        _ => time(text).map(At::Time),
    };
    moment.ok_or_else(|| {
        "expected lsn:N, position:SOURCE=N, or a time with its zone such as 2026-11-24T10:00:00Z"
            .to_owned()
    })
}

/// Parses `SOURCE=N`.
fn position(text: &str) -> Option<At> {
    let (source, position) = text.split_once('=')?;
    Some(At::Position { source: source.parse().ok()?, position: position.parse().ok()? })
}

/// Parses a time in one of the forms of times of lines.
fn time(text: &str) -> Option<Timestamp> {
    let reader = TimeReader { unit: None, zone: None };
    let (time, _) = reader.read(text.as_bytes(), Extent::Whole, Timestamp::now).ok()?;
    Some(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_an_lsn_a_position_or_a_time_in_any_form() {
        assert_eq!(parse_moment("lsn:0"), Ok(At::Lsn(0)));
        assert_eq!(parse_moment("lsn:18446744073709551615"), Ok(At::Lsn(u64::MAX)));
        let (source, position) = (7, 900);
        assert_eq!(parse_moment("position:7=900"), Ok(At::Position { source, position }));
        let time = At::Time(Timestamp::from_unix_millis(1_795_510_800_000));
        for text in [
            "2026-11-24T09:00:00Z",
            "2026-11-24 10:00:00+01:00",
            "2026-11-24T09:00Z",
            "24/Nov/2026:10:00:00 +0100",
            "Tue, 24 Nov 2026 10:00:00 +0100",
            "1795510800",
            "1795510800000",
        ] {
            assert_eq!(parse_moment(text), Ok(time), "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused_by_one_sentence_that_names_the_forms() {
        let lsns = ["lsn", "lsn:", "lsn:x", "lsn:-1", "lsn: 1", "lsn:18446744073709551616"];
        let positions =
            ["position:7", "position:=9", "position:7=", "position:a=9", "position:7=x"];
        let others =
            ["", "12", "yesterday", "2026-11-24", "2026-11-24T10:00:00", "LSN:1", "time:1"];
        for text in lsns.into_iter().chain(positions).chain(others) {
            let sentence = parse_moment(text).expect_err(text);
            for form in ["lsn:N", "position:SOURCE=N", "2026-11-24T10:00:00Z"] {
                assert!(sentence.contains(form), "{text}: {sentence}");
            }
        }
    }
}
