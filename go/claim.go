package ebbtide

// #include "shim.h"
import "C"

import (
	"context"
	"sync"
	"time"
)

// State is the answer of Filter.Claim.
type State uint8

// The answers of Filter.Claim.
const (
	// Seen: the key was in the window, or is a false positive. The work was done.
	Seen State = C.EBBTIDE_SEEN
	// Yours: the key is the caller's to work on, and nobody else's.
	Yours State = C.EBBTIDE_YOURS
	// InProgress: somebody else is working on the key.
	InProgress State = C.EBBTIDE_IN_PROGRESS
)

// String returns the name of the answer.
func (s State) String() string {
	switch s {
	case Seen:
		return "seen"
	case Yours:
		return "yours"
	}
	return "in progress"
}

// Claim is the answer of Filter.Claim. Of any number of callers in all processes one has a claim
// that is Yours: it works, and then calls Confirm, which inserts the key, or Release.
//
//	claim, err := seen.Claim(id, time.Minute)
//	if err != nil {
//		return err
//	}
//	defer claim.Release() // Does nothing after Confirm.
//	switch claim.State() {
//	case ebbtide.Seen:
//		return nil
//	case ebbtide.InProgress:
//		return errTryAgain
//	}
//	if err := work(); err != nil {
//		return err
//	}
//	return claim.Confirm()
//
// A claim that is neither confirmed nor released ends with its lease, also if the process dies.
type Claim struct {
	h     *handle
	key   []byte
	state State
	token uint64
	until time.Time
	mu    sync.Mutex
	held  bool
}

// Claim claims a key for work that may fail, for lease, from 1 ms to 97 days.
func (f *Filter) Claim(key []byte, lease time.Duration, options ...CallOption) (*Claim, error) {
	if lease < 0 {
		return nil, argument("Claim: expected a lease of 1 ms or more, found %v", lease)
	}
	answer, err := f.h.one(C.SHIM_CLAIM, first(key), len(key), 0, uint64(lease.Milliseconds()),
		options)
	if err != nil {
		return nil, err
	}
	claim := &Claim{h: f.h, key: append([]byte(nil), key...), state: State(answer.value)}
	switch claim.state {
	case Yours:
		claim.token, claim.held = uint64(answer.number), true
	case InProgress:
		claim.until = time.UnixMicro(int64(answer.second))
	}
	return claim, nil
}

// AwaitClaim is Claim, but waits while somebody else is working on the key: the claim is then Yours
// or Seen. It asks again after 1 ms, then after twice as long each time, up to a second, and when
// the other's lease ends. When the context ends, it returns the error of that.
func (f *Filter) AwaitClaim(ctx context.Context, key []byte, lease time.Duration,
	options ...CallOption) (*Claim, error) {
	for pause := time.Millisecond; ; pause *= 2 {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		claim, err := f.Claim(key, lease, options...)
		if err != nil || claim.state != InProgress {
			return claim, err
		}
		if pause > time.Second {
			pause = time.Second
		}
		next := pause
		if left := time.Until(claim.until); left > 0 && left < next {
			next = left
		}
		timer := time.NewTimer(next)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		}
	}
}

// ResumeClaim returns the claim with this token, which another goroutine or process has left. It is
// not checked here: Confirm and Extend of one that is not held any more return ErrLeaseLost.
func (f *Filter) ResumeClaim(key []byte, token uint64) *Claim {
	return &Claim{h: f.h, key: append([]byte(nil), key...), state: Yours, token: token, held: true}
}

// State returns the answer: Yours, Seen or InProgress. It does not change.
func (c *Claim) State() State { return c.state }

// Token returns the number of the claim, which is greater than that of every earlier one of the
// filter. Whoever has key and token may continue, by ResumeClaim. 0 if the claim is not Yours.
func (c *Claim) Token() uint64 { return c.token }

// Until returns when the lease ends if it is not renewed, of a claim that is InProgress, and of one
// that was extended; otherwise the zero time.
func (c *Claim) Until() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.until
}

// ending runs what ends the claim, if it is held. Errors leave it held, except ErrLeaseLost.
func (c *Claim) ending(end func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.held {
		return &Error{
			Code: ErrLeaseLost, Path: c.h.path,
			Message: c.h.path + ": " + notHeld(c.state) + "; nothing was written",
		}
	}
	err := end()
	if err == nil || isLost(err) {
		c.held = false
	}
	return err
}

// notHeld says why a claim cannot be ended.
func notHeld(state State) string {
	if state == Yours {
		return "the claim was confirmed, released or lost before"
	}
	return "there is no claim to end: the answer was " + state.String()
}

func isLost(err error) bool {
	found, ok := err.(*Error)
	return ok && found.Code == ErrLeaseLost
}

func (c *Claim) call(operation C.int, lease uint64,
	options []CallOption) (C.struct_shim_answer, error) {
	return c.h.one(operation, first(c.key), len(c.key), c.token, lease, options)
}

// Confirm inserts the key and ends the claim, both in one atomic step. After ErrLeaseLost the key
// is not inserted: somebody else may be working on it. After ErrPoisoned it is not known whether
// the key is inserted and the claim has ended: the filter, opened again, says so. After other
// errors the claim stays, and may be confirmed again. If the key's own time is too late for the
// window, the claim ends, and the key is not inserted.
func (c *Claim) Confirm(options ...CallOption) error {
	return c.ending(func() error {
		_, err := c.call(C.SHIM_CONFIRM, 0, options)
		return err
	})
}

// Release ends the claim without an insert: the key may be claimed again at once. One that is not
// held any more, or never was: nothing, so that it can be deferred.
func (c *Claim) Release(options ...CallOption) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.held {
		return nil
	}
	if _, err := c.call(C.SHIM_RELEASE, 0, options); err != nil {
		return err
	}
	c.held = false
	return nil
}

// Extend renews the claim: its lease ends this long after now.
func (c *Claim) Extend(lease time.Duration, options ...CallOption) error {
	if lease < 0 {
		return argument("Extend: expected a lease of 1 ms or more, found %v", lease)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	answer, err := c.call(C.SHIM_EXTEND, uint64(lease.Milliseconds()), options)
	if err == nil {
		c.until = time.UnixMicro(int64(answer.second))
	} else if isLost(err) {
		c.held = false
	}
	return err
}

// EndClaim ends the claim of a key, whoever holds it, if its holder is known to be gone. It returns
// false if there was none.
func (f *Filter) EndClaim(key []byte, options ...CallOption) (bool, error) {
	answer, err := f.h.bytes(C.SHIM_END_CLAIM, key, options)
	return answer.value == 1, err
}

// OpenClaim is a claim that is held.
type OpenClaim struct {
	// Hash is the hash of the key: Filter.KeyHash.
	Hash uint64
	// Token is the number of the claim.
	Token uint64
	// Age is how long ago it began.
	Age time.Duration
	// Remaining is when it ends if it is not renewed, from now on.
	Remaining time.Duration
}

// Claims returns the claims that are held, the oldest first. A filter holds up to 65536.
func (r *Reader) Claims() ([]OpenClaim, error) {
	for room := 16; ; {
		held := make([]C.struct_ebbtide_open_claim, room)
		var count C.int64_t
		err := r.h.with(func(c *C.struct_ebbtide_filter, failed **C.struct_ebbtide_error) {
			count = C.ebbtide_claims(c, &held[0], C.size_t(room), failed)
		})
		if err != nil {
			return nil, err
		}
		if int(count) > room {
			room = int(count)
			continue
		}
		claims := make([]OpenClaim, count)
		for i := range claims {
			claims[i] = OpenClaim{
				uint64(held[i].hash), uint64(held[i].token), micros(held[i].age_us),
				micros(held[i].remaining_us),
			}
		}
		return claims, nil
	}
}

// micros returns a span of C.
func micros(count C.uint64_t) time.Duration {
	if count > 1<<62/1000 {
		return 1<<63 - 1
	}
	return time.Duration(count) * time.Microsecond
}
