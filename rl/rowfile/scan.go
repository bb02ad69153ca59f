package rowfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"

	"deepswe/rl"
)

// scanner scans one JSON value. It exists because arrays of numbers make up nearly all of a file, and it parses
// them several times faster than encoding/json, into slices of exactly the right length.
type scanner struct {
	b []byte
	i int
}

var errEnd = errors.New("unexpected end of JSON")

// within adds to an error the field in which it arose.
func within(field string, err error) error {
	if err == nil {
		return nil
	}
	fe, ok := errors.AsType[*rl.FieldError](err)
	switch {
	case !ok:
		return &rl.FieldError{Field: field, Problem: err.Error()}
	case fe.Field == "":
		fe.Field = field
	case fe.Field[0] == '[':
		fe.Field = field + fe.Field
	default:
		fe.Field = field + "." + fe.Field
	}
	return fe
}

// peek skips white space and returns the next byte, or 0 at the end.
func (s *scanner) peek() byte {
	for s.i < len(s.b) {
		switch c := s.b[s.i]; c {
		case ' ', '\t', '\r', '\n':
			s.i++
		default:
			return c
		}
	}
	return 0
}

func (s *scanner) expect(c byte) error {
	switch got := s.peek(); {
	case got == c:
		s.i++
		return nil
	case s.i >= len(s.b):
		return errEnd
	default:
		return fmt.Errorf("byte %d of the line is %q, not %q", s.i+1, got, c)
	}
}

// object calls member for each key, with the scanner at its value, which member has to consume.
func (s *scanner) object(member func(key string) error) error {
	return s.sequence('{', '}', func(int) error {
		raw, err := s.raw()
		if err != nil {
			return err
		}
		var key string
		if err := json.Unmarshal(raw, &key); err != nil {
			return fmt.Errorf("%.40s is not a key", raw)
		}
		if err := s.expect(':'); err != nil {
			return err
		}
		return within(key, member(key))
	})
}

// array calls element with the scanner at each element, which it has to consume. null counts as an empty array.
func (s *scanner) array(element func() error) error {
	if s.null() {
		return nil
	}
	return s.sequence('[', ']', func(k int) error { return within(fmt.Sprintf("[%d]", k), element()) })
}

// sequence calls element with the scanner at each element between two brackets.
func (s *scanner) sequence(open, end byte, element func(k int) error) error {
	if err := s.expect(open); err != nil {
		return err
	}
	for k := 0; s.peek() != end; k++ {
		if k > 0 {
			if err := s.expect(','); err != nil {
				return err
			}
		}
		if err := element(k); err != nil {
			return err
		}
	}
	s.i++
	return nil
}

func (s *scanner) null() bool {
	s.peek()
	if bytes.HasPrefix(s.b[s.i:], []byte("null")) {
		s.i += len("null")
		return true
	}
	return false
}

// end returns an error if anything but white space is left.
func (s *scanner) end() error {
	if s.peek(); s.i < len(s.b) {
		return fmt.Errorf("unexpected text after the object, from byte %d of the line", s.i+1)
	}
	return nil
}

// raw consumes any value and returns its bytes.
func (s *scanner) raw() ([]byte, error) {
	s.peek()
	start, depth := s.i, 0
	for s.i < len(s.b) {
		switch c := s.b[s.i]; c {
		case '"':
			if !s.skipString() {
				return nil, errEnd
			}
		case '{', '[':
			depth++
			s.i++
		case '}', ']', ',', ':', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return s.valid(start)
			}
			if c == '}' || c == ']' {
				depth--
			}
			s.i++
		default:
			s.i++
			continue
		}
		if depth == 0 {
			return s.valid(start)
		}
	}
	if depth > 0 || start == s.i {
		return nil, errEnd
	}
	return s.valid(start)
}

func (s *scanner) valid(start int) ([]byte, error) {
	raw := s.b[start:s.i]
	if !json.Valid(raw) {
		return nil, fmt.Errorf("%.40q is not JSON", raw)
	}
	return raw, nil
}

// skipString consumes a string; it returns false if the string does not end.
func (s *scanner) skipString() bool {
	for s.i++; s.i < len(s.b); s.i++ {
		switch s.b[s.i] {
		case '\\':
			s.i++
		case '"':
			s.i++
			return true
		}
	}
	return false
}

// scalars consumes an array of scalars, each parsed by parse. It is the hot path, because most of a file consists
// of such arrays. null counts as an empty array.
func scalars[T any](s *scanner, parse func([]byte) (T, error)) ([]T, error) {
	if s.null() {
		return nil, nil
	}
	if err := s.expect('['); err != nil {
		return nil, err
	}
	if s.peek() == ']' {
		s.i++
		return nil, nil
	}
	length := bytes.IndexByte(s.b[s.i:], ']')
	if length < 0 {
		return nil, errEnd
	}
	values := make([]T, bytes.Count(s.b[s.i:s.i+length], []byte(","))+1)
	for k := range values {
		s.peek()
		start := s.i
		for s.i < len(s.b) && s.b[s.i] != ',' && s.b[s.i] != ']' && s.b[s.i] > ' ' {
			s.i++
		}
		v, err := parse(s.b[start:s.i])
		values[k] = v
		separator := byte(',')
		if k == len(values)-1 {
			separator = ']'
		}
		switch {
		case err == nil && s.i < len(s.b) && s.b[s.i] == separator:
			s.i++
			continue
		case err == nil:
			err = s.expect(separator)
		}
		if err != nil {
			return nil, within(fmt.Sprintf("[%d]", k), err)
		}
	}
	return values, nil
}

// parseID parses an integer from 0 to the largest token ID.
func parseID(text []byte) (int32, error) {
	v := uint64(0)
	for _, c := range text {
		if c -= '0'; c > 9 {
			v = math.MaxUint32
			break
		}
		v = v*10 + uint64(c)
	}
	if v > math.MaxInt32 || len(text) == 0 || len(text) > 10 || text[0] == '0' && len(text) > 1 {
		return 0, fmt.Errorf("%.20q is not a token id", text)
	}
	return int32(v), nil
}

// parseNumber parses a finite JSON number. ParseFloat alone would also accept .5, +1, 0x1p-2 and NaN.
func parseNumber(text []byte) (float64, error) {
	if !isJSONNumber(text) {
		return 0, fmt.Errorf("%.20q is not a number", text)
	}
	v, err := strconv.ParseFloat(string(text), 64)
	if err != nil {
		return 0, fmt.Errorf("%.20q is not a finite number", text)
	}
	return v, nil
}

// isJSONNumber reports whether text matches -? (0 | [1-9][0-9]*) (. [0-9]+)? ([eE] [+-]? [0-9]+)?
func isJSONNumber(text []byte) bool {
	i := 0
	digits := func() bool {
		start := i
		for i < len(text) && text[i] >= '0' && text[i] <= '9' {
			i++
		}
		return i > start
	}
	if len(text) > 0 && text[0] == '-' {
		i++
	}
	start := i
	if !digits() || text[start] == '0' && i > start+1 {
		return false
	}
	if i < len(text) && text[i] == '.' {
		if i++; !digits() {
			return false
		}
	}
	if i < len(text) && (text[i] == 'e' || text[i] == 'E') {
		if i++; i < len(text) && (text[i] == '+' || text[i] == '-') {
			i++
		}
		if !digits() {
			return false
		}
	}
	return i == len(text)
}
