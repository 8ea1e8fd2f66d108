package ebbtide_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	ebbtide "github.com/ebbtide/ebbtide/go"
)

// temporary returns a path for the filter of an example.
func temporary() (path string, remove func()) {
	home, err := os.MkdirTemp("", "ebbtide-example-*")
	if err != nil {
		log.Fatal(err)
	}
	return filepath.Join(home, "seen"), func() { os.RemoveAll(home) }
}

func Example() {
	path, remove := temporary()
	defer remove()

	seen, err := ebbtide.Open(context.Background(), path, ebbtide.Window(10*time.Minute, 0.001))
	if err != nil {
		log.Fatal(err)
	}
	defer seen.Close()
	for _, message := range []string{"4711", "4712", "4711"} {
		answer, err := seen.CheckAndInsertString(message)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(message, answer)
	}
	// Output:
	// 4711 new
	// 4712 new
	// 4711 present
}

func ExampleFilter_Claim() {
	path, remove := temporary()
	defer remove()
	seen, err := ebbtide.Open(context.Background(), path, ebbtide.Window(24*time.Hour, 1e-6))
	if err != nil {
		log.Fatal(err)
	}
	defer seen.Close()

	handle := func(id string, work func() error) error {
		claim, err := seen.Claim([]byte(id), 30*time.Second)
		if err != nil {
			return err
		}
		defer claim.Release() // Does nothing after Confirm.
		switch claim.State() {
		case ebbtide.Seen:
			return nil // It was done before.
		case ebbtide.InProgress:
			return fmt.Errorf("ask again at %v", claim.Until())
		}
		if err := work(); err != nil {
			return err // A retry is not taken for a repetition.
		}
		return claim.Confirm()
	}
	fmt.Println(handle("order 17", func() error { return errors.New("the payment failed") }))
	fmt.Println(handle("order 17", func() error { fmt.Println("paid"); return nil }))
	fmt.Println(handle("order 17", func() error { fmt.Println("paid again"); return nil }))
	// Output:
	// the payment failed
	// paid
	// <nil>
	// <nil>
}

func ExampleFilter_CheckAndInsertAll() {
	path, remove := temporary()
	defer remove()
	seen, err := ebbtide.Open(context.Background(), path, ebbtide.Last(1000000, 0.001))
	if err != nil {
		log.Fatal(err)
	}
	defer seen.Close()

	var keys ebbtide.Keys // Used again for every piece of a stream.
	var answers []ebbtide.Checked
	for _, piece := range [][]string{{"a", "b"}, {"b", "c"}} {
		keys.Reset()
		for _, key := range piece {
			keys.AddString(key)
		}
		if answers, err = seen.CheckAndInsertAll(&keys, answers); err != nil {
			log.Fatal(err)
		}
		fmt.Println(piece, answers)
	}
	// Output:
	// [a b] [new new]
	// [b c] [present new]
}

func ExampleFilter_NewBatch() {
	path, remove := temporary()
	defer remove()
	const partition = 3
	seen, err := ebbtide.Open(context.Background(), path, ebbtide.Last(1000000, 0.001))
	if err != nil {
		log.Fatal(err)
	}
	defer seen.Close()

	next, _, err := seen.Position(partition) // How far the filter has read; then from there.
	if err != nil {
		log.Fatal(err)
	}
	batch, err := seen.NewBatch()
	if err != nil {
		log.Fatal(err)
	}
	defer batch.Close()
	answers, err := batch.CheckAndInsertAll(ebbtide.KeysOf("a", "b", "a"), nil)
	if err != nil {
		log.Fatal(err)
	}
	// Where the new messages go to is written here.
	if err := batch.SetPosition(partition, next+3); err != nil {
		log.Fatal(err)
	}
	if err := batch.Commit(); err != nil { // All of it, or nothing.
		log.Fatal(err)
	}
	position, _, err := seen.Position(partition)
	fmt.Println(answers, position, err)
	// Output:
	// [new new present] 3 <nil>
}

func ExampleOpenHistory() {
	path, remove := temporary()
	defer remove()
	seen, err := ebbtide.Open(context.Background(), path, ebbtide.Last(1000, 0.001),
		ebbtide.WithKeptLog(24*time.Hour), ebbtide.WithDurability(ebbtide.Always))
	if err != nil {
		log.Fatal(err)
	}
	defer seen.Close()
	for _, key := range []string{"a", "b"} {
		if _, err := seen.InsertString(key); err != nil {
			log.Fatal(err)
		}
	}

	operations, err := ebbtide.OpenHistory(path, ebbtide.Moment{}, false)
	if err != nil {
		log.Fatal(err)
	}
	defer operations.Close()
	for operations.Next() { // Wait(ctx) waits for more.
		one := operations.Operation()
		b, err := seen.KeyHash([]byte("b"))
		fmt.Println(one.Kind == ebbtide.OperationInsert, one.Hash == b, err)
	}
	if err := operations.Err(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// true false <nil>
	// true true <nil>
}

func ExampleError() {
	_, err := ebbtide.OpenExisting(context.Background(), "/nowhere/seen")
	var failed *ebbtide.Error
	if errors.As(err, &failed) {
		fmt.Println(errors.Is(err, ebbtide.ErrNotAFilter), errors.Is(err, os.ErrNotExist), failed.Path)
	}
	// Output:
	// true true /nowhere/seen
}
