package rowfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"deepswe/agent/trajectory"
	"deepswe/rl"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const goodTurn = `{"prompt_ids":[1,2],"completion_ids":[3],"logprobs":[-0.5]}`

// rolloutLine returns a valid line with one member replaced, or left out if the value is empty.
func rolloutLine(key, value string) string {
	members := []struct{ key, value string }{{"task", `"a"`}, {"group", `"g"`}, {"attempt", "0"}, {"reward", "1"},
		{"stop_reason", `"submitted"`}, {"policy_version", "3"}, {"turns", "[" + goodTurn + "]"}}
	var out []string
	for _, m := range members {
		if m.key == key {
			m.value = value
		}
		if m.value != "" {
			out = append(out, fmt.Sprintf("%q:%s", m.key, m.value))
		}
	}
	return "{" + strings.Join(out, ",") + "}"
}

func readAll[T any](seq iter.Seq2[T, error]) (out []T, err error) {
	for v, err := range seq {
		if err != nil {
			return out, err
		}
		out = append(out, v)
	}
	return out, nil
}

func TestReadRolloutsRefuses(t *testing.T) {
	t.Parallel()
	turnWith := func(members string) string { return rolloutLine("turns", "["+goodTurn+",{"+members+"}]") }
	for _, c := range []struct{ name, line, want string }{
		{"no completion", turnWith(`"prompt_ids":[1],"logprobs":[]`), "turns[1].completion_ids: no token ids; record"},
		{"null completion", turnWith(`"prompt_ids":[1],"completion_ids":null,"logprobs":null`),
			"turns[1].completion_ids: no token ids"},
		{"empty completion", turnWith(`"prompt_ids":[1],"completion_ids":[],"logprobs":[]`),
			"turns[1].completion_ids: no token ids"},
		{"no prompt", turnWith(`"prompt_ids":[],"completion_ids":[2],"logprobs":[-1]`), "turns[1].prompt_ids: no token ids"},
		{"no logprobs", turnWith(`"prompt_ids":[1],"completion_ids":[2]`), "turns[1].logprobs: none for 1 completion_ids"},
		{"null logprobs", turnWith(`"prompt_ids":[1],"completion_ids":[2],"logprobs":null`), "turns[1].logprobs: none"},
		{"fewer logprobs", turnWith(`"prompt_ids":[1],"completion_ids":[2,3],"logprobs":[-1]`),
			"turns[1].logprobs: 1 for 2 completion_ids"},
		{"more logprobs", turnWith(`"prompt_ids":[1],"completion_ids":[2],"logprobs":[-1,-1]`),
			"turns[1].logprobs: 2 for 1 completion_ids"},
		{"NaN", turnWith(`"prompt_ids":[1],"completion_ids":[2,3],"logprobs":[-1,NaN]`),
			`turns[1].logprobs[1]: "NaN" is not a number`},
		{"infinite", turnWith(`"prompt_ids":[1],"completion_ids":[2],"logprobs":[-Infinity]`),
			`turns[1].logprobs[0]: "-Infinity"`},
		{"too large", turnWith(`"prompt_ids":[1],"completion_ids":[2],"logprobs":[-1e999]`), "turns[1].logprobs[0]"},
		{"null logprob", turnWith(`"prompt_ids":[1],"completion_ids":[2],"logprobs":[null]`), `turns[1].logprobs[0]: "null"`},
		{"positive", turnWith(`"prompt_ids":[1],"completion_ids":[2],"logprobs":[0.5]`),
			"turns[1].logprobs[0]: 0.5 is not the logarithm"},
		{"fractional id", turnWith(`"prompt_ids":[1.5],"completion_ids":[2],"logprobs":[-1]`),
			`turns[1].prompt_ids[0]: "1.5" is not a token id`},
		{"negative id", turnWith(`"prompt_ids":[1],"completion_ids":[-2],"logprobs":[-1]`),
			`turns[1].completion_ids[0]: "-2"`},
		{"huge id", turnWith(`"prompt_ids":[1],"completion_ids":[2147483648],"logprobs":[-1]`), "is not a token id"},
		{"words for ids", turnWith(`"prompt_ids":["a"],"completion_ids":[2],"logprobs":[-1]`), "turns[1].prompt_ids[0]"},
		{"a nested array", turnWith(`"prompt_ids":[[1]],"completion_ids":[2],"logprobs":[-1]`), "turns[1].prompt_ids[0]"},
		{"a hole", turnWith(`"prompt_ids":[1,,2],"completion_ids":[2],"logprobs":[-1]`), "turns[1].prompt_ids[1]"},
		{"ids that do not end", `{"turns":[{"prompt_ids":[1,2`, "turns[0].prompt_ids: unexpected end"},
		{"turns of another kind", rolloutLine("turns", `[3]`), "turns[0]: byte"},
		{"no turns", rolloutLine("turns", ""), "turns: missing"},
		{"no reward", rolloutLine("reward", ""), "reward: missing; use null"},
		{"reward in words", rolloutLine("reward", `"1"`), `reward: "1" is neither a number nor null`},
		{"reward NaN", rolloutLine("reward", `NaN`), "reward"},
		{"reward of a broken sandbox", rolloutLine("stop_reason", `"sandbox_error"`), "reward: 1 after a sandbox_error"},
		{"unknown stop reason", rolloutLine("stop_reason", `"length"`),
			`stop_reason: "length" is not one of submitted, max_steps`},
		{"no stop reason", rolloutLine("stop_reason", ""), "stop_reason: missing"},
		{"null stop reason", rolloutLine("stop_reason", "null"), "stop_reason: empty"},
		{"neither task nor group", `{"task":null,"reward":1,"stop_reason":"submitted","turns":[]}`, "task: neither"},
		{"task of another kind", rolloutLine("task", "{}"), "task: {} is neither a string nor a number"},
		{"attempt in words", rolloutLine("attempt", `"first"`), `attempt: "first" is not a whole number`},
		{"version of another kind", rolloutLine("policy_version", "[]"), "policy_version: [] is neither"},
		{"stop reason of another kind", rolloutLine("stop_reason", "3"), "stop_reason: 3 is not a string"},
		{"no object", "[1]", "byte 1 of the line is '['"},
		{"torn", `{"task":"a"`, "unexpected end"},
		{"two objects", rolloutLine("", "") + "{}", "text after the object"},
		{"not JSON", `{"task":tru}`, "is not JSON"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := preset(t, "grpo++")
			_, err := readAll(Read(strings.NewReader("\n"+rolloutLine("", "")+"\n"+c.line+"\n"), a.Accepts))
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "line 3: ") {
				t.Errorf("error %v, want line 3 and %q", err, c.want)
			}
		})
	}
}

func TestReadRolloutsIsLenientAboutTheRest(t *testing.T) {
	t.Parallel()
	a := preset(t, "grpo++", "filter.length=mask")
	for name, line := range map[string]string{
		"numbers for ids": `{"task":17,"group":3,"attempt":"2","reward":0.5,"stop_reason":"submitted",` +
			`"policy_version":"v12","turns":[` + goodTurn + `]}`,
		"no group, no attempt": `{"task":"a","reward":0,"stop_reason":"submitted","turns":[]}`,
		"members of others": `{"extra":{"a":[1,{"b":"]}"}]},` +
			`"task":"a","reward":0,"stop_reason":"submitted","turns":[]}`,
		"escapes": `{"t\u0061sk":"a\n\"b\"","reward":0,"stop_reason":"submitted","turns":[]}`,
		"white space": "\t{ \"task\" : \"a\" , \"reward\" : 0 , \"stop_reason\" : \"submitted\" , " +
			"\"turns\" : [ { \"prompt_ids\" : [ 1 , 2 ] , \"completion_ids\" : [ 3 ] , \"logprobs\" : [ -1e-3 ] } ] } \r",
		"a failure needs nothing": `{"task":"a","reward":null,"stop_reason":"model_error",` +
			`"turns":[{"prompt_ids":[1],"completion_ids":null}]}`,
		"without turns at all":   `{"task":"a","reward":null,"stop_reason":"sandbox_error"}`,
		"a filtered stop reason": `{"task":"a","reward":0,"stop_reason":"length","turns":[]}`,
		"rounding above zero": `{"task":"a","reward":0,"stop_reason":"submitted",` +
			`"turns":[{"prompt_ids":[1],"completion_ids":[3],"logprobs":[1e-7]}]}`,
	} {
		if _, err := readAll(Read(strings.NewReader(line), a.Accepts)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Ids come back in the form in which a harness wrote them, in rollouts and in rows.
func TestIDsKeepTheirForm(t *testing.T) {
	t.Parallel()
	for _, version := range []string{`12`, `"v12"`, `"12"`, `null`, `-1`, `1.5`, `""`, `"\"12\""`, `"\"x"`, `"a<b>&c"`,
		`12345678901234567890`} {
		for _, id := range []string{`"a"`, `"3"`, `3`, `"<&>"`, `1e3`} {
			in := fmt.Sprintf(`{"task":%s,"group":%s,"attempt":0,"reward":1,"stop_reason":"submitted",`+
				`"policy_version":%s,"turns":[%s]}`,
				id, id, version, goodTurn)
			r, err := DecodeRollout([]byte(in))
			if err != nil {
				t.Fatal(err)
			}
			var e encoder
			if e.rollout(&r); string(e.b) != in {
				t.Errorf("rollout\n%s came back as\n%s", in, e.b)
			}
			row := rl.Placement{Disposition: rl.Trained}.Rows(r, 0)[0]
			e = encoder{}
			e.row(&row)
			head := fmt.Sprintf(`{"task":%s,"group":%s,"attempt":0,"row":0,"ids":[1,2,3],"mask":[0,0,1],"logprobs":[0,0,-0.5]`,
				id, id)
			if !bytes.HasPrefix(e.b, []byte(head)) || !bytes.Contains(e.b, []byte(`"policy_version":`+version+`,`)) {
				t.Errorf("row of\n%s is\n%s", in, e.b)
			}
		}
	}
}

func drawRollout(t *rapid.T) rl.Rollout {
	r := rl.Rollout{
		Task: rapid.String().Draw(t, "task"), Group: "g", Attempt: rapid.IntRange(0, 9).Draw(t, "attempt"),
		StopReason: rapid.SampledFrom(trajectory.StopReasons()).Draw(t, "stop"), PolicyVersion: "4", Turns: drawTurns(t),
	}
	r.Task = strings.ToValidUTF8(r.Task, "")
	for i := range r.Turns {
		if rapid.Bool().Draw(t, "versioned") {
			r.Turns[i].PolicyVersion = new(rapid.Int64Min(5).Draw(t, "version"))
		}
		if rapid.Bool().Draw(t, "credited") {
			r.Turns[i].Advantage = rapid.Float64Range(-9, 9).Draw(t, "credit")
		}
		for k := range r.Turns[i].Logprobs {
			r.Turns[i].Logprobs[k] = -math.Abs(rapid.Float64().Draw(t, "logprob"))
		}
	}
	if r.StopReason != trajectory.SandboxError && rapid.Bool().Draw(t, "rewarded") {
		reward := rapid.Float64Range(-1, 1).Draw(t, "reward")
		r.Reward = &reward
	}
	return r
}

// drawTurns draws turns, some of which extend the turn before.
func drawTurns(t *rapid.T) []rl.Turn {
	some := func(name string, least, most int) []int32 {
		return rapid.SliceOfN(rapid.Int32Range(0, math.MaxInt32), least, most).Draw(t, name)
	}
	var turns []rl.Turn
	for k := range rapid.IntRange(1, 6).Draw(t, "turns") {
		prompt := some("prompt", 1, 12)
		if k > 0 && rapid.Bool().Draw(t, "extends") {
			prompt = slices.Concat(turns[k-1].PromptIDs, turns[k-1].CompletionIDs, some("environment", 0, 4))
		}
		completion := some("completion", 1, 40)
		turns = append(turns, rl.Turn{PromptIDs: prompt, CompletionIDs: completion,
			Logprobs: make([]float64, len(completion))})
	}
	return turns
}

func TestRolloutsRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var file bytes.Buffer
		var want []rl.Rollout
		for range rapid.IntRange(0, 5).Draw(t, "rollouts") {
			r := drawRollout(t)
			want = append(want, r)
			if err := WriteRollout(&file, &r); err != nil {
				t.Fatal(err)
			}
		}
		got, err := readAll(Read(&file, nil))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatal(d)
		}
	})
}

// wireRow is a row as encoding/json reads it.
type wireRow struct {
	Task, Group   string
	Attempt, Row  int
	IDs           []int32
	Mask          []int
	Logprobs      []float64
	Advantage     float64
	Advantages    []float64
	Scale         float64
	Reward        float64
	StopReason    string `json:"stop_reason"`
	PolicyVersion any    `json:"policy_version"`
	Trained       bool
}

// A row is written as JSON that any reader understands, and every number is exact.
func TestRowsAreJSON(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := drawRollout(t)
		for _, row := range (rl.Placement{Disposition: rl.Trained}).Rows(r, 0) {
			row.Advantage, row.Scale = rapid.Float64Range(-9, 9).Draw(t, "advantage"), rapid.Float64Range(0, 1).Draw(t, "scale")
			want := wireRow{
				Task: row.Task, Group: row.Group, Attempt: row.Attempt, Row: row.Row, IDs: row.IDs, Logprobs: row.Logprobs,
				Advantage: row.Advantage, Advantages: row.Advantages, Scale: row.Scale, Reward: row.Reward,
				StopReason:    string(row.StopReason),
				PolicyVersion: 4.0, Trained: true,
			}
			for _, m := range row.Mask {
				want.Mask = append(want.Mask, int(m))
			}
			var e encoder
			e.row(&row)
			var got wireRow
			if err := errors.Join(e.err, json.Unmarshal(e.b, &got)); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Fatal(d)
			}
		}
	})
}

func TestBytesOfARow(t *testing.T) {
	t.Parallel()
	row := rl.Row{
		Task: "a<b", IDs: []int32{1, 2}, Mask: []uint8{0, 1}, Logprobs: []float64{0,
			-0.25}, Advantage: 1e-9, Scale: 1e30, Trained: true,
	}
	var e encoder
	e.row(&row)
	want := `{"task":"a<b","group":"","attempt":0,"row":0,"ids":[1,2],"mask":[0,1],` +
		`"logprobs":[0,-0.25],"advantage":1e-09,"scale":1e+30,"reward":0,"stop_reason":"",` +
		`"policy_version":null,"policy_version_oldest":null,"policy_version_newest":null,"trained":true}`
	if string(e.b) != want || e.err != nil {
		t.Errorf("got\n%s, %v, want\n%s", e.b, e.err, want)
	}
	row.Advantages, e = []float64{0, -2.5}, encoder{}
	e.row(&row)
	want = strings.Replace(want, `"scale"`, `"advantages":[0,-2.5],"scale"`, 1)
	if string(e.b) != want || e.err != nil {
		t.Errorf("got\n%s, %v, want\n%s", e.b, e.err, want)
	}
	if e.row(&rl.Row{Advantage: math.NaN()}); e.flush(io.Discard, "") == nil {
		t.Error("a NaN was written")
	}
}

// Lines come out in order, whatever each takes. Stopping early leaves no goroutine behind (see TestMain).
func TestOrdered(t *testing.T) {
	t.Parallel()
	count := func(n int) iter.Seq2[int, error] {
		return func(yield func(int, error) bool) {
			for i := range n {
				if !yield(i, nil) {
					return
				}
			}
			yield(0, io.ErrUnexpectedEOF)
		}
	}
	double := func(i int) (int, error) {
		if i == 700 {
			return 0, io.ErrClosedPipe
		}
		return 2 * i, nil
	}
	for _, c := range []struct {
		n, stop, want int
		err           error
	}{{600, -1, 600, io.ErrUnexpectedEOF}, {800, -1, 700, io.ErrClosedPipe}, {800, 30, 31, nil}, {0, -1, 0,
		io.ErrUnexpectedEOF}} {
		i := 0
		var got error
		for v, err := range ordered(count(c.n), double) {
			if got = err; err != nil {
				break
			}
			if v != 2*i {
				t.Fatalf("element %d is %d", i, v)
			}
			if i++; i > c.stop && c.stop >= 0 {
				break
			}
		}
		if i != c.want || !errors.Is(got, c.err) {
			t.Errorf("%d of %d elements, error %v; want %d, %v", i, c.n, got, c.want, c.err)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(rolloutLine("", "")))
	f.Add([]byte(rolloutLine("policy_version", `"v1"`) + "\n\n" + rolloutLine("reward", "null")))
	f.Add([]byte(`{"turns":[{"prompt_ids":[1,2`))
	f.Add([]byte(`{"task":3,"reward":-0.0,"stop_reason":"stuck","turns":[],"messages":[{"role":"user"}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		first, err := readAll(Read(bytes.NewReader(b), (*rl.Rollout).Validate))
		if err != nil {
			return
		}
		var file bytes.Buffer
		for i := range first {
			if err := WriteRollout(&file, &first[i]); err != nil {
				t.Fatal(err)
			}
			for _, row := range (rl.Placement{Disposition: rl.Trained}).Rows(first[i], 7) {
				if n := len(row.IDs); first[i].Reward != nil && (n == 0 || n > 7 || len(row.Mask) != n || len(row.Logprobs) != n) {
					t.Fatalf("a valid rollout has the row %+v", row)
				}
			}
		}
		again, err := readAll(Read(bytes.NewReader(file.Bytes()), (*rl.Rollout).Validate))
		if err != nil {
			t.Fatalf("what was written is refused: %v\n%s", err, file.Bytes())
		}
		if d := cmp.Diff(first, again); d != "" {
			t.Fatal(d)
		}
	})
}

// The scanner accepts the same numbers as encoding/json.
func FuzzNumber(f *testing.F) {
	for _, s := range []string{"-0.5", "1e-7", "0x1p-2", "01", ".5", "1.", "1e", "NaN", "-", "1_0", "1e999", "+1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var want float64
		err := json.Unmarshal([]byte(s), &want)
		if strings.TrimSpace(s) != s || s == "null" {
			return
		}
		got, ours := parseNumber([]byte(s))
		if (err == nil) != (ours == nil) || err == nil && math.Float64bits(got) != math.Float64bits(want) {
			t.Errorf("%q: %v, %v; encoding/json says %v, %v", s, got, ours, want, err)
		}
	})
}
