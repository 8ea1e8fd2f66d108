// Package ebbtide answers "was this key seen in the last N minutes, or among the last N items?" in
// 18 to 34 bits a key, and continues exactly where it was after a restart or a crash.
//
//	seen, err := ebbtide.Open(ctx, "seen", "fingerprint window=10m fpr=0.001")
//	if err != nil {
//		return err
//	}
//	defer seen.Close()
//	answer, err := seen.CheckAndInsert([]byte("message 4711"))
//	if err == nil && answer == ebbtide.New {
//		fmt.Println("not seen in the last ten minutes")
//	}
//
// A filter is a directory. Programs in Go, Rust, Python, C and the command ebbtide may have one
// open at the same time. False positives are possible at the rate fpr; in the kinds with a window
// there are no false negatives inside the window.
//
// # Building
//
// The package calls the C library libebbtide, which pkg-config must know as ebbtide. With the build
// tag ebbtide_static it is linked statically (ebbtide-static), and the program needs no library at
// run time.
//
// # Specs and options
//
// A spec is a kind and its parameters in the spelling of the command line: "fingerprint window=10m
// fpr=0.001", "counting capacity=1000 counter-bits=8". [Window] and [Last] make the most common
// ones. Options of opening are [Option], those of one call [CallOption].
//
// # Goroutines
//
// Any number of goroutines may use a [Filter], a [Reader] or a [Batch] at the same time. One reads
// a [History]; others may ask for its position and close it. Close waits for the calls that are
// running, a [History.Wait] excepted, which returns false; later ones return [ErrClosed]. A call
// that waits, for a disk or for another process, occupies a thread of the operating system.
//
// # Cost
//
// A call costs some 80 ns more than in C, measured on a busy machine. [Keys]
// passes any number of keys in one call.
//
// # Durability
//
// An operation that has returned survives the death of the process (kill -9). A power cut may take
// the operations of the last interval, a second by default: see [WithDurability] and [Filter.Sync].
package ebbtide
