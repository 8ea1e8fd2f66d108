//! The part of a line that is its key: fields, members of JSON objects, columns of CSV.

use crate::support::{Place, ok, refused, run};

const LAST: [&str; 4] = ["--last", "1000", "--hash-seed", "7"];

/// A table as spreadsheets write it: quotes, separators and newlines in fields, and CRLF.
const TABLE: &str = "id,note,\"user, name\"\r\n\
                     1,\"first\nline, and \"\"more\"\"\",ann\r\n\
                     2,plain,\"b, ob\"\r\n\
                     \r\n\
                     3,\"again\n\n\",ann\r\n\
                     4,5\" pipe,\"b, ob\"\r\n\
                     5,last,\"c\nd\"";

fn dedup(more: &[&str], input: &[u8]) -> String {
    let arguments = [&["dedup"], &LAST[..], more].concat();
    ok(&arguments, input).text().to_owned()
}

#[test]
fn a_delimiter_keeps_empty_fields_where_blanks_do_not() {
    let lines = b"a\t\tx\nb\t\ty\nc\t\tx\n";
    assert_eq!(dedup(&["--field", "3", "--delimiter", r"\t"], lines), "a\t\tx\nb\t\ty\n");
    assert_eq!(dedup(&["--field", "2", "--delimiter", r"\t"], lines), "a\t\tx\n");
    assert_eq!(dedup(&["--field", "2"], lines), "a\t\tx\nb\t\ty\n");
    let lines = "1→x→2\n2→y→2\n3→x→2\n";
    let printed = dedup(&["--field", "2", "--delimiter", "→"], lines.as_bytes());
    assert_eq!(printed, "1→x→2\n2→y→2\n");
}

#[test]
fn every_command_over_keys_takes_the_part_of_the_line() {
    let place = Place::new();
    let dir = place.at("counts");
    ok(&["create", &dir, "--kind", "counting", "--capacity", "100"], b"");
    ok(&["insert", &dir, "--json-field", "user.id"], b"{\"user\":{\"id\":\"u\\u0031\"}}\n");
    ok(&["insert", &dir, "--field", "2", "--delimiter", ";"], b"x;u1;y\n");
    ok(&["insert", &dir, "--csv-field", "user"], b"n,user\n1,\"u1\"\n");
    assert_eq!(ok(&["estimate", &dir], b"u1\n").text(), "3\n");
    let line = b"{\"user\": {\"id\": \"u1\"}}\n";
    for (command, answer) in [("contains", "1\n"), ("check", "1\n"), ("remove", "1\n")] {
        let answers = ok(&[command, &dir, "--json-field", "user.id"], line);
        assert_eq!(answers.text(), answer, "{command}");
    }
    let answers = ok(&["contains", &dir, "--csv-field", "user"], b"user,n\nu1,1\nu2,1\n");
    assert_eq!(answers.text(), "1\n0\n", "the header has no answer");
}

#[test]
fn members_of_json_lines_are_keys_and_numbers_keep_all_their_digits() {
    let lines = "{\"id\": 12345678901234567890123, \"t\": 1}\n\
                 {\"t\": 2, \"id\": 12345678901234567890124}\n\
                 {\"id\": 12345678901234567890123, \"t\": 3}\n";
    let printed = dedup(&["--json-field", "id"], lines.as_bytes());
    assert_eq!(printed.lines().count(), 2, "{printed}");
    let named = "{\"a.b\": {\"c/d\": \"k\"}}\n{\"a.b\": {\"c/d\": \"k\"}, \"x\": 1}\n";
    assert_eq!(dedup(&["--json-field", "/a.b/c~1d"], named.as_bytes()).lines().count(), 1);
}

#[test]
fn lines_without_the_member_are_bad_lines_and_can_be_skipped() {
    let lines = b"{\"id\": 1}\nnot json\n{\"id\": null}\n{\"id\": 2}\n{\"other\": 1}\n";
    let sentence = refused(&[&["dedup"], &LAST[..], &["--json-field", "id"]].concat(), lines);
    assert!(sentence.contains("standard input, line 2: expected a JSON object with"), "{sentence}");
    let skipping = ["--json-field", "id", "--skip-bad", "--stats"];
    let outcome = run(&[&["dedup"], &LAST[..], &skipping].concat(), lines);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert_eq!(outcome.text(), "{\"id\": 1}\n{\"id\": 2}\n");
    assert!(outcome.stderr.contains("bad lines skipped: 3, the first is"), "{}", outcome.stderr);
    let stats = "lines read: 5, printed: 2, suppressed: 0, late: 0, bad: 3\n";
    assert!(outcome.stderr.ends_with(stats), "{}", outcome.stderr);
}

#[test]
fn a_table_is_deduplicated_by_a_column_and_stays_a_table() {
    let expected = "id,note,\"user, name\"\r\n\
                    1,\"first\nline, and \"\"more\"\"\",ann\r\n\
                    2,plain,\"b, ob\"\r\n\
                    5,last,\"c\nd\"\n";
    for batch in ["1", "2", "1024"] {
        let printed = dedup(&["--csv-field", "user, name", "--batch", batch], TABLE.as_bytes());
        assert_eq!(printed, expected, "batches of {batch}");
    }
    let omitting = dedup(&["--csv-field", "user, name", "--omit-header"], TABLE.as_bytes());
    assert_eq!(omitting, expected.split_once('\n').expect("a header").1);
    let inverted = dedup(&["--csv-field", "user, name", "--invert"], TABLE.as_bytes());
    let suppressed = "id,note,\"user, name\"\r\n3,\"again\n\n\",ann\r\n4,5\" pipe,\"b, ob\"\r\n";
    assert_eq!(inverted, suppressed);
}

#[test]
fn records_that_arrive_in_pieces_are_whole() {
    let place = Place::new();
    let dir = place.at("filter");
    ok(&["create", &dir, "--last", "100"], b"");
    let mut talk =
        crate::support::Talk::new(&["check", &dir, "--csv-field", "user", "--with-keys"]);
    talk.say("id,user\n1,\"a\"\n2,\"b");
    assert_eq!(talk.hear(), "0\ta\n");
    talk.say("\"\"");
    talk.say("\n\"\n3,c\n4,\"");
    assert_eq!([talk.hear(), talk.hear(), talk.hear()], ["0\tb\"\n", "\n", "0\tc\n"]);
    talk.say("a\"");
    assert_eq!(talk.finish(), ["1\ta\n"]);
}

#[test]
fn files_of_one_table_give_one_table() {
    let place = Place::new();
    let first = place.file("first.csv", b"id,user\n1,a\n2,b\n");
    let second = place.file("second.csv", b"id,user\n3,a\n4,c\n");
    let other = place.file("other.csv", b"user;id\nc;1\n");
    let printed = dedup(&["--csv-field", "user", &first, &second], b"");
    assert_eq!(printed, "id,user\n1,a\n2,b\n4,c\n");
    let arguments = [&["dedup"], &LAST[..], &["--csv-field", "user", &first, &other]].concat();
    let sentence = refused(&arguments, b"");
    assert!(sentence.contains("other.csv, line 1: expected a column \"user\""), "{sentence}");
    let reordered = place.file("reordered.csv", b"user,id\nd,1\n");
    let arguments = [&["dedup"], &LAST[..], &["--csv-field", "user", &first, &reordered]].concat();
    let sentence = refused(&arguments, b"");
    assert!(sentence.contains("expected the header of the first file"), "{sentence}");
    let semicolons = dedup(&["--csv-field", "user", "--delimiter", ";", &other], b"");
    assert_eq!(semicolons, "user;id\nc;1\n");
    // A command that answers does not care where the column is.
    let dir = place.at("filter");
    ok(&["create", &dir, "--last", "100"], b"");
    ok(&["insert", &dir, "--csv-field", "user", &first, &reordered], b"");
    assert_eq!(ok(&["contains", &dir], b"a\nb\nd\n1\n").text(), "1\n1\n1\n0\n");
}

#[test]
fn a_bad_record_is_named_by_its_first_line() {
    let table = b"id,user\n1,\"a\n\nb\"\n2\n3,c\n";
    let arguments = [&["dedup"], &LAST[..], &["--csv-field", "user"]].concat();
    let sentence = refused(&arguments, table);
    assert!(sentence.contains("standard input, line 5: expected a record with a column"));
    let skipped = run(&[&arguments[..], &["--skip-bad"]].concat(), table);
    assert_eq!(skipped.text(), "id,user\n1,\"a\n\nb\"\n3,c\n");
}

#[test]
fn a_quote_that_is_never_closed_is_an_error_and_not_one_endless_record() {
    let mut table = b"id,user\n1,\"".to_vec();
    table.resize(20 << 20, b'\n');
    let arguments = [&["dedup"], &LAST[..], &["--csv-field", "user"]].concat();
    let sentence = refused(&arguments, &table);
    assert!(sentence.contains("most likely a quote is not closed"), "{sentence}");
}

#[test]
fn a_quote_that_is_open_at_the_end_of_the_input_makes_a_bad_record() {
    let arguments = [&["dedup"], &LAST[..], &["--csv-field", "id"]].concat();
    let rest: String = (0..1000).map(|number| format!("{},y\n", number % 10)).collect();
    for end in ["oops\n", "oops", "", "a\"\"\n"] {
        let table = format!("id,x\n0,z\n1,\"{end}{rest}");
        let outcome = run(&arguments, table.as_bytes());
        assert_eq!((outcome.code, outcome.text()), (Some(2), "id,x\n0,z\n"), "{end}: {outcome:?}");
        let said =
            "standard input, line 3: expected the end of a quote before the end of the input";
        assert!(outcome.stderr.contains(said), "{end}: {outcome:?}");
        let skipping = [&arguments[..], &["--skip-bad", "--stats"]].concat();
        let skipped = run(&skipping, table.as_bytes());
        assert_eq!((skipped.code, skipped.text()), (Some(0), "id,x\n0,z\n"), "{end}");
        assert!(skipped.stderr.contains("lines read: 2, printed: 1"), "{skipped:?}");
        assert!(skipped.stderr.contains("bad: 1"), "{skipped:?}");
    }
    let header = refused(&arguments, b"id,\"x\n1,y\n");
    assert!(header.contains("line 1: expected the end of a quote"), "{header}");
    let place = Place::new();
    let (log, out) = (place.file("t.csv", b"id,x\n0,z\n1,\"oops\n2,y\n"), place.at("out"));
    let state = place.at("state");
    let output = ["--state", &state, "--output", &out, "--complete", &log];
    let sentence = refused(&[&arguments[..], &output].concat(), b"");
    assert!(sentence.contains("t.csv, line 3: expected the end of a quote"), "{sentence}");
}

#[test]
fn options_that_exclude_each_other_are_refused_in_one_sentence() {
    for arguments in [
        &["--json-field", "a", "--csv-field", "b"][..],
        &["--json-field", "a", "--delimiter", ","],
        &["--field", "1", "--json-field", "a"],
        &["--csv-field", "a", "-0"],
        &["--csv-field", "a", "--event-time"],
        &["--csv-field", "a", "--delimiter", "→"],
        &["--delimiter", ","],
        &["--delimiter", "ab", "--field", "1"],
        &["--json-field", "a..b"],
        &["--omit-header"],
    ] {
        refused(&[&["dedup"], &LAST[..], arguments].concat(), b"");
    }
}

#[test]
fn event_times_stand_in_front_of_json_lines() {
    let start = 1_700_000_000_000_u64;
    let lines = format!(
        "{start}\t{{\"id\": \"a\"}}\n{}\t{{\"id\": \"a\"}}\n{}\t{{\"id\": \"a\"}}\n",
        start + 1_000,
        start + 60_000
    );
    let arguments = ["dedup", "--window", "10s", "--event-time", "--json-field", "id"];
    assert_eq!(ok(&arguments, lines.as_bytes()).lines().len(), 2);
}

#[test]
fn a_table_is_deduplicated_over_a_kill_without_loss_or_repeats() {
    let records: Vec<String> =
        (0..3_000).map(|at| format!("{at},\"user\n{}\"\n", at * 7919 % 1_700)).collect();
    let header = "id,user\n";
    let whole = header.to_owned() + &records.concat();
    let place = Place::new();
    let state = place.at("state");
    let keeping = ["dedup", "--last", "100000", "--hash-seed", "7", "--csv-field", "user"];
    let once = ok(&keeping, whole.as_bytes()).text().to_owned();
    let arguments = [&keeping[..], &["--state", &state]].concat();
    let first = header.to_owned() + &records[..1_234].concat();
    let mut child = crate::support::Talk::new(&arguments);
    child.say(&first);
    let mut printed = String::new();
    // The records up to the 1,234th are of different users: all are printed, each on two lines.
    for _ in 0..1 + 2 * 1_234 {
        printed += &child.hear();
    }
    child.kill();
    let rest = header.to_owned() + &records[1_234..].concat();
    let second = ok(&[&arguments[..], &["--omit-header"]].concat(), rest.as_bytes());
    printed += second.text();
    assert!(printed == once, "{} and {} bytes", printed.len(), once.len());
}
