package wire

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// spell returns the fields of a message, one in each line.
func spell(message []byte) (string, error) {
	var b strings.Builder
	err := Each(message, func(field protowire.Number, value []byte, number uint64) error {
		fmt.Fprintf(&b, "%d %q %d\n", field, value, number)
		return nil
	})
	return b.String(), err
}

// Fields are read in the order in which they were appended. A field of another kind has neither bytes nor a number.
func TestEach(t *testing.T) {
	t.Parallel()
	message := AppendBytes(nil, 1, "a text")
	message = AppendNumber(message, 2, 300)
	message = protowire.AppendFixed64(protowire.AppendTag(message, 3, protowire.Fixed64Type), 7)
	message = AppendBytes(message, 1, []byte{0, 255})
	whole, err := spell(message)
	if want := "1 \"a text\" 0\n2 \"\" 300\n3 \"\" 0\n1 \"\\x00\\xff\" 0\n"; err != nil || whole != want {
		t.Errorf("%v, got\n%swant\n%s", err, whole, want)
	}
	for n := range message {
		if part, err := spell(message[:n]); err == nil && !strings.HasPrefix(whole, part) {
			t.Errorf("the first %d bytes are %q", n, part)
		}
	}
	if _, err := spell(message[:len(message)-1]); err == nil {
		t.Error("a message that is cut off was read")
	}
}

// The first error ends the reading.
func TestEachEnds(t *testing.T) {
	t.Parallel()
	enough := errors.New("enough")
	fields := 0
	err := Each(AppendNumber(AppendNumber(nil, 1, 1), 2, 2), func(protowire.Number, []byte, uint64) error {
		fields++
		return enough
	})
	if !errors.Is(err, enough) || fields != 1 {
		t.Errorf("%v after %d fields", err, fields)
	}
}

// Whatever a server sends is read or refused, and no more bytes are read than there are.
func FuzzEach(f *testing.F) {
	f.Add(AppendNumber(AppendBytes(nil, 1, "x"), 2, 3))
	f.Add([]byte{0x0b, 0x0c})
	f.Fuzz(func(t *testing.T, message []byte) {
		read := 0
		if err := Each(message, func(_ protowire.Number, value []byte, _ uint64) error {
			read += 1 + len(value)
			return nil
		}); err == nil && read > len(message) {
			t.Errorf("%d bytes were read of %d", read, len(message))
		}
	})
}
