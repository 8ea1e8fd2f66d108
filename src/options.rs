//! The settings of a filter apart from its kind: built once, checked once, then immutable.

pub mod text;

use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::media::ImagePlace;
use crate::wal::log_record::RECORD_BYTES;
use ebbtide_core::block::Layout;
use ebbtide_core::hash::{KeyHash, Seed};
use ebbtide_core::kind::parameters::within;
use ebbtide_core::units::{parse_duration, parse_size};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// When an operation's record must have reached the disk.
///
/// At every level the record is in the mapped log before the operation returns, so it survives the
/// death of every process. The levels differ in what survives a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Durability {
    /// Before the operation returns (group commit: concurrent operations share one sync).
    Always,
    /// At most this long after the operation; needs the background threads, which are on by
    /// default. They sync at most once in 100 microseconds, also if this is less. A call with a
    /// shorter interval than its handle's shortens the handle's from then on.
    Interval(Duration),
    /// When the kernel writes it back, at the next checkpoint, or at a clean close.
    Never,
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Always => f.write_str("always"),
            Self::Interval(every) => write!(f, "interval {}", Interval(*every)),
            Self::Never => f.write_str("never"),
        }
    }
}

impl Durability {
    /// Checks the bounds of an interval, as opening a filter does. For bindings: a
    /// [`Call`](crate::Call) does not check the durability that it is given.
    ///
    /// # Errors
    /// [`Error::Parameter`] for less than a microsecond, and for more than a day.
    #[doc(hidden)]
    pub fn check(self) -> Result<()> {
        match self {
            Self::Interval(every)
                if every < Duration::from_micros(1) || every > Duration::from_secs(86_400) =>
            {
                let expected = "an interval from a microsecond to a day";
                Err(Error::parameter("durability", expected, format!("{every:?}")))
            }
            _ => Ok(()),
        }
    }
}

impl FromStr for Durability {
    type Err = Error;

    /// Reads the output of `Display`: `always`, `never`, or `interval 1s` (`ms`, `us` and `µs`
    /// likewise).
    ///
    /// ```
    /// use ebbtide::Durability;
    /// use std::time::Duration;
    /// let half_a_second: Durability = "interval 500ms".parse()?;
    /// assert_eq!(half_a_second, Durability::Interval(Duration::from_millis(500)));
    /// assert_eq!(half_a_second.to_string(), "interval 500ms");
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    fn from_str(text: &str) -> Result<Self> {
        let interval = || Some(Self::Interval(Interval::read(text.strip_prefix("interval ")?)?));
        match text {
            "always" => Ok(Self::Always),
            "never" => Ok(Self::Never),
            _ => interval().ok_or_else(|| {
                Error::parameter("durability", "always, never, or interval 1s, 20ms, 500us", text)
            }),
        }
    }
}

/// A time in whole microseconds, with the largest unit that needs no fraction.
struct Interval(Duration);

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_micros() {
            micros if micros.is_multiple_of(1_000_000) => write!(f, "{}s", micros / 1_000_000),
            micros if micros.is_multiple_of(1000) => write!(f, "{}ms", micros / 1000),
            micros => write!(f, "{micros}us"),
        }
    }
}

impl Interval {
    fn read(text: &str) -> Option<Duration> {
        let end = text.find(|c: char| !c.is_ascii_digit())?;
        let (number, unit) = text.split_at(end);
        let micros = match unit {
            "s" => 1_000_000,
            "ms" => 1000,
            "us" | "µs" => 1,
            _ => return None,
        };
        Some(Duration::from_micros(number.parse::<u64>().ok()?.checked_mul(micros)?))
    }
}

/// How a filter's time advances while no process has the filter open (clocks only: stream time has
/// no downtime).
///
/// Downtime is measured by the system's monotonic clock as long as the machine runs, and by the
/// wall clock across a reboot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Downtime {
    /// Time advances: an outage of an hour makes every key an hour older.
    #[default]
    Age,
    /// Time stands still from the last sign of activity: a record, or the heartbeat written every
    /// second.
    Freeze,
}

impl fmt::Display for Downtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Age => "age",
            Self::Freeze => "freeze",
        })
    }
}

impl FromStr for Downtime {
    type Err = Error;

    /// Reads `age` or `freeze`.
    fn from_str(text: &str) -> Result<Self> {
        match text {
            "age" => Ok(Self::Age),
            "freeze" => Ok(Self::Freeze),
            _ => Err(Error::parameter("downtime", "age or freeze", text)),
        }
    }
}

/// How much of the log is kept beyond what recovery needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Keep {
    /// Nothing.
    #[default]
    Nothing,
    /// At least the operations of this time: by a clock that runs evenly while the machine does, so
    /// that setting the wall clock ahead removes nothing, and by the wall clock from one start of
    /// the machine to the next. Parts of a second are rounded up.
    For(Duration),
    /// At most this many bytes of log and snapshots.
    Bytes(u64),
}

impl Keep {
    /// Returns it in whole seconds, which is what a filter stores: a part of one is one more.
    pub(crate) fn in_seconds(self) -> Self {
        let Self::For(time) = self else { return self };
        let more = u64::from(time.subsec_nanos() > 0);
        Self::For(Duration::from_secs(time.as_secs().saturating_add(more)))
    }

    /// Reads what `Display` writes, also that of versions that wrote sizes without a unit.
    pub(crate) fn read(text: &str) -> Option<Self> {
        if text == "nothing" {
            return Some(Self::Nothing);
        }
        let time = parse_duration(text).map(Self::For);
        time.or_else(|_| parse_size(text).map(Self::Bytes)).ok()
    }
}

impl fmt::Display for Keep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.in_seconds() {
            Self::Nothing => f.write_str("nothing"),
            Self::For(time) => write!(f, "{}s", time.as_secs()),
            Self::Bytes(bytes) => write!(f, "{bytes}B"),
        }
    }
}

impl FromStr for Keep {
    type Err = Error;

    /// Reads `nothing`, a time (`24h`, `7d`) or a size (`10GiB`). A number alone is refused,
    /// because a unit was most likely forgotten, and so is a time or a size of zero, because no
    /// log at all has a word: a mistake removes the past.
    ///
    /// ```
    /// use ebbtide::Keep;
    /// use std::time::Duration;
    /// assert_eq!("24h".parse::<Keep>()?, Keep::For(Duration::from_secs(86_400)));
    /// assert_eq!("10GiB".parse::<Keep>()?, Keep::Bytes(10 << 30));
    /// assert_eq!("nothing".parse::<Keep>()?, Keep::Nothing);
    /// assert!("24".parse::<Keep>().is_err() && "0s".parse::<Keep>().is_err());
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    fn from_str(text: &str) -> Result<Self> {
        let wrong = |expected: String| Err(Error::parameter("keep-log", expected, text));
        let without_unit = text.bytes().all(|byte| byte.is_ascii_digit() || b"._".contains(&byte));
        if without_unit && !text.is_empty() {
            return wrong(format!(
                "a unit after {text}: a time such as {text}h, a size such as {text}GiB, or nothing"
            ));
        }
        match Self::read(text) {
            // As `+24` would be.
            Some(Self::Bytes(_)) if !text.ends_with('B') => {
                wrong("nothing, a time such as 24h, or a size such as 10GiB".to_owned())
            }
            Some(Self::For(Duration::ZERO) | Self::Bytes(0)) => {
                wrong("more than zero, or nothing, which keeps no log".to_owned())
            }
            Some(keep) => Ok(keep),
            None => wrong("nothing, a time such as 24h, or a size such as 10GiB".to_owned()),
        }
    }
}

/// Settings of a filter and of a handle.
///
/// The first group is fixed at creation. A filter that exists and differs in one that is given
/// here is refused with [`Error::Mismatch`]; those that are not given are the filter's. The second
/// group belongs to each handle. The durability is in both: that of the creation holds for handles
/// that name none.
///
/// ```
/// use ebbtide::{Durability, Options};
/// let options = Options::new().durability(Durability::Always).stripes(16);
/// ```
///
/// # Limits of file sizes
///
/// Under such a limit (`RLIMIT_FSIZE`, `ulimit -f`, systemd's `LimitFSIZE`) the kernel sends
/// `SIGXFSZ` to a process whose file would exceed it, which ends the process by default. A program
/// that runs under one should ignore this signal. An operation that exceeds the limit then returns
/// [`Error::Io`](crate::Error::Io) ("File too large"), and the filter stays sound.
#[derive(Debug, Clone)]
pub struct Options {
    pub(crate) key_hash: Option<KeyHash>,
    pub(crate) hash_seed: Option<Seed>,
    pub(crate) stripes: Option<u32>,
    pub(crate) block_bytes: Option<u64>,
    pub(crate) segment_bytes: Option<u64>,
    pub(crate) durability: Option<Durability>,
    pub(crate) downtime: Option<Downtime>,
    pub(crate) max_lead: Option<Duration>,
    pub(crate) clock: Clock,
    pub(crate) checkpoint_bytes: Option<u64>,
    pub(crate) background: bool,
    pub(crate) mode: Option<u32>,
    pub(crate) image: Option<ImagePlace>,
    pub(crate) keep_log: Option<Keep>,
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

/// The least size of a log segment, in bytes; under shuttle so small that a schedule of a few
/// operations fills several.
const SEGMENT_LEAST: u64 = if cfg!(shuttle) { 128 } else { 4 << 10 };

/// The environment variable with the place of live images.
const IMAGE_VARIABLE: &str = "EBBTIDE_IMAGE";

impl Options {
    /// Returns the defaults.
    #[must_use]
    pub fn new() -> Self {
        Self {
            key_hash: None,
            hash_seed: None,
            stripes: None,
            block_bytes: None,
            segment_bytes: None,
            durability: None,
            downtime: None,
            max_lead: None,
            clock: Clock::system(),
            checkpoint_bytes: None,
            background: true,
            mode: None,
            image: None,
            keep_log: None,
        }
    }

    /// Sets the function that hashes keys. Fixed at creation. Default: [`KeyHash::Fast`]. Choose
    /// [`KeyHash::Keyed`] for untrusted keys, whose authors may gain from wrong answers.
    #[must_use]
    pub fn key_hash(mut self, function: KeyHash) -> Self {
        self.key_hash = Some(function);
        self
    }

    /// Sets the seed of the key hash, for filters that must be equal bit by bit. Fixed at creation.
    /// Default: random, 64 bits for [`KeyHash::Fast`] and 128 bits for [`KeyHash::Keyed`], so that
    /// the positions of a key are unpredictable. The seed is never shown.
    ///
    /// With [`KeyHash::Keyed`] the key is derived from the seed: the first two outputs of
    /// SplitMix64 from this state. Such a filter is only as safe as the seed is secret, and the
    /// seed has at most 64 bits.
    #[must_use]
    pub fn hash_seed(mut self, seed: u64) -> Self {
        self.hash_seed = Some(Seed(seed));
        self
    }

    /// Sets the number of stripes, 1 to 4096: equal shares of the keys, each under its own lock.
    /// Fixed at creation. Default: by the kind and its size, up to 64 (fewer for small filters), so
    /// that a handful of threads rarely contend.
    ///
    /// Too many of them cost a small filter of a kind with a fixed number of cells its rate,
    /// because each stripe has an equal share of the cells, and not of the keys: `timing`,
    /// `counting`, `spectral`, `dynamic-count` and `decaying`. Planned for a rate of 0.001, with 64
    /// stripes it is 0.03 for 100 keys, 0.0026 for 1000, and 0.0011 for 10,000.
    /// [`Stat::planned_fpr`](crate::Stat::planned_fpr) is the rate with the stripes;
    /// [`Stat::saturated`](crate::Stat::saturated) compares with it.
    #[must_use]
    pub fn stripes(mut self, stripes: u32) -> Self {
        self.stripes = Some(stripes);
        self
    }

    /// Sets the target size of a block, 512 bytes to 64 KiB. Fixed at creation. All cells of a key
    /// lie in one block. Default: 64 KiB for windows of inserts of `fingerprint` and for wide
    /// counters of `decaying`, 16 KiB for all others. Smaller blocks cost more false positives,
    /// larger ones more memory traffic in a checkpoint.
    #[must_use]
    pub fn block_bytes(mut self, bytes: u64) -> Self {
        self.block_bytes = Some(bytes);
        self
    }

    /// Sets the size of a log segment, 4 KiB to 1 GiB: how much is allocated at once, ahead of use,
    /// when the log has grown to one (until then, half of what it has). Fixed at creation.
    /// Default: the size of the first bank, rounded up to a power of two, at least 1 MiB and at
    /// most 16 MiB; above 1 GiB of memory a 64th, at most 1 GiB. A filter that has outgrown its
    /// default gets larger segments each time that a first handle opens it. Since two or three
    /// segments exist at a time, smaller ones save disk; but allocating one must take less time
    /// than filling it.
    #[must_use]
    pub fn segment_bytes(mut self, bytes: u64) -> Self {
        self.segment_bytes = Some(bytes);
        self
    }

    /// Sets when records of this handle must be on the disk, unless a call says otherwise. Default:
    /// as given when the filter was created; if nothing was given then, within a second.
    ///
    /// Handles on one filter may differ: each call waits as its own handle says. A sync makes the
    /// records of all handles durable.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = Some(durability);
        self
    }

    /// Sets how time advances while no process has the filter open. Fixed at creation. Default:
    /// [`Downtime::Age`].
    #[must_use]
    pub fn downtime(mut self, downtime: Downtime) -> Self {
        self.downtime = Some(downtime);
        self
    }

    /// Sets how far ahead of the wall clock a key's time may lie. Fixed at creation. Default: one
    /// hour. A single timestamp a year ahead would make all other keys a year old. A handle without
    /// a clock ([`Clock::stream`]) has nothing to compare with, and takes any time.
    #[must_use]
    pub fn max_lead(mut self, lead: Duration) -> Self {
        self.max_lead = Some(lead);
        self
    }

    /// Sets the source of time for calls that pass none. Belongs to this handle. Default: the
    /// system's clock.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Sets after how many bytes of log a background thread writes a checkpoint. Belongs to this
    /// handle. Default: the filter's memory, so that at most as much is written to snapshots as to
    /// the log; of filters below 64 MiB four times the memory, but at most 64 MiB and at least 1
    /// MiB. A larger value saves writing, and costs disk space and recovery time.
    ///
    /// An insert may wait for a whole checkpoint, which takes as long as copying the filter's
    /// memory to the disk. When twice this much log has gathered, inserts wait until the checkpoint
    /// in progress is done. This bounds the log where keys arrive faster than the disk takes
    /// snapshots. Such a wait of a 335 MiB filter took up to 20 s in a debug build, and at most 0.2
    /// s in a release build. A disk of five times the memory and three segments is enough: on one
    /// that is full, checkpoints are written earlier. It also costs the older of two snapshots,
    /// which is needed only if the newer one is damaged.
    #[must_use]
    pub fn checkpoint_bytes(mut self, bytes: u64) -> Self {
        self.checkpoint_bytes = Some(bytes);
        self
    }

    /// Sets whether background threads allocate log ahead, sync at intervals and write
    /// checkpoints. Belongs to this handle. Default: yes. Without them, the writer that needs log
    /// allocates it; [`Filter::checkpoint`](crate::Filter::checkpoint) and the last close
    /// write checkpoints; and [`Durability::Interval`] holds only as far as later operations or
    /// [`Filter::sync`](crate::Filter::sync) carry it.
    #[must_use]
    pub fn background(mut self, on: bool) -> Self {
        self.background = on;
        self
    }

    /// Sets the permissions of the filter's files, whatever the umask: `0o600`, the default, or
    /// `0o660` for a filter that a group shares. Fixed at creation: a filter that has more is
    /// refused with [`Error::Mismatch`]. Backups and restored copies have them, too, but for what
    /// others may, and, if there is an access control list, what the group may; those that root
    /// makes also have the owner of the original. The group is that of the directory's creator,
    /// or of the directory itself if it has the set-group-id bit. Files created later get owner,
    /// group and permissions of the file `meta`, even if root creates them, so opening a filter
    /// as root locks no other user out. Bits other than read and write are ignored.
    #[must_use]
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = Some(mode);
        self
    }

    /// Sets where the cells of the live image lie. Belongs to the handle that opens the filter
    /// alone; handles that attach follow it. Default: the environment variable `EBBTIDE_IMAGE`,
    /// read as [`ImagePlace`] is; without it in memory, except that filters of up to 64 KiB that do
    /// not grow, and those of a process with a limit of file sizes, lie beside the log. On macOS
    /// all lie there, and a directory is refused when the filter is opened.
    ///
    /// Memory is taken whole when the filter is opened, is charged to the control group of the
    /// process that opens it, and cannot be reclaimed. If there is too little, opening fails before
    /// any is taken. Beside the log, the system may take pages out of memory, but it also writes
    /// changed pages to the disk: a filter that is larger than `vm.dirty_bytes` is then many times
    /// slower.
    #[must_use]
    pub fn image(mut self, place: ImagePlace) -> Self {
        self.image = Some(place);
        self
    }

    /// Sets how much of the log is kept beyond what recovery needs. Belongs to the filter, and may
    /// be changed whenever it is opened; a handle that does not set it changes nothing. Default:
    /// [`Keep::Nothing`].
    ///
    /// With the log, the filter can be asked [as of](crate::Reader::at) any kept moment, and its
    /// operations can be [read](crate::history). It takes 32 bytes of disk an operation, and of the
    /// snapshots on the way as many as take a quarter of that. If the disk is full it is removed,
    /// oldest first, before any operation fails.
    #[must_use]
    pub fn keep_log(mut self, keep: Keep) -> Self {
        self.keep_log = Some(keep.in_seconds());
        self
    }

    /// Returns where the image of this handle is to lie: as set, or as the environment says.
    pub(crate) fn image_place(&self) -> Result<Option<ImagePlace>> {
        if self.image.is_some() {
            return Ok(self.image.clone());
        }
        let value = std::env::var_os(IMAGE_VARIABLE).filter(|value| !value.is_empty());
        let Some(value) = value else { return Ok(None) };
        let place = value.to_str().unwrap_or_default().parse();
        place.map(Some).map_err(|_| {
            let expected = "memory, beside-log, or an absolute path of a directory";
            Error::parameter(IMAGE_VARIABLE, expected, value.to_string_lossy())
        })
    }

    /// Returns the options for opening the same filter again, as a child made by `fork` does, and
    /// every handle after an alteration. Stripes, block and segment size are left out, because they
    /// may have changed with the kind's parameters, and so is [`keep_log`](Options::keep_log),
    /// because somebody else may have changed it since.
    ///
    /// ```
    /// use ebbtide::{Bloom, Filter, Keep, Options};
    /// # let parent = tempfile::tempdir()?;
    /// # let dir = parent.path().join("seen");
    /// let options = Options::new().keep_log("24h".parse()?);
    /// Filter::create(&dir, Bloom::capacity(1000), options.clone())?.close()?;
    /// let operator: Filter = Filter::open(&dir, Options::new().keep_log(Keep::Nothing))?;
    /// let again: Filter = Filter::open(&dir, options.for_reopening())?;
    /// assert_eq!(again.stat()?.keep_log, Keep::Nothing);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn for_reopening(&self) -> Self {
        let (stripes, block_bytes, segment_bytes, keep_log) = (None, None, None, None);
        Self { stripes, block_bytes, segment_bytes, keep_log, ..self.clone() }
    }

    /// Checks the bounds of values.
    pub(crate) fn check(&self) -> Result<()> {
        if let Some(stripes) = self.stripes {
            within("stripes", stripes.into(), 1, Layout::MOST_STRIPES.into())?;
        }
        if let Some(bytes) = self.block_bytes {
            within("block-bytes", bytes, 512, 64 << 10)?;
        }
        if let Some(bytes) = self.segment_bytes {
            within("segment-bytes", bytes, SEGMENT_LEAST, 1 << 30)?;
        }
        if let Some(durability) = self.durability {
            durability.check()?;
        }
        if let Some(lead) = self.max_lead
            && u64::try_from(lead.as_micros()).is_err()
        {
            let expected = format!("at most {} microseconds", u64::MAX);
            let found = format!("{lead:?}");
            return Err(Error::parameter("max-lead", expected, found));
        }
        Ok(())
    }

    /// Returns the durability of a new filter.
    pub(crate) fn durability_or_default(&self) -> Durability {
        self.durability.unwrap_or(Durability::Interval(Duration::from_secs(1)))
    }

    /// Returns how far ahead of the wall clock a key of a new filter may lie, in microseconds.
    pub(crate) fn max_lead_or_default(&self) -> u64 {
        let lead = self.max_lead.unwrap_or(Duration::from_secs(3600));
        // Checked: it has at most 64 bits of microseconds.
        u64::try_from(lead.as_micros()).unwrap_or(u64::MAX)
    }

    /// Returns the records in a segment of a filter whose first bank takes `memory_bytes`.
    pub(crate) fn segment_records(&self, memory_bytes: u64) -> u64 {
        self.segment_bytes.unwrap_or(Self::default_segment_bytes(memory_bytes)) / RECORD_BYTES
    }

    /// Returns the default size of a segment in bytes. Up to 16 MiB it is that of the memory, a
    /// quarter of the log between two checkpoints; a 64th of the memory keeps their number small in
    /// large filters.
    pub(crate) fn default_segment_bytes(memory_bytes: u64) -> u64 {
        let least = memory_bytes.clamp(1 << 20, 16 << 20);
        least.max((memory_bytes / 64).min(1 << 30)).next_power_of_two()
    }

    /// Returns whether this is the default size of a segment for a first bank of `memory_bytes`, of
    /// this build or of format 4.
    pub(crate) fn is_default_segment(records: u64, memory_bytes: u64) -> bool {
        let before = (memory_bytes / 4).clamp(1 << 20, 16 << 20).next_power_of_two();
        [Self::default_segment_bytes(memory_bytes), before].contains(&(records * RECORD_BYTES))
    }

    /// Returns the bytes of log after which a checkpoint is due.
    pub(crate) fn checkpoint_due(&self, memory_bytes: u64) -> u64 {
        // Four times the memory, as long as that much log is read again in half a second.
        let several = memory_bytes.saturating_mul(4).min(64 << 20);
        self.checkpoint_bytes.unwrap_or(memory_bytes.max(several).max(1 << 20))
    }
}

#[cfg(test)]
mod tests;
