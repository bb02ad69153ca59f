package verify

import (
	"errors"
	"slices"
	"testing"
)

func TestReadReward(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, data string
		want       float64
	}{
		{"reward.txt", "1\n", 1},
		{"reward.txt", " 0.25 ", 0.25},
		{"reward.txt", "1e-1", 0.1},
		{"reward.json", `{"reward": 1}`, 1},
		{"reward.json", `{"speed": 3, "reward": true}`, 1},
		{"reward.json", `{"score": 0.5}`, 0.5},
	} {
		r, err := ReadReward(c.name, []byte(c.data))
		if err != nil {
			t.Errorf("%s %q: %v", c.name, c.data, err)
			continue
		}
		if got, err := r.Reward(); err != nil || got != c.want {
			t.Errorf("%s %q: %v, %v, want %v", c.name, c.data, got, err, c.want)
		}
	}
	for _, c := range [][2]string{
		{"reward.txt", ""}, {"reward.txt", "\n"}, {"reward.txt", "inf"}, {"reward.txt", "nan"}, {"reward.txt", "passed"},
		{"reward.json", ""}, {"reward.json", "1"}, {"reward.json", "[1]"}, {"reward.json", `{"reward": "1"}`},
		{"reward.json", `{"reward": NaN}`}, {"reward.json", `{"reward": 1e999}`}, {"reward.json", `{"reward": null}`},
	} {
		if r, err := ReadReward(c[0], []byte(c[1])); !errors.Is(err, ErrUngradable) {
			t.Errorf("%s %q: %v, %v, want ErrUngradable", c[0], c[1], r, err)
		}
	}
	for _, r := range []Rewards{{}, {"a": 1, "b": 0}} {
		if v, err := r.Reward(); !errors.Is(err, ErrUngradable) {
			t.Errorf("%v has the reward %v", r, v)
		}
	}
}

func TestRewardFiles(t *testing.T) {
	t.Parallel()
	want := []string{"/logs/verifier/reward.json", "/logs/verifier/reward.txt"}
	for _, file := range want {
		if got := rewardFiles(file); !slices.Equal(got, want) {
			t.Errorf("RewardFiles(%s) = %q, want %q", file, got, want)
		}
	}
}
