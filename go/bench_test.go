package ebbtide_test

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"testing"

	ebbtide "github.com/ebbtide/ebbtide/go"
)

// key returns key number n, of 16 bytes, in the same memory each time.
func key(memory []byte, n uint64) []byte {
	binary.LittleEndian.PutUint64(memory, n)
	binary.LittleEndian.PutUint64(memory[8:], n*0x9e3779b97f4a7c15)
	return memory
}

const large = "fingerprint last=1M fpr=0.001"

func BenchmarkCheckAndInsertNew(b *testing.B) {
	seen, _ := filter(b, large, noSync)
	memory := make([]byte, 16)
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; n++ {
		if _, err := seen.CheckAndInsert(key(memory, uint64(n))); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkContains(b *testing.B) {
	seen, _ := filter(b, large, noSync)
	memory := make([]byte, 16)
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; n++ {
		if _, err := seen.Contains(key(memory, uint64(n))); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkContainsParallel(b *testing.B) {
	seen, _ := filter(b, large, noSync)
	var callers uint64
	b.RunParallel(func(run *testing.PB) {
		memory := make([]byte, 16)
		for n := atomic.AddUint64(&callers, 1) << 40; run.Next(); n++ {
			if _, err := seen.Contains(key(memory, n)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkCheckAndInsertNewParallel(b *testing.B) {
	seen, _ := filter(b, large, noSync)
	var callers uint64
	b.RunParallel(func(run *testing.PB) {
		memory := make([]byte, 16)
		for n := atomic.AddUint64(&callers, 1) << 40; run.Next(); n++ {
			if _, err := seen.CheckAndInsert(key(memory, n)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// Figures are for each key, also those of bulk operations.
func BenchmarkCheckAndInsertAllNew(b *testing.B) {
	for _, size := range []int{10, 100, 1000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			seen, _ := filter(b, large, noSync)
			memory := make([]byte, 16)
			var keys ebbtide.Keys
			var answers []ebbtide.Checked
			b.ReportAllocs()
			b.ResetTimer()
			for n := 0; n < b.N; n += size {
				keys.Reset()
				for at := 0; at < size; at++ {
					keys.Add(key(memory, uint64(n+at)))
				}
				var err error
				if answers, err = seen.CheckAndInsertAll(&keys, answers); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkInsertAllNew(b *testing.B) {
	seen, _ := filter(b, large, noSync)
	memory := make([]byte, 16)
	var keys ebbtide.Keys
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; n += 1000 {
		keys.Reset()
		for at := 0; at < 1000; at++ {
			keys.Add(key(memory, uint64(n+at)))
		}
		if _, err := seen.InsertAll(&keys); err != nil {
			b.Fatal(err)
		}
	}
}

// The least that a call of C costs.
func BenchmarkVersion(b *testing.B) {
	for n := 0; n < b.N; n++ {
		ebbtide.Version()
	}
}
