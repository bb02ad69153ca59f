package ranking

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"deepswe/agent"
	"deepswe/agent/llm"
	"deepswe/env/disk"
	"deepswe/env/testkit"
	"deepswe/env/testkit/images"
	"deepswe/verify/rank"
)

// childDir is set for a process that ranks the candidates in a directory until it is killed; childRound is its number.
const (
	childDir   = "DEEPSWE_TEST_RANK"
	childRound = "DEEPSWE_TEST_ROUND"
)

// rankChild is that process. For every judgement and test it logs a line with its round and the patch.
func rankChild(dir string) int {
	err := func() error {
		round := os.Getenv(childRound)
		image := filepath.Join(dir, "image-"+round)
		if err := os.Mkdir(image, 0o755); err != nil {
			return err
		}
		for name, text := range map[string]string{"number.py": "0\n", "round": round + "\n"} {
			if err := os.WriteFile(filepath.Join(image, name), []byte(text), 0o644); err != nil {
				return err
			}
		}
		p, err := images.Open(image)
		if err != nil {
			return err
		}
		defer p.Close()
		log := filepath.Join(dir, "log")
		judge := &logging{log: log, round: round}
		note := "echo $(cat round) tested $(head -n2 num*.py) >> " + log + "; sleep 0.03; "
		r, err := assemble(filepath.Join(dir, "candidates"), filepath.Join(dir, "rank"), p, judge, note)
		if err != nil {
			return err
		}
		defer r.Store.Close()
		_, err = r.Run(context.Background())
		return err
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// logging is a judge that is slow and logs its calls.
type logging struct {
	reading
	log, round string
}

func (l *logging) Spell(ctx context.Context, q agent.Request, top int) (llm.Spelling, error) {
	f, err := os.OpenFile(l.log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return llm.Spelling{}, err
	}
	defer f.Close()
	_, score, _ := strings.Cut(q.Messages[1].Content, "# score:")
	score, _, _ = strings.Cut(score, "\n")
	if _, err := fmt.Fprintf(f, "%s judged %s\n", l.round, score); err != nil {
		return llm.Spelling{}, err
	}
	time.Sleep(10 * time.Millisecond)
	return l.reading.Spell(ctx, q, top)
}

// finished returns what is on record, in the words of the log.
func finished(t *testing.T, dir string) map[string]bool {
	t.Helper()
	words := map[string][2]string{} // of a patch: judged, tested
	source, err := Read(filepath.Join(dir, "candidates"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range source.Tasks[0].Entries {
		patch, err := e.ReadPatch()
		if err != nil {
			t.Fatal(err)
		}
		var added []string
		for line := range strings.Lines(string(patch)) {
			if text, ok := strings.CutPrefix(strings.TrimSpace(line), "+"); ok && !strings.HasPrefix(text, "+") {
				added = append(added, text)
			}
		}
		if len(added) > 1 {
			words[rank.PatchKey(patch)] = [2]string{
				"judged " + strings.TrimPrefix(added[1], "# score:"), "tested " + strings.Join(added[:2], " "),
			}
		}
	}
	done := map[string]bool{}
	for file, word := range map[string]int{judgementsFile: 0, resultsFile: 1} {
		err := disk.ReadLog(filepath.Join(dir, "rank", file), func(line []byte) error {
			var k struct{ Patch string }
			err := json.Unmarshal(line, &k)
			if text := words[k.Patch][word]; text != "" {
				done[text] = true
			}
			return err
		})
		if err != nil && !os.IsNotExist(err) && !strings.Contains(err.Error(), "no such file") {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "rank", baselinesFile)); err == nil {
		err := disk.ReadLog(filepath.Join(dir, "rank", baselinesFile), func([]byte) error {
			done["tested 0"] = true
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return done
}

// logged returns the number of lines in the log.
func logged(dir string) int {
	log, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil {
		return 0 // nothing has begun
	}
	return strings.Count(string(log), "\n")
}

// A ranking that is killed again and again comes to the same choice, and repeats nothing that was on record.
func TestKilled(t *testing.T) {
	t.Parallel()
	kills := 4
	if os.Getenv("DEEPSWE_TEST_FULL") != "" {
		kills = 20
	}
	// Killed processes may leave children that still write while the test ends.
	dir, err := os.MkdirTemp("", "deepswe-rank-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	testkit.WriteFile(t, filepath.Join(dir, "tmp", "README"), "the sandboxes' own\n")
	if err := os.CopyFS(filepath.Join(dir, "candidates"), os.DirFS(candidates(t))); err != nil {
		t.Fatal(err)
	}
	// A copy of a patch is judged again, which the log could not tell from repeating a judgement.
	if err := os.Remove(filepath.Join(dir, "candidates", "number", "2.diff")); err != nil {
		t.Fatal(err)
	}
	for i := range 3 * kills { // wrong ones, so that there is work left whenever a process is killed
		file := filepath.Join(dir, "candidates", "number", fmt.Sprintf("%d.diff", 10+i))
		testkit.WriteFile(t, file, patch(10+i, .1+.001*float64(i)))
	}
	round := 0
	start := func() *exec.Cmd {
		round++
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childDir+"="+dir, fmt.Sprintf("%s=%d", childRound, round),
			"TMPDIR="+filepath.Join(dir, "tmp"))
		cmd.Stderr = t.Output()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	before := map[int]map[string]bool{} // by round: what was on record when it began
	random := rand.New(rand.NewPCG(1, 2))
	working := 0 // how many were killed before they ended
	for range kills {
		before[round+1] = finished(t, dir)
		enough := logged(dir) + 1 + random.IntN(3)
		cmd := start()
		ended := make(chan struct{})
		go func() {
			_ = cmd.Wait()
			close(ended)
		}()
		for running := true; running && logged(dir) < enough; {
			select {
			case <-ended:
				running = false
			case <-time.After(time.Millisecond):
			}
		}
		time.Sleep(time.Duration(random.IntN(20)) * time.Millisecond) // so that the kill hits work in progress
		if cmd.Process.Kill() == nil {
			working++
		}
		<-ended
	}
	if t.Logf("%d of %d were killed at work", working, kills); working == 0 {
		t.Error("every process ended before it was killed")
	}
	before[round+1] = finished(t, dir)
	if err := start().Wait(); err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(log)) {
		number, what, _ := strings.Cut(strings.TrimSpace(line), " ")
		n := 0
		if _, err := fmt.Sscan(number, &n); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if before[n][what] {
			t.Errorf("round %d did again what was on record: %s", n, what)
		}
	}
	var killed, whole Report
	if err := disk.ReadJSON(filepath.Join(dir, "rank", ReportFile), &killed); err != nil {
		t.Fatal(err)
	}
	r, _, _ := newRanking(t, filepath.Join(dir, "candidates"), filepath.Join(t.TempDir(), "rank"))
	r.Tests.Command = killed.Results[0].Scripts[0].Command
	if _, err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := disk.ReadJSON(r.Store.Path(ReportFile), &whole); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(whole.Results, killed.Results); diff != "" {
		t.Errorf("after %d kills (-whole +killed):\n%s", kills, diff)
	}
}
