package ebbtide_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	ebbtide "github.com/ebbtide/ebbtide/go"
)

const kept = "durability=always keep-log=24h hash-seed=7"

func history(t testing.TB, path string, after ebbtide.Moment) *ebbtide.History {
	t.Helper()
	log, err := ebbtide.OpenHistory(path, after, false)
	check(t, err)
	t.Cleanup(func() { _ = log.Close() })
	return log
}

func next(t testing.TB, log *ebbtide.History, kind ebbtide.Kind) ebbtide.Operation {
	t.Helper()
	if !log.Next() {
		t.Fatalf("expected an operation of kind %d, found the end: %v", kind, log.Err())
	}
	expect(t, "the kind", log.Operation().Kind, kind)
	return log.Operation()
}

func hash(t testing.TB, seen *ebbtide.Filter, key string) uint64 {
	t.Helper()
	hash, err := seen.KeyHash([]byte(key))
	check(t, err)
	return hash
}

func TestEveryOperationComesOnceInItsOrder(t *testing.T) {
	seen, path := filter(t, hourly, kept)
	log := history(t, path, ebbtide.Moment{})
	expect(t, "no operation", log.Next(), false)
	check(t, log.Err())
	insert(t, seen, "a", ebbtide.At(noon))
	first := next(t, log, ebbtide.OperationInsert)
	expect(t, "its time", first.Time.Equal(noon) && first.IsStreamTime, true)
	expect(t, "its key", first.Hash, hash(t, seen, "a"))
	expect(t, "its weight", first.Weight, uint32(1))
	mine := claim(t, seen, "c", time.Minute)
	check(t, mine.Release())
	check(t, seen.Sync(background))
	expect(t, "the lease", next(t, log, ebbtide.OperationClaim).Lease, time.Minute)
	expect(t, "the token", next(t, log, ebbtide.OperationRelease).Token, mine.Token())
	batch, err := seen.NewBatch()
	check(t, err)
	check(t, batch.InsertAll(ebbtide.KeysOf("d", "e")))
	check(t, batch.SetPosition(3, 900))
	check(t, batch.Commit())
	check(t, seen.Clear())
	part := next(t, log, ebbtide.OperationInsert)
	expect(t, "operations of the commit that are left", part.Left, uint64(2))
	// A history continues before a commit of which it has returned a part.
	position, err := log.Position()
	check(t, err)
	again := history(t, path, ebbtide.MomentLSN(position-1))
	expect(t, "again", next(t, again, ebbtide.OperationInsert), part)
	next(t, log, ebbtide.OperationInsert)
	last := next(t, log, ebbtide.OperationPosition)
	expect(t, "the source", last.Source == 3 && last.Position == 900, true)
	expect(t, "the commit", last.CommitLSN, part.CommitLSN)
	next(t, log, ebbtide.OperationClear)
	expect(t, "the end", log.Next(), false)
	check(t, log.Err())
	check(t, log.Close())
	check(t, log.Close())
	expect(t, "a closed one", log.Next(), false)
	isError(t, log.Err(), ebbtide.ErrClosed)
}

func TestWhileOneGoroutineWaitsOthersAskForThePositionAndClose(t *testing.T) {
	_, path := filter(t, exact, "keep-log=24h", noSync)
	log, err := ebbtide.OpenHistory(path, ebbtide.Moment{}, true)
	check(t, err)
	ended := make(chan bool)
	go func() { ended <- log.Wait(background) }()
	others := make(chan error)
	go func() {
		ctx, cancel := context.WithTimeout(background, 30*time.Millisecond)
		defer cancel()
		if log.Wait(ctx) {
			others <- errors.New("an operation that nobody wrote")
			return
		}
		if _, err := log.Position(); err != nil {
			others <- err
			return
		}
		_ = log.Err()
		others <- log.Close()
	}()
	for turn := 0; turn < 2; turn++ {
		select {
		case err := <-others:
			check(t, err)
		case found := <-ended:
			expect(t, "an operation", found, false)
			isError(t, log.Err(), ebbtide.ErrClosed)
		case <-time.After(time.Minute):
			t.Fatal("a method waits for the end of Wait")
		}
	}
}

func TestWaitReturnsWhatOthersWriteOrWhenTheContextEnds(t *testing.T) {
	seen, path := filter(t, exact, "keep-log=24h", noSync)
	log, err := ebbtide.OpenHistory(path, ebbtide.Moment{}, true)
	check(t, err)
	ctx, cancel := context.WithTimeout(background, 30*time.Millisecond)
	defer cancel()
	expect(t, "a context that ends", log.Wait(ctx), false)
	expect(t, "its error", errors.Is(log.Err(), context.DeadlineExceeded), true)
	const keys = 2000
	go func() {
		for key := 0; key < keys; key++ {
			if _, err := seen.InsertString(fmt.Sprint(key)); err != nil {
				t.Error(err)
			}
		}
	}()
	for key := 0; key < keys; key++ {
		if !log.Wait(background) {
			t.Fatal(log.Err())
		}
		expect(t, "the key", log.Operation().Hash, hash(t, seen, fmt.Sprint(key)))
	}
	// Closing ends a wait.
	waited := make(chan error)
	go func() {
		log.Wait(background)
		waited <- log.Err()
	}()
	time.Sleep(10 * time.Millisecond)
	check(t, log.Close())
	isError(t, <-waited, ebbtide.ErrClosed)
}

func TestAReaderOfThePastHasItsMoment(t *testing.T) {
	seen, path := filter(t, hourly, kept)
	insert(t, seen, "a", ebbtide.At(noon))
	log := history(t, path, ebbtide.Moment{})
	first := next(t, log, ebbtide.OperationInsert)
	batch, err := seen.NewBatch()
	check(t, err)
	check(t, batch.SetPosition(3, 800))
	check(t, batch.Commit())
	check(t, batch.Insert([]byte("b"), ebbtide.At(noon.Add(time.Minute))))
	check(t, batch.SetPosition(3, 900))
	check(t, batch.Commit())
	for _, test := range []struct {
		moment   ebbtide.Moment
		expected bool
	}{
		{ebbtide.MomentLSN(first.CommitLSN), false},
		{ebbtide.MomentTime(noon.Add(time.Minute)), true},
		{ebbtide.MomentTime(noon.Add(time.Minute - time.Microsecond)), false},
		{ebbtide.MomentPosition(3, 899), false},
	} {
		then, err := ebbtide.OpenReaderAt(background, path, test.moment)
		check(t, err)
		expect(t, "a", contains(t, then, "a"), true)
		expect(t, fmt.Sprint(test.moment), contains(t, then, "b"), test.expected)
		check(t, then.Close())
	}
	never := ebbtide.MomentLSN(1000000)
	_, err = ebbtide.OpenReaderAt(background, path, never)
	isError(t, err, ebbtide.ErrNotKept)
	_, err = ebbtide.OpenHistory(path, never, false)
	isError(t, err, ebbtide.ErrNotKept)
	restored, err := ebbtide.RestoreAt(path, ebbtide.MomentLSN(first.CommitLSN), path+"-then")
	check(t, err)
	expect(t, "inserts", restored.Inserts, uint64(1))
	then, err := ebbtide.OpenExisting(background, path+"-then")
	check(t, err)
	expect(t, "b", contains(t, &then.Reader, "b", ebbtide.At(noon)), false)
	check(t, then.Close())
}

func TestAFilterInUseGetsOtherParameters(t *testing.T) {
	const narrow, wide = "fingerprint last=100 fpr=1e-9", "fingerprint last=10000 fpr=1e-9"
	seen, path := filter(t, narrow, kept)
	var keys ebbtide.Keys
	for key := 0; key < 1000; key++ {
		keys.AddString(fmt.Sprint(key))
	}
	_, err := seen.InsertAll(&keys)
	check(t, err)
	expect(t, "0", contains(t, &seen.Reader, "0"), false)
	plan, err := ebbtide.PlanAlteration(path, wide)
	check(t, err)
	expect(t, "the plan", plan.HasWindow && plan.FirstLSN == 1 && plan.Records >= 1000, true)
	expect(t, "the memory", plan.MemoryAfter > plan.MemoryBefore && !plan.Since.IsZero(), true)
	altered, err := seen.Alter(wide, false)
	check(t, err)
	expect(t, "operations", altered.Operations, uint64(1000))
	expect(t, "the rest", altered.IsWhole && altered.Since.Equal(plan.Since), true)
	expect(t, "0", contains(t, &seen.Reader, "0"), true)
	_, err = seen.Alter("fingerprint", false)
	isError(t, err, ebbtide.ErrParameter)

	var parts uint64
	for part := uint64(0); part < 3; part++ {
		to := fmt.Sprint(path, "-", part)
		share := ebbtide.Share{Number: part, Of: 3}
		made, err := ebbtide.Remake([]string{path}, to, wide, share)
		check(t, err)
		parts += made.Operations
		reader, err := ebbtide.OpenReader(background, to)
		check(t, err)
		for key := 0; key < 1000; key++ {
			of, err := ebbtide.ShareOf(hash(t, seen, fmt.Sprint(key)), 3)
			check(t, err)
			if of == part {
				expect(t, "a key of the share", contains(t, reader, fmt.Sprint(key)), true)
			}
		}
		check(t, reader.Close())
	}
	expect(t, "all of them", parts, uint64(1000))
	other, second := filter(t, wide, kept)
	insert(t, other, "more")
	check(t, other.Sync(background))
	union, err := ebbtide.Remake([]string{path, second}, path+"-union", wide, ebbtide.Share{})
	check(t, err)
	expect(t, "the union", union.Operations == 1001 && union.IsWhole, true)
}
