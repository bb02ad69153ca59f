package guest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"testing"

	"pgregory.net/rapid"
)

func someFrame(t *rapid.T) frame {
	return frame{
		kind:    kind(rapid.IntRange(int(kindHello), int(kindAlive)).Draw(t, "kind")),
		id:      rapid.Uint32().Draw(t, "id"),
		payload: rapid.SliceOfN(rapid.Byte(), 0, 3000).Draw(t, "payload"),
		more:    rapid.Bool().Draw(t, "more"),
	}
}

// TestFrames: one side reads what the other has sent, whatever the sizes of the buffers.
func TestFrames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		frames := rapid.SliceOfN(rapid.Custom(someFrame), 1, 20).Draw(t, "frames")
		var wire bytes.Buffer
		s := newSender(&wire, rapid.Bool().Draw(t, "patient"))
		done := make(chan error, 1)
		go func() { done <- s.run() }()
		for _, f := range frames {
			if err := s.send(context.Background(), f); err != nil {
				t.Fatal(err)
			}
		}
		s.stop()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		in := bufio.NewReaderSize(&wire, rapid.IntRange(16, 5000).Draw(t, "buffer"))
		buf := make([]byte, rapid.IntRange(0, 2000).Draw(t, "payload buffer"))
		for _, want := range frames {
			got, err := readFrame(in, buf)
			if err != nil || got.kind != want.kind || got.id != want.id || !bytes.Equal(got.payload, want.payload) {
				t.Fatalf("got %v of %d bytes, %v; want %v of %d", got.kind, len(got.payload), err, want.kind, len(want.payload))
			}
		}
		if _, err := readFrame(in, buf); err != io.EOF {
			t.Fatalf("at the end: %v", err)
		}
	})
}

func TestBrokenFrames(t *testing.T) {
	for name, c := range map[string]struct {
		wire string
		want error
	}{
		"nothing":           {"", io.EOF},
		"half a header":     {"\x00\x00\x00", io.ErrUnexpectedEOF},
		"half a payload":    {"\x00\x00\x00\x05\x02\x00\x00\x00\x01abc", io.ErrUnexpectedEOF},
		"no payload at all": {"\x00\x00\x00\x05\x02\x00\x00\x00\x01", io.ErrUnexpectedEOF},
		"too large":         {"\x00\x10\x00\x01\x02\x00\x00\x00\x01", errFrame},
		"huge":              {"\xff\xff\xff\xff\x02\x00\x00\x00\x01", errFrame},
		"kind 0":            {"\x00\x00\x00\x00\x00\x00\x00\x00\x01", errFrame},
		"unknown kind":      {"\x00\x00\x00\x00\x63\x00\x00\x00\x01", errFrame},
		"an error message":  {"bwrap: No such file or directory\n", errFrame},
	} {
		if _, err := readFrame(bufio.NewReader(bytes.NewReader([]byte(c.wire))), nil); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func FuzzReadFrame(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x03\x02\x00\x00\x00\x01abc\x00\x00\x00\x00\x0a\x00\x00\x00\x00"))
	f.Add([]byte("\xff\xff\xff\xff\x02\x00\x00\x00\x01"))
	f.Fuzz(func(t *testing.T, wire []byte) {
		in := bufio.NewReader(bytes.NewReader(wire))
		var again bytes.Buffer
		out := bufio.NewWriter(&again)
		for {
			fr, err := readFrame(in, nil)
			if err != nil {
				break
			}
			if err := writeFrame(out, fr); err != nil {
				t.Fatal(err)
			}
		}
		if err := out.Flush(); err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(wire, again.Bytes()) {
			t.Errorf("%q was read as %q", wire, again.Bytes())
		}
	})
}
