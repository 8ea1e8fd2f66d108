package ebbtide

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"
)

func TestAnOpeningThatWasAbandonedIsClosedWhenItSucceeds(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	path := filepath.Join(t.TempDir(), "seen")
	begin, made := make(chan struct{}), make(chan *handle, 1)
	go cancel()
	_, err := opened(ctx, func() (*handle, error) {
		// As while another process recovers the filter.
		<-begin
		seen, err := Create(context.Background(), path, Last(100, 0.001))
		if err != nil {
			return nil, err
		}
		made <- seen.h
		return seen.h, nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	close(begin)
	h := <-made
	for limit := time.Now().Add(time.Minute); h.enter() == nil; {
		h.leave()
		if time.Now().After(limit) {
			t.Fatal("the filter is still open")
		}
		time.Sleep(time.Millisecond)
	}
}
