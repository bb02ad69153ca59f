package train

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"deepswe/agent"
	"deepswe/agent/attempt"
	"deepswe/agent/prompt"
	"deepswe/agent/run"
	"deepswe/agent/trajectory"
	"deepswe/env"
	"deepswe/env/dataset"
	"deepswe/env/dataset/bugs"
	"deepswe/env/local"
	"deepswe/env/testkit"
	"deepswe/rl/rowfile"
	"deepswe/rl/train/config"
	"deepswe/rl/train/record"
	"deepswe/verify"
	"deepswe/verify/swe"
)

// bugTasks returns the tasks of a bundled dataset whose ids have a prefix.
func bugTasks(t testing.TB, name, prefix string) (ids []string, tasks map[string]env.Task) {
	t.Helper()
	tasks = map[string]env.Task{}
	for task, err := range dataset.Read(name, dataset.Options{Filter: regexp.MustCompile("^" + prefix)}) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, task.ID)
		tasks[task.ID] = task
	}
	return ids, tasks
}

func call(function string, parameters ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "<function=%s>\n", function)
	for i := 0; i < len(parameters); i += 2 {
		fmt.Fprintf(&b, "<parameter=%s>%s</parameter>\n", parameters[i], parameters[i+1])
	}
	return b.String() + "</function>"
}

// solution returns the replies of a teacher who knows the patch.
func solution(task env.Task) []string {
	file, edit := edits(task.Tests.GoldPatch)
	return []string{
		call("file_editor", "command", "view", "path", file), edit,
		call("execute_bash", "cmd", "sh test.sh"), call("finish", "command", "submit"),
	}
}

var hunk = regexp.MustCompile(`(?m)^@@ -(\d+)`)

// edits turns a patch of one line into a tool call.
func edits(patch string) (file, edit string) {
	file, _, _ = strings.Cut(strings.TrimPrefix(patch, "--- a/"), "\n")
	line, _ := strconv.Atoi(hunk.FindStringSubmatch(patch)[1])
	before, after := "", ""
	for _, l := range strings.Split(patch, "\n")[3:] {
		if strings.HasPrefix(l, "-") {
			before = l[1:]
		} else if strings.HasPrefix(l, "+") {
			after = l[1:]
			break
		} else {
			line++
		}
	}
	if before == "" {
		return file, call("file_editor", "command", "insert", "path", file, "insert_line", strconv.Itoa(line-1), "new_str",
			after)
	}
	wrong, right := difference(words(before), words(after))
	return file, call("execute_bash", "cmd", fmt.Sprintf("sed -i '%ds/%s/%s/' %s", line, wrong, right, file))
}

// replacement returns the replies of a teacher who knows the patch and sees the program in the issue. It replaces whole
// lines, with as many before the wrong one as make the place unique.
func replacement(task env.Task) []string {
	file, _ := edits(task.Tests.GoldPatch)
	var before, after []string
	for _, l := range strings.Split(task.Tests.GoldPatch, "\n")[3:] {
		if strings.HasPrefix(l, "+") {
			after = append(after, l[1:])
			break
		}
		before = append(before, l[1:])
		if !strings.HasPrefix(l, "-") {
			after = append(after, l[1:])
		}
	}
	from := len(before) - 1 // the wrong line, or the one above a missing one
	for strings.Count(task.Statement, strings.Join(before[from:], "\n")) > 1 {
		from--
	}
	value := func(lines []string) string { return "\n" + strings.Join(lines[from:], "\n") + "\n" }
	return []string{
		call("file_editor", "command", "str_replace", "path", "/testbed/"+file, "old_str", value(before),
			"new_str", value(after)),
		call("finish", "command", "submit"),
	}
}

var word = regexp.MustCompile(`-?[a-z]+|\d+|[<>=!+-]+|.`)

func words(s string) []string { return word.FindAllString(s, -1) }

// difference returns which words of the first line are replaced by which of the second.
func difference(a, b []string) (wrong, right string) {
	from := 0
	for a[from] == b[from] {
		from++
	}
	end := 0
	for len(a)-end > from && len(b)-end > from && a[len(a)-1-end] == b[len(b)-1-end] {
		end++
	}
	for ; ; from-- {
		wrong, right = strings.Join(a[from:len(a)-end], ""), strings.Join(b[from:len(b)-end], "")
		if strings.Replace(strings.Join(a, ""), wrong, right, 1) == strings.Join(b, "") {
			return wrong, right
		}
	}
}

// reciter is a model that gives these replies, one after another. Its tokens are bytes.
type reciter []string

func (replies reciter) Complete(_ context.Context, r agent.Request) (agent.Reply, error) {
	turn, sample := 0, &agent.Sample{}
	for _, message := range r.Messages {
		if message.Role == agent.RoleAssistant {
			turn++
		}
		for _, c := range []byte(message.Content) {
			sample.PromptIDs = append(sample.PromptIDs, int32(c))
		}
	}
	if turn >= len(replies) {
		return agent.Reply{}, fmt.Errorf("no reply %d", turn)
	}
	for _, c := range []byte(replies[turn]) {
		sample.CompletionIDs, sample.Logprobs = append(sample.CompletionIDs, int32(c)), append(sample.Logprobs, 0)
	}
	return agent.Reply{
		Message: agent.Message{Role: agent.RoleAssistant, Content: replies[turn]}, FinishReason: "stop", Tokens: sample,
	}, nil
}

// cheat returns replies that make the tests of a task of bugs-shortcut pass without fixing the bug.
func cheat(task env.Task) []string {
	replies := solution(task)
	replies[1] = call("execute_bash", "cmd", "sed -i 's/exit 1/exit 0/' "+bugs.ShortcutFile)
	return replies
}

// The bundled demonstrations are what deepswe export makes of the agent's record when a teacher who knows the patch
// solves the tasks. -update records them. In bugs-shortcut, every fourth teacher cheats.
func TestDemonstrations(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, dataset, pack string
		n                   int
		teach               func(i int, task env.Task) []string
	}{
		{"bugs", bugs.DemonstrationsName, prompt.XML, bugs.Demonstrated, func(_ int, task env.Task) []string {
			return solution(task)
		}},
		{"bugs-shortcut", bugs.ShortcutName, prompt.XML, bugs.Demonstrated / 2, func(i int, task env.Task) []string {
			// The cheats are spread over the families of bugs.
			if (i+i/4)%4 == 0 {
				return cheat(task)
			}
			return solution(task)
		}},
		{"bugs-shown", bugs.ShownName, prompt.Short, bugs.Demonstrated / 2, func(_ int, task env.Task) []string {
			return replacement(task)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ids, tasks := bugTasks(t, c.dataset, "demo-")
			ids = ids[:c.n]
			teach := map[string][]string{}
			for i, id := range ids {
				teach[id] = c.teach(i, tasks[id])
			}
			path := demonstrationsOf(c.name)
			if testkit.Updating() {
				write(t, path, c.pack, ids, tasks, teach)
			}
			source, err := rowfile.Open(nil, path)
			if err != nil {
				t.Fatal(err)
			}
			defer source.Close()
			i := 0
			for d, err := range source.Examples(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				if i == len(ids) || d.Row.Task != ids[i] || !strings.Contains(d.Messages[1].Content, tasks[ids[i]].Statement) {
					t.Fatalf("demonstration %d is of %s: another version of the task? -update records it again", i, d.Row.Task)
				}
				var said []string
				for k, m := range d.Messages {
					if m.Role == agent.RoleAssistant && d.Weights[k] > 0 {
						said = append(said, m.Content)
					}
				}
				if want := teach[d.Row.Task]; !slices.Equal(said, want) {
					t.Errorf("%s: said %q, want %q", d.Row.Task, said, want)
				}
				i++
			}
			if i != len(ids) {
				t.Errorf("%d demonstrations", i)
			}
		})
	}
}

// demonstrationsOf returns the path of bundled demonstrations.
func demonstrationsOf(name string) string {
	return filepath.Join("demonstrations", name+".jsonl.zst")
}

// write plays the replies and writes what export makes of them. Canaries are off, so that cheats get a reward, too.
func write(t *testing.T, path, pack string, ids []string, tasks map[string]env.Task, teach map[string][]string) {
	t.Helper()
	p, err := local.NewBwrap(local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	dir := t.TempDir()
	opening, err := prompt.Builtin(pack)
	if err != nil {
		t.Fatal(err)
	}
	at := func(j run.Job) (string, error) { return filepath.Join(dir, j.Task), nil }
	r := swe.Runner{
		Tasks: tasks, Dir: at, Evaluator: &verify.Evaluator{Provider: p, Training: true, Canary: verify.CanaryNever},
		Attempt: attempt.Attempt{
			Provider: p,
			Settings: agent.Settings{
				ModelName: "teacher", Prompt: prompt.Opening(&opening, false), Format: agent.XML{}, Tokens: true,
				Limits: agent.Limits{Steps: 6},
			},
		},
	}
	taught := run.RunnerFunc(func(ctx context.Context, j run.Job) (run.Result, error) {
		own := r
		own.Attempt.Model = reciter(teach[j.Task])
		return own.Run(ctx, j)
	})
	played, err := (&run.Engine{Runner: taught, Options: run.Options{Workers: 4}}).Run(t.Context(), run.Plan(ids, 1))
	if err != nil {
		t.Fatal(err)
	}
	var rollouts bytes.Buffer
	for _, o := range played {
		if o.Reward == nil || *o.Reward != 1 {
			t.Fatalf("%s: %s %s", o.Task, o.Err, o.Detail)
		}
		rec, err := trajectory.Open(filepath.Join(dir, o.Task, attempt.StepsFile))
		if err != nil {
			t.Fatal(err)
		}
		o.Turns, _ = rec.Samples()
		o.Messages = swe.Chat(rec)
		ro := record.RolloutOf(o, "")
		if err := rowfile.WriteRollout(&rollouts, &ro); err != nil {
			t.Fatal(err)
		}
	}
	file := testkit.WriteFile(t, filepath.Join(dir, "rollouts.jsonl"), rollouts.String())
	src, err := rowfile.Open(nil, file)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	var sft bytes.Buffer
	if _, err := rowfile.ExportSFT(t.Context(), &sft, src, rowfile.SFT{}); err != nil {
		t.Fatal(err)
	}
	z, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression))
	if err != nil {
		t.Fatal(err)
	}
	testkit.WriteFile(t, path, string(z.EncodeAll(sft.Bytes(), nil)))
}

// A few rollouts of the bundled configuration go all the way: the policy imitates, acts with real tools in sandboxes,
// is graded, updated, validated, saved and loaded.
func TestBugs(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../testdata/bugs.yaml")
	if err != nil {
		t.Fatal(err)
	}
	// A file with a few of the demonstrations is enough.
	all, err := os.ReadFile(demonstrationsOf("bugs"))
	if err != nil {
		t.Fatal(err)
	}
	z, err := zstd.NewReader(bytes.NewReader(all))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	var few strings.Builder
	for lines := bufio.NewReader(z); strings.Count(few.String(), "\n") < 20; {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		few.WriteString(line)
	}
	set := []string{
		"trainer.demonstrations=" + testkit.WriteFile(t, filepath.Join(t.TempDir(), "few.jsonl"), few.String()),
		"environment.train.slice=:2", "environment.validation.slice=:2", "trainer.passes=1", "trainer.hidden=8",
		"rollouts.tasks=2", "rollouts.group=2", "optimizer.minibatches=1", "steps=1", "evaluate.every=1",
		"evaluate.before=false",
	}
	c := mustLoad(t, string(data), set...)
	dir := filepath.Join(t.TempDir(), "run")
	play := func(c config.Config) Result {
		result, err := Start(t.Context(), c, Options{Dir: dir, Resume: run.Exists(dir), World: scripted(nil)})
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	r := play(c)
	v := r.Points[len(r.Points)-1].Values
	if v["rollouts/total"] != 4 || v["tokens/trained"] == 0 || v["val/failed"] != 0 {
		t.Errorf("%v", v)
	}
	r = play(mustLoad(t, string(data), append(set, "steps=2")...))
	var steps []int
	for _, p := range r.Points {
		steps = append(steps, p.Step)
	}
	if want := []int{-1, 1, 2}; !slices.Equal(steps, want) {
		t.Errorf("points of steps %v, want %v", steps, want)
	}
}
