package ebbtide_test

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ebbtide "github.com/ebbtide/ebbtide/go"
)

func TestWrongOpeningsGiveOneClearErrorAndLeaveNothing(t *testing.T) {
	home := t.TempDir()
	path := filepath.Join(home, "seen")
	for _, test := range []struct {
		path, spec, options string
		code                ebbtide.Code
		part                string
	}{
		{path, "", "", ebbtide.ErrParameter, "kind"},
		{path, "no-such-kind last=5", "", ebbtide.ErrParameter, "no-such-kind"},
		{path, "bloom", "", ebbtide.ErrParameter, "capacity"},
		{path, "bloom capacity=many", "", ebbtide.ErrParameter, "many"},
		{path, "bloom capacity=5\x00", "", ebbtide.ErrArgument, "spec: expected no NUL byte"},
		{path + "\x00", exact, "", ebbtide.ErrArgument, "path: expected no NUL byte"},
		{path, exact, "colour=red", ebbtide.ErrParameter, "colour"},
		{path, exact, "durability=sometimes", ebbtide.ErrParameter, "sometimes"},
		{path, exact, "a\x00b", ebbtide.ErrArgument, "options: expected no NUL byte"},
		{path, "bloom \xff", "", ebbtide.ErrArgument, "UTF-8"},
		{"/proc/seen", exact, "", ebbtide.ErrIO, "/proc/seen"},
	} {
		_, err := ebbtide.Open(background, test.path, test.spec, ebbtide.WithOptions(test.options))
		found := isError(t, err, test.code)
		expect(t, found.Message, strings.Contains(found.Message, test.part), true)
	}
	_, err := ebbtide.Open(background, path, exact, ebbtide.WithDurability(-5))
	isError(t, err, ebbtide.ErrParameter)
	_, err = ebbtide.Open(background, path, ebbtide.Window(-time.Second, 0.001))
	isError(t, err, ebbtide.ErrParameter)
	_, err = ebbtide.Plan(ebbtide.Last(100, math.NaN()))
	isError(t, err, ebbtide.ErrParameter)
	found, err := os.ReadDir(home)
	check(t, err)
	expect(t, "files that were left behind", len(found), 0)
}

func TestErrorsAreThoseOfOtherPackagesToo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seen")
	for _, open := range []func() error{
		func() error { _, err := ebbtide.OpenExisting(background, path); return err },
		func() error { _, err := ebbtide.OpenReader(background, path); return err },
		func() error { _, err := ebbtide.OpenHistory(path, ebbtide.Moment{}, false); return err },
	} {
		err := open()
		found := isError(t, err, ebbtide.ErrNotAFilter)
		expect(t, "its path", found.Path, path)
		expect(t, "fs.ErrNotExist", errors.Is(err, fs.ErrNotExist), true)
		expect(t, "fs.ErrExist", errors.Is(err, fs.ErrExist), false)
	}
	seen, err := ebbtide.Create(background, path, exact)
	check(t, err)
	_, err = ebbtide.Create(background, path, exact)
	isError(t, err, ebbtide.ErrExists)
	expect(t, "fs.ErrExist", errors.Is(err, fs.ErrExist), true)
	_, err = ebbtide.Open(background, path, "bloom capacity=5")
	isError(t, err, ebbtide.ErrMismatch)
	reader, err := ebbtide.OpenReader(background, path)
	check(t, err)
	// A reader has no method that writes, but what it is made of refuses it.
	_, err = (&ebbtide.Filter{Reader: *reader}).InsertString("a")
	isError(t, err, ebbtide.ErrUnsupported)
	check(t, reader.Close())
	check(t, seen.Close())
	_, err = seen.InsertString("a")
	isError(t, err, ebbtide.ErrClosed)
	expect(t, "fs.ErrClosed", errors.Is(err, fs.ErrClosed), true)
	isError(t, seen.Clear(), ebbtide.ErrClosed)
	_, err = seen.Stat()
	isError(t, err, ebbtide.ErrClosed)
}

func TestWrongValuesGiveOneClearErrorAndChangeNothing(t *testing.T) {
	seen, path := filter(t, hourly, noSync)
	before, err := seen.Digest()
	check(t, err)
	claim := func(lease time.Duration) error {
		_, err := seen.Claim([]byte("a"), lease)
		return err
	}
	future := time.Now().Add(1e6 * time.Hour)
	for _, test := range []struct {
		code ebbtide.Code
		call func() error
	}{
		{ebbtide.ErrArgument, func() error { return one(seen, ebbtide.At(time.UnixMicro(-1))) }},
		{ebbtide.ErrArgument, func() error { return one(seen, ebbtide.At(time.Time{})) }},
		{ebbtide.ErrTimeAhead, func() error { return one(seen, ebbtide.At(future)) }},
		// In microseconds it would wrap around to now.
		{ebbtide.ErrArgument, func() error { return one(seen, ebbtide.At(wrapping())) }},
		{ebbtide.ErrArgument, func() error { return one(seen, ebbtide.At(time.Unix(math.MaxInt64, 0))) }},
		{ebbtide.ErrArgument, func() error { return one(seen, ebbtide.DurableWithin(0)) }},
		{ebbtide.ErrArgument, func() error { return one(seen, ebbtide.DurableWithin(-time.Second)) }},
		{ebbtide.ErrArgument, func() error { return one(seen, ebbtide.DurableWithin(25*time.Hour)) }},
		{ebbtide.ErrUnsupported, func() error { return one(seen, ebbtide.Weight(2)) }},
		{ebbtide.ErrArgument, func() error { return claim(-time.Second) }},
		{ebbtide.ErrParameter, func() error { return claim(0) }},
		{ebbtide.ErrParameter, func() error { return claim(1e6 * time.Hour) }},
		{ebbtide.ErrUnsupported, func() error { _, err := seen.Remove([]byte("a")); return err }},
		{ebbtide.ErrUnsupported, func() error { _, err := seen.Estimate([]byte("a")); return err }},
		{ebbtide.ErrArgument, func() error { _, err := seen.SeenWithin([]byte("a"), -1); return err }},
		{ebbtide.ErrArgument, func() error { return seen.Backup("a\x00b") }},
		{ebbtide.ErrArgument, func() error { return ebbtide.Restore("a\x00b", path+"2") }},
		{ebbtide.ErrArgument, func() error { _, err := ebbtide.ShareOf(1, 0); return err }},
		{ebbtide.ErrArgument, func() error {
			_, err := ebbtide.Remake(nil, path+"2", exact, ebbtide.Share{})
			return err
		}},
		{ebbtide.ErrArgument, func() error {
			_, err := ebbtide.OpenReaderAt(background, path, ebbtide.MomentTime(time.UnixMicro(-1)))
			return err
		}},
		{ebbtide.ErrArgument, func() error {
			_, err := ebbtide.OpenHistory(path, ebbtide.MomentTime(time.Time{}), false)
			return err
		}},
		{ebbtide.ErrArgument, func() error {
			_, err := ebbtide.OpenHistory(path, ebbtide.MomentTime(wrapping()), false)
			return err
		}},
		{ebbtide.ErrArgument, func() error {
			_, err := ebbtide.OpenReaderAt(background, path, ebbtide.Moment{})
			return err
		}},
	} {
		isError(t, test.call(), test.code)
	}
	after, err := seen.Digest()
	check(t, err)
	expect(t, "the digest", after, before)
}

// wrapping returns a time 2^64 microseconds from now.
func wrapping() time.Time {
	now := time.Now()
	return time.Unix(now.Unix()+18446744073709, int64(now.Nanosecond())+551616000)
}

func one(seen *ebbtide.Filter, option ebbtide.CallOption) error {
	_, err := seen.InsertString("a", option)
	return err
}

func TestAnEndedContextIsTheError(t *testing.T) {
	seen, path := filter(t, exact, noSync)
	ended, cancel := context.WithCancel(background)
	cancel()
	for _, call := range []func() error{
		func() error { _, err := ebbtide.Open(ended, path, exact); return err },
		func() error { _, err := ebbtide.OpenReader(ended, path); return err },
		func() error { return seen.Sync(ended) },
		func() error { _, err := seen.AwaitClaim(ended, []byte("a"), time.Minute); return err },
	} {
		expect(t, "the error", errors.Is(call(), context.Canceled), true)
	}
	check(t, seen.Sync(background))
	live, stop := context.WithTimeout(background, time.Minute)
	defer stop()
	check(t, seen.Sync(live))
	again, err := ebbtide.Open(live, path, exact)
	check(t, err)
	check(t, again.Close())
}
