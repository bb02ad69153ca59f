package guest

import (
	"encoding/binary"
	"io/fs"
)

// coder encodes or decodes the fields of a message, in the order of the calls. Each message lists its fields once,
// for both directions, so that encoder and decoder cannot disagree. Strings are raw bytes, because file names and
// command lines need not be UTF-8.
type coder struct {
	buf     []byte
	reading bool
	failed  bool
}

// Message is the payload of a frame. Only this package implements it.
type Message interface{ code(c *coder) }

func encode(m Message) []byte {
	c := coder{}
	m.code(&c)
	return c.buf
}

// decode decodes payload into m and reports whether it was valid and contained nothing else.
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

// signed uses zigzag encoding, which keeps small negative numbers short.
func signed[T ~int | ~int64](c *coder, list ...*T) {
	for _, v := range list {
		u := uint64(int64(*v))<<1 ^ uint64(int64(*v)>>63)
		c.uint(&u)
		*v = T(int64(u>>1) ^ -int64(u&1))
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

// str copies when decoding, because the buffers of payloads are reused.
func str[T ~string | ~[]byte](c *coder, v *T) {
	n := uint64(len(*v))
	c.uint(&n)
	if !c.reading {
		c.buf = append(c.buf, *v...)
		return
	}
	if n > uint64(len(c.buf)) {
		c.failed, c.buf, n = true, nil, 0
	}
	*v, c.buf = T(string(c.buf[:n])), c.buf[n:]
}

func (c *coder) strings(v *[]string) {
	n := uint64(len(*v))
	c.uint(&n)
	if c.reading {
		*v = nil
		if n > uint64(len(c.buf)) { // each item takes at least a byte
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
