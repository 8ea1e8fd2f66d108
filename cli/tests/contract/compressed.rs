//! Compressed input, recognised by its first bytes, with the guarantees of plain input.

use crate::support::{Place, Talk, command, input, ok, project_file, refused, run, signal, stream};
use flate2::Compression;
use flate2::write::GzEncoder;
use lzma_rust2::{XzOptions, XzWriter};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::thread::sleep;
use std::time::{Duration, Instant};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

fn zstandard(bytes: &[u8]) -> Vec<u8> {
    compress_to_vec(bytes, CompressionLevel::Fastest)
}

fn xz(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = XzWriter::new(Vec::new(), XzOptions::with_preset(1)).expect("memory");
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

type Compress = fn(&[u8]) -> Vec<u8>;

const FORMATS: [(&str, Compress); 3] = [("gz", gzip), ("zst", zstandard), ("xz", xz)];

const DEDUP: [&str; 7] = ["dedup", "--last", "1000", "--hash-seed", "7", "--field", "1"];

#[test]
fn a_compressed_log_gives_the_lines_of_the_plain_one() {
    let log = std::fs::read(project_file("examples/requests.log")).expect("the log");
    let plain = ok(&DEDUP, &log).stdout;
    let place = Place::new();
    for (name, compress) in FORMATS {
        let file = place.file(name, &compress(&log));
        assert!(ok(&[&DEDUP[..], &[&file]].concat(), b"").stdout == plain, "a file of {name}");
        assert!(ok(&DEDUP, &compress(&log)).stdout == plain, "{name} on standard input");
    }
}

#[test]
fn several_compressed_members_and_files_are_one_stream() {
    let log = std::fs::read_to_string(project_file("examples/requests.log")).expect("the log");
    let plain = ok(&DEDUP, log.as_bytes()).stdout;
    let lines: Vec<_> = log.split_inclusive('\n').collect();
    let parts: Vec<String> = lines.chunks(5_000).map(<[_]>::concat).collect();
    let place = Place::new();
    for (name, compress) in FORMATS {
        let members: Vec<u8> = parts.iter().flat_map(|part| compress(part.as_bytes())).collect();
        let file = place.file(name, &members);
        assert!(ok(&[&DEDUP[..], &[&file]].concat(), b"").stdout == plain, "members of {name}");
    }
    let files: Vec<_> = parts
        .iter()
        .zip(FORMATS)
        .map(|(part, (name, compress))| {
            place.file(&format!("p.{name}"), &compress(part.as_bytes()))
        })
        .collect();
    let arguments = [&DEDUP[..], &[&files[0], &files[1], &files[2]]].concat();
    assert!(ok(&arguments, b"").stdout == plain, "files of different formats");
}

#[test]
fn a_cut_off_or_damaged_file_is_an_error_after_its_whole_lines() {
    let keys: Vec<_> = (0..40_000).map(|key| format!("key number {key}")).collect();
    let place = Place::new();
    for (name, compress) in FORMATS {
        let whole = compress(&input(&keys));
        let cut = place.file("cut", &whole[..whole.len() * 2 / 3]);
        let outcome = run(&["dedup", "--last", "100000", &cut], b"");
        assert_eq!(outcome.code, Some(2), "{name}");
        assert!(outcome.stderr.contains(&format!("cannot read {cut}: ")), "{}", outcome.stderr);
        let mut damaged = whole.clone();
        let middle = damaged.len() / 2;
        damaged[middle..middle + 8].fill(0x55);
        let damaged = place.file("damaged", &damaged);
        let outcome = run(&["dedup", "--last", "100000", &damaged], b"");
        assert_eq!(outcome.code, Some(2), "{name}: damage went unnoticed");
        for line in outcome.lines() {
            assert!(line.starts_with(b"key number ") || name != "xz", "{name}");
        }
    }
}

#[test]
fn bytes_that_look_compressed_can_be_read_as_they_are() {
    let place = Place::new();
    let dir = place.at("filter");
    ok(&["create", &dir, "--last", "100"], b"");
    let keys = b"\x1f\x8b\x01\0\x28\xb5\x2f\xfd\0";
    refused(&["insert", &dir, "-0"], keys);
    ok(&["insert", &dir, "-0", "--no-decompress"], keys);
    let asked = ok(&["contains", &dir, "-0"], b"x\0\x1f\x8b\x01\0\x28\xb5\x2f\xfd\0");
    assert_eq!(asked.text(), "0\n1\n1\n");
}

#[test]
fn a_typed_line_is_answered_although_it_may_begin_like_a_format() {
    let place = Place::new();
    let dir = place.at("filter");
    ok(&["create", &dir, "--last", "100"], b"");
    let mut talk = Talk::new(&["check", &dir]);
    assert_eq!(talk.ask("(first"), "0");
    assert_eq!(talk.ask("(first"), "1");
    talk.end();
}

#[test]
fn a_stop_within_compressed_input_loses_no_line() {
    let keys = stream(60_000, 50_000);
    let place = Place::new();
    for (name, compress) in FORMATS {
        let state = place.at(&format!("state-{name}"));
        // The content of a frame of Zstandard may arrive all at its end.
        let packed: Vec<u8> = keys.chunks(5_000).flat_map(|keys| compress(&input(keys))).collect();
        let arguments = ["dedup", "--last", "200000", "--hash-seed", "7", "--state", &state];
        let once = ok(&arguments[..5], &input(&keys));
        let mut child = command(&arguments).spawn().expect("start");
        let mut stdin = child.stdin.take().expect("stdin");
        let half = packed.len() / 2;
        stdin.write_all(&packed[..half]).expect("write");
        // The rest never comes: the run answers what it has got, and waits.
        let began = Instant::now();
        while inserts(&state) == 0 && began.elapsed().as_secs() < 60 {
            sleep(Duration::from_millis(5));
        }
        signal(&child, "TERM");
        let output = child.wait_with_output().expect("wait");
        drop(stdin);
        assert_eq!(output.status.signal(), Some(15), "{name}");
        let done = inserts(&state) as usize;
        assert!(done > 0, "{name}: nothing was read");
        let rest = ok(&["dedup", "--state", &state], &input(&keys[done..]));
        let both = [output.stdout, rest.stdout].concat();
        assert!(both == once.stdout, "{name}: stopped after {done} lines");
    }
}

/// Ends a run that has its own limit of time; `None` if it takes longer.
fn end_of(mut child: Child) -> Option<ExitStatus> {
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(60) {
        if let Some(status) = child.try_wait().expect("a status") {
            return Some(status);
        }
        sleep(Duration::from_millis(5));
    }
    child.kill().expect("it lives");
    None
}

#[test]
fn a_stop_or_a_closed_output_ends_the_search_for_a_further_member() {
    let place = Place::new();
    let file = place.file("hole.gz", &gzip(b"a\nb\n"));
    // Zero bytes for some minutes: a terabyte that takes no space.
    File::options().write(true).open(&file).and_then(|file| file.set_len(1 << 40)).expect("a hole");
    let state = place.at("state");
    let child = command(&["dedup", "--last", "10", "--state", &state, &file]).spawn();
    let child = child.expect("start");
    let began = Instant::now();
    while inserts(&state) < 2 && began.elapsed().as_secs() < 60 {
        sleep(Duration::from_millis(5));
    }
    signal(&child, "TERM");
    assert_eq!(end_of(child).expect("it hangs").signal(), Some(15));
    assert_eq!(inserts(&state), 2);
    let mut child = command(&["dedup", "--last", "10", &file]).spawn().expect("start");
    let mut first = [0; 2];
    child.stdout.take().expect("a pipe").read_exact(&mut first).expect("a line");
    assert_eq!((end_of(child).expect("it hangs").code(), &first), (Some(0), b"a\n"));
}

fn inserts(dir: &str) -> u64 {
    let stat = run(&["stat", dir, "--json"], b"");
    if stat.code != Some(0) {
        return 0;
    }
    stat.json()[0]["inserts"].as_u64().expect("a number")
}

#[test]
fn zero_bytes_behind_gzip_data_are_padding() {
    let place = Place::new();
    let members = [gzip(b"a\nb\n"), gzip(b"a\nc\n")].concat();
    for zeros in [1, 512, 100_000] {
        let file = place.file("padded", &[members.clone(), vec![0; zeros]].concat());
        let mut gzip = Command::new("gzip");
        let unpacked = gzip.arg("-dc").stdin(File::open(&file).expect("the file")).output();
        let unpacked = unpacked.expect("gzip runs");
        assert!(unpacked.status.success() && unpacked.stdout == b"a\nb\na\nc\n", "{unpacked:?}");
        assert_eq!(
            ok(&["dedup", "--last", "10", "--hash-seed", "7", &file], b"").text(),
            "a\nb\nc\n"
        );
    }
    let other = place.file("other", &[&members[..], b"\0\0more"].concat());
    let sentence = refused(&["dedup", "--last", "10", &other], b"");
    assert!(sentence.contains(&format!("cannot read {other}: ")), "{sentence}");
}

#[test]
fn formats_that_are_not_read_are_refused_with_the_program_for_them() {
    let place = Place::new();
    let formats: [(&[u8], &str, &str); 7] = [
        (b"\x1f\x9d\x90a\x14", "compress", "gunzip"),
        (b"\x5d\0\0\x80\0\xff\xff", "lzma", "unlzma"),
        (b"PK\x03\x04\x0a\0\0\0", "zip", "unzip"),
        (b"7z\xbc\xaf\x27\x1c\0\x04", "7z", "7z"),
        (b"BZh91AY&SY\0", "bzip2", "bunzip2"),
        (b"\x04\x22\x4d\x18\x64", "lz4", "unlz4"),
        (b"LZIP\x01\x0c", "lzip", "lunzip"),
    ];
    for (bytes, name, program) in formats {
        let file = place.file("packed", bytes);
        let sentence = refused(&["dedup", "--last", "10", &file], b"");
        assert!(sentence.contains(&format!("compressed by {name}, ")), "{sentence}");
        assert!(sentence.contains(&format!("by {program}, or")), "{sentence}");
        let plain = run(&["dedup", "--last", "10", "--no-decompress", &file], b"");
        assert_eq!((plain.code, &plain.stdout[..bytes.len()]), (Some(0), bytes), "{name}");
    }
}
