//! Tickets: an operation that has been done, and whose durability is awaited later.

use ebbtide::history::Unlogged;
use ebbtide::media::{Media, Memory};
use ebbtide::{
    AgePartitioned, Any, Bloom, Checked, Counting, Durability, Error, Filter, Options, Since, Spec,
    Ticket,
};
use ebbtide_testkit::crash::disk::CrashDisk;
use ebbtide_testkit::failing::Failing;
use futures::executor::block_on;
use futures::future::{join_all, poll_immediate};
use std::io::ErrorKind;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Barrier};
use std::time::Duration;
use tempfile::TempDir;

/// Longer than any sync takes, even on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// No sync but those that tickets ask for.
fn options() -> Options {
    Options::new().hash_seed(7).durability(Durability::Never).background(false)
}

fn on_memory() -> Filter<AgePartitioned> {
    let spec = AgePartitioned::last(100_000);
    Filter::create_on(Arc::new(Memory::new()), spec, options()).expect("a filter")
}

fn issue<K>(filter: &Filter<K>, key: u64) -> Ticket<Checked> {
    let ticket = filter.issue(|call| call.check_and_insert(key.to_le_bytes()));
    ticket.expect("an insert")
}

/// Runs `what` in a thread of its own, and fails if it takes longer than any wait may.
fn in_time<T: Send + 'static>(what: &str, run: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, ended) = channel();
    std::thread::spawn(move || done.send(run()));
    match ended.recv_timeout(LIMIT) {
        Ok(value) => value,
        Err(RecvTimeoutError::Timeout) => panic!("{what} takes longer than {LIMIT:?}"),
        Err(RecvTimeoutError::Disconnected) => panic!("{what} failed"),
    }
}

#[test]
fn an_awaited_operation_is_answered_at_once_and_durable_at_the_end() {
    let filter = on_memory();
    let ticket = issue(&filter, 1);
    assert_eq!(ticket.answer(), &Checked::New);
    assert!(!ticket.is_durable(), "nothing else syncs");
    assert!(filter.contains(1_u64.to_le_bytes()).expect("an answer"));
    let lsn = ticket.lsn();
    assert!(filter.durable_upto().expect("a number") <= lsn);
    let answer = in_time("a ticket", move || block_on(ticket).expect("durable"));
    assert_eq!(answer, Checked::New);
    assert!(filter.durable_upto().expect("a number") > lsn);
    let ticket = issue(&filter, 1);
    assert_eq!(in_time("a ticket", move || ticket.wait().expect("durable")), Checked::Present);
}

#[test]
fn a_thousand_tasks_that_wait_together_share_few_syncs() {
    let filter = Arc::new(on_memory());
    for round in 0..5 {
        let before = filter.stat().expect("figures").lsn;
        let waiting = filter.clone();
        let answers = in_time("a thousand tickets", move || {
            let tickets: Vec<_> =
                (0..1000).map(|key| issue(&waiting, round * 1000 + key)).collect();
            block_on(join_all(tickets))
        });
        assert!(answers.into_iter().all(|answer| matches!(answer, Ok(Checked::New))));
        // A sync notes itself in the log: each record that is no insert is one, or a shift.
        let others = filter.stat().expect("figures").lsn - before - 1000;
        assert!(others < 100, "{others} syncs");
    }
}

/// Returns how many operations 16 tasks, which do one after the other, have in ten syncs.
fn operations_in_ten_syncs() -> usize {
    let media = Arc::new(Failing::new(Memory::new()));
    let spec = AgePartitioned::last(100_000);
    let filter = Filter::create_on(media.clone(), spec, options()).expect("a filter");
    // Long, so that the tasks come back in time also on a busy machine.
    media.slow_syncs(Duration::from_millis(50));
    let end = media.syncs() + 10;
    let done = in_time("tasks", move || {
        let (filter, media) = (&filter, &*media);
        block_on(join_all((0..16_u64).map(|task| async move {
            let before_end = |_: &u64| media.syncs() < end;
            let mut done = 0;
            for key in (task << 16..).take_while(before_end) {
                assert_eq!(issue(filter, key).await.expect("durable"), Checked::New);
                done += 1;
            }
            done
        })))
    });
    done.into_iter().sum()
}

#[test]
fn tasks_that_come_back_after_a_sync_share_the_next_one() {
    // If they are not waited for, half of them share each sync: 80 operations. A wait is in vain if
    // other tests hold the thread that syncs, or the processors: then they are watched once more.
    let few: Vec<_> =
        (0..8).map(|_| operations_in_ten_syncs()).take_while(|&done| done < 120).collect();
    assert!(few.len() < 8, "{few:?} operations in ten syncs");
}

#[test]
fn a_task_that_continues_when_others_have_ended_is_not_kept_waiting_for_them() {
    let media = Arc::new(Failing::new(Memory::new()));
    let spec = AgePartitioned::last(100_000);
    let filter = Filter::create_on(media.clone(), spec, options()).expect("a filter");
    media.slow_syncs(Duration::from_millis(2));
    in_time("tasks", move || {
        let filter = &filter;
        // Each has one operation more than the one before: fewer come back after each sync.
        block_on(join_all((0..12).map(|task| async move {
            for key in 0..=task {
                assert_eq!(issue(filter, task << 8 | key).await.expect("durable"), Checked::New);
            }
        })))
    });
}

#[test]
fn threads_that_issue_and_await_meet_every_moment_of_a_sync() {
    let filter = Arc::new(on_memory());
    in_time("threads", move || {
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let filter = &filter;
                scope.spawn(move || {
                    for number in 0..500 {
                        let ticket = issue(filter, thread << 32 | number);
                        let lsn = ticket.lsn();
                        block_on(ticket).expect("durable");
                        assert!(filter.durable_upto().expect("a number") > lsn);
                    }
                });
            }
        });
    });
}

#[test]
fn one_ticket_covers_every_call_within_it() {
    let media = Arc::new(Memory::new());
    let filter = Filter::create_on(media, Counting::capacity(1000), options()).expect("a filter");
    let ticket = filter.issue(|call| {
        call.insert_all(&["a", "b"])?;
        call.times(3).insert("a")?;
        call.remove("b")?;
        call.insert_and_estimate("c")
    });
    let ticket = ticket.expect("inserts");
    assert_eq!(ticket.answer().count, 1.0);
    assert_eq!(ticket.lsn() + 1, filter.stat().expect("figures").lsn);
    in_time("a ticket", move || block_on(ticket).expect("durable"));
    assert_eq!(filter.stat().expect("figures").inserts, 4);
}

#[test]
fn a_ticket_of_nothing_is_durable() {
    let filter = on_memory();
    let ticket = filter.issue(|_| Ok(17)).expect("nothing");
    assert_eq!(in_time("a ticket", move || block_on(ticket).expect("durable")), 17);
    assert_eq!(filter.issue(|_| Ok(17)).expect("nothing").wait().expect("durable"), 17);
}

#[test]
fn an_error_within_a_ticket_is_returned_at_once_and_keeps_what_came_before() {
    let filter = on_memory().into_any();
    let issued = filter.issue(|call| {
        call.insert("a")?;
        call.weight(5.0).insert("b")
    });
    assert!(matches!(issued, Err(Error::Unsupported { .. } | Error::Parameter { .. })));
    assert!(filter.contains("a").expect("an answer"));
    assert!(!filter.contains("b").expect("an answer"));
}

#[test]
fn a_ticket_that_is_dropped_cancels_nothing() {
    let filter = on_memory();
    drop(issue(&filter, 1));
    let mut polled = issue(&filter, 2);
    assert!(block_on(poll_immediate(&mut polled)).is_none(), "its record is not durable yet");
    drop(polled);
    let last = issue(&filter, 3);
    in_time("a ticket", move || block_on(last).expect("durable"));
    let keys = [1, 2, 3].map(u64::to_le_bytes);
    assert_eq!(filter.contains_all(&keys).expect("answers"), [true; 3]);
}

/// A waker of a task that is not woken.
struct Idle;

impl std::task::Wake for Idle {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn a_ticket_that_is_dropped_while_it_waits_gives_its_waker_back() {
    let disk = CrashDisk::new();
    let filter = Filter::create_on(Arc::new(disk.clone()), Bloom::capacity(1000), options());
    let filter = filter.expect("a filter");
    let task = Arc::new(Idle);
    let waker = std::task::Waker::from(task.clone());
    let mut context = std::task::Context::from_waker(&waker);
    disk.hold_log_syncs(true);
    let mut ticket = issue(&filter, 1);
    let polled = std::future::Future::poll(std::pin::Pin::new(&mut ticket), &mut context);
    let waiting = Arc::strong_count(&task);
    drop(ticket);
    let dropped = Arc::strong_count(&task);
    // Before anything can fail: closing waits for the sync.
    disk.hold_log_syncs(false);
    assert!(polled.is_pending());
    // The task itself, its waker, and the copy in the list.
    assert_eq!((waiting, dropped), (3, 2));
}

#[test]
fn a_ticket_is_answered_after_one_that_was_dropped_while_it_waited() {
    let filter = Arc::new(on_memory());
    in_time("tickets beside dropped ones", move || {
        for round in 0..300 {
            let mut dropped = issue(&filter, round << 8);
            let first = block_on(poll_immediate(&mut dropped));
            // Before and after the drop, with lower and higher LSNs than the dropped ticket's.
            let mut before = issue(&filter, round << 8 | 1);
            let joined = block_on(poll_immediate(&mut before)).is_some();
            let mut higher = issue(&filter, round << 8 | 2);
            let last = block_on(poll_immediate(&mut higher)).is_some();
            if first.is_none() {
                drop(dropped);
            }
            let after = issue(&filter, round << 8 | 3);
            if !last {
                drop(higher);
            }
            if !joined {
                assert_eq!(block_on(before).expect("durable"), Checked::New);
            }
            let lsn = after.lsn();
            assert_eq!(block_on(after).expect("durable"), Checked::New);
            assert!(filter.durable_upto().expect("a number") > lsn);
        }
    });
}

#[test]
fn a_function_is_called_once_with_the_answer() {
    let filter = on_memory();
    let (told, heard) = channel();
    for key in 0..100 {
        let told = told.clone();
        issue(&filter, key).on_durable(move |answer| {
            told.send((key, answer.expect("durable"))).expect("heard");
        });
    }
    drop(told);
    let mut calls: Vec<_> = (0..100).map(|_| heard.recv_timeout(LIMIT).expect("a call")).collect();
    calls.sort_by_key(|call| call.0);
    assert!(calls.into_iter().eq((0..100).map(|key| (key, Checked::New))));
    assert!(heard.recv_timeout(LIMIT).is_err(), "all functions are gone");
    // One that is durable already calls its function at once, on this thread.
    let ticket = issue(&filter, 1000);
    filter.sync().expect("durable");
    let here = std::thread::current().id();
    let (told, heard) = channel();
    ticket.on_durable(move |_| told.send(std::thread::current().id()).expect("heard"));
    assert_eq!(heard.try_recv(), Ok(here));
}

#[test]
fn a_function_may_use_the_filter_and_close_it_and_be_its_last_owner() {
    let home = TempDir::new().expect("a directory");
    let dir = home.path().join("filter");
    for closes in [true, false] {
        let filter = Filter::open_or_create(&dir, AgePartitioned::last(1000), options());
        let filter = Arc::new(filter.expect("a filter"));
        let (told, heard) = channel();
        let ticket = issue(&filter, 1);
        // The function is the last owner only if this thread has dropped the filter before.
        let gone = Arc::new(Barrier::new(2));
        let (within, owner) = (gone.clone(), filter.clone());
        in_time("an operation beside", move || {
            ticket.on_durable(move |_| {
                within.wait();
                owner.insert("a").expect("an insert");
                if closes {
                    owner.close().expect("a clean end");
                }
                drop(owner);
                told.send(()).expect("heard");
            });
            drop(filter);
            gone.wait();
        });
        heard.recv_timeout(LIMIT).expect("the function returns");
    }
    let filter: Filter<Any> = Filter::open(&dir, options()).expect("a closed filter");
    assert!(filter.contains("a").expect("an answer"));
}

#[test]
fn a_function_and_another_thread_may_close_the_filter_at_once() {
    for _ in 0..50 {
        let filter = Arc::new(on_memory());
        let (told, heard) = channel();
        let (owner, key) = (filter.clone(), 2_u64.to_le_bytes());
        issue(&filter, 1).on_durable(move |_| {
            // Waits for a sync, or for the other thread's close.
            let written = owner.call().durability(Durability::Always).insert(key);
            assert!(matches!(written, Ok(true) | Err(Error::Closed { .. })), "{written:?}");
            owner.close().expect("a clean end");
            told.send(()).expect("heard");
        });
        in_time("closing beside", move || filter.close().expect("a clean end"));
        heard.recv_timeout(LIMIT).expect("the function returns");
    }
}

/// A waker that owns a task's ticket, as the wakers of some executors own their tasks.
struct Owner(std::sync::Mutex<Option<Ticket<Checked>>>);

impl std::task::Wake for Owner {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn a_waker_that_is_the_last_owner_of_a_ticket_is_dropped_without_a_lock() {
    let filter = on_memory();
    in_time("the tickets", move || {
        for key in 0..50 {
            let mut ticket = issue(&filter, 2 * key);
            let owner = Arc::new(Owner(std::sync::Mutex::new(None)));
            let waker = std::task::Waker::from(owner.clone());
            let mut owned = issue(&filter, 2 * key + 1);
            // Both may be durable before they are polled: then nothing waits.
            let _ = block_on(poll_immediate(&mut owned));
            *owner.0.lock().expect("no panic") = Some(owned);
            drop(owner);
            let mut context = std::task::Context::from_waker(&waker);
            let _ = std::future::Future::poll(std::pin::Pin::new(&mut ticket), &mut context);
            drop(waker);
            // The list has the last waker, if the ticket waits.
            drop(ticket);
        }
    });
}

#[test]
fn a_function_that_panics_ends_no_other_wait() {
    let filter = on_memory();
    for key in 0..20 {
        issue(&filter, key).on_durable(|_| panic!("this is the test's own panic"));
        let ticket = issue(&filter, 100 + key);
        in_time("a ticket", move || block_on(ticket).expect("durable"));
    }
}

#[test]
fn closing_answers_every_ticket() {
    for round in 0..20 {
        let filter = on_memory();
        let tickets: Vec<_> = (0..50).map(|key| issue(&filter, key)).collect();
        let waiting = std::thread::spawn(move || block_on(join_all(tickets)));
        if round % 2 == 0 {
            std::thread::yield_now();
        }
        let late = issue(&filter, 100);
        filter.close().expect("a clean end");
        let answers = in_time("the tickets", move || waiting.join().expect("no panic"));
        assert!(answers.into_iter().all(|answer| matches!(answer, Ok(Checked::New))));
        assert!(late.is_durable());
        block_on(late).expect("closing made it durable");
    }
}

#[test]
fn another_handles_sync_makes_a_ticket_durable() {
    let media = Arc::new(Memory::new());
    let ours = Filter::create_on(media.clone(), Bloom::capacity(1000), options());
    let ours = ours.expect("a filter");
    let theirs: Filter<Any> = Filter::open_on(media, options()).expect("another handle");
    let ticket = issue(&ours, 1);
    theirs.sync().expect("durable");
    assert!(ticket.is_durable());
    assert_eq!(block_on(ticket).expect("durable"), Checked::New);
}

#[test]
fn a_failed_sync_fails_every_ticket_and_poisons_the_filter() {
    let media = Failing::new(Memory::new());
    let filter = Filter::create_on(Arc::new(media.clone()), Bloom::capacity(1000), options());
    let filter = filter.expect("a filter");
    let tickets: Vec<_> = (0..20).map(|key| issue(&filter, key)).collect();
    media.fail_after(1, ErrorKind::Other);
    for answer in in_time("the tickets", move || block_on(join_all(tickets))) {
        assert!(matches!(answer, Err(Error::Poisoned { .. })), "{answer:?}");
    }
    assert!(matches!(filter.insert("a"), Err(Error::Poisoned { .. })));
}

#[test]
fn a_log_that_cannot_be_opened_fails_a_ticket_but_not_the_filter() {
    let (media, ours, theirs) = two_handles_with_short_segments();
    let keys: Vec<_> = (0..2000).map(u64::to_le_bytes).collect();
    theirs.insert_all(&keys).expect("inserts");
    // This writes no record, so this handle has yet to open the segments of the other one.
    let check = |key: u64| {
        let key = key.to_le_bytes();
        let ticket = ours.issue(|call| call.since(Since::LastAccepted).check_and_insert(key));
        ticket.expect("an answer")
    };
    let (first, second, third) = (check(1), check(1), check(1));
    media.fail_after(1, ErrorKind::OutOfMemory);
    let answer = in_time("a ticket", move || block_on(first));
    assert!(!media.clear_faults(), "something was opened");
    assert_eq!(answer.expect("it is tried again"), Checked::Present);
    theirs.insert_all(&(2000..4000).map(u64::to_le_bytes).collect::<Vec<_>>()).expect("inserts");
    let fourth = check(3999);
    let hidden = newest_segment(media.inner());
    media.inner().rename(&hidden, "hidden").expect("a file");
    let answer = in_time("a ticket", move || block_on(fourth));
    assert!(matches!(answer, Err(Error::Io { .. })), "{answer:?}");
    media.inner().rename("hidden", &hidden).expect("a file");
    let answers = in_time("tickets", move || block_on(join_all([second, third])));
    assert!(answers.into_iter().all(|answer| matches!(answer, Ok(Checked::Present))));
}

/// What one handle writes, the other one has to open segments for.
fn two_handles_with_short_segments() -> (Failing<Memory>, Filter<Bloom>, Filter<Any>) {
    let media = Failing::new(Memory::new());
    let short = options().segment_bytes(4 << 10);
    let ours = Filter::create_on(Arc::new(media.clone()), Bloom::capacity(9000), short.clone());
    let theirs = Filter::open_on(Arc::new(media.clone()), short);
    (media, ours.expect("a filter"), theirs.expect("another handle"))
}

fn newest_segment(media: &Memory) -> String {
    let names = media.list().expect("a directory");
    names.into_iter().filter(|name| name.starts_with("wal-")).max().expect("a segment")
}

#[test]
fn log_that_cannot_be_opened_fails_no_ticket_of_records_before_it() {
    let (media, ours, theirs) = two_handles_with_short_segments();
    let before = [issue(&ours, 1), issue(&ours, 2)];
    let keys: Vec<_> = (100..2000).map(u64::to_le_bytes).collect();
    theirs.insert_all(&keys).expect("inserts");
    let key = 1999_u64.to_le_bytes();
    let seen = ours.issue(|call| call.since(Since::LastAccepted).check_and_insert(key));
    let seen = seen.expect("an answer");
    media.inner().rename(&newest_segment(media.inner()), "hidden").expect("a file");
    let all = before.into_iter().chain([seen]);
    let answers = in_time("tickets", move || block_on(join_all(all)));
    let [Ok(Checked::New), Ok(Checked::New), Err(Error::Io { .. })] = &answers[..] else {
        panic!("{answers:?}");
    };
}

/// Keeps the thread that answers tickets busy until what is returned is dropped.
fn hold_up(filter: &Filter<impl Spec>) -> Sender<()> {
    let ((release, released), (told, heard)) = (channel(), channel());
    issue(filter, u64::MAX).on_durable(move |_| {
        told.send(()).expect("heard");
        let _ = released.recv_timeout(LIMIT);
    });
    heard.recv_timeout(LIMIT).expect("it is called");
    release
}

#[test]
fn a_function_that_is_called_because_the_filter_was_altered_may_use_and_close_it() {
    let media = Arc::new(Memory::new());
    let keeps = options().keep_log("1h".parse().expect("a time"));
    let filter = Filter::create_on(media.clone(), AgePartitioned::last(1000), keeps.clone());
    let filter = Arc::new(filter.expect("a filter"));
    let other = Filter::<AgePartitioned>::open_on(media, keeps).expect("another handle");
    let held = hold_up(&filter);
    let (told, heard) = channel();
    let owner = filter.clone();
    issue(&filter, 1).on_durable(move |answer| {
        assert_eq!(answer.expect("durable"), Checked::New);
        assert!(owner.insert(2_u64.to_le_bytes()).expect("a new key"));
        owner.close().expect("a clean end");
        told.send(()).expect("heard");
    });
    other.alter(AgePartitioned::last(2000), Unlogged::Refuse).expect("its log is kept");
    // This follows the alteration, and closes what the ticket belongs to.
    let inserted = in_time("an insert", move || filter.insert(3_u64.to_le_bytes()));
    heard.recv_timeout(LIMIT).expect("the function returns");
    assert!(matches!(inserted, Err(Error::Closed { .. })), "{inserted:?}");
    assert!(other.contains(2_u64.to_le_bytes()).expect("an answer"));
    drop(held);
}

#[test]
fn a_ticket_is_answered_also_if_a_sync_or_closing_panics() {
    let media = Failing::new(Memory::new());
    let filter = Filter::create_on(Arc::new(media.clone()), Bloom::capacity(1000), options());
    let filter = filter.expect("a filter");
    let ticket = issue(&filter, 1);
    media.panic_in_next_sync();
    in_time("a ticket", move || block_on(ticket).expect("another sync was made"));
    let held = hold_up(&filter);
    let (told, heard) = channel();
    issue(&filter, 2).on_durable(move |answer| told.send(answer.is_ok()).expect("heard"));
    media.panic_in_next_sync();
    let closed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| filter.close()));
    assert!(closed.is_err(), "closing panics");
    assert!(!heard.recv_timeout(LIMIT).expect("an answer"), "it is not durable");
    drop(held);
}

/// An answer that leaves no record rests on the records of others: its ticket is that of the last
/// one of them, in whatever thread or handle that was written.
#[test]
fn the_ticket_of_an_answer_that_changes_nothing_covers_the_insert_that_it_saw() {
    const KEYS: u64 = 4000;
    let home = TempDir::new().expect("a directory");
    let dir = home.path().join("filter");
    let spec = AgePartitioned::last(100_000);
    let filter = Filter::create(&dir, spec, options().stripes(2)).expect("a filter");
    let other = Filter::<AgePartitioned>::open(&dir, options()).expect("another handle");
    // Both ask for the keys in the same order, as close together as they can.
    let barrier = Barrier::new(2);
    let ask = |filter: &Filter<AgePartitioned>| {
        let ask = |key: u64| {
            if key.is_multiple_of(16) {
                barrier.wait();
            }
            let key = key.to_le_bytes();
            let ticket = filter.issue(|call| call.since(Since::LastAccepted).check_and_insert(key));
            let ticket = ticket.expect("an answer");
            (ticket.answer().is_new(), ticket.lsn())
        };
        (0..KEYS).map(ask).collect::<Vec<_>>()
    };
    let (one, two) = std::thread::scope(|scope| {
        let one = scope.spawn(|| ask(&filter));
        let two = scope.spawn(|| ask(&other));
        (one.join().expect("no panic"), two.join().expect("no panic"))
    });
    for (key, (one, two)) in (0..KEYS).zip(one.into_iter().zip(two)) {
        assert_ne!(one.0, two.0, "key {key} is new once");
        let (inserted, seen) = if one.0 { (one.1, two.1) } else { (two.1, one.1) };
        assert!(seen >= inserted, "key {key}: inserted by record {inserted}, seen up to {seen}");
    }
    // The last record of the stripe, not one behind it: waiting for it ends without another insert.
    let ticket = filter.issue(|call| call.since(Since::LastAccepted).check_and_insert([0; 8]));
    let ticket = ticket.expect("an answer");
    assert!(ticket.lsn() < filter.stat().expect("figures").lsn, "a record that exists");
    in_time("a ticket", move || ticket.wait().expect("durable"));
}
