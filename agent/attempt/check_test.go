package attempt_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deepswe/agent/attempt"
	"deepswe/env"
)

// lines reads "NAME ok" and "NAME bad".
func lines(log []byte) attempt.Tests {
	tests := attempt.Tests{}
	for line := range strings.Lines(string(log)) {
		if name, status, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			tests[name] = status == "ok"
		}
	}
	return tests
}

// TestCheck: the tests run without the patch and with it, and say what it did.
func TestCheck(t *testing.T) {
	const patch = "diff --git a/hello.txt b/hello.txt\n--- a/hello.txt\n+++ b/hello.txt\n@@ -1 +1 @@\n-goodbye\n+hello\n"
	a, p, snapshot := setup(t, nil)
	for command, want := range map[string]struct {
		verdict attempt.Verdict
		fixed   []string
		broke   []string
	}{
		"grep -q hello hello.txt && echo a ok || { echo a bad; false; }": {attempt.Verified, []string{"a"}, nil},
		"grep -q hello hello.txt": {attempt.Verified, nil, nil},
		"grep -q goodbye hello.txt && echo a ok || { echo a bad; false; }":                   {attempt.Broken, nil, []string{"a"}},
		"grep -q goodbye hello.txt":                                                          {attempt.Broken, nil, nil},
		"echo a ok; grep -q hello hello.txt && echo b ok && echo c bad || echo b bad; false": {attempt.Verified, []string{"b"}, nil},
		"echo a ok; echo b bad; false":                                                       {attempt.Unverified, nil, nil},
		"touch mark && test $(ls | grep -c mark) = 1":                                        {attempt.Unverified, nil, nil},
		"grep -q goodbye hello.txt && { echo a bad; false; } || true":                        {attempt.Verified, []string{"a"}, nil},
	} {
		t.Run(command, func(t *testing.T) {
			c, err := a.Check(t.Context(), env.Task{ID: "t"}, snapshot, []byte(patch), command, lines)
			if err != nil {
				t.Fatal(err)
			}
			if c.Verdict != want.verdict || !cmp.Equal(c.Fixed, want.fixed) || !cmp.Equal(c.Broke, want.broke) {
				t.Errorf("%s, fixed %q, broke %q: want %+v", c.Verdict, c.Fixed, c.Broke, want)
			}
		})
	}
	if n := p.open.Load(); n != 0 {
		t.Errorf("%d sandboxes are left", n)
	}
	if _, err := a.Check(t.Context(), env.Task{ID: "t"}, snapshot, []byte("no patch"), "true", lines); err == nil {
		t.Error("a patch that does not apply was tested")
	}
}
