//go:build linux

package inside

import (
	"bytes"
	"os"
	"testing"

	"pgregory.net/rapid"
)

// TestRecorder: head, tail and size are those of the whole stream, however it was divided into writes.
func TestRecorder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		head, tail := rapid.IntRange(0, 50).Draw(t, "head"), rapid.IntRange(0, 50).Draw(t, "tail")
		r := &recorder{most: head, limit: tail}
		var all []byte
		for _, part := range rapid.SliceOf(rapid.SliceOfN(rapid.Byte(), 0, 70)).Draw(t, "parts") {
			r.Write(part)
			all = append(all, part...)
			if len(r.head)+len(r.ring) > head+tail {
				t.Fatalf("%d bytes are held", len(r.head)+len(r.ring))
			}
		}
		got := r.stop()
		wantHead := all[:min(head, len(all))]
		rest := all[len(wantHead):]
		wantTail := rest[max(0, len(rest)-tail):]
		if !bytes.Equal(got.Head, wantHead) || !bytes.Equal(got.Tail, wantTail) || got.Size != int64(len(all)) {
			t.Fatalf("head %d, tail %d of %q: got %q, %q, %d", head, tail, all, got.Head, got.Tail, got.Size)
		}
		r.Write([]byte("late"))
		if again := r.stop(); again.Size != got.Size || len(again.Tail) > 0 {
			t.Fatalf("after the end: %+v", again)
		}
	})
}

// TestDrain: what a command has written is recorded, even if the goroutine that records it has not run yet.
func TestDrain(t *testing.T) {
	from, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	if _, err := to.WriteString("all of it"); err != nil {
		t.Fatal(err)
	}
	p, r := &processes{}, &recorder{most: 100}
	p.drain(r, from) // the writer is still open, but writes nothing more
	to.Close()
	p.drain(r, from)
	p.record(r, from)
	from.Close()
	p.drain(r, from)
	if got := string(r.stop().Head); got != "all of it" {
		t.Errorf("recorded %q", got)
	}
}
