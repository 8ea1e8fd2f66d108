//! What `stat` shows of a filter's shipper: what is not shipped yet, and whether it has stalled.
//!
//! It is in builds with the feature `ship`, for filters that were ever shipped from this directory,
//! and follows the other figures, which are the same in every build.

use crate::failure::{self, Failure, Result};
use crate::formatting;
use crate::output::{object, table};
use ebbtide::Stat;
use ebbtide_ship::{Error, Standing};
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A damaged file, as after a power cut, is no standing: the shipper writes another one.
fn read(dir: &Path, is_past: bool) -> Result<Option<Standing>> {
    if is_past {
        return Ok(None);
    }
    match Standing::read(dir) {
        Err(error @ Error::Object { .. }) => {
            failure::note(&error.to_string());
            Ok(None)
        }
        read => read.map_err(|error| Failure::Error(error.to_string())),
    }
}

/// Returns the figures as an object; `None` if there is no shipper, or the figures are those of
/// the past.
pub fn json(dir: &Path, stat: &Stat, is_past: bool) -> Result<Option<Value>> {
    let Some(standing) = read(dir, is_past)? else { return Ok(None) };
    let (now, lsn) = (SystemTime::now(), Standing::end(stat));
    let succeeded = standing.succeeded.duration_since(UNIX_EPOCH).unwrap_or_default();
    let members = object([
        ("url", standing.url.as_str().into()),
        ("timeline", standing.timeline.into()),
        ("confirmed_lsn", standing.confirmed.into()),
        ("unshipped_records", standing.unshipped_records(lsn).into()),
        ("unshipped_bytes", standing.unshipped_bytes(lsn).into()),
        ("unshipped_seconds", lag(&standing, stat, now).as_secs_f64().into()),
        ("every_seconds", standing.every.as_secs_f64().into()),
        ("succeeded", (succeeded.as_millis() as u64).into()),
        ("stalled", standing.is_stalled(lsn, now).into()),
        ("stopped", standing.is_stopped.into()),
        ("failure", standing.failure.as_deref().into()),
    ]);
    Ok(Some(members.into()))
}

/// Returns for how long at most records are not shipped that are durable.
fn lag(standing: &Standing, stat: &Stat, now: SystemTime) -> Duration {
    standing.unshipped_for(Standing::end(stat).min(stat.durable_lsn), now)
}

/// Returns the figures as text; `None` as for [`json`].
pub fn text(dir: &Path, stat: &Stat, is_past: bool) -> Result<Option<String>> {
    let Some(standing) = read(dir, is_past)? else { return Ok(None) };
    let (now, lsn) = (SystemTime::now(), Standing::end(stat));
    let since = now.duration_since(standing.succeeded).unwrap_or_default();
    let records = standing.unshipped_records(lsn);
    let mut unshipped = match records {
        0 => "nothing".to_owned(),
        _ => {
            let counted = formatting::counted(records, "record");
            format!("{counted}, {} bytes", standing.unshipped_bytes(lsn))
        }
    };
    let lag = lag(&standing, stat, now);
    if !lag.is_zero() {
        unshipped += &format!(", those that are durable for {} at most", rounded(lag));
    }
    let state = if standing.is_stopped { "has stopped; it" } else { "has" };
    let shipper = format!(
        "{state} last shipped what was durable {} ago; every {}",
        rounded(since),
        formatting::duration(standing.every)
    );
    let rows = [
        ("shipped to", standing.url.clone()),
        ("shipped below LSN", format!("{}, in timeline {}", standing.confirmed, standing.timeline)),
        ("not shipped", unshipped),
        ("shipper", shipper),
    ];
    let mut text = table(&rows);
    if let Some(stalled) = stalled_at(&standing, lsn, now) {
        text = format!("{text}\n{stalled}");
    }
    Ok(Some(text))
}

/// Returns why nothing is shipped from a directory with this number of records that are not, if
/// nothing is.
pub fn stalled(dir: &Path, unshipped: u64) -> Result<Option<String>> {
    let Some(standing) = read(dir, false)? else { return Ok(None) };
    let lsn = standing.confirmed.max(1).saturating_add(unshipped);
    Ok(stalled_at(&standing, lsn, SystemTime::now()))
}

fn stalled_at(standing: &Standing, lsn: u64, now: SystemTime) -> Option<String> {
    let why = match &standing.failure {
        Some(failure) => failure.as_str(),
        None if standing.is_stopped => "the shipper has stopped: start `ebbtide ship`",
        None => {
            "the shipper has not succeeded since: unless it was started a moment ago, it has died, \
             or hangs: look at its messages, start it again"
        }
    };
    let stalled =
        || format!("STALLED: nothing was shipped for {}: {why}", rounded(standing.waited(now)));
    standing.is_stalled(lsn, now).then(stalled)
}

/// Returns a duration in words, in milliseconds below a minute, else in seconds.
fn rounded(time: Duration) -> String {
    let millis = time.as_millis() as u64;
    let shown = if millis < 60_000 { millis } else { millis / 1000 * 1000 };
    formatting::duration(Duration::from_millis(shown))
}
