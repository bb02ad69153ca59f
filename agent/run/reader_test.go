package run

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"deepswe/env/disk"
)

func mustRead(t *testing.T, path string) *Reader {
	t.Helper()
	r, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func mustWrite(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// A run can be read while it is written: as far as it has got, and without taking its lock.
func TestReadALiveRun(t *testing.T) {
	path := t.TempDir()
	d := mustCreate(t, path)
	failed := Outcome{Job: Job{"t", "g", 0}, Err: "no sandbox", Tries: 3}
	done := Outcome{Job: Job{"t", "g", 1}, Result: solved(), Tries: 1}
	for _, o := range []Outcome{failed, done} {
		if err := d.Record(o); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Note("checkpoint", map[string]int{"step": 4}); err != nil {
		t.Fatal(err)
	}
	r := mustRead(t, path)
	if holder, alive := r.Writer(); alive != disk.Alive || holder.PID != os.Getpid() {
		t.Errorf("written by %+v, %v", holder, alive)
	}
	if r.Manifest.Kind != Eval || r.Last.IsZero() || len(r.Outcomes) != 2 || !r.Outcomes[0].Failed() ||
		r.Outcomes[1].Reward == nil {
		t.Errorf("read %+v", r)
	}
	// The writer goes on. A failure that was retried gets its last outcome, and what was read before is unchanged.
	healed := Outcome{Job: failed.Job, Result: solved(), Tries: 1}
	if err := d.Record(healed); err != nil {
		t.Fatal(err)
	}
	if again := mustRead(t, path); len(again.Outcomes) != 2 || again.Outcomes[0].Failed() ||
		len(r.Outcomes) != 2 || !r.Outcomes[0].Failed() {
		t.Errorf("read %+v, then %+v", r.Outcomes, again.Outcomes)
	}
	mustClose(t, d)
	if holder, alive := r.Writer(); alive != disk.Dead {
		t.Errorf("written by %+v, %v, after it was closed", holder, alive)
	}
}

// If a process ended without closing its run, the run's lock has no living owner.
func TestReadARunOfADeadProcess(t *testing.T) {
	const dirEnv = "RUN_TEST_DIR"
	if path := os.Getenv(dirEnv); path != "" {
		mustCreate(t, path)
		os.Exit(0) // without closing anything
	}
	path := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), dirEnv+"="+path)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if holder, alive := mustRead(t, path).Writer(); alive != disk.Dead || holder.PID == os.Getpid() {
		t.Errorf("written by %+v, %v", holder, alive)
	}
}

// However much of the last line is missing, the lines before it are read, and no file is changed.
func TestReadATornRun(t *testing.T) {
	path := t.TempDir()
	d := mustCreate(t, path)
	for i := range 2 {
		if err := d.Record(Outcome{Job: Job{"t", "g", i}, Result: solved(), Tries: 1}); err != nil {
			t.Fatal(err)
		}
	}
	mustClose(t, d)
	events := filepath.Join(path, eventsFile)
	whole, err := os.ReadFile(events)
	if err != nil {
		t.Fatal(err)
	}
	for cut := range whole {
		mustWrite(t, events, string(whole[:cut]))
		if r := mustRead(t, path); len(r.Outcomes) != strings.Count(string(whole[:cut]), "\n") {
			t.Errorf("cut at %d: %d outcomes", cut, len(r.Outcomes))
		}
		if after, err := os.ReadFile(events); err != nil || len(after) != cut {
			t.Fatalf("cut at %d: reading left %d bytes, %v", cut, len(after), err)
		}
	}
	mustWrite(t, events, "{\"torn\n"+string(whole))
	if _, err := Read(path); !errors.Is(err, disk.ErrDamaged) {
		t.Errorf("a damaged first line: %v", err)
	}
	mustWrite(t, events, strings.Replace(string(whole), `"t"`, `"u"`, 1))
	if _, err := Read(path); !errors.Is(err, disk.ErrDamaged) {
		t.Errorf("a line that is not the one that was written: %v", err)
	}
}

func TestReadOnlyRun(t *testing.T) {
	path := t.TempDir()
	d := mustCreate(t, path)
	if _, err := d.Attempt(Job{"t", "g", 0}); err != nil {
		t.Fatal(err)
	}
	mustClose(t, d)
	for _, name := range []string{manifestFile, eventsFile, lockFile} {
		if err := os.Chmod(filepath.Join(path, name), 0o444); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(path, 0o555); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(path, 0o755)
	r := mustRead(t, path)
	if dirs, err := r.AttemptDirs(); err != nil || len(dirs) != 1 || dirs[0] != r.AttemptDir(Job{"t", "g", 0}) {
		t.Errorf("attempts %v, %v", dirs, err)
	}
	if os.Geteuid() == 0 {
		return // root may write everywhere
	}
	below := filepath.Join(path, "below")
	for _, err := range []error{second(Open(path, Eval)), second(Create(below, Manifest{Kind: Eval}))} {
		if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "--out") {
			t.Errorf("written: %v", err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// A directory that is not a run of this format and kind is refused with what to do, and is never changed.
func TestOtherRuns(t *testing.T) {
	for name, c := range map[string]struct {
		manifest   string
		read, open string // in the error, empty for none
	}{
		"of another kind": {`{"version":2,"kind":"grade","id":"x"}`, "", "a run of grade, not of eval"},
		"older": {
			`{"version":1,"kind":"eval","program":"deepswe 0.1","flags":{"tasks":"t"}}`, "", "by an older program (deepswe 0.1)",
		},
		"newer": {`{"version":3,"kind":"eval","program":"deepswe 9"}`, "by deepswe 9, in format 3",
			"a newer deepswe"},
		"no manifest":    {`{"name":"something else"}`, "is not the manifest of a run", "is not the manifest of a run"},
		"torn manifest":  {`{"version":2,`, manifestFile, manifestFile},
		"empty manifest": {``, manifestFile, manifestFile},
	} {
		path := t.TempDir()
		mustWrite(t, filepath.Join(path, manifestFile), c.manifest)
		r, err := Read(path)
		if (err == nil) != (c.read == "") || err != nil && !strings.Contains(err.Error(), c.read) {
			t.Errorf("%s: read: %v", name, err)
		}
		if name == "older" && (r.Manifest.ID != filepath.Base(path) || !json.Valid(r.Manifest.Settings)) {
			t.Errorf("%s: %+v", name, r.Manifest)
		}
		_, err = Open(path, Eval)
		if err == nil || !strings.Contains(err.Error(), c.open) ||
			errors.Is(err, ErrOther) != json.Valid([]byte(c.manifest)) {
			t.Errorf("%s: opened: %v", name, err)
		}
		if _, err := Create(path, Manifest{Kind: Eval}); !errors.Is(err, ErrExists) {
			t.Errorf("%s: created: %v", name, err)
		}
		if after, err := os.ReadFile(filepath.Join(path, manifestFile)); err != nil || string(after) != c.manifest {
			t.Errorf("%s: the manifest is now %s, %v", name, after, err)
		}
	}
	if _, err := Read(t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("read nothing: %v", err)
	}
}

func TestAttemptDirsInOrder(t *testing.T) {
	d := mustCreate(t, t.TempDir())
	defer mustClose(t, d)
	var want []string
	for _, group := range []string{"a", "b/c"} {
		for i := range 11 {
			dir, err := d.Attempt(Job{"t", group, i})
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, dir)
		}
	}
	if got, err := mustRead(t, d.Path()).AttemptDirs(); err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := d.Attempt(Job{"t", "A", 0}); err == nil || !strings.Contains(err.Error(), "upper and lower case") {
		t.Errorf("a name that differs in case only: %v", err)
	}
}
