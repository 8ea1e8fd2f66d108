// Command lines is the example of README.md.
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"time"

	ebbtide "github.com/ebbtide/ebbtide/go"
)

// Prints the lines of the input that were not there in the last ten minutes, over all runs.
func run() error {
	seen, err := ebbtide.Open(context.Background(), "seen", ebbtide.Window(10*time.Minute, 0.001))
	if err != nil {
		return err
	}
	defer seen.Close()
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		answer, err := seen.CheckAndInsert(lines.Bytes())
		if err != nil {
			return err
		}
		if answer == ebbtide.New {
			fmt.Println(lines.Text())
		}
	}
	return lines.Err()
}

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}
