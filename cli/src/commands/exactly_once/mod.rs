//! `dedup --output`: each new line is written to a file exactly once, however often a run is
//! killed, and whatever happens to the inputs between two runs.
//!
//! Lines are read in pieces. The new lines of a piece are appended to the output first. Then one
//! batch of the filter records their keys, the length of the output and the place in the input. A
//! run that follows a killed one cuts the output to that length and continues from that place.
//! `docs/exactly-once.md` has a table of what may happen to an input, and what a run then does.
//!
//! `find_inputs` finds what the last run recorded (`positions`) among the `files` there are, by
//! identity, `content`, `stamps` and `rotation_names`, or refuses to (`refusals`). `order` says
//! what is read first, and `target` is the output.

mod content;
mod files;
mod find_inputs;
mod order;
mod positions;
mod refusals;
mod rotation_names;
mod stamps;
mod target;

use super::counts::Counts;
use super::line::{Line, LineError, Skipped};
use super::run::{Ended, Run};
use super::stream::Stream;
use crate::args::{Dedup, Since};
use crate::failure::{Failure, Result, note};
use crate::formatting::counted;
use crate::input::{Batch as Lines, Input};
use crate::key_args::Origin;
use crate::key_part::KeyParts;
use crate::stop::Stop;
use crate::trail::{CHECKED_BYTES, Trail};
use content::Content;
use ebbtide::{Any, Batch, Call, Durability, Error, Filter, Timestamp};
use find_inputs::{Plan, Wanted};
use order::Step;
use positions::{Entry, Inputs, Recorded};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use target::Target;

/// The lines of a piece, if the filter is small and `--batch` is not given. What a piece costs
/// beside its lines is spread over them: two syncs, and a copy of most blocks.
const PIECE_LINES: usize = 16 << 10;

/// The most bytes of a small filter: a batch keeps 64 MiB of copies, and so copies each block once.
/// Blocks of a larger one would be copied again and again.
const SMALL: u64 = 48 << 20;

/// A piece with at least this number of bytes ends, however few lines it has.
const PIECE_BYTES: usize = 4 << 20;

/// A line of a piece: its number and its bytes.
type Kept = (u64, Vec<u8>);

/// Deduplicates lines into a file.
pub struct ExactlyOnce<'a> {
    pub filter: &'a Filter<Any>,
    pub stream: &'a Stream<'a, Filter<Any>>,
    pub arguments: &'a Dedup,
    /// Counts the lines.
    pub counts: &'a mut Counts,
    /// Sets how much log the filter keeps, once the run is not refused.
    pub keep_log: &'a dyn Fn() -> Result<()>,
}

/// Lines that were read, and the place behind them.
struct Piece<'p> {
    path: &'p Path,
    lines: Vec<Kept>,
    slot: usize,
    entry: Entry,
    /// The header of the table, which all pieces with lines share.
    header: Option<Vec<u8>>,
}

/// A batch of the lines of a piece, and what follows from its answers if it is recorded.
struct Attempt<'f> {
    batch: Batch<'f>,
    counts: Counts,
    /// The new lines.
    new: Vec<u8>,
    /// What ends a line.
    end: u8,
}

impl Attempt<'_> {
    /// Checks a line; returns it unless the filter refuses it.
    fn check<'b>(
        &mut self,
        stream: &Stream<'_, Filter<Any>>,
        line: Line<'b>,
        of: &Lines<'_>,
        run: &mut Run,
    ) -> Result<Option<Line<'b>>> {
        match self.batch.check_and_insert_entry(&line.entry()) {
            Ok(checked) => {
                stream.accept(&line);
                self.counts.late += u64::from(checked.is_too_late());
                if self.counts.prints(checked.is_present()) {
                    self.new.extend_from_slice(line.whole);
                    self.new.push(self.end);
                }
                Ok(Some(line))
            }
            Err(error) => {
                stream.judge(LineError::Refused(error), of, line.number, run)?;
                Ok(None)
            }
        }
    }
}

/// Refuses arguments that cannot be processed exactly once. Nothing has been touched then.
pub fn check(arguments: &Dedup) -> Result<()> {
    let (Some(output), Some(state)) = (&arguments.output, &arguments.state) else { return Ok(()) };
    let files = &arguments.files;
    if files.is_empty() || files.iter().any(|path| path.as_os_str() == "-") {
        return Err(Failure::Error(
            "standard input cannot be read again after a kill; --output needs files".to_owned(),
        ));
    }
    if output.as_os_str() == "-" {
        return Err(Failure::Error(
            "standard output cannot be cut back: leave --output out, or name ./-".to_owned(),
        ));
    }
    target::check(output, state, files)?;
    KeyParts::new(&arguments.reading)?;
    files::check(files, &arguments.leave_out)
}

/// Records what a run is about to read, if that differs from what is recorded.
fn begin(
    filter: &Filter<Any>,
    target: &Target<'_>,
    (before, now): (&Inputs, &Inputs),
    is_new_output: bool,
) -> Result<()> {
    if before == now && !is_new_output {
        return Ok(());
    }
    // A new output is recorded durably before the first line is written: after a power cut, lines
    // of a run that is not recorded would be taken for what the output held already.
    let mut call = filter.call();
    if is_new_output {
        target.sync_name()?;
        call = call.durability(Durability::Always);
    }
    let mut batch = Batch::new(call);
    now.set(before, &mut batch)?;
    positions::set_output(&mut batch, target.identity.recorded, &target.trail)?;
    Ok(batch.commit()?)
}

impl<'a> ExactlyOnce<'a> {
    /// Reads the files and writes the new lines to the output.
    pub fn run(&mut self, output: &Path, state: &Path) -> Result<Ended> {
        let _locked = target::lock_state(state)?;
        let mut run = Run::new(true, true, Skipped::Nothing)?;
        match self.plan_and_feed(output, &mut run) {
            // A signal ends a long comparison of files by an error of its read.
            Err(_) if run.stop.signal().is_some() => Ok(run.end()),
            Ok(()) => Ok(run.end()),
            Err(failure) => run.fail(failure),
        }
    }

    fn plan_and_feed(&mut self, output: &Path, run: &mut Run) -> Result<()> {
        let arguments = self.arguments;
        let stop = run.stop.clone();
        let (recorded_output, recorded) = positions::read(self.filter)?;
        let before = match &recorded {
            Recorded::Inputs(inputs) => inputs.clone(),
            Recorded::Old(_) => Inputs::default(),
        };
        let own = target::own(output);
        let content = Content { stop: &stop, plain: arguments.reading.no_decompress };
        let left_out = files::ids(&arguments.leave_out)?;
        let is_left_out = |path: &PathBuf| files::is_any(path, &left_out);
        let paths: Vec<PathBuf> =
            arguments.files.iter().filter(|path| !is_left_out(path)).cloned().collect();
        let wanted = Wanted {
            paths: &paths,
            own: &own,
            is_new: arguments.new_input,
            accepts_missing: arguments.accept_missing,
            left_out,
            is_complete: arguments.complete,
            end: arguments.reading.delimiter(),
            content,
        };
        let is_old = matches!(recorded, Recorded::Old(_));
        let Plan { steps, inputs } = find_inputs::plan(&wanted, recorded)?;
        let durability = match arguments.reading.durability {
            Some(durability) => durability,
            None => self.filter.stat()?.durability,
        };
        let mut target = Target::open(output, durability != Durability::Never)?;
        target.find_end(recorded_output, arguments.adopt_output)?;
        (self.keep_log)()?;
        target.cut()?;
        let is_known = recorded_output.is_some_and(|recorded| {
            let is_same = recorded.file == target.identity.recorded && !is_old;
            is_same && recorded.length == target.trail.offset() && recorded.check.is_some()
        });
        begin(self.filter, &target, (&before, &inputs), !is_known)?;
        self.continue_times()?;
        let mut table = self.table_of(output, &target, &stop)?;
        let most = self.most_lines()?;
        for step in steps {
            if stop.signal().is_some() {
                break;
            }
            self.read((&step, most), content, &mut table, &mut target, run)?;
        }
        Ok(())
    }

    /// Lets the latest time of earlier runs count. If only new keys are inserted, the filter's time
    /// is not enough: it stays behind that of lines which were suppressed.
    fn continue_times(&self) -> Result<()> {
        let Some(times) = self.stream.times() else { return Ok(()) };
        match positions::latest(self.filter)? {
            Some(latest) => {
                times.accept(latest);
                // Otherwise one wrong line that is the first new one would block all later runs.
                times.continue_lines();
            }
            None if self.arguments.since == Since::Accepted => times.forget(),
            None => {}
        }
        Ok(())
    }

    /// Returns the header with which the output begins, if it is a table that has lines.
    fn table_of(&self, output: &Path, target: &Target<'_>, stop: &Stop) -> Result<Option<Vec<u8>>> {
        let reading = &self.arguments.reading;
        let is_table = !reading.csv_field.is_empty() && !self.arguments.omit_header;
        if !is_table || target.trail.offset() == 0 {
            return Ok(None);
        }
        let mut input = Input::new(origin(output), reading, false, stop)?;
        let first = input.next_batch(1, || Ok(()))?;
        Ok(first.and_then(|first| first.lines.first().map(|(_, line)| line.to_vec())))
    }

    /// Reads a file from its place to its end, in pieces of at most `most` lines.
    fn read(
        &mut self,
        (step, most): (&Step, usize),
        content: Content<'_>,
        table: &mut Option<Vec<u8>>,
        target: &mut Target<'_>,
        run: &mut Run,
    ) -> Result<()> {
        let (stop, reading) = (run.stop.clone(), &self.arguments.reading);
        let failed = |error| Failure::reading(&step.path, &error);
        let trail = self.continued(step, content)?;
        let mut begin = begin_of(step, &trail).map_err(failed)?;
        // By now its path may name another file, or none.
        let named = (&step.file, &*step.path);
        let mut first;
        let (mut head, mut header) = (None, None);
        if trail.offset() > 0 && !reading.csv_field.is_empty() {
            // The header of a table is in front of the place.
            first = Input::of_file(named, Trail::default(), true, reading, &stop)?;
            head = first.next_batch(1, || Ok(()))?;
        }
        let mut input = Input::of_file(named, trail, step.ends, reading, &stop)?;
        let is_packed = content.is_packed(&step.file).map_err(failed)?;
        let (mut piece, mut bytes, mut entry) = (Vec::new(), 0, step.entry);
        loop {
            let more = match input.next_batch(most - piece.len(), || Ok(()))? {
                Some(mut lines) => {
                    if let Some(mut head) = head.take() {
                        self.stream.take_header(&mut head, &mut header, run)?;
                    }
                    self.stream.take_header(&mut lines, &mut header, run)?;
                    bytes += lines.lines.iter().map(|(_, line)| line.len()).sum::<usize>();
                    piece.extend(lines.lines.iter().map(|&(at, line)| (at, line.to_vec())));
                    true
                }
                None => false,
            };
            if stop.signal().is_some() {
                // Lines that were read and not recorded are read again.
                return Ok(());
            }
            if piece.len() == most || bytes >= PIECE_BYTES || !more {
                bytes = 0;
                entry = advanced(entry, step, &input, more, reading.delimiter());
                if !is_packed {
                    still_there(step, &begin)?;
                    still_there(step, input.trail())?;
                    begin = input.trail().clone();
                }
                let lines = std::mem::take(&mut piece);
                // Without news, the header may be that of an earlier table.
                let is_new = entry.offset > step.entry.offset;
                let header = header.as_deref().filter(|_| is_new);
                let header = header_of(step, header, table, self.arguments.omit_header)?;
                let piece = Piece { path: &step.path, lines, slot: step.slot, entry, header };
                if !piece.lines.is_empty() || entry != step.entry {
                    self.record(&piece, target, run)?;
                }
            }
            if !more {
                break;
            }
        }
        note_left(step, &input);
        Ok(())
    }

    /// Returns where to continue: behind the end of a line that was taken without it, if the end
    /// has arrived; at the beginning of a table of which only blank lines were read, because its
    /// header is still to come. Refuses to continue in the middle of a line.
    fn continued(&self, step: &Step, content: Content<'_>) -> Result<Trail> {
        let mut trail = step.trail.clone();
        let failed = |error| Failure::reading(&step.path, &error);
        let is_table = !self.arguments.reading.csv_field.is_empty();
        if is_table && content.is_blank_before(&step.file, &trail).map_err(failed)? {
            return Ok(Trail::default());
        }
        if !step.entry.is_torn {
            return Ok(trail);
        }
        let byte_at = |offset| content.byte_at(&step.file, offset).map_err(failed);
        match byte_at(trail.offset())? {
            // It ends a record as well as a newline does.
            Some(b'\r') if is_table => {
                let is_pair = byte_at(trail.offset() + 1)? == Some(b'\n');
                let (end, line) = (&b"\r\n"[..1 + usize::from(is_pair)], trail.next_line());
                trail.pass(end, line);
            }
            Some(byte) if byte == self.arguments.reading.delimiter() => {
                let line = trail.next_line();
                trail.pass(&[byte], line);
            }
            Some(_) if !self.arguments.complete => {
                return Err(refusals::continued(&step.path, trail.offset()));
            }
            _ => {}
        }
        Ok(trail)
    }

    /// Writes the new lines of a piece, and records all of it. A table begins with its header.
    fn record(&mut self, piece: &Piece<'_>, target: &mut Target<'_>, run: &mut Run) -> Result<()> {
        let of = Lines { path: piece.path, begins_file: false, lines: Vec::new() };
        let recorded = run.place();
        let end = self.arguments.reading.delimiter();
        let (mut lines, mut unread) = (Vec::with_capacity(piece.lines.len()), piece.lines.iter());
        loop {
            let (batch, counts) = (Batch::new(self.call()), self.counts.clone());
            let mut attempt = Attempt { batch, counts, new: Vec::new(), end };
            let begins = target.trail.offset() == 0 && !self.arguments.omit_header;
            if let Some(header) = piece.header.as_ref().filter(|_| begins) {
                attempt.new.extend([&header[..], &[end]].concat());
            }
            // Those that are refused are counted then; if the batch conflicts, they are not asked
            // about again.
            let mut accepted = Vec::with_capacity(piece.lines.len());
            for line in lines {
                accepted.extend(attempt.check(self.stream, line, &of, run)?);
            }
            // Each line once: whether its time is refused depends on the lines before it.
            for (number, whole) in unread.by_ref() {
                if !run.take(piece.path, *number) {
                    // None of the piece is recorded.
                    run.set_back(recorded);
                    return Ok(());
                }
                let Ok(line) = self.stream.line(&of, whole, *number, run)? else { continue };
                accepted.extend(attempt.check(self.stream, line, &of, run)?);
            }
            lines = accepted;
            let Attempt { mut batch, counts, new, .. } = attempt;
            positions::set_entry(&mut batch, piece.slot, &piece.entry)?;
            let is_ended = target.is_torn(end) && !new.is_empty();
            let written = target.write(&new, end)?;
            positions::set_output(&mut batch, target.identity.recorded, &written)?;
            if let Some(latest) = self.latest() {
                positions::set_latest(&mut batch, latest)?;
            }
            let committed = batch.commit();
            drop(batch);
            match committed {
                Ok(()) => {
                    if is_ended {
                        target.note_ended();
                    }
                    (target.trail, *self.counts) = (written, counts);
                    return Ok(());
                }
                // Another process has inserted one of the keys: check all of them again.
                Err(Error::Conflict { .. }) => target.take_back()?,
                // Nothing is recorded. What stayed of it would take space, and the next run would
                // copy it. After other errors the batch may count, and its lines with it.
                Err(error @ (Error::Io { .. } | Error::Parameter { .. })) => {
                    let _ = target.take_back();
                    return Err(error.into());
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns the largest number of lines of a piece.
    fn most_lines(&self) -> Result<usize> {
        let reading = &self.arguments.reading;
        let most = match reading.batch {
            Some(given) => given.get(),
            // A great weight counts as several operations.
            None if reading.weight || self.filter.stat()?.memory_bytes > SMALL => reading.batch(),
            None => PIECE_LINES,
        };
        Ok(most.min(Batch::<Any>::MOST_OPERATIONS))
    }

    /// Returns the latest time, if lines have any, and one was taken in this run or an earlier one.
    fn latest(&self) -> Option<Timestamp> {
        self.stream.times().filter(|times| times.is_unit_known())?.latest()
    }

    fn call(&self) -> Call<'a> {
        let call = self.filter.call().since(self.arguments.since.into());
        match self.arguments.reading.durability {
            Some(durability) => call.durability(durability),
            None => call,
        }
    }
}

fn origin(path: &Path) -> Origin {
    Origin { files: vec![PathBuf::from(path)], ..Origin::default() }
}

/// Returns the entry of an input at the place up to which it was read.
fn advanced(mut entry: Entry, step: &Step, input: &Input<'_>, more: bool, end: u8) -> Entry {
    entry.advance(input.trail());
    entry.is_abandoned &= entry.offset == step.entry.offset;
    entry.is_torn = is_torn(input, end, entry.is_torn);
    let is_same = entry.offset == step.entry.offset && step.entry.is_complete;
    entry.is_complete = !more && input.left() == 0 && (step.ends || is_same);
    entry
}

/// Returns the header of the output's table: if it has none yet, that of the first file with news.
/// Refuses a file with another one. An output without a header has that of the run.
fn header_of(
    step: &Step,
    header: Option<&[u8]>,
    table: &mut Option<Vec<u8>>,
    is_omitted: bool,
) -> Result<Option<Vec<u8>>> {
    let Some(header) = header else { return Ok(None) };
    if names_of(table.get_or_insert_with(|| header.to_vec())) != names_of(header) {
        let refused = if is_omitted { refusals::other_header } else { refusals::other_table };
        return Err(refused(&step.path, header));
    }
    Ok(table.clone())
}

/// Returns a header without the marks with which some systems begin and end it.
fn names_of(header: &[u8]) -> &[u8] {
    let header = header.strip_prefix("\u{feff}".as_bytes()).unwrap_or(header);
    header.strip_suffix(b"\r").unwrap_or(header)
}

/// Says how many bytes of an unfinished line stay in a file.
fn note_left(step: &Step, input: &Input<'_>) {
    if input.left() > 0 {
        note(&format!(
            "{}: {} behind byte {} {} left for a later run, because the last line has no end yet \
             (--complete takes it as a line)",
            step.path.display(),
            counted(input.left() as u64, "byte"),
            input.trail().offset(),
            if input.left() == 1 { "is" } else { "are" }
        ));
    }
}

/// Returns whether what was read ends with a line that has no end.
fn is_torn(input: &Input<'_>, end: u8, was_torn: bool) -> bool {
    let last = input.trail().tail().last();
    input.took_rest() || (was_torn && last.is_some_and(|last| *last != end))
}

/// Checks that the bytes in front of a place are still there: the file may be truncated while it is
/// read, or before that, and grow beyond the place again.
fn still_there(step: &Step, trail: &Trail) -> Result<()> {
    let tail = trail.tail();
    let mut found = vec![0; tail.len()];
    let from = trail.offset() - tail.len() as u64;
    let read = step.file.read_exact_at(&mut found, from);
    if read.is_ok() && found == tail {
        return Ok(());
    }
    Err(refusals::overtaken(&step.path, trail.offset()))
}

/// Returns a place that shows later whether a file was truncated before it was read from `place`
/// on: that place. Nothing is in front of the beginning, so there it is behind the first bytes.
fn begin_of(step: &Step, place: &Trail) -> io::Result<Trail> {
    if place.offset() > 0 {
        return Ok(place.clone());
    }
    let mut first = vec![0; CHECKED_BYTES as usize];
    let count = step.file.read_at(&mut first, 0)?;
    let mut begin = Trail::default();
    begin.pass(&first[..count], 0);
    Ok(begin)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};

    #[test]
    fn a_file_that_is_truncated_and_grows_again_is_noticed_by_its_bytes_in_front_of_the_place() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("h.log");
        let lines = |name: &str, count: u64| -> Vec<u8> {
            (0..count).flat_map(|number| format!("{name} {number}\n").into_bytes()).collect()
        };
        // The file is read from its beginning, and from a place in it.
        for read in [0, 5000] {
            let first = lines("first", 1000);
            fs::write(&path, &first).expect("space");
            let file = File::open(&path).expect("it is there");
            let entry = Entry::new(1, b"h.log");
            let trail = Trail::default();
            let step = Step { path: path.clone(), file, slot: 0, entry, trail, ends: false };
            let mut place = Trail::default();
            place.pass(&first[..read], 1);
            let begin = begin_of(&step, &place).expect("it is read");
            fs::write(&path, [first, lines("more", 9)].concat()).expect("space");
            assert!(still_there(&step, &begin).is_ok(), "it has grown");
            fs::write(&path, lines("second", 2000)).expect("space");
            assert!(still_there(&step, &begin).is_err(), "it has other content from {read}");
        }
    }
}
