package ebbtide_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	ebbtide "github.com/ebbtide/ebbtide/go"
)

// command returns the program ebbtide: EBBTIDE_COMMAND, or what the checkout has built.
func command(t testing.TB) string {
	t.Helper()
	path := os.Getenv("EBBTIDE_COMMAND")
	if path == "" {
		path = filepath.Join("..", "target", "debug", "ebbtide")
	}
	if _, err := os.Stat(path); err != nil {
		t.Skip("there is no program ebbtide: set EBBTIDE_COMMAND")
	}
	return path
}

// run runs a command on this input to its end; it must succeed. It returns what it printed.
func run(t testing.TB, command *exec.Cmd, text string) string {
	t.Helper()
	command.Stdin = strings.NewReader(text)
	var errors strings.Builder
	command.Stderr = &errors
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s%s", command, err, out, errors.String())
	}
	return string(out)
}

func numbered(prefix string, count int) *ebbtide.Keys {
	keys := ebbtide.KeysOf()
	for at := 0; at < count; at++ {
		keys.AddString(fmt.Sprint(prefix, at))
	}
	return keys
}

func lines(prefix string, count int) string {
	var text strings.Builder
	for at := 0; at < count; at++ {
		fmt.Fprint(&text, prefix, at, "\n")
	}
	return text.String()
}

// missing returns how many of the keys are not in the filter.
func missing(t testing.TB, seen *ebbtide.Reader, prefix string, count int) int {
	t.Helper()
	found, err := seen.ContainsAll(numbered(prefix, count), nil)
	check(t, err)
	for _, there := range found {
		if there {
			count--
		}
	}
	return count
}

func TestTheCommandAndGoUseOneFilterAtOnce(t *testing.T) {
	const each = 2000
	tool := command(t)
	seen, path := filter(t, exact, noSync)
	var group sync.WaitGroup
	group.Add(1)
	go func() {
		defer group.Done()
		run(t, exec.Command(tool, "insert", path), lines("command", each))
	}()
	for at := 0; at < each; at++ {
		insert(t, seen, fmt.Sprint("go", at))
	}
	group.Wait()
	expect(t, "keys of the command", missing(t, &seen.Reader, "command", each), 0)
	answers := run(t, exec.Command(tool, "contains", path), lines("go", each))
	expect(t, "keys of Go", answers, strings.Repeat("1\n", each))
	digest, err := seen.Digest()
	check(t, err)
	expect(t, "the digest, open", digestOf(t, tool, path), digest)
	stat, err := seen.Stat()
	check(t, err)
	expect(t, "statistics", string(stat)+"\n", run(t, exec.Command(tool, "stat", "--json", path), ""))
	check(t, seen.Close())
	expect(t, "the digest, closed", digestOf(t, tool, path), digest)
	plan, err := ebbtide.Plan("fingerprint last=1M fpr=0.001")
	check(t, err)
	expect(t, "the plan", string(plan)+"\n", run(t, exec.Command(tool, "plan", "--json", "--kind",
		"fingerprint", "--last=1M", "--fpr=0.001"), ""))
}

func digestOf(t testing.TB, tool, path string) string {
	t.Helper()
	var printed struct{ Digest string }
	text := run(t, exec.Command(tool, "digest", "--json", path), "")
	check(t, json.Unmarshal([]byte(text), &printed))
	return printed.Digest
}

func TestAConsumerThatIsKilledAndRunAgainWritesEachLineOnce(t *testing.T) {
	home := t.TempDir()
	var text, expected strings.Builder
	seen := map[string]bool{}
	for at := 0; at < 20000; at++ {
		line := fmt.Sprint("line ", at*at%7919, "\n")
		text.WriteString(line)
		if !seen[line] {
			expected.WriteString(line)
		}
		seen[line] = true
	}
	from, to := filepath.Join(home, "input"), filepath.Join(home, "output")
	check(t, os.WriteFile(from, []byte(text.String()), 0o600))
	kills := 0
	for kill := 0; kill < 25; kill++ {
		process := worker(t, "consume", filepath.Join(home, "seen"), from, to)
		check(t, process.Start())
		time.Sleep(time.Duration(kill) * 2 * time.Millisecond)
		check(t, process.Process.Kill())
		if process.Wait() != nil {
			kills++
		}
	}
	check(t, worker(t, "consume", filepath.Join(home, "seen"), from, to).Run())
	written, err := os.ReadFile(to)
	check(t, err)
	t.Logf("%d kills", kills)
	expect(t, "the output", string(written) == expected.String(), true)
	expect(t, "kills before the end", kills > 5, true)
}

// streamer is a process that inserts without end, and how many of its inserts have returned.
type streamer struct {
	prefix   string
	process  *exec.Cmd
	returned int
}

// start starts a process that prints how many inserts have returned, and reads some of its lines.
func start(t testing.TB, prefix string, process *exec.Cmd, count int) *streamer {
	t.Helper()
	out, err := process.StdoutPipe()
	check(t, err)
	// The process waits when the pipe is full. A large one has room for the numbers of as many
	// inserts as the window has, and keys would leave it before they are asked for.
	const setSize = 1031 // F_SETPIPE_SZ
	_, _, failed := syscall.Syscall(syscall.SYS_FCNTL, out.(*os.File).Fd(), setSize, 4096)
	expect(t, "the size of a pipe", failed, syscall.Errno(0))
	check(t, process.Start())
	s := &streamer{prefix: prefix, process: process}
	for scanner := bufio.NewScanner(out); count > 0 && scanner.Scan(); count-- {
		s.returned, err = strconv.Atoi(scanner.Text())
		check(t, err)
	}
	return s
}

func (s *streamer) kill(t testing.TB) {
	t.Helper()
	check(t, s.process.Process.Kill())
	_ = s.process.Wait()
}

func TestNoInsertThatHasReturnedIsMissingAfterKills(t *testing.T) {
	rounds := 12
	if testing.Short() {
		rounds = 3
	}
	seen, path := filter(t, "age-partitioned last=1M fpr=0.00001", noSync)
	check(t, seen.Close())
	all := 0
	for round := 0; round < rounds; round++ {
		var streams []*streamer
		for number := 0; number < 3; number++ {
			prefix := fmt.Sprint(round, "-", number, "-")
			count := 1 + (round*7+number*13)%40
			streams = append(streams, start(t, prefix, worker(t, "stream", path, prefix), count))
		}
		for _, one := range streams {
			one.kill(t)
		}
		again, err := ebbtide.OpenExisting(background, path)
		check(t, err)
		for _, one := range streams {
			all += one.returned
			expect(t, one.prefix, missing(t, &again.Reader, one.prefix, one.returned), 0)
		}
		check(t, again.Close())
	}
	t.Logf("%d inserts had returned", all)
	expect(t, "the workers did something", all > 1000*rounds, true)
}

// cWorker compiles the worker in C of the library's own tests.
func cWorker(t testing.TB) string {
	t.Helper()
	flags, err := exec.Command("pkg-config", "--cflags", "--libs", "ebbtide-static").Output()
	if err != nil {
		t.Skip("pkg-config does not know ebbtide-static")
	}
	program := filepath.Join(t.TempDir(), "worker")
	arguments := []string{"-std=c11", "-D_GNU_SOURCE", "-o", program, "../capi/tests/c/worker.c"}
	arguments = append(arguments, strings.Fields(string(flags))...)
	out, err := exec.Command("gcc", arguments...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// feed gives keys to a process of the command until it is killed; fewer than the window has, so
// that no key that is asked for has left it.
func feed(in io.Writer, prefix string) {
	for at := 0; at < 100000; at++ {
		if _, err := fmt.Fprint(in, prefix, at, "\n"); err != nil {
			return
		}
	}
}

// insertsOf returns how many inserts a filter has had.
func insertsOf(t testing.TB, seen *ebbtide.Reader) uint64 {
	t.Helper()
	var stat struct{ Inserts uint64 }
	text, err := seen.Stat()
	check(t, err)
	check(t, json.Unmarshal(text, &stat))
	return stat.Inserts
}

// python returns whether its module is there.
func python() bool { return exec.Command("python3", "-c", "import ebbtide").Run() == nil }

const pythonStream = `
import ebbtide, sys
seen = ebbtide.open(sys.argv[1])
at = 0
while True:
    if at % 100 == 0: print(at, flush=True)
    seen.insert(sys.argv[2] + str(at)); at += 1
`

const pythonDigest = `
import ebbtide, sys
with ebbtide.Reader(sys.argv[1]) as seen: print(seen.digest().value)
`

func TestAllLanguagesUseOneFilterAndAreKilledAtRandom(t *testing.T) {
	rounds := 15
	if testing.Short() {
		rounds = 3
	}
	tool, inC, hasPython := command(t), cWorker(t), python()
	if !hasPython {
		t.Log("without Python: its module is not installed")
	}
	seen, path := filter(t, "age-partitioned last=1M fpr=0.00001", noSync)
	check(t, seen.Close())
	random := rand.New(rand.NewSource(20261127))
	all := map[string]int{}
	before := uint64(0)
	for round := 0; round < rounds; round++ {
		prefix := func(language string) string { return fmt.Sprint(language, round, "-") }
		count := func() int { return 1 + random.Intn(40) }
		inRust := exec.Command(tool, "insert", path)
		in, err := inRust.StdinPipe()
		check(t, err)
		check(t, inRust.Start())
		go feed(in, prefix("command"))
		streams := []*streamer{
			start(t, prefix("go"), worker(t, "stream", path, prefix("go")), count()),
			start(t, prefix("c"), exec.Command(inC, path, "stream", prefix("c"), "100"), count()),
		}
		if hasPython {
			stream := exec.Command("python3", "-c", pythonStream, path, prefix("python"))
			streams = append(streams, start(t, prefix("python"), stream, count()))
		}
		streams = append(streams, &streamer{prefix: prefix("command"), process: inRust})
		random.Shuffle(len(streams), func(a, b int) { streams[a], streams[b] = streams[b], streams[a] })
		for _, one := range streams {
			one.kill(t)
			time.Sleep(time.Duration(random.Intn(3000)) * time.Microsecond)
		}
		// What they have left: found by each, and the same for each.
		again, err := ebbtide.OpenExisting(background, path)
		check(t, err)
		inserts := insertsOf(t, &again.Reader)
		expect(t, "inserts of a round that the window has", inserts-before < 1000000, true)
		before = inserts
		for _, one := range streams {
			all[strings.TrimRight(one.prefix, "-0123456789")] += one.returned
			expect(t, one.prefix, missing(t, &again.Reader, one.prefix, one.returned), 0)
		}
		digest, err := again.Digest()
		check(t, err)
		digests := map[string]string{
			"the command": digestOf(t, tool, path),
			"C":           strings.TrimSpace(run(t, exec.Command(inC, path, "digest"), "")),
		}
		if hasPython {
			printed := run(t, exec.Command("python3", "-c", pythonDigest, path), "")
			digests["Python"] = strings.TrimSpace(printed)
		}
		for language, found := range digests {
			expect(t, fmt.Sprint("round ", round, ", the digest of ", language), found, digest)
		}
		check(t, again.Close())
	}
	t.Logf("inserts that had returned: %v", all)
	expect(t, "Go and C did something", all["go"] > 0 && all["c"] > 0, true)
}
