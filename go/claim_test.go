package ebbtide_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ebbtide "github.com/ebbtide/ebbtide/go"
)

func claim(t testing.TB, seen *ebbtide.Filter, key string, lease time.Duration) *ebbtide.Claim {
	t.Helper()
	found, err := seen.Claim([]byte(key), lease)
	check(t, err)
	return found
}

func TestAHandlerThatFailsDoesNotSwallowTheRetry(t *testing.T) {
	seen, _ := filter(t, hourly, noSync)
	errWork, errAgain := errors.New("the work failed"), errors.New("try again later")
	deliver := func(work error) error {
		claim, err := seen.Claim([]byte("order 17"), time.Minute)
		if err != nil {
			return err
		}
		defer claim.Release()
		switch claim.State() {
		case ebbtide.Seen:
			return nil
		case ebbtide.InProgress:
			return errAgain
		}
		if work != nil {
			return work
		}
		return claim.Confirm()
	}
	other := claim(t, seen, "order 17", time.Minute)
	expect(t, "while another one works", deliver(nil), errAgain)
	check(t, other.Release())
	check(t, other.Release())
	expect(t, "work that fails", deliver(errWork), errWork)
	expect(t, "not seen", contains(t, &seen.Reader, "order 17"), false)
	check(t, deliver(nil))
	expect(t, "seen", contains(t, &seen.Reader, "order 17"), true)
	check(t, deliver(errWork))
	expect(t, "seen", claim(t, seen, "order 17", time.Minute).State(), ebbtide.Seen)
}

func TestAClaimEndsWithItsLease(t *testing.T) {
	seen, _ := filter(t, hourly, noSync)
	late := claim(t, seen, "a", time.Millisecond)
	expect(t, "the claim", late.State(), ebbtide.Yours)
	time.Sleep(50 * time.Millisecond)
	isError(t, late.Confirm(), ebbtide.ErrLeaseLost)
	check(t, late.Release())
	next := claim(t, seen, "a", time.Minute)
	expect(t, "a greater token", next.Token() > late.Token(), true)
	isError(t, late.Extend(time.Minute), ebbtide.ErrLeaseLost)
	check(t, next.Extend(time.Hour))
	expect(t, "renewed", time.Until(next.Until()) > 50*time.Minute, true)
	waiting := claim(t, seen, "a", time.Minute)
	expect(t, "somebody else", waiting.State(), ebbtide.InProgress)
	// Each of them is by the clock as it was then.
	expect(t, "until then", waiting.Until().Sub(next.Until()).Abs() < time.Minute, true)
	isError(t, waiting.Confirm(), ebbtide.ErrLeaseLost)
	check(t, waiting.Release())
	// Handed to another goroutine by its token.
	check(t, seen.ResumeClaim([]byte("a"), next.Token()).Confirm())
	isError(t, next.Confirm(), ebbtide.ErrLeaseLost)
	claim(t, seen, "b", time.Minute)
	ended, err := seen.EndClaim([]byte("b"))
	check(t, err)
	expect(t, "ended", ended, true)
	ended, err = seen.EndClaim([]byte("b"))
	check(t, err)
	expect(t, "ended again", ended, false)
}

func TestClaimsAreListedOldestFirst(t *testing.T) {
	seen, _ := filter(t, hourly, noSync)
	for key := 0; key < 40; key++ {
		claim(t, seen, fmt.Sprint(key), time.Minute)
	}
	held, err := seen.Claims()
	check(t, err)
	expect(t, "claims", len(held), 40)
	for key, one := range held {
		hash, err := seen.KeyHash([]byte(fmt.Sprint(key)))
		check(t, err)
		expect(t, "the hash", one.Hash, hash)
		expect(t, "the lease", one.Age+one.Remaining, time.Minute)
	}
}

func TestABatchConfirmsClaims(t *testing.T) {
	seen, _ := filter(t, hourly, noSync)
	batch, err := seen.NewBatch()
	check(t, err)
	mine := claim(t, seen, "a", time.Minute)
	check(t, batch.Confirm(mine))
	isError(t, batch.Confirm(mine), ebbtide.ErrLeaseLost)
	check(t, mine.Release())
	expect(t, "before the commit", contains(t, &seen.Reader, "a"), false)
	check(t, batch.Commit())
	expect(t, "after it", contains(t, &seen.Reader, "a"), true)
	other, _ := filter(t, hourly, noSync)
	foreign := claim(t, other, "a", time.Minute)
	isError(t, batch.Confirm(foreign), ebbtide.ErrArgument)
	check(t, foreign.Confirm())
	check(t, batch.Confirm(claim(t, seen, "b", time.Minute)))
	check(t, batch.Clear())
	early := claim(t, seen, "b", time.Minute)
	ahead := ebbtide.At(time.Now().Add(20 * 365 * 24 * time.Hour))
	isError(t, batch.Confirm(early, ahead), ebbtide.ErrTimeAhead)
	isError(t, early.Confirm(), ebbtide.ErrLeaseLost)
	again := claim(t, seen, "b", time.Minute)
	expect(t, "released by the error", again.State(), ebbtide.Yours)
	isError(t, batch.Confirm(again, ebbtide.At(time.UnixMicro(-1))), ebbtide.ErrArgument)
	check(t, batch.Confirm(again))
	check(t, batch.Close())
	expect(t, "released", claim(t, seen, "b", time.Minute).State(), ebbtide.Yours)
	kept := claim(t, seen, "c", time.Minute)
	isError(t, batch.Confirm(kept), ebbtide.ErrClosed)
	check(t, kept.Confirm())
}

func TestAwaitClaimWaitsForTheOtherOrForTheContext(t *testing.T) {
	seen, _ := filter(t, hourly, noSync)
	other := claim(t, seen, "a", time.Hour)
	ctx, cancel := context.WithTimeout(background, 20*time.Millisecond)
	defer cancel()
	_, err := seen.AwaitClaim(ctx, []byte("a"), time.Minute)
	expect(t, "a context that ends", errors.Is(err, context.DeadlineExceeded), true)
	answers := make(chan ebbtide.State, 1)
	go func() {
		claim, err := seen.AwaitClaim(background, []byte("a"), time.Minute)
		if err != nil {
			t.Error(err)
			close(answers)
			return
		}
		answers <- claim.State()
	}()
	time.Sleep(20 * time.Millisecond)
	check(t, other.Confirm())
	expect(t, "confirmed", <-answers, ebbtide.Seen)
	// The lease of one that nobody ends.
	claim(t, seen, "b", 100*time.Millisecond)
	mine, err := seen.AwaitClaim(background, []byte("b"), time.Minute)
	check(t, err)
	expect(t, "its lease is over", mine.State(), ebbtide.Yours)
}

func TestOfAllCallersOneHasTheClaim(t *testing.T) {
	seen, _ := filter(t, hourly, noSync)
	var worked int64
	var group sync.WaitGroup
	for caller := 0; caller < 50; caller++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for key := 0; key < 20; key++ {
				claim, err := seen.AwaitClaim(background, []byte(fmt.Sprint(key)), time.Minute)
				if err != nil {
					t.Error(err)
					return
				}
				if claim.State() == ebbtide.Yours {
					atomic.AddInt64(&worked, 1)
					if err := claim.Confirm(); err != nil {
						t.Error(err)
					}
				}
			}
		}()
	}
	group.Wait()
	expect(t, "works", worked, int64(20))
}

func TestTheClaimOfAKilledProcessEndsWithItsLease(t *testing.T) {
	seen, path := filter(t, hourly, noSync)
	process := worker(t, "claim", path, "a")
	out, err := process.StdoutPipe()
	check(t, err)
	check(t, process.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	check(t, err)
	expect(t, "the worker", line, "yours\n")
	check(t, process.Process.Kill())
	_ = process.Wait()
	mine, err := seen.AwaitClaim(background, []byte("a"), time.Minute)
	check(t, err)
	expect(t, "the next one", mine.State(), ebbtide.Yours)
	check(t, mine.Confirm())
}
