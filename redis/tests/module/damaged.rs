//! Bad input: damaged payloads of `RESTORE` whose checksums were put right, and random arguments of
//! all commands. The server must answer, with an error or not, and live.

use crate::rules::NAMES;
use crate::samples::{Commands, SAMPLES};
use crate::server::{Server, is_there};
use ebbtide_core::hash::{DigestHasher, short_checksum};
use ebbtide_testkit::environment::{SEED, number, scaled};
use ebbtide_testkit::random::Random;
use redis::Value;

/// Damaged payloads, if `EBBTIDE_PAYLOADS` sets no number.
const PAYLOADS: u64 = 4_000;

/// Commands with random arguments.
const COMMANDS: u64 = 10_000;

/// What each piece begins with.
const MAGIC: &[u8] = b"EBBTMEM\n";
/// What the head of a filter that is being altered begins with.
const HEAD: &[u8] = b"EBBTALT\n";
const HEADER: usize = 32;

/// Returns the table of CRC-64 as the server computes it (Jones; reflected).
pub fn table() -> Vec<u64> {
    let step = |sum: u64| if sum & 1 == 0 { sum >> 1 } else { sum >> 1 ^ 0x95ac_9329_ac4b_c9b5 };
    (0..256).map(|byte| (0..8).fold(byte, |sum, _| step(sum))).collect()
}

/// Puts the last eight bytes of a payload right.
pub fn seal(payload: &mut [u8], table: &[u64]) {
    let end = payload.len() - 8;
    let sum = payload[..end]
        .iter()
        .fold(0_u64, |sum, byte| table[(sum as u8 ^ byte) as usize] ^ sum >> 8);
    payload[end..].copy_from_slice(&sum.to_le_bytes());
}

/// Returns where the pieces of a payload begin, and how long their contents are.
fn pieces(payload: &[u8]) -> Vec<(usize, usize)> {
    let all = payload.windows(MAGIC.len()).enumerate().filter(|(_, window)| *window == MAGIC);
    let length = |at: usize| {
        let bytes = payload.get(at + 20..at + 24)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?) as usize)
    };
    let found = all.filter_map(|(at, _)| Some((at, length(at)?)));
    found.filter(|(at, length)| at + HEADER + length <= payload.len() - 10).collect()
}

/// Changes a payload, and puts right most of its checksums: those of the pieces, of the identity,
/// and the seal of all pieces.
fn damage(payload: &mut Vec<u8>, random: &mut Random) {
    damage_head(payload, random);
    let places = pieces(payload);
    let below = |random: &mut Random, limit: usize| random.below(limit.max(1) as u64) as usize;
    for _ in 0..1 + random.below(4) {
        let (at, length) = places[below(random, places.len())];
        let offset = match random.below(4) {
            // The header and the counts of the first piece, or the place of a chunk.
            0 => below(random, HEADER + 48),
            // State words.
            1 => below(random, HEADER + length.min(900)),
            // The end: sums, identity.
            2 => HEADER + length.saturating_sub(1 + below(random, 500)),
            _ => below(random, HEADER + length),
        };
        let place = (at + offset).min(payload.len() - 11);
        match random.below(4) {
            0 => payload[place] ^= 1 << random.below(8),
            1 => payload[place] = random.below(256) as u8,
            2 => payload[place] = b'0' + random.below(10) as u8,
            _ => {
                let value = random.below(u64::MAX) >> random.below(64);
                let end = (place + 8).min(payload.len() - 10);
                payload[place..end].copy_from_slice(&value.to_le_bytes()[..end - place]);
            }
        }
    }
    if random.below(20) == 0 {
        let end = payload.len() - 10;
        let from = below(random, end);
        payload.drain(from..from + below(random, end - from));
    }
    let places = pieces(payload);
    let mut seal = DigestHasher::default();
    for &(at, length) in &places {
        let piece = &mut payload[at..at + HEADER + length];
        // The first and the last piece of a filter.
        match piece[12] {
            1 => seal = DigestHasher::default(),
            3 if length == 16 && random.below(10) > 0 => {
                piece[HEADER..].copy_from_slice(&seal.finish().to_le_bytes());
            }
            _ => {}
        }
        if random.below(20) > 0 {
            correct(piece);
        }
        let sum = piece[24..HEADER].try_into().expect("eight bytes");
        seal.words(&[u64::from_le_bytes(sum)]);
    }
}

/// Changes the head of a filter that is being altered now and then, and puts its checksum right.
fn damage_head(payload: &mut [u8], random: &mut Random) {
    let head = payload.windows(HEAD.len()).position(|window| window == HEAD);
    let Some(at) = head.filter(|_| random.below(4) == 0) else { return };
    let place = at + 8 + random.below(16) as usize;
    payload[place] ^= 1 << random.below(8);
    let sum = short_checksum(&payload[at..at + 24], 0);
    payload[at + 24..at + 32].copy_from_slice(&sum.to_le_bytes());
}

/// Puts right the checksum of a piece, and that of the identity in it.
pub fn correct(piece: &mut [u8]) {
    const TITLE: &[u8] = b"ebbtide identity ";
    const LAST: usize = b"checksum ".len() + 17;
    let title = piece.windows(TITLE.len()).position(|window| window == TITLE);
    if let Some(title) = title.filter(|title| title + LAST < piece.len()) {
        let end = piece.len() - LAST;
        let sum = format!("checksum {:016x}\n", short_checksum(&piece[title..end], 0));
        piece[end..].copy_from_slice(sum.as_bytes());
    }
    let sum = short_checksum(&piece[HEADER..], short_checksum(&piece[..24], 0));
    piece[24..HEADER].copy_from_slice(&sum.to_le_bytes());
}

/// Returns the payload of each sample's filter with some content.
fn payloads(server: &Server) -> Vec<Vec<u8>> {
    let connection = &mut server.connect();
    let mut all = Vec::new();
    for (at, sample) in SAMPLES.iter().enumerate() {
        let mut source = Commands::new(sample, format!("key:{at}"), true, 5);
        let _: String = source.reserve().query(connection).expect(sample.name);
        for _ in 0..100 {
            let _: Value = source.next().query(connection).expect(sample.name);
        }
        for item in 0..3 {
            let words = format!("EB.CLAIM {} claimed-{item} 9000", source.key);
            let _: Value = crate::server::ask(connection, &words);
        }
        let mut dump = redis::cmd("DUMP");
        all.push(dump.arg(&source.key).query(connection).expect("a payload"));
        // The same in the middle of an alteration.
        let after = ["fingerprint last 900", "time-limited window 10s"][at % 2];
        let altered = crate::server::command(&format!("EB.ALTER {} {after}", source.key));
        let () = altered.query(connection).expect(sample.name);
        for item in 0..50 {
            let words = format!("EB.ADD {} later-{item}", source.key);
            let _: Value = crate::server::ask(connection, &words);
        }
        all.push(dump.query(connection).expect("a payload"));
    }
    all
}

#[test]
fn damaged_payloads_with_right_checksums_are_refused_or_used_and_the_server_lives() {
    if !is_there() {
        return;
    }
    // Uncompressed, so that bytes of pieces can be changed in place.
    let server = Server::start("--rdbcompression no --maxmemory 1gb");
    let (all, table) = (payloads(&server), table());
    let connection = &mut server.connect();
    let count = number("EBBTIDE_PAYLOADS").unwrap_or(PAYLOADS);
    let mut random = Random::new(number("EBBTIDE_SEED").unwrap_or(SEED));
    let (mut done, mut accepted) = (0, 0);
    let before: u64 = server.info("memory", "used_memory").parse().expect("bytes");
    while done < count {
        let mut pipe = redis::pipe();
        for _ in 0..50 {
            let mut payload = all[random.below(all.len() as u64) as usize].clone();
            damage(&mut payload, &mut random);
            seal(&mut payload, &table);
            pipe.cmd("RESTORE").arg("r").arg(0).arg(payload).arg("REPLACE");
            for words in [
                "EB.ADD r a",
                "EB.EXISTS r b",
                "EB.INFO r",
                "EB.INSERT r AT 5 ITEMS x",
                "EB.CLAIM r claimed-0 9000",
                "EB.CLAIM r c 9000",
            ] {
                pipe.add_command(crate::server::command(words));
            }
        }
        pipe.ignore_errors();
        let replies: Vec<Value> = pipe
            .query(connection)
            .unwrap_or_else(|error| panic!("after {done} payloads: {error}: {}", server.log()));
        accepted += replies.chunks(7).filter(|replies| replies[0] == Value::Okay).count();
        done += 50;
        if done % 1000 == 0 {
            let () = server.ask("DEL r");
            let after: u64 = server.info("memory", "used_memory").parse().expect("bytes");
            assert!(after < before + (32 << 20), "{before}, {after} bytes");
        }
    }
    println!("{done} payloads, of which {accepted} were accepted");
    assert!(accepted > 0 && accepted < done as usize, "{accepted} of {done}");
    let peak: u64 = server.info("memory", "used_memory_peak").parse().expect("bytes");
    assert!(peak < before + (256 << 20), "{before}, at most {peak} bytes");
}

/// Words of all commands, and values at the edges.
const WORDS: [&str; 48] = [
    "seen",
    "counts",
    "recent",
    "text",
    "none",
    "",
    "0",
    "1",
    "-1",
    "2",
    "77",
    "1e6",
    "10m",
    "500ms",
    "1.5",
    "nan",
    "inf",
    "18446744073709551615",
    "9223372036854775807",
    "-9223372036854775808",
    "99999999999999999999",
    "NX",
    "AT",
    "TIMES",
    "IMPORTANCE",
    "ITEMS",
    "TIMED",
    "SAME",
    "HASH",
    "fast",
    "SEED",
    "0x5eed",
    "STRIPES",
    "BLOCK",
    "64KiB",
    "bloom",
    "counting",
    "time-limited",
    "age-partitioned",
    "capacity",
    "window",
    "fpr",
    "last",
    "DIGEST",
    "POSITION",
    "kind",
    "\u{0}\u{1}",
    "1700000000000",
];

#[test]
fn random_arguments_get_an_answer_and_replicas_follow() {
    if !is_there() {
        return;
    }
    let server = Server::start("--maxmemory 512mb");
    let replica = Server::replica(&server, "");
    let connection = &mut server.connect();
    for words in [
        "EB.RESERVE seen age-partitioned last 1000",
        "EB.RESERVE counts counting capacity 1000",
        "EB.RESERVE recent time-limited window 10m",
        "SET text x",
    ] {
        let () = server.ask(words);
    }
    let mut random = Random::new(number("EBBTIDE_SEED").unwrap_or(SEED) + 1);
    for _ in 0..scaled(COMMANDS) / 50 {
        let mut pipe = redis::pipe();
        for _ in 0..50 {
            pipe.cmd(NAMES[random.below(NAMES.len() as u64) as usize]);
            for _ in 0..random.below(8) {
                pipe.arg(WORDS[random.below(WORDS.len() as u64) as usize]);
            }
        }
        pipe.ignore_errors();
        let replies: Result<Vec<Value>, _> = pipe.query(connection);
        replies.unwrap_or_else(|error| panic!("{error}: {}", server.log()));
    }
    server.settle(&[&replica]);
    let digest: String = server.ask("DEBUG DIGEST");
    assert_eq!(replica.ask::<String>("DEBUG DIGEST"), digest);
    assert_eq!(replica.info("stats", "unexpected_error_replies"), "0");
}
