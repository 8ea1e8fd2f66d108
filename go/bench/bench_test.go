// Package bench compares a filter with what a Go program would use instead: a map with expiry, and
// a Bloom filter, which does not forget. `./run` runs it.
package bench

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bits-and-blooms/bloom/v3"
	ebbtide "github.com/ebbtide/ebbtide/go"
)

const window = 10 * time.Minute

// expected is how many keys are in the window, and in the figures of memory.
const expected = 1000000

// key returns key number n, of 16 bytes, in the same memory each time.
func key(memory []byte, n uint64) []byte {
	binary.LittleEndian.PutUint64(memory, n)
	binary.LittleEndian.PutUint64(memory[8:], n*0x9e3779b97f4a7c15)
	return memory
}

// expiring is a map whose keys expire: a mutex, and a sweep ten times in a window.
type expiring struct {
	mu    sync.Mutex
	seen  map[string]int64
	sweep int64
}

func newExpiring() *expiring {
	return &expiring{seen: map[string]int64{}, sweep: time.Now().Add(window / 10).UnixNano()}
}

func (m *expiring) checkAndInsert(key []byte) bool {
	now := time.Now().UnixNano()
	m.mu.Lock()
	defer m.mu.Unlock()
	if now > m.sweep {
		for old, at := range m.seen {
			if now-at > int64(window) {
				delete(m.seen, old)
			}
		}
		m.sweep = now + int64(window)/10
	}
	at, found := m.seen[string(key)]
	m.seen[string(key)] = now
	return !found || now-at > int64(window)
}

// lockedBloom is a Bloom filter that goroutines share.
type lockedBloom struct {
	mu   sync.Mutex
	seen *bloom.BloomFilter
}

func newBloom() *lockedBloom {
	return &lockedBloom{seen: bloom.NewWithEstimates(expected, 0.001)}
}

func (f *lockedBloom) checkAndInsert(key []byte) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.seen.TestAndAdd(key)
}

func open(b *testing.B) *ebbtide.Filter {
	b.Helper()
	path := filepath.Join(b.TempDir(), "seen")
	seen, err := ebbtide.Open(context.Background(), path, ebbtide.Window(window, 0.001))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { seen.Close() })
	return seen
}

func checkAndInsert(b *testing.B, seen *ebbtide.Filter) func([]byte) bool {
	return func(key []byte) bool {
		answer, err := seen.CheckAndInsert(key)
		if err != nil {
			b.Error(err)
		}
		return answer == ebbtide.New
	}
}

// fill calls with `count` new keys, from `start` on.
func fill(call func([]byte) bool, start, count uint64) {
	memory := make([]byte, 16)
	for n := start; n < start+count; n++ {
		call(key(memory, n))
	}
}

// The parts of each benchmark: one million keys are there, then each operation checks and inserts
// (new keys), or checks and inserts one of those (repeated keys).
func measure(b *testing.B, call func([]byte) bool) {
	fill(call, 0, expected)
	for name, start := range map[string]uint64{"new": 1 << 40, "repeated": 0} {
		b.Run(name, func(b *testing.B) {
			memory := make([]byte, 16)
			b.ReportAllocs()
			for n := 0; n < b.N; n++ {
				at := uint64(n)
				if start == 0 {
					at = at * 7919 % expected
				}
				call(key(memory, start+at))
			}
		})
	}
	b.Run("two-goroutines", func(b *testing.B) {
		var callers uint64
		b.SetParallelism(1)
		b.RunParallel(func(run *testing.PB) {
			memory := make([]byte, 16)
			for n := atomic.AddUint64(&callers, 1) << 44; run.Next(); n++ {
				call(key(memory, n))
			}
		})
	})
}

func BenchmarkMap(b *testing.B) { measure(b, newExpiring().checkAndInsert) }

func BenchmarkBloom(b *testing.B) { measure(b, newBloom().checkAndInsert) }

func BenchmarkFilter(b *testing.B) { measure(b, checkAndInsert(b, open(b))) }

// One call of C for a hundred keys; the figures are for each key.
func BenchmarkFilterInHundreds(b *testing.B) {
	seen := open(b)
	fill(checkAndInsert(b, seen), 0, expected)
	b.Run("new", func(b *testing.B) {
		memory := make([]byte, 16)
		var keys ebbtide.Keys
		var answers []ebbtide.Checked
		b.ReportAllocs()
		for n := 0; n < b.N; n += 100 {
			keys.Reset()
			for at := 0; at < 100; at++ {
				keys.Add(key(memory, 1<<40+uint64(n+at)))
			}
			var err error
			if answers, err = seen.CheckAndInsertAll(&keys, answers); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// heap returns the bytes of Go's heap that are in use.
func heap() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// Bytes of memory for each of one million keys.
func BenchmarkMemory(b *testing.B) {
	report := func(b *testing.B, bytes uint64) {
		b.ReportMetric(float64(bytes)/expected, "B/key")
		b.ReportMetric(0, "ns/op")
	}
	b.Run("Map", func(b *testing.B) {
		before := heap()
		seen := newExpiring()
		fill(seen.checkAndInsert, 0, expected)
		report(b, heap()-before)
		runtime.KeepAlive(seen)
	})
	b.Run("Bloom", func(b *testing.B) { report(b, uint64(newBloom().seen.Cap())/8) })
	b.Run("Filter", func(b *testing.B) {
		seen := open(b)
		fill(checkAndInsert(b, seen), 0, expected)
		text, err := seen.Stat()
		if err != nil {
			b.Fatal(err)
		}
		var stat struct {
			Memory uint64 `json:"memory_bytes"`
		}
		if err := json.Unmarshal(text, &stat); err != nil || stat.Memory == 0 {
			b.Fatal("no figure of memory in ", string(text))
		}
		report(b, stat.Memory)
	})
}
