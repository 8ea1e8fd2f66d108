//! Declares the options about the times of lines.

use crate::times::{TimeReader, TimeUnit, parse_zone};
use clap::Args;
use ebbtide::units::parse_duration;
use jiff::tz::TimeZone;
use std::time::Duration;

/// The heading of these options.
const TIMES: &str = "Times of lines";

/// Options about the times of lines.
#[derive(Debug, Args)]
pub struct Times {
    /// Use the time in this part of a line as the clock: a field's number, or beside --json-field a
    /// member's name, or beside --csv-field a column's name. The time is a number (seconds,
    /// milliseconds, microseconds or nanoseconds since the Unix epoch) or written as in the logs of
    /// Apache, nginx and syslog, in ISO 8601 or RFC 2822; it may contain blanks, and is found from
    /// the first of its fields. The form that was found is reported once.
    #[arg(
        long,
        value_name = "NAME|N",
        conflicts_with = "event_time",
        group = "timed",
        help_heading = TIMES
    )]
    pub time_field: Option<String>,
    /// Read each line as TIME<TAB>KEY and use these times as the clock. TIME is a number (see
    /// --time-unit) or a date with its zone, as in 2026-11-22T15:04:05Z or
    /// 2026-11-22T16:04:05.250+01:00.
    #[arg(long, group = "timed", help_heading = TIMES)]
    pub event_time: bool,
    /// The unit of numeric times since the Unix epoch [default: ms, with --time-field the one in
    /// which the number is a time from 2001 to 2103].
    #[arg(long, value_enum, value_name = "UNIT", requires = "timed", help_heading = TIMES)]
    pub time_unit: Option<TimeUnit>,
    /// Take times without a zone as UTC. Without --utc and --zone such a time is a bad line, unless
    /// it is one of syslog, which is in the zone of this machine.
    #[arg(long, requires = "timed", conflicts_with = "zone", help_heading = TIMES)]
    pub utc: bool,
    /// Take times without a zone as those of this zone: an offset such as +01:00, or a name such as
    /// Europe/Berlin.
    #[arg(
        long,
        value_name = "ZONE",
        value_parser = parse_zone,
        allow_hyphen_values = true,
        requires = "timed",
        help_heading = TIMES
    )]
    pub zone: Option<TimeZone>,
    /// Take a line for a bad one if its time is ahead of the latest time by more than this, such as
    /// 1h: otherwise one wrong time would make all lines after it older than the window. Must be
    /// longer than the longest pause in the input.
    #[arg(
        long,
        value_name = "DURATION",
        value_parser = parse_duration,
        requires = "timed",
        help_heading = TIMES
    )]
    pub max_step: Option<Duration>,
}

impl Times {
    /// Returns whether lines have times.
    pub fn are_read(&self) -> bool {
        self.event_time || self.time_field.is_some()
    }

    /// Returns the unit of numbers in front of lines.
    pub fn unit_in_front(&self) -> TimeUnit {
        self.time_unit.unwrap_or(TimeUnit::Ms)
    }

    /// Returns how times are read.
    pub fn reader(&self) -> TimeReader {
        TimeReader {
            unit: if self.event_time { Some(self.unit_in_front()) } else { self.time_unit },
            zone: if self.utc { Some(TimeZone::UTC) } else { self.zone.clone() },
        }
    }
}
