package swe

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestPassAtK(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		n, c, k int
		want    float64
	}{
		{1, 0, 1, 0}, {1, 1, 1, 1}, {4, 1, 1, 0.25}, {4, 1, 2, 0.5}, {4, 1, 4, 1}, {4, 2, 2, 1 - 1.0/6}, {16, 0, 16, 0},
		{16, 15, 2, 1},
	} {
		if got := PassAtK(tc.n, tc.c, tc.k); math.Abs(got-tc.want) > 1e-12 {
			t.Errorf("PassAtK(%d, %d, %d) = %v, want %v", tc.n, tc.c, tc.k, got, tc.want)
		}
	}
}

// PassAtK equals the quotient of binomial coefficients, even if these are too large for a float.
func TestPassAtKIsExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 2000).Draw(t, "n")
		c := rapid.IntRange(0, n).Draw(t, "c")
		k := rapid.IntRange(1, n).Draw(t, "k")
		all := new(big.Int).Binomial(int64(n), int64(k))
		miss, _ := new(big.Rat).SetFrac(new(big.Int).Binomial(int64(n-c), int64(k)), all).Float64()
		if got := PassAtK(n, c, k); math.Abs(got-(1-miss)) > 1e-9 {
			t.Fatalf("PassAtK(%d, %d, %d) = %v, want %v", n, c, k, got, 1-miss)
		}
	})
}

func TestPassRate(t *testing.T) {
	t.Parallel()
	tasks := []Attempts{{"a", 4, 0}, {"b", 4, 1}, {"c", 4, 4}, {"d", 2, 2}, {"e", 0, 0}}
	for _, tc := range []struct {
		k, tasks int
		rate     float64
	}{{1, 4, (0 + 0.25 + 1 + 1) / 4}, {2, 4, (0 + 0.5 + 1 + 1) / 4}, {4, 3, 2.0 / 3}, {8, 0, 0}} {
		got := PassRate(tasks, tc.k)
		if got.Tasks != tc.tasks || math.Abs(got.Rate-tc.rate) > 1e-12 {
			t.Errorf("pass@%d = %v over %d tasks, want %v over %d", tc.k, got.Rate, got.Tasks, tc.rate, tc.tasks)
		}
		if got.Low > got.Rate || got.High < got.Rate || got.Low < 0 || got.High > 1 {
			t.Errorf("pass@%d = %v lies outside of [%v, %v]", tc.k, got.Rate, got.Low, got.High)
		}
	}
	// One attempt at each of ten tasks, none solved: Wilson's interval for 0 of 10.
	if none := PassRate(make10(0), 1); none.Low != 0 || math.Abs(none.High-0.2775) > 1e-4 {
		t.Errorf("0 of 10: [%v, %v], want [0, 0.2775]", none.Low, none.High)
	}
}

func make10(solved int) []Attempts {
	tasks := make([]Attempts, 10)
	for i := range tasks {
		tasks[i].Made = 1
		if i < solved {
			tasks[i].Solved = 1
		}
	}
	return tasks
}

// The interval holds the truth about as often as it says, for tasks of very different difficulty and for few or many
// attempts.
func TestPassRateCovers(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for _, tc := range []struct{ tasks, attempts, k int }{{10, 1, 1}, {50, 1, 1}, {50, 8, 1}, {50, 8, 4}, {20, 16, 2}} {
		const rounds = 2000
		held := 0
		for range rounds {
			// The difficulty of each task is drawn anew in each round, because the truth is the mean over all possible
			// tasks.
			tasks := make([]Attempts, tc.tasks)
			for i := range tasks {
				p := difficulty(random)
				tasks[i].Made = tc.attempts
				for range tc.attempts {
					if random.Float64() < p {
						tasks[i].Solved++
					}
				}
			}
			if e := PassRate(tasks, tc.k); e.Low <= truth(tc.k) && truth(tc.k) <= e.High {
				held++
			}
		}
		if share := float64(held) / rounds; share < 0.92 {
			t.Errorf("%d tasks, %d attempts: the interval of pass@%d holds the truth in %.1f%%", tc.tasks, tc.attempts, tc.k,
				100*share)
		}
	}
}

var difficulties = []float64{0, 0, 0, 0.05, 0.3, 0.6, 0.95, 1}

func difficulty(r *rand.Rand) float64 { return difficulties[r.IntN(len(difficulties))] }

func truth(k int) float64 {
	sum := 0.0
	for _, p := range difficulties {
		sum += 1 - math.Pow(1-p, float64(k))
	}
	return sum / float64(len(difficulties))
}

func TestSplitTasks(t *testing.T) {
	t.Parallel()
	got := splitTasks([]Attempts{{"a", 4, 4}, {"b", 4, 1}, {"c", 3, 0}, {"d", 0, 0}, {"e", 1, 1}})
	want := Split{Never: []string{"c"}, Sometimes: []string{"b"}, Always: []string{"a", "e"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// The worked example of Newcombe 1998, method 3: 81 of 263 gives 0.2553 to 0.3662. The extremes are 0 of 20 and no
// attempt at all.
func TestWilson(t *testing.T) {
	t.Parallel()
	low, high := Wilson(81.0/263, 263)
	if math.Abs(low-0.2553) > 5e-5 || math.Abs(high-0.3662) > 5e-5 {
		t.Errorf("%.4f to %.4f", low, high)
	}
	if low, high := Wilson(0, 20); low != 0 || math.Abs(high-0.1611) > 5e-5 {
		t.Errorf("0 of 20: %.4f to %.4f", low, high)
	}
	if low, high := Wilson(0, 0); low != 0 || high != 1 {
		t.Errorf("of nothing: %v to %v", low, high)
	}
}
