package verify

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Rewards are the numbers that a Harbor task's script left, by name.
type Rewards map[string]float64

// RewardFiles returns where a script may have left its verdict, the file that counts first: Harbor prefers reward.json
// over the reward.txt beside it. file is Task.Tests.RewardFile.
func RewardFiles(file string) []string {
	stem := strings.TrimSuffix(file, path.Ext(file))
	return []string{stem + ".json", stem + ".txt"}
}

// ReadReward reads a reward file: an object of finite numbers where its name ends in .json, else one finite number.
// Errors wrap ErrUngradable: such a script has given no verdict.
func ReadReward(name string, data []byte) (Rewards, error) {
	rewards, err := readReward(name, data)
	if err != nil {
		return nil, fmt.Errorf("reward file %s: %w: %w", name, ErrUngradable, err)
	}
	return rewards, nil
}

func readReward(name string, data []byte) (Rewards, error) {
	if len(data) == 0 {
		return nil, errors.New("it is empty")
	}
	if path.Ext(name) != ".json" {
		number, err := strconv.ParseFloat(strings.TrimSpace(string(data)), 64)
		if err != nil || math.IsInf(number, 0) || math.IsNaN(number) {
			return nil, errors.New("it holds no finite number")
		}
		return Rewards{"reward": number}, nil
	}
	var values map[string]any
	if err := json.Unmarshal(data, &values); err != nil {
		return nil, fmt.Errorf("it holds no object of numbers: %w", err)
	}
	rewards := Rewards{}
	for key, v := range values {
		switch v := v.(type) {
		case float64:
			rewards[key] = v
		case bool: // a number in Python
			if rewards[key] = 0; v {
				rewards[key] = 1
			}
		default:
			return nil, fmt.Errorf("%q is not a number", key)
		}
	}
	return rewards, nil
}

// Reward returns the reward among several: the one of that name, or the only one. The error wraps ErrUngradable.
func (r Rewards) Reward() (float64, error) {
	if v, ok := r["reward"]; ok {
		return v, nil
	}
	if len(r) == 1 {
		for _, v := range r {
			return v, nil
		}
	}
	return 0, fmt.Errorf("none of the rewards %v is named reward: %w", slices.Sorted(maps.Keys(r)), ErrUngradable)
}
