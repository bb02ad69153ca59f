package tinker_test

import (
	"strings"
	"testing"

	"deepswe/rl"
	"deepswe/rl/trainer/tinker"
	"deepswe/rl/trainer/trainertest"
)

// Passes are sent in the best encoding that the server reads, and have the same effect in each.
func TestEncodings(t *testing.T) {
	t.Parallel()
	var first [][]float64
	for _, tt := range []struct {
		server trainertest.Options
		want   string
	}{
		{trainertest.Options{}, "application/json"},
		{trainertest.Options{Wire: trainertest.Either}, "application/x-protobuf zstd"},
		{trainertest.Options{Wire: trainertest.Protobuf}, "application/x-protobuf zstd"},
		{trainertest.Options{Wire: trainertest.Either, Uncompressed: true}, "application/x-protobuf"},
	} {
		s, trainer := server(t, tt.server, nil)
		if err := learn(t, trainer); err != nil {
			t.Fatal(err)
		}
		got, err := trainer.Forward(t.Context(), []rl.Row{lesson(1, 5, 6)})
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = got
		}
		if d := far(first, got); d > 1e-6 {
			t.Errorf("%s: logprobs differ by %g from those with JSON", tt.want, d)
		}
		if kinds := s.Passes(); len(kinds) != 1 || kinds[tt.want] == 0 {
			t.Errorf("the server executed passes from %v, want %s", kinds, tt.want)
		}
	}
}

// A page with status 200 does not show that the server reads protobuf.
func TestEncodingBehindAPageWithStatus200(t *testing.T) {
	t.Parallel()
	s := trainertest.New(t, trainertest.Options{Language: digits()})
	proxy := trainertest.NewProxy(t, s.URL())
	proxy.Inject("forward", trainertest.ProxyFault{Status: 200, Text: "<html>"})
	client, err := tinker.NewClient(tinker.ClientOptions{URL: proxy.URL})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Probe(t.Context(), tinker.ModelOptions{Base: s.Base(), Rank: 8}); err != nil {
		t.Error(err)
	}
	if left := proxy.Waiting(); len(left) > 0 {
		t.Errorf("%v was not asked for", left)
	}
}

// Requests are as large as the server says or, if it does not say, as large as it accepts. The error for a row that is
// too large names the setting.
func TestLimitsOfRequests(t *testing.T) {
	t.Parallel()
	var rows []rl.Row
	for i := range 40 {
		rows = append(rows, lesson(1, int32(i%9), int32(i%7)))
	}
	for _, tt := range []struct {
		name        string
		server      trainertest.Options
		least, most int
	}{
		{"no limit", trainertest.Options{}, 1, 1},
		{"rows", trainertest.Options{Config: map[string]any{"fwdbwd_max_chunk_len": 7}}, 6, 6},
		{"bytes", trainertest.Options{Config: map[string]any{"fwdbwd_max_chunk_bytes_count": 2500}}, 6, 9},
		{"a proxy's", trainertest.Options{MaxBody: 3000}, 4, 8},
		{"a proxy's, in protobuf", trainertest.Options{MaxBody: 3000, Wire: trainertest.Either, Uncompressed: true}, 2, 8},
	} {
		s, trainer := server(t, tt.server, nil)
		want, err := trainer.Forward(t.Context(), rows[:1])
		if err != nil {
			t.Fatal(err)
		}
		before := s.Count("forward")
		got, err := trainer.Forward(t.Context(), rows)
		if err != nil || len(got) != len(rows) || far(got[:1], want) > 1e-9 {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if n := s.Count("forward") - before; n < tt.least || n > tt.most {
			t.Errorf("%s: %d requests, want %d to %d", tt.name, n, tt.least, tt.most)
		}
	}
	_, trainer := server(t, trainertest.Options{MaxBody: 600}, nil)
	long := lesson(1, make([]int32, 60)...)
	if _, err := trainer.Forward(t.Context(), []rl.Row{long}); err == nil ||
		!strings.Contains(err.Error(), "too large (413)") || !strings.Contains(err.Error(), "algorithm.max_length") {
		t.Errorf("a row that is too large: %v", err)
	}
}

// BenchmarkEncodings measures what a training step sends: 512 rows of 32,768 tokens, of which every third is trained.
func BenchmarkEncodings(b *testing.B) {
	const rows, length = 512, 32768
	row := lesson(1, make([]int32, length-4)...)
	for i := range row.IDs {
		row.IDs[i] = int32(i * i % 151643)
		if i > 3 {
			row.Mask[i], row.Logprobs[i] = 0, 0
			if i%768 < 256 { // a turn of the model, then what it was answered
				row.Mask[i], row.Logprobs[i] = 1, -1/(1+float64(i%977))
			}
		}
	}
	for _, kind := range []string{"json", "protobuf", "zstd"} {
		b.Run(kind, func(b *testing.B) {
			for b.Loop() {
				bytes := 0
				for range rows {
					n, err := tinker.EncodedSize(&row, kind)
					if err != nil {
						b.Fatal(err)
					}
					bytes += n
				}
				b.ReportMetric(float64(bytes)/(1<<20), "MiB/step")
			}
			b.SetBytes(rows * length)
		})
	}
}
