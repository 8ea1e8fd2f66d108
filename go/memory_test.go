package ebbtide_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	ebbtide "github.com/ebbtide/ebbtide/go"
)

func TestCallsAllocateNothing(t *testing.T) {
	if isRace {
		t.Skip("the race detector allocates")
	}
	seen, _ := filter(t, hourly, noSync)
	key, text := []byte("message 4711"), "message 4711"
	keys := ebbtide.KeysOf("a", "b", "c")
	answers := make([]ebbtide.Checked, 3)
	for name, call := range map[string]func() error{
		"CheckAndInsert":       func() error { _, err := seen.CheckAndInsert(key); return err },
		"CheckAndInsertString": func() error { _, err := seen.CheckAndInsertString(text); return err },
		"with options": func() error {
			_, err := seen.InsertString(text, ebbtide.At(noon), ebbtide.WithoutSync())
			return err
		},
		"Contains":          func() error { _, err := seen.Contains(key); return err },
		"InsertAll":         func() error { _, err := seen.InsertAll(keys); return err },
		"CheckAndInsertAll": func() error { _, err := seen.CheckAndInsertAll(keys, answers); return err },
	} {
		expect(t, name, testing.AllocsPerRun(1000, func() {
			if err := call(); err != nil {
				t.Fatal(err)
			}
		}), 0.0)
	}
}

// resident returns the bytes of memory that this process has, and how many files it has open.
func resident(t testing.TB) (bytes, files int) {
	t.Helper()
	runtime.GC()
	text, err := os.ReadFile("/proc/self/statm")
	check(t, err)
	var pages, resident int
	_, err = fmt.Sscan(string(text), &pages, &resident)
	check(t, err)
	open, err := os.ReadDir("/proc/self/fd")
	check(t, err)
	return resident * os.Getpagesize(), len(open)
}

func TestNothingIsLeftOfTenThousandOpenings(t *testing.T) {
	rounds := 10000
	if testing.Short() || isRace {
		rounds = 1000
	}
	path := filepath.Join(t.TempDir(), "seen")
	seen, err := ebbtide.Create(background, path, exact, ebbtide.WithDurability(ebbtide.Never))
	check(t, err)
	defer seen.Close()
	use := func(rounds int) {
		for round := 0; round < rounds; round++ {
			again, err := ebbtide.Open(background, path, exact)
			check(t, err)
			batch, err := again.NewBatch()
			check(t, err)
			check(t, batch.Insert([]byte("a")))
			_, err = again.InsertString("b")
			check(t, err)
			mine, err := again.Claim([]byte(fmt.Sprint(round)), time.Minute)
			check(t, err)
			check(t, mine.Release())
			check(t, again.Close())
			_, err = again.InsertString("b")
			isError(t, err, ebbtide.ErrClosed)
			_, err = ebbtide.Create(background, path, exact)
			isError(t, err, ebbtide.ErrExists)
		}
	}
	use(rounds / 10)
	before, filesBefore := resident(t)
	use(rounds)
	after, filesAfter := resident(t)
	expect(t, "open files", filesAfter, filesBefore)
	const most = 8 << 20
	if after > before+most {
		t.Fatalf("expected at most %d bytes more than %d, found %d", most, before, after)
	}
	t.Logf("%d openings: %d KiB, then %d KiB", rounds, before>>10, after>>10)
}

func TestWhatWasForgottenIsClosedByTheCollector(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seen")
	func() {
		seen, err := ebbtide.Create(background, path, exact, ebbtide.WithOptions("keep-log=1h"))
		check(t, err)
		batch, err := seen.NewBatch()
		check(t, err)
		check(t, batch.Insert([]byte("a")))
		insert(t, seen, "b")
		_, err = ebbtide.OpenHistory(path, ebbtide.Moment{}, true)
		check(t, err)
	}()
	// A filter that somebody has open cannot be restored from.
	for limit := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		runtime.GC()
		err := ebbtide.Restore(path, path+"-copy")
		if err == nil {
			break
		}
		isError(t, err, ebbtide.ErrLocked)
		if time.Now().After(limit) {
			t.Fatal("the filter is still open")
		}
	}
	copy, err := ebbtide.OpenReader(background, path+"-copy")
	check(t, err)
	expect(t, "a", contains(t, copy, "a"), false)
	expect(t, "b", contains(t, copy, "b"), true)
	check(t, copy.Close())
	left, err := filepath.Glob("/dev/shm/ebbtide-*")
	check(t, err)
	for _, file := range left {
		expect(t, file, strings.Contains(file, filepath.Base(path)), false)
	}
}
