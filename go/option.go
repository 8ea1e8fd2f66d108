package ebbtide

// #include "shim.h"
import "C"

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Window returns the spec of a filter of the kind fingerprint, which remembers keys for this long
// and errs at the rate fpr, for example 0.001.
func Window(window time.Duration, fpr float64) string {
	return "fingerprint window=" + span(window) + rate(fpr)
}

// Last returns the spec of a filter of the kind fingerprint, which remembers the keys of this many
// inserts and errs at the rate fpr, for example 0.001.
func Last(items uint64, fpr float64) string {
	return fmt.Sprintf("fingerprint last=%d%s", items, rate(fpr))
}

func rate(fpr float64) string { return " fpr=" + strconv.FormatFloat(fpr, 'g', -1, 64) }

// span spells a duration as the library reads it.
func span(d time.Duration) string { return strconv.FormatInt(d.Microseconds(), 10) + "us" }

// Option is an option of opening. Without one the filter has its own, and a new filter the
// defaults. One that a filter which exists cannot have is refused with ErrMismatch.
type Option struct{ text string }

// WithOptions gives options in the spelling of the command line, such as "hash=keyed stripes=16
// mode=660". The page of the C interface lists them.
func WithOptions(text string) Option { return Option{text} }

// Always is a durability: every operation returns when it is on the disk.
const Always time.Duration = -1

// Never is a durability: no operation causes a sync.
const Never time.Duration = -2

// WithDurability sets for how long at most an operation that has returned may be lost by a power
// cut: a span, [Always] or [Never]. It is that of this handle. The default is a second.
func WithDurability(d time.Duration) Option {
	switch d {
	case Always:
		return Option{"durability=always"}
	case Never:
		return Option{"durability=never"}
	}
	return Option{"durability=" + span(d)}
}

// WithKeptLog keeps the log for this long, for [OpenReaderAt], [RestoreAt], [OpenHistory],
// [Filter.Alter] and [Remake].
func WithKeptLog(d time.Duration) Option { return Option{"keep-log=" + span(d)} }

// joined returns the options as C has them.
func joined(options []Option) string {
	texts := make([]string, 0, len(options))
	for _, option := range options {
		if option.text != "" {
			texts = append(texts, option.text)
		}
	}
	return strings.Join(texts, " ")
}

// CallOption is a setting of one call. Settings that an operation does not use have no effect.
type CallOption struct {
	flags      uint32
	durability uint32
	interval   uint64
	micros     uint64
	weight     float64
	wrong      bool
}

// At sets the time of the operation, instead of the clock's. Keys may come out of order within the
// window. Parts of a microsecond are cut off; times before 1970, and after the year 294246, are
// refused (ErrArgument).
func At(t time.Time) CallOption {
	micros, ok := microsSince1970(t)
	if !ok {
		// For the error, in seconds.
		return CallOption{flags: C.EBBTIDE_WITH_TIME, micros: uint64(t.Unix()), wrong: true}
	}
	return CallOption{flags: C.EBBTIDE_WITH_TIME, micros: micros}
}

// microsSince1970 returns the microseconds from 1970 to a time, and whether they fit in 63 bits.
func microsSince1970(t time.Time) (uint64, bool) {
	// UnixMicro wraps, Unix does not.
	seconds := t.Unix()
	if seconds < 0 || seconds > math.MaxInt64/1_000_000-1 {
		return 0, false
	}
	return uint64(t.UnixMicro()), true
}

// Weight sets the weight of each key: a count, or an importance.
func Weight(weight float64) CallOption {
	return CallOption{flags: C.EBBTIDE_WITH_WEIGHT, weight: weight}
}

// SinceLastAccepted inserts new keys only: a key then stays in the window since it was last
// accepted, and not since it was last seen.
func SinceLastAccepted() CallOption { return CallOption{flags: C.EBBTIDE_SINCE_LAST_ACCEPTED} }

// WithoutWaiting lets the call fail with ErrWouldWait where it would have to wait, for example for
// a sync or for another process. Nothing has happened then; of a call with several keys, those
// before the one that would wait are inserted.
func WithoutWaiting() CallOption { return CallOption{flags: C.EBBTIDE_WITHOUT_WAITING} }

// Durable lets the call return when its records are on the disk.
func Durable() CallOption { return CallOption{durability: C.EBBTIDE_DURABILITY_ALWAYS} }

// DurableWithin brings the records of the call to the disk within this span, from 1 µs
// to a day.
func DurableWithin(d time.Duration) CallOption {
	micros := d.Microseconds()
	return CallOption{
		durability: C.EBBTIDE_DURABILITY_INTERVAL, interval: uint64(micros), wrong: micros < 1,
	}
}

// WithoutSync lets the call never cause a sync.
func WithoutSync() CallOption { return CallOption{durability: C.EBBTIDE_DURABILITY_NEVER} }

// settings joins the options of a call; of two durabilities, times or weights the last one counts.
func settings(options []CallOption) (C.struct_ebbtide_call, error) {
	call := C.struct_ebbtide_call{size: C.sizeof_struct_ebbtide_call}
	for i := range options {
		option := &options[i]
		if option.wrong {
			return call, wrong(option)
		}
		call.flags |= C.uint32_t(option.flags)
		if option.durability != C.EBBTIDE_DURABILITY_OF_FILTER {
			call.durability = C.uint32_t(option.durability)
			call.interval_us = C.uint64_t(option.interval)
		}
		if option.flags&C.EBBTIDE_WITH_TIME != 0 {
			call.time_us = C.uint64_t(option.micros)
		}
		if option.flags&C.EBBTIDE_WITH_WEIGHT != 0 {
			call.weight = C.double(option.weight)
		}
	}
	return call, nil
}

func wrong(option *CallOption) error {
	if option.flags&C.EBBTIDE_WITH_TIME != 0 {
		return argument("At: expected a time after 1969 and before 294247, found %v",
			time.Unix(int64(option.micros), 0).UTC())
	}
	return argument("DurableWithin: expected 1 µs or more, found %d µs", int64(option.interval))
}
