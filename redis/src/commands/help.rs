//! `EB.HELP`: each command with its syntax.

use crate::arguments::wrong;
use crate::ffi::{About, Access, Call, Command, Outcome};

/// Every command, and what it does. A test compares them with those that are registered.
const LINES: &[&str] = &[
    "EB.RESERVE key kind [name value ...] [HASH fast|keyed] [SEED n] [STRIPES n] [BLOCK size] \
     [SAME] -- creates a filter, as in EB.RESERVE seen fingerprint window 10m fpr 0.001",
    "EB.ALTER key kind [name value ...] -- gives a filter in use another window, rate or kind",
    "EB.ADD key item -- adds an item: 1 it was new, 0 it was present and its time is renewed",
    "EB.MADD key item [item ...] -- adds items: 1 or 0 for each",
    "EB.ADDNX key item -- adds an item that is not present: 1 accepted, 0 present and unchanged",
    "EB.MADDNX key item [item ...] -- the same for items: 1 or 0 for each",
    "EB.INSERT key [NX] [AT ms] [TIMES n | IMPORTANCE x] ITEMS item [item ...] -- adds items with \
     a time or a weight: 1, 0, or -1 (before the window) for each",
    "EB.INSERT key [NX] [TIMES n | IMPORTANCE x] TIMED ms item [ms item ...] -- the same, each \
     with its time",
    "EB.CLAIM key item lease-ms -- claims an item for work: YOURS and a token, INPROGRESS and the \
     milliseconds left, or SEEN and 0",
    "EB.CONFIRM key item token -- adds a claimed item whose work is done",
    "EB.RELEASE key item token -- ends a claim: 1, or 0 if it was not held",
    "EB.EXTEND key item token lease-ms -- renews a lease",
    "EB.EXISTS key item -- 1 if an item is in the window, otherwise 0",
    "EB.MEXISTS key item [item ...] -- 1 or 0 for each item",
    "EB.WITHIN key reach item [item ...] -- 1 if an item was seen within a number of inserts or a \
     duration, otherwise 0",
    "EB.AGE key item [item ...] -- how long ago each item was seen, at least: inserts or \
     milliseconds; or nil",
    "EB.COUNT key item [item ...] -- how often each item was added, or what is left of that",
    "EB.DEL key item [TIMES n] -- removes an item from a filter that counts: 1, or 0",
    "EB.CARD key [reach] -- how many different items are in the window, or were added within a \
     number of inserts or a duration, as an estimate",
    "EB.INFO key [field] -- kind, parameters, size, fill and rates of a filter, or one of them",
    "EB.SCANDUMP key cursor -- the next cursor and a piece of a filter; 0 begins and ends",
    "EB.LOADCHUNK key n piece -- adds piece n of EB.SCANDUMP, from 0; for administrators",
    "EB.DEBUG DIGEST|POSITION key -- a hash of the state, or the records that were applied",
    "EB.HELP [command] -- these lines, or those of one command",
    "EB.CREATE key identity [records] -- sent to replicas and to the append-only file, not by \
     users",
    "EB.SUCCEED key identity [records] -- sent to replicas and to the append-only file, not by \
     users",
    "EB.APPLY key lsn records [lsn records] -- sent to replicas and to the append-only file, not \
     by users",
];

/// `EB.HELP [command]`.
pub struct Help;

impl Command for Help {
    const ABOUT: About = About {
        name: c"EB.HELP",
        arity: -1,
        flags: c"fast allow-stale",
        categories: c"read fast",
        key: 0,
        access: Access::Read,
        summary: c"Returns each command with its syntax, or one of them.",
        complexity: c"O(1)",
    };

    fn run(call: &Call<'_>) -> Outcome {
        let asked = call.argument(1).to_ascii_uppercase();
        let name = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
        let is_asked = |line: &&&str| {
            let name = name(line);
            asked.is_empty() || name.as_bytes() == asked || name.as_bytes()[3..] == *asked
        };
        let found: Vec<_> = LINES.iter().filter(is_asked).collect();
        if found.is_empty() || call.count() > 2 {
            return Err(wrong("command", "one that EB.HELP lists, as in EB.HELP ADD", &asked));
        }
        call.array(found.len());
        found.iter().for_each(|line| call.bytes(line.as_bytes()));
        Ok(())
    }
}
