package guest

import (
	"encoding/binary"
	"io/fs"
	"time"
)

// coder writes or reads the fields of a message, in the order in which they are named. Each message names its fields
// once, for both directions, so that the two ends cannot differ. Strings travel as raw bytes: file names and command
// lines need not be UTF-8.
type coder struct {
	buf     []byte
	reading bool
	failed  bool
}

// Message is what can travel as a payload. Only this package has any.
type Message interface{ code(c *coder) }

func encode(m Message) []byte {
	c := coder{}
	m.code(&c)
	return c.buf
}

// decode fills m and reports whether the payload was exactly that.
func decode(payload []byte, m Message) bool {
	c := coder{buf: payload, reading: true}
	m.code(&c)
	return !c.failed && len(c.buf) == 0
}

func (c *coder) uint(v *uint64) {
	if !c.reading {
		c.buf = binary.AppendUvarint(c.buf, *v)
		return
	}
	x, n := binary.Uvarint(c.buf)
	if n <= 0 {
		c.failed, c.buf, *v = true, nil, 0
		return
	}
	*v, c.buf = x, c.buf[n:]
}

// signed numbers are folded so that small negative ones stay short.
func signed[T ~int | ~int64](c *coder, v *T) {
	u := uint64(int64(*v))<<1 ^ uint64(int64(*v)>>63)
	c.uint(&u)
	*v = T(int64(u>>1) ^ -int64(u&1))
}

func (c *coder) int64(v *int64) { signed(c, v) }

func (c *coder) ints(list ...*int) {
	for _, v := range list {
		signed(c, v)
	}
}

func (c *coder) durations(list ...*time.Duration) {
	for _, v := range list {
		signed(c, v)
	}
}

func (c *coder) mode(v *fs.FileMode) {
	u := uint64(*v)
	c.uint(&u)
	*v = fs.FileMode(u)
}

func (c *coder) bools(list ...*bool) {
	for _, v := range list {
		var u uint64
		if *v {
			u = 1
		}
		c.uint(&u)
		*v = u != 0
	}
}

// bytes copies when it reads: payloads are in buffers that are reused.
func (c *coder) bytes(v *[]byte) {
	n := uint64(len(*v))
	c.uint(&n)
	if !c.reading {
		c.buf = append(c.buf, *v...)
		return
	}
	*v = nil
	if n > uint64(len(c.buf)) {
		c.failed, c.buf = true, nil
		return
	}
	if n > 0 {
		*v = append([]byte(nil), c.buf[:n]...)
	}
	c.buf = c.buf[n:]
}

func str[T ~string](c *coder, v *T) {
	n := uint64(len(*v))
	c.uint(&n)
	if !c.reading {
		c.buf = append(c.buf, *v...)
		return
	}
	if n > uint64(len(c.buf)) {
		c.failed, c.buf, *v = true, nil, ""
		return
	}
	*v, c.buf = T(c.buf[:n]), c.buf[n:]
}

func (c *coder) strings(v *[]string) {
	n := uint64(len(*v))
	c.uint(&n)
	if c.reading {
		*v = nil
		if n > uint64(len(c.buf)) { // each takes a byte at least
			c.failed, c.buf = true, nil
			return
		}
		if n > 0 {
			*v = make([]string, n)
		}
	}
	for i := range *v {
		str(c, &(*v)[i])
	}
}
