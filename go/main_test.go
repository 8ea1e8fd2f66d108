package ebbtide_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ebbtide "github.com/ebbtide/ebbtide/go"
)

var background = context.Background()

const (
	exact  = "fingerprint last=100k fpr=0.000001"
	hourly = "time-limited window=1h fpr=0.000001"
	noSync = "durability=never"
)

// TestMain runs this program as a worker if a test started it so.
func TestMain(m *testing.M) {
	if action := os.Getenv("EBBTIDE_GO_WORKER"); action != "" {
		if err := work(action, os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// worker returns a command that runs this program as a worker.
func worker(t testing.TB, action string, arguments ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	check(t, err)
	command := exec.Command(self, arguments...)
	command.Env = append(os.Environ(), "EBBTIDE_GO_WORKER="+action)
	command.Stderr = os.Stderr
	return command
}

func work(action string, arguments []string) error {
	switch action {
	case "stream":
		return stream(arguments[0], arguments[1])
	case "consume":
		return consume(arguments[0], arguments[1], arguments[2])
	case "claim":
		return claimAndWait(arguments[0], arguments[1])
	}
	return errors.New("no such action: " + action)
}

// stream inserts keys without end, and prints how many there are, each time it has 100 more.
func stream(path, prefix string) error {
	seen, err := ebbtide.OpenExisting(background, path)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(os.Stdout)
	for at := 0; ; at++ {
		if at%100 == 0 {
			fmt.Fprintln(out, at)
			if err := out.Flush(); err != nil {
				return err
			}
		}
		if _, err := seen.InsertString(fmt.Sprint(prefix, at)); err != nil {
			return err
		}
	}
}

const (
	input  = 0
	output = 1
)

// consume writes each line of a file exactly once, however often it is killed.
func consume(path, from, to string) error {
	seen, err := ebbtide.Open(background, path, exact, ebbtide.WithOptions("hash-seed=7"))
	if err != nil {
		return err
	}
	defer seen.Close()
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	start, _, err := seen.Position(input)
	if err != nil {
		return err
	}
	length, _, err := seen.Position(output)
	if err != nil {
		return err
	}
	if err := out.Truncate(int64(length)); err != nil {
		return err
	}
	batch, err := seen.NewBatch()
	if err != nil {
		return err
	}
	var keys ebbtide.Keys
	var answers []ebbtide.Checked
	lines := strings.SplitAfter(string(text[start:]), "\n")
	for len(lines) > 1 {
		piece := lines[:min(20, len(lines)-1)]
		lines = lines[len(piece):]
		keys.Reset()
		for _, line := range piece {
			keys.AddString(line)
			start += uint64(len(line))
		}
		if answers, err = batch.CheckAndInsertAll(&keys, answers); err != nil {
			return err
		}
		for i, line := range piece {
			if answers[i] == ebbtide.New {
				if _, err := out.WriteAt([]byte(line), int64(length)); err != nil {
					return err
				}
				length += uint64(len(line))
			}
		}
		if err := batch.SetPosition(input, start); err != nil {
			return err
		}
		if err := batch.SetPosition(output, length); err != nil {
			return err
		}
		if err := batch.Commit(); err != nil {
			return err
		}
	}
	return nil
}

// claimAndWait claims a key for a second, says so, and waits to be killed.
func claimAndWait(path, key string) error {
	seen, err := ebbtide.OpenExisting(background, path)
	if err != nil {
		return err
	}
	claim, err := seen.Claim([]byte(key), time.Second)
	if err != nil {
		return err
	}
	fmt.Println(claim.State())
	select {}
}

func min(a, b int) int {
	if a < b {
		return a
	}
	return b
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func expect(t testing.TB, what string, found, expected any) {
	t.Helper()
	if found != expected {
		t.Fatalf("%s: expected %v, found %v", what, expected, found)
	}
}

// isError expects an error with this code, as errors.Is and errors.As find it.
func isError(t testing.TB, err error, code ebbtide.Code) *ebbtide.Error {
	t.Helper()
	var found *ebbtide.Error
	if !errors.Is(err, code) || !errors.As(err, &found) || found.Code != code {
		t.Fatalf("expected %q, found %v", code, err)
	}
	if found.Message == "" || strings.ContainsAny(found.Message, "\n\x00") {
		t.Fatalf("expected one sentence, found %q", found.Message)
	}
	return found
}

// filter returns a filter in a new directory, which is closed at the end of the test.
func filter(t testing.TB, spec string, options ...string) (*ebbtide.Filter, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "seen")
	option := ebbtide.WithOptions(strings.Join(options, " "))
	seen, err := ebbtide.Create(background, path, spec, option)
	check(t, err)
	t.Cleanup(func() { _ = seen.Close() })
	return seen, path
}

func contains(t testing.TB, seen *ebbtide.Reader, key string, options ...ebbtide.CallOption) bool {
	t.Helper()
	found, err := seen.ContainsString(key, options...)
	check(t, err)
	return found
}

func insert(t testing.TB, seen *ebbtide.Filter, key string, options ...ebbtide.CallOption) {
	t.Helper()
	inserted, err := seen.InsertString(key, options...)
	check(t, err)
	expect(t, key, inserted, true)
}
