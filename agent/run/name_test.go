package run

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestPathName(t *testing.T) {
	for id, want := range map[string]string{
		"django__django-11099":         "django__django-11099",
		"Project-MONAI__MONAI-1.2+b@c": "Project-MONAI__MONAI-1.2+b@c",
		"000001.0":                     "000001.0",
		"":                             "%",
		"%":                            "%25",
		".":                            "%2E",
		"..":                           "%2E.",
		"../../etc":                    "%2E.%2F..%2Fetc",
		"a/b":                          "a%2Fb",
		"a%2Fb":                        "a%252Fb",
		"a b":                          "a%20b",
		"qwen3:32b":                    "qwen3:32b",
		"back\\slash\x00\n":            "back%5Cslash%00%0A",
		"ü":                            "%C3%BC",
		strings.Repeat("a", 255):       strings.Repeat("a", 255),
	} {
		if got := PathName(id); got != want {
			t.Errorf("PathName(%q) = %q, want %q", id, got, want)
		}
	}
}

// The generated ids are much alike, so that a collision would be found.
func TestPathNamesAreDifferentAndStayInside(t *testing.T) {
	letters := rapid.StringOfN(rapid.SampledFrom([]rune("a%2FfE./\\-~ü\x00\x7f")), -1, 8, -1)
	repeated := rapid.Custom(func(t *rapid.T) string {
		part := strings.Repeat(letters.Draw(t, "part"), rapid.IntRange(0, 300).Draw(t, "times"))
		return letters.Draw(t, "begin") + part + letters.Draw(t, "end")
	})
	id := rapid.OneOf(letters, repeated)
	rapid.Check(t, func(t *rapid.T) {
		a, b := id.Draw(t, "a"), id.Draw(t, "b")
		if (a == b) != (PathName(a) == PathName(b)) {
			t.Fatalf("%q and %q: %q and %q", a, b, PathName(a), PathName(b))
		}
		name := PathName(a)
		if name == "" || len(name) > 255 || name[0] == '.' ||
			strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '/' || r == '\\' }) {
			t.Fatalf("%q: name %q", a, name)
		}
		// The name of one id may be another id. That one needs another name, or both would share a directory.
		if name != a && PathName(name) == name && len(name) < 255 {
			t.Fatalf("%q and its name %q have the same name", a, name)
		}
	})
}

func TestLongPathNames(t *testing.T) {
	long := strings.Repeat("x", 300)
	a, b := PathName(long), PathName(long+"x")
	if a == b || len(a) != 255 || !strings.HasPrefix(a, "xxx") {
		t.Errorf("%q and %q", a, b)
	}
	if PathName(a) == a {
		t.Errorf("the name of a long id is another id's: %q", a)
	}
}

func TestNamesThatDifferInCaseOnly(t *testing.T) {
	if err := CheckNames([]string{"a", "b", "a", "a/b", "a%2fb", "ü", "Ü"}); err != nil {
		t.Error(err)
	}
	if err := CheckNames([]string{"django-1", "x", "Django-1"}); err == nil ||
		!strings.Contains(err.Error(), `"Django-1" and "django-1"`) {
		t.Errorf("got %v", err)
	}
}
