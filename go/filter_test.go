package ebbtide_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ebbtide "github.com/ebbtide/ebbtide/go"
)

var (
	_ io.Closer = (*ebbtide.Filter)(nil)
	_ io.Closer = (*ebbtide.Reader)(nil)
	_ io.Closer = (*ebbtide.Batch)(nil)
	_ io.Closer = (*ebbtide.History)(nil)
	_ error     = ebbtide.ErrLocked
	_ error     = (*ebbtide.Error)(nil)
)

var noon = time.UnixMicro(1748865600000000)

func TestAKeyIsNewOnceAndStaysOverRestarts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seen")
	for round, expected := range []ebbtide.Checked{ebbtide.New, ebbtide.Present} {
		seen, err := ebbtide.Open(background, path, exact, ebbtide.WithDurability(ebbtide.Never))
		check(t, err)
		answer, err := seen.CheckAndInsert([]byte("a"))
		check(t, err)
		expect(t, fmt.Sprint("round ", round), answer, expected)
		check(t, seen.Close())
		check(t, seen.Close())
	}
}

func TestKeysAreBytesOfAllValuesAlsoNone(t *testing.T) {
	seen, _ := filter(t, exact, noSync)
	for _, key := range []string{"", "\x00", "a\x00b", "\xff\xfe", string(make([]byte, 100000))} {
		found, err := seen.Contains([]byte(key))
		check(t, err)
		expect(t, "before", found, false)
		insert(t, seen, key)
		found, err = seen.Contains([]byte(key))
		check(t, err)
		expect(t, "after", found, true)
		expect(t, "as a string", contains(t, &seen.Reader, key), true)
		answer, err := seen.CheckAndInsertString(key)
		check(t, err)
		expect(t, "again", answer, ebbtide.Present)
	}
	found, err := seen.Contains(nil)
	check(t, err)
	expect(t, "nil", found, true)
}

func TestOptionsOfCallsHaveAnEffect(t *testing.T) {
	seen, _ := filter(t, hourly, noSync)
	insert(t, seen, "a", ebbtide.At(noon))
	soon := ebbtide.At(noon.Add(59 * time.Minute))
	expect(t, "in the window", contains(t, &seen.Reader, "a", soon), true)
	later := ebbtide.At(noon.Add(3 * time.Hour))
	expect(t, "after it", contains(t, &seen.Reader, "a", later), false)
	answer, err := seen.CheckAndInsertString("b", later, ebbtide.SinceLastAccepted())
	check(t, err)
	expect(t, "b", answer, ebbtide.New)
	answer, err = seen.CheckAndInsertString("late", ebbtide.At(noon))
	check(t, err)
	expect(t, "late", answer, ebbtide.TooLate)
	inserted, err := seen.InsertString("late", ebbtide.At(noon))
	check(t, err)
	expect(t, "late", inserted, false)
	_, err = seen.InsertString("c", ebbtide.Durable(), ebbtide.WithoutWaiting())
	isError(t, err, ebbtide.ErrWouldWait)
	expect(t, "nothing has happened", contains(t, &seen.Reader, "c", later), false)
	for _, option := range []ebbtide.CallOption{
		ebbtide.Durable(), ebbtide.DurableWithin(time.Second), ebbtide.WithoutSync(),
	} {
		insert(t, seen, "d", option)
	}
	check(t, seen.Sync(background))
	lsn, err := seen.Checkpoint()
	check(t, err)
	expect(t, "a snapshot", lsn > 0, true)
}

func TestCountsAgesAndWeights(t *testing.T) {
	counting, _ := filter(t, "counting capacity=1000 counter-bits=4", noSync)
	insert(t, counting, "a", ebbtide.Weight(3))
	removed, err := counting.Remove([]byte("a"))
	check(t, err)
	expect(t, "a", removed, true)
	removed, err = counting.Remove([]byte("b"))
	check(t, err)
	expect(t, "b", removed, false)
	estimate, err := counting.Estimate([]byte("a"))
	check(t, err)
	expect(t, "a", estimate, ebbtide.Estimate{Count: 2})
	insert(t, counting, "a", ebbtide.Weight(100))
	estimate, err = counting.Estimate([]byte("a"))
	check(t, err)
	expect(t, "a saturated counter", estimate.AtLeast, true)
	_, _, err = counting.Age([]byte("a"))
	isError(t, err, ebbtide.ErrUnsupported)

	timing, _ := filter(t, "time-limited window=1h fpr=0.000001", noSync)
	insert(t, timing, "a", ebbtide.At(noon))
	later := ebbtide.At(noon.Add(20 * time.Minute))
	age, found, err := timing.Age([]byte("a"), later)
	check(t, err)
	expect(t, "in the window", found && !age.IsItems, true)
	expect(t, "not much lower", age.Duration() > 5*time.Minute, true)
	expect(t, "a lower bound", age.Duration() <= 20*time.Minute, true)
	_, found, err = timing.Age([]byte("b"), later)
	check(t, err)
	expect(t, "b", found, false)
	for minutes, expected := range map[time.Duration]bool{30: true, 5: false} {
		within, err := timing.SeenWithin([]byte("a"), minutes*time.Minute, later)
		check(t, err)
		expect(t, minutes.String(), within, expected)
	}
	_, err = timing.SeenWithinItems([]byte("a"), 5, later)
	isError(t, err, ebbtide.ErrParameter)
	items, _ := filter(t, "block-timing last=1000", noSync)
	insert(t, items, "a")
	within, err := items.SeenWithinItems([]byte("a"), 500)
	check(t, err)
	expect(t, "within items", within, true)
}

// near checks that a number of distinct keys is right within six standard errors and one key.
func near(t *testing.T, what string, found ebbtide.Cardinality, keys float64) {
	t.Helper()
	if math.Abs(found.Keys-keys) > 1+6*found.StandardError || found.StandardError > keys/50 {
		t.Errorf("%s: expected %v distinct keys, found %v", what, keys, found)
	}
}

func TestDistinctKeysAreCountedInTheWindowAndInPartsOfIt(t *testing.T) {
	items, _ := filter(t, "fingerprint last=100000 fpr=0.001", noSync)
	var keys ebbtide.Keys
	for number := 0; number < 20000; number++ {
		keys.AddString(fmt.Sprint("key ", number%10000))
	}
	_, err := items.InsertAll(&keys)
	check(t, err)
	found, err := items.Distinct()
	check(t, err)
	near(t, "each key twice", found, 10000)
	found, err = items.DistinctWithinItems(5000)
	check(t, err)
	expect(t, "at least what was asked for", found.Reach >= 5000, true)
	near(t, "the last ones", found, math.Min(float64(found.Reach), 10000))
	_, err = items.DistinctWithin(time.Minute)
	isError(t, err, ebbtide.ErrParameter)

	hours, _ := filter(t, "fingerprint window=1h fpr=0.001", noSync)
	for minute := 0; minute < 3; minute++ {
		for number := 0; number < 1000; number++ {
			at := ebbtide.At(noon.Add(time.Duration(25*minute) * time.Minute))
			insert(t, hours, fmt.Sprint(minute, " ", number), at)
		}
	}
	later := ebbtide.At(noon.Add(55 * time.Minute))
	found, err = hours.Distinct(later)
	check(t, err)
	near(t, "all", found, 3000)
	found, err = hours.DistinctWithin(6*time.Minute, later)
	check(t, err)
	near(t, "those of the last minutes", found, 1000)
	_, err = hours.DistinctWithinItems(5, later)
	isError(t, err, ebbtide.ErrParameter)
	_, err = hours.DistinctWithin(-1, later)
	isError(t, err, ebbtide.ErrArgument)
	decaying, _ := filter(t, "decaying capacity=1000 lambda=0.5 epoch=1h", noSync)
	_, err = decaying.Distinct()
	isError(t, err, ebbtide.ErrUnsupported)
}

func TestSpecsAndOptionsAreSpelledAsTheLibraryReadsThem(t *testing.T) {
	for _, spec := range []string{
		ebbtide.Window(10*time.Minute, 0.001), ebbtide.Window(1500*time.Microsecond, 1e-9),
		ebbtide.Last(1000000, 0.01),
	} {
		plan, err := ebbtide.Plan(spec, ebbtide.WithDurability(90*time.Second),
			ebbtide.WithKeptLog(24*time.Hour))
		check(t, err)
		expect(t, spec, json.Valid(plan), true)
	}
	for _, durability := range []time.Duration{ebbtide.Always, ebbtide.Never, time.Millisecond} {
		path := filepath.Join(t.TempDir(), "seen")
		seen, err := ebbtide.Open(background, path, exact, ebbtide.WithDurability(durability))
		check(t, err)
		insert(t, seen, "a")
		check(t, seen.Close())
	}
}

func TestManyKeysTakeOneCall(t *testing.T) {
	seen, _ := filter(t, "fingerprint last=1M fpr=0.000001", noSync)
	var keys ebbtide.Keys
	for _, count := range []int{0, 1, 63, 64, 65, 5000} {
		keys.Reset()
		for at := 0; at < count; at++ {
			keys.AddString(fmt.Sprint(count, "-", at))
		}
		expect(t, "keys", keys.Len(), count)
		answers, err := seen.CheckAndInsertAll(&keys, nil)
		check(t, err)
		expect(t, "answers", len(answers), count)
		for _, answer := range answers {
			expect(t, "the first time", answer, ebbtide.New)
		}
		answers, err = seen.CheckAndInsertAll(&keys, answers)
		check(t, err)
		for _, answer := range answers {
			expect(t, "the second time", answer, ebbtide.Present)
		}
		inserted, err := seen.InsertAll(&keys)
		check(t, err)
		expect(t, "inserted", inserted, count)
	}
	found, err := seen.ContainsAll(ebbtide.KeysOf("63-0", "no", "5000-4999", ""), nil)
	check(t, err)
	expect(t, "answers in their order", fmt.Sprint(found), "[true false true false]")
	empty := ebbtide.KeysOf("", "")
	answers, err := seen.CheckAndInsertAll(empty, nil)
	check(t, err)
	expect(t, "keys without bytes", fmt.Sprint(answers), "[new present]")
	check(t, seen.Close())
	answers, err = seen.CheckAndInsertAll(empty, answers)
	isError(t, err, ebbtide.ErrClosed)
	expect(t, "without answers", fmt.Sprint(answers), "[unanswered unanswered]")
}

func TestABatchIsAllOrNothing(t *testing.T) {
	seen, _ := filter(t, hourly, noSync)
	batch, err := seen.NewBatch(ebbtide.Durable())
	check(t, err)
	check(t, batch.Insert([]byte("a"), ebbtide.At(time.Now())))
	for _, expected := range []ebbtide.Checked{ebbtide.New, ebbtide.Present} {
		answer, err := batch.CheckAndInsert([]byte("b"))
		check(t, err)
		expect(t, "b", answer, expected)
	}
	answers, err := batch.CheckAndInsertAll(ebbtide.KeysOf("b", "c", ""), nil)
	check(t, err)
	expect(t, "answers", fmt.Sprint(answers), "[present new new]")
	check(t, batch.InsertAll(ebbtide.KeysOf("d", "e")))
	check(t, batch.SetPosition(3, 900))
	_, found, err := seen.Position(3)
	check(t, err)
	expect(t, "before the commit", found || contains(t, &seen.Reader, "a"), false)
	check(t, batch.Commit())
	position, _, err := seen.Position(3)
	check(t, err)
	expect(t, "the position", position, uint64(900))
	for _, key := range []string{"a", "b", "c", "", "d", "e"} {
		expect(t, key, contains(t, &seen.Reader, key), true)
	}
	check(t, batch.Insert([]byte("f")))
	check(t, batch.Clear())
	check(t, batch.Commit())
	expect(t, "f", contains(t, &seen.Reader, "f"), false)
	_, err = batch.CheckAndInsert([]byte("g"))
	check(t, err)
	insert(t, seen, "g")
	isError(t, batch.Commit(), ebbtide.ErrConflict)
	check(t, batch.Close())
	check(t, batch.Close())
	isError(t, batch.Insert([]byte("h")), ebbtide.ErrClosed)
	// A filter releases its batches.
	batch, err = seen.NewBatch()
	check(t, err)
	check(t, seen.Close())
	isError(t, batch.Commit(), ebbtide.ErrClosed)
	check(t, batch.Close())
	_, err = seen.NewBatch()
	isError(t, err, ebbtide.ErrClosed)
}

func TestOfConcurrentCallersOneReceivesNew(t *testing.T) {
	seen, _ := filter(t, exact, noSync)
	var fresh int64
	var group sync.WaitGroup
	for caller := 0; caller < 16; caller++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for key := 0; key < 500; key++ {
				answer, err := seen.CheckAndInsertString(fmt.Sprint(key))
				if err != nil {
					t.Error(err)
				} else if answer == ebbtide.New {
					atomic.AddInt64(&fresh, 1)
				}
			}
		}()
	}
	group.Wait()
	expect(t, "New", fresh, int64(500))
}

func TestCloseWaitsForCallsAndLaterOnesFail(t *testing.T) {
	for round := 0; round < 20; round++ {
		seen, _ := filter(t, exact, noSync)
		var group sync.WaitGroup
		var calls int64
		for caller := 0; caller < 8; caller++ {
			group.Add(1)
			go func(caller int) {
				defer group.Done()
				batch, err := seen.NewBatch()
				for at := 0; err == nil; at++ {
					key := []byte(fmt.Sprint(caller, "-", at))
					if _, err = seen.CheckAndInsert(key); err == nil {
						err = batch.Insert(key)
					}
					atomic.AddInt64(&calls, 1)
				}
				if !errors.Is(err, ebbtide.ErrClosed) || !errors.Is(err, fs.ErrClosed) {
					t.Error(err)
				}
			}(caller)
		}
		for atomic.LoadInt64(&calls) < 200 {
			time.Sleep(time.Millisecond)
		}
		check(t, seen.Close())
		group.Wait()
	}
}

func TestACopyIsAFilterOfItsOwn(t *testing.T) {
	seen, path := filter(t, exact, noSync)
	insert(t, seen, "a")
	backup, restored := path+"-backup", path+"-restored"
	check(t, seen.Backup(backup))
	isError(t, seen.Backup(backup), ebbtide.ErrExists)
	isError(t, ebbtide.Restore(path, restored), ebbtide.ErrLocked)
	check(t, ebbtide.Restore(backup, restored))
	reader, err := ebbtide.OpenReader(background, restored)
	check(t, err)
	expect(t, "in the copy", contains(t, reader, "a"), true)
	first, err := seen.Digest()
	check(t, err)
	second, err := reader.Digest()
	check(t, err)
	expect(t, "digests", first == second && len(first) == 32, true)
	check(t, reader.Close())
	check(t, seen.Clear())
	expect(t, "after clear", contains(t, &seen.Reader, "a"), false)
	var stat struct {
		Inserts *uint64
	}
	text, err := seen.Stat()
	check(t, err)
	check(t, json.Unmarshal(text, &stat))
	expect(t, "inserts", *stat.Inserts, uint64(0))
	expect(t, "the path", seen.Path(), path)
}
