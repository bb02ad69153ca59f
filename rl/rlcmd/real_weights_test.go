package rlcmd

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"deepswe/agent/cli"
	"deepswe/agent/llm"
	"deepswe/env/testkit"
	"deepswe/rl"
	"deepswe/rl/train/record"
	"deepswe/rl/trainer/tinker"
	"deepswe/rl/trainer/trainertest"
)

// The weights from a real server survive export and merge: after one update, an independent forward pass through the
// merged folder gives the log-probabilities that the server gives with the adapter.
func TestRealServerMerged(t *testing.T) {
	url, base := trainertest.RealServer(t)
	made, _, merged := leave(t, url, base)
	served := servedLogprobs(t, url, base, made)
	sameLogprobs(t, readLlama(t, base).logprobs(sentence), served, readLlama(t, merged).logprobs(sentence))
}

// The same with vLLM, which samples for the update and gives the same scores with the adapter and as the merged model.
// DEEPSWE_TEST_VLLM is the folder of the scripts that start and stop it (../shared/real/vllm).
func TestRealServerServed(t *testing.T) {
	url, base := trainertest.RealServer(t)
	scripts := os.Getenv("DEEPSWE_TEST_VLLM")
	if scripts == "" {
		testkit.Skip(t, "vllm", "DEEPSWE_TEST_VLLM has the folder of scripts that start a server")
	}
	vllm := startVLLM(t, scripts, base)
	_, adapter, merged := leave(t, url, base, "--set", "trainer.samplers=["+vllm+"]")
	before := scores(t, vllm, base)
	loadAdapter(t, vllm, "learned", adapter)
	with := scores(t, vllm, "learned")
	stopVLLM(t, scripts)
	sameLogprobs(t, before, with, scores(t, startVLLM(t, scripts, merged), merged))
}

// sentence is the text whose log-probabilities are compared.
var sentence = []int32{1, 40, 41, 42, 300, 7, 8, 301, 9, 10, 11, 12}

// leave trains for one step, exports the adapter and merges it. It returns the directories of the run, the adapter and
// the merged model.
func leave(t *testing.T, url, base string, args ...string) (made, adapter, merged string) {
	t.Helper()
	dir := t.TempDir()
	made, adapter, merged = filepath.Join(dir, "run"), filepath.Join(dir, "adapter"), filepath.Join(dir, "merged")
	config := filepath.Join("..", "..", "testdata", "tinker-check.yaml")
	if _, said, err := runTrain(t.Context(), append([]string{"--config", config, "--out", made, "--set", "steps=1",
		"--set", "trainer.base_url=" + url, "--set", "trainer.model=" + base, "--set", "rollouts.group=4",
		"--set", "optimizer.learning_rate=0.003"}, args...)...); cli.ExitCode(err) != cli.ExitUnsolved { // a step is too little
		t.Fatalf("%v\n%s", err, said)
	}
	var said bytes.Buffer
	for _, c := range []struct {
		command func(Deps) *cobra.Command
		args    []string
	}{
		{newExport, []string{"--run", made, "--format", "adapter", "--out", adapter}},
		{newMerge, []string{"--base", base, "--adapter", adapter, "--out", merged}},
	} {
		command := c.command(deps(nil, &said, &said))
		command.SetArgs(c.args)
		if err := command.ExecuteContext(t.Context()); err != nil {
			t.Fatalf("%v\n%s", err, &said)
		}
	}
	return made, adapter, merged
}

// sameLogprobs checks that the adapter changes the base's log-probabilities, and that the merged model has the
// adapter's.
func sameLogprobs(t *testing.T, before, served, after []float64) {
	t.Helper()
	moved := 0.0
	for i, want := range served {
		if math.Abs(after[i]-want) > trainertest.Tolerance {
			t.Errorf("token %d: %v in the merged model, %v with the adapter", i+1, after[i], want)
		}
		moved = max(moved, math.Abs(before[i]-want))
	}
	if moved < 10*trainertest.Tolerance {
		t.Errorf("the update has changed log-probabilities by %g at most", moved)
	}
}

// startVLLM starts a server for a model, which is stopped at the end of the test, and returns its base URL.
func startVLLM(t *testing.T, scripts, model string) string {
	t.Helper()
	port := strconv.Itoa(testkit.FreePort(t))
	cmd := exec.CommandContext(t.Context(), filepath.Join(scripts, "up.sh"), port)
	cmd.Env = append(os.Environ(), "VLLM_MODEL="+model, "VLLM_NAME="+model, "VLLM_MAX_LEN=2048")
	t.Cleanup(func() { stopVLLM(t, scripts) })
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return "http://127.0.0.1:" + port + "/v1"
}

func stopVLLM(t *testing.T, scripts string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, filepath.Join(scripts, "down.sh")).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func loadAdapter(t *testing.T, server, name, dir string) {
	t.Helper()
	body, err := json.Marshal(map[string]string{"lora_name": name, "lora_path": dir})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(server+"/load_lora_adapter", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(resp.Body)
		t.Fatalf("%s: %s", resp.Status, said)
	}
}

// scores returns the log-probabilities of all tokens of the sentence except the first.
func scores(t *testing.T, server, model string) []float64 {
	t.Helper()
	client, err := llm.New(llm.Options{BaseURL: server, Model: model})
	if err != nil {
		t.Fatal(err)
	}
	logprobs, err := client.Score(t.Context(), sentence)
	if err != nil {
		t.Fatal(err)
	}
	return logprobs
}

// servedLogprobs returns the log-probabilities that the training server gives with the run's last weights.
func servedLogprobs(t *testing.T, url, base, made string) []float64 {
	t.Helper()
	client, err := tinker.NewClient(tinker.ClientOptions{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	last, err := record.ReadLast(made)
	if err != nil {
		t.Fatal(err)
	}
	start, err := tinker.Saved(filepath.Join(made, record.CheckpointsDir), last.Checkpoint)
	if err != nil {
		t.Fatal(err)
	}
	trainer, err := tinker.Open(t.Context(), tinker.Options{
		Client: client, Model: tinker.ModelOptions{Base: base, Rank: 8}, Start: start, Vocabulary: 1 << 20, Dir: t.TempDir(),
	})
	if err != nil {
		client.Close()
		t.Fatal(err)
	}
	defer trainer.Close()
	ids := sentence
	mask := bytes.Repeat([]byte{1}, len(ids))
	mask[0] = 0
	rows, err := trainer.Forward(t.Context(), []rl.Row{{IDs: ids, Mask: mask, Logprobs: make([]float64, len(ids))}})
	if err != nil {
		t.Fatal(err)
	}
	return rows[0][1:]
}

// llama is a Llama or Qwen3 model with float32 weights in one file, computed in the most direct way.
type llama struct {
	Layers     int     `json:"num_hidden_layers"`
	Hidden     int     `json:"hidden_size"`
	Heads      int     `json:"num_attention_heads"`
	KeyHeads   int     `json:"num_key_value_heads"`
	HeadSize   int     `json:"head_dim"`
	Epsilon    float64 `json:"rms_norm_eps"`
	Theta      float64 `json:"rope_theta"`
	Parameters struct {
		Theta float64 `json:"rope_theta"`
	} `json:"rope_parameters"`
	weights map[string][]float32
}

func readLlama(t *testing.T, dir string) *llama {
	t.Helper()
	m := &llama{weights: map[string][]float32{}}
	text, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err == nil {
		err = json.Unmarshal(text, m)
	}
	if err != nil {
		t.Fatal(err)
	}
	if m.Theta == 0 {
		m.Theta = m.Parameters.Theta
	}
	data, err := os.ReadFile(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	from := 8 + binary.LittleEndian.Uint64(data)
	var header map[string]struct {
		DType   string    `json:"dtype"`
		Offsets [2]uint64 `json:"data_offsets"`
	}
	if err := json.Unmarshal(data[8:from], &header); err != nil {
		t.Fatal(err)
	}
	delete(header, "__metadata__")
	for name, h := range header {
		if h.DType != "F32" {
			t.Fatalf("%s is %s", name, h.DType)
		}
		values := make([]float32, (h.Offsets[1]-h.Offsets[0])/4)
		if _, err := binary.Decode(data[from+h.Offsets[0]:from+h.Offsets[1]], binary.LittleEndian, values); err != nil {
			t.Fatal(err)
		}
		m.weights[name] = values
	}
	return m
}

// logprobs returns the log-probabilities of all ids except the first.
func (m *llama) logprobs(ids []int32) []float64 {
	embedding := m.weights["model.embed_tokens.weight"]
	head, ok := m.weights["lm_head.weight"]
	if !ok {
		head = embedding
	}
	at := make([][]float64, len(ids))
	for i, id := range ids {
		for _, v := range embedding[int(id)*m.Hidden : (int(id)+1)*m.Hidden] {
			at[i] = append(at[i], float64(v))
		}
	}
	for layer := range m.Layers {
		m.attend(fmt.Sprintf("model.layers.%d.", layer), at)
		m.think(fmt.Sprintf("model.layers.%d.", layer), at)
	}
	var out []float64
	for i, next := range ids[1:] {
		scores := times(head, m.norm("model.norm", at[i]))
		sum, most := 0.0, slices.Max(scores)
		for _, s := range scores {
			sum += math.Exp(s - most)
		}
		out = append(out, scores[next]-most-math.Log(sum))
	}
	return out
}

// attend adds the output of a layer's attention.
func (m *llama) attend(layer string, at [][]float64) {
	var keys, values [][]float64
	for i, x := range at {
		x = m.norm(layer+"input_layernorm", x)
		project := func(name string) []float64 { return times(m.weights[layer+"self_attn."+name+".weight"], x) }
		q := project("q_proj")
		keys, values = append(keys, project("k_proj")), append(values, project("v_proj"))
		m.rotate(layer+"self_attn.q_norm", q, i)
		m.rotate(layer+"self_attn.k_norm", keys[i], i)
		mixed := make([]float64, len(q))
		for h := range m.Heads {
			from, own := h*m.HeadSize, h/(m.Heads/m.KeyHeads)*m.HeadSize
			weights, sum := make([]float64, i+1), 0.0
			for j := range weights {
				for d := range m.HeadSize {
					weights[j] += q[from+d] * keys[j][own+d]
				}
				weights[j] = math.Exp(weights[j] / math.Sqrt(float64(m.HeadSize)))
				sum += weights[j]
			}
			for j, w := range weights {
				for d := range m.HeadSize {
					mixed[from+d] += w / sum * values[j][own+d]
				}
			}
		}
		add(at[i], times(m.weights[layer+"self_attn.o_proj.weight"], mixed))
	}
}

// think adds the output of a layer's feed-forward network.
func (m *llama) think(layer string, at [][]float64) {
	for i := range at {
		x := m.norm(layer+"post_attention_layernorm", at[i])
		gate, up := times(m.weights[layer+"mlp.gate_proj.weight"], x), times(m.weights[layer+"mlp.up_proj.weight"], x)
		for d, g := range gate {
			up[d] *= g / (1 + math.Exp(-g))
		}
		add(at[i], times(m.weights[layer+"mlp.down_proj.weight"], up))
	}
}

// rotate normalises each head if the model has a norm for it, and applies the rotary position embedding.
func (m *llama) rotate(norm string, x []float64, position int) {
	for from := 0; from < len(x); from += m.HeadSize {
		head := x[from : from+m.HeadSize]
		if m.weights[norm+".weight"] != nil {
			copy(head, m.norm(norm, head))
		}
		half := m.HeadSize / 2
		for d := range half {
			sin, cos := math.Sincos(float64(position) * math.Pow(m.Theta, -float64(d)/float64(half)))
			head[d], head[d+half] = head[d]*cos-head[d+half]*sin, head[d+half]*cos+head[d]*sin
		}
	}
}

func (m *llama) norm(name string, x []float64) []float64 {
	sum := 0.0
	for _, v := range x {
		sum += v * v
	}
	out := make([]float64, len(x))
	for i, w := range m.weights[name+".weight"] {
		out[i] = x[i] / math.Sqrt(sum/float64(len(x))+m.Epsilon) * float64(w)
	}
	return out
}

// times multiplies a matrix, stored by rows, with a vector.
func times(matrix []float32, x []float64) []float64 {
	out := make([]float64, len(matrix)/len(x))
	for i := range out {
		row := matrix[i*len(x) : (i+1)*len(x)]
		for d, v := range row {
			out[i] += float64(v) * x[d]
		}
	}
	return out
}

func add(to, x []float64) {
	for i, v := range x {
		to[i] += v
	}
}
