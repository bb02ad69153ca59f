package cli

import (
	"bytes"
	"testing"
)

func TestVisible(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]string{
		"+plain\ttext\r\nμ 日本 é\n":        "+plain\ttext\r\nμ 日本 é\n",
		"\x1b]0;TITLE\a\x1b[2J":           "^[]0;TITLE^G^[[2J",
		"a\rb\x00\x7f\b":                  "a^Mb^@^?^H",
		"\u009b31m\x9b31m":                "<U+009B>31m<9B>31m",
		"\u202egnp.exe\u2066\u200b\ufeff": "<U+202E>gnp.exe<U+2066><U+200B><U+FEFF>",
	} {
		if got := string(Visible([]byte(said))); got != want {
			t.Errorf("%q is shown as %q, want %q", said, got, want)
		}
	}
}

// What is no terminal gets the bytes.
func TestWriteText(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	const patch = "+\x1b[2J\xff\n"
	if err := WriteText(&out, []byte(patch)); err != nil || out.String() != patch {
		t.Errorf("%q, %v", out.String(), err)
	}
}
