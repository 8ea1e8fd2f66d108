//! Options and durabilities as text, in the spelling of the command line.

use crate::error::{Error, Result};
use crate::options::{Durability, Options};
use ebbtide_core::units::{parse_count, parse_duration, parse_size, split_setting};
use std::str::FromStr;

/// The name of the options in errors about their text.
const OPTIONS: &str = "options";

/// Parses `always`, `never`, or the longest time between two syncs, such as `1s`.
///
/// # Errors
/// Anything else, with a sentence.
pub fn parse_durability(text: &str) -> std::result::Result<Durability, String> {
    match text {
        "always" => Ok(Durability::Always),
        "never" => Ok(Durability::Never),
        interval => parse_duration(interval)
            .map(Durability::Interval)
            .map_err(|_| "expected always, never, or a time between syncs such as 1s".to_owned()),
    }
}

impl FromStr for Options {
    type Err = Error;

    /// Reads settings of the form `name=value`, separated by blanks; others have their defaults.
    ///
    /// | names | values |
    /// |---|---|
    /// | `durability` | `always`, `never`, or the longest time between two syncs, such as `1s` |
    /// | `hash` | `fast` or `keyed` |
    /// | `hash-seed`, `stripes` | numbers |
    /// | `block-bytes`, `segment-bytes`, `checkpoint-bytes` | sizes, such as `64KiB` |
    /// | `max-lead` | a duration, such as `5m` |
    /// | `downtime` | `age` or `freeze` |
    /// | `background` | `on` or `off` |
    /// | `mode` | permissions in octal digits, such as `660` |
    /// | `image` | `memory`, `beside-log`, or an absolute path of a directory |
    /// | `keep-log` | `nothing`, a time such as `24h`, or a size such as `10GiB` |
    ///
    /// ```
    /// use ebbtide::Options;
    /// let options: Options = "durability=always stripes=16".parse()?;
    /// assert!("durability=sometimes".parse::<Options>().is_err());
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Parameter`] for other names and values. Bounds are checked when a filter is
    /// created.
    fn from_str(text: &str) -> Result<Self> {
        let (mut options, mut names) = (Self::new(), Vec::new());
        for word in text.split_whitespace() {
            let (name, value) = split_setting(OPTIONS, word)?;
            if names.contains(&name) {
                return Err(Error::parameter(OPTIONS, format!("{name} once"), format!("{text:?}")));
            }
            names.push(name);
            options = set(options, name, value)?;
        }
        Ok(options)
    }
}

/// Returns the options with one more of them set.
fn set(options: Options, name: &str, value: &str) -> Result<Options> {
    let wrong = |expected: String| {
        let expected = expected.strip_prefix("expected ").unwrap_or(&expected);
        Error::parameter(OPTIONS, format!("{name}: {expected}"), value)
    };
    let count = || parse_count(value).map_err(wrong);
    let size = || parse_size(value).map_err(wrong);
    Ok(match name {
        "durability" => options.durability(parse_durability(value).map_err(wrong)?),
        "hash" => options.key_hash(value.parse()?),
        "hash-seed" => options.hash_seed(count()?),
        "stripes" => {
            let stripes = u32::try_from(count()?);
            options.stripes(stripes.map_err(|_| wrong("a number of locks".to_owned()))?)
        }
        "block-bytes" => options.block_bytes(size()?),
        "segment-bytes" => options.segment_bytes(size()?),
        "checkpoint-bytes" => options.checkpoint_bytes(size()?),
        "max-lead" => options.max_lead(parse_duration(value).map_err(wrong)?),
        "downtime" => options.downtime(value.parse()?),
        "background" => match value {
            "on" => options.background(true),
            "off" => options.background(false),
            _ => return Err(wrong("on or off".to_owned())),
        },
        "mode" => {
            let mode = u32::from_str_radix(value, 8);
            options.mode(mode.map_err(|_| wrong("octal digits, as in 660".to_owned()))?)
        }
        "image" => options.image(value.parse()?),
        "keep-log" => options.keep_log(value.parse()?),
        _ => {
            return Err(Error::parameter(
                OPTIONS,
                "durability, hash, hash-seed, stripes, block-bytes, segment-bytes, \
                 checkpoint-bytes, max-lead, downtime, background, mode, image or keep-log",
                name,
            ));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Downtime, ImagePlace};
    use ebbtide_core::KeyHash;
    use std::time::Duration;

    #[test]
    fn every_option_reads_from_text() {
        let text = "durability=20ms hash=keyed hash-seed=7 stripes=16 block-bytes=4KiB \
                    segment-bytes=1MiB checkpoint-bytes=8MiB max-lead=5m downtime=freeze \
                    background=off mode=660 image=/mnt/huge keep-log=2h";
        let options: Options = text.parse().expect("options");
        assert_eq!(options.durability, Some(Durability::Interval(Duration::from_millis(20))));
        assert_eq!(options.key_hash, Some(KeyHash::Keyed));
        assert!(options.hash_seed.is_some());
        assert_eq!((options.stripes, options.block_bytes), (Some(16), Some(4 << 10)));
        assert_eq!(options.segment_bytes, Some(1 << 20));
        assert_eq!(options.checkpoint_bytes, Some(8 << 20));
        assert_eq!(options.max_lead, Some(Duration::from_secs(300)));
        assert_eq!(options.downtime, Some(Downtime::Freeze));
        assert!(!options.background);
        assert_eq!(options.mode, Some(0o660));
        assert_eq!(options.image, Some(ImagePlace::Directory("/mnt/huge".into())));
        assert_eq!(options.keep_log, Some(crate::Keep::For(Duration::from_secs(7200))));
        assert_eq!("".parse::<Options>().expect("the defaults").stripes, None);
    }

    #[test]
    fn wrong_options_are_refused_with_their_name() {
        for (text, part) in [
            ("durability", "name=value"),
            ("durability=", "name=value"),
            ("durability=sometimes", "durability: always, never"),
            ("stripes=many", "expected stripes: a whole number"),
            ("stripes=5G", "a number of locks"),
            ("block-bytes=4kib", "block-bytes"),
            ("max-lead=5", "max-lead: a unit after 5"),
            ("hash=md5", "md5"),
            ("background=maybe", "on or off"),
            ("mode=rw", "octal"),
            ("colour=red", "found colour"),
            ("stripes=1 stripes=2", "stripes once"),
        ] {
            let error = text.parse::<Options>().expect_err(text);
            assert!(matches!(error, Error::Parameter { .. }), "{error}");
            assert!(error.to_string().contains(part), "{text}: {error}");
        }
    }
}
