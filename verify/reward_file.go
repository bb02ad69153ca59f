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

// Rewards are the numbers that a Harbor task's script has written, by name.
type Rewards map[string]float64

// rewardFiles returns the files to which a script may write its verdict, the preferred one first: like Harbor, it
// prefers reward.json over reward.txt. file is Task.Tests.RewardFile.
func rewardFiles(file string) []string {
	stem := strings.TrimSuffix(file, path.Ext(file))
	return []string{stem + ".json", stem + ".txt"}
}

// ReadReward parses a reward file: an object of finite numbers if the name ends in .json, otherwise one finite number.
// Errors wrap ErrUngradable.
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
			return nil, errors.New("it is not a finite number")
		}
		return Rewards{"reward": number}, nil
	}
	var values map[string]any
	if err := json.Unmarshal(data, &values); err != nil {
		return nil, fmt.Errorf("it is not a JSON object of numbers: %w", err)
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

// Reward returns the number named "reward", or the only one. The error wraps ErrUngradable.
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
