//! What a run says when it refuses to continue: which file is missing, and what to do.

use super::files::{Found, Id};
use super::positions::{Entry, name_hash};
use super::rotation_names;
use crate::compressed::Unread;
use crate::failure::{Failure, misfit};
use ebbtide::units::visible;
use std::cmp::Reverse;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What accepts a loss.
const ACCEPT: &str = "--accept-missing";

/// A file of a recorded identity has other content. `parts` are later parts of its rotation, none
/// of which holds what was read.
pub fn changed(entry: &Entry, file: &Found, parts: &[&Found]) -> Failure {
    let (path, offset) = (file.path.display(), entry.offset);
    let what = if file.size < offset {
        format!("was truncated: it ends before byte {offset}, up to which it was read")
    } else {
        format!(
            "was replaced: the bytes in front of byte {offset}, up to which it was read, are other \
             ones"
        )
    };
    // A run may have read what was appended behind the end of a copy, before the truncation.
    let copied = match parts {
        [] => String::new(),
        _ => format!(
            "; if {} is a copy that was made while a run read {path}, and ends before that byte, \
             nothing is missing: give {ACCEPT} {}",
            list(parts),
            leave_out(parts)
        ),
    };
    Failure::Error(format!(
        "{path} {what}, and no file beside it holds what was read; put the file with its earlier \
         content beside it, or give {ACCEPT} to read {path} from its beginning if nothing of its \
         earlier content is missing{copied}"
    ))
}

/// An input is not there any more.
pub fn missing(entry: &Entry, files: &[Found]) -> Failure {
    Failure::Error(format!(
        "{}, is neither among the inputs nor beside them: it was removed, moved or changed; put it \
         back or give it as well, or give {ACCEPT} if nothing of it is missing (or --new-input to \
         read all inputs from their beginning)",
        gone(entry, files)
    ))
}

/// An input of which nothing was read is not there any more, and may be one of these new parts of
/// its log: no content shows that.
pub fn unrecognised(entry: &Entry, parts: &[&Found], all: &[Found]) -> Failure {
    let given = all.iter().filter(|file| file.is_given());
    let others = given.filter(|file| parts.iter().all(|part| part.id != file.id));
    let mut order: Vec<&Found> = parts.iter().copied().chain(others).collect();
    sort(&mut order);
    Failure::Error(format!(
        "{}, was renamed and changed, or removed, and nothing shows which file it is now; if all \
         that was written to it is in {}, give {ACCEPT} and the inputs in this order: {}, or \
         first put back what is not there",
        gone(entry, all),
        list(parts),
        list(&order)
    ))
}

/// Describes an input that is not there. Another file may have its name now.
fn gone(entry: &Entry, files: &[Found]) -> String {
    let named = files.iter().find(|file| name_hash(&file.name) == entry.name);
    let what = match named {
        Some(file) => format!("an earlier file {}", String::from_utf8_lossy(&file.name)),
        None => "an input of an earlier run".to_owned(),
    };
    format!("{what}, of which {} bytes were read", entry.offset)
}

/// Adds to a failure the other inputs that are not there either.
pub fn also_missing(failure: Failure, others: &[Entry], files: &[Found]) -> Failure {
    let others: Vec<String> = others.iter().map(|entry| gone(entry, files)).collect();
    if others.is_empty() {
        return failure;
    }
    failure.and(&format!("{ACCEPT} concerns as well: {}", others.join("; ")))
}

/// Adds to a failure that a file begins like the missing one.
pub fn alike(failure: Failure, entry: &Entry, file: &Found) -> Failure {
    let remedy = if entry.name == name_hash(&file.name) {
        format!("give {ACCEPT}, which continues behind what was read")
    } else {
        "give it the name that it had, with the ending that a rotation adds".to_owned()
    };
    failure.and(&format!(
        "{} begins like it, as all files with its header do; if it is the same file, {remedy}",
        file.path.display()
    ))
}

/// A file begins like an input of its name whose loss was accepted, which does not show that it is
/// the same one.
pub fn returned(entry: &Entry, file: &Found) -> Failure {
    Failure::Error(format!(
        "{} begins with all that was read of an earlier file of its name, {} bytes, whose loss was \
         accepted; give {ACCEPT} to continue behind them, or, if it is a new file that repeats \
         them and they are wanted again, --new-input to read all inputs from their beginning",
        file.path.display(),
        entry.offset
    ))
}

/// A file is gone between an input that was renamed and the one that has its name now.
pub fn gap(renamed: &Found, live: &Found, gone: u64) -> Failure {
    let mut name = live.path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{gone}"));
    Failure::Error(format!(
        "{} was read as {} by an earlier run, so the log has been rotated more than once since, \
         but {} is not there, whose lines were never read; put it back, or give {ACCEPT} if \
         nothing of it is missing",
        renamed.path.display(),
        live.path.display(),
        renamed.path.with_file_name(name).display()
    ))
}

/// The input that a run of an earlier version has read last is not there any more.
pub fn old_missing(offset: u64) -> Failure {
    Failure::Error(format!(
        "the file that was read last, {offset} bytes of it, is neither among the inputs nor beside \
         them: it was removed, replaced or compressed; put it back or give it as well, or give \
         {ACCEPT} to read all inputs from their beginning if nothing of it is missing"
    ))
}

/// Several files begin like an input that is not there any more.
pub fn ambiguous(entry: &Entry, files: &[&Found]) -> Failure {
    Failure::Error(format!(
        "an input of which {} bytes were read is not there any more, and more than one file begins \
         like it: {}; move those that are not its continuation to another directory, and give \
         those of them that are wanted to the next run, or give --new-input to read all inputs \
         from their beginning",
        entry.offset,
        list(files)
    ))
}

/// Files of the inputs' rotation were not read.
pub fn unread(passed: &[&Found], known: &[&Found], all: &[Found]) -> Failure {
    let given = all.iter().filter(|file| file.is_given());
    let mut order: Vec<&Found> = given.chain(passed.iter().copied()).collect();
    for &file in known {
        let is_listed = order.iter().any(|other| other.id == file.id);
        if !is_listed && passed.iter().any(|passed| passed.written >= file.written) {
            order.push(file);
        }
    }
    sort(&mut order);
    Failure::Error(format!(
        "no run has read {}, which by name and time may be earlier parts of the inputs; give the \
         inputs in this order: {}, or leave out what is not wanted: {}",
        list(passed),
        list(&order),
        leave_out(passed)
    ))
}

/// A file that belongs to the inputs cannot be decompressed.
pub fn undecoded(file: &Found, format: &Unread) -> Failure {
    let path = quoted(&file.path);
    Failure::Error(format!(
        "{} may have lines that no run has read, but {format}; run {} {path}, or leave it out: \
         --leave-out {path} (or give --no-decompress to read it as it is)",
        file.path.display(),
        format.program
    ))
}

/// A file that belongs to the inputs may not be read by this user.
pub fn forbidden(file: &Found) -> Failure {
    Failure::Error(format!(
        "{} may have lines that no run has read, but this user may not read it; permit it, or \
         leave it out: --leave-out {}",
        file.path.display(),
        quoted(&file.path)
    ))
}

/// A file that belongs to the inputs has an ending that is not known.
pub fn unknown_format(file: &Found) -> Failure {
    Failure::Error(format!(
        "{} may have lines that no run has read, but by its ending it is compressed in a format \
         that is not read; decompress it, or leave it out: --leave-out {}",
        file.path.display(),
        quoted(&file.path)
    ))
}

/// Sorts files by age, the oldest first: by the numbers of one log's rotation, if all have one, or
/// by when they were written. The oldest has the largest number, unless the times say throughout
/// that it has the smallest one: there are rotations of that kind. Of one time, the parts come
/// before the log.
pub fn sort(files: &mut [&Found]) {
    let numbers = |live: &Found| -> Option<Vec<(Id, u64)>> {
        let number = |file: &&Found| match rotation_names::number(&file.name, &live.name) {
            None if file.id != live.id => None,
            // The log itself is newer than its first part, whose number may be 0.
            number => Some((file.id, number.map_or(0, |number| number + 1))),
        };
        files.iter().map(number).collect()
    };
    match files.iter().find_map(|live| numbers(live)) {
        Some(numbers) => {
            let number = |file: &Found| {
                let found = numbers.iter().find(|(id, _)| *id == file.id);
                found.map_or(0, |(_, number)| *number)
            };
            files.sort_by_key(|file| Reverse(number(file)));
            if files.is_sorted_by_key(|file| file.written) {
                return;
            }
            let mut ascending = files.to_vec();
            // The log itself has no number.
            ascending.sort_by_key(|file| number(file).wrapping_sub(1));
            if ascending.is_sorted_by_key(|file| file.written) {
                files.copy_from_slice(&ascending);
            }
        }
        None => {
            // The copy of a log and its truncation may have one time.
            let names: Vec<Vec<u8>> = files.iter().map(|file| file.name.clone()).collect();
            let is_log =
                |name: &[u8]| !names.iter().any(|live| rotation_names::is_only_rotated(name, live));
            files.sort_by(|one, other| {
                let [one, other] =
                    [one, other].map(|file| (file.written, is_log(&file.name), &file.name));
                one.cmp(&other)
            });
        }
    }
}

/// A file may have been read by a run whose record was removed.
pub fn forgotten(file: &Found) -> Failure {
    let path = file.path.display();
    Failure::Error(format!(
        "{path} may be an input that was read long ago, of which there is no record any more; \
         do not give it if so, or run touch {} if it was never read",
        quoted(&file.path)
    ))
}

/// There are no positions left.
pub fn too_many(most: usize) -> Failure {
    Failure::Error(format!(
        "expected at most {most} inputs of one state that are still there, found more; remove or \
         move away those that were read, or divide the inputs over several states and outputs"
    ))
}

/// An unfinished last line was taken as a line and has been continued.
pub fn continued(path: &Path, offset: u64) -> Failure {
    Failure::Error(format!(
        "{} continues its last line behind byte {offset}, where it had no end and was taken as a \
         line; give --complete to take what follows as a line of its own",
        path.display()
    ))
}

/// A file belongs to another table than the output.
pub fn other_table(path: &Path, header: &[u8]) -> Failure {
    Failure::Error(format!(
        "{}: {}; what was read before is recorded: continue in another table by --output NEW \
         --adopt-output (or give --omit-header if the output has no header)",
        path.display(),
        misfit("the header of the table in the output", header)
    ))
}

/// A file belongs to another table than the first one of a run whose output has no header.
pub fn other_header(path: &Path, header: &[u8]) -> Failure {
    Failure::Error(format!(
        "{}: {}; what was read before is recorded: give the files of each header in a run of \
         their own",
        path.display(),
        misfit("the header of the first file", header)
    ))
}

/// A file was truncated or replaced while it was read.
pub fn overtaken(path: &Path, offset: u64) -> Failure {
    Failure::Error(format!(
        "{} was changed in front of byte {offset} while it was read; what was read before that is \
         recorded: run again",
        path.display()
    ))
}

/// Returns the options that leave these files out.
fn leave_out(files: &[&Found]) -> String {
    let options = files.iter().map(|file| format!("--leave-out {}", quoted(&file.path)));
    options.collect::<Vec<_>>().join(" ")
}

/// Returns the files as words of a shell.
fn list(files: &[&Found]) -> String {
    files.iter().map(|file| quoted(&file.path)).collect::<Vec<_>>().join(" ")
}

/// Returns a path as one word of a shell, which is no option. All of it can be shown: what a
/// terminal would hide, and what is not text, is quoted as bytes, which `bash` and others read.
fn quoted(path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes();
    let front = if bytes.starts_with(b"-") { "./" } else { "" };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+=:,@%~".contains(&byte);
    match std::str::from_utf8(bytes) {
        Ok(text) if text.bytes().all(is_plain) && !text.starts_with('~') => {
            format!("{front}{text}")
        }
        Ok(text) if visible(text) == text => format!("'{front}{}'", text.replace('\'', "'\\''")),
        _ => {
            let quoted = |byte: &u8| match byte {
                b'\'' | b'\\' => format!("\\{}", char::from(*byte)),
                b' '..=b'~' => char::from(*byte).to_string(),
                byte => format!("\\{byte:03o}"),
            };
            format!("$'{front}{}'", bytes.iter().map(quoted).collect::<String>())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn a_path_is_one_word_of_a_shell() {
        let words = [
            ("/a/h.log.1", "/a/h.log.1"),
            ("/a b/c", "'/a b/c'"),
            ("~x", "'~x'"),
            ("it's", r"'it'\''s'"),
            ("$(x)", "'$(x)'"),
            ("-x", "./-x"),
            ("-x y", "'./-x y'"),
            ("ö", "'ö'"),
            ("a\nb'\\", r"$'a\012b\'\\'"),
            ("-\u{202e}", r"$'./-\342\200\256'"),
        ];
        for (path, word) in words {
            assert_eq!(quoted(Path::new(path)), word);
            assert_eq!(visible(word), word);
        }
        assert_eq!(quoted(Path::new(OsStr::from_bytes(b"h\xff1"))), r"$'h\3771'");
    }
}
