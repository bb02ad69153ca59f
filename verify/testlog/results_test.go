package testlog

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Results behave like an ordered map that remembers which failures were overruled.
func TestResultsAreAnOrderedMap(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var r Results
		want := map[string]Status{}
		var order []string
		failedOnce := map[string]bool{}
		for range rapid.IntRange(0, 300).Draw(t, "calls") {
			name := rapid.StringMatching(`[a-c]{0,4}`).Draw(t, "name")
			status := rapid.SampledFrom([]Status{Passed, Failed, Errored, Skipped, XFailed, "PASSED,"}).Draw(t, "status")
			old, named := want[name]
			if !named {
				order = append(order, name)
			}
			failedOnce[name] = failedOnce[name] || old == Failed || old == Errored
			want[name] = status
			r.set(name, status)
		}
		if r.Len() != len(order) {
			t.Fatalf("%d tests, want %d", r.Len(), len(order))
		}
		var names []string
		for name, status := range r.All() {
			names = append(names, name)
			if status != want[name] {
				t.Fatalf("All says %s for %q, want %s", status, name, want[name])
			}
			if got, ok := r.Status(name); !ok || got != status {
				t.Fatalf("Status(%q) = %s, %t", name, got, ok)
			}
			if over := failedOnce[name] && status != Failed && status != Errored; r.Overruled(name) != over {
				t.Fatalf("Overruled(%q) = %t", name, !over)
			}
		}
		if !slices.Equal(names, order) {
			t.Fatalf("order is %q, want %q", names, order)
		}
		if _, ok := r.Status("absent"); ok {
			t.Fatal("a test that was never set has a status")
		}
	})
}

func TestResolve(t *testing.T) {
	t.Parallel()
	var r Results
	r.set("f[log(x) y]", Passed)
	r.set("f[log(x) z]", XFailed)
	r.set("g[a]", Passed)
	r.set("g[b]", Skipped)
	r.set("h[a", Failed)
	for _, c := range []struct{ id, want string }{
		{"g[a]", "g[a]"},
		{"f[log(x)", "f[log(x) y]"}, // both pass, in different words
		{"g[", ""},                  // one of the two did not pass
		{"f[log(x)]", ""},           // the name is complete, so only an exact match counts
		{"f", ""},
		{"h[a", "h[a"},
		{"[", ""},
	} {
		got, ok, err := r.Resolve(c.id)
		if err != nil || got != c.want || ok != (c.want != "") {
			t.Errorf("Resolve(%q) = %q, %t, %v, want %q", c.id, got, ok, err, c.want)
		}
	}
	r.set(notText+"1", Passed)
	if _, _, err := r.Resolve("g["); !errors.Is(err, ErrMalformed) {
		t.Errorf("error %v, want ErrMalformed for a name that is no text", err)
	}
	if _, ok, err := r.Resolve("h[a"); !ok || err != nil {
		t.Errorf("an exact name needs no search: %t, %v", ok, err)
	}
}

func TestWorse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ a, b, want Status }{
		{"", Passed, Passed}, {Passed, Errored, Errored}, {Failed, Errored, Failed}, {Failed, Passed, Failed},
	} {
		if got := Worse(c.a, c.b); got != c.want {
			t.Errorf("Worse(%s, %s) = %s, want %s", c.a, c.b, got, c.want)
		}
	}
}

// A pass after a failure is noted as such by SWE-rebench V2's parsers, too.
func TestOverruledInRebench2(t *testing.T) {
	t.Parallel()
	parse, err := Lookup(Rebench2 + "parse_log_pytest")
	if err != nil {
		t.Fatal(err)
	}
	r, err := parse("FAILED t.py::a\nPASSED t.py::a\nPASSED t.py::b\n", Task{})
	if err != nil || !r.Overruled("t.py::a") || r.Overruled("t.py::b") {
		t.Errorf("%t, %t, %v", r.Overruled("t.py::a"), r.Overruled("t.py::b"), err)
	}
}
